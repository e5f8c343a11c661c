"""The four dissemination schemes of the topic-aware DHT over arrays (Baehni and others, 5 and 6).

    roles = subscribed(held, places, k, seed)
    events = Events(roles, "forward-treecast", seed)
    outcome = events.publish(topic, publisher)

In the full schemes every subscriber takes part by its place, in the others only forwarders do and
each hands an event to its children when it gets it first. A child that publishes hands the event
to its parent, from where it goes on. A round is a hop. Whoever takes part is a subscriber: members
are all there is in a topic's arrays, so that parasites cannot occur here is no finding; whether
they occur is asked of the machines themselves, in the simulator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from weft.engine.core.draws import base_key
from weft.engine.core.layout import Array
from weft.engine.topic_dht import gossip, tree
from weft.engine.topic_dht.roles import FORWARDS, Roles
from weft.rules import treecast
from weft.rules.draw import absorb, below, stream_of

Scheme: TypeAlias = Literal["full-gossip", "forward-gossip", "full-treecast", "forward-treecast"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
LINKS = 4
"""measured (rules/treecast.py): links per level."""
VIEW = 20
"""guess, as in the machines' settings: members of a view."""


@dataclass(frozen=True)
class Outcome:
    """What became of one event."""

    members: int  # N_t, dead ones included
    payloads: int  # copies of the event between members
    handovers: int  # of these, to whom it was handed to be spread
    calls: int  # in rounds of pulling, with or without a copy
    rounds: int  # until the last one that got it had it
    missed: int  # live members that never got it


@dataclass
class Events:
    """Events in the topics of some roles, and who did the work."""

    roles: Roles
    scheme: Scheme
    seed: int
    mode: treecast.Mode = "push"
    links: int = LINKS
    view: int = VIEW
    mended: bool = False  # whether dead links are noticed and others taken
    live: npt.NDArray[np.uint8] | None = None  # by peer; None: everybody
    sent: npt.NDArray[np.int64] = field(init=False)  # payloads, by membership
    received: npt.NDArray[np.int64] = field(init=False)  # events, by membership
    _ranked: Array = field(init=False)
    _live: npt.NDArray[np.uint8] = field(init=False)
    _number: int = 0

    def __post_init__(self) -> None:
        held, state = self.roles.held, self.roles.state
        if self.links > tree.LINKS_MAX or self.view > gossip.VIEW_MAX:
            raise ValueError(f"at most {tree.LINKS_MAX} links and {gossip.VIEW_MAX} in a view")
        self.sent = np.zeros(held.total, np.int64)
        self.received = np.zeros(held.total, np.int64)
        self._ranked = np.lexsort((state.places, held.topic_of))
        live = np.ones(held.peers, np.uint8) if self.live is None else self.live
        self._live = live[held.members]

    @property
    def is_full(self) -> bool:
        return self.scheme.startswith("full-")

    def crowd_of(self, topic: int) -> Array:
        """The memberships that take part, by place."""
        held = self.roles.held
        if self.is_full:
            return self._ranked[held.offsets[topic] : held.offsets[topic + 1]]
        return self.roles.forwarders_of(topic)

    def random_member(self, topic: int) -> int:
        """A live membership, uniformly, for the next event."""
        held = self.roles.held
        members = np.arange(held.offsets[topic], held.offsets[topic + 1])
        members = members[self._live[members] == 1]
        key = absorb(int(base_key(self.seed, stream_of("engine.topic_dht.publisher"))), topic)
        return int(members[below(absorb(key, self._number), len(members))])

    def publish(
        self, topic: int, publisher: int, roots: int = 1, crash_roots: bool = False
    ) -> Outcome:
        """An event of a member, by as many trees as there shall be roots. With `crash_roots` all
        roots but the first are dead for this event, before it reaches them."""
        self._number += 1
        crowd = self.crowd_of(topic)
        entry = publisher
        if not self.is_full and self.roles.parent[publisher] != FORWARDS:
            entry = int(self.roles.parent[publisher])
        first = int(np.flatnonzero(crowd == entry)[0])
        key = absorb(int(base_key(self.seed, stream_of("engine.topic_dht.event"))), self._number)
        live = self._live
        others, calls = 0, 0
        if self.scheme.endswith("treecast"):
            chosen = self._roots(crowd, first, roots, key)
            others = len(chosen) - 1
            if crash_roots:
                live = live.copy()
                live[crowd[chosen[1:]]] = 0
            hops, sent, payloads = self._by_trees(crowd, chosen, live, key)
        else:
            hops, sent, payloads, calls = self._by_gossip(crowd, first, key)
        self.sent[crowd] += sent
        handed = int(entry != publisher)
        if handed:
            self.sent[publisher] += 1
            hops = np.where(hops >= 0, hops + 1, hops)
        arrived, told = self._arrivals(topic, publisher, crowd, hops, live)
        got = arrived >= 0
        members = np.arange(len(arrived)) + int(self.roles.held.offsets[topic])
        self.received[members[got]] += 1
        return Outcome(
            len(members),
            payloads + told + handed + others,
            handed + others,
            calls,
            int(arrived[got].max()),
            int(((live[members] == 1) & ~got).sum()),
        )

    def _arrivals(
        self, topic: int, publisher: int, crowd: Array, hops: Array, live: Array
    ) -> tuple[Array, int]:
        """Forwarders hand the event to their children: after how many hops each live member has
        it (−1: it has not), and how many copies that took."""
        held, state = self.roles.held, self.roles.state
        start, end = int(held.offsets[topic]), int(held.offsets[topic + 1])
        arrived = np.full(end - start, -1, np.int64)
        reached = (live[crowd] == 1) & (hops >= 0)
        arrived[crowd[reached] - start] = hops[reached]
        copies = 0
        if not self.is_full:
            parents = state.parent[start:end].astype(np.int64)
            told = parents >= 0
            told[told] = arrived[parents[told] - start] >= 0
            told[publisher - start] = False
            arrived[told] = arrived[parents[told] - start] + 1
            np.add.at(self.sent, parents[told], 1)
            copies = int(told.sum())
        arrived[publisher - start] = 0
        arrived[live[start:end] == 0] = -1
        return arrived, copies

    # --- trees ------------------------------------------------------------------------------------

    def _roots(self, crowd: Array, first: int, roots: int, key: int) -> list[int]:
        """The first root's own place in the crowd and those of further ones, as the rule has it."""
        places = self.roles.state.places[crowd]
        rest = np.delete(np.arange(len(crowd)), first)
        found = [first]
        while len(rest) and len(found) < roots:
            place = np.uint64(absorb(absorb(key, _ROOTS), len(found) - 1))
            nearest = int(np.argmin(places[rest] ^ place))
            found.append(int(rest[nearest]))
            rest = np.delete(rest, nearest)
        return found

    def _by_trees(
        self, crowd: Array, roots: list[int], live: Array, key: int
    ) -> tuple[Array, Array, int]:
        base = base_key(self.seed, stream_of("engine.topic_dht.links"))
        some = tree.Crowd(
            self.roles.state.places[crowd],
            _keyed(crowd, base),
            live[crowd],
            np.zeros(len(crowd), np.int64),
            np.zeros(len(crowd), np.int64),
            np.full(len(crowd), -1, np.int32),
            np.zeros(len(crowd), np.int32),
        )
        payloads, best = 0, np.full(len(crowd), -1, np.int64)
        for number, root in enumerate(roots):
            some.hops[:] = -1
            event = np.uint64(absorb(key, number))
            done, _ = tree.spread_tree(some, root, self.links, event, self.mended)
            payloads += done
            later = int(number > 0)  # a further root is told by the first
            came = (some.hops >= 0) & (some.live == 1)
            hops = np.where(came, some.hops + later, -1)
            best = np.where(came & ((best < 0) | (hops < best)), hops, best)
        some.sent[roots[0]] += len(roots) - 1
        return best, some.sent, payloads

    # --- gossip -----------------------------------------------------------------------------------

    def _by_gossip(self, crowd: Array, first: int, key: int) -> tuple[Array, Array, int, int]:
        count = len(crowd)
        some = gossip.Crowd(
            self._live[crowd],
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.full(count, -1, np.int32),
            np.zeros(count, np.int64),
        )
        views, event = np.uint64(absorb(key, _VIEWS)), np.uint64(absorb(key, 0))
        fanout = treecast.fanout(count, self.mode)
        copies, last = gossip.push(some, first, fanout, self.view, views, event)
        calls = 0
        if self.mode == "push-pull" and count > 1:
            rounds = treecast.pull_rounds(count)
            later = np.uint64(absorb(key, 1))
            more, _ = gossip.pull(some, rounds, last, self.view, views, later)
            copies += more
            calls = int(some.calls.sum())
        return some.hops.astype(np.int64), some.sent, copies, calls


_ROOTS, _VIEWS = 1_000, 1_001
"""Items of an event's key beside the numbers of its trees."""


def _keyed(crowd: Array, base: np.uint64) -> npt.NDArray[np.uint64]:
    keys = np.empty(len(crowd), np.uint64)
    tree.fill_keys(keys, crowd, base)
    return keys


def jain(values: npt.NDArray[np.float64]) -> float:
    """Jain's index: 1 if all are equal, 1/n if one has everything."""
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares else 1.0
