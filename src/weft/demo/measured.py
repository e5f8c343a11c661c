"""Compares the pipeline's figures of the demonstration's traces with those that the demonstration
counted itself.

The pipeline knows only the trace. The demonstration knows its workload and its notifications, and
counts messages with a reader of its own (`traffic`). Figures that both have must be equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.demo import figures
from weft.demo.show import Outcome
from weft.demo.traffic import Traffic
from weft.demo.verdict import events_of
from weft.errors import WeftError
from weft.lab.progress import Phases

Figures = Mapping[str, float | None]


class NotMeasured(WeftError):
    """The pipeline did not run; the text says why."""


def measure(traces: Sequence[Path], out: Path, progress: Phases) -> Figures:
    """Run the pipeline over traces; tables and pictures go into a folder."""
    try:
        from pyspark.errors import PySparkException  # noqa: PLC0415  (an extra)

        from weft.pipeline.session import SessionSettings, opened  # noqa: PLC0415
        from weft.pipeline.traces.measure import STEPS  # noqa: PLC0415
        from weft.pipeline.traces.measure import measure as run  # noqa: PLC0415
        from weft.pipeline.traces.source import find  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise NotMeasured(f"the package {error.name!r} is not installed") from error
    settings = SessionSettings("local[2]", "weft demo", driver_memory="1g", small_tables=True)
    try:
        source = find(traces)
        done = progress.steps("measuring", STEPS)
        with opened(settings) as spark:
            found = run(spark, source, out, done)
    except (WeftError, PySparkException) as error:
        raise NotMeasured(str(error)) from error
    draw(out)
    return found


def compare(figures: Figures, outcome: Outcome, traffic: Traffic) -> tuple[str, ...]:
    """The differences of the pipeline's figures from our own; `traffic`: of the whole trace."""
    given = figures["notifications"]
    own = own_figures(outcome, traffic) | {
        f"messages_{group}_per_notification": number / given if given else None
        for group, number in traffic.by_group().items()
    }
    return tuple(
        f"{name} is {figures[name]} by the pipeline and {value} as counted"
        for name, value in own.items()
        if figures[name] != value
    )


def own_figures(outcome: Outcome, traffic: Traffic) -> dict[str, float | None]:
    """The figures that the demonstration counted itself, by the pipeline's names."""
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


def draw(out: Path) -> None:
    """Draw the tables in a folder: `latency.svg` and `load.svg`."""
    from weft.pipeline.tables import read_small  # noqa: PLC0415  (an extra)

    times: Counter[int] = Counter()
    for row in read_small(out / "latencies"):
        times[row["latency_ns"]] += row["deliveries"]
    loads = [row["sent"] + row["received"] for row in read_small(out / "peers")]
    for name, picture in (("latency", figures.within(times)), ("load", figures.handled(loads))):
        (out / f"{name}.svg").write_text(picture.render(alone=True) + "\n")
