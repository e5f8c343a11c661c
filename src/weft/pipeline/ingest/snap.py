"""The forms in which SNAP (Stanford's collection of networks) publishes: edges and communities.

An edge list has two numbers a line: the first follows the second. A peer of a pub/sub system that
follows another subscribes to what that one publishes, so the second is the topic. Friendship, which
is listed once for both, goes both ways on request. A community file (LiveJournal's is
`com-lj.all.cmty.txt`) has the members of one community on each line and no name for it: file and
line name it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from weft.pipeline.ingest import records
from weft.pipeline.ingest.files import Inspected
from weft.pipeline.ingest.options import BadInput, Options, unit_of

EDGES = "snap-edges"
COMMUNITIES = "snap-communities"
COMMENT = r"^\s*[#%]"
NOT_EDGE = "not an edge: two names and at most two more values"
_BLANKS = r"\s+"
_OTHERS = (2, 3)  # places behind the two names
_EDGE = re.compile(r"\S+ \S+( [-+\d.]\S*){0,2}")


@dataclass(frozen=True)
class Edges(records.Lines):
    """Two names a line, and perhaps a time."""

    varies: ClassVar[bool] = True

    both_ways: bool
    time: int | None
    unit: str
    format: str = EDGES

    @property
    def described(self) -> str:
        ways = "both ways" if self.both_ways else "one way"
        return ways if self.time is None else f"{ways}, time {self.time + 1} in {self.unit}"

    @property
    def has_events(self) -> bool:
        return self.time is not None

    def parsed(self, text: DataFrame) -> DataFrame:
        value, ends = F.col("value"), F.col("ends")
        split = text.withColumn("ends", F.split(F.trim(value), _BLANKS))
        time = None if self.time is None else F.get(ends, F.lit(self.time))
        problem = F.when(~F.size(ends).between(2, 4), NOT_EDGE)
        ways = [(0, 1), (1, 0)] if self.both_ways else [(0, 1)]
        for number, (user, topic) in enumerate(ways):
            split = records.with_found(
                split,
                f"edge_{number}",
                F.get(ends, F.lit(user)),
                F.get(ends, F.lit(topic)),
                time,
                unit=self.unit,
                text=value,
                problem=problem,
                extra=self._extra(),
            )
        edges = [records.entry(f"edge_{number}") for number in range(len(ways))]
        kept = F.array(*edges)
        if self.both_ways:  # one bad line is one bad row
            bad = F.col("edge_0_problem").isNotNull()
            kept = F.when(bad, F.array(edges[0])).otherwise(kept)
        return records.several(split, kept, skip=value.rlike(COMMENT))

    def _extra(self) -> Column:
        """The values that do not count: a weight, or a time that nobody asked for."""
        others = [place for place in _OTHERS if place != self.time]
        values = (F.get("ends", F.lit(at)).alias(f"column {at + 1}") for at in others)
        return F.nullif(F.to_json(F.struct(*values)), F.lit("{}"))


@dataclass(frozen=True)
class Communities(records.Lines):
    """The members of one community a line."""

    names_topics: ClassVar[bool] = False

    format: str = COMMUNITIES

    def parsed(self, text: DataFrame) -> DataFrame:
        value = F.col("value")
        members = F.split(F.trim(value), _BLANKS)
        found = F.transform(members, lambda user: records.found(user, None, text=user))
        bad = F.array(records.found(F.lit(None), None, text=value, problem=F.lit(records.NOT_TEXT)))
        entries = F.when(F.is_valid_utf8(value), found).otherwise(bad)
        return records.several(text, entries, skip=value.rlike(COMMENT))


def looks_like_edges(lines: Sequence[str]) -> bool:
    """Whether lines below a comment are an edge list, and not some other text: all of two names, or
    of these and one or two numbers."""
    rows = [line.split() for line in lines if not re.match(COMMENT, line)]
    alike = len({len(row) for row in rows}) < 2
    return alike and all(_EDGE.fullmatch(" ".join(row)) for row in rows)


def plan_edges(file: Inspected, options: Options) -> Edges:
    if options.time is not None and options.time not in ("3", "4"):
        raise BadInput(f"the time in an edge list is column 3 or 4, not {options.time!r}")
    time = None if options.time is None else int(options.time) - 1
    return Edges(options.both_ways, time, unit_of(None, options))


def plan_communities(file: Inspected, options: Options) -> Communities:
    return Communities()
