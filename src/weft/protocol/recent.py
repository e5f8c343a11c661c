"""Recent events: what a member of a topic has seen and still holds, and how losses are repaired.

Per life of a publisher (its incarnation) a member knows a floor, up to which it has seen all, and
the stretches of numbers it has seen above. That makes "have I seen this?" cheap and bounded. Runs
of events are held as they came for a while, so that a member that missed one can ask any other for
it. Members note, hold, compare and let go of whole runs, never of single events.

Nothing is noted that its publisher has not signed (`documents/run.py`): no life, no number, no
floor. So a number that was seen can only have been claimed by its publisher, and knowing an event
by its number is knowing it by its content. A copy that differs from the held run of its number is
verified (`judge`): either it is forged, or its publisher has signed two different things, and both
signatures are the proof of it.

A run that comes over its publisher's own connection, where TLS proves the same key, and that this
member passes on to nobody, is taken in on its publisher's word (`judge`, `vouched`). Runs are
chained, so the signature of the latest proves what is in all before it: it is verified `WORD_MS`
after the first of them (`delivery.py` has the timer, so that no run waits for it), and before this
member tells another one of these runs. A wrong signature takes back all
runs noted since the last good one, and that life's word counts no more. Before a run is sent to
another member, its own signature is verified. measured: at 1,000 events a second each is a run, and
its verification was a quarter of what it cost a reader.

A run comes and goes as a whole, so the numbers seen are a union of whole runs.

Two members compare by a fingerprint over all they have seen. If it differs, one offers what it
holds; the other asks for what it lacks and offers what it holds itself. So both end with the same
events, whichever way events were lost. An event that came only just now may be on its way to the
other as well, so it is offered after `settle_ms` only.

All routings whose members keep links repair in this way; each passes a repaired run on in its own
way.

Publishers cost nothing to make up, so a member can be made to forget the one it heard of longest
ago. Runs of that publisher could then be sent again and look new. So a member remembers some
thousand lives that were dropped for others, with the date of the last run of each, and takes no
older run of these. Once there are more, it takes no run of any unknown life that was published
before one that it forgot, for as long as it would have remembered (Liskov, Shrira, Wroclawski,
"Efficient at-most-once messages based on synchronized clocks", 1991). Then, and only then, a
publisher's clock matters, if it is more than `recent_ms` behind.

Deviation: that bound is taken `recent_ms` lower than there. Dates are their publishers' word, up to
this peer's own clock, so made-up publishers could else silence all that are new at a member whose
clock is ahead. The price: under such a flood, younger runs may be handed out twice.

Invariants: at most `streams_max` lives of publishers, `gaps_max` stretches above a floor, and
`recent_events_max` events of `recent_bytes_max` bytes in all; no held run is older than
`recent_ms`. A stretch of numbers that a stranger claims is never enumerated beyond a bound.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Annotated, ClassVar, Protocol, TypeAlias

from msgspec import Meta, Struct

from weft.bounded import BoundedDict
from weft.documents.run import (
    Proven,
    Run,
    Statement,
    verify_run,
    verify_statement,
    vouched_run,
)
from weft.ids import Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context
from weft.protocol.seam import SCHEMES, Millis, Scheme
from weft.protocol.settings import Settings, require, require_positive
from weft.protocol.wire import LIST_MAX, Counter, Message, OfTopic, Span, Spans
from weft.rules.draw import MASK64, absorb
from weft.rules.stretches import (
    Stretch,
    add_stretch,
    is_in,
    is_touched,
    lacking,
    raised,
    take_stretch,
)


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
    settle_ms: Counter = 0  # only events held this long are offered, also in the answer


class Want(Message, frozen=True, tag=27):
    """Asks for events outside the push; answered by `Repair`."""

    topic: WireTopic
    spans: Spans


class Asked(OfTopic, Protocol):
    """A message that asks for events: `Want`, or another that means more than that."""

    @property
    def spans(self) -> list[Span]: ...


class Repair(Message, frozen=True, tag=28):
    """Runs sent on request, outside the push."""

    carries: ClassVar[bool] = True

    topic: WireTopic
    runs: Annotated[list[Run], Meta(max_length=LIST_MAX)]


class Config(Settings):
    """How events spread inside a topic, and how losses are repaired."""

    scheme: Scheme = "tree"
    gossip_fanout: int = 6  # guess: ln(n) + 2 for small groups
    lazy_delay_ms: Millis = 50  # guess: announcements gathered for so long
    graft_timeout_ms: Millis = 500  # guess: several round trips; too short costs duplicates
    graft_retry_ms: Millis = 250  # guess: before the next announcer is asked
    shaper_quiet_ms: Millis = 1_000  # guess: longer than an event travels, then another shapes
    settle_ms: Millis = 2_000  # guess: by then an event has reached all, or is missing
    recent_ms: Millis = 120_000  # guess: events are kept for repair for so long
    recent_events_max: int = 16_384  # guess: per topic; a burst on ten links is as large
    recent_bytes_max: int = 4 << 20  # guess: per topic
    streams_max: int = 4_096  # guess: publishers remembered per topic
    gaps_max: int = 1_024  # guess: stretches of events seen out of order, per publisher
    order_ms: Millis = 10_000  # guess: an event waits so long for an earlier one of its publisher
    repair_batch: int = 64  # guess: events in one repair message, or one run
    repair_bytes_max: int = 256 << 10  # guess: of payloads in one repair message, or one run

    def __post_init__(self) -> None:
        require(self.scheme in SCHEMES, f"scheme: one of {', '.join(SCHEMES)}")
        require(
            1 <= self.repair_bytes_max <= 2 << 20,
            "dissemination.repair_bytes_max must be 1 to 2 MiB",
        )
        require(1 <= self.repair_batch <= 512, "dissemination.repair_batch must be 1 to 512")
        require_positive(self, "dissemination")


LIFE_FACTOR = 4
"""guess: a publisher is remembered this many times longer than events are held, so that no
event still held somewhere can look new."""
_LACKING_MAX = 512
"""guess: numbers of events asked for at once."""
_GONE_FACTOR = 2
"""guess: lives remembered as dropped, in multiples of `streams_max`; 2 MB under attack."""
_NEWEST_OFFERED = LIST_MAX // 2
"""guess: where an offer has no room for all events, so many of the newest are in each offer."""
_TURNS_MAX = 64
"""guess: members whose turn is remembered; a member has a dozen links."""
_SEEN_MAX = 256
"""guess: publishers whose statements a newcomer is told; it verifies each, which takes 60 µs."""
_BEFORE_MAX = 256
"""measured: 3.5 µs of 6 an event, with 16,384 runs held, if each is taken from the list alone."""
WORD_MS: Millis = 50
"""guess: events that were taken in on their publisher's word are proven after so long."""
NOT_SEEN = -1
"""Differs from every fingerprint, since none is negative: what a member is compared with that may
have seen anything."""
_PAST_MAX = 256
"""guess: ended subscriptions of which it is remembered what was seen."""


class Held(Struct, eq=False):
    """A run held for repair."""

    proven: Proven
    run: Run
    hops: int
    since: Millis
    size: int  # bytes of its payloads


class Verdict(Enum):
    """Why a run is not to be taken in."""

    COPY = "copy"  # the same as is held
    OLD = "old"  # seen, or passed over, and not held any more
    FORGED = "forged"  # not what its publisher signed


class Contradiction(Struct, frozen=True):
    """Two statements of one publisher that cannot both be honest."""

    known: Statement
    said: Statement


Judged: TypeAlias = Proven | Verdict | Contradiction
"""The proof of a run that is new, or why it is not to be taken in."""


def is_proven(judged: Judged) -> bool:
    """Whether a run, new or not, is known to be its publisher's. Old ones are not verified."""
    return isinstance(judged, Proven) or judged is Verdict.COPY


class Life:
    """What is known of one incarnation of a publisher."""

    __slots__ = (
        *("_before", "_believed", "_key", "_proven", "_spans", "_starts", "_stretches", "above"),
        *(
            "floor",
            "forgotten_ms",
            "forked",
            "gap_since",
            "held",
            "mark",
            "newest",
            "newest_digest",
        ),
        *("passed", "published_ms", "tag", "touched", "word_from"),
    )

    def __init__(
        self, key: tuple[PeerId, int], now: Millis, newest: Proven | Statement, digest: bytes
    ) -> None:
        self._key = key
        self.tag = absorb(int.from_bytes(key[0][:8], "big"), key[1] & MASK64)
        self.floor = 0
        self.passed = 0  # up to here a number may count as seen though its event never came
        self.above: list[Stretch] = []  # ascending, as long as they can be
        self.held: dict[int, Held] = {}  # by the first number of each
        self._starts: list[int] = []  # these numbers, ascending, behind …
        self._before = 0  # … so many of runs that are not held any more
        self._stretches: list[Stretch] = []  # all numbers that are held
        self._spans: list[Span] | None = None  # the same, once they were asked for
        self.newest = newest  # the latest that the publisher is known to have signed
        self.newest_digest = digest
        self.published_ms = 0  # its date, by the publisher's clock, at most the time it came here
        self.forgotten_ms = -1  # runs published by then may have been seen, and forgotten
        self.forked = False  # its publisher was found to have signed two different things
        self.touched = now
        self.gap_since = now
        self.mark: int | None = 0  # its part of the fingerprint; None: made when asked for
        self.word_from = 0  # from this number on there is only the publisher's word; 0: all proven
        self._proven = newest, digest  # the newest that is proven
        self._believed = True  # the publisher's word was good so far

    def has_seen(self, number: int) -> bool:
        return number <= self.floor or bool(self.above and is_in(number, self.above))

    def holding(self, number: int) -> Held | None:
        """The held run that this event is in."""
        held = self.held.get(number)
        if held is None and self._starts:
            at = bisect_right(self._starts, number, self._before) - 1
            if at >= self._before:
                held = self.held[self._starts[at]]
                if number > held.proven.last:
                    return None
        return held

    def held_in(self, first: int, last: int) -> list[Held]:
        """The held runs with any of these numbers, ascending."""
        starts = self._starts
        at = bisect_right(starts, first, self._before) - 1
        if at < self._before or self.held[starts[at]].run.last < first:
            at += 1
        return [self.held[start] for start in starts[at : bisect_right(starts, last, at)]]

    def hold(self, held: Held) -> None:
        first = held.run.first
        self.held[first] = held
        insort(self._starts, first, self._before)
        add_stretch(self._stretches, first, held.proven.last)
        self._spans = None

    def release(self, held: Held) -> None:
        """A run is not held any more; of the newest one the statement is kept."""
        first = held.run.first
        del self.held[first]
        self._forget_start(first)
        take_stretch(self._stretches, first, held.run.last)
        self._spans = None
        if self.newest is held.proven:
            self.newest = held.proven.statement()

    def _forget_start(self, first: int) -> None:
        """The lowest ones, which nearly always go first, leave the list many at once, since all
        others move up then."""
        starts = self._starts
        if starts[self._before] != first:
            del starts[bisect_right(starts, first, self._before) - 1]
            return
        self._before += 1
        if self._before == len(starts) or self._before > _BEFORE_MAX:
            del starts[: self._before]
            self._before = 0

    def spans_held(self, until: Millis) -> list[Span]:
        """The runs held since `until` or longer. The list of most lives is used again, since no run
        has come since it was made."""
        if self.touched <= until:
            if self._spans is None:
                self._spans = [Span(*self._key, *stretch) for stretch in self._stretches]
            return self._spans
        result = list(self._stretches)
        for held in reversed(self.held.values()):  # in the order in which they came
            if held.since <= until:
                break
            take_stretch(result, held.run.first, held.run.last)
        return [Span(*self._key, *stretch) for stretch in result]

    def see(self, first: int, last: int) -> bool:
        """Note numbers that are new; returns whether all before them had been seen."""
        if first != self.floor + 1:
            add_stretch(self.above, first, last)
            return False
        self.floor = raised(last, self.above) if self.above else last
        return True

    def pass_over(self, last: int) -> None:
        """Count everything up to this number as seen."""
        self.passed = last
        self.floor = raised(last, self.above)

    @property
    def top(self) -> int:
        """The last number that the publisher is known to have used."""
        return self.newest.last

    def statement(self) -> Statement:
        newest = self.newest
        return newest.statement() if isinstance(newest, Proven) else newest

    def note(self, newest: Proven | Statement, digest: bytes, published_ms: int) -> None:
        """The publisher has signed a later run than all that were known."""
        self.newest = newest
        self.newest_digest = digest
        self.published_ms = max(self.published_ms, published_ms)

    def may_vouch(self, run: Run) -> bool:
        """Whether a run goes on right from all that came, so that its publisher's word is enough
        for now."""
        return (
            self._believed
            and not self.above
            and run.first == self.floor + 1
            and run.prev == self.newest_digest
            and self.newest.last == self.floor
        )

    def take_word(self, first: int) -> None:
        """From this number on there is only the publisher's word."""
        if not self.word_from:
            self.word_from = first
            self._proven = self.newest, self.newest_digest

    def keep_word(self) -> None:
        """The publisher has signed all that it said."""
        self.word_from = 0

    def break_word(self) -> None:
        """The publisher has not signed what it said: those runs do not count as seen, nor is its
        word taken again."""
        self.floor = self.word_from - 1
        self.newest, self.newest_digest = self._proven
        self.word_from = 0
        self._believed = False

    def fingerprint(self) -> int:
        if self.mark is None:
            total = absorb(self.tag, self.floor) if self.floor or self.above else 0
            other = ~self.tag & MASK64
            for first, last in self.above:
                total ^= absorb(absorb(other, first), last)
            self.mark = total
        return self.mark


class Recent:
    """Seen and held events of one topic."""

    __slots__ = (
        "_bytes",
        "_config",
        "_count",
        "_forgotten_ms",
        "_forgotten_until",
        "_gone",
        "_marks",
        "_order",
        "_topic",
        "_turns",
        "_unmarked",
        "_unsettled",
        "disproven",
        "evicted",
        "lives",
    )

    def __init__(self, topic: Topic, config: Config) -> None:
        self._topic = topic
        self._config = config
        # The life that was heard of last stands at the end.
        self.lives: OrderedDict[tuple[PeerId, int], Life] = OrderedDict()
        # Held runs, oldest first. A plain dict slows down when its front is taken repeatedly.
        self._order: OrderedDict[Held, Life] = OrderedDict()
        self._count = 0
        self._bytes = 0
        # The marks of all lives but those that changed since the fingerprint was asked for:
        self._marks = 0
        self._unmarked: dict[Life, None] = {}
        # Lives with a gap, or with events that there is only their publisher's word for.
        self._unsettled: dict[tuple[PeerId, int], Life] = {}
        # Lives dropped for others, and when each had published last: no run of them that was
        # published by then is taken. Lives dropped from here share one date …
        self._gone: OrderedDict[tuple[PeerId, int], int] = OrderedDict()
        self._forgotten_ms = 0  # … by which a run of any unknown life counts as seen …
        self._forgotten_until: Millis = 0  # … until this time by this peer's clock
        # By member: how many of the older spans were offered to it in this turn.
        self._turns: BoundedDict[PeerId, int] = BoundedDict(_TURNS_MAX)
        self.evicted = 0  # events and lives given up before their time because of a bound
        self.disproven = 0  # events taken in on the word of a publisher that has not signed them

    def __len__(self) -> int:
        return self._count

    # --- seeing ----------------------------------------------------------------------------------

    def has_seen(self, run: Run) -> bool:
        life = self.lives.get((run.publisher, run.incarnation))
        return life is not None and life.has_seen(run.first)

    def has_taken(self, run: Run | Span) -> bool:
        """Whether a run came here, so that its publisher need not look for another member. A run
        that only counts as seen, since this member joined after it or gave it up, did not."""
        return bool(self.vouches(run.publisher, run.incarnation, run.first))

    def vouches(self, publisher: PeerId, incarnation: int, number: int) -> bool | None:
        """Whether the run that begins with this number came here; None: it was passed over."""
        life = self.lives.get((publisher, incarnation))
        if life is None or not life.has_seen(number):
            return False
        passed = number <= life.passed and life.holding(number) is None
        return None if passed else True

    def came_ms(self, publisher: PeerId, incarnation: int, number: int) -> Millis | None:
        """When this event came here, for as long as it is held."""
        life = self.lives.get((publisher, incarnation))
        held = life.holding(number) if life is not None else None
        return held.since if held is not None else None

    def judge(self, run: Run, now: Millis, vouched: bool = False) -> Judged:
        """Whether a run is new, and proven; only evidence against its publisher is noted. A copy of
        a held run costs a comparison, an old run nothing, any other one verification. `vouched`: it
        came from its publisher, and is passed on to nobody."""
        life = self.lives.get((run.publisher, run.incarnation))
        if life is None:
            key = (run.publisher, run.incarnation)
            if run.published_ms <= max(self._forgotten(now), self._gone.get(key, -1)):
                return Verdict.OLD
            return verify_run(self._topic, run) or Verdict.FORGED
        if run.published_ms <= life.forgotten_ms:
            return Verdict.OLD
        believed = vouched and life.may_vouch(run)  # then nothing of it was seen
        held = None if believed else life.holding(run.first)
        if held is not None and held.run == run:
            return Verdict.COPY
        if believed:
            return vouched_run(self._topic, run) or Verdict.FORGED
        if life.word_from:
            self._hold_to_word(life)
            held = life.holding(run.first)
        last = run.last
        if held is None and life.has_seen(run.first) and life.has_seen(last):
            return Verdict.OLD
        proven = verify_run(self._topic, run)
        if proven is None:
            return Verdict.FORGED
        if held is not None and held.proven.digest == proven.digest:
            return Verdict.COPY  # signed twice, which changes nothing
        known = self._contradicted(life, proven)
        if known is not None:
            life.forked = True
            return Contradiction(known, proven.statement())
        if life.has_seen(run.first) or life.has_seen(last) or held is not None:
            return Verdict.OLD  # it overlaps with a run that is not held any more
        if life.above and is_touched(run.first, last, life.above):
            return Verdict.OLD
        return proven

    def _contradicted(self, life: Life, proven: Proven) -> Statement | None:
        """What the publisher of a run has signed and could not have, if this one is honest: a run
        with some of its numbers, or one right before or after it that it does not go on from."""
        run = proven.run
        first, last = run.first, run.last
        newest = life.newest
        if isinstance(newest, Proven) and newest.last == first - 1:  # nearly always
            return newest.statement() if newest.digest != run.prev else None
        known = life.held_in(first - 1, last + 1)
        inside = [held for held in known if held.run.last >= first and held.run.first <= last]
        if inside:
            return inside[0].proven.statement()
        before = known[0] if known and known[0].run.last == first - 1 else None
        if before is not None and before.proven.digest != run.prev:
            return before.proven.statement()
        if before is None and life.top == first - 1 and life.newest_digest != run.prev:
            return life.statement()
        after = known[-1] if known and known[-1].run.first == last + 1 else None
        if after is not None and after.run.prev != proven.digest:
            return after.proven.statement()
        return None

    def _hold_to_word(self, life: Life) -> None:
        """Verify the latest run that was taken on its publisher's word, which proves all before."""
        newest = life.newest
        if isinstance(newest, Proven):
            signed = newest.is_signed(self._topic)
        else:
            signed = verify_statement(self._topic, newest) is not None
        if signed:
            life.keep_word()
            return
        self.disproven += life.floor - life.word_from + 1
        for held in life.held_in(life.word_from, life.floor):
            self._release(life, held)
        life.break_word()
        self._unmark(life)

    def prove(self) -> None:
        """Verify all that was taken on publishers' words."""
        for key, life in list(self._unsettled.items()):
            if life.word_from:
                self._hold_to_word(life)
            if not life.above:
                del self._unsettled[key]

    def admit(self, proven: Proven, hops: int, now: Millis, wall_ms: int) -> None:
        """Note a run that `judge` found new."""
        run = proven.run
        key = (run.publisher, run.incarnation)
        life = self.lives.get(key)
        if life is None:
            life = self._new_life(key, now, proven, proven.digest)
        else:
            self.lives.move_to_end(key)
        first, last = run.first, proven.last
        if proven.vouched:
            life.take_word(first)
        gaps = bool(life.above)
        if life.see(first, last):
            if gaps:
                life.gap_since = now  # what is missing now is another gap
        else:
            if not gaps:
                life.gap_since = now
            while len(life.above) > self._config.gaps_max:
                self._close_lowest_gap(life)
        if last >= life.newest.last:
            life.note(proven, proven.digest, min(run.published_ms, wall_ms))
        if life.above or life.word_from:
            self._unsettled[key] = life
        life.touched = now
        self._unmark(life)
        self._hold(life, Held(proven, run, hops, now, proven.size))

    def _new_life(
        self, key: tuple[PeerId, int], now: Millis, newest: Proven | Statement, digest: bytes
    ) -> Life:
        if len(self.lives) >= self._config.streams_max:
            oldest, life = next(iter(self.lives.items()))
            self._remember_gone(oldest, life.published_ms, now)
            self._drop_life(oldest)
            self.evicted += 1
        life = self.lives[key] = Life(key, now, newest, digest)
        life.forgotten_ms = max(self._forgotten(now), self._gone.pop(key, -1))
        return life

    def _remember_gone(self, key: tuple[PeerId, int], published_ms: int, now: Millis) -> None:
        """A life was dropped for others. Made-up publishers push lives out, and date what they sign
        as they like, up to this peer's own clock, which may be ahead. So a life's date counts for
        that life alone; once the life is forgotten, it counts for all, less `recent_ms`."""
        gone = self._gone
        gone[key] = published_ms
        if len(gone) > _GONE_FACTOR * self._config.streams_max:
            _, date_ms = gone.popitem(last=False)
            self._forgotten_ms = max(self._forgotten_ms, date_ms - self._config.recent_ms)
            self._forgotten_until = now + LIFE_FACTOR * self._config.recent_ms

    def _forgotten(self, now: Millis) -> int:
        """A run of an unknown life is taken only if it was published after this."""
        return self._forgotten_ms if now < self._forgotten_until else -1

    def _drop_life(self, key: tuple[PeerId, int]) -> None:
        life = self.lives.pop(key)
        for held in list(life.held.values()):
            self._release(life, held)
        self._unmark(life)
        del self._unmarked[life]
        self._unsettled.pop(key, None)

    def _unmark(self, life: Life) -> None:
        """What was seen of a life changes: its part of the fingerprint is made anew."""
        if life.mark is not None:
            self._marks ^= life.mark
            life.mark = None
            self._unmarked[life] = None

    def _close_lowest_gap(self, life: Life) -> None:
        """Give up the numbers missing below the lowest one seen above the floor. The publisher has
        signed that one, so no other peer can have its events passed over."""
        life.pass_over(life.above[0][0] - 1)
        self._unmark(life)

    def skip_to(self, seen: Iterable[Statement], now: Millis, wall_ms: int) -> int:
        """Treat events as seen that were published before this member joined, as far as the
        statements of their publishers prove them. Returns how many statements were forged."""
        forged = 0
        for statement in seen:
            key = (statement.publisher, statement.incarnation)
            life = self.lives.get(key)
            if life is None and len(self.lives) >= self._config.streams_max:
                continue
            if life is not None and life.word_from:
                self._hold_to_word(life)
            if life is not None and life.floor >= statement.last:
                continue
            digest = verify_statement(self._topic, statement)
            if digest is None:
                forged += 1
                continue
            if life is None:
                life = self._new_life(key, now, statement, digest)
            last = statement.last
            life.pass_over(last)
            if last >= life.top:
                life.note(statement, digest, min(statement.published_ms, wall_ms))
            self._unmark(life)
        return forged

    def let_go(self) -> None:
        """Hold no events any more, but remember what was seen."""
        for held, life in list(self._order.items()):
            self._release(life, held)

    # --- holding ---------------------------------------------------------------------------------

    def _hold(self, life: Life, held: Held) -> None:
        run = held.run
        life.hold(held)
        self._order[held] = life
        self._count += len(run.payloads)
        self._bytes += held.size
        config = self._config
        while self._count > config.recent_events_max or self._bytes > config.recent_bytes_max:
            oldest, of = next(iter(self._order.items()))
            self._release(of, oldest)
            self.evicted += len(oldest.run.payloads)

    def _release(self, life: Life, held: Held) -> None:
        life.release(held)
        del self._order[held]
        self._count -= len(held.run.payloads)
        self._bytes -= held.size

    def before(self, run: Run) -> Run | None:
        """The run that its publisher published just before, if it is held."""
        life = self.lives.get((run.publisher, run.incarnation))
        held = life.holding(run.first - 1) if life is not None else None
        return held.run if held is not None else None

    def purge(self, now: Millis) -> None:
        """Let go of what is too old: held events, gaps nobody can fill, silent publishers."""
        limit = now - self._config.recent_ms
        old = []
        for held, life in self._order.items():
            if held.since > limit:
                break
            old.append((life, held))
        for life, held in old:
            self._release(life, held)
        self.prove()
        for key, life in list(self._unsettled.items()):
            if life.gap_since <= limit:
                self._close_lowest_gap(life)
                life.gap_since = now
            if not life.above:
                del self._unsettled[key]
        forgotten = now - LIFE_FACTOR * self._config.recent_ms
        while self.lives:
            key, life = next(iter(self.lives.items()))
            if life.touched > forgotten:
                break
            self._drop_life(key)

    # --- comparing and repairing -----------------------------------------------------------------

    def fingerprint(self) -> int:
        """63 bits that are equal for two members that have seen the same."""
        for life in self._unmarked:
            self._marks ^= life.fingerprint()
        self._unmarked.clear()
        return self._marks >> 1

    def seen(self) -> list[Statement]:
        """Statements of what was published so far, newest publishers first, for a member that joins
        now."""
        newest = list(self.lives.values())[-_SEEN_MAX:]
        for life in newest:
            if life.word_from:
                self._hold_to_word(life)
        return [life.statement() for life in reversed(newest)]

    def offer(self, until: Millis, to: PeerId) -> list[Span]:
        """Runs of events held since `until` or longer, newest publishers first. If they are more
        than a message may name, the older ones go by turns, from the oldest on: each offer to a
        member goes on where the one before ended, the first where the latest to anybody did."""
        lives = reversed(self.lives.values())
        result = [span for life in lives for span in life.spans_held(until)]
        if len(result) <= LIST_MAX:
            return result
        older = result[_NEWEST_OFFERED:]
        older.reverse()
        turn = self._turns.get(to, next(reversed(self._turns.values()), 0))
        begin = turn if turn < len(older) else 0
        page = older[begin : begin + LIST_MAX - _NEWEST_OFFERED]
        self._turns.renew(to, begin + len(page))
        return result[:_NEWEST_OFFERED] + page

    def lacking(self, spans: Iterable[Span]) -> list[Span]:
        """The events of these that this member has not seen and may still take. Events of a
        publisher that signed two different things are left out: members hold different ones."""
        result: list[Span] = []
        room = _LACKING_MAX
        for span in spans:
            life = self.lives.get((span.publisher, span.incarnation))
            if life is not None and life.forked:
                continue
            floor, above = (life.floor, life.above) if life is not None else (0, [])
            if span.last <= floor:  # nearly always
                continue
            for first, last in lacking(span.first, span.last, floor, above, room):
                room -= last - first + 1
                result.append(Span(span.publisher, span.incarnation, first, last))
            if room <= 0 or len(result) >= LIST_MAX:
                break
        return result[:LIST_MAX]

    def fetch(self, spans: Iterable[Span], most: int) -> list[Held]:
        """The held runs that these events are in, until they have `most` events."""
        result: dict[Held, None] = {}  # each once, however often it is asked for
        count = 0
        for span in spans:
            life = self.lives.get((span.publisher, span.incarnation))
            if life is None:
                continue
            for held in life.held_in(span.first, span.last):
                if held not in result and self._may_pass_on(life, held):
                    result[held] = None
                    count += len(held.run.payloads)
                    if count >= most:
                        return list(result)
        return list(result)

    def _may_pass_on(self, life: Life, held: Held) -> bool:
        """Whether a held run's own signature is good; else it is not held any more."""
        if held.proven.is_signed(self._topic):
            return True
        if life.word_from:
            self._hold_to_word(life)
        if held in self._order:  # a later signature proved it here, but cannot be sent with it
            self._release(life, held)
        return False


class Past:
    """What was seen in the latest topics whose subscriptions ended: a peer that subscribes again
    must not be handed the same events again."""

    __slots__ = ("_config", "_recent")

    def __init__(self, config: Config) -> None:
        self._config = config
        self._recent: BoundedDict[Topic, Recent] = BoundedDict(_PAST_MAX)

    def recall(self, topic: Topic) -> Recent:
        """What was seen of a topic, for a subscription to begin with."""
        known = self._recent.pop(topic, None)
        return known if known is not None else Recent(topic, self._config)

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
    """Offer what is held here to a member that has seen something else; returns whether it has."""
    if fingerprint == recent.fingerprint():
        return False
    ctx.send(other, _offer(ctx, topic, recent, other, settle_ms, first=True))
    return True


def show(ctx: Context, topic: Topic, recent: Recent, other: Contact, settle_ms: Millis) -> None:
    """Offer what is held here to a member that may lack it, and want nothing in return."""
    offer = _offer(ctx, topic, recent, other, settle_ms, first=False)
    if offer.spans:
        ctx.send(other, offer)


def _offer(
    ctx: Context, topic: Topic, recent: Recent, other: Contact, settle_ms: Millis, first: bool
) -> Offer:
    return Offer(topic, recent.offer(ctx.now - settle_ms, other.peer), first, settle_ms)


def on_offer(
    ctx: Context,
    recent: Recent,
    sender: Contact,
    message: Offer,
    comes: Callable[[Span], bool] = lambda span: False,
) -> None:
    """Ask for what is lacking here of what was offered, and offer in return. `comes`: whether
    events are on their way in the push, as far as this member can tell."""
    ask_for(ctx, recent, sender, message, comes)
    if message.first:
        answer = _offer(ctx, message.topic, recent, sender, message.settle_ms, first=False)
        ctx.send(sender, answer)


def ask_for(
    ctx: Context,
    recent: Recent,
    sender: Contact,
    message: Offer | IHave,
    comes: Callable[[Span], bool] = lambda span: False,
) -> None:
    """Ask for what is lacking here of what the sender holds."""
    wanted = [span for span in recent.lacking(message.spans) if not comes(span)]
    if wanted:
        ctx.send(sender, Want(message.topic, wanted))


def on_want(
    ctx: Context,
    recent: Recent,
    sender: Contact,
    message: Asked,
    may: Callable[[int], bool] = lambda size: True,
) -> None:
    """Send the events asked for, in bounded messages. `may`: whether that many bytes may go."""
    batch = ctx.config.dissemination.repair_batch
    bytes_max = ctx.config.dissemination.repair_bytes_max
    gathered: list[Run] = []
    count = size = 0
    for held in recent.fetch(message.spans, LIST_MAX):
        more, larger = len(held.run.payloads), held.size
        if not may(larger):
            break
        if gathered and (count + more > batch or size + larger > bytes_max):
            ctx.send(sender, Repair(message.topic, gathered))
            gathered, count, size = [], 0, 0
        gathered.append(held.run)
        count, size = count + more, size + larger
    if gathered:
        ctx.send(sender, Repair(message.topic, gathered))
