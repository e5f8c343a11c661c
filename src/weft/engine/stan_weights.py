"""Weights in kernels: twins of `weft.rules.stan.weight` and `lean_weight`, and their keys.

A lean weight needs to know how many topics two members share. That is counted from the sorted
topics of both nodes: for a topic of moderate size once for every pair, into a table, and for a
large one whenever a pair is weighed, after a look at whether the pair could matter at all.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from weft.engine.draws import Bits, absorb, base_key
from weft.engine.jit import compiled, i64, part, u64
from weft.engine.layout import Array
from weft.rules.draw import absorb as absorbed
from weft.rules.draw import stream_of

TABLE_MEMBERS = 2048
"""guess: so many members' pairs are counted beforehand, into 8 MB at most."""

_WEIGHT = np.uint64(absorbed(0, stream_of("stan.weight")))
_UNIT = 2.0**-53
_FIXED = 2.0**58
_LAST = np.uint64(2**64 - 1)


class Keys(NamedTuple):
    """The draws of one topic in one run. Identities and leaving are the same in all topics."""

    identity: Any
    churn: Any
    first: Any
    order: Any
    step: Any
    loss: Any
    adopt: Any
    refill: Any


class Interests(NamedTuple):
    """The topics of every node, sorted; only looked at where weights lean."""

    lean: bool
    offsets: Array  # int64, by node
    topics: Array  # int32
    most: int  # all topics are below


class Scale(NamedTuple):
    """How many topics members of an overlay share: a table of pairs, or empty."""

    members: Array
    shared: Array  # uint16


def base_keys(seed: int) -> Keys:
    """What the keys of all topics of a run start from."""
    return Keys(*(base_key(seed, stream_of(f"stan.{name}")) for name in Keys._fields))


@part
def keys_in(base: Keys, topic: int) -> Keys:
    """The keys of a topic."""
    return Keys(
        base.identity,
        base.churn,
        absorb(base.first, topic),
        absorb(base.order, topic),
        absorb(base.step, topic),
        absorb(base.loss, topic),
        absorb(base.adopt, topic),
        absorb(base.refill, topic),
    )


@compiled
def shared_topics(interests: Interests, one: int, other: int) -> int:
    """How many topics two nodes share, by merging their lists."""
    at, end = interests.offsets[one], interests.offsets[one + 1]
    to, stop = interests.offsets[other], interests.offsets[other + 1]
    shared = 0
    while at < end and to < stop:
        mine, theirs = interests.topics[at], interests.topics[to]
        shared += mine == theirs
        at += mine <= theirs
        to += theirs <= mine
    return shared


@compiled
def scale_of(members: Array, interests: Interests) -> Scale:
    """The table of shared topics of an overlay, if weights lean and it is not too large."""
    count = len(members)
    rows = count if interests.lean and count <= TABLE_MEMBERS else 0
    shared = np.empty((rows, rows), np.uint16)
    marks = np.full(interests.most if rows else 0, -1, np.int32)
    for row in range(rows):
        node = members[row]
        for at in range(interests.offsets[node], interests.offsets[node + 1]):
            marks[interests.topics[at]] = row
        for other in range(row):
            node = members[other]
            both = 0
            for at in range(interests.offsets[node], interests.offsets[node + 1]):
                both += marks[interests.topics[at]] == row
            shared[row, other] = shared[other, row] = min(both, 65535)
    return Scale(members, shared)


@part
def own_key(number: Bits) -> Bits:
    """The part of a member's weights that is the same for all candidates."""
    return absorb(_WEIGHT, number)


@part
def weigh(
    own: Bits, numbers: Array, row: int, other: int, interests: Interests, scale: Scale
) -> Bits:
    """The weight that the member at `row` gives another."""
    plain = absorb(own, numbers[other])
    if not interests.lean:
        return plain
    if len(scale.shared):
        shared = i64(scale.shared[row, other])
    else:
        shared = shared_topics(interests, i64(scale.members[row]), i64(scale.members[other]))
    if shared < 1:
        return _LAST
    return u64(-math.log1p(-(i64(plain >> u64(11)) * _UNIT)) / shared * _FIXED)
