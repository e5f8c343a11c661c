"""The four schemes in the simulator: whole peers, loss, crashes, interleaved subscriptions."""

from __future__ import annotations

import math
from functools import lru_cache

import pytest

from cast_kit import SCHEMES, TREES, Field, T
from weft.protocol.rooms import Scheme
from weft.protocol.rooms import TopicDhtSettings as TopicConfig
from weft.protocol.topic_dht.events import Cast
from weft.rules.treecast import FEW, fanout
from weft.sim.checkers import deliveries
from weft.sim.dice import Dice

PEERS = 16
MEMBERS = range(3, PEERS)
schemes = pytest.mark.parametrize("scheme", SCHEMES)


def grown(scheme: Scheme, *, seed: int = 1, history: bool = False, **changes: object) -> Field:
    """A topic that all but three peers are in, as forwarders and children if there may be any."""
    settings = TopicConfig(scheme=scheme, children_max=3, **changes)  # type: ignore[arg-type]
    field = Field(PEERS, settings, seed=seed, history=history)
    if not settings.everybody_forwards:
        field.busy()
    for number in MEMBERS:
        field.subscribe(number)
        field.run(200)
    field.run(20_000)
    assert field.right() == []
    return field


@lru_cache
def at_rest(scheme: Scheme) -> Field:
    """For tests that leave everything as it is."""
    return grown(scheme)


def everybody_got(field: Field, count: int, since_ms: int = 0) -> bool:
    alive = [number for number in MEMBERS if number in field.alive()]
    return {len(field.delivered(number, since_ms)) for number in alive} == {count}


# --- in a network at rest -------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", TREES)
def test_a_tree_takes_as_many_messages_as_there_are_others(scheme: Scheme) -> None:
    field = at_rest(scheme)
    forwarders, children = field.forwarders(), field.children()
    assert bool(children) == (scheme == "forward-treecast")
    since_ms, casts = field.world.now_ms, field.world.sent[Cast]
    publishers = (*forwarders[:3], *children[:3])
    for publisher in publishers:
        before = field.copies()
        field.publish(publisher)
        field.run(1_000)
        assert field.copies() - before == len(MEMBERS) - 1
    handed = sum(number in children for number in publishers)
    assert field.world.sent[Cast] - casts == len(publishers) * (len(forwarders) - 1) + handed
    before = field.copies()
    field.publish(0)  # not subscribed: one more, to the root
    field.run(1_000)
    assert field.copies() - before == len(MEMBERS)
    assert everybody_got(field, len(publishers) + 1, since_ms)
    assert field.parasites() == 0
    hops = [one.hops for one in field.world.record.deliveries]
    assert max(hops) <= 1.5 * math.log2(len(MEMBERS)) + 3


@pytest.mark.parametrize("scheme", SCHEMES[2:])
def test_gossip_reaches_everybody(scheme: Scheme) -> None:
    field = at_rest(scheme)
    since_ms, before = field.world.now_ms, field.copies()
    field.publish(0, *list(MEMBERS)[:4])
    field.run(20_000)
    assert everybody_got(field, 5, since_ms)
    assert field.parasites() == 0
    forwarders, children = len(field.forwarders()), len(field.children())
    told = fanout(forwarders, "push") * forwarders + 2 * (children + 1)
    assert len(MEMBERS) < (field.copies() - before) / 5 <= told


def test_push_pull_takes_fewer_copies() -> None:
    field = grown("full-gossip", gossip_mode="push-pull")
    before = field.copies()
    field.publish(0, *list(MEMBERS)[:4])
    field.run(5_000)  # some rounds
    assert everybody_got(field, 5)
    assert (field.copies() - before) / 5 <= (FEW + 1) * len(MEMBERS)


@schemes
def test_a_new_subscriber_gets_neither_the_past_nor_the_same_again(scheme: Scheme) -> None:
    field, since_ms = at_rest(scheme), at_rest(scheme).world.now_ms
    field.publish(5, payload=b"before")
    field.run(2_000)
    field.subscribe(1)
    field.run(10_000)
    field.publish(6, payload=b"now")
    field.run(10_000)
    assert field.delivered(1, since_ms) == [b"now"]
    field.world.unsubscribe(field.nodes[1], T)
    field.run(5_000)
    field.publish(7, payload=b"missed")
    field.run(5_000)
    field.subscribe(1)
    field.run(10_000)
    field.publish(8, payload=b"again")
    field.run(10_000)
    assert field.delivered(1, since_ms) == [b"now", b"again"]
    field.world.unsubscribe(field.nodes[1], T)
    field.run(10_000)
    assert field.right() == [] and field.parasites() == 0


def test_nobody_there() -> None:
    field = Field(5, TopicConfig())
    field.publish(1)
    field.run(10_000)
    [publication] = field.world.record.publications.values()
    assert [answer.outcome for _, answer in publication.answers] == ["no_subscriber"]


# --- losses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "silent"),
    [("full-treecast", False), ("forward-treecast", True), ("forward-gossip", False)],
)
def test_losses_are_made_up_for_and_a_third_is_killed(scheme: Scheme, silent: bool) -> None:
    field = grown(scheme, seed=3)
    field.lose(20)
    field.publish(*MEMBERS)
    field.lose(0)
    field.run(40_000)
    assert everybody_got(field, len(MEMBERS))
    since_ms, doomed = field.world.now_ms, list(MEMBERS)[::3]
    field.publish(*(number for number in MEMBERS if number not in doomed), every_ms=5)
    field.crash(*doomed, silent=silent)
    alive = [number for number in MEMBERS if number in field.alive()]
    field.publish(*alive, every_ms=500)
    field.run(100_000 if silent else 50_000)
    assert everybody_got(field, 2 * len(alive), since_ms)
    assert deliveries.check_once(field.world.record) == []
    assert field.right() == []
    if scheme in TREES:
        since_ms, before = field.world.now_ms, field.copies()
        field.publish(alive[0])
        field.run(1_000)
        assert field.copies() - before == len(alive) - 1
        assert everybody_got(field, 1, since_ms)


def test_lost_roots_lose_nothing() -> None:
    """Two of three roots are gone before they hear of the event; the third reaches all but the
    children of those two, by its tree alone."""
    field = grown("forward-treecast", seed=5, roots=3)
    publisher = field.children()[0]
    field.world.publish(field.nodes[publisher], T, b"x")
    casts = sorted(field.casts.seen, key=lambda one: one[2].tree)
    roots = [field.world.record.index_of(to) for _, to, _ in casts]
    assert len(roots) == 3 and roots[0] == field.parent(publisher)
    field.crash(*roots[:2], silent=True)
    orphans = [n for n in field.children() if field.parent(n) in roots[:2]]
    field.run(1_000)
    got = [number for number in MEMBERS if field.delivered(number)]
    expected = [n for n in MEMBERS if n in field.alive() and n not in orphans]
    assert got == sorted({*expected, publisher})
    assert len(orphans) <= 2 * 3  # f·k
    field.run(90_000)
    assert everybody_got(field, 1)


def test_any_lost_members_leave_one_tree_whole() -> None:
    """Any two forwarders are gone before they hear of the event; of three trees one is whole."""
    field = grown("full-treecast", seed=4, roots=3)
    for turn in range(3):
        since_ms, alive = field.world.now_ms, field.forwarders()
        dice = Dice(turn)
        publisher, *doomed = dice.some("doomed", alive, 3)
        field.world.publish(field.nodes[publisher], T, b"x")
        field.crash(*doomed, silent=True)
        field.run(1_000)
        assert everybody_got(field, 1, since_ms)
        field.run(60_000)


# --- subscriptions that come and go ---------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "seed"), [(one, n) for n, one in enumerate(SCHEMES, 1)])
def test_subscriptions_come_and_go_while_events_flow(scheme: Scheme, seed: int) -> None:
    field = Field(PEERS, TopicConfig(scheme=scheme, children_max=3), seed=seed)
    if scheme.startswith("forward"):
        field.busy()
    field.lose(3)
    dice = Dice(seed)
    for step in range(90):
        number = dice.below("who", PEERS, step)
        turn = dice.below("what", 4, step)
        if turn == 0 and T not in field.world.record.topics_of(number):
            field.subscribe(number)
        elif turn == 1 and step > 40:
            field.world.unsubscribe(field.nodes[number], T)
        elif turn == 2 and step > 50 and len(field.alive()) > PEERS * 2 // 3:
            field.crash(number, silent=dice.percent("silent", 50, step))
        else:
            field.publish(number, payload=b"%d" % step)
        field.run(dice.below("pause", 1_500, step))
    field.lose(0)
    field.run(80_000)
    record = field.world.record
    assert record.deliveries
    assert deliveries.check_complete(record) == []
    assert deliveries.check_only_subscribers(record) == []
    assert deliveries.check_once(record) == []
    assert deliveries.check_parasites(record, 5_000, field.world.now_ms - 80_000) == []
    assert field.right() == []


# --- history on top -------------------------------------------------------------------------------


def test_history_over_it() -> None:
    field = grown("forward-treecast", history=True)
    field.publish(*list(MEMBERS)[:8], every_ms=100)
    field.crash(4, 10)
    field.publish(*list(MEMBERS)[8:13], every_ms=100)
    field.publish(0)
    field.run(60_000)
    alive = [number for number in MEMBERS if number in field.alive()]
    streams = [field.stream(number) for number in alive]
    assert len(streams[0]) == 14 and all(stream == streams[0] for stream in streams)
    field.world.subscribe(field.nodes[1], T, None, "beginning")
    field.run(60_000)
    assert field.stream(1) == streams[0]
