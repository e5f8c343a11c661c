"""`weft spark`, a Spark that stays; and Spark for the other commands: options, a session for the
time of the work, and how the work is interrupted.

Long work with Spark (`stoppable`) runs in a thread of its own: an interruption in the midst of a
call to Spark would leave the connection to it in disorder. On Ctrl-C the jobs of the work are
cancelled, again and again until the work has ended: so it cleans up as after any other failure.
"""

from __future__ import annotations

import argparse
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from errno import ENOSPC
from threading import Event
from typing import TYPE_CHECKING, TypeVar

from weft.cli.output import say
from weft.cli.parser import whole_option
from weft.cli.problem import USAGE, Problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HELP = "Keep a Spark running, so that commands start faster"
DETAILS = """
up      start a Spark that stays: every command that needs Spark uses it and starts at once
status  show whether it runs (exit code 1 if not)
down    end it, with all its processes

Commands with --master or --driver-memory do not use it, nor do 'trace measure --follow' and
commands of another checkout. It is a Spark Connect server that listens on loopback and takes only
this user's requests: its token is in its folder (WEFT_SPARK, else ~/.weft/spark).
"""
EXAMPLES = """
weft spark up
weft data ingest subs.csv --out lake
weft sql lake "select count(*) from memberships"
weft spark down
"""
_CANCEL_SECONDS = 0.3  # guess: how often to cancel what was begun meanwhile

Result = TypeVar("Result")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("up", "status", "down"), help="what to do")
    whole_option(parser, "--cores", 1, 1024, "with up: tasks at once (as many as there are cores)")
    parser.add_argument(
        "--memory",
        type=memory,
        metavar="SIZE",
        help="with up: memory of its Java process, such as 4g (a share of the machine's)",
    )


def run(args: argparse.Namespace) -> int:
    from weft.pipeline.standby import default_folder, described, down, up

    folder = default_folder()
    if args.action == "up":
        say("starting Spark")
        made = up(folder, args.memory or "", args.cores or 0)
        print(made.address)
        say("commands use it from now on; 'weft spark down' ends it")
    elif args.action == "down":
        ended = down(folder)
        say(f"ended {ended} processes" if ended else "nothing ran any more; cleaned up")
    else:
        known = described(folder)
        if known is None:
            raise Problem("no Spark is running; 'weft spark up' starts one")
        if not known.answers():
            raise Problem(f"{known.address} does not answer; 'weft spark down' cleans up")
        print(f"address    {known.address}")
        print(f"memory     {known.memory}")
        print(f"processes  {len(known.processes())}")
        print(f"code       {known.source}")
    return 0


def master_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master",
        metavar="URL",
        help="a Spark master, or sc://HOST:PORT (default: that of 'weft spark up', else local[*])",
    )
    parser.add_argument(
        "--driver-memory",
        type=memory,
        metavar="SIZE",
        help="memory of Spark's driver, such as 4g (default: a share of the machine's)",
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
    own: bool = False,
) -> Iterator[SparkSession]:
    """Spark on the master that a command was given, or else the one that stays, for the time of a
    `with` block. `own` is for work that a Spark Connect server cannot do."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from weft.pipeline.session import CONNECT, SessionSettings, opened, reason_of
    from weft.pipeline.standby import found

    if own and (args.master or "").startswith(CONNECT):
        raise Problem(
            f"weft {command} cannot use a Spark Connect server such as {args.master}", USAGE
        )
    standby = None if own or args.driver_memory else found(args.master)
    settings = SessionSettings(
        standby.address if standby else args.master or "local[*]",
        f"weft {command}",
        driver_memory=args.driver_memory or "",
        small_tables=small_tables,
        options=options or {},
        token=standby.token if standby else "",
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
    """For the time of a `with` block, the first Ctrl-C calls `end` in place of raising an exception
    in the midst of a call to Spark; the second one raises. The event says whether one came."""
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


@contextmanager
def terminable() -> Iterator[None]:
    """For the time of a `with` block SIGTERM ends the work as Ctrl-C does, so that it cleans up.
    Further ones are ignored: `timeout` sends one to the process and one to its group."""

    def on_signal(number: int, place: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Stopped(Exception):
    """Raised in the work by `Stopping.check`, if it is to end."""


class Stopping:
    """Tells the work whether it is to end, when it asks."""

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
    """Do the work. After Ctrl-C this returns or raises only once the work has ended; a result that
    it still had is returned."""
    from py4j.protocol import Py4JError

    from weft.pipeline.session import cancel

    stopping = Stopping()
    with ThreadPoolExecutor(1, "weft-work") as thread:
        future: Future[Result] = thread.submit(work, stopping)
        try:
            return future.result()
        except KeyboardInterrupt:
            stopping.want()
            while not future.done():
                with suppress(ConnectionError, Py4JError):  # Spark may have been ended as well
                    cancel(spark)
                wait([future], _CANCEL_SECONDS)
            if future.exception() is None:
                return future.result()
            raise KeyboardInterrupt from None
