"""Entering the network, entering it again, and finding the part of it that was lost.

A peer remembers the contacts it was given and a few peers it met over a long time. With no
neighbour left, it asks some of them to let it in. It goes on asking while it has but one or two
neighbours: if its request to enter was lost, those may be newcomers that entered by it, and know
nobody either. Even with many neighbours it looks one of them up now and then: after a long
partition both sides have dropped each other from all views, and nothing else would ever bring
them together again.

Deviation: neither Cyclon nor TERA has the latter; both assume that the general overlay never
splits for longer than views remember.
"""

from __future__ import annotations

from weft.ids import GENERAL, Contact, PeerId
from weft.protocol.context import Context
from weft.protocol.cyclon import NO_NEWS, Cyclon
from weft.rules.draw import stream_of

TIMER = "rejoin"
_ENTRY = stream_of("entering.entry")
_MEET = stream_of("entering.meet")
_REMEMBER = stream_of("entering.remember")
_ASKED_AT_ONCE = 3
"""guess: known peers asked at once."""
_PAUSE_FIRST_MS = 500
"""guess: first pause before asking again; doubles up to the cycle."""
_GIVEN_MAX = 64
"""guess: contacts remembered of those the user or the driver gave."""
_HOPEFUL_ASKS = 3
"""guess: with pauses of 0.5, 1 and 2 s, a subscriber waits 3.5 s for a way into the network."""
_THIN = 3
"""guess: with fewer neighbours than that a peer may be on an island of newcomers."""
_MET_MAX = 32
"""guess: peers remembered from earlier."""
_EVERY_CYCLES = 4
"""guess: how often one is remembered and one looked up. With 32 places, half of those
remembered are still there after about 90 cycles."""


class Entering:
    """Whom this peer knows beyond its view."""

    def __init__(self, ctx: Context, view: Cyclon) -> None:
        self._ctx = ctx
        self._view = view
        self._given: dict[PeerId, Contact] = {}
        self._met: list[Contact] = []
        self._pause_ms = _PAUSE_FIRST_MS
        self._asks = 0  # since this peer last had a neighbour
        self._serial = 0

    @property
    def hopeful(self) -> bool:
        """Whether known peers were asked just now and may still answer."""
        return self._view.knows_nobody and 0 < self._asks <= _HOPEFUL_ASKS

    def enter(self, contacts: tuple[Contact, ...]) -> None:
        """Ask to be let in by peers that the user or the driver knows."""
        for contact in contacts:
            if contact.peer != self._ctx.me.peer:
                self._given[contact.peer] = contact
                if len(self._given) > _GIVEN_MAX:
                    del self._given[next(iter(self._given))]
        self.ask()

    def ask(self) -> None:
        """Ask some known peers to let us in, and again later if none answers."""
        ctx = self._ctx
        known = self._forgotten()
        if not known:
            return
        for _ in range(min(_ASKED_AT_ONCE, len(known))):
            contact = ctx.pick(_ENTRY, known)
            known.remove(contact)
            self._view.ask_to_join(contact)
        self._asks += 1
        self._serial = ctx.next_serial()
        ctx.set_timer(self._pause_ms, TIMER, GENERAL, self._serial)
        self._pause_ms = min(self._pause_ms * 2, max(self._pause_ms, ctx.config.cyclon.cycle_ms))

    def on_timer(self, serial: int) -> None:
        if serial == self._serial and len(self._view.peers) < _THIN:
            self.ask()

    def on_neighbours(self) -> None:
        self._asks = 0
        self._pause_ms = _PAUSE_FIRST_MS

    def run_cycle(self, cycle: int) -> None:
        """Remember somebody, and look up somebody that the view has forgotten."""
        if (cycle + self._ctx.number) % _EVERY_CYCLES:
            return
        self._remember()
        forgotten = self._forgotten()
        if forgotten:
            self._view.exchange_with(self._ctx.pick(_MEET, forgotten), NO_NEWS)

    def _forgotten(self) -> list[Contact]:
        """Known peers that the view does not hold."""
        known = (*self._given.values(), *self._met)
        return [contact for contact in known if contact.peer not in self._view.peers]

    def _remember(self) -> None:
        neighbour = self._view.neighbour()
        if neighbour is None or any(met.peer == neighbour.peer for met in self._met):
            return
        if len(self._met) >= _MET_MAX:
            self._met.remove(self._ctx.pick(_REMEMBER, self._met))
        self._met.append(neighbour)
