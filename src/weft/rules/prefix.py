"""The space of a DHT: keys as numbers, the XOR metric, prefixes (Maymounkov, Mazières 2002).

A location is a number of `bits` bits. The distance of two locations is their XOR, read as a
number, so the longer the prefix they share, the closer they are. The metric is
symmetric, and around every target all distances differ: "the k closest" is always one answer.

Where things lie:

- a peer at the sha2-256 of its id (`location_of`), so that nobody chooses a place for free;
- a record at the sha2-256 of its key, whose first byte is the record's *kind*;
- in a topic-aware DHT a peer lies once per role, at hash(topic) ∘ hash(peer) (`joined`): all
  locations of one topic share its prefix (Baehni and others, Section 4.1 and Lemma 4.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from heapq import nsmallest

BITS = 256
"""paper (Kademlia has 160, SHA-1's; Pulsarcast's CIDs are sha2-256)."""
DIGEST_BYTES = 32

BLOCK = 1
"""Kind of a key: an immutable block, named by the sha2-256 of its bytes."""
TOPIC_RECORD = 2
"""Kind of a key: a signed, sequenced, expiring pointer, named by the hash of its owner's key."""
SEGMENT = 3
"""Kind of a key: a part of a topic's stream. Peers provide it; nothing is stored under it."""


# --- where things lie -----------------------------------------------------------------------------


def location_of(data: bytes) -> int:
    """Where a peer id or a record's key lies in the plain space."""
    return int.from_bytes(sha256(data).digest(), "big")


def joined(first: bytes, second: bytes) -> int:
    """hash(first) ∘ hash(second), twice as many bits."""
    return location_of(first) << BITS | location_of(second)


def as_bytes(location: int, bits: int = BITS) -> bytes:
    return location.to_bytes(bits // 8, "big")


def block_key(block: bytes) -> bytes:
    """The key under which a block is stored."""
    return bytes((BLOCK,)) + sha256(block).digest()


def record_key(name: bytes) -> bytes:
    """The key under which the record called `name` is stored."""
    return bytes((TOPIC_RECORD,)) + name


def segment_key(topic: str, number: int) -> bytes:
    """The key by which the peers that hold a part of a topic's stream are found."""
    return bytes((SEGMENT,)) + sha256(b"%d:%s" % (number, topic.encode())).digest()


# --- prefixes and distances -----------------------------------------------------------------------


def common_prefix(one: int, other: int, bits: int = BITS) -> int:
    """How many leading bits two locations share: all of them if they are equal.

    This is also the index of the bucket that `other` belongs to in the table of `one`.
    """
    return bits - (one ^ other).bit_length()


def closest(target: int, locations: Iterable[int], count: int) -> list[int]:
    """The `count` locations closest to the target, closest first."""
    return nsmallest(count, locations, key=lambda location: location ^ target)


def in_bucket(own: int, bucket: int, bits: int, randomness: int) -> int:
    """A location that shares exactly the first `bucket` bits with `own`; the rest is random."""
    below = bits - bucket - 1
    head = (own >> below) ^ 1
    return head << below | randomness & ((1 << below) - 1)
