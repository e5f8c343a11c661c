"""Signatures of descriptors and records: Ed25519 over a purpose and the signed bytes.

The purpose keeps a signature given for one kind of thing from passing for another. Signatures are
libsodium's (PyNaCl): verifying them is the costly part of taking in an event. measured: it verifies
about 17,500 a second on a core, `cryptography` 9,200 (docs/descriptors.md); it signs in 19 µs,
`cryptography` in 32, with the same result. libsodium also refuses signatures that were altered by
another than the signer (S not below the group's order) and keys of small order, so nobody but its
author can make a second block of one event.

libsodium's functions are called as PyNaCl's own modules call them: those modules wrap all of
libsodium and are 0.35 MB of every process (measured), and copy what was signed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import TypeAlias

from nacl._sodium import ffi, lib

from weft.ids import PEER_ID_BYTES, PeerId

SIGNATURE_BYTES = 64
SEED_BYTES = 32
"""An Ed25519 private key as it is kept in files: what the pair of keys is made of."""
_SECRET_BYTES = 64  # libsodium: the seed and the public key

if lib.sodium_init() < 0:
    raise ImportError("libsodium does not start: it found no source of random numbers")

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
    whole = signature + signed
    found: int = lib.crypto_sign_open(ffi.NULL, ffi.NULL, whole, len(whole), key)
    return found == 0


def key_pair(seed: bytes) -> tuple[PeerId, bytes]:
    """The public key of a private one, and what `sign` takes, which begins with the private one."""
    if len(seed) != SEED_BYTES:
        raise ValueError(f"a private key has {SEED_BYTES} bytes, not {len(seed)}")
    public = ffi.new("unsigned char[]", PEER_ID_BYTES)
    secret = ffi.new("unsigned char[]", _SECRET_BYTES)
    lib.crypto_sign_seed_keypair(public, secret, seed)
    return PeerId(ffi.buffer(public)[:]), ffi.buffer(secret)[:]


def sign(data: bytes, secret: bytes) -> bytes:
    """The signature over `data` with a key of `key_pair`."""
    signed = ffi.new("unsigned char[]", SIGNATURE_BYTES + len(data))
    lib.crypto_sign(signed, ffi.NULL, data, len(data), secret)
    signature: bytes = ffi.buffer(signed, SIGNATURE_BYTES)[:]
    return signature
