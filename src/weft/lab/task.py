"""A task: one experiment at one point with one seed.

A task is small: names, parameters, a seed. What runs it is `weft.lab.execute`. The key of a task is
made of everything that decides its rows, so a table can tell which tasks it holds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from weft.lab.code import code_of, revision
from weft.lab.defect import Defect
from weft.lab.experiment import Experiment, Params
from weft.lab.sources import Source
from weft.pipeline.schemas import TASK, joined

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.types import StructType


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
    code: str  # digest of the source that computes its rows
    revision: str  # the commit that this was at
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
    code = code_of(entry.simulation, source is not None, entry.planted is not None)
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
            revision=revision(),
            source=source,
            over=over,
            defect=entry.planted,
        )
        for params in points
        for seed in range(1, min(seeds, entry.most_seeds(params)) + 1)
    ]


def shape_of(columns: StructType) -> StructType:
    """The rows of an experiment as they are stored: with the task that they are from."""
    return joined(TASK, columns)


def table_of(out: Path, experiment: str) -> Path:
    """Where the rows of an experiment are."""
    return out / experiment / "rows.parquet"
