"""What an overlay looks like: in-degrees, clustering and path length of its graph.

Clustering and path length are those of the undirected graph (two peers are linked if either
knows the other), as in Cyclon's own evaluation, over sampled peers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.engine.core.draws import absorb, base_key, below
from weft.engine.core.jit import compiled
from weft.engine.core.layout import Array, Rows, random_rows
from weft.rules.draw import stream_of

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    """Figures of an overlay's graph."""

    indegree_mean: float
    indegree_std: float
    clustering: float
    path_length: float


@compiled
def _count_in_links(words: Array, octets: Array, peers: int, degrees: Array) -> None:
    for row in range(peers):
        for slot in range(octets[row * 128 + 100]):
            degrees[words[row * 32 + slot]] += 1


def indegrees(rows: Rows, peers: int) -> npt.NDArray[np.int32]:
    """How many views hold each peer."""
    degrees = np.zeros(peers, np.int32)
    _count_in_links(rows.words, rows.octets, peers, degrees)
    return degrees


def undirected(rows: Rows, peers: int) -> tuple[Counts, npt.NDArray[np.int32]]:
    """The graph's links both ways, without repeats, as (offsets, neighbours), ascending."""
    used = np.arange(rows.view_size)[None, :] < rows.counts()[:peers, None]
    known = rows.ids()[:peers, : rows.view_size][used].astype(np.int64)
    knows = np.repeat(np.arange(peers, dtype=np.int64), rows.counts()[:peers])
    links = np.unique(np.concatenate([knows * peers + known, known * peers + knows]))
    offsets = np.searchsorted(links, np.arange(peers + 1, dtype=np.int64) * peers)
    return offsets, (links % peers).astype(np.int32)


@compiled
def _clustering_of(peer: int, offsets: Array, neighbours: Array, marks: Array) -> float:
    """The share of pairs of neighbours that are neighbours of each other."""
    first, end = offsets[peer], offsets[peer + 1]
    degree = end - first
    if degree < 2:
        return 0.0
    for at in range(first, end):
        marks[neighbours[at]] = peer + 1
    linked = 0
    for at in range(first, end):
        other = neighbours[at]
        for further in range(offsets[other], offsets[other + 1]):
            linked += marks[neighbours[further]] == peer + 1
    return float(linked / (degree * (degree - 1)))


@compiled
def _mean_distance_from(
    start: int, offsets: Array, neighbours: Array, distance: Array, queue: Array
) -> float:
    """The mean number of hops to all peers that can be reached, by breadth-first search."""
    distance[:] = -1
    distance[start] = 0
    queue[0] = start
    done, found, total = 0, 1, 0
    while done < found:
        peer = queue[done]
        done += 1
        for at in range(offsets[peer], offsets[peer + 1]):
            other = neighbours[at]
            if distance[other] < 0:
                distance[other] = distance[peer] + 1
                total += distance[other]
                queue[found] = other
                found += 1
    return total / (found - 1) if found > 1 else 0.0


@compiled
def _sampled(
    offsets: Array, neighbours: Array, peers: int, key: Any, samples: int, searches: int
) -> tuple[float, float]:
    marks = np.zeros(peers, np.int64)
    clustering = 0.0
    for item in range(samples):
        peer = item if samples == peers else below(absorb(key, item), peers)
        clustering += _clustering_of(peer, offsets, neighbours, marks)
    distance = np.empty(peers, np.int32)
    queue = np.empty(peers, np.int32)
    length = 0.0
    for item in range(searches):
        start = below(absorb(key, samples + item), peers)
        length += _mean_distance_from(start, offsets, neighbours, distance, queue)
    return clustering / samples, length / searches


def shape(rows: Rows, peers: int, seed: int, samples: int = 20_000, searches: int = 50) -> Shape:
    """The figures of an overlay; clustering of all its peers, or of so many of them."""
    samples = min(samples, peers)
    degrees = indegrees(rows, peers)
    offsets, neighbours = undirected(rows, peers)
    key = base_key(seed, stream_of("engine.stats"))
    clustering, length = _sampled(offsets, neighbours, peers, key, samples, searches)
    return Shape(float(degrees.mean()), float(degrees.std()), clustering, length)


def random_shape(peers: int, view_size: int, seed: int) -> Shape:
    """The same of a random graph in which every peer knows `view_size` others."""
    return shape(random_rows(peers, view_size, seed), peers, seed)


def exponent(sizes: list[float], costs: list[float]) -> float:
    """The slope of log cost against log size: 1 is linear growth."""
    slope, _ = np.polyfit(np.log(sizes), np.log(costs), 1)
    return float(slope)


def ks_distance(one: Array, other: Array) -> float:
    """Kolmogorov–Smirnov: the largest gap between two samples' distribution functions."""
    values = np.unique(np.concatenate([one, other]))
    first = np.searchsorted(np.sort(one), values, side="right") / len(one)
    second = np.searchsorted(np.sort(other), values, side="right") / len(other)
    return float(np.abs(first - second).max())
