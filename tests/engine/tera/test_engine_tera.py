"""TERA's parts in columns: tables, walks, floods, size estimates, merging, events."""

from __future__ import annotations

import numpy as np
import pytest

from weft.engine.core.draws import random_peers
from weft.engine.data.memberships import Memberships, spread, uniform_sizes
from weft.engine.tera.access_points import (
    NOT_FOUND,
    empty_tables,
    settled,
    settled_point,
    settled_tables,
)
from weft.engine.tera.collide import SharedSizes, estimate, ideal_estimates
from weft.engine.tera.costs import measure
from weft.engine.tera.cyclon import random_overlay
from weft.engine.tera.events import Events
from weft.engine.tera.flood import Flood, flood_general
from weft.engine.tera.lookup import Ground, Lookups
from weft.engine.tera.topics import random_topics
from weft.engine.tera.world import WorldSettings, build
from weft.rules import collide
from weft.rules.deployment import Deployment, lookup_success, per_notification, tera_costs

# --- tables: the five properties of TERA, Section 3 ---------------------------------


@pytest.fixture(scope="module")
def tables_after_long() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(popularity, tables that hold each topic, how often each membership is an access point)."""
    sizes = np.array([1] * 20 + [10] * 15 + [100] * 5)
    held = spread(sizes, 1_000, 1)
    world = build(WorldSettings(table_size=8, exchange_in_topics=False), held, 1)
    world.run(800)
    named = np.zeros(held.total)
    total = np.zeros(held.topics)
    for _ in range(40):
        world.run(40)
        total += world.tables.times_held(held.topics)
        used = np.arange(8) < world.tables.counts[:, None]
        named += np.bincount(world.tables.points[used], minlength=held.total)
        assert (world.tables.counts == 8).all()  # bounded, and full
    return sizes, total / 40, named


def test_topics_are_spread_evenly(
    tables_after_long: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    sizes, held, _ = tables_after_long
    assert held.mean() == pytest.approx(1_000 * 8 / 40)
    for size in (1, 10, 100):
        group = held[sizes == size].mean()
        assert group == pytest.approx(200, rel=0.04), f"topics of {size}"


def test_access_points_are_uniform_over_subscribers(
    tables_after_long: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    sizes, _, named = tables_after_long
    starts = np.concatenate([[0], np.cumsum(sizes)])
    for topic in np.flatnonzero(sizes == 100):
        share = named[starts[topic] : starts[topic + 1]]
        # 40 correlated snapshots of 200 tables over 100 members: 80 each; nobody is left out
        assert share.min() > 20
        assert share.max() < 200


def test_topics_that_nobody_advertises_vanish() -> None:
    held = spread(np.full(30, 20), 300, 2)
    # The members of topic 0 do not advertise it: its memberships are not in the lists.
    keep = held.of_peer >= held.offsets[1]
    offsets = np.concatenate([[0], np.cumsum(keep)])[held.of_peer_offsets]
    silent = Memberships(
        held.peers, held.offsets, held.members, held.topic_of, offsets, held.of_peer[keep]
    )
    world = build(WorldSettings(table_size=10, exchange_in_topics=False, settled=True), silent, 2)
    before = world.tables.times_held(30)[0]
    world.run(1_500)
    assert before > 50
    assert world.tables.times_held(30)[0] < before / 20


def test_settled_tables_can_be_asked_for_without_being_kept() -> None:
    held = spread(np.full(25, 4), 60, 3)
    tables = settled_tables(held, 7, 3)
    deck = np.arange(25)
    for peer in range(60):
        for topic in range(25):
            slot = np.flatnonzero(tables.topics[peer, :7] == topic)
            wanted = tables.points[peer, slot[0]] if len(slot) else NOT_FOUND
            found = settled_point(deck, held.offsets, settled(3, 7), peer, topic)
            assert found == wanted
    assert (deck == np.arange(25)).all()
    assert (tables.counts == 7).all()


# --- lookups ------------------------------------------------------------------------


def test_lookups_succeed_as_often_as_the_form_says() -> None:
    held = spread(np.full(200, 5), 5_000, 4)
    tables = settled_tables(held, 10, 4)
    overlay = random_overlay(5_000, 4)
    lookups = Lookups(
        random_peers(8_000, 5_000, 4, "test.who", 0),
        random_peers(8_000, 200, 4, "test.what", 0),
        4,
        walks=4,
        steps=15,
        batch=0,
    )
    while not lookups.is_over:
        overlay.run(1)
        lookups.advance(Ground(overlay.rows, held, tables))
    for visits in (4, 20, 60):
        share = ((lookups.found_visit > 0) & (lookups.found_visit <= visits)).mean()
        assert share == pytest.approx(lookup_success(10, 200, visits), abs=0.02)
    found = lookups.found[lookups.found != NOT_FOUND]
    assert (held.topic_of[found] == lookups.topics[lookups.found != NOT_FOUND]).all()


def test_walks_that_find_nothing_make_all_their_steps() -> None:
    held = spread(np.full(5, 2), 400, 5)
    overlay = random_overlay(400, 5)
    lookups = Lookups(np.arange(50), np.zeros(50, np.int64), 5, walks=4, steps=9, batch=1)
    ground = Ground(overlay.rows, held, empty_tables(400, 10, 5))
    while not lookups.is_over:
        lookups.advance(ground)
    assert lookups.messages == 50 * 4 * 9
    assert lookups.answers == 0


def test_subscribers_answer_where_they_may() -> None:
    held = spread(np.array([300]), 400, 6)
    overlay = random_overlay(400, 6)
    lookups = Lookups(np.arange(100), np.zeros(100, np.int64), 6, walks=4, steps=10, batch=0)
    tables = empty_tables(400, 10, 6)
    ground = Ground(overlay.rows, held, tables, from_subscriptions=True)
    while not lookups.is_over:
        lookups.advance(ground)
    assert (lookups.found != NOT_FOUND).mean() > 0.99
    assert (lookups.found_visit <= 4).mean() > 0.9


# --- floods -------------------------------------------------------------------------


def test_a_flood_reaches_everybody_and_costs_every_link_once() -> None:
    overlay = random_overlay(3_000, 7)
    overlay.run(30)
    flood = flood_general(overlay.rows, 3_000)
    event = flood.start(0, 17)
    while not flood.is_over:
        flood.advance()
        overlay.run(1)
    assert flood.notified == flood.reached[event] == 3_000
    assert flood.messages == 3_000 * 20


def test_floods_stay_in_their_topics() -> None:
    topics = random_topics(spread(uniform_sizes(20, 3_000, 500, 8), 500, 8), 8)
    held = topics.memberships
    flood = Flood(topics.rows, held.offsets, keep_seen=True)
    events = [flood.start(topic, int(held.offsets[topic])) for topic in range(20)]
    while not flood.is_over:
        flood.advance()
        topics.run(1)
    for topic, event in enumerate(events):
        assert flood.reached[event] == held.sizes()[topic] == flood.seen(event).sum()


# --- size estimation ----------------------------------------------------------------


@pytest.mark.parametrize("size", [25, 200, 2_000])
def test_groups_are_estimated_without_bias(size: int) -> None:
    topics = random_topics(spread(np.array([size]), size, 9), 9)
    topics.run(30)
    asking = np.arange(min(size, 400))
    found = estimate(topics, asking, repeats=30, steps=8, tick=0)
    # relative error about 1/sqrt(30) each; the mean of n samples that much less
    allowed = 4 / np.sqrt(30 * len(asking)) + 0.04
    assert found.sizes.mean() / size == pytest.approx(1.0, abs=allowed)
    assert (found.samples > 0).all()
    assert (found.to_advertise(30) == [collide.to_advertise(int(n), 30) for n in found.sizes]).all()
    assert found.messages >= 8 * found.samples.sum()


@pytest.mark.parametrize("size", [1, 2, 7, 18])
def test_small_groups_are_counted(size: int) -> None:
    topics = random_topics(spread(np.array([size]), 50, 10), 10)
    topics.run(5)
    found = estimate(topics, np.arange(size), repeats=10, steps=8, tick=0)
    assert (found.sizes == size).all()
    assert (found.to_advertise(10) == size).all()
    assert found.messages == 0


def test_members_share_an_estimate_that_runs_make_better() -> None:
    """As peers do: one member of a topic makes a run, and all know the mean of inverses."""
    held = spread(np.array([150] * 40 + [7]), 400, 9)
    topics = random_topics(held, 9)
    topics.run(5)
    shared, due = SharedSizes(topics, repeats=10, steps=8), np.arange(held.topics)
    errors = []
    for tick in range(12):
        members, found = shared.renew(due, tick)
        believed = held.sizes()[held.topic_of[members]] / found.to_advertise(10)
        by_topic = [believed[held.topic_of[members] == topic] for topic in due]
        assert all((each == each[0]).all() for each in by_topic)
        assert by_topic[-1][0] == 1.0  # counted
        errors.append(np.array([each[0] for each in by_topic[:-1]]) - 1)
    assert np.std(errors[-1]) < 0.6 * np.std(errors[0])
    # Walks end a little unevenly, which makes groups look smaller by some hundredths (see above).
    assert abs(np.mean(errors[-1])) < 4 * 0.35 / np.sqrt(7 * 40) + 0.04


def test_the_textbook_estimate_is_far_too_high_for_small_groups() -> None:
    topics = random_topics(spread(np.array([6]), 50, 11), 11)
    likely, textbook = (
        ideal_estimates(topics, np.arange(6), 10, 0, textbook=which).sizes.mean()
        for which in (False, True)
    )
    assert likely == pytest.approx(6, rel=0.25)
    assert textbook > 1.7 * 6


# --- partitions ---------------------------------------------------------------------


def test_parts_of_a_topic_meet_and_become_one() -> None:
    held = spread(np.array([60, 30]), 200, 12)
    world = build(WorldSettings(advertise_every=1, advertise_to=20, table_size=4), held, 12)
    half = np.arange(held.offsets[0], held.offsets[0] + 30)
    overlays = np.zeros(held.total, np.int64)
    overlays[half] = 5
    world.topics.isolate(np.arange(held.offsets[0], held.offsets[1]), overlays)
    for part in (half, np.arange(held.offsets[0] + 30, held.offsets[1])):
        for row in part:  # a ring within each part
            other = part[(list(part).index(row) + 1) % len(part)]
            world.topics.rows.ids()[row, 0] = other
            world.topics.rows.counts()[row] = 1
    world.run(40)
    assert world.met[0] > 0
    assert world.met[1] == 0  # the other topic was never in parts
    assert (overlays[: held.offsets[1]] == 0).all()
    flood = Flood(world.topics.rows, held.offsets)
    event = flood.start(0, int(half[0]))
    while not flood.is_over:
        flood.advance()
        world.topics.run(1)
    assert flood.reached[event] == 60


# --- events -------------------------------------------------------------------------


def test_every_event_that_is_not_lost_reaches_all_subscribers() -> None:
    held = spread(np.full(30, 40), 1_000, 13)
    world = build(WorldSettings(table_size=5, visits=60, settled=True), held, 13)
    events = Events(world)
    for cycle in range(10):
        world.step()
        events.publish(np.arange(30), random_peers(30, 1_000, 13, "test.publisher", cycle))
        events.advance()
    while not events.is_over:
        world.step()
        events.advance()
    assert events.totals.published == 300
    assert events.flood.notified == events.totals.expected
    assert events.totals.expected == 40 * (300 - events.totals.lost)
    assert events.totals.lost <= 3
    assert events.totals.lookups > 200


def test_measured_costs_agree_with_the_closed_form() -> None:
    held = spread(np.full(50, 40), 2_000, 14)
    world = build(WorldSettings(table_size=10, visits=31, settled=True), held, 14)
    world.run(2)
    costs = measure(world, 10, 50)
    system = Deployment(2_000, 50, 2_000, table_size=10, visits=31)
    predicted = tera_costs(system)
    upkeep, caused = costs.maintenance, costs.events  # 50 events in each of ten cycles
    assert costs.totals.published == 500
    total = upkeep.maintenance() + caused.for_events()
    assert total / costs.notified == pytest.approx(per_notification(predicted, system), rel=0.02)
    assert upkeep.exchange_general / 10 == predicted.exchange_general
    assert upkeep.exchange_topic / 10 == predicted.exchange_topic
    assert upkeep.advert / 10 == pytest.approx(predicted.advert, rel=0.02)
    assert caused.lookup / 10 == pytest.approx(predicted.lookup, rel=0.05)
    assert costs.flooded == (2, 2 * 2_000 * 20, 1.0)
