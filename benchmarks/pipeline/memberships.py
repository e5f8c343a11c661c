"""Made-up memberships with power laws on both sides, kept as Parquet between runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow
from benchmarks.peer import machine

from weft.pipeline import tables
from weft.pipeline.schemas import MEMBERSHIP

PARTS = 8
SEED = 1
_VERSION = 2  # of what is drawn here


def memberships(count: int) -> Path:
    """A keyed table of that many distinct (user, topic), in no order; made on first use."""
    folder = machine.cache_folder() / f"memberships-{_VERSION}-{count}-{SEED}"
    if len(tables.finished(folder)) == PARTS:
        return folder
    machine.say(f"making {count:,} memberships")
    shutil.rmtree(folder, ignore_errors=True)
    users, topics = drawn(count, np.random.default_rng(SEED))
    for part in range(PARTS):
        rows = slice(part * count // PARTS, (part + 1) * count // PARTS)
        times = pyarrow.nulls(len(users[rows]), pyarrow.timestamp("us", "UTC"))
        columns = {"user": users[rows], "topic": topics[rows], "time": times}
        tables.write_part(folder, f"part-{part}", columns, MEMBERSHIP)
    return folder


def drawn(
    count: int, random: np.random.Generator, topics_max: int = 0
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Distinct pairs whose popularity falls off with the rank, for users and topics alike, of which
    there are by default so many that twenty pairs come to each.

    A rank drawn as N·u^k has a density that goes with rank^(1/k - 1): exponents of 0.67 and 0.75
    for the k here, as measured on the users and topics of social networks.
    """
    users_max, topics_max = max(64, count // 10), topics_max or max(64, count // 20)
    wanted = count + count // 4  # some are drawn twice
    users = (users_max * random.random(wanted) ** 3).astype(np.int64)
    topics = (topics_max * random.random(wanted) ** 4).astype(np.int64)
    pairs = np.sort(users * topics_max + topics)
    pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])]
    if len(pairs) < count:
        raise ValueError(f"only {len(pairs)} distinct memberships of {count} were drawn")
    pairs = random.permutation(pairs)[:count]
    return pairs // topics_max, pairs % topics_max
