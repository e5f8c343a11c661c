# %% [markdown]
# # From a CSV of subscriptions to the size of a network
#
#     python examples/sizing.py SUBS.csv OUT
#
# A script that is a notebook as well: editors that know `# %%` cells, and Jupyter with jupytext,
# open it as one. It takes a file of users and topics (any that 'weft data ingest' takes), looks at
# it, and says how large access point tables and walks a network for these topics needs, how much
# the views of its nodes would shrink by StaN, and what a lookup costs.
"""From a CSV of subscriptions to the size of a network: python examples/sizing.py SUBS.csv OUT."""

# %%
from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weft.engine.stan.overlays import IDEAL, Config
from weft.lab.figures import panels, save, styled
from weft.pipeline import profile, stan
from weft.pipeline.catalog import registered
from weft.pipeline.ingest.job import ingest
from weft.pipeline.lake import Lake
from weft.pipeline.memberships import pruned
from weft.pipeline.session import opened
from weft.rules.deployment import table_bytes, visits_expected, visits_for
from weft.rules.tera import steps_of_each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUCCESS = 0.999  # of lookups
WALKS = 4
LEAST = 2  # topics with fewer subscribers need no overlay


# %% [markdown]
# ## The file becomes a lake, and the lake tables for SQL
# %%
def lake_of(spark: SparkSession, file: Path, out: Path) -> Lake:
    summary = ingest(spark, [file], out / "lake")
    print(f"{summary.quality.kept:,} rows kept, {summary.quality.rejected:,} rejected")
    lake = Lake(out / "lake")
    registered(spark, lake)
    popular = """
        select name, count(*) as subscribers from memberships join topics using (topic)
        group by name order by subscribers desc, name limit 5"""
    print(spark.sql(popular).toPandas().to_string(index=False))
    return lake


# %% [markdown]
# ## How popularity and interest are distributed, and which topics go together
# %%
def looked_at(spark: SparkSession, lake: Lake, out: Path) -> None:
    profile.make(spark, lake.memberships(spark), out / "profile", shuffles=1)
    for name in ("fits", "summary"):
        print(profile.table(spark, out / "profile", name).toPandas().to_string(index=False))


# %% [markdown]
# ## What a lookup of a topic costs, by the size of access point tables
# %%
def lookups(topics: int) -> list[dict[str, float]]:
    sizes = [size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if size < topics]
    rows = []
    for size in sizes or [topics]:
        visits = visits_for(SUCCESS, size, topics)
        rows.append(
            {
                "table": size,
                "bytes": table_bytes(size, 256),
                "visits": visits,
                "cycles": steps_of_each(visits, WALKS),
                "messages": visits_expected(size, topics, visits, WALKS),
            }
        )
    return rows


# %% [markdown]
# ## How many links nodes need, before and after StaN
# %%
def views(spark: SparkSession, lake: Lake) -> dict[str, float]:
    held = lake.memberships(spark).transform(pruned, LEAST)
    config = Config()
    linked = stan.links(held, config, seed=1, rounds=(0, config.rounds, IDEAL))
    sizes = linked.transform(stan.view_sizes).groupBy("round").agg(F.avg("pvs").alias("links"))
    found = {row["round"]: float(row.links) for row in sizes.collect()}
    return {"random": found[0], "StaN": found[config.rounds], "its ideal": found[IDEAL]}


# %% [markdown]
# ## All of it, with pictures
# %%
def sized(spark: SparkSession, file: Path, out: Path) -> dict[str, object]:
    """What a network for these subscriptions needs; tables and pictures are in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    lake = lake_of(spark, file, out)
    looked_at(spark, lake, out)
    costs, links = lookups(lake.rows("topics")), views(spark, lake)
    with styled():
        drawing, (left, right) = panels(columns=2)
        left.plot([row["table"] for row in costs], [row["messages"] for row in costs], marker="o")
        left.set(xscale="log", yscale="log", xlabel="entries of a table", ylabel="messages")
        left.set_title(f"a lookup among {lake.rows('topics'):,} topics")
        right.bar(list(links), list(links.values()))
        right.set(ylabel="links per node", title="physical views")
        save(drawing, out)
    return {"topics": lake.rows("topics"), "lookups": costs, "links": links}


# %%
if __name__ == "__main__":
    with opened() as session:
        print(sized(session, Path(sys.argv[1]), Path(sys.argv[2])))
