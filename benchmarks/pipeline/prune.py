"""Count and prune on Spark, against DuckDB: the same answer from the same files, in turns.

Both read the memberships from Parquet, count the subscribers of each topic, keep the memberships in
topics of 30 and more, and add the kept ones up to a sum that no other table has by accident. One
pass is the fixed point (see `weft.pipeline.memberships`), which is checked afterwards. Spark's
session and DuckDB's connection are warm; figures are CPU time of all processes that take part, and
since other work on the machine can only add to it, the least of the turns counts, on both sides.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peer import machine
from benchmarks.peer.worker import Worker
from benchmarks.pipeline.memberships import memberships
from benchmarks.pipeline.processes import timed
from pyspark.sql import functions as F

from weft.pipeline import tables
from weft.pipeline.memberships import LEAST_SUBSCRIBERS, pruned, topic_sizes
from weft.pipeline.schemas import MEMBERSHIP
from weft.pipeline.session import SessionSettings, opened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 20_000_000
WARM_UP_TURNS = 2
TURNS = 5
FACTOR = 1_000_003  # of the sum


def answer(kept: DataFrame) -> list[int]:
    """What is compared: how many are kept, and sums over all of them."""
    row = kept.select(
        F.count(F.lit(1)),
        F.sum("user"),
        F.sum("topic"),
        F.bit_xor(F.col("user") * F.lit(FACTOR) + F.col("topic")),
    ).collect()[0]
    return [int(value) for value in row]


def fixed(kept: DataFrame) -> bool:
    """Whether another pass would find nothing to do."""
    return kept.transform(topic_sizes).where(f"subscribers < {LEAST_SUBSCRIBERS}").isEmpty()


def measure(quick: bool) -> dict[str, Any]:
    count = COUNT // 20 if quick else COUNT
    folder = memberships(count)
    # Started before Spark, so that its time is not among that of Spark's processes.
    with Worker("benchmarks.pipeline.prune_duckdb", [str(folder)]) as duckdb:
        duckdb_version = duckdb.hear()["version"]
        with opened(SessionSettings("local[2]", "weft bench", driver_memory="3g")) as spark:
            return in_turns(spark, folder, duckdb) | {
                "memberships": count,
                "versions": {"spark": spark.version, "duckdb": duckdb_version},
            }


def in_turns(spark: SparkSession, folder: Path, duckdb: Worker) -> dict[str, Any]:
    keys = tables.finished(folder)
    table = tables.read_parts(spark, folder, keys, MEMBERSHIP)
    ours, theirs = [], []
    for turn in range(WARM_UP_TURNS + TURNS):
        found, cost = timed(lambda: answer(table.transform(pruned)), without=duckdb.pid)
        ours.append(cost["cpu_seconds"])
        other = duckdb.ask({"least": LEAST_SUBSCRIBERS, "factor": FACTOR})
        theirs.append(other["cpu_s"])
        machine.say(f"prune, turn {turn + 1}: Spark {ours[-1]:.2f} s, DuckDB {theirs[-1]:.2f} s")
        if found != other["answer"]:
            raise RuntimeError(f"Spark says {found}, DuckDB {other['answer']}")
    if not fixed(table.transform(pruned)):
        raise RuntimeError("one pass was not the fixed point")
    ours, theirs = ours[WARM_UP_TURNS:], theirs[WARM_UP_TURNS:]
    return {
        "prune_cpu_s": round(min(ours), 3),
        "duckdb_prune_cpu_s": round(min(theirs), 3),
        "duckdb_ratio": round(min(ours) / min(theirs), 3),
        "duckdb_ratio_of_medians": round(statistics.median(ours) / statistics.median(theirs), 3),
        "prune_cpu_s_turns": [round(value, 3) for value in ours],
        "duckdb_prune_cpu_s_turns": [round(value, 3) for value in theirs],
        "kept": found[0],
    }
