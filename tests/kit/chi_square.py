"""How likely counts this uneven are if all cells have the chances they should have."""

from __future__ import annotations

import math
from collections.abc import Sequence


def chi_square_p(observed: Sequence[int], expected: Sequence[float] | None = None) -> float:
    """The p-value of Pearson's test; equal chances unless expectations are given."""
    if expected is None:
        expected = [sum(observed) / len(observed)] * len(observed)
    statistic = sum(
        (count - mean) ** 2 / mean for count, mean in zip(observed, expected, strict=True)
    )
    return upper_gamma((len(observed) - 1) / 2, statistic / 2)


def upper_gamma(shape: float, x: float) -> float:
    """The regularised upper incomplete gamma function Q(shape, x)."""
    if x <= 0:
        return 1.0
    scale = math.exp(-x + shape * math.log(x) - math.lgamma(shape))
    if x < shape + 1:  # series for the lower part
        term = total = 1 / shape
        step = shape
        while term > total * 1e-15:
            step += 1
            term *= x / step
            total += term
        return 1 - total * scale
    # Lentz's continued fraction for the upper part
    b = x + 1 - shape
    c = 1e300
    d = h = 1 / b
    for i in range(1, 10_000):
        a = -i * (i - shape)
        b += 2
        d = 1 / (a * d + b)
        c = b + a / c
        h *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return h * scale
