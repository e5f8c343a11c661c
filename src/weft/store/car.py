"""Archives of blocks in CARv1, the IPLD archive format, so that other tools can read them.

A CAR file is a header that names the roots, and blocks, each with its length and its CID before it:

    varint(length) header   {roots: [links], version: 1}
    varint(length) cid block   …

`export` writes the topic versions that events link to and all events of a topic in their order, so
every block comes after those it names; the roots are the heads. `load` believes nothing: every
block is checked as if a stranger had sent it, because one has. What is refused is counted by reason
and does not keep the rest from being stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from msgspec import Struct, field

from weft.documents import authority, dagcbor, descriptor
from weft.documents.dag import Stream
from weft.documents.descriptor import BLOCK_BYTES_MAX, SealedEvent, TopicVersion
from weft.documents.refusal import Reason, Refused
from weft.errors import WeftError
from weft.ids import CID_BYTES, CID_PREFIX, Cid, Topic, owner_in
from weft.store.interface import Batch, Store
from weft.store.reader import Since, read_all, stream_of

ROOTS_MAX = 4_096
_HEADER_BYTES_MAX = 64 + 48 * ROOTS_MAX
_SECTION_BYTES_MAX = CID_BYTES + BLOCK_BYTES_MAX
_GROUP = 500


class BadArchive(WeftError):
    """The file is no CAR file that weft can read; the text says why and where."""


# --- the format -------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """Unsigned LEB128."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def encode(roots: Iterable[Cid], blocks: Iterable[tuple[Cid, bytes]]) -> Iterator[bytes]:
    """A CAR file, piece by piece."""
    header = dagcbor.mapping(
        {"roots": dagcbor.array(map(dagcbor.link, roots)), "version": dagcbor.integer(1)}
    )
    yield varint(len(header)) + header
    for cid, block in blocks:
        yield varint(len(cid) + len(block)) + cid + block


def decode(file: BinaryIO) -> tuple[list[Cid], Iterator[tuple[Cid, bytes]]]:
    """The roots of a CAR file, and its blocks as they are read."""
    header = _section(file, _HEADER_BYTES_MAX)
    if header is None:
        raise BadArchive("the file is empty")
    try:
        document = dagcbor.read(header)
    except Refused as error:
        raise BadArchive("the file does not start with a CAR header") from error
    if type(document) is not dict or document.get("version") != 1:
        raise BadArchive("only version 1 of CAR can be read")
    roots = document.get("roots")
    if type(roots) is not list or not all(type(root) is bytes for root in roots):
        raise BadArchive("the CAR header names no roots")
    return [Cid(root) for root in roots], _blocks(file)


def _blocks(file: BinaryIO) -> Iterator[tuple[Cid, bytes]]:
    number = 0
    while (section := _section(file, _SECTION_BYTES_MAX)) is not None:
        number += 1
        if not section.startswith(CID_PREFIX) or len(section) < CID_BYTES:
            raise BadArchive(f"block {number} is not dag-cbor under a SHA-256 CID")
        yield Cid(section[:CID_BYTES]), section[CID_BYTES:]


def _section(file: BinaryIO, most: int) -> bytes | None:
    """The next length and what it counts; None at the end of the file."""
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
        if shift > 28:
            raise BadArchive("a length in the file makes no sense")
    if not 0 < length <= most:
        raise BadArchive(f"a block of {length} bytes is too long, or none at all")
    data = file.read(length)
    if len(data) < length:
        raise BadArchive("the file ends in the middle of a block")
    return data


# --- a store's topics -------------------------------------------------------------------------


def export(store: Store, topic: Topic, since: Since = "beginning") -> Iterator[bytes]:
    """A topic's stream as a CAR file, piece by piece."""
    heads = sorted(store.heads(topic))[:ROOTS_MAX]
    return encode(heads, _with_versions(store, read_all(store, topic, since)))


def _with_versions(store: Store, events: Iterable[SealedEvent]) -> Iterator[tuple[Cid, bytes]]:
    """Events, and before the first one that links to it each topic version, oldest first."""
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


class Loaded(Struct):
    """What came of loading an archive."""

    events: int = 0  # stored
    topics: int = 0  # topic versions in the file
    known: int = 0  # events that were there before
    waiting: int = 0  # events left out because parents are neither in the file nor in the store
    refused: Counter[Reason] = field(default_factory=Counter)


class _Loader:
    def __init__(self, store: Store, now_ms: int) -> None:
        self._store = store
        self._now_ms = now_ms
        self._versions: dict[Cid, TopicVersion] = {}
        self._streams: dict[Topic, Stream] = {}
        self._events: list[SealedEvent] = []
        self._topics: list[TopicVersion] = []
        self.loaded = Loaded()

    def take(self, cid: Cid, block: bytes) -> None:
        try:
            found = descriptor.open_any(block, cid)
        except Refused as refused:
            self.loaded.refused[refused.reason] += 1
            return
        if isinstance(found, TopicVersion):
            self._versions[cid] = found
            self._topics.append(found)
            self.loaded.topics += 1
            return
        reason = self._judge(found)
        if reason is not None:
            self.loaded.refused[reason] += 1
            return
        self._add(found)

    def _judge(self, event: SealedEvent) -> Reason | None:
        """What an archive holds is history, and judged by the version that it links to. A name that
        carries its owner's key says more: nothing was ever right there without that key."""
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

    def finish(self) -> Loaded:
        self.flush()
        self.loaded.waiting = sum(stream.waiting for stream in self._streams.values())
        self.loaded.refused += Counter()  # without the zeros
        return self.loaded


def load(
    store: Store,
    file: BinaryIO,
    now_ms: int,
    progress: Callable[[int], None] = lambda blocks: None,
) -> Loaded:
    """Store what an archive holds, as far as it is right. A file that breaks off gives an error;
    what came before that is stored."""
    loader = _Loader(store, now_ms)
    _, blocks = decode(file)
    try:
        for number, (cid, block) in enumerate(blocks, 1):
            loader.take(cid, block)
            if number % _GROUP == 0:
                progress(number)
    finally:
        loader.finish()
    return loader.loaded
