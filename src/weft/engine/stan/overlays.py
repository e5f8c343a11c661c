"""StaN over arrays: the overlays of many topics, improved round by round (paper: see
`weft.rules.stan`), StaN's own ideal, and what a link costs.

Topics are independent given the ids of the nodes, and every draw is keyed by run, topic, node and
round. So any share of the topics can be computed anywhere, in any order, with the same outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from weft.engine.core.arrays import Array, Ids, Numbers, offsets_of
from weft.engine.core.jit import compiled, part
from weft.engine.data.memberships import Memberships
from weft.engine.stan import scamp as membership
from weft.engine.stan.kernel import Options, Topic, Wanted, ideal_topic, run_topic
from weft.engine.stan.views import (
    Interests,
    Keys,
    base_keys,
    keys_in,
)
from weft.rules import stan as rules
from weft.rules.draw import absorb

IDEAL = -1
"""Stands for StaN's own ideal where the views after some rounds are asked for."""


@dataclass(frozen=True)
class Config:
    """How StaN runs. The defaults are plain Algorithm 2."""

    ttl: int = rules.TTL
    rounds: int = rules.ROUNDS
    loss: float = 0.0  # the chance that a message is lost
    churn: float = 0.0  # the share of nodes that are replaced by others, per round
    overheard: bool = False
    patience: int = 0  # quiet rounds before a member asks to be adopted; 0: it never does
    longest: int = 1  # rounds that the walk's period backs off to; 1: a walk in every round
    lean: bool = False
    memory: bool = False  # members add what their own last walk collected (weft's own)
    scamp: membership.Scamp | None = None  # the views to begin with are Scamp's, not random ones

    def __post_init__(self) -> None:
        if self.ttl < 0 or self.rounds < 0 or self.patience < 0 or self.longest < 1:
            raise ValueError("ttl, rounds and patience are at least 0, longest at least 1")
        if not (0 <= self.loss < 1 and 0 <= self.churn < 1):
            raise ValueError("loss and churn are shares from 0 up to 1")
        if self.scamp is not None and self.churn > 0:
            raise ValueError("over Scamp nobody leaves during the rounds; it has a turnover before")

    def options(self) -> Options:
        """These settings as kernels take them: chances are whole numbers, since a draw there has 32
        bits."""
        return Options(
            self.ttl,
            self.rounds,
            round(self.loss * 2**32),
            round(self.churn * 2**32),
            self.overheard,
            self.patience,
            self.longest,
            self.memory,
        )


@dataclass(frozen=True)
class Overlays:
    """Topics and their members: topic `topics[k]` has `members[offsets[k] : offsets[k+1]]`."""

    topics: Ids
    offsets: Numbers
    members: Ids  # nodes, ascending within a topic

    @property
    def count(self) -> int:
        return len(self.topics)

    def sizes(self) -> Numbers:
        return np.diff(self.offsets)

    def views(self) -> Numbers:
        """The view size in each topic."""
        sizes = self.sizes()
        known, which = np.unique(sizes, return_inverse=True)
        of_size = [rules.view_size(int(size)) for size in known]
        return np.asarray(np.array(of_size, np.int64)[which], np.int64)

    def starts(self) -> Numbers:
        """Where the links of each topic begin; one more than there are topics."""
        return offsets_of(self.sizes() * self.views())

    def degrees(self) -> Numbers:
        """The view size of each membership."""
        return np.repeat(self.views(), self.sizes())


def overlays_of(topics: Array, nodes: Array) -> Overlays:
    """Overlays from memberships, in any order; the same membership twice is an error."""
    order = np.lexsort((nodes, topics))
    topics, nodes = np.asarray(topics)[order], np.asarray(nodes)[order]
    if len(topics) and np.any((np.diff(topics) == 0) & (np.diff(nodes) == 0)):
        raise ValueError("a node is a member of a topic once")
    known, first = np.unique(topics, return_index=True)
    offsets = np.append(first, len(topics)).astype(np.int64)
    return Overlays(known.astype(np.int32), offsets, nodes.astype(np.int32))


def interests_of(topics: Array, nodes: Array) -> Interests:
    """The topics of each node, for weights that lean; nodes are numbered from 0."""
    order = np.lexsort((topics, nodes))
    counts = np.bincount(nodes) if len(nodes) else np.zeros(0, np.int64)
    offsets = offsets_of(counts)
    most = int(np.max(topics)) + 1 if len(topics) else 0
    return Interests(True, offsets, np.asarray(topics)[order].astype(np.int32), most)


def no_interests() -> Interests:
    """Interests for plain weights, which do not depend on topics."""
    return Interests(False, np.zeros(1, np.int64), np.zeros(0, np.int32), 0)


@dataclass(frozen=True)
class Outcome:
    """Links of all overlays at the rounds asked for."""

    overlays: Overlays
    rounds: tuple[int, ...]
    degrees: Numbers  # the view size of each membership, in all rounds
    links: Ids  # a row per round asked for: neighbours, membership by membership

    def at(self, round_: int) -> Ids:
        """The neighbours after so many rounds, or of the ideal."""
        return np.asarray(self.links[self.rounds.index(round_)], np.int32)

    def owners(self) -> Ids:
        """The node at whose end each link begins."""
        return np.repeat(self.overlays.members, self.degrees)

    def starts(self) -> Numbers:
        """Where the links of each topic begin; one more than there are topics."""
        return offsets_of(self.degrees)[self.overlays.offsets]


def run(
    overlays: Overlays,
    config: Config,
    seed: int,
    rounds: Sequence[int] | None = None,
    interests: Interests | None = None,
) -> Outcome:
    """Improve overlays from random views, or from Scamp's. The links are kept as they are after
    each of `rounds` (0: the views to begin with; IDEAL: StaN's own ideal); by default before and
    after."""
    asked = tuple(rounds) if rounds is not None else (0, config.rounds)
    if not all(round_ == IDEAL or 0 <= round_ <= config.rounds for round_ in asked):
        raise ValueError(f"rounds asked for must be 0 to {config.rounds}, or IDEAL")
    if config.lean and interests is None:
        raise ValueError("weights that lean need the nodes' interests")
    known = interests if config.lean and interests is not None else no_interests()
    first = _first_views(overlays, config, seed)
    begins = offsets_of(first.sizes)
    links = np.empty((len(asked), int(begins[-1])), np.int32)
    wanted = np.full(config.rounds + 1, -1, np.int64)
    for place, round_ in enumerate(asked):
        if round_ != IDEAL:
            wanted[round_] = place
    topics = Topics(
        overlays.topics,
        overlays.offsets,
        overlays.members,
        begins,
        first.sizes,
        first.neighbours,
        base_keys(seed),
    )
    if np.any(wanted >= 0):
        _run_all(topics, config.options(), known, Wanted(wanted, links))
    if IDEAL in asked:
        _ideal_all(topics, known, links[asked.index(IDEAL)])
    return Outcome(overlays, asked, first.sizes.astype(np.int64), links)


class FirstViews(NamedTuple):
    """The views that the rounds begin with."""

    sizes: Ids  # by membership
    neighbours: Ids  # places among the topic's members; empty where random ones are to be drawn


def _first_views(overlays: Overlays, config: Config, seed: int) -> FirstViews:
    if config.scamp is None:
        return FirstViews(overlays.degrees().astype(np.int32), np.zeros(0, np.int32))
    base = int(base_keys(seed).scamp)
    made = [
        membership.views_of(int(size), config.scamp, absorb(base, int(topic)))
        for topic, size in zip(overlays.topics, overlays.sizes(), strict=True)
    ]
    nothing = np.zeros(0, np.int32)
    sizes = np.concatenate([nothing, *(each for each, _ in made)])
    return FirstViews(sizes, np.concatenate([nothing, *(each for _, each in made)]))


class Topics(NamedTuple):
    """The topics of a run, in columns; `kernel.Topic` is one of them."""

    topics: Ids
    offsets: Numbers
    members: Ids
    begins: Numbers  # where the links of each membership begin; one more
    sizes: Ids  # of the view of each membership
    first: Ids  # see `FirstViews`
    base: Keys


@compiled
def _topic(some: Topics, at: int) -> Topic:
    begin, end = some.offsets[at], some.offsets[at + 1]
    start = some.begins[begin]
    first = some.first[start : some.begins[end]] if len(some.first) > 0 else some.first
    keys = keys_in(some.base, some.topics[at])
    return Topic(some.members[begin:end], some.sizes[begin:end], first, start, keys)


@part
def _is_linked(some: Topics, at: int) -> bool:
    return bool(some.begins[some.offsets[at + 1]] > some.begins[some.offsets[at]])


@compiled
def _run_all(some: Topics, options: Options, interests: Interests, wanted: Wanted) -> None:
    for at in range(len(some.topics)):
        if _is_linked(some, at):
            run_topic(_topic(some, at), options, interests, wanted)


@compiled
def _ideal_all(some: Topics, interests: Interests, links: Ids) -> None:
    for at in range(len(some.topics)):
        if _is_linked(some, at):
            ideal_topic(_topic(some, at), interests, links)


# --- view sizes -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """The view sizes of each node that is in a topic, over all of its topics."""

    nodes: Numbers  # ascending
    topics: Numbers
    logical: Numbers  # links, however many are with the same node
    physical: dict[int, Numbers]  # different neighbours, by the round asked for


def sizes_of(outcome: Outcome) -> Sizes:
    """View sizes of all nodes, at each round of an outcome."""
    overlays = outcome.overlays
    degrees = outcome.degrees
    order = np.argsort(overlays.members, kind="stable")
    nodes, first, topics = np.unique(overlays.members[order], return_index=True, return_counts=True)
    firsts = np.append(first, len(order))
    begins = offsets_of(degrees)
    logical = np.bincount(
        np.searchsorted(nodes, overlays.members), weights=degrees, minlength=len(nodes)
    )
    ids = int(nodes[-1]) + 1 if len(nodes) else 0
    physical = {
        round_: np.asarray(_count_different(order, firsts, begins, outcome.at(round_), ids))
        for round_ in outcome.rounds
    }
    return Sizes(
        nodes.astype(np.int64), topics.astype(np.int64), logical.astype(np.int64), physical
    )


@compiled
def _count_different(
    order: Numbers, firsts: Numbers, begins: Numbers, links: Ids, ids: int
) -> Numbers:
    """How many different neighbours each node has: `order` are its memberships, one node after the
    other from `firsts` on, and the links of a membership start at `begins`."""
    counts = np.zeros(len(firsts) - 1, np.int64)
    seen = np.full(ids, -1, np.int32)
    for node in range(len(counts)):
        for place in range(firsts[node], firsts[node + 1]):
            membership = order[place]
            for at in range(begins[membership], begins[membership + 1]):
                other = links[at]
                if seen[other] != node:
                    seen[other] = node
                    counts[node] += 1
    return counts


def distinct(owners: Array, neighbours: Array, nodes: int) -> Numbers:
    """Physical view sizes: how many distinct neighbours each of nodes 0 … nodes−1 has."""
    pairs = np.unique(owners.astype(np.int64) * (1 << 32) + neighbours)
    return np.bincount(pairs >> 32, minlength=nodes)


# --- the fewest links -----------------------------------------------------------------------------
#
# The links that a node with full knowledge would choose. It needs, in each of its topics, so many
# different members of that topic as neighbours. Which choice has the fewest neighbours in all is a
# covering problem, hard to solve exactly; the greedy answer takes, again and again, the node that
# is a member of most topics that still want a neighbour. It is within a factor of 1 + ln(topics) of
# the best and in practice near it. It knows nothing of an overlay's fitness: all nodes may choose
# the same well-connected few.


def fewest(held: Memberships, users: Numbers) -> Numbers:
    """The physical view size of each of these users under the greedy assignment."""
    wanted = np.array([rules.view_size(int(size)) for size in held.sizes()], np.int64)
    return _fewest(held, wanted, users)


@compiled
def _fewest(held: Memberships, wanted: Numbers, users: Numbers) -> Numbers:
    found = np.zeros(len(users), np.int64)
    gain = np.zeros(held.peers, np.int64)  # open topics of the present user, by member
    candidates = np.empty(held.peers, np.int64)
    needs = np.zeros(len(wanted), np.int64)
    for place in range(len(users)):
        user = users[place]
        mine = held.of_peer[held.of_peer_offsets[user] : held.of_peer_offsets[user + 1]]
        count = 0
        for at in range(len(mine)):
            topic = held.topic_of[mine[at]]
            needs[topic] = wanted[topic]
            for to in range(held.offsets[topic], held.offsets[topic + 1]):
                other = held.members[to]
                if other != user and wanted[topic] > 0:
                    if gain[other] == 0:
                        candidates[count] = other
                        count += 1
                    gain[other] += 1
        while True:
            best = -1
            for at in range(count):
                if gain[candidates[at]] > 0 and (best < 0 or gain[candidates[at]] > gain[best]):
                    best = candidates[at]
            if best < 0:
                break
            found[place] += 1
            gain[best] = 0
            _serve(best, held, needs, gain)
        for at in range(len(mine)):
            needs[held.topic_of[mine[at]]] = 0
    return found


@compiled
def _serve(chosen: int, held: Memberships, needs: Numbers, gain: Numbers) -> None:
    """A neighbour is chosen: each of its topics wants one neighbour less, and members of a topic
    that wants no more are worth nothing for it."""
    for at in range(held.of_peer_offsets[chosen], held.of_peer_offsets[chosen + 1]):
        topic = held.topic_of[held.of_peer[at]]
        if needs[topic] > 0:
            needs[topic] -= 1
            if needs[topic] == 0:
                for to in range(held.offsets[topic], held.offsets[topic + 1]):
                    gain[held.members[to]] = max(0, gain[held.members[to]] - 1)
