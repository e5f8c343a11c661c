"""Signed runs: what its publisher signed is proven, and nothing else is."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from nacl.bindings import crypto_sign_open

from weft.documents.run import (
    NOTHING_BEFORE,
    NUMBER_MAX,
    PAYLOAD_BYTES_MAX,
    RUN_MAX,
    Part,
    Proven,
    Run,
    Statement,
    sign_run,
    signed_bytes,
    verify_run,
    verify_statement,
)
from weft.ids import Topic
from weft.sim.node import keyed

T, OTHER = Topic("/t"), Topic("/other")
CONTACT, SIGN = keyed(1, 1)
PARTS = (Part(T, 4), Part(OTHER, 9))
payloads = st.lists(st.binary(max_size=40), min_size=1, max_size=RUN_MAX).map(tuple)


def signed(
    *said: bytes,
    first: int = 4,
    prev: bytes = b"\x07" * 32,
    sealed: bool = False,
    parts: tuple[Part, ...] = (),
) -> Proven:
    peer = CONTACT.peer
    return sign_run(SIGN, T, peer, 5, first, 1_000, said or (b"x",), prev, sealed, parts)


@given(payloads, st.integers(2, NUMBER_MAX - RUN_MAX), st.booleans())
def test_what_was_signed_is_proven_by_run_and_by_statement(
    said: tuple[bytes, ...], first: int, sealed: bool
) -> None:
    made = signed(*said, first=first, sealed=sealed)
    found = verify_run(T, made.run)
    assert found is not None
    assert (found.run, found.root, found.digest) == (made.run, made.root, made.digest)
    assert found.statement() == made.statement()
    assert verify_statement(T, made.statement()) == made.digest
    assert (made.statement().first, made.statement().last) == (first, made.run.last)
    assert [event.number for event in made.run.events()] == list(range(first, made.run.last + 1))


@pytest.mark.parametrize("parts", [(), PARTS])
@pytest.mark.parametrize("said", [(b"only",), (b"one", b"", b"three")])
def test_every_byte_that_is_flipped_is_refused(
    said: tuple[bytes, ...], parts: tuple[Part, ...]
) -> None:
    made = signed(*(said[:1] if parts else said), parts=parts)
    _refused_wherever_flipped(made.run, Run)
    _refused_wherever_flipped(made.statement(), Statement)


def _refused_wherever_flipped(true: Run | Statement, kind: type[Run] | type[Statement]) -> None:
    encoded = msgspec.msgpack.encode(true)
    decode = msgspec.msgpack.Decoder(kind).decode
    for place in range(len(encoded)):
        for bit in range(8):
            bent = bytearray(encoded)
            bent[place] ^= 1 << bit
            try:
                found = decode(bytes(bent))
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            assert found != true, (place, bit)
            proves = verify_run(T, found) if isinstance(found, Run) else verify_statement(T, found)
            assert proves is None, (place, bit)


def test_a_run_is_of_one_topic() -> None:
    made = signed()
    assert verify_run(OTHER, made.run) is None
    assert verify_statement(OTHER, made.statement()) is None


@given(payloads, payloads)
def test_other_payloads_have_another_root(
    mine: tuple[bytes, ...], other: tuple[bytes, ...]
) -> None:
    assert (signed(*mine).root == signed(*other).root) == (mine == other)


@given(payloads, st.data())
def test_payloads_do_not_move(said: tuple[bytes, ...], data: st.DataObject) -> None:
    """Neither over the bounds of their neighbours nor out of order, nor do they come and go."""
    made = signed(*said, b"last")
    cut = data.draw(st.integers(0, len(said) - 1))
    joined = (*said[:cut], said[cut] + b"last")
    for others in (said, (*said, b"last", b""), tuple(reversed((*said, b"last"))), joined):
        if others != (*said, b"last"):
            assert verify_run(T, replace(made.run, payloads=others)) is None


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 255, 256])
def test_a_nodes_hashes_are_no_payload(count: int) -> None:
    """A tree of fewer leaves does not pass for the one above it."""
    said = tuple(b"%d" % number for number in range(count))
    made = signed(*said)
    assert verify_run(T, replace(made.run, payloads=(made.root,))) is None


def test_the_tree_is_as_docs_wire_has_it() -> None:
    said = tuple(b"%d" % number for number in range(17))
    leaves = [
        sha256(b"".join((*(len(one).to_bytes(4, "big") for one in some), *some))).digest()
        for some in (said[:16], said[16:])
    ]
    assert signed(*said).root == sha256(b"\x01" + b"".join(leaves)).digest()
    assert signed(b"alone").root == sha256(b"\0\0\0\x05alone").digest()


def test_the_first_event_has_nothing_before_it() -> None:
    assert verify_run(T, signed(first=1, prev=NOTHING_BEFORE).run) is not None
    assert verify_run(T, signed(first=1).run) is None
    assert verify_statement(T, signed(first=1).statement()) is None


def test_what_is_too_much_is_refused_even_if_it_is_signed() -> None:
    assert verify_run(T, signed(bytes(PAYLOAD_BYTES_MAX)).run) is not None
    assert verify_run(T, signed(bytes(PAYLOAD_BYTES_MAX), b"x").run) is None
    assert verify_run(T, signed(*[b""] * (RUN_MAX + 1)).run) is None
    assert verify_run(T, signed(b"", b"", first=NUMBER_MAX).run) is None
    assert verify_run(T, signed(b"", first=NUMBER_MAX).run) is not None


def test_an_event_of_several_topics_is_alone_and_names_this_one() -> None:
    assert verify_run(T, signed(b"x", parts=PARTS).run) is not None
    assert verify_run(T, signed(b"x", b"y", parts=PARTS).run) is None
    assert verify_run(T, signed(b"x", first=5, parts=PARTS).run) is None
    assert verify_run(T, signed(b"x", parts=PARTS[1:]).run) is None


def test_anybody_can_check_what_was_signed() -> None:
    statement = signed(b"x", b"y").statement()
    said = signed_bytes(T, statement)
    assert crypto_sign_open(statement.signature + said, CONTACT.peer) == said
    assert said.startswith(b"weft run:" + CONTACT.peer) and said.endswith(b"/t")
