"""What several layers use against hostile peers: settings, and three small memories.

`Config` switches the defences, each by itself. All are on; the lab's attack rows switch one off at
a time, to show what it is for.

`Silence` judges links by what they bring (GossipSub v1.1, Vyzovitis et al. 2020, Section 5.1, whose
score counts first deliveries and broken promises). In a push tree only one link brings an event
first, so that alone would punish the rest: here a neighbour counts that pushes, repeats or
announces. One over a lazy link that says nothing of many events which came by others, and any that
said nothing of events which had to be repaired, is a black hole, or as good as one.

`Sampler` is a uniform sample of the peers that spoke for themselves (Brahms: Bortnikov, Gurevich,
Keidar, Kliot, Shraer 2009, Section 4.2). Each place keeps the peer whose id has the smallest hash
under a key of its own, so a peer that speaks a thousand times is in it no more likely than one that
speaks once. Where 30 % of all peers are hostile, so are about 30 % of the sample, however many
contacts they push.

`Quota` bounds how often one peer may cause something within a span of time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from weft.bounded import BoundedDict
from weft.ids import Contact, PeerId, peer_number
from weft.protocol.context import Context
from weft.protocol.seam import Millis
from weft.rules.draw import absorb

K = TypeVar("K")


@dataclass(frozen=True)
class Config:
    """Defences against hostile peers, each on or off."""

    views: bool = True  # what others say of third peers is bounded; samples outlast what is pushed
    links: bool = True  # links give way with a reason only, and some are chosen by this peer
    score: bool = True  # links that bring nothing are given up
    access: bool = True  # a publisher from outside goes through several access points
    rates: bool = True  # walks that others began go no farther than one's own
    claims: bool = True  # roles that a third peer names are confirmed by the peer itself


# --- links that bring nothing ---------------------------------------------------------------------

SILENT_EVENTS = 8
"""guess: a lazy link that said nothing of so many events …"""
SILENT_LATE = 4
"""guess: … or any link that said nothing of so many that had to be repaired …"""
SILENT_MS = 5_000
"""guess: … for so long is silent; announcements take some 100 ms, and slow peers seconds."""


class Silence:
    """What the neighbours of one topic have said of its events."""

    __slots__ = ("_ctx", "_events", "_heard", "_late")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._events = 0  # that came
        self._late = 0  # of these, those that no link had brought
        # By neighbour: how many of both there were when it last said something, and when.
        self._heard: dict[PeerId, tuple[int, int, Millis]] = {}

    def note_event(self) -> None:
        self._events += 1

    def note_late_event(self) -> None:
        """An event came by repair: no link had brought or announced it in time."""
        self._late += 1

    def watch(self, peer: PeerId) -> None:
        """A new neighbour."""
        self._heard[peer] = (self._events, self._late, self._ctx.now)

    def hear(self, peer: PeerId) -> None:
        """A peer pushed, repeated or announced something."""
        if peer in self._heard:
            self._heard[peer] = (self._events, self._late, self._ctx.now)

    def heard_at(self, peer: PeerId) -> Millis | None:
        """When a neighbour last pushed, repeated or announced something, or became one."""
        known = self._heard.get(peer)
        return known[2] if known is not None else None

    def forget(self, peer: PeerId) -> None:
        self._heard.pop(peer, None)

    def silent(self, announcing: Iterable[PeerId], fed: Iterable[PeerId]) -> list[PeerId]:
        """The neighbours that say nothing: of those that should be `announcing` each event, and of
        those that this peer has `fed` itself, which owe nothing but what came late."""
        limit = self._ctx.now - SILENT_MS
        found = []
        for peer in announcing:
            events, late, at = self._heard.get(peer, (0, 0, self._ctx.now))
            missed = self._events - events >= SILENT_EVENTS or self._late - late >= SILENT_LATE
            if missed and at <= limit:
                found.append(peer)
        for peer in fed:
            _, late, at = self._heard.get(peer, (0, 0, self._ctx.now))
            self._heard[peer] = (self._events, late, at)
            if self._late - late >= SILENT_LATE and at <= limit:
                found.append(peer)
        return found


# --- a sample that cannot be pushed aside ---------------------------------------------------------


class Sampler:
    """Some of the peers that have spoken for themselves, each equally likely."""

    __slots__ = ("_kept", "_keys")

    def __init__(self, keys: Iterable[int]) -> None:
        """One key, not to be guessed by others, for each place."""
        self._keys = tuple(keys)
        self._kept: list[tuple[int, Contact] | None] = [None] * len(self._keys)

    def meet(self, contact: Contact) -> None:
        number = peer_number(contact.peer)
        for place, key in enumerate(self._keys):
            rank, kept = absorb(key, number), self._kept[place]
            if kept is None or rank < kept[0] or kept[1].peer == contact.peer:
                self._kept[place] = rank, contact

    def forget(self, peer: PeerId) -> None:
        """The peer is gone: its places are for others."""
        for place, kept in enumerate(self._kept):
            if kept is not None and kept[1].peer == peer:
                self._kept[place] = None

    def contacts(self) -> list[Contact]:
        """The peers in it, each once."""
        return list({kept[1].peer: kept[1] for kept in self._kept if kept is not None}.values())


# --- how often ------------------------------------------------------------------------------------

_COUNTED_MAX = 128
"""guess: peers whose doings are counted; the oldest are forgotten first."""


class Quota(Generic[K]):
    """At most `most` times per span for each key, or so much."""

    __slots__ = ("_counts", "_most", "_span_ms")

    def __init__(self, most: int, span_ms: Millis) -> None:
        self._most = most
        self._span_ms = span_ms
        self._counts: BoundedDict[K, tuple[int, int]] = BoundedDict(_COUNTED_MAX)

    def takes(self, key: K, now: Millis, cost: int = 1) -> bool:
        """Whether this once more is within bounds; if so, it counts."""
        span = now // self._span_ms
        began, count = self._counts.get(key, (span, 0))
        if began != span:
            began, count = span, 0
        if count + cost > self._most:
            return False
        self._counts.renew(key, (began, count + cost))
        return True
