"""Everything one peer can say to another, as one union for the decoder.

Each message stands beside the layer that speaks it. Messages are plain typed records; the network
driver encodes them with msgpack (see `net/codec.py`), the simulator hands them over as they are.
`topic` names the overlay a message belongs to; the empty topic is the general overlay. Every list
has a bound, checked when a message is decoded, so that no peer can make another build something
without limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, Union

from weft.documents.run import Run
from weft.protocol.flood import FloodMember
from weft.protocol.history.blocks import BlocksReply, BlocksRequest
from weft.protocol.history.ownership import TopicNews
from weft.protocol.history.reader import PageReply, PageRequest
from weft.protocol.history.stream import Heads
from weft.protocol.history.wishes import SubTopicReply, SubTopicRequest
from weft.protocol.kademlia.rpc import DhtMessage
from weft.protocol.liveness import LinkList, Ping, Pong
from weft.protocol.membership import (
    JoinGift,
    JoinReply,
    JoinRequest,
    JoinWalk,
    LeaveNotice,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.multi_topic import Again
from weft.protocol.publication import RouteCheck, RouteEvent, RouteKnown, RouteResult
from weft.protocol.pulsar.pulsar import PulsarMessage
from weft.protocol.recent import IHave, Offer, Repair, Want
from weft.protocol.tera.tera import TeraMessage
from weft.protocol.topic_dht.events import Cast
from weft.protocol.topic_dht.topic_dht import TopicDhtMessage
from weft.protocol.wire import Message, Payload

AnyMessage: TypeAlias = Union[
    ShuffleRequest,
    ShuffleReply,
    JoinRequest,
    JoinReply,
    JoinWalk,
    JoinGift,
    LeaveNotice,
    RouteEvent,
    RouteResult,
    RouteCheck,
    RouteKnown,
    Ping,
    Pong,
    LinkList,
    Payload,
    IHave,
    Offer,
    Want,
    Repair,
    Again,
    FloodMember,
    DhtMessage,
    TeraMessage,
    Heads,
    BlocksRequest,
    BlocksReply,
    PageRequest,
    PageReply,
    TopicNews,
    SubTopicRequest,
    SubTopicReply,
    PulsarMessage,
    TopicDhtMessage,
]

PAYLOAD_KINDS = (Payload, Cast, Repair, RouteEvent)
"""Messages that carry events (`Message.carries`); all others are control."""


def runs_in(message: Message) -> Sequence[Run]:
    """The runs that a message carries with their payloads: each is one copy of its events."""
    if isinstance(message, Repair):
        return message.runs
    if isinstance(message, RouteEvent):
        return () if message.again else (message.run,)
    return (message.run,) if isinstance(message, Payload | Cast) else ()


def copies_in(message: Message) -> int:
    """How many copies of events a message brings to its receiver.

    Copies per delivery are these, added up over the messages that peers received, over deliveries
    at peers other than the publisher: in the simulator, in traces (a RecvRPC record lists each
    copy, `weft.trace.rpc_meta`, and the pipeline counts them) and in all that read either. A
    message that is lost on its way brings none.
    """
    return sum(len(run.payloads) for run in runs_in(message))
