"""A correlated synthetic workload: which peers subscribe to which topics, and publish when.

Topics lie on a circle of interests and so do the peers. A peer mostly subscribes to popular topics
near its own place and now and then to a popular one anywhere, so that two peers that share a topic
are likely to share more, as in real traces. A topic's popularity falls with its rank by Zipf's law,
and the number of topics of a peer follows the same law.

Events come from subscribers and, at times, from peers that are not subscribed to the topic; popular
topics have more events. Everything follows from the seed, and times are milliseconds from the start
of publishing, so that a simulated world and a real swarm can play the same workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.ids import Topic
from weft.sim.dice import Dice

HIERARCHY = "/sports"
"""Of a nested workload, the root of the topics that are in a hierarchy."""
_AREAS = ("sports", "music", "science", "news", "games", "travel", "food", "film")
_WEIGHT = 1 << 20


@dataclass(frozen=True)
class Shape:
    """The shape of a workload, apart from its size. All defaults are guesses."""

    topics_per_peer_max: int = 6  # guess: the most a peer subscribes to
    near_percent: int = 80  # guess: subscriptions close to the peer's own interests
    near_share: int = 4  # guess: "close" is a quarter of the circle of interests
    outsider_percent: int = 30  # guess: events published by peers that are not subscribed
    payload_bytes: int = 200  # the size that benchmarks measure with
    burst_percent: int = 0  # guess: events published together with the one before, as one run
    nested: bool = False  # topics are sub-topics of others, in two trees

    def __post_init__(self) -> None:
        if self.topics_per_peer_max < 1 or self.near_share < 1 or self.payload_bytes < 16:
            raise ValueError("topics_per_peer_max and near_share start at 1, payload_bytes at 16")
        if not (0 <= self.near_percent <= 100 and 0 <= self.outsider_percent <= 100):
            raise ValueError("near_percent and outsider_percent must be 0 to 100")
        if not 0 <= self.burst_percent < 100:
            raise ValueError("burst_percent must be 0 to 99")


@dataclass(frozen=True)
class Publication:
    """One event to publish; `payload` is unique in the workload. Events of one peer in one topic at
    one time are published together."""

    at_ms: int
    peer: int
    topic: Topic
    payload: bytes


@dataclass(frozen=True)
class Workload:
    topics: tuple[Topic, ...]
    interests: tuple[tuple[Topic, ...], ...]  # by peer
    publications: tuple[Publication, ...]  # by time

    def subscribers(self) -> dict[Topic, list[int]]:
        """The peers that subscribe to each topic, ascending."""
        found: dict[Topic, list[int]] = {topic: [] for topic in self.topics}
        for peer, topics in enumerate(self.interests):
            for topic in topics:
                found[topic].append(peer)
        return found


def draw_workload(
    seed: int,
    peers: int,
    topics: int,
    events: int,
    duration_ms: int,
    shape: Shape | None = None,
) -> Workload:
    """A workload of this size; the events are spread over `duration_ms`."""
    if peers < 2 or topics < 1 or events < 0 or duration_ms < 1:
        raise ValueError("a workload needs two peers, a topic and some time")
    shape = shape or Shape()
    dice = Dice(seed)
    name = _nested_name if shape.nested else _topic_name
    names = tuple(name(number) for number in range(topics))
    popularity = _popularity(dice, topics)
    chosen = [_interests(dice, shape, peer, popularity) for peer in range(peers)]
    _populate(dice, chosen, topics)
    interests = tuple(tuple(names[topic] for topic in sorted(wanted)) for wanted in chosen)
    members: list[list[int]] = [[] for _ in range(topics)]
    for peer, wanted in enumerate(chosen):
        for topic in wanted:
            members[topic].append(peer)
    publications = [
        _publication(dice, shape, event, duration_ms, names, members, peers)
        for event in range(events)
    ]
    publications.sort(key=lambda publication: (publication.at_ms, publication.payload))
    return Workload(names, interests, tuple(publications))


def _topic_name(number: int) -> Topic:
    return Topic(f"/{_AREAS[number % len(_AREAS)]}/{number // len(_AREAS)}")


def _nested_name(number: int) -> Topic:
    """Two trees in which every topic has two below it; now and then a level between them
    has no subscribers."""
    place = number // 2
    if place == 0:
        return Topic(f"/{_AREAS[number]}")
    parent = _nested_name(2 * ((place - 1) // 2) + number % 2)
    return Topic(f"{parent}/between/{place}" if place % 3 == 0 else f"{parent}/{place}")


def _popularity(dice: Dice, topics: int) -> list[int]:
    """Weights by Zipf's law; the ranks of topics are drawn."""
    places = sorted(range(topics), key=lambda topic: dice.bits("workload.rank", topic))
    weights = [0] * topics
    for rank, topic in enumerate(places):
        weights[topic] = max(1, _WEIGHT // (rank + 1))
    return weights


def _interests(dice: Dice, shape: Shape, peer: int, popularity: Sequence[int]) -> set[int]:
    """The topics of one peer, by number; no caller depends on the order of the set."""
    topics = len(popularity)
    most = min(shape.topics_per_peer_max, topics)
    wanted = 1 + dice.weighted("workload.count", [_WEIGHT // n for n in range(1, most + 1)], peer)
    home = dice.below("workload.home", topics, peer)
    reach = max(1, topics // (2 * shape.near_share))
    near = sorted({(home + step) % topics for step in range(-reach, reach + 1)})
    chosen: set[int] = set()
    for attempt in range(8 * wanted):
        if len(chosen) == wanted:
            break
        if dice.percent("workload.near", shape.near_percent, peer, attempt):
            weights = [popularity[topic] for topic in near]
            chosen.add(near[dice.weighted("workload.topic", weights, peer, attempt)])
        else:
            chosen.add(dice.weighted("workload.topic", popularity, peer, attempt))
    return chosen


def _populate(dice: Dice, chosen: list[set[int]], topics: int) -> None:
    """Give every topic two subscribers at least, so that each is a group."""
    for topic in range(topics):
        members = sum(topic in wanted for wanted in chosen)
        outside = [peer for peer, wanted in enumerate(chosen) if topic not in wanted]
        missing = min(max(0, 2 - members), len(outside))
        for peer in dice.some("workload.populate", outside, missing, topic):
            chosen[peer].add(topic)


def _publication(
    dice: Dice,
    shape: Shape,
    event: int,
    duration_ms: int,
    names: Sequence[Topic],
    members: Sequence[Sequence[int]],
    peers: int,
) -> Publication:
    text = f"event {event} ".encode()
    while event and dice.percent("workload.burst", shape.burst_percent, event):
        event -= 1  # topic, time and publisher are those of the burst's first event
    topic = dice.weighted("workload.event", [len(group) for group in members], event)
    inside = members[topic]
    outside = sorted(set(range(peers)) - set(inside))
    outsider = bool(outside) and dice.percent("workload.outsider", shape.outsider_percent, event)
    publisher = dice.pick("workload.publisher", outside if outsider else inside, event)
    return Publication(
        at_ms=dice.below("workload.when", duration_ms, event),
        peer=publisher,
        topic=names[topic],
        payload=text.ljust(shape.payload_bytes, b"."),
    )
