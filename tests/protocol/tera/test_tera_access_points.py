"""The access point table: what advertisements do to it, hints, and the number of topics."""

from __future__ import annotations

from random import Random

import pytest

from protocol_kit import Rig, T, contact, everything_sent, number_of, sent
from weft.ids import GENERAL, Topic
from weft.protocol import config as c
from weft.protocol.membership import NO_NEWS, Advert, JoinRequest, LeaveNotice, ShuffleRequest
from weft.protocol.tera.access_points import Advertisement, Hint, TableCopy, TableEntry

SMALL = c.Config(tera=c.Tera(table_size=5))


def topics(count: int, start: int = 0) -> list[Topic]:
    return [Topic(f"/{number}") for number in range(start, start + count)]


def advertise(rig: Rig, sender: int, *names: Topic, overlay: int = 1, popularity: int = 1) -> None:
    rig.hear(sender, Advertisement([Advert(name, overlay, popularity) for name in names]))


def access_point(rig: Rig, topic: Topic = T) -> int | None:
    found = rig.peer.tera.table.find(topic)
    return number_of(found) if found is not None else None


def test_an_advertised_topic_is_known_with_its_advertiser() -> None:
    rig = Rig(1)
    advertise(rig, 2, T)
    assert access_point(rig) == 2


def test_the_latest_advertiser_is_the_access_point_however_popular_the_topic() -> None:
    rig = Rig(1)
    advertise(rig, 2, T)
    advertise(rig, 3, T, popularity=1 << 31)
    assert access_point(rig) == 3


def test_popular_topics_enter_seldom() -> None:
    entered = 0
    for seed_topic in range(400):
        rig = Rig(seed_topic + 10)
        advertise(rig, 2, T, popularity=4)
        entered += access_point(rig) is not None
    assert 70 < entered < 130


def test_the_table_is_bounded_and_keeps_newcomers_as_well_as_old_ones() -> None:
    rig = Rig(1, SMALL)
    for start in range(0, 100, 10):
        advertise(rig, 2, *topics(10, start))
        assert len(rig.peer.tera.table) == 5
        held = [access_point(rig, topic) for topic in topics(100)]
        assert [number for number in held if number is not None] == [2] * 5


def test_one_advertiser_cannot_flush_a_table() -> None:
    rig = Rig(1)
    own = topics(20, 100_000)
    for number, topic in enumerate(own):
        advertise(rig, 2 + number % 6, topic)
    for start in range(0, 24 * 256, 256):
        advertise(rig, 66, *topics(256, start))
    assert [access_point(rig, topic) is not None for topic in own] == [True] * 20
    assert len(rig.peer.tera.table) == rig.peer.config.tera.table_size


def test_of_a_full_table_one_advertiser_gets_a_fourth_from_others() -> None:
    rig = Rig(1, c.Config(tera=c.Tera(table_size=80)))
    held = topics(80, 100_000)
    for number, topic in enumerate(held):
        advertise(rig, 2 + number % 40, topic)
    for start in range(0, 4_096, 256):
        advertise(rig, 66, *topics(256, start))
    assert 60 <= sum(access_point(rig, topic) is not None for topic in held) < 80
    latest = topics(40, 200_000)  # others' topics find their way in as before
    for number, topic in enumerate(latest):
        advertise(rig, 2 + number, topic)
    assert sum(access_point(rig, topic) is not None for topic in latest) >= 20
    assert len(rig.peer.tera.table) == 80


def test_a_stale_access_point_is_forgotten_and_a_newer_one_is_not() -> None:
    rig = Rig(1)
    advertise(rig, 2, T)
    rig.hear(3, LeaveNotice(T))
    assert access_point(rig) == 2
    rig.hear(2, LeaveNotice(T))
    assert access_point(rig) is None


def test_all_entries_of_a_lost_peer_go() -> None:
    rig = Rig(1)
    advertise(rig, 2, *topics(3))
    advertise(rig, 3, *topics(3, 3))
    rig.lose(2)
    assert [access_point(rig, topic) for topic in topics(6)] == [None] * 3 + [3] * 3


# --- partition merging by third parties ---------------------------------------------------------


def test_two_overlays_of_one_topic_are_told_of_each_other() -> None:
    rig = Rig(1)
    advertise(rig, 2, T, overlay=70)
    effects = rig.hear(3, Advertisement([Advert(T, 80, 1)]))
    assert everything_sent(effects) == [(3, Hint(T, 70, contact(2)))]


@pytest.mark.parametrize(("sender", "overlay"), [(3, 70), (2, 80)])
def test_the_same_overlay_or_the_same_peer_is_no_news(sender: int, overlay: int) -> None:
    rig = Rig(1)
    advertise(rig, 2, T, overlay=70)
    assert everything_sent(rig.hear(sender, Advertisement([Advert(T, overlay, 1)]))) == []


def test_a_member_that_is_told_of_another_overlay_exchanges_views_with_it() -> None:
    rig = Rig(1)
    rig.subscribe()
    overlay = rig.peer.tera.topics[T].overlay
    assert everything_sent(rig.hear(2, Hint(T, overlay, contact(3)))) == []
    [(to, request)] = sent(rig.hear(2, Hint(T, overlay + 1, contact(3))), ShuffleRequest)
    assert (to, request.news.overlay) == (3, overlay)


# --- how many topics there are ------------------------------------------------------------------


def ask_with(rig: Rig, sample: list[int]) -> None:
    rig.hear(2, ShuffleRequest(GENERAL, 1, [], NO_NEWS, sample))


def test_view_exchanges_carry_a_sample_of_the_table() -> None:
    rig = Rig(1)
    rig.meet(2)
    advertise(rig, 2, *topics(30))
    [(_, request)] = sent(rig.cycle(), ShuffleRequest)
    assert len(set(request.topics_sample)) == 8


def test_the_number_of_topics_is_estimated_from_others_samples() -> None:
    """Forty topics; each table knows ten of them."""

    def mixed(number: int) -> Rig:
        rig = Rig(number, c.Config(tera=c.Tera(table_size=10)))
        rig.meet(2)
        order = Random(number)
        for _ in range(6):
            advertise(rig, 2, *order.sample(topics(40), 40))
        return rig

    asked = mixed(1)
    assert asked.peer.tera.table.topics_active() == 0
    for number in range(10, 60):
        other = mixed(number)
        [(_, request)] = sent(other.cycle(), ShuffleRequest)
        ask_with(asked, request.topics_sample)
    assert 28 <= asked.peer.tera.table.topics_active() <= 57


def test_old_samples_fade() -> None:
    rig = Rig(1)
    rig.meet(2)
    advertise(rig, 2, *topics(8))
    [(_, request)] = sent(rig.cycle(), ShuffleRequest)
    for _ in range(1_000):
        ask_with(rig, request.topics_sample)
    assert rig.peer.tera.table.topics_active() == 8
    unknown = list(range(16))
    for _ in range(1_000):
        ask_with(rig, unknown)
    assert rig.peer.tera.table.topics_active() > 100


def test_copied_tables_do_not_mislead_the_estimate() -> None:
    """A thousand topics, of which newcomers copied the same hundred: they took them for 120."""
    rig = Rig(1)
    rig.meet(2)
    rig.hear(4, TableCopy([TableEntry(topic, 7, contact(9)) for topic in topics(100)]))
    [(_, request)] = sent(rig.cycle(), ShuffleRequest)
    for _ in range(20):
        ask_with(rig, request.topics_sample)  # from others that have the same copy
    assert rig.peer.tera.table.topics_active() == 0  # nothing is known yet
    advertise(rig, 2, *topics(10, start=200))
    own = Rig(2)
    own.meet(3)
    advertise(own, 3, *topics(10, start=200))
    [(_, advertised)] = sent(own.cycle(), ShuffleRequest)
    for _ in range(20):
        ask_with(rig, advertised.topics_sample[:1] + list(range(15)))
    assert 150 <= rig.peer.tera.table.topics_active() <= 350


# --- copies for newcomers -----------------------------------------------------------------------


def test_a_newcomer_is_given_the_table_in_pages() -> None:
    rig = Rig(1)
    advertise(rig, 2, *topics(100))
    pages = [page for to, page in sent(rig.hear(3, JoinRequest(GENERAL)), TableCopy) if to == 3]
    copied = [entry.topic for page in pages for entry in page.entries]
    assert sorted(copied) == sorted(topics(100))
    assert max(len(page.entries) for page in pages) <= 64


def test_a_copy_fills_what_room_there_is_and_replaces_nothing() -> None:
    rig = Rig(1, SMALL)
    advertise(rig, 2, *topics(3))
    copied = [TableEntry(topic, 7, contact(9)) for topic in topics(10)]
    copied.append(TableEntry(T, 7, contact(1)))  # names this peer itself
    rig.hear(4, TableCopy(copied))
    assert len(rig.peer.tera.table) == 5
    assert [access_point(rig, topic) for topic in topics(5)] == [2, 2, 2, 9, 9]
