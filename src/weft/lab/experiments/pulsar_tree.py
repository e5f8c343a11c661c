"""pulsar-tree: how long a tree takes to heal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weft.lab.experiment import Entry, Params, Size
from weft.lab.figures import BLACK, colour, panels, table
from weft.lab.pulsar import tree
from weft.pipeline.schemas import AT_MOST, NUMBER, SMALL, TEXT, TRUTH, WHOLE, columns
from weft.pipeline.transforms import Bound, numbers, together

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame


CRASHES = ("parent", "rendezvous", "half", "all but one")
COLUMNS = columns(
    crash=TEXT,
    silent=TRUTH,
    history=TRUTH,
    peers=SMALL,
    subscribers=SMALL,
    crashed=SMALL,
    live=SMALL,
    affected=SMALL,
    owed=WHOLE,
    late=WHOLE,
    never=WHOLE,
    repair_ms=NUMBER,
    repair_ms_allowed=NUMBER,
)
NOTICED = "crash noticed: repair time over the time allowed, the most"
SILENT = "silent crash: repair time over the time allowed, the most"
LOST = "events that never came, with history"


def points(size: Size) -> list[Params]:
    some = {"peers": 60, "subscribers": 48} if size == "full" else {"peers": 30, "subscribers": 24}
    crashes = CRASHES if size == "full" else (CRASHES[0], CRASHES[-1])
    ways = [(silent, history) for silent in (False, True) for history in (False, True)]
    return [
        {"crash": crash, "silent": silent, "history": history, **some}
        for crash in crashes
        for silent, history in ways
        if size == "full" or not (history and not silent)
    ]


def healing(rows: DataFrame) -> DataFrame:
    """Per seed: what is asked, the worst of all crashes; times are of the tree alone."""
    took = F.col("repair_ms") / F.col("repair_ms_allowed")
    alone = ~F.col("history")
    return rows.groupBy("seed").agg(
        F.max(F.when(alone & ~F.col("silent"), took)).alias("noticed"),
        F.max(F.when(alone & F.col("silent"), took)).alias("silent"),
        F.sum(F.when(F.col("history"), F.col("never"))).alias("lost"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    titles = {"noticed": NOTICED, "silent": SILENT, "lost": LOST}
    asked: dict[str, Bound] = dict.fromkeys(titles, (AT_MOST, 1.0))
    asked["lost"] = (AT_MOST, 0.0)
    told = {
        "repair_s": "seconds until everybody gets events again",
        "affected_share": "subscribers that missed something at first",
        "never_share": "events that never came, of those owed meanwhile",
    }
    groups = ("crash", "silent", "history")
    who = F.format_string(
        "%s, %s, %s; ",
        F.col("crash"),
        F.when(F.col("silent"), "silent").otherwise("noticed"),
        F.when(F.col("history"), "with history").otherwise("tree alone"),
    )
    wide = rows.withColumns(
        {
            "repair_s": F.col("repair_ms") / 1_000,
            "affected_share": F.col("affected") / F.col("live"),
            "never_share": F.col("never") / F.col("owed"),
        }
    )
    return together(
        rows.transform(healing).transform(numbers(titles, asked)),
        wide.transform(numbers(told, by=groups, prefix=who)),
    )


def figure(rows: DataFrame) -> Figure:
    groups = ("crash", "silent", "history")
    means = table(
        rows.groupBy(*groups).agg(
            F.avg("repair_ms").alias("repair"),
            F.max("repair_ms").alias("most"),
            F.avg("repair_ms_allowed").alias("allowed"),
        )
    )
    drawing, axes = panels(columns=2)
    shown = [crash for crash in CRASHES if crash in set(means["crash"])]
    for panel, silent in zip(axes, (False, True), strict=True):
        for shift, history in ((-0.2, False), (0.2, True)):
            some = means[(means["silent"] == silent) & (means["history"] == history)]
            if not len(some):
                continue
            some = some.set_index("crash")
            known = [(place, some.loc[crash]) for place, crash in enumerate(shown)]
            x = [place + shift for place, _ in known]
            label = "with history" if history else "the tree alone"
            tint = colour(5 if history else 0)
            panel.bar(x, [row["repair"] / 1e3 for _, row in known], 0.38, label=label, color=tint)
            panel.plot(x, [row["most"] / 1e3 for _, row in known], "_", color=BLACK, ms=12)
        bound = means[(means["silent"] == silent) & ~means["history"]].set_index("crash")
        for place, crash in enumerate(shown):
            ends = [place - 0.42, place + 0.42]
            panel.plot(ends, [bound.loc[crash]["allowed"] / 1e3] * 2, ls="--", color=BLACK, lw=1)
        panel.set_xticks(range(len(shown)), shown)
        panel.set_title("crash nobody is told of" if silent else "crash that neighbours notice")
        panel.set_ylabel("seconds until all get events again")
        panel.legend(loc="upper left")
        panel.set_ylim(top=1.25 * means[means["silent"] == silent]["allowed"].max() / 1e3)
    return drawing


def seconds(params: Params) -> float:
    return (4.0 if params["silent"] else 2.0) * (3 if params["history"] else 1)


ENTRIES = [
    Entry(
        id="pulsar-tree",
        title="Trees heal",
        claim="After the crash of a parent, of a rendezvous, of half of the rendezvous or of all "
        "but one, every subscriber gets events again within the time that the settings give: "
        "until the loss is noticed, and until those who know each other above it have been asked. "
        "With history, what was missed meanwhile comes after all.",
        simulation=f"{tree.__name__}:run",
        points=points,
        seeds={"quick": 1, "full": 3},
        columns=COLUMNS,
        measure=measure,
        tolerances={
            NOTICED: "A second until a failed connection is told, another for each of the dead "
            "that is asked for a place, eight round trips down the tree, and the time between two "
            "events.",
            SILENT: "15 s of silence, up to 5 s until they are seen, three pings of 5 s; then 3 s "
            "for each of the dead that is asked for a place, eight round trips down the tree, and "
            "the time between two events.",
            LOST: "Others have what was missed.",
        },
        figure=figure,
        seconds=seconds,
    )
]
