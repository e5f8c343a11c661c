"""Self-contained universes: a part of a large table of memberships that stands alone (StaN 3.1).

Some topics are drawn at random: the seeds. Their users each add one topic to the set: their own,
where users have topics of their own (a journal), else a random one of those they subscribe to. The
subscribers of the topics in the grown set are the universe's nodes. What they subscribe to can be
read in two ways: only to the topics of the set (*closed*), or to all they do (*open*). Either way,
topics with too few subscribers are left out at last, and with them the nodes left with none.

In the closed reading a topic has all its subscribers or none, so that which topics stay is known
before the set is drawn; in the open one it must be counted.

Every function takes some users with all their topics (`Users`). The answers for the parts of a
table add up to the answer for the whole, so no process needs to hold all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from weft.engine.core.arrays import Flags, Ids, Numbers, offsets_of
from weft.engine.core.draws import absorb, base_key, below, keyed
from weft.engine.core.jit import Bits, compiled, u64
from weft.rules import draw
from weft.rules.draw import stream_of

Reading: TypeAlias = Literal["closed", "open"]
READINGS: tuple[Reading, ...] = ("closed", "open")


@dataclass(frozen=True)
class Users:
    """Some users and their topics: those of user `users[n]` are `topics[offsets[n]:offsets[n+1]]`,
    ascending."""

    users: Numbers
    offsets: Numbers
    topics: Ids

    def unmarked(self) -> Flags:
        """A mark for each user, none set."""
        return np.zeros(len(self.users), np.bool_)


def users_of(users: npt.NDArray[np.integer], topics: npt.NDArray[np.integer]) -> Users:
    """The users of some memberships, which may be in any order; all memberships of a user must be
    among them."""
    order = np.lexsort((topics, users))
    known, counts = np.unique(users, return_counts=True)
    return Users(known.astype(np.int64), offsets_of(counts), topics[order].astype(np.int32))


def seeds_of(candidates: Numbers, seeds: int, number: int, seed: int) -> Numbers:
    """The seeds of draw `number`, of the topics that have subscribers."""
    if seeds > len(candidates):
        raise ValueError(f"{seeds} seeds of {len(candidates)} topics")
    ranks = keyed(candidates, u64(draw.absorb(_key(seeds, number, seed), 0)))
    return np.asarray(candidates[np.argsort(ranks, kind="stable")[:seeds]], np.int64)


def added_by(
    held: Users, chosen: Flags, seeds: int, number: int, seed: int, own: Numbers | None = None
) -> Numbers:
    """The topics that these users add to the `chosen` seeds of a draw, each once. `own` is each
    user's own topic, or −1 for none; without it, they add a random one."""
    marked = subscribed_to(held, chosen)
    if own is not None:
        added = own[marked]
        return np.unique(added[added >= 0]).astype(np.int64)
    grown = np.zeros(len(chosen), np.bool_)
    _add_random(held.users, held.offsets, held.topics, marked, _pick(seeds, number, seed), grown)
    return np.flatnonzero(grown)


def subscribed_to(held: Users, topics: Flags) -> Flags:
    """Whether each user has one of these topics."""
    marked = held.unmarked()
    _mark(held.offsets, held.topics, topics, marked)
    return marked


def sizes_among(held: Users, users: Flags, topics: int) -> Numbers:
    """How many of these users each topic has."""
    inside = np.repeat(users, np.diff(held.offsets))
    return np.bincount(held.topics[inside], minlength=topics).astype(np.int64)


def _key(seeds: int, number: int, seed: int) -> int:
    return draw.absorb(draw.absorb(int(base_key(seed, stream_of("universe"))), seeds), number)


def _pick(seeds: int, number: int, seed: int) -> Bits:
    return u64(draw.absorb(_key(seeds, number, seed), 1))


@compiled
def _mark(offsets: Numbers, topics: Ids, wanted: Flags, marked: Flags) -> None:
    for place in range(len(marked)):
        for at in range(offsets[place], offsets[place + 1]):
            if wanted[topics[at]]:
                marked[place] = True
                break


@compiled
def _add_random(
    users: Numbers, offsets: Numbers, topics: Ids, marked: Flags, key: Bits, grown: Flags
) -> None:
    for place in range(len(marked)):
        if marked[place]:
            first, last = offsets[place], offsets[place + 1]
            grown[topics[first + below(absorb(key, users[place]), last - first)]] = True
