"""Cyclon's decisions (Voulgaris, Gavidia, van Steen 2005): the neighbour to ask, what to send,
what to keep.

A view is a compact list of slots, each holding a peer and its age in cycles. In each cycle a
peer ages its view, takes the oldest neighbour out and sends it a random subset of the rest with
a fresh entry for itself; the asked peer answers with a random subset of its own view. Both merge
what they got: no self, no duplicate, empty slots first, then the slots of what was sent away.

Draws: asking is keyed by the asker and its cycle, answering by the asker and its cycle too (in
a stream of its own), so that an exchange is decided by its asker and cycle, in any driver. The
engine's kernels are compiled twins of these functions and stay exactly equal to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from weft.rules.draw import slots_in, subset_mask

P = TypeVar("P")

AGE_MAX = 255
"""Ages saturate here: the engine keeps them in one byte, and nothing depends on more."""


def aged(ages: Sequence[int]) -> list[int]:
    """Every neighbour one cycle older."""
    return [age + 1 if age < AGE_MAX else AGE_MAX for age in ages]


def oldest_slot(ages: Sequence[int]) -> int:
    """The slot of the oldest neighbour; of several, the first."""
    return ages.index(max(ages))


def take_out(peers: list[P], ages: list[int], slot: int) -> None:
    """Remove a slot; the last one moves into its place, so views stay compact."""
    peers[slot] = peers[-1]
    ages[slot] = ages[-1]
    peers.pop()
    ages.pop()


def slots_to_send(key: int, count: int, wanted: int) -> list[int]:
    """Which `wanted` of `count` slots an exchange carries, ascending."""
    return slots_in(subset_mask(key, count, wanted))


def merge(
    peers: list[P],
    ages: list[int],
    received: Sequence[tuple[P, int]],
    sent: Sequence[P],
    me: P,
    view_size: int,
) -> None:
    """Take received entries into the view, in place.

    `sent` names what this side sent away, in slot order; an entry that has since left the view
    no longer offers its slot. Duplicates are judged against the view as it was.
    """
    slot_of = {peer: slot for slot, peer in enumerate(peers)}
    present = {*peers, me}
    replaceable = [slot_of[peer] for peer in sent if peer in slot_of]
    next_replaceable = 0
    for peer, age in received:
        if peer in present:
            continue
        if len(peers) < view_size:
            peers.append(peer)
            ages.append(age)
        elif next_replaceable < len(replaceable):
            slot = replaceable[next_replaceable]
            next_replaceable += 1
            peers[slot] = peer
            ages[slot] = age
        else:
            return
        present.add(peer)
