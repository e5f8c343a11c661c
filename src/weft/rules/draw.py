"""Keyed randomness: every random decision is a pure function of where it is taken.

    draw(seed, stream, peer, tick, item) -> 64 random bits

There is no generator with a hidden state, so the order in which decisions are taken cannot
change them: the same seed gives the same run on any machine, with any number of threads and
under any PYTHONHASHSEED. The mixing step is SplitMix64's finaliser (Steele, Lea, Flood 2014),
applied once per coordinate; each coordinate is absorbed by addition of the golden-ratio
increment, so that neighbouring ticks and items land far apart.

The engine compiles `mix`, `absorb` and `below` from here, so they never add a small literal to a
key: numba takes the literal as signed, and the sum with an unsigned key as a float. The other
functions have twins in `engine/core/draws.py`, kept exactly equal.
"""

from __future__ import annotations

from hashlib import blake2b

MASK64 = (1 << 64) - 1
MASK32 = (1 << 32) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(value: int) -> int:
    """SplitMix64's finaliser: a bijection of 64-bit integers."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK64
    return value ^ (value >> 31)


def absorb(key: int, coordinate: int) -> int:
    """Fold one more coordinate into a key."""
    return mix((key + GOLDEN * coordinate + GOLDEN) & MASK64)


def stream_of(purpose: str, overlay: str = "") -> int:
    """The stream number of a purpose (`cyclon.ask`) within an overlay (a topic, or none)."""
    return int.from_bytes(blake2b(f"{purpose}\0{overlay}".encode(), digest_size=8).digest(), "big")


def key_of(seed: int, stream: int, peer: int, tick: int) -> int:
    """The part of `draw` that a decision with several items shares."""
    return absorb(absorb(absorb(absorb(0, seed), stream), peer), tick)


def draw(seed: int, stream: int, peer: int, tick: int, item: int) -> int:
    """64 random bits for this decision and no other."""
    return absorb(key_of(seed, stream, peer, tick), item)


def below(bits: int, bound: int) -> int:
    """Map 64 random bits to 0 … bound−1 (bound ≤ 2³²), by the upper half of a product."""
    return ((bits >> 32) * bound) >> 32


def chance(bits: int, numerator: int, denominator: int) -> bool:
    """True with probability numerator/denominator."""
    return below(bits, denominator) < numerator


def subset_mask(key: int, count: int, wanted: int) -> int:
    """`wanted` of `count` slots, every subset equally likely, as a bit mask (Floyd 1987).

    One draw serves four steps, since most of the cost is in drawing: each half of its bits is
    a fraction of 2³²; scaled to a step's range, the whole part is the pick and what is left of
    the fraction serves the next step. No pick is off by more than count²/2³² of its chance.
    """
    if wanted >= count:
        return (1 << count) - 1
    mask = bits = fraction = 0
    for step in range(wanted):
        if step % 4 == 0:
            bits = absorb(key, step // 4)
            fraction = bits >> 32
        elif step % 4 == 2:
            fraction = bits & MASK32
        last = count - wanted + step
        scaled = fraction * (last + 1)
        fraction = scaled & MASK32
        bit = 1 << (scaled >> 32)
        mask |= 1 << last if mask & bit else bit
    return mask


def slots_in(mask: int) -> list[int]:
    """The slots of a mask, ascending."""
    slots = []
    while mask:
        low = mask & -mask
        slots.append(low.bit_length() - 1)
        mask ^= low
    return slots
