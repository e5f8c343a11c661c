"""Where the memberships of an experiment come from: the synthetic grid, or a lake.

Without further word an experiment that is a job runs on the grid, and on each known trace whose
file is found in the folder of data; a trace that is not there is named as skipped and changes no
verdict. Traces are ingested as a user would ingest them, into lakes beside the run's results. With
`--trace LAKE` it runs on that lake alone.

The folder of data is the one of `--data`, else of the environment's WEFT_DATA, else `shared/data`
beside the checkout.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from weft.pipeline.lake import Address, Lake, is_lake, is_old
from weft.pipeline.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from weft.engine.data.grid import Grid

GRID = "grid"
TRACES = {
    "youtube_groups": "youtube_groups/subs.csv.gz",
    "wikipedia_edits": "wikipedia_edits/subs.csv.gz",
    "gowalla": "gowalla/subs.csv.gz",
}
"""The traces that claims are checked on: name → file in the folder of data."""
EVENTS = {"wikipedia_edits": "wikipedia_edits/events.csv.gz"}
"""Files with the same memberships and, beyond them, all that users did and when: read in the place
of those above where they are there."""

DATA_BESIDE = Path(__file__).resolve().parents[4] / "shared" / "data"
LAKES = ".lakes"


@dataclass(frozen=True)
class Source:
    """A source by its name: the grid, or the lake of a trace."""

    name: str
    lake: Address | None = None
    file: Path | None = None  # what the lake is ingested from, where that is the lab's to do

    @property
    def is_grid(self) -> bool:
        return self.lake is None

    @property
    def is_ready(self) -> bool:
        """Whether there is nothing to ingest first."""
        return self.lake is None or (is_lake(self.lake) and not is_old(self.lake))

    def memberships(self, spark: SparkSession, seed: int, grid: Grid | None = None) -> DataFrame:
        """Users and their topics (`MEMBERSHIP`): the lake's, or the grid's of this seed."""
        from weft.pipeline.memberships import grid_memberships  # noqa: PLC0415  (loads the engine)

        if self.lake is None:
            return grid_memberships(spark, grid, seed)
        return self.opened().memberships(spark)

    def opened(self) -> Lake:
        """The lake of a trace."""
        if self.lake is None:
            raise ValueError("the grid is no lake")
        return Lake(self.lake)

    def topics(self) -> float:
        """How many topics the lake has; infinitely many as long as it is not ingested."""
        return self.opened().rows("topics") if self.is_ready else float("inf")

    def prepare(self, spark: SparkSession) -> None:
        """Ingest the trace; quick if that was done before."""
        if self.lake is not None and self.file is not None:
            from weft.pipeline.conversion import converted  # noqa: PLC0415
            from weft.pipeline.ingest.job import ingest  # noqa: PLC0415

            if is_old(self.lake):  # of a run before lakes were Delta tables
                converted(spark, Location.of(self.lake).local)
            ingest(spark, [self.file], self.lake)

    def fingerprint(self) -> str:
        """The name of the lake's content. It is part of a point, so rows on other data are not
        reused."""
        if self.lake is None or not self.is_ready:  # it is ingested before it is run
            return ""
        return Lake(self.lake).version.content


@dataclass(frozen=True)
class Sources:
    """The sources of a run, and those it must do without, with the reason."""

    found: Sequence[Source] = (Source(GRID),)
    skipped: dict[str, str] = field(default_factory=dict)
    trace: Address | None = None  # the one lake that was asked for


def find(out: Path, trace: Address | None = None, data: Path | None = None) -> Sources:
    """The sources of a run that writes to `out`. Raises `NotALake` for a wrong trace."""
    if trace is not None:
        lake = Lake(trace).place
        return Sources([Source(lake.name, lake)], trace=trace)
    folder = data or Path(os.environ.get("WEFT_DATA") or DATA_BESIDE)
    found, skipped = [Source(GRID)], {}
    for name, place in TRACES.items():
        file, kept = folder / place, name
        if name in EVENTS and (folder / EVENTS[name]).is_file():
            file, kept = folder / EVENTS[name], f"{name}-events"
        if file.is_file():
            found.append(Source(name, out.resolve() / LAKES / kept, file))
        else:
            skipped[name] = "its file is not here"
    return Sources(found, skipped)
