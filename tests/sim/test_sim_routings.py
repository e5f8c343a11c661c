"""Every routing in the simulator: with faults, with and without history, replayed by its seed."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from weft.protocol.config import Config, Cyclon, History, Routing
from weft.sim.builder import OneTopic
from weft.sim.network import Conditions, Latency
from weft.sim.scenario import PROMISES, ScenarioSettings, run

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


@pytest.mark.parametrize("routing", ["flood", "pulsarcast"])
def test_the_same_seed_is_the_same_run(routing: Routing) -> None:
    settings = replace(SMALL, routing=routing, history=True)
    assert run(settings).as_dict() == run(settings).as_dict()


KEEPING, LACKING = range(8), range(8, 12)
"""Peers with a store, and without."""


def mixed(routing: Routing) -> OneTopic:
    """A network of peers of both kinds, all subscribed."""
    config = Config(routing=routing, cyclon=Cyclon(cycle_ms=2_000))
    keeping = replace(config, history=History(enabled=True))
    net = OneTopic(5, config, Conditions(latency=Latency(typical_ms=10)), keys=True)
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
    """Whoever keeps history gets all that is published with it, whoever does not gets the payloads.
    What a peer without a store publishes is signed by nobody: those with one refuse it."""
    net = mixed(routing)
    payloads = [b"%d" % number for number in KEEPING]
    for number, payload in zip(KEEPING, payloads, strict=True):
        net.publish(number, payload=payload, every_ms=1_000)
    net.publish(LACKING[0], payload=b"signed by nobody", every_ms=60_000)
    for number in (*KEEPING, *LACKING):
        got = [one.event.payload for one in net.deliveries(number)]
        unsigned = [payload for payload in got if payload not in payloads]
        assert sorted(got) == sorted(payloads + unsigned), number
        assert set(unsigned) <= {b"signed by nobody"} and not (unsigned and number in KEEPING)
    assert net.counted("history_refused_not_canonical") > 0
