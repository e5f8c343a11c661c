"""A bar over the steps of one Spark job: what is being done, how far it is, how long it will take.

Within a step, Spark's count of finished tasks tells how far it is; a thread asks for it now and
then, because the driver itself waits for the step.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from weft.lab.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ASK_SECONDS = 0.5  # guess: a bar that moves, and no load


class Steps:
    """Use as a context; call `begin` at the beginning of each step."""

    def __init__(
        self, spark: SparkSession, weights: Sequence[float], stream: TextIO | None = None
    ) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._weights = list(weights)
        self._progress = Progress(len(self._weights), sum(self._weights), stream)
        self._at = (0, "")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def begin(self, step: int, text: str) -> None:
        """The steps before this one are done; `text` says what it does."""
        self._at = (step, text)

    def __enter__(self) -> Steps:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._progress.clear()

    def _tick(self) -> None:
        while not self._over.wait(_ASK_SECONDS):
            step, text = self._at
            done = sum(self._weights[:step])
            self._progress.show(step, done + self._weights[step] * self._share(), f"steps: {text}")

    def _share(self) -> float:
        """How much of what Spark has under way is finished."""
        stages = [self._tracker.getStageInfo(each) for each in self._tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        total = sum(stage.numTasks for stage in known)
        return sum(stage.numCompletedTasks for stage in known) / total if total else 0.0
