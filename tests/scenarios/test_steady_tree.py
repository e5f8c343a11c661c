"""What the push tree costs: one payload per delivery, over links with jitter too, once it stands
and while it is shaped by heavy traffic."""

from __future__ import annotations

from functools import partial

import pytest

from weft.protocol.config import Config, Stan
from weft.sim.builder import OneTopic
from weft.sim.scenario import Scenario, ScenarioSettings
from weft.sim.world import World


def test_tree_carries_one_copy_per_delivery() -> None:
    """30 peers in one topic, 6 events a second, 1 to 40 ms from peer to peer."""
    scenario = Scenario(ScenarioSettings(seed=1, peers=30, topics=1, events=1_000, calm=True))
    world = scenario.world
    world.run_until(100_000)
    copies, deliveries = world.copies, len(world.record.deliveries)
    events = len(world.record.publications)
    world.run_until(scenario.timeline.end_ms)
    copies = world.copies - copies
    deliveries = len(world.record.deliveries) - deliveries
    events = len(world.record.publications) - events
    assert scenario.judge() == []
    assert events > 300
    # A publisher is subscribed here and needs no copy of its own event.
    assert copies <= 1.05 * (deliveries - events)


PEERS = 30
EVENTS = 250


def busy_world(seed: int, stan: bool, publishers: int) -> World:
    """Members of one topic, of which some publish 50 events a second from 60 s on."""
    net = OneTopic(seed, Config(stan=Stan(enabled=stan)))
    for number in range(PEERS):
        net.enter([0] if number else [])
        net.subscribe(number)
    for number in range(EVENTS):
        publisher = net.dice.below("busy.publisher", publishers, number)
        publish = partial(net.publish, publisher, payload=b"%d" % number)
        net.world.at(60_000 + 20 * number, publish)
    net.run(75_000)
    return net.world


@pytest.mark.parametrize("publishers", [1, 10])
@pytest.mark.parametrize("stan", [False, True])
def test_heavy_traffic_from_the_first_event_on_leaves_one_tree(stan: bool, publishers: int) -> None:
    world = busy_world(1, stan, publishers)
    remote = EVENTS * (PEERS - 1)
    assert len(world.record.deliveries) == EVENTS + remote
    assert world.copies <= 1.05 * remote
    started = {one.payload: one.at_ms for one in world.record.publications.values()}
    waits = [one.at_ms - started[one.event.payload] for one in world.record.deliveries]
    asked_for = [wait for wait in waits if wait >= Config().dissemination.graft_timeout_ms]
    assert len(asked_for) <= 0.001 * remote  # nobody was cut off for long
