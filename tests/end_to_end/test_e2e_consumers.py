"""A worker and its publisher, real processes, killed at any moment: each order handled once."""

from __future__ import annotations

from pathlib import Path

from benchmarks.history import consumers


def test_killed_at_random_points(tmp_path: Path) -> None:
    result = consumers.run(kills=5, seed=3, place=tmp_path, life_s=1.0)
    assert result["consumer_receipted"] > 8
    assert {what: result[f"consumer_{what}"] for what in ("lost", "repeated", "disordered")} == {
        "lost": 0,
        "repeated": 0,
        "disordered": 0,
    }


def test_the_judge_has_teeth() -> None:
    receipted = ["1-0", "1-1", "1-2", "2-0"]
    good = ["1-0", "1-1", "1-2", "2-0", "2-1"]
    assert consumers.judge(receipted, good) == {
        "consumer_receipted": 4,
        "consumer_lost": 0,
        "consumer_repeated": 0,
        "consumer_disordered": 0,
    }
    assert consumers.judge(receipted, ["1-0", "1-2"])["consumer_lost"] == 2
    assert consumers.judge(receipted, ["1-0", "1-2"])["consumer_disordered"] == 1
    assert consumers.judge(receipted, ["1-0", "1-0"])["consumer_repeated"] == 1
