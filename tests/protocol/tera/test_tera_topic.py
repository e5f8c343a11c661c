"""One topic at one member: overlay ids, repair, flood and gossip, its pace."""

from __future__ import annotations

import pytest

from protocol_kit import (
    Group,
    Rig,
    T,
    contact,
    delivered,
    event,
    everything_sent,
    member,
    number_of,
    sent,
    span,
    told,
)
from weft.ids import GENERAL, OverlayId, Topic
from weft.protocol import config as c
from weft.protocol import seam
from weft.protocol.membership import (
    NO_NEWS,
    Advert,
    Descriptor,
    JoinGift,
    JoinReply,
    JoinRequest,
    LeaveNotice,
    OverlayNews,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.recent import IHave, Offer, Repair, Want
from weft.protocol.tera.access_points import Advertisement
from weft.protocol.tera.links import LinkRequest
from weft.protocol.tera.tree import Graft
from weft.protocol.wire import LIST_MAX, Payload
from weft.rules.tera import keeps_overlay


def news(rig: Rig, overlay: int | None = None, recent: int | None = None) -> OverlayNews:
    """What a member of the same topic tells; by default nothing that differs from ours."""
    state = rig.peer.tera.topics[T]
    return OverlayNews(
        state.overlay if overlay is None else overlay,
        0,
        0,
        state.recent.fingerprint() if recent is None else recent,
    )


# --- after a cut --------------------------------------------------------------------------------


def test_a_member_that_was_lost_and_is_back_is_met_though_the_view_is_full() -> None:
    """Both sides of a cut keep the overlay's id; without this their views never mix again."""
    rig = member(5)
    state = rig.peer.tera.topics[T]
    size = rig.peer.config.cyclon.view_size
    rig.lose(5)
    for number in range(10, 10 + size):
        rig.hear(number, JoinRequest(T))
    assert len(state.view.peers) == size
    back = Advertisement([Advert(T, state.overlay, 1)])
    assert told(rig.hear(5, back), ShuffleRequest) == [5]
    assert told(rig.hear(5, back), ShuffleRequest) == []  # once
    assert told(rig.hear(6, back), ShuffleRequest) == []  # it was not lost


# --- small questions ----------------------------------------------------------------------------


def test_a_stranger_that_asks_again_and_again_is_not_told_at_length_each_time() -> None:
    rig = member(5)
    rig.hear(5, Payload(T, event(9, 1), 1))
    asked = 100
    replies = [sent(rig.hear(7, JoinRequest(T)), JoinReply)[0][1] for _ in range(asked)]
    assert replies[0].seen and sum(bool(reply.seen) for reply in replies) < asked // 10
    offers = [told(rig.hear(7, Offer(T, [], first=True)), Offer) for _ in range(asked)]
    assert offers[0] == [7] and sum(map(len, offers)) < asked // 5
    rig.wait(20_000)  # a cycle later it has its share again
    [(_, reply)] = sent(rig.hear(7, JoinRequest(T)), JoinReply)
    assert reply.seen


def test_a_stranger_that_asks_in_very_many_topics_has_its_share_in_each() -> None:
    topics = [Topic(f"/t/{number}") for number in range(140)]
    rig = Rig(1, checked=False)
    rig.meet(2, 3)
    for token, topic in enumerate(topics):
        rig.subscribe(topic, token=token + 1)
    rig.wait(6_000)
    for topic in topics:
        rig.link(5, topic=topic)
        rig.hear(5, Payload(topic, event(9, 1, topic=topic), 1))
    rig.wait(10_000)
    rounds = [
        sum(bool(sent(rig.hear(7, JoinRequest(topic)), JoinReply)[0][1].seen) for topic in topics)
        for _ in range(8)
    ]
    assert rounds == [140] * 4 + [0] * 4


def test_a_stranger_has_a_share_of_events_sent_again_and_a_link_has_all() -> None:
    rig = member(5)
    size = 64 << 10
    rig.hear(5, Payload(T, event(9, 1, bytes(size)), 1))
    want = Want(T, [span(9, 1, 1)])
    asked = 300
    answered = [told(rig.hear(7, want), Repair) for _ in range(asked)]
    assert answered[0] == [7] and sum(map(len, answered)) * size <= 8 << 20
    assert sum(len(told(rig.hear(5, want), Repair)) for _ in range(asked)) == asked


# --- overlay ids --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["request", "reply", "join"])
def test_every_exchange_carries_the_id_and_one_of_both_survives(kind: str) -> None:
    rig = member()
    mine = rig.peer.tera.topics[T].overlay
    others = [OverlayId(number) for number in range(64)]
    lesser = next(one for one in others if keeps_overlay(T, mine, one))
    better = next(one for one in others if not keeps_overlay(T, mine, one))
    rig.hear(2, ShuffleRequest(T, 1, [Descriptor(contact(2), 0)], news(rig, lesser)))
    assert rig.peer.tera.topics[T].overlay == mine
    if kind == "request":
        rig.hear(2, ShuffleRequest(T, 2, [], news(rig, better)))
    elif kind == "reply":
        tick = next(r.tick for _, r in sent(rig.cycle(), ShuffleRequest) if r.topic == T)
        rig.hear(2, ShuffleReply(T, tick, [], news(rig, better)))
    else:
        rig.hear(2, JoinReply(T, True, news(rig, better)))
    assert rig.peer.tera.topics[T].overlay == better
    assert rig.peer.counters["overlays_merged"] == 1


def test_a_liar_has_the_id_changed_but_a_few_times() -> None:
    """It would take ever more tries to find another one that survives."""
    rig = member()
    for tick in range(1_000):
        rig.hear(2, ShuffleRequest(T, tick, [], news(rig, (1 << 62) - tick)))
    assert rig.peer.counters["overlays_merged"] < 20


def test_parts_that_never_met_merge() -> None:
    """A topic starts in both halves of a parted network, which then meet over one neighbour."""
    group = Group(6)
    group.run(30_000)
    group.drop = lambda sender, to, message: (sender <= 3) != (to <= 3)
    group.run(120_000)
    group.subscribe_all()
    group.run(60_000)
    assert len({peer.tera.topics[T].overlay for peer in group.peers.values()}) == 2
    group.do(1, seam.Publish(5, T, (b"",), 0))
    group.do(4, seam.Publish(5, T, (b"",), 0))
    group.run(5_000)
    assert (4, 1) not in group.delivered(1)
    group.drop = lambda sender, to, message: False
    group.do(1, seam.Join((contact(4),)))
    group.run(100_000)
    assert len({peer.tera.topics[T].overlay for peer in group.peers.values()}) == 1
    for number in group.peers:
        assert sorted(group.delivered(number)) == [(1, 1), (4, 1)]


# --- repair -------------------------------------------------------------------------------------


def test_a_member_that_has_seen_the_same_is_offered_nothing() -> None:
    rig = member(2)
    rig.hear(2, Payload(T, event(9, 1), 1))
    assert sent(rig.hear(3, ShuffleRequest(T, 1, [], news(rig))), Offer) == []


def test_a_member_that_has_seen_something_else_is_offered_what_is_held() -> None:
    rig = member(2)
    settle_ms = rig.peer.config.dissemination.settle_ms
    rig.hear(2, Payload(T, event(9, 1), 1))
    rig.wait(settle_ms)
    rig.hear(2, Payload(T, event(9, 2), 1))  # may be on its way to the other too
    effects = rig.hear(3, ShuffleRequest(T, 1, [], news(rig, recent=1)))
    assert sent(effects, Offer) == [(3, Offer(T, [span(9, 1, 1)], True, settle_ms))]


def test_an_offer_is_answered_with_what_is_wanted_and_an_offer() -> None:
    rig = member()
    rig.publish()
    effects = rig.hear(3, Offer(T, [span(9, 1, 3)], first=True))
    assert everything_sent(effects) == [
        (3, Want(T, [span(9, 1, 3)])),
        (3, Offer(T, [span(1, 1, 1)], first=False)),
    ]
    effects = rig.hear(3, Offer(T, [span(1, 1, 1)], first=False))
    assert everything_sent(effects) == []


def test_what_is_wanted_is_sent_in_bounded_messages() -> None:
    config = c.Config(dissemination=c.Dissemination(repair_batch=3, repair_bytes_max=100))
    rig = member(config=config)
    for _ in range(7):
        rig.publish(bytes(10))
    for _ in range(2):
        rig.publish(bytes(70))
    effects = rig.hear(3, Want(T, [span(1, 2, 99), span(8, 1, 1)]))
    batches = [[one.first for one in repair.runs] for _, repair in sent(effects, Repair)]
    assert batches == [[2, 3, 4], [5, 6, 7], [8], [9]]


def test_wanting_one_event_very_often_brings_it_once() -> None:
    rig = member()
    rig.publish(bytes(1_000))
    effects = rig.hear(3, Want(T, [span(1, 1, 1)] * LIST_MAX))
    assert sum(len(repair.runs) for _, repair in sent(effects, Repair)) == 1


def test_a_repair_delivers_what_is_new() -> None:
    rig = member(2)
    rig.hear(2, Payload(T, event(9, 1), 1))
    effects = rig.hear(3, Repair(T, [event(9, 1), event(9, 2)]))
    assert delivered(effects) == [(9, 2)]
    assert rig.peer.counters["repaired"] == 1
    assert rig.peer.counters["repairs_duplicate"] == 1


def test_a_new_link_compares_from_one_end_only() -> None:
    low, high = member(), Rig(9)
    high.subscribe()
    low.publish()
    high.publish()
    assert told(low.hear(5, LinkRequest(T, True, 77)), Offer) == [5]
    assert told(high.hear(5, LinkRequest(T, True, 77)), Offer) == []


@pytest.mark.parametrize("scheme", ["tree", "gossip", "flood"])
def test_whatever_the_scheme_lost_is_repaired(scheme: seam.Scheme) -> None:
    group = Group(6)
    group.run(2_000)
    group.subscribe_all(scheme=scheme)
    group.run(60_000)
    carriers = (Payload, IHave, Graft)
    group.drop = lambda sender, to, message: to in (4, 5) and isinstance(message, carriers)
    for _ in range(3):
        group.do(1, seam.Publish(5, T, (b"",), 0))
    group.run(300)
    assert group.delivered(4) == group.delivered(5) == []
    group.run(100_000)
    for number in group.peers:
        assert sorted(group.delivered(number)) == [(1, 1), (1, 2), (1, 3)]


# --- flood and gossip ---------------------------------------------------------------------------


def spread(scheme: seam.Scheme, neighbours: int = 12, capacity: float = 1.0) -> Rig:
    rig = Rig(1, c.Config(capacity=capacity))
    rig.subscribe(scheme=scheme)
    for number in range(2, neighbours + 2):
        rig.hear(number, JoinGift(T, Descriptor(contact(number), 0)))
    return rig


def test_flooding_reaches_the_whole_view_but_source_and_publisher() -> None:
    rig = spread("flood")
    effects = rig.hear(5, Payload(T, event(7, 1), 3))
    assert told(effects, Payload) == [n for n in range(2, 14) if n not in (5, 7)]
    assert {payload.hops for _, payload in sent(effects, Payload)} == {4}
    assert everything_sent(rig.hear(6, Payload(T, event(7, 1), 3))) == []


def test_gossip_reaches_a_few_and_each_time_others() -> None:
    rig = spread("gossip")
    chosen = [tuple(told(rig.publish(), Payload)) for _ in range(20)]
    assert {len(one) for one in chosen} == {rig.peer.config.dissemination.gossip_fanout}
    assert len(set(chosen)) > 10


@pytest.mark.parametrize(
    ("scheme", "capacity", "reached"),
    [("gossip", 0.1, 4), ("gossip", 1.5, 9), ("flood", 0.3, 6), ("flood", 3.0, 12)],
)
def test_strong_members_send_an_event_on_to_more(
    scheme: seam.Scheme, capacity: float, reached: int
) -> None:
    """Of twelve neighbours; a flood goes to the whole view unless the member is weak."""
    rig = spread(scheme, capacity=capacity)
    assert {len(told(rig.publish(), Payload)) for _ in range(5)} == {reached}


@pytest.mark.parametrize("scheme", ["flood", "gossip"])
def test_what_a_later_event_shows_to_be_missing_is_asked_of_its_sender(scheme: seam.Scheme) -> None:
    """Long before the view exchange that would bring it, so both are handed out in their order."""
    rig = spread(scheme)
    assert delivered(rig.hear(5, Payload(T, event(7, 3), 1))) == []
    assert delivered(rig.hear(5, Payload(T, event(7, 2), 1))) == []
    asked = rig.wait(rig.peer.config.dissemination.graft_timeout_ms)
    assert sent(asked, Want) == [(5, Want(T, [span(7, 1, 1)]))]
    assert delivered(rig.hear(5, Repair(T, [event(7, 1)]))) == [(7, 1), (7, 2), (7, 3)]


@pytest.mark.parametrize("scheme", ["flood", "gossip"])
def test_what_its_sender_lacks_as_well_is_asked_of_others(scheme: seam.Scheme) -> None:
    """By the time at which the later event is handed out all the same, and not for ever."""
    rig = spread(scheme)
    rig.hear(5, Payload(T, event(7, 2), 1))
    timeout_ms = rig.peer.config.dissemination.graft_timeout_ms
    asked = [sent(rig.wait(timeout_ms), Want) for _ in range(5)]
    assert [len(turn) for turn in asked] == [1, 1, 1, 0, 0]
    assert asked[0] == [(5, Want(T, [span(7, 1, 1)]))]
    assert {to for turn in asked[1:] for to, _ in turn} - {5}
    assert 3 * timeout_ms < rig.peer.config.dissemination.settle_ms


@pytest.mark.parametrize("scheme", ["flood", "gossip"])
def test_what_comes_only_a_little_later_is_not_asked_for(scheme: seam.Scheme) -> None:
    rig = spread(scheme)
    rig.hear(5, Payload(T, event(7, 2), 1))
    rig.hear(6, Payload(T, event(7, 1), 1))
    assert sent(rig.wait(rig.peer.config.dissemination.graft_timeout_ms), Want) == []


@pytest.mark.parametrize("scheme", ["flood", "gossip"])
def test_schemes_over_the_view_need_no_links(scheme: seam.Scheme) -> None:
    rig = spread(scheme)
    assert told(rig.cycle(), LinkRequest) == []


# --- its pace -----------------------------------------------------------------------------------


def exchanges(rig: Rig, cycles: int) -> list[bool]:
    """In which of the next cycles the topic exchanges views; all are answered."""
    found = []
    for _ in range(cycles):
        asked = [(to, r) for to, r in sent(rig.cycle(), ShuffleRequest) if r.topic != GENERAL]
        found.append(bool(asked))
        for to, request in asked:
            rig.hear(to, ShuffleReply(T, request.tick, [], news(rig)))
    return found


def test_a_quiet_topic_slows_down_and_an_event_wakes_it() -> None:
    rig = spread("flood", neighbours=3)
    slowest = rig.peer.config.cyclon.stable_period_max
    exchanges(rig, 12)
    assert sum(exchanges(rig, 4 * slowest)) == 4
    rig.publish()
    exchanges(rig, slowest)  # the next exchange notices
    assert exchanges(rig, 1) + exchanges(rig, 1) != [False, False]


def test_a_difference_that_was_not_settled_keeps_it_awake() -> None:
    """The offer that should follow may be lost."""
    rig = spread("flood", neighbours=3)
    exchanges(rig, 20)
    differing = 0
    for _ in range(12):
        for to, request in sent(rig.cycle(), ShuffleRequest):
            if request.topic == T:
                differing += 1
                rig.hear(to, ShuffleReply(T, request.tick, [], news(rig, recent=1)))
    assert differing >= 6  # of 12; once in four if it had fallen asleep


def test_old_entries_do_not_bring_back_a_member_that_left() -> None:
    rig = spread("flood", neighbours=3)
    rig.hear(3, LeaveNotice(T))
    rig.hear(2, ShuffleRequest(T, 1, [Descriptor(contact(3), 1)], news(rig)))
    rig.hear(2, JoinGift(T, Descriptor(contact(3), 1)))
    assert contact(3).peer not in rig.peer.tera.topics[T].view.peers
    rig.hear(3, ShuffleRequest(T, 1, [Descriptor(contact(3), 0)], news(rig)))
    assert contact(3).peer in rig.peer.tera.topics[T].view.peers


def test_a_member_that_left_leaves_the_view() -> None:
    rig = spread("flood", neighbours=3)
    rig.hear(3, LeaveNotice(T))
    asked = [(to, r) for to, r in sent(rig.cycle(), ShuffleRequest) if r.topic == T]
    for to, request in asked:
        rig.hear(to, ShuffleReply(T, request.tick, [], NO_NEWS, member=False))
    left = {number_of(peer) for peer in rig.peer.tera.topics[T].view.peers}
    assert left == {2, 4} - {to for to, _ in asked}
    assert len(asked) == 1
