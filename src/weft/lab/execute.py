"""Runs tasks on Spark, so that whatever is finished stays finished.

Tasks are packed into bins, one Spark partition each: a long task alone, short ones together, the
longest first, so that no core waits long for the last one. Tasks that need a large part of the
machine's memory run one after the other when the rest is done. Spark sends a worker the number of
its bins; the worker writes each task's rows when the task is done, so that an interruption loses
only what was under way.

Tasks that are Spark jobs themselves, or whose memberships do not fit one task, run last, one after
the other: each has the whole machine.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from weft.lab import universes
from weft.lab.task import Task, run_job, table_of, worker
from weft.pipeline import tables
from weft.pipeline.schemas import RECEIPT
from weft.pipeline.session import parallelism

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BIN_SECONDS = 2.0  # guess: a partition costs some 20 ms, which this makes small
POLL_SECONDS = 0.3  # guess: how often to look for finished tasks


class TaskFailed(Exception):
    """A simulation raised an error; the text ends with the worker's traceback."""


def pending(tasks: Sequence[Task], out: Path) -> list[Task]:
    """The tasks whose rows are not there yet."""
    known = {name: tables.finished(table_of(out, name)) for name in {t.experiment for t in tasks}}
    return [task for task in tasks if task.key not in known[task.experiment]]


def bins_of(tasks: Sequence[Task], seconds: float = BIN_SECONDS) -> list[list[Task]]:
    """Pack tasks: those of at least so many seconds alone, the others together up to as many."""
    bins: list[list[Task]] = []
    room = 0.0
    for task in sorted(tasks, key=lambda task: -task.seconds):
        if task.seconds > room:
            bins.append([])
            room = seconds
        bins[-1].append(task)
        room -= task.seconds
    return bins


def stages_of(tasks: Sequence[Task], at_once: int, gigabytes: float) -> list[list[list[Task]]]:
    """What runs side by side, then what needs too much memory for that, one by one."""
    share = gigabytes / at_once
    light = [task for task in tasks if task.gigabytes <= share]
    heavy = [task for task in tasks if task.gigabytes > share]
    stages = [bins_of(light)] if light else []
    if heavy:
        stages.append([sorted(heavy, key=lambda task: task.seconds)])
    return stages


def execute(
    spark: SparkSession, tasks: Sequence[Task], out: Path, watch: Callable[[], None]
) -> list[Any]:
    """Run tasks; `watch` is called again and again meanwhile. Returns the receipts."""
    receipts: list[Any] = []
    simulated = [task for task in tasks if fits_a_task(task, out)]
    for stage in stages_of(simulated, parallelism(spark), memory_gigabytes()):
        receipts += _run_stage(spark, stage, out, watch)
        watch()
    for task in tasks:
        if not fits_a_task(task, out):
            receipts.append(_run_job(spark, task, out, watch))
            watch()
    return receipts


def fits_a_task(task: Task, out: Path) -> bool:
    """Whether a task is computed in one piece, by a worker."""
    if task.over:
        return universes.rows_of(task.params, out) <= universes.TASK_ROWS
    return task.source is None


def memory_gigabytes() -> float:
    """How much memory a worker's machine has, taken to be like this one."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _run_stage(
    spark: SparkSession, bins: list[list[Task]], out: Path, watch: Callable[[], None]
) -> list[Any]:
    """One Spark job over the bins."""
    from pyspark.errors import PySparkException  # noqa: PLC0415  (Spark is imported when used)

    def job() -> list[Any]:
        numbers = spark.range(0, len(bins), 1, len(bins))
        try:
            return list(numbers.mapInArrow(worker(bins, out), RECEIPT).collect())
        except PySparkException as error:
            raise TaskFailed(str(error)) from None

    return _watched(job, watch)


def _run_job(spark: SparkSession, task: Task, out: Path, watch: Callable[[], None]) -> Any:
    """One task that is a job by itself."""

    def job() -> Any:
        try:
            return run_job(spark, task, out)
        except Exception as error:
            raise TaskFailed("".join(traceback.format_exception(error)).rstrip()) from None

    return _watched(job, watch)


Result = TypeVar("Result")


def _watched(work: Callable[[], Result], watch: Callable[[], None]) -> Result:
    """Do the work in a thread of its own, so that this one can watch."""
    results: list[Result] = []
    errors: list[Exception] = []

    def thread_of_work() -> None:
        try:
            results.append(work())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=thread_of_work, name="weft-lab-job", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(POLL_SECONDS)
        watch()
    for error in errors:
        raise error
    return results[0]
