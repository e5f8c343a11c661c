"""The decisions of multicast trees."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from weft.ids import Contact, PeerId, Topic
from weft.rules import multicast
from weft.rules.prefix import closest


def contact(number: int) -> Contact:
    return Contact(PeerId(number.to_bytes(8, "big") + bytes(24)), f"/ip4/127.0.0.1/tcp/{number}")


contacts = st.lists(st.integers(1, 20), max_size=12, unique=True).map(
    lambda numbers: [contact(number) for number in numbers]
)
locations = st.integers(0, (1 << 256) - 1)


def test_a_tree_lies_at_the_hash_of_its_topic() -> None:
    digest = sha256(b"/sports").digest()
    assert multicast.tree_key(Topic("/sports")) == b"\x03" + digest
    assert multicast.tree_location(Topic("/sports")) == int.from_bytes(digest, "big")


@given(st.lists(locations, min_size=1, max_size=20, unique=True), locations, st.integers(1, 8))
def test_exactly_the_closest_are_rendezvous(peers: list[int], target: int, count: int) -> None:
    chosen = [
        own
        for own in peers
        if multicast.is_rendezvous(own, [one for one in peers if one != own], target, count)
    ]
    assert sorted(chosen) == sorted(closest(target, peers, count))


@given(contacts, st.integers(1, 20), st.booleans())
def test_nobody_joins_below_itself(path: list[Contact], joiner: int, attached: bool) -> None:
    who = contact(joiner)
    may = multicast.may_join(who.peer, path, attached)
    assert may == (attached and who not in path)


@given(contacts, st.integers(0, (1 << 64) - 1), st.integers(0, 5))
def test_a_full_member_names_some_of_its_children(
    children: list[Contact], key: int, count: int
) -> None:
    named = multicast.push_down(children, key, count)
    assert len(named) == min(count, len(children))
    assert len(set(named)) == len(named)
    assert all(one in children for one in named)
    assert named == multicast.push_down(children[::-1], key, count)


def test_newcomers_are_spread_over_the_children() -> None:
    children = [contact(number) for number in range(1, 9)]
    first = [multicast.push_down(children, key * 7919, 1)[0] for key in range(800)]
    assert min(first.count(child) for child in children) > 50  # 100 on average


@given(contacts, contacts, st.integers(1, 20))
def test_repair_goes_up_level_by_level(
    path: list[Contact], roots: list[Contact], lost: int
) -> None:
    me = contact(1).peer
    order = multicast.repair_order(me, path, roots, (contact(lost).peer,))
    usable = [one for one in (*path, *roots) if one.peer not in (me, contact(lost).peer)]
    assert order == list(dict.fromkeys(usable))


@given(contacts, contacts, st.integers(1, 21))
def test_an_event_crosses_each_link_once(
    links: list[Contact], told: list[Contact], source: int
) -> None:
    by_peer = {one.peer: one for one in links}
    goes_to = multicast.onward(by_peer, contact(source).peer, {one.peer for one in told})
    assert len(set(goes_to)) == len(goes_to)
    assert set(goes_to) == set(links) - set(told) - {contact(source)}


def test_a_way_up_that_comes_back_is_a_circle() -> None:
    me, parent = contact(1), contact(2)
    assert not multicast.is_circle(me.peer, parent.peer, [contact(3)])
    assert multicast.is_circle(me.peer, parent.peer, [contact(3), me])
    endless = [contact(number) for number in range(3, 3 + multicast.PATH_MAX)]
    assert multicast.is_circle(me.peer, parent.peer, endless)
    assert not multicast.is_circle(me.peer, parent.peer, endless[:-1])


@given(contacts, st.integers(0, (1 << 256) - 1))
def test_of_a_circle_one_member_leaves(circle: list[Contact], target: int) -> None:
    """Whichever member of it looks, and whatever else the way up names."""
    members = list(dict.fromkeys(circle))
    leaving = []
    for at, me in enumerate(members):
        parent, *path = [*members[at + 1 :], *members[: at + 1]]
        if multicast.opens_circle(me.peer, parent.peer, [*path, parent], target):
            leaving.append(me)
    assert len(leaving) == min(1, len(members))


def test_silence_from_above_has_a_limit() -> None:
    assert not multicast.is_cut_off(5, 8, 3)
    assert multicast.is_cut_off(5, 9, 3)


def test_a_rendezvous_that_serves_nobody_is_idle() -> None:
    assert multicast.is_idle(False, 0, 0)
    assert not multicast.is_idle(True, 0, 0)
    assert not multicast.is_idle(False, 1, 0)
    assert not multicast.is_idle(False, 0, 1)
