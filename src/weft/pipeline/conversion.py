"""Conversion of lakes of layout 1 to the present layout.

A lake of layout 1 was folders of Parquet parts, and a file that named the parts that counted:

    LAKE/lake.json                     which parts make up each table, and how many rows it has
    LAKE/memberships/000002.parquet/   `time_ms` where there is a time today
    LAKE/universes/NAME/memberships.parquet/, draws.parquet/

Its tables become Delta tables in the same folder, with the same numbers and the same name for their
content, so that results made from it stay valid. With the first version of the table `versions` it
is a lake of the present layout; then the old files are removed. A conversion that was killed before
that moment is begun again; after it, the next one only cleans up.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from weft.pipeline import delta, tables
from weft.pipeline.ingest.pubsub import kept
from weft.pipeline.lake import OLD_POINTER, SHAPES, UNIVERSES, VERSIONS, Draft, NotALake, Version
from weft.pipeline.location import Location
from weft.pipeline.resources import claimed
from weft.pipeline.schemas import (
    DRAW,
    MEMBERSHIP,
    TEXT,
    TRACE,
    WHOLE,
    columns,
    selected,
)

OLD_LAYOUT = 1
_OLD_MEMBERSHIP = columns(user=WHOLE, topic=WHOLE, time_ms=WHOLE)
_OLD_SOURCE = columns(
    file=TEXT, sha256=TEXT, bytes=WHOLE, format=TEXT, reading=TEXT, rows=WHOLE, rejects=WHOLE
)
_OLD = SHAPES | {"memberships": _OLD_MEMBERSHIP, "sources": _OLD_SOURCE, "trace": TRACE}


def converted(spark: SparkSession, folder: Path) -> Version:
    """Convert a lake of layout 1; returns its first version in the present layout."""
    place = Location.of(folder)
    if not (folder / OLD_POINTER).exists():
        Version.read(place)  # raises its own error if there is no lake at all
        raise NotALake(f"{folder}: a lake of the present layout already; nothing to convert")
    with claimed(place.local):
        if not delta.is_there(place / VERSIONS):
            _convert(spark, place, _pointer(folder))
        made = Version.read(place)
        _clean_up(place.local)
    return made


def _pointer(folder: Path) -> tuple[dict[str, list[str]], str]:
    """The parts of each table, and the name of the content."""
    try:
        known = json.loads((folder / OLD_POINTER).read_text())
        layout, parts, content = known["weft_lake"], known["parts"], known["content"]
    except (ValueError, KeyError, TypeError):
        raise NotALake(f"{folder / OLD_POINTER}: damaged, this is not what weft wrote") from None
    if layout != OLD_LAYOUT:
        raise NotALake(f"{folder}: made by another version of weft (layout {layout})")
    return parts, content


def _convert(
    spark: SparkSession, place: Location, pointer: tuple[dict[str, list[str]], str]
) -> None:
    parts, content = pointer
    draft = Draft(place, Version())
    try:
        for table in SHAPES:
            if parts.get(table):
                draft.replace(table, _today(spark, place.local, table, parts[table]))
        for universe in sorted((place.local / UNIVERSES).glob("*/memberships.parquet")):
            old = tables.read(spark, universe, _OLD_MEMBERSHIP).transform(_timed)
            home = Location.of(universe.parent)
            delta.replaced(old, home / "memberships", MEMBERSHIP)
            draws = tables.read(spark, universe.parent / "draws.parquet", DRAW)
            delta.replaced(draws.coalesce(1), home / "draws", DRAW)
        draft.commit((), content=content)
    finally:
        draft.discard()


def _today(spark: SparkSession, folder: Path, table: str, parts: Sequence[str]) -> DataFrame:
    rows = tables.read_parts(spark, folder / table, parts, _OLD[table])
    if table == "memberships":
        return rows.transform(_timed)
    if table == "trace":
        return rows.transform(kept)
    if table == "sources":
        rows = rows.withColumn("encoding", F.lit(None).cast(TEXT))
    return selected(rows, SHAPES[table])


def _timed(memberships: DataFrame) -> DataFrame:
    """Milliseconds become times; those outside of the years 1 to 9999, which no reader of times
    knows, become null."""
    known = F.col("time_ms").between(-62_135_596_800_000, 253_402_300_799_999)
    time = F.when(known, F.timestamp_millis("time_ms"))
    return selected(memberships.withColumn("time", time), MEMBERSHIP)


def _clean_up(folder: Path) -> None:
    """Remove the old layout's parts, and last the file that named them."""
    for table in SHAPES:
        for part in (folder / table).glob(f"[0-9]*{tables.SUFFIX}"):
            shutil.rmtree(part, ignore_errors=True)
    for old in (folder / UNIVERSES).glob(f"*/*{tables.SUFFIX}"):
        shutil.rmtree(old, ignore_errors=True)
    (folder / OLD_POINTER).unlink()
