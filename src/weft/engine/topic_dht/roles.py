"""Forwarders and children of the topic-aware DHT over arrays (decisions: `weft.rules.roles`).

Peers subscribe one after the other, each to several of its topics at once; an operation is over
before the next begins. That is the setting of Lemma 4.2, and what is left of the operations in it
is what they do to the sets: a new forwarder takes over the children that are closer to it, one that
stops sends its children, and itself, to whoever is closest, and one with more than k children has
one of them split until it has not.

A membership is named by its index, as everywhere in the engine. The forwarders of a topic are a
sorted stretch of `spots`; the children of a forwarder are a chain of memberships.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from weft.engine.core.draws import Bits, absorb, base_key
from weft.engine.core.jit import compiled, i64, part
from weft.engine.core.layout import Array
from weft.engine.data.workload import Memberships
from weft.engine.topic_dht.space import Places, affected, closest, is_closer, lower
from weft.rules.draw import stream_of

FORWARDS, ABSENT = -1, -2
"""Instead of a parent: a forwarder, and who is not subscribed (yet, or any more)."""
FORWARD, SPLIT, REPLACE, JOIN = 0, 1, 2, 3
CHOICES = ("forward", "split", "replace", "join")
"""Names of the choices, as in the rule."""
MOVED, SHED, RELIEVED = 4, 5, 6
"""What else is counted: children that changed parents, splits for want of room, children that took
over from a parent that did more than its share."""


class State(NamedTuple):
    """All roles, for kernels."""

    offsets: Array  # int64: where each topic's memberships begin
    members: Array  # int32: peers, by membership
    topic_of: Array  # int32
    places: Places  # by membership
    parent: Array  # int32: a membership, or FORWARDS, or ABSENT
    children: Array  # int32: how many
    first: Array  # int32: the first child, or −1
    after: Array  # int32: the next child of the same parent, or −1
    before: Array  # int32: the one before, or −1
    spots: Array  # int32: forwarders, sorted by place, from each topic's offset on
    forwarders: Array  # int64: how many each topic has
    locations: Array  # int32: |L_p|, by peer
    topics: Array  # int32: |T_p|
    work: Array  # int32: subscribers served, by peer: itself and its children where it forwards
    done: Array  # int64: operations by kind


@dataclass(frozen=True)
class Roles:
    """Who forwards what, and who hangs on whom."""

    held: Memberships
    k: int
    state: State

    @property
    def parent(self) -> npt.NDArray[np.int32]:
        return self.state.parent

    @property
    def locations(self) -> npt.NDArray[np.int32]:
        return self.state.locations

    def forwarders_of(self, topic: int) -> npt.NDArray[np.int32]:
        """Memberships, sorted by place."""
        first = int(self.state.offsets[topic])
        return self.state.spots[first : first + int(self.state.forwarders[topic])]

    def done(self) -> dict[str, int]:
        """How often each operation was carried out."""
        names = (*CHOICES, "moved", "shed", "relieved")
        return {name: int(self.state.done[kind]) for kind, name in enumerate(names)}


def empty_roles(held: Memberships, places: Places, k: int) -> Roles:
    """Nobody has subscribed yet; `places` are the peers'."""
    if k < 1:
        raise ValueError("k is at least 1")

    def whole(size: int, value: int) -> npt.NDArray[np.int32]:
        return np.full(size, value, np.int32)

    state = State(
        held.offsets,
        held.members,
        held.topic_of,
        places[held.members],
        whole(held.total, ABSENT),
        whole(held.total, 0),
        whole(held.total, -1),
        whole(held.total, -1),
        whole(held.total, -1),
        whole(held.total, -1),
        np.zeros(held.topics, np.int64),
        whole(held.peers, 0),
        whole(held.peers, 0),
        whole(held.peers, 0),
        np.zeros(7, np.int64),
    )
    return Roles(held, k, state)


def subscribed(held: Memberships, places: Places, k: int, seed: int) -> Roles:
    """Everybody has subscribed to all it wants, in an order drawn by the seed."""
    roles = empty_roles(held, places, k)
    subscribe(roles, order_of(held.peers, seed))
    return roles


def order_of(peers: int, seed: int) -> npt.NDArray[np.int64]:
    keys = np.empty(peers, np.uint64)
    _draw_each(keys, base_key(seed, stream_of("engine.topic_dht.order")))
    return np.argsort(keys, kind="stable")


@compiled
def _draw_each(keys: Array, key: Bits) -> None:
    for item in range(len(keys)):
        keys[item] = absorb(key, item)


def subscribe(roles: Roles, peers: npt.NDArray[np.int64]) -> None:
    """These peers subscribe, one after the other, each to all of its topics at once."""
    first, held = roles.held.of_peer_offsets, roles.held.of_peer
    subscribe_in_turn(roles, [held[first[peer] : first[peer + 1]] for peer in peers])


def subscribe_in_turn(roles: Roles, batches: Sequence[Array]) -> None:
    """One batch after the other; those of one peer's memberships that it subscribes to at once."""
    sizes = [len(batch) for batch in batches]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    flat = np.concatenate([np.zeros(0, np.int32), *batches]).astype(np.int32)
    _subscribe(roles.state, offsets, flat, roles.k)


# --- decisions ------------------------------------------------------------------------------------


@part
def is_unfair(other: int, other_topics: int, mine: int, my_topics: int) -> bool:
    """The fairness test, from |L_q|, |T_q|, |L_p| and |T_p|."""
    return (other - 1) * my_topics > (mine + 1) * other_topics


@part
def relieves(mine: int, my_topics: int, work: int, topics: int, children: int) -> bool:
    """Whether a child takes its parent's place, from the work and topics of both."""
    taken = children + 1
    return (work - taken) * my_topics > (mine + taken) * topics


@compiled
def choose_roles(found: Array, mine: int, my_topics: int, choices: Array) -> None:
    """What to do in each topic. `found` has a row for each: |L_q|, |T_q| and |C_q| of the closest
    forwarder; |T_q| is 0 where there is nobody."""
    count = len(found)
    most = -1
    for at in range(count):
        choices[at] = JOIN
        if found[at, 1] == 0:
            choices[at] = FORWARD
            mine += 1
        elif most < 0 or found[at, 2] > found[most, 2]:
            most = at
    if mine == 0 and most >= 0:
        choices[most] = SPLIT
        mine += 1
    for at in range(count):
        if choices[at] == JOIN and is_unfair(found[at, 0], found[at, 1], mine, my_topics):
            choices[at] = REPLACE
            mine += 1


@compiled
def split_target(state: State, forwarder: int) -> int:
    """Which child shall split: whose share of the children is closest to a half."""
    own, chosen, least = state.places[forwarder], -1, i64(0)
    child = i64(state.first[forwarder])
    while child >= 0:
        taken = 0
        one = i64(state.first[forwarder])
        while one >= 0:
            place = state.places[one]
            taken += one == child or is_closer(place, state.places[child], own)
            one = i64(state.after[one])
        uneven = abs(2 * taken - i64(state.children[forwarder]))
        ahead = chosen >= 0 and uneven == least and state.places[child] < state.places[chosen]
        if chosen < 0 or uneven < least or ahead:
            chosen, least = child, uneven
        child = i64(state.after[child])
    return chosen


# --- the sets -------------------------------------------------------------------------------------


@compiled
def attach(state: State, child: int, parent: int) -> None:
    state.parent[child] = parent
    state.after[child] = state.first[parent]
    state.before[child] = -1
    if state.first[parent] >= 0:
        state.before[state.first[parent]] = child
    state.first[parent] = child
    state.children[parent] += 1
    state.work[state.members[parent]] += 1


@compiled
def detach(state: State, child: int) -> None:
    parent, before, after = state.parent[child], state.before[child], state.after[child]
    if before >= 0:
        state.after[before] = after
    else:
        state.first[parent] = after
    if after >= 0:
        state.before[after] = before
    state.children[parent] -= 1
    state.work[state.members[parent]] -= 1
    state.parent[child] = ABSENT


@compiled
def closest_of(state: State, one: int) -> int:
    """The closest forwarder to a membership's place, or −1."""
    topic = state.topic_of[one]
    low = state.offsets[topic]
    high = low + state.forwarders[topic]
    at = closest(state.spots, state.places, low, high, state.places[one])
    return i64(state.spots[at]) if at >= 0 else -1


@compiled
def become_forwarder(state: State, one: int) -> None:
    """Take up a location; children of those around that are closer to it move."""
    topic = state.topic_of[one]
    low = state.offsets[topic]
    high = low + state.forwarders[topic]
    at = lower(state.spots, state.places, low, high, state.places[one])
    for spot in range(high, at, -1):
        state.spots[spot] = state.spots[spot - 1]
    state.spots[at] = one
    state.forwarders[topic] += 1
    state.parent[one] = FORWARDS
    state.locations[state.members[one]] += 1
    state.work[state.members[one]] += 1
    begin, end, _ = affected(state.spots, state.places, low, high + 1, at)
    for spot in range(begin, end):
        if spot == at:
            continue
        other = i64(state.spots[spot])
        child = i64(state.first[other])
        while child >= 0:
            following = i64(state.after[child])
            if is_closer(state.places[child], state.places[one], state.places[other]):
                detach(state, child)
                attach(state, child, one)
                state.done[MOVED] += 1
            child = following


@compiled
def give_up(state: State, one: int) -> None:
    """Give a location up: the children go to who is closest, if there is anybody."""
    topic = state.topic_of[one]
    low = state.offsets[topic]
    high = low + state.forwarders[topic]
    at = lower(state.spots, state.places, low, high, state.places[one])
    for spot in range(at, high - 1):
        state.spots[spot] = state.spots[spot + 1]
    state.forwarders[topic] -= 1
    state.parent[one] = ABSENT
    state.locations[state.members[one]] -= 1
    state.work[state.members[one]] -= 1
    child = i64(state.first[one])
    while child >= 0:
        following = i64(state.after[child])
        detach(state, child)
        parent = closest_of(state, child)
        if parent >= 0:
            attach(state, child, parent)
            state.done[MOVED] += 1
        child = following


@compiled
def step_aside(state: State, one: int) -> None:
    """A forwarder that was replaced is a child from then on."""
    give_up(state, one)
    attach(state, one, closest_of(state, one))


@compiled
def shed(state: State, topic: int, k: int) -> None:
    """Nobody in the topic keeps more than k children: one of them splits, as often as needed."""
    low = state.offsets[topic]
    at = low
    while at < low + state.forwarders[topic]:
        forwarder = i64(state.spots[at])
        if state.children[forwarder] > k:
            child = split_target(state, forwarder)
            detach(state, child)
            become_forwarder(state, child)
            state.done[SHED] += 1
            at = low  # both may still have too many
        else:
            at += 1


# --- the subscription procedure -------------------------------------------------------------------


@compiled
def _carry_out(state: State, one: int, choice: int, k: int) -> None:
    topic = state.topic_of[one]
    near = closest_of(state, one)
    peer = state.members[one]
    if choice == REPLACE:  # the assumption is checked again at entry
        other = state.members[near]
        mine, its = state.locations[peer], state.locations[other]
        if not is_unfair(its, state.topics[other], mine, state.topics[peer]):
            choice = JOIN
    state.done[choice] += 1
    if choice == JOIN:
        attach(state, one, near)
        if state.children[near] > k:
            shed(state, topic, k)
        return
    become_forwarder(state, one)
    if choice == REPLACE:
        step_aside(state, near)
    if choice != FORWARD:
        shed(state, topic, k)  # who splits may get children from several around it


@compiled
def _subscribe(state: State, offsets: Array, batches: Array, k: int) -> None:
    most = 0
    for batch in range(len(offsets) - 1):
        most = max(most, offsets[batch + 1] - offsets[batch])
    found, choices = np.empty((most, 3), np.int64), np.empty(most, np.int64)
    for batch in range(len(offsets) - 1):
        begin, count = offsets[batch], offsets[batch + 1] - offsets[batch]
        if count == 0:
            continue
        peer = state.members[batches[begin]]
        state.topics[peer] += count
        for at in range(count):
            near = closest_of(state, i64(batches[begin + at]))
            if near < 0:
                found[at, 0], found[at, 1], found[at, 2] = 0, 0, 0
            else:
                other = state.members[near]
                found[at, 0], found[at, 1] = state.locations[other], state.topics[other]
                found[at, 2] = state.children[near]
        mine, topics = i64(state.locations[peer]), i64(state.topics[peer])
        choose_roles(found[:count], mine, topics, choices[:count])
        for turn in range(3):  # in the rule's order: forward, split, then the others
            for at in range(count):
                if min(choices[at], REPLACE) == turn:
                    _carry_out(state, i64(batches[begin + at]), choices[at], k)


# --- topic_dht_relief --------------------------------------------------------------------------
#
# Children that take over from parents that do more than their share, over arrays.
#
# With the machines a child hears of its parent's load once in a period, and asks for its place if
# the rule says so (`weft.rules.roles.relieves`). Here a period is a pass over all forwarders, in
# each of which the first child that the rule allows takes over.


PERIODS_MAX = 20
"""guess: passes after which it is left as it is; three or four are usual."""


def settled(held: Memberships, places: Places, k: int, seed: int) -> Roles:
    """Everybody has subscribed, and no child would take over from its parent any more."""
    roles = subscribed(held, places, k, seed)
    relieve(roles)
    return roles


def relieve(roles: Roles, periods: int = PERIODS_MAX) -> int:
    """Says after how many periods there was nothing to do any more."""
    for period in range(periods):
        if not _pass_over_all(roles.state, roles.k):
            return period
    return periods


@compiled
def heir_of(state: State, forwarder: int) -> int:
    """The first child that the rule allows to take over, or −1."""
    peer = state.members[forwarder]
    work, topics = i64(state.work[peer]), i64(state.topics[peer])
    child = i64(state.first[forwarder])
    while child >= 0:
        other = state.members[child]
        mine, my_topics = i64(state.work[other]), i64(state.topics[other])
        if relieves(mine, my_topics, work, topics, i64(state.children[forwarder])):
            return child
        child = i64(state.after[child])
    return -1


@compiled
def _pass_over_all(state: State, k: int) -> int:
    done = 0
    for one in range(len(state.parent)):
        if state.parent[one] != FORWARDS:
            continue
        heir = heir_of(state, one)
        if heir >= 0:
            detach(state, heir)
            become_forwarder(state, heir)
            step_aside(state, one)
            shed(state, state.topic_of[one], k)
            done += 1
    state.done[RELIEVED] += done
    return done
