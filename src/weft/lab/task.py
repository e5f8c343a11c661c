"""A task: one experiment at one point with one seed.

A task is small: names, parameters, a seed. What runs it is `weft.lab.execute`. The key of a task is
made of everything that decides its rows, so a table can tell which tasks it holds.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from weft.lab.experiment import Experiment, Params
from weft.lab.sources import Source
from weft.pipeline.schemas import TASK, joined

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_PACKAGE = Path(__file__).resolve().parents[1]
_MACHINES = ("documents", "protocol", "sim", "store")
"""The rooms behind a simulation that runs peers' machines."""
_NO_PART = tuple(f"weft.lab.{name}" for name in ("experiment", "figures", "profiles", "task"))
"""Modules of the lab that experiments import, and that decide no row: declarations and pictures."""


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
    code = code_of(rooms_behind(entry.simulation, source is not None))
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
        )
        for params in points
        for seed in range(1, min(seeds, entry.most_seeds(params)) + 1)
    ]


@cache
def rooms_behind(simulation: str, reads_data: bool) -> tuple[str, ...]:
    """What makes stored rows of a simulation worthless when it changes: rooms, and files of the
    lab. These are what the simulation's module imports, directly or by other modules of the lab.
    The pipeline counts only where it makes the rows; elsewhere it measures what is in them."""
    rooms = ["engine", "rules", *(["pipeline"] if reads_data else [])]
    files: dict[str, Path] = {}
    found: set[str] = set()
    waiting = [simulation.partition(":")[0]]
    while waiting:
        module = waiting.pop()
        file = _file_of(module)
        if module in files or module in _NO_PART or file is None:
            continue
        files[module] = file
        imported = list(_imports(file))
        found.update(name.split(".")[1] for name in imported)
        waiting += [name for name in imported if name.startswith("weft.lab.")]
    if found & {"net", "protocol", "sim"}:
        rooms += _MACHINES
    if "net" in found:
        rooms.append("net")
    return (*rooms, *sorted(str(file.relative_to(_PACKAGE)) for file in files.values()))


def _file_of(module: str) -> Path | None:
    """The file of a module of weft's."""
    room, *rest = module.split(".")
    file = _PACKAGE.joinpath(*rest).with_suffix(".py")
    return file if room == "weft" and rest and file.is_file() else None


def _imports(file: Path) -> Iterator[str]:
    """The modules of weft's that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("weft."):
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


@cache
def code_of(rooms: tuple[str, ...]) -> str:
    """A name for the present source of these rooms and files."""
    digest = blake2b(digest_size=8)
    for room in rooms:
        place = _PACKAGE / room
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def shape_of(columns: StructType) -> StructType:
    """The rows of an experiment as they are stored: with the task that they are from."""
    return joined(TASK, columns)


def table_of(out: Path, experiment: str) -> Path:
    """Where the rows of an experiment are."""
    return out / experiment / "rows.parquet"
