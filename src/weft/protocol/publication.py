"""Event management for topics this peer is not subscribed to (TERA, Section 3), for all routings.

The event is handed to one access point, found by a lookup of the routing, which spreads it in the
topic. The access point says whether it took the event: a stale one (no longer subscribed, or gone)
is forgotten and the next one tried. The publisher always learns the outcome.

An event waits, up to a deadline, while there may be a subscriber that could get it: while this peer
has no neighbours at all, after several access points in a row turned out stale, and after a lookup
that went astray, which says nothing about subscribers. Only a lookup that came to its end without
finding anybody does, and very many peers in a row that live and refuse the event. (After a crash of
many peers the tables are full of stale access points, and walks die on the way, while the
subscribers that are left know each other again within seconds.)

Deviation: the paper discards an event whose lookup finds nobody; here the caller is told.

An access point may lie: it says that it took the event, and drops it. So once the first has the
event, further ones are looked up, away from those known, and get it as well, as do all later events
of the topic; it counts as delivered when two have it, if there are two. A few seconds later it is
shown to others yet, and again: members that have it know it, and one that lacks it spreads it.

In a hierarchy many a level above has no subscribers, and a lookup that finds nobody is the
dearest. So events that climb to a level where nobody was found just now wait a little for each
other, and one lookup serves them all. None is given up: a peer that subscribes meanwhile is found.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from weft.bounded import BoundedDict
from weft.documents.run import Run
from weft.ids import Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context, LookupDone
from weft.protocol.multi_topic import MultiTopic, without_payload
from weft.protocol.routing import Routing
from weft.protocol.seam import Answer, Millis, Outcome
from weft.protocol.wire import Counter, Message, WireReason

AVOID_MAX = 8
"""guess: stale access points named in a lookup."""


class RouteEvent(Message, frozen=True, tag=14):
    """Hands a run of the sender's own to a member of its topic."""

    asks: ClassVar[bool] = True

    topic: WireTopic
    run: Run
    again: bool = False  # the payload is left out: it came in another of the event's topics


class RouteResult(Message, frozen=True, tag=15):
    topic: WireTopic
    incarnation: Counter
    number: Counter  # of the run's first event
    accepted: bool  # False: not subscribed (any more), choose another access point
    reason: WireReason = ""  # or it refuses the run, and why


TIMER = "route"
_ACCEPTED = 2
"""guess: access points that must have an event, where as many are known."""
_OTHERS = 3
"""guess: access points beside the first. Where 30 % of all peers are hostile and say that they are
one, all four are in one case of 120."""
_COPY_MS = 300
"""guess: an event has spread by then. One that enters at several places at once would tear the
tree (measured: 99th percentile 0.6 s in place of 0.2)."""
_AGAIN_MS = 5_000
"""guess: after so long events are shown to other access points …"""
_AGAIN_TIMES = 2
"""guess: … so often: then one case of 170,000 is left."""
_AGAIN_EVENTS = 64
"""guess: events of one topic that wait to be shown again."""
_ROUTES_MAX = 256
"""guess: access points remembered for topics published to lately."""
_REST_MS = 500
"""guess: the first pause of an event before it is tried anew; doubles up to …"""
_REST_MS_MAX = 5_000
"""guess: … this."""
_CROWDED = "too many publishes were waiting"
_ISOLATED = "this peer met no other in time"
_LEFT = "this peer left the network"
_LATE = "no access point took it in time"
_REFUSED = (
    "the topic's peers did not take it, though they were reached: its owners may not let this peer "
    "publish, and where they choose their publishers one needs a store"
)
_REFUSED_MAX = 16
"""guess: with four of them between pauses, an event was refused for 3.5 s; where members refuse it
for its publisher's sake (history), they all do."""
_GATHER_MS = 1_000
"""guess: how long after a lookup that found nobody the next one for events that climb begins."""


class Limits(Protocol):
    """The settings of this layer. They are named `tera.…` in files, since TERA was first to need
    them."""

    @property
    def route_timeout_ms(self) -> Millis: ...

    @property
    def route_attempts(self) -> int: ...

    @property
    def pending_max(self) -> int: ...

    @property
    def pending_ms_max(self) -> Millis: ...


class _Pending:
    """A run on its way to an access point."""

    __slots__ = (
        "accepted",
        "attempts",
        "climbs",
        "contact",
        "deadline",
        "lookup",
        "queued",
        "reason",
        "refused",
        "rest_ms",
        "run",
        "sent",
        "token",
        "topic",
    )

    def __init__(self, token: int, topic: Topic, run: Run, deadline: Millis, climbs: bool) -> None:
        self.token = token
        self.topic = topic
        self.run = run
        self.deadline = deadline
        self.climbs = climbs
        self.attempts = 0
        self.lookup = 0  # the lookup it waits for
        self.contact: Contact | None = None  # the access point it waits for
        self.sent = 0
        self.queued = False  # the publisher was told that it waits
        self.refused = 0  # by peers that live
        self.reason = ""  # that one of them gave
        self.rest_ms = _REST_MS
        self.accepted: dict[PeerId, Contact] = {}  # access points that say that they have it


class _Doubted:
    """Events of one topic that are to be shown to further access points."""

    __slots__ = ("events", "found", "others", "seeking", "times", "used")

    def __init__(self) -> None:
        self.others: list[Contact] = []  # that get each event
        self.found = 0  # of late
        self.seeking = False
        self.events: BoundedDict[int, Run] = BoundedDict(_AGAIN_EVENTS)  # by number
        self.times: BoundedDict[int, int] = BoundedDict(_AGAIN_EVENTS)  # shown so often
        self.used: BoundedDict[PeerId, None] = BoundedDict(AVOID_MAX)


class Publishing:
    """Events this peer publishes in topics it is not subscribed to."""

    def __init__(
        self, ctx: Context, limits: Limits, routing: Routing, multi_topic: MultiTopic
    ) -> None:
        self._ctx = ctx
        self._limits = limits
        self._routing = routing
        self._multi_topic = multi_topic
        self._pending: dict[tuple[Topic, int], _Pending] = {}
        self._by_lookup: dict[int, list[tuple[Topic, int]]] = {}
        self._lookup_of: dict[Topic, int] = {}
        self._routes: BoundedDict[Topic, Contact] = BoundedDict(_ROUTES_MAX)
        self._doubted: BoundedDict[Topic, _Doubted] = BoundedDict(_ROUTES_MAX)
        self._doubts: dict[int, Topic] = {}  # lookups for these
        self._again: dict[int, Topic] = {}  # timers of these
        self._copies: dict[int, tuple[Topic, int]] = {}  # timers of events for other access points
        self._isolated: dict[tuple[Topic, int], None] = {}
        # Access points that failed lately.
        self._stale: BoundedDict[Topic, BoundedDict[PeerId, None]] = BoundedDict(_ROUTES_MAX)
        self._awaiting: dict[int, tuple[Topic, int]] = {}  # timers of events sent
        self._resting: dict[int, tuple[Topic, int]] = {}  # timers of events that pause
        self._nobody: BoundedDict[Topic, Millis] = BoundedDict(_ROUTES_MAX)  # nobody was found then
        self._gathering: dict[int, Topic] = {}  # timers of lookups that are put off

    @property
    def waiting(self) -> int:
        return len(self._pending)

    def publish(
        self, token: int, topic: Topic, run: Run, isolated: bool, climbs: bool = False
    ) -> None:
        """Hand a run to an access point. `climbs`: the event was published in a sub-topic, and
        the caller does not wait for its outcome in this one."""
        ctx = self._ctx
        if len(self._pending) >= self._limits.pending_max:
            ctx.counters["publishes_refused"] += 1
            ctx.out.append(Answer(token, "dropped", None, run, reason=_CROWDED))
            return
        deadline = ctx.now + self._limits.pending_ms_max
        pending = _Pending(token, topic, run, deadline, climbs)
        self._pending[(topic, run.first)] = pending
        if isolated:
            self._isolated[(topic, run.first)] = None
            self._tell_queued(pending)
        else:
            self._route(pending)

    def on_neighbours(self) -> None:
        """The peer has neighbours (again): send on what waited for them."""
        waiting = [*self._isolated, *self._resting.values()]
        self._isolated.clear()
        self._resting.clear()
        for key in waiting:
            if key in self._pending:
                self._route(self._pending[key])

    def run_cycle(self) -> None:
        """Give up on events that waited too long for any neighbour."""
        for key in list(self._isolated):
            pending = self._pending.get(key)
            if pending is None:
                del self._isolated[key]
            elif pending.deadline <= self._ctx.now:
                del self._isolated[key]
                self._finish(pending, "dropped", None, _ISOLATED)

    def close(self) -> None:
        """This peer leaves: what is still on its way is given up."""
        for pending in list(self._pending.values()):
            self._finish(pending, "dropped", None, _LEFT)

    # --- finding the way -------------------------------------------------------------------------

    def _route(self, pending: _Pending) -> None:
        contact = self._routes.get(pending.topic)
        if contact is not None:
            self._send(pending, contact)
            return
        key = (pending.topic, pending.run.first)
        running = self._lookup_of.get(pending.topic)
        if running is not None and (running not in self._gathering or pending.climbs):
            self._by_lookup[running].append(key)  # one lookup serves all that wait for this topic
        elif pending.climbs and self._may_gather(pending.topic):
            number = self._ctx.next_serial()
            self._gathering[number] = pending.topic
            self._lookup_of[pending.topic] = number
            self._by_lookup[number] = [key]
            self._ctx.set_timer(_GATHER_MS, TIMER, pending.topic, number)
        else:
            self._look_up(pending.topic, [key])

    def _look_up(self, topic: Topic, keys: list[tuple[Topic, int]]) -> None:
        """For these events, and for those that are gathering for the same topic."""
        gathered = self._lookup_of.pop(topic, None)
        if gathered is not None:
            del self._gathering[gathered]
            keys = [*self._by_lookup.pop(gathered), *keys]
        # The answer may come at once, but as a signal, so it is seen only after this returns.
        number = self._routing.find(topic, self._stale.get(topic, ()))
        self._lookup_of[topic] = number
        self._by_lookup[number] = keys

    def _may_gather(self, topic: Topic) -> bool:
        """Whether an event may wait: nobody was found just now, and there is room for many."""
        found_nobody = self._nobody.get(topic)
        if found_nobody is None or self._ctx.now - found_nobody >= _GATHER_MS:
            return False
        return 2 * len(self._pending) < self._limits.pending_max

    def on_lookup_done(self, done: LookupDone) -> None:
        if self._doubts.pop(done.lookup, None) is not None:
            self._on_others(done.topic, done.contacts)
            return
        waiting = self._by_lookup.pop(done.lookup)
        del self._lookup_of[done.topic]
        if done.contacts:
            self._routes[done.topic] = done.contacts[0]
        else:
            self._nobody.renew(done.topic, self._ctx.now)
        # With nobody else there, those that failed lately get another chance.
        again = not done.contacts and self._stale.pop(done.topic, None) is not None
        for key in waiting:
            pending = self._pending.get(key)
            if pending is None:
                continue
            if done.contacts:
                self._send(pending, done.contacts[0])
            elif again:
                self._route(pending)
            elif done.lost:
                self._rest(pending)
            else:
                self._finish(pending, "no_subscriber", None)

    def _send(self, pending: _Pending, contact: Contact) -> None:
        ctx = self._ctx
        pending.attempts += 1
        pending.contact = contact
        pending.sent = ctx.next_serial()
        anew = pending.attempts > 1 or not self._routing.shares_events
        ctx.send(contact, self._route_event(contact, pending, anew))
        self._send_to_others(pending)
        timer = pending.sent
        self._awaiting[timer] = (pending.topic, pending.run.first)
        ctx.set_timer(self._limits.route_timeout_ms, TIMER, pending.topic, timer)

    # --- access points that lie -------------------------------------------------------------------

    def _send_to_others(self, pending: _Pending) -> None:
        """One access point may drop the event: the others that are known get it, too."""
        doubted = self._doubted.get(pending.topic)
        if doubted is not None and doubted.others and pending.contact is not None:
            doubted.used.renew(pending.contact.peer, None)
            self._note_doubt(pending, doubted)
            self._copy_later(pending.topic, pending.run.first)

    def _doubt(self, pending: _Pending, taker: Contact) -> None:
        """One says that it has the event: look for others that would know. Only TERA's lookups find
        others; those of the DHTs lead to the peers that are responsible for the topic."""
        config = self._ctx.config
        if not config.defence.access or config.routing != "tera":
            return
        doubted = self._doubted.get(pending.topic)
        if doubted is None:
            doubted = _Doubted()
            self._doubted[pending.topic] = doubted
        doubted.used.renew(taker.peer, None)
        self._note_doubt(pending, doubted)
        self._seek_others(pending.topic, doubted)

    def _note_doubt(self, pending: _Pending, doubted: _Doubted) -> None:
        number = pending.run.first
        if not doubted.events:
            self._doubt_later(pending.topic)
        if number not in doubted.events:
            doubted.events[number] = pending.run
            doubted.times[number] = 0

    def _copy_later(self, topic: Topic, number: int) -> None:
        serial = self._ctx.next_serial()
        self._copies[serial] = topic, number
        self._ctx.set_timer(_COPY_MS, TIMER, topic, serial)

    def _copy(self, topic: Topic, number: int) -> None:
        """By now the first access point has spread the event, and the others have it."""
        doubted = self._doubted.get(topic)
        event = doubted.events.get(number) if doubted is not None else None
        if doubted is not None and event is not None:
            for other in doubted.others:
                self._ctx.send(other, RouteEvent(topic, event))

    def _seek_others(self, topic: Topic, doubted: _Doubted) -> None:
        if not doubted.seeking and doubted.found < _OTHERS:
            doubted.seeking = True
            self._doubts[self._routing.find(topic, doubted.used)] = topic

    def _doubt_later(self, topic: Topic) -> None:
        serial = self._ctx.next_serial()
        self._again[serial] = topic
        self._ctx.set_timer(_AGAIN_MS, TIMER, topic, serial)

    def _on_others(self, topic: Topic, contacts: tuple[Contact, ...]) -> None:
        """Further access points were found, or none."""
        doubted = self._doubted.get(topic)
        if doubted is None:
            return
        doubted.seeking = False
        for contact in contacts[:1]:
            doubted.used.renew(contact.peer, None)
            doubted.others = [*doubted.others, contact][-_OTHERS:]
            doubted.found += 1
            for number, event in doubted.events.items():
                if doubted.times.get(number):
                    self._ctx.send(contact, RouteEvent(topic, event))
                else:
                    self._copy_later(topic, number)
        if contacts:
            self._seek_others(topic, doubted)
        for pending in [one for one in self._pending.values() if one.topic == topic]:
            self._conclude(pending)

    def _show_again(self, topic: Topic) -> None:
        """Time for other access points; if there are none, those known are good enough."""
        doubted = self._doubted.get(topic)
        if doubted is None:
            return
        for number, times in list(doubted.times.items()):
            if number in doubted.events and times < _AGAIN_TIMES:
                doubted.times[number] = times + 1
            else:
                del doubted.times[number]
                doubted.events.pop(number, None)
        if doubted.events:
            doubted.found = 0
            self._seek_others(topic, doubted)
            self._doubt_later(topic)

    def _conclude(self, pending: _Pending) -> None:
        """Delivered, if as many access points say so as can be asked."""
        doubted = self._doubted.get(pending.topic)
        known = 1 if doubted is None else 1 + len(doubted.others) + doubted.seeking
        if pending.accepted and len(pending.accepted) >= min(_ACCEPTED, known):
            self._stale.pop(pending.topic, None)
            self._finish(pending, "delivered", next(iter(pending.accepted.values())))

    def _route_event(self, to: Contact, pending: _Pending, anew: bool) -> RouteEvent:
        """An event of several topics goes to an access point with its payload once; `anew`: what
        was sent before may be lost."""
        run = pending.run
        if not run.parts or self._multi_topic.crosses(to, run) or anew:
            return RouteEvent(pending.topic, run)
        return RouteEvent(pending.topic, without_payload(run), True)

    # --- what became of it -----------------------------------------------------------------------

    def on_result(self, sender: Contact, message: RouteResult) -> None:
        pending = self._pending.get((message.topic, message.number))
        if pending is None or message.incarnation != self._ctx.incarnation:
            return
        if message.accepted:
            pending.accepted[sender.peer] = sender
            self._doubt(pending, sender)
            self._conclude(pending)
        elif pending.contact is not None and pending.contact.peer == sender.peer:
            pending.refused += 1
            pending.reason = pending.reason or message.reason
            if pending.refused < _REFUSED_MAX:
                self._retry(pending)
            else:
                self._finish_refused(pending)

    def on_timer(self, serial: int) -> None:
        topic = self._gathering.get(serial)
        if topic is not None:
            self._look_up(topic, [])
            return
        copied = self._copies.pop(serial, None)
        if copied is not None:
            self._copy(*copied)
            return
        topic = self._again.pop(serial, None)
        if topic is not None:
            self._show_again(topic)
            return
        resting = self._resting.pop(serial, None)
        if resting is not None:
            if resting in self._pending:
                self._route(self._pending[resting])
            return
        key = self._awaiting.pop(serial, None)
        pending = self._pending.get(key) if key is not None else None
        if pending is not None and pending.sent == serial:
            self._retry(pending)

    def on_peer_lost(self, peer: PeerId) -> None:
        for topic in [t for t, contact in self._routes.items() if contact.peer == peer]:
            del self._routes[topic]
        for pending in list(self._pending.values()):
            if pending.contact is not None and pending.contact.peer == peer:
                self._retry(pending)

    def on_peer_doubted(self, peer: PeerId) -> None:
        """An access point owes its answer: another one will do, and an event that comes twice is
        known."""
        for pending in list(self._pending.values()):
            if pending.contact is not None and pending.contact.peer == peer:
                self._retry(pending)

    def _retry(self, pending: _Pending) -> None:
        """The access point was stale: forget it and look for another."""
        if pending.accepted:  # one has it, and others do not answer
            self._finish(pending, "delivered", next(iter(pending.accepted.values())))
            return
        stale = pending.contact
        pending.contact = None
        pending.sent = 0
        if stale is not None:
            self._ctx.counters["access_points_stale"] += 1
            self._routing.forget_entry(pending.topic, stale.peer)
            self._stale.setdefault(pending.topic, BoundedDict(AVOID_MAX))[stale.peer] = None
            route = self._routes.get(pending.topic)
            if route is not None and route.peer == stale.peer:
                del self._routes[pending.topic]
        if pending.attempts % self._limits.route_attempts == 0:
            self._rest(pending)
        else:
            self._route(pending)

    def _rest(self, pending: _Pending) -> None:
        """Try again after a pause, until the event's time is up."""
        ctx = self._ctx
        left_ms = pending.deadline - ctx.now
        if left_ms <= 0:
            if pending.refused:
                self._finish_refused(pending)
            else:
                self._finish(pending, "dropped", None, _LATE)
            return
        self._tell_queued(pending)
        serial = ctx.next_serial()
        self._resting[serial] = (pending.topic, pending.run.first)
        ctx.set_timer(min(pending.rest_ms, left_ms), TIMER, pending.topic, serial)
        pending.rest_ms = min(2 * pending.rest_ms, _REST_MS_MAX)

    def _finish_refused(self, pending: _Pending) -> None:
        """Peers that live did not take the event: for the reason that they gave, if they did."""
        if pending.reason:
            self._finish(pending, "refused", None, pending.reason)
        else:
            self._finish(pending, "dropped", None, _REFUSED)

    def _tell_queued(self, pending: _Pending) -> None:
        if not pending.queued:
            pending.queued = True
            self._ctx.out.append(Answer(pending.token, "queued", None, pending.run))

    def _finish(
        self, pending: _Pending, outcome: Outcome, contact: Contact | None, reason: str = ""
    ) -> None:
        del self._pending[(pending.topic, pending.run.first)]
        self._awaiting.pop(pending.sent, None)
        self._ctx.out.append(Answer(pending.token, outcome, contact, pending.run, reason=reason))
