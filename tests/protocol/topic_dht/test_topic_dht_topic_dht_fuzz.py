"""The topic-aware DHT under any messages in any order; `protocol_kit.check` judges every step."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_protocol_peer_bounds import flood, sizes
from test_protocol_peer_fuzz import TINY, Script, converse, play, steps

from arbitrary import MESSAGES
from cast_kit import SCHEMES
from protocol_kit import Rig
from weft.ids import Topic
from weft.protocol import config as c
from weft.protocol.publication import RouteEvent
from weft.protocol.quota import COUNTED_MAX
from weft.protocol.recent import Repair
from weft.protocol.rooms import CHILDREN_MAX, Scheme
from weft.protocol.rooms import TopicDhtSettings as TopicConfig
from weft.protocol.topic_dht.roles import (
    Appeared,
)
from weft.protocol.topic_dht.topic_dht import TopicDhtMessage, TopicRouting
from weft.protocol.wire import Payload

A, B = Topic("/a"), Topic("/b")
CONFIGS = {
    scheme: replace(
        TINY,
        routing="topic-dht",
        dht=c.KademliaSettings(k=4, spare=2, alpha=2),
        topic_dht=TopicConfig(
            scheme=scheme,
            children_max=2,
            alternatives_max=2,
            links_per_level=2,
            roots=3,
            view_max=3,
            gossip_mode="push-pull",
        ),
        stan=replace(TINY.stan, lean=False, enabled="gossip" in scheme),
    )
    for scheme in SCHEMES
}
OWN = get_args(TopicDhtMessage)
configs = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def ready(config: c.Config) -> Rig:
    rig = Rig(1, config)
    rig.subscribe(A)
    rig.subscribe(B)
    rig.meet(2, 3)
    rig.hear(2, Appeared(1, A))
    return rig


def check_roles(rig: Rig) -> None:
    routing = rig.peer.routing
    assert isinstance(routing, TopicRouting)
    settings = rig.peer.config.topic_dht
    for topic, role in routing.topics.roles.by_topic.items():
        assert role.forwarder is None or role.child is None
        assert len(role.view) <= settings.view_max
        if role.forwarder is not None:
            assert len(role.forwarder.children) <= CHILDREN_MAX
        if role.child is not None:
            assert len(role.child.alternatives) <= settings.alternatives_max
        assert topic in routing.events.members.by_topic or not role.wanted
    for member in routing.events.members.by_topic.values():
        assert all(len(level) <= settings.links_per_level for level in member.links.values())
        assert len(member.served) <= rig.peer.config.dissemination.recent_events_max


@pytest.mark.parametrize("kind", [*OWN, Payload, Repair], ids=lambda kind: kind.__name__)
@settings(max_examples=12)
@given(scheme=st.sampled_from(SCHEMES), data=st.data())
def test_no_message_hurts(kind: type, scheme: Scheme, data: st.DataObject) -> None:
    rig = ready(CONFIGS[scheme])
    for _ in range(4):
        sender = data.draw(st.integers(2, 6))
        rig.hear(sender, data.draw(MESSAGES[kind]))
        check_roles(rig)
    rig.wait(50_000)
    check_roles(rig)


@configs
@settings(max_examples=25)
@given(script=st.lists(steps, max_size=40))
def test_no_order_of_things_hurts(config: c.Config, script: Script) -> None:
    rig = ready(config)
    play(rig, script)
    check_roles(rig)
    rig.wait(100_000)
    check_roles(rig)


@configs
def test_no_conversation_hurts(config: c.Config) -> None:
    rig = ready(config)
    converse(rig, Random(config.topic_dht.scheme), 600, check_roles)


@pytest.mark.parametrize("kind", [*OWN, Payload, RouteEvent], ids=lambda kind: kind.__name__)
def test_no_flood_makes_a_peer_grow(kind: type) -> None:
    rig = ready(CONFIGS["forward-gossip"])
    flood(rig, Random(kind.__name__), kind, A, 300)
    # Of as many peers as are counted at all: each with a time and its topics, one here.
    most = {"Shares._counts": COUNTED_MAX * (1 + 2 + 1)}
    grown = {where: size for where, size in sizes(rig.peer).items() if size > most.get(where, 400)}
    assert grown == {}
