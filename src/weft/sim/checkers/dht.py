"""Judges of roles in the topic-aware DHT (Lemma 4.2).

They know the place and the state of every live peer, which no peer does, and return sentences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from weft.ids import PeerId, Topic, peer_short
from weft.protocol.config import Config
from weft.protocol.peer import Peer
from weft.protocol.topic_dht.roles import location
from weft.protocol.topic_dht.topic_dht import TopicDht, TopicRouting
from weft.rules.roles import closest_forwarder
from weft.sim.world import World

# --- roles ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seat:
    """The role of one live peer in one topic, as it sees it itself."""

    peer: PeerId
    subscribed: bool
    forwards: bool = False
    parent: PeerId | None = None
    children: tuple[PeerId, ...] = ()


@dataclass
class Found:
    """Violations by kind."""

    roles: list[str] = field(default_factory=list)  # forwarder or child if and only if subscribed
    parents: list[str] = field(default_factory=list)  # every child at its closest live forwarder
    records: list[str] = field(default_factory=list)  # its parent has it among its children
    bounds: list[str] = field(default_factory=list)  # at most k children

    @property
    def all(self) -> list[str]:
        return self.roles + self.parents + self.records + self.bounds


def seats_of(
    machines: Mapping[PeerId, TopicDht], wanted: Mapping[PeerId, Iterable[Topic]]
) -> dict[Topic, list[Seat]]:
    """All roles of all live peers, by topic; `wanted` is what users subscribed to."""
    seats: dict[Topic, list[Seat]] = {}
    for peer, machine in machines.items():
        topics = dict.fromkeys([*wanted.get(peer, ()), *machine.roles.by_topic])
        mine = frozenset(wanted.get(peer, ()))
        for topic in topics:
            role = machine.roles.by_topic.get(topic)
            forwarder = role.forwarder if role is not None else None
            child = role.child if role is not None else None
            seat = Seat(
                peer,
                topic in mine,
                forwarder is not None,
                child.parent.peer if child is not None else None,
                tuple(forwarder.children) if forwarder is not None else (),
            )
            seats.setdefault(topic, []).append(seat)
    return seats


def check_topic(topic: Topic, seats: Iterable[Seat], k: int) -> Found:
    """Lemma 4.2 and the bound on children, in one topic."""
    found = Found()
    by_peer = {seat.peer: seat for seat in seats}
    forwarders = {location(topic, one.peer): one for one in by_peer.values() if one.forwards}
    for seat in by_peer.values():
        name = f"{topic}: {peer_short(seat.peer)}"
        is_child = seat.parent is not None
        if seat.subscribed and not seat.forwards and not is_child:
            found.roles.append(f"{name} is subscribed and has no role")
        if not seat.subscribed and (seat.forwards or is_child):
            found.roles.append(f"{name} is not subscribed and has a role")
        if seat.forwards and is_child:
            found.roles.append(f"{name} is forwarder and child")
        if is_child:
            closest = closest_forwarder(location(topic, seat.peer), forwarders)
            parent = forwarders[closest] if closest is not None else None
            if parent is None or parent.peer != seat.parent:
                found.parents.append(f"{name} is not at its closest forwarder")
            elif seat.peer not in parent.children:
                found.records.append(f"{name} is not known to its parent")
        for child in seat.children:
            if child in by_peer and by_peer[child].parent != seat.peer:
                found.records.append(f"{name} has a child that is not its own")
        if len(seat.children) > k:
            found.bounds.append(f"{name} has {len(seat.children)} children")
    return found


def check(
    machines: Mapping[PeerId, TopicDht],
    wanted: Mapping[PeerId, Iterable[Topic]],
    k: int,
) -> Found:
    """All topics together."""
    found = Found()
    for topic, seats in sorted(seats_of(machines, wanted).items()):
        one = check_topic(topic, seats, k)
        found.roles += one.roles
        found.parents += one.parents
        found.records += one.records
        found.bounds += one.bounds
    return found


def check_world(world: World, config: Config) -> list[str]:
    """All live peers of a world that route by the topic-aware DHT, and what their users want."""
    wanted = _subscribed(world)
    return check(topic_dhts(world), wanted, config.topic_dht.k).all


def _subscribed(world: World) -> dict[PeerId, list[Topic]]:
    return {node.contact.peer: list(world.record.topics_of(node.index)) for node in world.nodes}


def captured(
    seats: Mapping[Topic, Iterable[Seat]], hostile: Collection[PeerId]
) -> frozenset[Topic]:
    """Topics in which all of these peers are children of hostile forwarders."""
    by_topic = {topic: list(some) for topic, some in seats.items()}
    return frozenset(
        topic
        for topic, some in by_topic.items()
        if some and all(not one.forwards and one.parent in hostile for one in some)
    )


def captured_in(world: World) -> frozenset[Topic]:
    """Topics whose honest members are all children of hostile peers. No member can get an event
    there that these keep back: children know only their parent, and other forwarders."""
    wanted = _subscribed(world)
    there = [node for node in world.nodes if node.machine is not None]
    hostile = {node.contact.peer for node in there if not isinstance(node.machine, Peer)}
    return captured(seats_of(topic_dhts(world), wanted), hostile)


def topic_dhts(world: World) -> dict[PeerId, TopicDht]:
    """The topic-aware DHTs of all live peers that route by one."""
    found = {}
    for node in world.nodes:
        routing = node.machine.routing if isinstance(node.machine, Peer) else None
        if isinstance(routing, TopicRouting):
            found[node.contact.peer] = routing.topics
    return found
