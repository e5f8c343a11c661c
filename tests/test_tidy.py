"""The house stays tidy: what ARCHITECTURE.md says of modules, names and writers is so.

Every rule is a function over a tree, so that each is also shown to find what it is there to find.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("kademlia", "tera", "pulsar", "topic_dht", "history")
"""The rooms below protocol/ whose modules are layers of one protocol."""
SUITES = ("differential", "end_to_end", "fuzz", "kit", "node", "scenarios")
"""Folders of tests that mirror no room: they are about the whole, or programs of others."""
ANY_MOST = 119
IGNORES_MOST = 13
CASTS_MOST = 8
NOT_GERUNDS = ("routing",)
"""The papers' own noun for how events find their subscribers."""
ARGPARSE = ("args", "action")
"""Objects of argparse, which are there to be written to."""
OF_OTHERS = {"_replace", "_gateway", "_gateway_client"}
"""Names of other libraries: named tuples', and Spark's Java process, which tests must end."""
CALLED_FROM_OUTSIDE = {
    *("connection_made", "connection_lost", "get_buffer", "buffer_updated", "eof_received"),
    *("pause_writing", "resume_writing"),  # asyncio's protocols
    *("streamReader", "initialOffset", "latestOffset", "partitions", "commit"),  # Spark's sources
    "capture_signals",  # uvicorn's server
    "get_suitable_cache_subpath",  # numba's locator of compiled code
}
RIDDLES = re.compile(r"\b(?:who|whoever|whom)\b", re.IGNORECASE)
RIDDLES_MOST = 20
EMPTY_TEXTS = re.compile(r"^(?:see (?:the )?module|one of them|the same)\b.{0,12}$", re.IGNORECASE)
PATHS = re.compile(r"(?<![\w/.:-])((?:[\w-]+/)*[\w-]+\.(?:py|md))\b")
CLOCKS = {"monotonic", "perf_counter", "process_time", "sleep", "thread_time", "monotonic_ns"}


@dataclass(frozen=True)
class Module:
    """One file of the package, parsed."""

    path: Path
    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def room(self) -> str:
        return self.name.split(".")[1] if self.name.count(".") > 1 else ""

    @property
    def is_exempt(self) -> bool:
        """Commands are as long as their options; a package's file has its text and little else."""
        return self.room == "cli" or self.path.name.startswith("__")


@dataclass
class House:
    """The package below a root, with the tests and benchmarks beside it."""

    root: Path
    modules: dict[str, Module] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.modules = {}
        for path in sorted((self.root / "src" / "weft").rglob("*.py")):
            parts = list(path.relative_to(self.root / "src").with_suffix("").parts)
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.modules[name] = Module(path, name, path.read_text())

    def others(self, *folders: str) -> list[Module]:
        """Python files beside the package."""
        files = (path for folder in folders for path in sorted((self.root / folder).rglob("*.py")))
        return [Module(path, path.stem, path.read_text()) for path in files]

    def importers(self) -> dict[str, set[str]]:
        """Which modules import each module."""
        found: dict[str, set[str]] = {name: set() for name in self.modules}
        for module in self.modules.values():
            for name in _imported(module.tree):
                if name in found and name != module.name:
                    found[name].add(module.name)
        return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.module
                yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


# --- sizes and names --------------------------------------------------------------------------


def misfits(house: House) -> Iterator[str]:
    """Modules that are fragments of a concept, or several concepts."""
    importers = house.importers()
    for module in house.modules.values():
        if module.is_exempt:
            continue
        parts = module.name.split(".")
        is_layer = parts[1] == "protocol" and len(parts) > 3 and parts[2] in LAYERS
        least = 250 if is_layer else 80
        few = len(importers[module.name]) < 3
        if module.lines > 900 or (module.lines < least and few):
            yield f"{module.name}: {module.lines} lines, {len(importers[module.name])} importers"


def gerunds(house: House) -> Iterator[str]:
    """Modules are things, so their names are nouns."""
    for name in house.modules:
        base = name.rsplit(".", 1)[-1]
        if base.endswith("ing") and base not in NOT_GERUNDS:
            yield name


def namesakes(house: House) -> Iterator[str]:
    """Within a room and the rooms below it, a module's name stands once."""
    seen: dict[tuple[str, str], str] = {}
    for module in house.modules.values():
        if module.path.name == "__init__.py" or not module.room:
            continue
        base = module.name.rsplit(".", 1)[-1]
        if module.name.split(".")[-2] == base:
            continue  # the front of a room is called as the room is
        key = (module.room, base)
        if key in seen:
            yield f"{module.name} and {seen[key]}"
        seen[key] = module.name


# --- one writer -------------------------------------------------------------------------------


def _own_attributes(tree: ast.Module) -> set[str]:
    """Attributes that classes of a module have: assigned to self, declared, or in slots."""
    own: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                if isinstance(inner.value, ast.Name) and inner.value.id in ("self", "cls"):
                    own.add(inner.attr)
            elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                own.add(inner.target.id)
    return own


def foreign_writes(house: House) -> Iterator[str]:
    """Assignments to attributes of objects whose class stands in another module of the package."""
    own = {name: _own_attributes(module.tree) for name, module in house.modules.items()}
    known = set().union(*own.values()) if own else set()
    for module in house.modules.values():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
                continue
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", *ARGPARSE):
                continue
            if ast.unparse(node.value).endswith(("counters", "counts", "totals")):
                continue  # what is counted for people to look at is counted where it happens
            if node.attr in known and node.attr not in own[module.name]:
                yield f"{module.name}:{node.lineno} {ast.unparse(node)}"


def counters_read(house: House) -> Iterator[str]:
    """Counters are for people to look at: no machine reads one."""
    for module in house.modules.values():
        if module.room != "protocol":
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                value = node.value
                name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
                if name == "counters":
                    yield f"{module.name}:{node.lineno}"


# --- dead weight ------------------------------------------------------------------------------


def _defined(module: Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
    for node in module.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, node.lineno


def _used(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rsplit(".", 1)[-1]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\w+", node.value) if len(node.value) < 200 else ()


def unused(house: House) -> Iterator[str]:
    """Functions, classes and constants that nothing but tests uses. Pages count as users: what
    they name is for applications."""
    used: set[str] = set()
    for module in [*house.modules.values(), *house.others("benchmarks")]:
        imports = {
            alias.asname or alias.name
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ImportFrom | ast.Import)
            for alias in node.names
        }
        names = set(_used(module.tree))
        used |= names | imports
    for page in [*house.root.glob("*.md"), *house.root.glob("docs/**/*.md")]:
        used |= set(re.findall(r"\w+", page.read_text()))
    for module in house.modules.values():
        for name, line in _defined(module):
            if name in CALLED_FROM_OUTSIDE:
                continue
            if name not in used and not (name.startswith("__") and name.endswith("__")):
                yield f"{module.name}:{line} {name}"


# --- words ------------------------------------------------------------------------------------


def missing_paths(house: House) -> Iterator[str]:
    """Files that pages, comments and texts name and that are not there."""
    folders = ("src", "tests", "docs", "benchmarks", "examples")
    known = [f"/{path.name}" for path in house.root.glob("*.*")]
    known += [path.as_posix() for folder in folders for path in (house.root / folder).rglob("*.*")]
    pages = [*house.root.glob("*.md"), *house.root.glob("docs/**/*.md")]
    files = [(page, page.read_text()) for page in pages if page.name != "CHANGELOG.md"]
    files += [(module.path, "\n".join(_prose(module))) for module in house.modules.values()]
    for path, text in files:
        for name in sorted(set(PATHS.findall(text)) - {"example.py"}):
            if not any(one.endswith(f"/{name}") for one in known):
                yield f"{path.relative_to(house.root)}: {name}"


def _prose(module: Module) -> Iterator[str]:
    """Comments and docstrings of a module."""
    for line in module.text.splitlines():
        before, found, comment = line.partition("#")
        if found and before.count('"') % 2 == 0:
            yield comment
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def empty_texts(house: House) -> Iterator[str]:
    """Docstrings that say nothing."""
    for module in house.modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text is not None and EMPTY_TEXTS.match(text):
                    yield f"{module.name}:{node.lineno} {text}"


def riddles(house: House) -> list[str]:
    """Sentences about somebody unnamed."""
    return [
        f"{module.name}: {line.strip()}"
        for module in house.modules.values()
        for line in module.text.splitlines()
        if RIDDLES.search(line)
    ]


# --- tests ------------------------------------------------------------------------------------


def private_touches(house: House) -> Iterator[str]:
    """Tests that look behind a public face."""
    for module in house.others("tests"):
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Attribute) or not re.match(r"_[a-z]", node.attr):
                continue
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                continue
            if node.attr in OF_OTHERS:
                continue
            yield f"{module.path.relative_to(house.root)}:{node.lineno} {ast.unparse(node)}"


def timed_tests(house: House) -> Iterator[str]:
    """Tests that read a clock or sleep: timings belong into benchmarks. Kits may have a deadline
    for what a test waits for."""
    for module in house.others("tests"):
        if not module.path.name.startswith("test_"):
            continue
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Attribute) or node.attr not in CLOCKS:
                continue
            if isinstance(node.value, ast.Name) and node.value.id in ("time", "asyncio"):
                yield f"{module.path.relative_to(house.root)}:{node.lineno}"


def strays(house: House) -> Iterator[str]:
    """Folders of tests that mirror no room, and rooms without tests."""
    source, tests = house.root / "src" / "weft", house.root / "tests"
    for folder in sorted(path for path in tests.rglob("*") if path.is_dir()):
        parts = folder.relative_to(tests).parts
        if parts[0] in SUITES or "__pycache__" in parts or parts[-1].startswith("."):
            continue
        if not (source / Path(*parts)).is_dir():
            yield f"tests/{'/'.join(parts)} mirrors nothing"
    for room in sorted(path for path in source.rglob("*") if path.is_dir()):
        parts = room.relative_to(source).parts
        if "__pycache__" in parts:
            continue
        if not any((tests / Path(*parts)).rglob("test_*.py")):
            yield f"src/weft/{'/'.join(parts)} has no tests"


RULES: list[Callable[[House], Iterable[str]]] = [
    misfits,
    gerunds,
    namesakes,
    foreign_writes,
    counters_read,
    unused,
    missing_paths,
    empty_texts,
    private_touches,
    timed_tests,
    strays,
]


@pytest.fixture(scope="module")
def house() -> House:
    return House(ROOT)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_is_tidy(rule: Callable[[House], Iterable[str]], house: House) -> None:
    found = list(rule(house))
    assert not found, f"{rule.__doc__}\n" + "\n".join(found)


def test_riddles_are_few(house: House) -> None:
    found = riddles(house)
    assert len(found) <= RIDDLES_MOST, "\n".join(found)


@pytest.mark.parametrize(
    ("pattern", "most"),
    [(r"\bAny\b", ANY_MOST), (r"type: ignore", IGNORES_MOST), (r"(?<![.\w])cast\(", CASTS_MOST)],
)
def test_types_are_real(house: House, pattern: str, most: int) -> None:
    counts = {n: len(re.findall(pattern, m.text)) for n, m in house.modules.items()}
    worst = sorted(counts.items(), key=lambda item: -item[1])[:12]
    assert sum(counts.values()) <= most, worst


# --- the rules have teeth ---------------------------------------------------------------------


def _planted(tmp_path: Path, files: dict[str, str]) -> House:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return House(tmp_path)


PLANTED: list[tuple[Callable[[House], Iterable[str]], dict[str, str]]] = [
    (misfits, {"src/weft/net/a.py": "x = 1\n"}),
    (misfits, {"src/weft/net/a.py": "x = 1\n" * 901}),
    (misfits, {"src/weft/protocol/tera/a.py": "x = 1\n" * 200}),
    (gerunds, {"src/weft/net/waiting.py": ""}),
    (namesakes, {"src/weft/net/x/a.py": "", "src/weft/net/y/a.py": ""}),
    (
        foreign_writes,
        {
            "src/weft/net/a.py": "class A:\n    def __init__(self):\n        self.flag = 1\n",
            "src/weft/net/b.py": "def b(a):\n    a.flag = 2\n",
        },
    ),
    (counters_read, {"src/weft/protocol/a.py": "def a(ctx):\n    return ctx.counters['x'] > 1\n"}),
    (unused, {"src/weft/net/a.py": "def forgotten():\n    pass\n"}),
    (missing_paths, {"docs/a.md": "see `net/gone/away.py`"}),
    (missing_paths, {"src/weft/net/a.py": '"""See `gone.py`."""\n'}),
    (empty_texts, {"src/weft/net/a.py": 'class A:\n    """See the module\'s text."""\n'}),
    (private_touches, {"tests/net/test_a.py": "def test(a):\n    assert a._b\n"}),
    (timed_tests, {"tests/net/test_a.py": "import time\n\ntime.sleep(1)\n"}),
    (strays, {"tests/nowhere/test_a.py": "", "src/weft/ids.py": ""}),
    (strays, {"tests/conftest.py": "", "src/weft/net/a.py": ""}),
]


@pytest.mark.parametrize(("rule", "files"), PLANTED, ids=lambda v: getattr(v, "__name__", ""))
def test_the_rule_finds_what_was_planted(
    rule: Callable[[House], Iterable[str]], files: dict[str, str], tmp_path: Path
) -> None:
    assert list(rule(_planted(tmp_path, files)))
