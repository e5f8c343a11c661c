"""`weft lab new NAME`: an experiment from a template, which runs at once.

The template is a small experiment with every part: a network of peers in the simulator, one
parameter that varies, one number that is judged, one picture, one planted defect. Its numbers are
read from the runs' traces by the pipeline's transforms (`weft.lab.traced`), so that they mean what
they mean everywhere. Its parts have the names that `weft.lab.experiment` describes.
"""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

from weft.errors import WeftError
from weft.lab import experiments

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TEXT = '''"""NAME: what do events cost, and do they all arrive, where messages get lost?

Made by `weft lab new`; every part is yours to change. `weft lab run NAME` runs it, `--full` at its
full size, and `weft lab report out/lab` makes a page.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.lab import ground
from weft.lab.defect import Defect, not_repaired
from weft.lab.experiment import Columns, Entry, Params, Size, every
from weft.lab.figures import Figure, look, means, panels
from weft.lab.measures import at_least, reasons, smalls
from weft.lab.traced import PIECES, WindowWriter, overview, recorded
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers
from weft.protocol.config import Config
from weft.sim.builder import OneTopic
from weft.sim.network import Conditions

SEEDS = {"quick": 2, "full": 10}
EVENTS = 20
COLUMNS = joined(smalls("peers", "loss"), PIECES)
"""What a row says: the parameters of its point, and a piece of what the run's trace adds up to.
Numbers that no trace has are columns beside these (`weft.lab.measures.reals`)."""


def points(size: Size) -> list[Params]:
    """The parameters that are simulated."""
    return every({"peers": 20 if size == "quick" else 100}, loss=(0, 10, 20))


def run(params: Params, seed: int) -> Columns:
    """What the trace of one network adds up to. A pure function of point and seed."""
    _, found = recorded(partial(play, params, seed))
    return found


def play(params: Params, seed: int, writer: WindowWriter) -> None:
    """One network: all peers subscribe, then some publish, which is traced."""
    net = OneTopic(seed, Config(trace=True), Conditions(loss_percent=params["loss"]), writer=writer)
    peers = params["peers"]
    for number in range(peers):
        net.enter([net.dice.below("known", number, number)] if number else [], then_ms=50)
    net.subscribe(*range(peers))
    net.run_cycles(10)
    writer.begin()
    for number in range(EVENTS):
        net.publish(number % peers, payload=b"event %d" % number, every_ms=500)
    net.run_cycles(6)


TITLES = {"delivered": "share of the deliveries", "copies": "copies per delivery"}


def figures_of(rows: DataFrame) -> DataFrame:
    """One row for each run: what the pipeline's transforms make of its trace."""
    return overview(rows, "loss").select(
        *("loss", "seed"),
        (F.col("delivered") / F.col("expected")).alias("delivered"),
        F.col("copies_per_delivery").alias("copies"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    """One number per seed and group, and what is asked of it."""
    label = F.format_string("loss %d %%: ", "loss")
    bounds = at_least(1.0, "delivered")
    return figures_of(rows).transform(numbers(TITLES, bounds, by=("loss",), prefix=label))


def figure(rows: DataFrame) -> Figure:
    found = means(figures_of(rows), ["loss"], "delivered", "copies")
    drawing, axes = panels(columns=2)
    for panel, (name, title) in zip(axes, TITLES.items(), strict=True):
        panel.plot(found["loss"], found[name], **look(0))
        panel.set(xlabel="messages lost, %", ylabel=title)
    return drawing


DEFECTS = (Defect("a push in five is lost for good", not_repaired("Payload", one_in=5)),)
"""What `weft lab audit` plants, to see that the verdict can fail."""

ENTRY = Entry.of(
    __name__,
    id="NAME",
    title="Events over a lossy network",
    claim="Every event reaches every subscriber, also where a fifth of all messages is lost.",
    tolerances=reasons(
        TITLES,
        tuple(f"loss {loss} %: " for loss in (0, 10, 20)),
        delivered=ground.asked("DATE", "What is lost is repaired within six cycles."),
    ),
)
'''


class CannotMake(WeftError):
    """No experiment of this name can be made; the text says why."""


def make(name: str, chosen: date, folder: Path | None = None) -> Path:
    """Write an experiment of this name, whose bound was `chosen` that day; returns its file."""
    if not _NAME.fullmatch(name):
        raise CannotMake(f"{name!r}: a name has small letters and digits, with - between words")
    if name in experiments.names():
        raise CannotMake(f"there is an experiment {name!r} already; choose another name")
    target = (folder or Path(experiments.__path__[0])) / f"{name.replace('-', '_')}.py"
    if target.exists():
        raise CannotMake(f"{target} is there already; choose another name")
    text = _TEXT.replace("NAME", name).replace("DATE", chosen.isoformat())
    target.write_text(text, encoding="utf-8")
    return target
