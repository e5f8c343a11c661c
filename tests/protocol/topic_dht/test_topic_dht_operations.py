"""Each operation of Section 4.2: what it assumes and what holds after it."""

from __future__ import annotations

import pytest

from protocol_kit import T, contact, sent
from topic_dht_kit import A, Group, unsubscribe
from topic_dht_rig import child_of_2, place
from weft.ids import Topic
from weft.protocol.kademlia.rpc import FindReply, FindRequest
from weft.protocol.topic_dht.roles import (
    ABORTED,
    JOIN,
    MAKECHILD,
    SPLIT,
    Invite,
    Rejoin,
    RoleReply,
    RoleRequest,
)


@pytest.fixture
def group() -> Group:
    """Twelve subscribers of one topic, the first of them its only forwarder."""
    one = Group(12)
    assert one.forwarders() == [0] and len(one.children()) == 11
    one.right()
    return one


def split_some(group: Group, *peers: int) -> None:
    for peer in peers:
        group.done(peer, "split", group.parent(peer))


def test_split_makes_a_forwarder_beside_the_closest_one(group: Group) -> None:
    split_some(group, 5)
    assert group.forwarders() == [0, 5]
    split_some(group, 7, 2)
    assert group.forwarders() == [0, 2, 5, 7]
    assert group.counted("topic_dht_promotions") == 12 + 1 + 3
    assert all(group.parent(one) == group.closest(one, [0, 2, 5, 7]) for one in group.children())


def test_split_with_one_that_is_not_the_closest_is_aborted(group: Group) -> None:
    split_some(group, 5, 7)
    child = group.children()[0]
    wrong = next(one for one in group.forwarders() if one != group.parent(child))
    before = group.counted("topic_dht_aborts")
    group.done(child, "split", wrong)
    assert group.counted("topic_dht_aborts") == before + 1
    assert group.forwarders() == [0, 5, 7] and child in group.children()


def test_split_with_one_that_does_not_forward_changes_nothing(group: Group) -> None:
    group.done(3, "split", 4)
    assert group.forwarders() == [0]


def test_a_join_at_the_wrong_forwarder_is_sent_on() -> None:
    """Peer 1 joins the forwarder that a lookup found, and is told of closer and closer ones."""
    rig = child_of_2()
    far, near, nearest = sorted((3, 4, 5), key=lambda one: place(one) ^ place(1), reverse=True)
    asked = rig.hear(2, Rejoin(9, T, [contact(far)])) + rig.wait(1)
    for to, question in sent(asked, FindRequest):
        reply = FindReply(question.request, member=to == far)
        asked = asked + rig.hear(to, reply)
    for at, hint in ((far, near), (near, nearest)):
        [request] = [one for to, one in sent(asked, RoleRequest) if to == at]
        assert request.operation == JOIN
        asked = rig.hear(at, RoleReply(request.request, ABORTED, [contact(hint)]))
    [(to, request)] = sent(asked, RoleRequest)
    assert to == nearest
    farther = rig.hear(to, RoleReply(request.request, ABORTED, [contact(far)]))
    assert sent(farther, RoleRequest) == []  # that one is not closer: it gives up for now


def test_a_child_knows_its_parent_and_others(group: Group) -> None:
    split_some(group, 5, 7, 2)
    limit = group.machine(0).config.alternatives_max
    late = Topic("/late")
    unsubscribe(group.run, 11, [A])
    group.rest()
    group.run.subscribe(11, [A, late])
    group.rest()
    child = group.role(11).child
    assert child is not None
    known = [group.number(one) for one in child.known()]
    assert known[0] == group.closest(11, group.forwarders())
    assert 1 < len(known) <= limit + 1 and set(known) <= set(group.forwarders())


def test_leave_sends_the_children_to_their_closest(group: Group) -> None:
    split_some(group, 5, 7)
    unsubscribe(group.run, 5, [A])
    group.rest()
    group.right()
    assert not group.has_role(5) and group.forwarders() == [0, 7]


def test_the_last_forwarder_hands_over_to_a_child(group: Group) -> None:
    heir = group.closest(0, group.children())
    unsubscribe(group.run, 0, [A])
    group.rest()
    group.right()
    assert group.forwarders() == [heir] and not group.has_role(0)


def test_a_forwarder_without_children_just_goes() -> None:
    group = Group(2)
    unsubscribe(group.run, 1, [A])
    group.rest()
    unsubscribe(group.run, 0, [A])
    group.rest()
    group.right()
    assert group.forwarders() == [] and not group.has_role(0)


def test_makechild_turns_a_forwarder_into_a_child(group: Group) -> None:
    split_some(group, 5, 7)
    parent = group.closest(5, [0, 7])
    group.done(5, "makechild", parent)
    assert group.forwarders() == [0, 7] and group.parent(5) == parent


def test_makechild_of_one_that_is_not_the_closest_is_aborted(group: Group) -> None:
    split_some(group, 5, 7)
    wrong = next(one for one in (0, 7) if one != group.closest(5, [0, 7]))
    group.done(5, "makechild", wrong)
    assert group.forwarders() == [0, 5, 7]


def test_nobody_is_invited_to_stop_forwarding(group: Group) -> None:
    """The sender would say from then on what the invited peer gets."""
    split_some(group, 5)
    group.hear(0, 5, Invite(A, MAKECHILD))
    group.rest()
    assert group.forwarders() == [0, 5]


def test_replace_for_fairness_leaves_the_replaced_one_a_child(group: Group) -> None:
    group.run.subscribe(0, [Topic(f"/more/{number}") for number in range(8)])
    group.run.subscribe(4, [Topic("/own/5"), Topic("/own/6")])
    group.rest()
    load, other = group.machine(0).roles.load(), group.machine(4).roles.load()
    assert (load.locations - 1) / load.topics > (other.locations + 1) / other.topics
    group.done(4, "replace", 0)
    assert group.forwarders() == [4] and group.parent(0) == 4


def test_replace_of_one_that_does_no_more_than_its_share_is_aborted(group: Group) -> None:
    group.done(4, "replace", 0)
    assert group.forwarders() == [0]


def test_newcomers_replace_a_forwarder_that_does_more_than_its_share(group: Group) -> None:
    """The fairness test is made on subscription too."""
    unsubscribe(group.run, 4, [A])
    group.run.subscribe(0, [Topic(f"/more/{number}") for number in range(8)])
    group.run.subscribe(4, [Topic("/own/5"), Topic("/own/6"), Topic("/own/7")])
    group.rest()
    group.run.subscribe(4, [A])
    group.rest()
    group.right()
    assert group.forwarders() == [4]


def test_a_newcomer_without_location_splits_where_there_are_most_children() -> None:
    group = Group(10)
    for peer in (8, 9):
        unsubscribe(group.run, peer, [A, Topic(f"/own/{peer}")])
    group.run.subscribe(1, [Topic("/own/2")])
    group.rest()
    assert group.machine(9).roles.load().locations == 0
    group.run.subscribe(9, [Topic("/own/2"), A])
    group.rest()
    group.right()
    assert group.forwarders() == [0, 9]  # seven children here, one there


def test_two_splits_at_once_one_is_told_to_wait(group: Group) -> None:
    group.do(5, "split", 0)
    group.do(7, "split", 0)
    group.rest()
    group.right()
    assert group.counted("topic_dht_aborts") == 1
    assert len(group.forwarders()) == 2


def test_all_at_once_ends_well(group: Group) -> None:
    for peer in (2, 3, 4, 5, 6, 7):
        group.do(peer, "split", 0)
    unsubscribe(group.run, 8, [A])
    unsubscribe(group.run, 0, [A])
    group.rest()
    group.rest()
    group.right()


def test_an_operation_that_is_never_closed_ends_with_its_lease(group: Group) -> None:
    lease = group.machine(0).config.lease_ms
    group.hear(0, 5, RoleRequest(1, A, SPLIT))
    group.do(7, "split", 0)
    group.run.run(1_000)
    assert group.forwarders() == [0]
    group.run.run(lease)
    group.done(7, "split", 0)
    assert group.forwarders() == [0, 7]


def test_too_many_children_make_one_of_them_split() -> None:
    for k in (1, 2, 4):
        group = Group(14, k)
        group.right()
        assert len(group.forwarders()) >= 14 / (k + 1)


def test_unsubscribing_while_subscribing_leaves_nothing(group: Group) -> None:
    topic = Topic("/short")
    group.run.subscribe(3, [topic])
    group.run.run(15)
    unsubscribe(group.run, 3, [topic])
    group.rest()
    group.right()
    group.run.subscribe(3, [topic])
    unsubscribe(group.run, 3, [topic])
    group.run.subscribe(3, [topic])
    group.rest()
    group.right()
    assert group.machine(3).roles.forwarding(topic) is not None
