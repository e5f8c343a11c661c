"""TLS 1.3 on memory buffers, both sides authenticated by peer id.

The standard library's `ssl` cannot look at a self-signed certificate while the handshake runs,
so this uses pyOpenSSL; and asyncio's TLS keeps a quarter of a megabyte of buffers per connection,
so bytes go in and out by hand here: `feed` ciphertext, `read` plaintext, `write` plaintext,
`pull` ciphertext. One `Credentials` (a certificate and an OpenSSL context) serves all connections
of a peer.

No session resumption. Measured, a full handshake costs both ends together 1.1 ms of CPU, and a
peer that meets others again already skips the certificate's signatures (`certificate.identify`).
What makes a network slow to settle are handshakes of peers that meet for the first time, which have
nothing to resume; a resumed session shows no certificate, so the identity would have to be kept
with the ticket and believed later; and tickets cost 900 bytes per connection and keep secrets
around.
"""

from __future__ import annotations

from contextlib import suppress

from cryptography import x509
from cryptography.hazmat.bindings.openssl.binding import Binding
from cryptography.hazmat.primitives._serialization import Encoding
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import Struct
from OpenSSL import SSL, crypto

from weft.ids import PeerId, peer_text
from weft.net.certificate import identify, make_certificate
from weft.net.errors import CertificateFault, Fault, TlsFault, WrongPeerFault
from weft.net.identity import Identity

ALPN = b"weft/1"
RECORD_BYTES = 16_384  # TLS: the most plaintext in one record
_HEADER_BYTES = 5  # TLS: a record's header; its last two bytes are the length of the rest
_RECORD_EXTRA = 22  # header 5, content type 1, tag 16
_PULL_SPARE = 4_096  # handshake messages that wait beside application data
_ANSWERS_BYTES_MAX = 4_096  # guess: of answers to key updates (150 of them) that wait for a write
_RECORD_KINDS = range(20, 25)  # TLS: what a record begins with (RFC 8446, B.1)
_NO_PROTOCOL = "no application protocol"  # how OpenSSL puts it when the other side says so
_NOT_WEFT = "the other side speaks TLS, but not weft"


# Records are read and written by the functions that pyOpenSSL calls: its own methods look at six
# callbacks around each. measured: a small one, from write to read, takes 4.6 µs in place of 7.7.
_lib, _ffi = Binding.lib, Binding.ffi
_room_for = _ffi.new_allocator(should_clear_after_alloc=False)


class Credentials:
    """A peer's identity, ready to be shown in handshakes."""

    def __init__(self, identity: Identity) -> None:
        key, certificate = make_certificate(identity)
        self.context = make_context(key, certificate)


def make_context(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> SSL.Context:
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_min_proto_version(SSL.TLS1_3_VERSION)
    context.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_COMPRESSION)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)  # an idle connection keeps no record buffers
    _show(context, key, certificate)
    context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _verify)
    context.set_alpn_protos([ALPN])
    context.set_alpn_select_callback(_select_protocol)
    return context


# P-256's key in DER (RFC 5915): the number, the curve's name, the point.
_KEY_NUMBER = bytes.fromhex("30770201010420")
_KEY_POINT = bytes.fromhex("a00a06082a8648ce3d030107a14403420004")


def _show(
    context: SSL.Context, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
) -> None:
    """Have the context show a certificate. `use_privatekey` and `use_certificate` do the same, but
    load the readers of all kinds of keys, SSH's too: 0.2 MB of a process (measured)."""
    private = key.private_numbers()
    point = private.public_numbers
    number, x, y = (one.to_bytes(32, "big") for one in (private.private_value, point.x, point.y))
    loaded = crypto.load_privatekey(crypto.FILETYPE_ASN1, _KEY_NUMBER + number + _KEY_POINT + x + y)
    shown = crypto.load_certificate(crypto.FILETYPE_ASN1, certificate.public_bytes(Encoding.DER))
    if not _lib.SSL_CTX_use_PrivateKey(context._context, loaded._pkey):
        raise TlsFault("TLS: OpenSSL does not take this peer's key")
    if not _lib.SSL_CTX_use_certificate(context._context, shown._x509):
        raise TlsFault("TLS: OpenSSL does not take this peer's certificate")


class Ended(Exception):
    """The other side closed its half cleanly (close_notify)."""


class Channel:
    """One TLS connection. `peer` is known once `handshake` has returned True."""

    __slots__ = (
        "_claim",
        "_dialled",
        "_first",
        "_header",
        "_in",
        "_missing",
        "_out",
        "_ssl",
        "_tls",
        "_unread",
    )

    def __init__(
        self, credentials: Credentials, dialled: bool, expected: PeerId | None = None
    ) -> None:
        self._tls = SSL.Connection(credentials.context)
        self._ssl, self._in, self._out = self._tls._ssl, self._tls._into_ssl, self._tls._from_ssl
        self._claim = _Claim(expected)
        self._dialled = dialled
        self._first = -1  # the first byte that came, which tells TLS from anything else
        self._unread = 0  # whole records that came, an upper bound of those that can be read
        self._missing = 0  # bytes that an unfinished record still lacks
        self._header = b""  # the part of a record's header that came, while it is unfinished
        self._tls.set_app_data(self._claim)
        if dialled:
            self._tls.set_connect_state()
        else:
            self._tls.set_accept_state()

    @property
    def peer(self) -> PeerId:
        assert self._claim.peer is not None
        return self._claim.peer

    def feed(self, ciphertext: bytes | memoryview) -> None:
        if self._first < 0 and ciphertext:
            self._first = ciphertext[0]
        _lib.BIO_write(self._in, _ffi.from_buffer(ciphertext), len(ciphertext))
        self._count_records(ciphertext)

    def _count_records(self, data: bytes | memoryview) -> None:
        """Count the records that are whole: asking OpenSSL in vain takes as long as decrypting a
        small record (measured: 2 µs and more)."""
        if self._header:
            data, self._header = self._header + bytes(data), b""
        at, size = self._missing, len(data)
        whole = 0 < at <= size
        while at + _HEADER_BYTES <= size:
            self._unread += whole
            at += _HEADER_BYTES + (data[at + 3] << 8 | data[at + 4])
            whole = at <= size
        self._unread += whole
        self._missing = max(0, at - size)
        if at < size:
            self._header = bytes(data[at:])

    def handshake(self) -> bool:
        """Go on with the handshake; True when it is done, a `Fault` when it cannot be."""
        try:
            self._tls.do_handshake()
        except SSL.WantReadError:
            return False
        except SSL.Error as error:
            raise self._claim.fault or TlsFault(self._refusal(error)) from error
        # A `TlsFault` of `_select_protocol` comes through as it is.
        self._check_agreed()
        return True

    def _refusal(self, error: SSL.Error) -> str:
        """Why the handshake failed, also for a user that took something else for a peer."""
        reason = _reason(error)
        if self._first >= 0 and self._first not in _RECORD_KINDS:
            other = "what answers there" if self._dialled else "the caller"
            return f"{other} is no weft peer: it does not speak TLS (a web server, perhaps?)"
        if reason.endswith(_NO_PROTOCOL):
            return _NOT_WEFT
        return f"TLS: {reason}"

    def _check_agreed(self) -> None:
        if self._tls.get_alpn_proto_negotiated() != ALPN:
            raise TlsFault(_NOT_WEFT)
        # OpenSSL counts the peer's own certificate on the dialling side only.
        chain = self._tls.get_peer_cert_chain() or ()
        if len(chain) > (1 if self._dialled else 0):
            raise CertificateFault("more than one certificate was presented")
        if self._claim.peer is None:
            raise self._claim.fault or CertificateFault("no certificate was presented")

    def read(self) -> bytes | None:
        """The plaintext of the next record; None when more ciphertext is needed."""
        if not self._unread:
            return None
        room = _room_for("char[]", RECORD_BYTES)
        size = _lib.SSL_read(self._ssl, room, RECORD_BYTES)
        if size > 0:
            self._unread -= 1
            plaintext: bytes = _ffi.buffer(room, size)[:]
            return plaintext
        try:
            self._tls._raise_ssl_error(self._ssl, size)
        except SSL.WantReadError:  # what was whole belonged to the handshake
            self._unread = 0
            self._check_answers()
        except SSL.ZeroReturnError:
            raise Ended from None
        except SSL.Error as error:
            raise TlsFault(f"TLS: {_reason(error)}") from error
        return None

    def _check_answers(self) -> None:
        """OpenSSL answers each key update that asks for it, and the answers wait for the next
        write: a caller that only updates its keys would have them pile up."""
        if _lib.BIO_get_mem_data(self._out, _ffi.NULL) > _ANSWERS_BYTES_MAX:
            raise TlsFault("TLS: too many key updates")

    def write(self, plaintext: bytes) -> bytes:
        """The ciphertext of `plaintext`, after all that waited to go out."""
        data, at, size = _ffi.from_buffer(plaintext), 0, len(plaintext)
        while at < size:  # a record at a time
            written = _lib.SSL_write(self._ssl, data + at, size - at)
            if written <= 0:
                self._refuse_write(written)
            at += written
        return self.pull(size + (size // RECORD_BYTES + 1) * _RECORD_EXTRA + _PULL_SPARE)

    def _refuse_write(self, result: int) -> None:
        try:
            self._tls._raise_ssl_error(self._ssl, result)
        except SSL.Error as error:
            raise TlsFault(f"TLS: {_reason(error)}") from error
        raise TlsFault("TLS: nothing was written")

    def pull(self, most: int = _PULL_SPARE) -> bytes:
        """Ciphertext that waits to go out."""
        room = _room_for("char[]", most)
        size = _lib.BIO_read(self._out, room, most)
        if size <= 0:
            return b""
        found: bytes = _ffi.buffer(room, size)[:]
        return found if size < most else found + self.pull(most)

    def end(self) -> bytes:
        """Close this half: the ciphertext of close_notify. Reading goes on."""
        with suppress(SSL.Error):  # not up yet, or broken: nothing to close politely
            self._tls.shutdown()
        return self.pull()


class _Claim(Struct):
    """The peer that was dialled, and the peer or the fault that the handshake found."""

    expected: PeerId | None
    peer: PeerId | None = None
    fault: Fault | None = None


def _verify(
    connection: SSL.Connection, certificate: crypto.X509, _error: int, depth: int, _ok: int
) -> bool:
    """OpenSSL's callback for a certificate, called possibly several times. OpenSSL's own verdict
    (self-signed, unknown extension) does not count; weft judges once."""
    claim: _Claim = connection.get_app_data()
    if claim.fault is None and claim.peer is None:
        try:
            if depth:
                raise CertificateFault("more than one certificate was presented")
            peer = identify(certificate.to_cryptography())
            if claim.expected is not None and peer != claim.expected:
                raise WrongPeerFault(
                    f"wanted peer {peer_text(claim.expected)}, "
                    f"but {peer_text(peer)} answers at this address"
                )
            claim.peer = peer
        except Fault as fault:
            claim.fault = fault
        except Exception as error:  # a certificate that breaks a parser is a bad certificate
            claim.fault = CertificateFault(f"unreadable certificate: {error}")
    return claim.fault is None


def _select_protocol(_connection: SSL.Connection, offered: list[bytes]) -> bytes:
    if ALPN not in offered:
        raise TlsFault("the caller speaks TLS, but not weft")  # pyOpenSSL makes it an alert
    return ALPN


def _reason(error: SSL.Error) -> str:
    """The short text in OpenSSL's error stack."""
    if isinstance(error, SSL.SysCallError):
        return "the connection ended in the middle of the handshake"
    stack = error.args[0] if error.args else None
    if isinstance(stack, list) and stack and isinstance(stack[-1], tuple):
        return str(stack[-1][-1])
    return str(error) or type(error).__name__
