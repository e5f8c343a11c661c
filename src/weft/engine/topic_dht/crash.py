"""Crashes and Algorithm 1 over arrays: in how many periods every child is back in its place.

Some peers are gone at once and nobody is told. Every period each live child does what the machine
does (`protocol/topic_dht/upkeep.py`): if the last period brought an answer, it asks one of the
forwarders it knows to find its parent, and gets no answer if that forwarder is gone. If the last
period brought none, it looks for its parent itself. Forwarders with too many children have one of
them split.

What arrays leave out: lookups find the closest live forwarder at once, though tables still name the
dead, and parents have forgotten dead children. So the periods here are the least that Algorithm 1
takes; the simulator's machines are measured for what the repair of tables adds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from weft.engine.core.arrays import Ids, Octets
from weft.engine.core.draws import absorb, base_key, below, keyed
from weft.engine.core.jit import Bits, compiled, i64, u64
from weft.engine.topic_dht.roles import (
    ABSENT,
    FORWARDS,
    Roles,
    State,
    attach,
    become_forwarder,
    closest_of,
    detach,
    shed,
)
from weft.engine.topic_dht.space import common_prefix, lower
from weft.rules.draw import stream_of

ALTERNATIVES = 4
"""guess, as in the machines' settings: forwarders known to a child, beside its parent."""
SILENT_PERIODS = 3
"""guess, as in the machines' settings: a child that finds nobody for so long forwards the topic
itself."""


class Children(NamedTuple):
    """What children remember, by membership."""

    live: Octets
    known: Ids  # forwarders, the parent first
    counts: Ids  # how many of them
    updated: Octets  # the paper's recupdate
    silent: Ids  # periods without finding anybody


def survivors(peers: int, percent: int, seed: int) -> Octets:
    """Which peers are left when so many of a hundred crash."""
    keys = keyed(np.arange(peers), base_key(seed, stream_of("engine.topic_dht.crash")))
    live = np.ones(peers, np.uint8)
    live[np.argsort(keys, kind="stable")[: peers * percent // 100]] = 0
    return live


@dataclass
class Crash:
    """Roles after a crash; `lost` children have a dead parent right after it."""

    roles: Roles
    live: Octets  # by peer
    seed: int
    crashed_forwarders: int = field(init=False)
    lost: int = field(init=False)
    period: int = 0
    _children: Children = field(init=False)

    def __post_init__(self) -> None:
        held, state = self.roles.held, self.roles.state
        alive = self.live[held.members]
        self._children = Children(
            alive,
            np.full((held.total, 1 + ALTERNATIVES), -1, np.int32),
            np.zeros(held.total, np.int32),
            np.ones(held.total, np.uint8),
            np.zeros(held.total, np.int32),
        )
        _remember_all(state, self._children)
        self.crashed_forwarders = int(((state.parent == FORWARDS) & (alive == 0)).sum())
        _remove_dead(state, self._children)
        self.lost = self.misplaced()

    def misplaced(self) -> int:
        """Live members that are not where Lemma 4.2 has them."""
        return _misplaced(self.roles.state, self._children)

    def run_period(self) -> None:
        self.period += 1
        base = base_key(self.seed, stream_of("engine.topic_dht.router"))
        key = u64(absorb(base, self.period))
        _run_period(self.roles.state, self._children, self.roles.k, key)

    def periods_until_right(self, most: int) -> int | None:
        """How many periods pass until every live member is in its place and no forwarder has more
        than k children; None if more than `most`."""
        while self.misplaced() or int(self.roles.state.children.max()) > self.roles.k:
            if self.period == most:
                return None
            self.run_period()
        return self.period


@compiled
def remember(state: State, children: Children, one: int) -> None:
    """A child learns the forwarders around its parent, the closest first."""
    parent = i64(state.parent[one])
    topic = state.topic_of[one]
    low, high = state.offsets[topic], state.offsets[topic] + state.forwarders[topic]
    children.known[one, 0] = parent
    place = state.places[parent]
    at = lower(state.spots, state.places, low, high, place)
    left, right, count = at - 1, at + 1, 1
    while count <= ALTERNATIVES and (left >= low or right < high):
        # The next sibling range: the one whose prefix with the parent is longest on either side.
        deep = -1
        if left >= low:
            deep = common_prefix(place, state.places[state.spots[left]])
        if right < high:
            deep = max(deep, common_prefix(place, state.places[state.spots[right]]))
        begin = left
        while begin >= low and common_prefix(place, state.places[state.spots[begin]]) >= deep:
            begin -= 1
        end = right
        while end < high and common_prefix(place, state.places[state.spots[end]]) >= deep:
            end += 1
        first, last = (begin + 1, left + 1) if begin < left else (right, end)
        count = _nearest_of(state, children, one, place, first, last, count)
        left, right = begin, end
    children.counts[one] = count


@compiled
def _nearest_of(
    state: State, children: Children, one: int, place: Bits, first: int, last: int, count: int
) -> int:
    """Append the forwarders of a range to what a child knows, the nearest first, as long as there
    is room; returns how many it knows."""
    before = u64(0)
    for _ in range(last - first):
        if count > ALTERNATIVES:
            break
        chosen, least = -1, u64(0)
        for spot in range(first, last):
            distance = state.places[state.spots[spot]] ^ place
            if distance > before and (chosen < 0 or distance < least):
                chosen, least = spot, distance
        children.known[one, count] = state.spots[chosen]
        before = least
        count += 1
    return count


@compiled
def _remember_all(state: State, children: Children) -> None:
    for one in range(len(state.parent)):
        if state.parent[one] >= 0:
            remember(state, children, one)


@compiled
def _remove_dead(state: State, children: Children) -> None:
    """The dead are out of all sets; children of a dead parent have none."""
    for one in range(len(state.parent)):
        if not children.live[one] and state.parent[one] >= 0:
            detach(state, one)
    for topic in range(len(state.forwarders)):
        low = state.offsets[topic]
        kept = low
        for spot in range(low, low + state.forwarders[topic]):
            one = i64(state.spots[spot])
            if children.live[one]:
                state.spots[kept] = one
                kept += 1
                continue
            while state.first[one] >= 0:
                detach(state, i64(state.first[one]))
            state.parent[one] = ABSENT
            state.locations[state.members[one]] -= 1
            state.work[state.members[one]] -= 1
        state.forwarders[topic] = kept - low


@compiled
def _misplaced(state: State, children: Children) -> int:
    wrong = 0
    for one in range(len(state.parent)):
        if children.live[one] and state.parent[one] != FORWARDS:
            wrong += state.parent[one] < 0 or state.parent[one] != closest_of(state, one)
    return wrong


@compiled
def _settle(state: State, children: Children, one: int) -> bool:
    """A child is taken by its closest forwarder, if there is any."""
    near = closest_of(state, one)
    if near < 0:
        return False
    if state.parent[one] >= 0:
        detach(state, one)
    attach(state, one, near)
    remember(state, children, one)
    children.updated[one] = 1
    children.silent[one] = 0
    return True


@compiled
def _run_period(state: State, children: Children, k: int, key: Bits) -> None:
    for one in range(len(state.parent)):
        if not children.live[one] or state.parent[one] == FORWARDS:
            continue
        if children.updated[one]:
            children.updated[one] = 0
            router = children.known[one, below(absorb(key, one), i64(children.counts[one]))]
            if children.live[router]:
                _settle(state, children, one)
        elif not _settle(state, children, one):
            children.silent[one] += 1
            if children.silent[one] >= SILENT_PERIODS:
                become_forwarder(state, one)
    for topic in range(len(state.forwarders)):
        shed(state, topic, k)
