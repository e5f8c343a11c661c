"""The messages go over a wire and come back as they were; too long ones do not."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from nameless import contact_of
from protocol_kit import proven_run
from weft.ids import Topic
from weft.protocol import messages as m
from weft.protocol.rooms import CONTACTS_MAX
from weft.protocol.topic_dht.events import Beat, Cast, SeenReply, SeenRequest
from weft.protocol.topic_dht.roles import (
    ACCEPTED,
    MAKECHILD,
    SEAT,
    SPLIT,
    Appeared,
    Forget,
    Invite,
    Rejoin,
    RoleDone,
    RoleReply,
    RoleRequest,
    Vanished,
)
from weft.protocol.topic_dht.topic_dht import TopicDhtMessage
from weft.protocol.topic_dht.upkeep import IsChild, IsParent, RouteParent
from weft.rules.treecast import ROOTS_MAX

A = Topic("/a")
ONE, TWO = contact_of(1, 1), contact_of(1, 2)
SIGNED = proven_run(1, 4, b"x")
SAID: list[TopicDhtMessage] = [
    RoleRequest(7, A, SPLIT, 2, 9),
    RoleRequest(8, A, SEAT, seat=3),
    RoleReply(7, ACCEPTED, [ONE, TWO], 4, 2, 9),
    RoleReply(8, ACCEPTED, member=ONE),
    RoleDone(A, 7, True),
    Invite(A, MAKECHILD),
    Appeared(9, A),
    Vanished(A),
    Rejoin(10, A, [ONE]),
    Forget(A),
    RouteParent(A),
    IsParent(A, ONE),
    IsChild(A, [TWO]),
    Cast(A, SIGNED.run, 3, 17),
    Cast(A, SIGNED.run, 3, 0, 2, [ONE.peer, TWO.peer]),
    SeenRequest(11, A),
    SeenReply(11, True, [SIGNED.statement()]),
    Beat(A, 12345, True),
]
decode = msgspec.msgpack.Decoder(TopicDhtMessage).decode


@pytest.mark.parametrize("message", SAID, ids=lambda one: type(one).__name__)
def test_there_and_back(message: TopicDhtMessage) -> None:
    assert decode(msgspec.msgpack.encode(message)) == message


def test_every_message_of_the_topic_aware_dht_is_tried() -> None:
    kinds = set(get_args(TopicDhtMessage))
    assert {type(one) for one in SAID} == kinds


def test_messages_of_the_topic_aware_dht_are_among_all_messages() -> None:
    together = msgspec.msgpack.Decoder(m.AnyMessage)
    assert [together.decode(msgspec.msgpack.encode(one)) for one in SAID] == SAID


@pytest.mark.parametrize(
    "message",
    [
        IsChild(A, [ONE] * (CONTACTS_MAX + 1)),
        RoleRequest(1, A, 6),
        RoleReply(1, 4),
        Cast(A, SIGNED.run, 1, 257),
        Cast(A, SIGNED.run, 1, 0, ROOTS_MAX),
        Cast(A, SIGNED.run, 1, 0, 0, [ONE.peer] * (ROOTS_MAX + 1)),
    ],
)
def test_what_is_out_of_bounds_is_refused(message: TopicDhtMessage) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.msgpack.encode(message))
