"""The judges of both DHTs: lookups against the truth, roles against Lemma 4.2."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nameless import contact_of
from weft.ids import Topic
from weft.protocol.topic_dht.roles import location
from weft.sim.checkers.dht import Seat, captured, check_topic

PEERS = [contact_of(1, index).peer for index in range(50)]

A = Topic("/t0")
CHILD, *OTHERS = PEERS[:4]
NEAR, MIDDLE, FAR = sorted(OTHERS, key=lambda p: location(A, p) ^ location(A, CHILD))
RIGHT = [
    Seat(CHILD, True, parent=NEAR),
    Seat(NEAR, True, forwards=True, children=(CHILD,)),
    Seat(FAR, True, forwards=True),
]


def changed(index: int, **changes: object) -> list[Seat]:
    return [
        replace(seat, **changes) if number == index else seat  # type: ignore[arg-type]
        for number, seat in enumerate(RIGHT)
    ]


def test_the_checker_finds_nothing_where_all_is_right() -> None:
    assert check_topic(A, RIGHT, 1).all == []


def test_a_topic_is_captured_where_hostile_peers_alone_forward_it() -> None:
    below = [Seat(CHILD, True, parent=NEAR), Seat(FAR, True, parent=MIDDLE)]
    hostile = {NEAR, MIDDLE}
    assert captured({A: below}, hostile) == {A}
    assert captured({A: below}, {NEAR}) == frozenset()  # one parent is honest, or was
    assert captured({A: [*below, Seat(PEERS[4], True)]}, hostile) == frozenset()  # has no parent
    assert captured({A: [*below, Seat(PEERS[4], True, forwards=True)]}, hostile) == frozenset()
    assert captured({A: []}, hostile) == frozenset()


@pytest.mark.parametrize(
    ("seats", "kind"),
    [
        (changed(0, parent=None), "roles"),
        (changed(0, subscribed=False), "roles"),
        (changed(2, subscribed=False), "roles"),
        (changed(0, forwards=True), "roles"),
        (changed(0, parent=FAR), "parents"),
        (changed(1, forwards=False), "parents"),
        (changed(1, children=()), "records"),
        (changed(2, children=(CHILD,)), "records"),
        (changed(2, children=(CHILD, MIDDLE)), "bounds"),
    ],
)
def test_the_checker_finds_each_fault(seats: list[Seat], kind: str) -> None:
    assert getattr(check_topic(A, seats, 1), kind)
