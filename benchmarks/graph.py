"""What an overlay looks like: in-degrees, clustering and path length of its graph.

Clustering and path length are those of the undirected graph (two peers are linked if either
knows the other), as in Cyclon's own evaluation, over sampled peers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from weft.engine.core.arrays import Ids, Numbers
from weft.engine.core.draws import absorb, base_key, below
from weft.engine.core.jit import Bits, compiled
from weft.engine.core.layout import Rows, get_count, get_id, random_rows
from weft.rules.draw import stream_of


@dataclass(frozen=True)
class Shape:
    """Figures of an overlay's graph."""

    indegree_mean: float
    indegree_std: float
    clustering: float
    path_length: float


class Links(NamedTuple):
    """A graph's links both ways, without repeats: peer p has neighbours offsets[p] … [p+1]."""

    offsets: Numbers
    neighbours: Ids


@compiled
def _count_in_links(rows: Rows, peers: int, degrees: Ids) -> None:
    for row in range(peers):
        for slot in range(get_count(rows.octets, row)):
            degrees[get_id(rows.words, row, slot)] += 1


def indegrees(rows: Rows, peers: int) -> Ids:
    """How many views hold each peer."""
    degrees = np.zeros(peers, np.int32)
    _count_in_links(rows, peers, degrees)
    return degrees


def undirected(rows: Rows, peers: int) -> Links:
    used = np.arange(rows.view_size)[None, :] < rows.counts()[:peers, None]
    known = rows.ids()[:peers, : rows.view_size][used].astype(np.int64)
    knows = np.repeat(np.arange(peers, dtype=np.int64), rows.counts()[:peers])
    links = np.unique(np.concatenate([knows * peers + known, known * peers + knows]))
    offsets = np.searchsorted(links, np.arange(peers + 1, dtype=np.int64) * peers)
    return Links(offsets, (links % peers).astype(np.int32))


@compiled
def _clustering_of(peer: int, links: Links, marks: Numbers) -> float:
    """The share of pairs of neighbours that are neighbours of each other."""
    first, end = links.offsets[peer], links.offsets[peer + 1]
    degree = end - first
    if degree < 2:
        return 0.0
    for at in range(first, end):
        marks[links.neighbours[at]] = peer + 1
    linked = 0
    for at in range(first, end):
        other = links.neighbours[at]
        for further in range(links.offsets[other], links.offsets[other + 1]):
            linked += marks[links.neighbours[further]] == peer + 1
    return float(linked / (degree * (degree - 1)))


@compiled
def _mean_distance_from(start: int, links: Links, distance: Ids, queue: Ids) -> float:
    """The mean number of hops to all peers that can be reached, by breadth-first search."""
    distance[:] = -1
    distance[start] = 0
    queue[0] = start
    done, found, total = 0, 1, 0
    while done < found:
        peer = queue[done]
        done += 1
        for at in range(links.offsets[peer], links.offsets[peer + 1]):
            other = links.neighbours[at]
            if distance[other] < 0:
                distance[other] = distance[peer] + 1
                total += distance[other]
                queue[found] = other
                found += 1
    return total / (found - 1) if found > 1 else 0.0


@compiled
def _sampled(links: Links, key: Bits, samples: int, searches: int) -> tuple[float, float]:
    peers = len(links.offsets) - 1
    marks = np.zeros(peers, np.int64)
    clustering = 0.0
    for item in range(samples):
        peer = item if samples == peers else below(absorb(key, item), peers)
        clustering += _clustering_of(peer, links, marks)
    distance = np.empty(peers, np.int32)
    queue = np.empty(peers, np.int32)
    length = 0.0
    for item in range(searches):
        start = below(absorb(key, samples + item), peers)
        length += _mean_distance_from(start, links, distance, queue)
    return clustering / samples, length / searches


def shape(rows: Rows, peers: int, seed: int, samples: int = 20_000, searches: int = 50) -> Shape:
    """The figures of an overlay; clustering of all its peers, or of so many of them."""
    samples = min(samples, peers)
    degrees = indegrees(rows, peers)
    key = base_key(seed, stream_of("engine.stats"))
    clustering, length = _sampled(undirected(rows, peers), key, samples, searches)
    return Shape(float(degrees.mean()), float(degrees.std()), clustering, length)


def random_shape(peers: int, view_size: int, seed: int) -> Shape:
    """The same of a random graph in which every peer knows `view_size` others."""
    return shape(random_rows(peers, view_size, seed), peers, seed)


def exponent(sizes: list[float], costs: list[float]) -> float:
    """The slope of log cost against log size: 1 is linear growth."""
    slope, _ = np.polyfit(np.log(sizes), np.log(costs), 1)
    return float(slope)
