"""Which files to read, and whether they are whole.

Before anything is read for its content, every file is read once for its SHA-256, through its
compression to the very end: an archive that was cut off or damaged is found here, and not by
whatever a reader makes of it. The beginning and the end of the content are kept, which is all that
the driver keeps of a file. Spark's workers do this, file by file, unless there is little to read.

Readers then get links with plain names (`000017.gz`) instead of the files themselves, so that
blanks, wildcards and missing suffixes in names mean nothing, and the number tells the file.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow  # type: ignore[import-untyped]
from pyarrow import RecordBatch
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from weft.pipeline.ingest.options import BadInput
from weft.pipeline.schemas import TEXT, WHOLE, columns
from weft.pipeline.session import parallelism

HEAD = 1 << 16
TAIL = 1 << 6
_CHUNK = 1 << 20
SMALL_BYTES = 1 << 26
"""guess: less than this is read sooner than Spark has started a Python process"""

_SUFFIX = {"gzip": ".gz", "bzip2": ".bz2", "": ""}
_REFUSED = {
    b"\xfd7zXZ\x00": "xz",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}
_INSPECTED = columns(
    path=TEXT, size=WHOLE, sha256=TEXT, packing=TEXT, head=TEXT, tail=TEXT, problem=TEXT
)


@dataclass(frozen=True)
class Inspected:
    """A file as it is known before it is read. Head and tail are of the unpacked content."""

    path: str
    size: int
    sha256: str
    packing: str
    head: bytes
    tail: bytes
    problem: str = ""
    encoding: str = ""

    @property
    def name(self) -> str:
        """The file's name without folder and without the suffix of its compression."""
        return Path(self.path).name.removesuffix(_SUFFIX[self.packing])

    @property
    def lines(self) -> list[str]:
        """The whole lines that the file begins with, without a byte order mark."""
        text = self.head.decode("utf-8", "replace").removeprefix("\ufeff")
        lines = text.splitlines()
        return lines if len(self.head) < HEAD else lines[:-1] or lines

    @property
    def beginning(self) -> str:
        """What to show of the file when it is not what it should be."""
        return repr(self.lines[0][:60]) if self.lines else "nothing"


def listed(paths: Sequence[Path]) -> list[Path]:
    """The files that are meant: folders stand for all files below them, but hidden ones."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            below = sorted(each for each in path.rglob("*") if each.is_file())
            seen = [each for each in below if not _is_hidden(each.relative_to(path))]
            if not seen:
                raise BadInput(f"{path}: no files in this folder")
            found += seen
        elif path.is_file():
            found.append(path)
        else:
            raise BadInput(f"{path}: no such file or folder")
    return list(dict.fromkeys(found))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def inspect(path: str) -> Inspected:
    """Read a file to its end. Runs in workers."""
    digest = hashlib.sha256()
    size = 0
    with open(path, "rb") as file:
        head = file.read(8)
        while chunk := head + file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            head = b""
    with open(path, "rb") as file:
        start = file.read(8)
    packing = "gzip" if start[:2] == b"\x1f\x8b" else "bzip2" if start[:3] == b"BZh" else ""
    refused = next((name for magic, name in _REFUSED.items() if start.startswith(magic)), None)
    if refused:
        problem = (
            f"compressed with {refused}; unpack it first (gzip and bzip2 are read as they are)"
        )
        return Inspected(path, size, digest.hexdigest(), "", b"", b"", problem)
    begins, ends, problem = _unpacked(path, packing)
    return Inspected(path, size, digest.hexdigest(), packing, begins, ends, problem)


def _unpacked(path: str, packing: str) -> tuple[bytes, bytes, str]:
    """The beginning and the end of the content, and what is wrong with the archive."""
    head, tail = b"", b""
    try:
        with _opened(path, packing) as file:
            if not packing:
                head = file.read(HEAD)
                file.seek(max(0, file.seek(0, io.SEEK_END) - TAIL))
                return head, file.read(TAIL), ""
            while chunk := file.read(_CHUNK):
                if len(head) < HEAD:
                    head = (head + chunk)[:HEAD]
                tail = (tail + chunk)[-TAIL:]
    except EOFError:
        return head, tail, f"cut off: the {packing} archive ends in the middle"
    except (OSError, zlib.error) as error:
        return head, tail, f"damaged {packing} archive ({error})"
    return head, tail, ""


def _opened(path: str, packing: str) -> BinaryIO:
    if packing == "gzip":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if packing == "bzip2":
        return cast(BinaryIO, bz2.open(path, "rb"))
    return open(path, "rb")


def _inspect_batches(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    for batch in batches:
        found = [inspect(path) for path in batch.column("path").to_pylist()]
        rows = [{**vars(each), "head": each.head.hex(), "tail": each.tail.hex()} for each in found]
        yield pyarrow.RecordBatch.from_pylist(rows, schema=to_arrow_schema(_INSPECTED))


def inspected(spark: SparkSession, paths: Sequence[Path]) -> list[Inspected]:
    """Read every file to its end; raises `BadInput` if one is not whole."""
    given = [str(path) for path in paths]
    if sum(path.stat().st_size for path in paths) <= SMALL_BYTES:
        found = [inspect(path) for path in given]
    else:
        found = _inspected_by_workers(spark, given)
    broken = [each for each in found if each.problem]
    if broken:
        raise BadInput("\n".join(f"{each.path}: {each.problem}" for each in broken))
    return found


def _inspected_by_workers(spark: SparkSession, paths: Sequence[str]) -> list[Inspected]:
    whole = {str(Path(path).resolve()): path for path in paths}
    tasks = min(len(whole), 8 * parallelism(spark))
    wanted = spark.createDataFrame([(path,) for path in whole], columns(path=TEXT))
    rows = wanted.repartition(tasks).mapInArrow(_inspect_batches, _INSPECTED).collect()
    by_path = {}
    for row in rows:
        ends = {name: bytes.fromhex(row[name]) for name in ("head", "tail")}
        path = whole[row.path]
        by_path[path] = Inspected(**{**row.asDict(), **ends, "path": path})
    return [by_path[path] for path in paths]


def linked(files: Sequence[Inspected], folder: Path) -> list[str]:
    """Links to the files, named by their place in the list; the names that readers get."""
    folder.mkdir(parents=True)
    names = []
    for number, file in enumerate(files):
        link = folder / f"{number:06d}{_SUFFIX[file.packing] or '.data'}"
        link.symlink_to(Path(file.path).resolve())
        names.append(str(link))
    return names
