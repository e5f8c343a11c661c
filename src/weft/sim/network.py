"""The network: when a message arrives, and whether once, twice or not at all.

Every link (an ordered pair of peers) has a key of its own and counts its messages; one keyed draw
per message decides loss, duplication and latency together, so that one link never depends on the
traffic of another. A latency distribution is a table of quantiles in whole milliseconds. A
partition cuts the links between groups of peers until it is healed.

A link may have a rate (`events_per_s`): its messages then queue, as on a busy machine, and an
announcement on an idle link may overtake the event itself on a crowded one. Peers may have a rate,
too (`messages_per_s`): a peer then handles one message after the other, so that many make it slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp
from statistics import NormalDist
from typing import Literal, TypeAlias

from weft.rules.draw import GOLDEN, MASK64, below
from weft.sim.dice import Dice

LatencyKind: TypeAlias = Literal["constant", "uniform", "around", "long_tail"]
QUANTILES = 1024
_QUANTILE_SHIFT = 64 - 10
CERTAIN = 1 << 16
"""Probabilities on links are counted in units of 1/65536."""


@dataclass(frozen=True)
class Latency:
    """A distribution of delays, drawn anew for each message.

    `constant`: always `typical_ms`. `uniform`: 1 to twice `typical_ms`. `around`: evenly from
    `typical_ms` − `spread_ms` to `typical_ms` + `spread_ms`. `long_tail`: lognormal with median
    `typical_ms` and a sigma of one, so that one message in a hundred takes ten times as long and
    the slowest some twenty-five times.
    """

    kind: LatencyKind = "uniform"
    typical_ms: int = 20
    spread_ms: int = 0

    def __post_init__(self) -> None:
        if self.typical_ms < 1:
            raise ValueError("latency.typical_ms must be at least 1")
        if not 0 <= self.spread_ms < self.typical_ms:
            raise ValueError("latency.spread_ms must be less than latency.typical_ms")

    def quantiles(self) -> list[int]:
        steps = range(QUANTILES)
        if self.kind == "constant":
            return [self.typical_ms] * QUANTILES
        if self.kind == "uniform":
            return [1 + step * (2 * self.typical_ms) // QUANTILES for step in steps]
        if self.kind == "around":
            least, width = self.typical_ms - self.spread_ms, 2 * self.spread_ms
            return [least + step * width // (QUANTILES - 1) for step in steps]
        normal = NormalDist()
        middles = [(step + 0.5) / QUANTILES for step in steps]
        return [max(1, round(self.typical_ms * exp(normal.inv_cdf(p)))) for p in middles]


@dataclass(frozen=True)
class Conditions:
    """How the network behaves for some time."""

    latency: Latency = field(default_factory=Latency)
    loss_percent: int = 0
    loss_uneven: bool = False  # each link loses between nothing and loss_percent
    duplicate_percent: int = 0
    in_order: bool = True  # a message never overtakes another on its link, as over TCP
    events_per_s: int = 0  # how many events one link carries, others wait; 0: no limit
    messages_per_s: int = 0  # how many messages one peer handles, others wait; 0: no limit

    def __post_init__(self) -> None:
        for name in ("loss_percent", "duplicate_percent"):
            if not 0 <= getattr(self, name) <= 100:
                raise ValueError(f"{name} must be 0 to 100")
        if self.messages_per_s < 0:
            raise ValueError("messages_per_s must be 0 or more")
        if self.events_per_s < 0 or (self.events_per_s and not self.in_order):
            raise ValueError("events_per_s must be 0 or more, and links with a rate keep the order")


@dataclass(frozen=True)
class Partition:
    """`groups[peer]` is the side a peer is on; messages between sides are lost.

    With `one_way` only messages from a higher side to a lower one are lost.
    """

    groups: tuple[int, ...]
    one_way: bool = False

    def cuts(self, sender: int, receiver: int) -> bool:
        here, there = self.groups[sender], self.groups[receiver]
        return here > there if self.one_way else here != there


class _Link:
    __slots__ = ("busy_us", "count", "distance_ms", "key", "last_ms", "loss", "loss_bits")

    def __init__(self, key: int, distance_ms: int, loss_bits: int) -> None:
        self.key = key
        self.count = 0  # messages so far
        self.last_ms = 0  # when the latest of them arrives
        self.busy_us = 0  # until when it carries earlier events, if it has a rate
        self.distance_ms = distance_ms
        self.loss_bits = loss_bits  # how lossy this link is among the others
        self.loss = 0  # in units of 1/CERTAIN


class Network:
    """Decides the fate of every message; the world carries the decision out."""

    def __init__(self, seed: int, conditions: Conditions, distance_ms_max: int = 0) -> None:
        """Each pair of peers has a fixed extra delay of up to `distance_ms_max`."""
        self._dice = Dice(seed)
        self._distance_ms_max = distance_ms_max
        self._links: dict[int, _Link] = {}
        self._slow_ms: dict[int, int] = {}
        self._partition: Partition | None = None
        self._cut_told = False  # peers notice that nothing comes across
        self.lost = 0
        self.cut = 0
        self.duplicated = 0
        self.set_conditions(conditions)

    # --- what the run changes ---------------------------------------------------------------

    def set_conditions(self, conditions: Conditions) -> None:
        self.conditions = conditions
        self._table = conditions.latency.quantiles()
        self._in_order = conditions.in_order
        self.event_us = 1_000_000 // conditions.events_per_s if conditions.events_per_s else 0
        self.message_us = 1_000_000 // conditions.messages_per_s if conditions.messages_per_s else 0
        self._duplicate = conditions.duplicate_percent * CERTAIN // 100
        for link in self._links.values():
            self._adapt(link)

    def set_partition(
        self,
        partition: Partition | None,
        told: bool = False,
        connected: Iterable[tuple[int, int]] = (),
    ) -> list[tuple[int, int]]:
        """Cut the links between the partition's groups; None heals them. When `told`, peers notice
        that a connection across the cut is broken; else messages just vanish. Returns those of the
        connections that are noticed to be broken now."""
        self._partition = partition
        self._cut_told = told
        return [pair for pair in connected if self.is_known_cut(*pair)]

    def set_slow(self, receiver: int, delay_ms: int) -> None:
        """Delay all messages to this peer; 0 ends that."""
        self._slow_ms[receiver] = delay_ms
        if not any(self._slow_ms.values()):
            self._slow_ms.clear()

    # --- deciding ---------------------------------------------------------------------------

    def is_cut(self, sender: int, receiver: int) -> bool:
        return self._partition is not None and self._partition.cuts(sender, receiver)

    def is_known_cut(self, sender: int, receiver: int) -> bool:
        """Whether the link is cut and its peers notice that."""
        return self._cut_told and self.is_cut(sender, receiver)

    def arrivals(self, sender: int, receiver: int, now_ms: int, events: int = 0) -> Sequence[int]:
        """When copies of the link's next message arrive; empty if it is lost. `events`: how many
        the message carries, which matters if links have a rate."""
        number = sender << 32 | receiver
        link = self._links.get(number)
        if link is None:
            link = self._links[number] = self._new_link(sender, receiver)
        link.count = count = link.count + 1
        # draw.absorb(link.key, count), written out: this runs once per message.
        bits = (link.key + GOLDEN * (count + 1)) & MASK64
        bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
        bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & MASK64
        bits ^= bits >> 31
        if (bits & 0xFFFF) < link.loss:
            self.lost += 1
            return ()
        if self._partition is not None and self._partition.cuts(sender, receiver):
            self.cut += 1
            return ()
        if self.event_us:
            link.busy_us = max(link.busy_us, now_ms * 1_000) + events * self.event_us
            now_ms = link.busy_us // 1_000
        at_ms = now_ms + link.distance_ms + self._table[bits >> _QUANTILE_SHIFT]
        if self._slow_ms:
            at_ms += self._slow_ms.get(receiver, 0)
        if self._in_order:
            link.last_ms = at_ms = max(at_ms, link.last_ms)
        if ((bits >> 16) & 0xFFFF) < self._duplicate:
            self.duplicated += 1
            return at_ms, at_ms + self._table[(bits >> 34) & (QUANTILES - 1)]
        return (at_ms,)

    def _new_link(self, sender: int, receiver: int) -> _Link:
        near, far = sorted((sender, receiver))
        distance_bits = self._dice.bits("network.distance", near, far)  # the same both ways
        link = _Link(
            key=self._dice.key("network.link", sender, receiver),
            distance_ms=below(distance_bits, self._distance_ms_max + 1),
            loss_bits=self._dice.bits("network.loss", sender, receiver),
        )
        self._adapt(link)
        return link

    def _adapt(self, link: _Link) -> None:
        most = self.conditions.loss_percent * CERTAIN // 100
        link.loss = below(link.loss_bits, most + 1) if self.conditions.loss_uneven else most
