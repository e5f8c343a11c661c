"""Signatures of descriptors and records: Ed25519 over a purpose and the signed bytes.

The purpose keeps a signature given for one kind of thing from passing for another. Verification is
libsodium's (PyNaCl), the costly part of taking in an event. measured: about 17,500 a second on a
core against 9,200 for `cryptography` (docs/descriptors.md). libsodium also refuses signatures that
somebody other than the signer altered (S not below the group's order) and keys of small order, so
nobody but its author can make a second block of one event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from nacl.bindings import crypto_sign_open
from nacl.exceptions import CryptoError

from weft.ids import PEER_ID_BYTES, PeerId

SIGNATURE_BYTES = 64

Signer: TypeAlias = Callable[[bytes], bytes]
"""Signs bytes with a private key that stays where it is (`net.identity.Identity.sign`)."""


def verified(key: PeerId, signature: bytes, signed: bytes) -> bool:
    """Whether `key` signed these bytes."""
    if len(key) != PEER_ID_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        crypto_sign_open(signature + signed, key)
    except CryptoError:
        return False
    return True
