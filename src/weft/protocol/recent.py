"""Recent events: what a member of a topic has seen and still holds, and how losses are repaired.

Per life of a publisher (its incarnation) a member knows a floor, up to which it has seen all, and
the numbers it has seen above. That makes "have I seen this?" cheap and bounded. Events themselves
are held for a while, so that a member that missed one can ask any other for it.

Two members compare by a fingerprint over all they have seen. If it differs, one offers what it
holds; the other asks for what it lacks and offers what it holds itself. Whatever lost events on the
way, both end with the same. An event that came only just now may be on its way to the other as
well, so it is offered after `settle_ms` only.

All routings whose members keep links repair in this way; each does its own with a repaired event.

Invariants: at most `streams_max` lives of publishers, `gaps_max` numbers above a floor, and
`recent_events_max` events of `recent_bytes_max` bytes in all; nothing older than `recent_ms`. A run
of numbers that a stranger claims to have is never enumerated beyond a bound.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

from msgspec import Meta

from weft.bounded import BoundedDict
from weft.ids import Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context, require
from weft.protocol.seam import SCHEMES, Millis, Scheme
from weft.protocol.wire import LIST_MAX, Counter, Event, Message, OfTopic, Span, Spans
from weft.rules.draw import MASK64, absorb


class IHave(Message, frozen=True, tag=23):
    """Announces events that the sender holds and has not pushed to the receiver."""

    feeds: ClassVar[bool] = True

    topic: WireTopic
    spans: Spans


class Offer(Message, frozen=True, tag=26):
    """Recent events the sender holds; sent when fingerprints of recent events differ."""

    topic: WireTopic
    spans: Spans
    first: bool  # False: an answer, not to be answered by another offer
    settle_ms: Counter = 0  # only events held for so long were offered; so shall the answer


class Want(Message, frozen=True, tag=27):
    topic: WireTopic
    spans: Spans


class Asked(OfTopic, Protocol):
    """A message that asks for events: `Want`, or another that means more than that."""

    @property
    def spans(self) -> list[Span]: ...


class Repair(Message, frozen=True, tag=28):
    """Events sent on request, outside the push."""

    topic: WireTopic
    events: Annotated[list[Event], Meta(max_length=LIST_MAX)]


@dataclass(frozen=True)
class Config:
    """How events spread inside a topic, and how losses are repaired."""

    scheme: Scheme = "tree"
    gossip_fanout: int = 6  # guess: ln(n) + 2 for small groups
    lazy_delay_ms: Millis = 50  # guess: announcements gathered for so long
    graft_timeout_ms: Millis = 500  # guess: several round trips; too short costs duplicates
    graft_retry_ms: Millis = 250  # guess: before the next announcer is asked
    shaper_quiet_ms: Millis = 1_000  # guess: longer than an event travels, then another shapes
    settle_ms: Millis = 2_000  # guess: by then an event has reached all, or is missing
    recent_ms: Millis = 120_000  # guess: events are kept for repair for so long
    recent_events_max: int = 4_096  # guess: per topic
    recent_bytes_max: int = 4 << 20  # guess: per topic
    streams_max: int = 4_096  # guess: publishers remembered per topic
    gaps_max: int = 1_024  # guess: events seen out of order, per publisher
    repair_batch: int = 64  # guess: events in one repair message
    repair_bytes_max: int = 256 << 10  # guess: payload bytes in one repair message

    def __post_init__(self) -> None:
        require(self.scheme in SCHEMES, f"scheme: one of {', '.join(SCHEMES)}")
        for name in (
            "gossip_fanout",
            "lazy_delay_ms",
            "graft_timeout_ms",
            "graft_retry_ms",
            "shaper_quiet_ms",
            "settle_ms",
            "recent_ms",
            "recent_events_max",
            "recent_bytes_max",
            "streams_max",
            "gaps_max",
        ):
            require(getattr(self, name) >= 1, f"dissemination.{name} must be at least 1")
        require(
            1 <= self.repair_bytes_max <= 2 << 20,
            "dissemination.repair_bytes_max must be 1 to 2 MiB",
        )
        require(1 <= self.repair_batch <= 512, "dissemination.repair_batch must be 1 to 512")


LIFE_FACTOR = 4
"""guess: a publisher is remembered this many times longer than events are held, so that no
event still held somewhere can look new."""
_LACKING_MAX = 512
OUTLIER = 1 << 20
"""guess: no publisher is this many events ahead of what was last seen of it."""
_PAST_MAX = 256
"""guess: topics given up whose events are remembered."""


class Held:
    """An event held for repair, and the peer that brought it (None: this peer, or a repair)."""

    __slots__ = ("event", "hops", "since", "source")

    def __init__(self, event: Event, hops: int, source: PeerId | None, since: Millis) -> None:
        self.event = event
        self.hops = hops
        self.source = source
        self.since = since


class Life:
    """What is known of one incarnation of a publisher."""

    __slots__ = ("above", "floor", "gap_since", "held", "passed", "tag", "touched")

    def __init__(self, tag: int, now: Millis) -> None:
        self.tag = tag
        self.floor = 0
        self.passed = 0  # up to there some may count as seen that never came
        self.above: set[int] = set()
        self.held: dict[int, Held] = {}
        self.touched = now
        self.gap_since = now

    def has_seen(self, number: int) -> bool:
        return number <= self.floor or number in self.above


class Recent:
    """Seen and held events of one topic."""

    __slots__ = ("_bytes", "_config", "_count", "_fingerprint", "_order", "evicted", "lives")

    def __init__(self, config: Config) -> None:
        self._config = config
        self.lives: dict[tuple[PeerId, int], Life] = {}
        # Held events, oldest first. A plain dict slows down when its front is taken repeatedly.
        self._order: OrderedDict[tuple[Life, int], None] = OrderedDict()
        self._count = 0
        self._bytes = 0
        self._fingerprint: int | None = 0
        self.evicted = 0  # events given up before their time because of a bound

    def __len__(self) -> int:
        return self._count

    # --- seeing ----------------------------------------------------------------------------------

    def has_seen(self, event: Event) -> bool:
        life = self.lives.get((event.publisher, event.incarnation))
        return life is not None and life.has_seen(event.number)

    def has_taken(self, event: Event) -> bool:
        """Whether an event came here, so that its publisher need not look for another member. What
        only counts as seen, since this member joined after it or gave it up, may have come to
        nobody."""
        life = self.lives.get((event.publisher, event.incarnation))
        if life is None or not life.has_seen(event.number):
            return False
        return event.number > life.passed or event.number in life.held

    def admit(self, event: Event, hops: int, source: PeerId | None, now: Millis) -> bool:
        """Note an event; True if it is new to this member."""
        key = (event.publisher, event.incarnation)
        life = self.lives.get(key)
        if life is None:
            life = self._new_life(key, now)
        number = event.number
        if number <= life.floor or number in life.above:
            return False
        if number == life.floor + 1:
            life.floor = number
            if life.above:
                life.floor = raised_floor(number, life.above)
                life.gap_since = now  # what is missing now is another gap
        else:
            if not life.above:
                life.gap_since = now
            life.above.add(number)
            if len(life.above) > self._config.gaps_max:
                self._close_lowest_gap(life)
        life.touched = now
        self._fingerprint = None
        self._hold(life, number, Held(event, hops, source, now))
        return True

    def _new_life(self, key: tuple[PeerId, int], now: Millis) -> Life:
        if len(self.lives) >= self._config.streams_max:
            self._drop_life(min(self.lives, key=lambda k: self.lives[k].touched))
            self.evicted += 1
        tag = absorb(int.from_bytes(key[0][:8], "big"), key[1] & MASK64)
        life = self.lives[key] = Life(tag, now)
        return life

    def _drop_life(self, key: tuple[PeerId, int]) -> None:
        life = self.lives.pop(key)
        for number in list(life.held):
            self._release(life, number)
        self._fingerprint = None

    def _close_lowest_gap(self, life: Life) -> None:
        """Give up what is missing below the lowest number seen above the floor."""
        lowest = min(life.above)
        if is_outlier(life.floor, lowest):
            life.above.clear()  # else one forged event would silence its publisher for good
        else:
            life.passed = lowest - 1
            life.floor = raised_floor(lowest - 1, life.above)
        self._fingerprint = None

    def skip_to(self, seen: Iterable[Span], now: Millis) -> None:
        """Treat as seen what was published before this member joined."""
        for span in seen:
            key = (span.publisher, span.incarnation)
            life = self.lives.get(key)
            if life is None:
                if len(self.lives) >= self._config.streams_max:
                    continue
                life = self._new_life(key, now)
            if life.floor < span.last:
                life.passed = span.last
                life.above = {number for number in life.above if number > span.last}
                life.floor = raised_floor(span.last, life.above)
                self._fingerprint = None

    def let_go(self) -> None:
        """Hold no events any more, but remember what was seen."""
        for life, number in list(self._order):
            self._release(life, number)

    # --- holding ---------------------------------------------------------------------------------

    def _hold(self, life: Life, number: int, held: Held) -> None:
        life.held[number] = held
        self._order[(life, number)] = None
        self._count += 1
        self._bytes += len(held.event.payload)
        config = self._config
        while self._count > config.recent_events_max or self._bytes > config.recent_bytes_max:
            oldest, oldest_number = next(iter(self._order))
            self._release(oldest, oldest_number)
            self.evicted += 1

    def _release(self, life: Life, number: int) -> None:
        held = life.held.pop(number)
        del self._order[(life, number)]
        self._count -= 1
        self._bytes -= len(held.event.payload)

    def before(self, event: Event) -> Event | None:
        """The event that its publisher published just before, if it is held."""
        life = self.lives.get((event.publisher, event.incarnation))
        held = life.held.get(event.number - 1) if life is not None else None
        return held.event if held is not None else None

    def purge(self, now: Millis) -> None:
        """Let go of what is too old: held events, gaps nobody can fill, silent publishers."""
        limit = now - self._config.recent_ms
        old = []
        for life, number in self._order:
            if life.held[number].since > limit:
                break
            old.append((life, number))
        for life, number in old:
            self._release(life, number)
        forgotten = now - LIFE_FACTOR * self._config.recent_ms
        for key, life in list(self.lives.items()):
            if life.above and life.gap_since <= limit:
                self._close_lowest_gap(life)
                life.gap_since = now
            if life.touched <= forgotten and not life.held:
                self._drop_life(key)

    # --- comparing and repairing -----------------------------------------------------------------

    def fingerprint(self) -> int:
        """63 bits that are equal for two members that have seen the same."""
        if self._fingerprint is None:
            total = 0
            for life in self.lives.values():
                if life.floor or life.above:
                    total ^= absorb(life.tag, life.floor)
                for number in life.above:  # in any order: it does not change the result
                    total ^= absorb(~life.tag & MASK64, number)
            self._fingerprint = total >> 1
        return self._fingerprint

    def seen(self) -> list[Span]:
        """What was published so far, newest publishers first, for a member that joins now."""
        newest = sorted(self.lives.items(), key=lambda item: -item[1].touched)[:LIST_MAX]
        tops = [(key, max(life.above, default=life.floor)) for key, life in newest]
        return [Span(*key, 1, top) for key, top in tops if top]

    def offer(self, until: Millis) -> list[Span]:
        """Runs of events held since `until` or longer, newest publishers first."""
        result: list[Span] = []
        for key, life in sorted(self.lives.items(), key=lambda item: -item[1].touched):
            numbers = sorted(n for n, held in life.held.items() if held.since <= until)
            for first, last in runs(numbers):
                result.append(Span(*key, first, last))
                if len(result) >= LIST_MAX:
                    return result
        return result

    def lacking(self, spans: Iterable[Span]) -> list[Span]:
        """Which of these events this member has not seen."""
        result: list[Span] = []
        room = _LACKING_MAX
        for span in spans:
            life = self.lives.get((span.publisher, span.incarnation))
            floor, above = (life.floor, life.above) if life is not None else (0, set())
            numbers = lacking(span.first, span.last, floor, above, room)
            room -= len(numbers)
            for first, last in runs(numbers):
                result.append(Span(span.publisher, span.incarnation, first, last))
            if room <= 0 or len(result) >= LIST_MAX:
                break
        return result[:LIST_MAX]

    def fetch(self, spans: Iterable[Span], most: int) -> list[Held]:
        """The held events among these, at most so many."""
        result: dict[Held, None] = {}  # each once, however often it is asked for
        for span in spans:
            life = self.lives.get((span.publisher, span.incarnation))
            if life is None:
                continue
            if span.last - span.first < len(life.held):
                numbers: Iterable[int] = range(span.first, span.last + 1)
            else:
                numbers = [n for n in sorted(life.held) if span.first <= n <= span.last]
            for number in numbers:
                held = life.held.get(number)
                if held is not None:
                    result[held] = None
                    if len(result) >= most:
                        return list(result)
        return list(result)


class Past:
    """What was seen of topics given up, the latest ones: a peer that subscribes again must not be
    handed the same events again."""

    __slots__ = ("_config", "_recent")

    def __init__(self, config: Config) -> None:
        self._config = config
        self._recent: BoundedDict[Topic, Recent] = BoundedDict(_PAST_MAX)

    def recall(self, topic: Topic) -> Recent:
        """What was seen of a topic, for a subscription to begin with."""
        known = self._recent.pop(topic, None)
        return known if known is not None else Recent(self._config)

    def remember(self, topic: Topic, recent: Recent, now: Millis) -> None:
        """A subscription ends: its events are not held any more, but not forgotten either."""
        recent.let_go()
        recent.purge(now)
        if recent.lives:
            self._recent[topic] = recent


# --- handlers -------------------------------------------------------------------------------------


def compare(
    ctx: Context,
    topic: Topic,
    recent: Recent,
    other: Contact,
    fingerprint: int,
    settle_ms: Millis,
) -> bool:
    """Offer what is held here to a member that has seen something else; says whether it has."""
    if fingerprint == recent.fingerprint():
        return False
    ctx.send(other, _offer(ctx, topic, recent, settle_ms, first=True))
    return True


def _offer(ctx: Context, topic: Topic, recent: Recent, settle_ms: Millis, first: bool) -> Offer:
    return Offer(topic, recent.offer(ctx.now - settle_ms), first, settle_ms)


def on_offer(ctx: Context, recent: Recent, sender: Contact, message: Offer) -> None:
    """Ask for what is lacking here of what was offered, and offer in return."""
    ask_for(ctx, recent, sender, message)
    if message.first:
        ctx.send(sender, _offer(ctx, message.topic, recent, message.settle_ms, first=False))


def ask_for(ctx: Context, recent: Recent, sender: Contact, message: Offer | IHave) -> None:
    """Ask for what is lacking here of what the sender holds."""
    wanted = recent.lacking(message.spans)
    if wanted:
        ctx.send(sender, Want(message.topic, wanted))


def on_want(ctx: Context, recent: Recent, sender: Contact, message: Asked) -> None:
    """Send what is asked for, in bounded messages."""
    batch = ctx.config.dissemination.repair_batch
    bytes_max = ctx.config.dissemination.repair_bytes_max
    events: list[Event] = []
    size = 0
    for held in recent.fetch(message.spans, LIST_MAX):
        if events and (len(events) >= batch or size + len(held.event.payload) > bytes_max):
            ctx.send(sender, Repair(message.topic, events))
            events, size = [], 0
        events.append(held.event)
        size += len(held.event.payload)
    if events:
        ctx.send(sender, Repair(message.topic, events))


# --- runs of numbers ------------------------------------------------------------------------------


def lacking(first: int, last: int, floor: int, above: set[int], most: int) -> list[int]:
    """The numbers in first … last that are neither up to `floor` nor in `above`; at most `most`."""
    found: list[int] = []
    number = max(first, floor + 1)
    # Each step either finds one or passes one of `above`, so the loop is bounded.
    while number <= last and len(found) < most:
        if number not in above:
            found.append(number)
        number += 1
    return found


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, last) runs."""
    result: list[tuple[int, int]] = []
    for number in numbers:
        if result and number == result[-1][1] + 1:
            result[-1] = (result[-1][0], number)
        else:
            result.append((number, number))
    return result


def is_outlier(floor: int, number: int) -> bool:
    """Whether a number is too far above what was seen to be believed."""
    return floor > 0 and number - floor > OUTLIER


def raised_floor(floor: int, above: set[int]) -> int:
    """Move the floor over the numbers right above it, taking them out of `above`."""
    while floor + 1 in above:
        floor += 1
        above.remove(floor)
    return floor
