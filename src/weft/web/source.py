"""The peers behind the page: one peer, or a swarm with one more peer that acts for users.

A `Scene` makes frames of them for the page. Peers get numbers in the order in which they are first
met, so that a picture of 500 peers, which know 20 others each, is some ten thousand small numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

import weft
from weft.lab.census import Sight, sight_of
from weft.lab.processes import Status, Swarm


class Source(Protocol):
    """Peers to show, and one of them that acts for the users of the page."""

    @property
    def speaker(self) -> weft.Peer:
        """The peer that publishes and subscribes for users."""

    async def sights(self) -> list[Sight]:
        """The state of every peer that can be asked."""

    async def flow(self) -> list[Passing]:
        """Notifications since the last call."""

    async def status_of(self, peer: str) -> Status | None:
        """All that a peer tells of itself; None for one that cannot be asked."""


Passing = tuple[str, str, str, int]
"""A notification to show in the picture: peer, topic, event, hops."""


class Single:
    """One peer of this process, and the peers that it knows."""

    def __init__(self, peer: weft.Peer) -> None:
        self.speaker = peer
        self._linked: dict[str, list[str]] = {}  # by topic, when it was last looked at

    async def sights(self) -> list[Sight]:
        sight = sight_of(self.speaker)
        self._linked = sight["links"]
        return [sight]

    async def flow(self) -> list[Passing]:
        """The events that reached this peer; if the publisher is a neighbour, they begin there."""
        passed: list[Passing] = []
        for topic, event, publisher, hops in self.speaker.passed():
            if publisher in self._linked.get(topic, ()):
                passed.append((publisher, topic, event, 0))
            passed.append((self.speaker.id, topic, event, hops))
        return passed

    async def status_of(self, peer: str) -> Status | None:
        if peer != self.speaker.id:
            return None
        return {**self.speaker.status(), "counters": dict(self.speaker.counters)}


class Crowd:
    """The peers of a swarm, and a peer of this process that has joined them and acts for users."""

    def __init__(self, swarm: Swarm, speaker: weft.Peer) -> None:
        self.speaker = speaker
        self._swarm = swarm
        self._alone = Single(speaker)

    async def sights(self) -> list[Sight]:
        return [*await self._swarm.sights(), *await self._alone.sights()]

    async def flow(self) -> list[Passing]:
        names, me = self._names(), self.speaker.id
        passed = await self._swarm.flow()
        return [
            *((names[index], topic, event, hops) for index, topic, event, hops in passed),
            *((me, topic, event, hops) for topic, event, _, hops in self.speaker.passed()),
        ]

    async def status_of(self, peer: str) -> Status | None:
        if peer in (names := self._names()):
            return await self._swarm.status_of(names.index(peer))
        return await self._alone.status_of(peer)

    def _names(self) -> list[str]:
        """Ids of the swarm's peers, in the order of their numbers in it."""
        return [address.rpartition("/p2p/")[2] for address in self._swarm.addresses]


class Figure(TypedDict):
    """One peer in a frame; all others are named by their numbers."""

    n: int
    isolated: bool
    connections: int
    delivered: int
    frames: int
    bytes: int
    dropped: int
    view: list[int]
    links: dict[str, list[int]]


class Scene:
    """Numbers of peers, and frames for the page."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, peer: str) -> int:
        return self._numbers.setdefault(peer, len(self._numbers))

    def names(self, first: int = 0) -> list[str]:
        """The ids of the peers with these numbers and higher ones."""
        return list(self._numbers)[first:]

    def figures(self, sights: Sequence[Sight]) -> list[Figure]:
        """The figures that the page draws. Peers that can be asked get their numbers first."""
        for sight in sights:
            self.number(sight["peer"])
        return [
            {
                "n": self.number(sight["peer"]),
                "isolated": sight["isolated"],
                "connections": sight["connections"],
                "delivered": sight["delivered"],
                "frames": sight["frames"],
                "bytes": sight["bytes"],
                "dropped": sight["dropped"],
                "view": [self.number(peer) for peer in sight["view"]],
                "links": {
                    topic: [self.number(peer) for peer in linked]
                    for topic, linked in sight["links"].items()
                },
            }
            for sight in sights
        ]

    def steps(self, flow: Sequence[Passing]) -> list[tuple[str, str, list[tuple[int, int]]]]:
        """Notifications by event: its topic, its id, and which peers it reached after how many
        hops."""
        events: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for peer, topic, event, hops in flow:
            events.setdefault((topic, event), []).append((self.number(peer), hops))
        return [(topic, event, reached) for (topic, event), reached in events.items()]
