"""What the pipeline measures from the demonstration's own traces, checked against what the
demonstration counted itself: two ways to the same numbers.

The pipeline knows only the trace. The demonstration knows its workload and what its applications
got, and counts messages with a reader of its own (`traffic`). What can be compared must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.demo.show import Outcome
from weft.demo.svg import Picture, label, ticks
from weft.demo.traffic import Traffic
from weft.demo.verdict import events_of
from weft.lab.progress import Phases
from weft.net.errors import WeftError
from weft.trace import GROUPS

Figures = Mapping[str, float | None]


class NotMeasured(WeftError):
    """The pipeline did not run; the text says why."""


def measure(traces: Sequence[Path], out: Path, progress: Phases) -> Figures:
    """Run the pipeline over traces; tables and pictures go into a folder."""
    try:
        from pyspark.errors import PySparkException  # noqa: PLC0415  (an extra)

        from weft.pipeline.java import NoJava  # noqa: PLC0415
        from weft.pipeline.session import SessionError, Settings, opened  # noqa: PLC0415
        from weft.pipeline.traces.measure import STEPS  # noqa: PLC0415
        from weft.pipeline.traces.measure import measure as run  # noqa: PLC0415
        from weft.pipeline.traces.source import BadTrace, NoTrace, find  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise NotMeasured(f"the package {error.name!r} is not installed") from error
    settings = Settings("local[2]", "weft demo", driver_memory="1g", small_tables=True)
    try:
        source = find(traces)
        done = progress.steps("measuring", STEPS)
        with opened(settings) as spark:
            figures = run(spark, source, out, done)
    except (NoJava, SessionError, NoTrace, BadTrace, PySparkException) as error:
        raise NotMeasured(str(error)) from error
    draw(out)
    return figures


def compare(figures: Figures, outcome: Outcome, traffic: Traffic) -> tuple[str, ...]:
    """Where the pipeline's figures differ from our own; `traffic` is that of the whole trace."""
    groups = traffic.by_group()
    own = own_figures(outcome, traffic) | {
        f"messages_{group}_per_notification": _ratio(groups[group], figures["notifications"])
        for group in GROUPS
    }
    return tuple(
        f"{name} is {figures[name]} by the pipeline and {value} as counted"
        for name, value in own.items()
        if figures[name] != value
    )


def own_figures(outcome: Outcome, traffic: Traffic) -> dict[str, float | None]:
    """What the demonstration knows itself, by the pipeline's names."""
    verdict = outcome.verdict
    publisher = {number: event.peer for number, event in events_of(outcome.workload).items()}
    remote = [hops for peer, _, event, _, hops in outcome.received if peer != publisher[event]]
    return {
        "peers": outcome.plan.peers,
        "events": len(outcome.published),
        "expected": verdict.expected,
        "delivered": verdict.delivered,
        "twice": len(verdict.twice),
        "remote_deliveries": len(remote),
        "hops_max": max(remote, default=None),
        "messages": sum(traffic.by_group().values()),
        "bytes": traffic.bytes_sent,
        "copies": traffic.copies,
    }


def _ratio(part: float, whole: float | None) -> float | None:
    return part / whole if whole else None


# --- pictures -------------------------------------------------------------------------------------


def draw(out: Path) -> None:
    """Draw the tables in a folder: `latency.svg` and `load.svg`."""
    from weft.pipeline.tables import read_small  # noqa: PLC0415  (an extra)

    latencies, peers = read_small(out / "latencies"), read_small(out / "peers")
    (out / "latency.svg").write_text(_latency(latencies).render(alone=True) + "\n")
    (out / "load.svg").write_text(_load(peers).render(alone=True) + "\n")


_BOX = (56.0, 40.0, 466.0, 236.0)


def _latency(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """Which share of deliveries took at most how long, on a logarithmic scale."""
    picture = Picture(480, 280, "Share of deliveries within a time")
    left, upper, right, lower = _BOX
    counts: dict[int, int] = {}
    for row in rows:
        counts[row["latency_ns"]] = counts.get(row["latency_ns"], 0) + row["deliveries"]
    total = sum(counts.values())
    if not total:
        return picture
    low, high = _decades(min(counts), max(counts))
    for share in (0, 25, 50, 75, 100):
        y = lower - (lower - upper) * share / 100
        picture.line((left, y), (right, y), "grid")
        picture.text(left - 6, y + 4, f"{share} %", anchor="end")
    picture.text(left, upper - 22, "deliveries within a time")
    for decade in range(low, high + 1):
        x = left + (right - left) * (decade - low) / (high - low)
        picture.text(x, lower + 18, _time(decade), anchor="middle")
    seen, before = 0, (left, lower)
    for value in sorted(counts):
        seen += counts[value]
        place = (math.log10(max(value, 10**low)) - low) / (high - low)
        here = (left + (right - left) * place, lower - (lower - upper) * seen / total)
        picture.line(before, (here[0], before[1]), "blue", width=2)
        picture.line((here[0], before[1]), here, "blue", width=2)
        before = here
    return picture


def _decades(least: int, most: int) -> tuple[int, int]:
    low = math.floor(math.log10(max(least, 1)))
    return low, max(low + 1, math.ceil(math.log10(max(most, 1))))


def _time(decade: int) -> str:
    """10 to a power, in nanoseconds, for people."""
    unit = ("ns", "µs", "ms")[decade // 3] if decade < 9 else "s"
    return f"{10 ** (decade - 3 * min(decade // 3, 3))} {unit}"


def _load(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """Messages that each peer sent and received, the busiest first; at most some hundred bars."""
    picture = Picture(480, 280, "Messages handled by each peer")
    left, upper, right, lower = _BOX
    loads = sorted((row["sent"] + row["received"] for row in rows), reverse=True)
    loads = loads[:: max(1, math.ceil(len(loads) / _BARS_MAX))]
    marks = ticks(max(loads, default=0))
    for value in marks:
        y = lower - (lower - upper) * value / marks[-1]
        picture.line((left, y), (right, y), "grid")
        picture.text(left - 6, y + 4, label(value), anchor="end")
    picture.text(left, upper - 22, "messages sent or received")
    width = (right - left) / max(1, len(loads))
    for place, value in enumerate(loads):
        height = (lower - upper) * value / marks[-1]
        gap = min(1.0, width / 4)
        picture.rect(left + place * width + gap, lower - height, width - 2 * gap, height, "blue")
    picture.text((left + right) / 2, lower + 18, "peers, busiest first", anchor="middle")
    return picture


_BARS_MAX = 200
