"""What a stranger says in the name of others, and what a publisher says twice.

Each of these attacks worked while events were known by numbers that anybody could claim.
"""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace
from nacl.bindings import crypto_sign_open

from protocol_kit import (
    Rig,
    T,
    calls,
    contact,
    delivered,
    event,
    everything_sent,
    member,
    number_of,
    proven_run,
    run,
    sent,
    signer,
    span,
    told,
)
from weft.documents.run import NOTHING_BEFORE, Run, Statement, sign_run
from weft.ids import Topic
from weft.protocol import config as c
from weft.protocol import seam
from weft.protocol.membership import NO_NEWS, Advert, JoinReply, JoinRequest
from weft.protocol.publication import RouteEvent, RouteResult
from weft.protocol.recent import WORD_MS, Offer, Repair, Want
from weft.protocol.tera.access_points import Advertisement
from weft.protocol.tera.tree import Prune
from weft.protocol.topic_dht.events import Cast
from weft.protocol.wire import Payload

HONEST, THIEF = 9, 6
ROUTINGS: tuple[c.Routing, ...] = ("tera", "flood", "pulsarcast", "topic-dht")


def stolen(first: int, *payloads: bytes, name: int = HONEST) -> Run:
    """A run in another's name, signed with the thief's own key."""
    made = sign_run(
        signer(THIEF), T, contact(name).peer, 1, first, 0, payloads or (b"lie",), NOTHING_BEFORE
    )
    return made.run


def subscriber(routing: c.Routing = "tera", **settings: int) -> Rig:
    config = c.Config(routing=routing, dissemination=c.Dissemination(**settings))  # type: ignore[arg-type]
    rig = Rig(1, config)
    rig.subscribe()
    return rig


def warned(effects: list[seam.Effect]) -> list[str]:
    return [effect.text for effect in effects if isinstance(effect, seam.Warn)]


# --- on the word of a publisher -------------------------------------------------------------------


def unsigned(number: int) -> Run:
    """A run whose signature is nobody's."""
    return replace(event(HONEST, number, b"unsigned"), signature=bytes(64))


def test_what_its_publisher_sends_itself_is_handed_out_before_it_is_proven() -> None:
    """A verification takes longer than all else that a reader does with one event."""
    rig = member(HONEST)
    rig.hear(HONEST, Payload(T, event(HONEST, 1), 1))
    assert delivered(rig.hear(HONEST, Payload(T, unsigned(2), 1))) == [(HONEST, 2)]
    assert delivered(rig.hear(HONEST, Payload(T, event(HONEST, 3), 1))) == [(HONEST, 3)]


def test_what_is_passed_on_is_proven_before() -> None:
    rig = member(HONEST, 2)
    rig.hear(HONEST, Payload(T, event(HONEST, 1), 1))
    heard = rig.hear(HONEST, Payload(T, unsigned(2), 1))
    assert delivered(heard) == [] and told(heard, Payload) == []
    assert rig.peer.counters["forged"] == 1


@pytest.mark.parametrize("case", ["the first of a life", "behind a gap", "from another member"])
def test_a_word_counts_only_where_it_goes_on_from_what_is_proven(case: str) -> None:
    rig = member(HONEST)
    if case != "the first of a life":
        rig.hear(HONEST, Payload(T, event(HONEST, 1), 1))
    number = {"the first of a life": 1, "behind a gap": 3, "from another member": 2}[case]
    sender = 2 if case == "from another member" else HONEST
    assert delivered(rig.hear(sender, Payload(T, unsigned(number), 1))) == []
    assert rig.peer.counters["forged"] == 1


def test_nobody_is_sent_what_is_not_proven() -> None:
    rig = member(HONEST)
    rig.hear(HONEST, Payload(T, event(HONEST, 1), 1))
    rig.hear(HONEST, Payload(T, unsigned(2), 1))
    rig.hear(HONEST, Payload(T, event(HONEST, 3), 1))  # its signature proves what 2 says
    wanted = rig.hear(2, Want(T, [span(HONEST, 1, 3)]))
    (_, repair), *_ = sent(wanted, Repair)
    assert [one.first for one in repair.runs] == [1, 3]


def test_a_newcomer_is_told_of_proven_events_alone() -> None:
    rig = member(HONEST)
    rig.hear(HONEST, Payload(T, event(HONEST, 1), 1))
    rig.hear(HONEST, Payload(T, unsigned(2), 1))
    (_, reply), *_ = sent(rig.hear(2, JoinRequest(T)), JoinReply)
    assert [(one.first, one.last) for one in reply.seen] == [(1, 1)]


def test_a_word_that_was_not_kept_leaves_nothing_and_counts_no_more() -> None:
    rig = member(HONEST)
    recent = rig.peer.tera.topics[T].recent
    rig.hear(HONEST, Payload(T, event(HONEST, 1), 1))
    before = recent.fingerprint()
    for number in (2, 3):
        rig.hear(HONEST, Payload(T, unsigned(number), 1))
    assert recent.fingerprint() != before
    rig.wait(WORD_MS)
    assert delivered(rig.hear(HONEST, Payload(T, unsigned(4), 1))) == []
    assert recent.fingerprint() == before and recent.disproven == 2
    assert delivered(rig.hear(2, Payload(T, event(HONEST, 2), 1))) == [(HONEST, 2)]
    assert delivered(rig.hear(HONEST, Payload(T, unsigned(3), 1))) == []


def test_the_end_of_a_stream_is_proven_too() -> None:
    rig = member(HONEST)
    rig.hear(HONEST, Payload(T, event(HONEST, 1), 1))
    rig.hear(HONEST, Payload(T, unsigned(2), 1))
    rig.wait(WORD_MS)
    assert rig.peer.tera.topics[T].recent.disproven == 1


def test_no_event_waits_until_the_ones_before_it_are_proven() -> None:
    """A timer has them proven, after the event if both are due. Before, the event had."""
    rig = member(HONEST)
    rig.hear(HONEST, Payload(T, event(HONEST, 1), 1))
    rig.hear(HONEST, Payload(T, unsigned(2), 1))
    rig.now += WORD_MS
    assert delivered(rig.hear(HONEST, Payload(T, unsigned(3), 1))) == [(HONEST, 3)]
    rig.wait(1)
    assert rig.peer.tera.topics[T].recent.disproven == 2


# --- in the name of others ------------------------------------------------------------------------


@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_lie_in_an_honest_name_is_not_believed_and_takes_no_number(routing: c.Routing) -> None:
    """One `Repair` per publisher once silenced a topic: its numbers were taken."""
    rig = subscriber(routing)
    lies = [stolen(1, b"lie"), stolen(2, b"lie"), stolen(3, *[b"lie"] * 60)]
    for heard in (
        rig.hear(THIEF, Repair(T, lies)),
        *(rig.hear(THIEF, Payload(T, lie, 1)) for lie in lies),
        rig.hear(THIEF, RouteEvent(T, lies[0])),
        *([rig.hear(THIEF, Cast(T, lies[0], 1, 0))] if routing == "topic-dht" else []),
    ):
        assert delivered(heard) == []
        assert told(heard, Payload) == told(heard, Cast) == []
        assert all(not result.accepted for _, result in sent(heard, RouteResult))
    assert rig.peer.counters["forged"] >= len(lies)
    for number in (1, 2, 3):
        assert delivered(rig.hear(2, Payload(T, event(HONEST, number, b"true"), 1))) == [
            (HONEST, number)
        ]


def test_a_lie_leaves_nothing_behind() -> None:
    rig = member(2, 3)
    recent = rig.peer.tera.topics[T].recent
    before = recent.fingerprint()
    rig.hear(2, Payload(T, stolen(7), 1))
    rig.hear(THIEF, Repair(T, [stolen(8), stolen(1, name=8)]))
    assert len(recent.lives) == len(recent) == 0 and recent.fingerprint() == before
    rig.wait(5_000)
    assert contact(THIEF).peer not in rig.peer.tera.topics[T].links.linked


@pytest.mark.parametrize("routing", [one for one in ROUTINGS if one != "flood"])
def test_many_lies_in_one_message_cost_one_look(routing: c.Routing) -> None:
    rig = subscriber(routing)
    true = event(HONEST, 1, b"true")
    rig.hear(THIEF, Repair(T, [true, *(stolen(number) for number in range(2, 500))]))
    assert rig.peer.counters["forged"] == 1
    assert rig.peer.counters["repaired"] == 1  # what came before is proven


def test_a_number_far_ahead_raises_no_floor() -> None:
    """One forged number just below the bound for outliers, and the publisher rests a while."""
    rig = member(2)
    rig.hear(2, Payload(T, event(HONEST, 1), 1))
    rig.hear(2, Payload(T, stolen(1 + (1 << 20) - 10), 1))
    rig.wait(180_000)
    for number in (2, 3):
        assert delivered(rig.hear(2, Payload(T, event(HONEST, number), 1))) == [(HONEST, number)]


def test_not_even_its_own_key_makes_a_number_of_this_life() -> None:
    """Another process with the same key cannot be told from this one by its signature."""
    rig = member(2)
    assert delivered(rig.hear(2, Payload(T, event(1, 1), 1))) == []
    assert rig.peer.counters["forged"] == 1
    newer = event(1, 1, incarnation=7)  # but that one has started later, and speaks for itself
    assert delivered(rig.hear(2, Payload(T, newer, 1))) == [(1, 1)]


def test_a_run_does_not_count_in_another_topic_or_life() -> None:
    rig = member(2)
    true = event(HONEST, 1, b"true")
    elsewhere = run(HONEST, 1, b"true", topic=Topic("/other"))
    for lie in (elsewhere, replace(true, incarnation=2), replace(true, published_ms=9)):
        assert delivered(rig.hear(2, Payload(T, lie, 1))) == []
    assert delivered(rig.hear(2, Payload(T, true, 1))) == [(HONEST, 1)]


# --- shaping the tree -----------------------------------------------------------------------------


def test_a_forged_copy_prunes_no_link_and_a_true_one_does() -> None:
    rig = member(2, 3)
    rig.hear(2, Payload(T, event(HONEST, 1), 1))
    forged = replace(event(HONEST, 1), payloads=(b"lie",))
    assert sent(rig.hear(3, Payload(T, forged, 1)), Prune) == []
    assert told(rig.hear(3, Payload(T, event(HONEST, 1), 1)), Prune) == [3]


def test_a_made_up_publisher_shapes_no_tree() -> None:
    """The smallest id shapes the tree; nobody has the key of zeros."""
    rig = member(2, 3)
    rig.hear(2, Payload(T, event(HONEST, 1), 1))
    zeros = replace(stolen(1), publisher=bytes(32))
    rig.hear(3, Payload(T, zeros, 1))
    tree = rig.peer.tera.topics[T].tree
    assert tree is not None and [number_of(peer) for peer in tree.eager] == [2, 3]
    assert told(rig.hear(3, Payload(T, event(HONEST, 1), 1)), Prune) == [3]  # still its wave


# --- what was published before --------------------------------------------------------------------


def joined(*seen: Statement) -> Rig:
    """A newcomer whose access point says that these were published before."""
    rig = Rig(1)
    rig.meet(2)
    rig.hear(THIEF, Advertisement([Advert(T, 1, 1)]))
    assert told(rig.subscribe(), JoinRequest) == [THIEF]
    rig.hear(THIEF, JoinReply(T, True, NO_NEWS, [], list(seen)))
    return rig


def test_what_is_said_to_have_been_seen_counts_only_if_its_publisher_says_so() -> None:
    true = proven_run(HONEST, 3).statement()
    lies = [
        replace(true, first=1_000),
        replace(true, count=64),
        proven_run(HONEST, 900, topic=Topic("/other")).statement(),
        replace(proven_run(THIEF, 900).statement(), publisher=contact(HONEST).peer),
    ]
    rig = joined(*lies, true)
    assert rig.peer.counters["forged"] == len(lies)
    assert delivered(rig.hear(2, Payload(T, event(HONEST, 3), 1))) == []
    for number in (4, 5):
        assert delivered(rig.hear(2, Payload(T, event(HONEST, number), 1))) == [(HONEST, number)]


def test_an_older_statement_only_brings_something_older() -> None:
    rig = joined(proven_run(HONEST, 2).statement())
    wanted = sent(rig.hear(2, Offer(T, [span(HONEST, 1, 5)], first=False)), Want)
    assert [message.spans for _, message in wanted] == [[span(HONEST, 3, 5)]]


# --- made-up publishers ---------------------------------------------------------------------------


def test_an_event_of_one_more_publisher_costs_the_same_however_many_are_known() -> None:
    costs = []
    for known in (20, 400):
        rig = subscriber(streams_max=known)
        for publisher in range(10, 10 + known):
            rig.hear(2, Payload(T, event(publisher, 1), 1))
        more = seam.Received(contact(2), Payload(T, event(600, 1), 1))
        costs.append(calls(partial(rig.peer.handle, more, rig.now)))
        assert rig.peer.tera.topics[T].recent.evicted == 1
    assert costs[0] == costs[1]


def test_publishers_that_were_pushed_out_are_not_replayed() -> None:
    """As many made-up publishers as are remembered, and then all again that was true."""
    rig = subscriber(streams_max=50)
    rig.now = 1_000
    honest = [run(HONEST, number, b"true", published_ms=900 + number) for number in (1, 2, 3)]
    for one in honest:
        assert delivered(rig.hear(2, Payload(T, one, 1)))
    made_up = [run(publisher, 1, published_ms=1 << 50) for publisher in range(100, 200)]
    for one in made_up:
        rig.hear(THIEF, Payload(T, one, 1))
    assert contact(HONEST).peer not in {key[0] for key in rig.peer.tera.topics[T].recent.lives}
    for one in honest:
        assert delivered(rig.hear(THIEF, Payload(T, one, 1))) == []
    assert delivered(rig.hear(THIEF, Repair(T, honest))) == []
    rig.now = 2_000  # what is published later is new, also of publishers not heard of
    assert delivered(rig.hear(2, Payload(T, run(8, 1, published_ms=1_998), 1)))
    rig.hear(2, Payload(T, run(HONEST, 4, published_ms=1_999), 1))
    assert delivered(rig.wait(2_000)) == [(HONEST, 4)]  # nothing before it came
    for one in honest:  # nor does it come again, now that the publisher is known once more
        assert delivered(rig.hear(THIEF, Payload(T, one, 1)) + rig.wait(3_000)) == []


def test_made_up_publishers_do_not_silence_new_ones_where_a_clock_is_ahead() -> None:
    """They date what they sign as late as this peer's clock, which is a minute ahead, lets them."""
    rig = subscriber(streams_max=50)
    rig.now = 1_000_000
    for publisher in range(100, 300):  # more than are remembered as gone, too
        rig.hear(THIEF, Payload(T, run(publisher, 1, published_ms=1 << 50), 1))
    one = run(HONEST, 1, published_ms=rig.now - 60_000)
    assert delivered(rig.hear(2, Payload(T, one, 1))) == [(HONEST, 1)]
    old = run(8, 1, published_ms=rig.now - 2 * rig.peer.config.dissemination.recent_ms)
    assert delivered(rig.hear(2, Payload(T, old, 1))) == []  # it may be one that was forgotten


# --- publishers that lie --------------------------------------------------------------------------


def test_two_things_under_one_number_are_noticed_and_kept_as_evidence() -> None:
    rig = member(2, 3)
    one, other = event(HONEST, 1, b"to some"), event(HONEST, 1, b"to others")
    assert delivered(rig.hear(2, Payload(T, one, 1))) == [(HONEST, 1)]
    effects = rig.hear(3, Payload(T, other, 1))
    assert delivered(effects) == [] and told(effects, Payload) == []
    [warning] = warned(effects)
    assert "two different things in /t" in warning
    assert warned(rig.hear(3, Payload(T, other, 1))) == []  # it was said
    assert rig.peer.counters["equivocations"] == 2 and rig.peer.counters["forged"] == 0
    [shown] = rig.peer.status()["equivocations"]  # type: ignore[misc]
    assert shown["topic"] == T
    signatures = set()
    for statement in shown["statements"]:
        said, signature = bytes.fromhex(statement["signed"]), bytes.fromhex(statement["signature"])
        assert crypto_sign_open(signature + said, contact(HONEST).peer) == said
        signatures.add(signature)
    assert signatures == {one.signature, other.signature}


def test_a_run_that_overlaps_with_others_is_one_too() -> None:
    rig = member(2)
    rig.hear(2, Payload(T, run(HONEST, 1, b"1", b"2"), 1))
    wider = run(HONEST, 2, b"2", b"3", prev=bytes(32))
    assert warned(rig.hear(2, Payload(T, wider, 1)))
    assert delivered(rig.hear(2, Payload(T, run(HONEST, 3, b"3"), 1))) == [(HONEST, 3)]


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_a_run_that_does_not_go_on_from_the_one_before_is_a_fork(order: tuple[int, int]) -> None:
    rig = member(2)
    made = {1: run(HONEST, 1, b"1"), 2: run(HONEST, 2, b"2", prev=b"\x01" * 32)}
    first, second = (made[number] for number in order)
    effects = rig.hear(2, Payload(T, first, 1)) + rig.wait(2_000)
    assert delivered(effects) == [(HONEST, order[0])]
    effects = rig.hear(2, Payload(T, second, 1))
    assert delivered(effects) == [] and len(warned(effects)) == 1


def test_a_fork_shows_after_its_events_are_gone_too() -> None:
    """The newest statement of each publisher is kept longer than its events."""
    rig = subscriber(recent_ms=5_000)
    rig.hear(2, Payload(T, event(HONEST, 1), 1))
    rig.wait(12_000)
    assert len(rig.peer.tera.topics[T].recent) == 0
    assert warned(rig.hear(2, Payload(T, run(HONEST, 2, prev=b"\x01" * 32), 1)))
    assert delivered(rig.hear(2, Payload(T, event(HONEST, 2), 1))) == [(HONEST, 2)]


def test_evidence_is_bounded() -> None:
    rig = member(2)
    for publisher in range(10, 110):
        rig.hear(2, Payload(T, event(publisher, 1, b"one"), 1))
        rig.hear(2, Payload(T, event(publisher, 1, b"other"), 1))
    assert len(rig.peer.status()["equivocations"]) == 64  # type: ignore[arg-type]


# --- one signature for several events ------------------------------------------------------------


def test_several_events_at_once_are_one_run_and_one_message() -> None:
    rig = member(2, 3)
    effects = rig.do(seam.Publish(9, T, (b"a", b"b", b"c"), 5))
    assert delivered(effects) == [(1, 1), (1, 2), (1, 3)]
    pushed = [message.run for _, message in sent(effects, Payload)]
    assert len(everything_sent(effects)) == 2 and pushed[0] is pushed[1]
    assert pushed[0].payloads == (b"a", b"b", b"c")
    [answer] = [effect for effect in effects if isinstance(effect, seam.Answer)]
    assert answer.run is pushed[0]
    following = rig.publish(b"d")
    [(_, message), _] = sent(following, Payload)
    assert (message.run.first, message.run.prev) == (4, rig_digest(pushed[0]))


def rig_digest(one: Run) -> bytes:
    made = sign_run(signer(1), T, one.publisher, 1, 1, 5, one.payloads, NOTHING_BEFORE)
    assert made.run == one
    return made.digest
