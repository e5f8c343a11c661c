"""Files that grow, as a source for Structured Streaming.

Spark's own file source takes a file as finished when it sees it. A trace is written to while it is
followed, so here an offset is how far into each file one has read, always at the end of a line, and
a batch is a span of bytes of each file. Offsets go into Spark's checkpoint; what lies before one
never changes, so a batch that is run again reads the same lines. New files in a folder are found.
What Spark gets are the spans alone (PART): those who add up read them (`parts`).

What is read at once is limited, so that a long trace is caught up with in steps: of every file the
same share of what is left, so that peers which wrote at the same time are read about together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from weft.pipeline.traces import parts

NAME = "weft-growing-files"
BATCH_BYTES_MAX = 256 << 20  # guess: about a million records
_TAIL_BYTES = 1 << 16
Offset = dict[str, int]


class Shrunk(Exception):
    """A file is shorter than what was read of it."""


class GrowingFiles(DataSource):
    """Spans of the files in a folder (option `path`) that end in `suffixes`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "file string, start long, end long"

    def streamReader(self, schema: Any) -> Reader:
        return Reader(Path(self.options["path"]), tuple(self.options["suffixes"].split(",")))


@dataclass(frozen=True)
class Span(InputPartition):
    """A part of a file."""

    part: parts.Part


class Reader(DataSourceStreamReader):
    """Offsets: a file's path → bytes read."""

    def __init__(self, path: Path, suffixes: tuple[str, ...]) -> None:
        self._path = path
        self._suffixes = suffixes

    def initialOffset(self) -> Offset:
        return {}

    def latestOffset(self, start: Offset, limit: Any) -> Offset:
        paths = files(self._path, self._suffixes)
        unread = {path: path.stat().st_size - start.get(str(path), 0) for path in paths}
        share = min(1.0, BATCH_BYTES_MAX / max(1, sum(unread.values())))
        found = dict(start)
        for path, size in unread.items():
            known = start.get(str(path), 0)
            end = last_line_end(path, known, known + int(size * share))
            if end > known:
                found[str(path)] = end
        return found

    def partitions(self, start: Offset, end: Offset) -> list[Span]:
        return [
            Span(part)
            for path, stop in sorted(end.items())
            for part in parts.spans(path, start.get(path, 0), stop)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Span)
        yield tuple(partition.part)


def files(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The files of a folder, or the one that is named."""
    if path.is_file():
        return [path]
    found = path.iterdir() if path.is_dir() else iter(())
    return sorted(each for each in found if each.name.endswith(suffixes) and each.is_file())


def last_line_end(path: Path, known: int, most: int) -> int:
    """Where the last whole line ends, after `known` and not after `most`; if none does, where the
    next line ends, or `known`."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < known:
            raise Shrunk(f"{path} is shorter than before; a trace that is followed may only grow")
        end = _newline_before(file, known, min(size, most))
        if end > known:
            return end
        file.seek(known)
        while block := file.readline(_TAIL_BYTES):
            if block.endswith(b"\n"):
                return file.tell()
        return known


def _newline_before(file: Any, low: int, high: int) -> int:
    """The end of the last line within these bytes; `low` if none ends there."""
    while high > low:
        at = max(low, high - _TAIL_BYTES)
        file.seek(at)
        found = file.read(high - at).rfind(b"\n")
        if found >= 0:
            return int(at + found + 1)
        high = at
    return low
