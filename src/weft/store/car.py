"""Archives of blocks in CAR, the IPLD archive format, so that other tools can read them.

A CAR file is a header that names the roots, and blocks, each with its length and its CID before it:

    varint(length) header   {roots: [links], version: 1}
    varint(length) cid block   …

CARv2 is a CARv1 with a header before it that says where that lies, and perhaps an index after it;
it is read as well, and weft writes CARv1.

`export` writes the topic versions that events link to and all events of a topic in their order, so
every block comes after those it names; the roots are the heads. `load` checks every block like one
that a stranger sent. Blocks that are refused are counted by reason, and the others are stored.
Blocks that are none of weft's, by their CID or by their content, are skipped. Other tools write
blocks in any order (go-car by its index, an IPLD walk from the heads down), so for an event that
stands before its parents the loader notes the place in the file, and reads those places at the end
in the order of heights.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NamedTuple

import libipld
from msgspec import Struct, field

from weft.documents import authority, dagcbor, descriptor
from weft.documents.dag import Stream
from weft.documents.dagcbor import BLOCK_BYTES_MAX
from weft.documents.descriptor import SealedEvent, TopicVersion
from weft.documents.refusal import Reason, Refused
from weft.errors import WeftError
from weft.ids import CID_BYTES, CID_PREFIX, Cid, Topic, owner_in, varint
from weft.store.interface import Batch, Since, Store
from weft.store.reader import read_all, stream_of

ROOTS_MAX = 4_096
_FOREIGN_BYTES_MAX = 256 << 20
"""guess: blocks of others are skipped, not held; most tools make none above 2 MiB."""
_HEADER_2 = struct.Struct("<16s3Q")  # characteristics; offset and size of the CARv1; the index
_PRAGMA_BYTES = 11
_ASIDE_MAX = 10_000_000
"""guess: events whose parents come later in the file, some 100 bytes each."""
_HEADER_BYTES_MAX = 64 + 48 * ROOTS_MAX
_SECTION_BYTES_MAX = CID_BYTES + BLOCK_BYTES_MAX
_GROUP = 500


class BadArchive(WeftError):
    """The file is no CAR file that weft can read; the text says why and where."""


# --- the format -------------------------------------------------------------------------------


def encode(roots: Iterable[Cid], blocks: Iterable[tuple[Cid, bytes]]) -> Iterator[bytes]:
    """A CAR file, piece by piece."""
    header = dagcbor.mapping(
        {"roots": dagcbor.array(map(dagcbor.link, roots)), "version": dagcbor.integer(1)}
    )
    yield varint(len(header)) + header
    for cid, block in blocks:
        yield varint(len(cid) + len(block)) + cid + block


class Found(NamedTuple):
    """A block of an archive."""

    cid: Cid | None  # None: a foreign block, whose CID is not of the one kind that weft makes
    block: bytes
    place: int  # where the block begins in the file
    size: int


def decode(file: BinaryIO) -> Iterator[Found]:
    """The blocks of a CAR file as they are read."""
    header = _header(file)
    end: int | None = None
    if header.get("version") == 2:
        fields = file.read(_HEADER_2.size)
        if len(fields) < _HEADER_2.size:
            raise BadArchive("the file ends in its header")
        _, start, size, _ = _HEADER_2.unpack(fields)
        if start < _PRAGMA_BYTES + _HEADER_2.size:
            raise BadArchive("the header says that the blocks begin inside of it")
        file.seek(start)
        end = start + size
        header = _header(file)
    if header.get("version") != 1:
        raise BadArchive("only versions 1 and 2 of CAR can be read")
    if type(header.get("roots")) is not list:
        raise BadArchive("the CAR header names no roots")
    return _blocks(file, end)


def _header(file: BinaryIO) -> dict[object, object]:
    length = _length(file)
    if length is None:
        raise BadArchive("the file is empty")
    if length > _HEADER_BYTES_MAX:
        raise BadArchive("the file does not start with a CAR header")
    try:
        document = libipld.decode_dag_cbor(_exactly(file, length))
    except (ValueError, OverflowError) as error:
        raise BadArchive("the file does not start with a CAR header") from error
    if type(document) is not dict:
        raise BadArchive("the file does not start with a CAR header")
    return document


def _blocks(file: BinaryIO, end: int | None) -> Iterator[Found]:
    while end is None or file.tell() < end:
        length = _length(file)
        if length is None:
            return
        name = _exactly(file, min(length, CID_BYTES))
        place, size = file.tell(), length - len(name)
        if len(name) == CID_BYTES and name.startswith(CID_PREFIX) and length <= _SECTION_BYTES_MAX:
            yield Found(Cid(name), _exactly(file, size), place, size)
        elif length > _FOREIGN_BYTES_MAX:
            raise BadArchive(f"a block of {length} bytes is too long")
        else:
            if size:
                file.seek(size - 1, os.SEEK_CUR)
                _exactly(file, 1)  # to notice a file that breaks off
            yield Found(None, b"", place, size)


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise BadArchive("the file ends in the middle of a block")
    return data


def _length(file: BinaryIO) -> int | None:
    """The length of the next section; None at the end of the file."""
    length = shift = 0
    while True:
        byte = file.read(1)
        if not byte:
            if shift:
                raise BadArchive("the file ends in the middle of a block")
            return None
        length |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            break
        if shift > 35:
            raise BadArchive("a length in the file makes no sense")
    if not length:
        raise BadArchive("a length in the file makes no sense")
    return length


# --- a store's topics -------------------------------------------------------------------------


def export(store: Store, topic: Topic, since: Since = "beginning") -> Iterator[bytes]:
    """A topic's stream as a CAR file, piece by piece."""
    heads = sorted(store.heads(topic))[:ROOTS_MAX]
    return encode(heads, _with_versions(store, read_all(store, topic, since)))


def _with_versions(store: Store, events: Iterable[SealedEvent]) -> Iterator[tuple[Cid, bytes]]:
    """Events; each topic version comes before the first event that links to it, oldest first."""
    told: set[Cid] = set()
    for event in events:
        versions: list[tuple[Cid, bytes]] = []
        link = event.link
        while link is not None and link not in told:
            told.add(link)
            block = store.get(link)
            if block is None:
                break
            versions.append((link, block))
            link = descriptor.open_topic(block, link).parent
        yield from reversed(versions)
        yield event.cid, event.block


def _is_foreign(block: bytes) -> bool:
    """Whether a block has nothing in it that a document of weft has."""
    try:
        document = libipld.decode_dag_cbor(block)
    except (ValueError, OverflowError):
        return True
    return type(document) is not dict or not ({"topic", "#"} & document.keys())


class Loaded(Struct):
    """The counts of one loading of an archive."""

    events: int = 0  # stored
    topics: int = 0  # topic versions in the file
    known: int = 0  # events that were there before
    waiting: int = 0  # events left out because parents are neither in the file nor in the store
    foreign: int = 0  # blocks that are none of weft's
    refused: Counter[Reason] = field(default_factory=Counter)


class _Loader:
    def __init__(self, store: Store, now_ms: int) -> None:
        self._store = store
        self._now_ms = now_ms
        self._versions: dict[Cid, TopicVersion] = {}
        self._streams: dict[Topic, Stream] = {}
        self._events: list[SealedEvent] = []
        self._topics: list[TopicVersion] = []
        self._aside: list[tuple[int, int, Cid, int]] = []  # height, place, name, size
        self.loaded = Loaded()

    def take(self, found: Found) -> None:
        """The next block of the file. An event that needs what has not come yet is put aside."""
        opened = self._open(found)
        if isinstance(opened, TopicVersion):
            self._versions[opened.cid] = opened
            self._topics.append(opened)
            self.loaded.topics += 1
        elif opened is not None and (self._is_ready(opened) or len(self._aside) >= _ASIDE_MAX):
            self._take_event(opened)
        elif opened is not None:
            self._aside.append((opened.height, found.place, opened.cid, found.size))

    def take_aside(self, file: BinaryIO) -> None:
        """Take the events that were put aside, now that the whole file was seen: parents first."""
        for _, place, cid, size in sorted(self._aside):
            file.seek(place)
            opened = self._open(Found(cid, _exactly(file, size), place, size))
            if isinstance(opened, SealedEvent):
                self._take_event(opened)
        self._aside.clear()

    def _open(self, found: Found) -> SealedEvent | TopicVersion | None:
        if found.cid is None:
            self.loaded.foreign += 1
            return None
        try:
            return descriptor.open_any(found.block, found.cid)
        except Refused as refused:
            if refused.reason is not Reason.BAD_CID and _is_foreign(found.block):
                self.loaded.foreign += 1
            else:
                self.loaded.refused[refused.reason] += 1
        return None

    def _is_ready(self, event: SealedEvent) -> bool:
        """Whether the topic version and the parents of an event are known."""
        if event.link is not None and self._version(event.link) is None:
            return False
        stream = self._stream(event.topic)
        return all(stream.knows(parent) for parent in event.parents)

    def _take_event(self, found: SealedEvent) -> None:
        reason = self._judge(found)
        if reason is not None:
            self.loaded.refused[reason] += 1
            return
        self._add(found)

    def _judge(self, event: SealedEvent) -> Reason | None:
        """Events of an archive are judged by the topic version that they link to, which may be an
        old one. In a topic whose name carries its owner's key, that key must have allowed it."""
        linked, owner = self._version(event.link), owner_in(event.topic)
        if owner is not None:
            return authority.judge_event(event, event.topic, (owner,), linked, None, vouched=False)
        holders = linked.owners if linked is not None else None
        return authority.judge_event(event, event.topic, holders, linked, None, vouched=True)

    def _add(self, event: SealedEvent) -> None:
        stream = self._stream(event.topic)
        self.loaded.known += stream.knows(event.cid)
        added = stream.add(event)
        if added.refused is not None:
            self.loaded.refused[added.refused] += 1
        self.loaded.refused[Reason.WRONG_HEIGHT] += len(added.dropped)
        self._events += added.released
        if len(self._events) >= _GROUP:
            self.flush()

    def _version(self, link: Cid | None) -> TopicVersion | None:
        if link is None:
            return None
        if link not in self._versions:
            block = self._store.get(link)
            if block is None:
                return None
            self._versions[link] = descriptor.open_topic(block, link)
        return self._versions[link]

    def _stream(self, topic: Topic) -> Stream:
        if topic not in self._streams:
            self._streams[topic] = stream_of(self._store, topic)
        return self._streams[topic]

    def flush(self) -> None:
        if self._events or self._topics:
            batch = Batch(self._now_ms, tuple(self._events), tuple(self._topics))
            ((*outcomes,),) = self._store.commit([batch])
            self.loaded.events += outcomes.count("stored")
            self._events, self._topics = [], []

    def finish(self) -> None:
        self.flush()
        self.loaded.waiting = sum(stream.waiting for stream in self._streams.values())
        self.loaded.refused += Counter()  # without the zeros


def load(
    store: Store,
    file: BinaryIO,
    now_ms: int,
    progress: Callable[[int], None] = lambda blocks: None,
) -> Loaded:
    """Store the valid events and topic versions of an archive. The file must be seekable. A file
    that breaks off raises `BadArchive`, after what came before that is stored."""
    loader = _Loader(store, now_ms)
    try:
        try:
            for number, found in enumerate(decode(file), 1):
                loader.take(found)
                if number % _GROUP == 0:
                    progress(number)
        finally:
            loader.take_aside(file)
    finally:
        loader.finish()
    return loader.loaded
