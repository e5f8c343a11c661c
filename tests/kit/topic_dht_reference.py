"""The topic-aware DHT by its rules alone, slow and plain: what the engine's kernels must equal."""

from __future__ import annotations

from collections.abc import Iterable

from weft.rules import roles as rules

BITS = 64


class Group:
    """One topic: forwarders with their children, by place."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.children: dict[int, set[int]] = {}  # of each forwarder

    def closest(self, place: int) -> int | None:
        return rules.closest_forwarder(place, self.children)

    def parent(self, place: int) -> int | None:
        return next((one for one, some in self.children.items() if place in some), None)

    def join(self, place: int) -> None:
        near = self.closest(place)
        assert near is not None
        self.children[near].add(place)

    def promote(self, place: int) -> None:
        near = rules.affected(place, list(self.children), BITS)
        self.children[place] = set()
        for other in near:
            self.children[other].discard(place)
            for child in sorted(self.children[other]):
                if rules.is_closer(child, place, other):
                    self.children[other].remove(child)
                    self.children[place].add(child)

    def demote(self, place: int, stays: bool) -> None:
        orphans = self.children.pop(place)
        for child in sorted(orphans | {place} if stays else orphans):
            self.join(child)

    def shed(self) -> None:
        while over := sorted(
            one for one, some in self.children.items() if rules.is_overfull(len(some), self.k)
        ):
            chosen = rules.split_target(over[0], sorted(self.children[over[0]]))
            self.children[over[0]].remove(chosen)
            self.promote(chosen)


class Network:
    """Peers that subscribe one after the other."""

    def __init__(self, k: int, places: list[int]) -> None:
        self.k = k
        self.places = places
        self.groups: dict[int, Group] = {}
        self.topics: dict[int, int] = {}  # |T_p|

    def locations(self, peer: int) -> int:
        return sum(self.places[peer] in group.children for group in self.groups.values())

    def load(self, place: int, topic: int) -> rules.Load:
        peer = self.places.index(place)
        children = len(self.groups[topic].children[place])
        return rules.Load(self.locations(peer), self.topics[peer], children)

    def subscribe(self, peer: int, topics: Iterable[int]) -> None:
        wanted = list(topics)
        place = self.places[peer]
        self.topics[peer] = len(wanted)
        found: dict[int, rules.Load | None] = {}
        for topic in wanted:
            group = self.groups.setdefault(topic, Group(self.k))
            near = group.closest(place)
            found[topic] = None if near is None else self.load(near, topic)
        mine = rules.Load(self.locations(peer), self.topics[peer])
        for topic, choice in rules.choose_roles(found, mine).items():
            found[topic] = None
            self._carry_out(peer, topic, choice)

    def _carry_out(self, peer: int, topic: int, choice: rules.Choice) -> None:
        group, place = self.groups[topic], self.places[peer]
        near = group.closest(place)
        if choice == "replace":
            assert near is not None
            mine = rules.Load(self.locations(peer), self.topics[peer])
            if not rules.is_unfair(self.load(near, topic), mine):
                choice = "join"
        if choice == "join":
            group.join(place)
        else:
            group.promote(place)
        if choice == "replace":
            assert near is not None
            group.demote(near, stays=True)
        group.shed()
