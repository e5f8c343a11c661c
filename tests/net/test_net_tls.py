"""TLS on memory buffers: what is read does not depend on how the bytes came."""

from __future__ import annotations

import pytest

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
