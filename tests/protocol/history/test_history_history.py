"""Events that stay: every subscriber ends with the same stream, whatever was lost on the way."""

from __future__ import annotations

import pytest

from history_kit import T, Town, history
from weft.documents.position import position
from weft.ids import PeerId
from weft.protocol import seam
from weft.protocol.config import Config
from weft.protocol.history import server
from weft.protocol.history.stream import Heads
from weft.rules.prefix import segment_key
from weft.sim.network import Partition
from weft.store.interface import Retention, Since
from weft.store.reader import read_all


def assert_same_streams(town: Town, numbers: range | tuple[int, ...], events: int) -> None:
    first = town.stream(numbers[0])
    assert len(first) == events
    for number in numbers:
        assert town.stream(number) == first
        got = town.delivered(number)
        assert len(got) == len(set(got)), "an event was delivered twice in one life"


def test_all_subscribers_store_and_deliver_the_same_stream() -> None:
    town = Town(5)
    town.subscribe(0, 1, 2, 3, 4)
    town.run(20_000)
    town.publish(*[0, 1, 2] * 10)
    town.run(20_000)
    assert_same_streams(town, range(5), 30)
    assert all(len(town.delivered(number)) == 30 for number in range(5))
    assert town.answers() == ["delivered"] * 30


def test_parents_come_before_their_children() -> None:
    town = Town(5, loss_percent=10)
    town.subscribe(0, 1, 2, 3, 4)
    town.run(30_000)
    town.publish(*[0, 1, 2, 3] * 8, every_ms=5)
    town.run(60_000)
    store = town.nodes[0].store
    assert store is not None
    parents = {event.cid: event.parents for event in read_all(store, T)}
    for number in range(5):
        seen: set[bytes] = set()
        for _, cid in town.delivered(number):
            assert seen.issuperset(parents[cid])
            seen.add(cid)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_lost_messages_leave_no_gap(seed: int) -> None:
    town = Town(6, seed=seed, loss_percent=20)
    town.subscribe(*range(6))
    town.run(30_000)
    town.publish(*[0, 1, 2] * 12)
    town.run(120_000)
    assert_same_streams(town, range(6), 36)


def test_slow_and_uneven_ways_lose_nothing_among_a_hundred() -> None:
    """The delays under which the paper's implementation delivered half (Section 5), and more
    uneven ones: anything up to a second, half a second on average."""
    town = Town(100, latency_ms=500)
    town.subscribe(*range(100))
    town.run(60_000)
    town.publish(*range(5), *range(5), every_ms=300)
    town.run(60_000)
    assert_same_streams(town, range(100), 10)
    assert all(len(town.delivered(number)) == 10 for number in range(100))


def test_publishers_at_once_fork_the_stream_and_the_next_event_joins_it() -> None:
    town = Town(4)
    town.subscribe(0, 1, 2, 3)
    town.run(20_000)
    town.publish(0, 1, 2, every_ms=0)
    town.run(5_000)
    store = town.nodes[3].store
    assert store is not None
    assert len(store.heads(T)) == 3
    town.publish(3)
    town.run(5_000)
    [last] = [event for event in read_all(store, T) if event.height == 2]
    assert len(last.parents) == 3
    assert store.heads(T) == {last.cid: 2}
    assert_same_streams(town, range(4), 4)


# --- coming late, coming back -------------------------------------------------------------------


def test_a_subscriber_that_asks_for_the_past_gets_all_of_it_in_order() -> None:
    town = Town(5)
    town.subscribe(0, 1, 2)
    town.run(20_000)
    town.publish(*[0, 1] * 40)
    town.subscribe(4, since="beginning")
    town.publish(*[0, 1] * 10)
    town.run(30_000)
    assert_same_streams(town, (0, 1, 2, 4), 100)
    assert len(town.delivered(4)) == 100


def test_a_subscriber_without_a_past_gets_the_newest_event_and_what_follows() -> None:
    town = Town(4)
    town.subscribe(0, 1)
    town.run(20_000)
    town.publish(*[0] * 20)
    town.run(5_000)
    before = town.stream(0)
    town.subscribe(3)
    town.run(30_000)
    town.publish(*[0] * 5)
    town.run(10_000)
    got = [cid for _, cid in town.delivered(3)]
    assert got == [before[-1], *town.stream(0)[20:]]


def test_since_an_event_brings_what_follows_it() -> None:
    town = Town(4)
    town.subscribe(0, 1)
    town.run(20_000)
    town.publish(*[0] * 20)
    town.run(5_000)
    stream = town.stream(0)
    town.subscribe(3, since=stream[11])
    town.run(30_000)
    assert [cid for _, cid in town.delivered(3)] == stream[12:]


@pytest.mark.parametrize("missed", [5, 150])
def test_a_subscriber_that_was_down_catches_up_and_is_handed_nothing_twice(missed: int) -> None:
    town = Town(5)
    town.subscribe(*range(5))
    town.run(20_000)
    town.publish(*[0, 1] * 5)
    town.run(5_000)
    node = town.nodes[4]
    town.world.crash(node, silent=False)
    town.publish(*([0, 1] * missed)[:missed])
    town.world.start(node, [town.nodes[0].contact])
    town.subscribe(4)
    town.run(60_000)
    assert_same_streams(town, range(5), 10 + missed)
    in_second_life = [cid for life, cid in town.delivered(4) if life > 1]
    assert len(in_second_life) == missed


def test_streams_that_began_apart_become_one() -> None:
    town = Town(4)
    town.subscribe(0)
    town.run(10_000)
    town.publish(*[0] * 5)
    town.subscribe(1, 2)
    town.run(1)
    town.publish(1, 2, every_ms=0)  # before either has heard of the other's stream
    town.run(60_000)
    assert set(town.stream(0)) == set(town.stream(1)) | set(town.stream(0))
    heights = [position(event) for event in read_all(town.nodes[0].store, T)]  # type: ignore[arg-type]
    assert heights == sorted(heights)
    assert len(town.stream(0)) == 7


@pytest.mark.parametrize("length", [100, 700])
def test_long_branches_that_grew_apart_are_joined(length: int) -> None:
    """The network is cut, both sides publish for long: much more than is walked back."""
    town = Town(4, walk_back_max=16)
    town.subscribe(*range(4))
    town.run(20_000)
    town.publish(0, 1)
    town.run(3_000)
    town.world.set_partition(Partition((0, 0, 1, 1)))
    town.publish(*[0, 2] * length, every_ms=4)
    town.world.set_partition(None)
    town.run(120_000)
    assert_same_streams(town, range(4), 2 + 2 * length)
    assert town.counter("history_given_up") == 0


def test_long_branches_are_joined_though_hardly_anything_can_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor is the fork within what others search for what a peer lacks beside its heads."""
    monkeypatch.setattr(server, "BESIDE_MAX", 50)
    town = Town(4, walk_back_max=16)
    town.subscribe(*range(4))
    town.run(20_000)
    town.publish(0, 1)
    town.run(3_000)
    for number in range(4):
        history(town, number).readers[T].stream.dag.room.most = 20
    town.world.set_partition(Partition((0, 0, 1, 1)))
    town.publish(*[0, 2] * 700, every_ms=4)
    town.world.set_partition(None)
    town.publish(*[0, 2] * 20)
    town.run(120_000)
    assert_same_streams(town, range(4), 2 + 1_440)


# --- durability ---------------------------------------------------------------------------------


def test_nothing_is_answered_or_sent_before_it_is_stored() -> None:
    town = Town(3)
    town.subscribe(0, 1, 2)
    town.run(20_000)
    town.world.store_ms = 2_000
    town.publish(0, every_ms=1_000)
    assert town.stream(0) == []
    assert town.delivered(1) == []
    assert not any(p.answers for p in town.world.record.publications.values())
    town.run(2_000)
    assert len(town.stream(0)) == 1
    assert len(town.delivered(1)) == 1


def test_a_crash_before_the_disk_has_it_loses_no_answered_event() -> None:
    town = Town(3)
    town.subscribe(0, 1, 2)
    town.run(20_000)
    town.world.store_ms = 2_000
    town.publish(0, every_ms=500)
    town.world.crash(town.nodes[0], silent=False)
    town.run(10_000)
    assert town.stream(0) == town.stream(1) == []
    assert not any(p.answers for p in town.world.record.publications.values())


def test_a_subscription_is_answered_once_its_stream_has_begun() -> None:
    """Else what is published between the answer and the beginning would lie before it."""
    town = Town(2)
    town.subscribe(0)
    town.run(20_000)
    town.publish(0)
    node = town.nodes[1]
    hears = town.peer(1).handle

    def deaf(fact: seam.Input, now: int) -> list[seam.Effect]:
        """Not a word about where the stream stands."""
        if isinstance(fact, seam.Received) and isinstance(fact.message, Heads):
            return []
        return hears(fact, now)

    node.machine.handle = deaf  # type: ignore[union-attr, method-assign]
    town.world.subscribe(node, T)
    town.run(15_000)
    stay = town.world.record.stays[-1]
    assert town.peer(1).members(T) and stay.joined_ms is None
    town.publish(0)
    town.run(2_000)
    node.machine.handle = hears  # type: ignore[union-attr, method-assign]
    town.run(15_000)
    assert stay.joined_ms is not None
    town.publish(0)
    town.run(1_000)
    assert [cid for _, cid in town.delivered(1)] == town.stream(0)[-2:]


@pytest.mark.parametrize("leave", ["unsubscribe", "leave"])
def test_a_subscription_that_never_began_is_answered_when_it_ends(leave: str) -> None:
    town = Town(2, seed=3)
    town.subscribe(0)
    town.run(20_000)
    peer, now = town.peer(1), town.world.now_ms
    told = [*peer.handle(seam.Subscribe(7, T), now)]
    made = seam.Unsubscribe(8, T) if leave == "unsubscribe" else seam.Leave()
    told += peer.handle(made, now)
    answers = [e for e in told if isinstance(e, seam.Answer) and e.token == 7]
    assert [answer.outcome for answer in answers] == ["left"]


def plain_members(town: Town, count: int) -> None:
    """So many peers without a store come up and subscribe."""
    first = len(town.nodes)
    for _ in range(count):
        town.world.start(town.add(Config()), [town.nodes[0].contact])
    town.run(15_000)
    town.subscribe(*range(first, first + count))
    town.run(20_000)


def test_a_subscriber_among_members_without_a_store_begins_with_what_comes() -> None:
    """None of them can say where the stream stands, and all say so."""
    town = Town(1)
    plain_members(town, 6)
    town.subscribe(0)
    town.run(3_000)
    stay = town.world.record.stays[-1]
    assert town.peer(0).members(T) and stay.joined_ms is not None


@pytest.mark.parametrize("members", [3, 14])
def test_where_no_member_keeps_a_past_there_is_none_to_wait_for(members: int) -> None:
    """A reader that asks them for pages is told so at once: consumers waited 30 s for nothing, and
    where there were more than eight members they did so still."""
    town = Town(1)
    plain_members(town, members)
    town.subscribe(0, since="beginning")
    town.run(5_000)
    history = town.peer(0).history
    assert history is not None and history.has_past(T)


def test_what_members_without_a_store_hold_of_late_comes_at_once() -> None:
    """A publisher from outside had published it just before: it came with its next event."""
    town = Town(2)
    plain_members(town, 10)
    town.publish(1, 1)
    town.run(3_000)
    town.subscribe(0, since="beginning")
    town.run(5_000)
    assert town.stream(0) == town.stream(1) and len(town.stream(0)) == 2


def test_where_a_member_keeps_the_past_it_is_not_offered_besides() -> None:
    town = Town(2)
    town.subscribe(1)
    plain_members(town, 6)
    town.publish(*(1 for _ in range(20)))
    town.run(3_000)
    town.subscribe(0, since="beginning")
    town.run(20_000)
    assert town.stream(0) == town.stream(1) and len(town.stream(0)) == 20
    assert town.counter("repaired") == 0


@pytest.mark.parametrize("since", [None, "beginning"])
@pytest.mark.parametrize("before", [3, 40])
def test_what_no_member_kept_is_asked_of_the_publisher_outside(
    since: Since | None, before: int
) -> None:
    """It published while all members were without a store; 40 are too many to be walked back."""
    town = Town(2)
    plain_members(town, 2)
    town.world.publish(town.nodes[1], T, *(b"%d" % number for number in range(before)))
    town.run(5_000)
    town.subscribe(0, since=since)
    town.run(10_000)
    for _ in range(3):
        town.publish(1)
    town.run(20_000)
    assert not history(town, 0).fetch
    assert town.stream(0) == town.stream(1) and len(town.stream(0)) == before + 3


def test_a_subscription_begins_where_the_only_member_with_a_store_stands() -> None:
    town = Town(2)
    town.subscribe(1)
    plain_members(town, 6)
    town.publish(1, 1)
    town.run(10_000)
    town.subscribe(0)
    town.run(3_000)
    assert town.world.record.stays[-1].joined_ms is not None
    town.publish(1)
    town.run(3_000)
    # A new subscriber gets the newest event, and what follows it.
    assert [cid for _, cid in town.delivered(0)] == town.stream(1)[1:]


def test_members_that_say_nothing_are_not_waited_for_without_end() -> None:
    town = Town(2)
    town.subscribe(0)
    town.run(20_000)
    peer = town.peer(1)
    hears = peer.handle

    def deaf(fact: seam.Input, now: int) -> list[seam.Effect]:
        silent = isinstance(fact, seam.Received) and isinstance(fact.message, Heads)
        return [] if silent else hears(fact, now)

    peer.handle = deaf  # type: ignore[method-assign]
    town.subscribe(1)
    town.run(30_000)
    stay = town.world.record.stays[-1]
    assert town.peer(1).members(T) and stay.joined_ms is not None


# --- what is provided in the DHT ------------------------------------------------------------------


def providers_found(town: Town, asker: int, number: int) -> set[PeerId]:
    """The peers that the DHT names for a segment of the stream."""
    key = segment_key(T, number)
    token = town.world.ask(town.nodes[asker], lambda t: seam.DhtFindProviders(t, key, 20))
    town.run(10_000)
    found = town.world.record.answers[token]
    assert found is not None
    return {contact.peer for contact in found[1].contacts}


def test_a_segment_is_provided_once_however_many_events_it_has() -> None:
    town = Town(4, dht=True, provide_probability=1.0, segment_heights=8)
    town.subscribe(0, 1)
    town.run(20_000)
    town.publish(*[0] * 20)
    town.run(5_000)
    assert [town.peer(number).counters["history_provided"] for number in range(4)] == [3, 3, 0, 0]
    members = {town.nodes[number].contact.peer for number in (0, 1)}
    assert [providers_found(town, 3, number) for number in range(4)] == [members] * 3 + [set()]


def test_what_earlier_lives_stored_is_provided_again_and_what_is_pruned_is_not() -> None:
    """All peers are gone at once, and with them what the DHT held."""
    town = Town(6, dht=True, provide_probability=0.3, segment_heights=2)
    town.subscribe(0, 1, 2)
    town.run(20_000)
    town.publish(*[0] * 20)
    town.run(5_000)
    before = [providers_found(town, 5, number) for number in range(10)]
    assert 10 < sum(map(len, before)) < 30
    for node in town.nodes:
        town.world.crash(node, silent=False)
    for node in town.nodes:
        town.world.start(node, [town.nodes[0].contact])
    town.subscribe(0, 1, 2)
    town.run(20_000)
    assert not providers_found(town, 5, 0)
    town.run(120_000)
    assert [providers_found(town, 5, number) for number in range(10)] == before
    # One member prunes its store, and says no longer that it has what is gone.
    store, provided = town.nodes[0].store, town.peer(0).dht
    assert store is not None and provided is not None
    all_of_them = provided.operations.provided
    assert store.prune(T, Retention(events=1), 0) == 19
    town.run(200_000)
    left = sum(town.nodes[0].contact.peer in held for held in before[-1:])
    assert provided.operations.provided == left < all_of_them


@pytest.mark.parametrize(("put_bytes_max", "outcome"), [(1_024, "found"), (64, "not_found")])
def test_a_small_block_that_was_put_outlives_the_only_peer_that_had_it(
    put_bytes_max: int, outcome: str
) -> None:
    """No other peer is in the topic, and none provides."""
    town = Town(
        8, dht=True, provide_probability=0.0, put_bytes_max=put_bytes_max, give_up_ms=30_000
    )
    town.subscribe(0)
    town.run(20_000)
    town.publish(0, 0)
    town.run(10_000)
    wanted = town.stream(0)[0]
    town.world.crash(town.nodes[0], silent=False)
    town.subscribe(7)
    town.run(10_000)
    token = town.world.ask(town.nodes[7], lambda t: seam.FindEvent(t, T, wanted))
    town.run(60_000)
    answered = town.world.record.answers[token]
    assert answered is not None and answered[1].outcome == outcome


def test_a_lone_holder_of_an_event_is_found_by_its_segment() -> None:
    """An event that a user names, of which nothing but the name is known; the peer that has it is
    not in the topic any more."""
    town = Town(12, dht=True, provide_probability=1.0, segment_heights=4)
    town.subscribe(0)
    town.run(20_000)
    town.publish(*[0] * 16)
    town.run(10_000)
    wanted = town.stream(0)[10]
    town.world.unsubscribe(town.nodes[0], T)
    town.run(10_000)
    town.subscribe(7)
    town.run(10_000)
    token = town.world.ask(town.nodes[7], lambda t: seam.FindEvent(t, T, wanted))
    town.run(60_000)
    answered = town.world.record.answers[token]
    assert answered is not None and answered[1].outcome == "found"
