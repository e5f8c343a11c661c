"""The check of the demonstration finds what is wrong, whatever it is."""

from __future__ import annotations

from weft.demo.show import woven
from weft.demo.verdict import events_of, explain, judge
from weft.sim.workload import Workload, draw_workload


def everything(workload: Workload) -> list[tuple[int, int]]:
    """What arrives when all is well."""
    subscribers = workload.subscribers()
    return [
        (peer, number)
        for number, event in events_of(workload).items()
        for peer in subscribers[event.topic]
    ]


WORKLOAD = draw_workload(3, peers=10, topics=4, events=30, duration_ms=1_000)


def test_events_are_all_there_by_number() -> None:
    assert sorted(events_of(WORKLOAD)) == list(range(30))


def test_all_arrived() -> None:
    arrived = everything(WORKLOAD)
    verdict = judge(WORKLOAD, reversed(arrived))
    assert verdict.holds and verdict.expected == verdict.delivered == len(arrived)
    assert explain(verdict, WORKLOAD) == []


def test_one_missing_is_named() -> None:
    arrived = everything(WORKLOAD)
    peer, event = arrived.pop(17)
    verdict = judge(WORKLOAD, arrived)
    assert not verdict.holds and verdict.delivered == verdict.expected - 1
    assert verdict.missing == ((peer, event),)
    topic = events_of(WORKLOAD)[event].topic
    assert explain(verdict, WORKLOAD) == [f"peer {peer} did not get event {event} on {topic}"]


def test_twice_and_unwanted_are_named() -> None:
    arrived = everything(WORKLOAD)
    stranger = next(
        (peer, event) for peer in range(10) for event in range(30) if (peer, event) not in arrived
    )
    verdict = judge(WORKLOAD, [*arrived, arrived[0], stranger])
    assert verdict.delivered == verdict.expected and not verdict.holds
    assert verdict.twice == (arrived[0],) and verdict.unwanted == (stranger,)
    assert len(explain(verdict, WORKLOAD)) == 2


def test_long_lists_are_cut_short() -> None:
    verdict = judge(WORKLOAD, [])
    lines = explain(verdict, WORKLOAD)
    assert len(lines) == 11 and "more" in lines[-1]


def status(**peers: tuple[str, list[str]]) -> dict[int, dict[str, object]]:
    return {
        index: {"peer": name, "topics": {"/t": {"overlay": overlay, "links": links}}}
        for index, (name, (overlay, links)) in enumerate(peers.items())
    }


def test_a_topic_is_woven_when_connected_in_one_overlay() -> None:
    chain = status(a=("1", ["b"]), b=("1", ["a", "c"]), c=("1", ["b"]))
    assert woven("/t", [0, 1, 2], chain)
    assert not woven("/t", [0, 1, 2], status(a=("1", ["b"]), b=("1", ["a"]), c=("1", [])))
    assert not woven("/t", [0, 1], status(a=("1", ["b"]), b=("2", ["a"])))
    chain[2]["topics"] = {}
    assert not woven("/t", [0, 1, 2], chain)
