"""Sample & Collide: the most likely size is found, and is a good guess."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.rules import collide, draw

STREAM = draw.stream_of("collide.test")


def log_likelihood(size: int, samples: int, distinct: int) -> float:
    """Of seeing exactly so many distinct peers in so many draws, up to a constant."""
    return math.lgamma(size + 1) - math.lgamma(size - distinct + 1) - samples * math.log(size)


def exact_best(samples: int, repeats: int) -> int:
    """The whole number that maximises the exact likelihood, which has one peak.

    One more peer multiplies the likelihood by (N+1)/(N+1-d) · (N/(N+1))^samples.
    """
    distinct = samples - repeats

    def more_is_likelier(size: int) -> bool:
        return -math.log1p(-distinct / (size + 1)) > samples * math.log1p(1 / size)

    low, high = distinct, distinct + 1
    while more_is_likelier(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if more_is_likelier(middle) else (low, middle)
    return high if more_is_likelier(low) else low


@given(st.integers(2, 60), st.data())
def test_the_estimate_maximises_the_exact_likelihood(samples: int, data: st.DataObject) -> None:
    repeats = data.draw(st.integers(1, samples - 1))
    distinct = samples - repeats
    best = max(
        range(distinct, 4 * distinct * distinct + 4),
        key=lambda size: log_likelihood(size, samples, distinct),
    )
    assert abs(collide.most_likely_size(samples, repeats) - best) <= 1


@given(st.integers(100, 5_000), st.data())
def test_long_sums_are_as_exact_as_short_ones(samples: int, data: st.DataObject) -> None:
    repeats = data.draw(st.integers(1, samples // 2))
    estimate = collide.most_likely_size(samples, repeats)
    assert estimate == pytest.approx(exact_best(samples, repeats), rel=1e-6, abs=1)


@given(st.integers(100, 3_000), st.data())
def test_the_likelihood_has_its_peak_at_the_estimate(samples: int, data: st.DataObject) -> None:
    """A long sum of inverses is not added up one by one, and yet is exact to the last digits."""
    repeats = data.draw(st.integers(1, samples // 2))
    size, distinct = collide.most_likely_size(samples, repeats), samples - repeats

    def slope(size: float) -> float:
        return math.fsum(1 / (size - i) for i in range(distinct)) - samples / size

    assert slope(size * (1 - 1e-6)) > 0 > slope(size * (1 + 1e-6))


@given(st.integers(2, 500), st.data())
def test_more_repeats_mean_fewer_peers(samples: int, data: st.DataObject) -> None:
    repeats = data.draw(st.integers(1, samples - 1))
    size = collide.most_likely_size(samples, repeats)
    assert size >= samples - repeats - 1e-6
    if repeats > 1:
        assert collide.most_likely_size(samples, repeats - 1) > size


@pytest.mark.parametrize(("samples", "repeats"), [(0, 0), (5, 0), (5, 5), (3, 4), (5, -1)])
def test_no_repeat_or_nothing_but_repeats_is_no_ground_for_an_estimate(
    samples: int, repeats: int
) -> None:
    with pytest.raises(ValueError, match="repeat"):
        collide.most_likely_size(samples, repeats)


# --- as an estimator ----------------------------------------------------------------------------


def sample_counts(size: int, collisions: int, runs: int) -> Iterator[int]:
    """How many uniform samples each of `runs` runs took until it had its collisions."""
    for run in range(runs):
        key = draw.key_of(1, STREAM, size, run)
        seen: set[int] = set()
        count = repeats = 0
        while repeats < collisions:
            peer = draw.below(draw.absorb(key, count), size)
            count += 1
            repeats += peer in seen
            seen.add(peer)
        yield count


@pytest.mark.parametrize("size", [2, 3, 5, 8, 20])
def test_small_groups_are_not_overestimated(size: int) -> None:
    counts = list(sample_counts(size, 10, 400))
    ours = statistics.fmean(collide.most_likely_size(count, 10) for count in counts)
    textbook = statistics.fmean(collide.textbook(count, 10) for count in counts)
    assert abs(ours / size - 1) < 0.15
    assert textbook / size > 1.4
    assert abs(ours - size) < abs(textbook - size) / 4


@pytest.mark.parametrize(("size", "collisions", "runs"), [(1_000, 10, 400), (1_000, 40, 200)])
def test_the_error_shrinks_with_the_root_of_the_collisions(
    size: int, collisions: int, runs: int
) -> None:
    counts = list(sample_counts(size, collisions, runs))
    ratios = [collide.most_likely_size(count, collisions) / size for count in counts]
    error = math.sqrt(statistics.fmean((ratio - 1) ** 2 for ratio in ratios))
    assert 0.7 / math.sqrt(collisions) < error < 1.3 / math.sqrt(collisions)
    assert abs(statistics.median(ratios) - 1) < 0.1
    mean = statistics.fmean(counts)
    assert mean == pytest.approx(math.sqrt(2 * collisions * size), rel=0.15)


@pytest.mark.parametrize("size", [100, 1_000])
def test_one_over_what_is_advertised_is_right_on_average(size: int) -> None:
    sizes = [round(collide.most_likely_size(count, 10)) for count in sample_counts(size, 10, 2_000)]
    advertised = statistics.fmean(size / collide.to_advertise(each, 10) for each in sizes)
    unscaled = statistics.fmean(size / each for each in sizes)
    # one over a gamma variable of shape 10 has a relative deviation of 1/√8; four of the mean's
    allowed = 4 / math.sqrt(8 * 2_000)
    assert advertised == pytest.approx(1.0, abs=allowed)
    assert unscaled > 1 + allowed


def test_with_a_single_repeat_there_is_nothing_to_scale_by() -> None:
    assert collide.to_advertise(40, 1) == 40


# --- what a group shares --------------------------------------------------------------------------


def shared_after(sizes: list[int], runs: int) -> list[int]:
    """What groups share after so many runs each, from estimates one after the other."""
    found = []
    for first in range(0, len(sizes), runs):
        known = 0
        for each in sizes[first : first + runs]:
            known = collide.shared_size(known, each, 10)
        found.append(known)
    return found


def test_one_over_what_is_shared_is_right_on_average_and_nearer_than_one_run() -> None:
    size, runs, groups = 1_000, 12, 150
    sizes = [
        round(collide.most_likely_size(count, 10))
        for count in sample_counts(size, 10, runs * groups)
    ]
    inverses = [size / collide.to_advertise(each, 10) for each in shared_after(sizes, runs)]
    single = statistics.pstdev(size / collide.to_advertise(each, 10) for each in sizes)
    # A quarter for the newest: the variance is a seventh of a run's, and some more from the first.
    assert statistics.pstdev(inverses) < single / math.sqrt(7) * 1.3
    allowed = 4 * single / math.sqrt(7 * groups)
    assert statistics.fmean(inverses) == pytest.approx(1.0, abs=allowed)
    means = [statistics.fmean(sizes[first : first + runs]) for first in range(0, len(sizes), runs)]
    of_means = statistics.fmean(size / collide.to_advertise(round(each), 10) for each in means)
    assert of_means < 1 - allowed  # one over a mean of sizes, scaled alike, would be too low


def test_a_group_that_has_changed_is_believed_at_once() -> None:
    assert collide.shared_size(0, 300, 10) == 300
    assert collide.shared_size(1_000, 1_000, 10) == 1_000
    assert collide.shared_size(1_000, 500, 10) == 800
    assert collide.shared_size(100, 1_000, 10) == 1_000
    assert collide.shared_size(1_000, 100, 10) == 100


# --- what the overlap of views shows --------------------------------------------------------------


@pytest.mark.parametrize("size", [25, 40, 150, 1_000, 20_000])
def test_the_true_size_is_possible_after_any_number_of_exchanges(size: int) -> None:
    key = draw.key_of(7, STREAM, size, 0)
    refused = looked_at = 0
    for member in range(50):
        pairs = shared = 0
        for exchange in range(60):
            for told in range(8):  # of all members, 20 are in the view
                bits = draw.absorb(key, (member * 60 + exchange) * 8 + told)
                shared += draw.below(bits, size) < 20
            pairs += 20 * 8
            least, most = collide.sizes_possible(pairs, shared, 160)
            looked_at += 1
            refused += not least <= size <= most and size <= 4 * 160 * (exchange + 2)
    assert refused <= looked_at / 100


def test_a_size_is_bounded_by_what_was_seen() -> None:
    least, most = collide.sizes_possible(20 * 80, 40, 160)  # 40 of 80 told ones were in the view
    assert 8 <= least <= 10 and 160 <= most <= 200
    assert collide.sizes_possible(320, 0, 160) == (40, 1_920)
    assert collide.sizes_possible(640, 0, 160) == (80, 3_200)  # nothing in common: perhaps larger
