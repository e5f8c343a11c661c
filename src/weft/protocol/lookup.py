"""Access point lookup: the own table first, else random walks (TERA, Section 3 and 4.2.2).

Each visited peer answers from its table and (unless switched off, as in the paper's
experiments) from its own subscriptions; a walk that ends without an answer says so, and a walk
that is lost is given up after a timeout. Lookups beyond a bound wait for their turn.
"""

from __future__ import annotations

from weft.ids import Contact, Topic
from weft.protocol.access_points import AccessPoints
from weft.protocol.context import Context, LookupDone
from weft.protocol.cyclon import Cyclon
from weft.protocol.messages import LookupHit, LookupMiss, LookupWalk
from weft.rules import walk as rules

TIMER = "lookup"
_AT_ONCE_MAX = 64
"""guess: bounds the walks of a peer that subscribes to very many topics at once."""


class _Search:
    __slots__ = ("found", "topic", "walks")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.walks = 0
        self.found: list[Contact] = []


class Lookup:
    """Lookups this peer has started, and its answers to others' walks."""

    def __init__(self, ctx: Context, table: AccessPoints, view: Cyclon) -> None:
        self._ctx = ctx
        self._table = table
        self._view = view
        self._searches: dict[int, _Search] = {}
        self._waiting: dict[int, Topic] = {}

    def start(self, topic: Topic) -> int:
        """Begin a lookup; `LookupDone` with this number follows, perhaps at once."""
        number = self._ctx.next_serial()
        known = self._table.find(topic)
        if known is not None and known.peer != self._ctx.me.peer:
            self._ctx.tell(LookupDone(number, topic, (known,)))
        elif len(self._searches) >= _AT_ONCE_MAX:
            self._waiting[number] = topic
        else:
            self._walk(number, topic)
        return number

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

    def _walk(self, number: int, topic: Topic) -> None:
        ctx, tera = self._ctx, self._ctx.config.tera
        starts = self._view.sample(tera.walks)
        if not starts:
            ctx.tell(LookupDone(number, topic, ()))
            return
        search = self._searches[number] = _Search(topic)
        steps = rules.steps_of_each(self.visits(), len(starts))
        search.walks = len(starts)
        for contact in starts:
            ctx.send(contact, LookupWalk(topic, ctx.me, number, steps - 1))
        ctx.set_timer(tera.lookup_timeout_ms, TIMER, topic, number)
        ctx.counters["lookups"] += 1

    # --- others' walks ----------------------------------------------------------------------------

    def on_walk(self, message: LookupWalk, subscribed: bool) -> None:
        ctx = self._ctx
        if message.origin.peer == ctx.me.peer:  # came home: the visit counts, we know nothing
            subscribed = False
        answer = None
        if subscribed and ctx.config.tera.answer_from_subscriptions:
            answer = ctx.me
        elif message.origin.peer != ctx.me.peer:
            answer = self._table.find(message.topic)
        if answer is not None and answer.peer != message.origin.peer:
            ctx.send(message.origin, LookupHit(message.lookup, answer))
            return
        onward = self._view.neighbour() if message.steps > 0 else None
        if onward is not None:
            walk = LookupWalk(message.topic, message.origin, message.lookup, message.steps - 1)
            ctx.send(onward, walk)
        elif message.origin.peer == ctx.me.peer:
            self.on_miss(LookupMiss(message.lookup))
        else:
            ctx.send(message.origin, LookupMiss(message.lookup))

    # --- answers ----------------------------------------------------------------------------------

    def on_hit(self, message: LookupHit) -> None:
        search = self._searches.get(message.lookup)
        if search is None or message.access_point.peer == self._ctx.me.peer:
            return
        search.found.append(message.access_point)
        self._finish(message.lookup, search)

    def on_miss(self, message: LookupMiss) -> None:
        search = self._searches.get(message.lookup)
        if search is None:
            return
        search.walks -= 1
        if search.walks <= 0:
            self._finish(message.lookup, search)

    def on_timer(self, number: int) -> None:
        search = self._searches.get(number)
        if search is not None:
            self._finish(number, search)

    def _finish(self, number: int, search: _Search) -> None:
        del self._searches[number]
        if not search.found:
            self._ctx.counters["lookups_empty"] += 1
        self._ctx.tell(LookupDone(number, search.topic, tuple(search.found)))
        if self._waiting:
            waiting, topic = next(iter(self._waiting.items()))
            del self._waiting[waiting]
            self._walk(waiting, topic)
