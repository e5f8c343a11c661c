"""Draws inside kernels: the keys and picks of `weft.rules.draw`, and the order of turns.

Mixing, absorbing and picking are the rules themselves (`shared`). The others are written anew for
unsigned numbers, since numba would make a floating-point number of a signed and an unsigned one;
the differential tests compare them with the rule.
"""

from __future__ import annotations

import numpy as np

from weft.engine.core.arrays import Array, Numbers, Reals, Words
from weft.engine.core.jit import ONE, Bits, compiled, i64, part, shared, u64
from weft.engine.core.vector import trailing_zeros
from weft.rules import draw as rules
from weft.rules.draw import mix, stream_of

_HALF = u64(32)
_MASK32 = u64(rules.MASK32)
_BYTE = u64(255)

shared(mix, rules.absorb, rules.below)


# --- keys and picks -------------------------------------------------------------------------------


def base_key(seed: int, stream: int) -> Bits:
    """The part of a key that all peers of a run share; absorb the peer, then the tick."""
    return u64(rules.absorb(rules.absorb(0, seed), stream))


@part
def absorb(key: Bits, coordinate: int) -> Bits:
    return rules.absorb(key, u64(coordinate))


@part
def below(bits: Bits, bound: int) -> int:
    return i64(rules.below(bits, u64(bound)))


@part
def subset_mask(key: Bits, count: int, wanted: int) -> Bits:
    """Twin of the rule of this name; `count` is at most 63."""
    if wanted >= count:
        return (ONE << u64(count)) - ONE
    mask = bits = fraction = u64(0)
    for step in range(wanted):
        if step % 4 == 0:
            bits = absorb(key, step // 4)
            fraction = bits >> _HALF
        elif step % 4 == 2:
            fraction = bits & _MASK32
        last = u64(count - wanted + step)
        scaled = fraction * (last + ONE)
        fraction = scaled & _MASK32
        bit = ONE << (scaled >> _HALF)
        mask |= (ONE << last) if (mask & bit) != u64(0) else bit
    return mask


@part
def packed_slots(mask: Bits, count: int) -> Bits:
    """The lowest `count` slots of a mask, ascending, a byte each (at most 8)."""
    slots = u64(0)
    for step in range(count):
        slots |= trailing_zeros(mask) << u64(8 * step)
        mask &= mask - ONE
    return slots


@part
def packed_slot(slots: Bits, step: int) -> int:
    return i64((slots >> u64(8 * step)) & _BYTE)


# --- many at once ---------------------------------------------------------------------------------


@compiled
def mixed(values: Words) -> Words:
    """For each value the bits that `mix` makes of it."""
    found = np.empty(len(values), np.uint64)
    for at in range(len(values)):
        found[at] = mix(values[at])
    return found


@compiled
def keyed(items: Array, key: Bits) -> Words:
    """64 keyed bits for each item."""
    found = np.empty(len(items), np.uint64)
    for at in range(len(items)):
        found[at] = absorb(key, i64(items[at]))
    return found


@compiled
def uniforms(count: int, key: Bits) -> Reals:
    """Keyed numbers in [0, 1)."""
    values = np.empty(count, np.float64)
    for item in range(count):
        values[item] = fraction_of(absorb(key, item))
    return values


@part
def fraction_of(bits: Bits) -> float:
    """Random bits as a number in [0, 1)."""
    return i64(bits >> u64(11)) * 2.0**-53


def random_peers(count: int, peers: int, seed: int, purpose: str, tick: int) -> Numbers:
    """Peers drawn uniformly, with repetition."""
    return _picks(count, peers, base_key(seed, stream_of(purpose, str(tick))))


@compiled
def _picks(count: int, bound: int, key: Bits) -> Numbers:
    found = np.empty(count, np.int64)
    for item in range(count):
        found[item] = below(absorb(key, item), bound)
    return found


# --- the order of turns ---------------------------------------------------------------------------
#
# Every cycle all peers act once, in random order. Shuffling a list of 10⁸ numbers each cycle
# would cost as much as the cycle, so the order is computed: counting 0, 1, 2, … through a keyed
# bijection of the numbers below the next power of two, and leaving out what is not a peer.
#
# The bijection repeats three times: multiply by an odd number, add, and fold the upper half of
# the bits onto the lower one. Multiplication carries low bits upwards, folding carries them back,
# and each is reversible. The six constants are keyed draws of the run's seed and the cycle.


@part
def domain_bits(peers: int) -> int:
    """Bits of the smallest power of two that counts all peers."""
    bits = 0
    while (i64(1) << bits) < peers:
        bits += 1
    return bits


@part
def scrambled(position: Bits, key: Bits, bits: Bits) -> Bits:
    """The number at this position of the order."""
    mask = (ONE << bits) - ONE
    fold = max(ONE, bits >> ONE)
    number = position
    for turn in range(3):
        multiplier = absorb(key, 2 * turn) | ONE
        addend = absorb(key, 2 * turn + 1)
        number = (number * multiplier + addend) & mask
        number ^= number >> fold
    return number


@part
def next_in_order(order: Array, have: int, position: int, end: int, peers: int, key: Bits) -> int:
    """Append the peers at positions position … end−1 to `order`; returns how many it now has."""
    bits = u64(domain_bits(peers))
    for at in range(position, end):
        number = scrambled(u64(at), key, bits)
        order[u64(have)] = number
        have += i64(number < u64(peers))
    return have
