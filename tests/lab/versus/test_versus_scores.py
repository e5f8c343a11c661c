"""Figures of many runs at once are those of each run measured alone, and one unseen CSV becomes a
config file."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from weft.ids import Topic
from weft.lab import run as lab
from weft.lab import universes
from weft.lab.experiments import versus
from weft.lab.sources import Source, find
from weft.lab.task import shape_of, table_of
from weft.lab.traced import WindowWriter, added_up, piece_of
from weft.lab.versus import page
from weft.lab.versus.crowd import Publications, Universe
from weft.lab.versus.network import WINDOW_MS, Fault, VersusRun
from weft.lab.versus.pieces import ROWS
from weft.lab.versus.scores import MEASURES, figures_of
from weft.lab.versus.systems import SYSTEMS
from weft.net.config import Config
from weft.pipeline import tables
from weft.pipeline.ingest.job import ingest
from weft.pipeline.traces.measure import measure
from weft.pipeline.traces.source import find as find_trace

A, B = Topic("/a"), Topic("/b")
UNIVERSE = Universe(((A, B),) * 3 + ((A,),) * 4 + ((B,),) * 3)
SAME = {
    "delivery": "delivery_ratio",
    "latency_p50_ms": "latency_ms_p50",
    "latency_p99_ms": "latency_ms_p99",
    "hops_p50": "hops_p50",
    "hops_p99": "hops_p99",
    "copies": "copies_per_delivery",
    "control": "messages_control_per_notification",
    "upkeep": "messages_maintenance_per_notification",
    "bytes": "bytes_per_notification",
    "bytes_payload": "bytes_payload_per_notification",
    "bytes_control": "bytes_control_per_notification",
    "bytes_upkeep": "bytes_maintenance_per_notification",
    "load_jain": "load_jain",
    "load_gini": "load_gini",
    "links": "links_mean",
    "parasites": "parasites_per_delivery",
}
"""Our measures, and what the pipeline calls them."""


def trace_of(system: str, fault: Fault, path: Path) -> int:
    """Play a run and keep its trace; returns when its window begins."""
    events = Publications(UNIVERSE, 1, 8, WINDOW_MS)
    with path.open("wb") as file:
        run = VersusRun(1, SYSTEMS[system], UNIVERSE, events, fault, WindowWriter(file))
        run.play()
    return run.from_ms * 1_000_000


def test_figures_by_run_are_those_of_the_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    runs = {"tera-tree": Fault("crash", 30), "pulsarcast": Fault()}
    shape = shape_of(ROWS)
    listed = []
    for seed, (system, fault) in enumerate(runs.items()):
        path = tmp_path / f"{system}.jsonl"
        from_ns = trace_of(system, fault, path)
        run = ("p", seed, "grid", system, fault.kind, fault.level)
        about = (*run, 10, 2, "rate", from_ns, 5_000.0)
        columns = added_up(path)
        listed += [
            (*about, *row) for row in zip(*(c.to_pylist() for c in columns.values()), strict=True)
        ]
    found = {row.system: row for row in figures_of(spark.createDataFrame(listed, shape)).collect()}
    assert set(found) == set(runs)
    alone = measure(spark, find_trace([tmp_path / "pulsarcast.jsonl"]), tmp_path / "tables")
    for ours, theirs in SAME.items():
        assert found["pulsarcast"][ours] == pytest.approx(alone[theirs]), ours
    peak = alone["load_max"] / alone["load_mean"]  # type: ignore[operator]
    assert found["pulsarcast"].load_peak == pytest.approx(peak)
    assert found["pulsarcast"].in_time == 1.0
    assert found["tera-tree"].delivery == 1.0  # of the live
    assert found["tera-tree"].state_kb == 5.0


def test_users_without_anything_in_common_are_refused_in_words(spark: SparkSession) -> None:
    alone = spark.range(5).selectExpr(
        "id as user", "id as topic", "cast(null as timestamp) as time"
    )
    with pytest.raises(universes.NothingShared, match="no topic has 3 subscribers"):
        universes.of_a_crowd(alone, 10)


def few(size: object, source: Source) -> list[versus.Params]:
    """Two systems, calm and under one fault."""
    place = {"most": 20, "events": 6, "universe": "crowd", "seeds": 20, "nodes": 0}
    return [
        {**place, "system": system, "fault": fault, "level": level}
        for system in ("tera-tree", "ref-poldercast")
        for fault, level in (("calm", 0), ("crash", 50))
    ]


def test_an_unseen_csv_becomes_a_recommended_config(spark: SparkSession, tmp_path: Path) -> None:
    rows = io.StringIO()
    writer = csv.writer(rows)
    writer.writerow(["user", "topic", "timestamp"])
    for user in range(20):
        writer.writerows((f"user{user}", f"/news/{(user + step) % 5}", "") for step in range(2))
    writer.writerows(("user3", "/news/3", 1_000 * at) for at in range(8))  # the one that acts
    (tmp_path / "mine.csv").write_text(rows.getvalue())
    ingest(spark, [tmp_path / "mine.csv"], tmp_path / "lake")
    out = tmp_path / "out"
    entry = replace(versus.ENTRY, points=few)
    [verdict] = lab.run(spark, [entry], "quick", out, seeds=1, sources=find(out, tmp_path / "lake"))
    assert verdict.sources == ["lake"]
    folder = out / "versus"
    config = Config.load(folder / page.SETTINGS)
    assert (config.protocol.routing, config.protocol.dissemination.scheme) == ("tera", "tree")
    with (folder / page.CSV).open() as file:
        cells = list(csv.DictReader(file))
    assert {cell["system"] for cell in cells} == {"tera-tree", "ref-poldercast"}
    assert {cell["measure"] for cell in cells} == set(MEASURES)
    said = json.loads((folder / page.JSON).read_text())
    assert said["recommended"] == "tera-tree" and len(said["rows"]) == len(cells)
    text = (folder / page.PAGE).read_text()
    assert text.index("Where references are better") < text.index("Recommended")
    assert "<th>peers that bring copies" in text and "<th>links" not in text
    assert "recommended: tera-tree" in page.summary(folder)
    assert said["publications_driven_by"] == {"lake": "trace"}
    assert "On lake publications are the trace&#x27;s own events" in text
    runs = table_of(out, entry.id)
    parts = tables.read_parts(spark, runs, tables.finished(runs), shape_of(ROWS))
    publishes = piece_of(parts.where("fault = 'calm'"), "publishes")
    publishers = publishes.groupBy("publisher").count().collect()
    assert [row["count"] for row in publishers] == [6, 6]  # one user, in both systems
