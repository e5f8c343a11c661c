"""What peers say to each other about their roles in topics (protocol/topic_dht).

Every message names its topic. An operation between two peers is a `RoleRequest` of the initiator,
answered by a `RoleReply`, and for those that take several steps closed by a `RoleDone`. Whoever
changes the set of forwarders tells those around it (`Appeared`, `Vanished`) and sends its children
on (`Rejoin`). `RouteParent` to `IsChild` are those of the paper's Algorithm 1.

Events go down trees by `Cast`, and by `messages.Payload` in gossip and from a forwarder to its
children. A subscriber that begins asks what was published before (`SeenRequest`). `Beat` is said
over links from time to time: the two ends compare what they have seen.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, Union

from msgspec import Meta

from weft.ids import Contact, WirePeerId, WireTopic
from weft.protocol.wire import Counter, Event, Hops, Message, Spans
from weft.rules.prefix import BITS
from weft.rules.treecast import ROOTS_MAX

CONTACTS_MAX = 32
"""guess: forwarders named in one message."""
CHILDREN_MAX = 64
"""guess: bound on k, the children of a forwarder."""

Contacts: TypeAlias = Annotated[list[Contact], Meta(max_length=CONTACTS_MAX)]
Operation: TypeAlias = Literal[0, 1, 2, 3, 4, 5]
WireOperation: TypeAlias = Annotated[int, Meta(ge=0, le=5)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 32)]

LOOK: Operation = 0
"""How many children, locations and topics have you?"""
JOIN: Operation = 1
SPLIT: Operation = 2
REPLACE: Operation = 3
MAKECHILD: Operation = 4
SEAT: Operation = 5
"""Who sits on seat `seat` with you? The first is your own, the others are your children's."""

Verdict: TypeAlias = Annotated[int, Meta(ge=0, le=3)]
ACCEPTED = 0
ABORTED = 1
"""The operation's assumption does not hold (any more)."""
BUSY = 2
"""Another operation is under way."""
ABSENT = 3
"""The asked peer does not forward this topic."""


class RoleRequest(Message, frozen=True, tag=80):
    """op(p, q, t): the sender is p, the receiver q."""

    request: Counter
    topic: WireTopic
    operation: WireOperation
    locations: Count = 0  # |L_p| of the sender
    topics: Count = 0  # |T_p| of the sender
    seat: Count = 0  # with SEAT
    work: Count = 0  # subscribers that the sender serves, in all topics


class RoleReply(Message, frozen=True, tag=81):
    request: Counter
    verdict: Verdict
    forwarders: Contacts = []  # neighbours of the receiver in the topic; aborted: who is closer
    children: Count = 0  # |C_q|
    locations: Count = 0  # |L_q|
    topics: Count = 0  # |T_q|
    member: Contact | None = None  # with SEAT: who sits there


class RoleDone(Message, frozen=True, tag=82):
    """The initiator is through with the operation, or gives it up."""

    topic: WireTopic
    request: Counter
    done: bool


class Invite(Message, frozen=True, tag=83):
    """The sender, a forwarder, asks for this operation to be initiated with it."""

    topic: WireTopic
    operation: WireOperation


class Appeared(Message, frozen=True, tag=84):
    """The sender forwards the topic from now on; children closer to it are to be sent to it."""

    request: Counter
    topic: WireTopic


class Vanished(Message, frozen=True, tag=85):
    """The sender does not forward the topic any more."""

    topic: WireTopic


class Rejoin(Message, frozen=True, tag=86):
    """To a child: find your closest forwarder anew; these may be it."""

    request: Counter
    topic: WireTopic
    forwarders: Contacts = []


class Forget(Message, frozen=True, tag=87):
    """The sender is not the receiver's child (any more)."""

    topic: WireTopic


class RouteParent(Message, frozen=True, tag=88):
    """Find the sender's closest forwarder."""

    topic: WireTopic


class IsParent(Message, frozen=True, tag=89):
    """You were found to be the closest forwarder to `child`."""

    topic: WireTopic
    child: Contact


class IsChild(Message, frozen=True, tag=90):
    """The sender has the receiver among its children."""

    topic: WireTopic
    forwarders: Contacts = []
    topics: Count = 0  # |T_q| of the sender
    children: Count = 0  # |C_q|
    work: Count = 0  # subscribers that the sender serves, in all topics


class Cast(Message, frozen=True, tag=91):
    """An event, for all members that share the receiver's first `charge` bits."""

    topic: WireTopic
    event: Event
    hops: Hops
    charge: Annotated[int, Meta(ge=0, le=BITS)]
    tree: Annotated[int, Meta(ge=0, le=ROOTS_MAX - 1)] = 0  # of the trees it goes out by
    roots: Annotated[list[WirePeerId], Meta(max_length=ROOTS_MAX)] = []  # of several trees


class SeenRequest(Message, frozen=True, tag=92):
    """What was published in the topic so far?"""

    request: Counter
    topic: WireTopic


class SeenReply(Message, frozen=True, tag=93):
    request: Counter
    member: bool  # False: the asked peer is not subscribed
    seen: Spans = []


class Beat(Message, frozen=True, tag=94):
    """The sender has a link to the receiver and has seen events with this fingerprint."""

    topic: WireTopic
    recent: Counter  # as in OverlayNews
    fresh: bool = False  # a new link: nothing is on its way over it, so compare at once


TopicDhtMessage: TypeAlias = Union[
    RoleRequest,
    RoleReply,
    RoleDone,
    Invite,
    Appeared,
    Vanished,
    Rejoin,
    Forget,
    RouteParent,
    IsParent,
    IsChild,
    Cast,
    SeenRequest,
    SeenReply,
    Beat,
]
