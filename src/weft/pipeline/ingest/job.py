"""One ingest, from files to the next version of a lake.

Inspect the files, leave out those the lake has, decide how to read the rest, parse them into a
staging folder, judge what came out, give numbers to new names, merge, commit. The driver sees one
row per file; rows of data stay with the workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from weft.pipeline import tables
from weft.pipeline.ingest import dictionary
from weft.pipeline.ingest import files as sources
from weft.pipeline.ingest.dictionary import NAME, PLACED
from weft.pipeline.ingest.files import Inspected
from weft.pipeline.ingest.formats import FORMATS, guessed
from weft.pipeline.ingest.options import BadInput, Options
from weft.pipeline.ingest.records import FILE, PAIR, Place, Reading
from weft.pipeline.ingest.snap import COMMUNITIES
from weft.pipeline.lake import SHAPES, Address, Draft, Lake, drafted, is_lake
from weft.pipeline.location import Location
from weft.pipeline.schemas import (
    HAPPENED,
    MEMBERSHIP,
    REJECT,
    TEXT,
    TIME,
    WHOLE,
    columns,
    selected,
)
from weft.pipeline.session import parallelism, reason_of, setting
from weft.pipeline.transforms import together

AUTO = "auto"
BAD_SHARE = 0.5
"""guess: where a larger share of a file's rows is bad, the format is wrong and not the rows"""
FEW_PAIRS = 200_000
"""guess: up to so many pairs of names, some ten megabytes, are sent to all tasks, which look for
them in the lake's rows without moving these. More pairs are merged with the whole table."""
ONE_TASK = 1 << 21
"""guess: one task sorts up to so many names, in some hundred megabytes, sooner than several do"""
NAMES_SENT = 1 << 20
"""guess: a dictionary of so many names, some hundred megabytes, is sent to all tasks, so that what
is stated need not be parted and sorted by name"""
MERGED_ONCE = "spark.sql.execution.bypassPartialAggregation"
"""Whether Spark counts and merges rows only once they are parted by key, not before as well.
measured: most memberships are stated once or twice, so the first of two passes merges little; a
fifth less CPU time for finding the different ones; for names see `PART_BITS`."""
SAMPLE = 1 << 16
MANY = SAMPLE >> 3
"""guess: names are parted by name at once if a sample has more different ones than this, since each
task would otherwise find most names, in a table larger than a processor's cache; and if no name is
in the sample more often than this, since one task would otherwise get most rows"""
PARTS = "spark.sql.shuffle.partitions"
JOINED = "spark.sql.adaptive.coalescePartitions.enabled"
PART_BITS = 19
"""guess: what is found in 2¹⁹ rows has room in a processor's cache. measured: 986,219 names
among 10⁷ rows take 9.7 s of CPU time in two passes, 8.3 in one pass in 4 parts, 7.0 in 19"""
_MET = columns(user=WHOLE, topic=WHOLE, earlier=TIME, source=TEXT)

_NAMES_SHOWN = 5
STEPS = ("looking at the files", "reading", "bad rows", "users", "topics", "merging")
Watch = Callable[[int, str], None]
Reason = tuple[str, int, str]
"""Why rows were rejected, how many, and where the first one stands."""


class TooManyRejects(BadInput):
    """More rows were rejected than the user allows; nothing was changed."""


@dataclass(frozen=True)
class Most:
    """How many rejects are allowed: a number, or a share of all rows."""

    rows: int | None = None
    share: Fraction | float | None = None  # a fraction is exact: 29 of 100 rows are 29 %

    def allows(self, rejects: int, total: int) -> bool:
        if self.rows is not None and rejects > self.rows:
            return False
        return self.share is None or rejects <= self.share * total

    def __str__(self) -> str:
        if self.rows is not None:
            return f"{self.rows:,}"
        return f"{float(100 * (self.share or 0)):g} %"


@dataclass(frozen=True)
class Read:
    """A file that was read, and what came of it."""

    file: Inspected
    reading: Reading
    rows: int = 0
    rejects: int = 0


@dataclass(frozen=True)
class Quality:
    """What became of the rows of an ingest."""

    rows_in: int = 0
    kept: int = 0
    rejected: int = 0
    duplicates: int = 0  # rows whose membership was stated before, here or in the lake
    memberships: int = 0  # that are new in the lake
    reasons: tuple[Reason, ...] = ()
    encodings: tuple[tuple[str, int], ...] = ()  # and how many files have each
    without_rows: tuple[str, ...] = ()  # files that are empty, or have a header only
    doubts: tuple[tuple[str, str], ...] = ()  # files whose first row may be a header, and that row

    def rows(self, version: int) -> list[tuple[int, str, str | None, int]]:
        """These figures as rows of `QUALITY`."""
        figures = ("rows_in", "kept", "rejected", "duplicates", "memberships")
        return [
            *((version, name, None, getattr(self, name)) for name in figures),
            *((version, "rejected by reason", why, times) for why, times, _ in self.reasons),
            *((version, "files by encoding", name, files) for name, files in self.encodings),
            *((version, "file without rows", path, 0) for path in self.without_rows),
            *((version, "first row may be a header", path, 1) for path, _ in self.doubts),
        ]


@dataclass(frozen=True)
class Summary:
    """What an ingest did."""

    lake: Location
    read: list[Read] = field(default_factory=list)
    known: list[str] = field(default_factory=list)  # files that the lake had already
    before: dict[str, int] = field(default_factory=dict)  # rows of each table
    after: dict[str, int] = field(default_factory=dict)
    quality: Quality = field(default_factory=Quality)


def ingest(
    spark: SparkSession,
    paths: Sequence[Path],
    lake: Address,
    format_name: str = AUTO,
    options: Options | None = None,
    watch: Watch = lambda step, text: None,
    rejects_max: Most | None = None,
    events: bool = True,
) -> Summary:
    """Add files to a lake. Raises `BadInput`, and leaves the lake as it was, if a file cannot be
    read. Without `events` only the topics of users are kept, not how often and when each is stated.
    """
    place = Location.of(lake)  # whole: workers may be in another folder
    chosen = sources.listed(paths, place.local if place.is_local else None)
    with drafted(place) as draft, TemporaryDirectory(prefix="weft-links-") as aside:
        # Links stand where workers see them: beside the data, or here for a lake elsewhere.
        links = draft.staging.local if place.is_local else Path(aside)
        work = _Ingest(spark, place, draft, links, options or Options(), watch, events)
        try:
            return work.run(chosen, format_name, rejects_max or Most())
        except (PySparkException, Py4JJavaError) as error:
            raise BadInput(f"{work.blamed(error)}: {reason_of(error)}") from error


def _planned(format_name: str, options: Options, file: Inspected) -> Reading:
    """How to read a file. Runs in workers."""
    name = guessed(file) if format_name == AUTO else format_name
    return FORMATS[name](file, options)


def _named(paths: Sequence[str]) -> str:
    """The first of these files, and how many more there are."""
    more = len(paths) - _NAMES_SHOWN
    return ", ".join(paths[:_NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def _scattered(names: DataFrame) -> bool:
    """Whether there are many different names, and none stands for a large part of them."""
    some = names.limit(SAMPLE).groupBy("name").count()
    row = some.agg(F.count("*").alias("different"), F.max("count").alias("most")).first()
    return row is not None and bool(row.most <= MANY < row.different)


class _Ingest:
    def __init__(
        self,
        spark: SparkSession,
        place: Location,
        draft: Draft,
        links: Path,
        options: Options,
        watch: Watch,
        events: bool,
    ) -> None:
        self._events = events
        self._spark = spark
        self._place = place
        self._draft = draft
        self._links = links
        self._options = options
        self._watch = watch
        self._lake = Lake(place) if is_lake(place) else None
        self._files: list[str] = []  # by the numbers of their links

    def blamed(self, error: BaseException) -> str:
        """The file that Spark could not read, if its error names one."""
        link = sources.LINK.search(str(error))
        if link is None or int(link[1]) >= len(self._files):
            return "Spark could not take the files in"
        return f"{self._files[int(link[1])]}: Spark cannot read it"

    def run(self, paths: Sequence[Path], format_name: str, most: Most) -> Summary:
        self._step(0)
        looked = sources.inspected(
            self._spark, paths, partial(_planned, format_name, self._options)
        )
        reads = [Read(file, reading) for file, reading in looked if reading is not None]
        empty = [file.path for file, reading in looked if reading is None]
        if not reads:
            raise BadInput(f"{_named(empty)}: empty")
        before = {table: self._draft.rows(table) for table in SHAPES}
        new, known = self._split(reads)
        if not new:
            quality = Quality(without_rows=tuple(empty))
            return Summary(self._place, [], known, before, before, quality)
        self._step(1)
        places = self._stage(new)
        judged = self._judge(new, places)
        bare = [*empty, *(each.file.path for each in judged if not each.rows + each.rejects)]
        if len(bare) == len(empty) + len(judged) and not known:
            raise BadInput(f"{_named(bare)}: no rows in it as {judged[0].reading.format}")
        self._step(2)
        reasons = self._add_rejects(judged, places, most)
        pairs, stated = self._pairs(places, judged)
        named = together(*pairs)
        self._step(3)
        users = self._names("users", "user", named, stated)
        self._step(4)
        topics = self._names("topics", "topic", named, stated)
        self._step(5)
        held = self._interned(places, pairs, users, topics).transform(dictionary.earliest)
        few = stated <= FEW_PAIRS
        with self._merged_once(stated if few else stated + before["memberships"]):
            total = self._add_memberships(held, few)
        self._add_trace(places)
        rows = [self._source(each) for each in judged]
        self._draft.add_rows("sources", rows)
        quality = self._quality(judged, stated, total - before["memberships"], reasons, bare)
        self._draft.add_rows("quality", quality.rows(self._draft.number))
        self._step(5)  # a caller can still stop the ingest here, before the commit
        self._draft.commit((self._key(each) for each in judged), rows={"memberships": total})
        after = {table: self._draft.rows(table) for table in SHAPES} | {"memberships": total}
        return Summary(self._place, judged, known, before, after, quality)

    def _step(self, number: int) -> None:
        self._watch(number, STEPS[number])

    def _reading(self, reading: Reading) -> str:
        """The options that decide, beside format and content, which rows a file gives."""
        prefixes = {"user": self._options.user_prefix, "topic": self._options.topic_prefix}
        said = [f"{what}s begin {prefix!r}" for what, prefix in prefixes.items() if prefix]
        return ", ".join([*([reading.described] if reading.described else []), *said])

    def _key(self, read: Read) -> tuple[str, str, str]:
        """What makes one file, read in one way, the same as another."""
        return (read.file.sha256, read.reading.format, self._reading(read.reading))

    def _source(self, read: Read) -> tuple[str, str, int, str, str, int, int, str | None]:
        """A file that was read, as a row of `SOURCE`."""
        file, (sha256, form, reading) = read.file, self._key(read)
        known = (file.path, sha256, file.size, form, reading, read.rows, read.rejects)
        return (*known, file.encoding or None)

    @staticmethod
    def _quality(
        judged: Sequence[Read],
        stated: int,
        memberships: int,
        reasons: Sequence[Reason],
        bare: Sequence[str],
    ) -> Quality:
        kept = sum(each.rows for each in judged)
        rejected = sum(each.rejects for each in judged)
        encodings = Counter(each.file.encoding for each in judged if each.file.encoding)
        return Quality(
            kept + rejected,
            kept,
            rejected,
            stated - memberships,
            memberships,
            tuple(reasons),
            tuple(sorted(encodings.items())),
            tuple(bare),
            tuple((each.file.path, each.reading.doubt) for each in judged if each.reading.doubt),
        )

    def _split(self, reads: Sequence[Read]) -> tuple[list[Read], list[str]]:
        """What is new, and the files whose content was read in the same way before."""
        kept = [] if self._lake is None else self._lake.few("sources")
        seen = {(row["sha256"], row["format"], row["reading"]) for row in kept}
        labels = {Path(row["file"]).name for row in kept if row["format"] == COMMUNITIES}
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
        links = sources.linked([each.file for each in reads], self._links / sources.LINKS)
        self._files = [each.file.path for each in reads]
        rows = [(number, each.file.path, each.file.name) for number, each in enumerate(reads)]
        files = self._spark.createDataFrame(rows, FILE)
        alike: dict[Reading, list[str]] = {}
        for each, link in zip(reads, links, strict=True):
            alike.setdefault(each.reading, []).append(link)
        places = []
        for number, (reading, group) in enumerate(alike.items()):
            place = Place(self._spark, group, files, self._draft.staging / f"read-{number}")
            with sources.cheaply_opened(self._spark):
                reading.stage(place)
            places.append((reading, place))
        sources.check_unchanged(each.file for each in reads)
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

    def _pairs(
        self, places: Sequence[tuple[Reading, Place]], judged: Sequence[Read]
    ) -> tuple[list[DataFrame], int]:
        """The memberships that are stated by name, for each way to read; and how many that are."""
        stated = sum(each.rows for each in judged if not each.reading.is_trace)
        found = []
        for number, (reading, place) in enumerate(places):
            pairs = reading.pairs(place)
            if reading.is_trace:  # few of its records state one
                folder = self._draft.staging / f"pairs-{number}"
                tables.write(pairs, folder)
                stated += tables.count(folder)
                pairs = tables.read(self._spark, folder, PAIR)
            found.append(self._prefixed(pairs))
        return found, stated

    def _prefixed(self, named: DataFrame) -> DataFrame:
        prefixes = self._options.user_prefix, self._options.topic_prefix
        return named.transform(dictionary.prefixed, *prefixes) if any(prefixes) else named

    def _interned(
        self,
        places: Sequence[tuple[Reading, Place]],
        pairs: Sequence[DataFrame],
        users: DataFrame,
        topics: DataFrame,
    ) -> DataFrame:
        """What is stated, by number: `MEMBERSHIP`, perhaps repeated. What users did is kept on the
        way, and memberships are then taken from there: names are looked up once."""
        events, plain = [], []
        for (reading, place), named in zip(places, pairs, strict=True):
            said = reading.events(place) if self._events else None
            if said is None:
                plain.append(named)
            else:
                events.append(self._prefixed(said))
        found = []
        if plain:
            found.append(together(*plain).transform(dictionary.interned, users, topics))
        if events:
            interned = together(*events).transform(dictionary.interned, users, topics, HAPPENED)
            kept = self._draft.add("events", interned)
            happened = tables.read_files(self._spark, kept.places, HAPPENED)
            found.append(selected(happened, MEMBERSHIP))
        return together(*found)

    def _names(self, table: str, column: str, pairs: DataFrame, stated: int) -> DataFrame:
        """Give numbers to new names; the dictionary of all of them, or, where few memberships are
        stated, of those that they need."""
        known = self._old(table)
        found = pairs.select(pairs[column].alias("name"))
        if stated <= FEW_PAIRS and self._draft.rows(table):
            folder = self._draft.staging / f"known-{table}"
            tables.write(known.transform(dictionary.mentioned, found, column), folder)
            known = tables.read(self._spark, folder, SHAPES[table])
        numbered = self._numbered(table, found, known, stated).withColumnRenamed("id", column)
        staged = self._draft.add(table, numbered)
        all_of_them = known.unionByName(
            tables.read_files(self._spark, staged.places, SHAPES[table])
        )
        rows = self._draft.rows(table)
        if rows > NAMES_SENT:
            return all_of_them
        if stated > ONE_TASK:
            # measured: looking up the names of 3·10⁶ rows by their codes takes 1.8 s of CPU time in
            # place of 3.1 to 3.7, and seeing that no two codes are equal 0.2.
            coded = all_of_them.transform(dictionary.coded, column)
            if coded.select(dictionary.CODE).distinct().count() == rows:
                return F.broadcast(coded)
        return F.broadcast(all_of_them)

    def _numbered(self, table: str, names: DataFrame, known: DataFrame, stated: int) -> DataFrame:
        """New names with numbers. Of many rows it is not known how many names there are, so they
        are written first: sorting would find them twice, once to see where to cut its parts."""
        first, new = self._draft.rows(table), names.transform(dictionary.unknown, known)
        if stated > ONE_TASK:
            folder = self._draft.staging / f"new-{table}"
            with self._merged_once(stated) if _scattered(names) else nullcontext():
                tables.write(new, folder, brief=True)
            new = tables.read(self._spark, folder, NAME)
            if tables.count(folder) > ONE_TASK:
                folder = self._draft.staging / f"placed-{table}"
                tables.write(new.transform(dictionary.placed), folder, brief=True)
                placed = tables.read(self._spark, folder, PLACED)
                return placed.transform(dictionary.numbered, first)
        return new.transform(dictionary.numbered_here, first)

    @contextmanager
    def _merged_once(self, rows: int) -> Iterator[None]:
        """Within the block, Spark merges rows only after they are parted by key; many rows go into
        many small parts."""
        with ExitStack() as settings:
            settings.enter_context(setting(self._spark, MERGED_ONCE, "true"))
            if rows > ONE_TASK:
                parts = str(max(2 * parallelism(self._spark), rows >> PART_BITS))
                settings.enter_context(setting(self._spark, PARTS, parts))
                settings.enter_context(setting(self._spark, JOINED, "false"))
            yield

    def _add_memberships(self, new: DataFrame, few: bool) -> int:
        """Add memberships to those of the lake; how many there are then."""
        before = self._draft.rows("memberships")
        if self._lake is None or not before:
            return self._draft.add("memberships", new).rows
        if not few:
            known = self._old("memberships")
            return self._draft.replace("memberships", new.transform(dictionary.merged, known)).rows
        folder = self._draft.staging / "new"
        tables.write(new, folder)
        new = tables.read(self._spark, folder, MEMBERSHIP)
        again, files = self._met(new)
        fresh = new.transform(dictionary.fresh, again)
        if not files:
            return before + self._draft.add("memberships", fresh).rows
        kept = tables.read_files(self._spark, files, MEMBERSHIP)
        rewritten = kept.transform(dictionary.sooner, again)
        staged = self._draft.add("memberships", fresh.unionByName(rewritten), files)
        return before + staged.rows - tables.count_files(files)

    def _met(self, new: DataFrame) -> tuple[DataFrame, list[Location]]:
        """Which of few memberships the lake has, and the files in which times change by them."""
        assert self._lake is not None
        files = self._lake.files("memberships")
        known = self._old("memberships")
        if self._place.is_local:
            source = F.col("_metadata.file_path").alias("source")
            known = known.select("*", source)
        else:  # tasks that read for themselves do not say from where
            known = known.withColumn("source", F.lit(None).cast("string"))
        folder = self._draft.staging / "met"
        tables.write(known.transform(dictionary.met, new, "source"), folder)
        again = tables.read(self._spark, folder, _MET)
        changed = tables.values(folder, "source", where="earlier")
        names = {each and each.rpartition("/")[2] for each in changed}
        return again, [file for file in files if file.name in names or None in names]

    def _add_rejects(
        self, judged: Sequence[Read], places: Sequence[tuple[Reading, Place]], most: Most
    ) -> list[Reason]:
        rejects = sum(each.rejects for each in judged)
        if not rejects:
            return []
        bad = together(*(reading.rejects(place) for reading, place in places))
        kept = self._draft.add("rejects", bad)
        tally = (
            tables.read_files(self._spark, kept.places, REJECT)
            .groupBy("reason")
            .agg(F.count("*").alias("times"), F.min(F.struct("file", "line")).alias("first"))
        )
        reasons = [
            (row.reason, row.times, f"{row.first.file}:{row.first.line}")
            for row in tally.orderBy(F.desc("times"), "reason").collect()
        ]
        total = rejects + sum(each.rows for each in judged)
        if not most.allows(rejects, total):
            said = "\n".join(f"  {n:,}: {why} (first at {where})" for why, n, where in reasons)
            raise TooManyRejects(
                f"{rejects:,} of {total:,} rows are bad, and --rejects-max allows {most}; "
                f"nothing was added\n{said}"
            )
        return reasons

    def _add_trace(self, places: Sequence[tuple[Reading, Place]]) -> None:
        traces = [reading.trace(place) for reading, place in places]
        known = [frame for frame in traces if frame is not None]
        if known:
            self._draft.add("trace", together(*known))

    def _old(self, table: str) -> DataFrame:
        if self._lake is None:
            return self._spark.createDataFrame([], SHAPES[table])
        return self._lake.table(self._spark, table)
