"""The DHT's benchmark, small."""

from __future__ import annotations

from benchmarks import dht as bench


def test_the_benchmark_measures_what_it_says() -> None:
    found = bench.calm(30, 3, 1)
    assert found["exact"] == found["lookups"] == found["got"] == found["peers_found"] == 3
    assert found["violations"] == []
    assert "cpu_ms_per_lookup" in found
    assert 200 < bench.bytes_per_contact() < 2_000
