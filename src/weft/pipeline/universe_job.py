"""Draws universes from a lake and keeps them in it.

    LAKE/universes/NAME/memberships.parquet   the median draw, in the lake's numbers
    LAKE/universes/NAME/draws.parquet         how large every draw was
    LAKE/universes/NAME/universe.json         how it was drawn

The memberships are written last: a universe without them is not there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weft.engine.data.universe import Reading
from weft.pipeline import tables
from weft.pipeline.claim import claimed
from weft.pipeline.lake import Lake
from weft.pipeline.universe import Recipe, Universes, medians, own_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = "universe.json"
Watch = Callable[[int, str], None]


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
    """What a universe is called, if nobody says otherwise."""
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
    with claimed(lake.path):
        watch(0, "reading the lake")
        named = own_topics(lake.users(spark), lake.topics(spark)) if own else None
        universes = Universes(spark, lake.memberships(spark), recipe, named)
        watch(1, f"drawing {recipe.draws} of each size")
        draws = universes.draws(sizes).where(F.col("reading") == reading).cache()
        made = []
        for place, row in enumerate(draws.transform(medians).orderBy("seeds").collect()):
            folder = folders[row.seeds]
            watch(2 + place, f"writing {folder.name}")
            folder.mkdir(parents=True, exist_ok=True)
            of_size = draws.where(F.col("seeds") == row.seeds).orderBy("draw")
            tables.write(of_size.coalesce(1), folder / "draws.parquet")
            found = Made(folder.name, row.seeds, row.draw, row.topics, row.nodes, row.memberships)
            _note(folder, {**asdict(found), **asdict(recipe), "reading": reading, "own": own})
            frame = universes.universe(row.seeds, row.draw, reading)
            tables.write(frame, folder / "memberships.parquet")
            made.append(found)
        draws.unpersist()
    return made


def _note(folder: Path, what: dict[str, object]) -> None:
    aside = folder / f".{FILE}.{os.getpid()}"
    aside.write_text(json.dumps(what, indent=1) + "\n")
    os.replace(aside, folder / FILE)
