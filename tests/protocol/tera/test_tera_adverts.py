"""Advertisements: whom, how often, and in pages that never grow however many topics there are."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from protocol_kit import Rig, T, contact, event, number_of, sent, told
from weft.ids import Topic
from weft.protocol import config as c
from weft.protocol import seam
from weft.protocol.membership import JoinRequest, ShuffleReply, ShuffleRequest
from weft.protocol.publication import RouteEvent
from weft.protocol.tera.access_points import Advert, Advertisement, LookupMiss, LookupWalk
from weft.protocol.tera.links import LinkRequest

TERA = c.Tera(advertise_every_cycles=3, advertise_to=2, advert_page=4, advert_pages_per_cycle=2)


def subscriber(topics: int, config: c.Config | None = None) -> Rig:
    rig = Rig(1, config or c.Config(tera=TERA))
    for number in range(topics):
        rig.subscribe(Topic(f"/{number}"), token=number)
    rig.meet(2, 3, 4, 5)
    rig.wait(1_000)  # what is new has been advertised
    return rig


def keep_neighbours(rig: Rig, effects: list[seam.Effect]) -> None:
    """Answer view exchanges, so that nobody is dropped."""
    for to, request in sent(effects, ShuffleRequest):
        if not request.topic:
            rig.hear(to, ShuffleReply(request.topic, request.tick, []))


def rounds(rig: Rig, cycles: int) -> list[list[tuple[int, Advertisement]]]:
    found = []
    for _ in range(cycles):
        effects = rig.cycle()
        keep_neighbours(rig, effects)
        found.append(sent(effects, Advertisement))
    return found


def test_every_so_many_cycles_the_list_goes_to_some_neighbours() -> None:
    cycles = rounds(subscriber(3), 9)
    lengths = [len(one) for one in cycles]
    assert sorted(lengths) == [0, 0, 0, 0, 0, 0, 2, 2, 2]
    assert lengths[:3] == lengths[3:6] == lengths[6:]
    for one in cycles:
        assert len({to for to, _ in one}) == len(one)
        for _, message in one:
            assert sorted(advert.topic for advert in message.adverts) == ["/0", "/1", "/2"]


def test_an_advert_names_overlay_and_popularity() -> None:
    rig = Rig(1)
    rig.subscribe()
    rig.link(2, 3)
    rig.meet(4)
    [(_, message), *_] = sent(rig.wait(100), Advertisement)
    assert message.adverts == [Advert(T, rig.peer.tera.topics[T].overlay, 3)]


def test_long_lists_are_paged_over_cycles_and_nothing_is_left_out() -> None:
    topics = 50
    rig = subscriber(topics)
    heard: Counter[str] = Counter()
    for one in rounds(rig, 24):
        assert len(one) <= TERA.advert_pages_per_cycle * TERA.advertise_to
        for _, message in one:
            assert len(message.adverts) <= TERA.advert_page
            heard.update(advert.topic for advert in message.adverts)
    assert set(heard) == {f"/{number}" for number in range(topics)}
    assert max(heard.values()) - min(heard.values()) <= TERA.advertise_to


def test_what_was_left_in_the_meantime_is_not_advertised() -> None:
    rig = subscriber(12)
    while not any(rounds(rig, 1)):
        pass
    rig.do(seam.Unsubscribe(99, Topic("/11")))
    for one in rounds(rig, 6):
        for _, message in one:
            assert "/11" not in [advert.topic for advert in message.adverts]


def test_without_neighbours_nothing_is_sent_and_nothing_forgotten() -> None:
    rig = Rig(1, c.Config(tera=TERA))
    rig.subscribe()
    assert told(rig.wait(100_000), Advertisement) == []
    rig.meet(2)
    assert told(rig.wait(100), Advertisement) == [2]


def test_peers_that_start_together_advertise_in_different_cycles() -> None:
    first: Counter[int] = Counter()
    for number in range(1, 40):
        rig = Rig(number)
        rig.subscribe()
        rig.meet(*(n for n in (51, 52, 53)))
        rig.wait(100)
        cycles = rounds(rig, 5)
        first[next(index for index, one in enumerate(cycles) if one)] += 1
    assert len(first) == 5


# --- what an advertisement does to a subscriber -------------------------------------------------


def test_another_overlay_of_an_own_topic_forces_a_view_exchange() -> None:
    rig = Rig(1)
    rig.subscribe()
    mine = rig.peer.tera.topics[T].overlay
    effects = rig.hear(2, Advertisement([Advert(T, mine + 1, 1)]))
    [(to, request)] = sent(effects, ShuffleRequest)
    assert (to, request.topic, request.news.overlay) == (2, T, mine)
    assert rig.peer.counters["partitions_found"] == 1


def test_a_member_of_the_same_overlay_fills_a_free_slot() -> None:
    rig = Rig(1)
    rig.subscribe()
    mine = rig.peer.tera.topics[T].overlay
    effects = rig.hear(2, Advertisement([Advert(T, mine, 1)]))
    assert sent(effects, ShuffleRequest) == []
    assert rig.peer.tera.topics[T].view.peers == [contact(2).peer]
    assert told(effects, LinkRequest) == [2]


# --- very many topics ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def collector() -> Iterator[Rig]:
    """A peer with a hundred thousand subscriptions."""
    gc.disable()  # nothing of this is garbage, and looking through it again and again is slow
    rig = Rig(1, checked=False)
    for number in range(100_000):
        rig.subscribe(Topic(f"/all/{number}"), token=number)
    rig.meet(2, 3, 4, 5, 6, 7)
    yield rig
    gc.enable()


def test_a_cycle_of_a_peer_with_very_many_topics_costs_little(collector: Rig) -> None:
    config = collector.peer.config
    pages = config.tera.advert_pages_per_cycle * config.tera.advertise_to
    walks = config.cyclon.exchanges_per_cycle_max * config.tera.walks
    advertised: set[str] = set()
    for _ in range(10):
        effects = collector.cycle()
        keep_neighbours(collector, effects)
        adverts = sent(effects, Advertisement)
        assert len(adverts) <= pages
        assert all(len(message.adverts) <= config.tera.advert_page for _, message in adverts)
        assert len(sent(effects, LookupWalk)) <= walks
        assert len(sent(effects, ShuffleRequest)) == 1
        assert len(effects) <= pages + walks + config.cyclon.exchanges_per_cycle_max + 10
        advertised |= {advert.topic for _, message in adverts for advert in message.adverts}
        for _, walk in sent(effects, LookupWalk):
            collector.hear(2, LookupMiss(walk.lookup))
    assert len(advertised) >= 5 * config.tera.advert_page * config.tera.advert_pages_per_cycle


def test_and_a_message_to_it_touches_one_topic(collector: Rig) -> None:
    topic = Topic("/all/77777")
    effects = collector.hear(9, JoinRequest(topic))
    assert {number_of(e.to) for e in effects if isinstance(e, seam.Send)} == {9}
    effects = collector.hear(9, RouteEvent(topic, event(9, 1, topic=topic)))
    assert len(effects) <= 4
