"""Where a bound comes from, and when it was chosen.

A bound is worth what it rests on, so every one says it, with the day of its choice:

- *paper*: a number, or the plain words, of the paper that the claim is from;
- *derived*: what a model of the experiment gives, worked out beside the bound;
- *asked*: what this project sets itself; the reason says so where a result was known by then;
- *by construction*: the experiment is made so that it holds. Such a bound is a check of the
  experiment: it is no evidence for the claim and is not counted, but it must keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import StrEnum


class Basis(StrEnum):
    """What a bound rests on."""

    PAPER = "paper"
    DERIVED = "derived"
    ASKED = "asked"
    CONSTRUCTION = "by construction"


@dataclass(frozen=True)
class Ground:
    """Why a bound is what it is."""

    basis: Basis
    chosen: date
    why: str

    @property
    def counted(self) -> bool:
        """Whether data could contradict the claim here."""
        return self.basis is not Basis.CONSTRUCTION


def paper(chosen: str, why: str) -> Ground:
    """A bound by the paper; `chosen` is the day, as 2026-11-15. The functions that follow have the
    same arguments."""
    return Ground(Basis.PAPER, date.fromisoformat(chosen), why)


def derived(chosen: str, why: str) -> Ground:
    return Ground(Basis.DERIVED, date.fromisoformat(chosen), why)


def asked(chosen: str, why: str) -> Ground:
    return Ground(Basis.ASKED, date.fromisoformat(chosen), why)


def by_construction(chosen: str, why: str) -> Ground:
    return Ground(Basis.CONSTRUCTION, date.fromisoformat(chosen), why)
