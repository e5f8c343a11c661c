"""What peers say to each other in a DHT (protocol/kademlia); part of `messages.AnyMessage`.

`space` names the DHT: its metric and how locations follow from a role and a peer. `role` names one
of the receiver's locations in it, `sender_role` the one the sender speaks from; in the plain space
both are empty. A location is never told: whoever hears of a neighbour computes it from the role
and the peer id, so that nobody can claim a place that is not theirs. `request` is chosen by the
asker and comes back in the answer.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, Union

from msgspec import Meta, Struct

from weft.ids import GENERAL, Contact, WireTopic
from weft.protocol.wire import Counter, Message

LOCATION_BYTES_MAX = 64
"""A location in the plain space has 32 bytes, hash(topic) ∘ hash(peer) has 64."""
KEY_BYTES_MAX = 65
"""guess: a kind byte and the longest usual digest."""
VALUE_BYTES_MAX = 2 << 20
"""guess: an event of the largest size and what is around it; two of them fit a frame."""
NEIGHBOURS_MAX = 64
"""guess: bound on k."""

Location: TypeAlias = Annotated[bytes, Meta(max_length=LOCATION_BYTES_MAX)]
RecordKey: TypeAlias = Annotated[bytes, Meta(max_length=KEY_BYTES_MAX)]
Value: TypeAlias = Annotated[bytes, Meta(max_length=VALUE_BYTES_MAX)]
Space: TypeAlias = Annotated[int, Meta(ge=0, le=255)]
Want: TypeAlias = Literal[0, 1, 2]

NODES: Want = 0
VALUE: Want = 1
PROVIDERS: Want = 2


class Neighbour(Struct, frozen=True, array_like=True, gc=False):
    """A peer and the role it has there; its location follows from both."""

    contact: Contact
    role: WireTopic = GENERAL


class FindRequest(Message, frozen=True, tag=40):
    """Whom do you know closest to the target? And do you hold what `want` asks for?"""

    request: Counter
    space: Space
    role: WireTopic
    sender_role: WireTopic
    target: Location
    want: Annotated[int, Meta(ge=0, le=2)] = NODES
    key: RecordKey = b""
    most: Annotated[int, Meta(ge=1, le=NEIGHBOURS_MAX)] = 20  # neighbours in the answer


class FindReply(Message, frozen=True, tag=41):
    request: Counter
    member: bool  # False: the asked peer is not (any more) at the location it was asked at
    closer: Annotated[list[Neighbour], Meta(max_length=NEIGHBOURS_MAX)] = []
    found: bool = False  # there is a value
    value: Value = b""
    providers: Annotated[list[Contact], Meta(max_length=NEIGHBOURS_MAX)] = []


class StoreValue(Message, frozen=True, tag=42):
    """Hold this for others, for at most so long."""

    request: Counter
    key: RecordKey
    value: Value
    life_ms: Counter


class AddProvider(Message, frozen=True, tag=43):
    """The sender (and nobody else can say so) has what `key` names."""

    request: Counter
    key: RecordKey


class StoreReply(Message, frozen=True, tag=44):
    request: Counter
    accepted: bool


class Probe(Message, frozen=True, tag=45):
    """Are you still there, at this location?"""

    request: Counter
    space: Space
    role: WireTopic


class ProbeReply(Message, frozen=True, tag=46):
    request: Counter
    member: bool


DhtMessage: TypeAlias = Union[
    FindRequest, FindReply, StoreValue, AddProvider, StoreReply, Probe, ProbeReply
]
