"""Real weft processes for tests: started, listened to, signalled, and always ended."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import weft

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(Path(weft.__file__).parents[1]),
    "PYTHONUNBUFFERED": "1",
}
PATIENCE_SECONDS = 600.0
"""How long a test waits for what must come, on a machine ten times slower than two idle cores;
nothing waits so long when all is well."""


def now_ns() -> int:
    """From when on processes play what they are told to."""
    return time.monotonic_ns()


def children(pid: int) -> list[int]:
    """The processes that a process has started, and that are there."""
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> str:
    """What a process was started as; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


async def seconds_until(look: Callable[[], Awaitable[bool]]) -> float:
    """Look twice a second, until all is well or patience ends; returns how long that took."""
    begun = time.monotonic()
    while True:
        done, seconds = await look(), time.monotonic() - begun
        if done or seconds > PATIENCE_SECONDS:
            return seconds
        await asyncio.sleep(0.5)


class Process:
    """One weft command, in a process group of its own, as a shell would start it."""

    def __init__(
        self, *arguments: str, by: Sequence[str] = (), stdin: int = subprocess.DEVNULL
    ) -> None:
        """`by`: a command that starts it, such as one that puts it into a network of its own;
        `stdin`: its input, as `subprocess.Popen` takes it."""
        self.process = subprocess.Popen(
            [*by, sys.executable, "-m", "weft.cli.main", *arguments],
            env=ENVIRONMENT,
            text=True,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.said: list[str] = []  # on stdout, lines that were read
        self.complained: list[str] = []  # on stderr
        self._out = self._follow(self.process.stdout, self.said)
        self._err = self._follow(self.process.stderr, self.complained)

    def _follow(self, stream: IO[str] | None, seen: list[str]) -> queue.Queue[str | None]:
        assert stream is not None
        lines: queue.Queue[str | None] = queue.Queue()

        def read() -> None:
            with stream:
                for line in stream:
                    seen.append(line.rstrip("\n"))
                    lines.put(line.rstrip("\n"))
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        return lines

    def line(self) -> str:
        """The next line on stdout."""
        return self._next(self._out, lambda line: True)

    def until(self, text: str) -> str:
        """Read stdout up to a line that contains `text`."""
        return self._next(self._out, lambda line: text in line)

    def until_error(self, text: str) -> str:
        """Read stderr up to a line that contains `text`."""
        return self._next(self._err, lambda line: text in line)

    def _next(self, lines: queue.Queue[str | None], wanted: Callable[[str], bool]) -> str:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"nothing came in time; {self.story()}") from None
            if line is None:
                raise AssertionError(f"the process ended; {self.story()}")
            if wanted(line):
                return line

    def story(self) -> str:
        return f"said {self.said[-20:]}, complained {self.complained[-20:]}"

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def send_group(self, number: signal.Signals) -> None:
        """As a terminal does on Ctrl-C."""
        os.killpg(self.process.pid, number)

    def end(self) -> int:
        """Wait for the end; returns the exit code."""
        return self.process.wait(PATIENCE_SECONDS)

    def group_is_gone(self) -> bool:
        """Whether no process of the group is left."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return True
        return False


@contextmanager
def started(*arguments: str, by: Sequence[str] = ()) -> Iterator[Process]:
    """A command that is killed with all its children at the end of the block."""
    process = Process(*arguments, by=by)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.process.pid, signal.SIGKILL)
        process.process.wait()


class Peers:
    """`weft peer` processes that know each other, each with a home of its own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.addresses: list[str] = []
        self.processes: list[Process] = []

    def home(self, index: int) -> str:
        return str(self._folder / f"peer{index}")

    def start(self, *arguments: str) -> Process:
        """One more peer, which joins through the first."""
        join = ["--join", self.addresses[0]] if self.addresses else []
        process = self._stack.enter_context(
            started("peer", "--home", self.home(len(self.processes)), *join, *FAST, *arguments)
        )
        self.processes.append(process)
        self.addresses.append(process.line())
        return process


FAST = ("--set", "protocol.cyclon.cycle_ms=500")
"""Shorter cycles, so that tests need not wait for what takes some of them."""


def run(
    *arguments: str, stdin: str | None = None, by: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """One command from start to end."""
    return subprocess.run(
        [*by, sys.executable, "-m", "weft.cli.main", *arguments],
        env=ENVIRONMENT,
        text=True,
        input=stdin if stdin is not None else "",
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
