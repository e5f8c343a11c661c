"""Lookups: r random walks through the general overlay, asking tables on the way (TERA 4.2.2).

Each walk makes one step per cycle. A visited peer answers from its access point table and, if
switched on, from its own subscriptions; a walk that found something ends, the others go on. The
origin does not answer its own walks. Visits are numbered over all walks together, step by step
(walk 0, walk 1, …, walk 0 again), so that the number of the first successful visit tells for every
K whether a lookup of K visits succeeds. What every walk found is kept beside it: a peer tries all
of these access points (Algorithms 1 to 3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from weft.engine.core.arrays import RECEIVED, SENT, Loads, Numbers, Octets
from weft.engine.core.draws import absorb, base_key, below, subset_mask
from weft.engine.core.jit import ONE, Bits, compiled, i64, part, u64
from weft.engine.core.layout import Rows, get_count, get_id
from weft.engine.core.vector import trailing_zeros
from weft.engine.data.memberships import Memberships, membership_of
from weft.engine.tera.access_points import (
    NOT_FOUND,
    Settled,
    Tables,
    find,
    settled,
    settled_point,
)
from weft.engine.tera.cyclon import take_out
from weft.rules import draw

_STREAM = draw.stream_of("engine.lookup")
ENDED = -1


@dataclass(frozen=True)
class Ground:
    """What walks move over and ask."""

    rows: Rows
    memberships: Memberships
    tables: Tables | None  # None: settled tables of `settled_size`, computed when asked
    settled_size: int = 0
    from_subscriptions: bool = False
    alive: Octets | None = None  # which peers are there
    detour: bool = False  # a walk that finds a neighbour gone drops it and takes another
    loads: Loads | None = None  # counts messages sent and received, per peer


class Walks(NamedTuple):
    """The walks of a batch of lookups, and what they found."""

    origins: Numbers
    topics: Numbers
    positions: Numbers  # lookups × walks: a peer, or ENDED
    found: Numbers  # as `Lookups` has them
    found_visit: Numbers
    listed: Numbers
    listed_by: Numbers


class Step(NamedTuple):
    """One step of all walks of a batch."""

    key: Bits
    number: int
    from_subscriptions: bool
    detour: bool
    settled: Settled


@dataclass(eq=False)
class Lookups:
    """A batch of lookups that started in the same cycle."""

    origins: Numbers
    topics: Numbers
    seed: int
    walks: int
    steps: int  # each walk's lifetime
    batch: int  # sets the draws of different batches apart
    step: int = 0
    messages: int = 0
    answers: int = 0
    found: Numbers = field(init=False)  # access point (a membership) or NOT_FOUND
    found_visit: Numbers = field(init=False)  # number of the successful visit, 0 for none
    listed: Numbers = field(init=False)  # lookups × walks: what each walk found, or NOT_FOUND
    listed_by: Numbers = field(init=False)  # the peers whose tables they were from
    _walks: Walks = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.origins)
        self.found = np.full(count, NOT_FOUND, np.int64)
        self.found_visit = np.zeros(count, np.int64)
        self.listed = np.full((count, self.walks), NOT_FOUND, np.int64)
        self.listed_by = np.full((count, self.walks), NOT_FOUND, np.int64)
        positions = np.full((count, self.walks), ENDED, np.int64)
        self._walks = Walks(
            self.origins,
            self.topics,
            positions,
            self.found,
            self.found_visit,
            self.listed,
            self.listed_by,
        )

    @property
    def is_over(self) -> bool:
        walked = self.step > 0 and bool((self._walks.positions < 0).all())
        return walked or self.step >= self.steps

    def advance(self, ground: Ground) -> None:
        """Every walk makes a step; counts the messages."""
        if self.is_over:
            return
        key = u64(draw.absorb(int(base_key(self.seed, _STREAM)), self.batch))
        asked = settled(self.seed, ground.settled_size)
        steps, answers = _advance(
            ground.rows,
            ground.memberships,
            self._walks,
            Step(key, self.step, ground.from_subscriptions, ground.detour, asked),
            ground.tables,
            ground.alive,
            ground.loads,
        )
        self.step += 1
        self.messages += int(steps + answers)
        self.answers += int(answers)


@part
def _answer(
    tables: Tables | None, settled: Settled, deck: Numbers, offsets: Numbers, peer: int, topic: int
) -> int:
    """The access point that a peer's table has for a topic, or NOT_FOUND."""
    if tables is None:
        return settled_point(deck, offsets, settled, peer, topic)
    slot = find(tables, peer, topic)
    return i64(tables.points[peer, slot]) if slot != NOT_FOUND else NOT_FOUND


@part
def _next_peer(
    rows: Rows, at: int, slot: int, alive: Octets | None, detour: bool, key: Bits
) -> tuple[int, int]:
    """Where a walk goes from `at`, and how many messages it took to get there.

    With `detour`, a neighbour that is gone leaves the view and another one is tried.
    """
    visited = get_id(rows.words, at, slot)
    tries = 1
    while detour and alive is not None and not alive[visited]:
        take_out(rows, at, slot)
        if get_count(rows.octets, at) == 0:
            break
        slot = below(absorb(key, tries), get_count(rows.octets, at))
        visited = get_id(rows.words, at, slot)
        tries += 1
    return visited, tries


@part
def _note(walks: Walks, item: int, walk: int, point: int, visited: int, step: int) -> None:
    """A walk has found an access point."""
    walks.listed[item, walk] = point
    walks.listed_by[item, walk] = visited
    if walks.found[item] == NOT_FOUND:
        walks.found[item] = point
        walks.found_visit[item] = step * walks.positions.shape[1] + walk + 1


@compiled
def _advance(
    rows: Rows,
    held: Memberships,
    walks: Walks,
    step: Step,
    tables: Tables | None,
    alive: Octets | None,
    loads: Loads | None,
) -> tuple[int, int]:
    """One step of all walks. Returns messages that carried walks, and answers."""
    octets, positions = rows.octets, walks.positions
    width = positions.shape[1]
    deck = np.arange(len(held.offsets) - 1)
    steps = answers = 0
    for item in range(len(walks.origins)):
        origin, topic = i64(walks.origins[item]), i64(walks.topics[item])
        key = absorb(absorb(step.key, item), step.number)
        starts = subset_mask(key, get_count(octets, origin), width)
        for walk in range(width):
            at = positions[item, walk]
            if step.number == 0:
                if starts == u64(0) or get_count(octets, origin) == 0:
                    break  # the view is smaller than the number of walks
                at = origin
                slot = i64(trailing_zeros(starts))
                starts &= starts - ONE
                slot = min(slot, get_count(octets, at) - 1)  # some may have been dropped
            elif at < 0:
                continue
            elif get_count(octets, at) == 0:
                positions[item, walk] = ENDED
                continue
            else:
                slot = below(absorb(absorb(key, walk), 0), get_count(octets, at))
            visited, tries = _next_peer(rows, at, slot, alive, step.detour, absorb(key, walk))
            steps += tries
            if loads is not None:
                loads[at, SENT] += 1
                loads[visited, RECEIVED] += 1
            if alive is not None and not alive[visited]:
                positions[item, walk] = ENDED  # lost on the way
                continue
            positions[item, walk] = visited
            if visited == origin:
                continue
            point = NOT_FOUND
            if step.from_subscriptions:
                point = membership_of(held, visited, topic)
            if point == NOT_FOUND:
                point = _answer(tables, step.settled, deck, held.offsets, visited, topic)
            if point == NOT_FOUND:
                continue
            answers += 1
            positions[item, walk] = ENDED
            if loads is not None:
                loads[visited, SENT] += 1
                loads[origin, RECEIVED] += 1
            _note(walks, item, walk, point, visited, step.number)
    return steps, answers
