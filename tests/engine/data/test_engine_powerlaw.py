"""Power-law fits, shuffles and correlations of memberships."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import zeta

from correlation_reference import correlations, most_popular
from weft.engine.core.arrays import Array
from weft.engine.data.correlation import shuffled
from weft.engine.data.grid import Grid, PowerLaw, draw_grid
from weft.engine.data.memberships import Memberships, memberships, spread
from weft.engine.data.powerlaw import distance_of, exponent_of, fit


def counted(data: Array) -> tuple[Array, Array]:
    values, counts = np.unique(data, return_counts=True)
    return values, counts


def power_law(exponent: float, least: int, size: int, seed: int) -> Array:
    """Whole numbers by the law itself: the inverse of its exact distribution up to a far end."""
    values = np.arange(least, 2_000_000, dtype=np.float64)
    shares = np.cumsum(values**-exponent)
    place = np.random.default_rng(seed).random(size) * zeta(exponent, least)
    return np.asarray(np.minimum(np.searchsorted(shares, place), len(values) - 1) + least)


@pytest.mark.parametrize(("exponent", "least"), [(1.8, 1), (2.5, 1), (3.0, 6)])
def test_the_exponent_of_a_true_power_law_is_found(exponent: float, least: int) -> None:
    data = power_law(exponent, least, 20_000, 1)
    found = exponent_of(float(np.log(data).mean()), least)
    assert found == pytest.approx(exponent, abs=4 * (exponent - 1) / np.sqrt(20_000))
    whole = fit(*counted(data))
    assert abs(whole.exponent - exponent) < 4 * whole.error
    assert whole.distance < 0.02
    assert whole.against_exponential > 10
    assert whole.against_lognormal > -2
    assert whole.total == 20_000


def test_where_the_tail_begins_is_found() -> None:
    # Below 20 evenly spread, above by a power law.
    below = np.random.default_rng(2).integers(1, 20, 5_000)
    data = np.concatenate([below, power_law(2.5, 20, 10_000, 3)])
    found = fit(*counted(data))
    assert 15 <= found.least <= 25
    assert found.exponent == pytest.approx(2.5, abs=0.08)
    assert found.tail == (data >= found.least).sum()


def test_an_exponential_law_is_no_power_law() -> None:
    data = np.random.default_rng(4).geometric(0.1, 20_000)
    found = fit(*counted(data[data >= 5]))
    assert found.against_exponential < 2
    values, counts = counted(data)
    assert distance_of(values, counts, exponent_of(float(np.log(data).mean()), 1), 1) > 0.2


def test_a_lognormal_law_is_no_power_law() -> None:
    data = np.ceil(np.random.default_rng(5).lognormal(3.0, 0.8, 5_000)).astype(np.int64)
    whole = fit(*counted(data), most_candidates=1)  # from the smallest number on
    assert whole.least == data.min()
    assert whole.against_lognormal < -10


def test_the_distance_is_that_of_kolmogorov_and_smirnov() -> None:
    # Three of four data are 1; under α = 2 from 1 on, 6/π² are.
    values, counts = np.array([1, 5]), np.array([3, 1])
    assert distance_of(values, counts, 2.0, 1) == pytest.approx(0.75 - 6 / np.pi**2)


def test_few_or_wrong_data() -> None:
    assert fit(np.array([1, 2, 3]), np.array([5, 3, 1])).tail == 9
    assert fit(np.array([4]), np.array([100])).least == 4
    for wrong in ([], [0, 1]):
        with pytest.raises(ValueError, match="from 1 on"):
            fit(np.array(wrong), np.ones(len(wrong)))


# --- shuffles and correlations --------------------------------------------------------------------


def keys_of(held: Memberships) -> list[int]:
    return sorted((held.members.astype(np.int64) * held.topics + held.topic_of).tolist())


def test_a_shuffle_keeps_all_degrees_and_nothing_else() -> None:
    held = draw_grid(Grid(nodes=300, topics=40), 1)
    other = shuffled(held, 7)
    assert other.sizes().tolist() == held.sizes().tolist()
    assert other.per_peer().tolist() == held.per_peer().tolist()
    keys = keys_of(other)
    assert len(set(keys)) == len(keys)
    assert keys != keys_of(held)
    assert keys == keys_of(shuffled(held, 7))
    assert keys != keys_of(shuffled(held, 8))


def test_all_tables_of_the_same_degrees_are_equally_likely() -> None:
    # Three users with one, one and two of three topics with 2, 1 and 1 subscribers.
    offsets, members = np.array([0, 2, 3, 4]), np.array([0, 2, 1, 2], np.int32)
    held = memberships(3, offsets, members)
    seen: dict[tuple[int, ...], int] = {}
    for seed in range(3_000):
        key = tuple(keys_of(shuffled(held, seed, 20)))
        seen[key] = seen.get(key, 0) + 1
    # Topic 0 is held by users 0 and 2, or 1 and 2, each with two ways for the rest; or 0 and 1.
    assert len(seen) == 5
    assert min(seen.values()) > 600 - 5 * np.sqrt(600 * 0.8)
    assert max(seen.values()) < 600 + 5 * np.sqrt(600 * 0.8)


def test_a_grid_is_correlated_and_its_shuffle_is_not() -> None:
    # No node is interested in all: then all topics would be correlated in a shuffle, too.
    held = draw_grid(Grid(nodes=2_000, topics=60, radius=PowerLaw(3.0, 0.05, 0.3)), 1)
    topics = most_popular(held, 60)
    pairs = np.triu_indices(60, 1)
    true, chance = (correlations(each, topics)[pairs] for each in (held, shuffled(held, 1)))
    assert np.percentile(true, 99) > 2 * np.percentile(chance, 99)
    independent = correlations(spread(np.full(60, 500), 2_000, 1), np.arange(60))[pairs]
    assert abs(independent.mean()) < 4 / np.sqrt(2_000 * len(independent))
