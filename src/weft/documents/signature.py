"""Signatures of descriptors and records: Ed25519 over a purpose and the signed bytes.

The purpose keeps a signature given for one kind of thing from passing for another. Verification is
libsodium's (PyNaCl), the costly part of taking in an event. measured: about 17,500 a second on a
core against 9,200 for `cryptography` (docs/descriptors.md). libsodium also refuses signatures that
were altered by another than the signer (S not below the group's order) and keys of small order, so
nobody but its author can make a second block of one event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import TypeAlias

from nacl.bindings import crypto_sign_open
from nacl.exceptions import CryptoError

from weft.ids import PEER_ID_BYTES, PeerId

SIGNATURE_BYTES = 64

Signer: TypeAlias = Callable[[bytes], bytes]
"""Signs bytes with a private key that stays where it is (`net.identity.Identity.sign`)."""

Verdicts: TypeAlias = MutableMapping[tuple[PeerId, bytes, bytes], bool]
"""By a key, a signature and what was signed: whether the key signed it."""
_verdicts: list[Verdicts] = []


@contextmanager
def remembered(verdicts: Verdicts) -> Iterator[None]:
    """Use and keep verdicts while this lasts: for a simulator, where all peers verify the same
    signatures in one process. A peer on a network would gain nothing, and where several share a
    process, the cost of one of them could not be measured any more."""
    _verdicts.append(verdicts)
    try:
        yield
    finally:
        _verdicts.pop()


def verified(key: PeerId, signature: bytes, signed: bytes) -> bool:
    """Whether `key` signed these bytes."""
    if not _verdicts:
        return _verified(key, signature, signed)
    what = key, signature, signed
    verdict = _verdicts[-1].get(what)
    if verdict is None:
        verdict = _verdicts[-1][what] = _verified(*what)
    return verdict


def _verified(key: PeerId, signature: bytes, signed: bytes) -> bool:
    if len(key) != PEER_ID_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        crypto_sign_open(signature + signed, key)
    except CryptoError:
        return False
    return True
