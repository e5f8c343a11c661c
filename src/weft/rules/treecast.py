"""Trees over a topic-aware DHT: every member is the root of its own (Baehni and others, 5.2).

The members of a topic lie on a ring of m places by the hash of their ids. A level-i link of a
member leads to who is reached when routing to its hash ± m/2^i; a root sends on its level-1 links,
and what came on a level-i link goes on over level i+1. Each level halves the stretch of the ring
that a member is in charge of, so after log₂ m levels everybody is reached.

Deviation: the paper counts levels from 0, where hash ± m/2^0 is the member itself; here they start
at 1. At level 1 both links lead to the same place, so only one of them is used.
"""

from __future__ import annotations


def link_targets(own: int, level: int, bits: int) -> tuple[int, ...]:
    """Where the links of a level lead: one or two places on the ring of 2^bits."""
    if not 1 <= level <= bits:
        raise ValueError(f"no level {level} on a ring of {bits} bits")
    size = 1 << bits
    step = size >> level
    after, before = (own + step) % size, (own - step) % size
    return (after,) if after == before else (after, before)


def levels_needed(neighbour_distance: int, bits: int) -> int:
    """The level whose links reach no farther than the closest neighbour: beyond it there is
    nobody to find. A member reads it off its own neighbours."""
    if neighbour_distance < 1:
        return bits
    return min(bits, bits - neighbour_distance.bit_length() + 1)


def next_level(received_on: int | None) -> int:
    """The level on which an event goes on; None: this member is the root."""
    return 1 if received_on is None else received_on + 1


def arc_of(target: int, level: int, bits: int) -> tuple[int, int]:
    """The stretch of the ring that a receiver on a level is in charge of, around the place its
    link led to: the first place after the edge, and how many there are."""
    size = 1 << bits
    step = size >> level
    return (target - step + 1) % size, 2 * step - 1
