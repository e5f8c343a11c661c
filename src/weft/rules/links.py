"""Stable links: whom a member of a topic keeps as neighbours for carrying events.

Cyclon's view changes every cycle, while a tree needs links that stay. Each member therefore
keeps a small symmetric set of links per topic, drawn at random from its view and replaced only
on failure (the split of HyParView, Leitão, Pereira, Rodrigues 2007: a small active view that
stays, a larger passive one that moves).

Where peers rank each other (StaN, `rules/stan.py`), links go to the first of the ranking instead.
StaN's weight is asymmetric, since its views are directed. A link belongs to both its ends, and each
must want it for the same reason in every topic that the two share: the pair's weight is the lower
one of the two. Such weights are as independent as the others, so links stay as random.
"""

from __future__ import annotations


def accepts(links: int, most: int, urgent: bool) -> bool:
    """Whether a member with so many links takes one more. Somebody with none is never refused."""
    return links < most or urgent


def must_evict(links: int, most: int) -> bool:
    """Whether taking one more link means giving up another one."""
    return links >= most


def still_wanted(links: int, asked: int, wanted: int) -> int:
    """How many more members to ask for a link."""
    return max(0, wanted - links - asked)


def pair_weight(mine: int, theirs: int) -> int:
    """How early a link to another is wanted, alike at both ends; the lowest first."""
    return min(mine, theirs)


def may_release(links: int, wanted: int, ideal: bool, carries: bool) -> bool:
    """Whether a member can do without a link: it has others enough, this one is not among those
    it wants most, and no event depends on it."""
    return links > wanted and not ideal and not carries
