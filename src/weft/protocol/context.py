"""What all layers of one peer share: who they are, their settings, and where wishes go.

Layers append effects to the context's outbox; a lower layer tells upper ones by signals (facts
such as `LinkUp`), which `peer.py` hands on after each step, so no layer calls upwards.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar, Union

from msgspec import Struct

from weft.ids import Contact, PeerId, Topic, peer_number, peer_text
from weft.protocol.config import Config
from weft.protocol.messages import AnyMessage
from weft.protocol.seam import Effect, Millis, Send, SetTimer, Timer, Trace
from weft.rules.draw import absorb, below

T = TypeVar("T")


class LinkUp(Struct, frozen=True, gc=False):
    """A stable link in a topic stands; both ends may push events over it."""

    topic: Topic
    contact: Contact
    recent: int  # the other end's fingerprint of recent events


class LinkDown(Struct, frozen=True, gc=False):
    topic: Topic
    peer: PeerId


class LookupDone(Struct, frozen=True, gc=False):
    """A lookup ended; no contacts means nobody was found."""

    lookup: int
    topic: Topic
    contacts: tuple[Contact, ...]


class PeerGone(Struct, frozen=True, gc=False):
    """A peer said goodbye."""

    peer: PeerId


class NeighboursFound(Struct, frozen=True, gc=False):
    """The general view was empty and is no more."""


class SubscriptionsChanged(Struct, frozen=True, gc=False):
    """A subscription has entered an overlay and wants to be advertised."""


Signal: TypeAlias = Union[
    LinkUp, LinkDown, LookupDone, PeerGone, NeighboursFound, SubscriptionsChanged
]


class Context:
    """One per peer, shared by all its layers."""

    __slots__ = (
        "_bases",
        "_ticks",
        "config",
        "counters",
        "incarnation",
        "me",
        "now",
        "number",
        "out",
        "published",
        "seed",
        "serial",
        "signals",
        "tracing",
    )

    def __init__(self, me: Contact, seed: int, config: Config) -> None:
        self.me = me
        self.number = peer_number(me.peer)
        self.seed = seed
        self.config = config
        self.tracing = config.trace
        self.incarnation = 0
        self.now: Millis = 0
        self.out: list[Effect] = []
        self.published: dict[Topic, int] = {}  # number of the last own event, per topic
        self.signals: deque[Signal] = deque()
        self.counters: dict[str, int] = defaultdict(int)
        self.serial = 0
        self._bases: dict[int, int] = {}
        self._ticks: dict[int, int] = defaultdict(int)

    # --- wishes -------------------------------------------------------------------------------

    def send(self, to: Contact, message: AnyMessage) -> None:
        self.out.append(Send(to, message))

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
        tick = self._ticks[stream]
        self._ticks[stream] = tick + 1
        return absorb(self.key(stream, tick), 0)

    def next_key(self, stream: int) -> int:
        """A key for this peer's next decision with several items."""
        tick = self._ticks[stream]
        self._ticks[stream] = tick + 1
        return self.key(stream, tick)

    def pick(self, stream: int, choices: Sequence[T]) -> T:
        return choices[below(self.bits(stream), len(choices))]
