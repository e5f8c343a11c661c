"""What the tests of the state machines share: a rig that drives one peer, a group that joins
several, and the invariants that must hold after every step.

Peers are named by small numbers; `contact(3)` is peer 3, and of two peers that with the smaller
number has the smaller id. Those below `KEYED` have a key, so that they can publish.
"""

from __future__ import annotations

import gc
import heapq
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from types import FrameType
from typing import TypedDict, TypeVar, Unpack

import msgspec
from nacl.bindings import crypto_sign, crypto_sign_seed_keypair

from weft.documents.run import NOTHING_BEFORE, Part, Proven, Run, sign_run
from weft.documents.signature import SIGNATURE_BYTES, Signer
from weft.ids import GENERAL, Contact, PeerId, Topic
from weft.protocol import messages as m
from weft.protocol import seam
from weft.protocol.config import Config
from weft.protocol.liveness import Ping, Pong
from weft.protocol.membership import JoinRequest
from weft.protocol.peer import Peer
from weft.protocol.tera.links import LinkRequest
from weft.protocol.tera.tera import Tera
from weft.protocol.wire import Message, Span
from weft.rules.capacity import links_most

M = TypeVar("M")
T = Topic("/t")
_decode = msgspec.msgpack.Decoder(m.AnyMessage).decode


KEYED = 640


_FIRST_SEED = 35_000
"""Tests of trees and of the DHT name peers by their distances; with these keys there are such."""


def _key_pair(number: int) -> tuple[bytes, bytes]:
    return crypto_sign_seed_keypair((_FIRST_SEED + number).to_bytes(32, "big"))


_PAIRS = sorted(_key_pair(number) for number in range(KEYED))
_NUMBERS = {public: number for number, (public, _) in enumerate(_PAIRS)}
_SIGNED: dict[tuple[Topic, PeerId, int, int], bytes] = {}
"""The digests of the runs that were made in this test, by their last numbers."""
_CHAIN_MAX = 70
"""Up to this number, a run goes on from others, which are made for it if there are none."""


def forget_runs() -> None:
    """A test begins."""
    _SIGNED.clear()


def contact(number: int) -> Contact:
    key = _PAIRS[number][0] if number < KEYED else b"\xff" * 8 + number.to_bytes(24, "big")
    return Contact(PeerId(key), f"/ip4/127.0.0.1/tcp/{number}")


def number_of(who: Contact | PeerId) -> int:
    peer = who.peer if isinstance(who, Contact) else who
    known = _NUMBERS.get(peer)
    return known if known is not None else int.from_bytes(peer[8:], "big")


def signer(number: int) -> Signer:
    return lambda data: crypto_sign(data, _PAIRS[number][1])[:SIGNATURE_BYTES]


class RunFields(TypedDict, total=False):
    """What a run may have beside its publisher, number and payloads."""

    topic: Topic
    incarnation: int
    published_ms: int
    parts: tuple[Part, ...]
    prev: bytes | None


def run(publisher: int, first: int, *payloads: bytes, **fields: Unpack[RunFields]) -> Run:
    """A run that its publisher signed. It goes on from the one before it that was made last, or one
    of an empty event, unless `prev` says otherwise."""
    return proven_run(publisher, first, *payloads, **fields).run


def proven_run(
    publisher: int,
    first: int,
    *payloads: bytes,
    topic: Topic = T,
    incarnation: int = 1,
    published_ms: int = 0,
    parts: tuple[Part, ...] = (),
    prev: bytes | None = None,
) -> Proven:
    peer = contact(publisher).peer
    before = topic, peer, incarnation, first - 1
    if prev is None and before not in _SIGNED and 1 < first <= _CHAIN_MAX:
        run(publisher, first - 1, topic=topic, incarnation=incarnation)
    if prev is None:
        prev = _SIGNED.get(before, NOTHING_BEFORE)
    made = sign_run(
        signer(publisher),
        *(topic, peer, incarnation, first, published_ms, payloads or (b"",), prev),
        parts=parts,
    )
    _SIGNED[topic, peer, incarnation, made.run.last] = made.digest
    return made


def event(
    publisher: int,
    number: int,
    payload: bytes = b"",
    incarnation: int = 1,
    published_ms: int = 0,
    topic: Topic = T,
) -> Run:
    """A run of one event."""
    life = RunFields(topic=topic, incarnation=incarnation, published_ms=published_ms)
    return run(publisher, number, payload, **life)


def span(publisher: int, first: int, last: int, incarnation: int = 1) -> Span:
    return Span(contact(publisher).peer, incarnation, first, last)


# --- reading effects ----------------------------------------------------------------------------


def sent(effects: Iterable[seam.Effect], kind: type[M]) -> list[tuple[int, M]]:
    """The receivers of messages of this kind, and the messages."""
    return [
        (number_of(effect.to), effect.message)
        for effect in effects
        if isinstance(effect, seam.Send) and isinstance(effect.message, kind)
    ]


def everything_sent(effects: Iterable[seam.Effect]) -> list[tuple[int, object]]:
    return sent(effects, object)


def told(effects: Iterable[seam.Effect], kind: type[M]) -> list[int]:
    return sorted(number for number, _ in sent(effects, kind))


def answers(effects: Iterable[seam.Effect]) -> list[tuple[int, str]]:
    return [(e.token, e.outcome) for e in effects if isinstance(e, seam.Answer)]


def delivered(effects: Iterable[seam.Effect]) -> list[tuple[int, int]]:
    """Events handed to the application, as (publisher, number)."""
    return [
        (number_of(event.publisher), event.number)
        for e in effects
        if isinstance(e, seam.Deliver)
        for event in e.run.events()
    ]


def timers(effects: Iterable[seam.Effect], kind: str) -> list[seam.SetTimer]:
    return [e for e in effects if isinstance(e, seam.SetTimer) and e.timer.kind == kind]


# --- one peer -----------------------------------------------------------------------------------


class Rig:
    """One peer, its clock and its timers. Others live: the rig answers pings for them, and leaves
    pings out of what it returns, unless the test does so itself (`pings`)."""

    def __init__(
        self,
        number: int = 1,
        config: Config | None = None,
        *,
        join: tuple[int, ...] = (),
        checked: bool = True,  # False where there are so many topics that looking at all is slow
        pings: bool = False,  # True where the test is about them
    ) -> None:
        self.me = contact(number)
        self.pings = pings
        self.checked = checked
        self.peer = Peer(self.me, 7, config or Config(), sign=signer(number))
        self.now = 0
        self.waiting: list[tuple[int, int, seam.Timer]] = []
        self._order = count()
        self.start = self.do(seam.Started(1, tuple(contact(n) for n in join)))

    def do(self, fact: seam.Input) -> list[seam.Effect]:
        effects = self.peer.handle(fact, self.now)
        if self.checked:
            check(self.peer, effects)
        for effect in effects:
            if isinstance(effect, seam.SetTimer):
                entry = (self.now + effect.after_ms, next(self._order), effect.timer)
                heapq.heappush(self.waiting, entry)
        return effects if self.pings else self._answer_pings(effects)

    def _answer_pings(self, effects: list[seam.Effect]) -> list[seam.Effect]:
        others: list[seam.Effect] = []
        for effect in effects:
            if isinstance(effect, seam.Send) and isinstance(effect.message, Ping):
                pong = Pong(effect.message.nonce, effect.message.links)
                others += self.do(seam.Received(effect.to, pong))
            else:
                others.append(effect)
        return others

    def hear(self, sender: int, message: m.AnyMessage) -> list[seam.Effect]:
        return self.do(seam.Received(contact(sender), message))

    def subscribe(
        self, topic: Topic = T, token: int = 1, scheme: seam.Scheme | None = None
    ) -> list[seam.Effect]:
        return self.do(seam.Subscribe(token, topic, scheme))

    def publish(self, payload: bytes = b"", topic: Topic = T, token: int = 9) -> list[seam.Effect]:
        return self.do(seam.Publish(token, topic, (payload,), 0))

    def lose(self, number: int) -> list[seam.Effect]:
        return self.do(seam.PeerLost(contact(number).peer))

    def meet(self, *numbers: int) -> None:
        """Make these neighbours in the general overlay."""
        for number in numbers:
            self.hear(number, JoinRequest(GENERAL))

    def link(self, *numbers: int, topic: Topic = T) -> None:
        """Make these linked members of a topic."""
        for number in numbers:
            self.hear(number, LinkRequest(topic, urgent=True))

    def wait(self, milliseconds: int) -> list[seam.Effect]:
        """Let time pass, firing the timers that come due."""
        until = self.now + milliseconds
        effects: list[seam.Effect] = []
        while self.waiting and self.waiting[0][0] <= until:
            due, _, timer = heapq.heappop(self.waiting)
            self.now = max(self.now, due)
            effects += self.do(seam.TimerFired(timer))
        self.now = until
        return effects

    def wait_for(self, kind: str) -> list[seam.Effect]:
        """Let time pass until the next timer of this kind has fired; returns what that did."""
        while self.waiting:
            due, _, timer = heapq.heappop(self.waiting)
            self.now = max(self.now, due)
            effects = self.do(seam.TimerFired(timer))
            if timer.kind == kind:
                return effects
        raise AssertionError(f"no timer {kind!r} was set")

    def cycle(self) -> list[seam.Effect]:
        return self.wait_for("cycle")


# --- several peers ------------------------------------------------------------------------------

LATENCY_MS = 10


class Group:
    """Peers that reach each other after a fixed latency, in one virtual time."""

    def __init__(self, size: int, config: Config | None = None, *, checked: bool = True) -> None:
        self.now = 0
        self.checked = checked
        self.config = config or Config()
        self.peers: dict[int, Peer] = {}
        self.effects: dict[int, list[seam.Effect]] = {}
        self.drop: Callable[[int, int, object], bool] = lambda sender, to, message: False
        self.alter: Callable[[int, Message], Message] = lambda sender, message: message
        """What a peer that lies sends in place of what its machine says."""
        self.log: list[tuple[int, int, int, object]] = []  # time, sender, receiver, message
        self._queue: list[tuple[int, int, int, seam.Input]] = []
        self._order = count()
        for number in range(1, size + 1):
            self.add(number)

    def add(self, number: int) -> None:
        self.peers[number] = Peer(contact(number), 7, self.config, sign=signer(number))
        self.effects[number] = []
        known = tuple(contact(n) for n in self.peers if n != number)[:2]
        self.do(number, seam.Started(1 + self.now, known))

    def kill(self, number: int) -> None:
        del self.peers[number]

    def do(self, number: int, fact: seam.Input) -> list[seam.Effect]:
        peer = self.peers[number]
        effects = peer.handle(fact, self.now)
        if self.checked:
            check(peer, effects)
        self.effects[number] += effects
        for effect in effects:
            if isinstance(effect, seam.SetTimer):
                self._later(effect.after_ms, number, seam.TimerFired(effect.timer))
            elif isinstance(effect, seam.Send):
                self._carry(number, effect)
        return effects

    def _carry(self, sender: int, effect: seam.Send) -> None:
        to, message = number_of(effect.to), self.alter(sender, effect.message)
        self.log.append((self.now, sender, to, message))
        if to not in self.peers:
            self._later(2 * LATENCY_MS, sender, seam.PeerLost(effect.to.peer))
        elif not self.drop(sender, to, message):
            self._later(LATENCY_MS, to, seam.Received(contact(sender), message))

    def _later(self, after_ms: int, number: int, fact: seam.Input) -> None:
        heapq.heappush(self._queue, (self.now + after_ms, next(self._order), number, fact))

    def run(self, milliseconds: int, steps_max: int = 200_000) -> None:
        until = self.now + milliseconds
        while self._queue and self._queue[0][0] <= until:
            self.now, _, number, fact = heapq.heappop(self._queue)
            if number in self.peers:
                self.do(number, fact)
            steps_max -= 1
            assert steps_max, "this never comes to rest"
        self.now = until

    def subscribe_all(self, topic: Topic = T, scheme: seam.Scheme | None = None) -> None:
        for number in list(self.peers):
            self.do(number, seam.Subscribe(1, topic, scheme))

    def delivered(self, number: int) -> list[tuple[int, int]]:
        return delivered(self.effects[number])

    def since(self, start_ms: int, kind: type[M]) -> Iterator[tuple[int, int, M]]:
        """Messages of a kind sent from a moment on, as (sender, receiver, message)."""
        for when, sender, to, message in self.log:
            if when >= start_ms and isinstance(message, kind):
                yield sender, to, message


# --- what must hold after every step ------------------------------------------------------------


def check(peer: Peer, effects: Iterable[seam.Effect] = ()) -> None:
    """Effects can be carried out, tables are within their bounds, layers agree."""
    for effect in effects:
        check_effect(peer, effect)
    config = peer.config
    _check_view(peer, peer.general.peers)
    assert peer.routing.access_points <= config.tera.table_size
    assert peer.publishing.waiting <= config.tera.pending_max
    for topic, state in peer.tera.topics.items() if isinstance(peer.routing, Tera) else ():
        _check_view(peer, state.view.peers)
        _check_events(peer, topic)
        links = config.links
        assert len(state.links.linked) <= links_most(links.most, links.wanted, config.capacity)
        if state.tree is not None:
            assert not state.tree.eager.keys() & state.tree.lazy.keys()
            assert state.tree.eager.keys() | state.tree.lazy.keys() == state.links.linked.keys()
    linked: dict[PeerId, list[Topic]] = {}
    for topic, others in peer.routing.links().items():
        for other in others:
            assert other != peer.me.peer
            linked.setdefault(other, []).append(topic)
    watched = {other: sorted(watch.topics) for other, watch in peer.liveness.watched.items()}
    assert watched == {other: sorted(topics) for other, topics in linked.items()}


def check_effect(peer: Peer, effect: seam.Effect) -> None:
    if isinstance(effect, seam.Send):
        assert effect.to.peer != peer.me.peer, f"sends {effect.message} to itself"
        # What a peer says must be acceptable to an honest reader, whatever it was told before.
        assert _decode(msgspec.msgpack.encode(effect.message)) == effect.message
    elif isinstance(effect, seam.SetTimer):
        assert effect.after_ms >= 0
    elif isinstance(effect, seam.Deliver):
        assert effect.topic in peer.subscribed
    elif isinstance(effect, seam.Hold):
        assert effect.contact.peer != peer.me.peer


def _check_view(peer: Peer, view: list[PeerId]) -> None:
    assert len(view) <= peer.config.cyclon.view_size
    assert len(set(view)) == len(view)
    assert peer.me.peer not in view


def _check_events(peer: Peer, topic: Topic) -> None:
    bounds = peer.config.dissemination
    streams = peer.tera.topics[topic].recent.lives
    held = [held for stream in streams.values() for held in stream.held.values()]
    assert len(streams) <= bounds.streams_max
    events = sum(len(one.run.payloads) for one in held)
    assert events == len(peer.tera.topics[topic].recent) <= bounds.recent_events_max
    assert sum(one.run.size for one in held) <= bounds.recent_bytes_max
    for stream in streams.values():
        assert len(stream.above) <= bounds.gaps_max
        assert all(first > stream.floor + 1 for first, _ in stream.above)


def member(
    *links: int, config: Config | None = None, topics: Iterable[Topic] = (T,), pings: bool = False
) -> Rig:
    """A subscriber of these topics, with links to these peers in each."""
    rig = Rig(1, config, pings=pings)
    for topic in topics:
        rig.subscribe(topic)
        rig.link(*links, topic=topic)
    return rig


def linked(rig: Rig, topic: Topic = T) -> list[int]:
    """The peers that it has links to in a topic."""
    return sorted(number_of(peer) for peer in rig.peer.tera.topics[topic].links.linked)


def calls(action: Callable[[], object]) -> int:
    """How many functions an action calls: its cost, on any machine. What the garbage collector
    would call meanwhile does not count."""
    called = 0

    def note(frame: FrameType, kind: str, argument: object) -> None:
        nonlocal called
        called += kind in ("call", "c_call")

    gc.disable()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return called
