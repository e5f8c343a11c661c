"""A run: find the entries, plan their tasks, leave out the finished ones, execute, judge and draw.

    DIR/ID/rows.parquet/      one file per task (point and seed)
    DIR/ID/measures.parquet/  what was measured from them, and whether it keeps to its bounds
    DIR/ID/verdict.json       claim, measured, tolerance, passed, seeds, command
    DIR/ID/figure.png, .svg
    DIR/ID/NAME.parquet/      further tables that an entry makes of its rows
    DIR/.lakes/NAME/          the traces that jobs ran on
    DIR/.universes/NAME.parquet/  memberships drawn from them, and events of crowds

The entries are those of every module of `weft/lab/experiments`. Each is judged as soon as its last
task is done, while others still run. A thread of its own does that: a query waits for a core, which
a simulation holds until it is over, and the report of progress must not wait for the query.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from weft.lab import experiments, figures, universes, verdict
from weft.lab.execute import POLL_SECONDS, execute, pending
from weft.lab.experiment import AnyEntry, JobEntry, Size, UniverseEntry
from weft.lab.progress import Progress
from weft.lab.sources import Source, Sources
from weft.lab.task import Task, shape_of, table_of, tasks_of
from weft.lab.verdict import Verdict
from weft.pipeline import tables
from weft.pipeline.resources import claimed
from weft.pipeline.schemas import JUDGED
from weft.pipeline.session import parallelism

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERDICT_SECONDS = 1.0  # measured: Java's CPU time for the queries of one verdict, session warm


@cache
def all_entries() -> Mapping[str, AnyEntry]:
    """Every entry by its id, in the order of the files' names."""
    found: dict[str, AnyEntry] = {}
    for module, names in experiments.names_by_file().items():
        file = vars(import_module(f"{experiments.__name__}.{module}"))
        entries = file["ENTRIES"] if "ENTRIES" in file else [file["ENTRY"]]
        if tuple(entry.id for entry in entries) != names:
            raise ValueError(
                f"experiments/{module}.py has other names than {', '.join(names)}; "
                "experiments/__init__.py says which names a file has"
            )
        for entry in entries:
            if entry.id in found:
                raise ValueError(f"two experiments have the id {entry.id}")
            found[entry.id] = entry
    return found


def matching(
    patterns: Sequence[str], known: Mapping[str, AnyEntry] | None = None
) -> list[AnyEntry]:
    """The entries that ids, or patterns such as `tera-*`, name; in the order of `all_entries`."""
    known = all_entries() if known is None else known
    return [known[name] for name in experiments.chosen(patterns, known)]


@dataclass(frozen=True)
class Plan:
    """What one entry is to run."""

    entry: AnyEntry
    size: Size
    seeds: int
    tasks: list[Task]
    sources: Sources | None = None  # for a job

    @property
    def points(self) -> int:
        return len({task.point for task in self.tasks})

    @property
    def used(self) -> list[str]:
        """The sources that a job runs on."""
        return list(dict.fromkeys(task.source.name for task in self.tasks if task.source))


def plan_of(
    entry: AnyEntry, size: Size, seeds: int | None = None, sources: Sources | None = None
) -> Plan:
    """The tasks of an entry, a job's on these sources; `seeds` in place of the entry's number."""
    wanted = entry.seeds[size] if seeds is None else seeds
    if not isinstance(entry, JobEntry):
        return Plan(entry, size, wanted, tasks_of(entry, entry.points(size), wanted))
    sources = sources or Sources()
    tasks: list[Task] = []
    for source in sources.found:
        given = {"source": source.name, "lake": source.fingerprint()}
        points = [{**point, **given} for point in entry.points(size, source)]
        over = isinstance(entry, UniverseEntry)
        tasks += tasks_of(entry, points, wanted, source, over)
    return Plan(entry, size, wanted, tasks, sources)


def is_of_other_code(task: Task, out: Path) -> bool:
    """Whether a finished task's rows were computed by source that has changed since."""
    return tables.notes_of(table_of(out, task.experiment), task.key)["code"] != task.code


def _forget(plan: Plan, out: Path, fresh: bool, changed: bool) -> None:
    """Remove rows that are to be computed again: all if `fresh`, else those of changed source."""
    table = table_of(out, plan.entry.id)
    there = tables.finished(table)
    kept = [task for task in plan.tasks if task.key in there]
    again = [task for task in kept if fresh or (changed and is_of_other_code(task, out))]
    tables.forget(table, (task.key for task in again))


def needed(entries: Sequence[AnyEntry], size: Size, sources: Sources) -> list[Source]:
    """The sources that these entries run on."""
    jobs = [entry for entry in entries if isinstance(entry, JobEntry)]
    return [source for source in sources.found if any(job.points(size, source) for job in jobs)]


class Run:
    """Some entries on one Spark session, into one folder."""

    def __init__(
        self,
        spark: SparkSession,
        plans: Sequence[Plan],
        out: Path,
        *,
        draw: bool = True,
        later: float = 0.0,
    ) -> None:
        self._spark = spark
        self._draw = draw
        self._plans = list(plans)
        self._out = out.resolve()
        self._judge = ThreadPoolExecutor(1, "weft-lab-verdict")
        self._verdicts: dict[str, Future[Verdict]] = {}
        self._told: set[str] = set()
        self._tasks = [task for plan in self._plans for task in plan.tasks]
        self._to_run = pending(self._tasks, self._out)
        self._weight = sum(task.seconds for task in self._to_run)
        whole = self._weight + VERDICT_SECONDS * sum(bool(plan.tasks) for plan in self._plans)
        self._progress = Progress(
            len(self._to_run), whole, at_once=parallelism(spark), seconds=True, later=later
        )

    def run(self) -> list[Verdict]:
        """Do all of it; returns the verdicts in the order of the plans."""
        self._say_what_is_there()
        try:
            if self._to_run:
                execute(self._spark, self._to_run, self._out, self._watch)
            self._watch()
            while wait(self._verdicts.values(), POLL_SECONDS).not_done:
                self._tell([])
            self._tell([])
        except Exception:
            self._judge.shutdown(cancel_futures=True)  # waits for the verdict under way
            raise
        finally:
            self._judge.shutdown(wait=False, cancel_futures=True)
            self._progress.clear()
        return [self._verdicts[plan.entry.id].result() for plan in self._plans if plan.tasks]

    def _say_what_is_there(self) -> None:
        missing = {(task.experiment, task.key) for task in self._to_run}
        kept = [task for task in self._tasks if (task.experiment, task.key) not in missing]
        if not kept:
            return
        self._progress.say(f"{len(kept)} of {len(self._tasks)} tasks are finished already")
        older = sum(is_of_other_code(task, self._out) for task in kept)
        if older:
            self._progress.say(f"{older} of them ran with other code; --changed runs them again")

    def left(self) -> int:
        """How many tasks are not finished."""
        return len(pending(self._tasks, self._out))

    def _watch(self) -> None:
        """Start to judge the experiments whose last task has ended."""
        waiting = pending(self._to_run, self._out)
        unfinished = {task.experiment for task in waiting}
        for plan in self._plans:
            name = plan.entry.id
            if plan.tasks and name not in unfinished and name not in self._verdicts:
                self._verdicts[name] = self._judge.submit(self._conclude, plan)
        self._tell(waiting)

    def _tell(self, waiting: Sequence[Task]) -> None:
        """Print the progress and the new verdicts; raises the error of a verdict that failed."""
        done = len(self._to_run) - len(waiting)
        weight = self._weight - sum(task.seconds for task in waiting)
        if self._to_run:
            self._progress.show(done, weight + VERDICT_SECONDS * len(self._told))
        for name, future in self._verdicts.items():
            if future.done() and name not in self._told:
                self._told.add(name)
                self._progress.say(f"{name}: {future.result().outcome}")

    def _conclude(self, plan: Plan) -> Verdict:
        entry, folder = plan.entry, self._out / plan.entry.id
        table = table_of(self._out, entry.id)
        keys = [task.key for task in plan.tasks]
        rows = tables.read_parts(self._spark, table, keys, shape_of(entry.columns)).cache()
        try:
            measures = verdict.measures_of(entry, rows, plan.size)
            result = verdict.judge(
                entry,
                measures,
                size=plan.size,
                seeds=plan.seeds,
                points=plan.points,
                notes=[tables.notes_of(table, key) for key in keys],
                sources=plan.sources,
                used=plan.used,
            )
            if self._draw:
                judged = self._spark.createDataFrame(measures, JUDGED)
                tables.write(judged.coalesce(1), folder / "measures.parquet")
                for name, transform in entry.tables.items():
                    tables.write(rows.transform(transform).coalesce(1), folder / f"{name}.parquet")
                with figures.styled():
                    figures.save(entry.figure(rows), folder)
        finally:
            rows.unpersist()
        if self._draw:
            entry.pages(folder)
        verdict.write(result, folder)
        return result


def _with_universes(spark: SparkSession, plans: Sequence[Plan], out: Path) -> list[Plan]:
    """Make the memberships that tasks to run need, and tell the tasks' time from their sizes."""
    to_run = pending([task for plan in plans for task in plan.tasks if task.over], out)
    if wanted := len(universes.missing(to_run, out)):
        progress = Progress(wanted, wanted)
        try:
            universes.make(
                spark, to_run, out, lambda done, what: progress.show(done, done, f"steps: {what}")
            )
        finally:
            progress.clear()
    known = {(task.experiment, task.key) for task in to_run}

    def sized(plan: Plan) -> Plan:
        entry = plan.entry
        if not isinstance(entry, UniverseEntry):
            return plan
        tasks = [
            replace(
                task,
                seconds=universes.rows_of(task.params, out) * entry.micros(task.params) / 1e6,
            )
            if (task.experiment, task.key) in known
            else task
            for task in plan.tasks
        ]
        return replace(plan, tasks=tasks)

    return [sized(plan) for plan in plans]


def run(
    spark: SparkSession,
    entries: Sequence[AnyEntry],
    size: Size,
    out: Path,
    *,
    seeds: int | None = None,
    fresh: bool = False,
    changed: bool = False,
    sources: Sources | None = None,
    draw: bool = True,
    later: float = 0.0,
) -> list[Verdict]:
    """Run, judge and draw entries; what is finished in `out` is not run again, unless `fresh`, or
    `changed` and its source is not the same any more.

    An entry that has nothing to run on the sources there are gets no verdict. Without `draw` there
    are verdicts alone, no tables of measures and no pictures. `later` are the seconds of tasks that
    may have to follow, for what is said of the time left.
    """
    sources = sources or Sources()
    with claimed(out):
        for source in needed(entries, size, sources):
            if not source.is_ready:
                print(f"weft: bringing in {source.name}", file=sys.stderr)
            source.prepare(spark)
        plans = [plan_of(entry, size, seeds, sources) for entry in entries]
        for plan in plans:
            tables.tidy(table_of(out, plan.entry.id))
            _forget(plan, out, fresh, changed)
        plans = _with_universes(spark, plans, out)
        work = Run(spark, plans, out, draw=draw, later=later)
        try:
            return work.run()
        except KeyboardInterrupt:
            print(
                f"weft: interrupted; {work.left()} tasks are left, "
                "the same command goes on from here",
                file=sys.stderr,
            )
            raise
