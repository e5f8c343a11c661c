"""A tiny experiment for tests of the lab: dice with some number of faces, thrown many times.

Workers import this module. `throw` notes every call in a file, if it is given one, and can be
told to wait for another file before it goes on: so a test can stop a run at a known place.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.lab import ground
from weft.lab.experiment import Entry, Params, Size
from weft.lab.figures import panels
from weft.pipeline.resources import wait_until
from weft.pipeline.schemas import AT_MOST, NUMBER, SMALL, columns
from weft.pipeline.transforms import largest, measured, over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame


def throw(params: Params, seed: int) -> dict[str, Any]:
    """Throw a die; the mean of all throws, one row per tenth of them."""
    if calls := params.get("calls"):
        with Path(calls).open("a") as log:
            log.write(f"{params['faces']} {seed}\n")
    if (gate := params.get("gate")) and not wait_until(Path(gate).exists, 600):
        raise TimeoutError(gate)
    dice = np.random.Generator(np.random.PCG64([seed, params["faces"]]))
    throws = dice.integers(1, params["faces"] + 1, size=(10, params["throws"] // 10))
    return {"tenth": np.arange(10, dtype=np.int32), "mean": throws.mean(axis=1)}


def throw_elsewhere(params: Params, seed: int) -> dict[str, Any]:
    """The same, while a process of its own works."""
    subprocess.run([sys.executable, "-S", "-c", "sum(range(20_000_000))"], check=True)
    return throw(params, seed)


def fail(params: Params, seed: int) -> dict[str, Any]:
    raise ValueError(f"no die has {params['faces']} faces")


def points(size: Size) -> list[Params]:
    throws = 1_000 if size == "quick" else 10_000
    return [{"faces": faces, "throws": throws} for faces in (2, 6, 20)]


def counted(log: Path) -> Callable[[Size], list[Params]]:
    """The usual points, each of which notes its calls in a file."""
    return lambda size: [{**point, "calls": str(log)} for point in points(size)]


def gated(folder: Path) -> Callable[[Size], list[Params]]:
    """The same, and all but the first wait for the file `gate`."""

    def gated_points(size: Size) -> list[Params]:
        first, *rest = counted(folder / "calls")(size)
        return [first, *({**point, "gate": str(folder / "gate")} for point in rest)]

    return gated_points


def measure(rows: DataFrame, size: Size) -> DataFrame:
    """The gap to the true mean, in units of the range."""
    means = rows.transform(over_seeds("faces", value="mean"))
    true_mean = (means["faces"] + 1) / 2
    gaps = means.select(
        *(
            ((means[name] - true_mean) / means["faces"]).alias(name)
            for name in ("value", "low", "high")
        ),
        "seeds",
    )
    return gaps.transform(largest("value")).transform(measured("gap", AT_MOST, 0.1))


def figure(rows: DataFrame) -> Figure:
    drawing, [axes] = panels()
    table = rows.transform(over_seeds("faces", value="mean")).orderBy("faces").collect()
    axes.plot([row.faces for row in table], [row.value for row in table], "o-", label="thrown")
    axes.legend()
    return drawing


def entry(**changes: Any) -> Entry:
    settings: dict[str, Any] = {
        "id": "dice",
        "title": "Dice are fair",
        "claim": "The mean of a die with n faces is (n + 1)/2.",
        "simulation": "dice:throw",
        "points": points,
        "seeds": {"quick": 2, "full": 4},
        "columns": columns(faces=SMALL, tenth=SMALL, mean=NUMBER),
        "measure": measure,
        "tolerances": {
            "gap": ground.derived(
                "2026-11-15", "A tenth of the range: twenty standard errors of 1000 throws."
            )
        },
        "figure": figure,
    }
    return Entry(**{**settings, **changes})


def loaded(thrown: Callable[..., Any]) -> Callable[..., Any]:
    """For a planted defect: dice that show their highest face."""

    def instead(params: Params, seed: int) -> dict[str, Any]:
        found = thrown(params, seed)
        return {**found, "mean": np.full_like(found["mean"], params["faces"])}

    return instead


def blank(thrown: Callable[..., Any]) -> Callable[..., Any]:
    """For a planted defect: dice without numbers, whose mean cannot be measured."""

    def instead(params: Params, seed: int) -> dict[str, Any]:
        found = thrown(params, seed)
        return {**found, "mean": np.full_like(found["mean"], np.nan)}

    return instead
