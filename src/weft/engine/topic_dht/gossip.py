"""Gossip among a topic's members, over arrays: a compiled twin of `weft.rules.treecast`.

A round is a hop. *Push*: who gets an event first in one round tells some of its view in the next,
neither the one it has it from nor the publisher. *Push-pull*: the same with few, and in the rounds
after that everybody calls one of its view, and whichever of the two lacks the event gets it.

Views are uniform samples, drawn anew for each event: with Algorithm 2 a view changes between two
events that are some periods apart, and Lemma 5.1 is about views drawn anew each time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.engine.core.draws import Bits, absorb, below, subset_mask
from weft.engine.core.jit import compiled, i64, part, u64
from weft.engine.core.layout import Array
from weft.engine.core.vector import trailing_zeros

VIEW_MAX = 60
"""A view is a bit mask while partners are drawn."""
_ONE = np.uint64(1)


class Crowd(NamedTuple):
    """The members that gossip, and what happened to them."""

    live: Array  # uint8
    sent: Array  # int64: copies of the event, added up
    got: Array  # int64: copies
    hops: Array  # int32: round in which the first one came; −1: none came
    calls: Array  # int64: calls made in rounds of pulling


@compiled
def draw_view(view: Array, one: int, members: int, most: int, key: Bits) -> int:
    """The view of a member: so many others, or all; returns how many."""
    if members - 1 <= most:
        for at in range(members - 1):
            view[at] = at + (at >= one)
        return members - 1
    have = attempt = 0
    while have < most:
        other = below(absorb(key, attempt), members - 1)
        other += other >= one
        attempt += 1
        known = False
        for at in range(have):
            known = known or view[at] == other
        if not known:
            view[have] = other
            have += 1
    return most


@compiled
def partners(
    view: Array, count: int, wanted: int, key: Bits, without: int, nor: int, chosen: Array
) -> int:
    """So many of a view, two excepted, in `chosen`; returns how many."""
    others = 0
    for at in range(count):
        if view[at] != without and view[at] != nor:
            view[others] = view[at]
            others += 1
    mask = subset_mask(key, others, wanted)
    have = 0
    while mask != u64(0):
        chosen[have] = view[i64(trailing_zeros(mask))]
        have += 1
        mask &= mask - _ONE
    return have


@part
def hand(crowd: Crowd, one: int, to: int, step: int) -> bool:
    """A copy goes to a member; whether it is its first."""
    crowd.sent[one] += 1
    crowd.got[to] += 1
    if crowd.hops[to] >= 0 or not crowd.live[to]:
        return False
    crowd.hops[to] = step
    return True


@compiled
def push(
    crowd: Crowd, publisher: int, fanout: int, view_size: int, views: Bits, event: Bits
) -> tuple[int, int]:
    """An event by push; returns the copies sent and the last round in which it came to anybody.

    `views` is the key of this event's views, `event` the key of who tells whom.
    """
    members = len(crowd.live)
    queue, source = np.empty(members, np.int32), np.empty(members, np.int32)
    view, chosen = np.empty(VIEW_MAX, np.int64), np.empty(VIEW_MAX, np.int64)
    queue[0], source[0] = publisher, -1
    crowd.hops[publisher] = 0
    done, have, copies, last = 0, 1, 0, 0
    while done < have:
        one, came_from = i64(queue[done]), i64(source[done])
        done += 1
        step = i64(crowd.hops[one]) + 1
        count = draw_view(view, one, members, view_size, absorb(views, one))
        count = partners(view, count, fanout, absorb(event, one), came_from, publisher, chosen)
        for at in range(count):
            to = chosen[at]
            copies += 1
            if hand(crowd, one, to, step):
                queue[have], source[have] = to, one
                have += 1
                last = max(last, step)
    return copies, last


@compiled
def pull(
    crowd: Crowd, rounds: int, first: int, view_size: int, views: Bits, event: Bits
) -> tuple[int, int]:
    """Rounds in which every live member calls one of its view, after the round `first`; returns
    the copies sent and the last round in which anybody got one (0: none did)."""
    members = len(crowd.live)
    view = np.empty(VIEW_MAX, np.int64)
    had = np.empty(members, np.uint8)
    copies = last = 0
    for turn in range(rounds):
        step = first + turn + 1
        for one in range(members):
            had[one] = crowd.hops[one] >= 0
        for one in range(members):
            if not crowd.live[one]:
                continue
            count = draw_view(view, one, members, view_size, absorb(views, one))
            if count == 0:
                continue
            to = view[below(absorb(absorb(event, one), turn), count)]
            crowd.calls[one] += 1
            if not crowd.live[to] or had[one] == had[to]:
                continue
            giver, taker = (one, to) if had[one] else (to, one)
            copies += 1
            if hand(crowd, giver, taker, step):
                last = step
    return copies, last
