"""The parts of the lab that need no Spark: tasks, bins, progress, registry, report."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dice
from weft.lab import report, verdict
from weft.lab.execute import bins_of, rows_of, run, stages_of
from weft.lab.experiment import JobEntry
from weft.lab.experiments import UnknownExperiment, names
from weft.lab.progress import Forecast, Phases, Progress, duration
from weft.lab.run import all_entries, matching, plan_of
from weft.lab.sources import GRID, Source
from weft.lab.task import Task, table_of, tasks_of
from weft.lab.verdict import Verdict
from weft.pipeline import tables

# --- tasks ----------------------------------------------------------------------------------------


def task(seconds: float = 1.0, gigabytes: float = 0.0, seed: int = 1) -> Task:
    entry = dice.entry(seconds=lambda _: seconds, gigabytes=lambda _: gigabytes)
    return tasks_of(entry, [{"faces": 6, "throws": 10}], seed)[-1]


def test_a_point_is_named_by_its_parameters_and_not_by_their_order() -> None:
    entry = dice.entry()
    [one], [two], [other] = (
        tasks_of(entry, [params], 1)
        for params in (
            {"faces": 6, "throws": 10},
            {"throws": 10, "faces": 6},
            {"faces": 6, "throws": 11},
        )
    )
    assert one.key == two.key
    assert one.key != other.key


def test_a_dear_point_runs_with_fewer_seeds() -> None:
    entry = dice.entry(most_seeds=lambda params: 1 if params["faces"] == 20 else 1_000)
    seeds = [(each.params["faces"], each.seed) for each in plan_of(entry, "full").tasks]
    assert seeds == [(2, 1), (2, 2), (2, 3), (2, 4), (6, 1), (6, 2), (6, 3), (6, 4), (20, 1)]


def test_rows_take_parameters_and_single_values_for_every_row() -> None:
    columns = rows_of(task(seed=3), {"tenth": np.arange(2), "mean": 3.5})
    assert columns["faces"] == [6, 6]
    assert columns["mean"] == [3.5, 3.5]
    assert columns["seed"] == [3, 3]
    assert list(columns) == ["point", "seed", "faces", "tenth", "mean"]


def test_the_cpu_time_of_a_task_has_that_of_its_processes(tmp_path: Path) -> None:
    [one] = tasks_of(dice.entry(simulation="dice:throw_elsewhere"), [{"faces": 6, "throws": 10}], 1)
    before = os.times()
    run(one, tmp_path)
    spent = os.times().children_user - before.children_user
    notes = tables.notes_of(table_of(tmp_path, one.experiment), one.key)
    # The kernel counts in ticks and the note holds milliseconds: the task's own share may be less.
    assert float(notes["seconds"]) >= round(spent, 3) > 0


def test_a_result_with_a_missing_or_uneven_column_is_refused() -> None:
    with pytest.raises(ValueError, match="gave no column mean"):
        rows_of(task(), {"tenth": np.arange(2)})
    with pytest.raises(ValueError, match=r"lengths \[2, 3\]"):
        rows_of(task(), {"tenth": np.arange(2), "mean": np.arange(3)})


# --- bins -----------------------------------------------------------------------------------------


def test_long_tasks_are_alone_and_first_and_short_ones_together() -> None:
    tasks = [task(0.5, seed=1), task(30.0, seed=2), task(0.5, seed=3), task(5.0, seed=4)]
    tasks += [task(1.0, seed=5), task(0.5, seed=6)]
    assert [[each.seed for each in bin_] for bin_ in bins_of(tasks, 2.0)] == [
        [2],
        [4],
        [5, 1, 3],
        [6],
    ]


def test_every_task_is_in_exactly_one_bin() -> None:
    tasks = [task(0.1 * (1 + seed % 7), seed=seed) for seed in range(1, 50)]
    packed = [each.seed for bin_ in bins_of(tasks) for each in bin_]
    assert sorted(packed) == list(range(1, 50))
    assert all(sum(each.seconds for each in bin_) <= 2.0 + 1e-9 for bin_ in bins_of(tasks))


def test_tasks_that_need_much_memory_run_alone_after_the_others() -> None:
    tasks = [task(9.0, 13.0, 1), task(1.0, 1.0, 2), task(2.0, 9.0, 3), task(1.5, 8.0, 4)]
    light, heavy = stages_of(tasks, at_once=2, gigabytes=16.0)
    assert [[each.seed for each in bin_] for bin_ in light] == [[4], [2]]
    assert [[each.seed for each in bin_] for bin_ in heavy] == [[3, 1]]


# --- progress -------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_tells_the_time_left_from_the_weight_done() -> None:
    now = [0.0]
    stream = Terminal()
    progress = Progress(10, weight=100.0, stream=stream, clock=lambda: now[0])
    now[0] = 30.0
    progress.show(2, weight=25.0)
    assert stream.getvalue().endswith("2/10 tasks, about 1 min 30 s left")
    assert stream.getvalue().count("█") == 7


def test_tasks_under_way_do_not_make_the_time_left_grow() -> None:
    """Two at a time, 40 s each and then of 1 s, on a machine half as fast as was thought."""
    forecast = Forecast(weight=120.0, at_once=2, seconds=True)
    assert forecast.left(0.0) == pytest.approx(60)  # as estimated
    forecast.hear(40.0, 80.0)  # the first is done, and the second almost
    told = forecast.left(80.0)
    assert told is not None and 45 < told < 80
    waited = forecast.left(90.0)
    assert waited == pytest.approx(told - 10)
    assert forecast.left(1080.0) == pytest.approx(1000)  # nothing ended for as long
    beyond = forecast.left(80.0, later=60.0)
    assert beyond is not None and beyond > told + 30
    assert Forecast(weight=10.0).left(5.0) is None  # nothing is known of the pace


def test_what_may_follow_is_told_beside_the_time_left() -> None:
    now = [0.0]
    stream = Terminal()
    progress = Progress(10, 100.0, stream, lambda: now[0], later=50.0)
    now[0] = 50.0
    progress.show(5, weight=50.0)
    assert stream.getvalue().endswith("5/10 tasks, about 50 s left, at most 1 min 40 s")


def test_without_a_terminal_there_are_plain_lines_now_and_then() -> None:
    now = [0.0]
    stream = io.StringIO()
    progress = Progress(10, weight=100.0, stream=stream, clock=lambda: now[0])
    for now[0] in range(1, 61):
        progress.show(int(now[0]) // 6, weight=float(now[0]))
    assert len(stream.getvalue().splitlines()) == 4
    assert "\r" not in stream.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_phases_in_lines_and_as_a_bar(stream: io.StringIO) -> None:
    now = [0.0]
    progress = Phases(stream, clock=lambda: now[0])
    progress.begin("publishing", 8)
    for done in range(9):
        now[0] = float(done)
        progress.update(done, "events")
    progress.end("8 events")
    text = stream.getvalue()
    assert "publishing   8 events  (8.0 s)\n" in text
    assert ("█" in text) == stream.isatty()
    assert ("6/8 events, about 2 s left" in text) == stream.isatty()
    if not stream.isatty():
        assert text.splitlines()[:3] == [f"  publishing   {n}/8 events" for n in (2, 4, 6)]


def test_durations_are_for_people() -> None:
    assert [duration(each) for each in (7.6, 60, 125, 3_780)] == [
        "8 s",
        "1 min 0 s",
        "2 min 5 s",
        "1 h 3 min",
    ]


# --- registry -------------------------------------------------------------------------------------


def test_patterns_name_entries_once_and_in_order() -> None:
    known = {name: dice.entry(id=name) for name in ("tera-3a", "tera-3b", "stan-6")}
    assert [each.id for each in matching(["tera-*", "tera-3b"], known)] == ["tera-3a", "tera-3b"]
    assert [each.id for each in matching(["*6", "tera-3a"], known)] == ["tera-3a", "stan-6"]
    with pytest.raises(UnknownExperiment, match=r"tera-3c.*did you mean 'tera-3"):
        matching(["tera-3c"], known)


def test_names_are_known_without_the_experiments() -> None:
    assert names() == list(all_entries())


def test_every_entry_is_complete() -> None:
    for entry in all_entries().values():
        assert entry.claim and entry.title
        for size in ("quick", "full"):
            if isinstance(entry, JobEntry):
                points = entry.points(size, Source(GRID))
            else:
                points = entry.points(size)
            assert points
            json.dumps(points, allow_nan=False)
            assert len({each.key for each in plan_of(entry, size).tasks}) == len(
                plan_of(entry, size).tasks
            )


# --- verdicts and report --------------------------------------------------------------------------


def example(**changes: Any) -> Verdict:
    settings: dict[str, Any] = {
        "id": "dice",
        "title": "Dice are <fair>",
        "size": "quick",
        "claim": "mean & variance",
        "passed": False,
        "measured": {
            "gap": {"value": 0.25, "low": 0.2, "high": 0.3, "seeds": 4},
            "throws": {"value": 1000.0, "low": None, "high": None, "seeds": 4},
        },
        "tolerance": {
            "gap": {
                "relation": "at most",
                "bound": 0.1,
                "passed": False,
                "why": "because",
                "basis": "derived",
                "chosen": "2026-11-15",
            }
        },
        "seeds": [1, 2, 3, 4],
        "points": 3,
        "seconds": 1.25,
        "code": ["0123"],
        "command": "./weft lab run dice --quick --seeds 4",
    }
    return Verdict(**{**settings, **changes})


def test_verdicts_are_read_as_they_were_written(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        verdict.write(example(id=name), tmp_path / name)
    assert verdict.read_all(tmp_path) == [example(id="a"), example(id="b")]


def test_a_number_that_is_none_is_written_as_null(tmp_path: Path) -> None:
    measured = {"gap": {"value": float("nan"), "low": None, "high": None, "seeds": 1}}
    path = verdict.write(example(measured=measured), tmp_path)
    assert json.loads(path.read_text())["measured"]["gap"]["value"] is None


def test_the_table_shows_what_was_asked_and_what_falls_short() -> None:
    lines = verdict.table([example()]).splitlines()
    assert lines[0].split() == ["dice", "quick", "falls", "short", "Dice", "are", "<fair>"]
    assert lines[1].strip() == "gap: 0.25 [0.2, 0.3] (at most 0.1, derived)  <-- falls short"
    assert len(lines) == 2


def test_the_report_is_one_page_with_everything_in_it(tmp_path: Path) -> None:
    (tmp_path / "dice").mkdir()
    (tmp_path / "dice" / "figure.png").write_bytes(b"\x89PNG picture")
    page = report.write([example(), example(id="other", passed=True)], tmp_path).read_text()
    assert "1 of 2 claims hold" in page
    assert "Dice are &lt;fair&gt;" in page
    assert "data:image/png;base64,iVBORyBwaWN0dXJl" in page
    assert "at most 0.1" in page
    assert "falls short: gap" in report.summary([example()])


def test_the_report_says_which_revisions_rows_are_from(tmp_path: Path) -> None:
    one, two, none = ({"abc": 6}, {"abc": 4, "def+": 2}, {})
    told = [example(id=f"d{len(of)}", revisions=of) for of in (one, two, none)]
    page = report.write(told, tmp_path).read_text()
    assert "By revision abc. " in page
    assert "By revision abc (4), def+ (2). " in page
    assert page.count("By revision") == 2
