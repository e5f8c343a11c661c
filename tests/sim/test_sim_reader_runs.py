"""Durable readers that are killed lose and repeat nothing, and runs that would are found out."""

from __future__ import annotations

import pytest
from benchmarks.history import reader_runs as readers
from benchmarks.history.reader_runs import play

from weft.store.cursor import Cursor, Read


# 5126: the past is read from a member that lacks a branch; 7009: the reader's own event lies at the
# bottom of a store that began at "now".
@pytest.mark.parametrize("seed", [*range(4), 5126, 7009, 83_597_793_351_005])
def test_whatever_is_killed_nothing_is_lost_or_repeated(seed: int) -> None:
    verdict = play(seed)
    assert verdict.holds, verdict
    assert verdict.events and verdict.kills


def test_a_run_is_what_its_seed_says() -> None:
    assert play(7) == play(7)


class Forgetful(Cursor):
    """Goes on one event too late."""

    def read(self, limit: int = 256, past_read: bool = True) -> list[Read]:
        page = super().read(limit, past_read)
        return page[1:] if len(page) == limit else page


class Repeating(Cursor):
    """Begins anew, whatever was read before."""

    def __init__(self, store, topic, *_, **__) -> None:  # type: ignore[no-untyped-def]
        super().__init__(store, topic, None)


class Backwards(Cursor):
    """Reads each page from its end."""

    def read(self, limit: int = 256, past_read: bool = True) -> list[Read]:
        return super().read(limit, past_read)[::-1]


class Heedless(Cursor):
    """Takes no other member's word for where now is."""

    def begin_after(self, told, is_own) -> None:  # type: ignore[no-untyped-def]
        return None


@pytest.mark.parametrize("broken", [Forgetful, Repeating, Backwards, Heedless])
def test_a_broken_reader_is_found_out(
    broken: type[Cursor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "Cursor", broken)
    monkeypatch.setattr(readers, "SETTLE_MS", 5_000)
    verdict = play(3)
    wrong = {
        Forgetful: verdict.lost,
        Repeating: verdict.repeated,
        Backwards: verdict.disordered,
        Heedless: verdict.old,
    }
    assert wrong[broken] and not verdict.holds
