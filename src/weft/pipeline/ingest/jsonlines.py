"""JSON lines: one object per line, with a field for the user, one for the topic, perhaps a time."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from weft.pipeline.ingest import lines
from weft.pipeline.ingest.files import Inspected
from weft.pipeline.ingest.layout import by_name, unit_of
from weft.pipeline.ingest.options import BadInput, Options
from weft.pipeline.ingest.reading import Records
from weft.pipeline.schemas import TEXT, columns

FORMAT = "jsonl"
NOT_JSON = "not a JSON object"
NOT_PLAIN = "the user or the topic is no plain value"
_BAD = "_not_json"


@dataclass(frozen=True)
class JsonLines(Records):
    """Objects, three of whose fields count."""

    user: str
    topic: str
    time: str | None
    unit: str
    format: str = FORMAT

    @property
    def described(self) -> str:
        time = [] if self.time is None else [f"time {self.time!r}", f"in {self.unit}"]
        return ", ".join([f"user {self.user!r}", f"topic {self.topic!r}", *time])

    def records(self, spark: SparkSession, links: list[str]) -> DataFrame:
        return lines.read(spark, links).transform(self.parsed)

    def parsed(self, text: DataFrame) -> DataFrame:
        """`LINE` → `RECORD`."""
        fields = [self.user, self.topic, *([self.time] if self.time else [])]
        shape = columns(**dict.fromkeys([*fields, _BAD], TEXT))
        options = {"columnNameOfCorruptRecord": _BAD}
        split = text.withColumn("object", F.from_json("value", shape, options))
        read = F.col("object")
        nested = r"^[\[{]"
        problem = F.coalesce(
            F.when(read.isNull() | read[_BAD].isNotNull(), NOT_JSON),
            F.when(read[self.user].rlike(nested) | read[self.topic].rlike(nested), NOT_PLAIN),
        )
        entry = lines.found(
            read[self.user],
            read[self.topic],
            read[self.time] if self.time else None,
            unit=self.unit,
            text=F.col("value"),
            problem=problem,
        )
        return lines.recorded(split, F.array(entry))


def plan(file: Inspected, options: Options) -> JsonLines:
    """How to read a file, from the names in its first object."""
    first = next((line for line in file.lines if line.strip()), "")
    try:
        fields = json.loads(first)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or not fields:
        raise BadInput(f"{file.path}: not JSON lines: it begins with {file.beginning}")
    # A field that the first object happens to lack may still be asked for by name.
    asked = [each for each in (options.user, options.topic, options.time) if each]
    names = list(dict.fromkeys([*fields, *asked]))
    user, topic, time = by_name(file.path, names, options)
    name = None if time is None else names[time]
    return JsonLines(names[user], names[topic], name, unit_of(name, options))
