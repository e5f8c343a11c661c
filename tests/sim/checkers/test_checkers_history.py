"""The judges of order and of complete streams see what they should, and nothing else."""

from __future__ import annotations

from signed_kit import NOW_MS, SPORTS, event
from weft.documents.descriptor import SealedEvent, handed_out
from weft.sim.checkers.history import check_complete_streams, check_order
from weft.sim.checkers.state import PeerState, StreamState
from weft.sim.record import Delivery, Record
from weft.store.interface import Batch
from weft.store.memory import MemoryStore

ONE = event(b"1")
TWO = event(b"2", ONE)
BESIDE = event(b"3", ONE)
THREE = event(b"4", TWO)


def record_of(*handed: tuple[int, int, SealedEvent]) -> Record:
    """What was handed out: peer, life, event."""
    record = Record()
    for at_ms, (peer, life, one) in enumerate(handed):
        told = Delivery(at_ms, peer, life, one.topic, handed_out(one, one.payload).event(0), 1, one)
        record.deliveries.append(told)
    return record


def test_parents_first_is_in_order() -> None:
    assert check_order(record_of(*((1, 1, e) for e in (ONE, BESIDE, TWO, THREE))), {}) == []
    assert check_order(record_of(*((1, 1, e) for e in (ONE, TWO, BESIDE, THREE))), {}) == []


def test_a_parent_after_its_child_is_out_of_order() -> None:
    [text] = check_order(record_of((1, 1, TWO), (1, 1, ONE)), {})
    assert "peer 1 was handed" in text and "which follows it" in text


def test_a_far_ancestor_after_its_descendant_is_out_of_order() -> None:
    """The one between was never handed to this peer; another's delivery or store shows it."""
    late = [(1, 1, THREE), (1, 1, ONE)]
    assert len(check_order(record_of(*late, (2, 1, TWO)), {})) == 1
    store = MemoryStore()
    store.commit([Batch(NOW_MS, (ONE, TWO, THREE))])
    assert len(check_order(record_of(*late), {2: store})) == 1
    assert check_order(record_of(*late), {}) == []  # nobody can know


def test_other_peers_lives_and_branches_do_not_count() -> None:
    assert check_order(record_of((1, 1, TWO), (2, 1, ONE), (1, 3, ONE)), {}) == []
    assert check_order(record_of((1, 1, TWO), (1, 1, BESIDE)), {}) == []


def test_streams_that_lack_something_in_the_end_are_told() -> None:
    done = PeerState(0, streams={SPORTS: StreamState()})
    stuck = PeerState(1, streams={SPORTS: StreamState(waiting=20, missing=1, reading=True)})
    assert check_complete_streams({0: done}, 99) == []
    [text] = check_complete_streams({0: done, 1: stuck}, 99)
    assert text == (
        "peer 1 at 99 ms: 20 events of /sports wait for 1 that are missing, and it is still reading"
    )
    withheld = PeerState(1, streams={SPORTS: StreamState(20, 1, publishers=(3, 4))})
    assert check_complete_streams({1: withheld}, 99, honest=3) == []
    assert len(check_complete_streams({1: withheld}, 99, honest=4)) == 1  # one is honest
    assert len(check_complete_streams({1: withheld}, 99)) == 1
    reading = PeerState(2, streams={SPORTS: StreamState(reading=True)})
    assert len(check_complete_streams({2: reading}, 99)) == 1
