"""The certificate that proves a peer id inside TLS, as libp2p's TLS specification has it.

The certificate's own key is a throwaway P-256 key (measured: signing and verifying with it is
about 40 % cheaper than with Ed25519). The extension 1.3.6.1.4.1.53594.1.1 binds the peer's
identity to it:

    SignedKey ::= SEQUENCE { publicKey OCTET STRING, signature OCTET STRING }

`publicKey` is the protobuf-wrapped identity key and `signature` is made with it over
"libp2p-tls-handshake:" and the certificate's SubjectPublicKeyInfo. TLS itself proves that the
other side holds the certificate's key, this extension proves that the identity vouches for that
key, and the validity window and the self-signature are checked here too.
"""

from __future__ import annotations

import datetime
import os

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives._serialization import Encoding, PublicFormat
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID, SignatureAlgorithmOID

from weft.bounded import BoundedDict
from weft.documents.signature import verified
from weft.ids import PEER_ID_BYTES, PeerId
from weft.net.errors import CertificateFault
from weft.net.identity import Identity

EXTENSION = x509.ObjectIdentifier("1.3.6.1.4.1.53594.1.1")
SIGNED_PREFIX = b"libp2p-tls-handshake:"
LIFETIME = datetime.timedelta(days=36_500)  # libp2p's advice: about a century
BACKDATE = datetime.timedelta(hours=1)  # guess: clocks of peers differ

# Protobuf of libp2p's PublicKey {type: Ed25519 (1), data: 32 bytes}.
_KEY_PREFIX = bytes((0x08, 0x01, 0x12, 0x20))
_OCTET_STRING = 0x04
_SEQUENCE = 0x30
_ALGORITHMS = (
    SignatureAlgorithmOID.ECDSA_WITH_SHA256,
    SignatureAlgorithmOID.ECDSA_WITH_SHA384,
    SignatureAlgorithmOID.ED25519,
)

_PROVEN_MAX = 1_024  # guess: about half a megabyte
_proven: BoundedDict[bytes, PeerId] = BoundedDict(_PROVEN_MAX)
"""Certificates proven lately in this process, and whose: peers that meet again skip two signature
checks. Only successes are kept, and the validity window is checked every time."""


def signed_key(identity: Identity, spki: bytes) -> bytes:
    """The extension's value for a certificate with this SubjectPublicKeyInfo."""
    parts = _octets(_KEY_PREFIX + identity.peer) + _octets(identity.sign(SIGNED_PREFIX + spki))
    return bytes((_SEQUENCE, len(parts))) + parts


def make_certificate(
    identity: Identity,
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A fresh throwaway key and the self-signed certificate that carries the identity."""
    key = ec.generate_private_key(ec.SECP256R1())
    spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return key, sign_certificate(key, signed_key(identity, spki))


def sign_certificate(
    key: ec.EllipticCurvePrivateKey,
    extension: bytes | None,
    start: datetime.datetime | None = None,
    end: datetime.datetime | None = None,
) -> x509.Certificate:
    """A self-signed certificate around an extension value."""
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "weft")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(int.from_bytes(os.urandom(8), "big") // 2 + 1)
        .not_valid_before(start or now - BACKDATE)
        .not_valid_after(end or now + LIFETIME)
    )
    if extension is not None:
        value = x509.UnrecognizedExtension(EXTENSION, extension)
        builder = builder.add_extension(value, critical=True)
    return builder.sign(key, hashes.SHA256())


# --- checking ----------------------------------------------------------------------------------


def identify(certificate: x509.Certificate, now: datetime.datetime | None = None) -> PeerId:
    """The peer that this certificate proves; `CertificateFault` if it proves none."""
    now = now or datetime.datetime.now(datetime.UTC)
    try:
        return _identify(certificate, now)
    except CertificateFault:
        raise
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
        raise CertificateFault(f"unreadable certificate: {error}") from error


def _identify(certificate: x509.Certificate, now: datetime.datetime) -> PeerId:
    if now < certificate.not_valid_before_utc:
        raise CertificateFault("the certificate is not valid yet (is a clock wrong?)")
    if now > certificate.not_valid_after_utc:
        raise CertificateFault("the certificate has expired")
    der = certificate.public_bytes(Encoding.DER)
    proven = _proven.get(der) or _prove(certificate)
    _proven.renew(der, proven)
    return proven


def _prove(certificate: x509.Certificate) -> PeerId:
    """Check both signatures: expensive, and for one certificate always with the same outcome."""
    if certificate.signature_algorithm_oid not in _ALGORITHMS:
        raise CertificateFault("the certificate is signed with an algorithm weft does not accept")
    try:
        certificate.verify_directly_issued_by(certificate)
    except (InvalidSignature, ValueError, TypeError) as error:
        raise CertificateFault("the certificate's self-signature is wrong") from error
    try:
        extension = certificate.extensions.get_extension_for_oid(EXTENSION).value
    except x509.ExtensionNotFound:
        raise CertificateFault("the certificate carries no peer identity") from None
    if not isinstance(extension, x509.UnrecognizedExtension):
        raise CertificateFault("the certificate carries no readable peer identity")
    wrapped_key, signature = _parse_signed_key(extension.value)
    if wrapped_key[: len(_KEY_PREFIX)] != _KEY_PREFIX or len(wrapped_key) != (
        len(_KEY_PREFIX) + PEER_ID_BYTES
    ):
        raise CertificateFault("the certificate's identity is not an Ed25519 key")
    peer = PeerId(wrapped_key[len(_KEY_PREFIX) :])
    spki = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if not verified(peer, signature, SIGNED_PREFIX + spki):
        raise CertificateFault("the identity did not sign this certificate's key")
    return peer


# --- the few bytes of DER that the extension needs ---------------------------------------------


def _octets(data: bytes) -> bytes:
    return bytes((_OCTET_STRING, len(data))) + data


def _parse_signed_key(data: bytes) -> tuple[bytes, bytes]:
    """Both fields are shorter than 128 bytes for Ed25519, so every length is one byte."""
    if len(data) < 2 or data[0] != _SEQUENCE or data[1] != len(data) - 2 or data[1] > 127:
        raise CertificateFault("the certificate's identity extension is malformed")
    key, rest = _take_octets(data[2:])
    signature, rest = _take_octets(rest)
    if rest:
        raise CertificateFault("the certificate's identity extension has trailing bytes")
    return key, signature


def _take_octets(data: bytes) -> tuple[bytes, bytes]:
    if len(data) < 2 or data[0] != _OCTET_STRING or data[1] > len(data) - 2 or data[1] > 127:
        raise CertificateFault("the certificate's identity extension is malformed")
    return data[2 : 2 + data[1]], data[2 + data[1] :]
