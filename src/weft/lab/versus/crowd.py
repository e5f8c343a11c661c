"""What users do in a run: a universe of subscriptions, and the events that are published.

A universe has at most so many peers. It is drawn from memberships of any size by a walk over
common interests, as StaN's universes grow (Section 3.1): from a seed topic to its users, from each
to one of its topics, until there are enough peers. Of the topics that these share, those with the
most subscribers are kept, so many for each ten peers; every peer keeps at least one.

Where a source tells what its users did and when, publications are that: events of the universe's
users in its topics that follow on one another, from a place that the seed stands for, with all gaps
between them stretched or shrunk alike (`sim/recorded.py`). So rates, bursts and publishers are the
trace's. Elsewhere publications go by rate: every event is published by a membership drawn
at random, so that a topic has events in proportion to its subscribers. Publishers are subscribers
either way; four of the six references ask for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from weft.ids import Topic
from weft.sim.dice import Dice
from weft.sim.recorded import Recorded
from weft.sim.workload import Shape

TOPICS_PER_TEN = 4
"""guess: topics for each ten peers, so that some are large and many small."""
LEAST = 3
"""guess: subscribers that a topic needs to be kept; fewer have nothing to spread."""
PAYLOAD_BYTES = 200
"""guess: as in the benchmarks."""
ENOUGH = 0.5
"""guess: a trace that has a smaller share of the events of a run does not drive it: figures of so
few events could not be compared with those of other sources."""
TRACE: Final = "trace"
RATE: Final = "rate"
"""What publications are driven by."""

Numbers = npt.NDArray[np.int32]
Times = npt.NDArray[np.int64]
Happened = tuple[Numbers, Numbers, Times]
"""What users did: topics, users and times (ms from any moment), side by side."""
Record = tuple[int, int, Topic, bytes]
"""When (ms after the window begins), which peer, in which topic, what."""


@dataclass(frozen=True)
class Universe:
    """Peers 0, 1, … and their topics."""

    interests: tuple[tuple[Topic, ...], ...]
    users: tuple[int, ...] = ()  # by peer, in the numbers of the source; none if it is made up
    by_topic: dict[Topic, list[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found: dict[Topic, list[int]] = {}
        for peer, topics in enumerate(self.interests):
            for topic in topics:
                found.setdefault(topic, []).append(peer)
        object.__setattr__(self, "by_topic", found)

    @property
    def peers(self) -> int:
        return len(self.interests)

    def topics_of(self, peer: int) -> tuple[Topic, ...]:
        return self.interests[peer]

    def members(self, topic: Topic) -> list[int]:
        return self.by_topic[topic]

    def memberships(self) -> list[tuple[int, Topic]]:
        return [(peer, topic) for peer, topics in enumerate(self.interests) for topic in topics]


def draw_users(topics: Numbers, users: Numbers, peers: int, seed: int) -> list[int]:
    """At most so many users, by common interests, from memberships side by side."""
    order = np.lexsort((users, topics))
    of_topic = _grouped(topics[order], users[order])
    return _walk(Dice(seed), of_topic, _by_user(topics, users), peers)


def draw_universe(topics: Numbers, users: Numbers, peers: int, seed: int) -> Universe:
    """A universe of at most so many peers from memberships side by side. Raises `ValueError` if
    they have next to nothing in common."""
    of_user = _by_user(topics, users)
    few = len(of_user) <= peers
    chosen = list(of_user) if few else draw_users(topics, users, peers, seed)
    kept = _kept(chosen, of_user, max(2, peers * TOPICS_PER_TEN // 10))
    if not kept:
        raise ValueError(f"no topic has {LEAST} subscribers among {len(chosen)} users")
    interests = tuple(tuple(_named(topic) for topic in topics) for topics in kept.values())
    return Universe(interests, tuple(kept))


def _named(topic: int) -> Topic:
    return Topic(f"/t{topic}")


def _by_user(topics: Numbers, users: Numbers) -> dict[int, Numbers]:
    order = np.lexsort((topics, users))
    return _grouped(users[order], topics[order])


def _grouped(keys: Numbers, values: Numbers) -> dict[int, Numbers]:
    if not len(keys):
        return {}
    found, starts = np.unique(keys, return_index=True)
    return dict(zip(found.tolist(), np.split(values, starts[1:]), strict=True))


def _walk(
    dice: Dice, of_topic: dict[int, Numbers], of_user: dict[int, Numbers], peers: int
) -> list[int]:
    """Users, by common interests from one to the next."""
    larger = [topic for topic, some in of_topic.items() if len(some) >= LEAST]
    if not larger:
        return []
    chosen: dict[int, None] = {}
    seen: set[int] = set()
    ahead = [dice.pick("versus.seed", larger)]
    for step in range(50 * peers):
        if len(chosen) >= peers or len(chosen) >= len(of_user):
            break
        topic = ahead.pop(0) if ahead else dice.pick("versus.seed", larger, step + 1)
        if topic in seen:
            continue
        seen.add(topic)
        room = max(LEAST, min(peers - len(chosen), peers // 4))
        for user in dice.some("versus.users", of_topic[topic].tolist(), room, step):
            if len(chosen) < peers and user not in chosen:
                chosen[user] = None
                ahead.append(int(dice.pick("versus.next", of_user[user].tolist(), user)))
    return list(chosen)


def _kept(
    chosen: Sequence[int], of_user: dict[int, Numbers], topics_most: int
) -> dict[int, list[int]]:
    """The topics of each chosen user that are kept; users without one are left out."""
    sizes: dict[int, int] = {}
    for user in chosen:
        for topic in of_user[user].tolist():
            sizes[topic] = sizes.get(topic, 0) + 1
    shared = [topic for topic, size in sizes.items() if size >= LEAST]
    largest = sorted(shared, key=lambda topic: (-sizes[topic], topic))[:topics_most]
    wanted = set(largest)
    found = {user: [t for t in of_user[user].tolist() if t in wanted] for user in chosen}
    return {user: some for user, some in found.items() if some}


class Publications:
    """The events of a run: at most `events` of those that `happened`, where there are enough; else
    that many by rate."""

    def __init__(
        self,
        universe: Universe,
        seed: int,
        events: int,
        window_ms: int,
        happened: Happened | None = None,
    ) -> None:
        self._memberships = universe.memberships()
        self._seed = seed
        self._dice = Dice(seed)
        self._number = events
        self._window_ms = window_ms
        recorded = _recorded(universe, happened) if happened is not None else None
        enough = recorded is not None and len(recorded.events) >= max(1, ENOUGH * events)
        self._recorded = recorded if enough else None

    @property
    def driven_by(self) -> str:
        """The trace, or a rate."""
        return RATE if self._recorded is None else TRACE

    def warm(self, number: int) -> tuple[int, Topic]:
        """One of the events before the window; they are by rate everywhere."""
        return self._dice.pick("versus.warm", self._memberships, number)

    def events(self) -> Iterator[Record]:
        """All of the window, in the order of time."""
        return self._by_rate() if self._recorded is None else self._of_trace(self._recorded)

    def _of_trace(self, recorded: Recorded) -> Iterator[Record]:
        shape = Shape(payload_bytes=PAYLOAD_BYTES)
        played = recorded.workload(self._seed, self._number, self._window_ms, shape)
        for each in played.publications:
            yield each.at_ms, each.peer, each.topic, each.payload

    def _by_rate(self) -> Iterator[Record]:
        """Evenly over the window, from memberships at random."""
        for number in range(self._number):
            publisher, topic = self._dice.pick("versus.publish", self._memberships, number)
            payload = (b"event %d " % number).ljust(PAYLOAD_BYTES, b".")
            yield number * self._window_ms // self._number, publisher, topic, payload


def _recorded(universe: Universe, happened: Happened) -> Recorded:
    """What the peers of a universe did in its topics, in the order of time."""
    peers = {user: peer for peer, user in enumerate(universe.users)}
    topics = tuple(universe.by_topic)
    places = {topic: place for place, topic in enumerate(topics)}
    found = [
        (at_ms, peers[user], places[name])
        for topic, user, at_ms in zip(*(each.tolist() for each in happened), strict=True)
        if user in peers and (name := _named(topic)) in places
    ]
    return Recorded("trace", topics, universe.interests, tuple(sorted(found)))
