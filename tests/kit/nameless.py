"""Peers without keys, for tests of what nobody signs: an id carries the peer's index in the first
eight bytes, so that the index is also its coordinate in keyed draws."""

from __future__ import annotations

from hashlib import blake2b

from weft.documents.run import NOTHING_BEFORE, Run
from weft.documents.signature import SIGNATURE_BYTES
from weft.ids import PEER_ID_BYTES, Contact, PeerId, make_address

_INDEX_BYTES = 8


def contact_of(seed: int, index: int) -> Contact:
    """The identity and address of the world's peer number `index`; the address is never used."""
    number = index.to_bytes(_INDEX_BYTES, "big")
    key = (seed & (1 << 64) - 1).to_bytes(8, "big")
    rest = blake2b(number, digest_size=PEER_ID_BYTES - _INDEX_BYTES, key=key).digest()
    host = f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}"
    return Contact(PeerId(number + rest), make_address(host, 1))


def unsigned_run(publisher: PeerId, *payloads: bytes, first: int = 1) -> Run:
    """For what does not look at signatures."""
    return Run(publisher, 1, first, 0, payloads, NOTHING_BEFORE, bytes(SIGNATURE_BYTES))
