"""Compiled twins of `weft.rules.draw`: the same keys, the same bits, the same picks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from weft.engine.core.jit import i64, part, u64
from weft.engine.core.vector import trailing_zeros
from weft.rules import draw as rules
from weft.rules.draw import stream_of

_GOLDEN = np.uint64(rules.GOLDEN)
_ONE = np.uint64(1)
_HALF = np.uint64(32)
_MASK32 = np.uint64(rules.MASK32)
_BYTE = np.uint64(255)

Bits = Any  # an unsigned 64-bit number inside a kernel


def base_key(seed: int, stream: int) -> np.uint64:
    """The part of a key that all peers of a run share; absorb the peer, then the tick."""
    return np.uint64(rules.absorb(rules.absorb(0, seed), stream))


@part
def mix(value: Bits) -> Bits:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@part
def absorb(key: Bits, coordinate: int) -> Bits:
    return mix(key + _GOLDEN * (u64(coordinate) + _ONE))


@part
def below(bits: Bits, bound: int) -> int:
    return i64(((bits >> _HALF) * u64(bound)) >> _HALF)


@part
def subset_mask(key: Bits, count: int, wanted: int) -> Bits:
    """As in the rule; `count` is at most 63."""
    if wanted >= count:
        return (_ONE << u64(count)) - _ONE
    mask = bits = fraction = u64(0)
    for step in range(wanted):
        if step % 4 == 0:
            bits = absorb(key, step // 4)
            fraction = bits >> _HALF
        elif step % 4 == 2:
            fraction = bits & _MASK32
        last = u64(count - wanted + step)
        scaled = fraction * (last + _ONE)
        fraction = scaled & _MASK32
        bit = _ONE << (scaled >> _HALF)
        mask |= (_ONE << last) if (mask & bit) != u64(0) else bit
    return mask


@part
def packed_slots(mask: Bits, count: int) -> Bits:
    """The lowest `count` slots of a mask, ascending, a byte each (at most 8)."""
    slots = u64(0)
    for step in range(count):
        slots |= trailing_zeros(mask) << u64(8 * step)
        mask &= mask - _ONE
    return slots


@part
def packed_slot(slots: Bits, step: int) -> int:
    return i64((slots >> u64(8 * step)) & _BYTE)


# --- order -------------------------------------------------------------------------------------
#
# In what order peers act in a cycle: a keyed permutation that needs no memory.
#
# Every cycle all peers act once, in random order. Shuffling a list of 10⁸ numbers each cycle
# would cost as much as the cycle, so the order is computed: counting 0, 1, 2, … through a keyed
# bijection of the numbers below the next power of two, and leaving out what is not a peer.
#
# The bijection repeats three times: multiply by an odd number, add, and fold the upper half of
# the bits onto the lower one. Multiplication carries low bits upwards, folding carries them back,
# and each is reversible. The six constants are keyed draws of the run's seed and the cycle.


STREAM = stream_of("engine.order")


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
    mask = (_ONE << bits) - _ONE
    fold = max(_ONE, bits >> _ONE)
    number = position
    for turn in range(3):
        multiplier = absorb(key, 2 * turn) | _ONE
        addend = absorb(key, 2 * turn + 1)
        number = (number * multiplier + addend) & mask
        number ^= number >> fold
    return number


@part
def next_in_order(
    order: npt.NDArray[Any], have: int, position: int, end: int, peers: int, key: Bits
) -> int:
    """Append the peers at positions position … end−1 to `order`; returns how many it now has."""
    bits = u64(domain_bits(peers))
    for at in range(position, end):
        number = scrambled(u64(at), key, bits)
        order[u64(have)] = number
        have += i64(number < u64(peers))
    return have
