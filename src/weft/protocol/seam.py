"""The seam between a peer's state machines and whoever drives them.

A driver (`weft.net` on a real network, `weft.sim` in virtual time) feeds inputs, which are facts
in the past tense, and carries out effects, which are wishes in the imperative:

    effects = peer.handle(input, now)

The machines do no I/O, hold no clock and draw no randomness but keyed draws. Timers are never
cancelled: each carries enough to tell whether it still means something when it fires.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias, Union

from msgspec import Struct

from weft.ids import Contact, PeerId, Topic
from weft.protocol.messages import AnyMessage, Event

Millis: TypeAlias = int
"""A time or a duration in milliseconds. Machines only compare times of the same peer."""

Scheme: TypeAlias = Literal["tree", "gossip", "flood"]
"""How an event travels inside its topic's overlay."""


# --- inputs -----------------------------------------------------------------------------------


class Started(Struct, frozen=True, gc=False):
    """The peer is up. `incarnation` must be larger than in any earlier life of this identity."""

    incarnation: int
    contacts: tuple[Contact, ...] = ()  # known peers to join by


class Received(Struct, frozen=True, gc=False):
    sender: Contact
    message: AnyMessage


class Timer(Struct, frozen=True, gc=False):
    """What to do when it fires. `serial` tells a live timer from a stale one."""

    kind: str
    topic: Topic = Topic("")
    serial: int = 0


class TimerFired(Struct, frozen=True, gc=False):
    timer: Timer


class PeerLost(Struct, frozen=True, gc=False):
    """A connection broke or could not be made; messages on their way may be lost."""

    peer: PeerId


class Join(Struct, frozen=True, gc=False):
    """Command: enter the network (again) through these peers."""

    contacts: tuple[Contact, ...]


class Subscribe(Struct, frozen=True, gc=False):
    """Command. `token` comes back in the `Answer`."""

    token: int
    topic: Topic
    scheme: Scheme | None = None  # None: the configured one


class Unsubscribe(Struct, frozen=True, gc=False):
    token: int
    topic: Topic


class Publish(Struct, frozen=True, gc=False):
    token: int
    topic: Topic
    payload: bytes
    published_ms: int  # wall clock of the publisher, for the reader's information only


class Leave(Struct, frozen=True, gc=False):
    """Command: say goodbye to everybody; the driver closes once the effects are carried out."""


Command: TypeAlias = Union[Join, Subscribe, Unsubscribe, Publish, Leave]
Input: TypeAlias = Union[Started, Received, TimerFired, PeerLost, Command]


# --- effects ----------------------------------------------------------------------------------


class Send(Struct, frozen=True, gc=False):
    to: Contact
    message: AnyMessage


class SetTimer(Struct, frozen=True, gc=False):
    after_ms: Millis
    timer: Timer


class Deliver(Struct, frozen=True, gc=False):
    """Hand an event to the application that subscribed to its topic."""

    topic: Topic
    event: Event
    hops: int


class Hold(Struct, frozen=True, gc=False):
    """Keep the connection to this peer open: a link runs over it."""

    contact: Contact


class Release(Struct, frozen=True, gc=False):
    """No link needs the connection any more; close it when it falls idle."""

    peer: PeerId


class Disconnect(Struct, frozen=True, gc=False):
    """Close the connection now: the peer broke the protocol or does not answer."""

    peer: PeerId
    reason: str


Outcome: TypeAlias = Literal[
    "joined",  # Subscribe: entered an existing overlay
    "instantiated",  # Subscribe: nobody found, started a new overlay
    "already",  # Subscribe or Unsubscribe: nothing to do
    "left",  # Unsubscribe: done
    "delivered",  # Publish: an access point (perhaps this peer) diffuses it
    "queued",  # Publish: no way out yet; kept, and a final answer follows
    "no_subscriber",  # Publish: the lookup found nobody
    "dropped",  # Publish: gave up after it was queued, or the queue is full
]


class Answer(Struct, frozen=True, gc=False):
    """What became of the command with this token."""

    token: int
    outcome: Outcome
    contact: Contact | None = None  # the access point, where there is one
    event: Event | None = None


class Trace(Struct, frozen=True, gc=False):
    """A record for the trace: one of libp2p's names and its fields (see `weft.trace`)."""

    kind: str
    fields: dict[str, object]


Effect: TypeAlias = Union[Send, SetTimer, Deliver, Hold, Release, Disconnect, Answer, Trace]


class Machine(Protocol):
    """Every state machine that a driver drives."""

    def handle(self, fact: Input, now: Millis) -> list[Effect]: ...
