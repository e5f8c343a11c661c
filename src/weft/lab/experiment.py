"""What an experiment is.

An entry ties a claim to the function that simulates it, the points it is simulated at in each
size, the shape of the rows that come back, the numbers that are measured from them, and the
picture. To add one, write a file in `weft/lab/experiments` that defines ENTRY, or several ENTRIES.
Its parts have the same names and the same order in every file, so that an entry needs to say only
its words and what differs (`Experiment.of`): `points`, the simulation `run`, COLUMNS, `measure`,
`figure`. There are two kinds.

An `Entry` names a function that runs inside one Spark task: it takes the parameters of a point and
a seed, and returns columns: arrays of one length, or single values that hold for every row. It is
named by a path rather than passed, so that a worker imports it; matplotlib, which a worker may not
have, is imported when something is drawn.

A `JobEntry` names a function that is a Spark job itself, over data: it runs on the driver, takes
the session, the parameters of a point, a seed and a source of memberships (`weft.lab.sources`), and
returns a DataFrame. Its points are asked for source by source. A `UniverseEntry` is one over many
small sets of memberships, each of which fits a task.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from weft.lab.defect import Defect
    from weft.lab.ground import Ground
    from weft.lab.overlaid import Overlaid
    from weft.lab.sources import Source

Size: TypeAlias = Literal["quick", "full"]
SIZES: tuple[Size, ...] = ("quick", "full")
Params: TypeAlias = Mapping[str, Any]
Columns: TypeAlias = Mapping[str, Any]


class Simulation(Protocol):
    """A function of the engine: deterministic, no Spark, arrays made inside."""

    def __call__(self, params: Params, seed: int) -> Columns: ...


class Job(Protocol):
    """A function of the driver's: the rows of one point and seed, by Spark."""

    def __call__(
        self, spark: SparkSession, params: Params, seed: int, source: Source
    ) -> DataFrame: ...


class OverlaidSimulation(Protocol):
    """A function of the overlays over a point's memberships, in a task or on the driver."""

    def __call__(self, params: Params, seed: int, over: Overlaid) -> Columns: ...


def every(same: Params, /, **values: Iterable[object]) -> list[Params]:
    """Points with every combination of these values, the last one varying fastest, and what is the
    same in all of them."""
    return [
        {**same, **dict(zip(values, chosen, strict=True))} for chosen in product(*values.values())
    ]


PARTS = {
    **{name: name for name in ("points", "measure", "figure", "seconds", "gigabytes")},
    **{"most_seeds": "most_seeds", "micros": "micros", "seeds": "SEEDS", "columns": "COLUMNS"},
    "defects": "DEFECTS",
}
"""What an entry takes from its file, and the name that it has there."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What both kinds of entry have."""

    id: str
    title: str
    claim: str  # what the paper says, or what we ask, in our words
    seeds: Mapping[str, int]  # by size
    columns: StructType  # of the rows; a parameter of the same name fills a column
    measure: Callable[[DataFrame, Size], DataFrame]  # rows → weft.pipeline.schemas.MEASURE
    tolerances: Mapping[str, Ground]  # how the bound of each judged measure comes about
    figure: Callable[[DataFrame], Figure]
    tables: Mapping[str, Callable[[DataFrame], DataFrame]] = field(default_factory=dict)
    """Further tables made from the rows: NAME → transform, written as NAME.parquet."""
    pages: Callable[[Path], None] = lambda folder: None
    """Writes further files into the entry's folder, once its tables are there."""
    seconds: Callable[[Params], float] = lambda params: 1.0  # a guess of a task's time
    gigabytes: Callable[[Params], float] = lambda params: 0.0  # and of its memory
    most_seeds: Callable[[Params], int] = lambda params: 1_000_000  # fewer where a point takes long
    defects: Sequence[Defect] = ()  # that the counted verdicts should notice, each some of them
    planted: Defect | None = None  # the one that this run has, in an audit
    version: int = 1  # raise it when the same parameters no longer mean the same simulation
    simulation: str  # "module:function"

    @classmethod
    def of(cls, module: str, **own: Any) -> Self:
        """The entry of a file by the usual names of its parts (`PARTS`; its simulation is `run`, a
        job's is `job`), and its own words. The id, unless given, is the file's name."""
        found = vars(sys.modules[module])
        parts = {part: found[name] for part, name in PARTS.items() if name in found}
        simulation = f"{module}:{'job' if 'job' in found else 'run'}"
        name = module.rpartition(".")[2].replace("_", "-")
        return cls(**{"id": name, "simulation": simulation, **parts, **own})


@dataclass(frozen=True, kw_only=True)
class Entry(Experiment):
    """An experiment whose simulation is a function of the engine (`Simulation`)."""

    points: Callable[[Size], Sequence[Params]]


@dataclass(frozen=True, kw_only=True)
class JobEntry(Experiment):
    """An experiment whose simulation is a Spark job (`Job`) over a source of memberships.

    The parameters of its points get `source`, the source's name. A measure that is judged on
    several sources is called `SOURCE: NAME`, and its reason in `tolerances` is that of NAME.
    """

    points: Callable[[Size, Source], Sequence[Params]]  # none: not on this source, or not so small


@dataclass(frozen=True, kw_only=True)
class UniverseEntry(JobEntry):
    """An experiment whose simulation computes the overlays of a point's memberships (`Overlaid`).

    Its points say which memberships (`weft.lab.universes`): `universe`, `seeds`, and `nodes` for a
    grid. They are kept as tables, from which a point that fits one task is computed in that task.
    """

    micros: Callable[[Params], float]  # CPU time per membership, for the time left


AnyEntry: TypeAlias = Entry | JobEntry
