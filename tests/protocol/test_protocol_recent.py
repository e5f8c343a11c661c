"""What a member has seen and holds, against a plain set of numbers."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from protocol_kit import T, contact, event, proven_run, span
from weft.documents.run import Proven, Run
from weft.protocol.config import Dissemination
from weft.protocol.recent import LIFE_FACTOR, Recent
from weft.protocol.wire import LIST_MAX, Span

LIFE = 100  # milliseconds that events are held in these tests
EVER = 1 << 62  # offers hold events that came up to then
CONFIG = Dissemination(recent_ms=LIFE)
OTHER = contact(8).peer  # that events are offered to
numbers = st.integers(1, 14)
publishers = st.integers(1, 3)
incarnations = st.integers(1, 2)


def fresh(**bounds: int) -> Recent:
    return Recent(T, replace(CONFIG, **bounds))  # type: ignore[arg-type]


def admit(recent: Recent, number: int, now: int = 0, publisher: int = 9) -> bool:
    return take(recent, event(publisher, number), now)


def take(recent: Recent, one: Run, now: int = 0) -> bool:
    judged = recent.judge(one, now)
    if isinstance(judged, Proven):
        recent.admit(judged, 1, now, one.published_ms)
    return isinstance(judged, Proven)


def listed(spans: list[Span]) -> set[tuple[bytes, int, int]]:
    return {
        (one.publisher, one.incarnation, number)
        for one in spans
        for number in range(one.first, one.last + 1)
    }


# --- against a model ----------------------------------------------------------------------------


class AgainstASet(RuleBasedStateMachine):
    """Events come in any order, time passes, old ones are let go of."""

    def __init__(self) -> None:
        super().__init__()
        self.recent = Recent(T, CONFIG)
        self.now = 0
        self.seen: dict[tuple[bytes, int, int], int] = {}  # event -> when
        self.given_up: set[tuple[bytes, int, int]] = set()
        self.gone_ms = -1  # what came by then is not held any more

    @rule(publisher=publishers, incarnation=incarnations, number=numbers)
    def an_event_comes(self, publisher: int, incarnation: int, number: int) -> None:
        one = event(publisher, number, incarnation=incarnation)
        key = (one.publisher, one.incarnation, number)
        new = take(self.recent, one, self.now)
        if key in self.seen:
            assert not new
        elif not new:
            # It was given up: a later one has been there for as long as events are held.
            assert any(
                other[:2] == key[:2] and other[2] > number and since <= self.now - LIFE
                for other, since in self.seen.items()
            )
            self.given_up.add(key)
        else:
            assert key not in self.given_up
            self.seen[key] = self.now

    @rule(milliseconds=st.integers(1, LIFE))
    def time_passes(self, milliseconds: int) -> None:
        self.now += milliseconds

    @precondition(lambda self: self.now < LIFE_FACTOR * LIFE)  # publishers are not yet forgotten
    @rule()
    def purge(self) -> None:
        self.recent.purge(self.now)
        self.gone_ms = self.now - LIFE
        held = listed(self.recent.offer(EVER, OTHER))
        assert held == {key for key, since in self.seen.items() if since > self.now - LIFE}

    @precondition(lambda self: self.now < LIFE_FACTOR * LIFE)
    @rule(settle_ms=st.integers(0, LIFE))
    def a_member_is_offered_what_has_settled(self, settle_ms: int) -> None:
        until = self.now - settle_ms
        settled = {key for key, since in self.seen.items() if self.gone_ms < since <= until}
        assert listed(self.recent.offer(until, OTHER)) == settled

    @rule(publisher=publishers, incarnation=incarnations, first=numbers, length=st.integers(0, 14))
    def somebody_compares(self, publisher: int, incarnation: int, first: int, length: int) -> None:
        asked = span(publisher, first, first + length, incarnation)
        lacking = listed(self.recent.lacking([asked]))
        assert lacking <= listed([asked])
        assert not lacking & self.seen.keys()
        assert listed([asked]) - lacking <= self.seen.keys() | self._may_be_given_up()
        held = listed(self.recent.offer(EVER, OTHER))
        fetched = self.recent.fetch([asked, asked], 100)
        keys = [(h.run.publisher, h.run.incarnation, h.run.first) for h in fetched]
        assert len(keys) == len(set(keys))
        assert set(keys) == held & listed([asked])

    def _may_be_given_up(self) -> set[tuple[bytes, int, int]]:
        return {
            (publisher, incarnation, number)
            for (publisher, incarnation, last), since in self.seen.items()
            if since <= self.now - LIFE
            for number in range(1, last)
        }

    @invariant()
    def what_is_held_was_seen(self) -> None:
        held = listed(self.recent.offer(EVER, OTHER))
        assert held <= self.seen.keys()
        assert len(held) == len(self.recent)

    @invariant()
    def every_event_seen_is_known_as_seen(self) -> None:
        for publisher, incarnation, number in self.seen:
            assert self.recent.lives[(publisher, incarnation)].has_seen(number)  # type: ignore[index]


TestAgainstASet = AgainstASet.TestCase
TestAgainstASet.settings = settings(max_examples=60, stateful_step_count=40)


# --- fingerprints -------------------------------------------------------------------------------

events = st.tuples(publishers, incarnations, numbers)


def having_seen(found: list[tuple[int, int, int]]) -> Recent:
    recent = fresh()
    for step, (publisher, incarnation, number) in enumerate(found):
        take(recent, event(publisher, number, b"", incarnation), step)
    return recent


@given(st.lists(events), st.randoms(use_true_random=False))
def test_members_that_have_seen_the_same_have_the_same_fingerprint(
    found: list[tuple[int, int, int]], order: object
) -> None:
    first = having_seen(found)
    order.shuffle(found)  # type: ignore[attr-defined]
    assert having_seen(found).fingerprint() == first.fingerprint()
    assert 0 <= first.fingerprint() < 1 << 63


@given(st.sets(events), st.sets(events))
def test_members_that_have_seen_something_else_have_other_fingerprints(
    mine: set[tuple[int, int, int]], theirs: set[tuple[int, int, int]]
) -> None:
    same = having_seen(sorted(mine)).fingerprint() == having_seen(sorted(theirs)).fingerprint()
    assert same == (mine == theirs)


def test_the_fingerprint_follows_what_happens() -> None:
    recent = fresh()
    seen = [recent.fingerprint()]
    for number in (1, 3, 2):
        admit(recent, number)
        seen.append(recent.fingerprint())
    assert len(set(seen)) == 4
    assert seen[0] == 0


@given(st.sets(events), st.sets(events))
def test_two_members_end_with_the_same_events(
    mine: set[tuple[int, int, int]], theirs: set[tuple[int, int, int]]
) -> None:
    """Offer, want, repair: whatever each has missed."""
    left, right = having_seen(sorted(mine)), having_seen(sorted(theirs))
    for giver, taker in ((left, right), (right, left)):
        for held in giver.fetch(taker.lacking(giver.offer(EVER, OTHER)), 512):
            assert take(taker, held.run)
    assert listed(left.offer(EVER, OTHER)) == listed(right.offer(EVER, OTHER))
    assert left.fingerprint() == right.fingerprint()


def test_what_came_only_just_now_is_not_offered() -> None:
    recent = fresh()
    for number in (1, 2, 3):
        admit(recent, number, now=10 * number)
    assert recent.offer(20, OTHER) == [span(9, 1, 2)]
    assert recent.offer(9, OTHER) == []


# --- gaps ---------------------------------------------------------------------------------------


def test_a_gap_nobody_fills_is_given_up_in_time() -> None:
    recent = fresh()
    admit(recent, 4, now=0)
    recent.purge(LIFE - 1)
    assert [(s.first, s.last) for s in recent.lacking([span(9, 1, 4)])] == [(1, 3)]
    recent.purge(LIFE)
    assert recent.lacking([span(9, 1, 4)]) == []
    assert admit(recent, 5, now=LIFE)


def test_a_younger_gap_is_not_given_up_with_an_older_one() -> None:
    recent = fresh()
    admit(recent, 2, now=0)  # 1 is missing
    admit(recent, 4, now=LIFE - 2)  # and so is 3
    admit(recent, 1, now=LIFE - 1)
    recent.purge(LIFE + 1)
    assert admit(recent, 3, now=LIFE + 2)


def test_gaps_are_bounded() -> None:
    recent = fresh(gaps_max=3)
    for number in (2, 4, 6, 8):
        assert admit(recent, number)
    assert not admit(recent, 1)  # the lowest gap was closed
    assert admit(recent, 3)


# --- joining ------------------------------------------------------------------------------------


def test_a_joiner_starts_after_what_was_published_before() -> None:
    member = fresh()
    for number in (1, 2, 3):
        admit(member, number)
    joiner = fresh()
    assert joiner.skip_to(member.seen(), now=5, wall_ms=5) == 0
    assert joiner.lacking(member.offer(EVER, OTHER)) == []
    assert joiner.fingerprint() == member.fingerprint()
    assert not admit(joiner, 3)
    assert admit(joiner, 4)


@given(st.sets(numbers), numbers)
def test_skipping_adds_to_what_a_joiner_has_seen_itself(own: set[int], last: int) -> None:
    joiner = fresh()
    for number in own:
        admit(joiner, number)
    joiner.skip_to([proven_run(9, last).statement()], now=0, wall_ms=0)
    seen = own | set(range(1, last + 1))
    assert [number for number in range(1, 16) if admit(joiner, number)] == [
        number for number in range(1, 16) if number not in seen
    ]


def test_a_member_that_let_go_of_its_events_still_knows_them() -> None:
    recent = fresh()
    for number in (1, 2, 4):
        admit(recent, number)
    before = recent.fingerprint()
    recent.let_go()
    assert (len(recent), recent.offer(EVER, OTHER), recent.fingerprint()) == (0, [], before)
    assert [number for number in range(1, 6) if admit(recent, number)] == [3, 5]


# --- bounds -------------------------------------------------------------------------------------


def test_events_held_are_bounded_in_number_and_the_oldest_goes() -> None:
    recent = fresh(recent_events_max=3)
    for number in range(1, 6):
        admit(recent, number, now=number)
    assert listed(recent.offer(EVER, OTHER)) == listed([span(9, 3, 5)])
    assert recent.evicted == 2


def test_of_very_many_runs_those_that_are_held_are_found_and_no_others() -> None:
    """The others go from the front of a list, many at once; one came late, and out of order."""
    recent = Recent(T, Dissemination(recent_events_max=300))
    come = [*range(1, 1_200), *range(1_201, 1_400), 1_200, *range(1_400, 1_500)]
    signed = {number: event(9, number) for number in range(1, 1_500)}
    for number in come:
        assert take(recent, signed[number])
    held = [one.run.first for one in recent.fetch([span(9, 1, 2_000)], 2_000)]
    assert held == sorted(come[-300:])
    known = [n for n in range(1, 1_501) if recent.came_ms(contact(9).peer, 1, n) is not None]
    assert known == held
    recent.let_go()
    assert recent.fetch([span(9, 1, 2_000)], 2_000) == [] and len(recent) == 0


def test_events_held_are_bounded_in_bytes() -> None:
    recent = fresh(recent_bytes_max=10)
    for number in range(1, 5):
        take(recent, event(9, number, bytes(4)))
    assert listed(recent.offer(EVER, OTHER)) == listed([span(9, 3, 4)])


def test_an_event_too_large_to_hold_is_still_new_once() -> None:
    recent = fresh(recent_bytes_max=3)
    assert take(recent, event(9, 1, bytes(4)))
    assert not take(recent, event(9, 1, bytes(4)))
    assert len(recent) == 0


def test_publishers_are_bounded_and_the_most_silent_goes() -> None:
    recent = fresh(streams_max=2)
    admit(recent, 1, now=1, publisher=7)
    admit(recent, 1, now=2, publisher=8)
    admit(recent, 2, now=3, publisher=7)
    admit(recent, 1, now=4, publisher=9)
    assert listed(recent.offer(EVER, OTHER)) == listed([span(7, 1, 2), span(9, 1, 1)])
    assert not admit(recent, 2, now=5, publisher=7)


def test_silent_publishers_are_forgotten_long_after_their_events() -> None:
    recent = fresh()
    admit(recent, 1, now=0)
    recent.purge(LIFE_FACTOR * LIFE - 1)
    assert not admit(recent, 1, now=LIFE_FACTOR * LIFE - 1)
    recent.purge(LIFE_FACTOR * LIFE)
    assert recent.lives == {}
    assert recent.fingerprint() == 0


def test_lists_for_the_wire_are_bounded() -> None:
    recent = fresh()
    for number in range(2, 2 * LIST_MAX + 20, 2):
        admit(recent, number)
    assert len(recent.offer(EVER, OTHER)) == LIST_MAX
    assert len(recent.lacking([span(9, 1, 1 << 62)])) <= LIST_MAX
    assert len(recent.fetch([span(9, 1, 1 << 62)], 7)) == 7
    many = fresh()
    for publisher in range(LIST_MAX + 5):
        admit(many, 1, publisher=publisher)
    assert 0 < len(many.seen()) <= LIST_MAX


def test_what_one_offer_has_no_room_for_goes_by_turns() -> None:
    """A member was never told of anything older than the newest of so many."""
    recent = fresh()
    for publisher in range(6):
        for number in range(2, LIST_MAX + 2, 2):
            admit(recent, number, publisher=publisher)
    told: dict[Span, int] = {}
    for _ in range(6):
        recent.offer(EVER, contact(7).peer)  # another neighbour has turns of its own
        for one in recent.offer(EVER, OTHER):
            told[one] = told.get(one, 0) + 1
    assert len(told) == 3 * LIST_MAX
    assert {told[one] for one in told if one.publisher == contact(5).peer} == {6}


def test_a_claim_of_very_many_events_costs_little() -> None:
    recent = fresh()
    claim = [Span(contact(p).peer, 1, 0, (1 << 63) - 1) for p in range(LIST_MAX)]
    lacking = recent.lacking(claim)
    assert sum(one.last - one.first + 1 for one in lacking) <= 512
    assert recent.fetch(claim, 512) == []


def test_what_only_counts_as_seen_was_not_taken() -> None:
    recent = fresh()
    recent.skip_to([proven_run(9, 5).statement()], 0, 0)
    assert recent.has_seen(event(9, 3)) and not recent.has_taken(event(9, 3))
    assert admit(recent, 6)
    assert recent.has_taken(event(9, 6))
    assert not recent.has_taken(event(9, 7))


def test_what_was_given_up_was_not_taken() -> None:
    recent = fresh(gaps_max=2)
    for number in (1, 3, 5, 7):
        admit(recent, number)
    assert recent.has_seen(event(9, 2)) and not recent.has_taken(event(9, 2))
    assert recent.has_taken(event(9, 1))  # it is held
    assert recent.has_taken(event(9, 3))
