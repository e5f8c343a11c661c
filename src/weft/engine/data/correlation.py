"""How often topics share users by chance alone: memberships are shuffled so that every user keeps
its number of topics and every topic its number of subscribers. The correlation of the true ones is
compared with that of shuffled ones (StaN 3.2; `pipeline/profile.py` counts it).

Two memberships (u, s) and (v, t), drawn at random, become (u, t) and (v, s), unless one of these is
there already. After some swaps per membership all tables with these numbers are equally likely.
"""

from __future__ import annotations

import numpy as np

from weft.engine.core.arrays import Ids, Numbers
from weft.engine.core.draws import absorb, base_key, below
from weft.engine.core.jit import Bits, compiled, i64, part, u64
from weft.engine.data.memberships import Memberships, memberships
from weft.rules.draw import stream_of

SWAPS_PER_MEMBERSHIP = 10
"""guess: usual for bipartite graphs; correlations of our traces stay the same from 5 on."""

_EMPTY = np.int64(-1)
_GONE = np.int64(-2)


def shuffled(
    held: Memberships, seed: int, swaps_per_membership: int = SWAPS_PER_MEMBERSHIP
) -> Memberships:
    """Memberships with the same number of topics per user and of subscribers per topic, drawn at
    random otherwise."""
    members = held.members.copy()
    room = 1 << max(4, int(4 * held.total).bit_length())
    table = np.full(room, _EMPTY, np.int64)
    key = base_key(seed, stream_of("workload.shuffle"))
    swaps = swaps_per_membership * held.total
    _swap(members, held, swaps, table, key)
    return memberships(held.peers, held.offsets, members)


@compiled
def _swap(members: Ids, held: Memberships, swaps: int, table: Numbers, key: Bits) -> None:
    topic_of, topics = held.topic_of, len(held.offsets) - 1
    total = len(members)
    for at in range(total):
        _put(table, members[at] * i64(topics) + topic_of[at])
    stale = 0
    for swap in range(swaps):
        draw = absorb(key, swap)
        one = below(draw, total)
        other = below(absorb(draw, 1), total)
        user, friend = i64(members[one]), i64(members[other])
        topic, also = i64(topic_of[one]), i64(topic_of[other])
        if user == friend or topic == also:
            continue
        if _has(table, user * topics + also) or _has(table, friend * topics + topic):
            continue
        _remove(table, user * topics + topic)
        _remove(table, friend * topics + also)
        _put(table, user * topics + also)
        _put(table, friend * topics + topic)
        members[one], members[other] = friend, user
        stale += 2
        if stale > len(table) // 4:  # removed entries make searches longer
            table[:] = _EMPTY
            for at in range(total):
                _put(table, members[at] * i64(topics) + topic_of[at])
            stale = 0


@part
def _place(table: Numbers, item: int) -> int:
    return i64(absorb(u64(item), 0) & u64(len(table) - 1))


@part
def _has(table: Numbers, item: int) -> bool:
    at = _place(table, item)
    while table[at] != _EMPTY:
        if table[at] == item:
            return True
        at = (at + 1) & (len(table) - 1)
    return False


@part
def _put(table: Numbers, item: int) -> None:
    at = _place(table, item)
    while table[at] >= 0:
        at = (at + 1) & (len(table) - 1)
    table[at] = item


@part
def _remove(table: Numbers, item: int) -> None:
    at = _place(table, item)
    while table[at] != item:
        at = (at + 1) & (len(table) - 1)
    table[at] = _GONE
