"""When a swarm counts as settled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.lab.census import Census, Look
from weft.protocol.config import Config, Cyclon, Links

CONFIG = Config(cyclon=Cyclon(view_size=10, shuffle_length=4), links=Links(wanted=5))
WELL = Look(
    isolated=False,
    view=10,
    linked=6,
    links_least=5,
    connections=9,
    topics=2,
    notifications=0,
    opened=20,
)


def census(*looks: Look) -> Census:
    return Census(dict(enumerate(looks)), 1.0, {})


def test_peers_that_have_what_they_want_are_settled() -> None:
    assert census(*[WELL] * 30).settled(30, 2, CONFIG) == 30


@pytest.mark.parametrize(
    ("change", "settled"),
    [
        ({"isolated": True}, False),
        ({"view": 8}, True),  # one is being asked, one answer is on its way
        ({"view": 7}, False),
        ({"links_least": 4}, True),
        ({"links_least": 3}, False),
        ({"topics": 1}, False),
    ],
)
def test_each_thing_that_is_missing_counts(change: dict[str, int], settled: bool) -> None:
    looks = [WELL] * 29 + [replace(WELL, **change)]  # type: ignore[arg-type]
    assert census(*looks).settled(30, 2, CONFIG) == 29 + settled


def test_a_small_swarm_needs_no_more_than_there_is() -> None:
    small = replace(WELL, view=2, links_least=2)
    assert census(small, small, small).settled(3, 2, CONFIG) == 3


def test_without_topics_links_do_not_matter() -> None:
    bare = replace(WELL, topics=0, linked=0, links_least=0)
    assert census(*[bare] * 30).settled(30, 0, CONFIG) == 30


def test_each_connection_counts_once() -> None:
    assert census(WELL, WELL).connections_made == 20
