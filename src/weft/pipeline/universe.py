"""Self-contained universes of a table of memberships (StaN 3.1), drawn as `engine/data/universe.py`
says.

Of many draws of one size, the one with the median ratio of topics to nodes is taken. The table is
parted by user, so that a task holds some users with all their topics, and computes all draws for
these; no process holds the whole table. Tasks answer with sets of topics and numbers of users,
which add up. A draw is grown in one pass over the table and counted in another; the open reading
counts the subscribers of its topics in one more. Two joins then find the rows of the chosen
universe.

A lake keeps the universes drawn from it (`make`):

    LAKE/universes/NAME/memberships/    the median draw, in the lake's numbers: a Delta table
    LAKE/universes/NAME/draws/          how large every draw was: another
    LAKE/universes/NAME/universe.json   how it was drawn

The memberships are written last: a universe without them is not there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import RecordBatch
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from weft.engine.data.universe import (
    READINGS,
    Reading,
    Users,
    added_by,
    seeds_of,
    sizes_among,
    subscribed_to,
    users_of,
)
from weft.pipeline import delta
from weft.pipeline.lake import Lake
from weft.pipeline.memberships import LEAST_SUBSCRIBERS, pruned, topic_sizes
from weft.pipeline.resources import claimed
from weft.pipeline.schemas import DRAW, MEMBERSHIP, WHOLE, columns, selected
from weft.pipeline.session import parallelism, shared

DRAWS = 100  # paper (Section 3.1)
FILE = "universe.json"
Watch = Callable[[int, str], None]
_TOPIC = columns(topic=WHOLE)
# What a task says of a topic, for one of the questions that it was asked.
_ANSWER = columns(question=WHOLE, topic=WHOLE, value=WHOLE)
PART_ROWS = 4 << 20
"""guess: memberships that a task holds, some hundred megabytes with what it makes of them."""

_Answer: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
_Answerer: TypeAlias = Callable[[Users, npt.NDArray[np.int64], Any], _Answer]


@dataclass(frozen=True)
class Recipe:
    """How universes are drawn."""

    draws: int = DRAWS
    least: int = LEAST_SUBSCRIBERS
    seed: int = 1

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ValueError("at least one draw")


@dataclass(frozen=True)
class _Draw:
    """One draw, and the topics that it has come to."""

    seeds: int
    number: int
    topics: npt.NDArray[np.int64]


class Universes:
    """Draws from one table of memberships. `own` says which topic is a user's own (`user`,
    `topic`); without it users add a random one of theirs."""

    def __init__(
        self,
        spark: SparkSession,
        memberships: DataFrame,
        recipe: Recipe | None = None,
        own: DataFrame | None = None,
    ) -> None:
        self._spark = spark
        self._memberships = memberships
        self._recipe = recipe or Recipe()
        self._own = own
        sizes = memberships.transform(topic_sizes).toArrow()
        known = sizes.column("topic").to_numpy()
        self._sizes = np.zeros(int(known.max(initial=-1)) + 1, np.int64)
        self._sizes[known] = sizes.column("subscribers").to_numpy()
        self._parts = max(parallelism(spark), math.ceil(int(self._sizes.sum()) / PART_ROWS))

    @property
    def topics(self) -> int:
        """How many topics there are to draw seeds from."""
        return int((self._sizes > 0).sum())

    def draws(self, sizes: Sequence[int], readings: Sequence[Reading] = READINGS) -> DataFrame:
        """How large each draw of each size is, in these readings: `DRAW`."""
        for seeds in sizes:
            if not 1 <= seeds <= self.topics:
                raise ValueError(f"{seeds} seeds, but there are {self.topics} topics")
        plan = [(seeds, number) for seeds in sizes for number in range(self._recipe.draws)]
        grown = self._grown(plan)
        rows = [row for reading in readings for row in self._counted(grown, reading)]
        return self._spark.createDataFrame(rows, DRAW)

    def universe(self, seeds: int, number: int, reading: Reading) -> DataFrame:
        """The memberships of one draw: `MEMBERSHIP`."""
        [found] = self._grown([(seeds, number)])
        grown = self._spark.createDataFrame([(topic,) for topic in found.topics.tolist()], _TOPIC)
        view = closed if reading == "closed" else opened
        return self._memberships.transform(view, grown).transform(pruned, self._recipe.least)

    def median(self, seeds: int, reading: Reading) -> DataFrame:
        """The memberships of the median draw: `MEMBERSHIP`."""
        [row] = self.draws([seeds], [reading]).transform(medians).collect()
        return self.universe(seeds, row.draw, reading)

    # --- passes over the table ------------------------------------------------------------------

    def _grown(self, plan: Sequence[tuple[int, int]]) -> list[_Draw]:
        """These draws, with the topics that users add to their seeds."""
        recipe, topics = self._recipe, len(self._sizes)
        candidates = np.flatnonzero(self._sizes > 0)
        begun = [_Draw(*each, seeds_of(candidates, *each, recipe.seed)) for each in plan]

        by_name = self._own is not None

        def added(held: Users, own: npt.NDArray[np.int64], each: _Draw) -> _Answer:
            chosen = flags_of(each.topics, topics)
            owned = own if by_name else None
            found = added_by(held, chosen, each.seeds, each.number, recipe.seed, owned)
            return found, np.zeros(len(found), np.int64)

        answers = self._asked(begun, added)
        return [
            replace(each, topics=np.union1d(each.topics, answers[place][0]))
            for place, each in enumerate(begun)
        ]

    def _counted(self, grown: Sequence[_Draw], reading: Reading) -> list[tuple[object, ...]]:
        """How large the universes of these draws are: rows of `DRAW`."""
        least, topics = max(1, self._recipe.least), len(self._sizes)
        if reading == "closed":
            kept = [each.topics[self._sizes[each.topics] >= least] for each in grown]
            rows = [int(self._sizes[some].sum()) for some in kept]
        else:

            def sizes(held: Users, _: object, each: _Draw) -> _Answer:
                inside = subscribed_to(held, flags_of(each.topics, topics))
                found = sizes_among(held, inside, topics)
                there = np.flatnonzero(found)
                return there, found[there]

            answers = self._asked(grown, sizes)
            kept, rows = [], []
            for place in range(len(grown)):
                some, counts = answers[place]
                kept.append(some[counts >= least])
                rows.append(int(counts[counts >= least].sum()))

        def nodes(held: Users, _: object, both: tuple[_Draw, npt.NDArray[np.int64]]) -> _Answer:
            each, some = both
            inside = subscribed_to(held, flags_of(some, topics))
            if reading == "open":
                inside &= subscribed_to(held, flags_of(each.topics, topics))
            return np.zeros(1, np.int64), np.array([inside.sum()], np.int64)

        found = self._asked(list(zip(grown, kept, strict=True)), nodes)
        return [
            (reading, each.seeds, each.number, len(kept[place]), int(found[place][1].sum()), count)
            for place, (each, count) in enumerate(zip(grown, rows, strict=True))
        ]

    def _asked(self, questions: Sequence[Any], answer: _Answerer) -> list[_Answer]:
        """What the tasks answer to each question for their users, added up: topics, each once, and
        the sums of what is said of each."""
        sent = shared(self._spark, list(questions))
        shape = to_arrow_schema(_ANSWER)

        def work(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
            columns = [[column.to_numpy() for column in batch.columns] for batch in batches]
            if not columns:
                return
            users, topics, owned = (np.concatenate(each) for each in zip(*columns, strict=True))
            held = users_of(users, topics)
            own = owned[np.unique(users, return_index=True)[1]]
            for place, question in enumerate(sent.value):
                keys, values = answer(held, own, question)
                arrays = [np.full(len(keys), place), keys, values]
                yield RecordBatch.from_arrays(
                    [pyarrow.array(array, pyarrow.int64()) for array in arrays], schema=shape
                )

        said = self._parted().mapInArrow(work, _ANSWER).groupBy("question", "topic")
        summed = said.agg(F.sum("value").alias("value")).orderBy("question", "topic").toArrow()
        sent.forget()
        places, keys, values = (summed.column(name).to_numpy() for name in _ANSWER.names)
        cuts = np.searchsorted(places, np.arange(len(questions) + 1))
        return [(keys[first:end], values[first:end]) for first, end in pairwise(cuts.tolist())]

    def _parted(self) -> DataFrame:
        """The table, all of a user's topics in one task, with its own topic or −1."""
        rows = self._memberships.select("user", "topic")
        own = F.lit(-1).cast(WHOLE)
        if self._own is not None:
            known = self._own.where(F.col("topic") < len(self._sizes))
            rows = rows.join(known.withColumnRenamed("topic", "own"), "user", "left")
            own = F.coalesce("own", own)
        return rows.select("user", "topic", own.alias("own")).repartition(self._parts, "user")


def flags_of(topics: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.bool_]:
    """A mark for each of so many topics, set for these."""
    flags = np.zeros(count, np.bool_)
    flags[topics] = True
    return flags


def closed(memberships: DataFrame, grown: DataFrame) -> DataFrame:
    """The memberships in the topics of the grown set: `MEMBERSHIP`."""
    return selected(memberships.join(F.broadcast(grown), "topic", "left_semi"), MEMBERSHIP)


def opened(memberships: DataFrame, grown: DataFrame) -> DataFrame:
    """All memberships of the users that subscribe to a topic of the grown set: `MEMBERSHIP`."""
    nodes = memberships.transform(closed, grown).select("user").distinct()
    return selected(memberships.join(nodes, "user", "left_semi"), MEMBERSHIP)


def medians(draws: DataFrame) -> DataFrame:
    """Of the draws of each size and reading, the one with the median ratio of topics to nodes:
    `DRAW`. Of two in the middle the lower, of equal ones the first drawn; an empty one is low."""
    group = Window.partitionBy("reading", "seeds")
    ratio = F.coalesce(F.try_divide("topics", "nodes"), F.lit(0.0))
    place = F.row_number().over(group.orderBy(ratio, "draw"))
    count = F.count(F.lit(1)).over(group)
    ranked = draws.withColumns({"place": place, "middle": F.floor((count + 1) / 2)})
    return selected(ranked.where(F.col("place") == F.col("middle")), DRAW)


def own_topics(users: DataFrame, topics: DataFrame) -> DataFrame:
    """Where a topic bears a user's name: `user`, `topic` (LiveJournal's journals)."""
    return users.join(topics, "name").select("user", "topic")


# --- kept in a lake -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """A universe that was kept."""

    name: str
    seeds: int
    draw: int
    topics: int
    nodes: int
    memberships: int


def name_of(seeds: int, reading: Reading) -> str:
    """What a universe is called by default."""
    return f"seeds-{seeds}" if reading == "closed" else f"seeds-{seeds}-{reading}"


def make(
    spark: SparkSession,
    lake: Lake,
    sizes: Sequence[int],
    reading: Reading = "closed",
    *,
    recipe: Recipe | None = None,
    own: bool = False,
    name: str | None = None,
    watch: Watch = lambda step, text: None,
) -> list[Made]:
    """Draw universes of these sizes and keep the median one of each. `own`: users add the topic
    that bears their name, not a random one. Raises `ValueError` for what cannot be drawn."""
    recipe = recipe or Recipe()
    folders = {size: lake.universe_folder(name or name_of(size, reading)) for size in sizes}
    with claimed(lake.path) if lake.place.is_local else nullcontext():
        watch(0, "reading the lake")
        named = own_topics(lake.users(spark), lake.topics(spark)) if own else None
        universes = Universes(spark, lake.memberships(spark), recipe, named)
        watch(1, f"drawing {recipe.draws} of each size")
        draws = universes.draws(sizes, [reading])
        made = []
        for place, row in enumerate(draws.transform(medians).orderBy("seeds").collect()):
            folder = folders[row.seeds]
            watch(2 + place, f"writing {folder.name}")
            of_size = draws.where(F.col("seeds") == row.seeds).orderBy("draw")
            delta.replaced(of_size.coalesce(1), folder / "draws", DRAW)
            found = Made(folder.name, row.seeds, row.draw, row.topics, row.nodes, row.memberships)
            said = {**asdict(found), **asdict(recipe), "reading": reading, "own": own}
            (folder / FILE).write(json.dumps(said, indent=1).encode() + b"\n")
            frame = universes.universe(row.seeds, row.draw, reading)
            delta.replaced(frame, folder / "memberships", MEMBERSHIP)
            made.append(found)
    return made
