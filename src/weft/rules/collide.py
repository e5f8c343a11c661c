"""Sample & Collide: how many peers an overlay has, from repeats among random samples
(Massoulié, Le Merrer, Kermarrec, Ganesh 2006).

Draw peers independently and uniformly until `l` samples were repeats. Few repeats among many
samples mean a large overlay. The samples must come from walks through the overlay: a peer's own
view holds every neighbour at most once and so makes groups look smaller than they are.

*Overlap of views.* A second, rougher measure costs no message: of the entries that a neighbour
tells in an exchange of views, the larger the overlay the fewer are in one's own view already
(capture and recapture, as `rules/tera.py` counts topics). It is too rough to advertise, and shows
which estimates of others are impossible (`sizes_possible`).

Deviation: the textbook estimate C²/2l is several times too high for small groups, which would
keep small topics out of access point tables; weft uses the maximum-likelihood estimate.
"""

from __future__ import annotations

import math

from weft.rules.draw import chance

NEWEST = 4
"""guess: the newest run counts for one part in so many; the deviation of the shared estimate is
then 1/√7 of a single run's."""

SIZES_FACTOR = 4
"""measured, 2026-11-19: by how much an estimate may differ from what the overlap of views shows. In
honest groups of 40, 150 and 300 a member's overlap shows 0.24 to 3.4 times the size in the first
three minutes, after ten (40 and 150) 0.5 to 1.5 times; no honest estimate was refused."""
_CHANCE = 2
"""guess: by how many shared entries chance moves a count of few; a count of many moves by less than
`SIZES_FACTOR` allows."""


def textbook(samples: int, repeats: int) -> float:
    """C²/2l, for comparison: right only while samples are few against the group."""
    return samples * samples / (2 * repeats)


def most_likely_size(samples: int, repeats: int) -> float:
    """The group size under which `samples` uniform draws most likely hold `repeats` repeats.

    With d = samples − repeats distinct peers seen, the likelihood N!/((N−d)! N^samples) peaks
    where Σ_{i<d} 1/(N−i) = samples/N. At least one repeat is needed for a finite answer.
    """
    if repeats < 1 or samples <= repeats:
        raise ValueError("an estimate needs at least one repeat and one distinct sample")
    distinct = samples - repeats
    low, high = float(distinct), float(max(2 * distinct, 2))
    while _slope(high, samples, distinct) > 0:
        low, high = high, high * 2
    for _ in range(100):
        middle = (low + high) / 2
        if _slope(middle, samples, distinct) > 0:
            low = middle
        else:
            high = middle
        if high - low <= 1e-9 * high:
            break
    return (low + high) / 2


def _slope(size: float, samples: int, distinct: int) -> float:
    """Derivative of the log-likelihood; positive while a larger size is more likely."""
    if size <= distinct - 1:
        return math.inf
    return _sum_of_inverses(size, distinct) - samples / size


def _sum_of_inverses(size: float, terms: int) -> float:
    """Σ_{i<terms} 1/(size−i), exactly for few terms, else by Euler–Maclaurin."""
    exact = min(terms, 64)
    start = terms - exact  # the last terms are the largest and steepest: summed one by one
    total = math.fsum(1 / (size - i) for i in range(start, terms))
    if start:
        first, last = size, size - start + 1
        total += math.log(first / last) + (1 / first + 1 / last) / 2
        total += (1 / last**2 - 1 / first**2) / 12
    return total


def to_advertise(size: int, repeats: int) -> int:
    """The estimate of a size, scaled so that one over it is right on average.

    Tables admit a topic with probability one over its popularity. With l repeats the number of
    samples squared is about 2N times a gamma variable of shape l, so the estimate is N times one
    of mean 1, and one over it has mean l/(l−1)/N: unscaled, estimated topics would get more
    places in tables than counted ones (at l = 10, 11 % more).
    """
    return round(size * repeats / (repeats - 1)) if repeats > 1 else size


def shared_size(known: int, found: int, repeats: int) -> int:
    """The estimate that a group shares after a run: `known` before (0: none), `found` by the run.

    Inverses are averaged, not sizes, since tables admit by one over the size: the mean of inverses
    is off by l/(l−1) however many runs are in it, which `to_advertise` makes good. The inverse of a
    mean of k sizes would be off by kl/(kl−1), a factor that changes from run to run. A newer run
    counts more, so that the estimate follows the group. A run that differs by more than two runs of
    one group would (three deviations of the logarithm) shows that the group has changed, and counts
    alone, since a mean of inverses forgets a small size slowly.
    """
    if known < 1 or abs(math.log(found / known)) > 3 * math.sqrt(2 / repeats):
        return found
    return round(NEWEST / ((NEWEST - 1) / known + 1 / found))


def starts_run(bits: int, age_ms: int, fresh_ms: int, members: int) -> bool:
    """Whether a member starts an estimate of its own in this cycle: not while one is fresh, and
    then about one member in all, since view exchanges carry the result to the others."""
    return age_ms >= fresh_ms // 2 and chance(bits, 1, max(1, members))


def members_at_first(view: int, view_size: int, waited: int) -> int:
    """How many members to reckon with in `starts_run` where no estimate was ever heard of: as many
    as the neighbours of neighbours may be, half as many with each cycle that none was made, but
    never fewer than the peers in the view and this one.

    With the view alone, one member in twenty of a large group that came together at once would
    start: a run costs about 9 √(20 N) messages, most of them over connections of their own.
    """
    return max(view + 1, (view_size * view_size) >> waited)


def sizes_possible(pairs: int, shared: int, unseen: int) -> tuple[int, int]:
    """The least and the largest size that fit the overlap of views. `pairs`: for each entry that
    was told, how many were in the own view, all added up; `shared`: how many of the told ones were
    among them; `unseen`: the pairs of one more exchange, which may share nothing. Where nothing was
    shared, the largest size grows with each exchange."""
    least = pairs // (SIZES_FACTOR * (shared + _CHANCE))
    most = SIZES_FACTOR * (pairs + unseen) // max(1, shared - _CHANCE)
    return least, most
