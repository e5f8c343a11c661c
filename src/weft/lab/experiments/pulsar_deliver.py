"""pulsar-deliver: every subscriber's stream is the same and whole, whatever is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import functions as F

from weft.lab.experiment import Entry, Params, Size
from weft.lab.experiments import _pulsar
from weft.lab.figures import GREY, panels, table
from weft.lab.pulsar import deliver
from weft.pipeline.schemas import (
    AT_LEAST,
    AT_MOST,
    NUMBER,
    SMALL,
    TEXT,
    TRUTH,
    WHOLE,
    columns,
)
from weft.pipeline.transforms import Bound, numbers, together

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import Column, DataFrame


LOSSES = {"quick": (0.0, 0.2), "full": (0.0, 0.05, 0.1, 0.2)}
CRASHES = (0.0, 0.3)
NEAR = {"latency_ms": 20, "jitter_ms": 15}
SLOW = {"latency_ms": 500, "jitter_ms": 300}
JAVASCRIPT = 0.52
"""paper: what the JavaScript implementation covered among a hundred peers with SLOW links."""
COLUMNS = columns(
    routing=TEXT,
    history=TRUTH,
    peers=SMALL,
    subscribers=SMALL,
    loss=NUMBER,
    crash=NUMBER,
    latency_ms=SMALL,
    published=WHOLE,
    live=WHOLE,
    kept=WHOLE,
    different=WHOLE,
    lacking=WHOLE,
    misplaced=WHOLE,
    coverage=NUMBER,
    settled_s=NUMBER,
    messages=WHOLE,
)
DIFFERENT = "live subscribers whose stream is not that of all"
LACKING = "events that a live subscriber lacks and a live peer has"
MISPLACED = "events handed to an application twice or before a parent"
VANISHED = "events that nobody has, without a crash"
COVERED = "share of events and subscribers covered, 500 ± 300 ms"


def points(size: Size) -> list[Params]:
    small = {"peers": 16, "subscribers": 12, "events": 16}
    some = {"peers": 30, "subscribers": 24, "events": 40} if size == "full" else small
    many = {"peers": 100, "subscribers": 80, "events": 40} if size == "full" else small
    ways = [(routing, history) for routing in _pulsar.ROUTINGS for history in (True, False)]
    lossy = [
        {"routing": routing, "history": history, "loss": loss, "crash": crash, **some, **NEAR}
        for routing, history in ways
        for loss in LOSSES[size]
        for crash in CRASHES
        if history or not crash
    ]
    slow = [
        {"routing": routing, "history": history, "loss": 0.0, "crash": 0.0, **many, **SLOW}
        for routing, history in ways
    ]
    return [*lossy, *slow]


def agreement(rows: DataFrame) -> DataFrame:
    """Per seed: what is asked, over all runs with history."""
    kept = F.col("history")
    slow = kept & (F.col("latency_ms") == SLOW["latency_ms"])

    def total(value: Column, which: Column) -> Column:
        return F.sum(F.when(which, value))

    return rows.groupBy("seed").agg(
        total(F.col("different"), kept).alias("different"),
        total(F.col("lacking"), kept).alias("lacking"),
        total(F.col("misplaced"), kept).alias("misplaced"),
        total(F.col("published") - F.col("kept"), kept & (F.col("crash") == 0)).alias("vanished"),
        F.min(F.when(slow, F.col("coverage"))).alias("covered"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    titles = {
        "different": DIFFERENT,
        "lacking": LACKING,
        "misplaced": MISPLACED,
        "vanished": VANISHED,
        "covered": COVERED,
    }
    none: Bound = (AT_MOST, 0.0)
    asked: dict[str, Bound] = dict.fromkeys(titles, none) | {"covered": (AT_LEAST, 1.0)}
    told = {
        "coverage": "covered",
        "settled_s": "seconds after the last event until all is there",
        "gone": "events that nobody alive has",
        "per_delivery": "messages sent per event and live subscriber",
    }
    groups = ("routing", "history", "loss", "crash", "latency_ms")
    who = F.format_string(
        "%s%s, %.0f %% lost, %.0f %% crashed, %d ms; ",
        F.col("routing"),
        F.when(F.col("history"), "").otherwise(" alone"),
        F.col("loss") * 100,
        F.col("crash") * 100,
        F.col("latency_ms"),
    )
    wide = rows.withColumns(
        {
            "gone": F.col("published") - F.col("kept"),
            "per_delivery": F.col("messages") / (F.col("published") * F.col("live")),
        }
    )
    return together(
        rows.transform(agreement).transform(numbers(titles, asked)),
        wide.transform(numbers(told, by=groups, prefix=who)),
    )


def figure(rows: DataFrame) -> Figure:
    groups = ("routing", "history", "loss", "crash", "latency_ms")
    means = table(
        rows.groupBy(*groups)
        .agg(F.avg("coverage").alias("coverage"), F.avg("settled_s").alias("settled"))
        .orderBy(*groups)
    )
    drawing, [covered, settled, slow] = panels(columns=3)
    near = means[means["latency_ms"] == NEAR["latency_ms"]]
    for routing in _pulsar.ROUTINGS:
        for crash, line in ((CRASHES[0], "-"), (CRASHES[1], ":")):
            some = near[(near["routing"] == routing) & (near["crash"] == crash)]
            alone, kept = some[~some["history"]], some[some["history"]]
            name = _pulsar.NAMES[routing]
            label = name if not crash else f"{name}, {crash:.0%} crash"
            style = {**_pulsar.style(routing), "ls": line, "label": label}
            if len(alone):
                covered.plot(100 * alone["loss"], 100 * alone["coverage"], **style)
            settled.plot(100 * kept["loss"], kept["settled"], **style)
    covered.set_title("routing alone, without history")
    covered.set_ylabel("covered, %")
    settled.set_title("with history: all streams alike (dotted: 30 % crashed)")
    settled.set_ylabel("seconds after the last event")
    settled.set_yscale("symlog", linthresh=1)
    settled.set_ylim(bottom=0)
    settled.yaxis.set_major_formatter("{x:g}")
    for panel in (covered, settled):
        panel.set_xlabel("messages lost, %")
        panel.set_xticks(100 * np.unique(near["loss"]))
    covered.set_ylim(0, 104)
    covered.legend(loc="lower left")
    _draw_slow(slow, means[means["latency_ms"] == SLOW["latency_ms"]])
    return drawing


def _draw_slow(panel: Any, means: Any) -> None:
    places = range(len(_pulsar.ROUTINGS))
    for shift, history, label in ((-0.2, False, "routing alone"), (0.2, True, "with history")):
        some = means[means["history"] == history].set_index("routing")["coverage"]
        heights = [100 * some[routing] for routing in _pulsar.ROUTINGS]
        shade = "#56B4E9" if history else GREY
        panel.bar([place + shift for place in places], heights, 0.38, label=label, color=shade)
    panel.axhline(100 * JAVASCRIPT, color="#D55E00", ls="--", lw=1.2)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 2}
    note: Any = {"ha": "center", "va": "bottom", "color": "#D55E00", "bbox": box}
    panel.text((len(places) - 1) / 2, 100 * JAVASCRIPT + 2, "JavaScript, in the paper", **note)
    panel.set_xticks(
        list(places), [_pulsar.NAMES[routing].replace(" ", "\n") for routing in _pulsar.ROUTINGS]
    )
    panel.set_ylabel("covered, %")
    panel.set_ylim(0, 118)
    panel.set_title("every message takes 500 ± 300 ms")
    panel.legend(loc="upper left", ncols=2)


def seconds(params: Params) -> float:
    return float(params["peers"] * params["events"]) / (1_500 if params["history"] else 4_000)


ENTRIES = [
    Entry(
        id="pulsar-deliver",
        title="Every subscriber ends with the same stream",
        claim="With history, over every routing, at 0 to 20 % loss and with 30 % of the peers "
        "crashed in the midst of it, every live subscriber ends with the same stream, and it holds "
        "every event that any live peer has; applications get each event once and after its "
        "parents. Among a hundred peers with 500 ± 300 ms of latency everything arrives, where the "
        "JavaScript implementation covered 52 %. What routing alone would cover is told.",
        simulation=f"{deliver.__name__}:run",
        points=points,
        seeds={"quick": 1, "full": 2},
        columns=COLUMNS,
        measure=measure,
        tolerances={
            DIFFERENT: "A stream is a set of events with one order.",
            LACKING: "Members tell each other where their streams end, so whatever anybody alive "
            "has is found.",
            MISPLACED: "An event waits until its parents were handed over.",
            VANISHED: "A publish is answered when the event is stored, and its publisher stays.",
            COVERED: "Latency delays and reorders; it loses nothing.",
        },
        figure=figure,
        seconds=seconds,
    )
]
