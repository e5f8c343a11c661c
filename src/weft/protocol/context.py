"""What all layers of one peer share: its name, its settings, its draws, and its outbox of effects.

Layers append effects to the context's outbox; a lower layer tells upper ones by signals (facts
such as `LinkUp`), which `peer.py` hands on after each step, so no layer calls upwards. Signals that
several layers use stand here, others beside the layer that tells them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct

from weft.bounded import BoundedDict
from weft.ids import Contact, PeerId, Topic, peer_number, peer_text
from weft.protocol.quota import Walks
from weft.protocol.seam import Answer, Effect, Millis, Send, SetTimer, Timer, Trace
from weft.protocol.wire import Message
from weft.rules.draw import absorb, below

if TYPE_CHECKING:
    from weft.documents.descriptor import SealedEvent
    from weft.protocol.config import Config  # composed of the layers' own, which stand above

T = TypeVar("T")

Handler: TypeAlias = Callable[[Contact, Any], object]
Handlers: TypeAlias = dict[type, Handler]
"""What to do with a message and its sender, by the kind of message."""
Commands: TypeAlias = dict[type, Callable[[Any], None]]
"""By kind of fact or command that the driver brings."""
Timers: TypeAlias = dict[str, Callable[[Timer], None]]
Signals: TypeAlias = dict[type, Callable[[Any], None]]

_RESUMED_MAX = 128
"""guess: peers remembered to which messages left late."""


class Signal(Struct, frozen=True, gc=False):
    """Base of what a layer tells those above it."""


class LinkUp(Signal, frozen=True, gc=False):
    """A stable link in a topic stands; both ends may push events over it."""

    topic: Topic
    contact: Contact
    recent: int  # the other end's fingerprint of recent events


class LinkDown(Signal, frozen=True, gc=False):
    """A stable link in a topic is gone."""

    topic: Topic
    peer: PeerId


class LookupDone(Signal, frozen=True, gc=False):
    """A lookup that `Routing.find` began has ended; no contacts means that nobody was found.

    `lost`: the lookup went astray, since its questions died with the peers they went to. Then it
    does not show that there is nobody."""

    lookup: int
    topic: Topic
    contacts: tuple[Contact, ...]
    lost: bool = False


class Late(Signal, frozen=True, gc=False):
    """These peers, or peers that they passed a message on to, should have answered by now: they may
    be dead."""

    contacts: tuple[Contact, ...]


class PeerGone(Signal, frozen=True, gc=False):
    """A peer said goodbye."""

    peer: PeerId


class PeerBack(Signal, frozen=True, gc=False):
    """A peer that was given up for its silence speaks again; it was linked in these topics."""

    contact: Contact
    topics: tuple[Topic, ...]


class NeighboursFound(Signal, frozen=True, gc=False):
    """The general view was empty and is no more."""


class MemberMet(Signal, frozen=True, gc=False):
    """A routing has come to know another subscriber of a topic, which may know the stream."""

    topic: Topic
    contact: Contact


class Arrived(Signal, frozen=True, gc=False):
    """With history: routing brought an event, which was opened and found whole."""

    event: SealedEvent
    source: Contact | None
    hops: int


class FarBehind(Signal, frozen=True, gc=False):
    """With history: this peer reads a topic's past and has far to go (`far`), so that pages bring
    new events sooner than it could hand them out; or it is nearly level."""

    topic: Topic
    far: bool


class Context:
    """The context of one peer, shared by all its layers."""

    def __init__(self, me: Contact, seed: int, config: Config) -> None:
        self.me = me
        self.number = peer_number(me.peer)
        self.seed = seed
        self.config = config
        self.tracing = config.trace
        self.incarnation = 0
        self.cycle = 0  # how many have begun in this life
        self.now: Millis = 0
        self.wall_offset_ms: Millis = 0  # from `now` to the wall clock
        self.out: list[Effect] = []
        self.signals: deque[Signal] = deque()
        self.counters: dict[str, int] = defaultdict(int)
        self.serial = 0
        # Peers that messages to have not left for; as many as the driver lets wait.
        self._stalled: set[PeerId] = set()
        self._resumed: BoundedDict[PeerId, Millis] = BoundedDict(_RESUMED_MAX)
        self._walks = Walks()
        self._quiet: dict[int, Callable[[Answer], None]] = {}
        self._bases: dict[int, int] = {}
        self._ticks: dict[int, int] = defaultdict(int)

    @property
    def wall_ms(self) -> Millis:
        """The wall clock, for dates that peers tell each other."""
        return self.now + self.wall_offset_ms

    # --- one fact after the other ---------------------------------------------------------------

    def start(self, incarnation: int, wall_ms: Millis) -> None:
        """A life of this peer begins; `wall_ms` is 0 where its own clock serves as the wall's."""
        self.incarnation = incarnation
        if wall_ms:
            self.set_wall(wall_ms)
        else:
            self.wall_offset_ms = 0

    def set_wall(self, wall_ms: Millis) -> Millis:
        """Set the wall clock; returns by how much more than this peer's own clock it has advanced
        since it was set last."""
        before, self.wall_offset_ms = self.wall_offset_ms, wall_ms - self.now
        return self.wall_offset_ms - before

    def begin(self, now: Millis) -> None:
        """The next fact came at this time."""
        self.now = now

    def next_cycle(self) -> int:
        """A cycle begins, by which layers measure their upkeep; returns its number."""
        self.cycle += 1
        return self.cycle

    def take_effects(self) -> list[Effect]:
        """All effects since the last call."""
        effects, self.out = self.out, []
        return effects

    # --- others' walks --------------------------------------------------------------------------

    def carries_walk(self, sender: Contact, steps: int) -> bool:
        """Whether this peer passes on a walk of another one, with so many `steps` left."""
        if not self.config.defence.rates or self._walks.takes(sender.peer, steps, self.now):
            return True
        self.counters["walks_refused"] += 1
        return False

    # --- what has not left yet ----------------------------------------------------------------

    def on_stalled(self, peer: PeerId) -> None:
        self._stalled.add(peer)

    def end_stall(self, peer: PeerId, lost: bool) -> None:
        """Messages to this peer wait no longer: they leave, or are lost with it."""
        self._stalled.discard(peer)
        if not lost:
            self._resumed.renew(peer, self.now)

    def is_stalled(self, peer: PeerId) -> bool:
        """Whether messages to this peer wait on this side."""
        return peer in self._stalled

    def has_had_time(self, peer: PeerId, since: Millis, limit_ms: Millis) -> bool:
        """Whether a peer that was asked at the time `since` has had `limit_ms` to answer. The time
        in which the question waited on this side does not count."""
        left = max(since, self._resumed.get(peer, since)) if self._resumed else since
        return left + limit_ms <= self.now and peer not in self._stalled

    # --- wishes -------------------------------------------------------------------------------

    def send(self, to: Contact, message: Message) -> None:
        self.out.append(Send(to, message))

    def answer(self, answer: Answer) -> None:
        """Answer a command: the driver's, or one that a layer gave `quietly`."""
        then = self._quiet.pop(answer.token, None)
        if then is not None:
            then(answer)
        else:
            self.out.append(answer)

    def quietly(self, then: Callable[[Answer], None]) -> int:
        """A token for a command of a layer's own; drivers' tokens are positive."""
        token = -self.next_serial()
        self._quiet[token] = then
        return token

    def set_timer(self, after_ms: Millis, kind: str, topic: Topic, serial: int = 0) -> None:
        self.out.append(SetTimer(after_ms, Timer(kind, topic, serial)))

    def next_serial(self) -> int:
        """A number this peer has not used before in this life."""
        self.serial += 1
        return self.serial

    def tell(self, signal: Signal) -> None:
        self.signals.append(signal)

    def trace(self, kind: str, fields: Mapping[str, object]) -> None:
        """Callers check `tracing` first where building the fields costs something."""
        if self.tracing:
            self.out.append(Trace(kind, dict(fields)))

    def name(self, peer: PeerId) -> str:
        """How a peer is written in the trace."""
        return peer_text(peer)

    # --- keyed draws ----------------------------------------------------------------------------

    def key(self, stream: int, tick: int) -> int:
        """The key of this peer's decision `tick` in a stream; equal to `draw.key_of`."""
        base = self._bases.get(stream)
        if base is None:
            base = absorb(absorb(absorb(0, self.seed), stream), self.number)
            self._bases[stream] = base
        return absorb(base, tick)

    def bits(self, stream: int) -> int:
        """64 random bits for this peer's next decision in a stream."""
        return absorb(self.next_key(stream), 0)

    def next_key(self, stream: int) -> int:
        """A key for this peer's next decision with several items."""
        tick = self._ticks[stream]
        self._ticks[stream] = tick + 1
        return self.key(stream, tick)

    def pick(self, stream: int, choices: Sequence[T]) -> T:
        return choices[below(self.bits(stream), len(choices))]
