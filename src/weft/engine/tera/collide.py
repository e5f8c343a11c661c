"""Sample & Collide inside topic overlays: the sampling, compiled; the estimate by the rule.

A member that wants to know its topic's size sends walks through the topic's overlay; the peer
at the end of each walk is a sample. It goes on until so many samples were repeats (see
`weft.rules.collide`). Groups that fit a view are counted instead. Members share one estimate, as
peers do (`SharedSizes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from weft.engine.core.arrays import Numbers
from weft.engine.core.draws import absorb, base_key, below
from weft.engine.core.jit import Bits, compiled, i64
from weft.engine.core.layout import Rows, get_count, get_id
from weft.engine.data.memberships import Memberships
from weft.engine.tera.topics import Topics
from weft.rules import collide as rules
from weft.rules.draw import below as rules_below
from weft.rules.draw import key_of, stream_of

RUN_EVERY = 15
"""Cycles between two runs in a topic: by default half of `size.fresh_ms`, in cycles of 10 s."""


@dataclass(frozen=True)
class Estimates:
    """What each asked membership believes its topic's size to be."""

    sizes: Numbers
    samples: Numbers  # 0 where the group was counted
    messages: int

    def to_advertise(self, repeats: int) -> Numbers:
        """The sizes in the form that access point tables want them; counted ones as they are."""
        known, back = np.unique(self.sizes, return_inverse=True)
        scaled = np.array([rules.to_advertise(int(size), repeats) for size in known], np.int64)
        return np.where(self.samples > 0, scaled[back], self.sizes)


class Sampling(NamedTuple):
    """How samples are taken."""

    repeats: int  # until so many samples were repeats
    steps: int  # of each walk
    base: Bits


@compiled
def _sample(
    rows: Rows, held: Memberships, sampling: Sampling, asking: Numbers, samples: Numbers
) -> int:
    """Samples that each asking membership needs; returns messages: steps and replies."""
    offsets, words, octets = held.offsets, rows.words, rows.octets
    largest = 0
    for topic in range(len(offsets) - 1):
        largest = max(largest, offsets[topic + 1] - offsets[topic])
    marks = np.full(largest, -1, np.int64)
    messages = 0
    for item in range(len(asking)):
        member = i64(asking[item])
        first = offsets[held.topic_of[member]]
        samples[item] = 0
        if get_count(octets, member) < rows.view_size - 1:
            continue
        key = absorb(sampling.base, member)
        repeated = drawn = 0
        while repeated < sampling.repeats:
            walk = absorb(key, drawn)
            at = member
            for step in range(sampling.steps):
                at = get_id(words, at, below(absorb(walk, step), get_count(octets, at)))
            messages += sampling.steps + i64(at != member)
            drawn += 1
            if marks[at - first] == item:
                repeated += 1
            marks[at - first] = item
        samples[item] = drawn
    return messages


@lru_cache(maxsize=65_536)
def _most_likely(samples: int, repeats: int) -> int:
    return max(1, round(rules.most_likely_size(samples, repeats)))


@lru_cache(maxsize=65_536)
def _textbook(samples: int, repeats: int) -> int:
    return max(1, round(rules.textbook(samples, repeats)))


def estimate(topics: Topics, asking: Numbers, repeats: int, steps: int, tick: int) -> Estimates:
    """Memberships learn their topics' sizes: counted while they fit a view, else by walks."""
    samples = np.zeros(len(asking), np.int64)
    memberships, rows = topics.memberships, topics.rows
    base = base_key(topics.seed, stream_of("engine.collide", str(tick)))
    messages = _sample(rows, memberships, Sampling(repeats, steps, base), asking, samples)
    sizes = np.array([_most_likely(int(s), repeats) if s else 0 for s in samples], np.int64)
    counted = samples == 0
    sizes[counted] = 1 + rows.counts()[asking[counted]].astype(np.int64)
    return Estimates(sizes, samples, int(messages))


class SharedSizes:
    """The size that the members of each topic share: now and then one member of it makes a run, and
    what it finds is averaged into what all of them know (`shared_size` in `weft.rules.collide`).

    Deviation: all members know the result in the same cycle; among peers, view exchanges carry it
    to them in about as many cycles as the logarithm of the group.
    """

    def __init__(self, topics: Topics, repeats: int, steps: int) -> None:
        self._topics, self._repeats, self._steps = topics, repeats, steps
        self.known = np.zeros(topics.memberships.topics, np.int64)  # 0: no run was made

    def renew(self, due: Numbers, tick: int) -> tuple[Numbers, Estimates]:
        """One member of each of these topics makes a run. Returns the memberships in the topics and
        what each believes now."""
        held = self._topics.memberships
        stream = stream_of("engine.collide.member", str(tick))
        drawn = [
            rules_below(key_of(self._topics.seed, stream, int(topic), 0), int(size))
            for topic, size in zip(due, held.sizes()[due], strict=True)
        ]
        asking = held.offsets[due] + np.array(drawn, np.int64)
        found = estimate(self._topics, asking, self._repeats, self._steps, tick)
        for topic, size, samples in zip(due, found.sizes, found.samples, strict=True):
            if samples:
                self.known[topic] = rules.shared_size(
                    int(self.known[topic]), int(size), self._repeats
                )
        members = np.concatenate(
            [np.arange(held.offsets[topic], held.offsets[topic + 1]) for topic in due]
        )
        counted = 1 + self._topics.rows.counts()[members].astype(np.int64)
        shared = self.known[held.topic_of[members]]
        fits = (counted < self._topics.rows.view_size) | (shared == 0)
        believed = np.where(fits, counted, shared)
        return members, Estimates(believed, np.where(fits, 0, 1), found.messages)


def ideal_estimates(
    topics: Topics, asking: Numbers, repeats: int, tick: int, textbook: bool
) -> Estimates:
    """Estimates from perfectly uniform samples, for groups of any size, none of them counted: an
    error of these estimates is an error of the formula."""
    samples = np.zeros(len(asking), np.int64)
    sizes = topics.memberships.sizes()[topics.memberships.topic_of[asking]]
    base = base_key(topics.seed, stream_of("engine.collide.ideal", str(tick)))
    _sample_ideally(sizes, asking, repeats, base, samples)
    rule = _textbook if textbook else _most_likely
    found = np.array([rule(int(s), repeats) for s in samples], np.int64)
    return Estimates(found, samples, 0)


@compiled
def _sample_ideally(
    sizes: Numbers, asking: Numbers, repeats: int, base: Bits, samples: Numbers
) -> None:
    marks = np.full(sizes.max(), -1, np.int64)
    for item in range(len(asking)):
        key = absorb(base, asking[item])
        repeated = drawn = 0
        while repeated < repeats:
            at = below(absorb(key, drawn), sizes[item])
            drawn += 1
            if marks[at] == item:
                repeated += 1
            marks[at] = item
        samples[item] = drawn
