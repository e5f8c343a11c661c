"""Topics and events as immutable, signed, content-addressed documents (paper 004, Section 4.1).

A topic descriptor is one version of a topic: its name, its sub-topics under `#`, its owners, which
peers may publish, and the version before it (`parent`). An event descriptor is one event: its topic
(name and link to the version it was published under), its publisher, the events it follows
(`parents`), its height, metadata and payload. Both are dag-cbor blocks named by their CID.

The signature is a field of the document, the last one in dag-cbor's order of keys, so that all
other fields are where the paper puts them and merkle paths read as it says. It covers the document
without that field; the CID covers everything, the signature too. Nobody but the author can make a
second signature that verifies (`signature.py`), so nobody else can give one event two names.

Deviation: the paper's event has one `parent` and loses a branch when two publish at once. Here an
event names all the heads its publisher knew, in ascending order, and the stream is a DAG.
Deviation: `height` (one more than the highest parent; 1 without parents) is part of the event, so
that the order of the stream (`documents/dag.py`) can be told without the events before it.
Deviation: owners and allowed publishers are fields of the topic; the paper leaves them open.
Deviation: a payload is bytes, not a JSON object; metadata holds text, integers and booleans.

Invariants: what `open_*` returns has the CID it carries, is the one encoding of itself, is within
the bounds below and is signed by the author it names. Whether that author *may* is `authority`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from weft.documents import dagcbor, shape
from weft.documents.dagcbor import BLOCK_BYTES_MAX, Scalar
from weft.documents.refusal import Reason, Refused
from weft.documents.run import NOTHING_BEFORE, Run
from weft.documents.shape import CREATED, PROTOCOL, PROTOCOL_KEY, RESERVED
from weft.documents.signature import SIGNATURE_BYTES, Signer, verified
from weft.ids import CID_BYTES, PEER_ID_BYTES, Cid, PeerId, Topic, cid_of

AMPLE_BYTES = BLOCK_BYTES_MAX - (8 << 10)
"""A payload with its headers that is no larger fits in any event: what stands beside it is bounded
(`shape`), and has less than 6 KiB in all."""

_SIGNED_EVENT = b"weft event:"
_SIGNED_TOPIC = b"weft topic:"
_SIGNATURE = dagcbor.text("signature") + dagcbor.head(2, SIGNATURE_BYTES)


class SealedEvent(Struct, frozen=True, gc=False):
    """One event and the block that holds it."""

    cid: Cid
    block: bytes
    topic: Topic
    link: Cid | None  # the topic version it was published under; None: a topic that nobody owns
    publisher: PeerId
    parents: tuple[Cid, ...]  # ascending
    height: int
    created_ms: int  # by the publisher's clock
    metadata: dict[str, Scalar]  # without the reserved keys
    payload: bytes


INCARNATION = "incarnation"
NUMBER = "number"
"""Metadata of an event: the life of its publisher and its number there, as routing names it."""


def number_of(event: SealedEvent) -> tuple[PeerId, int, int] | None:
    """Publisher, incarnation and number; None where the event carries none."""
    incarnation, number = event.metadata.get(INCARNATION), event.metadata.get(NUMBER)
    if type(incarnation) is int and type(number) is int:
        return event.publisher, incarnation, number
    return None


class TopicVersion(Struct, frozen=True, gc=False):
    """One version of a topic and the block that holds it."""

    cid: Cid
    block: bytes
    name: Topic
    author: PeerId  # the owner that signed
    owners: tuple[PeerId, ...]  # ascending; they may publish, too
    allowed: tuple[PeerId, ...] | None  # ascending; None: anyone may publish
    sub_topics: dict[str, Cid]  # the last segment of each sub-topic's name, and its descriptor
    parent: Cid | None  # the version before
    created_ms: int
    metadata: dict[str, Scalar]


# --- writing ----------------------------------------------------------------------------------


def seal_event(
    sign: Signer,
    *,
    publisher: PeerId,
    topic: Topic,
    payload: bytes,
    created_ms: int,
    parents: Mapping[Cid, int] | None = None,
    link: Cid | None = None,
    metadata: Mapping[str, Scalar] | None = None,
) -> SealedEvent:
    """Make an event that follows `parents` (their heights by CID; see `dag.Stream.parents`)."""
    follows = dict(parents or {})
    height = 1 + max(follows.values(), default=0)
    document = {
        "topic": {"name": topic, "link": link},
        "height": height,
        "parents": sorted(follows),
        "payload": payload,
        "metadata": _whole_metadata(metadata, created_ms),
        "publisher": publisher,
        "signature": bytes(SIGNATURE_BYTES),
    }
    draft = _read_event(document, Cid(b""), b"")
    cid, block = _seal(sign, _SIGNED_EVENT, 6, _event_body(draft))
    return replace(draft, cid=cid, block=block)


def payload_bytes_max(topic: Topic, metadata: Mapping[str, Scalar]) -> int:
    """How large the payload of an event in a topic may be, beside this metadata, so that its block
    is not too large: with the most parents, a link and the longest numbers that there can be, so
    that the bound does not change while others publish."""
    beside = SealedEvent(
        cid=Cid(b""),
        block=b"",
        topic=topic,
        link=Cid(bytes(CID_BYTES)),
        publisher=PeerId(bytes(PEER_ID_BYTES)),
        parents=(Cid(bytes(CID_BYTES)),) * shape.PARENTS_MAX,
        height=shape.HEIGHT_MAX,
        created_ms=dagcbor.INTEGER_MAX,
        metadata=dict(metadata),
        payload=b"",
    )
    longer_head = len(dagcbor.head(2, BLOCK_BYTES_MAX)) - len(dagcbor.head(2, 0))
    body = len(dagcbor.head(5, 7)) + len(_event_body(beside)) + longer_head
    return BLOCK_BYTES_MAX - body - len(_SIGNATURE) - SIGNATURE_BYTES


def seal_topic(
    sign: Signer,
    *,
    author: PeerId,
    name: Topic,
    created_ms: int,
    owners: Iterable[PeerId] = (),
    allowed: Iterable[PeerId] | None = None,
    sub_topics: Mapping[str, Cid] | None = None,
    parent: Cid | None = None,
    metadata: Mapping[str, Scalar] | None = None,
) -> TopicVersion:
    """Make a version of a topic. The author is an owner; `allowed` None lets anyone publish."""
    document = {
        "#": dict(sub_topics or {}),
        "name": name,
        "author": author,
        "owners": sorted({author, *owners}),
        "parent": parent,
        "allowed": None if allowed is None else sorted(set(allowed)),
        "metadata": _whole_metadata(metadata, created_ms),
        "signature": bytes(SIGNATURE_BYTES),
    }
    draft = _read_topic(document, Cid(b""), b"")
    cid, block = _seal(sign, _SIGNED_TOPIC, 7, _topic_body(draft))
    return replace(draft, cid=cid, block=block)


def _whole_metadata(extra: Mapping[str, Scalar] | None, created_ms: int) -> dict[str, Scalar]:
    for key in RESERVED:
        if extra and key in extra:
            raise Refused(Reason.BAD_SHAPE, f"metadata {key!r} is set by weft itself")
    return {CREATED: created_ms, PROTOCOL_KEY: PROTOCOL, **(extra or {})}


def _seal(sign: Signer, purpose: bytes, fields: int, body: bytes) -> tuple[Cid, bytes]:
    signature = sign(purpose + dagcbor.head(5, fields) + body)
    block = dagcbor.head(5, fields + 1) + body + _SIGNATURE + signature
    if len(block) > BLOCK_BYTES_MAX:
        raise Refused(Reason.TOO_LARGE, f"{len(block)} bytes in one block, over {BLOCK_BYTES_MAX}")
    return cid_of(block), block


_E_TOPIC = dagcbor.text("topic") + dagcbor.head(5, 2) + dagcbor.text("link")
_E_NAME = dagcbor.text("name")
_E_HEIGHT = dagcbor.text("height")
_E_PARENTS = dagcbor.text("parents")
_E_PAYLOAD = dagcbor.text("payload")
_E_METADATA = dagcbor.text("metadata")
_E_PUBLISHER = dagcbor.text("publisher") + dagcbor.head(2, PEER_ID_BYTES)


def _event_body(event: SealedEvent) -> bytes:
    """All fields but the signature, in dag-cbor's order of keys."""
    return b"".join(
        (
            _E_TOPIC,
            dagcbor.optional_link(event.link),
            _E_NAME,
            dagcbor.text(event.topic),
            _E_HEIGHT,
            dagcbor.integer(event.height),
            _E_PARENTS,
            dagcbor.array(map(dagcbor.link, event.parents)),
            _E_PAYLOAD,
            dagcbor.binary(event.payload),
            _E_METADATA,
            _metadata_bytes(event.metadata, event.created_ms),
            _E_PUBLISHER,
            event.publisher,
        )
    )


def _topic_body(topic: TopicVersion) -> bytes:
    """All fields but the signature, in dag-cbor's order of keys."""
    keys = topic.allowed
    fields = {
        "#": dagcbor.mapping({name: dagcbor.link(cid) for name, cid in topic.sub_topics.items()}),
        "name": dagcbor.text(topic.name),
        "author": dagcbor.binary(topic.author),
        "owners": dagcbor.array(map(dagcbor.binary, topic.owners)),
        "parent": dagcbor.optional_link(topic.parent),
        "allowed": dagcbor.NULL if keys is None else dagcbor.array(map(dagcbor.binary, keys)),
        "metadata": _metadata_bytes(topic.metadata, topic.created_ms),
    }
    return dagcbor.mapping(fields)[1:]


_M_CREATED = dagcbor.text(CREATED)
_M_PROTOCOL = dagcbor.text(PROTOCOL_KEY) + dagcbor.integer(PROTOCOL)


def _metadata_bytes(extra: Mapping[str, Scalar], created_ms: int) -> bytes:
    if not extra:
        return dagcbor.head(5, 2) + _M_CREATED + dagcbor.integer(created_ms) + _M_PROTOCOL
    whole: dict[str, Scalar] = {CREATED: created_ms, PROTOCOL_KEY: PROTOCOL, **extra}
    return dagcbor.mapping({key: dagcbor.scalar(value) for key, value in whole.items()})


# --- reading ----------------------------------------------------------------------------------


def open_event(block: bytes, cid: Cid | None = None) -> SealedEvent:
    """The event in a block that came under `cid`; `Refused` if anything about it is wrong."""
    name = _named(block, cid)
    return _checked_event(_document(block), name, block)


def open_topic(block: bytes, cid: Cid | None = None) -> TopicVersion:
    """The topic version in a block that came under `cid`; `Refused` if anything is wrong."""
    name = _named(block, cid)
    return _checked_topic(_document(block), name, block)


def open_any(block: bytes, cid: Cid | None = None) -> SealedEvent | TopicVersion:
    """The event or the topic version in a block."""
    name = _named(block, cid)
    document = _document(block)
    if "topic" in document:
        return _checked_event(document, name, block)
    if "#" in document:
        return _checked_topic(document, name, block)
    raise Refused(Reason.UNKNOWN_KIND, "neither a topic nor an event")


def known_event(block: bytes, cid: Cid) -> SealedEvent:
    """The event in a block whose CID is known to be right; its signature was verified before it
    was stored, or is to be verified by `verify_event`."""
    return _read_event(_document(block), cid, block)


def verify_event(event: SealedEvent) -> SealedEvent:
    """An event that `known_event` read, once its encoding and signature are found right too."""
    if len(event.block) > BLOCK_BYTES_MAX:
        raise Refused(Reason.TOO_LARGE, f"{len(event.block)} bytes, over {BLOCK_BYTES_MAX}")
    _check_sealed(event.block, _SIGNED_EVENT, 6, _event_body(event), event.publisher)
    return event


def _named(block: bytes, cid: Cid | None) -> Cid:
    if len(block) > BLOCK_BYTES_MAX:  # before anything that costs
        raise Refused(Reason.TOO_LARGE, f"{len(block)} bytes in one block, over {BLOCK_BYTES_MAX}")
    found = cid_of(block)
    if cid is not None and cid != found:
        raise Refused(Reason.BAD_CID, "the block does not hash to the CID it came under")
    return found


def _document(block: bytes) -> dict[str, object]:
    document = dagcbor.read(block)
    if type(document) is not dict:
        raise Refused(Reason.UNKNOWN_KIND, "neither a topic nor an event")
    return document


def _checked_event(document: dict[str, object], cid: Cid, block: bytes) -> SealedEvent:
    event = _read_event(document, cid, block)
    _check_sealed(block, _SIGNED_EVENT, 6, _event_body(event), event.publisher)
    return event


def _checked_topic(document: dict[str, object], cid: Cid, block: bytes) -> TopicVersion:
    topic = _read_topic(document, cid, block)
    _check_sealed(block, _SIGNED_TOPIC, 7, _topic_body(topic), topic.author)
    return topic


def _check_sealed(block: bytes, purpose: bytes, fields: int, body: bytes, author: PeerId) -> None:
    """Refuse a block that is not the one encoding of what was read, signed by its author."""
    signature = block[-SIGNATURE_BYTES:]
    if block != dagcbor.head(5, fields + 1) + body + _SIGNATURE + signature:
        raise Refused(Reason.NOT_CANONICAL, "encoded otherwise than dag-cbor says")
    if not verified(author, signature, purpose + dagcbor.head(5, fields) + body):
        raise Refused(Reason.BAD_SIGNATURE, "not signed by the author it names")


_EVENT_KEYS = frozenset(
    ("topic", "height", "parents", "payload", "metadata", "publisher", "signature")
)
_ABOUT_KEYS = frozenset(("name", "link"))
_TOPIC_KEYS = frozenset(
    ("#", "name", "author", "owners", "parent", "allowed", "metadata", "signature")
)


def _read_event(document: Mapping[str, object], cid: Cid, block: bytes) -> SealedEvent:
    shape.require(document.keys() == _EVENT_KEYS, "an event has other fields")
    about = document["topic"]
    if type(about) is not dict or about.keys() != _ABOUT_KEYS:
        raise Refused(Reason.BAD_SHAPE, "an event's topic is a name and a link")
    height = shape.height(document["height"])
    parents = shape.parents(document["parents"])
    if (height == 1) == bool(parents):
        raise Refused(Reason.WRONG_HEIGHT, "an event without parents has height 1, others more")
    shape.require(type(document["signature"]) is bytes, "a signature is bytes")
    created_ms, metadata = shape.metadata(document["metadata"])
    return SealedEvent(
        cid,
        block,
        shape.name(about["name"]),
        shape.link(about["link"]),
        shape.key(document["publisher"]),
        parents,
        height,
        created_ms,
        metadata,
        shape.payload(document["payload"]),
    )


def _read_topic(document: Mapping[str, object], cid: Cid, block: bytes) -> TopicVersion:
    shape.require(document.keys() == _TOPIC_KEYS, "a topic has other fields")
    shape.require(type(document["signature"]) is bytes, "a signature is bytes")
    allowed = document["allowed"]
    created_ms, metadata = shape.metadata(document["metadata"])
    topic = TopicVersion(
        cid,
        block,
        shape.name(document["name"]),
        shape.key(document["author"]),
        shape.keys(document["owners"], shape.OWNERS_MAX),
        None if allowed is None else shape.keys(allowed, shape.ALLOWED_MAX),
        shape.sub_topics(document["#"]),
        shape.link(document["parent"]),
        created_ms,
        metadata,
    )
    if topic.author not in topic.owners:
        raise Refused(Reason.NOT_OWNER, "the author of a topic is one of its owners")
    return topic


def handed_out(event: SealedEvent, payload: bytes) -> Run:
    """A sealed event as traces and applications know it: a run of one, under its number. The run's
    signature is empty, since the event has its own."""
    _, incarnation, number = number_of(event) or (event.publisher, 0, event.height)
    return Run(
        *(event.publisher, incarnation, number, event.created_ms, (payload,)),
        *(NOTHING_BEFORE, bytes(SIGNATURE_BYTES)),
    )
