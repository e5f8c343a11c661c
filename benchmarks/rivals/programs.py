"""The twelve programs of `docs/programs.md`, each beside its twins, and whether all print the same.

    ./weft bench rivals --only programs

Weft's run on two peers, NATS's with a server with JetStream, MQTT's with a broker. The broker stops
and starts again during the last program, which is about that. What each printed goes to standard
error.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.peer.machine import say
from benchmarks.peer.worker import ROOT
from benchmarks.rivals.environment import Missing, free_port, python_of, wait_for
from benchmarks.rivals.programs_worker import coroutine

import weft

PAGE = ROOT / "docs" / "programs.md"
WORKER = Path(__file__).with_name("programs_worker.py")
TWINS = ("nats", "mqtt")
TIMEOUT_S = 60
STOPS_S, STOPPED_S = 2.0, 1.0
"""How long after its start the last program's broker stops, and for how long."""
BY_NATURE = {("mqtt", 9)}
"""Programs that cannot print the same: an MQTT broker keeps the last message only."""


def programs(language: str) -> list[str]:
    """The bodies of the page's programs in one of its languages, or what they print (`text`)."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.S | re.M)


async def run_weft(folder: Path) -> list[str]:
    """What each of weft's programs prints."""
    printed = []
    async with (
        weft.Peer.open(store=folder / "peer.db") as peer,
        weft.Peer.open(store=folder / "other.db", join=peer.address) as other,
    ):
        await other.joined(TIMEOUT_S)
        for body in programs("python weft"):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                program = coroutine(body, "peer", "other", "weft")(peer, other, weft)
                await asyncio.wait_for(program, TIMEOUT_S)
            printed.append(out.getvalue())
    return printed


class Broker:
    """A server of NATS or MQTT, without TLS, on a port of its own."""

    def __init__(self, system: str, python: Path, folder: Path) -> None:
        self.port = free_port()
        self._log = folder / "broker.log"
        self._command = _command(system, python, folder, self.port)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("a") as opened:
            self._process = subprocess.Popen(self._command, stdout=opened, stderr=opened)
        wait_for(self.port, self._process, self._log)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait()

    def stop_for_a_while(self) -> None:
        time.sleep(STOPS_S)
        self.stop()
        time.sleep(STOPPED_S)
        self.start()


def _command(system: str, python: Path, folder: Path, port: int) -> list[str]:
    if system == "nats":
        server = shutil.which("nats-server") or str(python.with_name("nats-server"))
        return [server, "--addr=127.0.0.1", f"--port={port}", "-js", f"--store_dir={folder}"]
    settings = folder / "mosquitto.conf"
    settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    return ["mosquitto", "-c", str(settings)]


@contextlib.contextmanager
def running(broker: Broker) -> Iterator[None]:
    broker.start()
    try:
        yield
    finally:
        broker.stop()


def run_twins(system: str, folder: Path) -> list[str]:
    """What each of another system's programs prints, or why it failed."""
    python = python_of(system)
    broker = Broker(system, python, folder)
    bodies = programs(f"python {system}")
    printed = []
    with running(broker):
        for number, body in enumerate(bodies, 1):
            stopping = threading.Thread(target=broker.stop_for_a_while)
            if number == len(bodies):
                stopping.start()
            done = subprocess.run(
                [str(python), str(WORKER), system, str(broker.port)],
                input=body,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            said = done.stderr.strip().splitlines()[-1:] if done.returncode else []
            printed.append(done.stdout + "".join(said))
        stopping.join()
    return printed


def measure(quick: bool) -> dict[str, Any]:
    """There are only twelve, `quick` or not."""
    expected = programs("text")
    found: dict[str, list[str]] = {}
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="weft-programs-") as name:
        found["weft"] = asyncio.run(run_weft(Path(name)))
        for system in TWINS:
            folder = Path(name) / system
            folder.mkdir()
            try:
                found[system] = run_twins(system, folder)
            except Missing as problem:
                missing[system] = str(problem)
    differ = {
        system: [
            number
            for number, text in enumerate(expected, 1)
            if printed[number - 1] != text and (system, number) not in BY_NATURE
        ]
        for system, printed in found.items()
    }
    for number, text in enumerate(expected, 1):
        say(f"{number}: {text!r}; {', '.join(f'{s} {found[s][number - 1]!r}' for s in found)}")
    return {
        "programs_run": sum(map(len, found.values())),
        "programs_that_differ": sum(map(len, differ.values())),
        "differ": differ,
        "missing": missing,
        "printed": found,
    }
