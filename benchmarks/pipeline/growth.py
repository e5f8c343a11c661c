"""What it costs to add 200 rows to a lake of 10.3 million memberships.

The lake is made of whole tables, not ingested. Half of each file's users are new, the others are
known, as are all topics. Spark's session is warm; the figure is CPU time of all processes, the
least of three turns after three for warming up, because Java compiles what it has run for a while.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from benchmarks.peer import machine
from benchmarks.pipeline.processes import timed
from pyspark.sql import functions as F

from weft.pipeline.ingest.job import ingest
from weft.pipeline.lake import Lake, drafted
from weft.pipeline.session import SessionSettings, opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMBERSHIPS, USERS, TOPICS = 10_300_000, 300_000, 40_000
ADDED = 200
WARM_UP_TURNS, TURNS = 3, 3


def measure(quick: bool) -> dict[str, Any]:
    memberships = MEMBERSHIPS // (20 if quick else 1)
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as aside:
        folder = Path(aside)
        with opened(SessionSettings("local[2]", "weft bench", driver_memory="3g")) as spark:
            make(spark, folder / "lake", memberships)
            cpu = []
            for turn in range(WARM_UP_TURNS + TURNS):
                path = rows(folder / f"rows-{turn}.csv", turn, random)
                _, cost = timed(partial(ingest, spark, [path], folder / "lake"))
                cpu.append(cost["cpu_seconds"])
                machine.say(f"growth, turn {turn + 1}: {cpu[-1]:.1f} s of CPU")
            total = Lake(folder / "lake").rows("memberships")
    if total != memberships + ADDED * len(cpu):
        raise RuntimeError(f"{total} memberships in the lake")
    return {
        "add_200_rows_cpu_s": round(min(cpu[WARM_UP_TURNS:]), 2),
        "add_200_rows_cpu_s_turns": [round(value, 2) for value in cpu],
        "add_200_rows_to": memberships,
    }


def make(spark: SparkSession, lake: Path, memberships: int) -> None:
    """A lake in which user u is in topics u, u + 1 …, by number; odd topics stay free."""
    machine.say(f"growth: a lake of {memberships:,} memberships")
    user, turn = F.col("id") % USERS, F.floor(F.col("id") / USERS)
    held = spark.range(memberships).select(
        user.alias("user"),
        ((user + turn) * 2 % TOPICS).alias("topic"),
        F.timestamp_seconds(F.lit(1_000_000) + F.col("id") % 1_000).alias("time"),
    )
    with drafted(lake) as draft:
        for table, column, count in (("users", "user", USERS), ("topics", "topic", TOPICS)):
            name = F.concat(F.lit(column), F.col("id").cast("string")).alias("name")
            draft.add(table, spark.range(count).select(F.col("id").alias(column), name))
        draft.add("memberships", held)
        draft.commit([("made", str(memberships))])


def rows(path: Path, turn: int, random: np.random.Generator) -> Path:
    """A file of rows whose memberships are all new."""
    users = random.choice(USERS, ADDED, replace=False)
    topics = random.integers(0, TOPICS // 2, ADDED) * 2 + 1
    lines = [
        f"{f'new{turn}-{place}' if place % 2 else f'user{user}'},topic{topic},{2_000_000 + place}"
        for place, (user, topic) in enumerate(zip(users, topics, strict=True))
    ]
    path.write_text("\n".join(["user,topic,time", *lines]) + "\n")
    return path
