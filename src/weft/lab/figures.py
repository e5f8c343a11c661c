"""How pictures look: one style for all, legible small and in print, the same bytes every time.

Simulation is drawn with solid lines or dots, a formula with dashes, in the same colour where they
belong together. Colours can be told apart by colour-blind readers (Okabe and Ito's palette),
and each series has its own marker.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#9a9a9a"
BLACK = "#1a1a1a"
PANEL_INCHES = (5.0, 3.6)

Figure: TypeAlias = "matplotlib.figure.Figure"
Axes: TypeAlias = "matplotlib.axes.Axes"
"""Named here, so that a worker that imports an experiment needs no matplotlib."""
Table: TypeAlias = Any
"""A table of pandas', which comes without types."""


class Look(TypedDict):
    """How a series is told from others."""

    color: str
    marker: str


_STYLE = {
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "svg.hashsalt": "weft",
    "svg.fonttype": "path",
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the house style."""
    from matplotlib import style  # noqa: PLC0415  (only where something is drawn)

    with style.context(_STYLE):
        yield


def panels(columns: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels, left to right, then down."""
    from matplotlib import figure as drawn  # noqa: PLC0415

    width, height = PANEL_INCHES
    figure = drawn.Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def table(frame: DataFrame) -> Table:
    """A small table of Spark's as one of pandas', for drawing."""
    return frame.toPandas()


def means(rows: DataFrame, by: Sequence[str], *names: str, **others: Column) -> Table:
    """The means of these columns (and of others that are computed) in each group, in the groups'
    order, for drawing."""
    wanted = {name: F.col(name).cast("double") for name in names} | others
    found = rows.groupBy(*by).agg(*(F.avg(column).alias(name) for name, column in wanted.items()))
    return table(found.orderBy(*by))


def plain_log(panel: Axes, ticks: Sequence[float]) -> None:
    """A logarithmic x axis over a short range, with these ticks as plain numbers."""
    panel.set_xscale("log")
    panel.set_xticks(list(ticks), [f"{tick:g}" for tick in ticks])
    panel.minorticks_off()


def colour(number: int) -> str:
    """The colour of a series."""
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    """The marker of a series."""
    return MARKERS[number % len(MARKERS)]


def look(number: int) -> Look:
    """The colour and the marker of a series."""
    return {"color": colour(number), "marker": marker(number)}


def save(figure: Figure, folder: Path) -> list[Path]:
    """Write `figure.png` and `figure.svg`, each whole or not at all."""
    written = []
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        target = folder / f"figure.{kind}"
        aside = folder / f".figure.{os.getpid()}.{kind}"
        figure.savefig(aside, metadata=metadata)
        os.replace(aside, target)
        written.append(target)
    return written
