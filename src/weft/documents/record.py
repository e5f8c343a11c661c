"""Topic records: signed, sequenced, expiring pointers to the newest version of a topic.

Descriptors never change, so something must say which is the newest: as IPNS does, a record under a
name that follows from public keys (paper 004, Section 4.1). A peer that knows the topic's name and
its holders' keys can compute the record's name, and a peer that gets a record can check it without
trusting any other: it hashes to its name, a holder signed it, it has not expired. Of two valid
records the later stands: the higher sequence, then the later expiry (a renewal), then the larger
bytes, so that all choose alike even if two holders write the same sequence at once.

In a DHT, records stand beside blocks; the first byte of a key says which (`rules/prefix.py`).
`KINDS` answers two questions about each, for the peers that hold values and for those that look
them up: may this value stand under this key now, and which of several valid ones stands.

Deviation: IPNS has one record per key, and Section 4.5 lets several peers hold a topic by sharing
the private key. Here the name is the hash of the topic's name and of the *set* of its holders'
keys: one key can hold many topics, many can hold one, and no private key ever leaves its peer.
Deviation: no record may last longer than `LIFE_MS_MAX`: a wrong clock cannot freeze a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256

from msgspec import Struct

from weft.documents import dagcbor, shape
from weft.documents.dagcbor import BLOCK_BYTES_MAX
from weft.documents.refusal import Reason, Refused
from weft.documents.signature import SIGNATURE_BYTES, Signer, verified
from weft.ids import Cid, PeerId, Topic, multibase_text
from weft.rules import prefix

LIFE_MS = 24 * 3_600_000
"""paper: a record is good for 24 hours."""
RENEW_MS = LIFE_MS // 2
"""guess: renewed at half its life, so that one failed attempt does not lose the topic."""
LIFE_MS_MAX = 2 * LIFE_MS
"""guess: a life, and a day for clocks that differ."""
RECORD_BYTES_MAX = 4_096
"""guess: some four times what a record with 16 holders takes."""

_NAME_PREFIX = bytes((0x01, 0x72, 0x12, 0x20))  # CIDv1, libp2p-key, SHA-256: an IPNS name
_SIGNED = b"weft record:"
_SIGNATURE = dagcbor.text("signature") + dagcbor.head(2, SIGNATURE_BYTES)
_KEYS = frozenset(("name", "value", "signer", "expires", "holders", "sequence", "signature"))


class Record(Struct, frozen=True, gc=False):
    """The newest version of a topic, by the word of one of its holders."""

    topic: Topic
    value: Cid  # the newest topic version
    signer: PeerId
    expires_ms: int
    holders: tuple[PeerId, ...]  # ascending
    sequence: int
    encoded: bytes  # the whole of it, as it is stored and sent

    @property
    def name(self) -> bytes:
        return name_of(self.topic, self.holders)

    @property
    def renew_ms(self) -> int:
        """When a holder should renew it."""
        return self.expires_ms - (LIFE_MS - RENEW_MS)

    @property
    def rank(self) -> tuple[int, int, bytes]:
        """Of two records of one topic and its holders, the one with the larger rank replaces the
        other."""
        return self.sequence, self.expires_ms, self.encoded


# --- names ------------------------------------------------------------------------------------


def name_of(topic: Topic, holders: Iterable[PeerId]) -> bytes:
    """The name of the record of a topic that these keys hold."""
    fields = {"name": dagcbor.text(topic), "holders": _keys(sorted(set(holders)))}
    return sha256(b"weft topic name:" + dagcbor.mapping(fields)).digest()


def name_text(name: bytes) -> str:
    """The text form, that of an IPNS name."""
    return multibase_text(_NAME_PREFIX + name)


# --- writing ----------------------------------------------------------------------------------


def seal(
    sign: Signer,
    *,
    signer: PeerId,
    holders: Iterable[PeerId],
    topic: Topic,
    value: Cid,
    sequence: int,
    now_ms: int,
) -> Record:
    """A record that is good from now on for `LIFE_MS`. To renew a record, seal it again with the
    same value and sequence; to point it elsewhere, add one to the sequence."""
    held_by = tuple(sorted({signer, *holders}))
    draft = Record(topic, value, signer, now_ms + LIFE_MS, held_by, sequence, b"")
    body = _body(draft)
    signature = sign(_SIGNED + dagcbor.head(5, 6) + body)
    return read_record(dagcbor.head(5, 7) + body + _SIGNATURE + signature)


def _keys(keys: Iterable[PeerId]) -> bytes:
    return dagcbor.array(map(dagcbor.binary, keys))


def _body(record: Record) -> bytes:
    fields = {
        "name": dagcbor.text(record.topic),
        "value": dagcbor.link(record.value),
        "signer": dagcbor.binary(record.signer),
        "expires": dagcbor.integer(record.expires_ms),
        "holders": _keys(record.holders),
        "sequence": dagcbor.integer(record.sequence),
    }
    return dagcbor.mapping(fields)[1:]


# --- reading ----------------------------------------------------------------------------------


def open_record(encoded: bytes, name: bytes, now_ms: int) -> Record:
    """The record that came under `name`; `Refused` if it may not stand there now."""
    record = read_record(encoded)
    if record.name != name:
        raise Refused(Reason.WRONG_NAME, "the record belongs under another name")
    if record.signer not in record.holders:
        raise Refused(Reason.NOT_HOLDER, "signed by a key that does not hold the topic")
    if record.expires_ms <= now_ms:
        raise Refused(Reason.EXPIRED, f"expired {now_ms - record.expires_ms} ms ago")
    if record.expires_ms > now_ms + LIFE_MS_MAX:
        raise Refused(Reason.LASTS_TOO_LONG, "would be valid longer than any record may be")
    signed = _SIGNED + dagcbor.head(5, 6) + _body(record)
    if not verified(record.signer, encoded[-SIGNATURE_BYTES:], signed):
        raise Refused(Reason.BAD_SIGNATURE, "not signed by the holder it names")
    return record


def choose(encoded: Sequence[bytes]) -> int:
    """Which of several valid records stands; the first where there are equals."""
    ranks = [read_record(record).rank for record in encoded]
    return ranks.index(max(ranks))


def read_record(encoded: bytes) -> Record:
    """A record as it reads: whole, but neither its name, its time nor its signature are checked."""
    if len(encoded) > RECORD_BYTES_MAX:
        raise Refused(Reason.TOO_LARGE, f"{len(encoded)} bytes in a record")
    document = dagcbor.read(encoded)
    if type(document) is not dict or document.keys() != _KEYS:
        raise Refused(Reason.BAD_SHAPE, "a record has other fields")
    value = shape.link(document["value"])
    if value is None:
        raise Refused(Reason.BAD_SHAPE, "a record points at a topic version")
    record = Record(
        shape.name(document["name"]),
        value,
        shape.key(document["signer"]),
        shape.counter(document["expires"]),
        shape.keys(document["holders"], shape.OWNERS_MAX),
        shape.counter(document["sequence"]),
        encoded,
    )
    signature = encoded[-SIGNATURE_BYTES:]
    if encoded != dagcbor.head(5, 7) + _body(record) + _SIGNATURE + signature:
        raise Refused(Reason.NOT_CANONICAL, "encoded otherwise than dag-cbor says")
    return record


# --- what a peer notes for itself -----------------------------------------------------------------

_TOLD_KEYS = frozenset(("name", "holders"))
_WISHES_KEYS = frozenset(("name", "asked"))


def seal_told(topic: Topic, holders: Iterable[PeerId]) -> tuple[bytes, bytes]:
    """A note for a peer's own store, beside the records: the keys that hold a topic by the word of
    this peer's user, and the name under which that is kept. It is never sent."""
    fields = {"name": dagcbor.text(topic), "holders": _keys(sorted(set(holders)))}
    return sha256(b"weft topic told:" + dagcbor.text(topic)).digest(), dagcbor.mapping(fields)


def read_told(encoded: bytes) -> tuple[Topic, tuple[PeerId, ...]] | None:
    """The topic and the keys in a note of `seal_told`; None if it is another kind of note."""
    document = dagcbor.read(encoded)
    if type(document) is not dict or document.keys() != _TOLD_KEYS:
        return None
    return shape.name(document["name"]), shape.keys(document["holders"], shape.OWNERS_MAX)


def seal_wishes(topic: Topic, asked: Mapping[str, PeerId]) -> tuple[bytes, bytes]:
    """A note for a peer's own store: the sub-topics of a topic that others asked for, and which
    peer did."""
    keys = dagcbor.mapping({segment: dagcbor.binary(peer) for segment, peer in asked.items()})
    fields = {"name": dagcbor.text(topic), "asked": keys}
    return sha256(b"weft topic wishes:" + dagcbor.text(topic)).digest(), dagcbor.mapping(fields)


def read_wishes(encoded: bytes) -> tuple[Topic, dict[str, PeerId]] | None:
    """The topic and the wishes in a note of `seal_wishes`; None if it is another kind of note."""
    document = dagcbor.read(encoded)
    if type(document) is not dict or document.keys() != _WISHES_KEYS:
        return None
    asked = document["asked"]
    if type(asked) is not dict:
        raise Refused(Reason.BAD_SHAPE, "wishes are a map of keys")
    return shape.name(document["name"]), {name: shape.key(peer) for name, peer in asked.items()}


def rival_name(record: Record) -> bytes:
    """The name under which a store keeps the record of a rival, a version that another holder wrote
    at the same time, until it is taken over."""
    return sha256(b"weft topic rival:" + record.encoded).digest()


# --- what may stand in a DHT under which key ------------------------------------------------------


class Kind(Struct, frozen=True):
    """Which values may stand under one kind of key, and which of several stands."""

    validate: Callable[[bytes, bytes, int], Reason | None]  # key, value, wall clock in ms
    choose: Callable[[Sequence[bytes]], int]  # the index of the one that stands
    single: bool = False  # only one value can be valid, so the first one found will do

    def is_valid(self, key: bytes, value: bytes, wall_ms: int) -> bool:
        return self.validate(key, value, wall_ms) is None

    def is_newer(self, new: bytes, old: bytes) -> bool:
        """Of two valid ones: whether the first wins."""
        return self.choose((old, new)) == 1


def _validate_block(key: bytes, value: bytes, now_ms: int) -> Reason | None:
    """Under a block's key: anything that hashes to it. The peer that asked for a block checks its
    shape and signature; a holder that did so as well would pay the time and keep no liar from
    storing."""
    if len(value) > BLOCK_BYTES_MAX:
        return Reason.TOO_LARGE
    return None if prefix.block_key(value) == key else Reason.BAD_CID


def _validate_record(key: bytes, value: bytes, now_ms: int) -> Reason | None:
    """Under a topic record's key: a record of that name that is signed and not expired."""
    try:
        open_record(value, key[1:], now_ms)
    except Refused as refused:
        return refused.reason
    return None


def _choose_block(values: Sequence[bytes]) -> int:
    """Blocks are named by their hash, so all valid ones are equal."""
    return 0


KINDS: dict[int, Kind] = {
    prefix.BLOCK: Kind(_validate_block, _choose_block, single=True),
    prefix.TOPIC_RECORD: Kind(_validate_record, choose),
}
