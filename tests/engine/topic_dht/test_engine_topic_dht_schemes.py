"""Trees, gossip and crashes in the topic-aware DHT over arrays: equal to the rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.engine.core.arrays import jain
from weft.engine.data.memberships import spread, zipf_sizes
from weft.engine.topic_dht.crash import ALTERNATIVES, Children, Crash, remember, survivors
from weft.engine.topic_dht.roles import ABSENT, FORWARDS, Roles, subscribed
from weft.engine.topic_dht.schemes import (
    SCHEMES,
    Crowd,
    Events,
    pull,
    push,
    roots_of,
    spread_forest,
    spread_tree,
    trees_of,
)
from weft.engine.topic_dht.space import places_of
from weft.rules import treecast
from weft.rules.draw import absorb, below

BITS = 64
bits64 = st.integers(0, 2**64 - 1)
crowds = st.sets(bits64 | st.integers(0, 31), min_size=1, max_size=40)


def crowd_of(places: list[int], keys: list[int], dead: set[int]) -> Crowd:
    count = len(places)
    return Crowd(
        np.array(places, np.uint64),
        np.array(keys, np.uint64),
        np.array([one not in dead for one in range(count)], np.uint8),
        np.zeros(count, np.int64),
        np.full(count, -1, np.int32),
        np.zeros(count, np.int64),
    )


# --- trees ----------------------------------------------------------------------------------------


def tree_by_the_rules(
    places: list[int], keys: list[int], root: int, most: int, event: int, dead: set[int]
) -> dict[int, tuple[int, int]]:
    """Hops and messages sent of each member that an event reaches."""
    found = {}
    todo = [(root, treecast.ROOT_CHARGE, 0)]
    while todo:
        one, charge, hops = todo.pop()
        assert one not in found, "a member was sent to twice"
        own = places[one]
        halves = treecast.levels(own, places, BITS)
        links = {
            level: treecast.kept_links(own, level, known, (), most, keys[one], BITS)
            for level, known in halves.items()
        }
        chosen = treecast.delegates(own, charge, links, absorb(event, one), BITS)
        if one in dead:
            chosen = []
        found[one] = (hops, len(chosen))
        todo += [(places.index(place), its, hops + 1) for place, its in chosen]
    return found


@settings(max_examples=150, deadline=None)
@given(crowds, st.data(), st.integers(1, 5), bits64, bits64)
def test_trees_come_out_as_by_the_rules(
    crowd: set[int], data: st.DataObject, most: int, seed: int, event: int
) -> None:
    places = sorted(crowd)
    keys = [absorb(seed, one) for one in range(len(places))]
    numbers = st.integers(0, len(places) - 1)
    root, dead = data.draw(numbers), data.draw(st.sets(numbers, max_size=3))
    some = crowd_of(places, keys, dead)
    messages = spread_tree(some, root, most, np.uint64(event), False)
    expected = tree_by_the_rules(places, keys, root, most, event, dead)
    found = {
        one: (int(some.hops[one]), int(some.sent[one]))
        for one in range(len(places))
        if some.hops[one] >= 0
    }
    assert found == expected
    assert messages == len(expected) - 1
    if not dead:
        assert messages == len(places) - 1


@settings(deadline=None)
@given(crowds, st.data(), bits64)
def test_senders_that_notice_dead_links_reach_all_that_live(
    crowd: set[int], data: st.DataObject, event: int
) -> None:
    places = sorted(crowd)
    numbers = st.integers(0, len(places) - 1)
    root = data.draw(numbers)
    dead = data.draw(st.sets(numbers)) - {root}
    some = crowd_of(places, list(range(len(places))), dead)
    messages = spread_tree(some, root, 4, np.uint64(event), True)
    reached = {one for one in range(len(places)) if some.hops[one] >= 0}
    assert reached == set(range(len(places))) - dead
    assert messages == len(reached) - 1


@settings(deadline=None)
@given(crowds, st.data(), st.integers(2, 4), st.integers(1, 24), bits64, st.booleans())
def test_one_of_several_trees_comes_out_as_by_the_rules(
    crowd: set[int], data: st.DataObject, trees: int, whole: int, event: int, dies: bool
) -> None:
    places = sorted(crowd)
    numbers = st.integers(0, len(places) - 1)
    roots = data.draw(st.lists(numbers, min_size=trees, max_size=trees))
    tree = data.draw(st.integers(0, trees - 1))
    dead = data.draw(st.sets(numbers, max_size=3)) if dies else set()
    named = [places[root] for root in roots]
    belongs = trees_of(np.array(places, np.uint64), roots)
    assert [treecast.tree_of(place, named, BITS) for place in places] == list(belongs)
    some = crowd_of(places, places, dead)
    inside = np.flatnonzero(belongs == tree)
    messages = spread_forest(some, roots[tree], inside, whole, np.uint64(event), False)
    found: dict[int, tuple[int, int]] = {}
    todo = [(roots[tree], treecast.ROOT_CHARGE, 0)]
    while todo:
        one, charge, hops = todo.pop()
        assert one not in found, "a member was sent to twice"
        known = treecast.levels(places[one], places, BITS)
        chosen = treecast.forest_delegates(
            places[one], charge, known, absorb(event, one), BITS, tree, named, whole
        )
        chosen = [] if one in dead else chosen
        found[one] = (hops, len(chosen))
        todo += [(places.index(place), its, hops + 1) for place, its in chosen]
    assert found == {
        one: (int(some.hops[one]), int(some.sent[one]))
        for one in range(len(places))
        if some.hops[one] >= 0
    }
    assert messages == len(found) - 1
    if not dead:
        assert messages == len(places) - 1


# --- gossip ---------------------------------------------------------------------------------------


def view_of(one: int, members: int, most: int, key: int) -> list[int]:
    others = [other for other in range(members) if other != one]
    if len(others) <= most:
        return others
    view: list[int] = []
    attempt = 0
    while len(view) < most:
        other = others[below(absorb(key, attempt), len(others))]
        attempt += 1
        if other not in view:
            view.append(other)
    return view


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 9).map(bool), min_size=1, max_size=60),
    st.data(),
    st.integers(1, 9),
    st.integers(1, 20),
    bits64,
    bits64,
)
def test_gossip_comes_out_as_by_the_rules(
    live: list[bool], data: st.DataObject, fanout: int, size: int, views: int, event: int
) -> None:
    count = len(live)
    publisher = data.draw(st.integers(0, count - 1))
    live[publisher] = True
    numbers = list(range(count))
    some = crowd_of(numbers, numbers, {one for one in numbers if not live[one]})
    copies, last = push(some, publisher, fanout, size, np.uint64(views), np.uint64(event))
    rounds = {publisher: 0}
    queue, sent = [(publisher, -1)], 0
    for one, source in queue:  # grows
        view = view_of(one, count, size, absorb(views, one))
        key = absorb(event, one)
        for to in treecast.partners(view, fanout, key, without=(source, publisher)):
            sent += 1
            if live[to] and to not in rounds:
                rounds[to] = rounds[one] + 1
                queue.append((to, one))
    assert {one: int(hop) for one, hop in enumerate(some.hops) if hop >= 0} == rounds
    assert copies == sent == some.sent.sum()
    assert last == max(rounds.values())
    more = pull(some, 3, last, size, np.uint64(views), np.uint64(event))
    have = dict(rounds)
    for turn in range(3):
        before = frozenset(have)
        for one in range(count):
            view = view_of(one, count, size, absorb(views, one))
            if live[one] and view:
                to = view[below(absorb(absorb(event, one), turn), len(view))]
                if live[to] and (one in before) != (to in before):
                    sent += 1
                    have.setdefault(to if one in before else one, last + turn + 1)
    assert {one: int(hop) for one, hop in enumerate(some.hops) if hop >= 0} == have
    assert copies + more == sent


# --- the four schemes -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def roles() -> Roles:
    held = spread(zipf_sizes(30, 3_000, 0.7), 600, 5)
    return subscribed(held, places_of(600, 5), 8, 5)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_reaches_everybody_and_counts_what_it_sends(roles: Roles, scheme: str) -> None:
    assert scheme in SCHEMES
    events = Events(roles, scheme, 5, "push-pull")
    payloads = deliveries = 0
    for topic in range(roles.held.topics):
        outcome = events.publish(topic, events.random_member(topic))
        assert outcome.missed == 0 and outcome.members == roles.held.sizes()[topic]
        assert outcome.rounds <= 1.5 * np.log2(outcome.members) + 5
        if scheme.endswith("treecast"):
            assert outcome.payloads == outcome.members - 1
        payloads += outcome.payloads
        deliveries += outcome.members
    assert events.sent.sum() == payloads
    assert events.received.sum() == deliveries


def test_children_send_nothing_but_handovers(roles: Roles) -> None:
    events = Events(roles, "forward-treecast", 1)
    children = np.flatnonzero(roles.parent >= 0)
    publisher = int(children[0])
    outcome = events.publish(int(roles.held.topic_of[publisher]), publisher)
    assert outcome.handovers == 1
    assert events.sent[children].sum() == events.sent[publisher] == 1
    assert events.sent[roles.parent == FORWARDS].sum() == outcome.payloads - 1


def test_further_roots_cost_a_tree_each(roles: Roles) -> None:
    events = Events(roles, "full-treecast", 1)
    outcome = events.publish(0, events.random_member(0), roots=3)
    assert outcome.payloads == 3 * (outcome.members - 1) + 2
    assert outcome.handovers == 2


@pytest.mark.parametrize("scheme", ["full-treecast", "forward-treecast"])
@pytest.mark.parametrize("crashed", ["roots", "members"])
def test_f_crashes_leave_one_tree_of_f_and_one_whole(
    roles: Roles, scheme: str, crashed: str
) -> None:
    """By the trees alone, with any crashes; only children of the dead go without."""
    assert scheme in SCHEMES and (crashed == "roots" or crashed == "members")
    for mended in (False, True):
        events = Events(roles, scheme, 1, mended=mended)
        for topic in range(30):
            outcome = events.publish(topic, events.random_member(topic), 3, crashed)
            assert outcome.missed == outcome.orphans <= (0 if events.is_full else 2 * roles.k)
            assert outcome.handovers >= 2


def test_further_roots_are_drawn_as_by_the_rule(roles: Roles) -> None:
    events = Events(roles, "full-treecast", 1)
    crowd = events.crowd_of(2)
    places = [int(place) for place in roles.state.places[crowd]]
    key = 12_345
    chosen = roots_of(roles.state.places[crowd], 5, 4, key)
    rest = places[:5] + places[6:]
    expected = treecast.other_roots(rest, 3, key, BITS)
    assert [places[one] for one in chosen] == [places[5], *expected]


def test_dead_members_cut_trees_off_unless_they_are_noticed(roles: Roles) -> None:
    live = survivors(roles.held.peers, 30, 2)
    assert live.sum() == 420
    missed = {}
    for mended in (False, True):
        events = Events(roles, "full-treecast", 1, live=live, mended=mended)
        outcomes = [events.publish(topic, events.random_member(topic)) for topic in range(30)]
        missed[mended] = sum(each.missed for each in outcomes)
    assert missed[False] > 100 and missed[True] == 0


def test_jain() -> None:
    assert jain(np.array([2.0, 2.0, 2.0])) == 1.0
    assert jain(np.array([1.0, 0.0, 0.0, 0.0])) == 0.25
    assert jain(np.zeros(3)) == 1.0


# --- crashes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("percent", [30, 90])
def test_algorithm_1_brings_every_child_back(percent: int) -> None:
    held = spread(zipf_sizes(30, 3_000, 0.7), 600, 5)
    places = places_of(600, 5)
    found = subscribed(held, places, 8, 5)
    before = found.parent.copy()
    live = survivors(600, percent, 1)
    crash = Crash(found, live, 1)
    alive = live[held.members] == 1
    hung = alive & (before >= 0)
    assert crash.lost == np.sum(live[held.members[before[hung]]] == 0)
    assert crash.crashed_forwarders == np.sum(~alive & (before == FORWARDS))
    assert crash.lost <= found.k * crash.crashed_forwarders
    periods = crash.periods_until_right(20)
    assert periods is not None and 1 <= periods <= 5
    for topic in range(held.topics):
        members = np.arange(held.offsets[topic], held.offsets[topic + 1])
        forwarders = members[alive[members] & (found.parent[members] == FORWARDS)]
        assert sorted(found.forwarders_of(topic)) == sorted(forwarders)
        for one in members[alive[members] & (found.parent[members] != FORWARDS)]:
            distances = places[held.members[forwarders]] ^ places[held.members[one]]
            assert found.parent[one] == forwarders[np.argmin(distances)]
    assert np.all(found.parent[~alive] == ABSENT)
    assert found.state.children.max() <= 8


def test_a_child_knows_the_forwarders_around_its_parent(roles: Roles) -> None:
    held = roles.held
    places = roles.state.places
    known = Children(
        np.ones(held.total, np.uint8),
        np.full((held.total, 1 + ALTERNATIVES), -1, np.int32),
        np.zeros(held.total, np.int32),
        np.ones(held.total, np.uint8),
        np.zeros(held.total, np.int32),
    )
    checked = 0
    for one in np.flatnonzero(roles.parent >= 0)[::50]:
        parent = int(roles.parent[one])
        others = roles.forwarders_of(int(held.topic_of[one]))
        order = others[np.argsort(places[others] ^ places[parent])]
        remember(roles.state, known, int(one))
        assert known.known[one, : known.counts[one]].tolist() == order[: 1 + ALTERNATIVES].tolist()
        checked += len(order) > ALTERNATIVES
    assert checked > 10


def test_nothing_happens_where_nobody_crashed() -> None:
    held = spread(zipf_sizes(10, 500, 0.7), 300, 5)
    found = subscribed(held, places_of(300, 5), 4, 5)
    crash = Crash(found, np.ones(300, np.uint8), 1)
    assert (crash.lost, crash.crashed_forwarders, crash.periods_until_right(3)) == (0, 0, 0)
    before = found.parent.copy()
    crash.run_period()
    assert np.array_equal(before, found.parent)
