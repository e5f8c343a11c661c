"""One peer in the roles that it can have in a topic, driven message by message."""

from __future__ import annotations

from protocol_kit import Rig, T, answers, contact
from weft.protocol.config import Config
from weft.protocol.rooms import Scheme
from weft.protocol.rooms import TopicDhtSettings as TopicConfig
from weft.protocol.topic_dht.roles import (
    JOIN,
    Appeared,
    RoleRequest,
    location,
    position,
)
from weft.protocol.topic_dht.topic_dht import TopicRouting
from weft.rules.prefix import BITS, common_prefix

OTHERS = (2, 3, 4, 5, 6, 7)


def config(scheme: Scheme = "forward-treecast", **changes: object) -> Config:
    topic_dht = TopicConfig(scheme=scheme, **changes)  # type: ignore[arg-type]
    return Config(routing="topic-dht", topic_dht=topic_dht)


def forwarder(scheme: Scheme = "forward-treecast", **changes: object) -> Rig:
    """The first subscriber, which has heard of other forwarders since."""
    rig = Rig(1, config(scheme, **changes))
    assert answers(rig.subscribe()) == [(1, "instantiated")]
    for request, other in enumerate(OTHERS, 1):
        rig.hear(other, Appeared(request, T))
    return rig


def parent(children: tuple[int, ...] = (8, 9), **changes: object) -> Rig:
    """A forwarder with children, which lie closer to it than to the others."""
    rig = Rig(1, config(**changes))  # type: ignore[arg-type]
    rig.subscribe()
    for request, child in enumerate(children, 1):
        rig.hear(child, RoleRequest(request, T, JOIN, 1, 2))
    return rig


def place(number: int) -> int:
    return position(location(T, contact(number).peer))


def level(number: int, other: int = 1) -> int:
    return common_prefix(place(number), place(other), BITS)


def routing(rig: Rig) -> TopicRouting:
    assert isinstance(rig.peer.routing, TopicRouting)
    return rig.peer.routing


def child_of_2() -> Rig:
    rig = Rig(1, config())
    machine = routing(rig)
    rig.subscribe()
    role = machine.topics.roles.by_topic[T]
    machine.topics.initiator.step_down(role, [contact(2)], lambda: None)
    machine.topics.initiator.become_child(role, contact(2), [contact(3)])
    rig.wait(1)
    return rig
