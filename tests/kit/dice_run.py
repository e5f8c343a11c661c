"""The program that a test interrupts: a run of the gated dice into the folder it is given."""

from __future__ import annotations

import sys
from pathlib import Path

import dice
from weft.lab import run as lab
from weft.pipeline.session import SessionSettings, opened

if __name__ == "__main__":
    out = Path(sys.argv[1])
    with opened(SessionSettings(master="local[2]", driver_memory="1g", small_tables=True)) as spark:
        lab.run(spark, [dice.entry(points=dice.gated(out))], "quick", out)
