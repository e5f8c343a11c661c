"""MediaWiki's publications: XML dumps and the history table. A page is a topic, and an editor is
subscribed to it since the first edit.

*XML dumps* are stub-meta-history, pages-articles, full history. A dump is cut into pages where its
text says that one ends (`</page>` cannot stand in a page's text, where `<` is written `&lt;`), and
each is parsed alone: a page that is not well-formed is one rejected row, and the pages after it are
read; so is what stands between pages and holds an element, because it was a page. Spark's own
reader of XML files stops at the first such page. A page's revisions say which editor made them and
when; where a page's text has more times or contributors than revisions, one rejected row says so.
An editor that is not logged in is known by address. An editor whose name was deleted is unknown:
such revisions are rejected. A record is a page, so the `line` of a rejected row is the number of
the page in the file; its text names the page and the revision. A dump that was cut off is known by
its missing end, because the reader would only miss the last page. A page is held in memory with all
its revisions, so for whole histories prefer the stub dumps, which hold no text.

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
from pyspark.sql.types import ArrayType, BooleanType

from weft.pipeline.ingest import records
from weft.pipeline.ingest.files import Inspected
from weft.pipeline.ingest.options import BadInput, Options
from weft.pipeline.ingest.records import NOT_TEXT, RECORD
from weft.pipeline.schemas import SMALL, TEXT, WHOLE, columns, joined, selected

XML = "mediawiki-xml"
ROOT = "<mediawiki"
END = b"</mediawiki>"
DELETED = "the contributor is deleted"
NOT_XML = "the page is not well-formed XML"
NO_REVISION = "an edit that stands in no revision"
_BAD = "_not_xml"
_PAGE_BEGIN, _PAGE_END = r"<page(?=[\s>])", "</page>"
_DUMP_END = r"</mediawiki>\s*$"
_AROUND = r"(?s)</?mediawiki(?=[\s>])[^>]*>|<siteinfo(?=[\s>]).*?</siteinfo>|<!--.*?-->|^\s+|\s+$"
"""What may stand before a page: the beginning of a dump, and the end of one before it."""
_ELEMENT = "<[^!?]"
_TAGS = tuple(rf"(?i)<{name}(?=[\s/>])" for name in ("timestamp", "contributor", "upload"))
_SPOILED = "\ufffd"
_ALL = 2**31 - 1

_CONTRIBUTOR = columns(username=TEXT, ip=TEXT, _deleted=TEXT)
_REVISION = columns(id=TEXT, timestamp=TEXT, contributor=_CONTRIBUTOR)
_READ = columns(title=TEXT, revision=ArrayType(_REVISION), **{_BAD: TEXT})
# What a page holds, or its text if that is no page; how many edits its text speaks of; and whether
# some of its bytes are no UTF-8 and stand as `_SPOILED`.
PAGE = joined(
    columns(file=SMALL, block=WHOLE, position=WHOLE),
    joined(_READ, columns(edits=SMALL, spoiled=BooleanType())),
)

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
        parts = F.split("value", _PAGE_BEGIN)
        before = F.regexp_replace(F.get(parts, F.lit(0)), _AROUND, "")
        stray = F.struct(before.alias("text"), F.lit(True).alias("stray"))
        pages = F.transform(F.slice(parts, 2, _ALL), _page)
        strays = F.filter(F.array(stray), lambda piece: piece["text"].rlike(_ELEMENT))
        pieces = ended.select(
            records.file_number(links).alias("file"),
            records.block().alias("block"),
            (~F.is_valid_utf8("value")).alias("spoiled"),  # `split` makes it valid
            F.inline(F.concat(strays, pages)),
        )
        placed = pieces.withColumn("position", F.monotonically_increasing_id())
        return placed.transform(read_pages).transform(parsed_pages)

    @property
    def has_events(self) -> bool:
        return True


def _page(inside: Column) -> Column:
    """A page from what follows the beginning of its tag."""
    text = F.concat(F.lit("<page"), F.regexp_replace(inside, _DUMP_END, ""), F.lit(_PAGE_END))
    return F.struct(text.alias("text"), F.lit(False).alias("stray"))


def read_pages(pieces: DataFrame) -> DataFrame:
    """Pages as text, and what is `stray` among them → what stands in them: `PAGE`."""
    options = {"columnNameOfCorruptRecord": _BAD}
    read = pieces.withColumn("page", F.from_xml("text", _READ.simpleString(), options))
    # An upload of a file has a time and a contributor of its own, and is no edit.
    times, names, uploads = (F.regexp_count("text", F.lit(tag)) for tag in _TAGS)
    edits = F.greatest(times, names) - uploads
    bad = F.coalesce(F.col("page")[_BAD], F.when(F.col("stray"), F.col("text")))
    parts = {"title": F.col("page.title"), "revision": F.col("page.revision"), _BAD: bad}
    return selected(read.withColumns({**parts, "edits": edits}), PAGE)


def parsed_pages(pages: DataFrame) -> DataFrame:
    """`PAGE` → `STAGED`."""
    title, bad, spoiled = F.col("title"), F.col(_BAD), F.col("spoiled")
    revisions = F.transform("revision", lambda revision: _found(title, revision, spoiled))
    nothing = F.array().cast(RECORD["found"].dataType)
    known = F.coalesce(F.size("revision"), F.lit(0))
    broken = F.array(_lost(bad, NOT_XML))
    unread = F.array(_lost(_shown(title), NO_REVISION))
    more = F.when(F.col("edits") > known, unread).otherwise(nothing)
    entries = F.when(bad.isNotNull(), broken).otherwise(
        F.concat(F.coalesce(revisions, nothing), more)
    )
    found = selected(pages.withColumn("found", entries), RECORD)
    return found.transform(records.one_by_one)


def _lost(text: Column, why: str) -> Column:
    return records.found(F.lit(None), F.lit(None), text=text, problem=F.lit(why))


def _shown(title: Column) -> Column:
    return F.concat(F.lit("page "), F.coalesce(title, F.lit("without title")))


def _found(title: Column, revision: Column, spoiled: Column) -> Column:
    contributor = revision["contributor"]
    user = F.coalesce(contributor["username"], contributor["ip"])
    names = F.concat_ws(" ", user, title)  # two names may differ only in what is spoiled
    return records.found(
        user,
        title,
        revision["timestamp"],
        text=F.concat(
            _shown(title), F.coalesce(F.concat(F.lit(", revision "), revision["id"]), F.lit(""))
        ),
        problem=F.coalesce(
            F.when(contributor["_deleted"].isNotNull(), DELETED),
            F.when(spoiled & F.contains(names, F.lit(_SPOILED)), NOT_TEXT),
        ),
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
