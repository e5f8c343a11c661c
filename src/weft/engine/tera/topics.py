"""Topic overlays: one Cyclon overlay per topic, ragged, all in one table of rows.

The view of membership m is row m; neighbours are named by their membership, so an exchange
inside a topic never looks anything up. Overlays do not touch each other, so they can be shared
out over threads without changing any result.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from weft.engine.core.draws import base_key
from weft.engine.core.jit import compiled
from weft.engine.core.layout import (
    ROW_BYTES,
    Array,
    Octets,
    Rows,
    Words,
    empty_rows,
    fill_randomly,
    get_count,
    get_id,
)
from weft.engine.data.workload import Memberships, Sizes, spread, topic_name, uniform_sizes
from weft.engine.tera.cyclon import FAST_SHUFFLE, FAST_VIEW, cycle_any, cycle_fast, overlay_keys
from weft.engine.tera.exchange import take_out
from weft.rules.draw import stream_of

_FAST_FROM = 256
"""measured: below so many members the fast kernel's head start costs more than it saves."""


@dataclass
class Topics:
    """All topic overlays of a run."""

    memberships: Memberships
    rows: Rows
    seed: int
    shuffle_length: int
    keys: Array = field(init=False)
    handled: Array | None = None  # counts messages per membership
    overlays: Array | None = None  # overlay ids per membership, where topics may be in parts
    cycle: int = 0

    def __post_init__(self) -> None:
        names = [topic_name(topic) for topic in range(self.memberships.topics)]
        keys = [overlay_keys(self.seed, name) for name in names]
        self.keys = np.array(keys, np.uint64).reshape(-1, 3)

    def run(self, cycles: int = 1, threads: int = 1) -> int:
        """Run cycles; returns the messages sent: a request and a reply for each exchange."""
        exchanges = 0
        for _ in range(cycles):
            self.cycle += 1
            if threads == 1:
                exchanges += self._run_part(0, self.memberships.topics)
                continue
            with ThreadPoolExecutor(threads) as pool:
                parts = self._parts(threads)
                runs = [pool.submit(self._run_part, *part) for part in parts]
                exchanges += sum(run.result() for run in runs)
        return 2 * exchanges

    def isolate(self, memberships: Array) -> None:
        """Set members apart: they know nobody and nobody knows them."""
        _isolate(self.rows.words, self.rows.octets, memberships.astype(np.int64))

    def _run_part(self, first: int, end: int) -> int:
        done: int = cycle_topics(
            self.rows.words,
            self.rows.octets,
            self.memberships.offsets,
            first,
            end,
            self.memberships.members,
            self.keys,
            self.cycle,
            self.rows.view_size,
            self.shuffle_length,
            self.handled,
            self.overlays,
        )
        return done

    def _parts(self, threads: int) -> list[tuple[int, int]]:
        """Ranges of topics with about equally many memberships."""
        offsets, total = self.memberships.offsets, self.memberships.total
        cuts = [int(np.searchsorted(offsets, total * n / threads)) for n in range(threads)]
        bounds = [0, *cuts[1:], self.memberships.topics]
        return [(a, b) for a, b in pairwise(bounds) if a < b]


def random_topics(
    memberships: Memberships,
    seed: int,
    view_size: int = FAST_VIEW,
    shuffle_length: int = FAST_SHUFFLE,
) -> Topics:
    """Topic overlays that start from random views."""
    rows = empty_rows(memberships.total, view_size)
    base = base_key(seed, stream_of("engine.first_topic_views"))
    _fill_topics(rows.words, rows.octets, memberships.offsets, view_size, base)
    return Topics(memberships, rows, seed, shuffle_length)


def subscribe_randomly(peers: int, topics: int, subscriptions: int, seed: int) -> Topics:
    """Uniform popularity, random members, random first views."""
    sizes = uniform_sizes(topics, subscriptions, peers, seed)
    return random_topics(spread(sizes, peers, seed), seed)


@compiled
def _fill_topics(words: Words, octets: Octets, offsets: Sizes, view_size: int, base: Any) -> None:
    for topic in range(len(offsets) - 1):
        first, size = offsets[topic], offsets[topic + 1] - offsets[topic]
        fill_randomly(words, octets, first, size, min(view_size, size - 1), base)


@compiled
def _isolate(words: Words, octets: Octets, apart: Array) -> None:
    marked = np.zeros(len(octets) // ROW_BYTES, np.uint8)
    for item in range(len(apart)):
        marked[apart[item]] = 1
    for row in range(len(marked)):
        for slot in range(get_count(octets, row) - 1, -1, -1):
            if marked[row] or marked[get_id(words, row, slot)]:
                take_out(words, octets, row, slot)


@compiled
def cycle_topics(
    words: Words,
    octets: Octets,
    offsets: Sizes,
    first_topic: int,
    end_topic: int,
    members: Array,
    keys: Array,
    tick: int,
    view_size: int,
    shuffle_length: int,
    handled: Array | None,
    overlays: Array | None,
) -> int:
    """A cycle of the topics first_topic … end_topic−1; returns exchanges done.

    `handled` and `overlays`, if given, are per membership, as in `cycle_any`.
    """
    total = 0
    for topic in range(first_topic, end_topic):
        first, size = offsets[topic], offsets[topic + 1] - offsets[topic]
        fits = view_size == FAST_VIEW and shuffle_length == FAST_SHUFFLE
        if handled is None and overlays is None and fits and size >= _FAST_FROM:
            done, _ = cycle_fast(words, octets, first, size, members, keys[topic], tick)
        else:
            done, _ = cycle_any(
                words,
                octets,
                first,
                size,
                members,
                None,
                handled,
                overlays,
                keys[topic],
                tick,
                view_size,
                shuffle_length,
            )
        total += done
    return total
