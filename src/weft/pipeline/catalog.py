"""A lake for questions in SQL: its tables by name, with what their columns mean.

Every table becomes a view of the Spark session, at the version of the lake that was opened; so does
each universe, as `universe_NAME`. A result is what Spark makes of the query, nothing is computed
here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from weft.pipeline.lake import SHAPES, Lake
from weft.pipeline.schemas import MEMBERSHIP, TEXT, WHOLE, columns, selected

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "memberships": {
        "user": "the subscriber, a number of `users`",
        "topic": "what it is subscribed to, a number of `topics`",
        "time": "since when, the earliest time known (UTC), or null",
    },
    "events": {
        "user": "the user that did something, a number of `users`",
        "topic": "where it was done, a number of `topics`",
        "time": "when (UTC), or null",
        "extra": "the other columns of the file as a JSON object, or null",
    },
    "users": {"user": "0, 1, 2 …", "name": "as the files have it"},
    "topics": {"topic": "0, 1, 2 …", "name": "as the files have it"},
    "rejects": {
        "file": "where a row stands that could not be read",
        "line": "its line, from 1; the row of Parquet, the page of a dump",
        "reason": "why",
        "text": "the beginning of what stands there",
    },
    "sources": {
        "file": "a file that was read",
        "sha256": "of its bytes",
        "bytes": "its size",
        "format": "as what it was read",
        "reading": "with which options",
        "rows": "good rows",
        "rejects": "bad rows",
        "encoding": "of its text",
    },
    "quality": {
        "version": "of the lake, made by the ingest that is reported",
        "figure": "what is counted",
        "reason": "of which kind: why rejected, which encoding",
        "rows": "how many rows (or files)",
    },
    "trace": {
        "peer": "that wrote the record",
        "timestamp_ns": "when, in nanoseconds",
        "kind": "what happened (docs/trace.md)",
        "message": "the event that it is about",
        "topic": "its topic",
        "other": "the peer at the other end",
        "rpc": "the kind of message that was sent, received or dropped",
        "part": "0 for the first event of a record",
        "bytes": "size of the message",
        "hops": "peers that the event passed through",
        "reason": "why it was refused or dropped",
        "time": "`timestamp_ns` as a time",
    },
}
DOCUMENTED = columns(table=TEXT, column=TEXT, type=TEXT, meaning=TEXT, rows=WHOLE)


def registered(spark: SparkSession, lake: Lake) -> None:
    """Make the lake's tables and universes views of the session, and `columns` the list of what
    they mean."""
    for name in SHAPES:
        lake.table(spark, name).createOrReplaceTempView(name)
    for name in lake.universes():
        held = selected(lake.universe(spark, name), MEMBERSHIP)
        held.createOrReplaceTempView("universe_" + re.sub(r"\W", "_", name))
    documented(spark, lake).createOrReplaceTempView("columns")


def documented(spark: SparkSession, lake: Lake) -> DataFrame:
    """What each column of each table means, and how many rows the table has: `DOCUMENTED`."""
    rows = [
        (
            table,
            each.name,
            each.dataType.simpleString(),
            COLUMNS[table][each.name],
            lake.rows(table),
        )
        for table, shape in SHAPES.items()
        for each in shape.fields
    ]
    return spark.createDataFrame(rows, DOCUMENTED).coalesce(1)


def plain(value: Any) -> Any:
    """A value of a row as JSON has it: times in ISO's form, rows as objects."""
    if isinstance(value, Row):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()  # Spark gives it in this machine's time zone
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return value
