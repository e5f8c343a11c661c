"""The experiments on the topic-aware DHT: each transform on a small frame, simulations small."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peer.swarm import COPY_COUNTERS
from pyspark.sql import SparkSession

from frames import count, frame, only
from weft.ids import Topic
from weft.lab import run as lab
from weft.lab.defect import planted
from weft.lab.experiment import Entry
from weft.lab.experiments import (
    tadht_fail,
    tadht_fair,
    tadht_hier,
    tadht_messages,
    tadht_parasite,
    tadht_rounds,
    tadht_space,
    tadht_uniform,
)
from weft.lab.run import all_entries
from weft.lab.tadht import Net, lose_roots
from weft.protocol.config import TopicDhtSettings
from weft.protocol.delivery import DELIVER_MESSAGE
from weft.protocol.peer import Peer
from weft.sim.network import Conditions

ROWS = ["fail", "fair", "hier", "messages", "parasite", "rounds", "space", "uniform"]


def test_every_row_of_the_paper_has_an_entry() -> None:
    known = [name for name in all_entries() if name.startswith("tadht-")]
    assert known == [f"tadht-{name}" for name in ROWS]


def test_copies_are_counted_alike_everywhere() -> None:
    """In the world, as traces list them, by the lab's observer, and by the peers' own counters,
    which benchmarks read: what was received, also where messages are lost."""
    net = Net(3, 6, TopicDhtSettings(scheme="full-treecast"), Conditions(loss_percent=20))
    topic = Topic("/t")
    for number in range(6):
        net.subscribe(number, [topic])
        net.run(300)
    net.run(20_000)
    for number in range(6):
        net.publish(number, topic)
    net.run(20_000)
    counted = net.world.copies
    assert net.copies.all == counted > 6 * 4
    peers = [node.machine for node in net.nodes if isinstance(node.machine, Peer)]
    assert len(peers) == 6
    assert sum(peer.counters[name] for peer in peers for name in COPY_COUNTERS) == counted


# --- over arrays ----------------------------------------------------------------------------------


def test_costs_are_per_member_of_those_that_gossip(spark: SparkSession) -> None:
    def event(scheme: str, mode: str, members: int, payloads: int) -> dict[str, Any]:
        numbers = {"members": members, "forwarders": 4, "payloads": payloads, "calls": members}
        return {"seed": 1, "scheme": scheme, "mode": mode, **numbers, "missed": 1}

    rows = frame(
        spark,
        tadht_messages.COLUMNS,
        [
            event("full-treecast", "push", 16, 15),
            event("full-treecast", "push", 16, 13),
            event("forward-gossip", "push", 16, 12 + 20),  # 12 children, 20 copies among the four
            event("full-gossip", "push", 16, 64),
            event("full-gossip", "push-pull", 16, 48),
        ],
    )
    found = rows.transform(tadht_messages.costs)
    only(found.where("way = 'FullTreeCast'"), excess=2, copies=28, per_member=14 / 16)
    # 28 copies; one of the 15 others is missed each time.
    only(found.where("way = 'FullTreeCast'"), copies_per_delivery=28 / 28)
    only(found.where("way = 'ForwardGossip'"), logarithm=5 / (math.log(4) + 4), missed=1 / 16)
    only(found.transform(tadht_messages.saved), fewer=(3 + 1) / (4 + 1))
    totals = found.transform(tadht_messages.summed)
    only(totals.where("way = 'FullGossip'"), per_member=4.0, logarithm=4 / (math.log(16) + 4))


def test_children_that_look_for_no_parent_are_counted_as_lost_over_arrays() -> None:
    """The defect left out the count of periods as well, so that the run never ended."""
    arrays = {"peers": 200, "topics": 20, "subscriptions": 600, "zipf": 0.7}
    point = {**arrays, "kind": tadht_fail.STABILISE + tadht_fail.ARRAYS, "percent": 30}
    assert tadht_fail.run(point, 1)["periods"] <= tadht_fail.PERIODS_MAX
    with planted(tadht_fail.ENTRY.defects[0]):
        assert tadht_fail.run(point, 1)["periods"] > 2 * tadht_fail.PERIODS_MAX


def test_lines_are_fitted_to_rounds(spark: SparkSession) -> None:
    def event(members: int, rounds: int) -> dict[str, Any]:
        place = {"seed": 1, "scheme": "full-treecast", "mode": "push"}
        return {**place, "members": members, "rounds": rounds}

    # The most are 2·log₂ N − 1: at N = 1024 that is 1 over 1.5·log₂ N + 3.
    events = [event(4, 3), event(4, 1), event(1024, 19), event(1024, 17)]
    rows = frame(spark, tadht_messages.COLUMNS, events)
    found = rows.transform(tadht_rounds.longest).transform(tadht_rounds.fitted)
    only(found, over=1.0, most_a=2.0, most_b=-1.0, mean_a=2.0, mean_b=-2.0)


def test_fairness_is_of_the_ratio(spark: SparkSession) -> None:
    known = {"scheme": "full-treecast", "mode": "push", "links": 4, "topics_held": 2}

    def peer(name: str, sent: int, received: int) -> list[dict[str, Any]]:
        held = {**known, "peer": name, "locations": 1}
        return [count("copies", sent, **held), count("events", received, DELIVER_MESSAGE, **held)]

    work = [*peer("a", 10, 10), *peer("b", 90, 30), *peer("c", 40, 20), *peer("idle", 0, 0)]
    rows = frame(spark, tadht_fair.COLUMNS, work)
    shares = [1.0, 3.0, 2.0]
    only(
        rows.transform(tadht_fair.fairness),
        jain=sum(shares) ** 2 / 3 / sum(share**2 for share in shares),
        jain_roles=1.0,
        mean=2.0,
        most=3.0,
        copies=140 / 60,
    )
    one_link = frame(spark, tadht_fair.COLUMNS, [{**known, "links": 1}])
    [row] = one_link.transform(tadht_fair.named_by_links).collect()
    assert row.way == "FullTreeCast, one link per level"


def test_space_is_held_against_its_bounds(spark: SparkSession) -> None:
    def peer(topics: int, locations: int, entries: int, network: int = 1024) -> dict[str, Any]:
        place = {"seed": 1, "peers": network, "k": 8, "per_peer": 10, "network": network}
        place |= {"machines": 0, "packs": 0}
        held = {"topics_held": topics, "locations": locations, "children_most": 6}
        return {**place, **held, "entries": entries, "entries_lobby": 2 * entries}

    rows = frame(
        spark,
        tadht_space.COLUMNS,
        [peer(9, 1, 100), peer(27, 3, 300), peer(18, 2, 220, 2048), peer(18, 2, 220, 2048)],
    )
    found = rows.transform(tadht_space.space)
    only(
        found.where("peers = 1024"),
        ratio=2 / 3,
        locations=2.0,
        forwarding=4 / 36,
        entries=100.0,
        entries_lobby=400.0,
        children=0.75,
    )
    only(
        found.transform(tadht_space.tables),
        tables=110 / (20 * 13.67),
        lobby=440 / (20 * (22 + 2.67)),
        growth=10.0,
        growth_lobby=40.0,
    )


def test_tables_of_machines_are_counted_and_defects_seen() -> None:
    [point, *_] = [point for point in tadht_space.points("quick") if point["machines"]]
    bound = tadht_space.FEW_BUCKET * 2.67
    [_, longer] = tadht_space.ENTRY.defects
    found = []
    for defect in (None, longer):
        with planted(defect):
            found.append(tadht_space.run({**point, **(defect.params if defect else {})}, 1))
    whole, broken = found
    assert len(whole["peer"]) == point["peers"] and whole["children_most"] <= point["k"]
    assert whole["locations"].min() >= 1 and whole["network"] > 2 * point["peers"]
    each = [rows["entries"].sum() / rows["locations"].sum() for rows in found]
    most = bound + tadht_space.FEW_BUCKET * math.log2(whole["network"])
    assert each[0] < most < each[1]
    assert broken["children_most"] > point["k"]


# --- with the machines ----------------------------------------------------------------------------


def test_parasites_are_summed_and_handovers_taken_off(spark: SparkSession) -> None:
    def event(condition: str, outside: bool, copies: int, parasites: int) -> dict[str, Any]:
        place = {"seed": 1, "scheme": "full-treecast", "mode": "push", "condition": condition}
        run = {"copies_all": 500, "copies_parasite": parasites, "lookups": 9, "lookups_parasite": 1}
        return {**place, **run, "outside": outside, "members": 10, "copies": copies, "missed": 2}

    rows = frame(
        spark,
        tadht_parasite.COLUMNS,
        [
            event("calm", False, 9, 3),
            event("calm", True, 10, 3),
            event("crash", False, 20, 4),
            event("churn", False, 9, 5),
        ],
    )
    found = rows.transform(tadht_parasite.sent)
    only(found.where("condition = 'calm'"), difference=0, missed=4, copies_parasite=3)
    only(found.where("condition = 'crash'"), difference=11)
    only(
        found.transform(tadht_parasite.totals),
        copies_parasite=12,
        lookups_parasite=3,
        difference=0,
        missed=8,
        stale=10.0,
        stale_lookups=1000 / 9,
        copies_all=1500,
        lookups=27,
    )


def test_chi_squares_are_pooled(spark: SparkSession) -> None:
    def drawer(role: str, statistic: float, freedom: int) -> dict[str, Any]:
        run = {"left_the_topic": 0, "lookups": 400, "draws": 100, "lookups_parasite": 0}
        return {"seed": 1, "drawer": role, "statistic": statistic, "freedom": freedom, **run}

    rows = frame(
        spark,
        tadht_uniform.COLUMNS,
        [drawer("forwarder", 30.0, 20), drawer("child", 22.0, 12), drawer("paper", 100.0, 8)],
    )
    only(rows.transform(tadht_uniform.excess), excess=20 / 8, paper=92 / 4, left=0, cost=2.0)


def test_failures_are_counted_by_kind(spark: SparkSession) -> None:
    def crash(periods: int, lost: int) -> dict[str, Any]:
        numbers = {"k": 8, "crashed": 10, "lost": lost, "periods": periods}
        return {"seed": 1, "kind": tadht_fail.STABILISE, **numbers}

    def event(kind: str, by_trees: int, missed: int) -> dict[str, Any]:
        numbers = {"k": 3, "crashed": 2, "missed_by_trees": by_trees, "missed": missed}
        return {"seed": 1, "kind": kind, "orphans": 2, **numbers}

    arrays = tadht_fail.MEMBERS + tadht_fail.ARRAYS

    rows = frame(
        spark,
        tadht_fail.COLUMNS,
        [
            crash(3, 40),
            crash(5, 20),
            event(tadht_fail.ROOTS, 0, 0),
            event(tadht_fail.ROOTS, 6, 0),
            event(arrays, 9, 8),
        ],
    )
    only(rows.transform(tadht_fail.recovery), periods=5, lost=0.5, periods_mean=4.0)
    lost = rows.transform(tadht_fail.losses)
    only(
        lost.where(f"kind = '{tadht_fail.ROOTS}'"),
        missed=0,
        beyond=0,
        by_trees=0.5,
        by_trees_mean=3.0,
    )
    only(lost.where(f"kind = '{arrays}'"), missed=8, beyond=2)


def test_deliveries_in_hierarchies_are_summed_per_scheme(spark: SparkSession) -> None:
    def event(scheme: str, loss: int, missing: int) -> dict[str, Any]:
        place = {"seed": 1, "scheme": scheme, "mode": "push", "loss_percent": loss}
        wrong = {"missing": missing, "extra": 0, "twice": 1, "misnamed": 2, "parasites": 4}
        return {**place, "expected": 10, **wrong}

    rows = frame(
        spark,
        tadht_hier.COLUMNS,
        [event("full-gossip", 0, 1), event("full-gossip", 0, 0), event("full-gossip", 5, 2)],
    )
    only(
        rows.transform(tadht_hier.reached),
        expected=30,
        missing=3,
        extra=0,
        twice=3,
        misnamed=6,
        parasites=8,
    )


SMALL = {"peers": 14, "topics": 2, "subscriptions": 18, "zipf": 0.7}


@pytest.mark.parametrize("condition", tadht_parasite.CONDITIONS)
def test_a_small_network_has_no_parasites(condition: str) -> None:
    way = {"scheme": "forward-treecast", "mode": "push", "condition": condition}
    found = tadht_parasite.run({**SMALL, **way, "events": 6}, 1)
    assert sum(found["missed"]) == 0 and found["lookups"] > 0
    if condition != "churn":
        assert found["copies_parasite"] == found["lookups_parasite"] == 0
    if condition == "calm":
        due = [members - 1 for members in found["members"]]
        outside = [int(one) for one in found["outside"]]
        assert found["copies"] == [one + other for one, other in zip(due, outside, strict=True)]
        assert sum(outside) == 1


def test_lost_roots_lose_nothing() -> None:
    params = {**SMALL, "scheme": "full-treecast", "roots": 3, "loss_percent": 0, "events": 2}
    found = lose_roots(params, 1)
    assert found["crashed"] == [2, 2] and found["missed"] == [0, 0]


def test_an_event_climbs_and_reaches_nobody_else() -> None:
    params = {"peers": 12, "per_peer": 3, "events": 9, "loss_percent": 0}
    found = tadht_hier.run({**params, "scheme": "forward-treecast", "mode": "push"}, 1)
    assert sum(found["expected"]) > 20
    for wrong in ("missing", "extra", "twice", "misnamed"):
        assert sum(found[wrong]) == 0, wrong


def test_the_paper_s_random_routing_is_not_uniform() -> None:
    """The statistic of equal chances on so many draws is far beyond its degrees of freedom."""
    params = {"members": 12, "strangers": 6, "draws": 60, "k": 2, "bucket": 6}
    found = tadht_uniform.run(params, 1)
    assert found["drawer"] == ["forwarder", "forwarder", "child", "child", "paper"]
    assert found["freedom"][0] == 11 and found["left_the_topic"] == 0
    assert tadht_uniform.chi_square([5, 15]) == (5.0, 1)


def test_quick_runs_leave_verdicts(spark: SparkSession, tmp_path: Path) -> None:
    """Two entries from end to end, at points smaller still."""
    small = {"members": 64, "scheme": "full-treecast", "mode": "push", "k": 8, "events": 6}
    entry = all_entries()["tadht-rounds"]
    assert isinstance(entry, Entry)
    ways = [("full-treecast", "push"), ("full-gossip", "push")]
    points = [{**small, "members": n, "scheme": s, "mode": m} for n in (16, 64) for s, m in ways]
    few = replace(
        entry,
        points=lambda size: points,
        tolerances={
            name: why
            for name, why in entry.tolerances.items()
            if name.startswith(("FullTreeCast", "FullGossip"))
        },
    )
    [verdict] = lab.run(spark, [few], "quick", tmp_path)
    assert verdict.passed and verdict.points == 4
    assert (tmp_path / "tadht-rounds" / "figure.png").stat().st_size > 10_000


def test_a_peer_that_leaves_without_a_word_is_sent_copies() -> None:
    churn = [
        point
        for point in tadht_parasite.points("quick")
        if point["condition"] == "churn" and point["scheme"] == "forward-treecast"
    ]
    [silent] = [d for d in tadht_parasite.ENTRY.defects if d.where(churn[0])]
    assert tadht_parasite.run(churn[0], 1)["copies_parasite"] == 0
    with planted(silent):
        assert tadht_parasite.run(churn[0], 1)["copies_parasite"] > 0
