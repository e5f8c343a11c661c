"""Trees over a topic's members, over arrays: a compiled twin of `weft.rules.treecast`.

Members are numbered by their place, so all that share a prefix are a range, and the half that a
level's links lead to is the other side of a range's cut. Links are not stored: which members of a
half a member keeps follows from its key, and is computed when it sends. Everybody knows everybody
here, so links are complete; where dead members lie in a tree's way, `mended` says whether who sends
to one takes another live member of that half instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.engine.core.draws import Bits, absorb
from weft.engine.core.jit import compiled, i64, part, u64
from weft.engine.core.layout import Array
from weft.engine.topic_dht.space import BITS, Places, bit_of, common_prefix, is_closer

LINKS_MAX = 32
"""More links than this per level are not kept."""


class Crowd(NamedTuple):
    """The members that a tree spans, and what happened to them in it."""

    places: Places  # sorted
    keys: Array  # uint64: from which each draws its links
    live: Array  # uint8
    sent: Array  # int64: messages, added up
    got: Array  # int64: messages
    hops: Array  # int32: the fewest that one of them took; −1: none came
    charges: Array  # int32: of the last one


@part
def random_place(own: Bits, level: int, randomness: Bits) -> Bits:
    """A random place of the half across the bit of a level."""
    below = u64(BITS - 1 - level)
    tail = (randomness >> u64(1)) >> u64(level)  # in two steps: a shift by 64 is undefined
    return ((own ^ bit_of(level)) >> below) << below | tail


@part
def cut_at(places: Places, low: int, high: int, depth: int) -> int:
    """Where a range goes over from 0 to 1 in the bit after a prefix."""
    bit = bit_of(depth)
    while low < high:
        middle = (low + high) // 2
        if (places[middle] & bit) != u64(0):
            high = middle
        else:
            low = middle + 1
    return low


@part
def taken_in(taken: Array, count: int, low: int, high: int) -> int:
    inside = 0
    for at in range(count):
        inside += low <= taken[at] and taken[at] < high
    return inside


@compiled
def closest_left(places: Places, low: int, high: int, place: Bits, taken: Array, count: int) -> int:
    """Who of a range is closest to a place, those that are taken excepted; one must be left."""
    while high - low > 1:
        depth = common_prefix(places[low], places[high - 1])
        middle = cut_at(places, low, high, depth)
        near, end = (middle, high) if (place & bit_of(depth)) != u64(0) else (low, middle)
        if end - near > taken_in(taken, count, near, end):
            low, high = near, end
        elif near == low:
            low = middle
        else:
            high = middle
    return low


@compiled
def keep_links(
    crowd: Crowd, one: int, level: int, low: int, high: int, most: int, links: Array
) -> int:
    """The links of a member to a half, in `links`; returns how many."""
    places = crowd.places
    key = absorb(crowd.keys[one], level)
    count = min(most, high - low)
    for at in range(count):
        place = random_place(places[one], level, absorb(key, at))
        links[at] = closest_left(places, low, high, place, links, at)
    return count


@part
def delegate(
    crowd: Crowd, one: int, level: int, links: Array, count: int, key: Bits, mended: bool
) -> int:
    """Which of its links a member sends to: the closest to a random place of the half. If dead
    ones are noticed, the closest live one, or −1."""
    place = random_place(crowd.places[one], level, absorb(key, level))
    chosen = -1
    for at in range(count):
        link = links[at]
        if mended and not crowd.live[link]:
            continue
        if chosen < 0 or is_closer(place, crowd.places[link], crowd.places[chosen]):
            chosen = i64(link)
    return chosen


@part
def live_in(crowd: Crowd, low: int, high: int, key: Bits) -> int:
    """A live member of a range where all links are dead: the first from a drawn one on."""
    start = low + i64(key % u64(high - low))
    for step in range(high - low):
        one = low + (start - low + step) % (high - low)
        if crowd.live[one]:
            return one
    return -1


@part
def note(crowd: Crowd, one: int, hop: int, charge: int) -> None:
    if crowd.hops[one] < 0 or hop < crowd.hops[one]:
        crowd.hops[one] = hop
    crowd.charges[one] = charge


@compiled
def spread_tree(crowd: Crowd, root: int, most: int, event: Bits, mended: bool) -> tuple[int, int]:
    """One event through the tree of one root. Returns the messages and the most hops.

    `event` is the event's key: a member draws its delegates by it and by its own number.
    """
    count = len(crowd.places)
    todo = np.empty((count, 4), np.int32)  # member, its range, its hops
    links = np.empty(LINKS_MAX, np.int64)
    todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3] = root, 0, count, 0
    note(crowd, root, 0, 0)
    have, messages, deepest = 1, 0, 0
    while have:
        have -= 1
        one, low, high = i64(todo[have, 0]), i64(todo[have, 1]), i64(todo[have, 2])
        if not crowd.live[one]:
            continue
        hop = i64(todo[have, 3]) + 1
        key = absorb(event, one)
        while high - low > 1:
            level = common_prefix(crowd.places[low], crowd.places[high - 1])
            middle = cut_at(crowd.places, low, high, level)
            begin, end = (middle, high) if one < middle else (low, middle)
            kept = keep_links(crowd, one, level, begin, end, most, links)
            to = delegate(crowd, one, level, links, kept, key, mended)
            if to < 0:
                to = live_in(crowd, begin, end, absorb(key, level))
            if to >= 0:
                messages += 1
                crowd.sent[one] += 1
                crowd.got[to] += 1
                note(crowd, to, hop, level + 1)
                if crowd.live[to]:
                    deepest = max(deepest, hop)
                todo[have, 0], todo[have, 1], todo[have, 2], todo[have, 3] = to, begin, end, hop
                have += 1
            if one < middle:
                high = middle
            else:
                low = middle
    return messages, deepest


@compiled
def fill_keys(keys: Array, crowd: Array, base: Bits) -> None:
    """The key of each member's links."""
    for at in range(len(keys)):
        keys[at] = absorb(base, i64(crowd[at]))
