"""The house stays tidy: what ARCHITECTURE.md says of modules, names and writers is so.

Every rule is a function over a tree, so that each is also shown to find what it is there to find.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("kademlia", "tera", "pulsar", "topic_dht", "history")
"""The rooms below protocol/ whose modules are layers of one protocol."""
SUITES = ("differential", "end_to_end", "fuzz", "kit", "node", "scenarios")
"""Folders of tests that mirror no room: they are about the whole, or programs of others."""
BESIDE = ("benchmarks", "examples", "tests/kit")
"""Folders of programs that are tested in the room they are about."""
ABOUT_SEVERAL = {
    *("attack", "crash", "workload"),  # groups of experiments
    *("bench", "cli", "packaging", "stop"),  # what users start, from the room that it works in
}
ANY_MOST = 119
IGNORES_MOST = 13
CASTS_MOST = 8
NOT_GERUNDS = ("routing",)
"""The papers' own noun for how events find their subscribers."""
ARGPARSE = ("args", "action")
"""Objects of argparse, which are there to be written to."""
MAILBOXES = ("out", "signals")
"""Of a machine's context: layers put effects and signals there, and the peer takes them out."""
CONTAINERS = ("dict", "list", "set", "deque", "defaultdict", "BoundedDict", "OrderedDict")
MUTATORS = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem"),
    *("popleft", "remove", "renew", "setdefault", "update"),
}
OF_BUILT_INS = {name for kind in (str, bytes, dict, list, set) for name in dir(kind)}
BY_NAME = ("setattr", "delattr")
DROPS = {"clear", "discard", "pop", "popitem", "popleft", "remove"}
EVENTS = re.compile(r"^on_|(?:ed|left|lost)$|^(?:begin|close|end)$")
"""Names of methods by which an object is told what happened: what it writes then, it decides,
unless that is given to it."""
CONTEXTS = ("_ctx", "_loop", "_clock")
"""What an object asks for the time and the settings, which is no state of its own."""
SETTERS_KEPT = {
    # The peer hands a driver's fact to the layer that it is about, as it does with all facts.
    "Context.on_stalled",
    # The storage gathers what is to be written, whichever layer of the history has it.
    "Storage.begin",
    # A topic is left: each layer of the history drops what it held for it.
    "Versions.forget_topic",
}
"""What the rule on setters finds, and what is right as it is; three at the most."""
COUNTING = ("as_dict", "dial", "dropped", "fault", "histograms", "items")
"""What counters do by themselves: they count, and say their values to people."""
OF_OTHERS = {"_replace", "_gateway", "_gateway_client"}
"""Names of other libraries: named tuples', and Spark's Java process, which tests must end."""
ONLY_HELD = {
    "_failing",  # a task, which asyncio keeps no hold of
    "agent",  # of a greeting, for people that look at the wire
}
CALLED_FROM_OUTSIDE = {
    *("connection_made", "connection_lost", "get_buffer", "buffer_updated", "eof_received"),
    *("data_received", "pause_writing", "resume_writing"),  # asyncio's protocols
    *("streamReader", "initialOffset", "latestOffset", "partitions", "commit"),  # Spark's sources
    *("capture_signals", "on_response_complete", "startup"),  # uvicorn's server
    "get_suitable_cache_subpath",  # numba's locator of compiled code
}
RIDDLES = re.compile(r"(?<![.\w])(?:who|whoever|whom)\b", re.IGNORECASE)
"""Not the names of draws, which end with `.who`."""
EMPTY_TEXTS = re.compile(
    r"^(?:(?:see (?:the )?module|one of them)\b.{0,12}"
    r"|the same(?: (?:as|for|in|of|over|to|with)\b[^,.:;]*)?\.?"
    r"|(?:as )?(?:one|a|an|the) \w+\.?"
    r"|(?:guess|measured|paper)\W*(?:this|the same)?\W*)$",
    re.IGNORECASE,
)
"""Texts that refer to another one, that repeat a name, and marks of constants that do not say what
is bounded."""
PATHS = re.compile(
    r"(?<![\w/.:-])((?:[\w-]+/)*[\w-]+\.(?:py|md|toml|ya?ml|sh|m?js|json|html|css|svg|service|txt))\b|`((?:[\w-]+/)+)`"
)
CODE = re.compile(r"(?s:^ *```.*?^ *```$)|^ {4}.*$|`[^`\n]+`", re.MULTILINE)
"""On pages: fenced and indented blocks, and what stands between backticks."""
ELSEWHERE = {
    *("example.py", "small.toml", "new.json", "old.json"),  # that readers write
    *("page.html", "report.html", "recommended.toml", "out", "tables", "trace"),  # that runs write
    *("cluster.json", "lake.json", "spark.json", "summary.json", "universe.json", "verdict.json"),
    *("versus.json", "figure.svg", "latency.svg", "load.svg", "overlay.svg"),
    *("config1.txt", "nats.js", "msgspec.json"),  # of other projects
}
CLOCKS = {
    *("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"),
    *("process_time_ns", "sleep", "thread_time", "thread_time_ns", "time"),
}
"""Not `time_ns`, by which tests set the wall clock that peers read."""
WALL_CLOCKS = {"time_ns", "now", "utcnow", "today"}
"""What tests may read to set a clock, or to date what they make."""


@dataclass(frozen=True)
class Module:
    """One file of the package, parsed."""

    path: Path
    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree, walked once for all rules."""
        return list(ast.walk(self.tree))

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

    @cached_property
    def tests(self) -> list[Module]:
        """The tests and their kit."""
        files = sorted((self.root / "tests").rglob("*.py"))
        return [Module(path, path.stem, path.read_text()) for path in files]

    @cached_property
    def beside(self) -> list[Module]:
        """Benchmarks and examples."""
        folders = (self.root / name for name in ("benchmarks", "examples"))
        files = (path for folder in folders for path in sorted(folder.rglob("*.py")))
        return [Module(path, path.stem, path.read_text()) for path in files]

    def importers(self) -> dict[str, set[str]]:
        """Which modules import each module."""
        found: dict[str, set[str]] = {name: set() for name in self.modules}
        for module in self.modules.values():
            for name in _imported(module.nodes):
                if name in found and name != module.name:
                    found[name].add(module.name)
        return found


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
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
    """Within a room and the rooms below it, a module's name stands once, with or without an
    underscore before it."""
    seen: dict[tuple[str, str], str] = {}
    for module in house.modules.values():
        if module.path.name == "__init__.py" or not module.room:
            continue
        base = module.name.rsplit(".", 1)[-1].lstrip("_")
        if module.name.split(".")[-2] == base:
            continue  # the front of a room is called as the room is
        key = (module.room, base)
        if key in seen:
            yield f"{module.name} and {seen[key]}"
        seen[key] = module.name


def cycles(house: House) -> Iterator[str]:
    """Modules that import each other, also from within functions; types alone may."""
    imports: dict[str, set[str]] = {}
    for module in house.modules.values():
        for_types = {
            id(inner)
            for node in module.nodes
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        others = [node for node in module.nodes if id(node) not in for_types]
        imports[module.name] = {*_imported(others)} & house.modules.keys() - {module.name}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        yield " → ".join(reversed(error.args[1]))


# --- one writer -------------------------------------------------------------------------------


def _own_attributes(nodes: list[ast.AST]) -> set[str]:
    """Attributes that classes of a module have: assigned to self, declared, or in slots."""
    own: set[str] = set()
    for node in nodes:
        if not isinstance(node, ast.ClassDef):
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                if isinstance(inner.value, ast.Name) and inner.value.id in ("self", "cls"):
                    own.add(inner.attr)
            elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                own.add(inner.target.id)
    return own


def _containers(nodes: list[ast.AST]) -> set[str]:
    """Attributes of a module's classes that hold dictionaries, lists or sets."""
    return {
        (node.target.attr if isinstance(node.target, ast.Attribute) else node.target.id)
        for one in nodes
        if isinstance(one, ast.ClassDef)
        for node in ast.walk(one)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Attribute | ast.Name)
        and ast.unparse(node.annotation).strip("'\"").split("[")[0] in CONTAINERS
    }


def _shortened(nodes: list[ast.AST]) -> dict[int, ast.Attribute]:
    """Local names that stand for an attribute of an object: where they stand, and what for."""
    found: dict[int, ast.Attribute] = {}
    for function in nodes:
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inside = list(ast.walk(function))
        meant = {
            target.id: node.value
            for node in inside
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        names = (node for node in inside if isinstance(node, ast.Name) and node.id in meant)
        found |= {id(node): meant[node.id] for node in names} if meant else {}
    return found


def _written(
    node: ast.AST, shortened: dict[int, ast.Attribute]
) -> tuple[ast.Attribute | None, bool]:
    """The attribute that a node writes, and whether it is bound anew; else what it holds is
    changed."""
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        return node, True
    held: ast.expr | None = None
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        held = node.value if not isinstance(node.slice, ast.Slice) else None  # of an array
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_set = node.func.attr != "add" or len(node.args) == 1
        held = node.func.value if node.func.attr in MUTATORS and is_set else None
    while isinstance(held, ast.Subscript):
        held = held.value
    held = shortened.get(id(held), held)
    return (held if isinstance(held, ast.Attribute) else None), False


def _writes_to_arguments(nodes: list[ast.AST], shortened: dict[int, ast.Attribute]) -> set[int]:
    """Nodes that write to an argument whose annotation names a class of another module."""
    imported = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("weft")
        for alias in node.names
    }
    found: set[int] = set()
    for function in nodes:
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        arguments = [*function.args.args, *function.args.kwonlyargs]
        foreign = {
            one.arg
            for one in arguments
            if one.annotation and set(re.findall(r"^\w+", ast.unparse(one.annotation))) & imported
        }
        for node in ast.walk(function) if foreign else ():
            target, _ = _written(node, shortened)
            if target is not None and ast.unparse(target.value) in foreign:
                found.add(id(node))
    return found


def foreign_writes(house: House) -> Iterator[str]:
    """Writes to attributes of objects whose class stands in another module of the package: bound
    anew or deleted, by name or by `setattr`; changed, where they hold containers. Columns of
    arrays are not looked at: a kernel is a function over them."""
    own = {name: _own_attributes(module.nodes) for name, module in house.modules.items()}
    known = set().union(*own.values()) if own else set()
    holding = {name: _containers(module.nodes) for name, module in house.modules.items()}
    containers = set().union(*holding.values()) if holding else set()
    for module in house.modules.values():
        shortened = _shortened(module.nodes)
        certain = _writes_to_arguments(module.nodes, shortened)
        for node in module.nodes:
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in BY_NAME:
                if module.name != "weft.lab.defect":  # which is there to plant defects
                    yield f"{module.name}:{node.lineno} {ast.unparse(node)}"
                continue
            target, bound = _written(node, shortened)
            if target is None or target.attr in MAILBOXES:
                continue
            if ast.unparse(target.value) in ("self", "cls", *ARGPARSE):
                continue
            if ast.unparse(target if not bound else target.value).endswith(
                ("counters", "counts", "totals")
            ):
                continue  # what is counted for people to look at is counted where it happens
            if target.attr not in (known if bound else containers):
                continue
            if module.room == "engine" and not bound:
                continue
            if target.attr not in own[module.name] or id(node) in certain:
                yield f"{module.name}:{node.lineno} {ast.unparse(node)}"


def _classes(house: House) -> dict[tuple[str, str], tuple[ast.ClassDef, list[tuple[str, str]]]]:
    """All classes by module and name, each with those that it inherits from directly."""
    found: dict[tuple[str, str], tuple[ast.ClassDef, list[tuple[str, str]]]] = {}
    for module in house.modules.values():
        origins = {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in module.nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in module.nodes:
            if not isinstance(node, ast.ClassDef):
                continue
            bases = []
            for base in node.bases:
                name = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
                front, _, last = name.rpartition(".")
                of = ".".join(origins.get(front, ("", front))).lstrip(".")
                bases.append((of, last) if front else origins.get(name, (module.name, name)))
            found[module.name, node.name] = node, bases
    return found


def inherited_writes(house: House) -> Iterator[str]:
    """Writes to attributes of `self` that a class of another module has already: bound anew or
    deleted; changed, where they hold containers."""
    classes = _classes(house)
    for (name, _), (node, bases) in classes.items():
        bound: set[str] = set()
        containers: set[str] = set()
        left = list(bases)
        while left:
            above = left.pop()
            if above in classes:
                parent, further = classes[above]
                left += further
                if above[0] != name:
                    bound |= _own_attributes([parent])
                    containers |= _containers([parent])
        inside = list(ast.walk(node)) if bound else []
        shortened = _shortened(inside)
        for one in inside:
            target, anew = _written(one, shortened)
            if target is None or ast.unparse(target.value) not in ("self", "cls"):
                continue
            if target.attr in (bound if anew else containers):
                yield f"{name}:{getattr(one, 'lineno', 0)} {ast.unparse(one)}"


def _is_setter(method: ast.stmt) -> bool:
    """Whether all that a method does is to put something into attributes of its object, or to take
    it out there: what it is given, a constant, or what the context says. A method that looks at the
    object's state on the way decides something, and one that adds up counts."""
    if not isinstance(method, ast.FunctionDef) or method.decorator_list:
        return False
    body = method.body[ast.get_docstring(method) is not None :]
    parameters = {one.arg for one in [*method.args.args, *method.args.kwonlyargs]} - {"self"}
    counts = [one for one in body if isinstance(one, ast.AugAssign)]
    if body == counts and not any(parameters & _names(one.value) for one in counts):
        return False
    if EVENTS.search(method.name) and not any(parameters & _stored(one) for one in body):
        return False
    return bool(body) and all(map(_is_plain_write, body))


def _stored(one: ast.stmt) -> set[str]:
    """Names whose values a statement puts into an attribute, not only under them."""
    if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign):
        return _names(one.value) if one.value is not None else set()
    called = one.value if isinstance(one, ast.Expr) else None
    drops = not isinstance(called, ast.Call) or _name(called.func) in DROPS
    return set() if drops else _names(one)


def _is_plain_write(one: ast.stmt) -> bool:
    """Whether a statement writes an attribute of `self` and reads none but the context's."""
    targets: list[ast.expr] = []
    given: list[ast.AST] = []
    if isinstance(one, ast.Assign | ast.Delete):
        targets = one.targets
    elif isinstance(one, ast.AugAssign | ast.AnnAssign):
        targets = [one.target]
    elif isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
        called = one.value.func
        if isinstance(called, ast.Attribute) and called.attr in MUTATORS:
            targets, given = [called.value], [*one.value.args, *one.value.keywords]
    if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign) and one.value is not None:
        given = [one.value]
    owners = set()
    for target in targets:
        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
            held = part
            while isinstance(held, ast.Subscript):
                given += [] if isinstance(one, ast.AugAssign) else [held.slice]
                held = held.value
            owners.add(ast.unparse(held.value) if isinstance(held, ast.Attribute) else "")
    chooses = any(
        isinstance(node, ast.IfExp) or (isinstance(node, ast.comprehension) and node.ifs)
        for part in given
        for node in ast.walk(part)
    )
    return owners == {"self"} and not chooses and "self" not in set().union(*map(_names, given))


def _names(part: ast.AST) -> set[str]:
    """The names that an expression reads; `self` only if it reads more of it than the context."""
    inside = list(ast.walk(part))
    context = {
        id(node.value)
        for node in inside
        if isinstance(node, ast.Attribute) and node.attr in CONTEXTS
    }
    return {node.id for node in inside if isinstance(node, ast.Name) and id(node) not in context}


def _meant(house: House) -> dict[str, set[str]]:
    """Which classes of the package a name stands for: of a variable, an attribute or a function
    with that annotation or with an object of the class. Other classes are an empty name."""
    nodes = [node for module in house.modules.values() for node in module.nodes]
    classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    found: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.arg):
            name, said = node.arg, node.annotation
        elif isinstance(node, ast.AnnAssign):
            name, said = _name(node.target), node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name, said = node.name, node.returns
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name, said = _name(node.targets[0]), node.value.func
            said = said if _name(said) in classes else None
        else:
            continue
        if said is not None:
            words = set(re.findall(r"\w+", ast.unparse(said)))
            found.setdefault(name, set()).update(words & classes or {""})
    return found


def _setters(house: House) -> Iterator[tuple[str, str, str]]:
    """Setters that one other module alone calls: where each stands, its name, and that module.
    Which objects a method is called on is told from the names of variables, as far as they have
    annotations; one of unknown class may be of any, and a name that one class alone has is its."""
    meant = _meant(house)
    defined = Counter(name for one in house.modules.values() for name, _ in _defined(one))
    users: dict[str, list[tuple[str, str]]] = {}
    for module in house.modules.values():
        for node in module.nodes:
            if isinstance(node, ast.Attribute):
                of = node.value.func if isinstance(node.value, ast.Call) else node.value
                of = of.value if isinstance(of, ast.Subscript) else of
                users.setdefault(node.attr, []).append((module.name, _name(of)))
    for module in house.modules.values():
        for one in module.nodes:
            for method in one.body if isinstance(one, ast.ClassDef) else ():
                name = method.name if isinstance(method, ast.FunctionDef) else ""
                if not _is_setter(method) or name.startswith("__") or name in CALLED_FROM_OUTSIDE:
                    continue
                calls = users.get(name, [])
                certain = {user for user, of in calls if of == "self" and user == module.name}
                certain |= {user for user, of in calls if one.name in meant.get(of, ())}
                sole = defined[name] == 1 and name not in OF_BUILT_INS
                perhaps = {user for user, of in calls if of != "self" and (sole or of not in meant)}
                callers = certain | perhaps if not certain or defined[name] == 1 else certain
                if len(callers) == 1 and module.name not in callers:
                    where = f"{module.name}:{method.lineno}"
                    yield where, f"{one.name}.{name}", min(callers)


def setters_for_others(house: House) -> Iterator[str]:
    """Methods that put into an attribute what they are given, or take it out, and that one other
    module alone calls: it writes the attribute then, by another name. Tell the object what
    happened, build it with the value, or keep the state where it is written."""
    for where, name, caller in _setters(house):
        if name not in SETTERS_KEPT:
            yield f"{where} {name}, for {caller}"


def late_callbacks(house: House) -> Iterator[str]:
    """Functions that an object is given after its construction, and keeps: which one it calls then
    depends on what came before."""
    for module in house.modules.values():
        named = {
            _name(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            for node in module.tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            if "Callable" in _names(node.value)
        }
        for function in module.nodes:
            if not isinstance(function, ast.FunctionDef) or function.name == "__init__":
                continue
            given = {
                one.arg
                for one in [*function.args.args, *function.args.kwonlyargs]
                if one.annotation is not None and {"Callable", *named} & _names(one.annotation)
            }
            for node in ast.walk(function):
                if not isinstance(node, ast.Assign) or _name(node.value) not in given:
                    continue
                if isinstance(node.targets[0], ast.Attribute):
                    yield f"{module.name}:{node.lineno} {ast.unparse(node)}"


def counters_read(house: House) -> Iterator[str]:
    """Counters are for people to look at: no machine reads one, and no driver keeps one to decide
    by."""
    for module in house.modules.values():
        if module.room not in ("protocol", "net"):
            continue
        names = {"counters", "_counters"}
        deciding: list[ast.AST] = [module.tree] if module.room == "protocol" else []
        for node in module.nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                local = [target.id for target in targets if isinstance(target, ast.Name)]
                deciding += [node.value] if local else []
                if getattr(node.value, "attr", "") in names:
                    names.update(local)
            elif isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
                deciding.append(node.test)
            elif isinstance(node, ast.Compare):
                deciding.append(node)
        read = (node for part in deciding for node in ast.walk(part) if _reads(node, names))
        yield from sorted({f"{module.name}:{node.lineno} {ast.unparse(node)}" for node in read})


def _reads(node: ast.AST, names: set[str]) -> TypeGuard[ast.Subscript | ast.Attribute]:
    """Whether a node is the value of a counter; counters are counted up by methods, too."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func if node.func.attr == "get" else node
    elif isinstance(node, ast.Attribute) and node.attr in COUNTING:
        return False
    if not isinstance(node, ast.Subscript | ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return False
    value = node.value
    return (value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")) in names


# --- dead weight ------------------------------------------------------------------------------


def _defined(module: Module) -> Iterator[tuple[str, ast.stmt]]:
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
    for node in module.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, node


def _used(nodes: list[ast.AST]) -> Counter[str]:
    """How often each name stands somewhere, but for texts: what is named there is not used."""
    found: Counter[str] = Counter()
    texts = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found[node.id] += 1
        elif isinstance(node, ast.Attribute):
            found[node.attr] += 1
        elif isinstance(node, ast.alias):
            found[node.name.rsplit(".", 1)[-1]] += 1
        elif isinstance(node, ast.Constant) and id(node) not in texts:
            text = node.value if isinstance(node.value, str) else ""
            found.update(re.findall(r"\w+", text) if len(text) < 200 else ())
    return found


def unused(house: House) -> Iterator[str]:
    """Functions, classes and constants that nothing but tests and benchmarks uses, or only they
    themselves. Code on pages counts as a user: what it names is for applications."""
    uses = {module.name: _used(module.nodes) for module in house.modules.values()}
    used: Counter[str] = Counter()
    for each in uses.values():
        used.update(each)
    pages: set[str] = set()
    for page in [*house.root.glob("*.md"), *house.root.glob("docs/**/*.md")]:
        for code in CODE.findall(page.read_text()):
            pages |= set(re.findall(r"\w+", code))
    for module in house.modules.values():
        for name, node in _defined(module):
            if name in CALLED_FROM_OUTSIDE or name in pages:
                continue
            elsewhere = used[name] > uses[module.name][name]
            if elsewhere or re.fullmatch(r"__\w+__", name):
                continue
            if used[name] <= _used(list(ast.walk(node)))[name]:
                yield f"{module.name}:{node.lineno} {name}"


def unread_attributes(house: House) -> Iterator[str]:
    """Attributes that classes have and nothing in the package reads: only tests or benchmarks do.
    Counters are read by `vars`."""
    read: set[str] = set()
    for module in house.modules.values():
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                read.update(re.findall(r"\w+", node.value) if len(node.value) < 200 else ())
    for module in house.modules.values():
        if not module.name.endswith(".counters"):
            bodies = [node.body for node in module.nodes if isinstance(node, ast.ClassDef)]
            own = {
                _name(one.target)
                for body in bodies
                for one in body
                if isinstance(one, ast.AnnAssign)
            }
            own |= {
                node.attr
                for node in module.nodes
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
            }
            yield from (f"{module.name} {name}" for name in sorted(own - read - ONLY_HELD))


def unread_parameters(house: House) -> Iterator[str]:
    """Parameters that functions do not read, and options that no call gives. Left out is what may
    have to be so: methods that have namesakes, which may be overridden, and functions that are
    passed on or decorated, which are called as others want."""
    users = [*house.modules.values(), *house.tests, *house.beside]
    defined: Counter[str] = Counter()
    passed_on: set[str] = set()
    calls: dict[str, list[ast.Call]] = {}
    for module in users:
        called = {id(node.func) for node in module.nodes if isinstance(node, ast.Call)}
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined[node.name] += 1
            elif isinstance(node, ast.Call):
                calls.setdefault(_name(node.func), []).append(node)
            elif isinstance(node, ast.Name | ast.Attribute) and id(node) not in called:
                passed_on.add(_name(node))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                passed_on.update(re.findall(r"\w+", node.value) if len(node.value) < 200 else ())
    for module in house.modules.values():
        for node in module.nodes:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.decorator_list:
                continue
            if isinstance(node.body[-1], ast.Expr) and ast.unparse(node.body[-1]) == "...":
                continue  # of a `typing.Protocol`
            if node.name in passed_on or defined[node.name] > 1 or node.name.startswith("__"):
                continue
            read = {one.id for part in node.body for one in ast.walk(part) if _is_read(one)}
            arguments = [*node.args.args, *node.args.kwonlyargs]
            unread = [one.arg for one in arguments if one.arg not in {*read, "self", "cls"}]
            options = _options(node)
            given = {
                name
                for call in calls.get(node.name, ())
                for name, place in options.items()
                if len(call.args) > place
                or any(isinstance(one, ast.Starred) for one in call.args)
                or any(one.arg in (None, name) for one in call.keywords)
            }
            for name in [*unread, *(one for one in options if one not in given)]:
                yield f"{module.name}:{node.lineno} {node.name}({name})"


def _name(node: ast.AST) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _is_read(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def _options(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, int]:
    """The parameters with defaults, and after how many others each may be given without a name."""
    arguments = function.args
    names = [one.arg for one in arguments.args if one.arg not in ("self", "cls")]
    first = len(names) - len(arguments.defaults)
    found = {name: place for place, name in enumerate(names) if place >= first}
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return found | {one.arg: len(names) for one, default in keywords if default is not None}


def unread_settings(house: House) -> Iterator[str]:
    """Settings that nothing asks for."""
    read = {
        node.attr
        for module in house.modules.values()
        for node in module.nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    for module in house.modules.values():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Config", "Settings")):
                for one in node.body:
                    if isinstance(one, ast.AnnAssign) and ast.unparse(one.target) not in read:
                        yield f"{module.name}:{one.lineno} {ast.unparse(one.target)}"


# --- words ------------------------------------------------------------------------------------


def missing_paths(house: House) -> Iterator[str]:
    """Files that pages, comments and texts name and that are not there."""
    folders = ("src", "tests", "docs", "benchmarks", "examples", "requirements", "packaging")
    known = [f"/{path.name}" for path in house.root.glob("*")]
    known += [path.as_posix() for folder in folders for path in (house.root / folder).rglob("*")]
    pages = [*house.root.glob("*.md"), *house.root.glob("docs/**/*.md")]
    files = [(page, page.read_text()) for page in pages if page.name != "CHANGELOG.md"]
    files += [(module.path, "\n".join(_prose(module))) for module in house.modules.values()]
    for path, text in files:
        for name in sorted({(file or folder).rstrip("/") for file, folder in PATHS.findall(text)}):
            if name.rsplit("/", 1)[-1] in ELSEWHERE:
                continue
            if not any(one.endswith(f"/{name}") for one in known):
                yield f"{path.relative_to(house.root)}: {name}"
    for module in house.modules.values():
        if module.path.name == "__init__.py":
            here = {path.stem for path in module.path.parent.iterdir()} | {module.path.parent.name}
            text = ast.get_docstring(module.tree) or ""
            for name in sorted(set(re.findall(r"`([a-z_]+)`", text)) - here):
                yield f"{module.name}: {name} is no module of this room"


def _prose(module: Module) -> Iterator[str]:
    """Comments and docstrings of a module."""
    for line in module.text.splitlines():
        before, found, comment = line.partition("#")
        if found and before.count('"') % 2 == 0:
            yield comment
    for node in module.nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def empty_texts(house: House) -> Iterator[str]:
    """Docstrings that say nothing."""
    for module in house.modules.values():
        for node in module.nodes:
            said = node.value if isinstance(node, ast.Expr) else None
            if isinstance(said, ast.Constant) and EMPTY_TEXTS.match(str(said.value)):
                yield f"{module.name}:{said.lineno} {said.value}"


def riddles(house: House) -> Iterator[str]:
    """Sentences about somebody unnamed. Pages may ask for a name, and say it."""
    for module in house.modules.values():
        for line in module.text.splitlines():
            if RIDDLES.search(line):
                yield f"{module.name}: {line.strip()}"
    for module in [*house.tests, *house.beside]:
        for text in _prose(module):
            if RIDDLES.search(text):
                yield f"{module.path.relative_to(house.root)}: {text.strip()}"
    for page in [*house.root.glob("*.md"), *house.root.glob("docs/**/*.md")]:
        for line in page.read_text().splitlines() if page.name != "CHANGELOG.md" else ():
            if "whoever" in line.lower():
                yield f"{page.relative_to(house.root)}: {line}"


# --- tests ------------------------------------------------------------------------------------


def private_touches(house: House) -> Iterator[str]:
    """Tests that look behind a public face."""
    for module in house.tests:
        for node in module.nodes:
            if isinstance(node, ast.Attribute):
                if not re.match(r"_[A-Za-z]", node.attr) or node.attr in OF_OTHERS:
                    continue
                touched = ast.unparse(node.value) not in ("self", "cls")
            elif isinstance(node, ast.Call):
                function = getattr(node.func, "attr", getattr(node.func, "id", ""))
                named = [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
                by_name = function in ("getattr", "hasattr", "setattr", "delattr")
                touched = by_name and any(re.search(r"(?:^|\.)_[A-Za-z]", one) for one in named)
            else:
                continue
            if touched:
                yield f"{module.path.relative_to(house.root)}:{node.lineno} {ast.unparse(node)}"


def timed_tests(house: House) -> Iterator[str]:
    """Tests that read a clock or sleep: timings belong into benchmarks. Kits may have a deadline
    for what a test waits for. The wall clock may be read to set it, but no time is taken by it."""
    for module in house.tests:
        if not module.path.name.startswith("test_"):
            continue
        where = module.path.relative_to(house.root)
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom) and node.module in ("time", "asyncio"):
                if any(alias.name in CLOCKS for alias in node.names):
                    yield f"{where}:{node.lineno}"
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = ast.unparse(node.func.value)
                clock = re.search(r"(?:^time|^asyncio|loop(?:\(\))?)$", of)
                if node.func.attr in CLOCKS and clock:
                    yield f"{where}:{node.lineno}"
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from (f"{where}:{line}" for line in _compared(node))


def _compared(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[int]:
    """Lines that ask whether a reading of the wall clock is earlier, or how much earlier."""
    inside = list(ast.walk(function))

    def is_reading(node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            return _name(node.func) in WALL_CLOCKS
        return isinstance(node, ast.Name) and node.id in named

    named: set[str] = set()
    named |= {
        target.id
        for node in inside
        if isinstance(node, ast.Assign) and is_reading(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in inside:
        if isinstance(node, ast.Compare):
            ordered = any(isinstance(one, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for one in node.ops)
            parts = [node.left, *node.comparators] if ordered else []
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            parts = [node.left, node.right] if is_reading(node.right) else []
        else:
            continue
        if any(is_reading(one) for part in parts for one in ast.walk(part)):
            yield node.lineno


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


def nameless_tests(house: House) -> Iterator[str]:
    """Files of tests that are named after nothing in their room: `test_ROOM_X.py` is about module X
    or an aspect of it (X_aspect), about all modules of one family (X is how they begin), about the
    room as a whole, or about a benchmark, an example or a helper of the tests."""
    source, tests = house.root / "src" / "weft", house.root / "tests"
    beside = {path.stem for name in BESIDE for path in (house.root / name).rglob("*.py")}
    for file in house.tests:
        rooms = file.path.relative_to(tests).parts[:-1]
        if not rooms or rooms[0] in SUITES or not file.path.name.startswith("test_"):
            continue
        words = file.name.split("_")[1:]
        for room in sorted({*rooms, rooms[0] + "_" + rooms[-1]}, key=len, reverse=True):
            if words[: room.count("_") + 1] == room.split("_"):
                words = words[room.count("_") + 1 :]
                break
        known = {path.stem for path in (source / Path(*rooms)).iterdir()} | beside
        families = {name.split("_")[0] for name in known if "_" in name}
        starts = ["_".join(words[: count + 1]) for count in range(len(words))]
        if words and not (known | families | ABOUT_SEVERAL) & set(starts):
            yield file.path.relative_to(house.root).as_posix()


RULES: list[Callable[[House], Iterable[str]]] = [
    misfits,
    gerunds,
    namesakes,
    cycles,
    foreign_writes,
    inherited_writes,
    setters_for_others,
    late_callbacks,
    counters_read,
    unused,
    unread_attributes,
    unread_parameters,
    unread_settings,
    missing_paths,
    empty_texts,
    riddles,
    private_touches,
    timed_tests,
    strays,
    nameless_tests,
]


@pytest.fixture(scope="module")
def house() -> House:
    return House(ROOT)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_is_tidy(rule: Callable[[House], Iterable[str]], house: House) -> None:
    found = list(rule(house))
    assert not found, f"{rule.__doc__}\n" + "\n".join(found)


def test_the_setters_that_are_kept_are_few_and_there(house: House) -> None:
    assert len(SETTERS_KEPT) <= 3
    assert {name for _, name, _ in _setters(house)} >= SETTERS_KEPT


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


HOLDER = """class A:
    of: dict[int, dict[int, int]]

    def __init__(self):
        self.flag = 1
        self.held: list[int] = []
"""

PLANTED: list[tuple[Callable[[House], Iterable[str]], dict[str, str]]] = [
    (misfits, {"src/weft/net/a.py": "x = 1\n"}),
    (misfits, {"src/weft/net/a.py": "x = 1\n" * 901}),
    (misfits, {"src/weft/protocol/tera/a.py": "x = 1\n" * 200}),
    (gerunds, {"src/weft/net/waiting.py": ""}),
    (namesakes, {"src/weft/net/x/a.py": "", "src/weft/net/y/a.py": ""}),
    (
        cycles,
        {
            "src/weft/net/a.py": "import weft.net.b\n",
            "src/weft/net/b.py": "def b():\n    from weft.net import a\n",
        },
    ),
    (namesakes, {"src/weft/net/x/_a.py": "", "src/weft/net/a.py": ""}),
    (
        foreign_writes,
        {
            "src/weft/net/a.py": "class A:\n    def __init__(self):\n        self.flag = 1\n",
            "src/weft/net/b.py": "def b(a):\n    a.flag = 2\n",
        },
    ),
    *(
        (
            foreign_writes,
            {
                "src/weft/net/a.py": HOLDER,
                "src/weft/net/b.py": f"from weft.net.a import A\n\n\n{writing}\n",
            },
        )
        for writing in (
            "def b(a):\n    setattr(a, 'flag', 2)",
            "def b(a):\n    del a.flag",
            "def b(a):\n    a.held.append(2)",
            "def b(a):\n    a.of[1][2] = 3",
            "def b(a):\n    short = a.held\n    short.append(2)",
            "def b(a):\n    del a.of[1]",
            "class B:\n    flag: int\n\n    def b(self, a: A):\n        a.flag = 2",
            "class B:\n    held: list\n\n    def b(self, a: A | None):\n        a.held.clear()",
        )
    ),
    *(
        (
            inherited_writes,
            {"src/weft/net/a.py": HOLDER, "src/weft/net/b.py": f"{imported}\n\n{inheriting}"},
        )
        for imported, inheriting in (
            ("from weft.net.a import A", "class B(A):\n    def b(self):\n        self.flag = 2\n"),
            ("from weft.net import a", "class B(a.A):\n    def b(self):\n        del self.flag\n"),
            (
                "from weft.net.a import A as Z",
                "class B(Z):\n    pass\n\n\n"
                "class C(B):\n    def c(self):\n        self.held.append(2)\n",
            ),
        )
    ),
    *(
        (counters_read, {f"src/weft/{room}/a.py": f"def a(ctx):\n    {reading}\n"})
        for room, reading in (
            ("protocol", "return ctx.counters.get('x')"),
            ("protocol", "counted = ctx.counters\n    return counted['x']"),
            ("net", "before = ctx.counters.dropped_events"),
            ("net", "return 1 if ctx.counters.dropped_events else 2"),
            ("net", "return ctx.counters.dropped_events > 3"),
        )
    ),
    *(
        (
            setters_for_others,
            {
                "src/weft/net/a.py": f"{HOLDER}\n    def take(self, it):\n        {writing}\n",
                "src/weft/net/b.py": f"from weft.net.a import A\n\n\n{calling}\n",
                "src/weft/net/c.py": "class C:\n    def take(self, it):\n        print(it)\n",
            },
        )
        for writing, calling in (
            ("self.flag = it", "def b(a: A):\n    a.take(2)"),
            ("'''Kept.'''\n        self.flag += it", "def b(a: A):\n    a.take(2)"),
            ("self.flag, self.held = it, [it]", "def b(some: list[A]):\n    some[0].take(2)"),
            ("self.held.append(it)", "a = A()\n\n\ndef b():\n    a.take(2)"),
            ("self.of[it][1] = 0", "def made() -> A:\n    ...\n\n\nmade().take(2)"),
            ("del self.of[it]", "def b(unknown):\n    unknown.take(2)"),
            ("self.flag = it\n        self.held.append(it)", "def b(a: A):\n    a.take(2)"),
            ("self.flag = 0", "def b(a: A):\n    a.take(2)"),
            ("self.held.clear()\n        self.of.pop(it)", "def b(a: A):\n    a.take(2)"),
            ("self.flag = self._ctx.now", "def b(a: A):\n    a.take(2)"),
        )
    ),
    (
        setters_for_others,
        {
            "src/weft/net/a.py": f"{HOLDER}\n    def take(self):\n        self.flag = 0\n",
            "src/weft/net/b.py": "def b(one):\n    one.take()\n",
            "src/weft/net/c.py": "def c(one: dict):\n    ...\n",
        },
    ),
    (
        setters_for_others,
        {
            "src/weft/net/a.py": f"{HOLDER}\n    def on_told(self, it):\n        self.flag = it\n",
            "src/weft/net/b.py": "from weft.net.a import A\n\n\ndef b(a: A):\n    a.on_told(2)\n",
        },
    ),
    *(
        (
            late_callbacks,
            {
                "src/weft/net/a.py": "Told = Callable[[], None]\n\n\n"
                f"class A:\n    def begin(self, told: {kind}) -> None:\n        self.told = told\n"
            },
        )
        for kind in ("Callable[[], None]", "Told", "Told | None")
    ),
    (counters_read, {"src/weft/protocol/a.py": "def a(ctx):\n    return ctx.counters['x'] > 1\n"}),
    (unused, {"src/weft/net/a.py": "def forgotten():\n    pass\n"}),
    (unused, {"src/weft/net/a.py": "def forgotten():\n    return forgotten()\n"}),
    (unused, {"src/weft/net/a.py": "def forgotten():\n    'See `forgotten`.'\n"}),
    (unused, {"src/weft/net/a.py": "def network():\n    pass\n", "docs/a.md": "the network"}),
    (
        unused,
        {
            "src/weft/net/a.py": "def a():\n    pass\n",
            "benchmarks/b.py": "from weft.net.a import a\n",
        },
    ),
    (
        unread_attributes,
        {
            "src/weft/net/a.py": HOLDER,
            "tests/net/test_a.py": "def test_a(a):\n    assert a.flag\n",
        },
    ),
    (unread_attributes, {"src/weft/net/a.py": "class A(NamedTuple):\n    forgotten: int\n"}),
    (unread_parameters, {"src/weft/net/a.py": "def a(b):\n    return 1\n\n\na(2)\n"}),
    (unread_parameters, {"src/weft/net/a.py": "def a(b, c=1):\n    return b + c\n\n\na(2)\n"}),
    (unread_settings, {"src/weft/net/a.py": "class AConfig:\n    forgotten_ms: int = 1\n"}),
    (missing_paths, {"docs/a.md": "see `net/gone/away.py`"}),
    (missing_paths, {"docs/a.md": "see `packaging/gone.toml`"}),
    (missing_paths, {"docs/a.md": "see `src/weft/gone/`"}),
    *(
        (missing_paths, {"docs/a.md": f"see `{name}`"})
        for name in ("src/weft/gone.mjs", "docs/gone.svg", "a/gone.service", "tests/node/none.json")
    ),
    (missing_paths, {"src/weft/net/a.py": '"""See `gone.py`."""\n'}),
    (missing_paths, {"src/weft/net/__init__.py": '"""From below: `gone`."""\n'}),
    (empty_texts, {"src/weft/net/a.py": 'class A:\n    """See the module\'s text."""\n'}),
    *(
        (empty_texts, {"src/weft/net/a.py": f'A_MAX = 3\n"""{text}"""\n'})
        for text in ("guess", "paper (the same).", "The same for kernels.", "One row.", "The same")
    ),
    (riddles, {"src/weft/net/a.py": "# Whoever comes first.\n"}),
    (riddles, {"docs/a.md": "Whoever comes first."}),
    (riddles, {"tests/net/test_net_a.py": '"""Who acts when."""\n'}),
    (riddles, {"tests/kit/a.py": "# whom it asks\n"}),
    (private_touches, {"tests/net/test_a.py": "def test(a):\n    assert a._b\n"}),
    (private_touches, {"tests/net/test_a.py": "def test(a):\n    assert getattr(a, '_b')\n"}),
    (private_touches, {"tests/net/test_a.py": "def test(m):\n    m.setattr(m, '_B_S', 1)\n"}),
    *(
        (timed_tests, {"tests/net/test_a.py": f"{reading}\n"})
        for reading in (
            "import time\n\ntime.sleep(1)",
            "import time\n\ntime.time()",
            "from time import sleep",
            "loop.time()",
            "asyncio.get_running_loop().time()",
            "import time\n\ntime.perf_counter_ns()",
            "def test():\n    at = datetime.now()\n    assert at <= made()",
            "def test():\n    at = datetime.datetime.now(UTC)\n    spent = made() - at",
            "def test():\n    at = time.time_ns()\n    assert (time.time_ns() - at) / 2 < 1",
        )
    ),
    (strays, {"tests/nowhere/test_a.py": "", "src/weft/ids.py": ""}),
    (strays, {"tests/conftest.py": "", "src/weft/net/a.py": ""}),
    (nameless_tests, {"tests/net/test_net_b.py": "", "src/weft/net/a.py": ""}),
]


@pytest.mark.parametrize(("rule", "files"), PLANTED, ids=lambda v: getattr(v, "__name__", ""))
def test_the_rule_finds_what_was_planted(
    rule: Callable[[House], Iterable[str]], files: dict[str, str], tmp_path: Path
) -> None:
    assert list(rule(_planted(tmp_path, files)))


@pytest.mark.parametrize(
    ("writing", "calling"),
    [
        ("self.flag = max(self.flag, it)", "a.take(2)"),  # the object decides
        ("self.flag += 1", "a.take(2)"),  # it counts
        ("self.flag = 1 if it else 0", "a.take(2)"),
        ("self.flag = it", "print(a)"),
    ],
)
def test_what_is_no_setter_for_another_module_is_left_alone(
    writing: str, calling: str, tmp_path: Path
) -> None:
    files = {
        "src/weft/net/a.py": f"{HOLDER}\n    def take(self, it):\n        {writing}\n",
        "src/weft/net/b.py": f"from weft.net.a import A\n\n\ndef b(a: A):\n    {calling}\n",
    }
    assert not list(setters_for_others(_planted(tmp_path, files)))
    files |= {
        "src/weft/net/a.py": f"{HOLDER}\n    def take(self, it):\n        self.flag = it\n",
        "src/weft/net/b.py": "from weft.net.a import A\n\n\ndef b(a: A):\n    a.take(2)\n",
        "src/weft/net/c.py": "from weft.net.a import A\n\n\ndef c(a: A):\n    a.take(3)\n",
    }
    assert not list(setters_for_others(_planted(tmp_path, files)))  # two modules call it


def test_an_object_that_is_told_what_happened_may_write_what_it_makes_of_it(tmp_path: Path) -> None:
    files = {
        "src/weft/net/a.py": f"{HOLDER}\n    def on_gone(self, it):\n"
        "        self.flag = 0\n        self.of.pop(it)\n",
        "src/weft/net/b.py": "from weft.net.a import A\n\n\ndef b(a: A):\n    a.on_gone(2)\n",
    }
    assert not list(setters_for_others(_planted(tmp_path, files)))
