"""Advertisements: receivers, how often, and in pages that never grow with the topics there are."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from protocol_kit import Rig, T, contact, event, number_of, sent, told
from weft.ids import GENERAL, Topic
from weft.protocol import config as c
from weft.protocol import seam
from weft.protocol.membership import Advert, JoinRequest, ShuffleReply, ShuffleRequest
from weft.protocol.publication import RouteEvent
from weft.protocol.tera.access_points import Advertisement, LookupMiss, LookupWalk
from weft.protocol.tera.links import LinkRequest

TERA = c.Tera(advertise_to=2, advert_page=4, advert_pages_per_cycle=2)


def subscriber(topics: int, config: c.Config | None = None) -> Rig:
    rig = Rig(1, config or c.Config(tera=TERA))
    for number in range(topics):
        rig.subscribe(Topic(f"/{number}"), token=number)
    rig.meet(2, 3, 4, 5)
    rig.wait(1_000)  # what is new has been advertised
    keep_neighbours(rig, rig.cycle())  # what is to ride has been put together
    return rig


def keep_neighbours(rig: Rig, effects: list[seam.Effect]) -> None:
    """Answer view exchanges, so that nobody is dropped."""
    for to, request in sent(effects, ShuffleRequest):
        if not request.topic:
            rig.hear(to, ShuffleReply(request.topic, request.tick, []))


def rounds(rig: Rig, cycles: int) -> list[list[tuple[int, list[Advert]]]]:
    """What each peer is told in each cycle: riding on a view exchange, or after it."""
    found = []
    for _ in range(cycles):
        effects = rig.cycle()
        keep_neighbours(rig, effects)
        riding = [(to, one.adverts) for to, one in sent(effects, ShuffleRequest) if not one.topic]
        found.append(riding + [(to, one.adverts) for to, one in sent(effects, Advertisement)])
    return found


def test_the_list_rides_on_every_view_exchange_and_takes_no_message_of_its_own() -> None:
    rig = subscriber(3)
    asked: Counter[int] = Counter()
    for _ in range(9):
        effects = rig.cycle()
        keep_neighbours(rig, effects)
        assert sent(effects, Advertisement) == []
        [(to, request)] = [one for one in sent(effects, ShuffleRequest) if not one[1].topic]
        assert sorted(advert.topic for advert in request.adverts) == ["/0", "/1", "/2"]
        asked[to] += 1
    assert set(asked) == {2, 3, 4, 5}


def test_a_peer_that_is_asked_tells_its_list_too_once_a_cycle() -> None:
    """However often it is asked: an answer must not be much larger than the question."""
    rig = subscriber(3)
    for expected in (3, 0, 0):
        [(_, reply)] = sent(rig.hear(9, ShuffleRequest(GENERAL, 7, [])), ShuffleReply)
        assert len(reply.adverts) == expected


def test_a_weak_peer_tells_its_list_in_some_exchanges_only() -> None:
    rig = subscriber(3, c.Config(tera=TERA, capacity=0.5))
    told_in = sum(bool(adverts) for one in rounds(rig, 200) for _, adverts in one)
    assert 75 <= told_in <= 125  # half of 200 coins, within three and a half deviations


def test_a_strong_peer_tells_its_list_to_others_besides_and_asks_for_less_room() -> None:
    rig = subscriber(3, c.Config(tera=TERA, capacity=2.5))
    for one in rounds(rig, 9):
        assert len(one) == 1 + 3  # an exchange, and two for each one and a half above the usual
        for _, adverts in one:
            assert sorted(advert.topic for advert in adverts) == ["/0", "/1", "/2"]


@pytest.mark.parametrize(
    ("capacity", "popularity", "told_to"), [(0.3, 1, 1), (1.0, 3, 2), (2, 6, 4)]
)
def test_a_new_subscription_is_told_to_more_by_the_strong_as_of_a_larger_topic(
    capacity: float, popularity: int, told_to: int
) -> None:
    rig = Rig(1, c.Config(tera=TERA, capacity=capacity))
    rig.subscribe()
    rig.link(2, 3)
    rig.meet(4, 5, 6, 7)
    adverts = sent(rig.wait(100), Advertisement)
    assert len(adverts) == told_to
    assert {advert.popularity for _, one in adverts for advert in one.adverts} == {popularity}


@pytest.mark.parametrize("reply", [False, True])
def test_what_rides_on_an_exchange_enters_the_table(reply: bool) -> None:
    rig = Rig(1)
    rig.meet(2)
    adverts = [Advert(T, 1, 1)]
    if reply:
        [(to, request)] = sent(rig.cycle(), ShuffleRequest)
        rig.hear(to, ShuffleReply(GENERAL, request.tick, [], adverts=adverts))
        unasked = [Advert(Topic("/no"), 1, 1)]
        rig.hear(to, ShuffleReply(GENERAL, request.tick, [], adverts=unasked))
    else:
        rig.hear(2, ShuffleRequest(GENERAL, 7, [], adverts=adverts))
    assert rig.peer.tera.table.find(T) == contact(2)
    assert rig.peer.tera.table.find(Topic("/no")) is None


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
        assert len(one) <= TERA.advert_pages_per_cycle and len({to for to, _ in one}) == 1
        for _, adverts in one:
            assert len(adverts) <= TERA.advert_page
            heard.update(advert.topic for advert in adverts)
    assert set(heard) == {f"/{number}" for number in range(topics)}
    assert max(heard.values()) - min(heard.values()) <= 1


def test_what_was_left_in_the_meantime_is_not_advertised() -> None:
    rig = subscriber(12)
    rounds(rig, 1)
    rig.do(seam.Unsubscribe(99, Topic("/11")))
    for one in rounds(rig, 6):
        assert "/11" not in [advert.topic for _, adverts in one for advert in adverts]


def test_without_neighbours_nothing_is_sent_and_nothing_forgotten() -> None:
    rig = Rig(1, c.Config(tera=TERA))
    rig.subscribe()
    assert told(rig.wait(100_000), Advertisement) == []
    rig.meet(2)
    assert told(rig.wait(100), Advertisement) == [2]


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
    """A peer with twenty thousand subscriptions, of which ten cycles advertise some."""
    gc.disable()  # nothing of this is garbage, and looking through it again and again is slow
    rig = Rig(1, checked=False)
    for number in range(20_000):
        rig.subscribe(Topic(f"/all/{number}"), token=number)
    rig.meet(2, 3, 4, 5, 6, 7)
    yield rig
    gc.enable()
    del rig
    gc.collect()  # else the next test does so, whatever it is about


def test_a_cycle_of_a_peer_with_very_many_topics_costs_little(collector: Rig) -> None:
    config = collector.peer.config
    pages = config.tera.advert_pages_per_cycle
    walks = config.cyclon.exchanges_per_cycle_max * config.tera.walks
    advertised: set[str] = set()
    collector.wait(1_000)  # what is new has been advertised
    for _ in range(10):
        effects = collector.cycle()
        keep_neighbours(collector, effects)
        adverts = [message.adverts for _, message in sent(effects, Advertisement)]
        adverts += [message.adverts for _, message in sent(effects, ShuffleRequest)]
        assert len(adverts) <= pages
        assert all(len(page) <= config.tera.advert_page for page in adverts)
        assert len(sent(effects, LookupWalk)) <= walks
        assert len(sent(effects, ShuffleRequest)) == 1
        assert len(effects) <= pages + walks + config.cyclon.exchanges_per_cycle_max + 10
        advertised |= {advert.topic for page in adverts for advert in page}
        for _, walk in sent(effects, LookupWalk):
            collector.hear(2, LookupMiss(walk.lookup))
    assert len(advertised) >= 5 * config.tera.advert_page * pages


def test_a_message_to_a_peer_with_very_many_topics_touches_one_topic(collector: Rig) -> None:
    topic = Topic("/all/7777")
    effects = collector.hear(9, JoinRequest(topic))
    assert {number_of(e.to) for e in effects if isinstance(e, seam.Send)} == {9}
    effects = collector.hear(9, RouteEvent(topic, event(9, 1, topic=topic)))
    assert len(effects) <= 4
