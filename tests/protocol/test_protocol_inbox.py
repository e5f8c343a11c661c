"""Messages about topics one is not in are refused so that the sender stops."""

from __future__ import annotations

from typing import get_args

import pytest
from protocol_kit import Rig, T, contact, delivered, event, everything_sent, span

from weft.protocol import config as c
from weft.protocol import messages as m
from weft.protocol import seam

UNWELCOME = [
    m.Payload(T, event(9, 1), 1),
    m.IHave(T, [span(9, 1, 1)]),
    m.Graft(T, [span(9, 1, 1)]),
    m.Prune(T),
    m.Offer(T, [], True),
    m.Want(T, [span(9, 1, 1)]),
    m.Repair(T, [event(9, 1)]),
    m.LinkRequest(T, True),
    m.LinkReply(T, True),
    m.SampleWalk(T, contact(3), 1, 3),
    m.SampleReply(T, 1),
    m.JoinWalk(T, contact(3), 2),
    m.JoinGift(T, m.Descriptor(contact(3), 0)),
    m.Hint(T, 1, contact(3)),
]


@pytest.mark.parametrize("routing", get_args(c.Routing))
def test_whatever_the_routing_every_kind_of_message_is_handled(routing: c.Routing) -> None:
    inbox = Rig(1, c.Config(routing=routing)).peer._inbox
    handled = inbox._handlers.keys() | inbox._in_general.keys()
    assert set(get_args(m.AnyMessage)) - handled == set()


@pytest.mark.parametrize("message", UNWELCOME, ids=lambda message: type(message).__name__)
def test_who_is_not_subscribed_says_so(message: m.AnyMessage) -> None:
    rig = Rig(1)
    assert everything_sent(rig.hear(2, message)) == [(2, m.LeaveNotice(T))]
    assert rig.peer.counters["not_subscribed"] == 1


def test_requests_have_refusals_of_their_own() -> None:
    rig = Rig(1)
    effects = rig.hear(2, m.ShuffleRequest(T, 5, []))
    assert everything_sent(effects) == [(2, m.ShuffleReply(T, 5, [], m.NO_NEWS, member=False))]
    assert everything_sent(rig.hear(2, m.JoinRequest(T))) == [(2, m.JoinReply(T, False))]
    routed = rig.hear(2, m.RouteEvent(T, event(2, 7)))
    assert everything_sent(routed) == [(2, m.RouteResult(T, 1, 7, accepted=False))]


@pytest.mark.parametrize(
    "message",
    [
        m.LeaveNotice(T),
        m.ShuffleReply(T, 1, [], m.NO_NEWS, member=False),
        m.JoinReply(T, False),
        m.RouteResult(T, 1, 1, False),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_refusal_is_never_answered(message: m.AnyMessage) -> None:
    """Or two peers would refuse each other for ever."""
    rig = Rig(1)
    assert everything_sent(rig.hear(2, message)) == []


def test_a_parasite_is_counted_and_traced() -> None:
    rig = Rig(1, c.Config(trace=True))
    effects = rig.hear(2, m.Payload(T, event(9, 1), 1))
    assert delivered(effects) == []
    [record] = [e for e in effects if isinstance(e, seam.Trace)]
    assert (record.kind, record.fields["reason"]) == ("REJECT_MESSAGE", "not subscribed")
    assert rig.peer.counters["parasites"] == 1


@pytest.mark.parametrize("message", [m.JoinRequest(T), m.Ping(1, 1), m.Payload(T, event(9, 1), 1)])
def test_a_message_from_oneself_is_ignored(message: m.AnyMessage) -> None:
    rig = Rig(1)
    rig.subscribe()
    assert rig.hear(1, message) == []
