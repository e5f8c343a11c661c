"""Which peer is dialled when, and which caller has to go."""

from __future__ import annotations

import pytest

from net_kit import HELLO, QUICK
from weft.ids import Contact, PeerId
from weft.net import dialer
from weft.net.connection import Connection
from weft.net.dialer import Backoff, Slots
from weft.net.identity import Identity
from weft.net.listener import Admission
from weft.net.tls import Credentials

CREDENTIALS = Credentials(Identity.generate())
CONTACT = Contact(PeerId(b"a" * 32), "/ip4/127.0.0.1/tcp/1")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Time as the dialer sees it."""
    now = [1_000]
    monkeypatch.setattr(dialer, "now_ms", lambda: now[0])
    return now


def test_backoff_doubles_up_to_its_bound_and_ends_with_success(clock: list[int]) -> None:
    backoff = Backoff(1_000, 5_000)
    assert not backoff.blocks(CONTACT)
    for pause in (1_000, 2_000, 4_000, 5_000, 5_000):
        backoff.note(CONTACT, reached=False)
        clock[0] += pause - 1
        assert backoff.blocks(CONTACT)
        clock[0] += 1
        assert not backoff.blocks(CONTACT)
    backoff.note(CONTACT, reached=False)
    backoff.note(CONTACT, reached=True)
    assert not backoff.blocks(CONTACT)
    backoff.note(CONTACT, reached=False)
    clock[0] += 1_000  # it starts from the beginning
    assert not backoff.blocks(CONTACT)


def test_backoff_is_about_an_address_and_bounded(clock: list[int]) -> None:
    backoff = Backoff(1_000, 5_000)
    backoff.note(CONTACT, reached=False)
    moved = Contact(CONTACT.peer, "/ip4/127.0.0.1/tcp/2")
    assert not backoff.blocks(moved)
    backoff.note(moved, reached=False)
    clock[0] += 1_000  # not doubled: another address
    assert not backoff.blocks(moved)
    backoff.note(CONTACT, reached=False)
    for number in range(2_000):
        backoff.note(
            Contact(PeerId(number.to_bytes(32, "big")), "/ip4/127.0.0.1/tcp/1"), reached=False
        )
    assert not backoff.blocks(CONTACT)  # forgotten, oldest first


class Turn:
    """Stands for a dial that waits for its slot."""

    def __init__(self, name: str, begun: list[str], second: bool = False) -> None:
        self.name = name
        self.second = second
        self.over = False
        self._begun = begun

    def begin(self) -> None:
        self._begun.append(self.name)


def test_dials_take_their_turns_in_order() -> None:
    begun: list[str] = []
    slots = Slots()
    turns = [Turn(name, begun) for name in "abcde"]
    for turn in turns:
        slots.enter(turn, 2)  # type: ignore[arg-type]
    assert begun == ["a", "b"]
    turns[2].over = True  # given up while it waited
    slots.leave(turns[0])  # type: ignore[arg-type]
    assert begun == ["a", "b", "d"]
    slots.leave(turns[1])  # type: ignore[arg-type]
    slots.leave(turns[3])  # type: ignore[arg-type]
    slots.leave(turns[4])  # type: ignore[arg-type]
    assert begun == ["a", "b", "d", "e"]
    slots.enter(Turn("f", begun), 2)  # type: ignore[arg-type]
    slots.enter(Turn("g", begun), 2)  # type: ignore[arg-type]
    assert begun[-2:] == ["f", "g"]


def test_dials_of_the_second_rank_have_half_of_the_turns_and_come_last() -> None:
    begun: list[str] = []
    slots = Slots()
    second = [Turn(name, begun, second=True) for name in "abc"]
    for turn in second:
        slots.enter(turn, 4)  # type: ignore[arg-type]
    assert begun == ["a", "b"]  # though two turns are free
    first = [Turn(name, begun) for name in "defg"]
    for turn in first:
        slots.enter(turn, 4)  # type: ignore[arg-type]
    assert begun == ["a", "b", "d", "e"]
    slots.leave(second[0])  # type: ignore[arg-type]
    slots.leave(first[0])  # type: ignore[arg-type]
    assert begun == ["a", "b", "d", "e", "f", "g"]
    slots.leave(first[1])  # type: ignore[arg-type]
    assert begun[-1] == "c"


def caller_from(ip: str) -> Connection:
    connection = Connection(None, CREDENTIALS, HELLO, QUICK)  # type: ignore[arg-type]
    connection.remote_ip = ip
    return connection


def test_the_caller_that_dawdled_longest_goes_first_its_own_address_before_others() -> None:
    admission = Admission(4, 2)
    first, second = caller_from("1"), caller_from("2")
    third, fourth = caller_from("2"), caller_from("3")
    for one in (first, second, third, fourth):
        assert admission.enter(one) is None
    assert admission.enter(caller_from("2")) is second  # its address has two already
    assert admission.enter(caller_from("4")) is first  # the oldest of all
    assert len(admission) == 4
    admission.leave(third)
    admission.leave(third)  # again is fine
    assert admission.enter(caller_from("5")) is None
    assert len(admission) == 4
