"""The whole way from files to figures: what sim and engine counted themselves comes out again, and
what a plain recount of the lines says."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from benchmarks.pipeline.trace_recount import recount
from pyspark.sql import SparkSession

from weft.engine.core.draws import random_peers
from weft.engine.data.memberships import spread, zipf_sizes
from weft.engine.tera.events import Events, EventTrace
from weft.engine.tera.world import WorldSettings, build
from weft.pipeline import tables
from weft.pipeline.schemas import TRACE
from weft.pipeline.traces import source as read
from weft.pipeline.traces.measure import TABLES, measure
from weft.pipeline.traces.pieces import ROUTING
from weft.pipeline.traces.source import TRACE_LINE, BadTrace, find
from weft.sim.scenario import Scenario, ScenarioSettings, count
from weft.trace import CONTROL, CONTROL_KINDS, PAYLOAD, PAYLOAD_KINDS, Writer

GOOD = json.dumps({"type": "JOIN", "peerID": "A", "timestamp": 1, "join": {"topic": "/t"}})


def test_rejects_have_file_and_line(spark: SparkSession, tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    plain.write_text("\n".join([GOOD, "oops", "", GOOD, "{}", "oops"]) + "\n")
    packed.write_bytes(gzip.compress((f"{GOOD}\n" * 5 + "no\n").encode()))
    text = read.text_lines(spark, [plain, packed])
    tables.write(text.transform(read.parsed), tmp_path / "lines")
    rows = tables.read(spark, tmp_path / "lines", TRACE_LINE)
    assert read.records(rows).count() == 7
    found = read.rejects(rows, text).collect()
    assert {(Path(row.file).name, row.line, row.text) for row in found} == {
        ("a.jsonl", 2, "oops"),
        ("a.jsonl", 5, "{}"),
        ("a.jsonl", 6, "oops"),
        ("b.jsonl.gz", 6, "no"),
    }
    assert len(found) == 4 and all(row.reason for row in found)


def test_lines_of_another_kind_are_no_trace(spark: SparkSession, tmp_path: Path) -> None:
    other = tmp_path / "rows.jsonl"
    other.write_text('{"user": "ann", "topic": "cats"}\n' * 3)
    with pytest.raises(BadTrace, match=r"none of its lines is a record; .*rows\.jsonl line \d: "):
        measure(spark, find([other]), tmp_path / "out")
    other.write_text("")  # and nothing at all is a trace of nothing
    assert measure(spark, find([other]), tmp_path / "out")["peers"] == 0


def test_a_truncated_archive_is_said_and_leaves_no_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.jsonl.gz"
    noise = "".join(f"{GOOD} {number * 7919}\n" for number in range(5000))
    broken.write_bytes(gzip.compress(noise.encode())[:-40])
    with pytest.raises(BadTrace, match=r"broken\.jsonl\.gz"):
        measure(spark, find([broken]), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(("seed", "calm"), [(2, True), (3, False)])
def test_what_the_simulator_counted(
    seed: int, calm: bool, spark: SparkSession, tmp_path: Path
) -> None:
    settings = ScenarioSettings(seed=seed, peers=14, topics=4, events=60, calm=calm)
    with (tmp_path / "sim.jsonl").open("wb") as file:
        scenario = Scenario(settings, Writer(file))
        assert not scenario.play()
    world, own = scenario.world, count(scenario.world)
    found = measure(spark, find([tmp_path / "sim.jsonl"]), tmp_path / "out")
    assert found["messages"] == own["sent"]
    assert found["dropped"] == own["undelivered"]
    assert found["copies"] == own["copies"]
    assert found["events"] == own["published"]
    notifications, twice = found["notifications"], found["twice"]
    assert notifications is not None and twice is not None
    assert notifications + twice == own["delivered"]
    assert found["parasites"] == len(world.record.parasites)
    assert found["bytes"] is None
    hops = Counter(delivery.hops for delivery in world.record.deliveries)
    assert found["hops_max"] == max(hops)
    if calm:
        assert found["delivery_ratio"] == 1 and found["twice"] == 0
        assert found["remote_deliveries"] == own["delivered_remotely"]
        assert found["copies_per_delivery"] == pytest.approx(
            own["payload_copies_per_delivery"], abs=1e-4
        )
    kinds = {PAYLOAD: PAYLOAD_KINDS, CONTROL: CONTROL_KINDS}
    plain = recount(tmp_path / "sim.jsonl", kinds, ROUTING)
    unknown = {name for name in found if plain[name] is None}
    assert {name for name in found if found[name] is None} == unknown
    assert {name: value for name, value in found.items() if name not in unknown} == {
        name: pytest.approx(plain[name], rel=1e-12) for name in found if name not in unknown
    }
    rows = tables.read_small(tmp_path / "out" / "messages")
    assert {row["rpc"]: row["sent"] for row in rows if row["sent"]} == own["messages"]
    assert {path.name for path in (tmp_path / "out").iterdir() if path.name[0] != "."} == set(
        TABLES
    )


def test_an_event_whose_publishing_stands_twice_is_one_event(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = ScenarioSettings(seed=2, peers=8, topics=3, events=20, calm=True, hierarchy=True)
    with (tmp_path / "once.jsonl").open("wb") as file:
        assert not Scenario(settings, Writer(file)).play()
    lines = (tmp_path / "once.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "twice.jsonl").write_bytes(
        b"".join(line * (1 + (b"PUBLISH_MESSAGE" in line)) for line in lines)
    )
    once = measure(spark, find([tmp_path / "once.jsonl"]), tmp_path / "one")
    twice = measure(spark, find([tmp_path / "twice.jsonl"]), tmp_path / "two")
    assert twice == once
    assert once["delivery_ratio"] == 1 and once["events"]


def test_what_the_engine_counted_also_from_parquet(spark: SparkSession, tmp_path: Path) -> None:
    held = spread(zipf_sizes(6, 120, 0.7), 40, seed=5)
    world = build(WorldSettings(table_size=4, visits=12, load=True), held, seed=5)
    with (tmp_path / "engine.jsonl").open("wb") as file:
        events = Events(world, EventTrace(held, file))
        world.run(20)
        assert world.general_load is not None and world.topics.loads is not None
        world.topics.loads[:] = 0
        for tick in range(12):
            world.step()
            topics = random_peers(2, held.topics, 5, "topic", tick)
            events.publish(topics, random_peers(2, held.peers, 5, "publisher", tick))
            events.advance()
        while not events.is_over:
            world.topics.loads, kept = None, world.topics.loads
            world.step()
            world.topics.loads = kept
            events.advance()
    counts, totals = world.counts, events.totals
    found = measure(spark, find([tmp_path / "engine.jsonl"]), tmp_path / "out")
    assert found["peers"] == len(np.unique(np.concatenate([held.members])))
    assert found["events"] == totals.published == 24
    assert found["expected"] == totals.wanted
    assert found["delivered"] == found["notifications"] == events.flood.notified
    assert found["messages"] == counts.dissemination + counts.route > 0
    assert found["copies"] == counts.dissemination + counts.route
    started = totals.published - totals.lost
    assert found["duplicates"] == counts.dissemination - (events.flood.notified - started)
    assert found["parasites"] == found["parasites_routed"] == 0

    rows = read.records(read.parsed(read.text_lines(spark, [tmp_path / "engine.jsonl"])))
    tables.write(rows, tmp_path / "lake" / "trace")
    source = find([tmp_path / "lake"])
    assert source.parquet
    assert spark.read.parquet(*map(str, source.paths)).schema.names == TRACE.names
    assert measure(spark, source, tmp_path / "again") == found
