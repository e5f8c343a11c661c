"""Which topics an event counts in, by examples and for any path."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.ids import BadId, Topic, parse_topic
from weft.rules import hierarchy

SEGMENTS = st.text("ab.é-", min_size=1, max_size=3).filter(lambda text: text not in (".", ".."))
PATHS = st.lists(SEGMENTS, min_size=1, max_size=6).map(lambda parts: Topic("/" + "/".join(parts)))
ROOTS = st.lists(PATHS | st.just("/"), max_size=3)


def within(roots: Sequence[str]) -> Callable[[Topic], list[Topic]]:
    return lambda topic: hierarchy.above(topic, roots)


def prefixes(topic: str) -> list[str]:
    """Every path from a topic upwards, written the slow way."""
    parts = topic.split("/")[1:]
    return ["/" + "/".join(parts[:length]) for length in range(len(parts), 0, -1)]


@pytest.mark.parametrize(
    ("topic", "roots", "levels"),
    [
        ("/a/b/c", [], ["/a/b/c"]),
        ("/a/b/c", ["/a"], ["/a/b/c", "/a/b", "/a"]),
        ("/a/b/c", ["/a/b"], ["/a/b/c", "/a/b"]),
        ("/a/b/c", ["/a/b/c"], ["/a/b/c"]),
        ("/a/b/c", ["/a/b/c/d"], ["/a/b/c"]),
        ("/a/b/c", ["/"], ["/a/b/c", "/a/b", "/a"]),
        ("/a/b/c", ["/a/b", "/a"], ["/a/b/c", "/a/b", "/a"]),
        ("/ab/c", ["/a"], ["/ab/c"]),
        ("/a", ["/a"], ["/a"]),
    ],
)
def test_an_event_counts_in_the_topics_up_to_the_root(
    topic: str, roots: list[str], levels: list[str]
) -> None:
    assert hierarchy.above(Topic(topic), roots) == levels


@given(PATHS, ROOTS)
def test_levels_are_the_prefixes_that_some_root_contains(topic: Topic, roots: list[str]) -> None:
    levels = hierarchy.above(topic, roots)
    own, *higher = prefixes(topic)
    inside = [
        path for path in higher if any(r in ("/", path) or path.startswith(r + "/") for r in roots)
    ]
    assert levels == [own, *inside]
    for level in levels:
        assert parse_topic(level) == level


@given(PATHS, ROOTS)
def test_climbing_from_a_level_leads_to_the_same_topics_above_it(
    topic: Topic, roots: list[str]
) -> None:
    levels = hierarchy.above(topic, roots)
    for number, level in enumerate(levels[1:], 1):
        assert hierarchy.above(level, roots) == levels[number:]


@given(PATHS, ROOTS)
def test_roots_in_any_order_mean_the_same(topic: Topic, roots: list[str]) -> None:
    assert hierarchy.above(topic, roots) == hierarchy.above(topic, roots[::-1])


@given(PATHS, PATHS)
def test_below_is_a_longer_path_with_the_other_as_its_beginning(one: Topic, other: Topic) -> None:
    assert hierarchy.is_below(one, other) == (other in prefixes(one)[1:])
    assert not hierarchy.is_below(one, one)
    assert hierarchy.is_below(one, "/")


# --- several topics at once, and where an event was published ------------------------------------


@given(PATHS, ROOTS)
def test_every_level_knows_where_the_event_was_published(topic: Topic, roots: list[str]) -> None:
    levels = hierarchy.above(topic, roots)
    assert [hierarchy.origin(level, levels, within(roots)) for level in levels] == [topic] * len(
        levels
    )


@given(st.lists(PATHS, min_size=1, max_size=4, unique=True), ROOTS)
def test_several_topics_climb_together_and_each_level_names_one_of_them(
    named: list[Topic], roots: list[str]
) -> None:
    topics = hierarchy.climb(named, within(roots))
    assert len(set(topics)) == len(topics)
    assert set(topics) == {level for topic in named for level in hierarchy.above(topic, roots)}
    for topic in topics:
        found = hierarchy.origin(topic, topics, within(roots))
        assert found in named
        assert topic in hierarchy.above(found, roots)


def test_topics_outside_hierarchies_stand_for_themselves_even_when_one_is_above() -> None:
    topics = [Topic("/a/b"), Topic("/a")]
    assert hierarchy.origin(Topic("/a"), topics, within([])) == "/a"
    assert hierarchy.origin(Topic("/a"), topics, within(["/a/b"])) == "/a"
    assert hierarchy.origin(Topic("/a"), topics, within(["/a"])) == "/a/b"
    assert hierarchy.origin(Topic("/x"), topics, within(["/"])) == "/x"


# --- what is claimed ------------------------------------------------------------------------------


@given(PATHS, PATHS, ROOTS)
def test_only_a_sub_topic_in_the_same_hierarchy_can_be_the_origin(
    topic: Topic, claim: Topic, roots: list[str]
) -> None:
    believed = hierarchy.may_come_from(topic, claim, roots)
    assert believed == (topic in hierarchy.above(claim, roots)[1:])


@pytest.mark.parametrize(
    "claim", ["/a", "/ab", "/", "", "a/b", "/a/", "/a//b", "/a/..", "/a/\ud800", 7, True]
)
def test_what_is_no_sub_topic_is_no_origin(claim: str | int | bool) -> None:
    assert not hierarchy.may_come_from(Topic("/a"), claim, ["/"])


def test_an_event_without_a_claim_was_published_where_it_is() -> None:
    assert hierarchy.claimed_origin(Topic("/a"), {}) == "/a"
    assert hierarchy.claimed_origin(Topic("/a"), {hierarchy.ORIGIN: "/a/b"}) == "/a/b"
    assert hierarchy.claimed_origin(Topic("/a"), {hierarchy.ORIGIN: 3}) == "/a"


@pytest.mark.parametrize(
    ("topic", "said", "root"),
    [
        ("/a/b", "/a", "/a"),
        ("/a", "/a", "/a"),
        ("/a", "/a/b", None),
        ("/a", "/", None),
        ("/a", "/b", None),
        ("/a", True, None),
    ],
)
def test_a_version_can_only_name_a_root_above_its_topic(
    topic: str, said: str | bool, root: str | None
) -> None:
    assert hierarchy.root_in({hierarchy.ROOT: said}, Topic(topic)) == root
    assert hierarchy.root_in({}, Topic(topic)) is None


@pytest.mark.parametrize("text", ["/", "/a", "/a/b"])
def test_roots_are_topics_or_everything(text: str) -> None:
    assert hierarchy.parse_root(text) == text


@pytest.mark.parametrize("text", ["", "a", "//", "/a/", "/a/.."])
def test_other_roots_are_refused(text: str) -> None:
    with pytest.raises(BadId):
        hierarchy.parse_root(text)
