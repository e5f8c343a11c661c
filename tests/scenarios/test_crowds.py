"""Very many subscribe to one topic at the same instant: they end as one group, not as several."""

from __future__ import annotations

import pytest

from weft.protocol.config import Config, Routing
from weft.sim.builder import OneTopic

CALM_MS = 10_000
"""A crowd is one group by then."""


def got(net: OneTopic, payload: bytes) -> int:
    """The subscribers that an event has reached."""
    return len({one.peer for one in net.world.record.deliveries if one.event.payload == payload})


def reached(net: OneTopic, publishers: list[int]) -> list[int]:
    """How many peers each of the named ones reaches within ten seconds."""
    for number in publishers:
        net.publish(number, payload=b"%d" % number)
    net.run(10_000)
    return [got(net, b"%d" % number) for number in publishers]


@pytest.mark.parametrize("routing", ["tera", "topic-dht", "pulsarcast", "flood"])
@pytest.mark.parametrize("size", [10, 60])
def test_a_crowd_in_a_network_that_stands(routing: Routing, size: int) -> None:
    net = OneTopic(1, Config(routing=routing))
    for number in range(size):
        known = [net.dice.below("test.known", number, number)] if number else []
        net.enter(known, then_ms=50)
    net.run(60_000)
    net.subscribe(*range(size))
    net.run(CALM_MS)
    assert reached(net, [0, size // 3, size - 1]) == [size] * 3


@pytest.mark.parametrize("routing", ["tera", "topic-dht", "pulsarcast", "flood"])
def test_a_network_that_comes_up_within_a_second(routing: Routing) -> None:
    net = OneTopic(1, Config(routing=routing))
    for number in range(60):
        net.enter([0] if number else [], then_ms=15)
        net.subscribe(number)
    net.run(CALM_MS)
    assert reached(net, [0, 20, 59]) == [60] * 3


@pytest.mark.parametrize("seed", [1, 2])
def test_the_last_of_many_have_links_though_the_first_are_full(seed: int) -> None:
    """Ten processes start one after the other. Before full members made room, members of each of
    these networks had two or three links of the five they want, for minutes."""
    net = OneTopic(seed, Config())
    for number in range(100):
        net.enter([number // 10 * 10 - 10 * (number % 10 == 0)] if number else [], then_ms=30)
        net.subscribe(number)
        net.run(400 if number % 10 == 9 else 0)
    net.run(20_000)
    least = min(len(peer.tera.topics[net.topic].links.linked) for peer in net.peers())
    assert least >= Config().links.wanted


@pytest.mark.parametrize("seed", [1, 16])
def test_nobody_in_a_crowd_is_unknown_to_all_others(seed: int) -> None:
    """Views that take but a little from others must not leave out those that come last."""
    net = OneTopic(seed, Config())
    for number in range(60):
        net.enter([0] if number else [], then_ms=15)
    for _ in range(3):
        net.run_cycles(1)
        in_views = {one for peer in net.peers() for one in peer.general.peers}
        assert in_views == {node.contact.peer for node in net.nodes}


def test_two_of_very_many_find_each_other() -> None:
    net = OneTopic(8, Config(routing="topic-dht"))
    for number in range(100):
        known = [net.dice.below("test.known", number, number)] if number else []
        net.enter(known, then_ms=50)
    net.run(60_000)
    members = net.dice.some("test.members", range(100), 2)
    for number in members:
        net.subscribe(number)
        net.run(3_000)
    assert reached(net, members) == [2, 2]
