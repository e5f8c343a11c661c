"""A peer as a whole: its life, its timers, what it says of itself."""

from __future__ import annotations

import json
from itertools import pairwise

from protocol_kit import (
    Group,
    Rig,
    T,
    answers,
    contact,
    delivered,
    event,
    everything_sent,
    number_of,
    sent,
    signer,
    timers,
    told,
)
from weft.ids import GENERAL
from weft.protocol import config as c
from weft.protocol import messages as m
from weft.protocol import seam
from weft.protocol.membership import (
    NO_NEWS,
    Advert,
    Descriptor,
    JoinReply,
    JoinRequest,
    LeaveNotice,
)
from weft.protocol.peer import Peer
from weft.protocol.tera.access_points import Advertisement, LookupWalk
from weft.protocol.tera.links import LinkRequest, Unlink
from weft.protocol.wire import Payload

# --- life ---------------------------------------------------------------------------------------


def test_before_it_starts_a_peer_does_nothing() -> None:
    peer = Peer(contact(1), 7, sign=signer(1))
    assert peer.handle(seam.Received(contact(2), JoinRequest(GENERAL)), 0) == []
    assert peer.handle(seam.Subscribe(1, T), 0) == []


def test_peers_that_start_together_do_not_act_together() -> None:
    phases = set()
    for number in range(1, 60):
        [cycle] = timers(Rig(number).start, "cycle")
        assert 1 <= cycle.after_ms <= Rig(number).peer.config.cyclon.cycle_ms
        phases.add((cycle.after_ms - 1) // 1_000)
    assert len(phases) == 10


def test_cycles_go_on_for_ever() -> None:
    rig = Rig(1)
    times = []
    for _ in range(5):
        rig.cycle()
        times.append(rig.now)
    assert {b - a for a, b in pairwise(times)} == {10_000}


def test_leaving_tells_neighbours_and_links_once_and_then_all_is_silent() -> None:
    rig = Rig(1)
    rig.meet(2, 3)
    rig.subscribe()
    rig.link(3, 4)
    effects = rig.do(seam.Leave())
    goodbyes = sent(effects, LeaveNotice)
    assert sorted(to for to, notice in goodbyes if notice.topic == GENERAL) == [2, 3, 4]
    assert rig.wait(100_000) == []
    assert rig.hear(2, JoinRequest(GENERAL)) == []


def test_a_peer_that_left_is_forgotten_everywhere() -> None:
    rig = Rig(1)
    rig.meet(2, 3)
    rig.subscribe()
    rig.link(2, 3)
    rig.hear(2, Advertisement([Advert(T, rig.peer.tera.topics[T].overlay, 1)]))
    rig.hear(2, LeaveNotice(GENERAL))
    assert rig.peer.general.peers == [contact(3).peer]
    assert rig.peer.tera.topics[T].view.peers == []
    assert list(rig.peer.tera.topics[T].links.linked) == [contact(3).peer]
    assert rig.peer.tera.table.find(T) is None


def test_incarnations_keep_lives_apart() -> None:
    lives = []
    for incarnation in (1, 2):
        peer = Peer(contact(1), 7, sign=signer(1))
        peer.handle(seam.Started(incarnation), 0)
        peer.handle(seam.Subscribe(1, T), 0)
        [note] = [
            e for e in peer.handle(seam.Publish(2, T, (b"",), 5), 0) if isinstance(e, seam.Deliver)
        ]
        lives.append((note.run.incarnation, note.run.first))
    assert lives == [(1, 1), (2, 1)]


def test_a_restarted_peer_gets_going_again() -> None:
    group = Group(6)
    group.run(2_000)
    group.subscribe_all()
    group.run(60_000)
    group.kill(4)
    group.run(60_000)
    group.add(4)
    group.run(2_000)
    group.do(4, seam.Subscribe(1, T))
    group.run(60_000)
    group.do(1, seam.Publish(5, T, (b"",), 0))
    group.do(4, seam.Publish(5, T, (b"",), 0))
    group.run(5_000)
    for number in group.peers:
        assert sorted(set(group.delivered(number))) == [(1, 1), (4, 1)]


# --- being alone, and no more -------------------------------------------------------------------


def test_a_network_that_fell_silent_comes_back() -> None:
    """Everybody loses everybody for two minutes."""
    group = Group(5)
    group.run(2_000)
    group.subscribe_all()
    group.run(60_000)
    group.drop = lambda sender, to, message: True
    group.run(120_000)
    group.drop = lambda sender, to, message: False
    group.run(120_000)
    group.do(2, seam.Publish(5, T, (b"",), 0))
    group.run(60_000)
    assert all((2, 1) in group.delivered(number) for number in group.peers)


def test_a_subscription_made_alone_meets_the_others_once_there_are_any() -> None:
    rig = Rig(1)
    assert answers(rig.subscribe()) == [(1, "instantiated")]
    effects = rig.hear(2, JoinRequest(GENERAL))
    assert told(effects, LookupWalk) == [2]


def test_a_subscription_made_while_entering_waits_for_the_network() -> None:
    rig = Rig(1, join=(2,))
    assert answers(rig.subscribe()) == []
    welcome = JoinReply(GENERAL, True, NO_NEWS, [Descriptor(contact(2), 0)])
    assert told(rig.hear(2, welcome), LookupWalk) == [2]


def test_a_subscription_made_while_entering_does_not_wait_for_ever() -> None:
    rig = Rig(1, join=(2,))
    rig.subscribe()
    assert answers(rig.wait(8_000)) == [(1, "instantiated")]


# --- what it says -------------------------------------------------------------------------------


def test_status_is_ready_for_json() -> None:
    rig = Rig(1)
    rig.meet(2)
    rig.subscribe()
    rig.link(3)
    rig.publish(b"x")
    status = json.loads(json.dumps(rig.peer.status()))
    assert len(status["view"]) == 1
    assert status["topics"][T]["scheme"] == "tree"
    assert len(status["topics"][T]["links"]) == 1
    assert status["topics"][T]["recent_events"] == 1


def test_counters_only_grow() -> None:
    rig = Rig(1)
    rig.subscribe()
    rig.link(2, 3)
    before = dict(rig.peer.counters)
    rig.publish()
    rig.hear(2, Payload(T, event(9, 1), 1))
    rig.hear(3, Payload(T, event(9, 1), 1))
    rig.wait(100_000)
    after = rig.peer.counters
    assert all(after[name] >= value for name, value in before.items())
    assert after["published"] == 1
    assert after["duplicates"] == 1


def test_a_trace_tells_of_joining_publishing_delivering_and_leaving() -> None:
    rig = Rig(1, c.Config(trace=True))
    effects = rig.subscribe() + rig.publish() + rig.do(seam.Unsubscribe(2, T))
    kinds = [e.kind for e in effects if isinstance(e, seam.Trace)]
    assert kinds == ["JOIN", "PUBLISH_MESSAGE", "DELIVER_MESSAGE", "LEAVE"]


def test_without_a_trace_there_are_no_records() -> None:
    rig = Rig(1)
    effects = rig.subscribe() + rig.publish() + rig.do(seam.Unsubscribe(2, T))
    assert not any(isinstance(e, seam.Trace) for e in effects)


# --- no loops -----------------------------------------------------------------------------------


def test_peers_at_rest_say_little() -> None:
    """No two messages keep each other alive: an idle group sends what its cycles send."""
    group = Group(8)
    group.run(2_000)
    group.subscribe_all()
    group.run(100_000)
    start = group.now
    group.run(100_000)
    per_peer_cycle = len(list(group.since(start, object))) / (8 * 10)
    assert per_peer_cycle < 12


def test_more_members_than_one_hub_can_link_come_to_rest() -> None:
    """Everybody knows only the hub at first; being evicted must not start a chase."""
    hub = Rig(1, c.Config(links=c.Links(wanted=2, most=3)))
    hub.subscribe()
    waiting: list[tuple[int, m.AnyMessage]] = [
        (number, LinkRequest(T, urgent=True)) for number in range(2, 12)
    ]
    handled = 0
    while waiting and handled < 1_000:
        sender, message = waiting.pop(0)
        handled += 1
        for to, _ in sent(hub.hear(sender, message), Unlink):
            waiting.append((to, Unlink(T)))
    assert handled < 100
    assert len(hub.peer.tera.topics[T].links.linked) <= 3


def test_everything_delivered_was_subscribed_to() -> None:
    rig = Rig(1)
    rig.subscribe()
    rig.do(seam.Unsubscribe(2, T))
    effects = rig.hear(2, Payload(T, event(9, 1), 1))
    assert delivered(effects) == []
    assert [number_of(e.to) for e in effects if isinstance(e, seam.Send)] == [2]
    assert everything_sent(rig.hear(2, LeaveNotice(T))) == []
