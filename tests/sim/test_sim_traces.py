"""The list of kept digests names each run that is no longer what it was."""

from __future__ import annotations

from typing import get_args

from benchmarks.traces import SEEDS, differences, digest_of, settings_of

from weft.protocol.config import Routing


def test_a_run_has_one_digest_and_others_have_others() -> None:
    first, other = settings_of(1), settings_of(5)
    assert first.routing == other.routing
    assert digest_of(first) == digest_of(first) != digest_of(other)


def test_the_runs_have_all_routings_with_and_without_history_and_hostile_peers() -> None:
    runs = [settings_of(seed) for seed in SEEDS]
    for routing in get_args(Routing):
        of = [one for one in runs if one.routing == routing]
        assert {one.history for one in of} == {True, False}
        assert {one.hostile > 0 for one in of} == {True, False}
    assert len({one.command() for one in runs}) == len(runs)


def test_differences_are_told_with_the_command_of_their_run() -> None:
    kept = {"a": "1", "b": "2", "c": "3"}
    assert list(differences(kept, kept)) == []
    found = {"a": "1", "b": "4", "d": "5"}
    assert list(differences(kept, found)) == [
        "changed: b",
        "no longer drawn: c",
        "not kept yet: d",
    ]
