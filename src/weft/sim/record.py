"""The record of a run by an outside observer, by which checkers judge.

It asks the machines under test nothing. The world shows it the commands and the messages with
events that machines are about to get, their effects, and the ends of lives; what of these is a
life, a subscription, a publication or a delivery is decided here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, KeysView
from dataclasses import dataclass, field
from typing import TypeAlias

from weft.documents.descriptor import SealedEvent
from weft.documents.run import Event
from weft.ids import PeerId, Topic, peer_number
from weft.protocol import messages as m
from weft.protocol import seam
from weft.protocol.publication import RouteEvent
from weft.protocol.seam import Answer

EventKey: TypeAlias = tuple[Topic, PeerId, int, int]
"""Topic, publisher, incarnation, number: together they identify an event."""


def event_key(topic: Topic, event: Event) -> EventKey:
    return topic, event.publisher, event.incarnation, event.number


@dataclass
class Life:
    """One peer from a start to a crash or leave; `end_ms` is None while it lasts."""

    peer: int
    number: int  # 1, 2, 3, …
    start_ms: int
    end_ms: int | None = None
    how: str = ""  # how it ended


@dataclass
class Stay:
    """One peer's subscription to a topic, from the command to its end."""

    peer: int
    life: int
    topic: Topic
    start_ms: int
    end_ms: int | None = None
    joined_ms: int | None = None  # when the peer answered that it is in the overlay


@dataclass(frozen=True)
class Delivery:
    at_ms: int
    peer: int
    life: int
    topic: Topic
    event: Event
    hops: int
    descriptor: SealedEvent | None = None  # with history
    published_in: Topic | None = None  # as the application was told; None: in `topic`


@dataclass
class Publication:
    """One published event and the answers to its command."""

    token: int
    at_ms: int
    peer: int
    life: int
    topic: Topic
    payload: bytes
    place: int = 0  # its place among the events of its command, which become one run
    answers: list[tuple[int, Answer]] = field(default_factory=list)

    def event(self, answer: Answer) -> Event | None:
        """The event, once an answer names it."""
        return answer.run.event(self.place) if answer.run is not None else None


@dataclass(frozen=True)
class Parasite:
    """A message with an event that reached a peer not subscribed to its topic."""

    at_ms: int
    sender: int
    peer: int
    topic: Topic
    kind: str


@dataclass
class Record:
    lives: list[Life] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    publications: dict[int, Publication] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    parasites: list[Parasite] = field(default_factory=list)
    disconnects: list[tuple[int, int, int, str]] = field(default_factory=list)
    warnings: list[tuple[int, int, str]] = field(default_factory=list)  # when, which peer, what
    answers: dict[int, tuple[int, Answer] | None] = field(default_factory=dict)  # by token
    peers: dict[PeerId, int] = field(default_factory=dict)  # the index of each id
    _tokens: int = 0  # given to commands so far
    _alive: dict[int, Life] = field(default_factory=dict)  # by peer
    _lasting: dict[int, dict[Topic, Stay]] = field(default_factory=lambda: defaultdict(dict))
    _joining: dict[int, Stay] = field(default_factory=dict)  # by the token of the command
    _names: set[tuple[int, Topic, bytes]] = field(default_factory=set)  # made when needed …
    _names_of: int = 0  # … from this number of publications

    # --- what the world asks before something happens -------------------------------------------

    def add_peer(self, peer: PeerId) -> int:
        """A peer joins the world, still down; returns the index by which it is noted."""
        self.peers[peer] = index = len(self.peers)
        return index

    def next_token(self, is_question: bool = False) -> int:
        """A token for a command. The answer to a question, a command that is neither a subscription
        nor a publication, is kept in `answers`."""
        self._tokens += 1
        if is_question:
            self.answers[self._tokens] = None
        return self._tokens

    # --- what the world shows, as it happens ----------------------------------------------------

    def on_fact(self, at_ms: int, peer: int, life: int, fact: seam.Input) -> None:
        """A peer's machine is about to get this fact: a command, or a message with events."""
        if isinstance(fact, seam.Received):
            self._on_received(at_ms, peer, fact)
        elif isinstance(fact, seam.Started):
            self._alive[peer] = Life(peer, life, at_ms)
            self.lives.append(self._alive[peer])
        elif isinstance(fact, seam.Subscribe):
            self._joining[fact.token] = self._stay(at_ms, peer, life, fact.topic)
        elif isinstance(fact, seam.Unsubscribe):
            stay = self._lasting[peer].pop(fact.topic, None)
            if stay is not None:
                stay.end_ms = at_ms
        elif isinstance(fact, seam.Publish):
            for place, payload in enumerate(fact.payloads):
                where = peer, life, fact.topic
                self._note(Publication(fact.token, at_ms, *where, payload, place))
        elif isinstance(fact, seam.PublishTogether):
            for token, topic in zip(fact.tokens, fact.topics, strict=True):
                self._note(Publication(token, at_ms, peer, life, topic, fact.payload))

    def _on_received(self, at_ms: int, peer: int, fact: seam.Received) -> None:
        message = fact.message
        if not isinstance(message, m.PAYLOAD_KINDS) or message.topic in self._lasting[peer]:
            return
        if not isinstance(message, RouteEvent):  # a stale access point refuses these
            kind = type(message).__name__
            sender = self.peers[fact.sender.peer]
            self.parasites.append(Parasite(at_ms, sender, peer, message.topic, kind))

    def _stay(self, at_ms: int, peer: int, life: int, topic: Topic) -> Stay:
        """The peer's subscription to a topic, which is a new one unless one lasts."""
        stay = self._lasting[peer].get(topic)
        if stay is None:
            stay = self._lasting[peer][topic] = Stay(peer, life, topic, at_ms)
            self.stays.append(stay)
        return stay

    def _note(self, publication: Publication) -> None:
        """Note an event; its number is its command's token plus its place in the command."""
        self.publications[publication.token + publication.place] = publication

    def on_effect(self, at_ms: int, peer: int, life: int, effect: seam.Effect) -> None:
        """An effect of a peer's machine is carried out."""
        if isinstance(effect, seam.Deliver):
            where = at_ms, peer, life, effect.topic
            about = effect.hops, effect.descriptor, effect.published_in
            self.deliveries += (Delivery(*where, event, *about) for event in effect.run.events())
        elif isinstance(effect, seam.Answer):
            self._on_answer(at_ms, effect)
        elif isinstance(effect, seam.Disconnect):
            self.disconnects.append((at_ms, peer, self.peers[effect.peer], effect.reason))
        elif isinstance(effect, seam.Warn):
            self.warnings.append((at_ms, peer, effect.text))

    def _on_answer(self, at_ms: int, answer: Answer) -> None:
        """Note an answer; the answer to a publish is noted for each of its events."""
        stay = self._joining.pop(answer.token, None)
        if stay is not None:
            stay.joined_ms = at_ms
        elif answer.token in self.answers:
            self.answers[answer.token] = at_ms, answer
        else:
            number = answer.token
            while (one := self.publications.get(number)) is not None and one.token == answer.token:
                one.answers.append((at_ms, answer))
                number += 1

    def end_life(self, peer: int, at_ms: int, how: str) -> list[Topic]:
        """The peer's life is over, and with it its subscriptions, whose topics are returned."""
        life, stays = self._alive.pop(peer), self._lasting.pop(peer, {})
        life.end_ms, life.how = at_ms, how
        for stay in stays.values():
            stay.end_ms = at_ms
        return list(stays)

    # --- what checkers ask ----------------------------------------------------------------------

    def topics_of(self, peer: int) -> KeysView[Topic]:
        """The topics that a peer is subscribed to now."""
        return self._lasting[peer].keys()

    def among_honest(self, honest: int) -> Record:
        """The record of the honest peers alone, which have the first `honest` numbers. Of the
        deliveries it has those of events that the named publisher has really published; the others
        are judged before (`check_genuine`)."""
        return Record(
            lives=[life for life in self.lives if life.peer < honest],
            stays=[stay for stay in self.stays if stay.peer < honest],
            publications=self.publications,
            deliveries=[one for one in self.deliveries if self.is_genuine(one)],
            parasites=[one for one in self.parasites if max(one.sender, one.peer) < honest],
            disconnects=self.disconnects,
            answers=self.answers,
            peers=self.peers,
        )

    def is_genuine(self, delivery: Delivery) -> bool:
        """Whether the peer that an event names as its publisher has published it."""
        name = self.index_of(delivery.event.publisher), delivery.topic, delivery.event.payload
        return name in self._published()

    def _published(self) -> set[tuple[int, Topic, bytes]]:
        if self._names_of != len(self.publications):
            self._names_of = len(self.publications)
            self._names = {(p.peer, p.topic, p.payload) for p in self.publications.values()}
        return self._names

    def index_of(self, peer: PeerId) -> int:
        """The index of the peer with this id; a large number for an id that no peer here has."""
        return self.peers.get(peer, peer_number(peer))

    def deliveries_by_event(self) -> dict[EventKey, list[Delivery]]:
        found: dict[EventKey, list[Delivery]] = defaultdict(list)
        for delivery in self.deliveries:
            found[event_key(delivery.topic, delivery.event)].append(delivery)
        return dict(found)

    def stays_by_topic(self) -> dict[Topic, list[Stay]]:
        found: dict[Topic, list[Stay]] = defaultdict(list)
        for stay in self.stays:
            found[stay.topic].append(stay)
        return dict(found)

    def alive_at_end(self) -> list[int]:
        """Peers that are up when the run ends."""
        return sorted(life.peer for life in self.lives if life.end_ms is None)

    def lasting_stays(self) -> dict[Topic, list[Stay]]:
        """Subscriptions that last until the end, by topic."""
        found: dict[Topic, list[Stay]] = defaultdict(list)
        for stay in self.unfinished_stays():
            found[stay.topic].append(stay)
        return dict(found)

    def unfinished_stays(self) -> Iterator[Stay]:
        """Subscriptions that last until the end."""
        return (stay for stay in self.stays if stay.end_ms is None)
