"""A workload of real users: which topics they are in, and when they did something there.

`weft data events` writes such a file from a lake, and any program can: a JSON object per line,

    {"user": "ann", "topic": "gardening"}                     ann is subscribed
    {"user": "ann", "topic": "gardening", "at_ms": 86400000}  ann did something there, at this time

Each user becomes a peer, and each topic gets a new name, in the order in which they first appear; a
user that does something in a topic is subscribed to it. Times are milliseconds from any moment. A
run takes consecutive events, from a place that its seed determines, and scales all gaps between
them alike: bursts, users and topics stay as they were.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from weft.errors import WeftError
from weft.ids import Topic
from weft.sim.dice import Dice
from weft.sim.workload import Publication, Shape, Workload


class BadRecording(WeftError):
    """A file is no recorded workload; the text says where and why."""


@dataclass(frozen=True)
class Recorded:
    """Subscriptions of users, and their events by time: (ms, peer, topic)."""

    name: str
    topics: tuple[Topic, ...]
    interests: tuple[tuple[Topic, ...], ...]  # by peer
    events: tuple[tuple[int, int, int], ...]

    def workload(self, seed: int, events: int, duration_ms: int, shape: Shape) -> Workload:
        """At most `events` of the events, scaled to `duration_ms`. Of `shape` only the size of
        payloads is used."""
        count = min(events, len(self.events))
        first = Dice(seed).below("recorded.first", len(self.events) - count + 1) if count else 0
        some = self.events[first : first + count]
        begin = some[0][0] if some else 0
        span = max(1, some[-1][0] - begin) if some else 1
        publications = tuple(
            Publication(
                at_ms=(at_ms - begin) * (duration_ms - 1) // span,
                peer=peer,
                topic=self.topics[topic],
                payload=f"event {number} ".encode().ljust(shape.payload_bytes, b"."),
            )
            for number, (at_ms, peer, topic) in enumerate(some)
        )
        return Workload(self.topics, self.interests, publications)


def read_recorded(path: Path) -> Recorded:
    """The workload in a file; raises `BadRecording`."""
    try:
        with path.open(encoding="utf-8") as file:
            return recorded(str(path), file)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadRecording(f"cannot read {path}: {why}") from error


def recorded(name: str, lines: Iterable[str]) -> Recorded:
    """The workload in some lines of JSON; raises `BadRecording`."""
    peers: dict[str, int] = {}
    topics: dict[str, int] = {}
    held: list[set[int]] = []
    events: list[tuple[int, int, int]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        user, topic, at_ms = _said(line, f"{name} line {number}")
        if user not in peers:
            peers[user] = len(held)
            held.append(set())
        peer, place = peers[user], topics.setdefault(topic, len(topics))
        held[peer].add(place)
        if at_ms is not None:
            events.append((at_ms, peer, place))
    if not events:
        raise BadRecording(f"{name} has no events: no line has 'at_ms'")
    names = tuple(Topic(f"/recorded/{place}") for place in range(len(topics)))
    interests = tuple(tuple(names[place] for place in sorted(some)) for some in held)
    return Recorded(name, names, interests, tuple(sorted(events)))


def _said(line: str, where: str) -> tuple[str, str, int | None]:
    try:
        said = json.loads(line)
        user, topic, at_ms = said["user"], said["topic"], said.get("at_ms")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRecording(f"{where} is no JSON object with 'user' and 'topic'") from error
    if not (isinstance(user, str) and isinstance(topic, str)):
        raise BadRecording(f"{where}: user and topic must be text")
    if at_ms is not None and (not isinstance(at_ms, int) or isinstance(at_ms, bool)):
        raise BadRecording(f"{where}: 'at_ms' must be a whole number")
    return user, topic, at_ms
