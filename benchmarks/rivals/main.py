"""`./weft bench rivals`: weft and others, under the same load in the same run."""

from __future__ import annotations

import sys

from benchmarks.command import run
from benchmarks.goals import Goal

TIMEOUT_S = 3_600

GOALS = (
    Goal("nats_tls_ratio", "flat_out", "CPU of weft's / of NATS with TLS", most=0.3),
    Goal("zenoh_tls_ratio", "flat_out", "CPU of weft's / of Zenoh with TLS", most=2.5),
    Goal("mqtt_tls_ratio", "flat_out", "CPU of weft's / of MQTT with TLS"),
    Goal("redis_tls_ratio", "flat_out", "CPU of weft's / of Redis with TLS"),
    Goal("zmq_curve_ratio", "flat_out", "CPU of weft's / of ZeroMQ with CURVE"),
    Goal("latency_p50_ratio_nats_1_9", "latency", "median latency / that of NATS", most=1),
    Goal("first_event_ratio_nats", "first_event", "first event after start / NATS", most=1.5),
    Goal("programs_that_differ", "programs", "programs that print other than weft's", most=0),
    Goal("outside_ratio", "peer.throughput", "CPU of a publisher from outside", most=2),
    Goal("copies_burst", "peer.burst", "payload copies per delivery, all flat out", most=1.05),
    Goal("out_of_order_burst", "peer.burst", "events out of order, all flat out", most=0),
)


def main(argv: list[str] | None = None) -> int:
    return run("rivals", GOALS, TIMEOUT_S, __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
