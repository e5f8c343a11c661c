"""CAR archives: other libraries read ours, and ours believes nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from io import BytesIO
from pathlib import Path

import dag_cbor
import libipld
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from multiformats import CID
from multiformats import varint as of_others

from signed_kit import ANNA, BEN, CAROL, NOW_MS, SPORTS, chain, event, topic
from weft.documents import dagcbor
from weft.documents.descriptor import SealedEvent, TopicVersion
from weft.documents.refusal import Reason
from weft.ids import cid_of, cid_text, varint
from weft.store import car
from weft.store.interface import Batch, Retention
from weft.store.memory import MemoryStore

NODE_FOLDER = Path(__file__).parents[1] / "node"
FIRST = topic(allowed=[BEN.peer])
SECOND = topic(allowed=[], parent=FIRST.cid)
TRUNK = chain(3)
EVENTS = [
    *TRUNK,
    (SIDE := event(b"side", TRUNK[0], key=BEN, link=FIRST.cid)),
    event(b"join", TRUNK[2], SIDE, link=SECOND.cid),
]


def filled() -> MemoryStore:
    store = MemoryStore()
    store.commit([Batch(NOW_MS, tuple(EVENTS), (FIRST, SECOND))])
    return store


def archive(*found: SealedEvent | TopicVersion) -> BytesIO:
    return BytesIO(b"".join(car.encode([], [(each.cid, each.block) for each in found])))


def test_there_and_back() -> None:
    data = b"".join(car.export(filled(), SPORTS))
    store = MemoryStore()
    loaded = car.load(store, BytesIO(data), NOW_MS)
    assert (loaded.events, loaded.topics, loaded.known, loaded.waiting) == (5, 2, 0, 0)
    assert not loaded.refused
    assert store.events(SPORTS) == filled().events(SPORTS)
    assert store.heads(SPORTS) == filled().heads(SPORTS)
    assert store.get(FIRST.cid) == FIRST.block
    again = car.load(store, BytesIO(data), NOW_MS)
    assert (again.events, again.known) == (0, 5)


def test_another_library_reads_it() -> None:
    data = b"".join(car.export(filled(), SPORTS))
    header, blocks = libipld.decode_car(data)
    assert header == {"roots": [EVENTS[-1].cid], "version": 1}
    assert len(blocks) == 7
    length, size, _ = of_others.decode_raw(data)
    assert dag_cbor.decode(data[size : size + length]) == {
        "version": 1,
        "roots": [CID.decode(cid_text(EVENTS[-1].cid))],
    }
    sections = car.decode(BytesIO(data))
    assert {found.cid for found in sections} == set(blocks)


@given(st.integers(0, 1 << 28))
def test_lengths(number: int) -> None:
    assert varint(number) == of_others.encode(number)


@given(st.permutations([FIRST, SECOND, *EVENTS]))
def test_in_any_order(blocks: list[SealedEvent | TopicVersion]) -> None:
    store = MemoryStore()
    loaded = car.load(store, archive(*blocks), NOW_MS)
    assert (loaded.events, loaded.waiting, loaded.refused) == (5, 0, {})
    assert store.heads(SPORTS) == filled().heads(SPORTS)


def test_a_publisher_that_was_not_allowed_is_refused_in_any_order() -> None:
    """The version that says so may come after the event."""
    wrong = event(b"x", key=CAROL, link=FIRST.cid)
    for blocks in ((FIRST, wrong), (wrong, FIRST)):
        store = MemoryStore()
        assert car.load(store, archive(*blocks), NOW_MS).refused == {Reason.NOT_ALLOWED: 1}
        assert not store.events(SPORTS)


def test_a_large_stream_backwards() -> None:
    """More than a stream lets wait for parents (32 MiB)."""
    events = [event(bytes(600_000))]
    for _ in range(60):
        events.append(event(bytes(600_000), events[-1]))
    loaded = car.load(MemoryStore(), archive(*reversed(events)), NOW_MS)
    assert (loaded.events, loaded.waiting, loaded.refused) == (61, 0, {})


def foreign() -> list[bytes]:
    """Blocks of others: raw bytes, a CIDv0, dag-cbor that is no document of weft, a large one."""
    cbor = dag_cbor.encode({"hello": [1, 2, 3]})
    return [
        bytes((0x01, 0x55, 0x12, 0x20)) + bytes(32) + b"raw",
        bytes((0x12, 0x20)) + bytes(32) + b"of version 0",
        cid_of(cbor) + cbor,
        bytes((0x01, 0x55, 0x12, 0x20)) + bytes(32) + bytes(3_000_000),
        b"\x01\x71\x12\x20",
    ]


def test_blocks_of_others_are_skipped() -> None:
    data = framed(PLAIN_HEADER)
    strangers = foreign()
    for place, each in enumerate((FIRST, SECOND, *EVENTS)):
        data += framed(strangers[place]) if place < len(strangers) else b""
        data += framed(each.cid + each.block)
    store = MemoryStore()
    loaded = car.load(store, BytesIO(data), NOW_MS)
    assert (loaded.events, loaded.foreign, loaded.refused) == (5, len(strangers), {})


def test_version_2_with_and_without_an_index() -> None:
    whole = b"".join(car.export(filled(), SPORTS))
    pragma = bytes.fromhex("0aa16776657273696f6e02")
    for gap, index in ((b"", b""), (bytes(37), b"an index that is not looked at")):
        start = len(pragma) + 40 + len(gap)
        fields = (start, len(whole), start + len(whole) if index else 0)
        header = bytes(16) + b"".join(number.to_bytes(8, "little") for number in fields)
        loaded = car.load(MemoryStore(), BytesIO(pragma + header + gap + whole + index), NOW_MS)
        assert (loaded.events, loaded.topics, loaded.refused) == (5, 2, {})


def test_archives_that_another_library_wrote() -> None:
    """`ipld.car` was written by @ipld/car 5 (Node): a raw block, a dag-cbor block of its own, and
    weft's blocks in reverse order; `ipld2.car` is the same with a header of version 2."""
    for name in ("ipld.car", "ipld2.car"):
        store = MemoryStore()
        with (Path(__file__).parent / name).open("rb") as file:
            loaded = car.load(store, file, NOW_MS)
        assert (loaded.events, loaded.foreign, loaded.refused) == (5, 2, {})
        assert store.heads(SPORTS) == filled().heads(SPORTS)


def test_an_archive_goes_through_another_library_and_comes_back(tmp_path: Path) -> None:
    """@ipld/car reads what is exported here, and what it writes of that is read here. `.ci/run`
    installs it; elsewhere `npm ci --prefix tests/node` does."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node to run @ipld/car with (Debian: nodejs, npm)")
    if not (NODE_FOLDER / "node_modules" / "@ipld" / "car").is_dir():
        pytest.skip("@ipld/car is not installed: npm ci --prefix tests/node")
    ours, theirs = tmp_path / "ours.car", tmp_path / "theirs.car"
    ours.write_bytes(b"".join(car.export(filled(), SPORTS)))
    program = [node, str(NODE_FOLDER / "archive.mjs"), str(ours), str(theirs)]
    told = json.loads(subprocess.run(program, check=True, capture_output=True).stdout)
    assert told["roots"] == [cid_text(cid) for cid in filled().heads(SPORTS)]
    assert {block["cid"] for block in told["blocks"]} == {
        cid_text(each.cid) for each in (FIRST, SECOND, *EVENTS)
    }
    assert all(block["same"] and block["keys"] for block in told["blocks"])
    store = MemoryStore()
    with theirs.open("rb") as file:
        loaded = car.load(store, file, NOW_MS)
    assert (loaded.events, loaded.topics, loaded.foreign, loaded.refused) == (5, 2, 0, {})
    assert store.heads(SPORTS) == filled().heads(SPORTS)


def test_a_part_of_a_stream() -> None:
    data = b"".join(car.export(filled(), SPORTS, since=TRUNK[1].cid))
    store = MemoryStore()
    store.commit([Batch(NOW_MS, tuple(TRUNK[:2]))])
    assert car.load(store, BytesIO(data), NOW_MS).events == 3
    assert store.events(SPORTS) == filled().events(SPORTS)
    empty = car.load(MemoryStore(), BytesIO(data), NOW_MS)
    assert (empty.events, empty.waiting) == (0, 3)


def test_pruned_history_is_not_loaded_again() -> None:
    store = filled()
    data = b"".join(car.export(store, SPORTS))
    store.prune(SPORTS, Retention(events=1), NOW_MS)
    loaded = car.load(store, BytesIO(data), NOW_MS)
    assert loaded.refused == {Reason.PRUNED: 4}
    assert store.summary(SPORTS).events == 1


def test_every_block_is_judged() -> None:
    forged = replace(EVENTS[0], block=EVENTS[0].block[:-1] + b"\0")
    forged = replace(forged, cid=cid_of(forged.block))
    misnamed = replace(EVENTS[1], cid=EVENTS[2].cid)
    not_allowed = event(b"x", key=CAROL, link=FIRST.cid)
    unknown = event(b"x", key=ANNA, link=cid_of(b"some other topic"))
    good = event(b"good", link=FIRST.cid)
    store = MemoryStore()
    loaded = car.load(store, archive(FIRST, forged, misnamed, not_allowed, unknown, good), NOW_MS)
    assert loaded.refused == {
        Reason.BAD_SIGNATURE: 1,
        Reason.BAD_CID: 1,
        Reason.NOT_ALLOWED: 1,
    }
    assert {one.cid for one in store.events(SPORTS)} == {good.cid, unknown.cid}


WHOLE = b"".join(car.export(filled(), SPORTS))
PLAIN_HEADER = dagcbor.mapping({"roots": dagcbor.array([]), "version": dagcbor.integer(1)})


def framed(data: bytes) -> bytes:
    return varint(len(data)) + data


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "is empty"),
        (b"\x01\xff", "CAR header"),
        (b"\x05ab", "ends in the middle"),
        (b"\x80", "ends in the middle"),
        (b"\xff" * 20, "makes no sense"),
        (b"\x00", "makes no sense"),
        (framed(dagcbor.mapping({"version": dagcbor.integer(2)})), "ends in its header"),
        (framed(dagcbor.mapping({"version": dagcbor.integer(2)})) + bytes(40), "inside of it"),
        (framed(dagcbor.mapping({"version": dagcbor.integer(3)})), "versions 1 and 2"),
        (framed(dagcbor.mapping({"version": dagcbor.integer(1)})), "no roots"),
        (framed(PLAIN_HEADER) + varint(1 << 30) + bytes(40), "too long"),
        (framed(PLAIN_HEADER) + varint(1 << 20) + bytes(40), "ends in the middle"),
    ],
)
def test_files_that_are_no_archive(data: bytes, text: str) -> None:
    with pytest.raises(car.BadArchive, match=text):
        car.load(MemoryStore(), BytesIO(data), NOW_MS)


def test_what_comes_before_a_break_is_kept() -> None:
    store = MemoryStore()
    with pytest.raises(car.BadArchive, match="ends in the middle"):
        car.load(store, BytesIO(WHOLE[:-10]), NOW_MS)
    assert store.summary(SPORTS).events == 4
