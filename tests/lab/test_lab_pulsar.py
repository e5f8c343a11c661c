"""The experiments on Pulsarcast: what they ask from small tables with the outcome written out, the
bounds that follow from the settings, and small runs of the simulations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frames import frame, only, stored
from weft.documents.descriptor import SealedEvent, seal_event
from weft.documents.run import Event
from weft.ids import Topic
from weft.lab import pulsar
from weft.lab import run as lab
from weft.lab.defect import planted
from weft.lab.experiments import (
    pulsar_deliver,
    pulsar_flood,
    pulsar_gap,
    pulsar_late,
    pulsar_persist,
    pulsar_tree,
)
from weft.lab.pulsar import TOPIC, Net, misplaced
from weft.lab.run import all_entries, matching
from weft.lab.task import tasks_of
from weft.protocol.config import Config, HistorySettings
from weft.sim.node import keyed
from weft.sim.record import Delivery


def test_every_row_has_an_entry() -> None:
    wanted = ["deliver", "flood", "gap", "late", "persist", "tree"]
    assert [name for name in all_entries() if name.startswith("pulsar-")] == [
        f"pulsar-{name}" for name in wanted
    ]


# --- what is asked --------------------------------------------------------------------------------


def test_agreement_is_that_of_the_runs_with_history(spark: SparkSession) -> None:
    def row(history: bool, crash: float, latency_ms: int, **found: Any) -> dict[str, Any]:
        nothing = {"different": 0, "lacking": 0, "misplaced": 0, "published": 10, "kept": 10}
        place = {"history": history, "crash": crash, "latency_ms": latency_ms, "coverage": 1.0}
        return {**place, **nothing, **found}

    rows = frame(
        spark,
        pulsar_deliver.COLUMNS,
        [
            row(True, 0.0, 20, different=1, lacking=3),
            row(True, 0.3, 20, misplaced=2, kept=7),  # with a crash events may be gone
            row(True, 0.0, 20, kept=9),
            row(True, 0.0, 500, coverage=0.75),
            row(False, 0.0, 500, coverage=0.1, different=5, lacking=5),  # not asked
        ],
    )
    found = only(rows.transform(pulsar_deliver.agreement))
    assert (found.different, found.lacking, found.misplaced, found.vanished) == (1, 3, 2, 1)
    assert found.covered == 0.75


def test_the_worst_gap_counts(spark: SparkSession) -> None:
    def row(how: str, loss: float, messages: float, repair_ms: float) -> dict[str, Any]:
        allowed = {"messages_allowed": 20.0, "ms_allowed": 1_000.0}
        costs = {"messages": messages, "repair_ms": repair_ms}
        return {"how": how, "loss": loss, "missing": 1, "holders": 0, **costs, **allowed}

    rows = frame(
        spark,
        pulsar_gap.COLUMNS,
        [
            row("machines", 0.0, 10.0, 500.0),
            row("machines", 0.0, 5.0, 900.0),
            row("machines", 0.1, 30.0, 9_000.0),
            row("network", 0.0, float("nan"), 99_000.0),
            row("dht", 0.0, float("nan"), 700.0),
            row("dht", 0.0, float("nan"), 1_100.0),
        ],
    )
    found = only(rows.transform(pulsar_gap.costs))
    assert found.missing == 4
    assert (found.dht_missing, found.dht_time, found.dht_holders) == (2, 1.1, 0)
    assert (found.messages, found.messages_loss, found.time) == (0.5, 1.5, 0.9)


def test_latecomers_are_judged_together_and_time_where_it_is_virtual(spark: SparkSession) -> None:
    def row(how: str, same: bool, read_s: float) -> dict[str, Any]:
        allowed = {"read_s_allowed": 2.0, "messages_allowed": 8.0, "messages": 4.0}
        return {"how": how, "same": same, "read_s": read_s, "lacking": 1, "misplaced": 2, **allowed}

    rows = frame(
        spark,
        pulsar_late.COLUMNS,
        [row("machines", True, 1.0), row("network", False, 77.0), row("machines", True, 0.5)],
    )
    found = only(rows.transform(pulsar_late.replayed))
    assert (found.lacking, found.misplaced, found.different) == (3, 6, 1)
    assert (found.time, found.messages) == (0.5, 0.5)


def test_what_is_found_is_divided_by_all_that_survives(spark: SparkSession) -> None:
    def row(p: float, provided: bool, named: bool, found: bool) -> dict[str, Any]:
        seen = {"survived": True, "provided": provided, "named": named, "found": found}
        return {"p": p, "crash": 0.5, "own": p > 0, **seen}

    rows = frame(
        spark,
        pulsar_persist.COLUMNS,
        [
            row(0.0, False, False, False),  # nobody was to provide it: counted as survived nowhere
            row(0.5, False, False, False),
            row(0.5, True, False, False),
            row(0.5, True, True, True),
        ],
    )
    found = only(rows.transform(pulsar_persist.shares))
    assert (found.found, found.named_found, found.own) == (0.5, 1.0, 0.75)
    assert found.all_found == pytest.approx(1 / 3)


def test_copies_are_judged_against_p(spark: SparkSession) -> None:
    def row(p: float, copies: int, expected: float, variance: float) -> dict[str, Any]:
        numbers = {"copies": copies, "copies_expected": expected, "copies_variance": variance}
        return {"p": p, "crash": 0.5, **numbers}

    columns, agree = pulsar_persist.COLUMNS, pulsar_persist.agreement("quick")
    fair = [row(0.0, 7, 7.0, 0.0), row(0.5, 12, 10.0, 2.0), row(0.5, 9, 10.0, 2.0)]
    noise = 1 + pulsar_persist.deviations("quick") * 2.0  # a standard deviation of both events
    only(frame(spark, columns, fair).transform(agree), copies=1 / noise)
    none = [row(0.0, 5, 7.0, 0.0), *fair[1:]]  # where nothing is drawn, one copy is the noise
    only(frame(spark, columns, none).transform(agree), copies=2.0)


def test_without_draws_those_that_published_in_a_segment_provide_it() -> None:
    point = {"peers": 12, "subscribers": 6, "events": 12, "p": 0.0, "crash": 0.5}
    found = pulsar_persist.run(point, 1)
    assert list(found["copies"]) == list(found["copies_expected"])
    assert max(found["copies"]) == 5 and not any(found["copies_variance"])
    sure = {**point, "p": 1.0}
    assert set(pulsar_persist.run(sure, 1)["copies_expected"]) == {5.0}


def test_healing_is_that_of_the_tree_alone(spark: SparkSession) -> None:
    def row(silent: bool, history: bool, repair_ms: float, never: int) -> dict[str, Any]:
        place = {"silent": silent, "history": history, "repair_ms_allowed": 100.0}
        return {**place, "repair_ms": repair_ms, "never": never}

    rows = frame(
        spark,
        pulsar_tree.COLUMNS,
        [row(False, False, 50.0, 9), row(True, False, 80.0, 9), row(True, True, 300.0, 2)],
    )
    found = only(rows.transform(pulsar_tree.healing))
    assert (found.noticed, found.silent, found.lost) == (0.5, 0.8, 2)


def test_tree_and_flood_side_by_side(spark: SparkSession) -> None:
    def row(routing: str, share: float, messages: int, weight: int) -> dict[str, Any]:
        place = {"routing": routing, "peers": 20, "share": share, "events": 10, "cycles": 5}
        inside = {"subscribed": 4, "in_tree": 5, "outside": 3, "notifications": 40, "owed": 40}
        kept = {"upkeep_messages": 50, "upkeep_bytes": 500, "dht_messages": 50, "dht_bytes": 500}
        sent = {"payload_messages": messages, "payload_bytes": weight}
        return {**place, **inside, **(kept if routing == "pulsarcast" else {}), **sent}

    rows = frame(
        spark,
        pulsar_flood.COSTS,
        [
            row("pulsarcast", 0.2, 46, 1_000),
            row("flood", 0.2, 446, 9_000),
            row("pulsarcast", 1.0, 48, 1_000),
            row("flood", 1.0, 24, 9_000),
        ],
    )
    pairs = rows.transform(pulsar_flood.compared)
    few = only(pairs.where("share < 1"))
    assert (few.missed, few.exact) == (0, 0)  # ten events over four links, three from outside
    allowed = 6 / (20 * 9.5)  # five in the tree and one from outside; half of a view of 19 each
    assert few.ratio == pytest.approx(46 / 446 / allowed)
    assert few.whole_messages == pytest.approx((4.6 + 20) / 44.6)
    assert few.crossing_messages == pytest.approx(20 / 40)  # per cycle: 20 kept, 40 saved per event
    assert few.crossing_bytes == pytest.approx(200 / 800)
    found = only(pairs.transform(pulsar_flood.worst))
    assert (found.exact, found.ratio) == (2, pytest.approx(2.0 / allowed))
    assert found.minority_messages == few.whole_messages  # the other one has no minority
    assert only(pairs.where("share = 1")).crossing_messages is None


# --- bounds from the settings ---------------------------------------------------------------------


def test_messages_and_time_that_a_gap_may_take() -> None:
    short, long = pulsar_gap.allowed(10, 11, 0.0), pulsar_gap.allowed(1_000, 1_001, 0.0)
    assert short == {"messages_allowed": 20, "ms_allowed": 205 + 500 + 11 * 40}
    assert long == {"messages_allowed": 10, "ms_allowed": 205 + 5 * 40}
    lossy = pulsar_gap.allowed(10, 11, 0.1)
    assert lossy["messages_allowed"] == pytest.approx(2 * (10 + 3 * 1.9**0.5) / 0.81)
    read = pulsar_gap.allowed(1_000, 1_001, 0.1)  # five pages
    assert read["messages_allowed"] == pytest.approx(2 * (5 + 3 * (5 * 0.19) ** 0.5) / 0.81)


def test_a_gap_that_is_read_is_not_walked_back_to_as_well() -> None:
    """With several publishers, whose events come in while others are missing."""
    params = {"how": "machines", "routing": "tera", "publishers": 3, "loss": 0.0, "peers": 10}
    result = pulsar_gap.run({**params, "gap": 1_000}, 2)
    assert result["missing"] == 0
    assert result["messages"] <= result["messages_allowed"]


def test_time_that_a_tree_may_take_to_heal() -> None:
    config = pulsar_tree.settings(history=False)
    travel_ms = 8 * 40 + 250
    assert pulsar_tree.allowed_ms(config, silent=False, crashed=1) == 1_000 + 1_000 + travel_ms
    assert pulsar_tree.allowed_ms(config, silent=True, crashed=3) == 23_000 + 3 * 500 + travel_ms


# --- the simulations ------------------------------------------------------------------------------


def chained(count: int) -> list[SealedEvent]:
    """Events that follow each other."""
    contact, sign = keyed(1, 1)
    events: list[SealedEvent] = []
    for number in range(count):
        parents = {events[-1].cid: events[-1].height} if events else {}
        payload = b"%d" % number
        made = seal_event(
            sign,
            publisher=contact.peer,
            topic=Topic("/lab"),
            payload=payload,
            created_ms=number,
            parents=parents,
        )
        events.append(made)
    return events


def handed(event: SealedEvent) -> Delivery:
    note = Event(event.publisher, 0, 0, 0, event.payload)
    return Delivery(0, 1, 1, TOPIC, note, 0, event)


def test_what_comes_twice_or_too_early_is_counted() -> None:
    first, second, third = map(handed, chained(3))
    assert misplaced([first, second, third]) == 0
    assert misplaced([second, third]) == 0  # a parent that never comes is not waited for
    assert misplaced([first, third, second]) == 1
    assert misplaced([first, second, second]) == 1


@pytest.mark.parametrize("routing", pulsar.ROUTINGS)
def test_streams_are_whole_after_losses_and_crashes(routing: str) -> None:
    params = {"routing": routing, "loss": 0.2, "crash": 0.3, "history": True}
    size = {"peers": 12, "subscribers": 9, "events": 12, "latency_ms": 20, "jitter_ms": 15}
    found = pulsar_deliver.run({**params, **size}, 1)
    assert (found["different"], found["lacking"], found["misplaced"]) == (0, 0, 0)
    assert found["coverage"] == 1.0
    assert found["published"] == 12
    assert 0 < found["live"] < 9


def test_a_missing_event_shows_in_what_is_held() -> None:
    net = Net(1, 3, Config(history=HistorySettings(enabled=True)))
    net.subscribe(0, 1, since="beginning")
    net.run_cycles(3)
    net.publish_next(0)
    net.run(1_000)
    assert len(net.stream(1)) == 1
    net.crash(0, silent=True)
    net.publish_next(2)  # outside; nobody takes it in while it is on its way
    net.run(10)
    assert len(net.held([1, 2])) == 2
    assert set(net.held([1])) < set(net.held([1, 2]))


@pytest.mark.parametrize(("missing", "messages"), [(5, 10), (100, 2)])
def test_short_gaps_are_walked_and_long_ones_read(missing: int, messages: int) -> None:
    params = {"how": "machines", "routing": "pulsarcast", "publishers": 1, "loss": 0.0}
    found = pulsar_gap.run({**params, "gap": missing, "peers": 6}, 1)
    assert found["missing"] == 0
    assert found["messages"] == messages
    assert 0 < found["repair_ms"] <= found["ms_allowed"]


def test_a_gap_that_no_member_can_fill_is_filled_by_way_of_the_dht() -> None:
    params = {"how": "dht", "routing": "pulsarcast", "peers": 30, "gap": 3}
    found = pulsar_gap.run(params, 1)
    assert (found["holders"], found["missing"]) == (0, 0)
    assert found["repair_ms"] > pulsar_gap.LOOK_MS  # whether soon enough, the verdict says
    [blind] = [each for each in pulsar_gap.ENTRY.defects if pulsar_gap.FIND in each.instead]
    with planted(blind):
        without = pulsar_gap.run(params, 1)
    assert without["missing"] >= 7 * 4  # seven members lack the gap, and what came after it


def test_a_latecomer_reads_everything() -> None:
    found = pulsar_late.run({"how": "machines", "routing": "pulsarcast", "events": 60}, 1)
    assert (found["lacking"], found["misplaced"], found["same"]) == (0, 0, True)
    assert found["messages"] <= found["messages_allowed"]


def test_publishers_alone_provide_where_nobody_else_may_and_all_where_all_must() -> None:
    size = {"peers": 12, "subscribers": 6, "events": 3, "crash": 0.25}
    few, everybody = (pulsar_persist.run({**size, "p": p}, 1) for p in (0.0, 1.0))
    assert (few["copies"] == 2).all() and few["own"].all()  # one segment, three publishers
    assert (everybody["copies"] == 5).all() and everybody["own"].all()
    assert everybody["survived"].all() and everybody["provided"].all()


def test_after_a_crash_of_almost_all_whatever_is_on_record_is_found() -> None:
    size = {"peers": 60, "subscribers": 30, "events": 12, "crash": 0.9}
    found = pulsar_persist.run({**size, "p": 0.5}, 1)
    assert found["named"].sum() > 6
    assert (found["found"] == found["named"]).all()


def test_a_tree_heals_in_the_time_allowed() -> None:
    params = {"peers": 16, "subscribers": 12, "silent": False, "history": False}
    found = pulsar_tree.run({**params, "crash": "all but one"}, 1)
    assert found["crashed"] == 3
    assert found["owed"] > 0
    assert 0 <= found["repair_ms"] <= found["repair_ms_allowed"]


def test_an_event_crosses_each_link_of_a_tree_once(spark: SparkSession) -> None:
    """By the pipeline's count of what the trace says was sent."""
    params = {"peers": 12, "share": 0.5, "events": 8}
    points = [{**params, "routing": routing} for routing in ("pulsarcast", "flood")]
    tasks = tasks_of(pulsar_flood.ENTRY, points, 1)
    rows = stored(spark, *((task, pulsar_flood.run(task.params, 1)) for task in tasks))
    found = {row.routing: row for row in rows.transform(pulsar_flood.costs).collect()}
    tree, naive = found["pulsarcast"], found["flood"]
    links = 8 * (tree.in_tree - 1) + 2 * tree.outside
    assert tree.payload_messages == links
    assert tree.payload_bytes > 8 * tree.subscribed * 200
    assert tree.upkeep_messages > 0 and tree.dht_messages > 0
    assert tree.notifications == tree.owed == naive.notifications == 48
    assert naive.payload_messages > 2 * links
    assert naive.upkeep_messages == naive.dht_messages == 0


def test_real_peers_repair_a_gap_and_replay() -> None:
    found = pulsar.repair("pulsarcast", 5)
    assert found["missing"] == 0
    assert found["repair_ms"] > 0
    replayed = pulsar.replay("tera", 80)
    assert (replayed["lacking"], replayed["misplaced"], replayed["same"]) == (0, 0, True)


def test_a_quick_run_leaves_a_verdict(spark: SparkSession, tmp_path: Path) -> None:
    [verdict] = lab.run(spark, matching(["pulsar-late"]), "quick", tmp_path)
    assert verdict.passed
    written = json.loads((tmp_path / "pulsar-late" / "verdict.json").read_text())
    assert written["measured"].keys() > written["tolerance"].keys()
    assert (tmp_path / "pulsar-late" / "figure.png").stat().st_size > 10_000
