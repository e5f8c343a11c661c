"""Spark for commands: which master, a session for the time of the work, and how the work ends.

Long work with Spark (`stoppable`) runs in a thread of its own: an interruption in the midst of a
call to Spark would leave the connection to it in disorder. It is ended by cancelling what Spark
does for it, again and again until it is over, so it cleans up after itself as after any other
failure.
"""

from __future__ import annotations

import argparse
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from errno import ENOSPC
from threading import Event
from typing import TYPE_CHECKING, TypeVar

from weft.cli.problem import Problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CANCEL_SECONDS = 0.3  # guess: how often to cancel what was begun meanwhile

Result = TypeVar("Result")


def master_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master", metavar="URL", help="a Spark master (default: local[*], this machine)"
    )
    parser.add_argument(
        "--driver-memory",
        type=memory,
        metavar="SIZE",
        help="of Spark's driver, such as 4g (default: by the machine's)",
    )


def memory(text: str) -> str:
    """A size as Spark writes it."""
    if not re.fullmatch(r"[1-9]\d{0,5}[mg]", text.lower()):
        raise argparse.ArgumentTypeError(f"a size such as 900m or 4g is needed, not {text!r}")
    return text.lower()


@contextmanager
def session(
    args: argparse.Namespace,
    command: str,
    *,
    small_tables: bool = False,
    options: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Spark on the master that a command was given, for the time of a `with` block."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from weft.pipeline.session import SessionSettings, opened, reason_of

    master = args.master or "local[*]"
    settings = SessionSettings(
        master,
        f"weft {command}",
        driver_memory=args.driver_memory or "",
        small_tables=small_tables,
        options=options or {},
    )
    try:
        with opened(settings) as spark:
            yield spark
    except (PySparkException, Py4JJavaError) as error:
        raise Problem(f"Spark failed: {reason_of(error)}") from error
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        raise Problem(f"{error.filename or 'the disk'}: no space left on device") from error


@contextmanager
def interrupted(end: Callable[[], None]) -> Iterator[Event]:
    """In place of an exception in the midst of a call to Spark, have the first Ctrl-C call `end`,
    for the time of a `with` block; the next one is as ever. The event says whether it came."""
    came = Event()

    def on_signal(number: int, place: object) -> None:
        signal.signal(signal.SIGINT, before)
        came.set()
        end()

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


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
