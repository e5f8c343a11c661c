"""Where peers lie in the topic-aware DHT, over arrays: closest by XOR, prefixes, ranges.

Inside a topic everybody shares the topic's hash, so a location is the peer's own: here the first
64 of its 256 bits. As long as no two peers have the same 64 bits (`places_of` sees to it), which
one is closer and how long a prefix is come out as with all of them (`weft.rules.prefix`,
`rules.roles`).

Forwarders of a topic are a sorted stretch of an array, in which all locations with a common prefix
lie side by side: a prefix is a range, and one more bit cuts it in two (`cut`).
"""

from __future__ import annotations

import numpy as np

from weft.engine.core.arrays import Ids, Numbers, Words
from weft.engine.core.draws import base_key, keyed
from weft.engine.core.jit import ONE, Bits, compiled, i64, part, shared, u64
from weft.rules.draw import stream_of
from weft.rules.roles import is_closer

BITS = 64

shared(is_closer)


def places_of(peers: int, seed: int) -> Words:
    """A random place for each peer, as a hash would give it."""
    places = keyed(np.arange(peers), base_key(seed, stream_of("engine.topic_dht.place")))
    if len(np.unique(places)) < peers:
        raise ValueError("two peers have the same place; take another seed")
    return places


@part
def bit_of(depth: int) -> Bits:
    """The bit that follows a prefix of so many bits."""
    return ONE << u64(BITS - 1 - depth)


@part
def common_prefix(one: Bits, other: Bits) -> int:
    """How many leading bits two places share."""
    apart = one ^ other
    length = 0
    while length < BITS and (apart & bit_of(length)) == u64(0):
        length += 1
    return length


@part
def cut(spots: Ids, places: Words, low: int, high: int, depth: int) -> int:
    """Where a range of members that share `depth` bits goes over from 0 to 1 in the next bit."""
    bit = bit_of(depth)
    while low < high:
        middle = (low + high) // 2
        if (places[spots[middle]] & bit) != u64(0):
            high = middle
        else:
            low = middle + 1
    return low


@part
def shared_depth(spots: Ids, places: Words, low: int, high: int) -> int:
    """How many bits all members of a range share: the first and the last differ soonest."""
    return common_prefix(places[spots[low]], places[spots[high - 1]])


@compiled
def closest(spots: Ids, places: Words, low: int, high: int, place: Bits) -> int:
    """The member of a range closest to a place: its index in `spots`, or −1 if there is none."""
    if low == high:
        return -1
    while high - low > 1:
        depth = shared_depth(spots, places, low, high)
        middle = cut(spots, places, low, high, depth)
        if (place & bit_of(depth)) != u64(0):
            low = middle
        else:
            high = middle
    return low


@compiled
def lower(spots: Ids, places: Words, low: int, high: int, place: Bits) -> int:
    """The first of a range that does not lie before a place."""
    while low < high:
        middle = (low + high) // 2
        if places[spots[middle]] < place:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def affected(spots: Ids, places: Words, low: int, high: int, at: int) -> tuple[int, int, int]:
    """The members of a range that share the longest prefix with the one at index `at`, as in
    `rules.roles.affected`. Returns first, end and the prefix's length; of first … end − 1 all but
    `at` are meant."""
    place = places[spots[at]]
    longest = -1
    if at > low:
        longest = common_prefix(place, places[spots[at - 1]])
    if at + 1 < high:
        longest = max(longest, common_prefix(place, places[spots[at + 1]]))
    first, end = at, at + 1
    while longest >= 0 and first > low:
        if common_prefix(place, places[spots[first - 1]]) < longest:
            break
        first -= 1
    while longest >= 0 and end < high:
        if common_prefix(place, places[spots[end]]) < longest:
            break
        end += 1
    return first, end, longest


# --- tables ---------------------------------------------------------------------------------------


def table_sizes(first: Words, second: Words, bucket: int) -> Numbers:
    """How many entries the table of each location has once every bucket is as full as it gets.

    A location is two words: the topic's and the peer's. A bucket holds up to so many of those that
    share exactly so many leading bits.
    """
    order = np.lexsort((second, first))
    sizes = np.empty(len(first), np.int64)
    sizes[order] = _table_sizes(first[order], second[order], bucket)
    return sizes


@part
def _prefix_of_pair(first: Words, second: Words, one: int, other: int) -> int:
    if first[one] != first[other]:
        return common_prefix(first[one], first[other])
    return BITS + common_prefix(second[one], second[other])


@compiled
def _table_sizes(first: Words, second: Words, bucket: int) -> Numbers:
    """Of sorted locations: down the tree of prefixes, each fork adds the other side to both."""
    count = len(first)
    sizes = np.zeros(count, np.int64)
    low, high = np.empty(count + 1, np.int64), np.empty(count + 1, np.int64)
    have = 0
    if count > 1:
        low[0], high[0] = 0, count
        have = 1
    while have:
        have -= 1
        start, end = low[have], high[have]
        depth = _prefix_of_pair(first, second, start, end - 1)
        left, right = start, end - 1
        while right - left > 1:  # the first that leaves the prefix of `start`
            middle = (left + right) // 2
            if _prefix_of_pair(first, second, start, middle) > depth:
                left = middle
            else:
                right = middle
        here, there = min(bucket, i64(end - right)), min(bucket, i64(right - start))
        for at in range(start, right):
            sizes[at] += here
        for at in range(right, end):
            sizes[at] += there
        for one, other in ((start, right), (right, end)):
            if other - one > 1:
                low[have], high[have] = one, other
                have += 1
    return sizes
