"""Finding an access point: from the own table, by walks, or not at all."""

from __future__ import annotations

import pytest

from protocol_kit import (
    Group,
    Rig,
    T,
    answers,
    contact,
    everything_sent,
    sent,
    timers,
    told,
)
from weft.ids import GENERAL, Topic
from weft.protocol import config as c
from weft.protocol import seam
from weft.protocol.membership import NO_NEWS, Advert, JoinReply, JoinRequest, ShuffleRequest
from weft.protocol.publication import RouteCheck, RouteEvent, RouteResult
from weft.protocol.tera.access_points import (
    Advertisement,
    LookupHit,
    LookupMiss,
    LookupWalk,
    Stale,
)

# --- one's own lookups, seen through publishing -------------------------------------------------


def looking(*neighbours: int, config: c.Config | None = None) -> tuple[Rig, list[seam.Effect]]:
    rig = Rig(1, config)
    rig.meet(*(neighbours or (2, 3, 4, 5, 6)))
    return rig, rig.publish()


def test_the_own_table_answers_at_once() -> None:
    rig = Rig(1)
    rig.meet(2)
    rig.hear(2, Advertisement([Advert(T, 1, 1)]))
    assert told(rig.publish(), LookupWalk) == []


def test_walks_set_out_through_different_neighbours() -> None:
    _, effects = looking()
    walks = sent(effects, LookupWalk)
    assert len({to for to, _ in walks}) == 4
    # Nothing is known of the number of topics: 40 visits in all, of which each start is one.
    walk = LookupWalk(T, contact(1), walks[0][1].lookup, 9)
    assert [one for _, one in walks] == [walk] * 4
    assert len(timers(effects, "lookup.late")) == 1


def test_fewer_neighbours_walk_further() -> None:
    _, effects = looking(2)
    [(_, walk)] = sent(effects, LookupWalk)
    assert walk.steps == 39


def test_the_first_hit_ends_the_lookup() -> None:
    rig, effects = looking()
    number = sent(effects, LookupWalk)[0][1].lookup
    assert told(rig.hear(2, LookupHit(number, contact(9))), RouteEvent) == [9]
    assert rig.hear(3, LookupHit(number, contact(8))) == []
    assert rig.hear(4, LookupMiss(number)) == []


def test_what_further_walks_found_is_tried_next() -> None:
    """Algorithms 1 to 3: a lookup yields a list, and all of it is tried."""
    rig, effects = looking()
    number = sent(effects, LookupWalk)[0][1].lookup
    rig.hear(2, LookupHit(number, contact(9)))
    rig.hear(3, LookupHit(number, contact(8)))
    rig.hear(4, LookupHit(number, contact(7)))
    effects = rig.lose(9)
    assert told(effects, LookupWalk) == [] and told(effects, RouteEvent) == [8]
    assert told(rig.lose(8), RouteEvent) == [7]
    assert len(told(rig.lose(7), LookupWalk)) == 4


@pytest.mark.parametrize(("later_ms", "asked"), [(1_000, [8]), (11_000, [])])
def test_what_further_walks_found_is_tried_for_some_seconds_only(
    later_ms: int, asked: list[int]
) -> None:
    rig = Rig(1)
    rig.meet(2, 3)
    number = sent(rig.subscribe(), LookupWalk)[0][1].lookup
    rig.hear(2, LookupHit(number, contact(9)))
    rig.hear(9, JoinReply(T, True))
    rig.hear(3, LookupHit(number, contact(8)))
    rig.do(seam.Unsubscribe(2, T))
    rig.wait(later_ms)
    assert told(rig.subscribe(), JoinRequest) == asked


def test_a_table_that_named_a_stale_access_point_hears_of_it() -> None:
    rig, effects = looking()
    number = sent(effects, LookupWalk)[0][1].lookup
    rig.hear(2, LookupHit(number, contact(9)))
    effects = rig.lose(9)
    assert sent(effects, Stale) == [(2, Stale(T, contact(9).peer))]


def test_late_misses_do_not_end_the_next_attempt() -> None:
    rig, effects = looking(2)
    number = sent(effects, LookupWalk)[0][1].lookup
    again = rig.wait_for("lookup")
    assert [walk.attempt for _, walk in sent(again, LookupWalk)] == [1]
    assert rig.hear(2, LookupMiss(number, 0)) == []  # of the walk that was given up
    assert answers(rig.hear(2, LookupMiss(number, 1))) == [(9, "no_subscriber")]


def test_a_hit_that_names_oneself_is_none() -> None:
    rig, effects = looking()
    number = sent(effects, LookupWalk)[0][1].lookup
    assert rig.hear(2, LookupHit(number, contact(1))) == []


def test_one_that_is_to_be_avoided_does_not_end_a_lookup_by_naming_itself() -> None:
    """Else a black hole that answers every walk would be all that a publisher ever finds."""
    rig = Rig(1)
    rig.meet(2, 3)
    rig.hear(5, Advertisement([Advert(T, 1, 1)]))
    rig.publish()
    effects = rig.hear(5, RouteResult(T, 1, 1, True))  # others are looked for
    [(_, walk), *_] = sent(effects, LookupWalk)
    assert walk.avoid == [contact(5).peer]
    for _ in range(8):
        assert rig.hear(5, LookupHit(walk.lookup, contact(5))) == []
    assert told(rig.hear(3, LookupHit(walk.lookup, contact(6))), RouteCheck) == [6]


def test_when_all_walks_missed_nobody_is_there() -> None:
    rig, effects = looking()
    number = sent(effects, LookupWalk)[0][1].lookup
    for neighbour in (2, 3, 4):
        assert rig.hear(neighbour, LookupMiss(number)) == []
    assert answers(rig.hear(5, LookupMiss(number))) == [(9, "no_subscriber")]
    assert rig.peer.counters["lookups_empty"] == 1


def test_lost_walks_are_sent_again_a_few_times() -> None:
    rig, _ = looking(2)
    tries = 1
    while True:
        effects = rig.wait_for("lookup")
        if answers(effects):
            break
        assert told(effects, LookupWalk) == [2]
        rig.hear(2, JoinRequest(GENERAL))  # it answers no exchanges, but is there
        tries += 1
    assert answers(effects) == [(9, "queued")]  # what died on its way is no answer
    assert 2 <= tries <= 4


def test_lookups_beyond_a_bound_wait_for_their_turn() -> None:
    rig = Rig(1)
    rig.meet(2)
    walks = []
    for number in range(100):
        effects = rig.subscribe(Topic(f"/{number}"), token=number)
        walks += [walk for _, walk in sent(effects, LookupWalk)]
    assert len(walks) == 64
    for walk in walks[:36]:
        effects = rig.hear(2, LookupMiss(walk.lookup))
        assert len(sent(effects, LookupWalk)) == 1
        assert [outcome for _, outcome in answers(effects)] == ["instantiated"]
    assert sent(rig.hear(2, LookupMiss(walks[36].lookup)), LookupWalk) == []


def test_when_the_last_neighbour_goes_all_waiting_lookups_end() -> None:
    rig = Rig(1, checked=False)
    rig.meet(2)
    for number in range(3_000):
        rig.subscribe(Topic(f"/{number}"), token=number)
    effects = rig.lose(2)
    assert sorted(token for token, _ in answers(effects)) == list(range(3_000))
    assert {outcome for _, outcome in answers(effects)} == {"instantiated"}


def visits(rig: Rig, topic: Topic) -> int:
    """How many visits a lookup makes that begins with one walk."""
    [(_, first)] = sent(rig.subscribe(topic), LookupWalk)
    return first.steps + 1


def test_the_number_of_visits_follows_the_number_of_topics() -> None:
    rig = Rig(1, c.Config(tera=c.Tera(table_size=10, lookup_visits_unknown=4)))
    rig.meet(2)
    assert visits(rig, Topic("/a")) == 4
    rig.hear(2, Advertisement([Advert(Topic(f"/{n}"), 1, 1) for n in range(10)]))
    [(_, request)] = sent(rig.cycle(), ShuffleRequest)
    known, unknown = request.topics_sample[:2], [1, 2, 3, 4, 5, 6]
    for _ in range(20):
        rig.hear(2, ShuffleRequest(GENERAL, 1, [], NO_NEWS, known + unknown))
    # A quarter of what others know is known here: 40 topics. ln 0.001 / ln 0.75 = 24.01.
    assert rig.peer.tera.table.topics_active() == 40
    assert visits(rig, Topic("/b")) == 25


# --- others' walks ------------------------------------------------------------------------------


def walk(
    steps: int, origin: int = 9, avoid: tuple[int, ...] = (), passed: tuple[int, ...] = ()
) -> LookupWalk:
    avoided, been_at = ([contact(n).peer for n in numbers] for numbers in (avoid, passed))
    return LookupWalk(T, contact(origin), 7, steps, avoided, passed=been_at)


def test_a_visited_peer_answers_from_its_table() -> None:
    rig = Rig(1)
    rig.meet(2)
    rig.hear(3, Advertisement([Advert(T, 1, 1)]))
    assert everything_sent(rig.hear(2, walk(5))) == [(9, LookupHit(7, contact(3)))]


def test_a_visited_peer_answers_from_its_own_subscriptions() -> None:
    rig = Rig(1)
    rig.subscribe()
    rig.meet(2)
    assert everything_sent(rig.hear(2, walk(5))) == [(9, LookupHit(7, contact(1)))]


def test_a_visited_peer_passes_a_walk_on_where_answering_for_itself_is_off() -> None:
    rig = Rig(1, c.Config(tera=c.Tera(answer_from_subscriptions=False)))
    rig.subscribe()
    rig.meet(2)
    assert everything_sent(rig.hear(3, walk(5))) == [(2, walk(4, passed=(1,)))]


def test_a_visited_peer_that_knows_nothing_passes_the_walk_on() -> None:
    rig = Rig(1)
    rig.meet(2)
    assert everything_sent(rig.hear(3, walk(1))) == [(2, walk(0, passed=(1,)))]


def test_a_walk_goes_to_no_peer_that_it_was_at() -> None:
    rig = Rig(1)
    rig.meet(2, 3, 4, 9)
    onward = everything_sent(rig.hear(3, walk(5, passed=(2, 3))))
    assert onward == [(4, walk(4, passed=(2, 3, 1)))]
    end = everything_sent(rig.hear(4, walk(5, passed=(2, 3, 4))))
    assert end == [(9, LookupMiss(7))]  # nowhere else to go but home


def test_two_peers_subscribe_to_many_topics_at_once() -> None:
    """A walk that went back and forth took all its steps, and soon more than peers take."""
    group = Group(2)
    group.run(5_000)
    before = len(group.log)
    for number in range(50):
        group.do(1, seam.Subscribe(number + 2, Topic(f"/{number}"), None))
    group.run(100)
    done = [e for e in group.effects[1] if isinstance(e, seam.Answer) and e.token > 1]
    assert len(done) == 50
    walks = [one for *_, one in group.log[before:] if isinstance(one, LookupWalk)]
    assert len(walks) == 50


def test_a_walk_beyond_its_senders_share_counts_as_lost() -> None:
    """It was told that the walk ended, as if nobody were subscribed."""
    rig = Rig(1)
    rig.meet(*range(20, 40))
    ends = [everything_sent(rig.hear(9, walk(256))) for _ in range(1_000)]
    assert ends[0] and not ends[-1]
    assert not any(isinstance(one, LookupMiss) for end in ends for _, one in end)
    assert len(told(rig.hear(7, walk(256, origin=7)), LookupWalk)) == 1  # another's share


@pytest.mark.parametrize("neighbours", [(), (2,)])
def test_a_walk_that_can_go_no_further_reports_its_end(neighbours: tuple[int, ...]) -> None:
    rig = Rig(1)
    rig.meet(*neighbours)
    steps = 0 if neighbours else 5
    assert everything_sent(rig.hear(2, walk(steps))) == [(9, LookupMiss(7))]


def test_a_stale_entry_is_forgotten_but_one_peer_cannot_empty_a_table() -> None:
    rig = Rig(1)
    names = [Topic(f"/{number}") for number in range(40)]
    rig.hear(3, Advertisement([Advert(name, 1, 1) for name in names]))
    for name in names:
        rig.hear(2, Stale(name, contact(4).peer))
    assert len(rig.peer.tera.table) == 40  # not what the table says
    for name in names:
        rig.hear(5, Stale(name, contact(3).peer))
    assert len(rig.peer.tera.table) == 24


def test_the_origin_and_those_to_avoid_are_no_answer() -> None:
    rig = Rig(1)
    rig.meet(2)
    rig.hear(3, Advertisement([Advert(T, 1, 1)]))
    assert told(rig.hear(2, walk(5, origin=3)), LookupHit) == []
    onward = everything_sent(rig.hear(4, walk(5, avoid=(3,))))
    assert onward == [(2, walk(4, avoid=(3,), passed=(1,)))]


def test_a_walk_that_comes_home_goes_on_and_its_end_counts() -> None:
    rig, effects = looking(2)
    number = sent(effects, LookupWalk)[0][1].lookup
    home = LookupWalk(T, contact(1), number, 3)
    assert told(rig.hear(3, home), LookupWalk) == [2]
    end = LookupWalk(T, contact(1), number, 0)
    assert answers(rig.hear(2, end)) == [(9, "no_subscriber")]
