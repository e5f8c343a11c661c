"""The seam between a peer's state machines and their driver.

A driver (`weft.net` on a real network, `weft.sim` in virtual time) feeds inputs, which are facts
in the past tense, and carries out effects, which are wishes in the imperative:

    effects = peer.handle(input, now)

The machines do no I/O, hold no clock and draw no randomness but keyed draws. Timers are never
cancelled: each carries enough to tell whether it still means something when it fires.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, Union, get_args

from msgspec import Struct

from weft.documents.run import Run
from weft.ids import Cid, Contact, PeerId, Topic
from weft.protocol.wire import Message
from weft.store.interface import Retention, Since

if TYPE_CHECKING:
    from weft.documents.descriptor import SealedEvent, TopicVersion

Millis: TypeAlias = int
"""A time or a duration in milliseconds. Machines only compare times of the same peer."""

Strength: TypeAlias = Literal["taken", "stored"]
"""What other peers can say of an event: that they have it, or that it is on their disk."""

Scheme: TypeAlias = Literal["tree", "gossip", "flood"]
"""How an event travels inside its topic's overlay."""
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)


# --- inputs -----------------------------------------------------------------------------------


class Started(Struct, frozen=True, gc=False):
    """The peer is up. `incarnation` must be larger than in any earlier life of this identity."""

    incarnation: int
    contacts: tuple[Contact, ...] = ()  # known peers to join by
    wall_ms: int = 0  # the wall clock now; 0 where the peer's own clock serves as one


class ClockMoved(Struct, frozen=True, gc=False):
    """The wall clock has left the peer's own behind: the machine slept, which stops only the peer's
    clock, or the wall clock was set."""

    wall_ms: int  # the wall clock now


class Received(Struct, frozen=True, gc=False):
    """Another peer's message came, over a connection that proves its sender."""

    sender: Contact
    message: Message


class Timer(Struct, frozen=True, gc=False):
    """What to do when it fires. `serial` tells a live timer from a stale one."""

    kind: str
    topic: Topic = Topic("")
    serial: int = 0


class TimerFired(Struct, frozen=True, gc=False):
    """A timer that `SetTimer` asked for has run out."""

    timer: Timer


class PeerLost(Struct, frozen=True, gc=False):
    """A connection broke or could not be made; messages on their way may be lost."""

    peer: PeerId


class Stalled(Struct, frozen=True, gc=False):
    """Messages to this peer have not left: its connection cannot be begun yet, because this side is
    making too many others. `Resumed` or `PeerLost` follows."""

    peer: PeerId


class Resumed(Struct, frozen=True, gc=False):
    """Messages to this peer leave now."""

    peer: PeerId


class Join(Struct, frozen=True, gc=False):
    """Command: enter the network (again) through these peers."""

    contacts: tuple[Contact, ...]


class Subscribe(Struct, frozen=True, gc=False):
    """Command: subscribe to a topic. `token` comes back in the `Answer`."""

    token: int
    topic: Topic
    scheme: Scheme | None = None  # None: the configured one; TERA alone leaves a choice
    since: Since | None = None  # with history: bring the past from there on, too


class Stored(Struct, frozen=True, gc=False):
    """The store has taken the events of the `Store` with this token, durably; or could not."""

    token: int
    error: str = ""  # why not


class Pruned(Struct, frozen=True, gc=False):
    """The store has dropped the oldest events of a topic, as a `Prune` asked for."""

    topic: Topic
    events: int


class ChangeTopic(Struct, frozen=True, gc=False):
    """Command: write the next version of a topic that this peer holds, or with `create` its
    first one. Answered "stored" with the version's CID once it is durable, or "refused"."""

    token: int
    topic: Topic
    create: bool = False
    owners: tuple[PeerId, ...] = ()  # with `create`: those that hold the topic with this peer
    anyone: bool | None = None  # whether anyone may publish; None: as it is
    allow: tuple[PeerId, ...] = ()
    revoke: tuple[PeerId, ...] = ()
    sub_topic: str = ""  # the segment to add under `#`; created where there is none
    hierarchy: bool = False  # with `create`: events of sub-topics count in it, too
    made_from: Cid | None = None  # with `create`: a version of another topic, whose history it has


class AskSubTopic(Struct, frozen=True, gc=False):
    """Command: ask the topic's owners for a sub-topic. Answered "stored" if they hung it there,
    "queued" if it waits for their word, "refused", or "not_found" if none could be asked."""

    token: int
    topic: Topic
    segment: str


class FollowTopic(Struct, frozen=True, gc=False):
    """Command: these keys hold the topic; find its newest version and keep to it."""

    token: int
    topic: Topic
    holders: tuple[PeerId, ...]


class Unsubscribe(Struct, frozen=True, gc=False):
    """Command: end the subscription to a topic."""

    token: int
    topic: Topic


class Publish(Struct, frozen=True, gc=False):
    """Command: publish in this topic alone; for a topic in a hierarchy see `Peer.levels`. All that
    a user publishes in a topic in one turn of a driver's loop is one command: its events become one
    run, with one answer."""

    token: int
    topic: Topic
    payloads: tuple[bytes, ...]  # at most RUN_MAX, RUN_BYTES_MAX bytes; `documents/headers.py`
    published_ms: int  # wall clock of the publisher, for the reader's information only
    goes_on: bool = False  # the caller does not wait: a run on its way is "queued" at once


class FindEvent(Struct, frozen=True, gc=False):
    """Command, with history, of a subscriber: get an event of the topic by its CID, from here or
    from members. Answered "found" with the block as `value`, or "not_found"; that may take long."""

    token: int
    topic: Topic
    cid: Cid


class AskHeads(Struct, frozen=True, gc=False):
    """Command, with history, of a subscriber: have a member say where the topic's stream ends. It
    is not answered; `History.told` has the member's word once that has come."""

    topic: Topic


class Confirm(Struct, frozen=True, gc=False):
    """Command: have other peers say that they have a run that this peer published, or that it is
    stored with them. Answered "found" with `contacts`, the peers that said so; "refused" with the
    reason if every member that could be asked refuses it; or "dropped" when the time is up, with
    the peers that did say so."""

    token: int
    topic: Topic
    run: Run
    strength: Strength
    copies: int
    timeout_ms: Millis
    access_point: Contact | None = None  # that took the run


class DhtPut(Struct, frozen=True, gc=False):
    """Command: have the closest peers hold a value. A key's first byte is its kind."""

    token: int
    key: bytes
    value: bytes
    life_ms: Millis = 0  # 0: as long as may be


class DhtGet(Struct, frozen=True, gc=False):
    """Command: find the value under a key."""

    token: int
    key: bytes
    quorum: int = 0  # valid answers to wait for; 0: the configured number


class DhtProvide(Struct, frozen=True, gc=False):
    """Command: tell the closest peers that this one has what the key names; or stop telling."""

    token: int
    key: bytes
    stop: bool = False


class DhtFindProviders(Struct, frozen=True, gc=False):
    """Command: find peers that provide a key, at most `wanted`."""

    token: int
    key: bytes
    wanted: int


class DhtFindPeer(Struct, frozen=True, gc=False):
    """Command: find where a peer listens."""

    token: int
    peer: PeerId
    local: bool = False  # only among the peers this one knows


class DhtClosest(Struct, frozen=True, gc=False):
    """Command: find the k closest peers to a location (32 bytes), this one included."""

    token: int
    location: bytes


DhtCommand: TypeAlias = Union[DhtPut, DhtGet, DhtProvide, DhtFindProviders, DhtFindPeer, DhtClosest]


class PublishTogether(Struct, frozen=True, gc=False):
    """Command: publish one event in several topics, each with its token and its answer."""

    tokens: tuple[int, ...]
    topics: tuple[Topic, ...]
    payload: bytes
    published_ms: int


class Collect(Struct, frozen=True, gc=False):
    """Command: look for neighbours that rank higher, in all topics, without waiting for the
    period (see `protocol/tera/stan.py`)."""


class Leave(Struct, frozen=True, gc=False):
    """Command: say goodbye to everybody; the driver closes once the effects are carried out."""


TopicCommand: TypeAlias = Union[ChangeTopic, FollowTopic, AskSubTopic, FindEvent]
Command: TypeAlias = Union[
    Join,
    Subscribe,
    Unsubscribe,
    Publish,
    PublishTogether,
    Confirm,
    AskHeads,
    Collect,
    Leave,
    DhtCommand,
    TopicCommand,
]
Input: TypeAlias = Union[
    Started,
    ClockMoved,
    Received,
    TimerFired,
    PeerLost,
    Stalled,
    Resumed,
    Stored,
    Pruned,
    Command,
]


# --- effects ----------------------------------------------------------------------------------


class Send(Struct, frozen=True, gc=False):
    """Send a message to a peer, over a connection that is made if there is none."""

    to: Contact
    message: Message


class SetTimer(Struct, frozen=True, gc=False):
    """Hand the timer back (`TimerFired`) after `after_ms`."""

    after_ms: Millis
    timer: Timer


class Deliver(Struct, frozen=True, gc=False):
    """Hand the events of a run to the application that subscribed to their topic."""

    topic: Topic
    run: Run  # with the payloads as they were published (without `descriptor`: in envelopes, if
    # they have headers, see `documents/headers.py`); its signature is not theirs any more
    hops: int
    descriptor: SealedEvent | None = None  # with history: the signed event, the run's only one
    published_in: Topic | None = None  # where, if it climbed from a sub-topic


class Store(Struct, frozen=True, gc=False):
    """Store these together, durably, and say so (`Stored`)."""

    token: int
    events: tuple[SealedEvent, ...]
    topics: tuple[TopicVersion, ...] = ()
    records: tuple[tuple[bytes, bytes], ...] = ()  # topic records and their names
    lost: tuple[tuple[Topic, Cid], ...] = ()  # parents that nobody has any more
    beginnings: tuple[tuple[Topic, bytes], ...] = ()  # where subscriptions begin


class Prune(Struct, frozen=True, gc=False):
    """Drop the events of a topic that need not be kept from the store, and say so (`Pruned`)."""

    topic: Topic
    retention: Retention


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
    "queued",  # Publish: kept or on its way, and a final answer follows. AskSubTopic: it waits
    "no_subscriber",  # Publish: the lookup found nobody
    # Publish: given up after it was queued, or the queue is full. Confirm: too few said so in time.
    "dropped",  # DHT commands: too many at once
    "stored",  # DhtPut, DhtProvide: `count` peers took it. ChangeTopic, AskSubTopic: done
    "found",  # the other DHT commands, FollowTopic, FindEvent; Confirm: enough peers say so
    "not_found",  # the same, where there is nothing; AskSubTopic: no owner could be asked
    "failed",  # DhtPut, DhtProvide: no peer took it. Publish, ChangeTopic: the store failed
    "refused",  # DHT commands: not valid, or the DHT is off. Else the reason says why
]


class Answer(Struct, frozen=True, gc=False):
    """What became of the command with this token."""

    token: int
    outcome: Outcome
    contact: Contact | None = None  # the access point, where there is one
    run: Run | None = None  # Publish, PublishTogether: the events, once they are numbered
    # DhtGet; ChangeTopic, FollowTopic: the CID of the version; FindEvent: the block
    value: bytes | None = None
    contacts: tuple[Contact, ...] = ()  # DhtFindProviders, DhtClosest; Confirm: those that said so
    count: int = 0  # DhtPut, DhtProvide
    reason: str = ""  # why it failed
    alone: bool = False  # Publish: this peer spreads it and knows no other peer to spread it to


class Warn(Struct, frozen=True, gc=False):
    """Tell the user that another peer lies, refuses this peer's events or claims its topic."""

    text: str


class Trace(Struct, frozen=True, gc=False):
    """A record for the trace: one of libp2p's names and its fields (see `weft.trace`)."""

    kind: str
    fields: dict[str, object]


Effect: TypeAlias = Union[
    Send, SetTimer, Deliver, Store, Prune, Hold, Release, Disconnect, Answer, Warn, Trace
]


class Machine(Protocol):
    """Every state machine that a driver drives."""

    def handle(self, fact: Input, now: Millis) -> list[Effect]: ...
