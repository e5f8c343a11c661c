"""Keyed draws: the same bits everywhere and always, and as good as random ones."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chi_square import chi_square_p
from weft.rules import draw

words = st.integers(0, draw.MASK64)


# --- the same bits ------------------------------------------------------------------------------


def test_mix_is_the_finaliser_of_splitmix64() -> None:
    # The published first outputs of SplitMix64 with seed 0.
    outputs = [draw.mix(draw.GOLDEN * step & draw.MASK64) for step in (1, 2, 3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_draws_never_change() -> None:
    """Traces, seeds and the engine's twins all rest on these values."""
    assert draw.draw(0, 0, 0, 0, 0) == 0x78AE5A9A6B5FD45E
    assert draw.draw(1, 2, 3, 4, 5) == 0xFE189C96E24DE4F7
    assert draw.draw(42, draw.stream_of("cyclon.ask"), 7, 100, 3) == 0x489D51327B630267
    assert draw.stream_of("cyclon.ask") == 0xF1275515858BF8E3
    assert draw.stream_of("cyclon.ask", "/sports/football") == 0xA5BC6889A4CE16DD
    assert draw.subset_mask(12345, 20, 8) == 0x4874A
    assert draw.subset_mask(0, 63, 8) == 0x5200800E000400


def test_draws_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from weft.rules.draw import *;"
        "print(draw(1, stream_of('a', '/b'), 3, 4, 5), subset_mask(6, 20, 8), slots_in(700))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@given(words, words, words, words, words)
def test_a_draw_is_its_key_and_item(
    seed: int, stream: int, peer: int, tick: int, item: int
) -> None:
    key = draw.key_of(seed, stream, peer, tick)
    assert draw.draw(seed, stream, peer, tick, item) == draw.absorb(key, item)
    assert 0 <= draw.absorb(key, item) <= draw.MASK64


def test_streams_tell_purpose_and_overlay_apart() -> None:
    names = ["", "a", "b", "ab", "/t", "/t/u"]
    streams = {draw.stream_of(purpose, overlay) for purpose in names for overlay in names}
    assert len(streams) == len(names) ** 2


# --- as good as random --------------------------------------------------------------------------


def unmix(value: int) -> int:
    """The inverse of `mix`, step by step."""
    value ^= value >> 31 ^ value >> 62
    value = value * pow(0x94D049BB133111EB, -1, 1 << 64) & draw.MASK64
    value ^= value >> 27 ^ value >> 54
    value = value * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & draw.MASK64
    return value ^ value >> 30 ^ value >> 60


@given(words)
def test_mix_is_a_bijection(value: int) -> None:
    assert unmix(draw.mix(value)) == value


@pytest.mark.parametrize("coordinate", range(5))
def test_one_step_in_any_coordinate_changes_half_of_the_bits(coordinate: int) -> None:
    changed = 0
    for start in range(400):
        here = [start, 11, 7, start * 3, 5]
        there = list(here)
        there[coordinate] += 1
        changed += (draw.draw(*here) ^ draw.draw(*there)).bit_count()
    assert 31 < changed / 400 < 33


@pytest.mark.parametrize("bound", [2, 7, 20, 100])
def test_below_is_uniform_over_neighbouring_ticks_and_items(bound: int) -> None:
    counts = Counter(
        draw.below(draw.draw(1, 2, 3, tick, item), bound)
        for tick in range(400)
        for item in range(50)
    )
    assert chi_square_p([counts[value] for value in range(bound)]) > 1e-3


@given(words, st.integers(1, 1 << 32))
def test_below_is_below(bits: int, bound: int) -> None:
    assert 0 <= draw.below(bits, bound) < bound


@given(words, words, st.integers(1, 1 << 32))
def test_below_keeps_the_order_of_bits(first: int, second: int, bound: int) -> None:
    low, high = sorted((first, second))
    assert draw.below(low, bound) <= draw.below(high, bound)


def test_below_reaches_both_ends() -> None:
    assert draw.below(0, 1 << 32) == 0
    assert draw.below(draw.MASK64, 1 << 32) == (1 << 32) - 1
    assert draw.below(draw.MASK64, 1) == 0


def test_chance_comes_true_as_often_as_it_says() -> None:
    hits = sum(draw.chance(draw.draw(9, 9, 9, tick, 0), 3, 10) for tick in range(20_000))
    assert chi_square_p([hits, 20_000 - hits], [6_000, 14_000]) > 1e-3
    assert not draw.chance(0, 0, 10)
    assert draw.chance(draw.MASK64, 10, 10)


# --- subsets ------------------------------------------------------------------------------------


@given(words, st.integers(0, 63), st.integers(0, 70))
def test_a_subset_has_exactly_the_wanted_slots(key: int, count: int, wanted: int) -> None:
    mask = draw.subset_mask(key, count, wanted)
    assert mask.bit_count() == min(wanted, count)
    assert mask < 1 << count
    assert mask == draw.subset_mask(key, count, wanted)


@pytest.mark.parametrize(("count", "wanted"), [(6, 3), (5, 2), (7, 1), (7, 6)])
def test_every_subset_is_equally_likely(count: int, wanted: int) -> None:
    subsets = [sum(1 << slot for slot in c) for c in itertools.combinations(range(count), wanted)]
    keys = (draw.key_of(5, 6, 7, tick) for tick in range(1_000 * len(subsets)))
    counts = Counter(draw.subset_mask(key, count, wanted) for key in keys)
    assert counts.keys() == set(subsets)
    assert chi_square_p([counts[subset] for subset in subsets]) > 1e-3


def test_every_slot_of_a_full_view_is_sent_equally_often() -> None:
    counts = [0] * 20
    for tick in range(5_000):
        for slot in draw.slots_in(draw.subset_mask(draw.key_of(1, 1, 1, tick), 20, 8)):
            counts[slot] += 1
    # Slots of one subset exclude each other, so counts spread less than Pearson's test allows.
    assert chi_square_p(counts) > 1e-3
    assert sum(counts) == 8 * 5_000


@given(st.sets(st.integers(0, 63)))
def test_slots_come_back_ascending(slots: set[int]) -> None:
    assert draw.slots_in(sum(1 << slot for slot in slots)) == sorted(slots)
