"""Every routing in the simulator: with faults, with and without history, replayed by its seed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import get_args

import pytest

from weft.ids import Topic
from weft.protocol.config import Config, Cyclon, History, Routing
from weft.protocol.peer import Peer
from weft.sim.network import Conditions, Latency, Network
from weft.sim.node import keyed
from weft.sim.scenario import PROMISES, run
from weft.sim.settings import Settings
from weft.sim.world import World
from weft.store.memory import MemoryStore

T = Topic("/t")
SMALL = Settings(seed=3, peers=10, topics=3, events=30)


def test_every_routing_has_promises() -> None:
    assert PROMISES.keys() == set(get_args(Routing))


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("routing", get_args(Routing))
def test_a_seed_of_each_routing(routing: Routing, history: bool) -> None:
    settings = replace(SMALL, routing=routing, history=history)
    result = run(settings)
    assert result.violations == []
    assert isinstance(result.counts["delivered"], int) and result.counts["delivered"] > 100
    assert (f"--routing {routing}" in settings.command()) == (routing != "tera")


@pytest.mark.parametrize("routing", ["flood", "pulsarcast"])
def test_the_same_seed_is_the_same_run(routing: Routing) -> None:
    settings = replace(SMALL, routing=routing, history=True)
    assert run(settings).as_dict() == run(settings).as_dict()


KEEPING, LACKING = range(8), range(8, 12)
"""Peers with a store, and without."""


def mixed(routing: Routing) -> World:
    """A network of peers of both kinds, all subscribed."""
    world = World(Network(5, Conditions(latency=Latency(typical_ms=10))))
    for index in (*KEEPING, *LACKING):
        contact, sign = keyed(5, index)
        store = MemoryStore() if index in KEEPING else None
        history = History(enabled=store is not None)
        config = Config(routing=routing, history=history, cyclon=Cyclon(cycle_ms=2_000))
        world.add(contact, partial(Peer, contact, 5, config, store, sign), store=store)
    for node in world.nodes:
        world.start(node, [world.nodes[0].contact])
    world.run_until(20_000)
    for node in world.nodes:
        world.subscribe(node, T)
    world.run_until(60_000)
    return world


@pytest.mark.parametrize("routing", ["tera", "pulsarcast", "flood"])
def test_peers_with_and_without_a_store(routing: Routing) -> None:
    """Whoever keeps history gets all that is published with it, whoever does not gets the payloads.
    What a peer without a store publishes is signed by nobody: those with one refuse it."""
    world = mixed(routing)
    payloads = [b"%d" % number for number in KEEPING]
    for number, payload in zip(KEEPING, payloads, strict=True):
        world.publish(world.nodes[number], T, payload)
        world.run_until(world.now_ms + 1_000)
    world.publish(world.nodes[LACKING[0]], T, b"signed by nobody")
    world.run_until(world.now_ms + 60_000)
    for number in (*KEEPING, *LACKING):
        got = [one.event.payload for one in world.record.deliveries if one.peer == number]
        unsigned = [payload for payload in got if payload not in payloads]
        assert sorted(got) == sorted(payloads + unsigned), number
        assert set(unsigned) <= {b"signed by nobody"} and not (unsigned and number in KEEPING)
    machines = [world.nodes[number].machine for number in KEEPING]
    refused = [m.counters["history_refused_not_canonical"] for m in machines if isinstance(m, Peer)]
    assert sum(refused) > 0
