"""What the push tree costs once it stands: one payload per delivery, over links with jitter too."""

from __future__ import annotations

import pytest

from weft.sim.scenario import Scenario, Settings


@pytest.mark.parametrize("seed", [1, 2])
def test_tree_carries_one_copy_per_delivery(seed: int) -> None:
    """50 peers in one topic, 12 events a second, 1 to 40 ms from peer to peer."""
    scenario = Scenario(Settings(seed=seed, peers=50, topics=1, events=2_000, calm=True))
    world = scenario.world
    world.run_until(100_000)
    copies, deliveries = world.copies, len(world.record.deliveries)
    events = len(world.record.publications)
    world.run_until(scenario.timeline.end_ms)
    copies = world.copies - copies
    deliveries = len(world.record.deliveries) - deliveries
    events = len(world.record.publications) - events
    assert scenario.judge() == []
    assert events > 500
    # A publisher is subscribed here and needs no copy of its own event.
    assert copies <= 1.05 * (deliveries - events)
