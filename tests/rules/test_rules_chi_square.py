"""The yardstick itself: known values of the chi-square distribution."""

from __future__ import annotations

import pytest

from chi_square import chi_square_p, upper_gamma


@pytest.mark.parametrize(
    ("degrees", "statistic", "p"),
    [(1, 3.841, 0.05), (10, 18.307, 0.05), (10, 2.558, 0.99), (100, 135.807, 0.01)],
)
def test_tabulated_values(degrees: int, statistic: float, p: float) -> None:
    assert upper_gamma(degrees / 2, statistic / 2) == pytest.approx(p, rel=2e-3)


def test_even_counts_are_likely_and_uneven_ones_are_not() -> None:
    assert chi_square_p([100] * 10) == 1
    assert chi_square_p([170, *[92] * 9]) < 1e-6
    assert chi_square_p([200, 100], [200, 100]) == 1
