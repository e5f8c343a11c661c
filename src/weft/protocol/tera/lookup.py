"""Access point lookup: the own table first, else random walks (TERA, Section 3 and 4.2.2).

Each visited peer answers from its table and (unless switched off, as in the paper's
experiments) from its own subscriptions; a walk that ends without an answer says so, and a walk
that is lost is given up after a timeout. Lookups beyond a bound wait for their turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from weft.ids import Contact, PeerId, Topic, WirePeerId, WireTopic
from weft.protocol.context import Context, LookupDone
from weft.protocol.cyclon import Cyclon
from weft.protocol.tera.access_points import AccessPoints
from weft.protocol.wire import Counter, Message
from weft.rules import tera as rules
from weft.rules.draw import stream_of

AVOID_MAX = 8
"""guess: stale access points named in a lookup."""


class LookupWalk(Message, frozen=True, tag=11):
    topic: WireTopic
    origin: Contact
    lookup: Counter
    steps: Annotated[int, Meta(ge=0, le=4096)]
    avoid: Annotated[list[WirePeerId], Meta(max_length=AVOID_MAX)] = []  # known to be stale


class LookupHit(Message, frozen=True, tag=12):
    lookup: Counter
    access_point: Contact


class LookupMiss(Message, frozen=True, tag=13):
    """A walk ended without an answer; the origin need not wait for it."""

    lookup: Counter


TIMER = "lookup"
_NUMBER = stream_of("lookup.number")
_TRIES_MAX = 3
"""guess: walks sent again when some were lost on the way and none found anything."""
_AT_ONCE_MAX = 64
"""guess: bounds the walks of a peer that subscribes to very many topics at once."""


class _Search:
    __slots__ = ("avoid", "found", "serial", "topic", "tries", "walks")

    def __init__(self, topic: Topic, avoid: list[PeerId]) -> None:
        self.topic = topic
        self.avoid = avoid
        self.tries = 0
        self.serial = 0  # of the timer that counts
        self.walks = 0  # that have not reported yet
        self.found: list[Contact] = []


class Lookup:
    """Lookups this peer has started, and its answers to others' walks."""

    def __init__(self, ctx: Context, table: AccessPoints, view: Cyclon) -> None:
        self._ctx = ctx
        self._table = table
        self._view = view
        self._searches: dict[int, _Search] = {}
        self._timers: dict[int, int] = {}  # timer serial -> lookup
        self._waiting: dict[int, _Search] = {}

    def start(self, topic: Topic, avoid: Iterable[PeerId] = ()) -> int:
        """Begin a lookup; `LookupDone` with this number follows, perhaps at once.

        `avoid` names access points that turned out stale: others may still have them.
        """
        number = self._ctx.bits(_NUMBER) >> 1  # not to be guessed by strangers
        avoided = list(avoid)[:AVOID_MAX]
        known = self._table.find(topic)
        if known is not None and known.peer != self._ctx.me.peer and known.peer not in avoided:
            self._ctx.tell(LookupDone(number, topic, (known,)))
        else:
            self._waiting[number] = _Search(topic, avoided)
            self._start_waiting()
        return number

    def _start_waiting(self) -> None:
        while self._waiting and len(self._searches) < _AT_ONCE_MAX:
            number = next(iter(self._waiting))
            search = self._waiting.pop(number)
            self._searches[number] = search
            self._ctx.counters["lookups"] += 1
            self._walk(number, search)

    def visits(self) -> int:
        """K for the wanted success, from the estimated number of topics."""
        tera = self._ctx.config.tera
        topics = self._table.topics_active()
        if not topics:
            return tera.lookup_visits_unknown
        visits = rules.visits_needed(
            tera.lookup_success, len(self._table), topics, tera.lookup_visits_max
        )
        return max(visits, tera.lookup_visits_unknown)

    def _walk(self, number: int, search: _Search) -> None:
        ctx, tera = self._ctx, self._ctx.config.tera
        starts = self._view.sample(tera.walks)
        if not starts:
            self._close(number, search)
            return
        steps = rules.steps_of_each(self.visits(), len(starts))
        search.tries += 1
        search.walks = len(starts)
        search.serial = ctx.next_serial()
        self._timers[search.serial] = number
        walk = LookupWalk(search.topic, ctx.me, number, steps - 1, search.avoid)
        for contact in starts:
            ctx.send(contact, walk)
        ctx.set_timer(tera.lookup_timeout_ms, TIMER, search.topic, search.serial)

    # --- others' walks ------------------------------------------------------------------------

    def on_walk(self, message: LookupWalk, subscribed: bool) -> None:
        ctx = self._ctx
        home = message.origin.peer == ctx.me.peer  # came back: the visit counts, we know nothing
        answer = None
        if subscribed and not home and ctx.config.tera.answer_from_subscriptions:
            answer = ctx.me
        elif not home:
            answer = self._table.find(message.topic)
        if answer is not None and answer.peer not in (message.origin.peer, *message.avoid):
            ctx.send(message.origin, LookupHit(message.lookup, answer))
            return
        onward = self._view.neighbour() if message.steps > 0 else None
        if onward is not None:
            left = min(message.steps, ctx.config.tera.lookup_visits_max) - 1
            ctx.send(
                onward,
                LookupWalk(message.topic, message.origin, message.lookup, left, message.avoid),
            )
        elif home:
            self.on_miss(LookupMiss(message.lookup))
        else:
            ctx.send(message.origin, LookupMiss(message.lookup))

    # --- answers ------------------------------------------------------------------------------

    def on_hit(self, message: LookupHit) -> None:
        search = self._searches.get(message.lookup)
        if search is not None and message.access_point.peer != self._ctx.me.peer:
            search.found.append(message.access_point)
            self._end(message.lookup, search)

    def on_miss(self, message: LookupMiss) -> None:
        search = self._searches.get(message.lookup)
        if search is not None:
            search.walks -= 1
            if search.walks <= 0:
                self._end(message.lookup, search)

    def on_timer(self, serial: int) -> None:
        """Walks that have not reported are lost: their silence says nothing, so walk again."""
        number = self._timers.pop(serial, 0)
        search = self._searches.get(number)
        if search is None or search.serial != serial:
            return
        if search.tries < _TRIES_MAX:
            self._walk(number, search)
        else:
            self._close(number, search)
        self._start_waiting()

    def _end(self, number: int, search: _Search) -> None:
        self._close(number, search)
        self._start_waiting()

    def _close(self, number: int, search: _Search) -> None:
        del self._searches[number]
        self._timers.pop(search.serial, None)
        if not search.found:
            self._ctx.counters["lookups_empty"] += 1
        self._ctx.tell(LookupDone(number, search.topic, tuple(search.found)))
