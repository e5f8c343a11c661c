"""The messages go over a wire and come back as they were; too long ones do not."""

from __future__ import annotations

import msgspec
import pytest

from weft.ids import Topic
from weft.protocol import messages as m
from weft.protocol import messages_topic_dht as t
from weft.protocol.wire import Event, Span
from weft.rules.treecast import ROOTS_MAX
from weft.sim.node import contact_of

A = Topic("/a")
ONE, TWO = contact_of(1, 1), contact_of(1, 2)
EVENT = Event(ONE.peer, 1, 4, 0, b"x")
SAID: list[t.TopicDhtMessage] = [
    t.RoleRequest(7, A, t.SPLIT, 2, 9),
    t.RoleRequest(8, A, t.SEAT, seat=3),
    t.RoleReply(7, t.ACCEPTED, [ONE, TWO], 4, 2, 9),
    t.RoleReply(8, t.ACCEPTED, member=ONE),
    t.RoleDone(A, 7, True),
    t.Invite(A, t.MAKECHILD),
    t.Appeared(9, A),
    t.Vanished(A),
    t.Rejoin(10, A, [ONE]),
    t.Forget(A),
    t.RouteParent(A),
    t.IsParent(A, ONE),
    t.IsChild(A, [TWO]),
    t.Cast(A, EVENT, 3, 17),
    t.Cast(A, EVENT, 3, 0, 2, [ONE.peer, TWO.peer]),
    t.SeenRequest(11, A),
    t.SeenReply(11, True, [Span(ONE.peer, 1, 1, 4)]),
    t.Beat(A, 12345, True),
]
decode = msgspec.msgpack.Decoder(t.TopicDhtMessage).decode


@pytest.mark.parametrize("message", SAID, ids=lambda one: type(one).__name__)
def test_there_and_back(message: t.TopicDhtMessage) -> None:
    assert decode(msgspec.msgpack.encode(message)) == message


def test_every_message_is_among_them() -> None:
    kinds = set(t.TopicDhtMessage.__args__)  # type: ignore[attr-defined]
    assert {type(one) for one in SAID} == kinds


def test_they_are_among_all_messages() -> None:
    together = msgspec.msgpack.Decoder(m.AnyMessage)
    assert [together.decode(msgspec.msgpack.encode(one)) for one in SAID] == SAID


@pytest.mark.parametrize(
    "message",
    [
        t.IsChild(A, [ONE] * (t.CONTACTS_MAX + 1)),
        t.RoleRequest(1, A, 6),
        t.RoleReply(1, 4),
        t.Cast(A, EVENT, 1, 257),
        t.Cast(A, EVENT, 1, 0, ROOTS_MAX),
        t.Cast(A, EVENT, 1, 0, 0, [ONE.peer] * (ROOTS_MAX + 1)),
    ],
)
def test_what_is_out_of_bounds_is_refused(message: t.TopicDhtMessage) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.msgpack.encode(message))
