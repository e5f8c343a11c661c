"""Topic overlays: one Cyclon overlay per topic, of any size, all in one table of rows.

The view of membership m is row m; neighbours are named by their membership, so an exchange
inside a topic never looks anything up. Overlays do not touch each other, so they can be shared
out over threads without changing any result.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from weft.engine.core.arrays import Loads, Numbers, Words
from weft.engine.core.draws import base_key
from weft.engine.core.jit import Bits, compiled
from weft.engine.core.layout import (
    ROW_BYTES,
    Rows,
    empty_rows,
    fill_randomly,
    get_count,
    get_id,
)
from weft.engine.data.memberships import Memberships, topic_name
from weft.engine.tera.cyclon import (
    FAST_SHUFFLE,
    FAST_VIEW,
    Cycle,
    Span,
    cycle_any,
    cycle_fast,
    fits_fast,
    overlay_keys,
    take_out,
)
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
    keys: Words = field(init=False)
    loads: Loads | None = None  # counts messages per membership
    overlays: Numbers | None = None  # overlay ids per membership, where topics may be in parts
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

    def isolate(self, memberships: Numbers, overlays: Numbers) -> None:
        """Cut members off from their topics: their views are empty, and no view names them.
        `overlays` holds the overlay id of each membership from now on."""
        self.overlays = overlays
        _isolate(self.rows, memberships)

    def cycle_at(self, tick: int) -> Cycle:
        """What exchanges of one cycle share, with a row of keys for each topic."""
        return Cycle(self.keys, tick, self.shuffle_length)

    def _run_part(self, first: int, end: int) -> int:
        cycle = self.cycle_at(self.cycle)
        part = (first, end)
        return _run_topics(self.rows, self.memberships, part, cycle, self.loads, self.overlays)

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
    loads: Loads | None = None,
) -> Topics:
    """Topic overlays that start from random views."""
    rows = empty_rows(memberships.total, view_size)
    base = base_key(seed, stream_of("engine.first_topic_views"))
    _fill_topics(rows, memberships.offsets, base)
    return Topics(memberships, rows, seed, shuffle_length, loads)


@compiled
def _fill_topics(rows: Rows, offsets: Numbers, base: Bits) -> None:
    for topic in range(len(offsets) - 1):
        first, size = offsets[topic], offsets[topic + 1] - offsets[topic]
        fill_randomly(rows, first, size, min(rows.view_size, size - 1), base)


@compiled
def _isolate(rows: Rows, apart: Numbers) -> None:
    marked = np.zeros(len(rows.octets) // ROW_BYTES, np.uint8)
    for item in range(len(apart)):
        marked[apart[item]] = 1
    for row in range(len(marked)):
        for slot in range(get_count(rows.octets, row) - 1, -1, -1):
            if marked[row] or marked[get_id(rows.words, row, slot)]:
                take_out(rows, row, slot)


@compiled
def _run_topics(
    rows: Rows,
    held: Memberships,
    topics: tuple[int, int],
    cycle: Cycle,
    loads: Loads | None,
    overlays: Numbers | None,
) -> int:
    """A cycle of the topics from the first number up to the second; returns exchanges done.

    `loads` and `overlays`, if given, are per membership, as in `cycle_any`.
    """
    total = 0
    fits = fits_fast(rows, cycle)
    for topic in range(topics[0], topics[1]):
        first, size = held.offsets[topic], held.offsets[topic + 1] - held.offsets[topic]
        span = Span(first, size)
        inside = Cycle(cycle.keys[topic], cycle.tick, cycle.shuffle_length)
        if loads is None and overlays is None and fits and size >= _FAST_FROM:
            done, _ = cycle_fast(rows, span, inside, held.members)
        else:
            done, _ = cycle_any(rows, span, inside, held.members, None, loads, overlays)
        total += done
    return total
