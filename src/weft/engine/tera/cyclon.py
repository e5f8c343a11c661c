"""A cycle of Cyclon over an overlay of any size: every peer asks its oldest neighbour once.

Two kernels with one outcome. `cycle_any` runs `ask_oldest` for each peer in turn. `cycle_fast`
does the same for views of 20 and shuffles of 8, some five times faster, by four measures:

- It looks ahead. The row of the peer whose turn comes in 32 turns is fetched, and 16 turns
  before its turn the neighbour it will ask is guessed from it and fetched too.
- It plans in blocks. What an exchange picks at random depends on who acts when, not on
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

import numpy as np

from weft.engine.core import draws
from weft.engine.core.draws import Bits, absorb, base_key, packed_slot, packed_slots, subset_mask
from weft.engine.core.jit import compiled, i32, i64, part, u64
from weft.engine.core.layout import (
    Array,
    Octets,
    Rows,
    Words,
    ages_at,
    get_age,
    get_count,
    get_id,
    prefetch_row,
    random_rows,
    set_age,
    set_id,
    words_at,
)
from weft.engine.core.vector import (
    LANES,
    oldest_lane,
    shares_any_of_7_and,
    shares_any_of_8,
    taken_on_trust,
)
from weft.engine.tera.exchange import NOBODY, age_and_find_oldest, ask_oldest
from weft.rules.draw import stream_of

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


@part
def _number(numbers: Array | None, row: int) -> int:
    return row if numbers is None else i64(numbers[u64(row)])


@compiled
def cycle_any(
    words: Words,
    octets: Octets,
    first: int,
    peers: int,
    numbers: Array | None,
    alive: Array | None,
    handled: Array | None,
    overlays: Array | None,
    keys: Array,
    tick: int,
    view_size: int,
    shuffle_length: int,
) -> tuple[int, int]:
    """Returns exchanges done and requests that nobody answered.

    If given, `handled` counts for each row the messages of exchanges it sent or received, and
    `overlays` holds each row's overlay id: exchanges carry it, and the smaller one survives.
    """
    ask, answer, order_key = keys[0], keys[1], absorb(keys[2], tick)
    bits = u64(draws.domain_bits(peers))
    request = np.empty((64, 2), np.int64)
    reply = np.empty((64, 2), np.int64)
    done = unanswered = 0
    for position in range(i64(1) << i64(bits)):
        local = i64(draws.scrambled(u64(position), order_key, bits))
        if local >= peers:
            continue
        asker = first + local
        if alive is not None and not alive[asker]:
            continue
        asked = ask_oldest(
            words,
            octets,
            asker,
            age_and_find_oldest(octets, asker),
            _number(numbers, asker),
            ask,
            answer,
            tick,
            view_size,
            shuffle_length,
            alive,
            request,
            reply,
        )
        if asked >= 0:
            done += 1
            if handled is not None:
                handled[asker] += 2
                handled[asked] += 2
            if overlays is not None:
                overlays[asker] = overlays[asked] = min(overlays[asker], overlays[asked])
        elif asked != NOBODY:
            unanswered += 1
            if handled is not None:
                handled[asker] += 1
    return done, unanswered


# --- the fast kernel ---------------------------------------------------------------------------


@part
def _plan(
    acting: Array, ask: Bits, answer: Bits, tick: int, ask_slots: Array, answer_slots: Array
) -> None:
    """Draw which slots each of the next _BLOCK turns sends, given who acts in them."""
    for turn in range(_BLOCK):
        number = acting[u64(turn)]
        asking = subset_mask(absorb(absorb(ask, number), tick), _LAST, _ASKING)
        ask_slots[u64(turn)] = packed_slots(asking, _ASKING)
        answering = subset_mask(absorb(absorb(answer, number), tick), FAST_VIEW, FAST_SHUFFLE)
        answer_slots[u64(turn)] = packed_slots(answering, FAST_SHUFFLE)


@part
def _swap(
    words: Words,
    octets: Octets,
    asker: int,
    asked: int,
    oldest: int,
    ask_slots: Bits,
    answer_slots: Bits,
) -> None:
    """Merging where nothing is missing or known: entry by entry, straight across.

    The asker's last slot moves to where the asked peer was and takes the first answer; the
    slot of the i-th entry it sent takes answer i+1. The slot of the asked peer's i-th answer
    takes the i-th entry sent, the last of which is the asker itself.
    """
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
def _any_known(words: Words, asker: int, asked: int, sent: Bits, given: Bits) -> bool:
    """Whether either side would get an entry that it has, or that names itself.

    The rows are as they were: the asked peer is still in the asker's, where it does no harm
    since it is not among its own neighbours, and the asker's last entry has not yet moved into
    that slot, so it is always looked at. A false alarm only costs the longer way.
    """
    mine, theirs = words_at(asker), words_at(asked)
    last = i32(get_id(words, asker, _LAST))
    known: bool = shares_any_of_8(words, mine, theirs, given) | shares_any_of_7_and(
        words, theirs, mine, sent, i32(asker), last
    )
    return known


@compiled
def cycle_fast(
    words: Words,
    octets: Octets,
    first: int,
    peers: int,
    numbers: Array | None,
    keys: Array,
    tick: int,
) -> tuple[int, int]:
    """Returns exchanges done, and how many of them were not the common case."""
    ask, answer, order_key = keys[0], keys[1], absorb(keys[2], tick)
    positions = i64(1) << draws.domain_bits(peers)
    order = np.zeros(_ORDER_AHEAD + 4 * _BLOCK, np.uint64)
    acting = np.empty(_BLOCK, np.int64)
    ask_slots = np.empty(_BLOCK, np.uint64)
    answer_slots = np.empty(_BLOCK, np.uint64)
    guesses = np.zeros(_RING, np.int64)
    request = np.empty((64, 2), np.int64)
    reply = np.empty((64, 2), np.int64)
    done = uncommon = position = at = have = 0
    while position < positions or at < have:
        if have - at < _BLOCK + _FETCH_AHEAD and position < positions:
            for kept in range(have - at):
                order[u64(kept)] = order[u64(at + kept)]
            have, at = have - at, 0
            end = min(positions, position + _ORDER_AHEAD)
            have = draws.next_in_order(order, have, position, end, peers, order_key)
            order[have : have + _BLOCK + _FETCH_AHEAD] = 0  # looked at, but never acted on
            position = end
            continue
        for turn in range(_BLOCK):  # apart from drawing, which then runs in vectors
            acting[u64(turn)] = _number(numbers, first + i64(order[u64(at + turn)]))
        _plan(acting, ask, answer, tick, ask_slots, answer_slots)
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
                _swap(words, octets, asker, asked, oldest, sent, given)
                continue
            uncommon += 1
            ask_oldest(
                words,
                octets,
                asker,
                oldest,
                _number(numbers, asker),
                ask,
                answer,
                tick,
                FAST_VIEW,
                FAST_SHUFFLE,
                None,
                request,
                reply,
            )
        took = min(_BLOCK, have - at)
        at += took
        done += took
    return done, uncommon


# --- an overlay ----------------------------------------------------------------------------------


@dataclass
class Overlay:
    """The general overlay of a run: every peer's view, and the cycles it has been through."""

    rows: Rows
    peers: int
    seed: int
    shuffle_length: int
    cycle: int = 0

    def run(self, cycles: int = 1) -> int:
        """Run cycles; returns the messages sent: a request and a reply for each exchange."""
        keys = overlay_keys(self.seed)
        exchanges = 0
        for _ in range(cycles):
            self.cycle += 1
            exchanges += run_cycle(
                self.rows, 0, self.peers, None, keys, self.cycle, self.shuffle_length
            )
        return 2 * exchanges


def random_overlay(
    peers: int, seed: int, view_size: int = FAST_VIEW, shuffle_length: int = FAST_SHUFFLE
) -> Overlay:
    """An overlay that starts from random views."""
    return Overlay(random_rows(peers, view_size, seed), peers, seed, shuffle_length)


def overlay_keys(seed: int, topic: str = "") -> Array:
    """Base keys of an overlay's draws: asking, answering, and the order of turns."""
    return np.array(
        [
            base_key(seed, stream_of("cyclon.ask", topic)),
            base_key(seed, stream_of("cyclon.answer", topic)),
            base_key(seed, stream_of("engine.order", topic)),
        ],
        np.uint64,
    )


def run_cycle(
    rows: Rows,
    first: int,
    peers: int,
    numbers: Array | None,
    keys: Array,
    tick: int,
    shuffle_length: int,
) -> int:
    """One cycle without failures, by the faster kernel that fits; returns exchanges done."""
    if peers > FAST_VIEW and (rows.view_size, shuffle_length) == (FAST_VIEW, FAST_SHUFFLE):
        done, _ = cycle_fast(rows.words, rows.octets, first, peers, numbers, keys, tick)
        return int(done)
    done, _ = cycle_any(
        rows.words,
        rows.octets,
        first,
        peers,
        numbers,
        None,
        None,
        None,
        keys,
        tick,
        rows.view_size,
        shuffle_length,
    )
    return int(done)
