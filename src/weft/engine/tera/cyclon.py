"""Cyclon over rows: view exchanges, joins, and cycles in which every peer asks once.

An exchange is the compiled twin of `weft.rules.cyclon`, in the order of the protocol's messages:
  1. the asker ages its view and takes the oldest neighbour, the asked peer, out;
  2. it sends a random subset of what is left, and last an entry for itself, aged 0;
  3. the asked peer picks a random subset of its view, answers with it and merges the request;
  4. the asker merges the answer; if a slot is left empty, the asked peer comes back, aged 0.

`ask_oldest` knows every case: views that are not full, duplicates, any view size and shuffle
length. Two kernels run a whole cycle, with one outcome. `cycle_any` runs `ask_oldest` for each
peer in turn. `cycle_fast` does the same for views of 20 and shuffles of 8, some five times
faster, by four measures:

- It looks ahead. The row of the peer whose turn comes in 32 turns is fetched, and 16 turns
  before its turn the neighbour it will ask is guessed from it and fetched too.
- It plans in blocks. What an exchange picks at random depends on the order of turns, not on
  views, so the picks of 64 turns are drawn together, in vectors.
- It trusts its guess. The exchange starts on the neighbour guessed 16 turns ago and checks in
  passing that it is still the oldest, so nothing waits for the answer.
- It takes the common case. With two full views and no duplicate, merging is a plain swap:
  what the asker sent takes the place of what the asked peer sent, and the other way round.
  Whenever the guess was wrong, a view is not full or an entry is a duplicate, nothing has been
  moved yet and `ask_oldest` does the turn instead.

Both take the overlay as rows first … first+peers−1. `numbers`, if given, holds each row's peer
number for draws (topic overlays); else a row's number is its index (the general overlay).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from weft.engine.core.arrays import RECEIVED, SENT, Ids, Loads, Numbers, Octets, Words
from weft.engine.core.draws import (
    absorb,
    base_key,
    below,
    domain_bits,
    next_in_order,
    packed_slot,
    packed_slots,
    scrambled,
    subset_mask,
)
from weft.engine.core.jit import ONE, Bits, compiled, i32, i64, part, shared, u64
from weft.engine.core.layout import (
    Rows,
    ages_at,
    get_age,
    get_count,
    get_id,
    prefetch_row,
    random_rows,
    set_age,
    set_count,
    set_id,
    slot_of,
    words_at,
)
from weft.engine.core.vector import (
    LANES,
    age_lanes,
    lanes_equal,
    oldest_lane,
    shares_any_of_7_and,
    shares_any_of_8,
    taken_on_trust,
    trailing_zeros,
)
from weft.rules.draw import stream_of
from weft.rules.tera import surviving

NOBODY = -1
WALK_STEPS = 5
"""paper (Cyclon): about the mean path length."""
FAST_VIEW = LANES
FAST_SHUFFLE = 8
_LAST = FAST_VIEW - 1
_ASKING = FAST_SHUFFLE - 1

_GUESS_AHEAD = 16
"""measured: turns between guessing and asking. At 10⁶ peers 8 do as well, at 10⁷ they do not."""
_FETCH_AHEAD = 32
"""measured: turns between fetching a peer's row and its turn."""
_BLOCK = 64
"""measured: turns planned at once: enough for vectors, too few to let the memory idle."""
_ORDER_AHEAD = 1024
_RING = 32  # guesses under way, a power of two

shared(surviving)


class Cycle(NamedTuple):
    """What an overlay's exchanges of one cycle share."""

    keys: Words  # base keys: asking, answering, order of turns; for topics a row of three each
    tick: int
    shuffle_length: int


class Letters(NamedTuple):
    """Room for an exchange's two messages, as rows (id, age)."""

    request: Numbers
    reply: Numbers


class Span(NamedTuple):
    """The rows first … first+peers−1 of an overlay."""

    first: int
    peers: int


def overlay_keys(seed: int, topic: str = "") -> Words:
    """Base keys of an overlay's draws: asking, answering, and the order of turns."""
    return np.array(
        [
            base_key(seed, stream_of("cyclon.ask", topic)),
            base_key(seed, stream_of("cyclon.answer", topic)),
            base_key(seed, stream_of("engine.order", topic)),
        ],
        np.uint64,
    )


# --- one exchange ---------------------------------------------------------------------------------


@part
def blank_letters() -> Letters:
    return Letters(np.empty((64, 2), np.int64), np.empty((64, 2), np.int64))


@part
def age_and_find_oldest(octets: Octets, row: int) -> int:
    """Every neighbour one cycle older; returns the slot of the oldest, the first of several."""
    return i64(age_lanes(octets, ages_at(row), get_count(octets, row)))


@part
def take_out(rows: Rows, row: int, slot: int) -> None:
    """Remove a slot; the last one moves into its place."""
    last = get_count(rows.octets, row) - 1
    set_id(rows.words, row, slot, get_id(rows.words, row, last))
    set_age(rows.octets, row, slot, get_age(rows.octets, row, last))
    set_age(rows.octets, row, last, 0)
    set_count(rows.octets, row, last)


@part
def add(rows: Rows, row: int, peer: int, age: int) -> bool:
    """Take a peer in where there is room; says whether the view changed."""
    count = get_count(rows.octets, row)
    if peer == row or count >= rows.view_size or slot_of(rows, row, peer) >= 0:
        return False
    set_id(rows.words, row, count, peer)
    set_age(rows.octets, row, count, age)
    set_count(rows.octets, row, count + 1)
    return True


@part
def _copy_out(rows: Rows, row: int, mask: Bits, sent: Numbers) -> int:
    """Write (id, age) of the slots in `mask`, ascending, to `sent`; returns how many."""
    count = 0
    while mask != u64(0):
        slot = i64(trailing_zeros(mask))
        mask &= mask - ONE
        sent[count, 0] = get_id(rows.words, row, slot)
        sent[count, 1] = get_age(rows.octets, row, slot)
        count += 1
    return count


@part
def _merge(rows: Rows, row: int, sent_mask: Bits, got: Numbers, total: int) -> None:
    """Take received entries in: empty slots first, then the slots of what was sent away.

    Duplicates are judged against the view as it was, so all are found before any is placed.
    """
    count = get_count(rows.octets, row)
    used = (i64(1) << count) - 1
    for item in range(total):
        known = lanes_equal(rows.words, words_at(row), i32(got[item, 0])) & used
        if known != 0 or got[item, 0] == row:
            got[item, 0] = NOBODY
    for item in range(total):
        if got[item, 0] == NOBODY:
            continue
        if count < rows.view_size:
            slot = count
            count += 1
        elif sent_mask != u64(0):
            slot = i64(trailing_zeros(sent_mask))
            sent_mask &= sent_mask - ONE
        else:
            break
        set_id(rows.words, row, slot, got[item, 0])
        set_age(rows.octets, row, slot, got[item, 1])
    set_count(rows.octets, row, count)


@part
def _swap_views(
    rows: Rows, asker: int, asked: int, number: int, cycle: Cycle, letters: Letters
) -> None:
    """Steps 2 to 4; the asked peer has left the asker's view."""
    ask_key = absorb(absorb(cycle.keys[0], number), cycle.tick)
    answer_key = absorb(absorb(cycle.keys[1], number), cycle.tick)
    request, reply = letters.request, letters.reply
    ask_mask = subset_mask(ask_key, get_count(rows.octets, asker), cycle.shuffle_length - 1)
    asking = _copy_out(rows, asker, ask_mask, request)
    request[asking, 0] = asker
    request[asking, 1] = 0
    answer_mask = subset_mask(answer_key, get_count(rows.octets, asked), cycle.shuffle_length)
    answering = _copy_out(rows, asked, answer_mask, reply)
    _merge(rows, asked, answer_mask, request, asking + 1)
    _merge(rows, asker, ask_mask, reply, answering)
    add(rows, asker, asked, 0)


@compiled
def ask_oldest(
    rows: Rows,
    asker: int,
    slot: int,
    number: int,
    cycle: Cycle,
    alive: Octets | None,
    letters: Letters,
) -> int:
    """One peer's turn, once its view is aged and the oldest neighbour's slot is known.

    Returns the asked peer, NOBODY with an empty view, or −2−asked if the asked peer is gone and
    did not answer; it has left the view either way. `number` is the asker's coordinate in draws.
    """
    if get_count(rows.octets, asker) == 0:
        return NOBODY
    asked = get_id(rows.words, asker, slot)
    take_out(rows, asker, slot)
    if alive is not None and not alive[asked]:
        return -2 - asked
    _swap_views(rows, asker, asked, number, cycle, letters)
    return asked


@compiled
def forced_exchange(
    rows: Rows, asker: int, asked: int, number: int, cycle: Cycle, letters: Letters
) -> None:
    """An exchange with a peer of one's choice (TERA's ForceViewExchange)."""
    slot = slot_of(rows, asker, asked)
    if slot >= 0:
        take_out(rows, asker, slot)
    _swap_views(rows, asker, asked, number, cycle, letters)


# --- joining --------------------------------------------------------------------------------------
#
# Newcomers enter an overlay by random walks, as in `protocol/membership.py`. The newcomer asks one
# member, which answers with itself and a few neighbours and sends a walk to each of its neighbours.
# The peer at the end of a walk swaps one random entry of its view for the newcomer and gives the
# newcomer that entry, so in-degrees stay balanced. Walks end early at peers that are gone. All of
# it happens within the cycle.


@compiled
def _end_walk(rows: Rows, end: int, newcomer: int, key: Bits) -> int:
    """Take the newcomer in at the end of a walk; returns messages (the gift, if any)."""
    if end == newcomer or slot_of(rows, end, newcomer) >= 0:
        return 0
    if add(rows, end, newcomer, 0):
        add(rows, newcomer, end, 0)
        return 1
    slot = below(absorb(key, WALK_STEPS), get_count(rows.octets, end))
    given, age = get_id(rows.words, end, slot), get_age(rows.octets, end, slot)
    set_id(rows.words, end, slot, newcomer)
    set_age(rows.octets, end, slot, 0)
    add(rows, newcomer, given, age)
    return 1


@compiled
def join(
    rows: Rows, newcomer: int, member: int, alive: Octets, shuffle_length: int, base: Bits
) -> int:
    """Let `newcomer` enter by `member`, which is there; returns the messages it took."""
    key = absorb(base, newcomer)
    add(rows, newcomer, member, 0)
    mask = subset_mask(key, get_count(rows.octets, member), shuffle_length)
    while mask != u64(0):
        slot = i64(trailing_zeros(mask))
        mask &= mask - ONE
        add(rows, newcomer, get_id(rows.words, member, slot), 0)
    messages = 2
    for slot in range(get_count(rows.octets, member)):
        walk = absorb(key, 1 + slot)
        at = get_id(rows.words, member, slot)
        messages += 1
        for step in range(WALK_STEPS):
            if not alive[at] or get_count(rows.octets, at) == 0:
                break
            onward = below(absorb(walk, step), get_count(rows.octets, at))
            onward = get_id(rows.words, at, onward)
            if onward == newcomer:
                break
            at = onward
            messages += 1
        if alive[at]:
            messages += _end_walk(rows, at, newcomer, walk)
    add(rows, member, newcomer, 0)
    return messages


@compiled
def join_all(
    rows: Rows,
    newcomers: Numbers,
    members: Numbers,
    alive: Octets,
    shuffle_length: int,
    base: Bits,
) -> int:
    """Several joins, one after the other."""
    messages = 0
    for item in range(len(newcomers)):
        newcomer, member = i64(newcomers[item]), i64(members[item])
        messages += join(rows, newcomer, member, alive, shuffle_length, base)
    return messages


# --- a cycle, whatever the views ------------------------------------------------------------------


@part
def _number(numbers: Ids | None, row: int) -> int:
    return row if numbers is None else i64(numbers[u64(row)])


@compiled
def cycle_any(
    rows: Rows,
    span: Span,
    cycle: Cycle,
    numbers: Ids | None = None,
    alive: Octets | None = None,
    loads: Loads | None = None,
    overlays: Numbers | None = None,
    pairs: Ids | None = None,
) -> tuple[int, int]:
    """Returns exchanges done and requests that nobody answered.

    If given, `loads` counts for each row the messages of exchanges it sent and received,
    `overlays` holds each row's overlay id: exchanges carry it, and the smaller one survives, and
    `pairs` gets (asker, asked) of each exchange.
    """
    order_key = absorb(cycle.keys[2], cycle.tick)
    bits = u64(domain_bits(span.peers))
    letters = blank_letters()
    done = unanswered = 0
    for position in range(i64(1) << i64(bits)):
        local = i64(scrambled(u64(position), order_key, bits))
        if local >= span.peers:
            continue
        asker = span.first + local
        if alive is not None and not alive[asker]:
            continue
        slot = age_and_find_oldest(rows.octets, asker)
        asked = ask_oldest(rows, asker, slot, _number(numbers, asker), cycle, alive, letters)
        if asked >= 0:
            if pairs is not None:
                pairs[done, 0], pairs[done, 1] = asker, asked
            done += 1
            if loads is not None:  # a request and a reply
                loads[asker, SENT] += 1
                loads[asker, RECEIVED] += 1
                loads[asked, SENT] += 1
                loads[asked, RECEIVED] += 1
            if overlays is not None:
                overlays[asker] = overlays[asked] = surviving(overlays[asker], overlays[asked])
        elif asked != NOBODY:
            unanswered += 1
            if loads is not None:
                loads[asker, SENT] += 1
    return done, unanswered


# --- a cycle of full views ------------------------------------------------------------------------


@part
def _plan(acting: Numbers, cycle: Cycle, ask_slots: Words, answer_slots: Words) -> None:
    """Draw which slots each of the next _BLOCK turns sends, given the peers that act in them."""
    ask, answer, tick = cycle.keys[0], cycle.keys[1], cycle.tick
    for turn in range(_BLOCK):
        number = acting[u64(turn)]
        asking = subset_mask(absorb(absorb(ask, number), tick), _LAST, _ASKING)
        ask_slots[u64(turn)] = packed_slots(asking, _ASKING)
        answering = subset_mask(absorb(absorb(answer, number), tick), FAST_VIEW, FAST_SHUFFLE)
        answer_slots[u64(turn)] = packed_slots(answering, FAST_SHUFFLE)


@part
def _swap(
    rows: Rows, asker: int, asked: int, oldest: int, ask_slots: Bits, answer_slots: Bits
) -> None:
    """Merging of two full views without duplicates: entries change places one by one.

    The asker's last slot moves to where the asked peer was and takes the first answer; the
    slot of the i-th entry it sent takes answer i+1. The slot of the asked peer's i-th answer
    takes the i-th entry sent, the last of which is the asker itself.
    """
    words, octets = rows.words, rows.octets
    set_id(words, asker, oldest, get_id(words, asker, _LAST))
    set_age(octets, asker, oldest, get_age(octets, asker, _LAST))
    given = packed_slot(answer_slots, 0)
    set_id(words, asker, _LAST, get_id(words, asked, given))
    set_age(octets, asker, _LAST, get_age(octets, asked, given))
    for step in range(_ASKING):
        sent = packed_slot(ask_slots, step)
        next_given = packed_slot(answer_slots, step + 1)
        peer, age = get_id(words, asker, sent), get_age(octets, asker, sent)
        set_id(words, asker, sent, get_id(words, asked, next_given))
        set_age(octets, asker, sent, get_age(octets, asked, next_given))
        set_id(words, asked, given, peer)
        set_age(octets, asked, given, age)
        given = next_given
    set_id(words, asked, given, asker)
    set_age(octets, asked, given, 0)


@part
def _any_known(words: Ids, asker: int, asked: int, sent: Bits, given: Bits) -> bool:
    """Whether either side would get an entry that it has, or that names itself.

    The rows are as they were. The asked peer is still in the asker's row, which does no harm, since
    it is not among its own neighbours. The asker's last entry has not yet moved into that slot, so
    it is always looked at. A false alarm costs time alone: `ask_oldest` does the turn.
    """
    mine, theirs = words_at(asker), words_at(asked)
    last = i32(get_id(words, asker, _LAST))
    taught = shares_any_of_8(words, mine, theirs, given)
    return bool(taught | shares_any_of_7_and(words, theirs, mine, sent, i32(asker), last))


@part
def fits_fast(rows: Rows, cycle: Cycle) -> bool:
    """Whether `cycle_fast` can run views and shuffles of these sizes."""
    return rows.view_size == FAST_VIEW and cycle.shuffle_length == FAST_SHUFFLE


@compiled
def cycle_fast(rows: Rows, span: Span, cycle: Cycle, numbers: Ids | None = None) -> tuple[int, int]:
    """Returns exchanges done, and how many of them were not the common case."""
    words, octets = rows.words, rows.octets
    first, peers = span.first, span.peers
    order_key = absorb(cycle.keys[2], cycle.tick)
    positions = i64(1) << domain_bits(peers)
    order = np.zeros(_ORDER_AHEAD + 4 * _BLOCK, np.uint64)
    acting = np.empty(_BLOCK, np.int64)
    ask_slots = np.empty(_BLOCK, np.uint64)
    answer_slots = np.empty(_BLOCK, np.uint64)
    guesses = np.zeros(_RING, np.int64)
    letters = blank_letters()
    done = uncommon = position = at = have = 0
    while position < positions or at < have:
        if have - at < _BLOCK + _FETCH_AHEAD and position < positions:
            for kept in range(have - at):
                order[u64(kept)] = order[u64(at + kept)]
            have, at = have - at, 0
            end = min(positions, position + _ORDER_AHEAD)
            have = next_in_order(order, have, position, end, peers, order_key)
            order[have : have + _BLOCK + _FETCH_AHEAD] = 0  # looked at, but never acted on
            position = end
            continue
        for turn in range(_BLOCK):  # apart from drawing, which then runs in vectors
            acting[u64(turn)] = _number(numbers, first + i64(order[u64(at + turn)]))
        _plan(acting, cycle, ask_slots, answer_slots)
        for turn in range(min(_BLOCK, have - at)):
            prefetch_row(words, first + i64(order[u64(at + turn + _FETCH_AHEAD)]))
            coming = first + i64(order[u64(at + turn + _GUESS_AHEAD)])
            guess = oldest_lane(octets, ages_at(coming))
            prefetch_row(words, get_id(words, coming, guess))
            trusted = taken_on_trust(guesses[u64((done + turn) % _RING)])
            guesses[u64((done + turn + _GUESS_AHEAD) % _RING)] = guess

            asker = first + i64(order[u64(at + turn)])
            oldest = age_and_find_oldest(octets, asker)
            asked = get_id(words, asker, trusted)
            sent, given = ask_slots[u64(turn)], answer_slots[u64(turn)]
            if (
                (oldest == trusted)
                & (get_count(octets, asker) == FAST_VIEW)
                & (get_count(octets, asked) == FAST_VIEW)
                & (not _any_known(words, asker, asked, sent, given))
            ):
                _swap(rows, asker, asked, oldest, sent, given)
                continue
            uncommon += 1
            number = _number(numbers, asker)
            ask_oldest(rows, asker, oldest, number, cycle, None, letters)
        took = min(_BLOCK, have - at)
        at += took
        done += took
    return done, uncommon


# --- an overlay -----------------------------------------------------------------------------------


def run_cycle(rows: Rows, span: Span, cycle: Cycle) -> int:
    """One cycle without failures, by the faster kernel that fits; returns exchanges done."""
    fast = span.peers > FAST_VIEW and fits_fast(rows, cycle)
    done, _ = cycle_fast(rows, span, cycle) if fast else cycle_any(rows, span, cycle)
    return int(done)


@dataclass
class Overlay:
    """The general overlay of a run: every peer's view, and the cycles it has been through."""

    rows: Rows
    peers: int
    seed: int
    shuffle_length: int
    cycle: int = 0

    def run(self, cycles: int = 1, loads: Loads | None = None) -> int:
        """Run cycles; returns the messages sent: a request and a reply for each exchange.

        If given, `loads` counts the messages that each peer sent and received.
        """
        keys, span = overlay_keys(self.seed), Span(0, self.peers)
        exchanges = 0
        for _ in range(cycles):
            self.cycle += 1
            cycle = Cycle(keys, self.cycle, self.shuffle_length)
            if loads is None:
                exchanges += run_cycle(self.rows, span, cycle)
            else:
                exchanges += cycle_any(self.rows, span, cycle, loads=loads)[0]
        return 2 * exchanges


def random_overlay(
    peers: int, seed: int, view_size: int = FAST_VIEW, shuffle_length: int = FAST_SHUFFLE
) -> Overlay:
    """An overlay that starts from random views."""
    return Overlay(random_rows(peers, view_size, seed), peers, seed, shuffle_length)
