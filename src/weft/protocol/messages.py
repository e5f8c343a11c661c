"""Everything one peer can say to another, as one union for whoever decodes it.

Each message stands beside the layer that speaks it. Messages are plain typed records; the network
driver encodes them with msgpack (see `net/codec.py`), the simulator hands them over as they are.
`topic` names the overlay a message belongs to; the empty topic is the general overlay. Every list
has a bound, checked when a message is decoded, so that no peer can make another build something
without limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, Union

from weft.protocol.cyclon import (
    JoinGift,
    JoinReply,
    JoinRequest,
    JoinWalk,
    LeaveNotice,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.flooding import FloodMember
from weft.protocol.liveness import Ping, Pong
from weft.protocol.messages_dht import DhtMessage
from weft.protocol.messages_history import HistoryMessage
from weft.protocol.messages_pulsar import PulsarMessage
from weft.protocol.messages_stan import StanMessage
from weft.protocol.messages_topic_dht import Cast, TopicDhtMessage
from weft.protocol.publishing import RouteEvent, RouteResult
from weft.protocol.recent import Offer, Repair, Want
from weft.protocol.tera.access_points import Advertisement, Hint, TableCopy
from weft.protocol.tera.links import LinkList, LinkRelease, LinkReply, LinkRequest, Unlink
from weft.protocol.tera.lookup import LookupHit, LookupMiss, LookupWalk
from weft.protocol.tera.size import SampleReply, SampleWalk
from weft.protocol.tera.tree import Graft, IHave, Prune
from weft.protocol.twins import Again
from weft.protocol.wire import Event, Message, Payload

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
    LinkRelease,
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
    FloodMember,
    DhtMessage,
    StanMessage,
    HistoryMessage,
    PulsarMessage,
    TopicDhtMessage,
]

PAYLOAD_KINDS = (Payload, Cast, Repair, RouteEvent)
"""Messages that carry events; all others are control."""


def events_in(message: Message) -> Sequence[Event]:
    """The events that a message carries with their payload: each is one copy of the event."""
    if isinstance(message, Repair):
        return message.events
    if isinstance(message, RouteEvent):
        return () if message.again else (message.event,)
    return (message.event,) if isinstance(message, Payload | Cast) else ()
