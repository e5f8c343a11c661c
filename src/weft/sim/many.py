"""Many runs, spread over processes. A run needs nothing but its settings, so nothing is shared."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from multiprocessing import get_context

from weft.sim.scenario import Result, run
from weft.sim.settings import Settings


def run_many(settings: Sequence[Settings], processes: int = 2) -> Iterator[Result]:
    """Results in the order of the settings, each as soon as it and all before it are there.

    Whoever stops iterating (an interrupt, say) keeps what has come; the workers are ended.
    """
    if processes <= 1 or len(settings) <= 1:
        yield from map(run, settings)
        return
    with get_context("spawn").Pool(min(processes, len(settings)), _ignore_interrupts) as pool:
        yield from pool.imap(run, settings)
        pool.close()  # ending idle workers by force can hang (seen once, in the pool's own locks)
        pool.join()


def _ignore_interrupts() -> None:
    """Ctrl-C reaches every process of a terminal; the parent decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
