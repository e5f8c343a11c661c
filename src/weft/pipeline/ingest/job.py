"""One ingest, from files to the next version of a lake.

Inspect the files, leave out those the lake has, decide how to read the rest, parse them into a
staging folder, judge what came out, give numbers to new names, merge, commit. The driver sees one
row per file; rows of data stay with the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from weft.pipeline import tables
from weft.pipeline.ingest import dictionary
from weft.pipeline.ingest import files as sources
from weft.pipeline.ingest.dictionary import PLACED
from weft.pipeline.ingest.files import Inspected
from weft.pipeline.ingest.formats import FORMATS, guessed
from weft.pipeline.ingest.options import BadInput, Options
from weft.pipeline.ingest.records import FILE, PAIR, Place, Reading
from weft.pipeline.ingest.snap import COMMUNITIES
from weft.pipeline.lake import POINTER, SHAPES, Draft, Lake, drafted
from weft.pipeline.schemas import SOURCE
from weft.pipeline.transforms import together

AUTO = "auto"
BAD_SHARE = 0.5
"""guess: of a file with more bad rows than this, the format is wrong and not the rows"""

STEPS = ("looking at the files", "reading", "distinct pairs", "users", "topics", "merging")
Watch = Callable[[int, str], None]


@dataclass(frozen=True)
class Read:
    """A file that was read, and what came of it."""

    file: Inspected
    reading: Reading
    rows: int = 0
    rejects: int = 0


@dataclass(frozen=True)
class Summary:
    """What an ingest did."""

    lake: Path
    read: list[Read] = field(default_factory=list)
    known: list[str] = field(default_factory=list)  # files that the lake had already
    before: dict[str, int] = field(default_factory=dict)  # rows of each table
    after: dict[str, int] = field(default_factory=dict)
    reasons: list[tuple[str, int, str]] = field(default_factory=list)  # why, how often, where first


def ingest(
    spark: SparkSession,
    paths: Sequence[Path],
    lake: Path,
    format_name: str = AUTO,
    options: Options | None = None,
    watch: Watch = lambda step, text: None,
) -> Summary:
    """Add files to a lake; raises `BadInput`, and leaves the lake as it was, if that cannot be."""
    chosen = sources.listed(paths)
    with drafted(lake.resolve()) as draft:  # workers may be in another folder
        try:
            return _Ingest(spark, lake, draft, options or Options(), watch).run(chosen, format_name)
        except PySparkException as error:
            raise BadInput(f"Spark could not read the files: {_told(error)}") from error


def _told(error: PySparkException) -> str:
    """What a person needs of Spark's error: the innermost reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes or lines or ["no reason given"])[-1 if causes else 0][:300]


class _Ingest:
    def __init__(
        self, spark: SparkSession, folder: Path, draft: Draft, options: Options, watch: Watch
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._draft = draft
        self._options = options
        self._watch = watch
        self._lake = Lake(folder) if (folder / POINTER).exists() else None

    def run(self, paths: Sequence[Path], format_name: str) -> Summary:
        self._step(0)
        reads = [
            Read(file, self._plan(file, format_name))
            for file in sources.inspected(self._spark, paths)
        ]
        before = {table: self._draft.rows(table) for table in SHAPES}
        new, known = self._split(reads)
        if not new:
            return Summary(self._folder, [], known, before, before)
        self._step(1)
        places = self._stage(new)
        judged = self._judge(new, places)
        self._step(2)
        pairs = self._pairs(places)
        self._step(3)
        users = self._names("users", "user", pairs)
        self._step(4)
        topics = self._names("topics", "topic", pairs)
        self._step(5)
        numbers = pairs.transform(dictionary.interned, users, topics)
        self._draft.replace(
            "memberships", numbers.transform(dictionary.merged, self._old("memberships"))
        )
        reasons = self._add_rejects(judged, places)
        self._add_trace(places)
        rows = [self._source(each) for each in judged]
        self._draft.add("sources", self._spark.createDataFrame(rows, SOURCE).coalesce(1), len(rows))
        self._step(5)  # the last moment to stop it
        self._draft.commit(self._key(each) for each in judged)
        after = {table: self._draft.rows(table) for table in SHAPES}
        return Summary(self._folder, judged, known, before, after, reasons)

    def _step(self, number: int) -> None:
        self._watch(number, STEPS[number])

    def _plan(self, file: Inspected, format_name: str) -> Reading:
        name = guessed(file) if format_name == AUTO else format_name
        return FORMATS[name](file, self._options)

    def _reading(self, reading: Reading) -> str:
        """What decides, beside format and content, what a file gives."""
        prefixes = {"user": self._options.user_prefix, "topic": self._options.topic_prefix}
        said = [f"{what}s begin {prefix!r}" for what, prefix in prefixes.items() if prefix]
        return ", ".join([*([reading.described] if reading.described else []), *said])

    def _key(self, read: Read) -> tuple[str, str, str]:
        """What makes one file, read in one way, the same as another."""
        return (read.file.sha256, read.reading.format, self._reading(read.reading))

    def _source(self, read: Read) -> tuple[str, str, int, str, str, int, int]:
        """A row of `SOURCE`."""
        file, (sha256, form, reading) = read.file, self._key(read)
        return (file.path, sha256, file.size, form, reading, read.rows, read.rejects)

    def _split(self, reads: Sequence[Read]) -> tuple[list[Read], list[str]]:
        """What is new, and the files whose content was read in the same way before."""
        kept = self._old("sources").collect()
        seen = {(row.sha256, row.format, row.reading) for row in kept}
        labels = {Path(row.file).name for row in kept if row.format == COMMUNITIES}
        new, known = [], []
        for each in reads:
            key = self._key(each)
            if key in seen:
                known.append(each.file.path)
                continue
            seen.add(key)
            new.append(each)
            name = Path(each.file.path).name
            if each.reading.format == COMMUNITIES:
                if name in labels and not self._options.topic_prefix:
                    raise BadInput(
                        f"{each.file.path}: communities are named by file and line, and the lake "
                        f"has another {name}; tell them apart with --topic-prefix"
                    )
                labels.add(name)
        return new, known

    def _stage(self, reads: Sequence[Read]) -> list[tuple[Reading, Place]]:
        """Parse the files, those that are read alike together."""
        links = sources.linked([each.file for each in reads], self._draft.staging / "links")
        rows = [(number, each.file.path, each.file.name) for number, each in enumerate(reads)]
        files = self._spark.createDataFrame(rows, FILE)
        alike: dict[Reading, list[str]] = {}
        for each, link in zip(reads, links, strict=True):
            alike.setdefault(each.reading, []).append(link)
        places = []
        for number, (reading, group) in enumerate(alike.items()):
            place = Place(self._spark, group, files, self._draft.staging / f"read-{number}")
            reading.stage(place)
            places.append((reading, place))
        return places

    def _judge(self, reads: Sequence[Read], places: Sequence[tuple[Reading, Place]]) -> list[Read]:
        """Count what each file gave; refuse files that are mostly bad."""
        counts: dict[int, Row] = {}
        for reading, place in places:
            counts |= {row.file: row for row in reading.counts(place).collect()}
        judged = []
        for number, each in enumerate(reads):
            row = counts.get(number)
            rows, bad, wrong = (row.rows, row.rejects, row.wrong) if row else (0, 0, 0)
            judged.append(Read(each.file, each.reading, rows, bad))
            if wrong > BAD_SHARE * (rows + bad):
                raise BadInput(self._mostly_bad(judged[-1], places))
        if not any(each.rows + each.rejects for each in judged):
            names = ", ".join(each.file.path for each in judged)
            raise BadInput(f"{names}: no rows in it as {judged[0].reading.format}")
        return judged

    def _mostly_bad(self, read: Read, places: Sequence[tuple[Reading, Place]]) -> str:
        [(_, place)] = [each for each in places if each[0] == read.reading]
        bad = read.reading.rejects(place).where(F.col("file") == read.file.path)
        first = bad.orderBy("line").first()
        example = f"; line {first.line}: {first.reason}: {first.text[:60]!r}" if first else ""
        total = read.rows + read.rejects
        return (
            f"{read.file.path}: not {read.reading.format}, it seems: "
            f"{read.rejects} of {total} rows are bad{example}"
        )

    def _pairs(self, places: Sequence[tuple[Reading, Place]]) -> DataFrame:
        """The memberships of all files by name, written down."""
        found = together(*(reading.pairs(place) for reading, place in places))
        named = found.transform(
            dictionary.prefixed, self._options.user_prefix, self._options.topic_prefix
        )
        folder = self._draft.staging / "pairs"
        tables.write(named, folder)
        return tables.read(self._spark, folder, PAIR)

    def _names(self, table: str, column: str, pairs: DataFrame) -> DataFrame:
        """Give numbers to new names; the dictionary of all of them."""
        known = self._old(table)
        found = pairs.select(pairs[column].alias("name"))
        folder = self._draft.staging / table
        tables.write(
            found.transform(dictionary.unknown, known).transform(dictionary.placed), folder
        )
        placed = tables.read(self._spark, folder, PLACED)
        new = placed.transform(dictionary.numbered, self._draft.rows(table))
        fresh = new.withColumnRenamed("id", column)
        self._draft.add(table, fresh, placed.count())
        return known.unionByName(fresh)

    def _add_rejects(
        self, judged: Sequence[Read], places: Sequence[tuple[Reading, Place]]
    ) -> list[tuple[str, int, str]]:
        total = sum(each.rejects for each in judged)
        if not total:
            return []
        bad = together(*(reading.rejects(place) for reading, place in places))
        self._draft.add("rejects", bad, total)
        tally = bad.groupBy("reason").agg(
            F.count("*").alias("times"), F.min(F.struct("file", "line")).alias("first")
        )
        return [
            (row.reason, row.times, f"{row.first.file}:{row.first.line}")
            for row in tally.orderBy(F.desc("times"), "reason").collect()
        ]

    def _add_trace(self, places: Sequence[tuple[Reading, Place]]) -> None:
        traces = [reading.trace(place) for reading, place in places]
        known = [frame for frame in traces if frame is not None]
        if known:
            trace = together(*known)
            self._draft.add("trace", trace, trace.count())

    def _old(self, table: str) -> DataFrame:
        if self._lake is None:
            return self._spark.createDataFrame([], SHAPES[table])
        return self._lake.table(self._spark, table)
