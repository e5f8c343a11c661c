"""StaN in the real machines, with loss and peers that come and go: views keep their size, topics
come to share peers, and every event still arrives."""

from __future__ import annotations

from functools import partial

import pytest

from weft.protocol.config import Config, Stan
from weft.protocol.peer import Peer
from weft.sim import probe
from weft.sim.checkers import deliveries, state
from weft.sim.dice import Dice
from weft.sim.network import Conditions, Network
from weft.sim.node import Node, contact_of
from weft.sim.workload import Shape, Workload, draw_workload
from weft.sim.world import World

PEERS = 40
CYCLE_MS = Config().cyclon.cycle_ms
CHURN_UNTIL = 24
END = 60


def world_of(seed: int, stan: Stan, loss: int) -> tuple[World, Workload]:
    config = Config(stan=stan)
    shape = Shape(topics_per_peer_max=8)
    workload = draw_workload(seed, PEERS, 8, 30, 20 * CYCLE_MS, shape)
    world = World(Network(seed, Conditions(loss_percent=loss)))
    contacts = [contact_of(seed, peer) for peer in range(PEERS)]
    for contact in contacts:
        world.add(contact, lambda me=contact: Peer(me, seed, config))  # type: ignore[misc]

    def start(node: Node) -> None:
        door = contacts[0 if node.index else 1]
        world.start(node, [door, contacts[(node.index + 7) % PEERS]])
        for topic in workload.interests[node.index]:
            world.subscribe(node, topic)

    dice = Dice(seed)
    for node in world.nodes:
        world.at(node.index * 50, partial(start, node))
    for publication in workload.publications:
        node = world.nodes[publication.peer]
        publish = partial(world.publish, node, publication.topic, publication.payload)
        world.at(8 * CYCLE_MS + publication.at_ms, publish)
    for cycle in range(5, CHURN_UNTIL, 2):  # every other cycle somebody dies and comes back
        node = world.nodes[1 + dice.below("stan.crash", PEERS - 1, cycle)]
        at_ms = cycle * CYCLE_MS
        world.at(at_ms, partial(world.crash, node, cycle % 4 == 1))
        world.at(at_ms + 3 * CYCLE_MS, partial(start, node))
    return world, workload


def ranked_sizes(world: World) -> tuple[int, int]:
    return state.view_sizes(probe.states_of(world).values())


@pytest.mark.parametrize(("seed", "loss"), [(1, 0), (2, 10)])
def test_views_keep_their_size_and_topics_share_peers(seed: int, loss: int) -> None:
    world, _ = world_of(seed, Stan(enabled=True), loss)
    config = Config()
    for cycle in range(6, END + 1, 6):
        world.run_until(cycle * CYCLE_MS)
        states = probe.states_of(world)
        assert state.check_bounds(states.values(), config, world.now_ms) == []
    assert state.check_ranked(probe.states_of(world), world.now_ms) == []
    assert deliveries.check_complete(world.record) == []
    assert deliveries.check_once(world.record) == []
    logical, physical = ranked_sizes(world)
    # Views that are drawn once and never improved, from the same run.
    plain = Stan(enabled=True, period_ms=0, sample=False, overhear=False)
    other, _ = world_of(seed, plain, loss)
    other.run_until(END * CYCLE_MS)
    for node in other.nodes:
        other.collect(node)
    logical_random, physical_random = ranked_sizes(other)
    assert abs(logical - logical_random) < 0.05 * logical_random
    assert physical < 0.9 * physical_random


def test_links_that_carry_events_need_fewer_connections_with_stan() -> None:
    held = {}
    for enabled in (True, False):
        world, _ = world_of(3, Stan(enabled=enabled), loss=0)
        world.run_until(END * CYCLE_MS)
        assert deliveries.check_complete(world.record) == []
        held[enabled] = sum(len(node.holds) for node in world.nodes)
    assert held[True] < 0.85 * held[False]
