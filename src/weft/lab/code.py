"""Which source made rows, so that they can be kept as long as it has not changed.

Rows are the work of their simulation, of all in the lab that it reaches by name, and of the files
outside of the lab that those import, directly or through others. Measures and figures stand in the
same file as a simulation; they are not reached from it, so changing them leaves stored rows valid,
and so do comments and docstrings, and files that nothing of it imports.

A digest of that source is the same on every machine. `revision` is for people: which commit a
checkout was at.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path

import weft

_HOUSE = Path(weft.__file__).resolve().parent
_LAB = "weft.lab."
_OF_DATA = ("weft.lab.sources:", "weft.lab.universes:", "weft.lab.overlaid:")
"""What makes the memberships that simulations on data are given."""
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def code_of(simulation: str, reads_data: bool = False, planted: bool = False) -> str:
    """A name for the present source of a simulation; with defects planted, for all of its file,
    where they stand."""
    places = dict(reach(simulation))
    for each in _OF_DATA if reads_data else ():
        places |= reach(each)
    if planted:
        places |= reach(simulation.partition(":")[0] + ":")
    digest = blake2b(digest_size=8)
    for _, source in sorted(places.items()):
        digest.update(source.encode())
    for module in files_behind(places):
        digest.update(_digest(module))
    return digest.hexdigest()


@cache
def revision() -> str:
    """The commit of this checkout, with a plus where files differ from it; a version where there
    is no checkout."""
    root = _HOUSE.parents[1]
    words = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--dirty=+"]
    if (root / ".git").exists():
        try:
            told = subprocess.run(  # noqa: S603  (git, with arguments of ours)
                [*words, "--exclude=*"], capture_output=True, text=True, check=False
            )
        except OSError:  # there is no git
            told = None
        if told is not None and told.returncode == 0:
            return told.stdout.strip()
    return f"weft {weft.__version__}"


# --- inside the lab: by name ----------------------------------------------------------------------


@cache
def reach(simulation: str) -> Mapping[str, str]:
    """The definitions that a simulation reaches by name, with their sources if they are the lab's;
    of `module:`, those that all of the module does."""
    found: dict[str, str] = {}
    ahead = [simulation]
    while ahead:
        place = ahead.pop()
        module, _, name = place.partition(":")
        if place in found:
            continue
        found[place] = ""
        if not module.startswith(_LAB):
            continue
        defined, imported = _names_of(module)
        for node in [defined[name]] if name in defined else [] if name else defined.values():
            found[place] += ast.unparse(node)
            used = _used_in(node)
            ahead += [imported[each] for each in used if each in imported]
            ahead += [f"{module}:{each}" for each in used if each in defined]
    return found


def _used_in(node: ast.stmt) -> list[str]:
    """The names that a definition takes from outside of itself."""
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
    own = {each.id for each in names if isinstance(each.ctx, ast.Store)}
    own |= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    return [each.id for each in names if each.id not in own]


@cache
def _names_of(module: str) -> tuple[Mapping[str, ast.stmt], Mapping[str, str]]:
    """What a file of the lab defines, and what it imports: `module:name`, `module:` for a whole."""
    tree = _parsed(module)
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, Definition):
            defined[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            stored = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
            defined |= {one.id: node for one in stored if isinstance(one.ctx, ast.Store)}
    imported: dict[str, str] = {}
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom) and each.module is not None:
            for name in each.names:
                whole = f"{each.module}.{name.name}"
                known = f"{each.module}:{name.name}" if _file_of(whole) is None else f"{whole}:"
                imported[name.asname or name.name] = known
    return defined, imported


# --- outside of it: by file -----------------------------------------------------------------------


def files_behind(places: Iterable[str]) -> Sequence[str]:
    """The modules outside of the lab that these places are in, and all that those import."""
    found: set[str] = set()
    ahead = [place.partition(":")[0] for place in places]
    while ahead:
        module = ahead.pop()
        if module not in found and not module.startswith(_LAB) and _file_of(module) is not None:
            found.add(module)
            ahead += [*_imports(module), module.rpartition(".")[0]]
    return sorted(found)


@cache
def _imports(module: str) -> Sequence[str]:
    """What a module of weft's imports when it runs, also inside of functions: names that may be
    modules."""
    tree = _parsed(module)
    types_only = {
        id(inner)
        for each in ast.walk(tree)
        if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"
        for line in each.body
        for inner in ast.walk(line)
    }
    found: list[str] = []
    for each in ast.walk(tree):
        if id(each) in types_only:
            continue
        if isinstance(each, ast.Import):
            found += [name.name for name in each.names]
        elif isinstance(each, ast.ImportFrom) and each.module is not None:
            found += [each.module, *(f"{each.module}.{name.name}" for name in each.names)]
    return found


@cache
def _digest(module: str) -> bytes:
    """Of what a module says, without its comments and docstrings."""
    return blake2b(ast.dump(_parsed(module)).encode(), digest_size=8).digest()


@cache
def _parsed(module: str) -> ast.Module:
    """A module of weft's without its docstrings."""
    file = _file_of(module)
    if file is None:
        raise ValueError(f"{module} is no module of weft")
    tree = ast.parse(file.read_text())
    for each in ast.walk(tree):
        if isinstance(each, Definition | ast.Module):
            each.body = [line for line in each.body if not _is_text(line)]
    return tree


def _is_text(line: ast.stmt) -> bool:
    return (
        isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    )


@cache
def _file_of(module: str) -> Path | None:
    """The file of a module below `weft`, which itself is no more than names of others."""
    if not module.startswith("weft."):
        return None
    path = _HOUSE.joinpath(*module.split(".")[1:])
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)
