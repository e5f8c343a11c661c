"""What peers say to each other in a topic's multicast tree (protocol/pulsar); part of
`messages.AnyMessage`. At the end, what subscribers say where events are flooded.

Events themselves travel as `Payload` and, from those outside the tree, as `RouteEvent`.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias, Union

from msgspec import Meta

from weft.ids import Contact, WireTopic
from weft.protocol.wire import Counter, Message, Spans

FAMILY_MAX = 16
"""guess: peers of one kind that one message names."""
PATH_WIRE_MAX = 32
"""As many ancestors as a member can have (rules/multicast.py)."""

AGE_MAX = 1 << 16

Contacts: TypeAlias = Annotated[list[Contact], Meta(max_length=FAMILY_MAX)]


class TreeJoin(Message, frozen=True, tag=70):
    """Take me as your child."""

    topic: WireTopic
    subscribed: bool  # False: a former rendezvous that has children still
    root: bool = False  # you are among the closest to the topic's id: begin a tree if need be
    fresh: bool = False  # a new subscriber, that does not want what came before


class TreeJoinReply(Message, frozen=True, tag=71):
    topic: WireTopic
    accepted: bool
    subscribed: bool = False  # whether the new parent is
    instead: Contacts = []  # not accepted for want of room: try these children of mine
    recent: Counter = 0  # fingerprint of what the new parent has seen
    seen: Spans = []  # to a new subscriber: what was published before


class TreeFamily(Message, frozen=True, tag=72):
    """From a parent, passed down from the roots every cycle: who is around and above."""

    topic: WireTopic
    beat: Counter  # of the root, counted up every cycle
    age: Annotated[int, Meta(ge=0, le=AGE_MAX)]  # cycles since the parent heard of a new one
    subscribed: bool  # whether the parent is
    path: Annotated[
        list[Contact], Meta(max_length=PATH_WIRE_MAX)
    ]  # above the parent, nearest first
    rendezvous: Contacts
    siblings: Contacts  # some subscribers near by
    recent: Counter = 0  # fingerprint of what the parent has seen


class TreeLeave(Message, frozen=True, tag=73):
    """There is no link between us in this tree (any more)."""

    topic: WireTopic
    instead: Contacts = []  # where children may go


class RendezvousSync(Message, frozen=True, tag=74):
    """Between the roots of a topic's tree: what each of them serves."""

    topic: WireTopic
    beat: Counter
    subscribed: bool
    children: Counter
    rendezvous: Contacts  # those that the sender is joined to
    members: Contacts  # some of the sender's children that are subscribed
    answer: bool  # whether one is wanted
    recent: Counter = 0  # fingerprint of what the sender has seen


PulsarMessage: TypeAlias = Union[TreeJoin, TreeJoinReply, TreeFamily, TreeLeave, RendezvousSync]
