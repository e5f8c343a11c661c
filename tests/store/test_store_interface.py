"""What every store does, in memory and in SQLite: one suite for both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from signed_kit import ANNA, BEN, CAROL, NOW_MS, SPORTS, chain, event, forked, topic
from weft.documents.descriptor import SealedEvent
from weft.documents.position import START, position
from weft.ids import Cid, Topic, cid_of
from weft.store.interface import Batch, NotHeld, Outcome, Retention, Since, Store, Summary
from weft.store.memory import MemoryStore
from weft.store.reader import Reader, read_all
from weft.store.sqlite import SqliteStore


def put(store: Store, *events: SealedEvent, now_ms: int = NOW_MS) -> list[Outcome]:
    (outcomes,) = store.commit([Batch(now_ms, events)])
    return outcomes


def cids(events: list[SealedEvent]) -> list[Cid]:
    return [each.cid for each in events]


def test_an_empty_store(store: Store) -> None:
    assert store.get(cid_of(b"")) is None
    assert not store.has(cid_of(b""))
    assert store.heads(SPORTS) == {}
    assert store.missing(SPORTS) == []
    assert store.events(SPORTS) == []
    assert list(store.downwards(SPORTS, START)) == []
    assert not Reader(store, SPORTS).pruned
    assert store.topics() == {}
    assert store.summary(SPORTS) == Summary(0, 0, START)
    assert store.records() == {}
    assert store.prune(SPORTS, Retention(events=0), NOW_MS) == 0
    with pytest.raises(NotHeld):
        Reader(store, SPORTS, cid_of(b""))


@pytest.mark.parametrize("seed", range(6))
def test_in_any_order_the_same_store(store: Store, seed: int) -> None:
    events = forked()
    shuffled = list(events)
    Random(seed).shuffle(shuffled)
    for each in shuffled:
        assert put(store, each) == ["stored"]
    assert put(store, *events) == ["known"] * 5
    assert store.events(SPORTS) == sorted(events, key=position)
    assert store.heads(SPORTS) == {events[-1].cid: 4}
    assert store.missing(SPORTS) == []
    size = sum(len(each.block) for each in events)
    assert store.topics() == {SPORTS: Summary(5, size, START)}
    for each in events:
        assert store.get(each.cid) == each.block
        assert store.has(each.cid)
        assert store.height(SPORTS, each.cid) == each.height
        assert store.height(Topic("/fruits"), each.cid) is None


def test_gaps_are_known_and_closed(store: Store) -> None:
    one, two, three, four = chain(4)
    put(store, one, three, four)
    beside = event(b"beside", two, key=BEN)
    put(store, beside)
    assert store.missing(SPORTS) == [two.cid]
    assert set(store.heads(SPORTS)) == {one.cid, four.cid, beside.cid}
    put(store, two)
    assert store.missing(SPORTS) == []
    assert set(store.heads(SPORTS)) == {four.cid, beside.cid}


def test_what_is_given_up_is_not_missing_and_still_no_head_when_it_comes(store: Store) -> None:
    one, two = chain(2)
    put(store, two)
    lost = ((SPORTS, one.cid), (SPORTS, cid_of(b"unknown")), (Topic("/fruits"), one.cid))
    store.commit([Batch(NOW_MS, lost=lost)])
    assert store.missing(SPORTS) == []
    put(store, one)
    assert store.heads(SPORTS) == {two.cid: 2}


def test_topics_are_apart(store: Store) -> None:
    fruits = Topic("/fruits")
    mine, other = event(b"x"), event(b"x", topic=fruits)
    across = event(b"y", mine, topic=fruits)  # names a parent in another topic
    put(store, mine, other, across)
    assert store.events(SPORTS) == [mine]
    assert store.heads(SPORTS) == {mine.cid: 1}
    assert store.missing(fruits) == [mine.cid]
    assert list(store.topics()) == [fruits, SPORTS]


def test_versions_and_records(store: Store) -> None:
    version = topic()
    batch = Batch(NOW_MS, topics=(version,), records=((b"name", b"one"),))
    store.commit([batch, batch])
    store.commit([Batch(NOW_MS, records=((b"name", b"two"),))])
    assert store.get(version.cid) == version.block
    assert store.has(version.cid)
    assert store.records() == {b"name": b"two"}
    assert store.topics() == {}


def test_the_last_beginning_of_a_subscription_is_kept(store: Store) -> None:
    assert store.beginning(SPORTS) == b""
    store.commit([Batch(NOW_MS, beginnings=((SPORTS, b"one"), (Topic("/other"), b"two")))])
    store.commit([Batch(NOW_MS, beginnings=((SPORTS, b"three"),))])
    assert store.beginning(SPORTS) == b"three"
    assert store.topics() == {}


# --- reading --------------------------------------------------------------------------------------


def since(store: Store, since: Since = "beginning") -> list[SealedEvent]:
    return list(read_all(store, SPORTS, since))


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("start", ["beginning", "middle"])
def test_pages_make_a_whole(store: Store, limit: int, start: str) -> None:
    events = forked()
    put(store, *events)
    reader = Reader(store, SPORTS, "beginning" if start == "beginning" else events[3].cid)
    wanted = events if start == "beginning" else [events[1], events[2], events[4]]
    found: list[SealedEvent] = []
    while page := reader.read(limit):
        assert len(page) <= limit
        found += page
    assert found == sorted(wanted, key=position)
    more = event(b"more", events[4])
    put(store, more)
    assert reader.read() == [more]  # it goes on


def test_since_a_time(store: Store) -> None:
    events = chain(10)
    slow = event(b"slow clock", events[8], key=BEN, created_ms=5)
    put(store, *events, slow, now_ms=NOW_MS + 60_000)
    assert since(store, NOW_MS + 7_000) == events[7:]
    assert since(store, NOW_MS + 9_001) == []
    assert len(since(store, 0)) == 11
    reader = Reader(store, SPORTS, NOW_MS + 4_500)
    assert reader.read(2) == events[5:7]
    assert reader.read() == events[7:]


def test_a_fast_clock_counts_as_the_time_of_arrival(store: Store) -> None:
    fast = event(b"fast", created_ms=NOW_MS * 2)
    put(store, fast, now_ms=NOW_MS)
    assert since(store, NOW_MS + 1) == []
    assert since(store, NOW_MS) == [fast]


def test_since_an_event_gives_all_but_its_past(store: Store) -> None:
    one, two, three, side, join = forked()
    put(store, one, two, three, side, join)
    assert since(store, join.cid) == []
    assert since(store, three.cid) == [side, join]
    assert since(store, side.cid) == [two, three, join]
    assert since(store, two.cid) == [side, three, join]
    assert since(store, one.cid) == sorted([two, side, three, join], key=position)
    with pytest.raises(NotHeld):
        Reader(store, Topic("/fruits"), one.cid)


def test_since_heads_gives_what_their_holder_lacks(store: Store) -> None:
    one, two, three, side, join = forked()
    put(store, one, two, three, side, join)
    assert since(store, (two.cid, side.cid)) == [three, join]
    assert since(store, (three.cid, side.cid)) == [join]
    assert since(store, (join.cid, cid_of(b"unknown"))) == []
    assert since(store, (cid_of(b"unknown"),)) == since(store, ()) == since(store)


def test_downwards(store: Store) -> None:
    one, two, three, side, join = forked()
    put(store, one, two, three, side, join)
    order = sorted([one, two, three, side], key=position, reverse=True)
    assert list(store.downwards(SPORTS, position(three))) == [(e.cid, e.parents) for e in order]


# --- retention ------------------------------------------------------------------------------------


def test_retention_by_count(store: Store) -> None:
    events = chain(10)
    put(store, *events)
    assert store.prune(SPORTS, Retention(), NOW_MS) == 0
    assert store.prune(SPORTS, Retention(events=10), NOW_MS) == 0
    assert store.prune(SPORTS, Retention(events=4), NOW_MS) == 6
    assert store.events(SPORTS) == events[6:]
    assert Reader(store, SPORTS).pruned
    assert store.summary(SPORTS).floor == position(events[5])
    assert store.summary(SPORTS).events == 4
    assert store.missing(SPORTS) == []  # pruned is not missing
    assert not store.has(events[0].cid)
    assert not Reader(store, SPORTS, events[6].cid).pruned
    with pytest.raises(NotHeld):
        Reader(store, SPORTS, events[5].cid)


def test_retention_by_bytes(store: Store) -> None:
    events = chain(6)
    put(store, *events)
    size = sum(len(each.block) for each in events[3:])
    assert store.prune(SPORTS, Retention(bytes=size), NOW_MS) == 3
    assert store.summary(SPORTS).bytes == size
    assert store.prune(SPORTS, Retention(bytes=size - 1), NOW_MS) == 1


def test_retention_by_age(store: Store) -> None:
    events = chain(10)
    put(store, *events, now_ms=NOW_MS + 10_000)
    assert store.prune(SPORTS, Retention(age_ms=10_000), NOW_MS + 12_500) == 3
    assert store.events(SPORTS) == events[3:]
    assert Reader(store, SPORTS, NOW_MS + 2_000).pruned
    assert not Reader(store, SPORTS, NOW_MS + 2_001).pruned
    assert store.prune(SPORTS, Retention(age_ms=0), NOW_MS + 99_000) == 6
    assert store.events(SPORTS) == events[9:]  # the head stays, however old


def test_heads_stay(store: Store) -> None:
    events = forked()[:4]  # two heads
    put(store, *events)
    assert store.prune(SPORTS, Retention(events=0), NOW_MS) == 2
    _, two, three, side = events
    assert store.events(SPORTS) == sorted([three, side], key=position)
    assert not store.has(two.cid)
    assert put(store, side) == ["known"]
    assert set(store.heads(SPORTS)) == {three.cid, side.cid}


def test_what_was_pruned_is_not_taken_in_again(store: Store) -> None:
    events = chain(6)
    put(store, *events)
    store.prune(SPORTS, Retention(events=2), NOW_MS)
    assert put(store, events[0], events[3]) == ["pruned", "pruned"]
    assert store.summary(SPORTS).events == 2
    late = event(b"late", events[4], key=BEN)
    assert put(store, late) == ["stored"]


def test_a_parent_far_below_shows_when_it_comes(store: Store) -> None:
    events = chain(6)
    side = event(b"side", key=BEN)
    put(store, *events)
    store.prune(SPORTS, Retention(events=2), NOW_MS)
    join = event(b"join", events[5], side)
    put(store, join)
    assert store.missing(SPORTS) == [side.cid]
    assert put(store, side) == ["pruned"]
    assert store.missing(SPORTS) == []
    assert store.heads(SPORTS) == {join.cid: 7}


def test_a_parent_that_was_given_up_and_comes_too_late_is_forgotten(store: Store) -> None:
    fruits = Topic("/fruits")
    events = chain(6)
    side = event(b"side", key=BEN)
    put(store, *events)
    store.prune(SPORTS, Retention(events=2), NOW_MS)
    across = event(b"across", side, topic=fruits)  # names the same parent in another topic
    put(store, event(b"join", events[5], side), across)
    store.commit([Batch(NOW_MS, lost=((SPORTS, side.cid),))])
    assert store.lost(SPORTS) == [side.cid]
    assert put(store, side) == ["pruned"]
    assert store.lost(SPORTS) == []
    assert store.missing(fruits) == [side.cid]


def test_gaps_of_what_is_pruned_are_forgotten(store: Store) -> None:
    one, two, three, four = chain(4)
    put(store, two, three, four)
    assert store.missing(SPORTS) == [one.cid]
    assert store.prune(SPORTS, Retention(events=1), NOW_MS) == 2
    assert store.missing(SPORTS) == []


def test_what_each_publisher_has_stored_is_counted(store: Store) -> None:
    one = event(bytes(100))
    two = event(bytes(200), one, key=BEN)
    three = event(bytes(300), two, key=BEN)
    store.commit([Batch(NOW_MS, (one, two)), Batch(NOW_MS, (three, two))])
    sizes = [len(each.block) for each in (one, two, three)]
    assert store.signers(SPORTS) == [(BEN.peer, sizes[1] + sizes[2]), (ANNA.peer, sizes[0])]
    assert store.signers(SPORTS, 1) == [(BEN.peer, sizes[1] + sizes[2])]
    assert store.signer_bytes(SPORTS, ANNA.peer) == sizes[0]
    assert store.signer_bytes(SPORTS, CAROL.peer) == 0
    assert store.signers(Topic("/none")) == [] and store.signer_bytes(Topic("/no"), BEN.peer) == 0
    assert store.prune(SPORTS, Retention(events=1), NOW_MS) == 2
    assert store.signers(SPORTS) == [(BEN.peer, sizes[2])]


def test_pruning_in_small_steps(store: Store) -> None:
    put(store, *chain(10))
    dropped = [store.prune(SPORTS, Retention(events=3), NOW_MS, most=3) for _ in range(4)]
    assert dropped == [3, 3, 1, 0]


@pytest.mark.parametrize("wrong", [{"events": -1}, {"bytes": -1}, {"age_ms": -1}])
def test_retention_is_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        Retention(**wrong)


# --- both alike -----------------------------------------------------------------------------------


def random_history(random: Random) -> list[SealedEvent]:
    events: list[SealedEvent] = []
    for number in range(40):
        parents = random.sample(events, min(len(events), random.randint(0, 3)))
        key = random.choice((ANNA, BEN, CAROL))
        created_ms = NOW_MS + random.randint(0, 60_000)
        events.append(event(b"%d" % number, *parents, key=key, created_ms=created_ms))
    return events


@pytest.mark.parametrize("seed", range(12))
def test_sqlite_does_as_memory_does(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    events = random_history(random)
    stores: list[Store] = [MemoryStore(), SqliteStore(tmp_path / "store.db")]
    questions: list[Callable[[Store], object]] = [
        lambda store: store.heads(SPORTS),
        lambda store: store.missing(SPORTS),
        lambda store: store.summary(SPORTS),
        lambda store: store.events(SPORTS, limit=7),
        lambda store: store.events(SPORTS, position(events[9]), NOW_MS + 30_000, 7),
        lambda store: cids(since(store)),
        lambda store: [cids(since(store, each.cid)) for each in events if store.has(each.cid)],
        lambda store: cids(since(store, tuple(store.heads(SPORTS)))),
    ]
    for _ in range(25):
        batch = Batch(NOW_MS + 20_000, tuple(random.choices(events, k=3)))
        assert stores[0].commit([batch]) == stores[1].commit([batch])
        if random.random() < 0.2:
            retention = random.choice(
                [Retention(events=9), Retention(bytes=5_000), Retention(age_ms=20_000)]
            )
            dropped = {store.prune(SPORTS, retention, NOW_MS + 50_000) for store in stores}
            assert len(dropped) == 1
        for question in questions:
            assert question(stores[0]) == question(stores[1])
    stores[1].close()


def test_what_is_lost_goes_with_its_batch(store: Store) -> None:
    one, two, three = chain(3)
    store.commit([Batch(NOW_MS, (three,), lost=((SPORTS, two.cid),))])
    assert store.missing(SPORTS) == []
    put(store, one)
    assert set(store.heads(SPORTS)) == {one.cid, three.cid}
