"""pulsar-gap: what repairing a gap costs, from one missing event to a thousand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from weft.lab.experiment import Entry, Params, Size
from weft.lab.experiments import _pulsar
from weft.lab.figures import BLACK, panels, table
from weft.lab.pulsar import gap
from weft.pipeline.schemas import AT_MOST, NUMBER, SMALL, TEXT, WHOLE, columns
from weft.pipeline.transforms import Bound, numbers, together

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame


GAPS = {"quick": (1, 10, 100), "full": (1, 3, 10, 30, 60, 100, 300, 1_000)}
REAL_GAPS = {"quick": (100,), "full": (1, 10, 100, 1_000)}
LOSSES = (0.0, 0.1)
PEERS = 10
COLUMNS = columns(
    how=TEXT,
    routing=TEXT,
    publishers=SMALL,
    loss=NUMBER,
    gap=SMALL,
    heights=SMALL,
    missing=WHOLE,
    repair_ms=NUMBER,
    messages=NUMBER,
    messages_allowed=NUMBER,
    ms_allowed=NUMBER,
)
MISSING = "events that stayed missing"
MESSAGES = "messages over those allowed, no loss, the most"
MESSAGES_LOSS = "messages over those allowed, 10 % lost, the most"
TIME = "time over the time allowed, no loss, the most"


def points(size: Size) -> list[Params]:
    routings = _pulsar.ROUTINGS[: 3 if size == "full" else 2]
    publishers = (1, 3) if size == "full" else (1,)
    simulated = [
        {
            "how": "machines",
            "routing": routing,
            "publishers": count,
            "loss": loss,
            "gap": missing,
            "peers": PEERS,
        }
        for routing in routings
        for count in publishers
        for loss in LOSSES
        for missing in GAPS[size]
    ]
    real = [
        {"how": "network", "routing": routing, "publishers": 1, "loss": 0.0, "gap": missing}
        for routing in (routings if size == "full" else ("pulsarcast",))
        for missing in REAL_GAPS[size]
    ]
    return [*simulated, *real]


def costs(rows: DataFrame) -> DataFrame:
    """Per seed: what is asked, the worst of all gaps."""
    quiet = F.col("loss") == 0
    messages = F.col("messages") / F.col("messages_allowed")
    machines = rows.where("how = 'machines'")
    worst = machines.groupBy("seed").agg(
        F.max(F.when(quiet, messages)).alias("messages"),
        F.max(F.when(~quiet, messages)).alias("messages_loss"),
        F.max(F.when(quiet, F.col("repair_ms") / F.col("ms_allowed"))).alias("time"),
    )
    return rows.groupBy("seed").agg(F.sum("missing").alias("missing")).join(worst, "seed")


def measure(rows: DataFrame, size: Size) -> DataFrame:
    titles = {
        "missing": MISSING,
        "messages": MESSAGES,
        "messages_loss": MESSAGES_LOSS,
        "time": TIME,
    }
    asked: dict[str, Bound] = dict.fromkeys(titles, (AT_MOST, 1.0))
    asked["missing"] = (AT_MOST, 0.0)
    told = {
        "repair_ms": "milliseconds",
        "per_event": "messages per missing event",
    }
    groups = ("how", "routing", "publishers", "loss", "gap")
    who = F.format_string(
        "%s, %s, %d publishers, %.0f %% lost, gap of %d; ",
        F.when(F.col("how") == "network", "real peers").otherwise("simulated"),
        F.col("routing"),
        F.col("publishers"),
        F.col("loss") * 100,
        F.col("gap"),
    )
    wide = rows.withColumn("per_event", F.nanvl(F.col("messages"), F.lit(None)) / F.col("gap"))
    return together(
        rows.transform(costs).transform(numbers(titles, asked)),
        wide.transform(numbers(told, by=groups, prefix=who)),
    )


def figure(rows: DataFrame) -> Figure:
    groups = ("how", "routing", "publishers", "loss", "gap")
    names = ("repair_ms", "messages", "messages_allowed", "ms_allowed")
    means = table(
        rows.groupBy(*groups).agg(*(F.avg(name).alias(name) for name in names)).orderBy(*groups)
    )
    drawing, [quiet, lossy, messages] = panels(columns=3)
    single = means[means["publishers"] == 1]
    machines = single[single["how"] == "machines"]
    for routing in _pulsar.ROUTINGS:
        mine = machines[machines["routing"] == routing]
        if not len(mine):
            continue
        real = single[(single["how"] == "network") & (single["routing"] == routing)]
        style = {**_pulsar.style(routing), "label": _pulsar.NAMES[routing]}
        dotted = {**style, "ls": ":", "label": None}
        calm, stormy = mine[mine["loss"] == 0], mine[mine["loss"] > 0]
        quiet.plot(calm["gap"], calm["repair_ms"], **style)
        if len(real):
            quiet.plot(real["gap"], real["repair_ms"], **dotted)
        lossy.plot(stormy["gap"], stormy["repair_ms"], **style)
        messages.plot(calm["gap"], calm["messages"] / calm["gap"], **style)
        messages.plot(stormy["gap"], stormy["messages"] / stormy["gap"], **dotted)
    bound = machines[(machines["loss"] == 0) & (machines["routing"] == "pulsarcast")]
    dashes: Any = {"color": BLACK, "ls": "--", "lw": 1, "label": "allowed, no loss"}
    quiet.plot(bound["gap"], bound["ms_allowed"], **dashes)
    messages.plot(bound["gap"], bound["messages_allowed"] / bound["gap"], **dashes)
    for panel, title in (
        (quiet, "no loss (dotted: real peers)"),
        (lossy, "10 % of the messages lost"),
    ):
        panel.set_title(title)
        panel.set_ylabel("milliseconds until repaired")
    messages.set_title("no loss (dotted: 10 % lost)")
    messages.set_ylabel("messages per missing event")
    for panel in (quiet, lossy, messages):
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("missing events")
        panel.legend()
    return drawing


def seconds(params: Params) -> float:
    return 0.1 + float(params["gap"]) / (250 if params["how"] == "network" else 600)


ENTRIES = [
    Entry(
        id="pulsar-gap",
        title="A gap is repaired",
        claim="A gap of 1 to 1000 events is found when the next event comes, and repaired. A short "
        "one is walked back: at most a question and an answer per missing event, a round trip per "
        "height. A longer one is read: a question and an answer per page of 256 events. So a gap "
        "of a thousand takes a fifth of a second where a round trip takes 40 ms.",
        simulation=f"{gap.__name__}:run",
        points=points,
        seeds={"quick": 1, "full": 2},
        columns=COLUMNS,
        measure=measure,
        tolerances={
            MISSING: "Others have what is missing, and go on having it.",
            MESSAGES: "A question and an answer per missing event up to 16 heights; beyond, per "
            "page of 256 events, and one more for what was published meanwhile.",
            MESSAGES_LOSS: "As without losses, each repeated until question and answer come "
            "through (0.81 of them do), with three standard deviations.",
            TIME: "Ten hops for the event that shows the gap; the patience of half a second where "
            "it is walked; and a round trip per height or page.",
        },
        figure=figure,
        seconds=seconds,
    )
]
