"""The figures of a demonstration, as they go into `summary.json`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from weft.demo.show import CONFIG, Outcome, latencies_ms
from weft.demo.traffic import Traffic
from weft.demo.verdict import events_of

Summary = dict[str, object]


def summarise(outcome: Outcome, traffic: Traffic, settled: Traffic) -> Summary:
    """All figures. `traffic` is that of publishing, `settled` that of its second half, when the
    push trees have found their shape."""
    plan, verdict = outcome.plan, outcome.verdict
    events = events_of(outcome.workload)
    subscribers = outcome.workload.subscribers()
    outside = sum(event.peer not in subscribers[event.topic] for event in events.values())
    groups = traffic.by_group()
    latencies = latencies_ms(outcome)
    return {
        "made_by": "weft demo",
        "complete": outcome.complete,
        "all_delivered": outcome.complete and verdict.holds,
        "seed": plan.seed,
        "peers": plan.peers,
        "processes": plan.processes,
        "topics": plan.topics,
        "subscriptions": sum(len(topics) for topics in outcome.workload.interests),
        "events": len(outcome.published),
        "events_planned": plan.events,
        "events_from_outside": outside,
        "publish_outcomes": dict(Counter(what for _, what in outcome.published.values())),
        "notifications_expected": verdict.expected,
        "notifications_delivered": verdict.delivered,
        "notifications_twice": len(verdict.twice),
        "notifications_unwanted": len(verdict.unwanted),
        "messages": sum(groups.values()),
        "messages_per_notification": ratio(sum(groups.values()), verdict.delivered),
        "messages_per_notification_by_group": {
            group: ratio(count, verdict.delivered) for group, count in groups.items()
        },
        "messages_by_kind": dict(traffic.kinds.most_common()),
        "messages_before_publishing": dict(traffic.setup),
        "bytes_per_notification": ratio(traffic.bytes_sent, verdict.delivered),
        "payload_copies_per_delivery": ratio(traffic.copies, traffic.remote_deliveries),
        "payload_copies_per_delivery_second_half": ratio(settled.copies, settled.remote_deliveries),
        "latency_ms": {
            "p50": percentile(latencies, 50),
            "p90": percentile(latencies, 90),
            "p99": percentile(latencies, 99),
            "max": percentile(latencies, 100),
        },
        "duration_s": round(sum(outcome.seconds.values()), 3),
        "duration_s_by_phase": outcome.seconds,
        "config": CONFIG,
    }


def ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None


def percentile(ascending: Sequence[float], percent: float) -> float | None:
    """The smallest value that `percent` of all do not exceed."""
    if not ascending:
        return None
    place = max(0, math.ceil(len(ascending) * percent / 100) - 1)
    return round(ascending[place], 3)
