"""The memberships that points of experiments run on, each made once and kept beside the results.

    DIR/.universes/NAME.parquet/          users and their topics; NAME: of which lake, how drawn
    DIR/.universes/NAME-events.parquet/   of a crowd: what these users did there, and when

A *whole* trace is without topics of fewer than 30 subscribers; *large* are 20 topics of it with at
least 100, spread evenly over their sizes. A *universe* is the median of 100 draws that grow from
`seeds` topics, in one of two readings of the paper's words: closed (the grown topics, with their
subscribers) and open (all topics of these subscribers). Spark makes them; tasks read them as
arrays. A grid is drawn to the size that a point asks for, and nothing of it is left out. A *crowd*
is so many users (`seeds`) found by common interests, with all their topics and, where the lake has
events with times, all that they did in them: what a simulation of whole peers can hold
(`versus/crowd.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from weft.engine.data.grid import Grid, draw_grid
from weft.engine.data.universe import READINGS
from weft.errors import WeftError
from weft.lab.experiment import Params
from weft.lab.overlaid import Arrays
from weft.lab.sources import Source
from weft.lab.task import Task
from weft.lab.versus.crowd import LEAST, Happened, draw_users
from weft.pipeline import tables
from weft.pipeline.memberships import pruned, topic_sizes
from weft.pipeline.schemas import MEMBERSHIP
from weft.pipeline.universe import Universes, medians

FOLDER = ".universes"
WHOLE_TRACE = "whole"
LARGE = "large"
CROWD = "crowd"
CROWD_ROWS = 2_000_000
"""guess: memberships that the driver looks for a crowd among, some tens of megabytes."""
CROWD_EVENTS = 500_000
"""guess: events of a crowd that are kept, the first ones; a run plays some hundred of them."""
LARGE_TOPICS, LARGE_LEAST = 20, 100
NODES_PER_TOPIC = 6.25  # paper (Section 3.4): 100 nodes, 16 topics
GRID_SHARE = 0.05  # measured: memberships over nodes squared, in a grid; for estimates
TASK_ROWS = 250_000
"""guess: memberships that one task computes, in some ten seconds; more are spread over all tasks.
measured: the whole gowalla trace (518,650) takes 30 s of CPU time in one task, on one core whatever
the machine has, and 47 s spread in a session that is warm."""


def grid_of(nodes: int) -> Grid:
    """A grid of so many nodes, with as many topics as the paper's has for its nodes."""
    return Grid(nodes=nodes, topics=max(2, round(nodes / NODES_PER_TOPIC)))


def folder_of(params: Params, out: Path) -> Path:
    """Where the memberships of a point on a trace are."""
    return out / FOLDER / f"{_name_of(params)}{tables.SUFFIX}"


def events_folder_of(params: Params, out: Path) -> Path:
    """Where the events of a crowd are."""
    return out / FOLDER / f"{_name_of(params)}-events{tables.SUFFIX}"


def _name_of(params: Params) -> str:
    return f"{params['source']}-{params['lake']}-{params['universe']}-{params['seeds']}"


def rows_of(params: Params, out: Path) -> int:
    """How many memberships a point has; of a grid about."""
    if params["nodes"]:
        return round(GRID_SHARE * float(params["nodes"]) ** 2)
    return tables.count(folder_of(params, out))


def arrays_of(params: Params, seed: int, out: Path) -> Arrays:
    """The memberships of a point; runs in workers."""
    if params["nodes"]:
        drawn = draw_grid(grid_of(params["nodes"]), seed)
        return drawn.topic_of.astype(np.int32), drawn.members.astype(np.int32)
    topics, users = tables.read_arrays(folder_of(params, out), ("topic", "user"))
    return topics.astype(np.int32), users.astype(np.int32)


def happened_in(params: Params, out: Path) -> Happened | None:
    """What the users of a crowd did; nothing in other universes. Runs in workers."""
    if params["nodes"] or params["universe"] != CROWD:
        return None
    names = ("topic", "user", "at_ms")
    topics, users, at_ms = tables.read_arrays(events_folder_of(params, out), names)
    return topics.astype(np.int32), users.astype(np.int32), at_ms


def frame_of(
    spark: SparkSession, params: Params, seed: int, source: Source, out: Path
) -> DataFrame:
    """The memberships of a point as a table (`MEMBERSHIP`)."""
    if params["nodes"]:
        return source.memberships(spark, seed, grid_of(params["nodes"]))
    return tables.read(spark, folder_of(params, out), MEMBERSHIP)


# --- on the driver ------------------------------------------------------------------------------


def missing(tasks: Iterable[Task], out: Path) -> list[Task]:
    """One task for each set of memberships that is still to be made."""
    wanted = {
        folder_of(task.params, out): task
        for task in tasks
        if task.over and not task.params["nodes"]
    }
    return [task for folder, task in wanted.items() if not _is_made(task.params, folder, out)]


def _is_made(params: Params, folder: Path, out: Path) -> bool:
    whole = params["universe"] != CROWD or events_folder_of(params, out).is_dir()
    return whole and folder.is_dir()


def make(
    spark: SparkSession, tasks: Iterable[Task], out: Path, watch: Callable[[int, str], None]
) -> None:
    """Make what these tasks need and is not there; `watch` is told how many are done, and what
    comes next."""
    wanted = missing(tasks, out)
    done = 0
    for source in dict.fromkeys(task.source for task in wanted):
        if source is None:
            raise ValueError("a universe is one of a source")
        some = [task.params for task in wanted if task.source == source]
        watch(done, f"drawing universes of {source.name}")
        for params, frame in _made(spark, source, some):
            watch(done, f"writing {source.name}, {params['universe']}, {params['seeds']} seeds")
            folder = folder_of(params, out)
            folder.parent.mkdir(parents=True, exist_ok=True)
            tables.write(frame, folder)
            if params["universe"] == CROWD:
                members = tables.read(spark, folder, MEMBERSHIP)
                events = source.opened().table(spark, "events").transform(of_members, members)
                tables.write(events, events_folder_of(params, out))
            done += 1


def _made(
    spark: SparkSession, source: Source, wanted: list[Params]
) -> Iterable[tuple[Params, DataFrame]]:
    """The memberships of these points of one source, one after the other."""
    everything = source.opened().memberships(spark).cache()
    try:
        for params in wanted:
            if params["universe"] == WHOLE_TRACE:
                yield params, everything.transform(pruned)
            elif params["universe"] == LARGE:
                yield params, everything.transform(pruned).transform(of_large_topics)
            elif params["universe"] == CROWD:
                yield params, everything.transform(of_a_crowd, params["seeds"])
        drawn = [params for params in wanted if params["universe"] in READINGS]
        if drawn:
            universes = Universes(spark, everything)
            sizes = sorted({min(each["seeds"], universes.topics) for each in drawn})
            chosen = {
                (row.seeds, row.reading): row.draw
                for row in universes.draws(sizes).transform(medians).collect()
            }
            for params in drawn:
                seeds, reading = min(params["seeds"], universes.topics), params["universe"]
                yield params, universes.universe(seeds, chosen[seeds, reading], reading)
    finally:
        everything.unpersist()


class NothingShared(WeftError):
    """The users of a lake have next to no topic in common."""


def of_a_crowd(memberships: DataFrame, peers: int) -> DataFrame:
    """The memberships of so many users that have interests in common. Of a table that is larger
    than CROWD_ROWS, they are looked for among a part of the users, by a hash of their numbers."""
    parts = 1 + memberships.count() // CROWD_ROWS
    some = memberships.where(F.pmod(F.xxhash64("user"), F.lit(parts)) == 0)
    table = some.select("topic", "user").toArrow()
    topics, users = (table.column(name).to_numpy().astype(np.int32) for name in table.column_names)
    chosen = draw_users(topics, users, peers, seed=1)
    if not chosen:
        raise NothingShared(f"no topic has {LEAST} subscribers, so there is nothing to compare")
    return memberships.where(F.col("user").isin(chosen))


def of_members(events: DataFrame, memberships: DataFrame) -> DataFrame:
    """Of HAPPENED what has a time and was done by these users in these topics of theirs: `topic`,
    `user` and `at_ms`, the first CROWD_EVENTS in the order of time."""
    held = F.broadcast(memberships.select("user", "topic"))
    theirs = events.where("time is not null").join(held, ["user", "topic"], "left_semi")
    at_ms = F.floor(F.unix_micros("time") / 1000).alias("at_ms")
    timed = theirs.select("topic", "user", at_ms)
    return timed.orderBy("at_ms", "user", "topic").limit(CROWD_EVENTS)


def of_large_topics(memberships: DataFrame) -> DataFrame:
    """The memberships in 20 topics of at least 100 subscribers, spread evenly over their sizes."""
    large = memberships.transform(topic_sizes).where(F.col("subscribers") >= LARGE_LEAST)
    count = large.count()
    order = Window.orderBy("subscribers", "topic")
    ranked = large.withColumn("place", F.row_number().over(order) - 1)
    share = F.floor(F.col("place") * LARGE_TOPICS / count)
    before = F.floor((F.col("place") - 1) * LARGE_TOPICS / count)
    chosen = ranked.where((F.col("place") == 0) | (share > before)).select("topic")
    return memberships.join(F.broadcast(chosen), "topic", "left_semi")
