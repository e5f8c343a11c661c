"""Any message that a reader would let through, built from the message types themselves.

A strategy is made from what msgspec knows of a type (fields, bounds, lengths), so a new message or
field is covered from the day it exists. Values come from small pools with the extremes of each
range among them, so that messages refer to the same peers, topics and events.
"""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st
from msgspec import inspect
from msgspec.structs import replace

from protocol_kit import contact, number_of, proven_run, signer
from weft.documents.run import NOTHING_BEFORE, Part, Run, Statement, sign_run
from weft.ids import GENERAL, PEER_ID_BYTES, TOPIC_BYTES_MAX, Contact, Topic
from weft.protocol import messages as m
from weft.protocol.history.wishes import REASON_MAX, SEGMENT_MAX
from weft.protocol.kademlia.rpc import (
    KEY_BYTES_MAX,
    LOCATION_BYTES_MAX,
    FindReply,
    FindRequest,
    Neighbour,
)
from weft.protocol.liveness import Ping, Pong
from weft.protocol.membership import (
    Descriptor,
    JoinReply,
    JoinRequest,
    OverlayNews,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.publication import RouteCheck, RouteEvent, RouteKnown, RouteResult
from weft.protocol.pulsar.attachment import TreeJoinReply
from weft.protocol.recent import IHave, Offer, Repair, Want
from weft.protocol.tera.access_points import LookupHit, LookupMiss, LookupWalk
from weft.protocol.tera.links import LinkRelease, LinkReply, LinkRequest, Unlink
from weft.protocol.tera.size import SampleReply, SampleWalk
from weft.protocol.tera.stan import AdoptMe, Candidate, CollectReply, CollectWalk, InLink
from weft.protocol.topic_dht.events import Cast, SeenReply, SeenRequest
from weft.protocol.topic_dht.roles import Appeared, Rejoin, RoleReply, RoleRequest
from weft.protocol.wire import Payload
from weft.rules.prefix import as_bytes, block_key, location_of

TOPICS = (GENERAL, "/a", "/b", "/c")
SEGMENTS = ("", "b", "/", "x/y", "é", "z" * REASON_MAX)
PEERS = tuple(contact(number) for number in range(1, 7))  # peer 1 is the one under test
LIST_LENGTH_MAX = 6
LOCATIONS = tuple(as_bytes(location_of(peer.peer)) for peer in PEERS)
KEYS = tuple(block_key(value) for value in (b"", b"1", b"2"))  # of values that are drawn, too


def _bytes(some: bytes, kind: inspect.BytesType) -> bytes:
    """Bytes of the length that the type asks for."""
    return (some + bytes(kind.min_length or 0))[: kind.max_length]


def strategy_of(kind: inspect.Type) -> st.SearchStrategy[object]:
    """Values of a type as msgspec describes it."""
    if isinstance(kind, inspect.StructType):
        if kind.cls is Contact:
            return st.sampled_from(PEERS)
        return st.builds(kind.cls, *(strategy_of(field.type) for field in kind.fields))
    if isinstance(kind, inspect.ListType):
        most = min(LIST_LENGTH_MAX, kind.max_length or LIST_LENGTH_MAX)
        return st.lists(strategy_of(kind.item_type), max_size=most)
    if isinstance(kind, inspect.VarTupleType):
        least = kind.min_length or 0
        items = st.lists(strategy_of(kind.item_type), min_size=least, max_size=LIST_LENGTH_MAX)
        return items.map(tuple)
    if isinstance(kind, inspect.IntType):
        low = kind.ge if kind.ge is not None else (kind.gt or 0) + 1
        high = kind.le if kind.le is not None else (kind.lt or 1 << 63) - 1
        common = st.integers(low, min(high, low + 5))
        return common | st.sampled_from((low, high, high - 1)) | st.integers(low, high)
    if isinstance(kind, inspect.BytesType):
        if kind.min_length == kind.max_length == PEER_ID_BYTES:
            return st.sampled_from([peer.peer for peer in PEERS])
        if kind.max_length == LOCATION_BYTES_MAX:
            return st.sampled_from([*LOCATIONS, b"", bytes(LOCATION_BYTES_MAX)])
        if kind.max_length == KEY_BYTES_MAX:
            return st.sampled_from([*KEYS, b"", b"\xff"])
        if kind.min_length:
            return st.sampled_from([_bytes(peer.peer, kind) for peer in PEERS])
        return st.binary(max_size=min(8, kind.max_length or 8))
    if isinstance(kind, inspect.StrType):
        if kind.max_length in (SEGMENT_MAX, REASON_MAX):
            return st.sampled_from(SEGMENTS)
        assert kind.max_length == TOPIC_BYTES_MAX, "a new kind of text needs a pool of its own"
        return st.sampled_from(TOPICS)
    if isinstance(kind, inspect.BoolType):
        return st.booleans()
    if isinstance(kind, inspect.Metadata):
        return strategy_of(kind.type)
    if isinstance(kind, inspect.UnionType):
        return st.one_of(*map(strategy_of, kind.types))
    if isinstance(kind, inspect.NoneType):
        return st.none()
    raise AssertionError(f"no strategy for {kind}")


_UNION = inspect.type_info(m.AnyMessage)
assert isinstance(_UNION, inspect.UnionType)

_INFO = {kind.cls: kind for kind in _UNION.types if isinstance(kind, inspect.StructType)}


def signed(message: m.AnyMessage) -> m.AnyMessage:
    """The message with its runs, and what it says was seen, as their publishers would sign them."""
    if isinstance(message, Payload | RouteEvent | Cast):
        return replace(message, run=_signed_run(message.topic, message.run))
    if isinstance(message, Repair):
        return replace(message, runs=[_signed_run(message.topic, one) for one in message.runs])
    if isinstance(message, JoinReply | TreeJoinReply):
        seen = [_signed_statement(message.topic, one) for one in message.seen]
        return replace(message, seen=seen)
    return message


def _signed_run(topic: Topic, run: Run) -> Run:
    parts = run.parts if Part(topic, run.first) in run.parts else ()
    payloads = run.payloads[:1] if parts else run.payloads
    return sign_run(
        signer(number_of(run.publisher)),
        *(topic, run.publisher, run.incarnation, run.first, run.published_ms, payloads),
        *(NOTHING_BEFORE if run.first == 1 else run.prev, run.sealed, parts),
    ).run


def _signed_statement(topic: Topic, told: Statement) -> Statement:
    return sign_run(
        signer(number_of(told.publisher)),
        *(topic, told.publisher, told.incarnation, told.first, told.published_ms),
        *((b"",) * told.count, NOTHING_BEFORE if told.first == 1 else told.prev),
    ).statement()


MESSAGES: dict[type, st.SearchStrategy[m.AnyMessage]] = {
    cls: st.one_of(strategy_of(kind), strategy_of(kind).map(signed))  # type: ignore[arg-type]
    for cls, kind in _INFO.items()
}
any_message: st.SearchStrategy[m.AnyMessage] = st.one_of(*MESSAGES.values())


# --- floods: far more different values, much faster ---------------------------------------------


def random_value(kind: inspect.Type, rng: Random, topic: str) -> object:
    """Like `strategy_of`, but any peer there may be, and (almost) always the same topic."""
    if isinstance(kind, inspect.StructType):
        if kind.cls is Contact:
            return contact(rng.randrange(2, 1 << 40))
        return kind.cls(*(random_value(field.type, rng, topic) for field in kind.fields))
    if isinstance(kind, inspect.ListType):
        return [random_value(kind.item_type, rng, topic) for _ in range(rng.randrange(4))]
    if isinstance(kind, inspect.VarTupleType):
        count = rng.randrange(kind.min_length or 0, 4)
        return tuple(random_value(kind.item_type, rng, topic) for _ in range(count))
    if isinstance(kind, inspect.IntType):
        low = kind.ge if kind.ge is not None else (kind.gt or 0) + 1
        high = kind.le if kind.le is not None else (kind.lt or 1 << 63) - 1
        return rng.randint(low, min(high, low + 10 ** rng.randrange(1, 19)))
    if isinstance(kind, inspect.BytesType):
        return (
            _bytes(contact(rng.randrange(2, 1 << 40)).peer, kind)
            if kind.min_length
            else rng.randbytes(3)
        )
    if isinstance(kind, inspect.StrType):
        return topic if rng.random() < 0.9 else f"/{rng.random()}"
    if isinstance(kind, inspect.Metadata):
        return random_value(kind.type, rng, topic)
    if isinstance(kind, inspect.UnionType):
        return random_value(rng.choice(kind.types), rng, topic)
    if isinstance(kind, inspect.NoneType):
        return None
    assert isinstance(kind, inspect.BoolType)
    return rng.random() < 0.5


def random_message(kind: type, rng: Random, topic: str) -> m.AnyMessage:
    return random_value(_INFO[kind], rng, topic)  # type: ignore[return-value]


# --- conversations: random too, but half of it answers what the peer said ------------------------


def pooled_value(kind: inspect.Type, rng: Random) -> object:
    """Like `strategy_of`, without Hypothesis."""
    if isinstance(kind, inspect.StructType):
        if kind.cls is Contact:
            return rng.choice(PEERS)
        return kind.cls(*(pooled_value(field.type, rng) for field in kind.fields))
    if isinstance(kind, inspect.ListType):
        return [pooled_value(kind.item_type, rng) for _ in range(rng.randrange(5))]
    if isinstance(kind, inspect.VarTupleType):
        count = rng.randrange(kind.min_length or 0, 5)
        return tuple(pooled_value(kind.item_type, rng) for _ in range(count))
    if isinstance(kind, inspect.IntType):
        low = kind.ge if kind.ge is not None else (kind.gt or 0) + 1
        high = kind.le if kind.le is not None else (kind.lt or 1 << 63) - 1
        extremes = (low, high, high - 1, rng.randint(low, high))
        return rng.choice(extremes) if rng.random() < 0.2 else rng.randint(low, min(high, low + 6))
    if isinstance(kind, inspect.BytesType):
        if kind.min_length:
            return _bytes(rng.choice(PEERS).peer, kind)
        return rng.randbytes(rng.randrange(9))
    if isinstance(kind, inspect.StrType):
        return rng.choice(TOPICS)
    if isinstance(kind, inspect.Metadata):
        return pooled_value(kind.type, rng)
    if isinstance(kind, inspect.UnionType):
        return pooled_value(rng.choice(kind.types), rng)
    if isinstance(kind, inspect.NoneType):
        return None
    assert isinstance(kind, inspect.BoolType)
    return rng.random() < 0.5


def pooled_message(rng: Random) -> m.AnyMessage:
    message: m.AnyMessage = pooled_value(rng.choice(list(_INFO.values())), rng)  # type: ignore[assignment]
    return signed(message) if rng.random() < 0.7 else message


def answer_to(message: m.AnyMessage, rng: Random) -> m.AnyMessage:
    """What a peer might answer; messages that ask for nothing come back as they are."""
    if isinstance(message, ShuffleRequest):
        entries = [Descriptor(rng.choice(PEERS), rng.randrange(9)) for _ in range(3)]
        news = OverlayNews(rng.randrange(9), rng.randrange(99), 0, rng.randrange(3))
        return ShuffleReply(message.topic, message.tick, entries, news, rng.random() < 0.9)
    if isinstance(message, LookupWalk):
        if rng.random() < 0.5:
            return LookupMiss(message.lookup, message.attempt)
        return LookupHit(message.lookup, rng.choice(PEERS))
    if isinstance(message, JoinRequest):
        return JoinReply(message.topic, rng.random() < 0.7)
    if isinstance(message, RouteEvent):
        run = message.run
        return RouteResult(message.topic, run.incarnation, run.first, rng.random() < 0.5)
    if isinstance(message, RouteCheck):
        some = [number for number in message.numbers if rng.random() < 0.5]
        return RouteKnown(message.topic, message.incarnation, some, message.numbers)
    if isinstance(message, SampleWalk):
        return SampleReply(message.topic, message.round)
    if isinstance(message, LinkRequest):
        return LinkReply(message.topic, rng.random() < 0.7)
    if isinstance(message, Offer | IHave):
        return Want(message.topic, message.spans)
    if isinstance(message, CollectWalk):
        found = [Candidate(rng.choice(PEERS)) for _ in range(3)]
        return CollectReply(message.topic, message.walk, found)
    if isinstance(message, AdoptMe):
        return InLink(message.topic, rng.random() < 0.5, rng.random() < 0.5)
    if isinstance(message, LinkRelease):
        return Unlink(message.topic)
    if isinstance(message, FindRequest):
        known = [Neighbour(rng.choice(PEERS), message.role) for _ in range(rng.randrange(4))]
        return FindReply(message.request, rng.random() < 0.8, known)
    if isinstance(message, RoleRequest | Appeared | Rejoin):
        known_contacts = [rng.choice(PEERS) for _ in range(rng.randrange(4))]
        numbers = [rng.randrange(9) for _ in range(3)]
        verdict = rng.randrange(4) if rng.random() < 0.5 else 0
        return RoleReply(message.request, verdict, known_contacts, *numbers)
    if isinstance(message, SeenRequest):
        return SeenReply(message.request, rng.random() < 0.8, [proven_run(3, 4).statement()])
    if isinstance(message, Ping):
        return Pong(message.nonce, rng.randrange(2) * message.links)
    return message
