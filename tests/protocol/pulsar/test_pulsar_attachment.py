"""Trees that a peer serves because others ask for it: what one asker can cause."""

from __future__ import annotations

from protocol_kit import Rig, contact, sent
from weft.ids import Topic
from weft.protocol import seam
from weft.protocol.config import Config, PulsarSettings
from weft.protocol.kademlia.rpc import FindReply, FindRequest
from weft.protocol.pulsar.attachment import TreeJoin, TreeJoinReply
from weft.rules.multicast import tree_location
from weft.rules.prefix import location_of

STRANGER = 66


def root_for(sender: int, rig: Rig, *topics: str) -> list[bool]:
    """Whether the peer says yes when it is asked to be a root."""
    effects = [rig.hear(sender, TreeJoin(Topic(topic), True, root=True)) for topic in topics]
    return [reply.accepted for one in effects for _, reply in sent(one, TreeJoinReply)]


def test_a_stranger_that_fills_the_trees_does_not_keep_others_out() -> None:
    """The oldest of its trees gives way; where all have as much, nobody's does."""
    rig = Rig(1, Config(routing="pulsarcast", pulsar=PulsarSettings(trees_max=8)))
    made_up = [f"/x/{number}" for number in range(10)]
    assert root_for(STRANGER, rig, *made_up) == [True] * 8 + [False] * 2
    assert root_for(7, rig, "/a", "/b", "/c", "/d", "/e") == [True] * 4 + [False]
    assert root_for(STRANGER, rig, "/more") == [False]
    assert root_for(STRANGER, rig, *made_up[:4]) == [False] * 4
    assert root_for(STRANGER, rig, *made_up[4:8]) == [True] * 4


def test_trees_that_a_peer_is_subscribed_to_itself_give_way_to_nobody() -> None:
    rig = Rig(1, Config(routing="pulsarcast", pulsar=PulsarSettings(trees_max=3)))
    root_for(STRANGER, rig, "/a", "/b", "/c")
    rig.subscribe(Topic("/a"))
    assert root_for(7, rig, "/d") == [True]
    assert list(rig.peer.routing.links()) == ["/a", "/c", "/d"]


def answered(rig: Rig, effects: list[seam.Effect]) -> int:
    """How many questions of lookups there are; others answer them at once."""
    asked = sent(effects, FindRequest)
    for to, request in asked:
        asked += sent(rig.hear(to, FindReply(request.request, True)), FindRequest)
    return len(asked)


def looked_up(rig: Rig, sender: int, *topics: Topic) -> int:
    """How many questions come of it that a peer asks for roots of topics."""
    joins = [TreeJoin(topic, True, root=True) for topic in topics]
    return sum(answered(rig, rig.hear(sender, join)) for join in joins)


def test_a_stranger_that_makes_topics_up_causes_a_bounded_number_of_lookups() -> None:
    """Those that are left wait for later cycles; others' trees do not wait with them."""
    rig = Rig(1, Config(routing="pulsarcast"), checked=False)
    rig.meet(2)
    made_up = [Topic(f"/x/{number}") for number in range(40)]
    assert looked_up(rig, STRANGER, *made_up) == 16
    assert looked_up(rig, 7, Topic("/real")) == 1
    later = [answered(rig, rig.cycle()) for _ in range(2)]  # the first in the same span of time
    assert later == [1, 16 + 1]


def test_topics_far_from_a_peer_cause_no_more_lookups_than_near_ones() -> None:
    """It looks up whether the closer peers that it knows of are still there."""
    rig = Rig(1, Config(routing="pulsarcast"), checked=False)
    rig.meet(*range(2, 12))
    me = location_of(contact(1).peer)
    others = [location_of(contact(number).peer) for number in range(2, 12)]
    topics = [Topic(f"/x/{number}") for number in range(400)]
    far = [
        topic
        for topic in topics
        if sum(one ^ tree_location(topic) < me ^ tree_location(topic) for one in others) >= 8
    ]
    assert len(far) > 20
    assert 16 <= looked_up(rig, STRANGER, *far) <= 16 * 12
