"""Which files to read, and whether they are whole.

Before anything is read for its content, every file is read once for its SHA-256, through its
compression to the very end. So an archive that was cut off or damaged is found before a reader
makes rows of a part of it; so is a line that is too long to be held in memory, and text in UTF-16
or UTF-32, which Spark takes for UTF-8. How to read a file is decided at the same time, from the
beginning and the end of its content, as UTF-8; of each file one small row is kept. Spark's workers
do this, file by file, unless there is little to read.

Readers then get links with plain names (`000017.gz`) instead of the files themselves, so that
blanks, wildcards and missing suffixes in names mean nothing, and the number tells the file. Text
that is not UTF-8 is copied as UTF-8 instead.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import os
import pickle
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar, cast

import numpy as np
import pyarrow
from deltalake.exceptions import DeltaError
from pyarrow import RecordBatch, parquet
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType

from weft.pipeline import delta
from weft.pipeline.ingest.options import BadInput
from weft.pipeline.location import Location
from weft.pipeline.schemas import TEXT, WHOLE, columns
from weft.pipeline.session import parallelism, setting

HEAD = 1 << 16
TAIL = 1 << 6
_CHUNK = 1 << 20
OPEN_COST = "spark.sql.files.openCostInBytes"
OPEN_BYTES = 1 << 17
"""guess: opening a file costs what reading so many bytes does. Spark's own estimate, 4 MB, is for
file systems elsewhere. measured: by it 10⁴ small files are 313 tasks that stage a file each, and an
ingest takes 36 s of CPU time; so they are 10, and 24 s."""
TASKS_PER_CORE = 8  # guess: files differ in size, and the last tasks end together
LINKS = "links"
LINK = re.compile(rf"reading file \S*/{LINKS}/(\d{{6}})\.")
"""What readers, and so their errors, call a file: the folder of links, and the file's number."""
SMALL_BYTES = 1 << 26
"""guess: less than this is read sooner than Spark has started a Python process"""

_SUFFIX = {"gzip": ".gz", "bzip2": ".bz2", "": ""}
_REFUSED = {
    b"\xfd7zXZ\x00": "xz",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}
# A file to look at: its place in the list, where it is, and how the user named it; and what came of
# it, pickled.
_WANTED = columns(number=WHOLE, path=TEXT, shown=TEXT)
_ANSWER = columns(number=WHOLE, looked=BinaryType())
MAGIC = b"PAR1"
"""What Parquet begins and ends with."""
LINE_BYTES_MAX = 64 << 20
"""guess: some tasks hold a line several times over, in some gigabytes"""
UTF_8 = "utf-8"
_MARKS = {  # the longer ones first
    b"\xff\xfe\x00\x00": "utf-32-le",
    b"\x00\x00\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}
_PARTITION = re.compile(r"([A-Za-z_]\w*)=.*")  # as Hive and Spark name folders
_MANY_NULS, _FEW_NULS = 0.3, 0.02  # guess: of every other byte, in text of any one language
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34
_LINE_END = re.compile("\r\n|\r|\n")  # as Spark ends lines; Python knows others


Judged = TypeVar("Judged")


@dataclass(frozen=True)
class Inspected:
    """A file as it is known before it is read. Head and tail are of the unpacked content; they are
    empty once the file is judged by them."""

    path: str
    size: int
    sha256: str
    packing: str
    head: bytes
    tail: bytes
    problem: str = ""
    encoding: str = ""  # of a text
    empty: bool = False  # whether a text has nothing but blanks
    breaks: bool = False  # whether a line ends where the quotes before it are not balanced
    shape: str = ""  # of Parquet: names and types of its columns, as JSON
    misread: bool = False  # of Parquet: whether Spark reads texts in it wrong, column by column
    modified_ns: int = 0  # when it was last written

    @property
    def name(self) -> str:
        """The file's name without folder and without the suffix of its compression."""
        return Path(self.path).name.removesuffix(_SUFFIX[self.packing])

    @property
    def lines(self) -> list[str]:
        """The whole lines that the file begins with, without a byte order mark."""
        text = self.head.decode("utf-8", "replace").removeprefix("\ufeff")
        lines = _LINE_END.split(text)
        if not lines[-1]:
            return lines[:-1]
        return lines if len(self.head) < HEAD else lines[:-1] or lines

    @property
    def beginning(self) -> str:
        """What to show of the file when it is not what it should be."""
        return repr(self.lines[0][:60]) if self.lines else "nothing"


def listed(paths: Sequence[Path], lake: Path | None = None) -> list[Path]:
    """The files that are meant: folders stand for all files below them, but hidden ones and those
    of the lake that is to be filled."""
    found: list[Path] = []
    for path in paths:
        try:
            seen = sorted(_below(path, lake)) if path.is_dir() else [_whole(path)]
        except OSError as error:
            raise BadInput(f"{error.filename or path}: {error.strerror or error}") from error
        if not seen:
            raise BadInput(f"{path}: no files in this folder")
        found += seen
    return list(dict.fromkeys(found))


def _below(folder: Path, lake: Path | None) -> Iterator[Path]:
    """The files in a folder and in the folders below it, also through links. A folder that cannot
    be opened is an error, since its rows would be missing without notice."""
    filled, met = lake and lake.resolve(), set()
    for name, folders, files in os.walk(folder, onerror=_raise, followlinks=True):
        place = Path(name)
        real = place.resolve()
        if real in met or real == filled:  # links may lead in a circle
            folders.clear()
            continue
        met.add(real)
        if delta.LOG in folders:
            folders.clear()
            yield from _current(place)
            continue
        folders[:] = sorted(each for each in folders if not _is_hidden(each))
        if column := next(filter(None, map(_PARTITION.fullmatch, folders)), None):
            raise BadInput(
                f"{place}: a table in parts, whose column {column[1]!r} is in the names of folders "
                "only and would be lost; name the files themselves to do without it"
            )
        yield from (_whole(place / each) for each in files if not _is_hidden(each))


def _raise(error: OSError) -> None:
    raise error


def _whole(path: Path) -> Path:
    shown = os.fsencode(path).decode(errors="replace")
    if shown != str(path):
        raise BadInput(f"{shown}: the name is not UTF-8, which tables could not tell; rename it")
    if path.is_file():
        return path
    if path.exists():
        raise BadInput(f"{path}: neither a file nor a folder")
    leads = "a link that leads nowhere" if path.is_symlink() else "no such file or folder"
    raise BadInput(f"{path}: {leads}")


def _current(table: Path) -> list[Path]:
    """The files of the last version of a Delta table; its folder also holds those of others."""
    place = Location.of(table)
    try:
        plain, files = delta.is_plain(place), delta.files_of(place)
    except DeltaError as error:
        said = str(error).partition("\n")[0]
        raise BadInput(f"{table}: a Delta table that cannot be read ({said})") from error
    if not plain:
        raise BadInput(
            f"{table}: a Delta table with partitions, deleted rows or renamed columns; "
            "write it as plain Parquet first"
        )
    return [_whole(each.local) for each in files]


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def inspect(path: str) -> Inspected:
    """Read a file to its end. Runs in workers."""
    digest = hashlib.sha256()
    size = 0
    with open(path, "rb") as file:
        modified_ns = os.fstat(file.fileno()).st_mtime_ns
        start = file.read(8)
        file.seek(0)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    packing = "gzip" if start[:2] == b"\x1f\x8b" else "bzip2" if start[:3] == b"BZh" else ""
    refused = next((name for magic, name in _REFUSED.items() if start.startswith(magic)), None)
    if refused:
        problem = (
            f"compressed with {refused}; unpack it first (gzip and bzip2 are read as they are)"
        )
        return Inspected(path, size, digest.hexdigest(), "", b"", b"", problem)
    known = Inspected(path, size, digest.hexdigest(), packing, b"", b"", modified_ns=modified_ns)
    if start.startswith(MAGIC):
        return _inspect_parquet(known)
    begins, ends, breaks, problem = _unpacked(path, packing)
    encoding, whole = encoding_of(begins), len(begins) < HEAD
    if encoding != UTF_8:
        begins, ends = (each.decode(encoding, "replace").encode() for each in (begins, ends))
    return replace(
        known,
        head=begins,
        tail=ends,
        problem=problem,
        encoding=encoding,
        breaks=breaks,
        empty=whole and not begins.decode(errors="replace").removeprefix("\ufeff").strip(),
    )


def _inspect_parquet(known: Inspected) -> Inspected:
    with open(known.path, "rb") as file:
        head = file.read(HEAD)
        file.seek(max(0, known.size - TAIL))
        known = replace(known, head=head, tail=file.read(TAIL))
    if not known.tail.endswith(MAGIC):
        return known  # `plan_parquet` refuses it
    try:
        with parquet.ParquetFile(known.path) as file_of_rows:
            shape, misread = file_of_rows.schema_arrow, _misread(file_of_rows.metadata)
    except (OSError, pyarrow.ArrowException) as error:
        said = str(error).partition("\n")[0]
        return replace(known, problem=f"damaged: the footer of this Parquet file is wrong ({said})")
    names = json.dumps([[each.name, str(each.type)] for each in shape])
    return replace(known, shape=names, misread=misread)


def _misread(footer: parquet.FileMetaData) -> bool:
    """Whether texts are written as differences, without compression: Spark's reader of columns
    (4.3) then returns other texts, without an error."""
    return any(
        chunk.compression == "UNCOMPRESSED" and "DELTA_BYTE_ARRAY" in chunk.encodings
        for group in range(footer.num_row_groups)
        for chunk in map(footer.row_group(group).column, range(footer.num_columns))
    )


def encoding_of(head: bytes) -> str:
    """The encoding of a text with this beginning: by its byte order mark, or because every other
    byte, or three of four, is NUL."""
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    quarters = [head[place::4].count(0) / max(1, len(head) // 4) for place in range(4)]
    # The highest byte of a character is NUL, and mostly the next one, too.
    for order, name in ((quarters[::-1], "utf-32-le"), (quarters, "utf-32-be")):
        if order[0] == 1 and order[1] > _MANY_NULS and order[3] < _FEW_NULS:
            return name
    nuls = [head[place::2].count(0) / max(1, len(head) // 2) for place in (0, 1)]
    if nuls[1] > _MANY_NULS and nuls[0] < _FEW_NULS:
        return "utf-16-le"
    if nuls[0] > _MANY_NULS and nuls[1] < _FEW_NULS:
        return "utf-16-be"
    return UTF_8


def _unpacked(path: str, packing: str) -> tuple[bytes, bytes, bool, str]:
    """The beginning and the end of the content, whether line breaks are quoted, and what is wrong
    with the file."""
    head, tail, lines = b"", b"", _Lines()
    try:
        with opened(path, packing) as file:
            while chunk := file.read(_CHUNK):
                if len(head) < HEAD:
                    head = (head + chunk)[:HEAD]
                tail = (tail + chunk)[-TAIL:]
                lines.look_at(chunk)
                if lines.problem:
                    break
    except EOFError:
        return head, tail, False, f"cut off: the {packing} archive ends in the middle"
    except (OSError, zlib.error) as error:
        return head, tail, False, f"damaged {packing} archive ({error})"
    return head, tail, lines.breaks, lines.problem


class _Lines:
    """What the first pass finds out about the lines of a text: whether one is too long, and whether
    line breaks stand within quotes. In JSON and XML quotes say nothing about lines, but a CSV may
    begin as those do; so all quotes count, and the format decides what that means."""

    def __init__(self) -> None:
        self.breaks = False
        self.problem = ""
        self._number = 1
        self._length = 0
        self._open = False  # whether an odd number of quotes stands before

    def look_at(self, chunk: bytes) -> None:
        first, last = chunk.find(b"\n"), chunk.rfind(b"\n")
        self._length += len(chunk) if first < 0 else first
        if self._length > LINE_BYTES_MAX:
            megabytes = LINE_BYTES_MAX >> 20
            self.problem = f"line {self._number} is longer than {megabytes} MB"
            return
        if not self.breaks:
            self._look_at_quotes(chunk, first)
        if first >= 0:
            self._number += chunk.count(b"\n")
            self._length = len(chunk) - last - 1

    def _look_at_quotes(self, chunk: bytes, first: int) -> None:
        if b'"' not in chunk:
            self.breaks = self._open and (first >= 0 or b"\r" in chunk)
            return
        data = np.frombuffer(chunk, np.uint8)
        odd = np.bitwise_xor.accumulate(data == _QUOTE)
        if self._open:
            odd = ~odd
        self.breaks = bool((odd & ((data == _NEWLINE) | (data == _RETURN))).any())
        self._open = bool(odd[-1])


def opened(path: str, packing: str) -> BinaryIO:
    """The content of a file."""
    if packing == "gzip":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if packing == "bzip2":
        return cast(BinaryIO, bz2.open(path, "rb"))
    return open(path, "rb")


@dataclass(frozen=True)
class _Looked(Generic[Judged]):
    """A file that was read to its end, without its beginning and end. One that is empty is not
    judged."""

    file: Inspected
    judged: Judged | None = None
    refused: str = ""  # why it cannot be judged


def _looked_at(path: str, shown: str, judge: Callable[[Inspected], Judged]) -> _Looked[Judged]:
    """Read a file to its end and judge it; `shown` is how the user named it. Runs in workers."""
    found = replace(inspect(path), path=shown)
    known = replace(found, head=b"", tail=b"")
    if found.problem or found.empty:
        return _Looked(known)
    try:
        return _Looked(known, judge(found))
    except BadInput as error:
        return _Looked(known, refused=str(error))


def inspected(
    spark: SparkSession, paths: Sequence[Path], judge: Callable[[Inspected], Judged]
) -> list[tuple[Inspected, Judged | None]]:
    """Read every file to its end; returns each with the answer of `judge`, after which its
    beginning and end are dropped, or with None if it is empty. Raises `BadInput` if a file is not
    whole. `judge` may run in workers."""
    if sum(path.stat().st_size for path in paths) <= SMALL_BYTES:
        found = [_looked_at(str(path), str(path), judge) for path in paths]
    else:
        found = _looked_at_by_workers(spark, paths, judge)
    broken = [each.file for each in found if each.file.problem]
    if broken:
        raise BadInput("\n".join(f"{each.path}: {each.problem}" for each in broken))
    for each in found:
        if each.refused:
            raise BadInput(each.refused)
    return [(each.file, each.judged) for each in found]


def _looked_at_by_workers(
    spark: SparkSession, paths: Sequence[Path], judge: Callable[[Inspected], Judged]
) -> list[_Looked[Judged]]:
    """In the order of the paths. One small row for each file comes to the driver."""

    def work(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            answers = []
            for row in batch.to_pylist():
                looked = _looked_at(row["path"], row["shown"], judge)
                answers.append({"number": row["number"], "looked": pickle.dumps(looked)})
            yield RecordBatch.from_pylist(answers, schema=to_arrow_schema(_ANSWER))

    rows = [(number, str(path.resolve()), str(path)) for number, path in enumerate(paths)]
    tasks = min(len(rows), TASKS_PER_CORE * parallelism(spark))
    wanted = spark.createDataFrame(rows, _WANTED).repartition(tasks)
    answers = wanted.mapInArrow(work, _ANSWER).orderBy("number").collect()
    return [pickle.loads(row.looked) for row in answers]  # noqa: S301  (of our own workers)


def check_unchanged(files: Iterable[Inspected]) -> None:
    """Raise `BadInput` if a file has changed since it was looked at (a program may still write to
    it): the rows that were read are then not those that its SHA-256 stands for."""
    for file in files:
        try:
            known = Path(file.path).stat()
            same = (known.st_size, known.st_mtime_ns) == (file.size, file.modified_ns)
        except OSError:
            same = False
        if not same:
            raise BadInput(f"{file.path}: changed while it was read; nothing was added")


def cheaply_opened(spark: SparkSession) -> AbstractContextManager[None]:
    """Within the block, each task of this session takes many small files."""
    return setting(spark, OPEN_COST, str(OPEN_BYTES))


def linked(files: Sequence[Inspected], folder: Path) -> list[str]:
    """Links to the files, named by their place in the list; the names that readers get."""
    folder.mkdir(parents=True)
    names = []
    for number, file in enumerate(files):
        if file.encoding in ("", UTF_8):
            link = folder / f"{number:06d}{_SUFFIX[file.packing] or '.data'}"
            link.symlink_to(Path(file.path).resolve())
        else:
            link = folder / f"{number:06d}.data"
            _copy_as_utf8(file, link)
        names.append(str(link))
    return names


def _copy_as_utf8(file: Inspected, target: Path) -> None:
    """Copy a text as UTF-8. A half character is copied so that it is no valid UTF-8: its line is
    then rejected like any other that is not text."""
    wrapped = io.TextIOWrapper(
        opened(file.path, file.packing), file.encoding, "surrogatepass", newline=""
    )
    try:
        with wrapped as source, target.open("wb") as copy:
            while text := source.read(_CHUNK):
                copy.write(text.removeprefix("\ufeff").encode(UTF_8, "surrogatepass"))
    except UnicodeError as error:
        raise BadInput(f"{file.path}: cut off or damaged: not {file.encoding} ({error})") from error
