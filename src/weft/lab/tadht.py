"""Peers that route by the topic-aware DHT, in virtual time, and what is sent among them.

Peers come up one after the other, each by one that is there already. Subscriptions are drawn as for
the engine. An event's *copies* are counted as everywhere (`messages.copies_in`): in all messages
that peers received, from `Cast` and `Payload` to repairs; parasites are counted there, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from weft.engine.data.memberships import Memberships, topic_name
from weft.ids import Contact, PeerId, Topic
from weft.lab.experiment import Columns, Params
from weft.lab.memberships import memberships_of
from weft.protocol import messages as m
from weft.protocol.config import Config, TopicDhtSettings
from weft.protocol.topic_dht.events import Cast
from weft.protocol.topic_dht.roles import Role
from weft.protocol.wire import Message
from weft.rules.treecast import ROOT_CHARGE
from weft.sim.network import Conditions
from weft.sim.node import Node
from weft.sim.record import EventKey, event_key
from weft.sim.topic_dht import RoleNet
from weft.sim.world import Observer

START_MS = 10
"""guess: between the starts of two peers."""
SUBSCRIBE_MS = 50
"""guess: between the subscriptions of two peers."""
PAYLOAD_BYTES = 32
_TREES_MS = 1_000
"""So long after a publication the trees alone have brought what they bring: ten hops of at most
40 ms, and no peer has noticed yet that another is gone."""


@dataclass(frozen=True)
class Spread:
    """What became of one event."""

    members: int  # subscribers when it was published, its publisher included if it is one
    copies: int
    rounds: int  # hops of the longest way
    missed: int  # of those subscribers that are still up


class Copies(Observer):
    """Copies of each event, as they are received, and the roots that events are handed to."""

    def __init__(self) -> None:
        self.of: Counter[EventKey] = Counter()
        self.roots_of: dict[EventKey, list[PeerId]] = defaultdict(list)

    @property
    def all(self) -> int:
        return self.of.total()

    def sent(
        self, now_ms: int, sender: Node, to: Contact, receiver: Node | None, message: Message
    ) -> None:
        if isinstance(message, Cast) and message.charge == ROOT_CHARGE and message.tree:
            for event in message.run.events():
                self.roots_of[event_key(message.topic, event)].append(to.peer)

    def handled(self, now_ms: int, receiver: Node, sender: Contact, message: Message) -> None:
        if isinstance(message, m.PAYLOAD_KINDS):
            for event in (one for run in m.runs_in(message) for one in run.events()):
                self.of[event_key(message.topic, event)] += 1


class Net(RoleNet):
    """Whole peers that route by the topic-aware DHT, all up already."""

    def __init__(
        self,
        seed: int,
        peers: int,
        settings: TopicDhtSettings,
        conditions: Conditions | None = None,
        hierarchies: Iterable[str] = (),
    ) -> None:
        self.copies = Copies()
        config = Config(routing="topic-dht", topic_dht=settings, hierarchies=tuple(hierarchies))
        super().__init__(seed, config, conditions, [self.copies])
        for number in range(peers):
            known = [self.dice.pick("lab.join", range(number), number)] if number else []
            self.enter(known, START_MS)
        self.run(2 * settings.period_ms)

    # --- users ------------------------------------------------------------------------------------

    def subscribe(self, number: int, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self.note_wanted(number, [topic])
            self.world.subscribe(self.nodes[number], topic)

    def unsubscribe(self, number: int, topic: Topic) -> None:
        self.note_unwanted(number, [topic])
        self.world.unsubscribe(self.nodes[number], topic)

    def subscribe_all(self, held: Memberships) -> None:
        """Every peer subscribes to all it wants, one after the other."""
        order = sorted(range(held.peers), key=lambda one: self.dice.bits("lab.order", one))
        for number in order:
            mine = held.of_peer[held.of_peer_offsets[number] : held.of_peer_offsets[number + 1]]
            self.subscribe(number, [topic_of(int(held.topic_of[one])) for one in mine])
            self.run(SUBSCRIBE_MS)

    def subscribers(self, topic: Topic) -> list[int]:
        return [
            number
            for number in self.alive()
            if topic in self.wanted.get(self.nodes[number].contact.peer, ())
        ]

    def _roles(self, topic: Topic) -> dict[int, Role]:
        """The roles of peers in a topic, by the peers' numbers."""
        return {
            self.world.record.index_of(peer): machine.roles.by_topic[topic]
            for peer, machine in self.machines().items()
            if topic in machine.roles.by_topic
        }

    def forwarders(self, topic: Topic) -> list[int]:
        return sorted(n for n, role in self._roles(topic).items() if role.forwarder is not None)

    def parent(self, number: int, topic: Topic) -> int | None:
        """The parent of a child."""
        role = self._roles(topic).get(number)
        if role is None or role.child is None:
            return None
        return self.world.record.index_of(role.child.parent.peer)

    def publish(self, number: int, topic: Topic) -> int:
        """The number of the publication."""
        publication = len(self.world.record.publications)
        payload = (b"event %d " % publication).ljust(PAYLOAD_BYTES, b".")
        self.world.publish(self.nodes[number], topic, payload)
        return publication

    # --- judging ----------------------------------------------------------------------------------

    @property
    def parasites(self) -> int:
        """Copies and lookups inside topics that reached peers that are not subscribed."""
        return self.lookups.parasites + len(self.world.record.parasites)

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
        copies = self.copies.of[event_key(topic, got[0].event)] if got else 0
        return Spread(
            len(members),
            copies,
            max((one.hops for one in got), default=0),
            sum(one in up and one not in reached for one in members),
        )


def topic_of(number: int) -> Topic:
    return Topic(topic_name(number))


# --- crashed roots, for an experiment and a benchmark ------------------------------------------


def settled_net(params: Params, seed: int, settings: TopicDhtSettings) -> Net:
    """A network whose peers have subscribed as the parameters say, and have found their roles."""
    conditions = Conditions(loss_percent=params["loss_percent"])
    net = Net(seed, params["peers"], settings, conditions)
    net.subscribe_all(memberships_of(params, seed))
    net.run(2 * settings.period_ms)
    net.settle()
    return net


def lose_roots(params: Params, seed: int) -> Columns:
    """One row per event: f other roots that its publisher hands it to go down at that moment."""

    def victims(net: Net, topic: Topic, publisher: int, before: int) -> list[int]:
        """The roots that the latest event is on its way to; none in a topic too small."""
        found = list(net.copies.roots_of.values())[before:]
        return [net.world.record.index_of(peer) for peers in found for peer in peers]

    return _lose(params, seed, victims)


def lose_members(params: Params, seed: int) -> Columns:
    """One row per event: any f forwarders of its topic but the publisher go down at that moment."""

    def victims(net: Net, topic: Topic, publisher: int, before: int) -> list[int]:
        others = [one for one in net.forwarders(topic) if one != publisher]
        return net.dice.some(
            "tadht-fail.members", others, min(len(others) - 1, params["roots"] - 1), before
        )

    return _lose(params, seed, victims)


def _lose(
    params: Params, seed: int, victims: Callable[[Net, Topic, int, int], list[int]]
) -> Columns:
    settings = TopicDhtSettings(scheme=params["scheme"], roots=params["roots"])
    net = settled_net(params, seed, settings)
    by_trees, finally_, crashed, orphaned = [], [], [], []
    for event in range(params["events"]):
        topic = topic_of(event % params["topics"])
        members = net.subscribers(topic)
        publisher = net.dice.pick("tadht-fail.publisher", members, event)
        before = len(net.copies.roots_of)
        publication = net.publish(publisher, topic)
        dead = victims(net, topic, publisher, before)
        orphans = [one for one in members if net.parent(one, topic) in dead]
        net.crash(*dead)
        crashed.append(len(dead))
        net.run(_TREES_MS)
        others = [one for one in members if one not in orphans]
        by_trees.append(net.spread_of(publication, others, topic).missed)
        orphaned.append(net.spread_of(publication, orphans, topic).missed)
        net.run(3 * settings.period_ms)
        finally_.append(net.spread_of(publication, members, topic).missed)
    return {
        "k": settings.k,
        "crashed": crashed,
        "lost": 0,
        "periods": 0,
        "missed_by_trees": by_trees,
        "missed": finally_,
        "orphans": orphaned,
        "parasites": net.parasites,
    }
