"""Who is linked is watched: pings over silent links, lost peers, lists that settle differences."""

from __future__ import annotations

import pytest

from protocol_kit import Rig, T, contact, everything_sent, number_of, sent, told
from weft.ids import Topic
from weft.protocol import config as c
from weft.protocol import messages as m
from weft.protocol import seam
from weft.protocol.liveness import LinkList, Ping, Pong
from weft.protocol.membership import LeaveNotice
from weft.protocol.tera.access_points import LookupMiss
from weft.protocol.tera.links import LinkRequest, Unlink
from weft.protocol.wire import LIST_MAX, Event, Payload

U = Topic("/u")
# Cycles so long that nothing but pings happens.
CALM = c.Config(cyclon=c.Cyclon(cycle_ms=10_000_000))


def member(*links: int, topics: tuple[Topic, ...] = (T,)) -> Rig:
    rig = Rig(1, CALM)
    for topic in topics:
        rig.subscribe(topic)
        rig.link(*links, topic=topic)
    return rig


def linked(rig: Rig, topic: Topic = T) -> list[int]:
    return sorted(number_of(peer) for peer in rig.peer.tera.topics[topic].links.linked)


# --- pings --------------------------------------------------------------------------------------


def test_a_silent_peer_is_pinged() -> None:
    rig = member(2)
    links = rig.peer.config.links
    assert everything_sent(rig.wait(links.ping_after_ms - 1)) == []
    assert told(rig.wait(links.ping_timeout_ms), Ping) == [2]


@pytest.mark.parametrize(
    "message",
    [Pong(0, 0), LookupMiss(77), Payload(T, Event(contact(2).peer, 1, 1, 0, b""), 1)],
)
def test_any_message_is_a_sign_of_life(message: m.AnyMessage) -> None:
    rig = member(2)
    pings = []
    for _ in range(30):
        rig.hear(2, message)
        pings += told(rig.wait(5_000), Ping)
    assert pings == []


def test_who_leaves_pings_unanswered_is_lost() -> None:
    rig = member(2, 3)
    effects: list[seam.Effect] = []
    while not any(isinstance(e, seam.Disconnect) for e in effects):
        assert rig.now < 100_000
        effects += rig.wait(1_000)
        rig.hear(3, LookupMiss(77))
    assert told(effects, Ping) == [2, 2, 2]
    [gone] = [e for e in effects if isinstance(e, seam.Disconnect)]
    assert gone.peer == contact(2).peer
    assert linked(rig) == [3]
    assert rig.peer.counters["peers_silent"] == 1


def test_who_answers_stays() -> None:
    rig = member(2)
    for _ in range(100):
        for to, ping in sent(rig.wait(1_000), Ping):
            rig.hear(to, Pong(ping.nonce, ping.links))
    assert linked(rig) == [2]


def test_a_ping_is_answered_whoever_sends_it() -> None:
    rig = member(2)
    assert everything_sent(rig.hear(9, Ping(5, 0))) == [(9, Pong(5, 0))]


def test_one_watch_however_many_topics_are_shared() -> None:
    rig = member(2, topics=(T, U))
    assert told(rig.wait(16_000), Ping) == [2]


# --- connections --------------------------------------------------------------------------------


def test_a_connection_is_held_from_the_first_link_to_the_last() -> None:
    rig = Rig(1, CALM)
    rig.subscribe(T)
    rig.subscribe(U)
    effects = rig.hear(2, LinkRequest(T, True)) + rig.hear(2, LinkRequest(U, True))
    assert [e.contact for e in effects if isinstance(e, seam.Hold)] == [contact(2)]
    effects = rig.hear(2, Unlink(T))
    assert not any(isinstance(e, seam.Release) for e in effects)
    effects = rig.hear(2, Unlink(U))
    assert [e.peer for e in effects if isinstance(e, seam.Release)] == [contact(2).peer]


# --- differences --------------------------------------------------------------------------------


def fingerprint(*topics: Topic) -> int:
    """What a peer linked to us in these topics says of it."""
    [(_, pong)] = sent(member(9, topics=topics).hear(9, Ping(0, 0)), Pong)
    return pong.links


def pinged(*topics: Topic) -> tuple[Rig, int]:
    """A peer linked in these topics that has just pinged peer 2, and the ping's nonce."""
    rig = member(2, topics=topics)
    [(_, ping)] = sent(rig.wait(16_000), Ping)
    return rig, ping.nonce


def test_ends_that_agree_say_no_more() -> None:
    rig, nonce = pinged(T, U)
    assert everything_sent(rig.hear(2, Pong(nonce, fingerprint(U, T)))) == []


def test_ends_that_differ_exchange_lists() -> None:
    rig, nonce = pinged(T)
    effects = rig.hear(2, Pong(nonce, fingerprint(T, U)))
    assert everything_sent(effects) == [(2, LinkList([T], first=True))]
    assert everything_sent(rig.hear(2, Pong(nonce, fingerprint(T, U)))) == []  # once
    effects = rig.hear(2, LinkList([T], first=True))
    assert everything_sent(effects) == [(2, LinkList([T], first=False))]


def test_a_list_that_answers_is_not_answered() -> None:
    rig = member(2)
    assert everything_sent(rig.hear(2, LinkList([T], first=False))) == []


def test_what_only_the_other_end_believes_in_is_taken_over() -> None:
    rig = member(3)
    rig.hear(2, LinkList([T], first=False))
    assert linked(rig) == [2, 3]


def test_what_only_this_end_believes_in_is_given_up() -> None:
    rig = member(2, topics=(T, U))
    rig.hear(2, LinkList([U], first=False))
    assert (linked(rig, T), linked(rig, U)) == ([], [2])


def test_a_link_in_a_topic_one_is_not_in_is_denied() -> None:
    rig = member(2)
    effects = rig.hear(2, LinkList([T, U], first=False))
    assert everything_sent(effects) == [(2, LeaveNotice(U))]


def test_a_list_that_may_be_incomplete_ends_no_link() -> None:
    rig = member(2)
    others = [Topic(f"/{number}") for number in range(LIST_MAX)]
    rig.hear(2, LinkList(others, first=False))
    assert linked(rig) == [2]
