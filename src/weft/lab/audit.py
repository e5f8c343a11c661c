"""`weft lab audit`: whether verdicts can fail.

Every experiment that counts a verdict is run at its quick size as it is, and with the defects that
it names (`weft.lab.defect`). A counted verdict must fall short under at least one of them, because
a verdict that no defect moves says nothing of its claim. A verdict that falls short without a
defect has shown that it can. Where the same is asked of several sources or shares, under one
reason, it is enough that one of them falls short.

Defects are planted in rounds: an experiment gets its next defect as long as one of its verdicts has
not been seen to fall short. The defects that are left then are run only with `every`. Points at
which no defect of an experiment is planted tell nothing here and are left out as well.

A number that could not be measured fails its verdict, but tells nothing of the bound: a defect that
leaves nothing to measure does not count as noticed.

    DIR/ID/verdict.json               as it is, at the points that defects are planted at
    DIR/ID/defects/NAME/verdict.json  with a defect planted

What is finished in the folder is not run again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from typing import TYPE_CHECKING

from weft.lab import run as lab
from weft.lab.defect import Defect
from weft.lab.experiment import AnyEntry, JobEntry, Params, Size
from weft.lab.sources import Source, Sources
from weft.lab.verdict import Asked, Measured, Verdict, number, reason_of
from weft.pipeline.schemas import AT_MOST, REPORTED

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from weft.lab.task import Task

SIZE: Size = "quick"
GRID_ALONE = Sources()
"""The sources of an audit: traces are for full sizes, and not every machine has them."""
NOT_SEEN: Measured = {"value": None, "low": None, "high": None, "seeds": 0}
NOT_ASKED: Asked = {
    "relation": REPORTED,
    "bound": None,
    "passed": False,
    "why": "",
    "basis": "",
    "chosen": "",
}
"""Of a verdict that is counted and not asked at any point that a defect is planted at."""


@dataclass(frozen=True)
class Effect:
    """What a defect did to one number."""

    defect: str
    value: float | None  # None: it could not be measured
    noticed: bool
    passing: float | None  # the largest share of the defect's effect that would still pass


@dataclass(frozen=True)
class Audited:
    """One counted bound of one experiment, and what defects did to it."""

    experiment: str
    reason: str  # under which the experiment explains the bound
    measure: str
    measured: Measured
    asked: Asked
    effects: tuple[Effect, ...]

    @property
    def moved(self) -> bool:
        """Whether it falls short when it should, as far as was tried."""
        short = not self.asked["passed"] and _is_number(self.measured["value"])
        return short or any(effect.noticed for effect in self.effects)

    @property
    def slack(self) -> float | None:
        """By how much the number may change for the worse and still pass."""
        value, bound = self.measured["value"], self.asked["bound"]
        if value is None or bound is None or not self.asked["passed"]:
            return None
        return bound - value if self.asked["relation"] == AT_MOST else value - bound


@dataclass
class _Case:
    """One experiment, and the verdicts on it so far."""

    entry: AnyEntry
    healthy: Verdict | None = None
    defective: dict[str, Verdict] = field(default_factory=dict)

    @property
    def as_it_is(self) -> AnyEntry:
        """The experiment without a defect, at the points that its defects are planted at."""
        defects = self.entry.defects

        def where(params: Params) -> bool:
            return not defects or any(defect.where(params) for defect in defects)

        return replace(_with(self.entry, Defect("nothing", where=where)), id=self.entry.id)

    @property
    def ahead(self) -> list[Defect]:
        """The defects that were not planted so far and have points to be planted at."""
        return [
            defect
            for defect in self.entry.defects
            if defect.name not in self.defective and _tasks_of(_with(self.entry, defect))
        ]

    @property
    def found(self) -> list[Audited]:
        return compared(self.entry, self.healthy, self.defective) if self.healthy else []

    def next(self, every: bool) -> list[Defect]:
        """The defects of the next round."""
        if every:
            return self.ahead
        seen = self.healthy is not None and not unmoved(self.found)
        return [] if seen else self.ahead[:1]

    def later(self, every: bool) -> float:
        """The seconds of the tasks that may come after the next round."""
        some = [] if every or not self.next(every) else self.ahead[1:]
        return sum(task.seconds for each in some for task in _tasks_of(_with(self.entry, each)))

    def hear(self, verdicts: Mapping[str, Verdict]) -> None:
        """A round is over: keep the verdicts of this experiment, healthy and with defects."""
        self.healthy = verdicts.get(self.entry.id, self.healthy)
        for defect in self.entry.defects:
            if (name := _id_of(self.entry, defect)) in verdicts:
                self.defective[defect.name] = verdicts[name]


def audit(
    spark: SparkSession,
    entries: Sequence[AnyEntry],
    out: Path,
    *,
    fresh: bool = False,
    changed: bool = False,
    every: bool = False,
) -> list[Audited]:
    """Run entries as they are and with their defects, on the synthetic grid; with `every` one of
    them, or only until all verdicts have been seen to fall short."""
    cases = [_Case(entry) for entry in entries if any(_counted(entry))]
    waiting = [case.as_it_is for case in cases]
    while variants := waiting + [
        _with(case.entry, defect) for case in cases for defect in case.next(every)
    ]:
        _say_round(variants, len(waiting))
        later = sum(case.later(every) for case in cases)
        verdicts = lab.run(
            spark,
            variants,
            SIZE,
            out,
            fresh=fresh,
            changed=changed,
            sources=GRID_ALONE,
            draw=False,
            later=later,
        )
        for case in cases:
            case.hear({each.id: each for each in verdicts})
        waiting = []
    return [found for case in cases for found in case.found]


def _say_round(variants: Sequence[AnyEntry], as_they_are: int) -> None:
    healthy = f"{as_they_are} experiments as they are, and " if as_they_are else ""
    text = f"weft: {healthy}{len(variants) - as_they_are} planted defects"
    print(text, file=sys.stderr)


def _counted(entry: AnyEntry) -> Iterable[str]:
    """The reasons of an experiment's counted bounds."""
    return (reason for reason, ground in entry.tolerances.items() if ground.counted)


def _tasks_of(entry: AnyEntry) -> list[Task]:
    return lab.plan_of(entry, SIZE, sources=GRID_ALONE).tasks


def _id_of(entry: AnyEntry, defect: Defect) -> str:
    return f"{entry.id}/defects/{defect.slug}"


def _with(entry: AnyEntry, defect: Defect) -> AnyEntry:
    """The same experiment with a defect, at the points that the defect is for."""
    name = _id_of(entry, defect)
    if isinstance(entry, JobEntry):
        of_source = entry.points

        def some(size: Size, source: Source) -> Sequence[Params]:
            return [params for params in of_source(size, source) if defect.where(params)]

        return replace(entry, id=name, planted=defect, points=some)
    everywhere = entry.points

    def few(size: Size) -> Sequence[Params]:
        return [params for params in everywhere(size) if defect.where(params)]

    return replace(entry, id=name, planted=defect, points=few)


def compared(entry: AnyEntry, healthy: Verdict, defective: Mapping[str, Verdict]) -> list[Audited]:
    """Every counted bound of a verdict, beside the verdicts under defects. What a job asks of full
    sizes or traces alone is asked here as well, if another of its bounds has the same ground."""
    reasons = {name: reason_of(entry, name) for name in healthy.counted}
    found = [
        Audited(
            healthy.id,
            reason,
            name,
            healthy.measured[name],
            healthy.tolerance[name],
            tuple(
                _effect(healthy, name, defect, verdict)
                for defect, verdict in defective.items()
                if name in verdict.tolerance
            ),
        )
        for name, reason in reasons.items()
    ]
    unseen = [reason for reason in _counted(entry) if reason not in reasons.values()]
    if isinstance(entry, JobEntry):
        grounds = {entry.tolerances[reason] for reason in reasons.values()}
        unseen = [reason for reason in unseen if entry.tolerances[reason] not in grounds]
    return found + [Audited(healthy.id, each, each, NOT_SEEN, NOT_ASKED, ()) for each in unseen]


def _effect(healthy: Verdict, name: str, defect: str, verdict: Verdict) -> Effect:
    before, after = healthy.measured[name]["value"], verdict.measured[name]["value"]
    if after is None or isnan(after):
        return Effect(defect, None, False, None)
    noticed = not verdict.tolerance[name]["passed"]
    bound, same = healthy.tolerance[name]["bound"], verdict.tolerance[name]["bound"]
    passing = None
    if noticed and before is not None and bound is not None and bound == same and after != before:
        passing = (bound - before) / (after - before)
    return Effect(defect, after, noticed, passing)


def _is_number(value: float | None) -> bool:
    return value is not None and not isnan(value)


# --- for people -----------------------------------------------------------------------------------


def table(found: Sequence[Audited]) -> str:
    """Each counted bound: what it is, how far the data could move, and which defects it notices."""
    lines: list[str] = []
    shown = ""
    for each in found:
        if each.experiment != shown:
            shown = each.experiment
            lines.append(shown)
        lines.append(f"  {each.measure}: {_passes(each)}")
        lines += [f"      {_words(effect)}" for effect in each.effects]
    return "\n".join(lines)


def _passes(each: Audited) -> str:
    """The largest change in the data that would still pass."""
    value, asked = each.measured["value"], each.asked
    if asked is NOT_ASKED:
        return "is not asked at any point where a defect is planted"
    demand = f"{number(value)} ({asked['relation']} {number(asked['bound'])})"
    if value is None or isnan(value):
        return f"{demand} could not be measured"
    if each.slack is None:
        return f"{demand} falls short as it is"
    if each.slack == 0:
        return f"{demand} no change passes"
    way = "more" if asked["relation"] == AT_MOST else "less"
    part = f", {100 * each.slack / abs(value):.0f} %" if value else ""
    return f"{demand} passes up to {number(each.slack)} {way}{part}"


def _words(effect: Effect) -> str:
    if effect.value is None:
        says = "falls short" if effect.noticed else "which says nothing of the bound"
        return f"{effect.defect}: could not be measured, {says}"
    if not effect.noticed:
        return f"{effect.defect}: {number(effect.value)}, passes"
    share = "" if effect.passing is None else f"; {100 * effect.passing:.0f} % of it would pass"
    return f"{effect.defect}: {number(effect.value)}, falls short{share}"


def unmoved(found: Sequence[Audited]) -> list[tuple[str, str]]:
    """The verdicts that nothing makes fall short: experiment and reason."""
    every = dict.fromkeys((each.experiment, each.reason) for each in found)
    moved = {(each.experiment, each.reason) for each in found if each.moved}
    return [verdict for verdict in every if verdict not in moved]


def summary(found: Sequence[Audited]) -> str:
    """How many verdicts can fail, and the names of those that cannot."""
    every = {(each.experiment, each.reason) for each in found}
    idle = unmoved(found)
    lines = [f"{len(every) - len(idle)} of {len(every)} counted verdicts can fall short"]
    lines += [f"no defect moves {experiment}: {reason}" for experiment, reason in idle]
    return "\n".join(lines)
