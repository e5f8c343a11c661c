"""How many members a topic has: counted while few, estimated by Sample & Collide when many."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from protocol_kit import Group, Rig, T, contact, everything_sent, sent, told
from weft.protocol import config as c
from weft.protocol import seam
from weft.protocol.membership import Descriptor, JoinGift, OverlayNews, ShuffleReply, ShuffleRequest
from weft.protocol.peer import Peer
from weft.protocol.tera.size import SampleReply, SampleWalk

SMALL_VIEWS = c.Config(cyclon=c.Cyclon(view_size=6, shuffle_length=4, stable_period_max=1))


def member(others: int, config: c.Config = SMALL_VIEWS) -> Rig:
    """A subscriber whose view holds so many others."""
    rig = Rig(1, config)
    rig.subscribe(scheme="flood")
    for number in range(2, others + 2):
        rig.hear(number, JoinGift(T, Descriptor(contact(number), 0)))
    return rig


class Stranger(Peer):
    """A peer that answers nothing."""

    def handle(self, fact: seam.Input, now: seam.Millis) -> list[seam.Effect]:
        return []


def popularity(rig: Rig) -> int:
    return rig.peer.tera.topics[T].popularity


def hear_of(rig: Rig, size: int, age_ms: int = 0) -> None:
    state = rig.peer.tera.topics[T]
    rig.hear(2, ShuffleRequest(T, 1, [], OverlayNews(state.overlay, size, age_ms, 0)))


# --- counting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [0, 1, 4])
def test_a_group_that_fits_a_view_is_counted(others: int) -> None:
    assert popularity(member(others)) == others + 1


@pytest.mark.parametrize("size", [2, 4, 12])
def test_members_of_a_small_group_agree_on_its_size(size: int) -> None:
    group = Group(size)
    group.run(2_000)
    group.subscribe_all()
    group.run(150_000)
    assert [peer.tera.topics[T].popularity for peer in group.peers.values()] == [size] * size


# --- sharing ------------------------------------------------------------------------------------


def test_what_others_estimated_is_taken_over_and_passed_on() -> None:
    rig = member(6)
    hear_of(rig, 700, age_ms=1_000)
    assert popularity(rig) == 700
    news = rig.peer.tera.topics[T].news()
    assert (news.size, news.size_ms) == (700, 1_000)


def test_the_fresher_estimate_counts() -> None:
    rig = member(6)
    hear_of(rig, 700, age_ms=1_000)
    hear_of(rig, 500, age_ms=2_000)
    assert popularity(rig) == 700
    hear_of(rig, 600, age_ms=500)
    assert popularity(rig) == 600


def test_an_old_estimate_is_not_passed_on() -> None:
    rig = member(6)
    hear_of(rig, 700, age_ms=rig.peer.config.size.fresh_ms)
    assert popularity(rig) == 7
    hear_of(rig, 700)
    rig.now += rig.peer.config.size.fresh_ms
    [(_, reply)] = sent(rig.hear(2, ShuffleRequest(T, 2, [])), ShuffleReply)
    assert reply.news.size == 0


def test_a_small_group_is_counted_whatever_others_say() -> None:
    rig = member(3)
    hear_of(rig, 700)
    assert popularity(rig) == 4


def test_an_estimate_is_scaled_before_it_is_advertised_and_a_count_is_not() -> None:
    rig = member(6)
    hear_of(rig, 900)
    assert popularity(rig) == 900
    assert rig.peer.tera.topics[T].popularity_to_advertise == 1_000  # by l/(l−1), l = 10
    assert member(3).peer.tera.topics[T].popularity_to_advertise == 4


@pytest.mark.parametrize("size", [1, (1 << 32) - 1])
def test_a_strangers_false_size_is_advertised_by_nobody(size: int) -> None:
    group = Group(40)
    group.run(20_000)
    group.subscribe_all()
    group.run(120_000, steps_max=1_000_000)
    group.peers[99] = Stranger(contact(99), 7, group.config)
    group.effects[99] = []
    states = [group.peers[number].tera.topics[T] for number in range(1, 41)]
    for member_told in (3, 17):
        lie = ShuffleRequest(T, 1, [Descriptor(contact(99), 0)], OverlayNews(0, size, 0, 0))
        group.do(member_told, seam.Received(contact(99), lie))
    for _ in range(12):
        group.run(10_000, steps_max=1_000_000)
        assert all(10 <= state.popularity_to_advertise <= 160 for state in states)
    assert any(group.peers[number].counters["sizes_refused"] for number in range(1, 41))


# --- walks --------------------------------------------------------------------------------------


def test_a_walk_goes_on_and_ends_with_a_reply_to_its_origin() -> None:
    rig = member(1)
    effects = rig.hear(2, SampleWalk(T, contact(9), 5, 3))
    assert everything_sent(effects) == [(2, SampleWalk(T, contact(9), 5, 2))]
    effects = rig.hear(2, SampleWalk(T, contact(9), 5, 0))
    assert everything_sent(effects) == [(9, SampleReply(T, 5))]


def start_run(rig: Rig) -> tuple[int, list[int]]:
    """Run cycles until the member starts to estimate; returns the run's number and first steps."""
    for _ in range(200):
        walks = sent(rig.cycle(), SampleWalk)
        if walks:
            return walks[0][1].round, [to for to, _ in walks]
        refill(rig)
    raise AssertionError("no run was ever started")


def refill(rig: Rig) -> None:
    for number in range(2, 8):
        rig.hear(number, JoinGift(T, Descriptor(contact(number), 0)))


def test_a_run_ends_with_an_estimate_once_it_has_its_collisions() -> None:
    rig = member(6)
    number, first_steps = start_run(rig)
    assert len(first_steps) == rig.peer.config.size.walks_at_once
    refill(rig)
    # 40 members, each sampled once, then ten of them again.
    for sample in [*range(10, 50), *range(10, 19)]:
        assert len(told(rig.hear(sample, SampleReply(T, number)), SampleWalk)) == 1
    assert rig.hear(19, SampleReply(T, number)) == []
    assert rig.peer.counters["size_estimates"] == 1
    assert 80 < popularity(rig) < 140  # most likely: 105


def test_a_run_is_averaged_as_inverses_into_what_was_known() -> None:
    rig = member(6)
    hear_of(rig, 150)
    rig.now += rig.peer.config.size.fresh_ms
    number, _ = start_run(rig)
    refill(rig)
    for sample in [*range(10, 50), *range(10, 20)]:
        rig.hear(sample, SampleReply(T, number))
    assert rig.peer.counters["size_estimates"] == 1
    assert popularity(rig) == 135  # 4/(3/150 + 1/n) with the most likely n


def test_samples_of_another_run_do_not_count() -> None:
    rig = member(6)
    number, _ = start_run(rig)
    for _ in range(50):
        assert rig.hear(9, SampleReply(T, number + 1)) == []
    assert rig.peer.counters["size_estimates"] == 0


def test_a_member_that_knows_a_fresh_estimate_makes_none_of_its_own() -> None:
    rig = member(6)
    hear_of(rig, 60)
    walks = []
    for _ in range(10):
        walks += told(rig.cycle(), SampleWalk)
        refill(rig)
    assert walks == []


def test_a_member_that_passes_on_the_walks_of_another_run_starts_none() -> None:
    rig = member(6)
    for _ in range(50):
        rig.hear(2, SampleWalk(T, contact(9), 5, 3))
        assert [walk for _, walk in sent(rig.cycle(), SampleWalk) if walk.origin == rig.me] == []
        refill(rig)


def test_walks_of_others_do_not_keep_a_member_from_estimating_for_ever() -> None:
    rig = member(6)
    own: list[SampleWalk] = []
    while not own:
        assert rig.now < 10 * rig.peer.config.size.fresh_ms
        rig.hear(2, SampleWalk(T, contact(9), 5, 3))
        own = [walk for _, walk in sent(rig.cycle(), SampleWalk) if walk.origin == rig.me]
        refill(rig)
    assert rig.now >= rig.peer.config.size.fresh_ms


def test_a_large_group_that_came_together_makes_few_estimates() -> None:
    group = Group(150, c.Config(cyclon=c.Cyclon(view_size=12, shuffle_length=8)), checked=False)
    group.run(3_000)
    group.subscribe_all(scheme="flood")
    group.run(120_000, steps_max=4_000_000)
    origins = {m.origin.peer for _, _, _, m in group.log if isinstance(m, SampleWalk)}
    assert 1 <= len(origins) <= 15  # of 150; each costs hundreds of connections
    known = [peer.tera.topics[T].popularity for peer in group.peers.values()]
    assert 75 < statistics.median(known) < 300


# --- a real group -------------------------------------------------------------------------------


def test_a_larger_group_estimates_its_size_again_and_again() -> None:
    size = 60
    config = replace(SMALL_VIEWS, size=c.Size(fresh_ms=20_000))
    group = Group(size, config, checked=False)
    group.run(3_000)
    group.subscribe_all(scheme="flood")
    group.run(60_000, steps_max=2_000_000)
    estimates = []
    for _ in range(20):
        group.run(15_000, steps_max=2_000_000)
        estimates.append(
            statistics.median(p.tera.topics[T].popularity for p in group.peers.values())
        )
    made = sum(peer.counters["size_estimates"] for peer in group.peers.values())
    assert made >= 10
    # Ten collisions: each is off by a third or so; views this small make them a little low.
    assert 0.7 * size < statistics.fmean(estimates) < 1.2 * size
