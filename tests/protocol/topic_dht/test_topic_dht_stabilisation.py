"""Algorithm 1 message by message, and how a child relieves its parent."""

from __future__ import annotations

import pytest

from protocol_kit import T, contact, sent, told
from topic_dht_rig import child_of_2, parent, routing
from weft.ids import Topic
from weft.protocol.topic_dht.roles import (
    ABORTED,
    ACCEPTED,
    JOIN,
    REPLACE,
    RoleDone,
    RoleReply,
    RoleRequest,
)
from weft.protocol.topic_dht.upkeep import IsChild, IsParent
from weft.protocol.wire import Payload
from weft.rules.roles import Load


def test_a_child_takes_over_from_a_parent_that_does_more_than_its_share() -> None:
    rig = child_of_2()
    fair = IsChild(T, [], topics=2, children=3, work=8)
    assert sent(rig.hear(2, fair), RoleRequest) == []
    unfair = IsChild(T, [], topics=2, children=3, work=13)
    [(to, request)] = sent(rig.hear(2, unfair), RoleRequest)
    assert (to, request.operation, request.topics, request.work) == (2, REPLACE, 1, 0)
    again = rig.hear(2, unfair)
    assert sent(again, RoleRequest) == []  # one at a time
    effects = rig.hear(2, RoleReply(request.request, ACCEPTED)) + rig.wait(9_000)
    assert RoleDone(T, request.request, True) in [done for _, done in sent(effects, RoleDone)]
    assert routing(rig).topics.roles.forwarding(T) is not None


@pytest.mark.parametrize(("work", "verdict"), [(4, ACCEPTED), (5, ABORTED)])
def test_a_parent_looks_for_itself_whether_it_does_more_than_its_share(
    work: int, verdict: int
) -> None:
    rig = parent()
    rig.hear(7, RoleRequest(8, T, JOIN))
    rig.subscribe(Topic("/other"), token=2)
    rig.wait(60_000)
    for request, child in enumerate((8, 9, 7), 20):
        rig.hear(child, RoleRequest(request, T, JOIN))
    assert routing(rig).topics.roles.load(T) == Load(2, 2, 3, 5)
    ask = RoleRequest(40, T, REPLACE, locations=9, topics=18, work=work)
    [(_, reply)] = sent(rig.hear(8, ask), RoleReply)
    assert reply.verdict == verdict


def test_children_that_others_name_are_asked_first() -> None:
    """One stranger must not have events sent to peers that never wanted them."""
    rig = parent(children=(8,))
    asked = [told(rig.hear(66, IsParent(T, contact(number))), IsChild) for number in range(70, 134)]
    assert asked == [[number] for number in range(70, 78)] + [[]] * 56
    effects = rig.publish()
    assert set(told(effects, Payload)) <= {8}
    rig.hear(70, IsParent(T, contact(70)))  # it wants that itself
    assert 70 in told(rig.publish(), Payload)


def test_a_child_speaks_up_to_a_parent_that_others_found_for_it() -> None:
    rig = child_of_2()
    rig.wait(rig.peer.config.topic_dht.period_ms)
    effects = rig.hear(5, IsChild(T))
    assert told(effects, IsParent) == [5]
    assert told(rig.hear(5, IsChild(T)), IsParent) == []
