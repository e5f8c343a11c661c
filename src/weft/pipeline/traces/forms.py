"""Traces in three forms: go-libp2p-pubsub's JSON and protobuf, and weft's own lines.

All three hold records of the same shape (`libp2p`). Ids are bytes there, which each form spells in
its own way: Go's JSON in base64; weft's lines as libp2p's text form of a peer id (base58) and as
the text that a message id is. A message id that is no text is written as "base64:" and its bytes,
so that every id comes back as it was.

weft's records say more than go-libp2p-pubsub's have a place for: hops, the kind and size of a
message, why one was dropped. What is left out is counted, so that it can be told.
"""

from __future__ import annotations

import gzip
import zlib
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import msgspec

from weft import private
from weft.ids import BadId, base58_decode, base58_encode, varint
from weft.pipeline.traces.libp2p import (
    NEWER_NAMES,
    NEWER_TYPES,
    PEER_BYTES_MAX,
    RECORD,
    RECORD_BYTES_MAX,
    BadRecord,
    Field,
    Kind,
    LeftOut,
    Record,
    Shape,
    checked,
    checked_peer,
    decoded,
    encoded,
    read_varint,
)
from weft.trace import FIELDS, KINDS

PROTOBUF_SUFFIXES = (".pb", ".pb.gz")
_PACKED = ".gz"
_NOT_TEXT = "base64:"
_NUMBER_MAX = (1 << 63) - 1
_LENGTH_BYTES_MAX = 5  # a varint that is longer says more than RECORD_BYTES_MAX
_PEERS_KEPT = 1 << 16  # guess: a trace names the same peers again and again

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Form(StrEnum):
    """How a trace is written; JSON of either version is read by itself."""

    WEFT = "weft"
    JSON_15 = "json-0.15"
    JSON_16 = "json-0.16"
    PROTOBUF = "pb"


# --- how ids are spelled --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Spelling:
    """Ids as text, and back; `ValueError` or `BadId` where a text is none."""

    peer: Callable[[bytes], str]
    event: Callable[[bytes], str]
    read_peer: Callable[[str], bytes]
    read_event: Callable[[str], bytes]


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _read_base64(text: str) -> bytes:
    try:
        data = b64decode(text, validate=True)
    except (NotBase64, ValueError):
        raise BadId(f"{text!r:.80} is no base64") from None
    if _base64(data) != text:
        raise BadId(f"{text!r:.80} is no base64 as it is usually written")
    return data


def _event_text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _NOT_TEXT + _base64(data)
    fits = text.isprintable() and not text.startswith(_NOT_TEXT)
    return text if fits else _NOT_TEXT + _base64(data)


def _read_event_text(text: str) -> bytes:
    if text.startswith(_NOT_TEXT):
        return _read_base64(text.removeprefix(_NOT_TEXT))
    return text.encode()


def _read_base58(text: str) -> bytes:
    if len(text) > 2 * PEER_BYTES_MAX:  # reading it takes time by the square of its length
        raise BadId(f"{text!r:.80} is too long for a peer id")
    return base58_decode(text)


_GO = _Spelling(_base64, _base64, _read_base64, _read_base64)
_WEFT = _Spelling(
    lru_cache(_PEERS_KEPT)(base58_encode),
    _event_text,
    lru_cache(_PEERS_KEPT)(_read_base58),
    _read_event_text,
)


# --- JSON -----------------------------------------------------------------------------------------


def line_of(record: Record, form: Form) -> bytes:
    """A record as JSON, without the end of the line."""
    spelling = _WEFT if form is Form.WEFT else _GO
    said = _written(RECORD, record, spelling)
    kind = KINDS[record["type"]]
    if form is Form.WEFT:
        said["type"] = kind
    elif form is Form.JSON_16 and kind in NEWER_NAMES:
        said[NEWER_NAMES[kind]] = said.pop(FIELDS[kind])
    return _encode(said)


def _written(shape: Shape, value: Record, spelling: _Spelling) -> Record:
    out = {}
    for name, found in value.items():
        each = shape.fields[name]
        if each.many:
            out[name] = [_spelled(each, one, spelling) for one in found]
        else:
            out[name] = _spelled(each, found, spelling)
    return out


def _spelled(each: Field, value: Any, spelling: _Spelling) -> Any:
    if isinstance(each.holds, Shape):
        return _written(each.holds, value, spelling)
    if each.holds is Kind.PEER:
        return spelling.peer(value)
    return spelling.event(value) if each.holds is Kind.EVENT else value


def record_in(line: bytes, left_out: LeftOut) -> Record:
    """The record in a line of JSON: weft's own if its type is a name of weft's, else Go's."""
    try:
        said = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecord(f"no JSON: {error}") from error
    if type(said) is not dict:
        raise BadRecord("no JSON object")
    spelling, named = _GO, said.get("type")
    if isinstance(named, str):
        kind = NEWER_TYPES.get(named, named)
        if kind not in FIELDS:
            raise BadRecord(f"no type of record has the name {named!r:.60}")
        spelling = _WEFT if named in FIELDS else _GO
        said["type"] = KINDS.index(kind)
    for newer, name in NEWER_NAMES.items():
        if name in said:
            said[FIELDS[newer]] = said.pop(name)
    return checked(_read(RECORD, said, spelling, left_out, ""))


def _read(shape: Shape, said: Any, spelling: _Spelling, left_out: LeftOut, path: str) -> Record:
    if type(said) is not dict:
        raise BadRecord(f"{path.removesuffix('.')} is no JSON object")
    found: Record = {}
    for name, value in said.items():
        each = shape.fields.get(name)
        if value is None:
            continue  # as Go reads it
        if each is None and name == "topics" and "topic" in shape.fields:
            found["topic"] = _only_topic(value, path)
        elif each is None:
            left_out[path + name] += 1
        elif not each.many:
            found[name] = _read_one(each, value, spelling, left_out, path + name)
        elif type(value) is not list:
            raise BadRecord(f"{path}{name} is no list")
        elif value:  # an empty list is none, as in protobuf
            found[name] = [_read_one(each, one, spelling, left_out, path + name) for one in value]
    return found


def _only_topic(value: Any, path: str) -> str:
    if type(value) is list and len(value) == 1 and type(value[0]) is str:
        return str(value[0])
    raise BadRecord(
        f"{path}topics is no list of one text (events of several topics are of go-libp2p-pubsub "
        "before 0.4)"
    )


_TYPES: dict[Kind, Any] = {
    Kind.FLAG: bool,
    Kind.NUMBER: int,
}  # of the values in JSON; all others are texts


def _read_one(
    each: Field, value: Any, spelling: _Spelling, left_out: LeftOut, path: str
) -> bytes | str | int | Record:
    holds = each.holds
    if isinstance(holds, Shape):
        return _read(holds, value, spelling, left_out, path + ".")
    if type(value) is not _TYPES.get(holds, str):
        raise BadRecord(f"{path} is {value!r:.60}, not {holds.value}")
    if holds is Kind.NUMBER and not -_NUMBER_MAX - 1 <= value <= _NUMBER_MAX:
        raise BadRecord(f"{path} is {value}, not {holds.value}")
    try:
        if holds is Kind.PEER:
            return checked_peer(spelling.read_peer(value), path)
        if holds is Kind.EVENT:
            return spelling.read_event(value)
    except BadId as error:
        raise BadRecord(f"{path}: {error}") from error
    result: str | int = value
    return result


# --- files ----------------------------------------------------------------------------------------


def is_protobuf(file: str) -> bool:
    """Whether a file is protobuf, by its name."""
    return file.endswith(PROTOBUF_SUFFIXES)


@dataclass
class Reading:
    """One file of a trace, record by record."""

    path: Path
    left_out: LeftOut
    done_bytes: int = 0
    """Of the file, packed or not, as far as it was read."""

    def records(self) -> Iterator[Record]:
        """All records; `BadRecord` names the file, the record or line, and the byte."""
        try:
            with self.path.open("rb") as raw:
                unpacked: Any = (
                    gzip.GzipFile(fileobj=raw) if self.path.name.endswith(_PACKED) else raw
                )
                protobuf = is_protobuf(self.path.name)
                for number, at, data in _pieces(unpacked, protobuf):
                    try:
                        if protobuf:
                            yield decoded(data, self.left_out)
                        elif data.strip():
                            yield record_in(data, self.left_out)
                    except BadRecord as error:
                        raise _Placed(error, number, at + error.at, protobuf) from error
                    self.done_bytes = raw.tell()
        except _Placed as error:
            raise BadRecord(f"{self.path}: {error}", error.at) from error
        except (OSError, EOFError, zlib.error) as error:
            raise BadRecord(f"{self.path}: {error}") from error


class _Placed(BadRecord):
    """A bad record, with its place in the file."""

    def __init__(self, error: BadRecord, number: int, at: int, protobuf: bool) -> None:
        what = "record" if protobuf else "line"
        super().__init__(f"{what} {number}, byte {at}: {error}", at)


def _pieces(file: IO[bytes], protobuf: bool) -> Iterator[tuple[int, int, bytes]]:
    """The records or lines of a file: number, place of the first byte, and bytes."""
    number, at = 0, 0
    while True:
        number += 1
        try:
            head, data = _after_length(file) if protobuf else (b"", _line(file))
        except BadRecord as error:
            raise _Placed(error, number, at, protobuf) from error
        if not head and not data:
            return
        yield number, at + len(head), data
        at += len(head) + len(data)


def _line(file: IO[bytes]) -> bytes:
    line = file.readline(RECORD_BYTES_MAX + 1)
    if len(line) > RECORD_BYTES_MAX:
        raise BadRecord(f"a line of more than {RECORD_BYTES_MAX} bytes")
    return line


def _after_length(file: IO[bytes]) -> tuple[bytes, bytes]:
    """The length of the next record, as it stands there, and the record; nothing at the end."""
    head = file.read(1)
    while head and head[-1] >= 0x80 and len(head) < _LENGTH_BYTES_MAX:
        more = file.read(1)
        if not more:
            raise BadRecord("the file ends within the length of a record")
        head += more
    if not head:
        return b"", b""
    size = read_varint(head, 0, len(head))[0]
    if size > RECORD_BYTES_MAX:
        raise BadRecord(f"a record of {size} bytes is none (at most {RECORD_BYTES_MAX})")
    data = file.read(size)
    if len(data) < size:
        raise BadRecord(f"the file ends within a record: {len(data)} of its {size} bytes are there")
    return head, data


@dataclass(frozen=True)
class Converted:
    """What a conversion did."""

    records: int
    bytes: int
    left_out: LeftOut


def convert(
    source: Path, target: Path, form: Form, progress: Callable[[int, int], None]
) -> Converted:
    """Write the trace of one file to another, which appears when it is whole. `progress` is told
    how many records are done, and how many bytes of the source."""
    reading = Reading(source, Counter())
    records = 0
    with private.draft_of(target, replace=True) as raw:
        packed = target.name.endswith(_PACKED)
        file: Any = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if packed else raw
        for records, record in enumerate(reading.records(), 1):
            if form is Form.PROTOBUF:
                data = encoded(record)
                file.write(varint(len(data)) + data)
            else:
                file.write(line_of(record, form) + b"\n")
            progress(records, reading.done_bytes)
        if packed:
            file.close()
        size = raw.tell()
    return Converted(records, size, reading.left_out)
