"""The synthetic grid: memberships by interest radius on a plane (StaN 3.2, last paragraph).

Nodes stand at random places of a unit square. Each topic has several identifiers at random places,
their number by a power law, so that popularity follows one. Each node has an interest radius by a
power law and subscribes to every topic that has an identifier within it, so that the number of
subscriptions follows one, too. Nodes that stand close share topics: interests are correlated.

Deviation: opposite edges of the square are joined, so that nodes near an edge are like all others;
and a node with nothing within its radius subscribes to the topic of the identifier nearest to it,
so that a grid has as many subscribed nodes as it was asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from weft.engine.core.arrays import Ids, Numbers, Reals, offsets_of
from weft.engine.core.draws import absorb, base_key, fraction_of, uniforms
from weft.engine.core.jit import Bits, compiled, i64
from weft.engine.data.memberships import Memberships, memberships
from weft.rules.draw import stream_of

_CELL_HOLDS = 2.0  # guess: identifiers per cell of the search; any small number does
_SPARE = 1.3  # measured: of topics drawn for a universe, at least 1/1.3 reach its least popularity


@dataclass(frozen=True)
class PowerLaw:
    """Values between `least` and `most`, with a density that falls as value^−exponent."""

    exponent: float
    least: float
    most: float

    def __post_init__(self) -> None:
        if not 0 < self.least <= self.most:
            raise ValueError("a power law needs 0 < least ≤ most")

    def at(self, uniform: Reals) -> Reals:
        """The values at these quantiles."""
        if self.exponent == 1.0:
            return np.asarray(self.least * (self.most / self.least) ** uniform)
        power = 1.0 - self.exponent
        low, high = self.least**power, self.most**power
        return np.asarray((low + uniform * (high - low)) ** (1.0 / power))


@dataclass(frozen=True)
class Grid:
    """What to draw. The defaults are the universe of the paper's Fig. 6, of which the paper says
    only its size and that physical views fall from 25 to about 15; with these power laws they are
    25.4 at random and 16.1 at StaN's ideal (means of 20 seeds), with 5.3 topics per node.
    """

    nodes: int = 100  # paper
    topics: int = 16  # paper
    copies: PowerLaw = PowerLaw(2.5, 1.0, 8.0)  # measured: see above
    radius: PowerLaw = PowerLaw(1.2, 0.05, 0.9)  # measured: see above
    least_members: int = 0  # topics with fewer subscribers are drawn again (as if pruned)

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.topics < 1:
            raise ValueError("a grid needs at least one node and one topic")


LIVEJOURNAL_SIZED = Grid(
    nodes=267_230,  # paper (Table 1, L₁)
    topics=13_652,  # paper (Table 1, L₁)
    copies=PowerLaw(2.2, 4.0, 2_000.0),  # guess: the paper names no exponent
    radius=PowerLaw(3.6, 0.0018, 0.06),  # guess: some ten subscriptions a node
    least_members=30,  # paper (Section 3.1)
)
"""A universe of the size of the paper's largest pruned one."""


class Nodes(NamedTuple):
    """Where nodes stand, and how far their interest reaches."""

    x: Reals
    y: Reals
    radius: Reals


class Cells(NamedTuple):
    """The topics' identifiers, sorted by the cell of a grid of side × side that they lie in."""

    side: int
    starts: Numbers  # of each cell's identifiers
    x: Reals
    y: Reals
    topics: Ids


def draw_grid(grid: Grid, seed: int) -> Memberships:
    """The memberships of one grid; the same for the same seed on every machine."""
    if not grid.least_members:
        return _joined(grid, seed, np.arange(grid.topics))
    # Topics are drawn independently, so the first that reach the number stand for all that do.
    drawn = math.ceil(grid.topics * _SPARE)
    while True:
        many = _joined(replace(grid, topics=drawn, least_members=0), seed, np.arange(drawn))
        popular = np.flatnonzero(many.sizes() >= grid.least_members)
        if len(popular) >= grid.topics:
            return _joined(grid, seed, popular[: grid.topics])
        if drawn > 100 * grid.topics:
            raise ValueError(f"hardly a topic reaches {grid.least_members} subscribers")
        drawn *= 2


def _joined(grid: Grid, seed: int, chosen: Numbers) -> Memberships:
    """The memberships in the chosen topics, numbered anew in that order."""
    counts = np.floor(
        grid.copies.at(uniforms(int(chosen.max()) + 1, _key(seed, "grid.copies")))
    ).astype(np.int64)[chosen]
    topic_of_copy = np.repeat(np.arange(len(chosen), dtype=np.int32), counts)
    copy_x, copy_y = _copy_places(chosen, counts, _key(seed, "grid.topic"))
    nodes = Nodes(
        uniforms(grid.nodes, _key(seed, "grid.node.x")),
        uniforms(grid.nodes, _key(seed, "grid.node.y")),
        grid.radius.at(uniforms(grid.nodes, _key(seed, "grid.radius"))),
    )
    side = max(1, int(math.sqrt(len(copy_x) / _CELL_HOLDS)))
    cell = np.minimum((copy_y * side).astype(np.int64), side - 1) * side + np.minimum(
        (copy_x * side).astype(np.int64), side - 1
    )
    order = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[order], np.arange(side * side + 1)).astype(np.int64)
    cells = Cells(side, starts, copy_x[order], copy_y[order], topic_of_copy[order])
    found = np.zeros(grid.nodes, np.int64)
    _subscribe(cells, nodes, len(chosen), found, np.empty(0, np.int32), False)
    ends = np.cumsum(found)
    topics = np.empty(int(ends[-1]), np.int32)
    _subscribe(cells, nodes, len(chosen), ends - found, topics, True)
    subscribers = np.repeat(np.arange(grid.nodes, dtype=np.int32), found)
    by_topic = np.argsort(topics, kind="stable")
    offsets = offsets_of(np.bincount(topics, minlength=len(chosen)))
    return memberships(grid.nodes, offsets, subscribers[by_topic])


def _key(seed: int, purpose: str) -> Bits:
    return base_key(seed, stream_of(purpose))


@compiled
def _copy_places(chosen: Numbers, counts: Numbers, key: Bits) -> tuple[Reals, Reals]:
    """Where the identifiers of each topic lie; draws are keyed by topic and number of the copy."""
    total = counts.sum()
    x, y = np.empty(total, np.float64), np.empty(total, np.float64)
    at = 0
    for place in range(len(chosen)):
        topic = absorb(key, chosen[place])
        for copy in range(counts[place]):
            x[at] = fraction_of(absorb(topic, 2 * copy))
            y[at] = fraction_of(absorb(topic, 2 * copy + 1))
            at += 1
    return x, y


@compiled
def _subscribe(cells: Cells, nodes: Nodes, topics: int, at: Numbers, out: Ids, fill: bool) -> None:
    """Count each node's topics into `at`; or, to fill, write them to `out` from `at[node]` on."""
    side = cells.side
    marks = np.full(topics, -1, np.int64)
    for node in range(len(nodes.x)):
        x, y = nodes.x[node], nodes.y[node]
        row, column = min(int(y * side), side - 1), min(int(x * side), side - 1)
        limit = nodes.radius[node] * nodes.radius[node]
        nearest, nearest_topic, found = 9.0, -1, 0
        reach = int(nodes.radius[node] * side) + 1
        while True:
            around = min(reach, side // 2)
            last = around - 1 if 2 * around == side else around  # a torus meets itself
            for i in range(-around, last + 1):
                for j in range(-around, last + 1):
                    cell = ((row + i) % side) * side + (column + j) % side
                    for copy in range(cells.starts[cell], cells.starts[cell + 1]):
                        across, up = abs(cells.x[copy] - x), abs(cells.y[copy] - y)
                        across, up = min(across, 1.0 - across), min(up, 1.0 - up)
                        apart = across * across + up * up
                        topic = cells.topics[copy]
                        if apart <= limit and marks[topic] != node:
                            marks[topic] = node
                            if fill:
                                out[at[node] + found] = topic
                            found += 1
                        if apart < nearest:
                            nearest, nearest_topic = apart, i64(topic)
            # What lies in cells further out is at least reach / side away.
            if found or around < reach or nearest * side * side <= reach * reach:
                break
            reach *= 2
        if found == 0:
            if fill:
                out[at[node]] = nearest_topic
            found = 1
        if not fill:
            at[node] = found
