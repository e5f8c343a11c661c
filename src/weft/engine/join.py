"""How newcomers enter an overlay: Cyclon's join by random walks, as `protocol/cyclon.py` does it.

The newcomer asks one member, which answers with itself and a few neighbours and sends a walk to
each of its neighbours. The peer at the end of a walk swaps one random entry of its view for the
newcomer and gives the newcomer that entry, so in-degrees stay balanced. Walks end early at
peers that are gone. All of it happens within the cycle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.engine.draws import absorb, below, subset_mask
from weft.engine.exchange import add
from weft.engine.jit import compiled, i64, u64
from weft.engine.layout import (
    Array,
    Octets,
    Words,
    get_age,
    get_count,
    get_id,
    set_age,
    set_id,
    slot_of,
)
from weft.engine.vector import trailing_zeros

_ONE = np.uint64(1)
WALK_STEPS = 5
"""paper (Cyclon): about the mean path length."""


@compiled
def _end_walk(
    words: Words, octets: Octets, end: int, newcomer: int, key: Any, view_size: int
) -> int:
    """Take the newcomer in at the end of a walk; returns messages (the gift, if any)."""
    if end == newcomer or slot_of(words, octets, end, newcomer) >= 0:
        return 0
    if add(words, octets, end, newcomer, 0, view_size):
        add(words, octets, newcomer, end, 0, view_size)
        return 1
    slot = below(absorb(key, WALK_STEPS), get_count(octets, end))
    given, age = get_id(words, end, slot), get_age(octets, end, slot)
    set_id(words, end, slot, newcomer)
    set_age(octets, end, slot, 0)
    add(words, octets, newcomer, given, age, view_size)
    return 1


@compiled
def join(
    words: Words,
    octets: Octets,
    newcomer: int,
    member: int,
    alive: Array,
    view_size: int,
    shuffle_length: int,
    base: Any,
) -> int:
    """Let `newcomer` enter by `member`, which is there; returns the messages it took."""
    key = absorb(base, newcomer)
    add(words, octets, newcomer, member, 0, view_size)
    mask = subset_mask(key, get_count(octets, member), shuffle_length)
    while mask != u64(0):
        slot = i64(trailing_zeros(mask))
        mask &= mask - _ONE
        add(words, octets, newcomer, get_id(words, member, slot), 0, view_size)
    messages = 2
    for slot in range(get_count(octets, member)):
        walk = absorb(key, 1 + slot)
        at = get_id(words, member, slot)
        messages += 1
        for step in range(WALK_STEPS):
            if not alive[at] or get_count(octets, at) == 0:
                break
            onward = get_id(words, at, below(absorb(walk, step), get_count(octets, at)))
            if onward == newcomer:
                break
            at = onward
            messages += 1
        if alive[at]:
            messages += _end_walk(words, octets, at, newcomer, walk, view_size)
    add(words, octets, member, newcomer, 0, view_size)
    return messages


@compiled
def join_all(
    words: Words,
    octets: Octets,
    newcomers: Array,
    members: Array,
    alive: Array,
    view_size: int,
    shuffle_length: int,
    base: Any,
) -> int:
    """Several joins, one after the other."""
    messages = 0
    for item in range(len(newcomers)):
        messages += join(
            words,
            octets,
            i64(newcomers[item]),
            i64(members[item]),
            alive,
            view_size,
            shuffle_length,
            base,
        )
    return messages
