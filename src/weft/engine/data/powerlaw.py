"""Fitting a power law to whole numbers (Clauset, Shalizi, Newman 2009).

The model is p(x) = x^−α / ζ(α, m) for x ≥ m, where ζ is Hurwitz's zeta function. For a given m, α
is the one of maximum likelihood; m is the one with which the fitted law and the data above m are
closest, by the Kolmogorov–Smirnov distance. To see whether a power law is any good, the same tail
is fitted by an exponential (geometric) law too, and the two are compared by their likelihoods
(Vuong 1989): above 2 the power law is clearly better, below −2 the exponential one. The harder
comparison is that with a log-normal law, cut at the same beginning and rounded: it has a parameter
more and comes as near to a power law as one likes, so it is never much worse; below −2 it is
clearly better, and the tail is no power law.

Data come as distinct values with how often each occurs, so the cost depends on how many different
values there are and not on how much data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, special

from weft.engine.core.arrays import Array

LEAST_TAIL = 50  # paper (Clauset 3.3): with fewer points above m, estimates are unsafe
_STEPS = 60  # bisection of α to 10⁻¹⁵ of its range
_ALPHA = (1.0001, 12.0)
_SEARCH = 400  # guess: steps of a search in two dimensions


@dataclass(frozen=True)
class Fit:
    """A fitted power law, over the `tail` of the data from `least` on."""

    exponent: float
    error: float  # standard error of the exponent
    least: int
    tail: int  # how many data are in the tail
    total: int
    distance: float  # Kolmogorov–Smirnov, of the tail
    against_exponential: float  # log-likelihood ratio in its standard deviations
    against_lognormal: float  # the same ratio, of the power law and a log-normal law


def exponent_of(mean_log: float, least: int) -> float:
    """The most likely exponent of data from `least` on, whose logarithms have this mean."""
    low, high = _ALPHA
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _mean_log(middle, least) > mean_log:
            low = middle  # the law is too flat
        else:
            high = middle
    return (low + high) / 2


def _mean_log(exponent: float, least: int) -> float:
    """The mean of ln x under the law: −ζ'/ζ, as a central difference."""
    step = 1e-4 * min(1.0, exponent - 1)
    up, down = special.zeta(exponent + step, least), special.zeta(exponent - step, least)
    return float(np.log(down / up) / (2 * step))


def distance_of(values: Array, counts: Array, exponent: float, least: int) -> float:
    """The largest gap between the shares of data and of the law that are at least x."""
    number = counts.sum()
    from_here = np.cumsum(counts[::-1])[::-1] / number
    # ζ(α, x)/ζ(α, m) for each distinct x; both sides of each step are compared.
    law = special.zeta(exponent, values) / special.zeta(exponent, least)
    after = special.zeta(exponent, values + 1) / special.zeta(exponent, least)
    after_here = np.append(from_here[1:], 0.0)
    return float(max(np.abs(law - from_here).max(), np.abs(after - after_here).max()))


def fit(values: Array, counts: Array, most_candidates: int = 200) -> Fit:
    """The power law closest to these numbers; `values` are at least 1.

    At most so many different beginnings of the tail are tried, evenly over their order.
    """
    order = np.argsort(values)
    values = np.asarray(values, np.int64)[order]
    counts = np.asarray(counts, np.int64)[order]
    if not len(values) or values[0] < 1:
        raise ValueError("a power law is fitted to numbers from 1 on")
    above = np.cumsum(counts[::-1])[::-1]
    possible = np.flatnonzero(above >= min(LEAST_TAIL, above[0]))
    possible = possible[possible < max(1, len(values) - 1)]  # one value is no tail
    if len(possible) > most_candidates:
        places = np.unique(np.linspace(0, len(possible) - 1, most_candidates).astype(int))
        possible = possible[places]
    tries = (_fit_from(values[at:], counts[at:], int(above[0])) for at in possible)
    best = min(tries, key=lambda each: each.distance)
    tail = values >= best.least
    against = _against_lognormal(values[tail], counts[tail], best.exponent, best.least)
    return replace(best, against_lognormal=against)


def _fit_from(values: Array, counts: Array, total: int) -> Fit:
    least, tail = int(values[0]), int(counts.sum())
    logs = np.log(values)
    exponent = exponent_of(float((counts * logs).sum() / tail), least)
    step = 1e-3 * min(1.0, exponent - 1)
    bend = (_mean_log(exponent - step, least) - _mean_log(exponent + step, least)) / (2 * step)
    return Fit(
        exponent=exponent,
        error=float(1 / np.sqrt(tail * bend)) if bend > 0 else float("nan"),
        least=least,
        tail=tail,
        total=total,
        distance=distance_of(values, counts, exponent, least),
        against_exponential=_against_exponential(values, counts, exponent, least),
        against_lognormal=float("nan"),  # takes a search, so `fit` computes it for the best alone
    )


def _against_exponential(values: Array, counts: Array, exponent: float, least: int) -> float:
    """Vuong's statistic: the mean difference of log-likelihoods over its standard error."""
    tail = counts.sum()
    beyond = float((counts * (values - least)).sum() / tail)  # mean distance from the least
    if beyond == 0:
        return 0.0
    stay = beyond / (1 + beyond)
    exponential = (values - least) * np.log(stay) + np.log(1 - stay)
    return _vuong(_power(values, exponent, least) - exponential, counts)


def _power(values: Array, exponent: float, least: int) -> Array:
    """Log-likelihoods under the power law."""
    return np.asarray(-exponent * np.log(values) - np.log(special.zeta(exponent, least)))


def _against_lognormal(values: Array, counts: Array, exponent: float, least: int) -> float:
    """Vuong's statistic against the most likely log-normal law. The search for that law has two
    starts: the mean of the tail's logarithms, and a mean far below, which approaches a power law.
    """
    logs = np.log(values)
    mean = float((counts * logs).sum() / counts.sum())
    spread = float(np.sqrt((counts * (logs - mean) ** 2).sum() / counts.sum()))
    if spread == 0:
        return 0.0

    def unlikely(law: Array) -> float:
        found = -float((counts * _lognormal(values, law[0], np.exp(law[1]), least)).sum())
        return found if np.isfinite(found) else 1e300

    wide = max(3.0, 3 * spread)
    starts = ((mean, np.log(spread)), (np.log(least) - (exponent - 1) * wide**2, np.log(wide)))
    options = {"maxiter": _SEARCH, "xatol": 1e-4, "fatol": 1e-3}
    tries = [
        optimize.minimize(unlikely, at, method="Nelder-Mead", options=options) for at in starts
    ]
    law = min(tries, key=lambda each: each.fun).x
    lognormal = _lognormal(values, law[0], np.exp(law[1]), least)
    return _vuong(_power(values, exponent, least) - lognormal, counts)


def _lognormal(values: Array, mean: float, spread: float, least: int) -> Array:
    """Log-likelihoods of whole numbers from `least` on, under a rounded log-normal law."""
    low, high, cut = (
        special.log_ndtr(-(np.log(each) - mean) / spread)
        for each in (values - 0.5, values + 0.5, least - 0.5)
    )
    with np.errstate(all="ignore"):
        return np.asarray(low + np.log1p(-np.exp(np.minimum(high - low, -1e-300))) - cut)


def _vuong(gaps: Array, counts: Array) -> float:
    """The mean of differences of log-likelihoods over its standard error."""
    tail = counts.sum()
    mean = float((counts * gaps).sum() / tail)
    spread = float(np.sqrt((counts * (gaps - mean) ** 2).sum() / tail))
    return mean * float(np.sqrt(tail)) / spread if spread else 0.0
