"""The folder of a demonstration, and the figures in its `summary.json`. A folder with other files
is refused; results of an earlier demonstration are removed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from weft.demo.show import CONFIG, Outcome, latencies_ms
from weft.demo.traffic import Traffic
from weft.demo.verdict import events_of
from weft.lab.processes import Json
from weft.net.errors import UsageError
from weft.sim.scenario import ratio

MADE_BY = "weft demo"
Summary: TypeAlias = dict[str, Json]


class Output:
    """`summary.json`, `report.html`, `overlay.svg`, `trace/peer-*.jsonl` and the pipeline's
    `tables/` in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.summary = folder / "summary.json"
        self.report = folder / "report.html"
        self.picture = folder / "overlay.svg"
        self.trace = folder / "trace"
        self.tables = folder / "tables"

    def prepare(self) -> None:
        """Make the folder, or clear it of an earlier demonstration; refuse any other folder that
        holds something."""
        if self.folder.exists() and not self.folder.is_dir():
            raise UsageError(f"{self.folder} is a file; name a folder")
        if self.folder.is_dir() and any(self.folder.iterdir()) and not self._is_ours():
            raise UsageError(
                f"{self.folder} is not empty and no earlier demo wrote it; name another folder"
            )
        self.trace.mkdir(parents=True, exist_ok=True)
        for path in (self.report, self.picture, *self.traces()):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.tables, ignore_errors=True)
        # The summary marks the folder as a demonstration's, even if nothing else gets written.
        self.write_summary({"made_by": MADE_BY, "complete": False})

    def _is_ours(self) -> bool:
        try:
            found = json.loads(self.summary.read_text())
        except (OSError, ValueError):
            return False
        return isinstance(found, dict) and found.get("made_by") == MADE_BY

    def traces(self) -> list[Path]:
        return sorted(self.trace.glob("peer-*.jsonl"))

    def write_summary(self, summary: Mapping[str, object]) -> None:
        draft = self.summary.with_suffix(".draft")
        draft.write_text(json.dumps(summary, indent=2) + "\n")
        draft.replace(self.summary)


def summarise(outcome: Outcome, traffic: Traffic, settled: Traffic) -> Summary:
    """All figures. `traffic` is that of publishing, `settled` that of its second half, when the
    push trees have settled."""
    plan, verdict = outcome.plan, outcome.verdict
    events = events_of(outcome.workload)
    subscribers = outcome.workload.subscribers()
    outside = sum(event.peer not in subscribers[event.topic] for event in events.values())
    groups = traffic.by_group()
    inside, from_outside = latencies_ms(outcome)
    latencies = [*inside, *from_outside]
    return {
        "made_by": MADE_BY,
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


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest of the values that at least `percent` of all values do not exceed."""
    if not values:
        return None
    return round(float(np.percentile(values, percent, method="inverted_cdf")), 3)
