"""Which duplicates may shape the push tree.

Every member gets a second copy of an event over each link that is not in the tree, and prunes
that link (Leitão, Pereira, Rodrigues 2007). One event alone leaves a spanning tree behind. Two
events from different publishers in flight at once do not: seen from one side, each link of a
cycle is the redundant one for one of the events, and if both are pruned, the cycle falls apart.

Deviation: all members let the same publisher shape the tree, the one with the smallest id
among those heard of lately. They agree on it without a word, since all see the same events.
"""

from __future__ import annotations

from weft.ids import PeerId


def prunes(
    first: PeerId | None, first_is_eager: bool, sender: PeerId, publisher: PeerId, shaper: PeerId
) -> bool:
    """Whether a second copy from `sender` makes that link lazy.

    Only if the `first` copy was pushed over another link that still carries events (a repair on
    the side must not tear the tree), and only for the publisher that shapes the tree.
    """
    return first is not None and first != sender and first_is_eager and publisher == shaper


def starts_eager(has_eager: bool, saw_events: bool) -> bool:
    """Whether a new link pushes events at once.

    Deviation: in Plumtree every new link does. Here only until a first event has shaped a tree,
    or where nothing else feeds this member; any other link would only bring second copies.
    """
    return not has_eager or not saw_events


PATIENCE_MAX = 16
"""guess: how many times longer than usual a member waits at the most."""


def patience(now_ms: int, false_alarm: bool, usual_ms: int) -> int:
    """How long to wait for an announced event from now on.

    Doubles whenever an event that was asked for came by the tree after all, which is what happens
    on slow or busy machines and would else only add to their load; shrinks when asking helped.
    """
    if false_alarm:
        return min(now_ms * 2, PATIENCE_MAX * usual_ms)
    return max(usual_ms, now_ms * 3 // 4)


def shapes_tree(
    shaper: PeerId | None, heard_ms: int, publisher: PeerId, now_ms: int, quiet_ms: int
) -> bool:
    """Whether `publisher` takes (or keeps) the role of `shaper`, last heard of at `heard_ms`."""
    return shaper is None or publisher <= shaper or now_ms - heard_ms > quiet_ms
