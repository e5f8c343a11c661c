"""The record of a run by an outside observer, by which checkers judge.

It asks the machines under test nothing. Lives, subscriptions and publishes are noted when the world
commands them, deliveries and answers when the machines' effects are carried out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from weft.documents.descriptor import SealedEvent
from weft.documents.run import Event
from weft.ids import PeerId, Topic, peer_number
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

    def end(self, at_ms: int, how: str) -> None:
        self.end_ms, self.how = at_ms, how


@dataclass
class Stay:
    """One peer's subscription to a topic, from the command to its end."""

    peer: int
    life: int
    topic: Topic
    start_ms: int
    end_ms: int | None = None
    joined_ms: int | None = None  # when the peer answered that it is in the overlay

    def join(self, at_ms: int) -> None:
        self.joined_ms = at_ms

    def end(self, at_ms: int) -> None:
        self.end_ms = at_ms


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
    end_ms: int = 0
    _names: set[tuple[int, Topic, bytes]] = field(default_factory=set)  # made when needed …
    _names_of: int = 0  # … from this number of publications

    def play_to(self, at_ms: int) -> None:
        """The run has got so far."""
        self.end_ms = at_ms

    # --- what the world tells, as it happens ----------------------------------------------------

    def note_peer(self, peer: PeerId, index: int) -> None:
        self.peers[peer] = index

    def note_life(self, life: Life) -> None:
        self.lives.append(life)

    def note_stay(self, stay: Stay) -> None:
        self.stays.append(stay)

    def note_publication(self, publication: Publication) -> None:
        """Note an event; its number is its command's token plus its place in the command."""
        self.publications[publication.token + publication.place] = publication

    def note_delivery(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)

    def note_parasite(self, parasite: Parasite) -> None:
        self.parasites.append(parasite)

    def note_warning(self, at_ms: int, peer: int, text: str) -> None:
        self.warnings.append((at_ms, peer, text))

    def note_disconnect(self, at_ms: int, peer: int, other: int, reason: str) -> None:
        self.disconnects.append((at_ms, peer, other, reason))

    def expect_answer(self, token: int) -> None:
        """A command that is neither a subscription nor a publication was given: note its answer."""
        self.answers[token] = None

    def note_answer(self, at_ms: int, answer: Answer) -> None:
        """Note an answer; the answer to a publish is noted for each of its events."""
        if answer.token in self.answers:
            self.answers[answer.token] = at_ms, answer
            return
        number = answer.token
        while (one := self.publications.get(number)) is not None and one.token == answer.token:
            one.answers.append((at_ms, answer))
            number += 1

    def end_life(self, peer: int, at_ms: int, how: str) -> None:
        """The peer's latest life is over."""
        latest = next((life for life in reversed(self.lives) if life.peer == peer), None)
        if latest is not None:
            latest.end(at_ms, how)

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
            end_ms=self.end_ms,
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
