"""The bar over the steps of a job."""

from __future__ import annotations

import io
from threading import Event

from pyspark.sql import SparkSession

from weft.lab.progress import Steps


class Terminal(io.StringIO):
    """A stream that looks like a terminal and tells when a text was written to it."""

    def __init__(self, awaited: str) -> None:
        super().__init__()
        self.seen = Event()
        self._awaited = awaited

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._awaited in text:
            self.seen.set()
        return super().write(text)


def test_the_bar_names_the_step(spark: SparkSession) -> None:
    stream = Terminal("1/3 steps: reading")
    with Steps(spark, (1.0, 2.0, 1.0), stream) as steps:
        steps.begin(1, "reading")
        assert stream.seen.wait(600)
    assert stream.getvalue().endswith("\r\x1b[K")  # taken away at the end
