"""In what order peers act in a cycle: a keyed permutation that needs no memory.

Every cycle all peers act once, in random order. Shuffling a list of 10⁸ numbers each cycle
would cost as much as the cycle, so the order is computed: counting 0, 1, 2, … through a keyed
bijection of the numbers below the next power of two, and leaving out what is not a peer.

The bijection repeats three times: multiply by an odd number, add, and fold the upper half of the
bits onto the lower one. Multiplication carries low bits upwards, folding carries them back, and
each is reversible. The six constants are keyed draws of the run's seed and the cycle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from weft.engine.draws import Bits, absorb
from weft.engine.jit import i64, part, u64
from weft.rules.draw import stream_of

_ONE = np.uint64(1)

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
