"""MediaWiki's XML dumps: stub-meta-history, pages-articles, full history.

A page is a topic and whoever edited it is subscribed to it since his first edit. Spark's own XML
reader cuts a dump into pages; a page's revisions say who and when. Who is not logged in is known by
address. An editor whose name was deleted is nobody: such revisions are rejected.

A record is a page, so the `line` of a rejected row is the number of the page in the file; its text
names the page and the revision.

A dump that was cut off is known by its missing end, because the reader would only miss the last
page. One file is one task, as dumps come in many files; a page is held in memory with all its
revisions, so for whole histories prefer the stub dumps, which hold no text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from weft.pipeline.ingest import lines
from weft.pipeline.ingest.files import Inspected
from weft.pipeline.ingest.options import BadInput, Options
from weft.pipeline.ingest.reading import Records
from weft.pipeline.schemas import RECORD, TEXT, columns, selected

FORMAT = "mediawiki-xml"
ROOT = "<mediawiki"
END = b"</mediawiki>"
DELETED = "the contributor is deleted"
NOT_XML = "the page is not well-formed XML"
_BAD = "_not_xml"

_CONTRIBUTOR = columns(username=TEXT, ip=TEXT, _deleted=TEXT)
_REVISION = columns(id=TEXT, timestamp=TEXT, contributor=_CONTRIBUTOR)
_PAGE = columns(title=TEXT, revision=ArrayType(_REVISION), **{_BAD: TEXT})


@dataclass(frozen=True)
class Dump(Records):
    """Pages with revisions."""

    harmless: ClassVar[tuple[str, ...]] = (DELETED,)

    format: str = FORMAT

    @property
    def described(self) -> str:
        return ""

    def records(self, spark: SparkSession, links: list[str]) -> DataFrame:
        reader = spark.read.format("xml").schema(_PAGE)
        reader = reader.options(rowTag="page", columnNameOfCorruptRecord=_BAD)
        placed = reader.load(list(links)).select(
            "*",
            lines.file_number().alias("file"),
            F.lit(0).alias("block"),
            F.monotonically_increasing_id().alias("position"),
        )
        return placed.transform(parsed)


def parsed(pages: DataFrame) -> DataFrame:
    """Pages, with `file`, `block` and `position` → `RECORD`."""
    revisions = F.transform("revision", lambda revision: _found(F.col("title"), revision))
    bad = F.col(_BAD)
    broken = lines.found(F.lit(None), F.lit(None), text=bad, problem=F.lit(NOT_XML))
    nothing = F.array().cast(RECORD["found"].dataType)
    entries = F.when(bad.isNotNull(), F.array(broken)).otherwise(F.coalesce(revisions, nothing))
    return selected(pages.withColumn("found", entries), RECORD)


def _found(title: Column, revision: Column) -> Column:
    contributor = revision["contributor"]
    return lines.found(
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


def plan(file: Inspected, options: Options) -> Dump:
    """How to read a dump, if it is one and whole."""
    if not any(ROOT in line for line in file.lines[:50]):
        raise BadInput(f"{file.path}: not a MediaWiki dump: it begins with {file.beginning}")
    if END not in file.tail:
        raise BadInput(f"{file.path}: cut off: the dump does not end with {END.decode()}")
    return Dump()
