"""Rounds of StaN in one topic in plain Python over `weft.rules`: what the kernel must equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from weft.engine.core.draws import absorb as absorb64
from weft.engine.core.draws import domain_bits, scrambled
from weft.engine.stan.overlays import Config
from weft.rules import stan
from weft.rules.draw import MASK32, absorb, below, stream_of
from weft.rules.tera import next_period


class Topic:
    """One overlay: members by node, each with its view, the adopted among it, and its clock."""

    def __init__(
        self, topic: int, members: Sequence[int], topics_of: Mapping[int, set[int]], seed: int
    ) -> None:
        self.topic = topic
        self.members = sorted(members)
        self.topics_of = topics_of
        self.seed = seed
        self.lean = False
        self.started = False
        self.wanted = stan.view_size(len(members))
        self.number = {node: self._key("identity", node, 0, topic=False) for node in members}
        self.views: dict[int, list[int]] = {}
        self.adopted: dict[int, list[int]] = {node: [] for node in members}
        self.quiet = dict.fromkeys(members, 0)
        self.period = dict.fromkeys(members, 1)
        self.due = dict.fromkeys(members, 1)
        self.heard: set[int] = set()
        self.memory: dict[int, list[int]] = {node: [] for node in members}
        self.waiting: list[int] = []

    def _key(self, purpose: str, *coordinates: int, topic: bool = True) -> int:
        key = absorb(absorb(0, self.seed), stream_of(f"stan.{purpose}"))
        for coordinate in ([self.topic] if topic else []) + list(coordinates):
            key = absorb(key, coordinate)
        return key

    def _weight(self, at: int, other: int) -> int:
        mine, theirs = self.number[at], self.number[other]
        if self.lean:
            shared = len(self.topics_of[at] & self.topics_of[other])
            return stan.lean_weight(mine, theirs, shared)
        return stan.weight(mine, theirs)

    def _keep(self, at: int, candidates: list[int]) -> bool:
        """Rank candidates together with the view; returns whether that changed."""
        before = self.views.get(at, [])
        others = [other for other in [*before, *candidates] if other != at]
        weigh = partial(self._weight, at)
        self.views[at] = after = stan.kept(others, self.wanted, weigh, self.adopted[at])
        if self.started:
            gone = [other for other in before if other not in after]
            lonely = [other for other in gone if not self._holders(other)]
            self.waiting += [other for other in lonely if other not in self.waiting]
        return after != before

    def _holders(self, node: int) -> list[int]:
        return [other for other in self.members if node in self.views[other]]

    def start(self, lean: bool) -> None:
        """Random first views."""
        self.lean = lean
        for node in self.members:
            key, attempt, chosen = self._key("first", node), 0, list[int]()
            while len(chosen) < self.wanted:
                other = self.members[below(absorb(key, attempt), len(self.members))]
                attempt += 1
                if other != node and other not in chosen:
                    chosen.append(other)
            self._keep(node, chosen)
        self.started = True

    def _turns(self, tick: int) -> list[int]:
        bits = domain_bits(len(self.members))
        key = np.uint64(absorb64(np.uint64(self._key("order")), tick))
        found = [int(scrambled(np.uint64(at), key, np.uint64(bits))) for at in range(1 << bits)]
        return [self.members[place] for place in found if place < len(self.members)]

    @staticmethod
    def _lost(key: int, message: int, loss: float) -> bool:
        return (absorb(key, message) >> 32) & MASK32 < round(loss * 2**32)

    def _walk(self, origin: int, tick: int, config: Config) -> bool:
        steps, losses = self._key("step", origin, tick), self._key("loss", origin, tick)
        at, collected, trail = origin, list[int](), list[int]()
        for step in range(stan.visits(config.ttl)):
            at = self.views[at][below(absorb(steps, step), self.wanted)]
            if self._lost(losses, step, config.loss):
                return False
            if at != origin:
                if stan.is_from_afar(step):
                    self.heard.add(at)
                if config.overheard:
                    self._keep(at, [origin, *collected])
            collected += [at, *self.views[at]]
            trail.append(at)
        if self._lost(losses, stan.visits(config.ttl), config.loss):
            return False
        recalled = [one for other in trail for one in self.memory[other]] if config.memory else []
        self.memory[origin] = collected
        return self._keep(origin, collected + recalled)

    def _comfort(self, tick: int, config: Config) -> None:
        for node in self.members:
            self.quiet[node] = 0 if node in self.heard else self.quiet[node] + 1
        for node in self.members:
            if stan.is_lonely(len(self._holders(node)), self.quiet[node], config.patience):
                self._ask_for_a_link(node, (tick, len(self.members)), config)
        self._help_waiting((tick, len(self.members) + 1), config)
        self.heard = set()

    def _help_waiting(self, when: tuple[int, int], config: Config) -> None:
        for node in self.waiting:  # grows meanwhile
            if config.patience and not self._holders(node):
                self._ask_for_a_link(node, when, config)
        self.waiting = []

    def _ask_for_a_link(self, node: int, when: tuple[int, int], config: Config) -> None:
        key = self._key("adopt", node, *when)
        for turn, asked in enumerate(list(self.views[node])):
            lately = asked in self.heard or self.quiet[asked] == 0
            found = stan.can_be_found(lately, len(set(self._holders(asked)) - {node}))
            if self._lost(key, turn, config.loss) or (found and node in self.views[asked]):
                break
            if stan.adopts(len(self.adopted[asked]), self.wanted, found):
                self.adopted[asked].append(node)
                self._keep(asked, [])
                break

    def round(self, tick: int, config: Config) -> None:
        for turn, node in enumerate(self._turns(tick)):
            if self.due[node] <= tick:
                changed = self._walk(node, tick, config)
                self.period[node] = next_period(self.period[node], changed, config.longest)
                self.due[node] = tick + self.period[node]
                self._help_waiting((tick, turn), config)
        if config.patience:
            self._comfort(tick, config)

    def ideal(self) -> list[list[int]]:
        """The lightest of all members, at each."""
        return [
            stan.kept(
                [other for other in self.members if other != node],
                self.wanted,
                partial(self._weight, node),
            )
            for node in self.members
        ]

    def rows(self) -> list[list[int]]:
        return [self.views[node] for node in self.members]
