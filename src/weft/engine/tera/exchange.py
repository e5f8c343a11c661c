"""One Cyclon exchange between two rows: the compiled twin of `weft.rules.cyclon`.

This is the form that knows every case: views that are not full, duplicates, any view size and
shuffle length. `cyclon.py` has a faster one for the common case and falls back to this.

What happens between asker and asked, in the order of the protocol's messages:
  1. the asker ages its view and takes the oldest neighbour, the asked peer, out;
  2. it sends a random subset of what is left, and last an entry for itself, aged 0;
  3. the asked peer picks a random subset of its view, answers with it and merges the request;
  4. the asker merges the answer; if a slot is left empty, the asked peer comes back, aged 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.engine.core.draws import Bits, absorb, below, subset_mask
from weft.engine.core.jit import compiled, i32, i64, part, u64
from weft.engine.core.layout import (
    Array,
    Octets,
    Words,
    ages_at,
    get_age,
    get_count,
    get_id,
    set_age,
    set_count,
    set_id,
    slot_of,
    words_at,
)
from weft.engine.core.vector import age_lanes, lanes_equal, trailing_zeros

NOBODY = -1
_ONE = np.uint64(1)


@part
def age_and_find_oldest(octets: Octets, row: int) -> int:
    """Every neighbour one cycle older; returns the slot of the oldest, the first of several."""
    return i64(age_lanes(octets, ages_at(row), get_count(octets, row)))


@part
def take_out(words: Words, octets: Octets, row: int, slot: int) -> None:
    """Remove a slot; the last one moves into its place."""
    last = get_count(octets, row) - 1
    set_id(words, row, slot, get_id(words, row, last))
    set_age(octets, row, slot, get_age(octets, row, last))
    set_age(octets, row, last, 0)
    set_count(octets, row, last)


@part
def add(words: Words, octets: Octets, row: int, peer: int, age: int, view_size: int) -> bool:
    """Take a peer in where there is room; says whether the view changed."""
    count = get_count(octets, row)
    if peer == row or count >= view_size or slot_of(words, octets, row, peer) >= 0:
        return False
    set_id(words, row, count, peer)
    set_age(octets, row, count, age)
    set_count(octets, row, count + 1)
    return True


@part
def copy_out(words: Words, octets: Octets, row: int, mask: Bits, sent: Array, first: int) -> int:
    """Write (id, age) of the slots in `mask`, ascending, to `sent[first:]`; returns the end."""
    while mask != u64(0):
        slot = i64(trailing_zeros(mask))
        mask &= mask - _ONE
        sent[first, 0] = get_id(words, row, slot)
        sent[first, 1] = get_age(octets, row, slot)
        first += 1
    return first


@part
def merge(
    words: Words, octets: Octets, row: int, sent_mask: Bits, got: Array, total: int, view_size: int
) -> None:
    """Take received entries in: empty slots first, then the slots of what was sent away.

    Duplicates are judged against the view as it was, so all are found before any is placed.
    """
    count = get_count(octets, row)
    used = (i64(1) << count) - 1
    for item in range(total):
        known = lanes_equal(words, words_at(row), i32(got[item, 0])) & used
        if known != 0 or got[item, 0] == row:
            got[item, 0] = NOBODY
    for item in range(total):
        if got[item, 0] == NOBODY:
            continue
        if count < view_size:
            slot = count
            count += 1
        elif sent_mask != u64(0):
            slot = i64(trailing_zeros(sent_mask))
            sent_mask &= sent_mask - _ONE
        else:
            break
        set_id(words, row, slot, got[item, 0])
        set_age(octets, row, slot, got[item, 1])
    set_count(octets, row, count)


@part
def swap_views(
    words: Words,
    octets: Octets,
    asker: int,
    asked: int,
    ask_key: Bits,
    answer_key: Bits,
    view_size: int,
    shuffle_length: int,
    request: Array,
    reply: Array,
) -> None:
    """Steps 2 to 4; the asked peer has left the asker's view."""
    ask_mask = subset_mask(ask_key, get_count(octets, asker), shuffle_length - 1)
    asking = copy_out(words, octets, asker, ask_mask, request, 0)
    request[asking, 0] = asker
    request[asking, 1] = 0
    answer_mask = subset_mask(answer_key, get_count(octets, asked), shuffle_length)
    answering = copy_out(words, octets, asked, answer_mask, reply, 0)
    merge(words, octets, asked, answer_mask, request, asking + 1, view_size)
    merge(words, octets, asker, ask_mask, reply, answering, view_size)
    add(words, octets, asker, asked, 0, view_size)


@compiled
def ask_oldest(
    words: Words,
    octets: Octets,
    asker: int,
    slot: int,
    number: int,
    ask: Bits,
    answer: Bits,
    tick: int,
    view_size: int,
    shuffle_length: int,
    alive: Array | None,
    request: Array,
    reply: Array,
) -> int:
    """One peer's turn, once its view is aged and the oldest neighbour's slot is known.

    Returns whom it asked, NOBODY with an empty view, or −2−asked if the asked peer is gone and
    did not answer; it has left the view either way. `number` is the asker's coordinate in draws,
    `ask` and `answer` are the streams' base keys.
    """
    if get_count(octets, asker) == 0:
        return NOBODY
    asked = get_id(words, asker, slot)
    take_out(words, octets, asker, slot)
    if alive is not None and not alive[asked]:
        return -2 - asked
    ask_key = absorb(absorb(ask, number), tick)
    answer_key = absorb(absorb(answer, number), tick)
    swap_views(
        words,
        octets,
        asker,
        asked,
        ask_key,
        answer_key,
        view_size,
        shuffle_length,
        request,
        reply,
    )
    return asked


@compiled
def forced_exchange(
    words: Words,
    octets: Octets,
    asker: int,
    asked: int,
    number: int,
    ask: Bits,
    answer: Bits,
    tick: int,
    view_size: int,
    shuffle_length: int,
    request: Array,
    reply: Array,
) -> None:
    """An exchange with a peer of one's choice (TERA's ForceViewExchange)."""
    slot = slot_of(words, octets, asker, asked)
    if slot >= 0:
        take_out(words, octets, asker, slot)
    swap_views(
        words,
        octets,
        asker,
        asked,
        absorb(absorb(ask, number), tick),
        absorb(absorb(answer, number), tick),
        view_size,
        shuffle_length,
        request,
        reply,
    )


# --- join --------------------------------------------------------------------------------------
#
# How newcomers enter an overlay: Cyclon's join by random walks, as in `protocol/membership.py`.
#
# The newcomer asks one member, which answers with itself and a few neighbours and sends a walk to
# each of its neighbours. The peer at the end of a walk swaps one random entry of its view for the
# newcomer and gives the newcomer that entry, so in-degrees stay balanced. Walks end early at
# peers that are gone. All of it happens within the cycle.


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
