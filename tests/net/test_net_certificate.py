"""A certificate proves exactly the identity that signed its key, now, and nothing else."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from weft.net.certificate import (
    EXTENSION,
    identify,
    make_certificate,
    sign_certificate,
    signed_key,
)
from weft.net.errors import CertificateFault
from weft.net.identity import Identity

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
KEY = ec.generate_private_key(ec.SECP256R1())
VICTIM = Identity.generate()
ATTACKER = Identity.generate()


def spki(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def refused(certificate: x509.Certificate) -> str:
    with pytest.raises(CertificateFault) as caught:
        identify(certificate)
    return str(caught.value)


def test_a_certificate_proves_its_identity_and_so_it_does_again() -> None:
    _, certificate = make_certificate(VICTIM)
    assert identify(certificate) == VICTIM.peer
    assert identify(certificate) == VICTIM.peer  # from the cache
    der = x509.load_der_x509_certificate(certificate.public_bytes(Encoding.DER))
    assert identify(der) == VICTIM.peer


def test_two_certificates_of_one_identity_differ() -> None:
    (key, one), (other_key, other) = make_certificate(VICTIM), make_certificate(VICTIM)
    assert one != other
    assert spki(key) != spki(other_key)


def test_the_validity_window_counts_even_for_a_known_certificate() -> None:
    _, certificate = make_certificate(VICTIM)
    assert identify(certificate) == VICTIM.peer
    for moment, text in ((NOW - DAY, "not valid yet"), (NOW + 40_000 * DAY, "expired")):
        with pytest.raises(CertificateFault, match=text):
            identify(certificate, moment)


def test_expired_and_future_certificates_are_refused() -> None:
    extension = signed_key(VICTIM, spki(KEY))
    expired = sign_certificate(KEY, extension, NOW - 2 * DAY, NOW - DAY)
    future = sign_certificate(KEY, extension, NOW + DAY, NOW + 2 * DAY)
    assert "expired" in refused(expired)
    assert "not valid yet" in refused(future)


def test_a_certificate_without_identity_is_refused() -> None:
    assert "no peer identity" in refused(sign_certificate(KEY, None))


def test_an_identity_cannot_be_claimed_without_its_key() -> None:
    # The victim's public key beside a signature that the attacker can make.
    mine = signed_key(ATTACKER, spki(KEY))
    claimed = mine.replace(ATTACKER.peer, VICTIM.peer)
    assert claimed != mine
    assert "did not sign" in refused(sign_certificate(KEY, claimed))
    # The victim's whole extension, copied into a certificate for the attacker's key.
    stolen = signed_key(VICTIM, spki(ec.generate_private_key(ec.SECP256R1())))
    assert "did not sign" in refused(sign_certificate(KEY, stolen))


def test_a_tampered_signature_is_refused() -> None:
    extension = bytearray(signed_key(VICTIM, spki(KEY)))
    extension[-1] ^= 1
    assert "did not sign" in refused(sign_certificate(KEY, bytes(extension)))


def test_a_certificate_signed_by_another_key_is_refused() -> None:
    name = x509.Name([])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .add_extension(
            x509.UnrecognizedExtension(EXTENSION, signed_key(VICTIM, spki(KEY))), critical=True
        )
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )
    assert "self-signature" in refused(certificate)


def test_other_signature_algorithms_are_refused() -> None:
    key = rsa.generate_private_key(65_537, 2_048)
    name = x509.Name([])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .sign(key, hashes.SHA256())
    )
    assert "algorithm" in refused(certificate)


@given(st.binary(max_size=200))
def test_any_extension_bytes_are_refused_cleanly(extension: bytes) -> None:
    refused(sign_certificate(KEY, extension))


@given(st.data())
def test_any_damage_to_the_extension_is_refused(data: st.DataObject) -> None:
    good = signed_key(VICTIM, spki(KEY))
    at = data.draw(st.integers(0, len(good) - 1))
    flip = data.draw(st.integers(1, 255))
    damaged = good[:at] + bytes((good[at] ^ flip,)) + good[at + 1 :]
    refused(sign_certificate(KEY, damaged))
    refused(sign_certificate(KEY, good[:at]))
    refused(sign_certificate(KEY, good + bytes((flip,))))
