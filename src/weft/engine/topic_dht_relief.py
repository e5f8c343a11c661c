"""Children that take over from parents that do more than their share, over arrays.

With the machines a child hears of its parent's load once in a period, and asks for its place if the
rule says so (`weft.rules.roles.relieves`). Here a period is a pass over all forwarders, in each of
which the first child that the rule allows takes over.
"""

from __future__ import annotations

from weft.engine.jit import compiled, i64
from weft.engine.topic_dht_roles import (
    FORWARDS,
    RELIEVED,
    Roles,
    State,
    become_forwarder,
    detach,
    relieves,
    shed,
    step_aside,
    subscribed,
)
from weft.engine.topic_dht_space import Places
from weft.engine.workload import Memberships

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
