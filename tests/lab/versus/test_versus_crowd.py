"""Universes drawn from memberships of any size, and what is published in them."""

from __future__ import annotations

import numpy as np
import pytest

from weft.lab.versus.crowd import (
    LEAST,
    RATE,
    TRACE,
    Happened,
    Numbers,
    Publications,
    Universe,
    draw_universe,
)


def many(users: int = 500, topics: int = 60) -> tuple[Numbers, Numbers]:
    """Each user is in three topics beside each other."""
    pairs = [
        (((user * 7) // 10 + step) % topics, user) for user in range(users) for step in (0, 1, 2)
    ]
    table = np.array(pairs, np.int32)
    return table[:, 0], table[:, 1]


def test_a_universe_has_at_most_so_many_peers_and_only_topics_that_are_shared() -> None:
    universe = draw_universe(*many(), peers=40, seed=1)
    assert 20 <= universe.peers <= 40
    assert all(universe.topics_of(peer) for peer in range(universe.peers))
    assert all(len(members) >= LEAST for members in universe.by_topic.values())


def test_the_draw_is_the_seeds() -> None:
    assert draw_universe(*many(), 40, 3) == draw_universe(*many(), 40, 3)
    assert draw_universe(*many(), 40, 3) != draw_universe(*many(), 40, 4)


def test_fewer_users_than_peers_are_all_taken() -> None:
    universe = draw_universe(*many(users=20, topics=4), peers=40, seed=1)
    assert universe.peers == 20


def test_memberships_without_anything_in_common_are_refused() -> None:
    alone = np.arange(10, dtype=np.int32)
    with pytest.raises(ValueError, match="no topic has 3 subscribers"):
        draw_universe(alone, alone, 40, 1)


def test_publishers_are_subscribers_and_events_keep_to_the_window() -> None:
    universe = draw_universe(*many(), peers=30, seed=1)
    events = list(Publications(universe, 1, 50, 60_000).events())
    assert len(events) == 50
    assert [at for at, *_ in events] == sorted(at for at, *_ in events)
    assert all(0 <= at < 60_000 for at, *_ in events)
    assert all(peer in universe.members(topic) for _, peer, topic, _ in events)


def did(rows: list[tuple[int, int, int]]) -> Happened:
    """From rows of user, topic and time."""
    users, topics, times = (np.array(column) for column in zip(*rows, strict=True))
    return topics.astype(np.int32), users.astype(np.int32), times


def test_what_users_did_is_what_is_published_with_its_bursts() -> None:
    pairs = np.array([(topic, user) for user in (50, 60, 70) for topic in (4, 9)], np.int32)
    universe = draw_universe(pairs[:, 0], pairs[:, 1], peers=10, seed=1)
    peers = {user: peer for peer, user in enumerate(universe.users)}
    burst = [(60, 9, 1_000), (60, 9, 1_001), (50, 4, 1_002), (70, 9, 11_000)]
    foreign = [(99, 9, 5_000), (50, 8, 6_000)]  # not of the universe
    published = Publications(universe, 1, 4, 60_000, did([*reversed(burst), *foreign]))
    assert published.driven_by == TRACE
    events = list(published.events())
    assert [(peer, topic) for _, peer, topic, _ in events] == [
        (peers[user], f"/t{topic}") for user, topic, _ in burst
    ]
    assert [at for at, *_ in events] == [(at - 1_000) * 59_999 // 10_000 for *_, at in burst]
    assert len({payload for *_, payload in events}) == 4


def test_a_trace_that_tells_too_little_leaves_the_rate() -> None:
    universe = draw_universe(*many(), peers=30, seed=1)
    user, topic = universe.users[0], int(universe.topics_of(0)[0].removeprefix("/t"))
    nothing = did([(-1, -1, 0)])
    for happened in (None, nothing, did([(user, topic, at) for at in range(24)])):
        published = Publications(universe, 1, 50, 60_000, happened)
        assert published.driven_by == RATE
        assert len(list(published.events())) == 50
    published = Publications(universe, 1, 50, 60_000, did([(user, topic, at) for at in range(25)]))
    assert published.driven_by == TRACE
    assert {peer for _, peer, *_ in published.events()} == {0}


def test_a_universe_knows_its_members() -> None:
    universe = Universe((("/a",), ("/a", "/b")))  # type: ignore[arg-type]
    assert universe.by_topic == {"/a": [0, 1], "/b": [1]}
    assert universe.memberships() == [(0, "/a"), (1, "/a"), (1, "/b")]
