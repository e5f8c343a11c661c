"""What a process with one peer takes, and what it costs to ask one how it is.

Memory is the proportional set size of a program that opens one peer and subscribes it to a topic,
all settings as they come, and beside it that of Python with what weft stands on. Pages that other
processes share count in part, so other programs of the same environment make it less. CPU is the
user and system time of `./weft status` on a running `./weft peer`, the least of some turns.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

from benchmarks.peer.machine import proportional_set_kb, say
from benchmarks.peer.worker import ROOT, WorkerFailed, surroundings

TURNS = 9
START_S = 60.0
ONE_PEER = """
import asyncio, weft

async def main():
    async with weft.Peer.open(listen="127.0.0.1:0") as peer:
        await peer.subscribe("/bench")
        await asyncio.sleep(1)
        print("there", flush=True)
        await asyncio.to_thread(input)

asyncio.run(main())
"""
LIBRARIES = """
import asyncio, libipld, msgspec, nacl.bindings
from cryptography import x509
from OpenSSL import SSL

SSL.Context(SSL.TLS_METHOD)
print("there", flush=True)
input()
"""


def as_users_have_it() -> dict[str, str]:
    """With compiled modules, which take less memory than compiling."""
    kept = surroundings()
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept


def memory_mb(program: str) -> float:
    """Of a program that says when it is there, and ends at the end of its input; the second run
    counts, which finds all modules compiled."""
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", program],
            env=as_users_have_it(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            if not process.stdout.readline():
                raise WorkerFailed("the program with one peer ended")
            found = proportional_set_kb(process.pid) / 1024
            process.stdin.write("\n")
            process.stdin.close()
    return found


def cpu_ms(words: list[str]) -> float:
    """Of a command, with all that it starts and waits for."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(words, env=as_users_have_it(), stdout=subprocess.DEVNULL, check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1_000


def status_cpu_ms(turns: int) -> list[float]:
    weft = str(ROOT / "weft")
    with tempfile.TemporaryDirectory(prefix="weft-start-") as home:
        peer = subprocess.Popen(
            [weft, "peer", "--home", home, "--listen", "127.0.0.1:0"],
            env=as_users_have_it(),
            stdout=subprocess.DEVNULL,
        )
        try:
            end_s = time.monotonic() + START_S
            while not (Path(home) / "control.sock").exists():
                if peer.poll() is not None or time.monotonic() > end_s:
                    raise WorkerFailed("weft peer did not start")
                time.sleep(0.1)
            return [cpu_ms([weft, "status", "--home", home]) for _ in range(turns)]
        finally:
            peer.terminate()
            peer.wait()


def measure(quick: bool) -> dict[str, Any]:
    ours, theirs = memory_mb(ONE_PEER), memory_mb(LIBRARIES)
    say(f"start: a process with one peer takes {ours:.1f} MB, {theirs:.1f} without weft")
    turns = status_cpu_ms(3 if quick else TURNS)
    say(f"start: weft status takes {min(turns):.0f} ms of CPU")
    return {
        "process_mb": ours,
        "status_cpu_ms": min(turns),
        "turns": turns,
        "reference": {"mb_of_python_and_libraries": theirs},
    }
