"""TLS on memory buffers: what is read does not depend on how the bytes came."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from weft.net.errors import TlsFault
from weft.net.identity import Identity
from weft.net.tls import RECORD_BYTES, Channel, Credentials, Ended

MESSAGES = [b"a", b"b" * 300, b"c" * RECORD_BYTES, b"d" * (2 * RECORD_BYTES + 1), b"e"]


def pair() -> tuple[Channel, Channel]:
    """Both ends of a connection, the handshake done."""
    one = Channel(Credentials(Identity.generate()), dialled=True)
    other = Channel(Credentials(Identity.generate()), dialled=False)
    done = False
    while not done:
        one.handshake()
        other.feed(one.pull())
        done = other.handshake()
        one.feed(other.pull())
    return one, other


def read_all(channel: Channel) -> bytes:
    found = []
    while (data := channel.read()) is not None:
        found.append(data)
    return b"".join(found)


@pytest.mark.parametrize("size", [1, 3, 5, 22, 326, RECORD_BYTES, 1 << 20])
def test_all_is_read_that_came_whole_in_whatever_pieces(size: int) -> None:
    one, other = pair()
    ciphertext = b"".join(one.write(message) for message in MESSAGES)
    found = b""
    for at in range(0, len(ciphertext), size):
        other.feed(ciphertext[at : at + size])
        found += read_all(other)
    assert found == b"".join(MESSAGES)


def test_a_record_is_read_once_its_last_byte_came() -> None:
    one, other = pair()
    ciphertext = one.write(b"whole")
    other.feed(ciphertext[:-1])
    assert read_all(other) == b""
    other.feed(ciphertext[-1:] + one.write(b"next")[:4])  # and not even a header of the next
    assert read_all(other) == b"whole"


def test_what_came_with_the_end_of_the_handshake_is_read() -> None:
    one = Channel(Credentials(Identity.generate()), dialled=True)
    other = Channel(Credentials(Identity.generate()), dialled=False)
    one.handshake()
    other.feed(one.pull())
    other.handshake()
    one.feed(other.pull())
    assert one.handshake()
    other.feed(one.pull() + one.write(b"at once"))
    assert other.handshake() and read_all(other) == b"at once"


def test_the_end_is_told_after_all_that_came_before_it() -> None:
    one, other = pair()
    other.feed(one.write(b"last words") + one.end())
    assert other.read() == b"last words"
    with pytest.raises(Ended):
        other.read()


class Updater:
    """A dialling end that knows the secret of its own direction, and says in its name that its keys
    change (RFC 8446, 4.6.3), which pyOpenSSL cannot."""

    def __init__(self) -> None:
        credentials = Credentials(Identity.generate())
        self._lines: list[bytes] = []
        credentials.context.set_keylog_callback(lambda _, line: self._lines.append(line))
        self.channel = Channel(credentials, dialled=True)
        self._secret = b""

    def update(self, asks: bool) -> bytes:
        """The record that says so, and asks the other end to do the same or not. Nothing else was
        written before."""
        if not self._secret:
            (line,) = [one for one in self._lines if one.startswith(b"CLIENT_TRAFFIC_SECRET_0")]
            self._secret = bytes.fromhex(line.split()[2].decode())
        inner = bytes((24, 0, 0, 1, asks, 22))
        header = bytes((23, 3, 3, 0, len(inner) + 16))
        key, nonce = self._derived("key", 32), self._derived("iv", 12)
        self._secret = self._derived("traffic upd", 48)
        return header + AESGCM(key).encrypt(nonce, inner, header)

    def _derived(self, label: str, size: int) -> bytes:
        name = b"tls13 " + label.encode()
        info = size.to_bytes(2, "big") + bytes((len(name),)) + name + b"\0"
        return HKDFExpand(SHA384(), size, info).derive(self._secret)


def updating() -> tuple[Updater, Channel]:
    updater = Updater()
    other = Channel(Credentials(Identity.generate()), dialled=False)
    done = False
    while not done:
        updater.channel.handshake()
        other.feed(updater.channel.pull())
        done = other.handshake()
        updater.channel.feed(other.pull())
    return updater, other


def test_keys_may_change_often_and_what_is_written_goes_on() -> None:
    updater, other = updating()
    for number in range(1_000):
        other.feed(updater.update(asks=number % 10 == 0))
        assert other.read() is None
    updater.channel.feed(other.write(b"still here"))
    assert read_all(updater.channel) == b"still here"


def test_a_caller_that_only_changes_its_keys_does_not_fill_the_memory() -> None:
    updater, other = updating()
    with pytest.raises(TlsFault, match="too many key updates"):
        for _ in range(1_000):
            other.feed(updater.update(asks=True))
            other.read()
