"""`./weft bench history`: runs the measures, each in a process of its own, prints the figures."""

from __future__ import annotations

import sys

from benchmarks.command import run
from benchmarks.goals import Goal

TIMEOUT_S = 3_600

GOALS = (
    Goal("verify_per_s", "verify", "events verified a second on one core", least=10_000),
    Goal("durable_publishes_per_s", "durable", "durable publishes a second", least=3_000),
    Goal("store_reads_per_s", "durable", "events read a second from the store", least=20_000),
    Goal("identical_dags", "dag", "all ten peers end with the identical DAG", least=1),
    Goal("replay_events_per_s", "dag", "events a second to a latecomer, verified", least=5_000),
    Goal("replay_cpu_us_per_event", "dag", "µs of the latecomer's CPU per event", most=200),
    Goal("behind_times_allowed", "behind", "of the time to catch up at 2,000 events/s", most=1),
    Goal("kill_runs", "kills", "kill -9 at random points", least=200),
    Goal("receipted_lost", "kills", "receipted events lost", most=0),
    Goal("corrupted", "kills", "kills after which the store was damaged", most=0),
    Goal("consumer_kills", "consumers", "kill -9 of a consumer, its publisher, or both", least=200),
    Goal("consumer_receipted", "consumers", "events receipted between the kills", least=1_000),
    Goal("consumer_lost", "consumers", "receipted events that the consumer lost", most=0),
    Goal("consumer_repeated", "consumers", "events that it handled twice", most=0),
    Goal("reader_runs", "readers", "simulated runs in which a reader is killed", least=2_000),
    Goal("reader_lost", "readers", "stored events that it lost", most=0),
    Goal("reader_repeated", "readers", "events that it handled again", most=0),
    Goal("reader_disordered", "readers", "events before their parents", most=0),
    Goal("reader_old", "readers", 'events from before "now", handed out after it', most=0),
    Goal("consumer_disordered", "consumers", "events out of their publisher's order", most=0),
)


def main(argv: list[str] | None = None) -> int:
    return run("history", GOALS, TIMEOUT_S, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
