"""Forwarders and children of the topic-aware DHT over arrays (decisions: `weft.rules.roles`).

Peers subscribe one after the other, each to several of its topics at once; an operation is over
before the next begins, as Lemma 4.2 asks. So an operation is only what it does to the sets: a new
forwarder takes over the children that are closer to it; a forwarder that stops sends its children,
and itself, to the forwarder closest to each; a forwarder with more than k children has one of them
split, until none has more.

A membership is named by its index, as everywhere in the engine. The forwarders of a topic are a
sorted stretch of `spots`; the children of a forwarder are a chain of memberships.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from weft.engine.core.arrays import Ids, Numbers, Words, offsets_of
from weft.engine.core.draws import base_key, keyed
from weft.engine.core.jit import compiled, i64, part, shared
from weft.engine.data.memberships import Memberships
from weft.engine.topic_dht.space import affected, closest, lower
from weft.rules.draw import stream_of
from weft.rules.roles import (
    Load,
    has_room,
    is_closer,
    is_overfull,
    is_unfair,
    relieves,
    retires,
)

FORWARDS, ABSENT = -1, -2
"""In place of a parent: a forwarder has FORWARDS, a member that is not subscribed has ABSENT."""
FORWARD, SPLIT, REPLACE, JOIN = 0, 1, 2, 3


class State(NamedTuple):
    """All roles, for kernels."""

    offsets: Numbers  # where each topic's memberships begin
    members: Ids  # peers, by membership
    topic_of: Ids
    places: Words  # by membership
    parent: Ids  # a membership, or FORWARDS, or ABSENT
    children: Ids  # how many
    first: Ids  # the first child, or −1
    after: Ids  # the next child of the same parent, or −1
    before: Ids  # the one before, or −1
    spots: Ids  # forwarders, sorted by place, from each topic's offset on
    forwarders: Numbers  # how many each topic has
    locations: Ids  # |L_p|, by peer
    topics: Ids  # |T_p|
    work: Ids  # subscribers served, by peer: itself and its children where it forwards


@dataclass(frozen=True)
class Roles:
    """The forwarders and children of all topics."""

    held: Memberships
    k: int
    state: State

    @property
    def parent(self) -> Ids:
        return self.state.parent

    @property
    def locations(self) -> Ids:
        return self.state.locations

    def forwarders_of(self, topic: int) -> Ids:
        """Memberships, sorted by place."""
        first = int(self.state.offsets[topic])
        return self.state.spots[first : first + int(self.state.forwarders[topic])]


def empty_roles(held: Memberships, places: Words, k: int) -> Roles:
    """Nobody has subscribed yet; `places` are the peers'."""
    if k < 1:
        raise ValueError("k is at least 1")

    def whole(size: int, value: int) -> Ids:
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
    )
    return Roles(held, k, state)


def subscribed(held: Memberships, places: Words, k: int, seed: int) -> Roles:
    """Everybody has subscribed to all it wants, in an order drawn by the seed."""
    roles = empty_roles(held, places, k)
    subscribe(roles, order_of(held.peers, seed))
    return roles


def order_of(peers: int, seed: int) -> Numbers:
    keys = keyed(np.arange(peers), base_key(seed, stream_of("engine.topic_dht.order")))
    return np.argsort(keys, kind="stable")


def subscribe(roles: Roles, peers: Numbers) -> None:
    """These peers subscribe, one after the other, each to all of its topics at once."""
    first, held = roles.held.of_peer_offsets, roles.held.of_peer
    subscribe_in_turn(roles, [held[first[peer] : first[peer + 1]] for peer in peers])


def subscribe_in_turn(roles: Roles, batches: Sequence[Ids]) -> None:
    """One batch after the other: each is memberships of one peer, subscribed to at once."""
    offsets = offsets_of(np.array([len(batch) for batch in batches], np.int64))
    flat = np.concatenate([np.zeros(0, np.int32), *batches]).astype(np.int32)
    _subscribe(roles.state, offsets, flat, roles.k)


# --- decisions ------------------------------------------------------------------------------------


shared(has_room, is_overfull, is_unfair, relieves, retires)


@part
def load_of(state: State, one: int) -> Load:
    """What the peer of a membership says of itself in its topic, as `Load` has it."""
    peer = state.members[one]
    return Load(
        i64(state.locations[peer]),
        i64(state.topics[peer]),
        i64(state.children[one]),
        i64(state.work[peer]),
    )


@compiled
def choose_roles(found: Numbers, mine: int, my_topics: int, choices: Numbers) -> None:
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
        if choices[at] == JOIN:
            theirs = Load(i64(found[at, 0]), i64(found[at, 1]), i64(found[at, 2]), 0)
            if is_unfair(theirs, Load(mine, my_topics, 0, 0)):
                choices[at] = REPLACE
                mine += 1


@compiled
def split_target(state: State, forwarder: int) -> int:
    """Which child shall split: the one whose share of the children is closest to a half."""
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
    """Take up a location: children of the forwarders around it that are closer to it move to it."""
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
            child = following


@compiled
def give_up(state: State, one: int) -> None:
    """Give a location up: the children go to the closest forwarder, if there is any."""
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
        child = following


@compiled
def step_aside(state: State, one: int) -> None:
    """A forwarder that was replaced is a child from then on."""
    give_up(state, one)
    attach(state, one, closest_of(state, one))


@compiled
def shed(state: State, topic: int, k: int) -> None:
    """Forwarders with more than k children have one of them split, until none in the topic has
    more."""
    low = state.offsets[topic]
    at = low
    while at < low + state.forwarders[topic]:
        forwarder = i64(state.spots[at])
        if is_overfull(state.children[forwarder], k):
            child = split_target(state, forwarder)
            detach(state, child)
            become_forwarder(state, child)
            at = low  # both may still have too many
        else:
            at += 1


# --- the subscription procedure -------------------------------------------------------------------


@compiled
def _carry_out(state: State, one: int, choice: int, k: int) -> None:
    topic = state.topic_of[one]
    near = closest_of(state, one)
    if choice == REPLACE and not is_unfair(load_of(state, near), load_of(state, one)):
        choice = JOIN  # the assumption is checked again at entry
    if choice == JOIN:
        attach(state, one, near)
        if is_overfull(state.children[near], k):
            shed(state, topic, k)
        return
    become_forwarder(state, one)
    if choice == REPLACE:
        step_aside(state, near)
    if choice != FORWARD:
        shed(state, topic, k)  # one that splits may get children from several around it


@compiled
def _subscribe(state: State, offsets: Numbers, batches: Ids, k: int) -> None:
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


# --- relief ---------------------------------------------------------------------------------------
#
# Children take over from parents that do more than their share. With the machines a child hears of
# its parent's load once in a period, and asks for its place if the rule says so
# (`weft.rules.roles.relieves`). Here a period is a pass over all forwarders, in each of which the
# first child that the rule allows takes over.


PERIODS_MAX = 20
"""guess: passes after which relief stops; three or four are usual."""


def settled(held: Memberships, places: Words, k: int, seed: int, packs: bool = False) -> Roles:
    """Everybody has subscribed, and children have taken over from their parents until the rule
    allows no more; with `packs`, forwarders have also stopped until the rule allows no more."""
    roles = subscribed(held, places, k, seed)
    relieve(roles, packs=packs)
    return roles


def relieve(roles: Roles, packs: bool = False) -> int:
    """Let children take over, and with `packs` forwarders stop; returns after how many periods
    there was nothing left to do."""
    for period in range(PERIODS_MAX):
        done = _pass_over_all(roles.state, roles.k)
        if packs:
            done += _pack(roles.state, roles.k)
        if not done:
            return period
    return PERIODS_MAX


@compiled
def heir_of(state: State, forwarder: int) -> int:
    """The first child that the rule allows to take over, or −1."""
    parent = load_of(state, forwarder)
    child = i64(state.first[forwarder])
    while child >= 0:
        if relieves(load_of(state, child), parent):
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
    return done


# --- packing ------------------------------------------------------------------------------------
#
# A forwarder with k + 1 children splits into two with half of them each, so groups are two thirds
# full. A forwarder stops where the forwarders around it have room for its children and for itself.


@compiled
def heir_at(state: State, member: int, first: int, end: int, at: int) -> int:
    """The spot of a stretch that has the forwarder closest to a member, the spot `at` excepted."""
    place, nearest = state.places[member], -1
    for spot in range(first, end):
        if spot != at and (
            nearest < 0
            or is_closer(place, state.places[state.spots[spot]], state.places[state.spots[nearest]])
        ):
            nearest = spot
    return nearest


@compiled
def heirs_have_room(state: State, one: int, first: int, end: int, at: int, k: int) -> bool:
    """Whether a forwarder could stop: its children, and itself, have room with the forwarders of a
    stretch of spots that they would go to."""
    taken = np.zeros(end - first, np.int64)
    member = i64(one)
    while member >= 0:
        nearest = heir_at(state, member, first, end, at)
        taken[nearest - first] += 1
        heir = i64(state.spots[nearest])
        if not has_room(i64(state.children[heir]), taken[nearest - first], k):
            return False
        member = i64(state.first[one]) if member == one else i64(state.after[member])
    return True


@compiled
def _pack(state: State, k: int) -> int:
    """A period of packing: every forwarder stops if the rule says so; returns how many did."""
    done = 0
    for one in range(len(state.parent)):
        topic = state.topic_of[one]
        low = state.offsets[topic]
        high = low + state.forwarders[topic]
        if state.parent[one] != FORWARDS or high - low < 2:
            continue
        at = lower(state.spots, state.places, low, high, state.places[one])
        first, end, _ = affected(state.spots, state.places, low, high, at)
        if not heirs_have_room(state, one, first, end, at, k):
            continue
        heir = i64(state.spots[heir_at(state, one, first, end, at)])
        if retires(load_of(state, one), load_of(state, heir)):
            step_aside(state, one)
            done += 1
    return done
