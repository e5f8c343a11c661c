"""Access point tables as columns: the compiled twin of `weft.rules.tera`.

Peer p's table is row p of two columns: topics, and for each the membership that serves as its
access point (which names the peer and finds it in the topic's overlay). Draws are numbered per
peer, so a table's content depends on the advertisements it saw and on nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.engine.core.draws import absorb, base_key, below
from weft.engine.core.jit import compiled, i64, part, u64
from weft.engine.core.layout import Array
from weft.engine.data.workload import Memberships
from weft.rules.draw import stream_of

NOT_FOUND = -1


@dataclass(frozen=True)
class Tables:
    """The access point tables of all peers."""

    topics: npt.NDArray[np.int32]  # peers × size
    points: npt.NDArray[np.int32]  # peers × size: memberships
    counts: npt.NDArray[np.int32]
    ticks: npt.NDArray[np.int64]  # peers × 2: draws made so far, to admit and to evict
    keys: npt.NDArray[np.uint64]  # base keys, to admit and to evict

    @property
    def size(self) -> int:
        return int(self.topics.shape[1])

    def times_held(self, topics: int) -> npt.NDArray[np.int64]:
        """In how many tables each topic is."""
        used = np.arange(self.size)[None, :] < self.counts[:, None]
        return np.bincount(self.topics[used], minlength=topics).astype(np.int64)


def empty_tables(peers: int, size: int, seed: int) -> Tables:
    keys = [base_key(seed, stream_of(purpose)) for purpose in ("apt.admit", "apt.evict")]
    return Tables(
        np.full((peers, size), -1, np.int32),
        np.full((peers, size), -1, np.int32),
        np.zeros(peers, np.int32),
        np.zeros((peers, 2), np.int64),
        np.array(keys, np.uint64),
    )


def settled_base(seed: int) -> np.uint64:
    return base_key(seed, stream_of("engine.settled_tables"))


def settled_tables(memberships: Memberships, size: int, seed: int) -> Tables:
    """Tables as they are in the long run: random topics, random members as access points.

    That tables come to this state by themselves is what experiments tera-3a … 3c show; the
    others start from it, since with rare advertisements it takes thousands of cycles.
    """
    tables = empty_tables(memberships.peers, size, seed)
    base = settled_base(seed)
    _settle(tables.topics, tables.points, tables.counts, memberships.offsets, base)
    return tables


@part
def _deal(deck: Array, key: Any, size: int) -> None:
    """Bring a random subset of `deck` to its front, by the first steps of a shuffle."""
    for slot in range(size):
        other = slot + below(absorb(key, 2 * slot), len(deck) - slot)
        deck[slot], deck[other] = deck[other], deck[slot]


@part
def _undeal(deck: Array, key: Any, size: int) -> None:
    for slot in range(size - 1, -1, -1):
        other = slot + below(absorb(key, 2 * slot), len(deck) - slot)
        deck[slot], deck[other] = deck[other], deck[slot]


@part
def _some_member(offsets: Array, topic: int, key: Any, slot: int) -> int:
    size = offsets[topic + 1] - offsets[topic]
    return i64(offsets[topic]) + below(absorb(key, 2 * slot + 1), size)


@compiled
def _settle(topics: Array, points: Array, counts: Array, offsets: Array, base: Any) -> None:
    active = len(offsets) - 1
    size = min(topics.shape[1], active)
    deck = np.arange(active)
    for peer in range(len(counts)):
        key = absorb(base, peer)
        _deal(deck, key, size)
        for slot in range(size):
            topics[peer, slot] = deck[slot]
            points[peer, slot] = _some_member(offsets, deck[slot], key, slot)
        _undeal(deck, key, size)
        counts[peer] = size


@part
def settled_point(deck: Array, offsets: Array, base: Any, size: int, peer: int, topic: int) -> int:
    """What a peer's settled table holds for a topic, without keeping any table: a membership
    or NOT_FOUND. `deck` counts 0, 1, 2, … over the topics, and does so again afterwards."""
    key = absorb(base, peer)
    _deal(deck, key, size)
    point = NOT_FOUND
    for slot in range(size):
        if deck[slot] == topic:
            point = _some_member(offsets, topic, key, slot)
    _undeal(deck, key, size)
    return point


@part
def find(topics: Array, counts: Array, peer: int, topic: int) -> int:
    """The slot of a topic in a peer's table, or NOT_FOUND."""
    for slot in range(counts[peer]):
        if topics[peer, slot] == topic:
            return slot
    return NOT_FOUND


@part
def admits(bits: Any, popularity: int) -> bool:
    return popularity <= 1 or below(bits, popularity) == 0


@part
def drop_entry(topics: Array, points: Array, counts: Array, peer: int, slot: int) -> None:
    """Forget an entry; the last one moves into its place."""
    last = counts[peer] - 1
    topics[peer, slot] = topics[peer, last]
    points[peer, slot] = points[peer, last]
    counts[peer] = last


@compiled
def drop_entries(topics: Array, points: Array, counts: Array, peers: Array, stale: Array) -> None:
    """Forget, in each peer's table, the access point beside it."""
    for item in range(len(peers)):
        peer = peers[item]
        for slot in range(counts[peer] - 1, -1, -1):
            if points[peer, slot] == stale[item]:
                drop_entry(topics, points, counts, peer, slot)


@part
def next_bits(ticks: Array, keys: Array, peer: int, kind: int) -> Any:
    """The bits of this peer's next decision of a kind (0 admit, 1 evict)."""
    tick = ticks[peer, kind]
    ticks[peer, kind] = tick + 1
    return absorb(absorb(absorb(keys[u64(kind)], peer), tick), 0)


@part
def hear_advert(
    topics: Array,
    points: Array,
    counts: Array,
    ticks: Array,
    keys: Array,
    peer: int,
    topic: int,
    membership: int,
    popularity: int,
) -> None:
    """What a peer's table does on an advertisement for a topic by one of its members."""
    slot = find(topics, counts, peer, topic)
    if slot != NOT_FOUND:
        points[peer, slot] = membership
        return
    if not admits(next_bits(ticks, keys, peer, 0), popularity):
        return
    count = i64(counts[peer])
    size = topics.shape[1]
    slot = count
    if count == size:
        # One of size + 1 entries, the new one included, makes room.
        slot = below(next_bits(ticks, keys, peer, 1), size + 1)
        if slot == size:
            return
    else:
        counts[peer] = count + 1
    topics[peer, slot] = topic
    points[peer, slot] = membership


@compiled
def hear_adverts(
    topics: Array,
    points: Array,
    counts: Array,
    ticks: Array,
    keys: Array,
    adverts: Array,
) -> None:
    """Advertisements one after the other, as rows (peer, topic, membership, popularity)."""
    for item in range(len(adverts)):
        hear_advert(
            topics,
            points,
            counts,
            ticks,
            keys,
            adverts[item, 0],
            adverts[item, 1],
            adverts[item, 2],
            adverts[item, 3],
        )
