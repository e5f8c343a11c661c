"""Durable readers that are killed lose and repeat nothing, and runs that would are found out."""

from __future__ import annotations

import pytest
from benchmarks.history import reader_runs as readers
from benchmarks.history.reader_runs import play

from weft.store.cursor import Cursor, Read


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_killed_nothing_is_lost_or_repeated(seed: int) -> None:
    verdict = play(seed)
    assert verdict.holds, verdict
    assert verdict.events and verdict.kills


def test_a_run_is_what_its_seed_says() -> None:
    assert play(7) == play(7)


class Forgetful(Cursor):
    """Goes on one event too late."""

    def read(self, limit: int = 256) -> list[Read]:
        page = super().read(limit)
        return page[1:] if len(page) == limit else page


class Repeating(Cursor):
    """Begins anew, whatever was read before."""

    def __init__(self, store, topic, after=None, past_read=True) -> None:  # type: ignore[no-untyped-def]
        super().__init__(store, topic, None)


class Backwards(Cursor):
    """Reads each page from its end."""

    def read(self, limit: int = 256) -> list[Read]:
        return super().read(limit)[::-1]


@pytest.mark.parametrize("broken", [Forgetful, Repeating, Backwards])
def test_a_broken_reader_is_found_out(
    broken: type[Cursor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "Cursor", broken)
    monkeypatch.setattr(readers, "SETTLE_MS", 5_000)
    verdict = play(3)
    wrong = {Forgetful: verdict.lost, Repeating: verdict.repeated, Backwards: verdict.disordered}
    assert wrong[broken] and not verdict.holds
