"""The answers as files: the table (CSV and JSON), the pictures, one page, the recommended settings.

versus.csv, versus.json   every system, source, fault and measure, with its interval
page.html                 first where references are better, then the recommendation, pictures
recommended.toml          settings for `weft peer --config`
"""

from __future__ import annotations

import base64
import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import hypot
from pathlib import Path
from typing import Literal

from weft.lab.figures import COLOURS, GREY, MARKERS, Axes, Figure, look, panels, styled
from weft.lab.report import STYLE
from weft.lab.versus import answers
from weft.lab.versus.answers import Beaten, Cell, Recommendation, Table
from weft.lab.versus.crowd import ENOUGH, TRACE
from weft.lab.versus.scores import MEASURES, TABLE
from weft.lab.versus.systems import SYSTEMS, default_system
from weft.pipeline import tables

CSV, JSON, PAGE, SETTINGS = "versus.csv", "versus.json", "page.html", "recommended.toml"
FOLDER, RUNS = "table.parquet", "runs.parquet"
SHOWN = (
    *("delivery", "latency_p50_ms", "latency_p99_ms", "hops_p99", "copies", "control", "upkeep"),
    *("bytes", "load_jain", "load_peak", "links", "state_kb", "parasites"),
)
"""Measures of the table on the page; all are in the files."""
HEADS = {"links": "peers that bring copies"}
"""What stands above a column, where the measure's name would promise too much: connections that
bring no copy are not counted."""
_MORE_STYLE = "h2 { margin-top: 2rem; } td.n:last-child { white-space: normal; }"


def write(folder: Path) -> None:
    """Write all of it into the folder where the table is."""
    table = answers.table_from(tables.read_small(folder / FOLDER))
    driven_by = {row["source"]: row["driven_by"] for row in tables.read_small(folder / RUNS)}
    advice = answers.recommended(table)
    _put(folder / CSV, _csv(table))
    said = {
        "rule": (answers.__doc__ or "").partition("\n\n")[2],
        "recommended": advice.system,
        "default": default_system().name,
        "steps": advice.steps,
        "publications_driven_by": driven_by,
        "measures": dict(MEASURES),
        "systems": {name: each.title for name, each in SYSTEMS.items()},
        "rows": list(table),
    }
    _put(folder / JSON, json.dumps(said, indent=1) + "\n")
    _put(folder / SETTINGS, answers.config_text(advice.system))
    _put(folder / PAGE, _page(table, advice, driven_by))


def summary(folder: Path) -> str:
    """The answers in a few lines: first where references are better, then the recommendation."""
    table = answers.table_from(tables.read_small(folder / FOLDER))
    advice = answers.recommended(table)
    lines = [
        f"{each.condition}: {MEASURES[each.measure]}: {default_system().name} "
        f"{_number(each.default)}, better: "
        + ", ".join(f"{name} {_number(value)}" for name, value in each.by)
        for each in answers.beaten(table)
    ]
    lines += [f"recommended: {advice.system}", *(f"  {step}" for step in advice.steps)]
    return "\n".join(lines)


def _put(target: Path, text: str) -> None:
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, target)


def _csv(table: Table) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, TABLE.names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()


# --- pictures -------------------------------------------------------------------------------------


def figure(table: Table) -> Figure:
    """Cost against delivery under faults, latency against load, delivery fault by fault."""
    calm, faulted = answers.calm_summary(table), answers.faulted_delivery(table)
    drawing, axes = panels(columns=2, rows=2)
    lost = {name: (calm[name]["bytes"], 1 - faulted[name]) for name in calm if name in faulted}
    _logarithmic(axes[0], "x")
    _scatter(axes[0], {at: (x, 100 * (1 - y)) for at, (x, y) in lost.items()}, lost)
    axes[0].set_title("cost against delivery under faults")
    axes[0].set_xlabel("bytes per delivery, calm")
    axes[0].set_ylabel("delivered, mean over faults, %")
    slow = {
        name: (one["load_peak"], one["latency_p99_ms"])
        for name, one in calm.items()
        if "latency_p99_ms" in one
    }
    _logarithmic(axes[1], "y")
    _scatter(axes[1], slow, slow)
    axes[1].set_title("latency against load, calm")
    axes[1].set_xlabel("largest over mean load of a peer")
    axes[1].set_ylabel("latency p99, ms")
    copied = {name: (one["copies"], one["bytes"]) for name, one in calm.items()}
    _logarithmic(axes[2], "x", "y")
    _scatter(axes[2], copied, copied)
    axes[2].set_title("copies against all bytes, calm")
    axes[2].set_xlabel("copies per delivery")
    axes[2].set_ylabel("bytes per delivery")
    _by_fault(axes[3], table)
    return drawing


def _logarithmic(panel: Axes, *names: Literal["x", "y"]) -> None:
    """Logarithmic axes with ticks at 1, 2 and 5 as plain numbers, which need little room."""
    from matplotlib.ticker import LogLocator, NullLocator  # noqa: PLC0415

    for name in names:
        panel.set(**{f"{name}scale": "log"})
        axis = panel.xaxis if name == "x" else panel.yaxis
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:,g}")


def _look(name: str) -> tuple[str, str]:
    place = list(SYSTEMS).index(name)
    reference = SYSTEMS[name].family == "reference"
    return (COLOURS[1] if reference else COLOURS[0]), MARKERS[place % len(MARKERS)]


def _scatter(
    panel: Axes,
    points: Mapping[str, tuple[float, float]],
    judged: Mapping[str, tuple[float, float]],
) -> None:
    """Every system by its name, which stands beside the panel, since many lie close together; those
    of the frontier (both numbers of `judged` low) joined. The scales are set before."""
    edge = answers.frontier(judged)
    panel.plot(*zip(*(points[name] for name in edge), strict=True), color=GREY, lw=1, zorder=1)
    for name, (x, y) in points.items():
        colour, marker = _look(name)
        panel.plot([x], [y], color=colour, marker=marker, ls="")
    panel.autoscale_view()
    inside = panel.transScale + panel.transLimits  # from numbers to shares of the panel
    heights = spread({name: float(inside.transform(at)[1]) for name, at in points.items()})
    for name, height in heights.items():
        colour, _ = _look(name)
        line = {"arrowstyle": "-", "color": colour, "lw": 0.5, "alpha": 0.45, "shrinkB": 3}
        panel.annotate(
            *(name, points[name]),
            xytext=(1.03, height),
            textcoords="axes fraction",
            va="center",
            fontsize=7,
            color=colour,
            fontweight="bold" if name == default_system().name else "normal",
            arrowprops={**line, "relpos": (0.0, 0.5), "shrinkA": 0},
        )


def spread(wanted: Mapping[str, float], apart: float = 0.055) -> dict[str, float]:
    """Heights of labels in a panel, from 0 to 1: as near to those wanted as it takes to stand
    `apart`, the highest first; closer only if there are too many."""
    names = sorted(wanted, key=lambda name: (-wanted[name], name))
    apart = min(apart, 1 / max(1, len(names) - 1))
    found: dict[str, float] = {}
    above = 1.0 + apart
    for place, name in enumerate(names):
        room = apart * (len(names) - 1 - place)  # for those below
        above = found[name] = max(room, min(wanted[name], above - apart))
    return found


def _by_fault(panel: Axes, table: Table) -> None:
    faults = list(
        dict.fromkeys((cell["fault"], cell["level"]) for cell in table if cell["fault"] != "calm")
    )
    at = {fault: place for place, fault in enumerate(faults)}
    found: dict[str, dict[int, list[float]]] = {}
    for cell in table:
        place = at.get((cell["fault"], cell["level"]))
        if cell["measure"] == "delivery" and place is not None:
            found.setdefault(cell["system"], {}).setdefault(place, []).append(cell["value"])
    for number, (name, values) in enumerate(found.items()):
        mine = name == default_system().name
        style = "-" if SYSTEMS[name].family == "weft" else ":"
        places = sorted(values)
        shares = [100 * sum(values[p]) / len(values[p]) for p in places]
        panel.plot(places, shares, ls=style, lw=2.4 if mine else 1.0, label=name, **look(number))
    panel.set_xticks(range(len(faults)), [f"{kind} {level}" for kind, level in faults])
    panel.tick_params(axis="x", labelrotation=60, labelsize=7)
    panel.set_title("delivery under each fault")
    panel.set_ylabel("delivered, %")
    if found:
        panel.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))


# --- the page -------------------------------------------------------------------------------------


def _page(table: Table, advice: Recommendation, driven_by: Mapping[str, str]) -> str:
    drawing = io.BytesIO()
    with styled():
        figure(table).savefig(drawing, format="png", dpi=150, metadata={"Software": None})
    picture = base64.b64encode(drawing.getvalue()).decode()
    sources = list(dict.fromkeys(cell["source"] for cell in table))
    seeds = max(cell["seeds"] for cell in table)
    body = [
        "<h1>Which system, at what cost</h1>",
        f"<p class='soft'>On {escape(', '.join(sources))}; up to {seeds} seeds; intervals are 95 % "
        "over seeds. weft's systems and six references on the same subscriptions.</p>",
        f"<p class='soft'>{escape(_publications(driven_by))}</p>",
        "<h2>Where references are better than weft's default</h2>",
        _beaten(answers.beaten(table)),
        "<h2>Recommended</h2>",
        _advice(advice),
        f"<img alt='cost, delivery, latency and load' src='data:image/png;base64,{picture}'>",
        "<h2>Calm, over all sources</h2>",
        _calm(table),
        "<h2>Delivered under faults</h2>",
        _faults(table),
        *(f"<h2>Calm, on {escape(one)}</h2>{_of_source(table, one)}" for one in sources),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>weft versus</title><style>{STYLE}{_MORE_STYLE}</style></head><body>"
        f"{''.join(body)}</body></html>\n"
    )


def _publications(driven_by: Mapping[str, str]) -> str:
    """What the publications of each source came from, in words."""
    own = [name for name, what in driven_by.items() if what == TRACE]
    others = [name for name in driven_by if name not in own]
    parts = []
    if own:
        parts.append(
            f"On {', '.join(own)} publications are the trace's own events: its users publish where "
            "they did, in that order and with those bursts, scaled to the window."
        )
    if others:
        parts.append(
            f"On {', '.join(others)} publications go by rate, from memberships at random: the "
            f"source has no events with times, or less than {ENOUGH:.0%} of those that a run takes."
        )
    return " ".join(parts)


def _beaten(found: Sequence[Beaten]) -> str:
    if not found:
        return "<p>In no measure.</p>"
    rows = [
        [
            each.condition,
            MEASURES[each.measure],
            _number(each.default),
            _number(each.best),
            ", ".join(f"{name} {_number(value)}" for name, value in each.by),
        ]
        for each in found
    ]
    mine = default_system().name
    return _rows(["when", "measure", mine, "best of weft", "references that are better"], rows)


def _advice(advice: Recommendation) -> str:
    steps = "".join(f"<li>{escape(step)}</li>" for step in advice.steps)
    same = (
        "which is the default of a peer"
        if advice.is_default
        else f"where the default of a peer is {escape(default_system().name)}"
    )
    rule = escape((answers.__doc__ or "").partition("\n\n")[2])
    settings = escape(answers.config_text(advice.system))
    return (
        f"<p><b>{escape(advice.system)}</b> ({escape(SYSTEMS[advice.system].title)}), {same}.</p>"
        f"<ol>{steps}</ol><details><summary>The rule</summary><pre>{rule}</pre></details>"
        f"<p>As settings for <code>weft peer --config {SETTINGS}</code>:</p><pre>{settings}</pre>"
    )


def _calm(table: Table) -> str:
    summary = answers.calm_summary(table)
    rows = [
        [name, *(_number(summary[name].get(measure)) for measure in SHOWN)]
        for name in SYSTEMS
        if name in summary
    ]
    return _rows(_head(), rows)


def _of_source(table: Table, source: str) -> str:
    cells = {
        (cell["system"], cell["measure"]): cell
        for cell in table
        if cell["source"] == source and cell["fault"] == "calm"
    }

    def shown(name: str, measure: str) -> str:
        cell = cells.get((name, measure))
        return mean_of([cell] if cell else [])

    names = [name for name in SYSTEMS if (name, "delivery") in cells]
    return _rows(_head(), [[n, *(shown(n, each) for each in SHOWN)] for n in names])


def _head() -> list[str]:
    return ["system", *(HEADS.get(each, each) for each in SHOWN)]


def _faults(table: Table) -> str:
    found: dict[str, dict[str, list[Cell]]] = {}
    columns: dict[str, None] = {}
    for cell in table:
        if cell["fault"] != "calm" and cell["measure"] in ("delivery", "repair_s"):
            unit = "" if cell["measure"] == "delivery" else " repair s"
            name = f"{cell['fault']} {cell['level']}{unit}"
            columns[name] = None
            found.setdefault(cell["system"], {}).setdefault(name, []).append(cell)
    rows = [
        [name, *(mean_of(found[name].get(at, [])) for at in columns)]
        for name in SYSTEMS
        if name in found
    ]
    if not rows:
        return "<p>No fault was played.</p>"
    most = max(
        cell["seeds"] for cells in found.values() for some in cells.values() for cell in some
    )
    seeds = "one seed, so no intervals" if most == 1 else f"± 95 % over {most} seeds"
    return (
        f"<p class='soft'>Means over the sources; {seeds}.</p>{_rows(['system', *columns], rows)}"
    )


def mean_of(cells: Sequence[Cell]) -> str:
    """The mean over sources; with its interval, where each has one: sources vary on their own, so
    the squares of their halves add up."""
    if not cells:
        return ""
    halves = [
        (cell["high"] - cell["low"]) / 2
        for cell in cells
        if cell["low"] is not None and cell["high"] is not None
    ]
    half = hypot(*halves) / len(cells) if len(halves) == len(cells) else 0.0
    value = _number(sum(cell["value"] for cell in cells) / len(cells))
    return value + (f" ±{_number(half)}" if half > 0 else "")


def _rows(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    titles = "".join(f"<th>{escape(each)}" for each in head)
    body = "".join(
        f"<tr><td>{escape(row[0])}" + "".join(f"<td class='n'>{escape(c)}" for c in row[1:])
        for row in rows
    )
    return f"<div class='wide'><table><tr>{titles}</tr>{body}</table></div>"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
