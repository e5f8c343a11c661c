"""The access point table's rules give the five properties of TERA's Section 3."""

from __future__ import annotations

import statistics

import pytest
from chi_square import chi_square_p

from weft.rules import draw, tera

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
