"""tera-churn: what coming and going does to lookups, tables and delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from weft.engine.experiments import tera_churn as engine
from weft.lab.figures import colour, marker, panels, table
from weft.lab.registry import Entry, Size
from weft.pipeline.schemas import AT_LEAST, AT_MOST, NUMBER, TEXT, TRUTH, WHOLE, columns
from weft.pipeline.transforms import measured, over_seeds, together

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame

NUMBERS = {
    "stale_entries": "table entries whose access point is gone",
    "lookup_live": "lookups that find a live access point",
    "lookup_retried": "the same, within four attempts",
    "delivery": "members that get an event",
    "delivery_joined": "the same, members not yet merged left out",
    "stale_views": "entries of views that name the gone",
}
QUIET_LOOKUPS = "no churn: lookups that succeed"
QUIET_DELIVERY = "no churn: members that get an event"
SLOW_LOOKUPS = "0.1 % of both: lookups that find a live access point within four attempts"
SLOW_DELIVERY = "0.1 % of both: members that get an event"
JOINED = "1 % of both: merged members that get an event"
MENDED_LOOKUPS = "1 % of both, mended: lookups that find a live access point in four attempts"
MENDED_DELIVERY = "1 % of both, mended: members that get an event"
FRESHER = "1 % of both: stale entries, mended over plain"
COLUMNS = columns(
    churn=TEXT,
    rate=NUMBER,
    mended=TRUTH,
    lookups=WHOLE,
    round=NUMBER,
    lookup_any=NUMBER,
    **dict.fromkeys(NUMBERS, NUMBER),
    members=NUMBER,
    joins_failed=NUMBER,
    messages_per_peer_cycle=NUMBER,
)


def measure(rows: DataFrame, size: Size) -> DataFrame:
    plain = rows.where(~F.col("mended"))
    quiet = plain.where(F.col("churn") == "none")
    both = plain.where(F.col("churn") == "both")
    slow, middle = both.where(F.col("rate") == 0.001), both.where(F.col("rate") == 0.01)
    mended = rows.where(F.col("mended") & (F.col("rate") == 0.01))
    stale = (
        middle.groupBy("seed")
        .agg(F.avg("stale_entries").alias("plain"))
        .join(mended.groupBy("seed").agg(F.avg("stale_entries").alias("mended")), "seed")
        .select("seed", (F.col("mended") / F.col("plain")).alias("value"))
    )
    made = quiet.agg(F.sum("lookups")).first()
    assert made is not None
    least = 0.999 - 3 * (0.001 / made[0]) ** 0.5
    return together(
        _number(quiet, "lookup_any").transform(measured(QUIET_LOOKUPS, AT_LEAST, least)),
        _number(quiet, "delivery").transform(measured(QUIET_DELIVERY, AT_LEAST, 1.0)),
        _number(slow, "lookup_retried").transform(measured(SLOW_LOOKUPS, AT_LEAST, 0.999)),
        _number(slow, "delivery").transform(measured(SLOW_DELIVERY, AT_LEAST, 0.99)),
        _number(middle, "delivery_joined").transform(measured(JOINED, AT_LEAST, 0.99)),
        _number(mended, "lookup_retried").transform(measured(MENDED_LOOKUPS, AT_LEAST, 0.99)),
        _number(mended, "delivery").transform(measured(MENDED_DELIVERY, AT_LEAST, 0.99)),
        stale.transform(over_seeds()).transform(measured(FRESHER, AT_MOST, 1.0)),
        rows.where(F.col("rate") > 0).transform(everything),
    )


def _number(rows: DataFrame, name: str) -> DataFrame:
    return rows.transform(over_seeds(value=name))


def everything(rows: DataFrame) -> DataFrame:
    """Every number at every kind and rate of churn, told."""
    long = rows.unpivot(["churn", "rate", "mended", "seed"], list(NUMBERS), "name", "value")
    numbers = long.transform(over_seeds("churn", "rate", "mended", "name"))
    who = F.format_string("%.1f %% of %s", F.col("rate") * 100, F.col("churn"))
    how = F.when(F.col("mended"), ", mended").otherwise("")
    title = F.concat(who, how, F.lit(": "), F.translate("name", "_", " "))
    return numbers.transform(measured(F.concat(F.lit("told: "), title)))


def figure(rows: DataFrame) -> Figure:
    names = ("stale_entries", "lookup_live", "lookup_retried", "delivery")
    wanted = rows.groupBy("churn", "rate", "mended").agg(*(F.avg(n).alias(n) for n in names))
    points = table(wanted.orderBy("rate"))
    quiet = points[points["churn"] == "none"].iloc[0]
    places = {0.001: 1, 0.01: 2, 0.05: 3}
    drawing, axes = panels(columns=2, rows=2)
    lines = [("peers", False), ("subscriptions", False), ("both", False), ("both", True)]
    for panel, name in zip(axes, names, strict=True):
        for number, (churn, mended) in enumerate(lines):
            some = points[(points["churn"] == churn) & (points["mended"] == mended)]
            x = [0, *(places[rate] for rate in some["rate"])]
            label = f"{churn}, mended" if mended else churn
            style: Any = {"color": colour(number), "marker": marker(number), "label": label}
            panel.plot(x, [quiet[name], *some[name]], ls="--" if mended else "-", **style)
        panel.set_xticks([0, *places.values()], ["none", "0.1 %", "1 %", "5 %"])
        panel.set_ylim(-0.03, 1.05)
        panel.set_title(NUMBERS[name])
        panel.set_xlabel("come and go, per cycle")
    axes[0].legend(loc="upper left")
    return drawing


ENTRIES = [
    Entry(
        id="tera-churn",
        title="What coming and going does",
        claim="The paper leaves churn of peers and subscriptions to future work and expects TERA "
        "to resist it. We ask: that nothing is lost without churn; that at 0.1 % of both per cycle "
        "lookups with retries and deliveries hardly suffer; that at 1 % an event still reaches the "
        "members that are merged with the others; and that peers that heed failures (mended: a walk "
        "takes another neighbour, a table drops what proved stale, a newcomer starts with a copy "
        "of a table) keep both lookups and deliveries up at 1 %. What 5 % does is told.",
        simulation=f"{engine.__name__}:run",
        points=engine.points,
        seeds=engine.SEEDS,
        columns=COLUMNS,
        measure=measure,
        tolerances={
            QUIET_LOOKUPS: "K is chosen for a success of 0.999; three standard errors of the "
            "lookups made.",
            QUIET_DELIVERY: "A flood over a connected overlay reaches everyone.",
            SLOW_LOOKUPS: "An entry is stale when its access point left since it was heard, below "
            "a tenth at this rate; four of them in a row, below one in ten thousand.",
            SLOW_DELIVERY: "Missing are members that have just joined and whose lookup failed; at "
            "this rate fewer than one in a hundred.",
            JOINED: "A member has twenty neighbours of which a tenth is gone; that none of those "
            "who know it forwards is rarer than one in a hundred.",
            MENDED_LOOKUPS: "With a third of the entries stale, four in a row are one in a hundred.",
            MENDED_DELIVERY: "Joins hardly fail any more, so fewer than one in a hundred is apart.",
            FRESHER: "Fresher means: fewer stale entries.",
        },
        figure=figure,
        seconds=engine.seconds,
    )
]
