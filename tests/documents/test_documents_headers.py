"""Headers of events: what is put in comes out, and nothing else is taken for headers."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from signed_kit import ANNA, NOW_MS, SPORTS
from weft.documents.descriptor import open_event, seal_event
from weft.documents.headers import (
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    NAME_MAX,
    as_metadata,
    in_metadata,
    problem,
    unwrap,
    wrap,
)

OF_WEFT = {"incarnation": 1, "number": 1, "published_in": SPORTS}
MARK = wrap({"a": "b"}, b"")[:16]

names = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=NAME_MAX)
headers = st.dictionaries(names, st.text(st.characters(exclude_categories=["Cs"])), max_size=8)
payloads = st.binary() | st.binary().map(lambda rest: MARK + rest)


@given(headers, payloads)
def test_what_is_wrapped_comes_out(given: dict[str, str], payload: bytes) -> None:
    assume(not problem(given))
    assert unwrap(wrap(given, payload)) == (given, payload)


def test_what_has_no_headers_travels_as_it_is() -> None:
    assert wrap({}, b"payload") == b"payload"
    assert unwrap(b"") == ({}, b"")


@given(st.binary())
def test_what_only_looks_like_an_envelope_is_a_payload(rest: bytes) -> None:
    found, payload = unwrap(MARK + rest)
    assert not problem(found)
    assert payload in (MARK + rest, rest[3:]) if not found else rest.endswith(payload)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"": "x"}, "1 to 64"),
        ({"x" * 65: "x"}, "1 to 64"),
        ({"a\n": "x"}, "printable"),
        ({"a": 5}, "texts"),
        ({5: "a"}, "texts"),
        ({"a": "\ud800"}, "UTF-8"),
        ({"a": "x" * HEADERS_BYTES_MAX}, "too long"),
        ({str(number): "" for number in range(HEADERS_MAX + 1)}, "too many"),
    ],
)
def test_bounds(wrong: dict[str, str], why: str) -> None:
    assert why in problem(wrong)


def test_too_many_in_an_envelope_or_a_document_are_none() -> None:
    many = {str(number): "" for number in range(HEADERS_MAX + 1)}
    assert unwrap(wrap(many, b"x")) == ({}, wrap(many, b"x"))
    assert in_metadata(as_metadata(many)) == {}


def test_headers_are_signed_with_the_event() -> None:
    full = {str(number): "x" * 100 for number in range(HEADERS_MAX)}
    for written in ({"kind": "order"}, full):
        sealed = seal_event(
            ANNA.sign,
            publisher=ANNA.peer,
            topic=SPORTS,
            payload=b"goal",
            created_ms=NOW_MS,
            metadata={
                "incarnation": 1,
                "number": 1,
                "published_in": SPORTS,
                **as_metadata(written),
            },
        )
        opened = open_event(sealed.block, sealed.cid)
        assert in_metadata(opened.metadata) == written
        assert opened.payload == b"goal"
