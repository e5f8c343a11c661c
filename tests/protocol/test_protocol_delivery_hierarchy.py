"""Events that climb: in which topics, under which name, and what is believed of that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import protocol_kit
from protocol_kit import Rig, T, answers, delivered, run, sent, told
from weft.documents.run import Part, Run
from weft.ids import Topic
from weft.protocol import seam
from weft.protocol.config import Config
from weft.protocol.membership import Advert
from weft.protocol.multi_topic import Again
from weft.protocol.publication import RouteEvent, RouteResult
from weft.protocol.recent import Repair
from weft.protocol.tera.access_points import Advertisement, LookupMiss, LookupWalk
from weft.protocol.wire import Payload

A = Topic(f"{T}/a")
B = Topic(f"{A}/b")
LEVELS = (B, A, T)
HIERARCHY = Config(hierarchies=(T,))


def member(*topics: Topic, config: Config = HIERARCHY) -> Rig:
    """Subscribed to these topics, with 2 and 3 linked in each."""
    return protocol_kit.member(2, 3, topics=topics, config=config)


def climbing(*topics: Topic) -> seam.PublishTogether:
    return seam.PublishTogether(tuple(range(1, 1 + len(topics))), topics, b"goal", 0)


def event(*topics: Topic, number: int = 1, in_topic: Topic = T) -> Run:
    """An event of peer 9 that is the first in each of these topics, as it is in one of them."""
    parts = tuple(Part(topic, 1) for topic in topics)
    return run(9, number, b"goal", topic=in_topic, parts=parts)


def notes(effects: list[seam.Effect]) -> list[tuple[Topic, Topic | None]]:
    """Where events were delivered, and where they are said to have been published."""
    return [(e.topic, e.published_in) for e in effects if isinstance(e, seam.Deliver)]


def test_a_peer_says_where_an_event_counts() -> None:
    rig = Rig(1, HIERARCHY)
    assert rig.peer.levels(B) == [B, A, T]
    assert rig.peer.levels(Topic("/other/a")) == ["/other/a"]
    assert Rig(1).peer.levels(B) == [B]


# --- publishing ---------------------------------------------------------------------------------


def test_a_subscriber_of_all_levels_is_told_once_for_each() -> None:
    rig = member(*LEVELS)
    effects = rig.do(climbing(*rig.peer.levels(B)))
    assert notes(effects) == [(B, None), (A, B), (T, B)]
    assert answers(effects) == [(1, "delivered"), (2, "delivered"), (3, "delivered")]


def test_a_neighbour_in_all_levels_gets_the_payload_once() -> None:
    effects = member(*LEVELS).do(climbing(*LEVELS))
    assert told(effects, Payload) == [2, 3]
    assert told(effects, Again) == [2, 2, 3, 3]


def test_levels_above_are_handed_over_like_any_topic() -> None:
    rig = Rig(1, HIERARCHY)
    rig.meet(4)
    rig.hear(5, Advertisement([Advert(B, 1, 1)]))
    rig.hear(6, Advertisement([Advert(T, 2, 1)]))
    effects = rig.do(climbing(*LEVELS))
    routed = [
        (to, message.topic, message.run.payloads[0]) for to, message in sent(effects, RouteEvent)
    ]
    assert routed == [(5, B, b"goal"), (6, T, b"goal")]
    assert {message.topic for _, message in sent(effects, LookupWalk)} == {A}


def test_topics_that_were_named_together_keep_their_own_names() -> None:
    other = Topic("/other")
    rig = member(A, T, other)
    assert notes(rig.do(climbing(other, A, T))) == [(other, None), (A, None), (T, A)]


# --- levels that nobody is in ---------------------------------------------------------------------


def outsider() -> Rig:
    """Knows peer 4 and subscribers of A; a lookup above has just found nobody."""
    rig = Rig(1, HIERARCHY)
    rig.meet(4)
    rig.hear(5, Advertisement([Advert(A, 1, 1)]))
    miss(rig, rig.do(climbing(A, T)))
    return rig


def walks(effects: list[seam.Effect]) -> list[LookupWalk]:
    return [message for _, message in sent(effects, LookupWalk)]


def miss(rig: Rig, effects: list[seam.Effect]) -> list[seam.Effect]:
    """All walks of a lookup end without an answer."""
    assert walks(effects)
    return [e for walk in walks(effects) for e in rig.hear(4, LookupMiss(walk.lookup))]


def climb(rig: Rig, first: int) -> list[seam.Effect]:
    return rig.do(seam.PublishTogether((first, first + 1), (A, T), b"goal", 0))


def test_events_that_climb_where_nobody_was_found_share_the_next_lookup() -> None:
    rig = outsider()
    for first in (10, 20, 30):
        effects = climb(rig, first)
        assert told(effects, RouteEvent) == [5]  # their own topic does not wait
        assert walks(effects) == []
        rig.wait(200)
    effects = rig.wait(1_000)
    assert len({walk.lookup for walk in walks(effects)}) == 1
    effects = miss(rig, effects)
    assert answers(effects) == [(11, "no_subscriber"), (21, "no_subscriber"), (31, "no_subscriber")]
    rig.wait(1_000)
    assert len(walks(climb(rig, 40))) > 0  # after a while the first one looks at once


def test_a_peer_that_subscribes_meanwhile_gets_events_that_climb() -> None:
    rig = outsider()
    climb(rig, 10)
    rig.hear(6, Advertisement([Advert(T, 2, 1)]))
    effects = rig.wait(1_000)
    assert [(to, e.topic) for to, e in sent(effects, RouteEvent)] == [(6, T)]


def test_an_event_published_there_itself_does_not_wait_and_takes_the_others_along() -> None:
    rig = outsider()
    climb(rig, 10)
    effects = rig.publish(topic=T, token=20)
    assert len({walk.lookup for walk in walks(effects)}) == 1
    assert answers(miss(rig, effects)) == [(11, "no_subscriber"), (20, "no_subscriber")]
    assert walks(rig.wait(2_000)) == []


def test_a_peer_that_leaves_gives_up_events_that_climb() -> None:
    rig = outsider()
    climb(rig, 10)
    assert (11, "dropped") in answers(rig.do(seam.Leave()))
    assert rig.wait(2_000) == []


# --- receiving ----------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [A, T])
def test_a_subscriber_above_learns_where_it_was_published(topic: Topic) -> None:
    effects = member(topic).hear(2, Payload(topic, event(*LEVELS, in_topic=topic), 1))
    assert notes(effects) == [(topic, B)]
    assert told(effects, Payload) == [3]


def test_a_reference_tells_where_its_event_was_published() -> None:
    rig = member(B, T)
    assert notes(rig.hear(2, Payload(B, event(*LEVELS, in_topic=B), 1))) == [(B, None)]
    one = event(*LEVELS)
    again = Again(T, one.publisher, 1, 1, 1, Part(B, 1), one.prev, one.signature)
    assert notes(rig.hear(2, again)) == [(T, B)]


def test_outside_the_hierarchy_a_topic_above_is_any_other_topic() -> None:
    rig = member(T, config=Config(hierarchies=(A,)))
    assert notes(rig.hear(2, Payload(T, event(*LEVELS), 1))) == [(T, None)]


def test_topics_elsewhere_are_no_origin() -> None:
    rig = member(T)
    assert notes(rig.hear(2, Payload(T, event(Topic("/tt/a"), T), 1))) == [(T, None)]


@pytest.mark.parametrize("forged", [event(B, A), event(B, A, T, number=2), event(B)])
def test_an_event_that_does_not_count_in_a_topic_goes_no_further(forged: Run) -> None:
    rig = member(T)
    effects = rig.hear(2, Payload(T, forged, 1))
    assert delivered(effects) == [] and told(effects, Payload) == []
    assert rig.peer.counters["forged"] == 1
    [(_, result)] = sent(rig.hear(9, RouteEvent(T, forged)), RouteResult)
    assert not result.accepted
    rig.hear(2, Repair(T, [forged]))
    assert rig.peer.counters["forged"] == 3
    effects = rig.hear(2, Payload(T, event(*LEVELS), 1))  # the true one is not held up
    assert notes(effects) == [(T, B)]


NAMES = st.sampled_from([T, A, B, Topic("/tt"), Topic("/tt/a"), Topic(""), Topic("t"), Topic("/")])
PARTS = st.lists(st.builds(Part, NAMES, st.integers(1, 2)), max_size=5)


@given(PARTS)
def test_whatever_an_event_says_an_origin_is_one_of_its_sub_topics(parts: list[Part]) -> None:
    rig = member(T)
    said = run(9, 1, b"goal", parts=tuple(parts))
    found = notes(rig.hear(2, Payload(T, said, 1)))
    assert bool(found) == (not parts or Part(T, 1) in parts)
    for _, published_in in found:
        topics = [part.topic for part in parts]
        first = next((topic for topic in topics if topic in (T, A, B)), T)
        assert (published_in or T) == first


# --- a routing that sends no references -----------------------------------------------------------


def test_over_a_flood_each_level_goes_by_itself_and_keeps_the_name() -> None:
    config = Config(routing="flood", hierarchies=(T,))
    rig = Rig(1, config)
    rig.meet(2)
    for topic in (A, T):
        rig.subscribe(topic)
    effects = rig.do(climbing(*LEVELS))
    assert notes(effects) == [(A, B), (T, B)]
    pushed = [(to, message.topic) for to, message in sent(effects, Payload)]
    assert pushed == [(2, B), (2, A), (2, T)]
    assert sent(effects, Again) == []
    assert notes(rig.hear(2, Payload(T, event(*LEVELS), 1))) == [(T, B)]
    rig.hear(2, Payload(T, event(B, A, number=2), 1))
    assert rig.peer.counters["forged"] == 1


def test_without_a_hierarchy_a_flood_carries_no_list_of_topics() -> None:
    rig = Rig(1, Config(routing="flood"))
    rig.meet(2)
    effects = rig.do(climbing(A, T))
    assert [message.run.parts for _, message in sent(effects, Payload)] == [(), ()]


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ["", "t", "/t/", "//", "/a/.."])
def test_a_root_that_is_no_topic_is_named(root: str) -> None:
    with pytest.raises(ValueError, match="hierarchies: topic"):
        Config(hierarchies=("/", root))
