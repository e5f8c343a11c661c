"""Event management for topics this peer is not subscribed to (TERA, Section 3), for all routings.

The event is handed to one access point, found by a lookup of the routing, which spreads it in the
topic. The access point says whether it took the event: a stale one (no longer subscribed, or gone)
is forgotten and the next one tried. The publisher always learns the outcome.

An event waits, up to a deadline, while there may be a subscriber that could get it: while this peer
has no neighbours at all, after several access points in a row turned out stale, and after a lookup
that went astray, which says nothing about subscribers. It ends without a subscriber only if a
lookup came to its end and found nobody, or if very many live peers in a row refused the event.
(After a crash of many peers the tables are full of stale access points, and walks die on the way,
while the remaining subscribers know each other again within seconds.)

Deviation: the paper discards an event whose lookup finds nobody; here the caller is told.

An access point may lie: it says that it took the event, and drops it. So once the first access
point has the event, others are looked up and asked whether it has come to them (`RouteCheck`:
numbers, no payload), as they are about all later events of the topic; the event counts as delivered
when two have it, if two can be found. An access point that still lacks the event after it should
have spread is sent it, one at a time, and spreads it; if that helps, later events go there first. A
few seconds later still others are asked, and again. If peers were lost about that time, or if no
second access point has said that it has the event, those that took it may be liars, or all that was
left in this part of the network: others are asked three more times, until some minutes later, and
for as long as members hold events. The same holds if a round of questions brought no answer, or if
an access point that lacked the event has not said since that it has it: questions, walks and
answers get lost. A question without an answer is repeated in the next round. In a small topic most
of the peers that say that they are in it may be liars. So from the second round on all known access
points are asked, and others looked for, until twenty have the event or a lookup finds nobody else:
a publisher then asks more peers than there are liars, if those are fewer than twenty.

A publisher need not wait for an answer before it publishes more. Runs go to the same access point
in their order; if that fails, all runs that it has not taken go to the next one, in their order.

In a hierarchy many of the upper levels have no subscribers, and a lookup that finds nobody costs
most. So events that climb to a level where nobody was found just now wait a little for each other,
and one lookup serves them all. None is given up: a peer that subscribes meanwhile is found.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Protocol, TypeAlias

from msgspec import Meta

from weft.bounded import BoundedDict
from weft.documents.run import Run
from weft.ids import Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context, LookupDone
from weft.protocol.multi_topic import MultiTopic, without_payload
from weft.protocol.recent import Recent
from weft.protocol.routing import Routing
from weft.protocol.seam import Answer, Millis, Outcome
from weft.protocol.wire import LIST_MAX, Counter, Message, WireReason

AVOID_MAX = 8
"""guess: stale access points named in a lookup."""

Numbers: TypeAlias = Annotated[list[Counter], Meta(max_length=LIST_MAX)]
"""The numbers of the first events of runs."""


class RouteEvent(Message, frozen=True, tag=14):
    """Hands a run of the sender's own to a member of its topic."""

    asks: ClassVar[bool] = True
    carries: ClassVar[bool] = True

    topic: WireTopic
    run: Run
    again: bool = False  # the payload is left out: it came in another of the event's topics


class RouteResult(Message, frozen=True, tag=15):
    """Answers `RouteEvent`: whether the member took the run."""

    topic: WireTopic
    incarnation: Counter
    number: Counter  # of the run's first event
    accepted: bool  # False: not subscribed (any more), choose another access point
    reason: WireReason = ""  # or it refuses the run, and why


class RouteCheck(Message, frozen=True, tag=47):
    """Asks a member of a topic whether runs of the sender's own have come to it."""

    asks: ClassVar[bool] = True

    topic: WireTopic
    incarnation: Counter
    numbers: Numbers


class RouteKnown(Message, frozen=True, tag=48):
    """The answer. A number in neither list was passed over: nothing is known of its run."""

    topic: WireTopic
    incarnation: Counter
    taken: Numbers
    lacking: Numbers
    member: bool = True  # False: not subscribed (any more), ask another access point


TIMER = "route"
_ACCEPTED = 2
"""guess: access points that must have an event, where as many are known."""
OTHERS = 3
"""guess: access points beside the first. Where 30 % of all peers are hostile and say that they are
access points, all four are hostile in one case of 120."""
_CHECK_MS = 50
"""guess: questions to the others are gathered for so long, as announcements are."""
_SPREAD_MS = 300
"""guess: an event has spread by then. One that enters at several places at once would tear the
tree (measured: 99th percentile 0.6 s in place of 0.2)."""
_AGAIN_MS = 5_000
"""guess: after so long events are shown to other access points …"""
_AGAIN_TIMES = 2
"""guess: … so often; then all that were asked are hostile in one case of 170,000."""
_LOSS_MS = 120_000
"""guess: if a peer was lost so shortly before an event, others may have been out of reach …"""
_LATER_MS = 30_000
"""guess: … so others are asked after so long, then after twice and four times as much …"""
_LATER_TOGETHER_MS = 10_000
"""guess: … and for the events of so long a time at once."""
_LATER_TIMES = 3
"""guess: the last time 220 s after the event; a cut of 100 s is over by then. Where members hold
events for longer, so does this."""
ENOUGH, KNOWN_MAX = 20, 24
"""guess: access points that must have an event, if so many can be found, of those asked …"""
_WIDE_TIMES = 4
"""guess: … in so many rounds, since walks that meet liars say nothing."""
_AGAIN_RUNS = 256
"""guess: runs of one topic that others are asked about; a second of a publisher at full speed …"""
_AGAIN_BYTES = 4 << 20
"""guess: … and bytes of their payloads, as many as members hold."""
_ROUTES_MAX = 4_096
"""guess: access points remembered for topics published to lately. With 256, a gateway of 1,000
sensors looked each of them up again for each event, and had its receipts after 5.5 s (now 0.7)."""
_REST_MS = 500
"""guess: the first pause of an event before it is tried anew; doubles up to `_REST_MS_MAX`."""
_REST_MS_MAX = 5_000
"""guess: the longest such pause."""
_CROWDED = "too many publishes were waiting"
_ISOLATED = "this peer met no other peer in time"
_LEFT = "this peer left the network"
_LATE = "no subscriber that this peer could find took it in time"
_REFUSED = (
    "the topic's peers did not take it, though they were reached: its owners may not let this peer "
    "publish, and where they choose their publishers a publisher needs a store"
)
_REFUSED_MAX = 16
"""guess: refusals after which an event is given up; with four attempts between pauses they take
3.5 s. Members that do not let its publisher publish (history) all refuse it."""
_ROUNDS = 2
"""guess: how often all access points that can be found must refuse an event before its publisher is
told; half a second lies between."""
_GATHER_MS = 1_000
"""guess: how long after a lookup that found nobody the next one for events that climb begins."""


def answer_check(
    ctx: Context, sender: Contact, message: RouteCheck, recent: Recent | None, entering: bool
) -> None:
    """Answer a publisher outside of the topic that asks whether its runs have come here. `recent`:
    None if this peer is no member. A member that is `entering` cannot say yet what it lacks."""
    topic, life = message.topic, message.incarnation
    if recent is None:
        ctx.send(sender, RouteKnown(topic, life, [], [], False))
        return
    known = {number: recent.vouches(sender.peer, life, number) for number in message.numbers}
    taken = [number for number, vouched in known.items() if vouched]
    lacking = [number for number, vouched in known.items() if vouched is False]
    ctx.send(sender, RouteKnown(topic, life, taken, [] if entering else lacking))


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
        *("accepted", "attempts", "climbs", "contact", "deadline", "lookup", "queued", "reason"),
        *("refused", "rest_ms", "rounds", "run", "sent", "token", "topic"),
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
        self.refused = 0  # how many live peers refused it
        self.reason = ""  # that one of them gave
        self.rounds = 0  # in which all access points that could be found gave a reason
        self.rest_ms = _REST_MS
        self.accepted: dict[PeerId, Contact] = {}  # access points that say that they have it


class _Shown:
    """A run that others are asked about."""

    __slots__ = (
        *("due", "gave", "given", "heard", "lacked", "later", "run", "said", "since", "times"),
    )

    def __init__(self, run: Run, now: Millis) -> None:
        self.run = run
        self.since = now  # it is on its way
        self.due = now + _AGAIN_MS  # when still others are looked for
        self.times = 0  # how often this was done …
        self.later = 0  # … and how often it was put off for long
        self.lacked: dict[PeerId, None] = {}  # peers that did not have it when they were asked
        self.given: dict[PeerId, None] = {}  # of these, the ones that were sent it in this round
        self.gave = now  # when a peer was sent it last
        self.heard = False  # an answer about it came since others were last looked for
        self.said: dict[PeerId, None] = {}  # peers that say that they have it

    def go_on(self, due: Millis) -> None:
        """One more round of questions begins; the next one is due then."""
        self.due = due
        self.times += 1
        self.heard = False
        self.given.clear()

    @property
    def is_lacked(self) -> bool:
        """Whether a peer that did not have it has not said since that it has."""
        return not self.lacked.keys() <= self.said.keys()


class _Other:
    """An access point beside the first."""

    __slots__ = ("contact", "newest", "newest_then", "to_ask", "to_ask_again", "unanswered")

    def __init__(self, contact: Contact) -> None:
        self.contact = contact
        self.to_ask: dict[int, None] = {}  # numbers of runs
        self.to_ask_again: dict[int, None] = {}  # of runs that may be on their way to it
        self.unanswered: dict[int, None] = {}  # of runs that it was asked about
        self.newest = 0  # the highest number of the runs that it has
        self.newest_then = 0  # the same when a run was last put off for it


class _Doubted:
    """Runs of one topic that one access point has, if it does not lie."""

    __slots__ = (
        *("asking", "asking_again", "bytes", "due", "exhausted", "found", "others", "rests"),
        *("runs", "seeking", "used", "wanted"),
    )

    def __init__(self) -> None:
        self.others: dict[PeerId, _Other] = {}  # the latest few are asked about each run at once
        self.found = 0  # others found in this round …
        self.wanted = OTHERS  # … of those wanted
        self.due: Millis | None = None  # when still others are looked for
        self.seeking = False  # a lookup for them is under way
        self.rests = False  # the last lookup found too few, so no further one is begun
        self.exhausted = False  # there is nobody else, as far as lookups tell
        self.asking = False  # the timer for questions is set
        self.asking_again = False  # and the one for questions that were put off
        self.runs: BoundedDict[int, _Shown] = BoundedDict(_AGAIN_RUNS)  # by number
        self.bytes = 0  # of these runs
        self.used: BoundedDict[PeerId, None] = BoundedDict(KNOWN_MAX + AVOID_MAX)  # to be avoided

    def show(self, run: Run, now: Millis) -> None:
        """Ask about one more run; for want of room the oldest are dropped."""
        gone = self.runs.put(run.first, _Shown(run, now))
        self.bytes += run.size
        if gone is not None:
            self._forget(gone.run)
        while self.bytes > _AGAIN_BYTES and len(self.runs) > 1:
            self.drop(next(iter(self.runs)))

    def note_taken(self, number: int, taker: PeerId) -> None:
        """An access point says that it has a run."""
        if number in self.runs:
            self.runs[number].said[taker] = None
            self.runs[number].heard = True

    def drop(self, number: int) -> None:
        self._forget(self.runs.pop(number).run)

    def _forget(self, run: Run) -> None:
        self.bytes -= run.size
        for other in self.others.values():
            other.unanswered.pop(run.first, None)

    def release(self) -> bool:
        """Nobody else was found: let lookups find again the access points that were asked about
        earlier runs only, and dropped since. Without them only liars might be left. Returns whether
        there are any."""
        runs = self.runs.values()
        idle = [peer for peer in self.used if peer not in self.others]
        again = [peer for peer in idle if any(peer not in shown.said for shown in runs)]
        for peer in again:
            del self.used[peer]
        return bool(again)

    def admit(self, contact: Contact) -> _Other:
        """Ask one more access point. For want of room the one known for longest is dropped; one
        that owes an answer only after those, and one that lacks a run last."""
        self.used.renew(contact.peer, None)
        self.others.pop(contact.peer, None)
        while len(self.others) >= KNOWN_MAX:
            del self.others[min(self.others, key=self._stays)]
        other = self.others[contact.peer] = _Other(contact)
        self.found += 1
        return other

    def lose(self, peer: PeerId) -> None:
        """An access point is gone; if it comes back, a lookup may find it again."""
        if self.others.pop(peer, None) is not None:
            self.used.pop(peer, None)

    def _stays(self, peer: PeerId) -> int:
        """How much there is still to learn of an access point: 0, 1 or 2."""
        other = self.others[peer]
        return 2 if other.to_ask_again or self.lacked_by(peer) else int(bool(other.unanswered))

    def lacked_by(self, peer: PeerId) -> list[int]:
        """The runs that an access point did not have, and has not said since that it has."""
        runs = self.runs.items()
        return [one for one, shown in runs if peer in shown.lacked and peer not in shown.said]


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
        self._narrow: set[int] = set()  # lookups that avoided access points that failed lately
        self._routes: BoundedDict[Topic, Contact] = BoundedDict(_ROUTES_MAX)
        self._took: BoundedDict[Topic, PeerId] = BoundedDict(_ROUTES_MAX)  # took an event last
        self._doubted: BoundedDict[Topic, _Doubted] = BoundedDict(_ROUTES_MAX)
        self._doubts: dict[int, Topic] = {}  # lookups for other access points
        self._again: dict[int, Topic] = {}  # timers of the next round of questions
        self._checks: dict[int, Topic] = {}  # timers of questions to other access points
        self._checks_again: dict[int, Topic] = {}  # timers of questions that were put off
        self._isolated: dict[tuple[Topic, int], None] = {}
        # Access points that failed lately.
        self._stale: BoundedDict[Topic, BoundedDict[PeerId, None]] = BoundedDict(_ROUTES_MAX)
        self._awaiting: dict[int, tuple[Topic, int]] = {}  # timers of events sent
        self._resting: dict[int, tuple[Topic, int]] = {}  # timers of events that pause
        self._nobody: BoundedDict[Topic, Millis] = BoundedDict(_ROUTES_MAX)  # nobody was found then
        self._gathering: dict[int, Topic] = {}  # timers of lookups that are put off
        self._lost_ms: Millis = -_LOSS_MS  # when a peer was last lost

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

    def streams(self, topic: Topic) -> bool:
        """Whether an access point that has taken events is at hand, so that the next ones need not
        wait for its answers."""
        route = self._routes.get(topic)
        return route is not None and self._took.get(topic) == route.peer

    def go_on(self, token: int) -> None:
        """The caller of the latest publish does not wait for its outcome, which follows."""
        latest = next(reversed(self._pending.values()), None)
        if latest is not None and latest.token == token:
            self._tell_queued(latest)

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
        """This peer leaves: runs that are still on their way are given up."""
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
        """Begin a lookup for these events, and for those that gather for the same topic."""
        gathered = self._lookup_of.pop(topic, None)
        if gathered is not None:
            del self._gathering[gathered]
            keys = [*self._by_lookup.pop(gathered), *keys]
        # The answer may come at once, but as a signal, so it is seen only after this returns.
        avoided = self._stale.get(topic, ())
        number = self._routing.find(topic, avoided)
        if avoided:
            self._narrow.add(number)
        self._lookup_of[topic] = number
        self._by_lookup[number] = keys

    def _may_gather(self, topic: Topic) -> bool:
        """Whether an event may wait: a lookup found nobody just now, and few events wait."""
        found_nobody = self._nobody.get(topic)
        if found_nobody is None or self._ctx.now - found_nobody >= _GATHER_MS:
            return False
        return 2 * len(self._pending) < self._limits.pending_max

    def on_lookup_done(self, done: LookupDone) -> None:
        if self._doubts.pop(done.lookup, None) is not None:
            self._on_others(done.topic, done.contacts, done.lost)
            return
        waiting = self._by_lookup.pop(done.lookup)
        del self._lookup_of[done.topic]
        if done.contacts:
            self._routes[done.topic] = done.contacts[0]
        else:
            self._nobody.renew(done.topic, self._ctx.now)
        # If nobody else was found, access points that failed lately are tried once more; also if
        # they have taken another run meanwhile, so that they are not noted as stale any more.
        narrow = done.lookup in self._narrow
        self._narrow.discard(done.lookup)
        again = not done.contacts and (self._stale.pop(done.topic, None) is not None or narrow)
        for key in waiting:
            pending = self._pending.get(key)
            if pending is None:
                continue
            if done.contacts:
                self._send(pending, done.contacts[0])
            elif again and pending.reason:
                self._on_refused_by_all(pending)
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
        doubted = self._doubted.get(pending.topic)
        if doubted is not None and doubted.others:
            self._show(pending, contact, doubted)
        timer = pending.sent
        self._awaiting[timer] = (pending.topic, pending.run.first)
        ctx.set_timer(self._limits.route_timeout_ms, TIMER, pending.topic, timer)

    # --- access points that lie -------------------------------------------------------------------

    def _doubt(self, pending: _Pending, taker: Contact) -> None:
        """An access point says that it has the run: ask others, and look for some."""
        if not self._ctx.config.defence.access:
            return
        doubted = self._doubted.get(pending.topic)
        if doubted is None:
            doubted = self._doubted[pending.topic] = _Doubted()
        self._show(pending, taker, doubted)
        doubted.note_taken(pending.run.first, taker.peer)
        self._seek_others(pending.topic, doubted)

    def _show(self, pending: _Pending, first: Contact, doubted: _Doubted) -> None:
        """Ask the others that are known about a run that went to the first one."""
        topic, number = pending.topic, pending.run.first
        doubted.used.renew(first.peer, None)
        if number in doubted.runs:
            return
        doubted.show(pending.run, self._ctx.now)
        self._doubt_later(topic, doubted)
        for other in list(doubted.others.values())[-OTHERS:]:
            if other.contact.peer != first.peer:
                other.to_ask[number] = None
        self._ask_soon(topic, doubted)

    def _ask_soon(self, topic: Topic, doubted: _Doubted) -> None:
        if not doubted.asking and doubted.others:
            doubted.asking = True
            self._checks[self._set_timer(_CHECK_MS, topic)] = topic

    def _ask_others(self, topic: Topic) -> None:
        """Ask the others whether the latest runs have come to them."""
        doubted = self._doubted.get(topic)
        if doubted is None:
            return
        for other in doubted.others.values():
            numbers = [number for number in other.to_ask if number in doubted.runs]
            other.to_ask.clear()
            other.unanswered.update(dict.fromkeys(numbers))
            for start in range(0, len(numbers), LIST_MAX):
                page = numbers[start : start + LIST_MAX]
                self._ctx.send(other.contact, RouteCheck(topic, self._ctx.incarnation, page))

    def _ask_again(self, topic: Topic) -> None:
        """Ask again about runs that others lacked: by now the first access point spread them."""
        doubted = self._doubted.get(topic)
        if doubted is not None:
            doubted.asking_again = False
            for other in doubted.others.values():
                other.to_ask.update(other.to_ask_again)
                other.to_ask_again.clear()
            self._ask_others(topic)

    def on_known(self, sender: Contact, message: RouteKnown) -> None:
        """Another access point says what has come to it."""
        topic = message.topic
        doubted = self._doubted.get(topic)
        other = doubted.others.get(sender.peer) if doubted is not None else None
        if doubted is None or other is None or message.incarnation != self._ctx.incarnation:
            return
        if not message.member:
            del doubted.others[sender.peer]
            doubted.found -= 1
            self._seek_others(topic, doubted)
            self._conclude_all(topic)
            return
        other.newest = max([other.newest, *message.taken])
        for number in (*message.taken, *message.lacking):
            other.unanswered.pop(number, None)
        for number in message.taken:
            self._note_spread(topic, doubted, number, sender.peer)
            pending = self._pending.get((topic, number))
            if pending is not None:
                pending.accepted[sender.peer] = sender
                self._conclude(pending)
        self._on_lacking(topic, doubted, other, message.lacking)

    def _note_spread(self, topic: Topic, doubted: _Doubted, number: int, taker: PeerId) -> None:
        """An access point says that a run has come to it. If it lacked the run until this peer sent
        it to another one, that one spreads events, and the first did not: later events go there."""
        shown = doubted.runs.get(number)
        if shown is not None and shown.given and taker in shown.lacked and taker not in shown.said:
            other = doubted.others.get(next(reversed(shown.given)))
            if other is not None and other.contact.peer != taker:
                self._routes.renew(topic, other.contact)
        doubted.note_taken(number, taker)

    def _on_lacking(
        self, topic: Topic, doubted: _Doubted, other: _Other, lacking: list[int]
    ) -> None:
        """A run that an access point lacks though it has later ones, or though nothing has come to
        it for a while, did not spread, and is sent to it; any other may be on its way."""
        moves = other.newest != other.newest_then
        pause_ms = _SPREAD_MS
        for number in lacking:
            shown = doubted.runs.get(number)
            if shown is None or other.contact.peer in shown.given:
                continue
            shown.lacked[other.contact.peer] = None
            shown.heard = True
            left_ms = shown.gave + _SPREAD_MS - self._ctx.now
            if left_ms > 0 or (number > other.newest and moves):
                other.to_ask_again[number] = None
                pause_ms = min(pause_ms, left_ms) if left_ms > 0 else pause_ms
            else:
                shown.given[other.contact.peer], shown.gave = None, self._ctx.now
                self._ctx.send(other.contact, RouteEvent(topic, shown.run))
        if other.to_ask_again:
            other.newest_then = other.newest
            if not doubted.asking_again:
                doubted.asking_again = True
                serial = self._set_timer(max(_CHECK_MS, pause_ms), topic)
                self._checks_again[serial] = topic

    def _set_timer(self, after_ms: Millis, topic: Topic) -> int:
        serial = self._ctx.next_serial()
        self._ctx.set_timer(after_ms, TIMER, topic, serial)
        return serial

    def _seek_others(self, topic: Topic, doubted: _Doubted) -> None:
        if not doubted.seeking and not doubted.rests and doubted.found < doubted.wanted:
            doubted.seeking = True
            self._doubts[self._routing.find(topic, doubted.used)] = topic

    def _doubt_later(self, topic: Topic, doubted: _Doubted) -> None:
        """Set the timer of the next round of questions, unless an earlier one is set."""
        due = min(shown.due for shown in doubted.runs.values())
        if doubted.due is None or due < doubted.due:
            doubted.due = due
            self._again[self._set_timer(due - self._ctx.now, topic)] = topic

    def _on_others(self, topic: Topic, contacts: tuple[Contact, ...], lost: bool) -> None:
        """Further access points were found, or none; `lost`: the lookup went astray."""
        doubted = self._doubted.get(topic)
        if doubted is None:
            return
        doubted.seeking = False
        left = doubted.wanted - doubted.found
        wanted = min(max(1, left), OTHERS) if self._routing.finds_several else 1
        doubted.rests = len(contacts) < wanted  # there are no more
        released = doubted.rests and doubted.release()
        doubted.exhausted = doubted.rests and not lost and not released
        for contact in contacts[:wanted]:
            doubted.admit(contact).to_ask.update(dict.fromkeys(doubted.runs))
        if contacts:
            self._ask_others(topic)
            self._seek_others(topic, doubted)
        self._conclude_all(topic)

    def _show_again(self, topic: Topic) -> None:
        """The next round of questions: ask, and look for other access points."""
        doubted, now = self._doubted.get(topic), self._ctx.now
        if doubted is None or doubted.due is None or doubted.due > now:
            return
        doubted.due = None
        due = [number for number, shown in doubted.runs.items() if shown.due <= now]
        for number in due:
            due_ms = self._next_due(doubted.runs[number], doubted)
            if due_ms is None:
                doubted.drop(number)
            else:
                doubted.runs[number].go_on(due_ms)
        doubted.rests = doubted.exhausted = False
        left = [number for number in due if number in doubted.runs]
        if left:
            wide = [number for number in left if doubted.runs[number].times >= _AGAIN_TIMES]
            doubted.found = 0
            doubted.wanted = max(OTHERS, KNOWN_MAX - len(doubted.others)) if wide else OTHERS
            self._ask_open(topic, doubted, wide)
            self._seek_others(topic, doubted)
        if doubted.runs:
            self._doubt_later(topic, doubted)

    def _next_due(self, shown: _Shown, doubted: _Doubted) -> Millis | None:
        """When others are asked about a run after this round; None: it needs no more of them."""
        now, times = self._ctx.now, shown.times + 1
        enough = doubted.exhausted or len(shown.said) >= ENOUGH
        if times < _AGAIN_TIMES:
            return now + _AGAIN_MS
        if not enough and times < _AGAIN_TIMES + _WIDE_TIMES:
            return now + _AGAIN_MS + -now % _AGAIN_MS  # together with runs of the same time
        if enough and self._is_sure(shown, doubted):
            return now + _AGAIN_MS if times == _AGAIN_TIMES else None
        held_until = shown.since + self._ctx.config.dissemination.recent_ms
        if shown.later > _LATER_TIMES and now > held_until:
            return None
        shown.later += 1
        due = now + (_LATER_MS << min(shown.later - 1, _LATER_TIMES))
        return due + -due % _LATER_TOGETHER_MS

    def _is_sure(self, shown: _Shown, doubted: _Doubted) -> bool:
        """Whether a run has come to members that do not all lie, as far as can be told."""
        told = len(shown.said) >= _ACCEPTED and not shown.is_lacked
        asked = shown.heard or doubted.exhausted
        return told and asked and self._lost_ms <= shown.since - _LOSS_MS

    def _ask_open(self, topic: Topic, doubted: _Doubted, wide: list[int]) -> None:
        """Ask the others again about runs that they have not answered for, or lacked: questions,
        answers and runs may be lost. About the `wide` runs all are asked."""
        for other in doubted.others.values():
            peer = other.contact.peer
            unsaid = [number for number in wide if peer not in doubted.runs[number].said]
            open_ones = (*other.unanswered, *doubted.lacked_by(peer), *unsaid)
            other.to_ask.update(dict.fromkeys(open_ones))
        self._ask_others(topic)

    def _conclude_all(self, topic: Topic) -> None:
        for pending in [one for one in self._pending.values() if one.topic == topic]:
            self._conclude(pending)

    def _conclude(self, pending: _Pending) -> None:
        """Delivered, if as many access points say so as can be asked."""
        doubted = self._doubted.get(pending.topic)
        known = 1
        if doubted is not None:
            known = len({*doubted.others, *pending.accepted}) + doubted.seeking
        if pending.accepted and len(pending.accepted) >= min(_ACCEPTED, known):
            self._stale.pop(pending.topic, None)
            self._finish(pending, "delivered", next(iter(pending.accepted.values())))

    def _route_event(self, to: Contact, pending: _Pending, anew: bool) -> RouteEvent:
        """An event of several topics goes to an access point with its payload once; `anew`: the
        payload may have been lost, so it is sent again."""
        run = pending.run
        if not run.parts or self._multi_topic.crosses(to, run) or anew:
            return RouteEvent(pending.topic, run)
        return RouteEvent(pending.topic, without_payload(run), True)

    # --- what became of it -----------------------------------------------------------------------

    def on_result(self, sender: Contact, message: RouteResult) -> None:
        if message.incarnation != self._ctx.incarnation:
            return
        pending = self._pending.get((message.topic, message.number))
        if pending is None:
            doubted = self._doubted.get(message.topic)
            if message.accepted and doubted is not None and sender.peer in doubted.used:
                doubted.note_taken(message.number, sender.peer)
            return
        if message.accepted:
            pending.accepted[sender.peer] = sender
            if pending.contact is not None and sender.peer == pending.contact.peer:
                self._took.renew(pending.topic, sender.peer)
            self._doubt(pending, sender)
            self._conclude(pending)
        elif pending.contact is not None and pending.contact.peer == sender.peer:
            pending.refused += 1
            pending.reason = pending.reason or message.reason
            if pending.refused < _REFUSED_MAX:
                self._retry_behind(pending)
            else:
                self._finish_refused(pending)

    def on_timer(self, serial: int) -> None:
        topic = self._gathering.get(serial)
        if topic is not None:
            self._look_up(topic, [])
            return
        topic = self._checks.pop(serial, None)
        if topic is not None:
            if topic in self._doubted:
                self._doubted[topic].asking = False
            self._ask_others(topic)
            return
        topic = self._checks_again.pop(serial, None)
        if topic is not None:
            self._ask_again(topic)
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
            self._retry_behind(pending)

    def on_peer_lost(self, peer: PeerId) -> None:
        self._lost_ms = self._ctx.now
        for doubted in self._doubted.values():
            doubted.lose(peer)
        for topic in [t for t, contact in self._routes.items() if contact.peer == peer]:
            del self._routes[topic]
        for pending in list(self._pending.values()):
            if pending.contact is not None and pending.contact.peer == peer:
                self._retry(pending)

    def on_peer_doubted(self, peer: PeerId) -> None:
        """An access point has not answered in time: try another one. An event that reaches the
        topic twice is recognised there."""
        for pending in list(self._pending.values()):
            if pending.contact is not None and pending.contact.peer == peer:
                self._retry(pending)

    def _retry_behind(self, failed: _Pending) -> None:
        """Runs that wait for the same access point behind a run that it did not take go with it to
        the next one, so that their order stays."""
        stale = failed.contact
        self._retry(failed)
        for pending in list(self._pending.values()):
            waits_for = pending.contact if not pending.accepted else None
            if pending.topic == failed.topic and waits_for is not None and waits_for == stale:
                self._retry(pending)

    def _retry(self, pending: _Pending) -> None:
        """The access point was stale: forget it and look for another."""
        if pending.accepted:  # an access point has it, and others do not answer
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
        """Try to hand the event on again after a pause, until its time is up."""
        ctx = self._ctx
        left_ms = pending.deadline - ctx.now
        if left_ms <= 0:
            if pending.refused:
                self._finish_refused(pending)
            else:
                self._finish(pending, "dropped", None, _LATE)
            return
        if not pending.reason:  # with one, the outcome is near
            self._tell_queued(pending)
        serial = ctx.next_serial()
        self._resting[serial] = (pending.topic, pending.run.first)
        ctx.set_timer(min(pending.rest_ms, left_ms), TIMER, pending.topic, serial)
        pending.rest_ms = min(2 * pending.rest_ms, _REST_MS_MAX)

    def _on_refused_by_all(self, pending: _Pending) -> None:
        """Every access point that could be found refused the event, with a reason. All are asked
        once more, since news that the publisher is allowed may be on its way to them."""
        pending.rounds += 1
        if pending.rounds < _ROUNDS:
            self._rest(pending)
        else:
            self._finish_refused(pending)

    def _finish_refused(self, pending: _Pending) -> None:
        """Live peers did not take the event: tell the publisher, with their reason if they gave
        one."""
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
