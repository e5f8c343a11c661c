"""The checkers accept a sound record and name every fault that is put into it."""

from __future__ import annotations

import pytest

from nameless import contact_of, unsigned_run
from weft.ids import Topic
from weft.protocol import publication
from weft.protocol.seam import Answer, Outcome
from weft.sim.checkers.deliveries import (
    LIARS_ASKED,
    check_answers,
    check_complete,
    check_genuine,
    check_once,
    check_only_subscribers,
    check_parasites,
)
from weft.sim.faults import Episode
from weft.sim.network import Partition
from weft.sim.record import Delivery, Life, Parasite, Publication, Record, Stay

TOPIC = Topic("/a")
RUN = unsigned_run(contact_of(1, 0).peer, b"hello")
EVENT = RUN.event(0)


def _delivery(peer: int, at_ms: int = 150, life: int = 1) -> Delivery:
    return Delivery(at_ms, peer, life, TOPIC, EVENT, 1)


def _sound() -> Record:
    """Peers 0, 1 and 2 subscribe, peer 0 publishes at 100 ms, all three get it."""
    record = Record()
    for peer in range(3):
        record.lives.append(Life(peer, 1, 0))
        record.stays.append(Stay(peer, 1, TOPIC, start_ms=10, joined_ms=20))
        record.deliveries.append(_delivery(peer))
    publication = Publication(1, 100, 0, 1, TOPIC, b"hello")
    publication.answers.append((100, Answer(1, "delivered", contact_of(1, 0), RUN)))
    record.publications[1] = publication
    return record


def _without_delivery_to(record: Record, peer: int) -> Record:
    record.deliveries = [d for d in record.deliveries if d.peer != peer]
    return record


def test_sound_record_passes_everything() -> None:
    record = _sound()
    assert check_complete(record) == []
    assert check_only_subscribers(record) == []
    assert check_once(record) == []
    assert check_genuine(record, honest=3) == []
    assert check_answers(record, healed_ms=0, last_ms=900) == []
    assert check_parasites(record, grace_ms=50, healed_ms=0) == []


# --- genuine ----------------------------------------------------------------------------------


def test_an_event_in_the_name_of_an_honest_peer_that_it_never_published_is_named() -> None:
    record = _sound()
    del record.publications[1]
    texts = check_genuine(record, honest=3)
    assert len(texts) == 3
    assert all("which peer 0 has never published" in text for text in texts)
    assert check_genuine(record, honest=0) == []  # hostile peers publish what they like


# --- completeness -----------------------------------------------------------------------------


def test_missed_event_is_named() -> None:
    (text,) = check_complete(_without_delivery_to(_sound(), 2))
    assert text == (
        "peer 2, in /a since 20 ms, never got event 1 of peer 0 (life 1) in /a, published at "
        "100 ms, though peer 0 got it at 150 ms and holds it"
    )


def test_nothing_is_owed_in_a_topic_that_hostile_peers_have_captured() -> None:
    record = _without_delivery_to(_sound(), 2)
    assert check_complete(record, captured={TOPIC}) == []
    assert len(check_complete(record, captured={Topic("/b")})) == 1


def test_a_receipt_counts_that_another_peer_gave() -> None:
    record = _sound()
    record.deliveries = []
    record.stays[0].end_ms = 120  # the publisher has it no more
    assert check_complete(record, receipts=True) == []  # and nobody else had said so
    record.publications[1].answers[:] = [(100, Answer(1, "delivered", contact_of(1, 9), RUN))]
    assert check_complete(record) == []
    texts = check_complete(record, receipts=True)
    assert len(texts) == 2
    assert all("its publisher was told at 100 ms that it is delivered" in text for text in texts)


@pytest.mark.parametrize(
    ("liars", "members", "owed"),
    [(19, 2, True), (20, 2, False), (20, 19, False), (20, 20, True), (40, 40, True)],
)
def test_a_receipt_is_worth_nothing_where_liars_are_most_and_all_that_are_asked(
    liars: int, members: int, owed: bool
) -> None:
    """Two members stay and never get it; the others left after it was published."""
    record = _sound()
    record.deliveries = []
    record.stays[0].end_ms = 90
    record.publications[1].answers[:] = [(100, Answer(1, "delivered", contact_of(1, 9), RUN))]
    for peer in range(3, 1 + members):
        record.stays.append(Stay(peer, 1, TOPIC, start_ms=10, joined_ms=20, end_ms=900))
    assert len(check_complete(record, receipts=True, liars=liars)) == (2 if owed else 0)


@pytest.mark.parametrize(
    ("got", "cut", "owed"), [(True, (50, 400), 0), (True, (300, 400), 2), (False, (50, 400), 2)]
)
def test_a_true_receipt_of_one_side_of_a_cut_is_no_promise_to_the_other(
    got: bool, cut: tuple[int, int], owed: int
) -> None:
    """The member that got the event has left; two never get it."""
    record = _sound()
    record.stays[0].end_ms = 200
    record.deliveries = [_delivery(0)] if got else []
    record.publications[1].answers[:] = [(100, Answer(1, "delivered", contact_of(1, 9), RUN))]
    cuts = [Episode(*cut, Partition((0, 1, 1)), told=False)]
    assert len(check_complete(record, receipts=True, cuts=cuts)) == owed


@pytest.mark.parametrize(
    ("sides", "cut", "owed"),
    [
        ((1, 1, 1, 0), (50, 400), 0),
        ((1, 0, 1, 0), (50, 400), 3),  # peer 1 is there, too
        ((1, 1, 1, 0), (50, 200), 3),  # what took it holds it for longer than the cut lasts
        ((1, 1, 1, 0), (300, 900), 3),  # the cut comes later
    ],
)
def test_where_no_member_is_on_a_side_an_event_is_held_for_a_while_only(
    sides: tuple[int, ...], cut: tuple[int, int], owed: int
) -> None:
    """Peer 3 published, was told by another that it is delivered, and nobody has got it."""
    record = _sound()
    record.lives.append(Life(3, 1, 0))
    record.deliveries = []
    record.publications[1] = Publication(1, 100, 3, 1, TOPIC, b"hello")
    record.publications[1].answers[:] = [(100, Answer(1, "delivered", contact_of(1, 9), RUN))]
    cuts = [Episode(*cut, Partition(sides), told=False)]
    assert len(check_complete(record, receipts=True, cuts=cuts, held_ms=200)) == owed


def test_as_many_are_asked_as_the_checker_thinks() -> None:
    assert LIARS_ASKED == publication.ENOUGH


def test_latecomers_and_leavers_are_owed_nothing() -> None:
    late = _without_delivery_to(_sound(), 2)
    late.stays[2].joined_ms = 100
    assert check_complete(late) == []
    never_joined = _without_delivery_to(_sound(), 2)
    never_joined.stays[2].joined_ms = None
    assert check_complete(never_joined) == []
    left = _without_delivery_to(_sound(), 2)
    left.stays[2].end_ms = 900
    assert check_complete(left) == []


def test_delivery_in_an_earlier_life_does_not_count() -> None:
    record = _without_delivery_to(_sound(), 2)
    record.stays[2].life = 3
    record.deliveries.append(_delivery(2, life=1))
    (text,) = check_complete(record)
    assert text.startswith("peer 2, in /a")


def test_event_whose_holders_are_gone_is_lost_without_blame() -> None:
    record = _sound()
    record.deliveries = [_delivery(0)]
    record.stays[0].end_ms = 500
    assert check_complete(record) == []


def test_holder_that_unsubscribed_and_came_back_holds_nothing() -> None:
    record = _sound()
    record.deliveries = [_delivery(0)]
    record.stays[0].end_ms = 200
    record.stays.append(Stay(0, 1, TOPIC, start_ms=300, joined_ms=310))
    assert check_complete(record) == []


def test_access_point_that_accepted_must_not_lose() -> None:
    record = _sound()
    record.deliveries = []
    record.publications[1].answers[:] = [(120, Answer(1, "delivered", contact_of(1, 2), RUN))]
    texts = check_complete(record)
    assert len(texts) == 3
    assert "though access point 2 had accepted it by 120 ms and holds it" in texts[0]
    record.stays[2].end_ms = 130
    assert check_complete(record) == []


# --- deliveries to the right ones, once -----------------------------------------------------------


def test_delivery_to_a_stranger_before_or_after_is_named() -> None:
    record = _sound()
    record.deliveries += [_delivery(7, 300), _delivery(1, 5), _delivery(0, 400, life=2)]
    record.stays[2].end_ms = 140
    texts = check_only_subscribers(record)
    assert [text.split(" was")[0] for text in texts] == ["peer 2", "peer 7", "peer 1", "peer 0"]
    assert texts[1] == (
        "peer 7 was handed event 1 of peer 0 (life 1) in /a at 300 ms while it was not subscribed"
    )


def test_second_delivery_is_named_but_not_in_another_life() -> None:
    record = _sound()
    record.deliveries += [_delivery(1, 170), _delivery(2, 700, life=3)]
    assert check_once(record) == [
        "peer 1 was handed event 1 of peer 0 (life 1) in /a at 170 ms, and already at 150 ms"
    ]


# --- answers --------------------------------------------------------------------------------------


def _answered(*outcomes: Outcome) -> list[str]:
    record = _sound()
    record.publications[1].answers = [(110, Answer(1, outcome)) for outcome in outcomes]
    return check_answers(record, healed_ms=50, last_ms=900)


def test_one_final_answer_is_wanted() -> None:
    assert _answered("queued", "delivered") == []
    assert "was told nothing, not one final outcome" in _answered()[0]
    assert "was told queued, not" in _answered("queued")[0]
    assert "was told delivered, delivered, not" in _answered("delivered", "delivered")[0]
    assert "was told delivered, queued, not" in _answered("delivered", "queued")[0]


def test_healed_network_finds_the_subscribers() -> None:
    (text,) = _answered("no_subscriber")
    assert text == (
        "peer 0 published in /a at 100 ms and was told no_subscriber, though 3 peers had been "
        "subscribed since before 50 ms"
    )
    (text,) = _answered("queued", "dropped")
    assert "was told dropped, though 3 peers" in text


def test_not_judged_before_healing_nor_shortly_before_the_end_nor_after_a_crash() -> None:
    record = _sound()
    record.publications[1].answers = [(110, Answer(1, "no_subscriber"))]
    assert check_answers(record, healed_ms=101, last_ms=900) == []
    record.publications[1].answers = []
    assert check_answers(record, healed_ms=50, last_ms=100) == []
    record.lives[0].end_ms = 105
    assert check_answers(record, healed_ms=50, last_ms=900) == []


def test_subscriber_that_never_joined_is_named() -> None:
    record = _sound()
    record.stays[1].joined_ms = None
    (text,) = check_answers(record, healed_ms=0, last_ms=900)
    assert text == "peer 1 subscribed to /a at 10 ms and was never told that it has joined"


# --- parasites ------------------------------------------------------------------------------------


def _parasites(*times_ms: int, peer: int = 2, ended_ms: int | None = 200) -> list[str]:
    record = _sound()
    record.stays[2].end_ms = ended_ms
    record.parasites = [Parasite(at_ms, 0, peer, TOPIC, "Payload") for at_ms in times_ms]
    return check_parasites(record, grace_ms=50, healed_ms=400)


def test_never_subscribed_is_never_sent_an_event() -> None:
    assert _parasites(300, peer=9) == [
        "peer 9, never subscribed, was sent a Payload of /a by peer 0 at 300 ms"
    ]


def test_sender_may_err_while_it_cannot_know_better() -> None:
    assert _parasites(210, 240) == []  # on their way when it unsubscribed
    assert _parasites(300, 350) == []  # what it was told may have been lost
    assert _parasites(500, 520) == []  # the first one after healing, and what was on its way


def test_sender_that_was_told_in_a_healed_network_is_named() -> None:
    assert _parasites(500, 600) == [
        "peer 2, unsubscribed since 200 ms, was sent a Payload of /a by peer 0 at 600 ms"
    ]
