"""Little room for events that wait: a peer that is far behind gets on all the same."""

from __future__ import annotations

import pytest

from history_kit import T, Town, hear, history, routed, sealed
from weft.documents.descriptor import SealedEvent, seal_event
from weft.documents.run import RUN_MAX
from weft.ids import Cid, cid_of
from weft.protocol import seam
from weft.protocol.history import reader, server
from weft.protocol.history.reader import PageRequest
from weft.protocol.publication import RouteEvent
from weft.protocol.seam import Send
from weft.protocol.wire import Payload
from weft.sim.checkers.history import check_complete_streams
from weft.sim.checkers.state import states_of
from weft.sim.network import Partition
from weft.sim.node import keyed
from weft.store.interface import Batch, Since


def set_room(town: Town, number: int, events: int) -> None:
    """So many events may wait at a peer."""
    history(town, number).readers[T].stream.dag.room.most = events


def waiting(town: Town, number: int) -> int:
    return history(town, number).readers[T].stream.dag.waiting


def test_a_branch_that_ended_far_below_where_it_is_joined_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Peer 2 makes a branch by itself while the others go on for long; peer 3 misses how both are
    joined, and the first event that it gets of what follows names the end of the branch, which is
    much lower: nothing that peer 3 lacks lies close below what waits."""
    monkeypatch.setattr(server, "BESIDE_MAX", 50)
    monkeypatch.setattr(reader, "REACH", 8)
    town = Town(4, walk_back_max=16)
    town.subscribe(*range(4))
    town.run(20_000)
    town.publish(0)
    town.run(3_000)
    town.world.set_partition(Partition((0, 0, 1, 0)))
    town.publish(*[0, 2] * 60, *[0] * 540, every_ms=4)
    town.world.set_partition(Partition((0, 0, 0, 1)))
    town.run(60_000)
    set_room(town, 3, 20)
    town.publish(*[0] * 100, every_ms=4)
    town.run(130_000)  # until routing has forgotten all this
    town.world.set_partition(None)
    town.publish(*[0] * 20)
    town.run(60_000)
    assert waiting(town, 3) == 0
    assert town.stream(3) == town.stream(0)
    assert len(town.stream(3)) == 1 + 660 + 120


def served(town: Town, *numbers: int) -> int:
    return sum(town.peer(number).counters.get("history_blocks_served", 0) for number in numbers)


def test_a_reader_whose_head_nobody_has_does_not_read_everything_again() -> None:
    """Peer 3 publishes by itself while it is cut off: nobody knows its head when it comes back."""
    town = Town(4, walk_back_max=16)
    town.subscribe(*range(4))
    town.run(20_000)
    town.publish(*[0] * 600, every_ms=4)
    town.run(20_000)
    town.world.set_partition(Partition((0, 0, 0, 1)))
    town.publish(*[3, 0] * 400, every_ms=4)
    town.run(20_000)
    before = served(town, 0, 1, 2)
    town.world.set_partition(None)
    town.run(30_000)
    assert len(town.stream(3)) == 1_400
    assert town.stream(3) == town.stream(0)
    assert served(town, 0, 1, 2) - before < 800  # to peer 3, which lacks 400


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_whatever_is_lost_with_little_room_everything_comes_in_the_end(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers are cut off in turn and publish on branches of their own, messages get lost all the
    time, and hardly anything can wait. Once it is quiet, nobody lacks or looks for anything."""
    monkeypatch.setattr(server, "BESIDE_MAX", 20)
    monkeypatch.setattr(reader, "REACH", 4)
    town = Town(5, seed=seed, loss_percent=10, walk_back_max=4)
    town.subscribe(*range(5), since="beginning")
    town.run(20_000)
    for number in range(5):
        set_room(town, number, 3 + 4 * number)
    for alone in (4, 1, 2, 0):
        town.world.set_partition(Partition(tuple(int(number == alone) for number in range(5))))
        town.publish(*[alone, 3] * 30, every_ms=4)
    town.world.set_partition(None)
    town.publish(*[0, 1, 2] * 20, every_ms=4)
    town.run(180_000)
    assert check_complete_streams(states_of(town.world), town.world.now_ms) == []
    assert len(town.stream(0)) == 300
    for number in range(5):
        assert town.stream(number) == town.stream(0)
        assert len(town.delivered(number)) == len(set(town.delivered(number))) == 300


def orphan(number: int) -> SealedEvent:
    """An event of somebody outside, whose parent nobody has."""
    contact, sign = keyed(1, 9)
    return seal_event(
        sign,
        publisher=contact.peer,
        topic=T,
        payload=b"%d" % number,
        created_ms=1,
        parents={cid_of(b"parent of %d" % number): 5},
        metadata={"incarnation": 1, "number": number},
    )


def test_what_there_is_no_room_for_is_passed_on_and_not_brought_again() -> None:
    town = Town(3)
    town.subscribe(0, 1, 2)
    town.run(20_000)
    set_room(town, 0, 1)
    for number in (1, 2):
        event = orphan(number)
        message = Payload(T, routed(event), 1)
        sent = [effect for effect in hear(town, 0, 1, message) if isinstance(effect, Send)]
        told = [effect.to for effect in sent if isinstance(effect.message, Payload)]
        assert town.nodes[2].contact in told
        hear(town, 0, 1, message)
        assert town.peer(0).counters["duplicates"] == number
    assert waiting(town, 0) == 1
    assert town.peer(0).counters["history_no_room"] == 1


# --- gaps that only a peer outside of the topic can close -----------------------------------------


def hold(town: Town, number: int, *events: SealedEvent) -> None:
    """A peer has events in its store."""
    store = town.nodes[number].store
    assert store is not None
    store.commit([Batch(0, events)])


def bring(town: Town, event: SealedEvent) -> None:
    """Peer 0, which is not subscribed, brings peer 1 an event."""
    hear(town, 1, 0, RouteEvent(T, routed(event)))


def handed(town: Town) -> list[Cid]:
    return [cid for _, cid in town.delivered(1)]


@pytest.mark.parametrize("since", [None, "beginning"])
def test_a_lone_subscriber_gets_what_a_publisher_from_outside_published_before(
    since: Since | None,
) -> None:
    """Also while it wants the past, and there is no member yet to ask for it."""
    town = Town(2)
    town.subscribe(1, since=since)
    town.run(20_000)
    one = sealed(1)
    two = sealed(2, one)
    three = sealed(3, two)
    hold(town, 0, one, two)
    bring(town, three)
    town.run(5_000)
    assert handed(town) == [one.cid, two.cid, three.cid]


def test_a_gap_is_asked_of_each_peer_that_brings_an_event_above_it() -> None:
    """The peer that brought the first of them does not have it."""
    town = Town(3)
    town.subscribe(1)
    town.run(20_000)
    one = sealed(1)
    two = sealed(2, one)
    three = sealed(3, two)
    hear(town, 1, 2, RouteEvent(T, routed(two)))
    town.run(2_000)
    hold(town, 0, one)
    bring(town, three)
    town.run(10_000)
    assert handed(town) == [one.cid, two.cid, three.cid]


def chain(length: int, by: int) -> list[SealedEvent]:
    events = [sealed(1, by=by)]
    for number in range(2, length + 1):
        events.append(sealed(number, events[-1], by=by))
    return events


def searching() -> tuple[Town, list[SealedEvent], list[SealedEvent]]:
    """Peer 1 is the only subscriber and looks for where a branch of peer 0 forked off; the branch,
    and another one that it has not heard of."""
    town = Town(3, walk_back_max=2, patience_ms=10)
    town.subscribe(1)
    town.run(20_000)
    for event in chain(9, by=7):
        bring(town, event)
    town.world.record.deliveries.clear()
    branch, other = chain(7, by=9), chain(2, by=8)
    hold(town, 0, *branch)
    bring(town, branch[-1])
    reads = history(town, 1).readers[T]
    assert town.run_while(lambda: not reads.reading, 1, 5_000)
    return town, branch, other


def test_a_gap_that_shows_after_a_search_in_vain_is_closed() -> None:
    """The publisher goes down while a lone subscriber looks for where its branch forked off. There
    is no member, so no later turn: another publisher is asked for what came before its event."""
    town, _, other = searching()
    reads = history(town, 1).readers[T]
    town.crash(0)
    town.run(10_000)
    assert not reads.reading
    hold(town, 2, *other)
    hear(town, 1, 2, RouteEvent(T, routed(other[-1])))
    town.run(5_000)
    assert handed(town) == [event.cid for event in other]


def test_a_gap_that_shows_during_a_search_is_closed_after_it() -> None:
    """The member that is read from does not have what is missing; the peer that brought it does."""
    town, branch, other = searching()
    reads = history(town, 1).readers[T]
    hold(town, 2, *other)
    hear(town, 1, 2, RouteEvent(T, routed(other[-1])))
    assert reads.reading
    town.run(10_000)
    assert sorted(handed(town)) == sorted(event.cid for event in (*branch, *other))


def backlog(town: Town, number: int, events: int) -> None:
    """So many events of one peer, which is all that there is in the topic."""
    for start in range(0, events, RUN_MAX):
        some = [b"%d" % one for one in range(start, min(start + RUN_MAX, events))]
        town.world.publish(town.nodes[number], T, *some)
        town.run(20)
    town.run(2_000)


def test_pages_are_on_their_way_while_others_are_taken_in() -> None:
    """With a page a time, a way of 200 ms there and back made 1,280 events a second at most."""
    town = Town(3, latency_ms=100)
    town.subscribe(0)
    town.run(10_000)
    backlog(town, 0, 3_000)
    town.subscribe(2, since="beginning")
    assert town.run_while(lambda: not town.stored(2), 10, 30_000)
    begun_ms, asked = town.world.now_ms, town.world.sent[PageRequest]
    assert town.run_while(lambda: len(town.stored(2)) < 3_000, 10, 30_000)
    assert town.world.now_ms - begun_ms < 1_000  # 12 pages
    assert town.world.sent[PageRequest] - asked <= 3
    assert len(town.delivered(2)) == 3_000


def test_a_page_that_gets_lost_is_asked_for_again() -> None:
    town = Town(4, loss_percent=20)
    town.subscribe(0, 1)
    town.run(10_000)
    backlog(town, 0, 3_000)
    town.subscribe(2, since="beginning")
    assert town.run_while(lambda: len(town.delivered(2)) < 3_000, 500, 300_000)
    assert town.stream(2) == [cid for _, cid in town.delivered(2)]


def test_a_reader_that_is_far_behind_leaves_what_comes_to_the_pages() -> None:
    """It verified every new event, had no room for it, and verified it again in a page."""
    town = Town(3, latency_ms=100)
    town.subscribe(0)
    town.run(10_000)
    backlog(town, 0, 3_000)
    town.subscribe(2, since="beginning")
    published = 3_000
    while len(town.delivered(2)) < published - 200 and published < 9_000:
        some = [b"%d" % one for one in range(published, published + 50)]
        town.world.publish(town.nodes[0], T, *some)
        published += 50
        town.run(25)  # 2,000 a second
    level_at = published
    town.run(10_000)
    assert level_at < 9_000
    left = town.peer(2).counters["history_left_to_pages"]
    assert left > 0
    assert [cid for _, cid in town.delivered(2)] == town.stream(0)
    assert town.peer(2).counters["history_given_up"] == 0


class Mute:
    """A member that does what it should, but for answering those that ask it for pages."""

    def __init__(self, honest: seam.Machine) -> None:
        self._honest = honest

    def handle(self, fact: seam.Input, now: seam.Millis) -> list[seam.Effect]:
        if isinstance(fact, seam.Received) and isinstance(fact.message, PageRequest):
            return []
        return self._honest.handle(fact, now)


def test_silent_members_cost_a_reader_one_question_each() -> None:
    """With three questions each, and the same members at each turn, eight of them kept a reader
    from the past for four minutes."""
    town = Town(11)
    town.subscribe(*range(10))
    town.run(30_000)
    backlog(town, 0, 300)
    town.run(10_000)
    for number in range(1, 9):
        machine = town.nodes[number].machine
        assert machine is not None
        town.nodes[number].machine = Mute(machine)
    town.subscribe(10, since="beginning")
    assert town.run_while(lambda: len(town.delivered(10)) < 300, 500, 60_000)


@pytest.mark.parametrize("lies", ["lowest", "on a branch"])
def test_what_was_given_up_behind_a_cut_comes_after_it(lies: str) -> None:
    """A publisher shows an event's parent to one side alone; the other gives it up. The heads of
    both sides are the same then, or differ where what was given up had parents."""
    town = Town(6, give_up_ms=20_000, retry_ms=2_000)
    town.subscribe(0, 1, 2, 3, since="beginning")
    town.run(20_000)
    root = sealed(1)
    told = [root]
    if lies == "on a branch":
        told = [root, sealed(2, root)]
        for number in range(4):
            hear(town, number, 5, Payload(T, routed(root), 1))
    last = sealed(len(told) + 1, told[-1])
    town.world.set_partition(Partition((0, 0, 1, 1, 0, 0)))
    for number in (2, 3):
        for event in told:
            hear(town, number, 5, Payload(T, routed(event), 1))
    for number in range(4):
        hear(town, number, 5, Payload(T, routed(last), 1))
    town.run(town.config.dissemination.recent_ms)  # from then on only the history has them
    assert len(town.stream(0)) == len(town.stream(2)) - 1
    town.world.set_partition(None)
    town.run(200_000)
    assert town.stream(0) == town.stream(1) == town.stream(2) == [*(e.cid for e in told), last.cid]


def test_what_all_gave_up_comes_once_a_member_has_it() -> None:
    """From a file, say: its heads are what they were, so nothing tells the others."""
    town = Town(4, give_up_ms=20_000, retry_ms=2_000)
    town.subscribe(0, 1, 2, since="beginning")
    town.run(20_000)
    root = sealed(1)
    last = sealed(2, root)
    for number in range(3):
        hear(town, number, 3, Payload(T, routed(last), 1))
    town.run(60_000)
    assert {len(town.stream(number)) for number in range(3)} == {1}
    hold(town, 2, root)
    town.run(400_000)
    assert town.stream(0) == town.stream(1) == [root.cid, last.cid]
    assert handed(town) == [last.cid]  # and not what it follows, behind it


def test_a_peer_that_is_cut_off_gives_nothing_up() -> None:
    """No peer could answer: what lay before the gap is handed out in its order after the cut."""
    town = Town(4, give_up_ms=30_000)
    town.subscribe(1, 2, 3)
    town.run(20_000)
    first = sealed(1)
    last = sealed(2, first)
    town.world.set_partition(Partition((0, 1, 0, 0)))
    for event in (first, last):
        hear(town, 2, 0, Payload(T, routed(event), 1))
    bring(town, last)
    town.run(120_000)
    assert handed(town) == []
    town.world.set_partition(None)
    town.run(120_000)
    assert handed(town) == [first.cid, last.cid]


def test_a_member_that_never_answers_does_not_keep_a_reader_reading() -> None:
    """It read for two of three seconds, and gaps that showed meanwhile were left to that."""
    town = Town(2)
    town.subscribe(0)
    town.run(10_000)
    town.publish(0)
    machine = town.nodes[0].machine
    assert machine is not None
    town.nodes[0].machine = Mute(machine)
    town.subscribe(1, since="beginning")
    town.run(600_000)
    failed = town.peer(1).counters["history_sources_failed"]
    assert failed >= 3
    town.run(600_000)
    assert town.peer(1).counters["history_sources_failed"] - failed <= 3
