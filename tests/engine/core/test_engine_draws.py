"""Draws of the engine: the order of turns (everybody once, and at random), and many at once."""

from __future__ import annotations

import numpy as np
import pytest

from weft.engine.core.draws import absorb, base_key, domain_bits, scrambled, uniforms
from weft.rules.draw import stream_of

ORDERS = 4_000


def order(peers: int, cycle: int) -> np.ndarray:
    key = np.uint64(absorb(base_key(5, stream_of("engine.order")), cycle))
    bits = np.uint64(domain_bits(peers))
    found = np.array([scrambled(np.uint64(at), key, bits) for at in range(1 << int(bits))])
    return found[found < peers].astype(np.int64)


@pytest.fixture(scope="module")
def orders() -> np.ndarray:
    """Orders of 20 peers in many cycles."""
    return np.array([order(20, cycle) for cycle in range(ORDERS)])


@pytest.mark.parametrize("peers", [1, 2, 3, 5, 8, 20, 64, 65, 1000])
def test_everybody_acts_once(peers: int) -> None:
    assert sorted(order(peers, 3)) == list(range(peers))


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


def test_a_peer_is_as_likely_to_act_at_any_time(orders: np.ndarray) -> None:
    for peer in range(20):
        places = np.bincount(np.argwhere(orders == peer)[:, 1], minlength=20)
        # 19 degrees of freedom; 53 is exceeded once in 20 000 times, and 20 peers are looked at
        assert chi_square(places) < 53


def test_either_of_two_is_as_likely_to_be_first(orders: np.ndarray) -> None:
    places = np.argsort(orders, axis=1)
    for one in range(20):
        for other in range(one):
            share = (places[:, one] < places[:, other]).mean()
            assert abs(share - 0.5) < 4.5 * 0.5 / np.sqrt(ORDERS)


def test_a_turn_does_not_tell_which_is_next(orders: np.ndarray) -> None:
    pairs = np.zeros((20, 20), np.int64)
    np.add.at(pairs, (orders[:, :-1].ravel(), orders[:, 1:].ravel()), 1)
    counts = pairs[~np.eye(20, dtype=bool)]
    # 379 degrees of freedom, deviation sqrt(2·379) = 27.5
    assert chi_square(counts) < 379 + 5 * 27.5


def test_cycles_have_orders_of_their_own() -> None:
    assert not np.array_equal(order(100, 1), order(100, 2))


def test_draws_do_not_depend_on_how_many_are_drawn() -> None:
    few, many = uniforms(5, base_key(1, 7)), uniforms(9, base_key(1, 7))
    assert few.tolist() == many[:5].tolist()
