"""Self-contained universes of a table of memberships (StaN 3.1), drawn as `engine/data/universe.py`
says.

Of many draws of one size, the one with the median ratio of topics to nodes is taken. The draws are
rows of a table, seeds and number in columns: workers get the memberships as arrays once, each works
off its share of the draws, and only their sizes come back. Which rows the chosen universe has is
then a matter of two joins.

A lake keeps the universes drawn from it (`make`):

    LAKE/universes/NAME/memberships/    the median draw, in the lake's numbers: a Delta table
    LAKE/universes/NAME/draws/          how large every draw was: another
    LAKE/universes/NAME/universe.json   how it was drawn

The memberships are written last: a universe without them is not there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import pyarrow  # type: ignore[import-untyped]
from pyarrow import RecordBatch
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from weft.engine.data.universe import READINGS, Reading, counts_of, seed_set
from weft.engine.data.workload import Memberships
from weft.pipeline import delta
from weft.pipeline.lake import Lake
from weft.pipeline.memberships import LEAST_SUBSCRIBERS, held, pruned
from weft.pipeline.resources import claimed
from weft.pipeline.schemas import DRAW, MEMBERSHIP, WHOLE, columns, selected
from weft.pipeline.session import parallelism

DRAWS = 100  # paper (Section 3.1)
FILE = "universe.json"
Watch = Callable[[int, str], None]
_TOPIC = columns(topic=WHOLE)


@dataclass(frozen=True)
class Recipe:
    """How universes are drawn."""

    draws: int = DRAWS
    least: int = LEAST_SUBSCRIBERS
    seed: int = 1

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ValueError("at least one draw")


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
        self._held = held(memberships)
        self._own = None if own is None else _own_topics(own, self._held)

    @property
    def topics(self) -> int:
        """How many topics there are to draw seeds from."""
        return int((self._held.sizes() > 0).sum())

    def draws(self, sizes: Sequence[int]) -> DataFrame:
        """How large each draw of each size is, in both readings: `DRAW`."""
        for seeds in sizes:
            if not 1 <= seeds <= self.topics:
                raise ValueError(f"{seeds} seeds, but there are {self.topics} topics")
        plan = [(seeds, number) for seeds in sizes for number in range(self._recipe.draws)]
        parts = max(1, min(len(plan), 4 * parallelism(self._spark)))
        sent = self._spark.sparkContext.broadcast((self._held, self._own, self._recipe))

        def drawn(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
            table, own, recipe = sent.value
            shape = to_arrow_schema(DRAW)
            for batch in batches:
                for place in batch.column(0).to_pylist():
                    rows = _sizes_of(table, own, recipe, *plan[place])
                    yield pyarrow.RecordBatch.from_pylist(rows, schema=shape)

        return self._spark.range(0, len(plan), 1, parts).mapInArrow(drawn, DRAW)

    def universe(self, seeds: int, number: int, reading: Reading) -> DataFrame:
        """The memberships of one draw: `MEMBERSHIP`."""
        recipe = self._recipe
        chosen = np.flatnonzero(seed_set(self._held, seeds, number, recipe.seed, self._own))
        rows = [(int(topic),) for topic in chosen]
        grown = self._spark.createDataFrame(rows, _TOPIC)
        view = closed if reading == "closed" else opened
        return self._memberships.transform(view, grown).transform(pruned, recipe.least)

    def median(self, seeds: int, reading: Reading) -> DataFrame:
        """The memberships of the median draw: `MEMBERSHIP`."""
        [row] = self.draws([seeds]).where(F.col("reading") == reading).transform(medians).collect()
        return self.universe(seeds, row.draw, reading)


def _own_topics(own: DataFrame, table: Memberships) -> npt.NDArray[np.int32]:
    known = own.select("user", "topic").toArrow()
    topics = np.full(table.peers, -1, np.int32)
    users = known.column("user").to_numpy()
    inside = users < table.peers
    topics[users[inside]] = known.column("topic").to_numpy()[inside]
    topics[topics >= table.topics] = -1
    return topics


def _sizes_of(
    table: Memberships,
    own: npt.NDArray[np.int32] | None,
    recipe: Recipe,
    seeds: int,
    number: int,
) -> list[dict[str, object]]:
    """The rows of `DRAW` for one draw."""
    chosen = seed_set(table, seeds, number, recipe.seed, own)
    return [
        {
            "reading": reading,
            "seeds": seeds,
            "draw": number,
            **asdict(counts_of(table, chosen, recipe.least, reading)),
        }
        for reading in READINGS
    ]


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
        draws = universes.draws(sizes).where(F.col("reading") == reading).cache()
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
        draws.unpersist()
    return made
