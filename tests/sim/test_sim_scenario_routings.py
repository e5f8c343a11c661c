"""Every routing in the simulator: with faults, with and without history, replayed by its seed."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from weft.protocol.config import Config, Cyclon, HistorySettings, Routing
from weft.sim.builder import OneTopic
from weft.sim.faults import Fault
from weft.sim.network import Conditions, Latency
from weft.sim.scenario import PROMISES, Scenario, ScenarioSettings, run

SMALL = ScenarioSettings(seed=3, peers=10, topics=3, events=30)


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


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("routing", get_args(Routing))
def test_an_event_behind_a_later_one_is_a_violation(routing: Routing, history: bool) -> None:
    """In a calm run, of every routing."""
    scenario = Scenario(replace(SMALL, routing=routing, history=history, calm=True))
    assert scenario.play() == []
    deliveries = scenario.world.record.deliveries
    of_one = [
        at
        for at, one in enumerate(deliveries)
        if (one.peer, one.topic, one.event.publisher)
        == (deliveries[0].peer, deliveries[0].topic, deliveries[0].event.publisher)
    ]
    first, second = of_one[:2]
    deliveries[first], deliveries[second] = deliveries[second], deliveries[first]
    assert any(", after number " in text for text in scenario.judge())


@pytest.mark.parametrize("routing", ["flood", "pulsarcast"])
def test_the_same_seed_is_the_same_run(routing: Routing) -> None:
    settings = replace(SMALL, routing=routing, history=True)
    assert run(settings).as_dict() == run(settings).as_dict()


@pytest.mark.parametrize(
    ("seed", "faults"),
    [
        (4, ("loss", "duplication", "crashes", "partitions", "churn")),
        (5, ("distance", "stalls", "slow", "clocks")),
    ],
)
def test_each_fault_of_a_plan_is_played(seed: int, faults: tuple[Fault, ...]) -> None:
    """A run without it is another run."""
    settings = replace(SMALL, seed=seed)
    played = run(settings).counts
    for fault in faults:
        assert run(replace(settings, without=(fault,))).counts != played, fault


KEEPING, LACKING = range(8), range(8, 12)
"""Peers with a store, and without."""


def mixed(routing: Routing) -> OneTopic:
    """A network of peers of both kinds, all subscribed."""
    config = Config(routing=routing, cyclon=Cyclon(cycle_ms=2_000))
    keeping = replace(config, history=HistorySettings(enabled=True))
    net = OneTopic(5, config, Conditions(latency=Latency(typical_ms=10)))
    for number in (*KEEPING, *LACKING):
        net.add(keeping if number in KEEPING else config)
    for number in (*KEEPING, *LACKING):
        net.start(number, [0])
    net.run(20_000)
    net.subscribe(*KEEPING, *LACKING)
    net.run(40_000)
    return net


@pytest.mark.parametrize("routing", ["tera", "pulsarcast", "flood"])
def test_peers_with_and_without_a_store(routing: Routing) -> None:
    """Peers that keep history and peers that do not get each other's events. What a peer without a
    store publishes is stored by nobody: there is no block of it."""
    net = mixed(routing)
    payloads = [b"%d" % number for number in KEEPING]
    for number, payload in zip(KEEPING, payloads, strict=True):
        net.publish(number, payload=payload, every_ms=1_000)
    plain = b"\xa7 looks like a block"
    net.publish(LACKING[0], payload=plain, every_ms=60_000)
    for number in (*KEEPING, *LACKING):
        got = [one.event.payload for one in net.deliveries(number)]
        assert sorted(got) == sorted([*payloads, plain]), number
    for number in KEEPING:
        assert len(net.stored(number)) == len(payloads)
    assert net.counted("history_plain") == len(KEEPING)
