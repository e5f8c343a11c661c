"""The DHT among many peers in virtual time, against the truth about which is closest."""

from __future__ import annotations

from math import log2

import pytest
from benchmarks.dht_runs import Report, Run, Truth, check_order, judge

from nameless import contact_of
from weft.protocol.config import KademliaSettings

PEERS = [contact_of(1, index).peer for index in range(50)]


@pytest.fixture(scope="module")
def calm() -> Report:
    one = Run(seed=3, peers=200, lookups=60)
    one.come_up(settle_ms=45_000)
    one.put()
    providers = one.provide()
    one.look_up()
    one.get()
    one.find_providers(providers)
    one.find_peers()
    return one.finish()


def test_lookups_find_exactly_the_closest(calm: Report) -> None:
    assert calm.violations == []
    assert calm.exact >= 0.99 * calm.lookups
    assert calm.recall >= 0.999


def test_everything_that_was_stored_is_found(calm: Report) -> None:
    assert calm.stored == calm.got == calm.gets == 60
    assert calm.providers_found == calm.peers_found == 60
    assert calm.holders == calm.holders_closest == 20.0


def test_a_lookup_costs_little_more_than_asking_the_closest(calm: Report) -> None:
    assert 20 <= calm.requests <= 20 + 2 * log2(200)
    assert calm.hops <= log2(200)
    assert calm.hops_most <= 2 * log2(200)


def test_loss_and_crashes_at_once() -> None:
    """A fifth of the messages lost, three peers in ten gone without a word."""
    one = Run(
        seed=4, peers=100, lookups=30, dht=KademliaSettings(enabled=True, republish_ms=60_000)
    )
    one.come_up(settle_ms=40_000)
    one.put()
    providers = one.provide()
    one.spoil(loss_percent=20, crash_percent=30)
    one.look_up()
    one.get()
    one.find_providers(providers)
    one.run(120_000)  # holders republish
    report = one.finish()
    assert report.violations == []
    assert report.alive == 70
    assert report.recall >= 0.95
    assert report.dead == 0
    assert report.got == report.gets == 30
    assert report.providers_found == 30
    assert report.holders_closest >= 19


def test_a_seed_is_a_run() -> None:
    def once() -> Report:
        one = Run(seed=5, peers=20, lookups=5)
        one.come_up(settle_ms=10_000)
        one.spoil(loss_percent=10, crash_percent=0)
        one.look_up()
        return one.finish()

    assert once() == once()


def test_the_judge_sees_what_is_missing_dead_or_out_of_order() -> None:
    target = 12345
    truth = Truth(PEERS)
    right = judge(PEERS, target, len(PEERS), truth)
    assert right.exact and right.right == 50
    assert not judge(PEERS[1:], target, len(PEERS), truth).exact
    dead = judge(PEERS, target, 10, Truth(PEERS[1:]))
    assert dead.dead == 1 and not dead.exact
    assert check_order([PEERS[0], PEERS[0]], target)
    assert any(check_order([a, b], target) for a, b in ((PEERS[0], PEERS[1]), (PEERS[1], PEERS[0])))
