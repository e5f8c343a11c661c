"""Descriptors: CIDs as another library computes them, round trips, and every refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dag_cbor
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multiformats import CID, multihash

from signed_kit import ANNA, BEN, CAROL, NOW_MS, SPORTS, Key, event, topic
from weft.documents import dagcbor, descriptor, shape
from weft.documents.merkle import Link, document
from weft.documents.refusal import Reason, Refused
from weft.ids import CID_BYTES, CID_PREFIX, BadId, Cid, Topic, cid_of, cid_text, parse_cid

scalars = st.one_of(st.text(max_size=20), st.booleans(), st.integers(-(1 << 62), 1 << 62))
metadata = st.dictionaries(
    st.text(max_size=12).filter(lambda key: key not in shape.RESERVED), scalars, max_size=6
)
# Among the payloads are those that look like CIDs, which libipld alone would take for links.
payloads = st.one_of(
    st.binary(max_size=300),
    st.binary(min_size=32, max_size=32).map(lambda digest: CID_PREFIX + digest),
    st.just(b"\x01\x55\x00\x00"),
)
cids = st.binary(min_size=32, max_size=32).map(lambda digest: Cid(CID_PREFIX + digest))
names = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="/.", exclude_categories=("Cc", "Cs"))
            , min_size=1, max_size=8),
    min_size=1, max_size=4,
).map(lambda parts: Topic("/" + "/".join(parts)))  # fmt: skip


def foreign(value: Any) -> Any:
    """A document of ours in the types of another IPLD library."""
    if isinstance(value, Link):
        return CID.decode(cid_text(value.cid))
    if isinstance(value, dict):
        return {key: foreign(item) for key, item in value.items()}
    return [foreign(item) for item in value] if isinstance(value, list) else value


def foreign_cid(block: bytes) -> str:
    return str(CID("base32", 1, "dag-cbor", multihash.digest(block, "sha2-256")))


@given(payloads, names, st.dictionaries(cids, st.integers(1, 1 << 40), max_size=16),
       st.none() | cids, metadata)  # fmt: skip
def test_an_event_survives_and_has_the_cid_others_compute(
    payload: bytes, name: Topic, parents: dict[Cid, int], link: Cid | None, extra: dict[str, Any]
) -> None:
    made = descriptor.seal_event(
        BEN.sign,
        publisher=BEN.peer,
        topic=name,
        payload=payload,
        created_ms=NOW_MS,
        parents=parents,
        link=link,
        metadata=extra,
    )
    assert descriptor.open_event(made.block, made.cid) == made
    assert descriptor.open_any(made.block) == made
    assert descriptor.known_event(made.block, made.cid) == made
    assert (made.payload, made.topic, made.link, made.metadata) == (payload, name, link, extra)
    assert made.height == 1 + max(parents.values(), default=0)
    theirs = dag_cbor.encode(foreign(document(made)))
    assert theirs == made.block
    assert foreign_cid(theirs) == cid_text(made.cid)


segments = names.map(lambda name: name.split("/")[1])


@given(names, st.dictionaries(segments, cids, max_size=5), st.none() | cids, metadata,
       st.none() | st.lists(st.sampled_from([ANNA, BEN, CAROL])))  # fmt: skip
def test_a_topic_survives_and_has_the_cid_others_compute(
    name: Topic,
    sub_topics: dict[str, Cid],
    parent: Cid | None,
    extra: dict[str, Any],
    allowed: list[Key] | None,
) -> None:
    made = topic(
        name,
        owners=[CAROL.peer],
        sub_topics=sub_topics,
        parent=parent,
        metadata=extra,
        allowed=None if allowed is None else [key.peer for key in allowed],
    )
    assert descriptor.open_topic(made.block, made.cid) == made
    assert descriptor.open_any(made.block) == made
    assert made.owners == tuple(sorted((ANNA.peer, CAROL.peer)))
    theirs = dag_cbor.encode(foreign(document(made)))
    assert theirs == made.block
    assert foreign_cid(theirs) == cid_text(made.cid)


@given(cids)
def test_cids_as_text(cid: Cid) -> None:
    text = cid_text(cid)
    assert parse_cid(text) == cid
    assert bytes(CID.decode(text)) == cid


@pytest.mark.parametrize(
    "text",
    [
        "",
        "b",
        "bafy!",
        "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKPbdG",
        cid_text(Cid(b"\x01\x70" + CID_PREFIX[2:] + bytes(32))),  # dag-pb
        cid_text(Cid(CID_PREFIX + bytes(32))).upper(),
        cid_text(Cid(CID_PREFIX + bytes(31))),
        "b" * 100_000,
    ],
)
def test_texts_that_are_no_cid(text: str) -> None:
    with pytest.raises(BadId):
        parse_cid(text)


# --- every wrong way ------------------------------------------------------------------------------


def reason_of(block: bytes, cid: Cid | None = None) -> Reason:
    with pytest.raises(Refused) as refused:
        descriptor.open_any(block, cid)
    return refused.value.reason


def altered(made: descriptor.SealedEvent | descriptor.TopicVersion, **changes: object) -> bytes:
    """The document with other fields, canonically encoded; None in `...` takes a field out."""
    whole = document(made) | changes
    return dag_cbor.encode(
        foreign({key: value for key, value in whole.items() if value is not ...})
    )


EVENT = event(b"x", event(b"a"), link=cid_of(b"a topic"))
TOPIC = topic(sub_topics={"football": cid_of(b"another")}, allowed=[BEN.peer])


def test_bad_cid() -> None:
    assert reason_of(EVENT.block, TOPIC.cid) == Reason.BAD_CID


def test_too_large() -> None:
    block = EVENT.block + bytes(descriptor.BLOCK_BYTES_MAX)
    assert reason_of(block, cid_of(block)) == Reason.TOO_LARGE
    with pytest.raises(Refused) as refused:
        event(bytes(descriptor.BLOCK_BYTES_MAX))
    assert refused.value.reason == Reason.TOO_LARGE


def test_the_largest_payload_fills_a_block_and_one_byte_more_is_too_large() -> None:
    """Beside as much as an event can have: then the block has not a byte to spare."""
    name, origin = Topic("/" + "t" * 255), "/" + "o" * 255
    extra: dict[str, dagcbor.Scalar] = {"number": dagcbor.INTEGER_MAX, "origin": origin}
    extra |= {f"header.{number:02}": "v" * 120 for number in range(24)}
    most = descriptor.payload_bytes_max(name, extra)

    def sealed(size: int) -> descriptor.SealedEvent:
        return descriptor.seal_event(
            BEN.sign,
            publisher=BEN.peer,
            topic=name,
            payload=bytes(size),
            created_ms=dagcbor.INTEGER_MAX,
            parents={cid_of(b"%d" % n): shape.HEIGHT_MAX - 1 for n in range(shape.PARENTS_MAX)},
            link=cid_of(b"a topic"),
            metadata=extra,
        )

    assert len(sealed(most).block) == descriptor.BLOCK_BYTES_MAX
    with pytest.raises(Refused) as refused:
        sealed(most + 1)
    assert refused.value.reason == Reason.TOO_LARGE
    assert most > descriptor.AMPLE_BYTES  # and fits though nothing of this is counted


def test_bad_signature() -> None:
    other = bytearray(EVENT.block)
    other[-1] ^= 1
    assert reason_of(bytes(other)) == Reason.BAD_SIGNATURE
    assert reason_of(altered(EVENT, payload=b"y")) == Reason.BAD_SIGNATURE
    assert reason_of(altered(EVENT, publisher=BEN.peer)) == Reason.BAD_SIGNATURE
    assert reason_of(altered(TOPIC, allowed=None)) == Reason.BAD_SIGNATURE
    assert reason_of(altered(EVENT, publisher=bytes(32))) == Reason.BAD_SIGNATURE  # small order


def test_nobody_else_can_sign_an_event_a_second_time() -> None:
    """S + L verifies where S < L is not checked, and would give one event two names."""
    order = (1 << 252) + 27742317777372353535851937790883648493
    signature = EVENT.block[-64:]
    s = int.from_bytes(signature[32:], "little") + order
    twin = EVENT.block[:-32] + s.to_bytes(32, "little")
    assert twin != EVENT.block
    assert reason_of(twin) == Reason.BAD_SIGNATURE


def test_a_signature_for_one_purpose_is_none_for_another() -> None:
    body = altered(EVENT, signature=...)
    signed = altered(EVENT, signature=ANNA.sign(b"weft topic:" + body))
    assert reason_of(signed) == Reason.BAD_SIGNATURE
    assert altered(EVENT, signature=ANNA.sign(b"weft event:" + body)) == EVENT.block


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\xff",
        b"\x81" * 10_000,  # nested too deep
        b"\xbb\x0f" + b"\xff" * 7,  # a map of more entries than there are bytes
        EVENT.block + b"\x00",
        EVENT.block[:-1],
        # The height 2 in two bytes: the same document, encoded longer.
        EVENT.block.replace(b"fheight\x02", b"fheight\x18\x02"),
        # The length of the signature in three bytes.
        EVENT.block.replace(b"isignature\x58\x40", b"isignature\x59\x00\x40"),
        # The payload as a link, and a link as bytes: libipld reads both alike.
        event(EVENT.cid).block.replace(
            dagcbor.binary(EVENT.cid), b"\xd8\x2a" + dagcbor.binary(b"\0" + EVENT.cid)
        ),
        EVENT.block.replace(dagcbor.link(EVENT.parents[0]), dagcbor.binary(EVENT.parents[0])),
    ],
)
def test_not_canonical(block: bytes) -> None:
    assert block != EVENT.block
    assert reason_of(block) == Reason.NOT_CANONICAL


def test_keys_out_of_order_are_not_canonical() -> None:
    head, rest = EVENT.block[:1], EVENT.block[1:]
    height = dagcbor.text("height") + b"\x02"
    topic_field, after = rest.split(height)
    assert reason_of(head + height + topic_field + after) == Reason.NOT_CANONICAL


@pytest.mark.parametrize("document", [1, "text", [], {}, {"name": "/a"}, None])
def test_unknown_kind(document: Any) -> None:
    assert reason_of(dag_cbor.encode(document)) == Reason.UNKNOWN_KIND


@pytest.mark.parametrize(
    "changes",
    [
        {"payload": ...},
        {"extra": 1},
        {"payload": "text"},
        {"payload": None},
        {"publisher": b"short"},
        {"publisher": "text"},
        {"signature": "text"},
        {"topic": "/sports"},
        {"topic": {"name": "/sports"}},
        {"topic": {"name": "/sports", "link": b"no link"}},
        {"topic": {"name": "sports", "link": None}},
        {"topic": {"name": 7, "link": None}},
        {"topic": {"name": "/" + "x" * 256, "link": None}},
        {"height": -1},
        {"height": 0},
        {"height": 1 << 53},
        {"height": True},
        {"height": 2.0},
        {"parents": {}},
        {"parents": [1]},
        {"parents": [b"no link"]},
        {"parents": [Link(EVENT.parents[0])] * 2},
        {"parents": [Link(max(EVENT.cid, TOPIC.cid)), Link(min(EVENT.cid, TOPIC.cid))]},
        {"metadata": None},
        {"metadata": {}},
        {"metadata": {"created": NOW_MS}},
        {"metadata": {"created": -1, "protocol": 1}},
        {"metadata": {"created": True, "protocol": 1}},
        {"metadata": {"created": NOW_MS, "protocol": 2}},
        {"metadata": {"created": NOW_MS, "protocol": True}},
        {"metadata": {"created": NOW_MS, "protocol": 1, "x": 1.5}},
        {"metadata": {"created": NOW_MS, "protocol": 1, "x": b"bytes"}},
        {"metadata": {"created": NOW_MS, "protocol": 1, "x": {}}},
        {"metadata": {"created": NOW_MS, "protocol": 1, "x": Link(EVENT.cid)}},
        {"metadata": {"created": NOW_MS, "protocol": 1, "x": "x" * 5_000}},
        {"metadata": {"created": NOW_MS, "protocol": 1, "x": 1 << 63}},
        {"metadata": {"created": NOW_MS, "protocol": 1} | {str(n): n for n in range(40)}},
    ],
)
def test_bad_shape_of_an_event(changes: dict[str, object]) -> None:
    assert reason_of(altered(EVENT, **changes)) == Reason.BAD_SHAPE


@pytest.mark.parametrize(
    "changes",
    [
        {"allowed": ...},
        {"extra": 1},
        {"#": []},
        {"#": {"football": 1}},
        {"#": {str(n): Link(EVENT.cid) for n in range(shape.SUB_TOPICS_MAX + 1)}},
        {"name": "sports"},
        {"author": b""},
        {"owners": [BEN.peer] * 2},
        {"owners": sorted((ANNA.peer, BEN.peer), reverse=True)},
        {"owners": ANNA.peer},
        {"owners": [bytes((n,)) * 32 for n in range(shape.OWNERS_MAX + 1)]},
        {"allowed": "anyone"},
        {"allowed": [b"short"]},
        {"parent": "text"},
        {"parent": [Link(EVENT.cid)]},
        {"signature": 1},
    ],
)
def test_bad_shape_of_a_topic(changes: dict[str, object]) -> None:
    assert reason_of(altered(TOPIC, **changes)) == Reason.BAD_SHAPE


def test_too_many_parents() -> None:
    parents = sorted(cid_of(b"%d" % number) for number in range(shape.PARENTS_MAX + 1))
    block = altered(EVENT, parents=[Link(cid) for cid in parents])
    assert reason_of(block) == Reason.TOO_MANY_PARENTS
    with pytest.raises(Refused) as refused:
        event(b"", *(event(b"%d" % number) for number in range(shape.PARENTS_MAX + 1)))
    assert refused.value.reason == Reason.TOO_MANY_PARENTS


def test_wrong_height_in_the_document_itself() -> None:
    assert reason_of(altered(EVENT, height=1)) == Reason.WRONG_HEIGHT
    assert reason_of(altered(EVENT, parents=[])) == Reason.WRONG_HEIGHT


def test_not_owner() -> None:
    assert reason_of(altered(TOPIC, author=BEN.peer)) == Reason.NOT_OWNER


@pytest.mark.parametrize("segment", ["", "..", "a/b", "/fruits", "a\n", "x" * 300])
def test_outside_parent(segment: str) -> None:
    block = altered(TOPIC, **{"#": {segment: Link(EVENT.cid)}})
    assert reason_of(block) == Reason.OUTSIDE_PARENT
    with pytest.raises(Refused) as refused:
        topic(sub_topics={segment: EVENT.cid})
    assert refused.value.reason == Reason.OUTSIDE_PARENT


@pytest.mark.parametrize("wrong", [{"created": 1}, {"protocol": 1}, {"\ud800": 1}, {"x": "\ud800"}])
def test_metadata_that_cannot_be_sealed(wrong: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        event(metadata=wrong)
    assert refused.value.reason == Reason.BAD_SHAPE


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(block: bytes) -> None:
    assert reason_of(block) in (Reason.NOT_CANONICAL, Reason.UNKNOWN_KIND)


@given(st.integers(0, len(EVENT.block) - 1), st.integers(1, 255))
def test_no_byte_of_a_block_can_change(index: int, change: int) -> None:
    block = bytearray(EVENT.block)
    block[index] ^= change
    assert reason_of(bytes(block)) is not None
    assert reason_of(bytes(block), EVENT.cid) == Reason.BAD_CID


def test_sizes_of_heads() -> None:
    for value in (0, 23, 24, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, (1 << 63) - 1):
        assert dagcbor.integer(value) == dag_cbor.encode(value)
        assert dagcbor.integer(-value - 1) == dag_cbor.encode(-value - 1)
    assert len(EVENT.cid) == CID_BYTES
    assert EVENT.topic == SPORTS


def test_the_vector_in_the_documentation() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "descriptors.md"
    *block, cid = page.read_text().split("```text\n")[1].split("```")[0].split()
    made = event(b"goal!")
    assert bytes.fromhex("".join(block)) == made.block
    assert cid == cid_text(made.cid)
