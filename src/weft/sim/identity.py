"""Who the peers of a simulated world are.

A simulated peer needs no key pair: its id carries its index in the first eight bytes (so that the
index is also its coordinate in keyed draws), the rest is a keyed hash. Its address is well formed
and never used.
"""

from __future__ import annotations

from hashlib import blake2b

from weft.ids import PEER_ID_BYTES, Contact, PeerId, make_address

_INDEX_BYTES = 8


def contact_of(seed: int, index: int) -> Contact:
    """The identity and address of the world's peer number `index`."""
    number = index.to_bytes(_INDEX_BYTES, "big")
    key = (seed & (1 << 64) - 1).to_bytes(8, "big")
    rest = blake2b(number, digest_size=PEER_ID_BYTES - _INDEX_BYTES, key=key).digest()
    host = f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}"
    return Contact(PeerId(number + rest), make_address(host, 1))
