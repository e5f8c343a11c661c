"""Trees and floods under any messages in any order; `protocol_kit.check` runs after every step."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_protocol_peer_bounds import flood, sizes
from test_protocol_peer_fuzz import TINY, Script, converse, play, steps

from arbitrary import MESSAGES
from protocol_kit import Rig
from weft.ids import Topic
from weft.protocol import config as c
from weft.protocol.flood import FloodMember
from weft.protocol.publication import RouteEvent
from weft.protocol.pulsar.attachment import TreeJoin, TreeJoinReply
from weft.protocol.pulsar.branch import RendezvousSync, TreeFamily, TreeLeave
from weft.protocol.pulsar.pulsar import Pulsar
from weft.protocol.wire import Payload

TREES = replace(
    TINY,
    routing="pulsarcast",
    dht=c.KademliaSettings(k=4, spare=2, alpha=2),
    pulsar=c.PulsarSettings(rendezvous=2, children_max=2, patience_cycles=2, trees_max=4),
    stan=replace(TINY.stan, lean=False),
)
FLOOD = replace(TINY, routing="flood", stan=c.Stan())
OWN = (TreeJoin, TreeJoinReply, TreeFamily, TreeLeave, RendezvousSync, FloodMember)


def ready(config: c.Config) -> Rig:
    rig = Rig(1, config)
    rig.subscribe(Topic("/a"))
    rig.subscribe(Topic("/b"))
    rig.meet(2, 3)
    rig.hear(2, TreeJoin(Topic("/a"), True))
    rig.hear(3, RendezvousSync(Topic("/a"), 1, True, 1, [], [], True))
    return rig


def check_trees(rig: Rig) -> None:
    routing = rig.peer.routing
    if not isinstance(routing, Pulsar):
        return
    settings = rig.peer.config.pulsar
    for branch in routing.trees.by_topic.values():
        assert len(branch.children) <= settings.children_max
        assert len(branch.fellows) <= 2 * settings.rendezvous
        assert not (branch.rendezvous and branch.parent is not None)
        assert branch.rendezvous or not branch.fellows
        assert not branch.children.keys() & branch.fellows.keys()
        assert branch.parent is None or branch.parent.peer not in branch.children
        assert branch.watched.keys() == branch.links().keys()


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("config", [TREES, FLOOD], ids=["trees", "flood"])
@settings(max_examples=25)
@given(data=st.data())
def test_no_message_hurts(config: c.Config, kind: type, data: st.DataObject) -> None:
    rig = ready(config)
    for _ in range(4):
        sender = data.draw(st.integers(2, 6))
        rig.hear(sender, data.draw(MESSAGES[kind]))
        check_trees(rig)
    rig.wait(50_000)
    check_trees(rig)


@pytest.mark.parametrize("config", [TREES, FLOOD], ids=["trees", "flood"])
@settings(max_examples=100)
@given(script=st.lists(steps, max_size=40))
def test_no_order_of_things_hurts(config: c.Config, script: Script) -> None:
    rig = ready(config)
    play(rig, script)
    check_trees(rig)
    rig.wait(100_000)
    check_trees(rig)


@pytest.mark.parametrize("config", [TREES, FLOOD], ids=["trees", "flood"])
@pytest.mark.parametrize("seed", range(3))
def test_no_conversation_hurts(config: c.Config, seed: int) -> None:
    rig = ready(config)
    converse(rig, Random(seed), 600, check_trees)


@pytest.mark.parametrize("kind", [*OWN, Payload, RouteEvent], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("config", [TREES, FLOOD], ids=["trees", "flood"])
def test_no_flood_makes_a_peer_grow(config: c.Config, kind: type) -> None:
    rig = ready(config)
    flood(rig, Random(kind.__name__), kind, "/a", 500)
    bounds = {"Flood._heard": 4 * 4_096}
    large = {
        where: size for where, size in sizes(rig.peer).items() if size > bounds.get(where, 400)
    }
    assert large == {}
