"""What a benchmark's figures should be, and how they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peer import machine


@dataclass(frozen=True)
class Goal:
    """A figure of the result, and what it should be."""

    key: str
    measure: str  # the module that takes it
    text: str
    least: float | None = None
    most: float | None = None

    def met(self, value: float | None) -> bool | None:
        """None where there is no goal, or no figure."""
        if value is None or (self.least is None and self.most is None):
            return None
        return (self.least is None or value >= self.least) and (
            self.most is None or value <= self.most
        )

    def wanted(self) -> str:
        if self.least is not None:
            return f"at least {self.least:,g}"
        return "" if self.most is None else f"at most {self.most:,g}"


def measures_of(goals: Sequence[Goal]) -> tuple[str, ...]:
    """The modules that the figures come from, in order."""
    return tuple(dict.fromkeys(goal.measure for goal in goals))


def summary(goals: Sequence[Goal], found: dict[str, Any], quick: bool) -> dict[str, Any]:
    """The figures first, then which goals are met, the machine, and every detail."""
    result: dict[str, Any] = {}
    for goal in goals:
        if goal.measure in found:
            result[goal.key] = found[goal.measure].get(goal.key)
    result["goals_met"] = {
        goal.key: goal.met(result[goal.key])
        for goal in goals
        if goal.key in result and goal.wanted()
    }
    return result | {"quick": quick, "machine": machine.describe(), "measures": found}


def table(goals: Sequence[Goal], result: dict[str, Any]) -> str:
    """The figures and goals as lines."""
    lines = []
    for goal in goals:
        if goal.key in result:
            value = result[goal.key]
            shown = "not there" if value is None else f"{value:,.3f}"
            met = {True: "yes", False: "NO", None: ""}[goal.met(value)]
            lines.append(f"{goal.text:<48}{shown:>16}  {goal.wanted():<20}{met}")
    for name, figures in result["measures"].items():
        for key, value in figures.get("reference", {}).items():
            lines.append(f"  for comparison, {name}: {key:<28}{value:>14,.3f}")
    return "\n".join(lines)
