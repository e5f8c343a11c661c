"""Runs tasks on Spark, so that a finished task stays finished.

Tasks are packed into bins, one Spark partition each: a long task alone, short ones together, the
longest first, so that no core waits long for the last one. Tasks that need a large part of the
machine's memory run one after the other when the rest is done. Spark sends a worker the number of
its bins. The worker imports the experiment, runs the task and adds its rows to the experiment's
table when the task is done, so that an interruption loses only what was under way. Where the
simulation is one of overlays, the worker reads their memberships first.

Tasks that are Spark jobs themselves, or whose memberships do not fit one task, run last on the
driver, one after the other: each has the whole machine. Their rows end in the same tables.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from weft.lab import universes
from weft.lab.defect import planted
from weft.lab.experiment import Columns, Job, OverlaidSimulation, Params, Simulation
from weft.lab.overlaid import InTask, Spread
from weft.lab.sources import Source
from weft.lab.task import Task, shape_of, table_of
from weft.pipeline import tables
from weft.pipeline.session import parallelism

if TYPE_CHECKING:
    from pyarrow import RecordBatch

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
) -> None:
    """Run tasks; `watch` is called again and again meanwhile."""
    simulated = [task for task in tasks if fits_a_task(task, out)]
    for stage in stages_of(simulated, parallelism(spark), memory_gigabytes()):
        _run_stage(spark, stage, out, watch)
        watch()
    for task in tasks:
        if not fits_a_task(task, out):
            _run_job(spark, task, out, watch)
            watch()


def fits_a_task(task: Task, out: Path) -> bool:
    """Whether a task is computed in one piece, by a worker."""
    if task.over:
        return universes.rows_of(task.params, out) <= universes.TASK_ROWS
    return task.source is None


def memory_gigabytes() -> float:
    """How much memory a worker's machine has; it is assumed to have as much as this one."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _run_stage(
    spark: SparkSession, bins: list[list[Task]], out: Path, watch: Callable[[], None]
) -> None:
    """One Spark job over the bins."""

    def job() -> None:
        numbers = spark.range(0, len(bins), 1, len(bins))
        try:
            numbers.mapInArrow(worker(bins, out), numbers.schema).collect()
        except PySparkException as error:
            raise TaskFailed(str(error)) from None

    _watched(job, watch)


def _run_job(spark: SparkSession, task: Task, out: Path, watch: Callable[[], None]) -> None:
    """One task that is a job by itself."""

    def job() -> None:
        try:
            run_job(spark, task, out)
        except Exception as error:
            raise TaskFailed("".join(traceback.format_exception(error)).rstrip()) from None

    _watched(job, watch)


def _watched(work: Callable[[], None], watch: Callable[[], None]) -> None:
    """Do the work in a thread of its own, so that this one can watch."""
    errors: list[Exception] = []

    def thread_of_work() -> None:
        try:
            work()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=thread_of_work, name="weft-lab-job", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(POLL_SECONDS)
        watch()
    for error in errors:
        raise error


# --- in a worker ----------------------------------------------------------------------------------


def worker(
    bins: Sequence[Sequence[Task]], out: Path
) -> Callable[[Iterable[RecordBatch]], Iterator[RecordBatch]]:
    """What Spark maps over numbers of bins: run the tasks of each, answer with the numbers."""

    def run_bins(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for task in bins[number]:
                    run(task, out)
            yield batch

    return run_bins


def run(task: Task, out: Path) -> None:
    """Run one task and store its rows, with the CPU time it took."""
    begun = _cpu_seconds()
    try:
        with planted(task.defect):
            if task.over:
                arrays = universes.arrays_of(task.params, task.seed, out)
                overlays = InTask(arrays, universes.happened_in(task.params, out))
                found = _overlaid(task)(_given(task), task.seed, overlays)
            else:
                simulation: Simulation = getattr(*_named(task))
                found = simulation(_given(task), task.seed)
        columns = rows_of(task, found)
    except Exception as error:
        error.add_note(f"in {task.experiment} with seed {task.seed} at {dict(task.params)}")
        raise
    _store(task, out, columns, _cpu_seconds() - begun)


def _cpu_seconds() -> float:
    """CPU time of this process and of those that it has started and that have ended, such as real
    peers."""
    others = os.times()
    return time.process_time() + others.children_user + others.children_system


def _given(task: Task) -> Params:
    """The parameters that the simulation is given: with a planted defect, perhaps others than the
    rows say."""
    return {**task.params, **task.defect.params} if task.defect else task.params


def _named(task: Task) -> tuple[object, str]:
    """The module of a task's simulation, and the function's name."""
    module, _, name = task.simulation.partition(":")
    return import_module(module), name


def _overlaid(task: Task) -> OverlaidSimulation:
    simulation: OverlaidSimulation = getattr(*_named(task))
    return simulation


def _store(task: Task, out: Path, columns: Columns, seconds: float) -> None:
    """Add the rows to the experiment's table."""
    notes = {"seconds": f"{seconds:.3f}", "code": task.code, "revision": task.revision}
    table = table_of(out, task.experiment)
    tables.write_part(table, task.key, columns, shape_of(task.columns), notes)


def rows_of(task: Task, result: Columns) -> Columns:
    """The columns of a result, filled up with parameters of the same names and with the task."""
    known = {**task.params, "point": task.point, "seed": task.seed, **result}
    names = [each.name for each in shape_of(task.columns).fields]
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(f"{task.simulation} gave no column {', '.join(missing)}")
    lengths = {np.shape(known[name])[0] for name in names if np.ndim(known[name])}
    if len(lengths) > 1:
        raise ValueError(f"{task.simulation} gave columns of lengths {sorted(lengths)}")
    length = lengths.pop() if lengths else 1
    return {name: known[name] if np.ndim(known[name]) else [known[name]] * length for name in names}


# --- on the driver ------------------------------------------------------------------------------


def run_job(spark: SparkSession, task: Task, out: Path) -> None:
    """Run a task that is a Spark job and store its rows, with the time on the clock."""
    begun = time.monotonic()
    try:
        with planted(task.defect):
            columns = _spread(spark, task, out) if task.over else _computed(spark, task)
    except Exception as error:
        error.add_note(f"in {task.experiment} with seed {task.seed} at {dict(task.params)}")
        raise
    _store(task, out, columns, time.monotonic() - begun)


def _source_of(task: Task) -> Source:
    if task.source is None:
        raise ValueError(f"{task.experiment} is no job")
    return task.source


def _computed(spark: SparkSession, task: Task) -> Columns:
    """The columns that a job gives."""
    job: Job = getattr(*_named(task))
    rows = framed(task, job(spark, _given(task), task.seed, _source_of(task))).toArrow()
    return {name: rows.column(name) for name in rows.column_names}


def _spread(spark: SparkSession, task: Task, out: Path) -> Columns:
    """The columns of a point whose overlays are spread over all tasks."""
    frame = universes.frame_of(spark, task.params, task.seed, _source_of(task), out).cache()
    try:
        overlays = Spread(frame, universes.happened_in(task.params, out))
        return rows_of(task, _overlaid(task)(_given(task), task.seed, overlays))
    finally:
        frame.unpersist()


def framed(task: Task, result: DataFrame) -> DataFrame:
    """The rows of a job as they are stored, filled up as in `rows_of`."""
    known = {**task.params, "point": task.point, "seed": task.seed}
    shape = shape_of(task.columns)
    missing = [name for name in shape.names if name not in result.columns and name not in known]
    if missing:
        raise ValueError(f"{task.simulation} gave no column {', '.join(missing)}")
    return result.select(
        *(
            (F.col(each.name) if each.name in result.columns else F.lit(known[each.name]))
            .cast(each.dataType)
            .alias(each.name)
            for each in shape.fields
        )
    )
