"""`weft lab audit`: whether verdicts can fail.

Every experiment is run at its quick size as it is, and once more with each of the defects that it
names (`weft.lab.defect`). A counted verdict must fall short under at least one of them: one that
nothing moves says nothing. One that falls short as it is has shown already that it can. Where the
same is asked of several sources or shares, under one reason, one of them is enough.

A number that could not be measured fails its verdict, but tells nothing of the bound: a defect that
leaves nothing to measure counts as noticed only where the experiment says that the absence is what
its claim denies (`ground.Ground.absence`).

    DIR/ID/verdict.json               as `weft lab run` writes it, without pictures
    DIR/ID/defects/NAME/verdict.json  with a defect planted

What is finished in the folder is not run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import TYPE_CHECKING

from weft.lab import run as lab
from weft.lab.experiment import AnyEntry, JobEntry, Params, Size
from weft.lab.sources import Source, Sources
from weft.lab.verdict import Asked, Measured, Verdict, number, reason_of
from weft.pipeline.schemas import AT_MOST

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from weft.lab.defect import Defect

SIZE: Size = "quick"


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


def audit(
    spark: SparkSession, entries: Sequence[AnyEntry], out: Path, *, fresh: bool = False
) -> list[Audited]:
    """Run entries as they are and with each of their defects, on the synthetic grid."""
    variants = [variant for entry in entries for variant in (entry, *_planted(entry))]
    verdicts = lab.run(spark, variants, SIZE, out, fresh=fresh, sources=Sources(), draw=False)
    by_id = {each.id: each for each in verdicts}
    return [
        found
        for entry in entries
        for found in compared(
            entry,
            by_id[entry.id],
            {each.name: by_id[_id_of(entry, each)] for each in entry.defects},
        )
    ]


def _id_of(entry: AnyEntry, defect: Defect) -> str:
    return f"{entry.id}/defects/{defect.slug}"


def _planted(entry: AnyEntry) -> list[AnyEntry]:
    """The same experiment with each of its defects, at the points that the defect is for."""
    return [_with(entry, defect) for defect in entry.defects]


def _with(entry: AnyEntry, defect: Defect) -> AnyEntry:
    name = _id_of(entry, defect)
    if isinstance(entry, JobEntry):
        of_source = entry.points

        def some(size: Size, source: Source) -> Sequence[Params]:
            return [params for params in of_source(size, source) if defect.where(params)]

        return replace(entry, id=name, planted=defect, points=some)
    every = entry.points

    def few(size: Size) -> Sequence[Params]:
        return [params for params in every(size) if defect.where(params)]

    return replace(entry, id=name, planted=defect, points=few)


def compared(entry: AnyEntry, healthy: Verdict, defective: Mapping[str, Verdict]) -> list[Audited]:
    """Every counted bound of a verdict, beside the verdicts under defects."""
    reasons = {name: reason_of(entry, name) for name in healthy.counted}
    return [
        Audited(
            healthy.id,
            reason,
            name,
            healthy.measured[name],
            healthy.tolerance[name],
            tuple(
                _effect(healthy, name, defect, verdict, entry.tolerances[reason].absence)
                for defect, verdict in defective.items()
                if name in verdict.tolerance
            ),
        )
        for name, reason in reasons.items()
    ]


def _effect(healthy: Verdict, name: str, defect: str, verdict: Verdict, absence: bool) -> Effect:
    before, after = healthy.measured[name]["value"], verdict.measured[name]["value"]
    if after is None or isnan(after):
        return Effect(defect, None, absence, None)
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
