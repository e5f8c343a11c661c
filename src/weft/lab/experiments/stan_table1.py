"""stan-table1: the universes of a trace: topics and nodes per number of seeds."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from weft.lab import ground, stan
from weft.lab.experiment import JobEntry, Params, Size
from weft.lab.figures import Figure, colour, look, panels, table
from weft.lab.measures import at_least, at_most, each, reasons, texts, told, truths, wholes
from weft.lab.sources import Source
from weft.lab.workload import points, seeds_once, workload_of
from weft.pipeline.memberships import LEAST_SUBSCRIBERS, pruned
from weft.pipeline.schemas import DRAW, TEXT, WHOLE, columns, joined
from weft.pipeline.transforms import numbers, together
from weft.pipeline.universe import medians

ALL = 0  # the number of seeds in rows that are no draws: the whole table, and the pruned one
COLUMNS = joined(
    texts("source", "reading"),
    wholes("seeds", "draw", "topics", "nodes", "memberships"),
    truths("median"),
    wholes("least", "wrong"),
)
FULL = 0.99
"""A universe with so much of all nodes cannot grow, and which draw is the median is chance."""
TITLES = {
    "least": "fewest subscribers of a topic",
    "more_topics": "topics over those of the next smaller universe, least",
    "more_nodes": "nodes over those of the next smaller universe, least",
    "wrong": "universes whose rows are not as counted",
}


def job(spark: SparkSession, params: Params, seed: int, source: Source) -> DataFrame:
    """Every draw, in both readings; of the smallest median ones also what their rows really are."""
    work = workload_of(spark, params, seed, source)
    draws = spark.createDataFrame(work.universes.draws(work.sizes).collect(), DRAW)
    chosen = draws.transform(medians).collect()
    frames = [
        _labelled(work.universes.universe(row.seeds, row.draw, row.reading), row.reading, row.seeds)
        for row in chosen
        if row.seeds in work.sizes[:MADE]
    ]
    frames.append(_labelled(work.memberships, "whole", ALL))
    frames.append(_labelled(work.memberships.transform(pruned), "pruned", ALL))
    real = spark.createDataFrame(together(*frames).transform(sizes_of).collect(), MADE_SHAPE)
    names = spark.createDataFrame(chosen, DRAW)
    return draws.transform(beside_rows, names, real)


def beside_rows(draws: DataFrame, chosen: DataFrame, real: DataFrame) -> DataFrame:
    """Draws, marked if they are the median of their size, beside what was counted from rows; and
    the tables that are no draws."""
    key = ["reading", "seeds", "draw"]
    marked = draws.join(chosen.select(*key, F.lit(True).alias("median")), key, "left")
    made = chosen.select(*key).join(real, ["reading", "seeds"])
    counted = made.select(*key, *(F.col(name).alias(f"real_{name}") for name in SIZES))
    wrong = F.greatest(*((F.col(n) != F.col(f"real_{n}")).cast("long") for n in SIZES[:3]))
    drawn = marked.join(counted, key, "left").select(
        *draws.columns,
        F.coalesce("median", F.lit(False)).alias("median"),
        F.col("real_least").alias("least"),
        F.when(F.col("real_topics").isNotNull(), wrong).alias("wrong"),
    )
    alone = real.where(F.col("seeds") == ALL).select(
        "reading",
        "seeds",
        F.lit(0).cast("long").alias("draw"),
        *SIZES[:3],
        F.lit(True).alias("median"),
        "least",
        F.lit(0).cast("long").alias("wrong"),
    )
    return drawn.unionByName(alone)


MADE = 3
"""Universes of so many of the smallest sizes are made and their rows counted; larger ones would
take longer and check the same."""
SIZES = ("topics", "nodes", "memberships", "least")
MADE_SHAPE = columns(reading=TEXT, seeds=WHOLE, **dict.fromkeys(SIZES, WHOLE))


def _labelled(frame: DataFrame, reading: str, seeds: int) -> DataFrame:
    return frame.select(
        F.lit(reading).alias("reading"), F.lit(seeds).cast("long").alias("seeds"), "user", "topic"
    )


def sizes_of(frame: DataFrame) -> DataFrame:
    """How large each universe is, counted from its rows."""
    by = ("reading", "seeds")
    topics = frame.groupBy(*by, "topic").agg(F.count("*").alias("subscribers"))
    nodes = frame.groupBy(*by).agg(F.count_distinct("user").alias("nodes"))
    counted = topics.groupBy(*by).agg(
        F.count("*").alias("topics"),
        F.sum("subscribers").alias("memberships"),
        F.min("subscribers").alias("least"),
    )
    return counted.join(nodes, list(by)).select(*by, *SIZES)


def growth(rows: DataFrame) -> DataFrame:
    """Per source and seed: what is asked of the universes."""
    kept = rows.where(F.col("median") & (F.col("reading") != "whole"))
    everybody = kept.where("reading = 'pruned'").select("source", "seed", F.col("nodes").alias("n"))
    closed = kept.where("reading = 'closed'").join(everybody, ["source", "seed"]).alias("large")
    smaller = closed.where(F.col("nodes") < FULL * F.col("n")).alias("small")
    pairs = closed.join(
        smaller,
        (F.col("large.source") == F.col("small.source"))
        & (F.col("large.seed") == F.col("small.seed"))
        & (F.col("large.seeds") > F.col("small.seeds")),
    )
    steps = pairs.groupBy(F.col("large.source").alias("source"), F.col("large.seed").alias("seed"))
    ratios = steps.agg(
        F.min(F.col("large.topics") / F.col("small.topics")).alias("more_topics"),
        F.min(F.col("large.nodes") / F.col("small.nodes")).alias("more_nodes"),
    )
    checks = kept.groupBy("source", "seed").agg(
        F.min("least").alias("least"), F.sum("wrong").alias("wrong")
    )
    return checks.join(ratios, ["source", "seed"], "left")


def measure(rows: DataFrame, size: Size) -> DataFrame:
    bounds = at_least(LEAST_SUBSCRIBERS, "least") | at_most(0.0, "wrong")
    bounds |= at_least(1.0, "more_topics", "more_nodes")
    asked = rows.transform(growth).transform(
        numbers(TITLES, bounds, by=("source",), prefix=each("source"))
    )
    which = F.when(F.col("seeds") == ALL, F.col("reading")).otherwise(
        F.concat(F.col("seeds").cast("string"), F.lit(" seeds, "), F.col("reading"))
    )
    others = {name: F.col(name) for name in ("topics", "nodes")}
    medians_ = rows.where("median").withColumn("which", which)
    return together(
        asked, medians_.transform(told(others, ("source", "which"), stan.named("which")))
    )


def figure(rows: DataFrame) -> Figure:
    """Topics and nodes of the median universes, and the spread of all draws."""
    points_ = table(rows.where("seeds > 0").orderBy("source", "reading", "seeds", "draw"))
    drawing, axes = panels(columns=2)
    for panel, name in zip(axes, ("topics", "nodes"), strict=True):
        groups = points_.groupby(["source", "reading"], sort=True)
        for number, ((source, reading), some) in enumerate(groups):
            middle = some[some["median"]].groupby("seeds")[name].mean()
            by_seeds = some.groupby("seeds")[name]
            line, label = "-" if reading == "closed" else ":", f"{source}, {reading}"
            panel.plot(middle.index, middle, line, label=label, **look(number // 2))
            low, high = by_seeds.quantile(0.05), by_seeds.quantile(0.95)
            panel.fill_between(low.index, low, high, color=colour(number // 2), alpha=0.15, lw=0)
        panel.set(xscale="log", yscale="log", xlabel="topics drawn as seeds")
        panel.set_ylabel(f"{name} of the universe")
    axes[0].legend()
    return drawing


ENTRY = JobEntry.of(
    __name__,
    points=points,
    title="Universes: topics and nodes per number of seeds",
    claim="Self-contained universes of a trace: so many random topics, their users, a topic of "
    "each user, the users of all these; topics below 30 subscribers left out; of 100 draws the "
    "one with the median ratio of topics to nodes. The paper gives topics and nodes per number "
    "of seeds, of traces that are not here: ours are told. That no topic is below 30, that more "
    "seeds give a larger universe and that universes are as large as their draws said, are checks.",
    seeds={"quick": 2, "full": 2},
    tolerances=reasons(
        TITLES,
        least=ground.by_construction(
            "2026-11-16", "Smaller topics are left out, of closed universes and of open ones."
        ),
        more_topics=ground.by_construction(
            "2026-11-16",
            "Seed sizes grow at least by a third from one to the next, so the median "
            "of a size does not fall below that of a smaller one (closed reading), unless that one "
            "has 99 % of all nodes already.",
        ),
        more_nodes=ground.by_construction("2026-11-16", "As for topics."),
        wrong=ground.by_construction(
            "2026-11-16",
            "A kernel counts the draws and joins make the universes; both follow one rule.",
        ),
    ),
    seconds=lambda params: 20.0 if params["size"] == "quick" else 60.0,
    most_seeds=seeds_once,
)
