"""k-buckets: which peers are in, in which order, and which make room for others."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kademlia_kit import dht
from protocol_kit import contact
from weft.ids import GENERAL, Contact
from weft.protocol.kademlia.table import Table
from weft.rules.prefix import common_prefix

BITS = 8
TINY = dht(k=2, alpha=1, spare=2, failures_max=2, fresh_ms=100)


def table(own: int = 0) -> Table:
    return Table(
        own,
        BITS,
        k=TINY.k,
        spare=TINY.spare,
        failures_max=TINY.failures_max,
        fresh_ms=TINY.fresh_ms,
        takes=lambda contact, others: True,
    )


def hear(one: Table, key: int, now: int = 0) -> int | None:
    """The peers to probe."""
    probe = one.heard(key, GENERAL, contact(key), now)
    return probe.key if probe is not None else None


def keys(one: Table) -> list[int]:
    return [entry.key for entry in one]


def test_least_recently_seen_first() -> None:
    one = table()
    for now, key in enumerate((0x80, 0x81, 0x80)):
        hear(one, key, now)
    assert keys(one) == [0x81, 0x80]


def test_live_peers_stay_and_newcomers_wait() -> None:
    one = table()
    hear(one, 0x80), hear(one, 0x81)
    assert hear(one, 0x82, 500) == 0x80  # the least recently seen is probed
    assert hear(one, 0x83, 500) is None  # one probe at a time
    hear(one, 0x80, 510)  # it answers, and stays
    assert keys(one) == [0x81, 0x80]
    assert hear(one, 0x84, 520) == 0x81  # the next one's turn


def test_a_peer_that_does_not_answer_makes_room_for_the_latest_newcomer() -> None:
    one = table()
    hear(one, 0x80), hear(one, 0x81)
    hear(one, 0x82, 500), hear(one, 0x83, 500)
    assert one.failed(0x80)  # probed again
    assert 0x80 in keys(one)
    assert not one.failed(0x80)
    assert keys(one) == [0x81, 0x83]


def test_failures_count_in_a_row_only() -> None:
    one = table()
    hear(one, 0x80)
    for _ in range(5):
        one.failed(0x80)
        hear(one, 0x80)
    assert keys(one) == [0x80]


def test_a_peer_that_was_seen_lately_is_not_probed() -> None:
    """A flood of strangers causes no flood of probes."""
    one = table()
    hear(one, 0x80, 1_000), hear(one, 0x81, 1_000)
    probes = [hear(one, key, 1_000 + key - 0x82) for key in range(0x82, 0xE0)]
    assert probes == [None] * len(probes)
    assert keys(one) == [0x80, 0x81]


def test_a_table_holds_neither_its_owner_nor_peers_that_cannot_be_reached() -> None:
    one = table(7)
    hear(one, 7)
    one.heard(9, GENERAL, Contact(contact(9).peer, ""), 0)
    assert keys(one) == []


def test_only_a_peer_itself_moves() -> None:
    one = table()
    hear(one, 0x80)
    moved = Contact(contact(0x80).peer, "/ip4/127.0.0.1/tcp/9")
    one.heard(0x80, GENERAL, moved, 5)
    assert [entry.contact for entry in one] == [moved]


def test_ranges_to_look_into() -> None:
    one = table()
    assert one.deepest() == -1 and one.thin() == []
    hear(one, 0x80, 0), hear(one, 0x81, 0), hear(one, 0x20, 50)
    assert one.thin() == [1, 2]  # bucket 0 is full, 1 empty, 2 has room, nothing beyond
    assert one.untouched(since=40) == [0]
    one.touch(0xFF, 60)
    assert one.untouched(since=40) == []


steps = st.lists(
    st.tuples(st.sampled_from(("heard", "failed", "remove")), st.integers(0, 255)), max_size=120
)


@settings(max_examples=200)
@given(st.integers(0, 255), steps, st.integers(0, 255), st.integers(1, 20))
def test_whatever_happens(own: int, script: list[tuple[str, int]], target: int, count: int) -> None:
    """Bounds and order hold, and `closest` is what sorting everybody would give."""
    one = table(own)
    for now, (what, key) in enumerate(script):
        if what == "heard":
            one.heard(key, GENERAL, contact(key), now * 40)
        elif what == "failed":
            one.failed(key)
        else:
            one.remove(key)
            assert one.get(key) is None
    everybody = list(one)
    found = keys(one)
    assert own not in found
    assert len(set(found)) == len(found) == len(one)
    for bucket in range(BITS):
        members = [e for e in everybody if common_prefix(own, e.key, BITS) == bucket]
        assert len(members) <= TINY.k
        assert [e.seen_ms for e in members] == sorted(e.seen_ms for e in members)
    nearest = sorted(found, key=lambda key: key ^ target)[:count]
    assert [entry.key for entry in one.closest(target, count)] == nearest
    sound = sorted((e.key for e in everybody if not e.failures), key=lambda key: key ^ target)
    assert [entry.key for entry in one.closest(target, count, sound=True)] == sound[:count]
    removed = 0
    while one.deepest() >= 0:  # each one removed makes room for one that waits
        deepest = one.deepest()
        members = [e.key for e in one if common_prefix(own, e.key, BITS) == deepest]
        one.remove(members[0])
        removed += 1
    assert removed - len(found) <= TINY.spare * len({common_prefix(own, k, BITS) for k in found})
