"""What users do in a run: a universe of subscriptions, and the events that are published.

A universe has at most so many peers. It is drawn from memberships of any size by a walk over
common interests, as StaN's universes grow (Section 3.1): from a seed topic to its users, from each
to one of its topics, until there are enough peers. Of the topics that these share, those with the
most subscribers are kept, so many for each ten peers; every peer keeps at least one.

Publications go by rate: every event is published by a membership drawn at random, so that a topic
has events in proportion to its subscribers. Publishers are subscribers, as they are in the traces;
four of the six references ask for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from weft.ids import Topic
from weft.sim.dice import Dice

TOPICS_PER_TEN = 4
"""guess: topics for each ten peers, so that some are large and many small."""
LEAST = 3
"""guess: subscribers that a topic needs to be kept; fewer have nothing to spread."""
PAYLOAD_BYTES = 200
"""guess: as in the benchmarks."""

Numbers = npt.NDArray[np.int32]
Record = tuple[int, int, Topic, bytes]
"""When (ms after the window begins), which peer, in which topic, what."""


@dataclass(frozen=True)
class Universe:
    """Peers 0, 1, … and their topics."""

    interests: tuple[tuple[Topic, ...], ...]
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
    number = {user: place for place, user in enumerate(kept)}
    interests = [tuple(Topic(f"/t{topic}") for topic in kept[user]) for user in number]
    return Universe(tuple(interests))


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
    """The events of a run."""

    def __init__(self, universe: Universe, seed: int, events: int, window_ms: int) -> None:
        self._memberships = universe.memberships()
        self._dice = Dice(seed)
        self._number = events
        self._window_ms = window_ms

    def warm(self, number: int) -> tuple[int, Topic]:
        """One of the events before the window."""
        return self._dice.pick("versus.warm", self._memberships, number)

    def events(self) -> Iterator[Record]:
        """By rate: evenly over the window, from memberships at random."""
        for number in range(self._number):
            publisher, topic = self._dice.pick("versus.publish", self._memberships, number)
            payload = (b"event %d " % number).ljust(PAYLOAD_BYTES, b".")
            yield number * self._window_ms // self._number, publisher, topic, payload
