"""Hierarchies in virtual time: the checker names every fault, and seeded networks have none."""

from __future__ import annotations

import pytest

from nameless import contact_of
from weft.documents.run import Event
from weft.ids import Topic
from weft.protocol.config import Routing
from weft.sim.checkers.deliveries import check_complete, check_levels, expected_levels
from weft.sim.record import Delivery, Publication, Record
from weft.sim.scenario import Scenario, ScenarioSettings, run
from weft.sim.workload import HIERARCHY, Shape, draw_workload

TOP, MIDDLE, LOW = Topic("/a"), Topic("/a/b"), Topic("/a/b/c")
NAMED = {b"hello": LOW}
ROOTS = ("/a",)


def _delivery(topic: Topic, published_in: Topic | None) -> Delivery:
    event = Event(contact_of(1, 0).peer, 1, 1, 0, b"hello")
    return Delivery(150, 2, 1, topic, event, 1, None, published_in)


def _sound() -> Record:
    record = Record()
    for token, topic in enumerate((LOW, MIDDLE, TOP)):
        record.publications[token] = Publication(token, 100, 0, 1, topic, b"hello")
    record.deliveries = [_delivery(LOW, None), _delivery(TOP, LOW)]
    return record


def test_a_sound_record_is_accepted() -> None:
    assert check_levels(_sound(), NAMED, ROOTS) == []


def test_a_level_that_was_left_out_is_named() -> None:
    record = _sound()
    del record.publications[1]
    (violation,) = check_levels(record, NAMED, ROOTS)
    assert "went to /a/b/c, /a instead of /a/b/c, /a/b, /a" in violation


def test_a_level_too_high_is_named() -> None:
    violations = check_levels(_sound(), NAMED, ["/a/b"])
    assert "went to /a/b/c, /a/b, /a instead of /a/b/c, /a/b" in violations[0]
    assert "was handed an event of /a/b/c in /a" in violations[1]


@pytest.mark.parametrize("said", [None, MIDDLE])
def test_a_wrong_origin_is_named(said: Topic | None) -> None:
    record = _sound()
    record.deliveries.append(_delivery(TOP, said))
    (violation,) = check_levels(record, NAMED, ROOTS)
    assert f"that an event of /a/b/c was published in {said or TOP}" in violation


def test_what_is_above_is_told_without_the_rules_under_test() -> None:
    assert expected_levels("/a/b/c", []) == ["/a/b/c"]
    assert expected_levels("/a/b/c", ["/"]) == ["/a/b/c", "/a/b", "/a"]
    assert expected_levels("/ab/c", ["/a"]) == ["/ab/c"]


# --- workloads and runs ---------------------------------------------------------------------------


def test_nested_topics_lie_above_one_another_with_levels_nobody_is_in() -> None:
    workload = draw_workload(1, 20, 14, 10, 1_000, Shape(nested=True))
    inside = [topic for topic in workload.topics if topic == HIERARCHY or topic.startswith("/sp")]
    assert len(inside) == 7 and len(set(workload.topics)) == 14
    assert max(topic.count("/") for topic in inside) == 4
    levels = {level for topic in inside for level in expected_levels(topic, [HIERARCHY])}
    assert levels - set(inside) == {"/sports/1/between", "/sports/2/between"}


@pytest.mark.parametrize("history", [False, True], ids=["live", "history"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_exactly_the_subscribers_of_a_topic_and_those_above_get_its_events(
    seed: int, history: bool
) -> None:
    settings = ScenarioSettings(
        seed, peers=16, topics=14, events=50, history=history, hierarchy=True
    )
    scenario = Scenario(settings)
    assert scenario.play() == []
    assert scenario.judge() == []
    climbed = [one for one in scenario.world.record.deliveries if one.published_in is not None]
    assert len(climbed) > 20  # the run was about something


@pytest.mark.parametrize("history", [False, True], ids=["live", "history"])
@pytest.mark.parametrize("routing", ["flood", "pulsarcast", "topic-dht"])
def test_the_same_over_other_routings(routing: Routing, history: bool) -> None:
    settings = ScenarioSettings(
        5, 12, 8, 30, routing=routing, calm=True, history=history, hierarchy=True
    )
    scenario = Scenario(settings)
    assert scenario.play() == []
    assert scenario.judge() == []
    record = scenario.world.record
    assert check_complete(record) == []  # without faults every routing owes that
    assert sum(one.published_in is not None for one in record.deliveries) > 10


def test_a_run_with_a_hierarchy_is_named_by_its_command() -> None:
    result = run(ScenarioSettings(4, peers=4, topics=4, events=0, calm=True, hierarchy=True))
    assert result.as_dict()["hierarchy"] is True
    assert str(result.as_dict()["replay"]).endswith("--hierarchy")
