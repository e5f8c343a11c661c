"""From rows to a verdict: what the claim says, what was measured, whether it holds.

A verdict is computed, never typed in. A claim holds when every measure that it asks something of
keeps to its bound; one that does not stays a fall-short, and `docs/protocols` says why. Bounds that
hold by construction are checked and not counted: a verdict of nothing else says so.
"""

from __future__ import annotations

import json
import math
import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from weft.lab.ground import Basis
from weft.pipeline.schemas import AT_MOST, REPORTED
from weft.pipeline.transforms import judged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from weft.lab.experiment import Experiment, Size
    from weft.lab.sources import Sources

FILE = "verdict.json"
HOLDS, FALLS_SHORT, CLOSE = "holds", "falls short", "close to a bound"
CONSTRUCTION = Basis.CONSTRUCTION.value
Notes: TypeAlias = Sequence[Mapping[str, str]]


class Measured(TypedDict):
    """A number, its 95 % interval over seeds, and how many seeds."""

    value: float | None
    low: float | None
    high: float | None
    seeds: int


class Asked(TypedDict):
    """What the claim asks of a number."""

    relation: str
    bound: float | None
    passed: bool
    why: str
    basis: str  # of `weft.lab.ground.Basis`
    chosen: str  # the day, as 2026-11-15


@dataclass(frozen=True)
class Verdict:
    """The outcome of one experiment, as it stands in `verdict.json`."""

    id: str
    title: str
    size: str
    claim: str
    passed: bool  # every bound is kept, those by construction too
    measured: dict[str, Measured]
    tolerance: dict[str, Asked]  # per judged measure
    seeds: list[int]
    points: int
    seconds: float  # of simulation, all tasks together: CPU time; for jobs, time on the clock
    code: list[str]  # which sources made the rows; one, unless a run was resumed
    command: str
    sources: list[str] = field(default_factory=list)  # of data, for a job
    skipped: dict[str, str] = field(default_factory=dict)  # sources it did without, and why
    revisions: dict[str, int] = field(default_factory=dict)  # how many points and seeds are of each

    @property
    def counted(self) -> list[str]:
        """The measures whose data could contradict the claim."""
        return [name for name, each in self.tolerance.items() if each["basis"] != CONSTRUCTION]

    @property
    def outcome(self) -> str:
        """The outcome in a word or two, the same on terminal and page. A claim whose bounds all
        hold by construction says so; a claim with a 95 % interval beyond a bound says that it is
        close."""
        if not self.passed:
            return FALLS_SHORT
        if not self.counted:
            return CONSTRUCTION
        close = [
            name for name in self.counted if crosses(self.measured[name], self.tolerance[name])
        ]
        return f"{HOLDS}, {CLOSE}" if close else HOLDS


def crosses(numbers: Measured, asked: Asked) -> bool:
    """Whether the 95 % interval of a number goes beyond its bound."""
    low, high, bound = numbers["low"], numbers["high"], asked["bound"]
    if low is None or high is None or bound is None:
        return False
    return high > bound if asked["relation"] == AT_MOST else low < bound


def measures_of(entry: Experiment, rows: DataFrame, size: Size) -> list[Row]:
    """The measures, compared with their bounds: rows of the shape JUDGED. Measures with a bound
    come first, in the order of the entry's tolerances."""
    order = {name: place for place, name in enumerate(entry.tolerances)}
    return sorted(
        rows.transform(entry.measure, size).transform(judged).collect(),
        key=lambda row: (order.get(reason_of(entry, row.measure), len(order)), row.measure),
    )


def reason_of(entry: Experiment, measure: str) -> str:
    """The name under which an entry explains the bound of a measure: its own, or, where it is
    measured on several sources, what follows the source's."""
    return measure if measure in entry.tolerances else measure.partition(": ")[2]


def judge(
    entry: Experiment,
    measures: Sequence[Row],
    *,
    size: Size,
    seeds: int,
    points: int,
    notes: Notes,
    sources: Sources | None = None,
    used: Sequence[str] = (),
) -> Verdict:
    """The verdict on measures; `notes` are those that the rows were written with, `used` the
    sources that the rows of a job are from."""
    asked = [row for row in measures if row.relation != REPORTED]
    reasons = {row.measure: reason_of(entry, row.measure) for row in asked}
    unexplained = {name for name, why in reasons.items() if why not in entry.tolerances}
    if not used and entry.planted is None:  # a job may ask some things of some sources only
        unexplained |= set(entry.tolerances) - set(reasons.values())
    if unexplained:
        raise ValueError(f"{entry.id}: bounds and their reasons differ in {sorted(unexplained)}")
    return Verdict(
        id=entry.id,
        title=entry.title,
        size=size,
        claim=entry.claim,
        passed=bool(asked) and all(bool(row.passed) for row in asked),
        measured={
            row.measure: {
                "value": row.value,
                "low": row.low,
                "high": row.high,
                "seeds": row.seeds,
            }
            for row in measures
        },
        tolerance={
            row.measure: {
                "relation": row.relation,
                "bound": row.bound,
                "passed": row.passed,
                **_ground(entry, reasons[row.measure]),
            }
            for row in asked
        },
        seeds=list(range(1, seeds + 1)),
        points=points,
        seconds=round(sum(float(note["seconds"]) for note in notes), 1),
        code=sorted({note["code"] for note in notes}),
        revisions=dict(sorted(Counter(note.get("revision", "unknown") for note in notes).items())),
        command=command_of(entry, size, seeds, sources),
        sources=list(used),
        skipped=dict(sources.skipped) if sources and used else {},
    )


class _Ground(TypedDict):
    why: str
    basis: str
    chosen: str


def _ground(entry: Experiment, reason: str) -> _Ground:
    ground = entry.tolerances[reason]
    return {
        "why": ground.why,
        "basis": ground.basis.value,
        "chosen": ground.chosen.isoformat(),
    }


def command_of(entry: Experiment, size: Size, seeds: int, sources: Sources | None = None) -> str:
    """What reproduces the verdict."""
    words = ["./weft", "lab", "run", entry.id, f"--{size}", "--seeds", str(seeds)]
    if sources and sources.trace:
        words += ["--trace", str(sources.trace)]
    return shlex.join(words)


def write(verdict: Verdict, folder: Path) -> Path:
    """Write `verdict.json`, whole or not at all."""
    target = folder / FILE
    aside = folder / f".{FILE}.{os.getpid()}"
    text = json.dumps(_plain(asdict(verdict)), indent=2, ensure_ascii=False, allow_nan=False)
    aside.write_text(text + "\n")
    os.replace(aside, target)
    return target


def read_all(out: Path) -> list[Verdict]:
    """The verdicts under a folder, by id."""
    found = [Verdict(**json.loads(path.read_text())) for path in sorted(out.glob(f"*/{FILE}"))]
    return sorted(found, key=lambda verdict: verdict.id)


def table(verdicts: Sequence[Verdict]) -> str:
    """Each verdict with what was asked, for people; the report has all numbers."""
    lines = []
    for each in verdicts:
        lines.append(f"{each.id:<14} {each.size:<6} {each.outcome:<16} {each.title}")
        lines += [
            f"    {_line(name, each.measured[name], each.tolerance[name])}"
            for name in each.tolerance
        ]
        lines += [f"    skipped {name}: {why}" for name, why in each.skipped.items()]
    return "\n".join(lines)


def _line(name: str, numbers: Measured, asked: Asked) -> str:
    interval = ""
    if numbers["low"] is not None:
        interval = f" [{number(numbers['low'])}, {number(numbers['high'])}]"
    demand = (
        f"({asked['relation']} {number(asked['bound'])}, {asked['basis']}){_remark(numbers, asked)}"
    )
    return f"{name}: {number(numbers['value'])}{interval} {demand}"


def _remark(numbers: Measured, asked: Asked) -> str:
    if not asked["passed"]:
        return f"  <-- {FALLS_SHORT}"
    return f"  <-- {CLOSE}" if asked["basis"] != CONSTRUCTION and crosses(numbers, asked) else ""


def number(value: float | None) -> str:
    """A number with four digits."""
    return "none" if value is None else f"{value:.4g}"


def _plain(value: object) -> object:
    """A value as JSON can have it: JSON has no NaN and no infinity, so these become null."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
