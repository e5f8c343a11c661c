"""The views of one topic's overlay in kernels: neighbours, their weights, and in-links.

A member's view is a row of neighbours, numbered within the topic, beside a row of their weights.
Rows are as long as the largest view; each is used up to the size of its member's view.
The adopted come first, then the others; each part is sorted by weight, lowest first. A candidate
heavier than the last of a row is turned down by one comparison, which is what happens to nearly
all of them: a walk costs little more than one hash per candidate.

Where members ask to be adopted, every member is told of the views that hold it
(`weft.rules.stan`): a merge is framed by `remember` and `notify`, which counts each member's
in-links and leaves those that lost the last one in a queue.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from weft.engine.core.arrays import Ids, Numbers, Octets, Words
from weft.engine.core.draws import absorb, base_key, below
from weft.engine.core.jit import Bits, compiled, i64, part, shared, u64
from weft.rules.draw import absorb as absorbed
from weft.rules.draw import stream_of
from weft.rules.stan import adopts


class Interests(NamedTuple):
    """The topics of every node, sorted; only looked at where weights lean."""

    lean: bool
    offsets: Numbers  # by node
    topics: Ids
    most: int  # all topics are below


class Weighing(NamedTuple):
    """What the weights of an overlay's members depend on beside their numbers."""

    interests: Interests
    members: Ids  # nodes
    shared: npt.NDArray[np.uint16]  # topics that two members share; empty where none are counted


class Overlay(NamedTuple):
    """The state of one topic's overlay while it is computed."""

    members: Ids  # nodes
    numbers: Words  # what stands for each in weights
    sizes: Ids  # of the views
    ids: Ids  # members × the largest view
    weights: Words  # beside
    adopted: Ids  # how many of a view are
    quiet: Ids  # rounds since a walk came by
    heard: Octets  # whether one came by in this round
    period: Ids  # rounds between two walks
    due: Ids  # the round of the next
    seen: Numbers  # the last walk that has each member in its set
    found: Ids  # the set of the present walk
    memory: Ids  # members × room: what each one's last walk collected; no rows where none is kept
    kept: Ids  # how much of it
    trail: Ids  # the members that the present walk visited
    in_links: Ids  # how many views hold each member
    before: Ids  # the view that is about to change
    waiting: Ids  # members that lost their last in-link, in the order they did
    queued: Numbers  # one number: how many of these there are


@part
def place_in(some: Ids, count: int, member: int) -> int:
    """Where a member is among the first `count`, or −1."""
    for place in range(count):
        if some[place] == member:
            return place
    return -1


@part
def slot_in(overlay: Overlay, row: int, member: int) -> int:
    """Where a view holds a member, or −1."""
    return place_in(overlay.ids[row], i64(overlay.sizes[row]), member)


@part
def lighter(overlay: Overlay, weight: Bits, member: int, row: int, slot: int) -> bool:
    """Whether a candidate comes before what a slot holds."""
    other = overlay.weights[row, slot]
    if weight != other:
        return bool(weight < other)
    return bool(overlay.numbers[member] < overlay.numbers[overlay.ids[row, slot]])


@part
def put(overlay: Overlay, row: int, member: int, weight: Bits, first: int, last: int) -> None:
    """Sort a member into slots first … last of a view; what was in the last is gone."""
    slot = last
    while slot > first and lighter(overlay, weight, member, row, slot - 1):
        overlay.ids[row, slot] = overlay.ids[row, slot - 1]
        overlay.weights[row, slot] = overlay.weights[row, slot - 1]
        slot -= 1
    overlay.ids[row, slot] = member
    overlay.weights[row, slot] = weight


@part
def offer(overlay: Overlay, row: int, member: int, weight: Bits) -> bool:
    """Take a candidate into a view if it is light enough; returns whether the view changed."""
    last = i64(overlay.sizes[row]) - 1
    first = i64(overlay.adopted[row])
    if first > last or not lighter(overlay, weight, member, row, last):
        return False
    if slot_in(overlay, row, member) >= 0:
        return False
    put(overlay, row, member, weight, first, last)
    return True


@part
def adopt(overlay: Overlay, row: int, member: int, weight: Bits) -> bool:
    """Take a lonely member into a view, in the place of the heaviest that is not adopted."""
    view = i64(overlay.sizes[row])
    have = i64(overlay.adopted[row])
    if not adopts(have, view, True):
        return False
    for slot in range(view - 1, have, -1):
        overlay.ids[row, slot] = overlay.ids[row, slot - 1]
        overlay.weights[row, slot] = overlay.weights[row, slot - 1]
    put(overlay, row, member, weight, 0, have)
    overlay.adopted[row] += 1
    return True


@compiled
def fill(overlay: Overlay, row: int, have: int, key: Bits, weighing: Weighing) -> None:
    """Fill a view that holds `have` with random others, all sets equally likely, and sort it."""
    count, view = len(overlay.members), i64(overlay.sizes[row])
    own = own_key(overlay.numbers[row])
    attempt = 0
    while have < view:
        other = below(absorb(key, attempt), count)
        attempt += 1
        known = other == row
        for slot in range(have):
            known |= overlay.ids[row, slot] == other
        if not known:
            weight = weigh(own, overlay.numbers, row, other, weighing)
            put(overlay, row, other, weight, min(have, i64(overlay.adopted[row])), have)
            have += 1


@compiled
def start_with(overlay: Overlay, row: int, neighbours: Ids, weighing: Weighing) -> None:
    """Let a view hold these neighbours, sorted."""
    own = own_key(overlay.numbers[row])
    for have in range(len(neighbours)):
        other = i64(neighbours[have])
        put(overlay, row, other, weigh(own, overlay.numbers, row, other, weighing), 0, have)


@part
def remember(overlay: Overlay, row: int) -> None:
    """Copy a view that is about to change into `before`."""
    for slot in range(i64(overlay.sizes[row])):
        overlay.before[slot] = overlay.ids[row, slot]


@compiled
def notify(overlay: Overlay, row: int) -> None:
    """Tell the members that a view dropped and took in since it was written down. A member that
    lost the last in-link it knew of joins the queue of those that ask for another at once."""
    view = i64(overlay.sizes[row])
    for slot in range(view):
        member = i64(overlay.before[slot])
        if slot_in(overlay, row, member) < 0:
            overlay.in_links[member] -= 1
            waiting = i64(overlay.queued[0])
            if overlay.in_links[member] == 0 and place_in(overlay.waiting, waiting, member) < 0:
                overlay.waiting[waiting] = member
                overlay.queued[0] = waiting + 1
    for slot in range(view):
        member = i64(overlay.ids[row, slot])
        if place_in(overlay.before, view, member) < 0:
            overlay.in_links[member] += 1


@compiled
def count_in_links(overlay: Overlay) -> None:
    """Count anew how many views hold each member."""
    overlay.in_links[:] = 0
    for row in range(overlay.ids.shape[0]):
        for slot in range(i64(overlay.sizes[row])):
            overlay.in_links[overlay.ids[row, slot]] += 1


@part
def new_overlay(members: Ids, sizes: Ids, ttl: int, memory: bool) -> Overlay:
    count, view = len(members), i64(sizes.max())
    room = min(count, (ttl + 1) * (view + 1))
    return Overlay(
        members,
        np.empty(count, np.uint64),
        sizes,
        np.empty((count, view), np.int32),
        np.empty((count, view), np.uint64),
        np.zeros(count, np.int32),
        np.zeros(count, np.int32),
        np.zeros(count, np.uint8),
        np.ones(count, np.int32),
        np.ones(count, np.int32),
        np.full(count, -1, np.int64),
        np.empty(count if memory else room, np.int32),
        np.empty((count if memory else 0, room), np.int32),
        np.zeros(count, np.int32),
        np.empty(ttl + 1, np.int32),
        np.zeros(count, np.int32),
        np.empty(view, np.int32),
        np.empty(count, np.int32),
        np.zeros(1, np.int64),
    )


@part
def snapshot(overlay: Overlay, links: Ids, start: int) -> None:
    """Write down the links, as nodes."""
    at = start
    for row in range(len(overlay.members)):
        for slot in range(i64(overlay.sizes[row])):
            links[at] = overlay.members[overlay.ids[row, slot]]
            at += 1


# --- weights --------------------------------------------------------------------------------------
#
# Twins of `weft.rules.stan.weight` and `lean_weight`, and their keys. A lean weight needs to know
# how many topics two members share. That is counted from the sorted topics of both nodes: for a
# topic of moderate size once for every pair, into a table, and for a large one whenever a pair is
# weighed, after a look at whether the pair could matter at all.


TABLE_MEMBERS = 2048
"""guess: so many members' pairs are counted beforehand, into 8 MB at most."""

_WEIGHT = u64(absorbed(0, stream_of("stan.weight")))
_UNIT = 2.0**-53
_FIXED = 2.0**58
_LAST = u64(2**64 - 1)

shared(adopts)


class Keys(NamedTuple):
    """The draws of one topic in one run. Identities and leaving are the same in all topics."""

    identity: Bits
    churn: Bits
    first: Bits
    order: Bits
    step: Bits
    loss: Bits
    adopt: Bits
    refill: Bits
    scamp: Bits


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
        absorb(base.scamp, topic),
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
def weighing_of(members: Ids, interests: Interests) -> Weighing:
    """With the table of shared topics, if weights lean and the overlay is not too large."""
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
    return Weighing(interests, members, shared)


@part
def own_key(number: Bits) -> Bits:
    """The part of a member's weights that is the same for all candidates."""
    return absorb(_WEIGHT, number)


@part
def weigh(own: Bits, numbers: Words, row: int, other: int, weighing: Weighing) -> Bits:
    """The weight that the member at `row` gives another."""
    plain = absorb(own, numbers[other])
    if not weighing.interests.lean:
        return plain
    if len(weighing.shared):
        both = i64(weighing.shared[row, other])
    else:
        one, two = i64(weighing.members[row]), i64(weighing.members[other])
        both = shared_topics(weighing.interests, one, two)
    if both < 1:
        return _LAST
    return u64(-math.log1p(-(i64(plain >> u64(11)) * _UNIT)) / both * _FIXED)
