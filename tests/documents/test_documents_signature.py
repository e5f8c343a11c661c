"""Keys and signatures are PyNaCl's; verdicts on them may be remembered, and only for a while."""

from __future__ import annotations

import pytest
from nacl.bindings import crypto_sign, crypto_sign_seed_keypair

from weft.documents.signature import (
    SIGNATURE_BYTES,
    Verdicts,
    key_pair,
    remembered,
    sign,
    verified,
)
from weft.ids import PeerId

_PUBLIC, _PRIVATE = crypto_sign_seed_keypair(bytes(32))
KEY = PeerId(_PUBLIC)
SIGNATURE = crypto_sign(b"said", _PRIVATE)[:SIGNATURE_BYTES]


def test_a_verdict_is_about_the_key_the_signature_and_what_was_signed() -> None:
    other = PeerId(crypto_sign_seed_keypair(bytes(31) + b"\1")[0])
    verdicts: Verdicts = {}
    for _ in range(2):
        with remembered(verdicts):
            assert verified(KEY, SIGNATURE, b"said")
            assert not verified(KEY, SIGNATURE, b"not said")
            assert not verified(other, SIGNATURE, b"said")
            assert not verified(KEY, bytes(SIGNATURE_BYTES), b"said")
            assert not verified(KEY, b"", SIGNATURE + b"said")
            assert not verified(KEY, SIGNATURE + b"sa", b"id")
            assert not verified(PeerId(_PUBLIC[:-1]), SIGNATURE, b"said")
    assert len(verdicts) == 7


def test_what_is_remembered_is_not_verified_again_and_only_while_it_lasts() -> None:
    verdicts: Verdicts = {(KEY, SIGNATURE, b"said"): False}
    with remembered(verdicts):
        assert not verified(KEY, SIGNATURE, b"said")
        with remembered({}):
            assert verified(KEY, SIGNATURE, b"said")
        assert not verified(KEY, SIGNATURE, b"said")
    assert verified(KEY, SIGNATURE, b"said")


def test_keys_and_signatures_are_those_of_pynacl() -> None:
    assert key_pair(bytes(32)) == (_PUBLIC, _PRIVATE)
    assert sign(b"said", _PRIVATE) == SIGNATURE
    assert verified(KEY, sign(b"", _PRIVATE), b"")
    with pytest.raises(ValueError, match="32 bytes"):
        key_pair(bytes(31))
