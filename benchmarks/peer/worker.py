"""Processes of a measurement: started by module name, spoken to in JSON lines, always ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.peer import machine

ROOT = Path(__file__).resolve().parents[2]


class WorkerFailed(RuntimeError):
    """A worker ended without the answer it owed; the text is what it said last."""


def surroundings() -> dict[str, str]:
    """The environment of a worker: it must find the benchmarks and weft."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def command(module: str, arguments: Sequence[str]) -> list[str]:
    """A module of this folder, or one of another folder by its full name."""
    name = module if "." in module else f"benchmarks.peer.{module}"
    return [sys.executable, "-m", name, *arguments]


def run(module: str, arguments: Sequence[str], timeout_s: float) -> dict[str, Any]:
    """Run a worker that prints one JSON object; its progress goes to our stderr."""
    try:
        done = subprocess.run(
            command(module, arguments),
            env=surroundings(),
            stdout=subprocess.PIPE,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as problem:
        raise WorkerFailed(f"{module} took longer than {timeout_s:.0f} s") from problem
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise WorkerFailed(f"{module} ended with status {done.returncode}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def measures(
    module: str,
    names: Sequence[str],
    quick: bool,
    timeout_s: float,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """Every measure in a fresh process, one after the other; a failure costs only its figures."""
    found: dict[str, Any] = {}
    for name in names:
        machine.say(f"{name}: starts")
        arguments = ["--measure-here", name, *(["--quick"] if quick else []), *options]
        try:
            found[name] = run(module, arguments, timeout_s)
        except WorkerFailed as problem:
            machine.say(f"{name}: {problem}")
            found[name] = {"error": str(problem)}
    return found


class Worker:
    """A process that answers each line with a line, until its standard input closes."""

    def __init__(self, module: str, arguments: Sequence[str] = (), by: Sequence[str] = ()) -> None:
        """`by`: a command that starts it, such as one that puts it into a network of its own."""
        self.module = module
        self.process = subprocess.Popen(
            [*by, *command(module, arguments)],
            env=surroundings(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def tell(self, request: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise WorkerFailed(f"{self.module} ended with status {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.tell(request)
        return self.hear()

    def kill(self) -> None:
        """End it as a crash would, with no time to say goodbye."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()
