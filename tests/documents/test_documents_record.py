"""Topic records: valid ones stand, the latest is chosen, and every wrong way is refused."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import dag_cbor
import pytest
from hypothesis import given
from hypothesis import strategies as st

from signed_kit import ANNA, BEN, CAROL, NOW_MS, SPORTS, Key, event, topic
from weft.documents import record
from weft.documents.record import LIFE_MS, LIFE_MS_MAX, Record
from weft.documents.refusal import Reason, Refused
from weft.ids import BadId, Cid, Topic, cid_of, parse_cid
from weft.rules import prefix

VALUE = topic().cid


def sealed(
    key: Key = ANNA,
    holders: tuple[Key, ...] = (ANNA, BEN),
    value: Cid = VALUE,
    sequence: int = 1,
    now_ms: int = NOW_MS,
    name: Topic = SPORTS,
) -> Record:
    return record.seal(
        key.sign,
        signer=key.peer,
        holders=[holder.peer for holder in holders],
        topic=name,
        value=value,
        sequence=sequence,
        now_ms=now_ms,
    )


HELD = sealed()


def reason_of(encoded: bytes, name: bytes = HELD.name, now_ms: int = NOW_MS) -> Reason:
    with pytest.raises(Refused) as refused:
        record.open_record(encoded, name, now_ms)
    return refused.value.reason


def altered(**changes: Any) -> bytes:
    whole: Any = dag_cbor.decode(HELD.encoded)
    whole = {**whole, **changes}
    return dag_cbor.encode({key: value for key, value in whole.items() if value is not ...})


@given(st.integers(0, 1 << 60), st.integers(0, 1 << 60), st.binary(max_size=9))
def test_a_record_survives(sequence: int, now_ms: int, content: bytes) -> None:
    made = sealed(BEN, sequence=sequence, now_ms=now_ms, value=cid_of(content))
    assert record.open_record(made.encoded, made.name, now_ms) == made
    assert (made.sequence, made.value, made.signer) == (sequence, cid_of(content), BEN.peer)
    assert made.expires_ms == now_ms + LIFE_MS
    assert dag_cbor.encode(dag_cbor.decode(made.encoded)) == made.encoded


def test_the_name_follows_from_topic_and_holders() -> None:
    assert HELD.name == record.name_of(SPORTS, [BEN.peer, ANNA.peer, BEN.peer])
    names = {
        record.name_of(SPORTS, [ANNA.peer]),
        record.name_of(SPORTS, [BEN.peer]),
        record.name_of(Topic("/sport"), [ANNA.peer]),
        HELD.name,
    }
    assert len(names) == 4
    text = record.name_text(HELD.name)
    with pytest.raises(BadId):
        parse_cid(text)


def test_several_keys_hold_a_topic() -> None:
    second = sealed(BEN, sequence=2)
    assert second.name == HELD.name
    assert record.open_record(second.encoded, HELD.name, NOW_MS) == second


def test_renewal_is_due_at_half_the_life_and_replaces() -> None:
    assert HELD.renew_ms == NOW_MS + LIFE_MS // 2
    renewed = sealed(BEN, now_ms=HELD.renew_ms)
    assert record.open_record(renewed.encoded, HELD.name, HELD.renew_ms) == renewed
    assert renewed.rank > HELD.rank


def test_all_choose_alike() -> None:
    later = sealed(BEN, now_ms=NOW_MS + 1)
    higher = sealed(sequence=2, now_ms=NOW_MS - 1)
    rival = sealed(BEN, sequence=2, now_ms=NOW_MS - 1)
    encoded = [each.encoded for each in (HELD, later, higher, rival)]
    winner = max(higher.encoded, rival.encoded)
    for order in permutations(encoded):
        assert order[record.choose(order)] == winner
    assert record.choose([HELD.encoded, HELD.encoded]) == 0
    assert record.choose([HELD.encoded, later.encoded]) == 1


def test_wrong_name() -> None:
    assert reason_of(HELD.encoded, record.name_of(SPORTS, [ANNA.peer])) == Reason.WRONG_NAME
    assert reason_of(sealed(name=Topic("/other")).encoded) == Reason.WRONG_NAME


def test_expired() -> None:
    assert record.open_record(HELD.encoded, HELD.name, HELD.expires_ms - 1)
    assert reason_of(HELD.encoded, now_ms=HELD.expires_ms) == Reason.EXPIRED


def test_lasts_too_long() -> None:
    early = HELD.expires_ms - LIFE_MS_MAX
    assert record.open_record(HELD.encoded, HELD.name, early)
    assert reason_of(HELD.encoded, now_ms=early - 1) == Reason.LASTS_TOO_LONG


def test_not_holder() -> None:
    assert reason_of(altered(signer=CAROL.peer)) == Reason.NOT_HOLDER


def test_bad_signature() -> None:
    assert reason_of(altered(sequence=2)) == Reason.BAD_SIGNATURE
    assert reason_of(altered(signer=BEN.peer)) == Reason.BAD_SIGNATURE
    assert reason_of(HELD.encoded[:-1] + b"\0") == Reason.BAD_SIGNATURE


def test_not_canonical() -> None:
    longer = HELD.encoded.replace(b"hsequence\x01", b"hsequence\x18\x01")
    assert longer != HELD.encoded
    assert reason_of(longer) == Reason.NOT_CANONICAL
    assert reason_of(HELD.encoded + b"\0") == Reason.NOT_CANONICAL


def test_too_large() -> None:
    assert reason_of(bytes(record.RECORD_BYTES_MAX + 1)) == Reason.TOO_LARGE


@pytest.mark.parametrize(
    "changes",
    [
        {"value": ...},
        {"extra": 1},
        {"value": None},
        {"value": b"bytes"},
        {"name": "sports"},
        {"signer": b""},
        {"expires": -1},
        {"expires": "tomorrow"},
        {"holders": [BEN.peer, BEN.peer]},
        {"holders": None},
        {"sequence": True},
        {"sequence": 1 << 63},
    ],
)
def test_bad_shape(changes: dict[str, Any]) -> None:
    assert reason_of(altered(**changes)) == Reason.BAD_SHAPE


# --- as the DHT asks ------------------------------------------------------------------------------


def test_values_by_kind_of_key() -> None:
    made = event(b"x")
    blocks, records = record.KINDS[prefix.BLOCK], record.KINDS[prefix.TOPIC_RECORD]
    block_key, record_key = prefix.block_key(made.block), prefix.record_key(HELD.name)
    assert blocks.validate(block_key, made.block, NOW_MS) is None
    assert blocks.validate(prefix.block_key(topic().block), topic().block, NOW_MS) is None
    assert blocks.validate(block_key, topic().block, NOW_MS) == Reason.BAD_CID
    assert blocks.validate(prefix.block_key(b"\0"), b"\0", NOW_MS) is None  # whatever it means
    huge = bytes((1 << 20) + 1)
    assert blocks.validate(prefix.block_key(huge), huge, NOW_MS) == Reason.TOO_LARGE
    assert records.validate(record_key, HELD.encoded, NOW_MS) is None
    assert records.validate(record_key, HELD.encoded, HELD.expires_ms) == Reason.EXPIRED
    assert records.validate(record_key + b"x", HELD.encoded, NOW_MS) == Reason.WRONG_NAME
    assert records.choose([HELD.encoded, sealed(sequence=9).encoded]) == 1
    assert blocks.choose([made.block, made.block]) == 0


# --- notes that stand beside records --------------------------------------------------------------


def test_notes_and_records_are_told_apart() -> None:
    told, wishes = (
        record.seal_told(SPORTS, [BEN.peer, ANNA.peer, BEN.peer]),
        record.seal_wishes(SPORTS, {"tennis": CAROL.peer}),
    )
    assert record.read_told(told[1]) == (SPORTS, tuple(sorted((ANNA.peer, BEN.peer))))
    assert record.read_wishes(wishes[1]) == (SPORTS, {"tennis": CAROL.peer})
    real = sealed()
    for encoded in (wishes[1], real.encoded):
        assert record.read_told(encoded) is None
    for encoded in (told[1], real.encoded):
        assert record.read_wishes(encoded) is None
    names = {told[0], wishes[0], real.name, record.rival_name(real)}
    assert len(names) == 4


def test_a_note_that_is_not_one_is_refused() -> None:
    with pytest.raises(Refused):
        record.read_wishes(dag_cbor.encode({"name": "/sports", "asked": 7}))
    with pytest.raises(Refused):
        record.read_told(dag_cbor.encode({"name": "/sports", "holders": [b"short"]}))
