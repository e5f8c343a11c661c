"""One page with every verdict and picture of a folder, and the same as a short table.

The page is one file: pictures are inside it, so that it can be sent or kept as it is.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from weft.lab.verdict import (
    CLOSE,
    CONSTRUCTION,
    FALLS_SHORT,
    HOLDS,
    Asked,
    Measured,
    Verdict,
    crosses,
    number,
)

FILE = "report.html"

STYLE = """
:root { --ink: #1c1e21; --soft: #5f6670; --line: #dfe3e8; --paper: #fff; --good: #0b7a4b;
  --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --soft: #9aa3ad; --line: #33383f;
  --paper: #15171a; --good: #55c795; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 2rem 1.25rem 4rem; color: var(--ink);
  background: var(--paper); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 0; }
p { margin: .5rem 0; } .soft { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-size: .92rem; }
th, td { text-align: left; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { font-weight: 600; color: var(--soft); }
td.n { font-variant-numeric: tabular-nums; white-space: nowrap; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
article { border-top: 2px solid var(--line); margin-top: 2.5rem; padding-top: 1.25rem; }
summary { cursor: pointer; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; margin: .75rem 0; }
code { font-size: .88em; } a { color: inherit; }
"""


def write(verdicts: Sequence[Verdict], out: Path) -> Path:
    """Write the page into the folder that the verdicts are from."""
    target = out / FILE
    aside = out / f".{FILE}.{os.getpid()}"
    aside.write_text(page(verdicts, out), encoding="utf-8")
    os.replace(aside, target)
    return target


def summary(verdicts: Sequence[Verdict]) -> str:
    """A line for each verdict, and how many hold."""
    lines = [f"{'id':<12} {'size':<6} {'seeds':>5} {'time s':>8}  verdict"]
    lines += [
        f"{each.id:<12} {each.size:<6} {len(each.seeds):>5} {each.seconds:>8.1f}  {_outcome(each)}"
        for each in verdicts
    ]
    lines.append(_count(verdicts))
    return "\n".join(lines)


def _count(verdicts: Sequence[Verdict]) -> str:
    """How many claims hold, of those that data could contradict."""
    counted = [each for each in verdicts if each.counted]
    words = f"{sum(each.passed for each in counted)} of {len(counted)} claims hold"
    others = len(verdicts) - len(counted)
    return f"{words}, {others} not counted: by construction" if others else words


def _outcome(verdict: Verdict) -> str:
    if verdict.passed:
        return verdict.outcome
    short = [name for name, asked in verdict.tolerance.items() if not asked["passed"]]
    return f"{verdict.outcome}: {', '.join(short)}"


def page(verdicts: Sequence[Verdict], out: Path) -> str:
    """The whole page."""
    overview = "".join(_overview_row(each) for each in verdicts)
    articles = "".join(_article(each, out / each.id) for each in verdicts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>weft lab</title><style>{STYLE}</style></head><body>"
        f"<h1>weft lab</h1><p class='soft'>{_count(verdicts)}. Intervals are "
        "95 % over seeds.</p><div class='wide'><table><tr><th>experiment<th>size<th>seeds"
        f"<th>verdict<th>what</tr>{overview}</table></div>{articles}</body></html>\n"
    )


def _mark(passed: bool, words: str = HOLDS) -> str:
    style = "bad" if not passed else "soft" if words == CONSTRUCTION else "good"
    return f"<span class='{style}'>{words if passed else FALLS_SHORT}</span>"


def _overview_row(verdict: Verdict) -> str:
    return (
        f"<tr><td><a href='#{escape(verdict.id)}'>{escape(verdict.id)}</a><td>{verdict.size}"
        f"<td class='n'>{len(verdict.seeds)}<td>{_mark(verdict.passed, verdict.outcome)}"
        f"<td>{escape(verdict.title)}</tr>"
    )


def _article(verdict: Verdict, folder: Path) -> str:
    asked = "".join(
        _asked_row(name, verdict.measured[name], demand)
        for name, demand in verdict.tolerance.items()
    )
    told = "".join(
        f"<tr><td>{escape(name)}{_value(numbers)}</tr>"
        for name, numbers in verdict.measured.items()
        if name not in verdict.tolerance
    )
    return (
        f"<article id='{escape(verdict.id)}'><h2>{escape(verdict.id)}: {escape(verdict.title)} "
        f"{_mark(verdict.passed, verdict.outcome)}</h2><p>{escape(verdict.claim)}</p>"
        f"{_picture(verdict, folder)}<div class='wide'><table><tr><th>measure<th>value<th>interval"
        f"<th>asked<th><th>basis<th>why this bound</tr>{asked}</table></div>"
        "<details><summary>More numbers</summary><div class='wide'>"
        f"<table><tr><th>measure<th>value<th>interval</tr>{told}</table></div></details>"
        f"<p class='soft'>{verdict.points} points, "
        f"{len(verdict.seeds)} seeds, {verdict.seconds:.1f} s of simulation. {_data(verdict)}"
        f"{_revisions(verdict)}"
        f"<code>{escape(verdict.command)}</code></p></article>"
    )


def _data(verdict: Verdict) -> str:
    """What a job ran on, and what it did without."""
    if not verdict.sources:
        return ""
    skipped = "".join(f"; without {name}: {why}" for name, why in verdict.skipped.items())
    return escape(f"On {', '.join(verdict.sources)}{skipped}. ")


def _revisions(verdict: Verdict) -> str:
    """Which commits the rows are from, and how many of each where there are several."""
    several = len(verdict.revisions) > 1
    said = [f"{name} ({count})" if several else name for name, count in verdict.revisions.items()]
    return escape(f"By revision {', '.join(said)}. ") if said else ""


def _value(numbers: Measured) -> str:
    interval = ""
    if numbers["low"] is not None:
        interval = f"{number(numbers['low'])} … {number(numbers['high'])}"
    return f"<td class='n'>{number(numbers['value'])}<td class='n'>{interval}"


def _asked_row(name: str, numbers: Measured, asked: Asked) -> str:
    return (
        f"<tr><td>{escape(name)}{_value(numbers)}"
        f"<td class='n'>{asked['relation']} {number(asked['bound'])}"
        f"<td>{_mark(bool(asked['passed']), _kept(numbers, asked))}"
        f"<td class='soft'>{asked['basis']}, {asked['chosen']}"
        f"<td class='soft'>{escape(asked['why'])}</tr>"
    )


def _kept(numbers: Measured, asked: Asked) -> str:
    """What to say of a bound that is kept."""
    if asked["basis"] == CONSTRUCTION:
        return CONSTRUCTION
    return f"{HOLDS}, {CLOSE}" if crosses(numbers, asked) else HOLDS


def _picture(verdict: Verdict, folder: Path) -> str:
    file = folder / "figure.png"
    if not file.is_file():
        return ""
    data = base64.b64encode(file.read_bytes()).decode()
    link = f"{escape(verdict.id)}/figure.svg"
    return (
        f"<a href='{link}'><img alt='{escape(verdict.title)}' "
        f"src='data:image/png;base64,{data}'></a>"
    )
