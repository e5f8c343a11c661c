"""tera-churn: what coming and going does to lookups, tables and delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from weft.engine.experiments import tera_churn as engine
from weft.lab.figures import colour, marker, panels, table
from weft.lab.registry import Entry, Size
from weft.pipeline.schemas import AT_LEAST, AT_MOST, NUMBER, TEXT, TRUTH, WHOLE, columns
from weft.pipeline.transforms import Bound, numbers, together

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import Column, DataFrame

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


def resistance(rows: DataFrame) -> DataFrame:
    """Per seed: what is asked, from the kinds and rates of churn that it is asked of."""
    quiet = F.col("churn") == "none"
    both = F.col("churn") == "both"
    slow = both & (F.col("rate") == 0.001) & ~F.col("mended")
    middle = both & (F.col("rate") == 0.01) & ~F.col("mended")
    mended = both & (F.col("rate") == 0.01) & F.col("mended")

    def mean(name: str, which: Column) -> Column:
        return F.avg(F.when(which, F.col(name)))

    return rows.groupBy("seed").agg(
        mean("lookup_any", quiet).alias("quiet_lookups"),
        mean("delivery", quiet).alias("quiet_delivery"),
        mean("lookup_retried", slow).alias("slow_lookups"),
        mean("delivery", slow).alias("slow_delivery"),
        mean("delivery_joined", middle).alias("joined"),
        mean("lookup_retried", mended).alias("mended_lookups"),
        mean("delivery", mended).alias("mended_delivery"),
        (mean("stale_entries", mended) / mean("stale_entries", middle)).alias("fresher"),
        F.sum(F.when(quiet, F.col("lookups"))).alias("made"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    titles = {
        "quiet_lookups": QUIET_LOOKUPS,
        "quiet_delivery": QUIET_DELIVERY,
        "slow_lookups": SLOW_LOOKUPS,
        "slow_delivery": SLOW_DELIVERY,
        "joined": JOINED,
        "mended_lookups": MENDED_LOOKUPS,
        "mended_delivery": MENDED_DELIVERY,
        "fresher": FRESHER,
    }
    asked: dict[str, Bound] = {
        "quiet_lookups": (AT_LEAST, 0.999 - 3 * F.sqrt(0.001 / (F.col("made") * F.col("seeds")))),
        "quiet_delivery": (AT_LEAST, 1.0),
        "slow_lookups": (AT_LEAST, 0.999),
        "slow_delivery": (AT_LEAST, 0.99),
        "joined": (AT_LEAST, 0.99),
        "mended_lookups": (AT_LEAST, 0.99),
        "mended_delivery": (AT_LEAST, 0.99),
        "fresher": (AT_MOST, 1.0),
    }
    who = F.format_string("%.1f %% of %s", F.col("rate") * 100, F.col("churn"))
    how = F.when(F.col("mended"), ", mended; ").otherwise("; ")
    groups = ("churn", "rate", "mended")
    return together(
        rows.transform(resistance).transform(numbers(titles, asked, keep=("made",))),
        rows.transform(numbers(NUMBERS, by=groups, prefix=F.concat(who, how))),
    )


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
        "members that are merged with the others; and that peers that heed failures (mended: a "
        "walk takes another neighbour, a table drops what proved stale, a newcomer starts with a "
        "copy of a table) keep lookups and deliveries up at 1 %. What 5 % does is told.",
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
            MENDED_LOOKUPS: "With a third of the entries stale, four in a row are one in a "
            "hundred.",
            MENDED_DELIVERY: "Joins hardly fail any more, so fewer than one in a hundred is apart.",
            FRESHER: "Fresher means: fewer stale entries.",
        },
        figure=figure,
        seconds=engine.seconds,
    )
]
