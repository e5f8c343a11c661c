"""TERA's decisions: the table's five properties, lookups, overlay ids."""

from __future__ import annotations

import functools
import statistics

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chi_square import chi_square_p
from weft.ids import OverlayId, Topic
from weft.rules import draw, tera

# --- The access point table's rules give the five properties of TERA's Section 3

TABLES, TOPICS, TABLE_SIZE, FANOUT = 200, 60, 10, 5
ADMIT, EVICT, TARGETS = (draw.stream_of(name) for name in ("admit", "evict", "targets"))


class Table:
    """A table kept by nothing but the rules."""

    def __init__(self, owner: int) -> None:
        self.owner = owner
        self.entries: dict[int, int] = {}  # topic -> access point
        self.ticks = 0

    def bits(self, stream: int) -> int:
        self.ticks += 1
        return draw.draw(1, stream, self.owner, self.ticks, 0)

    def hear(self, topic: int, subscriber: int, popularity: int) -> None:
        if topic not in self.entries and not tera.admits(self.bits(ADMIT), popularity):
            return
        self.entries[topic] = subscriber
        while len(self.entries) > TABLE_SIZE:
            slot = tera.evicted_slot(self.bits(EVICT), len(self.entries))
            del self.entries[list(self.entries)[slot]]


class Population:
    """Peers with tables, subscribed by a skewed law, advertising round after round."""

    def __init__(self) -> None:
        self.tables = [Table(owner) for owner in range(TABLES)]
        # The most popular topic has 30 subscribers, half of all topics have one or two.
        self.subscribers = {
            topic: [(topic * 7 + step * 3) % TABLES for step in range(max(1, 30 // (topic + 1)))]
            for topic in range(TOPICS)
        }
        self.round = 0

    def advertise(self, rounds: int) -> None:
        for _ in range(rounds):
            self.round += 1
            adverts = [
                (draw.key_of(topic, TARGETS, subscriber, self.round), topic, subscriber)
                for topic, subscribers in self.subscribers.items()
                for subscriber in subscribers
            ]
            for key, topic, subscriber in sorted(adverts):  # in no order, as it were
                for step in range(FANOUT):
                    table = self.tables[draw.below(draw.absorb(key, step), TABLES)]
                    table.hear(topic, subscriber, len(self.subscribers[topic]))

    def holders(self) -> list[int]:
        """In how many tables each topic is."""
        return [sum(topic in table.entries for table in self.tables) for topic in range(TOPICS)]


@pytest.fixture
def settled() -> Population:
    population = Population()
    population.advertise(60)
    return population


def test_1_entries_are_fresh(settled: Population) -> None:
    """One of a topic's two subscribers leaves: soon nobody names it any more."""
    topic = 14
    left, stays = settled.subscribers[topic]
    before = [table.entries[topic] for table in settled.tables if topic in table.entries]
    assert left in before
    settled.subscribers[topic] = [stays]
    settled.advertise(150)
    assert left not in [table.entries.get(topic) for table in settled.tables]


def test_2_inactive_topics_vanish(settled: Population) -> None:
    gone = [0, 20, 40]
    assert all(settled.holders()[topic] for topic in gone)
    for topic in gone:
        del settled.subscribers[topic]
    settled.advertise(150)
    assert [settled.holders()[topic] for topic in gone] == [0, 0, 0]


def test_3_access_points_are_uniform_over_subscribers(settled: Population) -> None:
    counts = dict.fromkeys(settled.subscribers[0], 0)
    for _ in range(12):
        settled.advertise(10)
        for table in settled.tables:
            if 0 in table.entries:
                counts[table.entries[0]] += 1
    assert chi_square_p(list(counts.values())) > 1e-3


def test_4_topics_are_uniform_over_the_active_ones(settled: Population) -> None:
    """Thirty subscribers or one: a topic is in as many tables."""
    totals = [0] * TOPICS
    snapshots = 8
    for _ in range(snapshots):
        settled.advertise(40)
        totals = [total + count for total, count in zip(totals, settled.holders(), strict=True)]
    expected = snapshots * TABLES * TABLE_SIZE / TOPICS
    assert statistics.fmean(totals) == pytest.approx(expected)
    # Topics of one table exclude each other, so counts spread less than Pearson's test allows.
    assert chi_square_p(totals) > 1e-3
    popular, rare = statistics.fmean(totals[:6]), statistics.fmean(totals[-30:])
    assert popular == pytest.approx(rare, rel=0.15)


def test_5_tables_are_bounded(settled: Population) -> None:
    assert [len(table.entries) for table in settled.tables] == [TABLE_SIZE] * TABLES


def test_admission_is_one_in_the_popularity() -> None:
    bits = [draw.draw(3, ADMIT, 0, tick, 0) for tick in range(20_000)]
    assert all(tera.admits(b, 1) and tera.admits(b, 0) for b in bits)
    for popularity in (2, 7, 40):
        hits = sum(tera.admits(b, popularity) for b in bits)
        expected = len(bits) / popularity
        assert chi_square_p([hits, len(bits) - hits], [expected, len(bits) - expected]) > 1e-3


def test_eviction_is_uniform() -> None:
    counts = [0] * 11
    for tick in range(11_000):
        counts[tera.evicted_slot(draw.draw(3, EVICT, 0, tick, 0), 11)] += 1
    assert chi_square_p(counts) > 1e-3


# --- how many topics there are ------------------------------------------------------------------


def random_topics(owner: int, active: int, count: int) -> list[int]:
    """Distinct topics in the order in which they were drawn."""
    key = draw.key_of(active, TARGETS, owner, 0)
    drawn: dict[int, None] = {}
    item = 0
    while len(drawn) < count:
        drawn[draw.below(draw.absorb(key, item), active)] = None
        item += 1
    return list(drawn)


@pytest.mark.parametrize(("active", "table_size"), [(10, 10), (60, 10), (400, 40), (5_000, 400)])
def test_capture_and_recapture_counts_the_topics(active: int, table_size: int) -> None:
    mine = random_topics(0, active, table_size)
    offered = [topic for other in range(1, 400) for topic in random_topics(other, active, 8)]
    shared = sum(topic in mine for topic in offered)
    estimate = tera.topics_active(table_size, len(offered), shared)
    # `shared` is binomial: four standard deviations.
    error = 4 * ((active - table_size) / (table_size * len(offered))) ** 0.5
    assert estimate == pytest.approx(active, rel=error, abs=0)


def test_nothing_known_means_zero() -> None:
    assert tera.topics_active(0, 10, 5) == 0
    assert tera.topics_active(10, 0, 0) == 0
    assert tera.topics_active(10, 10, 0) == 0


def test_there_are_at_least_as_many_topics_as_one_knows() -> None:
    assert tera.topics_active(10, 8, 8) == 10
    assert tera.topics_active(10, 8, 9) == 10
    assert tera.topics_active(10, 80, 20) == 40


# --- Lookup walks: as many visits as the wanted success takes, split over the walks


@given(st.floats(0.01, 0.9999), st.integers(1, 400), st.integers(1, 10_000))
def test_so_many_visits_are_enough_and_one_fewer_is_not(
    success: float, table_size: int, topics: int
) -> None:
    visits = tera.visits_needed(success, table_size, topics, most=1 << 40)
    missed = max(0.0, 1 - table_size / topics)
    assert 1 - missed**visits >= success - 1e-9
    if visits > 1:
        assert 1 - missed ** (visits - 1) < success + 1e-9


def test_the_papers_example() -> None:
    # A thousand topics, tables of 400: P = 0.99 takes ln 0.01 / ln 0.6 = 9.01 visits.
    assert tera.visits_needed(0.99, 400, 1_000, 1_000) == 10


@given(st.floats(0.01, 0.9999), st.integers(0, 500), st.integers(0, 10**18), st.integers(1, 4_096))
@example(success=0.9, table_size=1, topics=10**17, most=100)
def test_visits_are_bounded_whatever_the_estimate_says(
    success: float, table_size: int, topics: int, most: int
) -> None:
    assert 1 <= tera.visits_needed(success, table_size, topics, most) <= most


def test_an_empty_table_says_nothing() -> None:
    assert tera.visits_needed(0.9, 0, 100, 77) == 77
    assert tera.visits_needed(0.9, 100, 100, 77) == 1


@given(st.integers(1, 10_000), st.integers(1, 64))
def test_walks_share_the_visits(visits: int, walks: int) -> None:
    steps = tera.steps_of_each(visits, walks)
    assert steps * walks >= visits > (steps - 1) * walks


@pytest.mark.parametrize(("visits", "steps"), [(1, 1), (4, 1), (5, 2), (40, 10)])
def test_the_lifetime_of_each_of_four_walks(visits: int, steps: int) -> None:
    assert tera.steps_of_each(visits, 4) == steps


# --- Overlay ids converge in whatever order members meet; quiet topics slow down

ids = st.integers(0, (1 << 63) - 1).map(OverlayId)


@given(st.lists(ids, min_size=1), st.randoms(use_true_random=False))
def test_any_order_of_meeting_ends_with_the_same_id(found: list[OverlayId], order: object) -> None:
    survivor = functools.reduce(tera.surviving, found)
    order.shuffle(found)  # type: ignore[attr-defined]
    assert functools.reduce(tera.surviving, found) == survivor == min(found)


@given(ids, ids)
def test_both_sides_choose_the_same(mine: OverlayId, theirs: OverlayId) -> None:
    survivor = tera.surviving(mine, theirs)
    assert survivor == tera.surviving(theirs, mine)
    assert survivor in (mine, theirs)


@given(ids, ids)
def test_of_two_ids_one_survives_by_its_hash(mine: OverlayId, theirs: OverlayId) -> None:
    topic = Topic("/t")
    assert tera.keeps_overlay(topic, mine, mine)
    assert (mine == theirs) == (
        tera.keeps_overlay(topic, mine, theirs) and tera.keeps_overlay(topic, theirs, mine)
    )


@given(st.integers(1, 64), st.integers(1, 64))
def test_quiet_doubles_up_to_the_longest_and_news_resets(period: int, longest: int) -> None:
    assert tera.next_period(period, changed=True, longest=longest) == 1
    quiet = tera.next_period(period, changed=False, longest=longest)
    assert quiet == min(longest, 2 * period)


def test_from_busy_to_quiet() -> None:
    period, seen = 1, []
    for _ in range(5):
        period = tera.next_period(period, changed=False, longest=6)
        seen.append(period)
    assert seen == [2, 4, 6, 6, 6]
