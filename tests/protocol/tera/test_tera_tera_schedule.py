"""When topics are due, against a plain table of wishes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.ids import Topic
from weft.protocol.tera.tera import Schedule

names = st.sampled_from([Topic(f"/{number}") for number in range(6)])
wishes = st.lists(st.tuples(names, st.integers(1, 4)), max_size=6)


def test_a_topic_comes_once_in_its_cycle() -> None:
    schedule = Schedule()
    schedule.put(Topic("/a"), 3)
    assert [schedule.take(cycle, 9) for cycle in (1, 2, 3, 4)] == [[], [], ["/a"], []]


def test_the_earliest_wish_counts() -> None:
    schedule = Schedule()
    schedule.put(Topic("/a"), 5)
    schedule.put(Topic("/a"), 2)
    schedule.put(Topic("/a"), 9)
    assert [schedule.take(cycle, 9) for cycle in range(1, 10)] == [[], ["/a"], *[[]] * 7]


def test_what_does_not_fit_comes_first_next_time() -> None:
    schedule = Schedule()
    for name in "abc":
        schedule.put(Topic(name), 1)
    schedule.put(Topic("d"), 2)
    assert schedule.take(1, 2) == ["a", "b"]
    assert schedule.take(2, 2) == ["c", "d"]


@given(st.lists(wishes, max_size=12), st.integers(1, 3))
def test_nobody_is_forgotten_early_or_twice(
    rounds: list[list[tuple[Topic, int]]], most: int
) -> None:
    schedule = Schedule()
    due: dict[Topic, int] = {}
    for cycle, round_wishes in enumerate([*rounds, *[[]] * 12], start=1):
        for topic, pause in round_wishes:
            schedule.put(topic, cycle + pause - 1)
            due[topic] = min(due.get(topic, 1 << 30), cycle + pause - 1)
        taken = schedule.take(cycle, most)
        waiting = [topic for topic, when in due.items() if when <= cycle]
        assert len(taken) == min(most, len(waiting))
        assert len(set(taken)) == len(taken)
        for topic in taken:
            assert due.pop(topic) <= cycle
    assert due == {}
