"""Everything one peer can say to another.

Messages are plain typed records; the network driver encodes them with msgpack (see `codec`),
the simulator hands them over as they are. `topic` names the overlay a message belongs to;
the empty topic is the general overlay. Every list has a bound, checked when a message is
decoded, so that no peer can make another build something without limit.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias, Union

from msgspec import Meta, Struct

from weft.ids import Contact, PeerId, Topic, WirePeerId, WireTopic
from weft.protocol import messages_dht as dht
from weft.protocol import messages_history as history
from weft.protocol import messages_pulsar as pulsar
from weft.protocol import messages_stan as stan
from weft.protocol import messages_topic_dht as topic_dht
from weft.protocol.messages_event import (
    HOPS_MAX,
    LIST_MAX,
    PARTS_MAX,
    PAYLOAD_BYTES_MAX,
    Event,
    Hops,
    Part,
    Span,
    Spans,
)
from weft.protocol.messages_topic_dht import Cast
from weft.protocol.wire import Counter, Message

AVOID_MAX = 8
"""guess: stale access points named in a lookup."""
MEMBERS_MAX = (1 << 32) - 1
Members: TypeAlias = Annotated[int, Meta(ge=0, le=MEMBERS_MAX)]
"""How many peers a topic has; what is heard of it is said again in adverts."""


# --- overlays: view exchange, joining, leaving (protocol/cyclon.py) --------------------------


class Descriptor(Struct, frozen=True, array_like=True, gc=False):
    """An entry of a view: a peer and how many cycles ago it last vouched for itself."""

    contact: Contact
    age: Annotated[int, Meta(ge=0, le=1 << 16)]


Descriptors: TypeAlias = Annotated[list[Descriptor], Meta(max_length=128)]


class OverlayNews(Struct, frozen=True, array_like=True, gc=False):
    """What every view exchange in a topic overlay carries along: the overlay's id (so that ids
    converge), the best size estimate known and the fingerprint of recent events."""

    overlay: Counter = 0
    size: Members = 0  # estimated members, 0 when nothing is known
    size_ms: Counter = 0  # age of that estimate
    recent: Counter = 0  # fingerprint of what has been seen (protocol/recent.py)


NO_NEWS = OverlayNews()


class ShuffleRequest(Message, frozen=True, tag=1):
    topic: WireTopic
    tick: Counter
    descriptors: Descriptors
    news: OverlayNews = NO_NEWS
    # Fingerprints of topics in the asker's access point table: a uniform sample of the active
    # topics, from which the asked peer estimates how many there are (TERA 4.2.2, footnote 7).
    topics_sample: Annotated[list[Counter], Meta(max_length=16)] = []


class ShuffleReply(Message, frozen=True, tag=2):
    topic: WireTopic
    tick: Counter
    descriptors: Descriptors
    news: OverlayNews = NO_NEWS
    member: bool = True  # False: the asked peer is not in this overlay (any more)


class JoinRequest(Message, frozen=True, tag=3):
    topic: WireTopic


class JoinReply(Message, frozen=True, tag=4):
    topic: WireTopic
    member: bool  # False: the asked peer is not in this overlay
    news: OverlayNews = NO_NEWS
    descriptors: Descriptors = []
    seen: Spans = []  # what was published before: the joiner starts after it


class JoinWalk(Message, frozen=True, tag=5):
    topic: WireTopic
    joiner: Contact
    steps: Annotated[int, Meta(ge=0, le=64)]


class JoinGift(Message, frozen=True, tag=6):
    """From the end of a join walk: the view entry that made room for the joiner."""

    topic: WireTopic
    descriptor: Descriptor


class LeaveNotice(Message, frozen=True, tag=7):
    topic: WireTopic


# --- size estimation (protocol/tera/size.py) ------------------------------------------------------


class SampleWalk(Message, frozen=True, tag=8):
    topic: WireTopic
    origin: Contact
    round: Counter
    steps: Annotated[int, Meta(ge=0, le=64)]


class SampleReply(Message, frozen=True, tag=9):
    """Sent to the origin by the peer at the end of the walk, which is the sample."""

    topic: WireTopic
    round: Counter


# --- TERA: advertisements, lookups, outer-cluster routing ------------------------------------


class Advert(Struct, frozen=True, array_like=True, gc=False):
    topic: WireTopic
    overlay: Counter
    popularity: Annotated[int, Meta(ge=1, le=MEMBERS_MAX)]


class Advertisement(Message, frozen=True, tag=10):
    adverts: Annotated[list[Advert], Meta(max_length=LIST_MAX)]


class Hint(Message, frozen=True, tag=29):
    """From a third peer that heard of two overlays of one topic: the other one is there."""

    topic: WireTopic
    overlay: Counter
    member: Contact


class TableEntry(Struct, frozen=True, array_like=True, gc=False):
    topic: WireTopic
    overlay: Counter
    access_point: Contact


class TableCopy(Message, frozen=True, tag=39):
    """A page of the sender's access point table, for somebody who has just joined."""

    entries: Annotated[list[TableEntry], Meta(max_length=LIST_MAX)]


class LookupWalk(Message, frozen=True, tag=11):
    topic: WireTopic
    origin: Contact
    lookup: Counter
    steps: Annotated[int, Meta(ge=0, le=4096)]
    avoid: Annotated[list[WirePeerId], Meta(max_length=AVOID_MAX)] = []  # known to be stale


class LookupHit(Message, frozen=True, tag=12):
    lookup: Counter
    access_point: Contact


class LookupMiss(Message, frozen=True, tag=13):
    """A walk ended without an answer; the origin need not wait for it."""

    lookup: Counter


class RouteEvent(Message, frozen=True, tag=14):
    topic: WireTopic
    event: Event
    again: bool = False  # the payload is left out: it came in another of the event's topics


class RouteResult(Message, frozen=True, tag=15):
    topic: WireTopic
    incarnation: Counter
    number: Counter
    accepted: bool  # False: not subscribed (any more), choose another access point


# --- stable links (protocol/tera/links.py, protocol/liveness.py) ----------------------------------


class LinkRequest(Message, frozen=True, tag=16):
    topic: WireTopic
    urgent: bool  # the asker has no other link, or was cut off from events
    recent: Counter = 0  # fingerprint of recent events, as in OverlayNews


class LinkReply(Message, frozen=True, tag=17):
    topic: WireTopic
    accepted: bool
    recent: Counter = 0


class Unlink(Message, frozen=True, tag=18):
    topic: WireTopic


class Ping(Message, frozen=True, tag=19):
    nonce: Counter
    links: Counter  # fingerprint of the topics in which the sender is linked to the receiver


class Pong(Message, frozen=True, tag=20):
    nonce: Counter
    links: Counter


class LinkList(Message, frozen=True, tag=21):
    """Sent when fingerprints differ: the topics in which the sender holds a link."""

    topics: Annotated[list[WireTopic], Meta(max_length=LIST_MAX)]
    first: bool  # False: an answer, not to be answered again


# --- inner-cluster dissemination (protocol/tera: tree.py, spread.py) and repair -----------------


class Payload(Message, frozen=True, tag=22):
    topic: WireTopic
    event: Event
    hops: Hops


class Again(Message, frozen=True, tag=34):
    """Pushes an event whose payload the receiver got, or sent, in another of its topics."""

    topic: WireTopic
    publisher: WirePeerId
    incarnation: Counter
    number: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
    hops: Hops
    first: Part  # of the event's topics


class IHave(Message, frozen=True, tag=23):
    topic: WireTopic
    spans: Spans


class Graft(Message, frozen=True, tag=24):
    """Send me these, and push to me from now on."""

    topic: WireTopic
    spans: Spans


class Prune(Message, frozen=True, tag=25):
    """Stop pushing to me; tell me lazily."""

    topic: WireTopic


class Offer(Message, frozen=True, tag=26):
    """Recent events the sender holds; sent when fingerprints of recent events differ."""

    topic: WireTopic
    spans: Spans
    first: bool  # False: an answer, not to be answered by another offer
    settle_ms: Counter = 0  # only events held for so long were offered; so shall the answer


class Want(Message, frozen=True, tag=27):
    topic: WireTopic
    spans: Spans


class Repair(Message, frozen=True, tag=28):
    """Events sent on request, outside the push."""

    topic: WireTopic
    events: Annotated[list[Event], Meta(max_length=LIST_MAX)]


AnyMessage: TypeAlias = Union[
    ShuffleRequest,
    ShuffleReply,
    JoinRequest,
    JoinReply,
    JoinWalk,
    JoinGift,
    LeaveNotice,
    SampleWalk,
    SampleReply,
    Advertisement,
    LookupWalk,
    LookupHit,
    LookupMiss,
    RouteEvent,
    RouteResult,
    LinkRequest,
    LinkReply,
    Unlink,
    Ping,
    Pong,
    LinkList,
    Payload,
    IHave,
    Graft,
    Prune,
    Offer,
    Want,
    Repair,
    Hint,
    TableCopy,
    Again,
    dht.DhtMessage,
    stan.StanMessage,
    history.HistoryMessage,
    pulsar.PulsarMessage,
    topic_dht.TopicDhtMessage,
]

PAYLOAD_KINDS = (Payload, Cast, Repair, RouteEvent)
"""Messages that carry events; all others are control."""


def payloads_in(message: AnyMessage) -> int:
    """How many events a message carries with their payload."""
    if isinstance(message, Repair):
        return len(message.events)
    if isinstance(message, RouteEvent):
        return 0 if message.again else 1
    return 1 if isinstance(message, Payload | Cast) else 0


__all__ = [
    "HOPS_MAX",
    "LIST_MAX",
    "PARTS_MAX",
    "PAYLOAD_BYTES_MAX",
    "AnyMessage",
    "Cast",
    "Event",
    "Part",
    "PeerId",
    "Span",
    "Spans",
    "Topic",
]
