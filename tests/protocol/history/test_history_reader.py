"""Little room for events that wait: whoever is far behind gets on all the same."""

from __future__ import annotations

import pytest

from history_kit import T, Town, hear, history
from weft.documents.descriptor import SealedEvent, seal_event
from weft.ids import cid_of
from weft.protocol.history import reader
from weft.protocol.history.stream import routed
from weft.protocol.seam import Send
from weft.protocol.wire import Payload
from weft.sim.checkers.history import check_complete_streams
from weft.sim.checkers.state import states_of
from weft.sim.network import Partition
from weft.sim.node import keyed


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
    monkeypatch.setattr(reader, "BESIDE_MAX", 50)
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


def test_whose_head_nobody_has_does_not_read_everything_again() -> None:
    """Peer 3 publishes by itself while it is cut off: nobody knows its head when it comes back.
    How much routing repairs before history does differs from seed to seed."""
    assert sum(served_after_a_cut(seed) for seed in (1, 2, 3)) < 3 * 800


def served_after_a_cut(seed: int) -> int:
    town = Town(4, seed=seed, walk_back_max=16)
    town.subscribe(*range(4))
    town.run(20_000)
    town.publish(*[0] * 600, every_ms=4)
    town.run(20_000)
    town.world.set_partition(Partition((0, 0, 0, 1)))
    town.publish(*[3, 0] * 400, every_ms=4)
    town.run(20_000)
    before = town.counter("history_blocks_served")
    town.world.set_partition(None)
    town.run(30_000)
    assert len(town.stream(3)) == 1_400
    assert town.stream(3) == town.stream(0)
    return town.counter("history_blocks_served") - before


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_whatever_is_lost_with_little_room_everything_comes_in_the_end(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers are cut off in turn and publish on branches of their own, messages get lost all the
    time, and hardly anything can wait. Once it is quiet, nobody lacks or looks for anything."""
    monkeypatch.setattr(reader, "BESIDE_MAX", 20)
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
        message = Payload(T, routed(event, event.block), 1)
        sent = [effect for effect in hear(town, 0, 1, message) if isinstance(effect, Send)]
        told = [effect.to for effect in sent if isinstance(effect.message, Payload)]
        assert town.nodes[2].contact in told
        hear(town, 0, 1, message)
        assert town.peer(0).counters["duplicates"] == number
    assert waiting(town, 0) == 1
    assert town.peer(0).counters["history_no_room"] == 1
