"""A reader that is far behind a busy stream: its link announces in place of pushing, until it is
nearly level; nobody else notices, and nothing is lost."""

from __future__ import annotations

import pytest

from history_kit import Town
from weft.protocol.history import reader

SLOW = 48 << 10
"""Bytes of history that a member serves to one asker in a second: a reading takes a while."""


@pytest.fixture(autouse=True)
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of hundreds of events are long ones."""
    monkeypatch.setattr(reader, "NEAR", 40)
    monkeypatch.setattr(reader, "FAR", 160)


def busy_town(peers: int, backlog: int) -> Town:
    """All but the last one are subscribed, and peer 0 has published a long past."""
    town = Town(peers, serve_bytes_per_s=SLOW)
    town.subscribe(*range(peers - 1))
    town.run(20_000)
    town.publish(*[0] * backlog, every_ms=4)
    town.run(5_000)
    return town


def read_behind(town: Town, late: int, live: int) -> None:
    """The late peer reads the past while so many events are published."""
    town.subscribe(late, since="beginning")
    town.publish(*[0] * live, every_ms=10)


def received(town: Town, number: int) -> int:
    return town.peer(number).counters.get("payloads_received", 0)


def test_a_reader_far_behind_is_announced_to_and_then_pushed_to_again() -> None:
    town = busy_town(2, 800)
    read_behind(town, 1, 300)
    late = town.peer(1).counters
    assert late["tree_spared"] == 1
    pushed = received(town, 1)
    assert pushed < 60  # before it said so
    town.run(30_000)
    assert town.stream(1) == town.stream(0)
    before = received(town, 1)
    town.publish(*[0] * 20, every_ms=50)
    town.run(1_000)
    assert received(town, 1) == before + 20  # level: payloads come again
    assert town.stream(1) == town.stream(0)
    town.run(30_000)
    assert late.get("repaired", 0) + late.get("repairs_duplicate", 0) == 0  # nothing comes twice
    assert [cid for _, cid in town.delivered(1)] == town.stream(0)


def test_members_that_are_not_behind_get_what_they_always_get() -> None:
    """Whichever place in the tree the reader has: if others are fed by it, it keeps being fed."""
    town = busy_town(6, 400)
    begun = town.world.now_ms
    read_behind(town, 5, 150)
    town.run(2_000)
    for number in range(1, 5):
        lately = [one for one in town.deliveries(number) if one.at_ms >= begun]
        assert len(lately) == 150
        assert max(one.at_ms - one.event.published_ms for one in lately) < 1_500
    town.run(40_000)
    assert town.stream(5) == town.stream(0)


@pytest.mark.parametrize("victim", [0, 2])
def test_nothing_is_lost_when_a_reader_or_its_link_is_killed_while_it_is_spared(
    victim: int,
) -> None:
    """Peer 2 reads; peer 0 publishes; either dies meanwhile, and comes back."""
    town = busy_town(3, 1_200)
    read_behind(town, 2, 200)  # time enough for one of two links to become lazy
    assert town.peer(2).counters["tree_spared"] == 1
    town.crash(victim, silent=True)
    publisher = 1 if victim == 0 else 0
    town.publish(*[publisher] * 100, every_ms=10)
    town.run(30_000)
    town.start(victim, [publisher])
    town.run(1_000)
    town.subscribe(victim, since="beginning" if victim == 2 else None)
    town.publish(*[publisher] * 20, every_ms=10)
    town.run(90_000)
    assert len(town.stream(2)) == 1_520
    assert town.stream(2) == town.stream(publisher) == town.stream(victim)
