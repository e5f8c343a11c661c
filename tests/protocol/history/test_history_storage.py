"""What is kept, what is given up, and what a restart makes of it."""

from __future__ import annotations

from dataclasses import replace

from history_kit import T, Town, hear, history, id_of
from signed_kit import BEN, event
from weft.documents.descriptor import SealedEvent
from weft.ids import Topic, peer_text
from weft.protocol.config import Keep
from weft.protocol.history.stream import Head, Heads
from weft.protocol.seam import Deliver, Pruned, Send, Store, Stored
from weft.store.interface import Batch, Retention
from weft.store.reader import read_all


def test_old_events_are_pruned_and_do_not_come_back() -> None:
    town = Town(4, keep=Keep(events=20), prune_every_ms=5_000)
    town.subscribe(0, 1, 2)
    town.run(20_000)
    town.publish(*[0, 1] * 30)
    town.run(40_000)
    for number in (0, 1, 2):
        assert len(town.stream(number)) == 20
        assert town.peer(number).counters["history_pruned"] == 40
        dag = history(town, number).readers[T].stream.dag
        assert dag.floor == town.nodes[number].store.summary(T).floor  # type: ignore[union-attr]
    town.subscribe(3, since="beginning")
    town.run(30_000)
    assert town.stream(3) == town.stream(0)
    town.publish(1)
    town.run(20_000)
    assert [len(town.stream(number)) for number in range(4)] == [20] * 4


def test_topics_may_be_kept_differently() -> None:
    keep = {"/t": Keep(events=5)}
    town = Town(2, keep_topics=keep, prune_every_ms=5_000)
    other = Topic("/other")
    town.subscribe(0)
    town.world.subscribe(town.nodes[0], other)
    town.run(10_000)
    for number in range(12):
        town.world.publish(town.nodes[0], T, b"%d" % number)
        town.world.publish(town.nodes[0], other, b"%d" % number)
        town.run(50)
    town.run(20_000)
    store = town.nodes[0].store
    assert store is not None
    assert len(town.stream(0)) == 5
    assert len(list(read_all(store, other))) == 12


def test_a_block_that_nobody_has_is_given_up_for_good() -> None:
    """A store holds a child without its parent: that is asked for, and then no longer."""
    elsewhere = Town(1)
    elsewhere.subscribe(0)
    elsewhere.publish(0, 0)
    parent, child = read_all(elsewhere.nodes[0].store, T)  # type: ignore[arg-type]
    town = Town(2, seed=2, give_up_ms=20_000, retry_ms=2_000)
    kept = town.nodes[1].store
    assert kept is not None
    kept.commit([Batch(0, (child,))])
    assert kept.missing(T) == [parent.cid]
    town.subscribe(0, 1)
    town.run(60_000)
    assert town.peer(1).counters["history_given_up"] == 1
    assert kept.missing(T) == []


def test_gaps_in_the_store_are_filled_after_a_restart() -> None:
    town = Town(3)
    town.subscribe(0, 1)
    town.run(20_000)
    town.publish(*[0, 1] * 5)
    town.run(5_000)
    events = list(read_all(town.nodes[0].store, T))  # type: ignore[arg-type]
    kept = town.nodes[2].store
    assert kept is not None
    kept.commit([Batch(0, (*events[:3], *events[5:]))])
    town.subscribe(2)
    town.run(30_000)
    assert town.stream(2) == town.stream(0)
    assert kept.heads(T) == town.nodes[0].store.heads(T)  # type: ignore[union-attr]
    assert history(town, 2).readers[T].stream.dag.heads == kept.heads(T)


def test_one_event_in_several_topics() -> None:
    town = Town(3)
    other = Topic("/other")
    town.subscribe(0, 1)
    town.world.subscribe(town.nodes[1], other)
    town.run(20_000)
    town.world.publish_together(town.nodes[0], [T, other], b"both")
    town.run(5_000)
    assert town.answers() == ["delivered", "delivered"]
    store = town.nodes[1].store
    assert store is not None
    for topic in (T, other):
        assert [event.payload for event in read_all(store, topic)] == [b"both"]


def fail_write(town: Town, number: int, token: int) -> None:
    """What a peer has under way to its disk is never written, and the peer is told so."""
    peer, node = town.peer(number), town.nodes[number]
    node.storing[token] = Store(token, ())
    local = node.clock.local_ms(town.world.now_ms)
    town.world.carry_out(node, peer.handle(Stored(token, "the disk is full"), local))


def test_a_store_that_fails_answers_so_and_nothing_is_delivered_twice() -> None:
    town = Town(2)
    town.subscribe(0, 1)
    town.run(20_000)
    town.publish(0)
    town.run(2_000)
    peer = town.peer(1)
    town.world.store_ms = 10_000
    town.publish(0, every_ms=0)
    town.run(11_000)  # peer 1 has it, and its disk is still busy with it
    [token] = town.nodes[1].storing
    fail_write(town, 1, token)
    assert peer.counters["history_store_failed"] == 1
    town.world.store_ms = 5
    town.run(60_000)
    assert town.stream(1) == town.stream(0)
    got = town.delivered(1)
    assert len(got) == len(set(got)) == 2


def test_what_follows_an_own_event_that_could_not_be_stored_fails_with_it() -> None:
    """It was sealed meanwhile. The others would never have all that comes before it."""
    town = Town(2)
    town.subscribe(0, 1)
    town.run(20_000)
    town.world.store_ms = 3_000
    town.publish(0, every_ms=500)
    town.publish(0, every_ms=100)
    fail_write(town, 0, min(town.nodes[0].storing))  # the first of the two
    town.run(4_000)
    assert town.answers() == ["failed", "failed"]
    assert town.delivered(0) == town.delivered(1) == []
    town.world.store_ms = 5
    town.publish(0)
    town.run(5_000)
    assert town.answers() == ["failed", "failed", "delivered"]
    assert len(town.delivered(0)) == len(town.delivered(1)) == 1


def test_nobody_hears_of_an_event_before_it_is_durable() -> None:
    town = Town(2)
    town.subscribe(0, 1)
    town.run(20_000)
    town.world.store_ms = 5_000
    town.publish(0, every_ms=100)
    [cid] = history(town, 0).readers[T].stream.dag.heads
    asked = hear(town, 0, 1, Heads(T, [], answer=True))
    told = [e.message for e in asked if isinstance(e, Send) and isinstance(e.message, Heads)]
    assert [heads.heads for heads in told] == [[]]
    assert history(town, 0).server.block(cid) is None
    assert town.delivered(0) == []


def test_the_latest_durable_events_are_told_while_later_ones_are_written() -> None:
    """To tell none would let a newcomer begin where the stream began, and read it all."""
    town = Town(2)
    town.subscribe(0)
    town.run(20_000)
    town.publish(0, 0)
    town.run(2_000)
    durable = town.stream(0)[-1]
    town.world.store_ms = 5_000
    town.publish(0, 0, 0, every_ms=100)
    asked = hear(town, 0, 1, Heads(T, [], answer=True))
    told = [e.message for e in asked if isinstance(e, Send) and isinstance(e.message, Heads)]
    assert [heads.heads for heads in told] == [[Head(durable, 2)]]


def test_effects_name_what_is_lost() -> None:
    """What comes before a baseline is noted as lost, so that no restart looks for it."""
    town = Town(3)
    town.subscribe(0)
    town.run(20_000)
    town.publish(*[0] * 10)
    seen: list[Store] = []
    carry_out = town.world.carry_out

    def watch(node, effects):  # type: ignore[no-untyped-def]
        if node.index == 2:
            seen.extend(e for e in effects if isinstance(e, Store))
            assert not any(isinstance(e, Deliver) for e in effects) or seen
        carry_out(node, effects)

    town.world.carry_out = watch  # type: ignore[method-assign]
    town.subscribe(2)
    town.run(30_000)
    assert [cid for store in seen for _, cid in store.lost] == [town.stream(0)[-2]]
    assert town.nodes[2].store.missing(T) == []  # type: ignore[union-attr]


# --- how much one publisher may have stored -------------------------------------------------------


def test_a_publisher_that_has_its_quota_is_refused_and_others_go_on() -> None:
    """Its own peer has another setting, so that it sends on all the same."""
    town, spammer = Town(4, keep=Keep(publisher_bytes=20_000)), 4
    honest, free = town.config, replace(town.config.history, keep=Keep(publisher_bytes=0))
    town.config = replace(honest, history=free)
    town.enter([0])
    town.config = honest
    town.subscribe(0, 1, 2, 3, spammer)
    town.run(20_000)
    town.publish(*[spammer] * 40, payload=bytes(2_000))
    town.run(5_000)
    town.publish(0, 1)
    town.run(20_000)
    for number in range(4):
        store = town.nodes[number].store
        assert store is not None
        assert 16_000 < store.signer_bytes(T, id_of(town, spammer)) <= 20_000
        assert [len(town.delivered(number)) for number in range(4)] == [len(town.delivered(0))] * 4
        assert town.peer(number).counters["history_refused_over_quota"] > 0
        shown = town.peer(number).status()["history"]["topics"][T]  # type: ignore[index]
        assert shown["publisher_bytes_max"] == 20_000
        assert next(iter(shown["publishers"])) == peer_text(id_of(town, spammer))
    assert {b"event 0", b"event 1"} <= {each.payload for each in town.stored(2)}


def test_a_publisher_is_told_that_it_has_its_quota_and_goes_on_after_pruning() -> None:
    town = Town(2, keep=Keep(publisher_bytes=10_000))
    town.subscribe(0, 1)
    town.run(20_000)
    town.publish(*[0] * 12, payload=bytes(1_000))
    town.run(3_000)
    outcomes = town.answers()
    stored = outcomes.count("delivered")
    assert 4 < stored < 8 and outcomes == ["delivered"] * stored + ["refused"] * (12 - stored)
    answer = list(town.world.record.publications.values())[-1].answers[-1][1]
    assert "history.keep.publisher_bytes" in answer.reason
    for number in (0, 1):
        node = town.nodes[number]
        assert node.store is not None
        dropped = node.store.prune(T, Retention(events=1), 0)
        town.world.carry_out(
            node,
            town.peer(number).handle(Pruned(T, dropped), node.clock.local_ms(town.world.now_ms)),
        )
    town.publish(0)
    town.run(3_000)
    assert town.answers()[-1] == "delivered"
    assert town.stored(1)[-1].payload == b"event 0"


def test_what_another_event_waits_for_is_taken_beyond_the_quota() -> None:
    """A member that was a little ahead has taken what this one would refuse, and named it."""
    spam = [event(bytes(1_000), key=BEN, topic=T)]
    for _ in range(19):
        spam.append(event(bytes(1_000), spam[-1], key=BEN, topic=T))
    size = len(spam[-1].block)

    def taken(*events: SealedEvent) -> list[SealedEvent]:
        """What is stored by a member that may store eight of a publisher."""
        town = Town(2, keep=Keep(publisher_bytes=8 * size))
        town.subscribe(0)
        town.run(10_000)
        streams, state = history(town, 0).streams, history(town, 0).readers[T].stream
        for each in events:
            streams.add(state, each, None, 0)
        hear(town, 0, 1, Heads(T, [], False))  # a step ends, and what it released is stored
        town.run(1_000)
        return town.stored(0)

    assert taken(*spam) == spam[:8]
    honest = event(b"honest", spam[11], topic=T)
    assert taken(*spam[:8], honest, *reversed(spam[:12])) == [*spam[:12], honest]
    # But not without end: beyond twice the quota the event goes on without it.
    named = [event(b"%d" % number, spam[number], topic=T) for number in range(8, 20)]
    pairs = [each for pair in zip(named, spam[8:], strict=True) for each in pair]
    stored = taken(*spam[:8], *pairs)
    assert [each for each in stored if each.publisher == BEN.peer] == spam[:16]
    assert all(each in stored for each in named)
