"""Whatever members say about a stream, a peer's memory stays bounded and its stream stays true."""

from __future__ import annotations

from random import Random

import pytest

from history_kit import T, Town, hear, history, routed
from weft.documents.descriptor import SealedEvent, seal_event
from weft.ids import Cid, cid_of
from weft.protocol.context import Arrived
from weft.protocol.history.blocks import BlocksReply, BlocksRequest
from weft.protocol.history.ownership import TopicNews
from weft.protocol.history.reader import PageReply, PageRequest
from weft.protocol.history.stream import HEADS_MAX, Head, Heads
from weft.protocol.seam import Effect, Send, Subscribe
from weft.protocol.wire import Payload
from weft.sim.node import keyed
from weft.store.reader import read_all


def asked(effects: list[Effect], kind: type) -> list[Send]:
    return [e for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def made_up(count: int, seed: int = 1, height: int = 3) -> list[Head]:
    rng = Random(seed)
    return [Head(cid_of(rng.randbytes(8)), height) for _ in range(count)]


def sealed(
    number: int, parents: dict[Cid, int] | None = None, payload: bytes = b"x"
) -> SealedEvent:
    contact, sign = keyed(1, number)
    return seal_event(
        sign,
        publisher=contact.peer,
        topic=T,
        payload=payload,
        created_ms=1,
        parents=parents,
        metadata={"incarnation": 1, "number": 1},
    )


@pytest.fixture
def town() -> Town:
    town = Town(4, wants_max=100, wants_per_source_max=70, waiting_bytes_max=4_000)
    town.subscribe(0, 1, 2, 3)
    town.run(20_000)
    town.publish(0, 1)
    town.run(5_000)
    return town


def test_heads_that_nobody_has_are_asked_of_the_peer_that_told_them_and_forgotten(
    town: Town,
) -> None:
    fetch = history(town, 0).fetch
    effects = hear(town, 0, 1, Heads(T, made_up(HEADS_MAX), answer=False))
    assert len(fetch) == HEADS_MAX
    town.run(10_000)
    assert len(fetch) == 0
    assert town.peer(0).counters["history_hearsay"] == HEADS_MAX
    assert town.peer(0).counters["history_given_up"] == 0
    others = [town.nodes[n].contact.peer for n in (2, 3)]
    assert not [send for send in asked(effects, BlocksRequest) if send.to.peer in others]


def test_floods_of_heads_stay_within_bounds(town: Town) -> None:
    fetch = history(town, 0).fetch
    for flood in range(20):
        hear(town, 0, 1, Heads(T, made_up(HEADS_MAX, flood), answer=False))
        assert len(fetch) <= 70
    for flood in range(20, 40):
        hear(town, 0, 2, Heads(T, made_up(HEADS_MAX, flood), answer=False))
    assert len(fetch) <= 100
    assert town.peer(0).counters["history_wants_refused"] > 1_000
    town.run(30_000)
    town.publish(1)
    town.run(5_000)
    assert len(town.stream(0)) == 3


def test_a_false_beginning_does_not_keep_a_newcomer_from_what_comes() -> None:
    """The first to tell a newcomer where the stream stands claims an absurd height."""
    town = Town(4)
    town.subscribe(0, 1)
    town.run(20_000)
    town.publish(0, 0, 0)
    town.world.subscribe(town.nodes[3], T)
    hear(town, 3, 2, Heads(T, made_up(2, height=1 << 40), answer=False))
    town.run(20_000)
    town.publish(0, 1, 0)
    town.run(20_000)
    got = [cid for _, cid in town.delivered(3)]
    assert got[-3:] == town.stream(0)[-3:]


def test_answers_that_nobody_asked_for_are_counted_and_ignored(town: Town) -> None:
    event = sealed(1)
    for message in (
        BlocksReply(T, 99, [event.block]),
        PageReply(T, 99, [event.block]),
    ):
        assert hear(town, 0, 1, message) == []
    assert town.peer(0).counters["history_unasked"] == 2
    assert event.cid not in town.stream(0)


def test_another_block_than_the_one_asked_for_is_refused(town: Town) -> None:
    wanted = made_up(1)[0]
    effects = hear(town, 0, 1, Heads(T, [wanted], answer=False))
    [send] = asked(effects, BlocksRequest)
    assert isinstance(send.message, BlocksRequest)
    other = sealed(1)
    hear(town, 0, 1, BlocksReply(T, send.message.request, [other.block, b"junk"]))
    assert town.peer(0).counters["history_refused_bad_cid"] == 2
    assert other.cid not in town.stream(0)


def first_page(town: Town, number: int, source: int) -> PageRequest:
    """Make a peer believe that it is far behind; what it asks its source for."""
    claim = Heads(T, made_up(1, height=10_000), answer=False)
    effects = hear(town, number, source, claim)
    [send] = asked(effects, PageRequest)
    assert isinstance(send.message, PageRequest)
    return send.message


def test_a_source_that_always_says_next_is_left(town: Town) -> None:
    request = first_page(town, 0, 1)
    after = Head(cid_of(b"next"), 50)
    for _ in range(3):
        effects = hear(town, 0, 1, PageReply(T, request.request, [], next=after))
        again = [send.message for send in asked(effects, PageRequest)]
        assert not [r for r in again if isinstance(r, PageRequest) and r.after is not None]
    assert town.peer(0).counters["history_sources_failed"] == 1
    town.run(20_000)
    assert not history(town, 0).readers[T].reading


def test_pages_must_climb(town: Town) -> None:
    request = first_page(town, 0, 1)
    known = [event.block for event in read_all(town.nodes[1].store, T)]  # type: ignore[arg-type]
    high, low = Head(cid_of(b"high"), 50), Head(cid_of(b"low"), 40)
    effects = hear(town, 0, 1, PageReply(T, request.request, known, next=high))
    [send] = asked(effects, PageRequest)
    assert isinstance(send.message, PageRequest) and send.message.after == high
    effects = hear(town, 0, 1, PageReply(T, send.message.request, known, next=low))
    assert town.peer(0).counters["history_sources_failed"] == 1
    assert all(other.to.peer != send.to.peer for other in asked(effects, PageRequest))


def test_a_source_that_pretends_to_have_pruned_is_not_believed_at_once() -> None:
    town = Town(4)
    town.subscribe(0, 1, 2)
    town.run(20_000)
    town.publish(*[0, 1] * 10)
    town.run(5_000)
    town.world.subscribe(town.nodes[3], T)
    town.run(20_000)
    local = town.nodes[3].clock.local_ms(town.world.now_ms)
    wish = town.peer(3).handle(Subscribe(7, T, None, "beginning"), local)
    [question] = asked(wish, PageRequest)  # which does not arrive: a liar answers in its place
    assert isinstance(question.message, PageRequest)
    [liar] = [node.index for node in town.nodes if node.contact == question.to]
    last = town.stream(0)[-1]
    newest = town.nodes[0].store.get(last)  # type: ignore[union-attr]
    assert newest is not None
    lie = PageReply(T, question.message.request, [newest], pruned=True)
    hear(town, 3, liar, lie)
    town.run(10_000)
    assert town.stream(3) == town.stream(0)


def test_what_waits_for_parents_is_bounded_in_bytes() -> None:
    town = Town(3)
    town.subscribe(0, 1)
    town.run(20_000)
    reader = history(town, 0).readers[T]
    room = reader.stream.dag.room
    room.bytes_most = 2_000
    for number in range(40):
        orphan = sealed(2, {cid_of(b"%d" % number): 4}, bytes(100))
        reader.take(orphan, town.nodes[2].contact, 1)
    assert 0 < len(room) < 10
    assert room.size <= 2_000


def test_events_before_the_beginning_are_bounded_in_bytes(town: Town) -> None:
    town.world.unsubscribe(town.nodes[3], T)
    town.nodes[3].store.__init__()  # type: ignore[union-attr,misc]
    town.world.subscribe(town.nodes[3], T)
    stream = history(town, 3).readers[T].stream
    assert not stream.begun
    for number in range(20):
        history(town, 3).on_arrived(Arrived(sealed(2, payload=b"%d" % number * 300), None, 1))
    assert sum(len(event.block) for event, _, _ in stream.early) <= 4_000
    assert stream.early


def test_records_that_mean_nothing_are_counted(town: Town) -> None:
    hear(town, 0, 1, TopicNews(T, b"junk"))
    assert town.peer(0).counters["history_refused_not_canonical"] == 1


def test_a_cut_answer_is_asked_on_at_the_same_peer() -> None:
    """Blocks that do not fit into one answer come with the next, though only one peer has them."""
    town = Town(2, page_bytes_max=1_500)
    town.subscribe(0)
    town.run(10_000)
    town.publish(*[0] * 10, every_ms=5, payload=bytes(600))
    town.subscribe(1, since="beginning")
    town.run(8_000)
    assert len(town.stream(1)) == 10


# --- parents that no peer ever sent ---------------------------------------------------------------


def orphan_for(town: Town, *numbers: int) -> SealedEvent:
    """Members get an event of a peer that withholds the parent that the event names."""
    [top] = history(town, 0).streams.parents(T).values()
    event = sealed(5, {cid_of(b"withheld"): top})
    for number in numbers:
        hear(town, number, 5, Payload(T, routed(event), 1))
    return event


def test_a_late_reader_does_not_wait_anew_for_what_members_have_given_up() -> None:
    """Campaign seed 51001: two readers waited, with all that was published meanwhile."""
    town = Town(6, give_up_ms=60_000)
    town.subscribe(0, 1, 2)
    town.run(20_000)
    town.publish(0, 1)
    orphan = orphan_for(town, 0, 1, 2)
    town.run(30_000)
    town.subscribe(3, since="beginning")
    town.run(50_000)
    assert town.counter("history_given_up") >= 3
    town.publish(0)
    town.run(15_000)
    assert orphan.cid in town.stream(3)
    assert town.stream(3) == town.stream(0)


@pytest.mark.parametrize(("liars", "gives_up"), [((1,), False), ((1, 2), False), ((1, 2, 3), True)])
def test_what_most_members_wait_for_is_waited_for(liars: tuple[int, ...], gives_up: bool) -> None:
    town = Town(6, give_up_ms=60_000)
    town.subscribe(0, 1, 2, 3, 4)
    town.run(20_000)
    town.publish(0, 1)
    town.run(5_000)
    orphan = orphan_for(town, 0, 1, 2, 3, 4)
    fetch = history(town, 0).fetch
    for _ in range(200):
        town.run(5)
        for number, request in list(fetch.requests.items()):
            [asked_of] = [node.index for node in town.nodes if node.contact == request.contact]
            if asked_of in liars:
                lie = BlocksReply(T, number, [], request.cids, given_up=request.cids)
                hear(town, 0, asked_of, lie)
    assert (orphan.cid in town.stream(0)) is gives_up


def test_where_a_stream_stands_is_told_at_length_a_few_times(town: Town) -> None:
    question = Heads(T, [], answer=True)
    told = [asked(hear(town, 0, 1, question), Heads) for _ in range(100)]
    assert told[0] and sum(map(len, told)) < 10
    town.run(20_000)
    assert asked(hear(town, 0, 1, question), Heads)
