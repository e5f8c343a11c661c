"""Messages about topics one is not in are refused so that the sender stops."""

from __future__ import annotations

from random import Random
from typing import get_args

import pytest

from arbitrary import random_message
from protocol_kit import Rig, T, contact, delivered, event, everything_sent, span
from weft.protocol import config as c
from weft.protocol import messages as m
from weft.protocol import seam
from weft.protocol.liveness import Ping
from weft.protocol.membership import (
    NO_NEWS,
    Descriptor,
    JoinGift,
    JoinReply,
    JoinRequest,
    JoinWalk,
    LeaveNotice,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.publication import RouteEvent, RouteResult
from weft.protocol.recent import IHave, Offer, Repair, Want
from weft.protocol.tera.access_points import Hint
from weft.protocol.tera.links import LinkReply, LinkRequest
from weft.protocol.tera.questions import Overdue, Passed
from weft.protocol.tera.size import SampleReply, SampleWalk
from weft.protocol.tera.tree import Graft, Prune
from weft.protocol.wire import Payload

UNWELCOME = [
    Payload(T, event(9, 1), 1),
    IHave(T, [span(9, 1, 1)]),
    Graft(T, [span(9, 1, 1)]),
    Prune(T),
    Overdue(T, [span(9, 1, 1)]),
    Passed(T, [span(9, 1, 1)]),
    Offer(T, [], True),
    Want(T, [span(9, 1, 1)]),
    Repair(T, [event(9, 1)]),
    LinkRequest(T, True),
    LinkReply(T, True),
    SampleWalk(T, contact(3), 1, 3),
    SampleReply(T, 1),
    JoinWalk(T, contact(3), 2),
    JoinGift(T, Descriptor(contact(3), 0)),
    Hint(T, 1, contact(3)),
]


@pytest.mark.parametrize("routing", get_args(c.Routing))
def test_whatever_the_routing_every_kind_of_message_is_handled(routing: c.Routing) -> None:
    rig = Rig(1, c.Config(routing=routing))
    for kind in get_args(m.AnyMessage):
        rig.hear(2, random_message(kind, Random(1), T))


@pytest.mark.parametrize("message", UNWELCOME, ids=lambda message: type(message).__name__)
def test_a_peer_that_is_not_subscribed_says_so(message: m.AnyMessage) -> None:
    rig = Rig(1)
    assert everything_sent(rig.hear(2, message)) == [(2, LeaveNotice(T))]
    assert rig.peer.counters["not_subscribed"] == 1


def test_a_stranger_that_goes_on_is_not_answered_each_time() -> None:
    rig = Rig(1)
    answered = 0
    for _ in range(50):
        answered += len(everything_sent(rig.hear(2, IHave(T, [span(9, 1, 1)]))))
        rig.wait(100)
    assert 2 <= answered <= 4  # in five seconds: an answer may get lost
    assert everything_sent(rig.hear(3, Prune(T))) == [(3, LeaveNotice(T))]


def test_requests_have_refusals_of_their_own() -> None:
    rig = Rig(1)
    effects = rig.hear(2, ShuffleRequest(T, 5, []))
    assert everything_sent(effects) == [(2, ShuffleReply(T, 5, [], NO_NEWS, member=False))]
    assert everything_sent(rig.hear(2, JoinRequest(T))) == [(2, JoinReply(T, False))]
    routed = rig.hear(2, RouteEvent(T, event(2, 7)))
    assert everything_sent(routed) == [(2, RouteResult(T, 1, 7, accepted=False))]


@pytest.mark.parametrize(
    "message",
    [
        LeaveNotice(T),
        ShuffleReply(T, 1, [], NO_NEWS, member=False),
        JoinReply(T, False),
        RouteResult(T, 1, 1, False),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_refusal_is_never_answered(message: m.AnyMessage) -> None:
    """Or two peers would refuse each other for ever."""
    rig = Rig(1)
    assert everything_sent(rig.hear(2, message)) == []


def test_a_parasite_is_counted_and_traced() -> None:
    rig = Rig(1, c.Config(trace=True))
    effects = rig.hear(2, Payload(T, event(9, 1), 1))
    assert delivered(effects) == []
    [record] = [e for e in effects if isinstance(e, seam.Trace)]
    assert (record.kind, record.fields["reason"]) == ("REJECT_MESSAGE", "not subscribed")
    assert rig.peer.counters["parasites"] == 1


@pytest.mark.parametrize("message", [JoinRequest(T), Ping(1, 1), Payload(T, event(9, 1), 1)])
def test_a_message_from_oneself_is_ignored(message: m.AnyMessage) -> None:
    rig = Rig(1)
    rig.subscribe()
    assert rig.hear(1, message) == []
