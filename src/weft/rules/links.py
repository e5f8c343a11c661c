"""Stable links: whom a member of a topic keeps as neighbours for carrying events.

Cyclon's view changes every cycle, while a tree needs links that stay. Each member therefore
keeps a small symmetric set of links per topic, drawn at random from its view and replaced only
on failure (the split of HyParView, Leitão, Pereira, Rodrigues 2007: a small active view that
stays, a larger passive one that moves).
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
