"""First tier: rule by rule, what kernels decide equals the rules exactly."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reference import cycle, exchange, exchange_with, turns
from views import View, from_rows, overlays, to_rows
from weft.engine.core import draws
from weft.engine.core.jit import i64, part, u64
from weft.engine.core.layout import get_age
from weft.engine.core.vector import LANES
from weft.engine.data.memberships import Memberships
from weft.engine.stan import kernel, views
from weft.engine.tera.access_points import empty_tables, receive_adverts
from weft.engine.tera.cyclon import (
    Cycle,
    Span,
    age_and_find_oldest,
    ask_oldest,
    blank_letters,
    cycle_any,
    cycle_fast,
    forced_exchange,
    overlay_keys,
)
from weft.engine.topic_dht import roles as network
from weft.engine.topic_dht import space
from weft.rules import cyclon, draw, roles, stan, tera
from weft.rules.roles import Load

bits64 = st.integers(0, 2**64 - 1)


# --- draws --------------------------------------------------------------------------------------


@part
def mixed(value: int) -> int:
    return draw.mix(value)


@given(bits64)
def test_mixing(value: int) -> None:
    assert int(mixed(np.uint64(value))) == draw.mix(value)


@given(bits64, st.integers(0, 2**62))
def test_absorbing(key: int, coordinate: int) -> None:
    assert int(draws.absorb(np.uint64(key), coordinate)) == draw.absorb(key, coordinate)


@given(bits64, st.integers(1, 2**32 - 1))
def test_bounded_picks(bits: int, bound: int) -> None:
    assert draws.below(np.uint64(bits), bound) == draw.below(bits, bound)


@given(bits64, st.integers(0, 63), st.integers(0, 63))
def test_subsets(key: int, count: int, wanted: int) -> None:
    assert int(draws.subset_mask(np.uint64(key), count, wanted)) == draw.subset_mask(
        key, count, wanted
    )


@given(bits64, st.integers(9, 32))
def test_packed_slots(key: int, count: int) -> None:
    mask = draw.subset_mask(key, count, 8)
    packed = draws.packed_slots(np.uint64(mask), 8)
    found = [draws.packed_slot(np.uint64(packed), step) for step in range(8)]
    assert found == draw.slots_in(mask)


# --- rules that kernels call ----------------------------------------------------------------------

counts = st.integers(0, 40)


@part
def decisions(bits: int, popularity: int, one: Load, other: Load) -> tuple[bool, int, bool, bool]:
    return (
        tera.admits(bits, u64(popularity)),
        i64(tera.evicted_slot(bits, u64(popularity))),
        network.is_unfair(one, other),
        network.relieves(one, other),
    )


@given(bits64, st.integers(1, 9), *[st.builds(Load, counts, counts, counts, counts)] * 2)
def test_shared_decisions(bits: int, popularity: int, one: Load, other: Load) -> None:
    assert decisions(np.uint64(bits), popularity, one, other) == (
        tera.admits(bits, popularity),
        tera.evicted_slot(bits, popularity),
        roles.is_unfair(one, other),
        roles.relieves(one, other),
    )


@part
def adoption(steps: int, links: int, quiet: int, view: int) -> tuple[bool, bool, bool, bool, int]:
    return (
        kernel.is_from_afar(steps),
        kernel.is_lonely(links, quiet, 2),
        kernel.can_be_found(quiet == 0, links),
        views.adopts(links, view, True),
        kernel.next_period(quiet, links > 1, view),
    )


@given(st.integers(0, 3), st.integers(0, 9), st.integers(0, 4), st.integers(1, 20))
def test_shared_adoption(steps: int, links: int, quiet: int, view: int) -> None:
    assert adoption(steps, links, quiet, view) == (
        stan.is_from_afar(steps),
        stan.is_lonely(links, quiet, 2),
        stan.can_be_found(quiet == 0, links),
        stan.adopts(links, view),
        tera.next_period(quiet, links > 1, view),
    )


@part
def nearer(place: int, one: int, other: int) -> bool:
    return space.is_closer(place, one, other)


@given(bits64, bits64, bits64)
def test_shared_distances(place: int, one: int, other: int) -> None:
    here = nearer(np.uint64(place), np.uint64(one), np.uint64(other))
    assert here == roles.is_closer(place, one, other)


# --- Cyclon -------------------------------------------------------------------------------------


@given(overlays(), st.data())
def test_ageing_and_the_oldest(overlay: tuple[list[View], int, int], data: st.DataObject) -> None:
    views, view_size, _ = overlay
    rows = to_rows(views, view_size)
    row = data.draw(st.integers(0, len(views) - 1))
    slot = age_and_find_oldest(rows.octets, row)
    view = views[row]
    if view.peers:
        view.ages = cyclon.aged(view.ages)
        assert slot == cyclon.oldest_slot(view.ages)
    assert from_rows(rows)[row] == view
    unused = range(len(view.peers), LANES)
    assert not any(get_age(rows.octets, row, slot) for slot in unused)


@given(overlays(), st.integers(0, 2**63), st.integers(1, 1000), st.data())
def test_one_exchange(
    overlay: tuple[list[View], int, int], seed: int, tick: int, data: st.DataObject
) -> None:
    views, view_size, shuffle_length = overlay
    asker = data.draw(st.integers(0, len(views) - 1))
    rows = to_rows(views, view_size)
    slot = age_and_find_oldest(rows.octets, asker)
    turn = Cycle(overlay_keys(seed), tick, shuffle_length)
    asked = ask_oldest(rows, asker, slot, asker, turn, None, blank_letters())
    expected = exchange(views, asker, seed, tick, view_size, shuffle_length)
    assert asked == (-1 if expected is None else expected)
    assert from_rows(rows) == views


@given(overlays(), st.integers(0, 2**63), st.integers(1, 1000))
def test_one_cycle(overlay: tuple[list[View], int, int], seed: int, tick: int) -> None:
    views, view_size, shuffle_length = overlay
    rows = to_rows(views, view_size)
    cycle_any(rows, Span(0, len(views)), Cycle(overlay_keys(seed), tick, shuffle_length))
    cycle(views, seed, tick, view_size, shuffle_length)
    assert from_rows(rows) == views


@given(st.integers(21, 400), st.booleans(), st.sampled_from([2, 60, 255]), st.integers(0, 2**32))
def test_the_fast_cycle_equals_the_plain_one(
    peers: int, full: bool, oldest: int, seed: int
) -> None:
    """Also where its guesses fail: small overlays, gaps in views, ages at their limit."""
    dice = np.random.default_rng(seed)
    views = []
    for peer in range(peers):
        others = np.delete(np.arange(peers), peer)
        count = LANES if full else int(dice.integers(1, LANES + 1))
        ages = dice.integers(0, oldest + 1, count)
        views.append(View(dice.permutation(others)[:count].tolist(), ages.tolist()))
    plain, fast = to_rows(views, LANES), to_rows(views, LANES)
    keys, span = overlay_keys(seed), Span(0, peers)
    for tick in range(1, 6):
        cycle_any(plain, span, Cycle(keys, tick, 8))
        cycle_fast(fast, span, Cycle(keys, tick, 8))
        assert from_rows(fast) == from_rows(plain)


@given(overlays(most=12), st.integers(0, 2**63), st.integers(1, 1000), st.data())
def test_a_forced_exchange(
    overlay: tuple[list[View], int, int], seed: int, tick: int, data: st.DataObject
) -> None:
    """With a peer of one's choice, known or not: the rules in the same order."""
    views, view_size, shuffle_length = overlay
    asker, asked = data.draw(
        st.lists(st.integers(0, len(views) - 1), min_size=2, max_size=2, unique=True)
    )
    rows = to_rows(views, view_size)
    turn = Cycle(overlay_keys(seed), tick, shuffle_length)
    forced_exchange(rows, asker, asked, asker, turn, blank_letters())
    exchange_with(views, asker, asked, seed, tick, view_size, shuffle_length)
    assert from_rows(rows) == views


@given(st.integers(1, 300), st.integers(0, 2**63), st.integers(0, 1000))
def test_everybody_acts_once(peers: int, seed: int, tick: int) -> None:
    assert sorted(turns(peers, seed, tick)) == list(range(peers))


# --- access point tables --------------------------------------------------------------------------

adverts = st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(1, 6))


@given(st.lists(adverts, min_size=1, max_size=120), st.integers(1, 8), st.integers(0, 2**63))
def test_tables(heard: list[tuple[int, int, int]], size: int, seed: int) -> None:
    """Each advertisement is that of a sender with one membership, which has its number."""
    tables = empty_tables(4, size, seed)
    receivers, topics, popularity = np.array(heard, np.int32).T
    each = np.arange(len(heard), dtype=np.int32)
    offsets = np.arange(len(heard) + 1)
    held = Memberships(len(heard), offsets, each, topics, offsets, each)
    receive_adverts(np.stack([each, receivers], axis=1), held, popularity, tables)
    for peer in range(4):
        count = tables.counts[peer]
        topics, points = tables.topics[peer, :count], tables.points[peer, :count]
        found = list(zip(topics.tolist(), points.tolist(), strict=True))
        mine = [(topic, n, many) for n, (to, topic, many) in enumerate(heard) if to == peer]
        assert found == table_by_rules(mine, peer, size, seed)


def table_by_rules(
    heard: list[tuple[int, int, int]], peer: int, size: int, seed: int
) -> list[tuple[int, int]]:
    """What `protocol/tera/access_points.py` does with the rules, for one peer."""
    table: list[tuple[int, int]] = []
    ticks = {"apt.admit": 0, "apt.evict": 0}

    def bits(purpose: str) -> int:
        ticks[purpose] += 1
        return draw.draw(seed, draw.stream_of(purpose), peer, ticks[purpose] - 1, 0)

    for topic, point, popularity in heard:
        known = [slot for slot, entry in enumerate(table) if entry[0] == topic]
        if known:
            table[known[0]] = (topic, point)
        elif tera.admits(bits("apt.admit"), popularity):
            table.append((topic, point))
            if len(table) > size:
                slot = tera.evicted_slot(bits("apt.evict"), len(table))
                table[slot] = table[-1]
                table.pop()
    return table
