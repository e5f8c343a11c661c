"""Lookups: r random walks through the general overlay, asking tables on the way (TERA 4.2.2).

Each walk makes one step per cycle. A visited peer answers from its access point table and, if
switched on, from its own subscriptions; a walk that found something ends, the others go on. The
origin does not answer its own walks. Visits are numbered over all walks together, step by step
(walk 0, walk 1, …, walk 0 again), so that the number of the first successful visit tells for
which K a lookup succeeds: all K at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.engine.core.draws import absorb, base_key, below, subset_mask
from weft.engine.core.jit import compiled, i64, part, u64
from weft.engine.core.layout import Array, Octets, Rows, Words, get_count, get_id
from weft.engine.core.vector import trailing_zeros
from weft.engine.data.workload import Memberships, membership_of
from weft.engine.tera.exchange import take_out
from weft.engine.tera.tables import NOT_FOUND, Tables, find, settled_base, settled_point
from weft.rules import draw

_ONE = np.uint64(1)
_STREAM = draw.stream_of("engine.lookup")
ENDED = -1


@dataclass(eq=False)
class Lookups:
    """A batch of lookups that started in the same cycle."""

    origins: Array
    topics: Array
    seed: int
    walks: int
    steps: int  # each walk's lifetime
    batch: int  # sets the draws of different batches apart
    positions: Array = field(init=False)
    found: Array = field(init=False)  # access point (a membership) or NOT_FOUND
    found_visit: Array = field(init=False)  # number of the successful visit, 0 for none
    answered_by: Array = field(init=False)  # the peer whose table it was from
    step: int = 0
    messages: int = 0
    answers: int = 0

    def __post_init__(self) -> None:
        count = len(self.origins)
        self.positions = np.full((count, self.walks), ENDED, np.int64)
        self.found = np.full(count, NOT_FOUND, np.int64)
        self.found_visit = np.zeros(count, np.int64)
        self.answered_by = np.full(count, NOT_FOUND, np.int64)

    @property
    def is_over(self) -> bool:
        return self.step >= self.steps or (self.step > 0 and bool((self.positions < 0).all()))

    def advance(self, ground: Ground) -> None:
        """Every walk makes a step; counts the messages."""
        if self.is_over:
            return
        memberships, tables = ground.memberships, ground.tables
        held = _columns(tables)
        steps, answers = _advance(
            ground.rows.words,
            ground.rows.octets,
            self.origins,
            self.topics,
            self.positions,
            self.found,
            self.found_visit,
            self.answered_by,
            self.step,
            np.uint64(draw.absorb(int(base_key(self.seed, _STREAM)), self.batch)),
            *held,
            settled_base(self.seed),
            ground.settled_size,
            memberships.offsets,
            memberships.of_peer_offsets,
            memberships.of_peer,
            memberships.topic_of,
            ground.alive,
            ground.members_alive,
            ground.from_subscriptions,
            ground.detour,
            ground.handled,
        )
        self.step += 1
        self.messages += int(steps + answers)
        self.answers += int(answers)


@dataclass(frozen=True)
class Ground:
    """What walks move over and ask."""

    rows: Rows
    memberships: Memberships
    tables: Tables | None  # None: settled tables of `settled_size`, computed when asked
    settled_size: int = 0
    from_subscriptions: bool = False
    alive: Array | None = None  # which peers are there
    members_alive: Array | None = None  # which memberships are
    detour: bool = False  # a walk that finds a neighbour gone drops it and takes another
    handled: Array | None = None  # counts messages sent or received, per peer


def _columns(tables: Tables | None) -> tuple[Array | None, Array | None, Array | None]:
    if tables is None:
        return None, None, None
    return tables.topics, tables.points, tables.counts


@part
def _answer(
    peer: int,
    topic: int,
    topics: Array | None,
    points: Array | None,
    counts: Array | None,
    deck: Array,
    base: Any,
    settled_size: int,
    offsets: Array,
) -> int:
    """The access point that a peer's table has for a topic, or NOT_FOUND."""
    if topics is None or points is None or counts is None:
        return settled_point(deck, offsets, base, settled_size, peer, topic)
    slot = find(topics, counts, peer, topic)
    return i64(points[peer, slot]) if slot != NOT_FOUND else NOT_FOUND


@part
def _own_membership(
    peer: int, topic: int, of_peer_offsets: Array, of_peer: Array, topic_of: Array, alive: Any
) -> int:
    own = membership_of(of_peer_offsets, of_peer, topic_of, peer, topic)
    if own >= 0 and alive is not None and not alive[own]:
        return NOT_FOUND
    return own


@part
def _next_peer(
    words: Words, octets: Octets, at: int, slot: int, alive: Array | None, detour: bool, key: Any
) -> tuple[int, int]:
    """Where a walk goes from `at`, and how many messages it took to get there.

    With `detour`, a neighbour that is gone leaves the view and another one is tried.
    """
    visited = get_id(words, at, slot)
    tries = 1
    while detour and alive is not None and not alive[visited]:
        take_out(words, octets, at, slot)
        if get_count(octets, at) == 0:
            break
        slot = below(absorb(key, tries), get_count(octets, at))
        visited = get_id(words, at, slot)
        tries += 1
    return visited, tries


@compiled
def _advance(
    words: Words,
    octets: Octets,
    origins: Array,
    wanted: Array,
    positions: Array,
    found: Array,
    found_visit: Array,
    answered_by: Array,
    step: int,
    base: Any,
    topics: Array | None,
    points: Array | None,
    counts: Array | None,
    table_base: Any,
    settled_size: int,
    offsets: Array,
    of_peer_offsets: Array,
    of_peer: Array,
    topic_of: Array,
    alive: Array | None,
    members_alive: Array | None,
    from_subscriptions: bool,
    detour: bool,
    handled: Array | None,
) -> tuple[int, int]:
    """One step of all walks. Returns messages that carried walks, and answers."""
    walks = positions.shape[1]
    deck = np.arange(len(offsets) - 1)
    steps = answers = 0
    for item in range(len(origins)):
        origin, topic = i64(origins[item]), i64(wanted[item])
        key = absorb(absorb(base, item), step)
        starts = subset_mask(key, get_count(octets, origin), walks)
        for walk in range(walks):
            at = positions[item, walk]
            if step == 0:
                if starts == u64(0) or get_count(octets, origin) == 0:
                    break  # the view is smaller than the number of walks
                at = origin
                slot = i64(trailing_zeros(starts))
                starts &= starts - _ONE
                slot = min(slot, get_count(octets, at) - 1)  # some may have been dropped
            elif at < 0:
                continue
            elif get_count(octets, at) == 0:
                positions[item, walk] = ENDED
                continue
            else:
                slot = below(absorb(absorb(key, walk), 0), get_count(octets, at))
            visited, tries = _next_peer(words, octets, at, slot, alive, detour, absorb(key, walk))
            steps += tries
            if handled is not None:
                handled[at] += 1
                handled[visited] += 1
            if alive is not None and not alive[visited]:
                positions[item, walk] = ENDED  # lost on the way
                continue
            positions[item, walk] = visited
            if visited == origin:
                continue
            point = NOT_FOUND
            if from_subscriptions:
                point = _own_membership(
                    visited, topic, of_peer_offsets, of_peer, topic_of, members_alive
                )
            if point == NOT_FOUND:
                point = _answer(
                    visited, topic, topics, points, counts, deck, table_base, settled_size, offsets
                )
            if point == NOT_FOUND:
                continue
            answers += 1
            positions[item, walk] = ENDED
            if handled is not None:
                handled[visited] += 1
                handled[origin] += 1
            if found[item] == NOT_FOUND:
                found[item] = point
                found_visit[item] = step * walks + walk + 1
                answered_by[item] = visited
    return steps, answers
