"""A cursor reads every stored event once, parents first, whatever is killed in between."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from signed_kit import ANNA, BEN, CAROL, NOW_MS, SPORTS, chain, event, forked
from weft.documents.descriptor import SealedEvent
from weft.ids import Cid, Topic
from weft.store import cursor as cursor_module
from weft.store.cursor import (
    NOW,
    Cursor,
    PositionError,
    PositionGap,
    PositionUnknown,
)
from weft.store.interface import Batch, Retention, Store
from weft.store.memory import MemoryStore
from weft.store.sqlite import SqliteStore

OTHER = Topic("/other")


def put(store: Store, *events: SealedEvent) -> None:
    store.commit([Batch(NOW_MS, events)])


def read(cursor: Cursor, limit: int = 1_000) -> list[bytes]:
    return [one.event.payload for one in cursor.read(limit)]


def test_what_is_stored_and_then_what_comes(store: Store) -> None:
    events = forked()
    put(store, *events[:2])
    cursor = Cursor(store, SPORTS)
    assert read(cursor, 1) == [events[0].payload]
    put(store, events[2])  # came after reading began, and lies above
    assert read(cursor) == [events[1].payload, events[2].payload]
    assert read(cursor) == []
    put(store, events[3], events[4])  # the first lies below what was read
    assert read(cursor) == [b"side", b"join"]


def test_reading_goes_on_after_each_event(store: Store) -> None:
    events = forked()
    put(store, *events)
    payloads = [one.payload for one in events]
    reads = Cursor(store, SPORTS).read()
    assert sorted(one.event.payload for one in reads) == sorted(payloads)
    for number, one in enumerate(reads):
        left = [later.event.payload for later in reads[number + 1 :]]
        assert read(Cursor(store, SPORTS, one.position)) == left


def test_now_is_what_comes_from_now_on(store: Store) -> None:
    one, two, three = chain(3)
    put(store, one)
    cursor = Cursor(store, SPORTS, NOW)
    kept = cursor.position
    assert read(cursor) == []
    put(store, two, three)
    assert read(cursor) == [two.payload, three.payload]
    assert read(Cursor(store, SPORTS, kept)) == [two.payload, three.payload]


def test_the_past_that_comes_after_now_is_not_handed_out(store: Store) -> None:
    """Neither while it runs nor from a position that was kept."""
    *past, last, new, newer = chain(12)
    put(store, last)  # where another member stood
    cursor = Cursor(store, SPORTS, NOW)
    first = cursor.position
    put(store, new)
    [one] = cursor.read()
    assert one.event == new
    put(store, *past, newer)
    for after, left in ((first, [new, newer]), (one.position, [newer])):
        assert read(Cursor(store, SPORTS, after)) == [event.payload for event in left]
    assert read(cursor) == [newer.payload]


def test_an_old_event_shows_once_the_past_has_been_read(store: Store) -> None:
    """As long as that is under way, an event below where reading began is waited at."""
    one, two, last, new = chain(4)
    beside = event(b"beside", one, key=BEN)
    put(store, last)
    cursor = Cursor(store, SPORTS, NOW)
    put(store, new, one, beside)
    assert [r.event for r in cursor.read(past_read=False)] == [new]
    assert cursor.waits and cursor.read(past_read=False) == []
    put(store, two)
    assert read(cursor) == [b"beside"] and not cursor.waits


def test_what_lay_before_the_beginning_of_the_peer_is_not_waited_at(store: Store) -> None:
    one, _, last, new = chain(4)
    put(store, last)
    cursor = Cursor(store, SPORTS, NOW, before=lambda event: event == one)
    put(store, one, new)
    assert [r.event for r in cursor.read(past_read=False)] == [new]
    assert not cursor.waits


def test_a_long_past_is_passed_over_bit_by_bit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_module, "PASSED_AT_ONCE", 4)
    *past, last, new = chain(12)
    put(store, last)
    cursor = Cursor(store, SPORTS, NOW)
    put(store, *past, new)
    rounds = 0
    while not (found := read(cursor, 4)):
        assert cursor.passed
        rounds += 1
    assert found == [new.payload] and rounds == 2


def test_now_is_where_another_member_stands(store: Store) -> None:
    """What was published elsewhere before is older, what this peer publishes meanwhile is not."""
    here, *missed, there = chain(5)
    own = event(b"own", here, key=BEN)
    both = event(b"both", there, own, key=CAROL)
    put(store, here)
    cursor = Cursor(store, SPORTS, NOW)
    put(store, own, *missed, there, both)
    unknown = event(b"not to be had")
    cursor.begin_after([(both.cid, both.height), (unknown.cid, 1)], lambda event: event == own)
    kept = cursor.position
    assert read(cursor) == [b"own", b"both"]
    assert read(Cursor(store, SPORTS, kept)) == [b"own", b"both"]


def test_what_follows_own_events_by_many_ways_is_looked_at_once(store: Store) -> None:
    here = event(b"here")
    put(store, here)
    cursor = Cursor(store, SPORTS, NOW)
    own = top = event(b"own", here, key=BEN)
    put(store, own)
    for number in range(40):  # each time two that fork off, and one that joins them
        sides = [event(b"%d" % number, top, key=key) for key in (ANNA, CAROL)]
        top = event(b"join %d" % number, *sides)
        put(store, *sides, top)
    cursor.begin_after([(top.cid, top.height)], lambda event: event == own)
    assert len(read(cursor)) == 121


def test_a_past_that_came_later_and_was_dropped_is_no_gap(store: Store) -> None:
    *past, last, new, newer = chain(12)
    put(store, last)
    cursor = Cursor(store, SPORTS, NOW)
    put(store, new)
    [one] = cursor.read()
    put(store, *past)
    store.prune(SPORTS, Retention(events=2), NOW_MS)
    put(store, newer)
    assert read(cursor) == [newer.payload]
    later = Cursor(store, SPORTS, one.position)
    assert read(later) == [newer.payload]
    put(store, *chain(20)[12:])
    store.prune(SPORTS, Retention(events=2), NOW_MS)
    with pytest.raises(PositionGap):  # what is newer is one
        later.read()


def test_from_the_beginning_a_store_that_began_later_lacks_the_past(store: Store) -> None:
    one, two, three, four = chain(4)
    put(store, one, four)
    store.commit([Batch(NOW_MS, lost=((SPORTS, three.cid),))])  # as it lay before the beginning
    assert Cursor(store, SPORTS).lacks_past
    put(store, two, three)
    assert not Cursor(store, SPORTS).lacks_past
    put(store, *chain(8)[6:])
    assert Cursor(store, SPORTS).lacks_past
    store.prune(SPORTS, Retention(events=1), NOW_MS)
    assert not Cursor(store, SPORTS).lacks_past


def test_in_another_store_what_a_position_covers_may_come_later(store: Store) -> None:
    events = chain(6)
    here = MemoryStore(b"here")
    put(here, *events)
    place = Cursor(here, SPORTS).read()[3].position
    put(store, *events[2:])
    cursor = Cursor(store, SPORTS, place)
    assert read(cursor) == [events[4].payload, events[5].payload]
    put(store, *events[:2])
    assert read(cursor) == []


def test_other_topics_do_not_count(store: Store) -> None:
    cursor = Cursor(store, SPORTS)
    put(store, *(event(b"%d" % n, topic=OTHER) for n in range(3)))
    assert read(cursor) == []
    put(store, event(b"mine"))
    assert read(cursor) == [b"mine"]


def test_another_store_goes_on_from_the_frontier() -> None:
    """In which the same events arrived in another order, and more of them."""
    here, there = MemoryStore(b"here"), MemoryStore(b"there")
    one, two, three, side, join = forked()
    put(here, one, side, two)
    put(there, one, two, three, side, join)
    reads = Cursor(here, SPORTS).read()
    assert {r.event.cid for r in reads} == {one.cid, side.cid, two.cid}
    assert read(Cursor(there, SPORTS, reads[-1].position)) == [three.payload, b"join"]


def test_a_store_that_lacks_what_a_position_covers_says_so(store: Store) -> None:
    """What comes there later could not be told from news."""
    events = chain(6)
    here = MemoryStore(b"here")
    put(here, *events)
    place = Cursor(here, SPORTS).read()[3].position
    put(store, *events[2:])
    assert Cursor(store, SPORTS, place).lacks_past
    put(store, events[1], events[0])
    complete = Cursor(store, SPORTS, place)
    assert not complete.lacks_past
    assert read(complete) == [events[4].payload, events[5].payload]


def test_what_retention_dropped_of_what_a_position_covers_is_not_lacking(store: Store) -> None:
    events = chain(6)
    here = MemoryStore(b"here")
    put(here, *events)
    place = Cursor(here, SPORTS).read()[3].position
    put(store, *events)
    store.prune(SPORTS, Retention(events=4), NOW_MS)
    assert not Cursor(store, SPORTS, place).lacks_past


def test_two_stores_in_memory_are_not_taken_for_one() -> None:
    """The event read last may have the same number of arrival in both."""
    root, *branches = crowd(3)
    for order in permutations(branches):
        here, there = MemoryStore(), MemoryStore()
        put(here, root, *branches[:2])
        put(there, root, *order)
        reads = Cursor(here, SPORTS).read()
        for count, one in enumerate(reads, 1):
            done = [earlier.event.payload for earlier in reads[:count]]
            left = read(Cursor(there, SPORTS, one.position))
            assert sorted(done + left) == [b"0", b"1", b"2", b"root"]


def test_a_copy_of_the_store_that_went_another_way_is_noticed(tmp_path: Path) -> None:
    one, two, three = chain(3)
    with_two = SqliteStore(tmp_path / "a.db")
    put(with_two, one)
    with_two.close()
    (tmp_path / "b.db").write_bytes((tmp_path / "a.db").read_bytes())
    original, copy = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "b.db")
    assert original.identity() == copy.identity()
    put(original, two, three)
    [*_, last] = Cursor(original, SPORTS).read()
    side = event(b"side", one, key=BEN)
    put(copy, side, two, three)
    assert read(Cursor(copy, SPORTS, last.position)) == [b"side"]
    original.close()
    copy.close()


@pytest.mark.parametrize("text", ["", "weft1-", "weft1-AAAA", "nonsense", "weft1-ééé", "Now"])
def test_what_is_no_position_is_an_error(store: Store, text: str) -> None:
    with pytest.raises(PositionError, match="is no position"):
        Cursor(store, SPORTS, text)


def test_a_damaged_position_is_an_error(store: Store) -> None:
    put(store, *chain(2))
    [first, _] = Cursor(store, SPORTS).read()
    for place in range(6, len(first.position), 7):
        other = "A" if first.position[place] != "A" else "B"
        damaged = first.position[:place] + other + first.position[place + 1 :]
        with pytest.raises(PositionError):
            Cursor(store, SPORTS, damaged)


def test_a_position_of_another_topic_is_an_error(store: Store) -> None:
    put(store, event(b"one"))
    [one] = Cursor(store, SPORTS).read()
    with pytest.raises(PositionError, match="one in /sports, not in /other"):
        Cursor(store, OTHER, one.position)


def test_a_position_from_elsewhere_is_an_error() -> None:
    here, there = MemoryStore(b"here"), MemoryStore(b"there")
    put(here, event(b"one"))
    put(there, event(b"two"))
    [one] = Cursor(here, SPORTS).read()
    with pytest.raises(PositionUnknown, match="not stored here"):
        Cursor(there, SPORTS, one.position)


def test_what_retention_dropped_unread_is_a_gap_that_is_named(store: Store) -> None:
    events = chain(10)
    put(store, *events)
    reads = Cursor(store, SPORTS).read(4)
    running = Cursor(store, SPORTS, reads[3].position)
    store.prune(SPORTS, Retention(events=6), NOW_MS)  # what was read, and no more
    assert read(running, 1) == [events[4].payload]
    store.prune(SPORTS, Retention(events=3), NOW_MS)
    for cursor in (running, Cursor(store, SPORTS, reads[3].position)):
        with pytest.raises(PositionGap, match=r"up to height 7 is not kept any more"):
            cursor.read()
    assert read(Cursor(store, SPORTS)) == [one.payload for one in events[7:]]


def test_a_gap_while_what_comes_is_read(store: Store) -> None:
    cursor = Cursor(store, SPORTS, NOW)
    put(store, *chain(10))
    store.prune(SPORTS, Retention(events=3), NOW_MS)
    with pytest.raises(PositionGap):
        cursor.read()


def test_numbers_of_arrival_are_not_used_again(store: Store) -> None:
    """The event that came last is dropped: the next one must not pass for it."""
    one, two, three = chain(3)
    put(store, two, three, one)  # the lowest came last
    cursor = Cursor(store, SPORTS)
    assert len(read(cursor)) == 3
    kept = cursor.position
    store.prune(SPORTS, Retention(events=2), NOW_MS)
    put(store, event(b"next", three))
    assert read(Cursor(store, SPORTS, kept)) == [b"next"]


def crowd(count: int) -> list[SealedEvent]:
    """A first event, and so many that follow it without knowing of each other."""
    root = event(b"root")
    return [root, *(event(b"%d" % number, root) for number in range(count))]


def test_another_store_goes_on_however_many_publish_at_once() -> None:
    events = crowd(400)
    here, there = MemoryStore(b"here"), MemoryStore(b"there")
    put(here, *events)
    put(there, events[0], *reversed(events[1:]))
    reads = Cursor(here, SPORTS).read()
    for count in (1, 200, 300, 390, 401):
        done = [one.event.payload for one in reads[:count]]
        left = read(Cursor(there, SPORTS, reads[count - 1].position))
        assert sorted(done + left) == sorted(one.payload for one in events)


def test_a_position_that_cannot_name_all_branches_is_refused_by_other_stores(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_module, "FRONTIER_MAX", 8)
    events = crowd(20)
    put(store, *events)
    there = MemoryStore(b"there")
    put(there, *events)
    reads = Cursor(store, SPORTS).read()
    assert len(reads[-1].position) < 64 * 10
    for count, one in enumerate(reads, 1):
        left = [later.event.payload for later in reads[count:]]
        assert read(Cursor(store, SPORTS, one.position)) == left
        if count <= 9:  # the first one, and eight branches
            assert sorted(read(Cursor(there, SPORTS, one.position))) == sorted(left)
        else:
            with pytest.raises(PositionError, match="only in the store that it was taken from"):
                Cursor(there, SPORTS, one.position)


def test_once_all_is_read_and_the_branches_are_joined_positions_name_all_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_module, "FRONTIER_MAX", 8)
    events = crowd(20)
    joined = [event(b"a", *events[1:16]), event(b"b", *events[16:])]
    put(store, *events, *joined)
    cursor = Cursor(store, SPORTS, Cursor(store, SPORTS).read()[15].position)
    assert len(read(cursor)) == 7
    last = event(b"c", *joined)
    put(store, last)
    [only] = cursor.read()
    there = MemoryStore(b"there")
    put(there, *events, *joined, last, event(b"d", last))
    assert read(Cursor(there, SPORTS, only.position)) == [b"d"]


def test_a_position_of_before_may_leave_branches_out_without_a_word() -> None:
    """It named 256 of them at most. The text is opaque: this is how it was made."""
    events = crowd(256)
    there = MemoryStore(b"there")
    put(there, *events)
    marks = [(one.height, one.cid) for one in events[1:]]
    for named, refused in ((marks, True), (marks[:255], False)):
        packed = msgpack.encode((SPORTS, b"here", 257, None, events[-1].cid, named, []))
        text = urlsafe_b64encode(sha256(packed).digest()[:6] + packed).decode().rstrip("=")
        if refused:
            with pytest.raises(PositionError, match="only in the store"):
                Cursor(there, SPORTS, f"weft1-{text}")
        else:
            assert read(Cursor(there, SPORTS, f"weft1-{text}")) == [events[-1].payload]


# --- a new store, in which members put what they have not dropped ---------------------------------


def test_what_all_members_have_dropped_unread_is_a_gap_in_a_new_store(store: Store) -> None:
    events = chain(10)
    here = MemoryStore(b"here")
    put(here, *events)
    place = Cursor(here, SPORTS).read()[3].position
    put(store, *events[6:])
    with pytest.raises(PositionGap, match=r"at height 4 .* up to height 6 is not kept any more"):
        Cursor(store, SPORTS, place)
    with pytest.raises(PositionUnknown):  # members may still bring it
        Cursor(store, SPORTS, place, past_read=False)


def test_a_new_store_goes_on_where_members_have_dropped_no_more_than_was_read(store: Store) -> None:
    one, two, three, side, join = forked()
    here = MemoryStore(b"here")
    put(here, one, two, three, side)
    *_, last = Cursor(here, SPORTS).read()
    put(store, join)  # both of its parents were read, and dropped
    assert read(Cursor(store, SPORTS, last.position)) == [b"join"]
    put(store, event(b"more", join))
    assert read(Cursor(store, SPORTS, last.position)) == [b"join", b"more"]


def test_a_branch_that_was_dropped_unread_is_a_gap_in_a_new_store(store: Store) -> None:
    one, two, three, _, join = forked()
    here = MemoryStore(b"here")
    put(here, one, two, three)
    *_, last = Cursor(here, SPORTS).read()
    put(store, join)  # which follows the side branch, too
    with pytest.raises(PositionGap):
        Cursor(store, SPORTS, last.position)


def test_a_position_above_what_a_new_store_has_is_no_gap(store: Store) -> None:
    events = chain(10)
    here = MemoryStore(b"here")
    put(here, *events)
    place = Cursor(here, SPORTS).read()[8].position
    put(store, *events[4:7])
    with pytest.raises(PositionUnknown):
        Cursor(store, SPORTS, place)


def test_what_was_read_and_dropped_on_several_branches_is_no_gap(store: Store) -> None:
    one, two, three, side, join = forked()
    here = MemoryStore(b"here")
    put(here, one, two, side)
    *_, last = Cursor(here, SPORTS).read()
    put(store, one, two, three, side, join)
    store.prune(SPORTS, Retention(events=2), NOW_MS)  # three and join stay
    assert read(Cursor(store, SPORTS, last.position)) == [three.payload, b"join"]


def test_places_of_consumers_are_kept(store: Store) -> None:
    assert store.acked(SPORTS, "billing") == ""
    store.commit([Batch(NOW_MS, acks=((SPORTS, "billing", "a"), (OTHER, "billing", "b")))])
    store.commit([Batch(NOW_MS, acks=((SPORTS, "billing", "c"),))])
    assert (store.acked(SPORTS, "billing"), store.acked(OTHER, "billing")) == ("c", "b")


# --- any stream, any crash ------------------------------------------------------------------------


@st.composite
def streams(draw: st.DrawFn) -> list[SealedEvent]:
    """Events of several publishers with random parents, in an order in which parents come first."""
    made: list[SealedEvent] = []
    for number in range(draw(st.integers(1, 14))):
        among = st.sampled_from(made) if made else st.nothing()
        parents = draw(st.lists(among, max_size=2, unique_by=lambda one: one.cid)) if made else []
        key = draw(st.sampled_from([ANNA, BEN, CAROL]))
        made.append(event(b"%d" % number, *parents, key=key))
    return made


@given(events=streams(), data=st.data())
def test_each_event_once_and_after_its_parents_whatever_is_killed(
    events: list[SealedEvent], data: st.DataObject
) -> None:
    """A reader that keeps its position with each result is killed at any step, and the store is at
    times another one that has the same events in another order of arrival."""
    stores = [MemoryStore(b"here"), MemoryStore(b"there")]
    orders = [list(events), data.draw(topological(events))]
    store, stored = 0, [0, 0]
    results: dict[Cid, SealedEvent] = {}
    kept: str | None = None
    cursor = Cursor(stores[store], SPORTS)
    steps = data.draw(st.lists(st.sampled_from(["put", "read", "kill", "move"]), max_size=40))
    for step in [*steps, "finish"]:
        if step == "put" or step == "finish":
            for one in (0, 1) if step == "finish" else (store,):
                upto = len(events) if step == "finish" else stored[one] + 1
                put(stores[one], *orders[one][stored[one] : upto])
                stored[one] = min(upto, len(events))
        if step == "move":  # both stores have what was read, as members of one topic
            store = 1 - store
            lacking = [e for e in orders[store] if e.cid in results]
            put(stores[store], *lacking)
        if step in ("kill", "move"):
            cursor = Cursor(stores[store], SPORTS, kept)
        if step in ("read", "finish"):
            for one in cursor.read(3 if step == "read" else 1_000):
                assert one.event.cid not in results, "an event came twice"
                known = {e.cid for e in events}
                assert all(p in results for p in one.event.parents if p in known)
                results[one.event.cid] = one.event
                kept = one.position
                if step == "read" and data.draw(st.booleans()):  # killed within a page
                    cursor = Cursor(stores[store], SPORTS, kept)
                    break
    assert set(results) == {e.cid for e in events}


@given(events=streams(), data=st.data())
def test_from_now_on_each_new_event_once_and_no_old_one(
    events: list[SealedEvent], data: st.DataObject
) -> None:
    """The store has the ends of the stream alone when reading begins; the rest of the past comes in
    at any time, new events come in at any time, and the reader is killed at any step."""
    count = data.draw(st.integers(0, len(events)))
    old, new = events[:count], events[count:]
    followed = {parent for one in old for parent in one.parents}
    store = MemoryStore(b"here")
    put(store, *(one for one in old if one.cid not in followed))
    lacking = [one for one in old if one.cid in followed]
    cursor = Cursor(store, SPORTS, NOW)
    kept, results = cursor.position, list[SealedEvent]()
    steps = data.draw(st.lists(st.sampled_from(["old", "new", "read", "kill"]), max_size=40))
    for step in [*steps, *["old"] * len(lacking), *["new"] * len(new), "read"]:
        coming = lacking if step == "old" else new
        if step in ("old", "new") and coming:
            put(store, coming.pop(0))
        if step == "kill":
            cursor = Cursor(store, SPORTS, kept)
        if step == "read":
            for one in cursor.read(past_read=not lacking):
                assert one.event not in results, "an event came twice"
                results.append(one.event)
                kept = one.position
    assert results == events[count:]


def topological(events: list[SealedEvent]) -> st.SearchStrategy[list[SealedEvent]]:
    """The events in any order in which parents come first."""

    def ordered(keys: list[int]) -> list[SealedEvent]:
        left = sorted(zip(keys, events, strict=True), key=lambda pair: pair[0])
        done: dict[Cid, SealedEvent] = {}
        while left:
            place = next(
                n for n, (_, one) in enumerate(left) if all(p in done for p in one.parents)
            )
            _, one = left.pop(place)
            done[one.cid] = one
        return list(done.values())

    keys = st.lists(st.integers(0, 99), min_size=len(events), max_size=len(events))
    return keys.map(ordered)
