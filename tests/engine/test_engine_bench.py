"""The benchmark and `weft size` from the outside."""

from __future__ import annotations

import argparse
import json

import pytest
from benchmarks import engine as bench

from weft.cli import size


def test_the_benchmark_prints_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--peers", "5000", "--cycles", "12", "--no-growth", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for key in ("peers", "peer_cycles_per_s", "ceiling_per_s", "ceiling_ratio", "bytes_per_peer"):
        assert found[key] > 0
    assert found["peers"] == 5000
    assert found["indegree_mean"] == 20.0
    assert 1.0 < found["indegree_std"] < 4.5
    assert found["at_10000_peers_200_cycles"]["indegree_std"] == pytest.approx(1.5, abs=0.1)


def test_measuring_the_limit_leaves_views_alone() -> None:
    overlay = bench.random_overlay(2_000, 1)
    before = overlay.rows.octets.tobytes()
    bench.touch_random_rows(overlay.rows.words, 2_000, 0, 10_000, 16)
    assert overlay.rows.octets.tobytes() == before


def run_size(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    parser = argparse.ArgumentParser()
    size.add_arguments(parser)
    assert size.run(parser.parse_args(arguments)) == 0
    return capsys.readouterr().out


def test_size_prints_the_trade_off(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_size(capsys, "--topics", "1000", "--success", "0.999").splitlines()
    rows = [line.split() for line in lines[3:]]
    assert [row[0] for row in rows] == ["10", "20", "50", "100", "200", "400"]
    assert rows[0][3] == "688"
    assert rows[-1][1:4] == ["104.0", "kB", "14"]


def test_size_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    out = run_size(capsys, "--topics", "100", "--success", "0.99", "--visits", "20", "--json")
    (row,) = json.loads(out)["rows"]
    assert row["success"] >= 0.99
    assert row["visits"] <= 20


def test_size_refuses_certainty() -> None:
    parser = argparse.ArgumentParser()
    size.add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--topics", "10", "--success", "1.0"])
