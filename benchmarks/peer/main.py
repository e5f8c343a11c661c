"""`./weft bench peer`: runs the measures, each in a process of its own, and prints the figures."""

from __future__ import annotations

import sys

from benchmarks.command import run
from benchmarks.goals import Goal
from benchmarks.peer.copies import PROCESSES

TIMEOUT_S = 1_800

GOALS = (
    Goal("cpu_us_per_notification", "compare", "CPU µs per delivered notification, 10 peers"),
    Goal("libp2p_cpu_us_per_notification", "compare", "the same for py-libp2p's GossipSub"),
    Goal("libp2p_ratio", "compare", "how many times less", least=50),
    Goal("notifications_per_s", "throughput", "notifications a second, two peers", least=20_000),
    Goal("outside_per_s", "throughput", "the same from outside of the topic", least=15_000),
    Goal("outside_ratio", "throughput", "CPU of that, against a subscriber's", most=2),
    Goal("idle_peer_mb", "idle", "MB of an idle peer in three topics", most=6),
    Goal("idle_peer_cpu_percent", "idle", "% of a core of an idle peer", most=0.5),
    Goal("process_mb", "start", "MB of a process with one peer", most=30),
    Goal("status_cpu_ms", "start", "ms of CPU of weft status", most=150),
    Goal("sim_messages_per_s", "simulator", "messages a second in the simulator", least=20_000),
    Goal("payload_copies_per_delivery", "copies", "payload copies per delivery", most=1.05),
    Goal("payload_copies_per_delivery_healing", "copies", "the same while healing", most=1.2),
    Goal("fuzz_raised", "fuzz", "exceptions by a million fuzzed frames", most=0),
    Goal("fuzz_growth_percent", "fuzz", "% that a process grows meanwhile", most=10),
    Goal("copies_burst", "burst", "payload copies per delivery, all flat out", most=1.05),
    Goal("out_of_order_burst", "burst", "events out of order, all flat out", most=0),
    Goal("frames_per_delivery", "topics", "frames per delivery, 1,000 topics", most=2.5),
    Goal("killed_in_time_percent", "killed", "% in 10 s, 18 of 22 processes killed", least=99),
    Goal("killed_at_end_percent", "killed", "% at the end, the same", least=100),
    Goal("vanished_s", "vanished", "s until a vanished machine is noticed", most=5.5),
    Goal("rest_packets_per_s", "vanished", "packets a second of a link at rest"),
)
ON_REQUEST = ("killed", "vanished")
"""The first takes minutes, the other needs the rights to make networks."""


def main(argv: list[str] | None = None) -> int:
    return run("peer", GOALS, TIMEOUT_S, __doc__ or "", argv, ON_REQUEST, "burst", PROCESSES)


if __name__ == "__main__":
    sys.exit(main())
