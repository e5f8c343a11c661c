"""A task: one experiment at one point with one seed; and what a worker or the driver does with it.

A task is small: names, parameters, a seed. The worker imports the engine's function, builds the
arrays, runs, and adds the rows to the experiment's table. Where the simulation is one of overlays,
the worker reads their memberships first. A task that is a Spark job itself is run by the driver,
over its source of data; its rows end in the same table. The key of a task is made of everything
that decides its rows, so a table can tell which tasks it holds.
"""

from __future__ import annotations

import ast
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.lab.overlaid import InTask, Spread
from weft.lab.universes import arrays_of, frame_of
from weft.pipeline import tables
from weft.pipeline.schemas import RECEIPT, TASK, joined

if TYPE_CHECKING:
    from pyarrow import RecordBatch  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from weft.lab.registry import Experiment, Job, OverlaidSimulation
    from weft.lab.sources import Source

_HOUSE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Task:
    """One row of the table of what to run."""

    experiment: str
    simulation: str
    params: Mapping[str, Any]
    point: str
    seed: int
    columns: StructType
    seconds: float
    gigabytes: float
    code: str  # which source ran it
    source: Source | None = None  # of data, for a job
    over: bool = False  # the simulation computes overlays of kept memberships

    @property
    def key(self) -> str:
        """Names the task within its experiment's table."""
        return f"{self.point}-{self.seed}"


def point_of(entry: Experiment, params: Mapping[str, Any]) -> str:
    """The name of a point: a hash of what is simulated there."""
    shape = [[each.name, each.dataType.simpleString()] for each in entry.columns.fields]
    what = [entry.id, entry.simulation, entry.version, dict(params), shape]
    text = json.dumps(what, sort_keys=True, allow_nan=False)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def tasks_of(
    entry: Experiment,
    points: Sequence[Mapping[str, Any]],
    seeds: int,
    source: Source | None = None,
    over: bool = False,
) -> list[Task]:
    """Every point with every seed (1 … `seeds`), or with as many as the entry allows there."""
    code = code_of(entry.simulation, rooms_behind(entry.simulation, source is not None))
    return [
        Task(
            experiment=entry.id,
            simulation=entry.simulation,
            params=dict(params),
            point=point_of(entry, params),
            seed=seed,
            columns=entry.columns,
            seconds=entry.seconds(params),
            gigabytes=entry.gigabytes(params),
            code=code,
            source=source,
            over=over,
        )
        for params in points
        for seed in range(1, min(seeds, entry.most_seeds(params)) + 1)
    ]


def rooms_behind(simulation: str, reads_data: bool) -> tuple[str, ...]:
    """The rooms whose change makes stored rows of a simulation worthless."""
    rooms = ["engine", "rules"]
    if reads_data:
        rooms.append("pipeline")
    if any(place.startswith("weft.sim.") for place in reach(simulation)):
        rooms += ["documents", "protocol", "sim", "store"]
    return tuple(rooms)


@cache
def code_of(simulation: str, rooms: tuple[str, ...]) -> str:
    """A name for the present source of a simulation and of these rooms."""
    digest = blake2b(digest_size=8)
    for room in rooms:
        for file in sorted((_HOUSE / room).rglob("*.py")):
            digest.update(file.read_bytes())
    for _, source in sorted(reach(simulation).items()):
        digest.update(source.encode())
    return digest.hexdigest()


@cache
def reach(simulation: str) -> Mapping[str, str]:
    """The definitions that a simulation reaches by name, with their sources if they are the lab's.

    An experiment's measures and figure stand in the same file as its simulation. They are not
    reached from it, so changing them leaves stored rows valid.
    """
    found: dict[str, str] = {}
    ahead = [simulation]
    while ahead:
        place = ahead.pop()
        module, _, name = place.partition(":")
        if place in found:
            continue
        found[place] = ""
        if not module.startswith("weft.lab."):
            continue
        defined, imported = _names_of(module)
        for node in [defined[name]] if name in defined else [] if name else defined.values():
            found[place] += ast.unparse(node)
            used = _used_in(node)
            ahead += [imported[each] for each in used if each in imported]
            ahead += [f"{module}:{each}" for each in used if each in defined]
    return found


def _used_in(node: ast.stmt) -> list[str]:
    """The names that a definition takes from outside of itself."""
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
    own = {each.id for each in names if isinstance(each.ctx, ast.Store)}
    own |= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    return [each.id for each in names if each.id not in own]


@cache
def _names_of(module: str) -> tuple[Mapping[str, ast.stmt], Mapping[str, str]]:
    """What a file of the lab defines, and what it imports: `module:name`, `module:` for a whole."""
    tree = ast.parse(_file_of(module).read_text())
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            stored = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
            defined |= {one.id: node for one in stored if isinstance(one.ctx, ast.Store)}
    imported: dict[str, str] = {}
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom) and each.module is not None:
            for name in each.names:
                whole = f"{each.module}.{name.name}"
                known = f"{whole}:" if _file_of(whole).exists() else f"{each.module}:{name.name}"
                imported[name.asname or name.name] = known
    return defined, imported


def _file_of(module: str) -> Path:
    return _HOUSE.joinpath(*module.split(".")[1:]).with_suffix(".py")


def shape_of(columns: StructType) -> StructType:
    """The rows of an experiment as they are stored: with the task that they are from."""
    return joined(TASK, columns)


def table_of(out: Path, experiment: str) -> Path:
    """Where the rows of an experiment are."""
    return out / experiment / "rows.parquet"


# --- in a worker --------------------------------------------------------------------------------


def worker(
    bins: Sequence[Sequence[Task]], out: Path
) -> Callable[[Iterable[RecordBatch]], Iterator[RecordBatch]]:
    """What Spark maps over numbers of bins: run the tasks of each, answer with receipts."""

    def run_bins(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        import pyarrow  # noqa: PLC0415
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

        shape = to_arrow_schema(RECEIPT)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for task in bins[number]:
                    yield pyarrow.RecordBatch.from_pylist([run(task, out)], schema=shape)

    return run_bins


def run(task: Task, out: Path) -> dict[str, Any]:
    """Run one task and store its rows; returns the receipt, with the CPU time it took."""
    begun = time.process_time()
    try:
        given = [InTask(arrays_of(task.params, task.seed, out))] if task.over else []
        columns = rows_of(task, _function(task)(task.params, task.seed, *given))
    except Exception as error:
        error.add_note(f"in {task.experiment} with seed {task.seed} at {dict(task.params)}")
        raise
    return _stored(task, out, columns, time.process_time() - begun)


def _function(task: Task) -> Callable[..., Any]:
    module, _, name = task.simulation.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def _stored(task: Task, out: Path, columns: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Add the rows to the experiment's table; the receipt."""
    notes = {"seconds": f"{seconds:.3f}", "code": task.code}
    table = table_of(out, task.experiment)
    rows = tables.write_part(table, task.key, columns, shape_of(task.columns), notes)
    return {
        "experiment": task.experiment,
        "point": task.point,
        "seed": task.seed,
        "rows": rows,
        "seconds": seconds,
    }


def rows_of(task: Task, result: Mapping[str, Any]) -> dict[str, Any]:
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


def run_job(spark: SparkSession, task: Task, out: Path) -> dict[str, Any]:
    """Run a task that is a Spark job and store its rows; the receipt has the time on the clock."""
    begun = time.monotonic()
    try:
        columns = _spread(spark, task, out) if task.over else _computed(spark, task)
    except Exception as error:
        error.add_note(f"in {task.experiment} with seed {task.seed} at {dict(task.params)}")
        raise
    return _stored(task, out, columns, time.monotonic() - begun)


def _source_of(task: Task) -> Source:
    if task.source is None:
        raise ValueError(f"{task.experiment} is no job")
    return task.source


def _computed(spark: SparkSession, task: Task) -> dict[str, Any]:
    """The columns that a job gives."""
    job: Job = _function(task)
    rows = framed(task, job(spark, task.params, task.seed, _source_of(task))).toArrow()
    return {name: rows.column(name) for name in rows.column_names}


def _spread(spark: SparkSession, task: Task, out: Path) -> dict[str, Any]:
    """The columns of a point whose overlays are spread over all tasks."""
    frame = frame_of(spark, task.params, task.seed, _source_of(task), out).cache()
    try:
        simulation: OverlaidSimulation = _function(task)
        return rows_of(task, simulation(task.params, task.seed, Spread(frame)))
    finally:
        frame.unpersist()


def framed(task: Task, result: DataFrame) -> DataFrame:
    """The rows of a job as they are stored, filled up as in `rows_of`."""
    from pyspark.sql import functions as F  # noqa: PLC0415

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
