"""MediaWiki history: Wikimedia's table of all edits, moves, deletions, as lines of 70 columns.

Only edits count (`revision`, `create`); the rest is passed over. The table names pages without
their namespace's name, so a page outside the articles is called by its number: `1:Earth` is the
talk page of `Earth`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from weft.pipeline.ingest import lines
from weft.pipeline.ingest.files import Inspected
from weft.pipeline.ingest.options import BadInput, Options
from weft.pipeline.ingest.reading import Records

FORMAT = "mediawiki-history"
WIDTH = 70
ENTITIES = ("revision", "page", "user")
NOT_HISTORY = f"not {WIDTH} columns"

# Places in the table, from 0.
ENTITY, EVENT, TIME = 1, 2, 3
USER_THEN, USER_NOW = 6, 7
TITLE_THEN, TITLE_NOW = 24, 25
NAMESPACE_THEN, NAMESPACE_NOW = 26, 28


@dataclass(frozen=True)
class History(Records):
    """Edits among other events."""

    format: str = FORMAT

    @property
    def described(self) -> str:
        return ""

    def records(self, spark: SparkSession, links: list[str]) -> DataFrame:
        return lines.read(spark, links).transform(parsed)


def parsed(text: DataFrame) -> DataFrame:
    """`LINE` → `RECORD`."""
    value, cells = F.col("value"), F.col("cells")
    split = text.withColumn("cells", F.split(value, "\t", -1))
    title = F.replace(_either(cells, TITLE_NOW, TITLE_THEN), F.lit("_"), F.lit(" "))
    space = F.coalesce(_either(cells, NAMESPACE_NOW, NAMESPACE_THEN), F.lit("0"))
    entry = lines.found(
        _either(cells, USER_NOW, USER_THEN),
        F.when(space == "0", title).otherwise(F.concat(space, F.lit(":"), title)),
        _cell(cells, TIME),
        text=value,
        problem=F.when(F.size(cells) < WIDTH, NOT_HISTORY),
    )
    other = (F.size(cells) >= WIDTH) & _cell(cells, ENTITY).isin(*ENTITIES)
    edit = (_cell(cells, ENTITY) == "revision") & (_cell(cells, EVENT) == "create")
    return lines.recorded(split, F.array(entry), skip=F.coalesce(other & ~edit, F.lit(False)))


def _cell(cells: Column, place: int) -> Column:
    return F.nullif(F.get(cells, F.lit(place)), F.lit(""))


def _either(cells: Column, now: int, then: int) -> Column:
    """A name as it is now; as it was at the time, if there is none now."""
    return F.coalesce(_cell(cells, now), _cell(cells, then))


def plan(file: Inspected, options: Options) -> History:
    """How to read a file, if it is one."""
    if not file.lines or len(file.lines[0].split("\t")) < WIDTH:
        raise BadInput(
            f"{file.path}: not MediaWiki history, which has {WIDTH} columns: "
            f"it begins with {file.beginning}"
        )
    return History()
