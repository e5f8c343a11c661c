"""Self-contained universes: a part of a large table of memberships that stands alone (StaN 3.1).

Some topics are drawn at random: the seeds. Their users each add one topic to the set: their own,
where users have topics of their own (a journal), else a random one of those they subscribe to. The
subscribers of the topics in the grown set are the universe's nodes. What they subscribe to can be
read in two ways: only to the topics of the set (*closed*), or to all they do (*open*). Either way,
topics with too few subscribers are left out at last, and with them the nodes left with none.

In the closed reading a topic has all its subscribers or none, so that which topics stay is known
before the set is drawn; in the open one it must be counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from weft.engine.core.arrays import Flags, Ids, Numbers
from weft.engine.core.draws import absorb, base_key, below, keyed
from weft.engine.core.jit import Bits, compiled, u64
from weft.engine.data.workload import Memberships
from weft.rules import draw
from weft.rules.draw import stream_of

Reading: TypeAlias = Literal["closed", "open"]
READINGS: tuple[Reading, ...] = ("closed", "open")


@dataclass(frozen=True)
class Counts:
    """How large a universe is."""

    topics: int
    nodes: int
    memberships: int


def seed_set(
    held: Memberships,
    seeds: int,
    number: int,
    seed: int,
    own: Ids | None = None,
) -> Flags:
    """Whether each topic is in the grown set of draw `number`. `own` is each user's own topic, or
    −1 for none; without it, users add a random one."""
    key = draw.absorb(draw.absorb(int(base_key(seed, stream_of("universe"))), seeds), number)
    candidates = np.flatnonzero(held.sizes() > 0)
    if seeds > len(candidates):
        raise ValueError(f"{seeds} seeds of {len(candidates)} topics")
    ranks = keyed(candidates, u64(draw.absorb(key, 0)))
    drawn = candidates[np.argsort(ranks, kind="stable")[:seeds]]
    chosen = np.zeros(held.topics, np.bool_)
    chosen[drawn] = True
    grown = chosen.copy()
    users = np.zeros(held.peers, np.bool_)
    _mark_users(held, chosen, users)
    pick = u64(draw.absorb(key, 1))
    if own is None:
        _add_random(held, users, pick, grown)
    else:
        added = own[users]
        grown[added[added >= 0]] = True
    return grown


def counts_of(held: Memberships, chosen: Flags, least: int, reading: Reading) -> Counts:
    """How large the universe of a grown set is."""
    if reading == "closed":
        kept = chosen & (held.sizes() >= max(1, least))
        inside = np.ones(held.peers, np.bool_)
    else:
        inside = np.zeros(held.peers, np.bool_)
        _mark_users(held, chosen, inside)
        kept = _sizes_among(held, inside) >= max(1, least)
    nodes = np.zeros(held.peers, np.bool_)
    _mark_users(held, kept, nodes)
    nodes &= inside
    rows = int(_sizes_among(held, inside)[kept].sum())
    return Counts(int(kept.sum()), int(nodes.sum()), rows)


@compiled
def _mark_users(held: Memberships, topics: Flags, users: Flags) -> None:
    for topic in range(len(topics)):
        if topics[topic]:
            for at in range(held.offsets[topic], held.offsets[topic + 1]):
                users[held.members[at]] = True


@compiled
def _add_random(held: Memberships, users: Flags, key: Bits, topics: Flags) -> None:
    for user in range(len(users)):
        if users[user]:
            first, last = held.of_peer_offsets[user], held.of_peer_offsets[user + 1]
            chosen = held.of_peer[first + below(absorb(key, user), last - first)]
            topics[held.topic_of[chosen]] = True


@compiled
def _sizes_among(held: Memberships, users: Flags) -> Numbers:
    """How many of these users each topic has."""
    sizes = np.zeros(len(held.offsets) - 1, np.int64)
    for topic in range(len(sizes)):
        for at in range(held.offsets[topic], held.offsets[topic + 1]):
            sizes[topic] += users[held.members[at]]
    return sizes
