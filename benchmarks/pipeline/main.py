"""`./weft bench pipeline`: runs the measures, each in a process of its own, prints the figures."""

from __future__ import annotations

import sys

from benchmarks.command import run
from benchmarks.goals import Goal

TIMEOUT_S = 5_400

GOALS = (
    Goal("prune_cpu_s", "prune", "CPU s to prune 2·10⁷ memberships on Spark"),
    Goal("duckdb_prune_cpu_s", "prune", "the same on DuckDB"),
    Goal("duckdb_ratio", "prune", "how many times more", most=5),
    Goal("stan_gowalla_s", "stan", "s for StaN on the gowalla trace, 8 rounds", most=180),
    Goal("stan_gowalla_peak_gb", "stan", "GB of memory for it", most=8),
    Goal("stan_exponent", "stan", "how time grows with memberships", most=1.1),
    Goal("stan_livejournal_s", "livejournal", "s for StaN at LiveJournal's size", most=900),
    Goal("trace_json_records_per_s", "traces", "JSON-lines records a second", least=200_000),
    Goal("trace_parquet_records_per_s", "traces", "Parquet records a second", least=1_000_000),
    Goal("ingest_duckdb_ratio", "ratios", "CPU of an ingest of 10⁷ rows over DuckDB's", most=5),
    Goal("profile_duckdb_ratio", "ratios", "the same for a profile", most=5),
    Goal("trace_duckdb_ratio", "ratios", "the same for a trace of as many records", most=5),
    Goal("universe_s", "universe", "s for a universe of 10⁸ memberships", most=3_600),
    Goal("universe_peak_gb", "universe", "GB of memory for it", most=12),
    Goal("universe_driver_gb", "universe", "GB of it in the driver", most=2),
    Goal("namespaces_same", "namespaces", "1 if a worker's loss changes nothing", least=1),
    Goal("add_200_rows_cpu_s", "growth", "CPU s to add 200 rows to 10.3 million", most=8),
)
ON_REQUEST = ("livejournal", "universe", "namespaces")  # long, long; needs the rights of root


def main(argv: list[str] | None = None) -> int:
    return run("pipeline", GOALS, TIMEOUT_S, __doc__ or "", argv, ON_REQUEST)


if __name__ == "__main__":
    sys.exit(main())
