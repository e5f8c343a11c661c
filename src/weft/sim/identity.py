"""Who the peers of a simulated world are.

A simulated peer that signs nothing needs no key pair: its id carries its index in the first eight
bytes (so that the index is also its coordinate in keyed draws), the rest is a keyed hash. Its
address is well formed and never used.
"""

from __future__ import annotations

from hashlib import blake2b

from nacl.bindings import crypto_sign, crypto_sign_seed_keypair

from weft.ids import PEER_ID_BYTES, Contact, PeerId, make_address
from weft.rules.signing import SIGNATURE_BYTES, Signer

_INDEX_BYTES = 8


def contact_of(seed: int, index: int) -> Contact:
    """The identity and address of the world's peer number `index`."""
    number = index.to_bytes(_INDEX_BYTES, "big")
    key = (seed & (1 << 64) - 1).to_bytes(8, "big")
    rest = blake2b(number, digest_size=PEER_ID_BYTES - _INDEX_BYTES, key=key).digest()
    return Contact(PeerId(number + rest), _address(index))


def _address(index: int) -> str:
    return make_address(f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}", 1)


def keyed(seed: int, index: int) -> tuple[Contact, Signer]:
    """The same for a world with history: a true key pair, drawn from the seed."""
    key = (seed & (1 << 64) - 1).to_bytes(8, "big")
    secret = blake2b(index.to_bytes(_INDEX_BYTES, "big"), digest_size=32, key=key).digest()
    public, private = crypto_sign_seed_keypair(secret)

    def sign(data: bytes) -> bytes:
        return crypto_sign(data, private)[:SIGNATURE_BYTES]

    return Contact(PeerId(public), _address(index)), sign
