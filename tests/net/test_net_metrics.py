"""What Prometheus reads of a peer."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import weft
from net_kit import keeping, until
from weft.net.counters import Counters, Histogram
from weft.net.exposition import HELP, labelled
from weft.store.memory import MemoryStore

ROOT = Path(__file__).resolve().parents[2]


async def metrics() -> str:
    """Of a peer that has had some events."""
    async with (
        weft.Peer.open(config=keeping(), store=MemoryStore()) as a,
        weft.Peer.open(config=keeping(), store=MemoryStore(), join=a.address) as b,
    ):
        football = await a.subscribe("/sports/football")
        for size in (10, 100, 1_000):
            await b.publish("/sports/football", bytes(size), confirm="taken")
        await until(lambda: len(football) == 3, "the events")
        return a.metrics()


async def test_reasons_are_labels_and_everything_is_explained() -> None:
    families = {one.name: one for one in text_string_to_metric_families(await metrics())}
    assert all(family.documentation for family in families.values())
    reasons = {sample.labels["reason"] for sample in families["weft_history_refused"].samples}
    assert {"bad_signature", "over_quota"} <= reasons
    dropped = families["weft_net_dropped_messages"].samples
    assert {sample.labels["carries"] for sample in dropped} == {"event", "control"}
    assert not [name for name in families if "refused_" in name or "fault_" in name]


def test_every_counter_is_explained_in_words_of_its_own() -> None:
    """Also those that no peer of the tests counts: the source names them all."""
    named: set[str] = set()
    for path in (ROOT / "src" / "weft" / "protocol").rglob("*.py"):
        text = path.read_text()
        named.update(re.findall(r'counters\["(\w+)"\]', text))
        named.update(re.findall(r'note_received\(\S+, "(\w+)"', text))
        named.update(*(f.split('"')[1::2] for f in re.findall(r"counted = (.+)", text)))
    counters = {f"net_{name}" for name, count in vars(Counters()).items() if isinstance(count, int)}
    metrics = {labelled(name)[0] for name in (*named, *counters)}
    assert len(metrics) > 100 and not metrics - set(HELP)
    repeated = [name for name, said in HELP.items() if said.lower() == name.replace("_", " ")]
    assert not repeated


async def test_head_is_answered_as_get_without_the_text() -> None:
    async with weft.Peer.open(config=keeping()) as peer:
        host, _, port = (await peer.serve_metrics("127.0.0.1:0")).rpartition(":")
        answers = []
        for method in (b"GET", b"HEAD"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(method + b" /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            answers.append((head.split(b"\r\n")[:2], bool(body)))
            writer.close()
        assert answers[0][0] == answers[1][0] and b"200 OK" in answers[0][0][0]
        assert [has_body for _, has_body in answers] == [True, False]


async def test_latencies_and_sizes_are_histograms() -> None:
    families = {one.name: one for one in text_string_to_metric_families(await metrics())}
    sizes = {
        sample.labels.get("le"): sample.value
        for sample in families["weft_payload_bytes"].samples
        if sample.name.endswith("_bucket")
    }
    assert (sizes["16.0"], sizes["256.0"], sizes["1024.0"], sizes["+Inf"]) == (1, 2, 3, 3)
    latency = {sample.name: sample.value for sample in families["weft_delivery_seconds"].samples}
    assert latency["weft_delivery_seconds_count"] == 3
    assert latency["weft_delivery_seconds_sum"] > 0


def test_events_that_come_together_count_by_their_own_sizes() -> None:
    counters = Counters()
    counters.observe(-1.0, [16, 300, 16])
    counters.observe(0.5, [16, 16])
    assert (counters.sizes.total, counters.latencies.total) == (364, 1.0)
    assert dict(counters.sizes.cumulated())["16.0"] == 4


async def test_only_what_a_subscription_wants_counts_as_delivered() -> None:
    async with weft.Peer.open() as peer:
        others = await peer.subscribe("/x", own=False)
        await peer.publish("/x", b"own")
        assert len(others) == 0
        families = {one.name: one for one in text_string_to_metric_families(peer.metrics())}
        for name in ("weft_payload_bytes", "weft_delivery_seconds"):
            assert {sample.value for sample in families[name].samples} == {0}


def test_values_on_a_bound_are_within_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.add(value)
    assert histogram.cumulated() == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert histogram.total == 12.0


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool (Debian: prometheus)")
async def test_promtool_finds_nothing_to_complain_about() -> None:
    text = await metrics()
    check = ["promtool", "check", "metrics"]
    done = await asyncio.to_thread(
        subprocess.run, check, input=text, text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


async def test_the_dashboard_asks_for_what_there_is() -> None:
    text = await metrics()
    board = json.loads((ROOT / "packaging" / "grafana.json").read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"weft_\w+", target["expr"])
    }
    assert len(asked) > 15
    assert not [name for name in asked if f"{name}{{" not in text and "dials_for" not in name]


async def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "weft.net.exposition", raising=False)
    async with weft.Peer.open(config=keeping()) as peer:
        with pytest.raises(weft.MetricsError, match=r"pip install 'weft\[web\]'"):
            await peer.serve_metrics("127.0.0.1:0")
