"""Pictures of what memberships are like: distributions with their fitted power laws, heat maps of
correlation. The profile of a lake and the experiments on workloads draw them alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import zeta

from weft.lab.figures import BLACK, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage
    from pyspark.sql import Row

HEAT_TOPICS = 150
"""guess: as many rows and columns as a small picture can show"""

_CURVE_POINTS = 60


def draw_distribution(
    panel: Axes,
    sizes: Sequence[int],
    counts: Sequence[int],
    fit: Row | None,
    number: int,
    label: str,
) -> None:
    """The share of topics (or nodes) with at least so many, log–log, with the fitted law dashed.

    Shares of *at least* x are drawn, because counts of exactly x are mostly ones and noise in the
    tail; a power law p(x) ~ x^−α is a line of slope 1 − α.
    """
    order = np.argsort(sizes)
    values = np.asarray(sizes)[order]
    share = np.cumsum(np.asarray(counts)[order][::-1])[::-1] / np.sum(counts)
    if fit is not None:
        label = f"{label}, α = {fit.exponent:.2f}"
        x = np.geomspace(fit.least, values[-1], _CURVE_POINTS)
        law = zeta(fit.exponent, x) / zeta(fit.exponent, fit.least) * fit.tail / fit.total
        panel.plot(x, law, color=BLACK, ls="--", lw=1, zorder=5)
    panel.loglog(values, share, label=label, ls="none", ms=3, **look(number))


def draw_heat(panel: Axes, pairs: Iterable[tuple[int, int, float]], title: str) -> AxesImage:
    """Correlations of the most popular topics, white for none, black for strong."""
    kept = [each for each in pairs if each[0] < HEAT_TOPICS and each[1] < HEAT_TOPICS]
    side = max((other for _, other, _ in kept), default=0) + 1
    matrix = np.eye(side)
    for one, other, value in kept:
        matrix[one, other] = matrix[other, one] = value
    image = panel.imshow(matrix, cmap="Greys", vmin=0.0, vmax=0.5, interpolation="nearest")
    panel.set_title(title)
    panel.grid(False)
    panel.set_xlabel("topic, by popularity")
    return image
