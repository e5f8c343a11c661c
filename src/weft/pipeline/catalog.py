"""A lake for questions in SQL: its tables by name, with what their columns mean.

Every table becomes a view of the Spark session, at the version of the lake that was opened; so does
each universe, as `universe_NAME`. A result is what Spark makes of the query, nothing is computed
here. Only questions are asked: Spark would let a statement that writes replace the files of a lake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, Row, SparkSession

from weft.errors import WeftError
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
        "reason": "of which kind: why rejected, which encoding, which file has no rows",
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
_SHOWING = re.compile(r"\s*(SHOW|DESCRIBE|DESC|EXPLAIN)\b", re.IGNORECASE)
DOCUMENTED = columns(table=TEXT, column=TEXT, type=TEXT, meaning=TEXT, rows=WHOLE)


class NoQuestion(WeftError):
    """A statement that Spark does not understand, or that would change something."""


def registered(spark: SparkSession, lake: Lake) -> None:
    """Make the lake's tables and universes views of the session, and `columns` the list of what
    they mean. Of universes whose names differ in signs alone the later ones get a number."""
    for name in SHAPES:
        lake.table(spark, name).createOrReplaceTempView(name)
    taken: dict[str, int] = {}
    for name in lake.universes():
        held = selected(lake.universe(spark, name), MEMBERSHIP)
        view = "universe_" + re.sub(r"\W", "_", name)
        taken[view.lower()] = number = taken.get(view.lower(), 0) + 1
        held.createOrReplaceTempView(view if number == 1 else f"{view}_{number}")
    documented(spark, lake).createOrReplaceTempView("columns")


def asked(spark: SparkSession, query: str) -> DataFrame:
    """What Spark answers to one question; raises `NoQuestion` for any other statement, which is not
    run."""
    question = query.strip().rstrip(";")
    try:
        # Nothing but a question can stand in the brackets.
        spark.sql(f"SELECT * FROM (\n{question}\n)")  # noqa: S608  (it is the user's own)
    except ParseException:
        if not _SHOWING.match(question):
            try:
                spark.sql(f"EXPLAIN\n{question}")  # plans it at most
            except ParseException as error:
                raise NoQuestion(_counted_from_its_line(said(error))) from error
            raise NoQuestion(
                "this would change something, and a lake is changed by 'weft data' alone; "
                "ask with SELECT, WITH, VALUES, SHOW, DESCRIBE or EXPLAIN"
            ) from None
    except AnalysisException:
        pass  # the question, asked below, has the same error with line numbers of its own
    try:
        return spark.sql(question)
    except AnalysisException as error:
        raise NoQuestion(said(error)) from error


def said(error: AnalysisException) -> str:
    """What is wrong with a question: Spark's own words, without the plan and the places in its code
    that it shows below."""
    words = re.split(r"\n== SQL|;\n|\n\nJVM stacktrace|\n\tat ", str(error))[0]
    return re.sub(r"^\[[A-Z_.]+\] | SQLSTATE: \w+", "", words.replace("\n", " ").strip())


def _counted_from_its_line(text: str) -> str:
    return re.sub(r"\(line (\d+),", lambda found: f"(line {int(found[1]) - 1},", text)


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
    """A value of a row as JSON has it: times in ISO's form, spans in seconds, rows as objects."""
    if isinstance(value, Row):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()  # Spark gives it in this machine's time zone
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if isfinite(value) else None  # JSON has no other numbers
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return value if value is None or isinstance(value, bool | int | str) else str(value)
