"""Algorithm 1 message by message, and how a child relieves its parent."""

from __future__ import annotations

import pytest

from protocol_kit import Rig, T, contact, event, number_of, sent, told
from topic_dht_rig import child_of_2, config, forwarder, parent, place, routing
from weft.ids import Topic
from weft.protocol.kademlia.rpc import FindRequest
from weft.protocol.rooms import TopicDhtSettings as Settings
from weft.protocol.topic_dht.events import Beat
from weft.protocol.topic_dht.roles import (
    ABORTED,
    ACCEPTED,
    JOIN,
    LOOK,
    MAKECHILD,
    REPLACE,
    Appeared,
    Child,
    Rejoin,
    Role,
    RoleDone,
    RoleReply,
    RoleRequest,
)
from weft.protocol.topic_dht.upkeep import IsChild, IsParent, RouteParent
from weft.protocol.wire import Payload
from weft.rules import roles
from weft.rules.roles import Load
from weft.sim.topic_dht import Run


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


def test_a_stranger_has_few_lookups_made_for_it() -> None:
    """Each asks many forwarders; others' children do not wait because of it."""
    rig = forwarder()
    looks = [bool(told(rig.hear(66, RouteParent(T)), FindRequest)) for _ in range(20)]
    assert sum(looks) == 2
    assert told(rig.hear(8, RouteParent(T)), FindRequest)


# --- what others say of this peer's place ---------------------------------------------------------


def role_of(rig: Rig) -> Role:
    return routing(rig).topics.roles.by_topic[T]


def parent_of(rig: Rig) -> int:
    child = role_of(rig).child
    assert child is not None
    return number_of(child.parent)


def test_a_child_believes_no_parent_that_it_did_not_find() -> None:
    """It looks for itself, from the forwarders that it knows, and that a few times in a period."""
    rig = child_of_2()
    rig.wait(rig.peer.config.topic_dht.period_ms)
    looks = [told(rig.hear(60 + number, IsChild(T)), FindRequest) for number in range(10)]
    assert parent_of(rig) == 2
    assert {2, 3} <= {*looks[0]} and not any(looks[2:])


def test_a_parent_does_not_choose_all_peers_that_a_child_may_ask() -> None:
    rig = child_of_2()
    rig.hear(2, IsChild(T, [contact(number) for number in range(60, 70)]))
    child = role_of(rig).child
    assert child is not None and 3 in map(number_of, child.alternatives)


def test_a_child_compares_with_another_forwarder_than_its_parent() -> None:
    rig = child_of_2()
    rig.wait(10_000)  # until its subscription stands
    rig.hear(2, Payload(T, event(7, 1), 1))
    assert {2, 3} <= {*told(rig.cycle(), Beat)}


def test_a_child_compares_with_all_that_it_knows_by_turns_though_nothing_comes() -> None:
    """Its parent may be silent because there is nothing, or because it drops all."""
    rig = child_of_2()
    rig.wait(10_000)
    rig.hear(2, IsChild(T, [contact(number) for number in (60, 61, 62)]))
    others = {3, 60, 61, 62}
    asked = [set(told(rig.cycle(), Beat)) & others for _ in range(4)]
    assert set().union(*asked) == others


def test_a_child_meets_forwarders_that_its_parent_does_not_name() -> None:
    child = Child(contact(2), [contact(number) for number in (60, 61, 62, 63)], 0)
    child.meet([contact(number) for number in (2, 61, 70, 71, 72)], 4)
    assert [number_of(one) for one in child.alternatives] == [70, 71, 60, 61]


def test_a_child_whose_parent_keeps_events_back_forwards_by_itself() -> None:
    """The parent says that it has seen something else, and brings nothing when it is asked."""
    rig = child_of_2()
    rig.wait(10_000)
    for _ in range(3):
        rig.hear(2, Beat(T, 77))
    rig.hear(2, Payload(T, event(7, 1), 1))  # it was late
    for _ in range(3):
        rig.hear(2, Beat(T, 77))
    rig.hear(2, IsChild(T))
    rig.wait(rig.peer.config.topic_dht.period_ms)
    assert role_of(rig).child is not None
    rig.hear(2, Beat(T, 77))
    rig.hear(2, IsChild(T))
    rig.wait(rig.peer.config.topic_dht.period_ms)
    assert role_of(rig).forwarder is not None


def test_an_alternative_that_cannot_be_reached_is_none() -> None:
    rig = child_of_2()
    rig.lose(3)
    child = role_of(rig).child
    assert child is not None and not child.alternatives


def test_a_place_is_given_to_a_peer_that_lies_next_to_it_alone() -> None:
    """Whatever a peer says of its load."""
    rig = parent(children=(8, 9))
    rig.subscribe(Topic("/other"), token=2)
    rig.wait(60_000)
    rig.hear(20, Appeared(7, T))
    far = next(n for n in range(30, 99) if roles.is_closer(place(n), place(20), place(1)))
    near = next(n for n in range(30, 99) if roles.is_closer(place(n), place(1), place(20)))
    for number, verdict in ((far, ABORTED), (near, ACCEPTED)):
        ask = RoleRequest(number, T, REPLACE, locations=0, topics=1 << 32)
        [(_, reply)] = sent(rig.hear(number, ask), RoleReply)
        assert reply.verdict == verdict


def test_a_forwarder_has_children_sent_to_it_but_a_few_times() -> None:
    rig = parent(children=(8, 9))
    near = next(n for n in range(30, 999) if roles.is_closer(place(8), place(n), place(1)))
    sent_on = 0
    for request in range(10):
        for number, rejoin in sent(rig.hear(near, Appeared(request, T)), Rejoin):
            sent_on += number == 8
            rig.hear(number, RoleReply(rejoin.request, ABORTED))  # it stays
    assert sent_on == 2


def test_few_strangers_wait_for_the_end_of_an_operation() -> None:
    rig = Rig(1, config())
    rig.meet(2)
    rig.subscribe()
    assert role_of(rig).operation
    for number in range(30, 60):
        rig.hear(number, Rejoin(number, T))
    assert len(role_of(rig).acks) == 8


# --- packing --------------------------------------------------------------------------------------


def test_groups_are_packed_where_there_is_room() -> None:
    """Peers that subscribe one after the other split groups that then stay half empty."""

    def locations(packs: bool) -> list[int]:
        run = Run(2, 20, Settings(children_max=3, packs=packs))
        run.come_up()
        for number in range(20):
            run.subscribe(number, [Topic(f"/t{topic}") for topic in range(6)])
            run.run(1_000)
        run.run(24 * run.settings.period_ms)
        assert run.settle() == 0  # Lemma 4.2, and nobody has more than k children
        return [machine.roles.load().locations for machine in run.machines().values()]

    loose, packed = locations(False), locations(True)
    assert sum(packed) < 0.95 * sum(loose)
    assert min(packed) >= 1


def first_look(rig: Rig) -> tuple[int, RoleRequest] | None:
    """The first question for room in thirty periods, if there is one."""
    for _ in range(300):
        for to, request in sent(rig.wait(1_000), RoleRequest):
            if request.operation == LOOK:
                return to, request
    return None


@pytest.mark.parametrize(("children", "stops"), [(1, True), (2, False)])
def test_a_forwarder_stops_only_where_its_heir_has_room(children: int, stops: bool) -> None:
    rig = packing()
    found = first_look(rig)
    assert found is not None
    to, look = found
    asked = sent(rig.hear(to, RoleReply(look.request, ACCEPTED, [], children, 1, 1)), RoleRequest)
    assert [(at, one.operation) for at, one in asked] == ([(to, MAKECHILD)] if stops else [])


def test_the_last_location_is_kept_and_only_those_that_pack_ask() -> None:
    assert first_look(packing(others=())) is None
    assert first_look(packing(packs=False)) is None


def packing(packs: bool = True, others: tuple[str, ...] = ("/other",)) -> Rig:
    """A forwarder with k = 2, no children and one other forwarder around it."""
    rig = Rig(1, config(children_max=2, packs=packs))
    rig.subscribe()
    for token, other in enumerate(others, 2):
        rig.subscribe(Topic(other), token=token)
    rig.hear(2, Appeared(1, T))
    return rig
