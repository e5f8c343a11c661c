"""A network of peers that route by the topic-aware DHT, in virtual time, and what is sent in it.

Peers come up one after the other, each by one that is there already. Who subscribes to what is
drawn as for the engine. An event's *copies* are all messages that carry it from one peer to
another, from `Cast` and `Payload` to repairs; parasites are counted where they are received.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from weft.engine.data.workload import Memberships, topic_name
from weft.ids import Contact, PeerId, Topic
from weft.protocol import messages as m
from weft.protocol.config import Config
from weft.protocol.peer import Peer
from weft.protocol.recent import Repair
from weft.protocol.topic_dht.events import Cast
from weft.protocol.topic_dht.roles import Config as Settings
from weft.protocol.topic_dht.routing import TopicRouting
from weft.protocol.wire import Event, Message
from weft.rules.treecast import ROOT_CHARGE
from weft.sim.checkers.topic_dht import Found, check
from weft.sim.dice import Dice
from weft.sim.network import Conditions, Network
from weft.sim.node import Node, contact_of
from weft.sim.record import EventKey, event_key
from weft.sim.topic_dht import Watched

START_MS = 10
"""guess: between the starts of two peers."""
SUBSCRIBE_MS = 50
"""guess: between the subscriptions of two peers."""
PAYLOAD_BYTES = 32


@dataclass(frozen=True)
class Spread:
    """What became of one event."""

    members: int  # subscribers when it was published, its publisher included if it is one
    copies: int
    rounds: int  # hops of the longest way
    missed: int  # of those subscribers that are still up


class Counting(Watched):
    """Also counts copies of events, and notes the roots that events are handed to."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.copies_of: Counter[EventKey] = Counter()
        self.roots_of: dict[EventKey, list[PeerId]] = defaultdict(list)
        self.copies_sent = 0

    def _send(self, node: Node, to: Contact, message: Message) -> None:
        if isinstance(message, m.PAYLOAD_KINDS):
            for event in events_in(message):
                self.copies_sent += 1
                which = event_key(message.topic, event)
                self.copies_of[which] += 1
                if isinstance(message, Cast) and message.charge == ROOT_CHARGE and message.tree:
                    self.roots_of[which].append(to.peer)
        super()._send(node, to, message)


def events_in(message: Message) -> list[Event]:
    if isinstance(message, Repair):
        return list(message.events)
    event = getattr(message, "event", None)
    return [event] if isinstance(event, Event) else []


class Net:
    """See the module's text."""

    def __init__(
        self,
        seed: int,
        peers: int,
        settings: Settings,
        conditions: Conditions | None = None,
        hierarchies: Iterable[str] = (),
    ) -> None:
        self.seed = seed
        self.settings = settings
        self.dice = Dice(seed)
        self.world = Counting(Network(seed, conditions or Conditions()))
        self.config = Config(
            routing="topic-dht", topic_dht=settings, hierarchies=tuple(hierarchies)
        )
        for index in range(peers):
            contact = contact_of(seed, index)
            node = self.world.add(contact, partial(Peer, contact, seed, self.config))
            known = self.nodes[self.dice.pick("lab.join", range(index), index)] if index else node
            self.world.start(node, [known.contact] if index else [])
            self.run(START_MS)
        self.run(2 * settings.period_ms)

    @property
    def nodes(self) -> list[Node]:
        return self.world.nodes

    def alive(self) -> list[int]:
        return [node.index for node in self.nodes if node.machine is not None]

    def run(self, duration_ms: int) -> None:
        self.world.run_until(self.world.now_ms + duration_ms)

    # --- users ------------------------------------------------------------------------------------

    def subscribe(self, number: int, topics: Iterable[Topic]) -> None:
        node = self.nodes[number]
        for topic in topics:
            self.world.wanted.setdefault(node.contact.peer, {})[topic] = None
            self.world.subscribe(node, topic)

    def unsubscribe(self, number: int, topic: Topic) -> None:
        node = self.nodes[number]
        self.world.wanted.get(node.contact.peer, {}).pop(topic, None)
        self.world.unsubscribe(node, topic)

    def subscribe_all(self, held: Memberships) -> None:
        """Everybody subscribes to all it wants, one peer after the other."""
        order = sorted(range(held.peers), key=lambda one: self.dice.bits("lab.order", one))
        for number in order:
            mine = held.of_peer[held.of_peer_offsets[number] : held.of_peer_offsets[number + 1]]
            self.subscribe(number, [topic_of(int(held.topic_of[one])) for one in mine])
            self.run(SUBSCRIBE_MS)

    def subscribers(self, topic: Topic) -> list[int]:
        return [
            number
            for number in self.alive()
            if topic in self.world.wanted.get(self.nodes[number].contact.peer, ())
        ]

    def publish(self, number: int, topic: Topic) -> int:
        """The number of the publication."""
        publication = len(self.world.record.publications)
        payload = (b"event %d " % publication).ljust(PAYLOAD_BYTES, b".")
        self.world.publish(self.nodes[number], topic, payload)
        return publication

    def crash(self, numbers: Iterable[int], silent: bool) -> None:
        for number in numbers:
            self.world.wanted.pop(self.nodes[number].contact.peer, None)
            self.world.crash(self.nodes[number], silent)

    # --- judging ----------------------------------------------------------------------------------

    def machines(self) -> dict[PeerId, TopicRouting]:
        found = {}
        for node in self.nodes:
            routing = node.machine.routing if isinstance(node.machine, Peer) else None
            if isinstance(routing, TopicRouting):
                found[node.contact.peer] = routing
        return found

    def check(self) -> Found:
        """Lemma 4.2 and the bound on children."""
        machines = {peer: routing.topics for peer, routing in self.machines().items()}
        return check(machines, self.world.wanted, self.settings.k)

    def settle(self, periods_max: int = 20) -> int | None:
        """How many periods it takes until the check finds nothing."""
        for period in range(periods_max + 1):
            if not self.check().all:
                return period
            self.run(self.settings.period_ms)
        return None

    def spread_of(self, before: int, members: Sequence[int], topic: Topic) -> Spread:
        """What became of the event that publication number `before` began; it must have been the
        only one in this topic with its payload."""
        record = self.world.record
        publication = list(record.publications.values())[before]
        got = [
            one
            for one in record.deliveries
            if one.topic == topic and one.event.payload == publication.payload
        ]
        reached = {one.peer for one in got}
        up = frozenset(self.alive())
        copies = self.world.copies_of[event_key(topic, got[0].event)] if got else 0
        return Spread(
            len(members),
            copies,
            max((one.hops for one in got), default=0),
            sum(one in up and one not in reached for one in members),
        )


def topic_of(number: int) -> Topic:
    return Topic(topic_name(number))
