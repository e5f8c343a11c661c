"""Signed runs: what a publisher sends at once, proven by one signature.

A run is some consecutive events of one publisher's life in one topic. Groups of 16 payloads are the
leaves of a hash tree; one Ed25519 signature covers the run's head, the tree's root, the topic, and
the digest of the statement that the same publisher signed before in this topic (`prev`). So nobody
but its publisher can have made or changed a run, whichever peer passed it on, and a publisher that
says two things under one number has signed both.

The root is not sent: a receiver computes it from the payloads. A `Statement` is what is signed of a
run, without the payloads: it proves how far its publisher has published, and two statements that
contradict each other prove that the publisher lied.

    purpose 9, publisher 32, incarnation 8, first 8, count 2, published_ms 8, sealed 1,
    prev 32, root 32, length of topic 2, topic, then of each part: number 8, length 2, topic

Numbers are big-endian and without a sign. The digest of a statement, which the next one names as
`prev`, is the SHA-256 of these bytes; zeros stand before the first.

A leaf of the tree is the hash of the lengths of up to 16 payloads and of these; a node has up to 16
children. So an event of a run of 256 can be proven alone by the 15 beside it and 15 hashes. The
tree's shape follows from the count, which is signed, and a leaf begins with a zero (no payload has
16 MiB), so neither can pass for a node.

measured: SHA-256 takes 0.41 µs for a payload of 200 bytes alone, 0.16 in groups of 16, most of the
rest being calls; BLAKE2b with 32 bytes takes 1.2 times as long.
"""

from __future__ import annotations

import struct
from hashlib import sha256
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from weft.documents.signature import SIGNATURE_BYTES, Signer, verified
from weft.ids import PeerId, Topic, WirePeerId, WireTopic

NUMBER_MAX = (1 << 63) - 1

Counter: TypeAlias = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
"""A 63-bit number: ids, counters, milliseconds."""
Number: TypeAlias = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
"""The number of an event among those of its publisher's life in a topic."""

RUN_MAX = 256
"""measured: a notification, from a publisher to one subscriber, costs 10.8 µs in runs of 64, 7.2 of
128, 7.1 of 256 and 5.5 of 512 (least of three interleaved turns, busy machine): each run is signed,
verified and noted once."""
PAYLOAD_BYTES_MAX = 1 << 20
"""guess: 1 MiB, as libp2p's default."""
RUN_BYTES_MAX = PAYLOAD_BYTES_MAX
"""Bytes of all payloads of a run: a run is no larger than one event may be."""
PARTS_MAX = 16
"""guess: topics that one event can be published in at once."""
DIGEST_BYTES = 32
NOTHING_BEFORE = bytes(DIGEST_BYTES)
"""`prev` of a publisher's first run in a topic."""

Digest: TypeAlias = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
Signature: TypeAlias = Annotated[
    bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)
]
OnePayload: TypeAlias = Annotated[bytes, Meta(max_length=PAYLOAD_BYTES_MAX)]

_PURPOSE = b"weft run:"
_HEAD = struct.Struct(">9s32sQQHQB32s32sH")
_PART = struct.Struct(">QH")
_ARITY = 16
_NODE = b"\x01"


class Part(Struct, frozen=True, array_like=True, gc=False):
    """One of the topics of an event that was published in several, and its number there."""

    topic: WireTopic
    number: Number


class Event(Struct, frozen=True, gc=False):
    """One published event, as applications, traces and records know it. A publisher numbers its
    events in a topic 1, 2, 3, …; the incarnation (set when the publisher starts) keeps the numbers
    of two lives apart."""

    publisher: PeerId
    incarnation: int
    number: int
    published_ms: int
    payload: bytes
    parts: tuple[Part, ...] = ()


class Run(Struct, frozen=True, array_like=True, gc=False):
    """Events `first`, `first` + 1, … of one publisher's life in a topic, as they travel."""

    publisher: WirePeerId
    incarnation: Counter
    first: Number
    published_ms: Counter
    payloads: Annotated[tuple[OnePayload, ...], Meta(min_length=1, max_length=RUN_MAX)]
    prev: Digest  # of the statement that the publisher signed before, in this topic and life
    signature: Signature
    sealed: bool = False  # the payloads are signed blocks: their publisher keeps history
    # All its topics where an event was published in several (protocol/multi_topic.py); then the
    # run has no other event.
    parts: Annotated[tuple[Part, ...], Meta(max_length=PARTS_MAX)] = ()

    @property
    def last(self) -> int:
        return self.first + len(self.payloads) - 1

    @property
    def size(self) -> int:
        """Bytes of all payloads."""
        return sum(map(len, self.payloads))

    def event(self, place: int) -> Event:
        """One of the run's events; the first has place 0."""
        return Event(
            self.publisher,
            self.incarnation,
            self.first + place,
            self.published_ms,
            self.payloads[place],
            self.parts,
        )

    def events(self) -> list[Event]:
        return [self.event(place) for place in range(len(self.payloads))]


class Statement(Struct, frozen=True, array_like=True, gc=False):
    """What the publisher of a run has signed, without the payloads."""

    publisher: WirePeerId
    incarnation: Counter
    first: Number
    count: Annotated[int, Meta(ge=1, le=RUN_MAX)]
    published_ms: Counter
    prev: Digest
    root: Digest
    signature: Signature
    sealed: bool = False
    parts: Annotated[tuple[Part, ...], Meta(max_length=PARTS_MAX)] = ()

    @property
    def last(self) -> int:
        return self.first + self.count - 1


class Proven:
    """A run that its publisher has signed; or one that came over its publisher's own connection,
    which vouches for it until its signature is verified (`is_signed`)."""

    __slots__ = ("_signed", "digest", "last", "root", "run", "size")

    def __init__(self, run: Run, root: bytes, digest: bytes, size: int, signed: bool) -> None:
        self.run = run
        self.last = run.last  # the number of its last event
        self.root = root
        self.digest = digest  # of its statement, which the next run names
        self.size = size  # bytes of all payloads
        self._signed = signed  # its signature was verified

    @property
    def vouched(self) -> bool:
        """Whether its signature has not been verified."""
        return not self._signed

    def is_signed(self, topic: Topic) -> bool:
        """Whether its publisher signed it for this topic; verified only once if so."""
        if not self._signed:
            self._signed = verify_statement(topic, self.statement()) is not None
        return self._signed

    def statement(self) -> Statement:
        run = self.run
        return Statement(
            run.publisher,
            run.incarnation,
            run.first,
            len(run.payloads),
            run.published_ms,
            run.prev,
            self.root,
            run.signature,
            run.sealed,
            run.parts,
        )


def sign_run(
    sign: Signer,
    topic: Topic,
    publisher: PeerId,
    incarnation: int,
    first: int,
    published_ms: int,
    payloads: tuple[bytes, ...],
    prev: bytes,
    sealed: bool = False,
    parts: tuple[Part, ...] = (),
) -> Proven:
    """Make a run of some events and sign it."""
    sizes = list(map(len, payloads))
    root = _root(payloads, sizes)
    draft = Run(publisher, incarnation, first, published_ms, payloads, prev, b"", sealed, parts)
    signed = _signed(topic, draft, len(payloads), root)
    run = replace(draft, signature=sign(signed))
    return Proven(run, root, sha256(signed).digest(), sum(sizes), signed=True)


def verify_run(topic: Topic, run: Run) -> Proven | None:
    """The run as its publisher signed it for this topic; None if it did not."""
    return _proven(topic, run, vouched=False)


def vouched_run(topic: Topic, run: Run) -> Proven | None:
    """The run as it stands, its signature not verified; None if nobody can have signed it for this
    topic."""
    return _proven(topic, run, vouched=True)


def _proven(topic: Topic, run: Run, vouched: bool) -> Proven | None:
    payloads = run.payloads
    count = len(payloads)
    if run.parts and (count > 1 or Part(topic, run.first) not in run.parts):
        return None
    sizes = list(map(len, payloads))
    size = sum(sizes)
    if not 1 <= count <= RUN_MAX or (count > 1 and size > RUN_BYTES_MAX):
        return None
    if not _may_be_signed(run, count):
        return None
    root = _root(payloads, sizes)
    signed = _signed(topic, run, count, root)
    if not vouched and not verified(PeerId(run.publisher), run.signature, signed):
        return None
    return Proven(run, root, sha256(signed).digest(), size, not vouched)


def verify_statement(topic: Topic, statement: Statement) -> bytes | None:
    """The digest of a statement that its publisher signed for this topic; None if it did not."""
    if not _may_be_signed(statement, statement.count):
        return None
    signed = signed_bytes(topic, statement)
    if not verified(PeerId(statement.publisher), statement.signature, signed):
        return None
    return sha256(signed).digest()


def signed_bytes(topic: Topic, statement: Statement) -> bytes:
    """What the statement's signature covers."""
    return _signed(topic, statement, statement.count, statement.root)


def _may_be_signed(head: Run | Statement, count: int) -> bool:
    return head.first + count - 1 <= NUMBER_MAX and (head.first > 1 or head.prev == NOTHING_BEFORE)


def _signed(topic: Topic, head: Run | Statement, count: int, root: bytes) -> bytes:
    name = topic.encode()
    fixed = _HEAD.pack(
        *(_PURPOSE, head.publisher, head.incarnation, head.first, count, head.published_ms),
        *(head.sealed, head.prev, root, len(name)),
    )
    if not head.parts:
        return fixed + name
    said = [fixed, name]
    for part in head.parts:
        named = part.topic.encode()
        said += [_PART.pack(part.number, len(named)), named]
    return b"".join(said)


def _root(payloads: tuple[bytes, ...], sizes: list[int]) -> bytes:
    """The root of the hash tree over the payloads, which have these sizes."""
    if len(sizes) == 1:
        return sha256(sizes[0].to_bytes(4, "big") + payloads[0]).digest()
    lengths = struct.pack(f">{len(sizes)}I", *sizes)
    level = []
    for at in range(0, len(payloads), _ARITY):
        end = at + _ARITY
        group = b"".join((lengths[4 * at : 4 * end], *payloads[at:end]))
        level.append(sha256(group).digest())
    while len(level) > 1:
        groups = range(0, len(level), _ARITY)
        level = [sha256(_NODE + b"".join(level[at : at + _ARITY])).digest() for at in groups]
    return level[0]
