"""How a command ends in order: Ctrl-C and SIGTERM ask once for a clean end.

`Stop` is for what runs on an event loop. `stoppable` is for long work with Spark. That work runs in
a thread of its own: an interruption in the midst of a call to Spark would leave the connection to
it in disorder. It is ended by cancelling what Spark does for it, again and again until it is over,
so it cleans up after itself as after any other failure.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, TypeVar

from weft.cli.problem import INTERRUPTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Stop:
    """Set once something asks for the end; `code` is then the exit code."""

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
        """Wait while the tasks run, and end them then. One that ends by itself is the end of all,
        and its error is raised: for example when nobody reads our output any more."""
        waiting = asyncio.create_task(self.wait())
        await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in [waiting, *tasks]:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """The first signal asks for a clean end; one more and Python ends as it always does."""
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


# --- work with Spark ------------------------------------------------------------------------------


_CANCEL_SECONDS = 0.3  # guess: how often to cancel what was begun meanwhile

Result = TypeVar("Result")


class Stopped(Exception):
    """The work is to end; raised where it asks."""


class Stopping:
    """What the work asks now and then."""

    def __init__(self) -> None:
        self._wanted = Event()

    def want(self) -> None:
        """Ask the work to end."""
        self._wanted.set()

    def check(self) -> None:
        """Raise `Stopped` if the work is to end."""
        if self._wanted.is_set():
            raise Stopped


def stoppable(spark: SparkSession, work: Callable[[Stopping], Result]) -> Result:
    """Do the work. On Ctrl-C it is ended first; a result that came in time is still returned."""
    stopping = Stopping()
    with ThreadPoolExecutor(1, "weft-work") as thread:
        future: Future[Result] = thread.submit(work, stopping)
        try:
            return future.result()
        except KeyboardInterrupt:
            stopping.want()
            while not future.done():
                spark.sparkContext.cancelAllJobs()
                wait([future], _CANCEL_SECONDS)
            if future.exception() is None:
                return future.result()
            raise KeyboardInterrupt from None
