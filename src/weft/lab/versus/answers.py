"""What the table says: the frontier, where references are better, and which setting to take.

The rule of the recommendation, in this order:

1. Of weft's systems, those that delivered at least WHOLE of everything when calm, on every source.
2. Of these, those whose mean delivery over all faults that they were played under is at most SLACK
   below the best of them; where no fault was played, all.
3. Of these, the one with the lowest cost: bytes sent per delivery when calm, the geometric mean
   over the sources; where several lie within SAME of the lowest, the one whose peers get copies
   from the fewest others.

Bytes are the cost because they count copies, control and upkeep alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean
from typing import TypeAlias, TypedDict

import msgspec

from weft.lab.versus.scores import HIGHER_IS_BETTER, MEASURES
from weft.lab.versus.systems import OURS, SYSTEMS, default_system

WHOLE = 0.9999
"""guess: all but one delivery in ten thousand; a run has too few deliveries to tell that from all.
"""
SLACK = 0.01
"""guess: more delivery under faults is worth its cost if it is more than a hundredth."""
SAME = 0.02
"""guess: costs that differ by less are taken for equal."""
BETTER = 0.02
"""guess: a reference is called better if it is so by more than this share …"""
BETTER_POINTS = 0.002
"""guess: … or, of what is a share itself, by more than this."""


class Cell(TypedDict):
    """A row of the table."""

    source: str
    system: str
    fault: str
    level: int
    measure: str
    value: float
    low: float | None
    high: float | None
    seeds: int


Table: TypeAlias = Sequence[Cell]


def table_from(rows: Iterable[Mapping[str, object]]) -> Table:
    """The table as it was read from a file or from Spark."""
    return msgspec.convert(list(rows), list[Cell])


Summary: TypeAlias = Mapping[str, Mapping[str, float]]
"""Numbers of each system, by measure."""


def calm_summary(table: Table) -> dict[str, dict[str, float]]:
    """Each system when calm, over all sources: means, of what is a cost the geometric one."""
    found: dict[str, dict[str, list[float]]] = {}
    for cell in table:
        if cell["fault"] == "calm":
            of_system = found.setdefault(cell["system"], {})
            of_system.setdefault(cell["measure"], []).append(cell["value"])
    return {
        system: {name: _mean(name, values) for name, values in measures.items()}
        for system, measures in found.items()
    }


def _mean(measure: str, values: Sequence[float]) -> float:
    shares = (*HIGHER_IS_BETTER, "parasites", "repair_s")
    if measure in shares or min(values) <= 0:
        return fmean(values)
    return exp(fmean(map(log, values)))


def least_delivery(table: Table) -> dict[str, float]:
    """The worst delivery of each system when calm, over the sources."""
    return _by_system(table, lambda cell: cell["fault"] == "calm", min)


def faulted_delivery(table: Table) -> dict[str, float]:
    """The mean delivery of each system over the faults that it was played under. The partition that
    only peers with a store can survive (`kept`) is left out, since one system alone plays it."""
    return _by_system(table, lambda cell: cell["fault"] not in ("calm", "kept"), fmean)


def _by_system(
    table: Table, where: Callable[[Cell], bool], put: Callable[[Iterable[float]], float]
) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for cell in table:
        if cell["measure"] == "delivery" and where(cell):
            found.setdefault(cell["system"], []).append(cell["value"])
    return {system: put(values) for system, values in found.items()}


@dataclass(frozen=True)
class Recommendation:
    """The system to take, and how the rule came to it."""

    system: str
    steps: tuple[str, ...]

    @property
    def is_default(self) -> bool:
        return self.system == default_system().name


def recommended(table: Table) -> Recommendation:
    """The recommendation by the rule above."""
    calm, least = calm_summary(table), least_delivery(table)
    ours = [each.name for each in OURS if each.name in calm]
    if not ours:
        raise ValueError("the table has no run of weft when calm")
    best = max(least[name] for name in ours)
    whole = [name for name in ours if least[name] >= min(WHOLE, best)]
    steps = [f"{len(whole)} of {len(ours)} systems of weft delivered everything when calm"]
    faulted = faulted_delivery(table)
    played = [name for name in whole if name in faulted]
    if played:
        top = max(faulted[name] for name in played)
        whole = [name for name in played if faulted[name] >= top - SLACK]
        steps.append(
            f"under faults the best delivered {top:.4f} on average; within {SLACK:g} of it: "
            + ", ".join(f"{name} {faulted[name]:.4f}" for name in whole)
        )
    lowest = min(calm[name]["bytes"] for name in whole)
    cheap = [name for name in whole if calm[name]["bytes"] <= lowest * (1 + SAME)]
    chosen = min(cheap, key=lambda name: (calm[name].get("links", 0.0), name))
    steps.append(f"of these {chosen} has the lowest cost, {calm[chosen]['bytes']:.0f} B/delivery")
    return Recommendation(chosen, tuple(steps))


def frontier(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """The systems that no other beats in both numbers; both are better when lower."""
    found = []
    for name, (x, y) in points.items():
        beaten = any(
            (a <= x and b <= y and (a < x or b < y)) for at, (a, b) in points.items() if at != name
        )
        if not beaten:
            found.append(name)
    return sorted(found, key=lambda name: points[name])


@dataclass(frozen=True)
class Beaten:
    """A measure in which references are better than weft's default."""

    condition: str  # calm, or the fault
    measure: str
    default: float
    best: float  # of weft's systems
    by: tuple[tuple[str, float], ...]  # references and their values, the best first


def beaten(table: Table) -> list[Beaten]:
    """Where a reference is better than the default: when calm in any measure, under each fault in
    delivery. Only references that deliver as much when calm count, since an event that is not
    delivered costs nothing."""
    calm = calm_summary(table)
    mine = default_system().name
    if mine not in calm:
        return []
    able = [
        name
        for name in calm
        if SYSTEMS[name].family == "reference"
        and calm[name]["delivery"] >= calm[mine]["delivery"] - BETTER_POINTS
    ]
    found = [
        _compared("calm", measure, {name: calm[name] for name in (*able, *_weft(calm))})
        for measure in MEASURES
        if measure != "repair_s" and measure in calm[mine]
    ]
    under: dict[str, dict[str, list[float]]] = {}
    for cell in table:
        if cell["fault"] != "calm" and cell["measure"] == "delivery":
            name = f"{cell['fault']} {cell['level']}"
            under.setdefault(name, {}).setdefault(cell["system"], []).append(cell["value"])
    for condition, values in under.items():
        means = {system: {"delivery": fmean(some)} for system, some in values.items()}
        if mine in means:
            found.append(_compared(condition, "delivery", means))
    return [each for each in found if each.by]


def _weft(summary: Summary) -> list[str]:
    return [name for name in summary if SYSTEMS[name].family == "weft"]


def _compared(condition: str, measure: str, summary: Summary) -> Beaten:
    mine = default_system().name
    values = {name: one[measure] for name, one in summary.items() if measure in one}
    own = values[mine]
    up = measure in HIGHER_IS_BETTER
    ours = [value for name, value in values.items() if SYSTEMS[name].family == "weft"]

    def is_better(value: float) -> bool:
        gain = value - own if up else own - value
        return gain > (BETTER_POINTS if up or measure == "parasites" else BETTER * abs(own))

    better = [
        (name, value)
        for name, value in values.items()
        if SYSTEMS[name].family == "reference" and is_better(value)
    ]
    better.sort(key=lambda each: each[1], reverse=up)
    best = max(ours) if up else min(ours)
    return Beaten(condition, measure, own, best, tuple(better))


def config_text(system: str) -> str:
    """The settings of a system as a config file for `weft peer`."""
    settings = SYSTEMS[system].settings
    if settings is None:
        raise ValueError(f"{system} is no system of weft's")
    lines = ["# Recommended by `weft versus`; for `weft peer --config`.", "[protocol]"]
    lines += [f'{name} = "{value}"' for name, value in settings.items() if isinstance(value, str)]
    for name, nested in settings.items():
        if isinstance(nested, Mapping):
            lines += ["", f"[protocol.{name}]"]
            lines += [f"{key} = {_toml(value)}" for key, value in nested.items()]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'
