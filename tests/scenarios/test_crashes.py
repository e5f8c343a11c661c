"""Many peers die at once: the others go on, and find each other again."""

from __future__ import annotations

from typing import Literal

import pytest

from weft.protocol.config import Config
from weft.protocol.seam import Outcome
from weft.sim.builder import OneTopic
from weft.sim.network import Partition

Name = Literal["tera", "topic-dht", "pulsarcast"]


def settled(seed: int, routing: Name, subscribers: int, outsiders: int) -> OneTopic:
    net = OneTopic(seed, Config(routing=routing))
    for number in range(subscribers + outsiders):
        known = [net.dice.below("test.known", number, number)] if number else []
        net.enter(known, then_ms=50)
    for number in range(subscribers):
        net.subscribe(number)
        net.run(200)
    net.run(60_000)
    return net


def publish(net: OneTopic, publishers: list[int], count: int) -> list[bytes]:
    """One event every half second, from one peer after the other."""
    payloads = [b"%d at %d" % (number, net.world.now_ms) for number in range(count)]
    for number, payload in enumerate(payloads):
        net.publish(publishers[number % len(publishers)], payload=payload, every_ms=500)
    return payloads


def late(net: OneTopic, payloads: list[bytes], members: list[int], within_ms: int) -> int:
    """Of the deliveries that are wanted, those that did not happen in time."""
    published = {one.payload: one.at_ms for one in net.world.record.publications.values()}
    wanted = {(payload, member) for payload in payloads for member in members}
    for one in net.world.record.deliveries:
        if one.at_ms - published[one.event.payload] <= within_ms:
            wanted.discard((one.event.payload, one.peer))
    return len(wanted)


@pytest.mark.parametrize("routing", ["tera", "topic-dht"])
def test_after_a_silent_crash_of_most_events_are_late_by_seconds_at_most(routing: Name) -> None:
    net = settled(1, routing, subscribers=30, outsiders=3)
    publish(net, list(range(30)), 10)
    dead = [number for number in range(33) if number % 5]  # 26 of 33
    net.crash(*dead, silent=True)
    members, everybody = net.alive(range(30)), net.alive()
    assert len(members) == 6 and len(everybody) == 7
    payloads = publish(net, everybody, 40)
    net.run(20_000)
    assert late(net, payloads, members, within_ms=10_000) == 0


@pytest.mark.parametrize("seed", [3, 4])
def test_an_event_from_outside_waits_while_a_subscriber_lives(seed: int) -> None:
    """Of 24 members of a topic one is left, and the publisher knows many that are dead."""
    net = settled(seed, "tera", subscribers=24, outsiders=4)
    net.crash(*range(1, 24), silent=True)
    publish(net, [24], 4)
    net.run(40_000)
    outcomes: list[Outcome] = [
        one.answers[-1][1].outcome for one in net.world.record.publications.values()
    ]
    assert outcomes == ["delivered"] * 4
    assert len(net.deliveries(0)) == 4


def test_no_island_stays_when_nearly_all_are_killed() -> None:
    net = settled(1, "tera", subscribers=80, outsiders=0)
    alive = [7, 23, 41, 66]
    net.crash(*(number for number in range(80) if number not in alive))
    net.run(30_000)
    views = {peer.me.peer: set(peer.general.peers) for peer in net.peers()}
    assert all(views[peer] <= set(views) for peer in views)  # no dead are left in them
    met = {next(iter(views))}
    for _ in views:
        met |= {one for peer in views for one in (peer, *views[peer]) if met & {peer, *views[peer]}}
    assert met == set(views)
    payloads = publish(net, alive, 4)
    net.run(5_000)
    assert late(net, payloads, alive, within_ms=5_000) == 0


def test_a_short_cut_in_two_heals_at_once() -> None:
    net = settled(1, "tera", subscribers=24, outsiders=0)
    everybody = list(range(24))
    net.world.set_partition(Partition(tuple(number % 2 for number in everybody)))
    during = publish(net, everybody, 40)
    net.world.set_partition(None)
    after = publish(net, everybody, 20)
    net.run(20_000)
    assert late(net, after, everybody, within_ms=10_000) == 0
    assert late(net, during, everybody, within_ms=30_000) == 0


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 7])
def test_the_halves_of_a_small_topic_find_each_other_within_cycles(seed: int) -> None:
    """Each side knew its own two members alone, under the one overlay id. They met when two of them
    happened to exchange views of the general overlay: 10 to 160 s after the cut."""
    net = OneTopic(seed, Config())
    members = range(4)
    for number in range(54):
        net.enter([0] if number else [], then_ms=50)
    net.subscribe(*members)
    net.run(60_000)
    net.world.set_partition(Partition(tuple(number % 2 for number in range(54))))
    net.run(600_000)
    net.world.set_partition(None)
    net.run(30_000)
    states = [peer.tera.topics[net.topic] for peer in list(net.peers())[: len(members)]]
    known = [{*state.view.peers, *state.links.linked} for state in states]
    assert [len(one) for one in known] == [3, 3, 3, 3]


@pytest.mark.parametrize("told", [False, True])
def test_links_join_the_halves_of_a_larger_topic_before_anything_is_published(told: bool) -> None:
    """Each half had links enough of its own, so views mixed and no link crossed."""
    net = settled(1, "tera", subscribers=20, outsiders=0)
    net.world.set_partition(Partition(tuple(number % 2 for number in range(20))), told)
    net.run(600_000)
    net.world.set_partition(None)
    net.run(30_000)
    links = [peer.tera.topics[net.topic].links.linked for peer in net.peers()]
    halves = [{node.contact.peer for node in net.nodes[side::2]} for side in (0, 1)]
    crossing = [sum(one not in halves[n % 2] for one in linked) for n, linked in enumerate(links)]
    assert 4 <= sum(crossing) <= 40
    assert max(map(len, links)) <= 10
