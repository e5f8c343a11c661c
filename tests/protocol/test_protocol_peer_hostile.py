"""What no peer, hostile or confused, can do to another with messages that are valid."""

from __future__ import annotations

import msgspec
import pytest

from protocol_kit import (
    Group,
    Rig,
    T,
    answers,
    calls,
    contact,
    delivered,
    event,
    everything_sent,
    member,
    proven_run,
    sent,
    span,
    told,
)
from signed_kit import ANNA
from weft.documents.descriptor import seal_event
from weft.documents.run import NOTHING_BEFORE, sign_run
from weft.ids import GENERAL, Contact, Topic, cid_of, owned_name
from weft.protocol import config as c
from weft.protocol import messages as m
from weft.protocol import quota, seam
from weft.protocol.liveness import LinkList, Ping, Pong
from weft.protocol.membership import (
    NO_NEWS,
    Advert,
    Descriptor,
    JoinGift,
    JoinReply,
    JoinRequest,
    JoinWalk,
    LeaveNotice,
    OverlayNews,
    ShuffleRequest,
)
from weft.protocol.publication import RouteResult
from weft.protocol.recent import Offer, Repair, Want
from weft.protocol.tera.access_points import Advertisement, Hint, LookupMiss, LookupWalk
from weft.protocol.tera.links import LinkReply, LinkRequest, Unlink
from weft.protocol.tera.size import SampleWalk
from weft.protocol.tera.tree import Graft, Prune
from weft.protocol.wire import LIST_MAX, Payload
from weft.rules import capacity

# --- taking another's place ---------------------------------------------------------------------


def test_a_forged_event_does_not_swallow_an_own_one() -> None:
    rig = member(2)
    assert delivered(rig.hear(2, Payload(T, event(1, 1, b"forged"), 1))) == []
    effects = rig.publish(b"real")
    assert delivered(effects) == [(1, 1)]
    assert told(effects, Payload) == [2]


def test_an_own_event_that_comes_back_is_no_forgery() -> None:
    """Published as a stranger to the topic, by way of an access point, just before subscribing."""
    rig = Rig(1)
    rig.meet(4)
    rig.hear(5, Advertisement([Advert(T, 1, 1)]))
    rig.publish()
    rig.hear(5, RouteResult(T, 1, 1, accepted=True))
    rig.subscribe()
    rig.hear(5, JoinReply(T, True))
    rig.link(2, 3)
    effects = rig.hear(2, Payload(T, event(1, 1), 1))
    assert 3 in told(effects, Payload)  # others may depend on getting it from here
    assert rig.peer.counters["forged"] == 0


def test_only_a_peer_itself_can_change_its_address() -> None:
    rig = Rig(1)
    rig.meet(2)
    lie = Descriptor(Contact(contact(2).peer, "/ip4/127.0.0.1/tcp/6666"), 0)
    rig.hear(3, ShuffleRequest(GENERAL, 1, [lie]))
    assert contact(2) in rig.peer.general.contacts()


def test_an_answer_to_no_question_takes_no_link() -> None:
    rig = member(2, 3, config=c.Config(links=c.Links(wanted=1, most=2)))
    for number in range(10, 30):
        assert everything_sent(rig.hear(number, LinkReply(T, True))) == [(number, Unlink(T))]


def test_a_result_of_somebody_else_does_not_refuse_an_event() -> None:
    rig = Rig(1)
    rig.meet(2)
    rig.hear(5, Advertisement([Advert(T, 1, 1)]))
    rig.publish()
    assert rig.hear(6, RouteResult(T, 1, 1, accepted=False)) == []


# --- poisoned words -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "poison",
    [
        OverlayNews(0, 1 << 32, 0, 0),  # could not be said again in an advert
        Advert(T, 0, 0),
        Advert(T, 0, 1 << 32),
        Descriptor(contact(2), -1),
        event(2, 0),
    ],
    ids=lambda poison: type(poison).__name__,
)
def test_what_could_not_be_said_again_is_not_let_in(poison: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(poison), type=type(poison))


@pytest.mark.parametrize(
    "message",
    [
        Payload(GENERAL, event(9, 1), 1),
        LinkRequest(GENERAL, True),
        Hint(GENERAL, 1, contact(3)),
        LinkList([GENERAL], first=False),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_refusal_never_says_goodbye_to_the_network(message: m.AnyMessage) -> None:
    """The empty topic stands for the general overlay."""
    rig = Rig(1)
    assert (2, LeaveNotice(GENERAL)) not in everything_sent(rig.hear(2, message))


# --- much from little ---------------------------------------------------------------------------


def test_one_question_brings_each_event_once() -> None:
    rig = member(2)
    rig.publish(bytes(1_000))
    again = [span(1, 1, 1)] * LIST_MAX
    wanted = sent(rig.hear(2, Want(T, again)), Repair)
    grafted = sent(rig.hear(2, Graft(T, again)), Payload)
    assert len(wanted) == len(grafted) == 1


def test_one_advertisement_forces_one_exchange() -> None:
    rig = member()
    adverts = [Advert(T, overlay, 1) for overlay in range(LIST_MAX)]
    assert len(sent(rig.hear(2, Advertisement(adverts)), ShuffleRequest)) == 1


def test_a_walk_goes_no_further_than_one_would_send_ones_own() -> None:
    rig = Rig(1)
    rig.meet(2)
    [(_, walk)] = sent(rig.hear(3, LookupWalk(T, contact(9), 1, 4_096)), LookupWalk)
    assert walk.steps < 2 * rig.peer.config.tera.lookup_visits_unknown // rig.peer.config.tera.walks
    assert walk.steps < rig.peer.config.tera.lookup_visits_max


def floods(kind: str, *senders: int, seconds: int) -> tuple[Rig, int]:
    """Each sender sends 64 walks a second; also returns how many of them were passed on."""
    rig = member(*range(100, 121))
    rig.meet(*range(100, 120))
    passed = 0
    for second in range(seconds):
        passed += sum(carries(rig, kind, sender, second) for sender in senders for _ in range(64))
        rig.wait(1_000)
    return rig, passed


def carries(rig: Rig, kind: str, sender: int, number: int) -> bool:
    walks: dict[str, m.AnyMessage] = {
        "lookup": LookupWalk(Topic("/other"), contact(9), number, 4_096),
        "join": JoinWalk(GENERAL, contact(9), 64),
        "sample": SampleWalk(T, contact(9), number, 64),
    }
    return bool(sent(rig.hear(sender, walks[kind]), type(walks[kind])))


@pytest.mark.parametrize("kind", ["lookup", "join", "sample"])
def test_nobody_has_others_walk_without_end(kind: str) -> None:
    """A walk costs its sender one message and others many; other senders' walks go on."""
    rig, passed = floods(kind, 66, seconds=60)
    assert 0 < passed <= capacity.WALKS_MAX * 2 // 3
    assert not carries(rig, kind, 66, 99) and carries(rig, kind, 67, 99)
    rig.wait(quota.SPAN_MS)
    assert carries(rig, kind, 66, 100)


def test_walks_that_many_peers_send_are_bounded_in_all() -> None:
    rig, passed = floods("lookup", *range(60, 80), seconds=60)
    assert passed <= capacity.WALKS_MAX
    assert carries(rig, "lookup", 81, 99)  # a peer that sends few of them has them carried


@pytest.mark.parametrize("kind", ["lookup", "sample", "hint"])
@pytest.mark.parametrize("senders", [(66,), tuple(range(60, 80))])
def test_peers_that_others_name_are_sent_to_a_bounded_number_of_times(
    kind: str, senders: tuple[int, ...]
) -> None:
    """A walk that ends here names its origin, and each may cost a connection that nobody takes."""
    rig = member(2, 3)
    state = rig.peer.tera.topics[T]
    reached: set[int] = set()
    for round_ in range(2_000):
        origin = contact(10_000 + round_)
        message = {
            "lookup": LookupWalk(Topic("/elsewhere"), origin, round_, 0),
            "sample": SampleWalk(T, origin, round_, 0),
            "hint": Hint(T, state.overlay + 1 + round_, origin),
        }[kind]
        for to, _ in everything_sent(rig.hear(senders[round_ % len(senders)], message)):
            reached.add(to)
    assert 0 < len(reached) <= (16 if len(senders) == 1 else 64)
    assert rig.peer.counters["names_refused"]


def test_walks_that_end_here_cost_a_peer_that_speaks_for_itself_a_bounded_number() -> None:
    rig = member(2, 3)
    answered = 0
    for round_ in range(10_000):
        walk = LookupWalk(Topic("/elsewhere"), contact(2), round_, 0)
        answered += len(everything_sent(rig.hear(66, walk)))
    assert 16 < answered <= capacity.WALKS_MAX
    own = LookupWalk(Topic("/elsewhere"), contact(66), 1, 0)
    assert told(rig.hear(66, own), LookupMiss)  # what it asks itself is answered


def test_a_peer_that_routes_otherwise_tells_few_made_up_origins_that_a_walk_ends_there() -> None:
    rig = Rig(1, c.Config(routing="flood"))
    reached = {
        to
        for round_ in range(200)
        for to, _ in everything_sent(
            rig.hear(66, LookupWalk(T, contact(10_000 + round_), round_, 3))
        )
    }
    assert 0 < len(reached) <= 16


def test_a_peer_that_asks_again_and_again_to_join_has_others_do_nothing_more() -> None:
    """Its first request starts the walks of a newcomer; the others cost it and the peer it asks."""
    rig = member(2, 3, 4, 5)
    rig.meet(2, 3, 4, 5, 6)
    for topic in (GENERAL, T):
        caused = [
            to
            for _ in range(200)
            for to, _ in everything_sent(rig.hear(9, JoinRequest(topic)))
            if to != 9
        ]
        assert len(caused) <= c.Cyclon().join_walks


def test_among_few_peers_no_honest_walk_is_refused() -> None:
    """All walks of two peers go over one link. (A lookup whose walk was refused took 5 s.)"""
    group = Group(2)
    group.run(3_000)
    for token in range(20):
        group.do(1, seam.Publish(token, Topic(f"/nobody/{token}"), (b"",), 1))
    group.run(1_000)
    assert answers(group.effects[1]) == [(token, "no_subscriber") for token in range(20)]
    assert group.peers[2].counters["walks_refused"] == 0


def test_a_pong_nobody_asked_for_brings_no_list() -> None:
    rig = member(2)
    assert everything_sent(rig.hear(2, Pong(77, 1))) == []


@pytest.fixture(scope="module")
def busy() -> Rig:
    rig = Rig(1, checked=False)
    for number in range(2_000):
        rig.subscribe(Topic(f"/{number}"), token=number)
    rig.meet(2, 3)
    return rig


@pytest.mark.parametrize(
    "message",
    [
        LeaveNotice(GENERAL),
        JoinRequest(GENERAL),
        ShuffleRequest(GENERAL, 1, []),
        JoinRequest(Topic("/7")),
        Advertisement([Advert(Topic("/7"), 1, 1)]),
        Ping(1, 1),
        LinkList([Topic("/7")], first=True),
        LookupWalk(Topic("/7"), contact(9), 1, 3),
    ],
    ids=lambda message: type(message).__name__,
)
def test_no_message_costs_by_the_number_of_topics(busy: Rig, message: m.AnyMessage) -> None:
    assert calls(lambda: busy.hear(9, message)) < 500


# --- what happens to the honest -----------------------------------------------------------------


def test_a_newcomer_whose_welcome_was_lost_does_not_fetch_the_past() -> None:
    rig = Rig(1)
    rig.meet(2)
    rig.hear(5, Advertisement([Advert(T, 1, 1)]))
    assert told(rig.subscribe(), JoinRequest) == [5]
    rig.hear(6, JoinGift(T, Descriptor(contact(6), 0)))
    assert sent(rig.hear(6, Offer(T, [span(9, 1, 3)], first=True)), Want) == []
    rig.hear(5, JoinReply(T, True, NO_NEWS, [], [proven_run(9, 3).statement()]))
    assert sent(rig.hear(6, Offer(T, [span(9, 1, 4)], first=True)), Want) == [
        (6, Want(T, [span(9, 4, 4)]))
    ]


def test_leaving_answers_what_is_still_open() -> None:
    rig = Rig(1)
    assert answers(rig.publish(token=5)) == [(5, "queued")]
    assert answers(rig.do(seam.Leave())) == [(5, "dropped")]


def test_a_prune_over_a_link_only_the_other_end_knows_counts() -> None:
    rig = member(2)
    rig.hear(3, Prune(T))
    assert told(rig.publish(), Payload) == [2]


# --- topics whose names carry their owner's key, without a store ----------------------------------

NAMED = owned_name(contact(2).peer, "/orders")


def test_without_a_store_only_the_owner_is_heard_in_a_topic_named_after_it() -> None:
    rig = Rig()
    rig.subscribe(NAMED)
    rig.link(2, 3, 4, topic=NAMED)
    effects = rig.hear(3, Payload(NAMED, event(3, 1, b"forged", topic=NAMED), 1))
    effects += rig.hear(3, Payload(NAMED, event(3, 2, b"\xa7 not a block", topic=NAMED), 1))
    assert delivered(effects) == [] and sent(effects, Payload) == []
    assert rig.peer.counters["refused_by_name"] == 2
    effects = rig.hear(2, Payload(NAMED, event(2, 1, b"true", topic=NAMED), 1))
    assert delivered(effects) == [(2, 1)]
    assert {number for number, _ in sent(effects, Payload)} == {3, 4}


def test_an_event_under_a_version_is_passed_on_without_a_store() -> None:
    """Only a peer with a store can say whether the owner lets its publisher publish."""
    block = seal_event(
        ANNA.sign,
        publisher=ANNA.peer,
        topic=NAMED,
        payload=b"perhaps",
        created_ms=1,
        link=cid_of(b"a version"),
        metadata={"incarnation": 1, "number": 1},
    ).block
    rig = Rig()
    rig.subscribe(NAMED)
    rig.link(2, 3, topic=NAMED)
    run = sign_run(ANNA.sign, NAMED, ANNA.peer, 1, 1, 1, (block,), NOTHING_BEFORE, sealed=True).run
    effects = rig.hear(2, Payload(NAMED, run, 1))
    assert len(sent(effects, Payload)) == 1


def test_without_a_store_a_peer_does_not_publish_in_anothers_named_topic() -> None:
    rig = Rig()
    effects = rig.publish(b"mine", NAMED)
    [answer] = [effect for effect in effects if isinstance(effect, seam.Answer)]
    assert answer.outcome == "refused" and "by its name" in answer.reason
    assert answers(Rig(2).publish(b"mine", NAMED)) != [(9, "refused")]
