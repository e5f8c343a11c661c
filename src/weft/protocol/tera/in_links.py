"""By whom a peer is held in a topic: its in-links, as far as it was told (adoption, see
`rules/stan.py` for the decisions).

Views are directed. Whoever takes a member into its view tells it, and whoever drops it too
(`InLink`); a walk that comes from a member tells the same. Who has lost its last in-link asks its
neighbours to adopt it at once, one after the other, the lightest first: each answers whether it
holds the asker now, and the next is asked if not. After all were asked it waits for its next
period.

Invariants: at most `_HOLDERS_MAX` holders are remembered; in one period every neighbour is asked
at most once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from weft.ids import Contact, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.messages_stan import AdoptMe, InLink
from weft.protocol.seam import Millis
from weft.rules import stan as rules

_HOLDERS_MAX = 64
"""guess: views have ten to twenty entries, so few are in more views than this; what matters is
whether there is one."""


class Held(Protocol):
    """An entry of a view."""

    contact: Contact


class InLinks:
    """The in-links of one peer in one topic."""

    __slots__ = ("_asked", "_ctx", "_passed", "_topic", "holders")

    def __init__(self, ctx: Context, topic: Topic) -> None:
        self._ctx = ctx
        self._topic = topic
        self.holders: dict[PeerId, None] = {}
        self._passed: Millis = ctx.now  # when a walk from afar last came by
        self._asked: dict[PeerId, None] = {}  # in this period

    @property
    def _tells(self) -> bool:
        return self._ctx.config.stan.enabled and self._ctx.config.stan.adopt

    @property
    def _quiet(self) -> int:
        """Periods, of the longest, in which no walk from afar came: everyone's walks together pass
        each member several times in one."""
        config = self._ctx.config.stan
        return (self._ctx.now - self._passed) // max(1, config.period_max * config.period_ms)

    def is_lonely(self) -> bool:
        return self._tells and rules.is_lonely(len(self.holders), self._quiet)

    def can_be_found(self, without: PeerId) -> bool:
        """Whether walks find this peer otherwise than through one other peer."""
        others = len(self.holders) - (without in self.holders)
        return rules.can_be_found(self._quiet == 0, others)

    # --- what others say ------------------------------------------------------------------------

    def on_walk(self, sender: PeerId, origin: PeerId) -> None:
        """A walk came from one that holds this peer."""
        self.add(sender)
        if rules.is_from_afar(0 if sender == origin else 1):
            self._passed = self._ctx.now

    def add(self, peer: PeerId) -> None:
        if peer in self.holders or len(self.holders) < _HOLDERS_MAX:
            self.holders[peer] = None

    def forget(self, peer: PeerId) -> None:
        """The peer is gone."""
        self.holders.pop(peer, None)

    def on_notice(self, sender: Contact, notice: InLink, neighbours: Iterable[Contact]) -> None:
        """A member says whether it holds this peer; who has nobody left, or was refused, asks."""
        if notice.held:
            self.add(sender.peer)
        else:
            self.forget(sender.peer)
        refused = sender.peer in self._asked and not (notice.held and notice.found)
        if refused or not self.holders:
            self.ask(neighbours)

    # --- what this peer says --------------------------------------------------------------------

    def tell(self, peer: Contact, held: bool) -> None:
        if self._tells:
            found = self.can_be_found(peer.peer)
            self._ctx.send(peer, InLink(self._topic, held, found))

    def tell_all(self, before: Mapping[PeerId, Held], after: Mapping[PeerId, Held]) -> None:
        """Tell those whom this peer's view has dropped and taken in."""
        for peer, entry in before.items():
            if peer not in after:
                self.tell(entry.contact, held=False)
        for peer, entry in after.items():
            if peer not in before:
                self.tell(entry.contact, held=True)

    def new_period(self, neighbours: Iterable[Contact]) -> None:
        """Everybody may be asked again, by a member that is lonely."""
        self._asked = {}
        if self.is_lonely():
            self._ctx.counters["stan_lonely"] += 1
            self.ask(neighbours)

    def ask(self, neighbours: Iterable[Contact]) -> None:
        """Ask the first neighbour that was not asked yet."""
        to = next((each for each in neighbours if each.peer not in self._asked), None)
        if to is not None and self.is_lonely():
            self._asked[to.peer] = None
            self._ctx.send(to, AdoptMe(self._topic))
