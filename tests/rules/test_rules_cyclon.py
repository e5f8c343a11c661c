"""Cyclon's rules: what an exchange may do to a view, and what many of them do to an overlay."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chi_square import chi_square_p
from weft.rules import cyclon, draw

ME = 0


@dataclass
class Case:
    """A view, and what an exchange brings to it."""

    peers: list[int]
    ages: list[int]
    received: list[tuple[int, int]]
    sent: list[int]
    view_size: int


@st.composite
def cases(pick: st.DrawFn) -> Case:
    peers = pick(st.lists(st.integers(1, 30), unique=True, max_size=12))
    ages = pick(st.lists(st.integers(0, 255), min_size=len(peers), max_size=len(peers)))
    received = pick(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 255)), max_size=10))
    in_view = st.sampled_from(peers) if peers else st.nothing()
    sent = pick(st.lists(in_view | st.integers(41, 50), unique=True, max_size=8))
    sent.sort(key=lambda peer: peers.index(peer) if peer in peers else -1)
    view_size = len(peers) + pick(st.integers(0, 4))
    return Case(peers, ages, received, sent, view_size)


def merged(case: Case) -> tuple[list[int], list[int]]:
    peers, ages = list(case.peers), list(case.ages)
    cyclon.merge(peers, ages, case.received, case.sent, ME, case.view_size)
    return peers, ages


# --- merging ------------------------------------------------------------------------------------


@given(cases())
def test_a_merged_view_has_no_self_no_duplicate_and_fits(case: Case) -> None:
    peers, ages = merged(case)
    assert ME not in peers
    assert len(set(peers)) == len(peers) == len(ages)
    assert len(case.peers) <= len(peers) <= case.view_size


@given(cases())
def test_only_what_was_sent_away_gives_up_its_slot(case: Case) -> None:
    peers, ages = merged(case)
    for slot, (peer, age) in enumerate(zip(case.peers, case.ages, strict=True)):
        if peer not in case.sent:
            assert (peers[slot], ages[slot]) == (peer, age)


@given(cases())
def test_empty_slots_are_filled_first_and_sent_slots_in_order(case: Case) -> None:
    peers, _ = merged(case)
    new = list(dict.fromkeys(p for p, _ in case.received if p != ME and p not in case.peers))
    empty = case.view_size - len(case.peers)
    offered = [case.peers.index(peer) for peer in case.sent if peer in case.peers]
    assert peers[len(case.peers) :] == new[:empty]
    for slot, peer in zip(offered, new[empty:], strict=False):
        assert peers[slot] == peer
    kept = new[: empty + len(offered)]
    assert set(peers) - set(case.peers) == set(kept)


@given(cases())
def test_newcomers_bring_their_age(case: Case) -> None:
    peers, ages = merged(case)
    first: dict[int, int] = {}
    for peer, age in case.received:
        first.setdefault(peer, age)
    for peer, age in zip(peers, ages, strict=True):
        if peer not in case.peers:
            assert age == first[peer]


# --- the small steps ----------------------------------------------------------------------------


@given(st.lists(st.integers(0, 255), min_size=1))
def test_the_oldest_slot_is_the_first_of_the_oldest(ages: list[int]) -> None:
    slot = cyclon.oldest_slot(ages)
    assert ages[slot] == max(ages)
    assert max(ages[:slot], default=-1) < ages[slot]


def test_ages_saturate() -> None:
    assert cyclon.aged([0, 7, 254, 255]) == [1, 8, 255, 255]


@given(st.lists(st.integers(), unique=True, min_size=1), st.data())
def test_taking_out_keeps_the_rest_with_their_ages(peers: list[int], data: st.DataObject) -> None:
    ages = [peer % 256 for peer in peers]
    slot = data.draw(st.integers(0, len(peers) - 1))
    gone = peers[slot]
    rest = {peer: peer % 256 for peer in peers if peer != gone}
    cyclon.take_out(peers, ages, slot)
    assert dict(zip(peers, ages, strict=True)) == rest


@given(st.integers(0, draw.MASK64), st.integers(0, 63), st.integers(0, 20))
def test_an_exchange_carries_distinct_slots(key: int, count: int, wanted: int) -> None:
    slots = cyclon.slots_to_send(key, count, wanted)
    assert slots == sorted(set(slots))
    assert len(slots) == min(count, wanted)
    assert all(0 <= slot < count for slot in slots)


# --- many exchanges -----------------------------------------------------------------------------

# In-degrees are narrow where received entries are seldom known already: peers ≫ view × shuffle.
PEERS, VIEW, SHUFFLE = 1_000, 8, 4
ASK, ANSWER, ORDER, SAMPLE = (draw.stream_of(name) for name in ("ask", "answer", "order", "pick"))


class Overlay:
    """All peers' views, exchanged one after the other by nothing but the rules."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.cycle = 0
        # The worst start: a ring in which everybody knows those next to it.
        self.peers = [[(me + step) % PEERS for step in range(1, VIEW + 1)] for me in range(PEERS)]
        self.ages = [[0] * VIEW for _ in range(PEERS)]

    def run(self, cycles: int) -> None:
        for _ in range(cycles):
            self.cycle += 1
            order = sorted(
                range(PEERS), key=lambda p: draw.draw(self.seed, ORDER, p, self.cycle, 0)
            )
            for asker in order:
                self.exchange(asker)

    def exchange(self, asker: int) -> None:
        peers, ages = self.peers[asker], self.ages[asker]
        ages[:] = cyclon.aged(ages)
        slot = cyclon.oldest_slot(ages)
        asked = peers[slot]
        cyclon.take_out(peers, ages, slot)
        key = draw.key_of(self.seed, ASK, asker, self.cycle)
        mine = [(peers[s], ages[s]) for s in cyclon.slots_to_send(key, len(peers), SHUFFLE - 1)]
        theirs_peers, theirs_ages = self.peers[asked], self.ages[asked]
        key = draw.key_of(self.seed, ANSWER, asker, self.cycle)
        slots = cyclon.slots_to_send(key, len(theirs_peers), SHUFFLE)
        theirs = [(theirs_peers[s], theirs_ages[s]) for s in slots]
        sent = [peer for peer, _ in theirs]
        cyclon.merge(theirs_peers, theirs_ages, [*mine, (asker, 0)], sent, asked, VIEW)
        cyclon.merge(peers, ages, theirs, [peer for peer, _ in mine], asker, VIEW)

    def in_degrees(self) -> list[int]:
        counts = [0] * PEERS
        for view in self.peers:
            for peer in view:
                counts[peer] += 1
        return counts

    def samples(self) -> list[tuple[int, int]]:
        """One random neighbour of every peer, as (asking, got)."""
        return [
            (me, view[draw.below(draw.draw(self.seed, SAMPLE, me, self.cycle, 0), len(view))])
            for me, view in enumerate(self.peers)
        ]


@pytest.fixture(scope="module")
def mixed() -> Overlay:
    overlay = Overlay(seed=1)
    overlay.run(30)
    return overlay


def test_in_degrees_gather_round_the_view_size(mixed: Overlay) -> None:
    degrees = mixed.in_degrees()
    assert statistics.fmean(degrees) == VIEW  # nobody lost a neighbour
    assert statistics.pstdev(degrees) < 1.5  # a random graph's would be 2.8


def test_views_stay_whole(mixed: Overlay) -> None:
    for me, view in enumerate(mixed.peers):
        assert len(view) == len(set(view)) == VIEW
        assert me not in view


def test_samples_are_uniform_over_all_peers(mixed: Overlay) -> None:
    by_peer, by_distance = [0] * PEERS, [0] * (PEERS - 1)
    for _ in range(12):
        mixed.run(3)
        for me, peer in mixed.samples():
            by_peer[peer] += 1
            by_distance[(peer - me) % PEERS - 1] += 1
    assert chi_square_p(by_peer) > 1e-3
    # Nothing is left of the ring it started from.
    assert chi_square_p(by_distance) > 1e-3
