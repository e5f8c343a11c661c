"""How a command on an event loop ends in order: Ctrl-C and SIGTERM ask once for a clean end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from weft.cli.problem import INTERRUPTED


class Stop:
    """Set once a signal or a task asks for the end; `code` is then the exit code."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.code = 0

    def __bool__(self) -> bool:
        return self._asked.is_set()

    def ask(self, code: int = 0) -> None:
        if not self._asked.is_set():
            self.code = code
            self._asked.set()

    async def wait(self) -> None:
        await self._asked.wait()

    async def wait_beside(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait until the end is asked for or one of the tasks ends, then cancel all of them. The
        error of a task is raised: for example, that nobody reads our output any more."""
        waiting = asyncio.create_task(self.wait())
        await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in [waiting, *tasks]:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """The first signal asks for a clean end; a second one ends Python at once."""
    loop = asyncio.get_running_loop()
    stop = Stop()

    def release() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    def on_signal(code: int) -> None:
        release()
        stop.ask(code)

    loop.add_signal_handler(signal.SIGINT, on_signal, INTERRUPTED)
    loop.add_signal_handler(signal.SIGTERM, on_signal, 0)
    try:
        yield stop
    finally:
        release()
