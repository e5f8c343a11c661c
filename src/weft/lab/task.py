"""A task: one experiment at one point with one seed.

A task is small: names, parameters, a seed. What runs it is `weft.lab.execute`. The key of a task is
made of everything that decides its rows, so a table can tell which tasks it holds.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from weft.lab.defect import Defect
from weft.lab.experiment import Experiment, Params
from weft.lab.sources import Source
from weft.pipeline.schemas import TASK, joined

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_HOUSE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Task:
    """One row of the table of what to run."""

    experiment: str
    simulation: str
    params: Params
    point: str
    seed: int
    columns: StructType
    seconds: float
    gigabytes: float
    code: str  # which engine's source ran it
    source: Source | None = None  # of data, for a job
    over: bool = False  # the simulation computes overlays of kept memberships
    defect: Defect | None = None  # planted while it runs

    @property
    def key(self) -> str:
        """Names the task within its experiment's table."""
        return f"{self.point}-{self.seed}"


def point_of(entry: Experiment, params: Params) -> str:
    """The name of a point: a hash of what is simulated there."""
    shape = [[each.name, each.dataType.simpleString()] for each in entry.columns.fields]
    what = [entry.id, entry.simulation, entry.version, dict(params), shape]
    text = json.dumps(what, sort_keys=True, allow_nan=False)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def tasks_of(
    entry: Experiment,
    points: Sequence[Params],
    seeds: int,
    source: Source | None = None,
    over: bool = False,
) -> list[Task]:
    """Every point with every seed (1 … `seeds`), or with as many as the entry allows there."""
    code = code_of(entry.simulation, rooms_behind(entry.simulation, source is not None))
    return [
        Task(
            experiment=entry.id,
            simulation=entry.simulation,
            params=dict(params),
            point=point_of(entry, params),
            seed=seed,
            columns=entry.columns,
            seconds=entry.seconds(params),
            gigabytes=entry.gigabytes(params),
            code=code,
            source=source,
            over=over,
            defect=entry.planted,
        )
        for params in points
        for seed in range(1, min(seeds, entry.most_seeds(params)) + 1)
    ]


def rooms_behind(simulation: str, reads_data: bool) -> tuple[str, ...]:
    """The rooms whose change makes stored rows of a simulation worthless."""
    rooms = ["engine", "rules"]
    if reads_data:
        rooms.append("pipeline")
    if any(place.startswith("weft.sim.") for place in reach(simulation)):
        rooms += ["documents", "protocol", "sim", "store"]
    if any(place.startswith("weft.references.") for place in reach(simulation)):
        rooms.append("references")
    return tuple(rooms)


@cache
def code_of(simulation: str, rooms: tuple[str, ...]) -> str:
    """A name for the present source of a simulation and of these rooms."""
    digest = blake2b(digest_size=8)
    for room in rooms:
        for file in sorted((_HOUSE / room).rglob("*.py")):
            digest.update(file.read_bytes())
    for _, source in sorted(reach(simulation).items()):
        digest.update(source.encode())
    return digest.hexdigest()


@cache
def reach(simulation: str) -> Mapping[str, str]:
    """The definitions that a simulation reaches by name, with their sources if they are the lab's.

    An experiment's measures and figure stand in the same file as its simulation. They are not
    reached from it, so changing them leaves stored rows valid.
    """
    found: dict[str, str] = {}
    ahead = [simulation]
    while ahead:
        place = ahead.pop()
        module, _, name = place.partition(":")
        if place in found:
            continue
        found[place] = ""
        if not module.startswith("weft.lab."):
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
    tree = ast.parse(_file_of(module).read_text())
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            stored = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
            defined |= {one.id: node for one in stored if isinstance(one.ctx, ast.Store)}
    imported: dict[str, str] = {}
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom) and each.module is not None:
            for name in each.names:
                whole = f"{each.module}.{name.name}"
                known = f"{whole}:" if _file_of(whole).exists() else f"{each.module}:{name.name}"
                imported[name.asname or name.name] = known
    return defined, imported


def _file_of(module: str) -> Path:
    return _HOUSE.joinpath(*module.split(".")[1:]).with_suffix(".py")


def shape_of(columns: StructType) -> StructType:
    """The rows of an experiment as they are stored: with the task that they are from."""
    return joined(TASK, columns)


def table_of(out: Path, experiment: str) -> Path:
    """Where the rows of an experiment are."""
    return out / experiment / "rows.parquet"
