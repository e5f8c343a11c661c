"""Where a subscription without a past begins, and that nothing from before comes late."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

import history_kit
from history_kit import T, Town, history, routed, sealed
from weft.documents.descriptor import SealedEvent
from weft.documents.run import NOTHING_BEFORE
from weft.ids import Cid, PeerId, Topic, cid_of
from weft.protocol.history.blocks import BlocksReply, BlocksRequest
from weft.protocol.history.stream import Had, Head, Heads, Seen
from weft.protocol.seam import Send
from weft.protocol.wire import Message, Payload
from weft.sim.network import Conditions
from weft.store.reader import read_all

EVERYTHING = 1 << 62  # more than any publisher will publish


def waiting(asked: bool = True) -> Town:
    """Peer 1 has subscribed, has asked peer 0 where to begin, and has not begun."""
    town = Town(2)
    town.world.subscribe(town.nodes[1], T)
    if asked:
        history(town, 1).link_up(T, town.nodes[0].contact)
        history_kit.hear(town, 1, 0, Heads(Topic("/other"), [], False))  # a step: the question goes
    assert not history(town, 1).readers[T].stream.begun
    return town


def hear(town: Town, *events: SealedEvent) -> None:
    """Peer 1 gets events from peer 0."""
    for event in events:
        history_kit.hear(town, 1, 0, Payload(T, routed(event), 1))


def handed(town: Town) -> list[Cid]:
    return [cid for _, cid in town.delivered(1)]


def begin(
    town: Town,
    head: SealedEvent,
    *had: Had,
    signed: Sequence[SealedEvent] = (),
    tips: Sequence[SealedEvent] = (),
    lower: Sequence[SealedEvent] = (),
) -> list[Message]:
    """Peer 0 says where to begin (`lower`: its other heads), shows what the publishers of some
    events have signed, and names the latest events of others. Returns what peer 1 sends."""
    proofs = [history_kit.stated(event) for event in signed]
    heads = [Head(one.cid, one.height) for one in (head, *lower)]
    told = Heads(T, heads, False, seen=list(had), proofs=proofs)
    effects = history_kit.hear(town, 1, 0, replace(told, tips=[event.cid for event in tips]))
    return [effect.message for effect in effects if isinstance(effect, Send)]


def test_what_lies_before_the_beginning_never_comes_after_it() -> None:
    town = waiting()
    one = sealed(1)
    two = sealed(2, one)
    three = sealed(3, two)
    begin(town, three, Had(three.publisher, 1, 3))
    hear(town, three, two, one)
    assert handed(town) == [three.cid]
    assert town.peer(1).counters["history_before"] == 2


def test_a_head_that_comes_after_what_lies_higher_is_passed_over() -> None:
    """The member that names both as heads may lack what lies between."""
    town = waiting()
    low, between = sealed(1), sealed(2, sealed(1))
    high = sealed(1, between, by=8)
    had = Had(low.publisher, 1, 2), Had(high.publisher, 1, 1)
    asked = [
        cid
        for message in begin(town, high, *had, lower=[low])
        if isinstance(message, BlocksRequest)
        for cid in message.cids
    ]
    assert asked == [low.cid, high.cid]  # and so they come in this order, mostly
    hear(town, high, low)
    assert handed(town) == [high.cid]
    assert history(town, 1).readers[T].stream.dag.waiting == 0


def test_heads_side_by_side_are_handed_out_the_lowest_first() -> None:
    town = waiting()
    low, one = sealed(1), sealed(1, by=8)
    high = sealed(2, one, by=8)
    begin(town, high, Had(low.publisher, 1, 1), Had(high.publisher, 1, 2), lower=[low])
    hear(town, low, high)
    assert handed(town) == [low.cid, high.cid]


def test_a_low_branch_from_elsewhere_comes_parents_first() -> None:
    """By heights it would lie before the beginning; its publisher shows that it does not."""
    town = waiting()
    one = sealed(1)
    two = sealed(2, one)
    low = sealed(1, by=8)
    child = sealed(2, low, by=8)
    begin(town, two, Had(two.publisher, 1, 2))
    hear(town, two, child)
    assert handed(town) == [two.cid]  # the child waits for its parent
    hear(town, low)
    assert handed(town) == [two.cid, low.cid, child.cid]


def test_what_came_before_the_word_to_begin_with_is_handed_out_in_order() -> None:
    town = waiting()
    one = sealed(1)
    two = sealed(2, one)
    three = sealed(3, two)
    hear(town, two, one)
    begin(town, three, Had(three.publisher, 1, 3))
    hear(town, three)
    assert handed(town) == [one.cid, two.cid, three.cid]


@pytest.mark.parametrize("created_ms", [1, 2])
def test_an_event_of_one_test_goes_on_from_none_of_another(created_ms: int) -> None:
    """Or tests would fail by the order in which files are handed to processes."""
    assert routed(sealed(2, created_ms=created_ms)).prev == NOTHING_BEFORE
    sealed(1)


def test_an_event_behind_a_later_one_of_its_publisher_is_not_handed_out() -> None:
    """What lies between them was given up and has not come, so only the numbers tell."""
    town = waiting()
    begin(town, sealed(1, by=8))
    one = sealed(1)
    two = sealed(2, one)
    three = sealed(3, two)
    four = sealed(4, three)
    hear(town, four)
    streams, stream = history(town, 1).streams, history(town, 1).readers[T].stream
    streams.give_up(stream, [three.cid])
    hear(town, one)
    assert handed(town) == [four.cid]
    assert town.peer(1).counters["history_late"] == 1
    other = sealed(1, by=7)
    hear(town, other)
    assert handed(town) == [four.cid, other.cid]


def test_heads_alone_are_no_beginning() -> None:
    """A peer that tells its heads without what came before them is asked for that."""
    town = waiting()
    one = sealed(1)
    heads = Heads(T, [Head(one.cid, 1)], False)
    effects = history_kit.hear(town, 1, 0, heads)
    assert not history(town, 1).readers[T].stream.begun
    [send] = [effect for effect in effects if isinstance(effect, Send)]
    assert isinstance(send.message, Heads) and send.message.answer and send.message.heads == []


def test_a_peer_that_was_not_asked_is_no_beginning() -> None:
    """A stranger's word, whatever it says, and however often."""
    town = waiting(asked=False)
    one = sealed(1, created_ms=town.world.now_ms)
    for _ in range(3):
        history_kit.hear(town, 1, 0, Heads(T, [], False, seen=[Had(one.publisher, 1, EVERYTHING)]))
    assert not history(town, 1).readers[T].stream.begun


def test_a_number_that_no_publisher_signed_makes_nothing_old() -> None:
    """A member that was asked claims to have had all there will ever be: it is believed about what
    was created before."""
    town = waiting()
    before = sealed(1)
    one = sealed(1, before, by=8)
    begun_ms = town.world.now_ms
    begin(town, one, Had(before.publisher, 1, EVERYTHING), Had(one.publisher, 1, EVERYTHING))
    two = sealed(2, one, by=8, created_ms=begun_ms)
    branch = sealed(1, before, by=7)
    hear(town, one, two, branch, before)
    assert handed(town) == [one.cid, two.cid, branch.cid]


def test_what_is_signed_makes_nothing_old_that_follows_it() -> None:
    """A member that was asked shows the first event's statement, and claims more."""
    town = waiting()
    one = sealed(1, created_ms=town.world.now_ms)
    begin(town, one, Had(one.publisher, 1, EVERYTHING), signed=[one])
    two = sealed(2, one, created_ms=town.world.now_ms)
    hear(town, one, two)
    assert handed(town) == [one.cid, two.cid]


def test_a_forged_statement_proves_nothing() -> None:
    town = waiting()
    one = sealed(1, created_ms=town.world.now_ms)
    forged = replace(history_kit.stated(one), first=EVERYTHING)
    had = Had(one.publisher, 1, EVERYTHING)
    history_kit.hear(town, 1, 0, Heads(T, [], False, seen=[had], proofs=[forged]))
    hear(town, one)
    assert handed(town) == [one.cid]
    assert town.peer(1).counters["forged"] == 1


def test_a_new_subscriber_is_shown_what_publishers_signed() -> None:
    town = waiting()
    one = sealed(1)
    begin(town, one)
    hear(town, one)
    effects = history_kit.hear(town, 1, 0, Heads(T, [], True))
    [told] = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Heads)]
    assert told.proofs == [history_kit.stated(one)]


def test_a_fast_clock_does_not_put_an_event_after_the_beginning() -> None:
    """The date that its publisher gave it lies far ahead."""
    town = waiting()
    one = sealed(1, created_ms=1 << 40)
    two = sealed(1, one, by=8)
    three = sealed(1, two, by=6)
    branch = sealed(1, one, by=7)
    begin(town, three, Had(one.publisher, 1, 1), Had(two.publisher, 1, 1), signed=[one])
    hear(town, three, branch, one)
    assert handed(town) == [three.cid, branch.cid]


def test_a_fast_clock_changes_nothing_where_the_beginning_itself_is_the_proof() -> None:
    """Campaign seed 147263673032425: the member had the stream from its store, and nothing that its
    publisher signed but the events themselves."""
    town = waiting()
    one = sealed(1, created_ms=1 << 40)
    two = sealed(2, one, created_ms=1 << 40)
    three = sealed(3, two, created_ms=1 << 40)
    begin(town, three, Had(three.publisher, 1, 3))
    hear(town, three, one, two)
    assert handed(town) == [three.cid]


def test_a_fast_clock_changes_nothing_where_the_latest_event_is_the_proof() -> None:
    """Campaign seed 127773218470957: the member got it as a block, without a statement."""
    town = waiting()
    one = sealed(1, created_ms=1 << 40)
    two = sealed(2, one, created_ms=1 << 40)
    three = sealed(1, two, by=8)
    begin(town, three, Had(two.publisher, 1, 2), Had(three.publisher, 1, 1), tips=[two])
    hear(town, three, one)  # may lie before the beginning, or not
    assert handed(town) == [three.cid]
    hear(town, two)
    town.run(20_000)
    assert handed(town) == [three.cid]
    restart(town)
    hear(town, one, two)
    assert handed_now(town) == []


def test_a_proof_counts_though_the_member_that_named_it_is_lost() -> None:
    """Campaign seed 249344396055504: others brought it a second later, and it proved nothing."""
    town = waiting()
    one = sealed(1, created_ms=1 << 40)
    two = sealed(2, one, created_ms=1 << 40)
    three = sealed(1, two, by=8)
    begin(town, three, Had(two.publisher, 1, 2), Had(three.publisher, 1, 1), tips=[two])
    history(town, 1).on_peer_lost(history_kit.id_of(town, 0))
    hear(town, one, two, three)
    town.run(20_000)
    assert handed(town) == []  # all of it lies before


def test_a_newcomer_passes_on_the_proofs_that_it_was_shown() -> None:
    """Of a crowd many begin with one that has just begun, and has no event yet."""
    town = waiting()
    one = sealed(1, by=7)
    two = sealed(1, one, by=8)
    begin(town, two, Had(one.publisher, 1, 1), Had(two.publisher, 1, 1), signed=[one])
    effects = history_kit.hear(town, 1, 0, Heads(T, [], True))
    [told] = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Heads)]
    assert (told.proofs, told.tips) == ([history_kit.stated(one)], [two.cid])


def test_a_newcomer_shows_the_events_that_proved_its_own_beginning() -> None:
    """It passes them over, so they are not stored. Yet one that begins here has to see them, or it
    takes an old event for a new one where a publisher's clock is fast."""
    town = waiting()
    old = sealed(1, by=7, created_ms=1 << 40)
    head = sealed(1, by=8)
    number = Had(old.publisher, 1, 1)
    [asked] = begin(town, head, number, Had(head.publisher, 1, 1), tips=[old])
    assert isinstance(asked, BlocksRequest) and old.cid in asked.cids
    blocks = [head.block, old.block]
    history_kit.hear(town, 1, 0, BlocksReply(T, asked.request, blocks, []))
    assert handed(town) == [head.cid]
    effects = history_kit.hear(town, 1, 0, Heads(T, [], True))
    [told] = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Heads)]
    assert number in (told.seen or ()) and old.cid in told.tips
    effects = history_kit.hear(town, 1, 0, BlocksRequest(T, 1, [old.cid]))
    [reply] = [e.message for e in effects if isinstance(e, Send)]
    assert isinstance(reply, BlocksReply) and reply.blocks == [old.block]


def test_an_event_is_not_named_as_proof_where_a_later_one_proves_more() -> None:
    town = waiting()
    old = sealed(1, by=7, created_ms=1 << 40)
    head = sealed(1, by=8)
    begin(town, head, Had(old.publisher, 1, 1), Had(head.publisher, 1, 1), tips=[old])
    later = sealed(2, head, by=7)
    hear(town, head, old, later)
    effects = history_kit.hear(town, 1, 0, Heads(T, [], True))
    [told] = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Heads)]
    assert old.cid not in told.tips


def test_an_event_that_nobody_has_keeps_others_back_for_some_seconds() -> None:
    """A member that was asked claims to have had all there will ever be, and to have proof."""
    town = waiting()
    nobodys = sealed(9, by=7)
    one = sealed(1)
    two = sealed(2, one, created_ms=1 << 40)
    town.world.network.set_conditions(Conditions(loss_percent=100))  # it does not answer either
    begin(town, one, Had(one.publisher, 1, EVERYTHING), tips=[nobodys])
    hear(town, one, two)
    town.run(5_000)
    assert handed(town) == [one.cid]
    town.run(30_000)
    assert handed(town) == [one.cid, two.cid]


def test_a_member_names_the_latest_events_that_it_has_no_statement_of() -> None:
    town = waiting()
    one = sealed(1)
    two = sealed(2, one)
    begin(town, two)
    hear(town, two)
    effects = history_kit.hear(town, 1, 0, Heads(T, [], True))
    [told] = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Heads)]
    assert told.tips == []
    restart(town)
    effects = history_kit.hear(town, 1, 0, Heads(T, [], True))
    [told] = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Heads)]
    assert (told.proofs, told.tips) == ([], [two.cid])


def test_what_lies_before_is_known_however_late_it_comes() -> None:
    """A branch that was cut off for long forks off below the beginning."""
    town = waiting()
    one = sealed(1)
    two = sealed(2, one)
    three = sealed(1, two, by=8)
    branch = sealed(1, one, by=7, created_ms=town.world.now_ms)
    begin(town, three, Had(one.publisher, 1, 2), Had(three.publisher, 1, 1))
    hear(town, three)
    town.run(10 * town.peer(1).config.dissemination.recent_ms)
    hear(town, branch, one)
    assert handed(town) == [three.cid, branch.cid]


def restart(town: Town) -> None:
    """Peer 1 crashes, comes up again and goes on from its store."""
    town.run(10)  # what it has is stored
    town.crash(1)
    town.start(1, [0])
    town.world.subscribe(town.nodes[1], T)


def handed_now(town: Town) -> list[Cid]:
    """Since peer 1 came up."""
    life = town.nodes[1].life
    return [cid for number, cid in town.delivered(1) if number == life]


def test_what_lay_before_the_beginning_lies_there_in_the_next_life_too() -> None:
    """The store has the end of the stream only; what came before it was passed over, not missed."""
    town = waiting()
    one = sealed(1)
    two = sealed(1, one, by=8)
    begin(town, two, Had(one.publisher, 1, 1), Had(two.publisher, 1, 1))
    hear(town, two)
    restart(town)
    three = sealed(2, two, by=8)
    branch = sealed(1, one, by=7)  # its publisher knew nothing but the first event
    hear(town, three, branch, one)
    assert handed_now(town) == [three.cid, branch.cid]


def test_a_new_subscriber_hears_of_what_lay_before_the_beginning_of_another() -> None:
    town = waiting()
    one = sealed(1)
    two = sealed(1, one, by=8)
    begin(town, two, Had(one.publisher, 1, 1), Had(two.publisher, 1, 1))
    hear(town, two)
    restart(town)
    effects = history_kit.hear(town, 1, 0, Heads(T, [], True))
    [told] = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Heads)]
    assert told.seen == [Had(one.publisher, 1, 1), Had(two.publisher, 1, 1)]


def test_a_head_that_was_passed_over_is_not_missed_by_the_events_after_it() -> None:
    """The member that told it was lost, so it could not be fetched when the subscription began."""
    town = waiting()
    one = sealed(1)
    two = sealed(2, one)
    three = sealed(1, two, by=8)
    begin(town, two, Had(one.publisher, 1, 2))
    history(town, 1).on_peer_lost(history_kit.id_of(town, 0))
    hear(town, two, three)
    assert handed(town) == [three.cid]
    town.run(10)
    store = town.nodes[1].store
    assert store is not None and store.missing(T) == []


def test_what_is_on_its_way_to_the_store_is_not_handed_out_again() -> None:
    """A user that unsubscribes and subscribes again meanwhile."""
    town = Town(2)
    town.subscribe(1)
    town.run(20_000)
    one = sealed(1)
    two = sealed(2, one)
    hear(town, one)
    town.world.unsubscribe(town.nodes[1], T)
    town.world.subscribe(town.nodes[1], T, None, "beginning")
    hear(town, two)
    town.run(20_000)
    hear(town, one)
    assert handed(town) == [one.cid, two.cid]
    assert history(town, 1).readers[T].stream.dag.waiting == 0


def test_a_subscriber_that_asks_for_the_past_gets_what_lay_before() -> None:
    town = Town(3)
    town.subscribe(0)
    town.run(20_000)
    town.publish(*[0] * 6)
    town.subscribe(1)
    town.run(20_000)
    assert len(town.delivered(1)) == 1  # the head
    town.subscribe(1, since="beginning")
    town.run(20_000)
    assert len(town.delivered(1)) == 6 and town.stream(1) == town.stream(0)


def test_publishers_remembered_are_bounded() -> None:
    seen = Seen(4)
    for number in range(9):
        seen.add(Had(PeerId(cid_of(b"%d" % number)[:32]), 1, 1))
    assert len(seen.all()) == 4


@pytest.mark.parametrize("comes_back", [False, True])
def test_what_is_published_after_leaving_follows_what_was_published_before(
    comes_back: bool,
) -> None:
    """Campaign seed 160851303296717: the earlier event was not stored yet, and both were children
    of the one before it; subscribers that had the later one first were not handed the earlier."""
    town = Town(2)
    town.subscribe(0)
    town.run(20_000)
    node = town.nodes[0]
    town.world.publish(node, T, b"one", b"two")
    town.world.unsubscribe(node, T)
    if comes_back:
        town.world.subscribe(node, T)
    town.world.publish(node, T, b"three")
    town.run(10_000)
    assert node.store is not None
    *_, two, three = read_all(node.store, T)
    assert (two.payload, three.payload, three.parents) == (b"two", b"three", (two.cid,))
