"""MediaWiki's publications: XML dumps and the history table. A page is a topic, and an editor is
subscribed to it since the first edit.

*XML dumps* are stub-meta-history, pages-articles, full history. A dump is cut into pages where its
text says that one ends (`</page>` cannot stand in a page's text, where `<` is written `&lt;`), and
each is parsed alone: a page that is not well-formed is one rejected row, and the pages after it are
read. Spark's own reader of XML files stops at the first such page. A page's revisions say which
editor made them and when. An editor that is not logged in is known by address. An editor whose name
was deleted is unknown: such revisions are rejected. A record is a page, so the `line` of a rejected
row is the number of the page in the file; its text names the page and the revision. A dump that was
cut off is known by its missing end, because the reader would only miss the last page. A page is
held in memory with all its revisions, so for whole histories prefer the stub dumps, which hold no
text.

*MediaWiki history* is Wikimedia's table of all edits, moves, deletions, as lines of 70 columns.
Only edits count (`revision`, `create`); the rest is passed over. The table names pages without
their namespace's name, so a page outside the articles is called by its number: `1:Earth` is the
talk page of `Earth`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from weft.pipeline.ingest import records
from weft.pipeline.ingest.files import Inspected
from weft.pipeline.ingest.options import BadInput, Options
from weft.pipeline.ingest.records import RECORD
from weft.pipeline.schemas import TEXT, columns, selected

XML = "mediawiki-xml"
ROOT = "<mediawiki"
END = b"</mediawiki>"
DELETED = "the contributor is deleted"
NOT_XML = "the page is not well-formed XML"
_BAD = "_not_xml"
_PAGE_BEGIN, _PAGE_END = r"<page(?=[\s>])", "</page>"
_DUMP_END = r"</mediawiki>\s*$"
_ALL = 2**31 - 1

_CONTRIBUTOR = columns(username=TEXT, ip=TEXT, _deleted=TEXT)
_REVISION = columns(id=TEXT, timestamp=TEXT, contributor=_CONTRIBUTOR)
_PAGE = columns(title=TEXT, revision=ArrayType(_REVISION), **{_BAD: TEXT})

HISTORY = "mediawiki-history"
WIDTH = 70
ENTITIES = ("revision", "page", "user")
NOT_HISTORY = f"not {WIDTH} columns"

# Places in the table, from 0.
ENTITY, EVENT, TIME = 1, 2, 3
USER_THEN, USER_NOW = 6, 7
TITLE_THEN, TITLE_NOW = 24, 25
NAMESPACE_THEN, NAMESPACE_NOW = 26, 28


# --- XML dumps ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dump(records.Records):
    """Pages with revisions."""

    harmless: ClassVar[tuple[str, ...]] = (DELETED,)

    format: str = XML

    def records(self, spark: SparkSession, links: list[str]) -> DataFrame:
        ended = spark.read.option("lineSep", _PAGE_END).text(list(links))
        # A page without an end has the next one in it; one at the end of the dump has that in it.
        begun = F.slice(F.split("value", _PAGE_BEGIN), 2, _ALL)
        pages = ended.select(
            records.file_number(links).alias("file"),
            records.block().alias("block"),
            F.explode(begun).alias("inside"),
        )
        text = F.concat(F.lit("<page"), F.regexp_replace("inside", _DUMP_END, ""), F.lit(_PAGE_END))
        placed = pages.select(
            "file", "block", F.monotonically_increasing_id().alias("position"), text.alias("text")
        )
        return placed.transform(read_pages).transform(parsed_pages)

    @property
    def has_events(self) -> bool:
        return True


def read_pages(pages: DataFrame) -> DataFrame:
    """Pages as text (`text`) → what stands in them."""
    options = {"columnNameOfCorruptRecord": _BAD}
    page = F.from_xml(F.make_valid_utf8("text"), _PAGE.simpleString(), options)
    return pages.withColumn("page", page).select("file", "block", "position", "page.*")


def parsed_pages(pages: DataFrame) -> DataFrame:
    """Pages, with `file`, `block` and `position` → `STAGED`."""
    revisions = F.transform("revision", lambda revision: _found(F.col("title"), revision))
    bad = F.col(_BAD)
    broken = records.found(F.lit(None), F.lit(None), text=bad, problem=F.lit(NOT_XML))
    nothing = F.array().cast(RECORD["found"].dataType)
    entries = F.when(bad.isNotNull(), F.array(broken)).otherwise(F.coalesce(revisions, nothing))
    found = selected(pages.withColumn("found", entries), RECORD)
    return found.transform(records.one_by_one)


def _found(title: Column, revision: Column) -> Column:
    contributor = revision["contributor"]
    return records.found(
        F.coalesce(contributor["username"], contributor["ip"]),
        title,
        revision["timestamp"],
        text=F.concat(
            F.lit("page "),
            F.coalesce(title, F.lit("without title")),
            F.coalesce(F.concat(F.lit(", revision "), revision["id"]), F.lit("")),
        ),
        problem=F.when(contributor["_deleted"].isNotNull(), DELETED),
    )


def plan_dump(file: Inspected, options: Options) -> Dump:
    if not any(ROOT in line for line in file.lines[:50]):
        raise BadInput(f"{file.path}: not a MediaWiki dump: it begins with {file.beginning}")
    if END not in file.tail:
        raise BadInput(f"{file.path}: cut off: the dump does not end with {END.decode()}")
    return Dump()


# --- history tables -------------------------------------------------------------------------------


@dataclass(frozen=True)
class History(records.Lines):
    """Edits among other events."""

    format: str = HISTORY

    @property
    def has_events(self) -> bool:
        return True

    def parsed(self, text: DataFrame) -> DataFrame:
        value, cells = F.col("value"), F.col("cells")
        split = text.withColumn("cells", F.split(value, "\t", -1))
        title = F.replace(_either(cells, TITLE_NOW, TITLE_THEN), F.lit("_"), F.lit(" "))
        space = F.coalesce(_either(cells, NAMESPACE_NOW, NAMESPACE_THEN), F.lit("0"))
        entries = records.with_found(
            split,
            "entry",
            _either(cells, USER_NOW, USER_THEN),
            F.when(space == "0", title).otherwise(F.concat(space, F.lit(":"), title)),
            _cell(cells, TIME),
            text=value,
            problem=F.when(F.size(cells) < WIDTH, NOT_HISTORY),
        )
        other = (F.size(cells) >= WIDTH) & _cell(cells, ENTITY).isin(*ENTITIES)
        edit = (_cell(cells, ENTITY) == "revision") & (_cell(cells, EVENT) == "create")
        skip = F.coalesce(other & ~edit, F.lit(False))
        return records.alone(entries, "entry", skip=skip)


def _cell(cells: Column, place: int) -> Column:
    return F.nullif(F.get(cells, F.lit(place)), F.lit(""))


def _either(cells: Column, now: int, then: int) -> Column:
    """A name as it is now; as it was at the time, if there is none now."""
    return F.coalesce(_cell(cells, now), _cell(cells, then))


def plan_history(file: Inspected, options: Options) -> History:
    if not file.lines or len(file.lines[0].split("\t")) < WIDTH:
        raise BadInput(
            f"{file.path}: not MediaWiki history, which has {WIDTH} columns: "
            f"it begins with {file.beginning}"
        )
    return History()
