"""What the pipeline's benchmark says of the processes that it watches."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.pipeline.processes import POLL_S, Watch, timed

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n{after}"
ORPHAN = (
    "import subprocess, sys, signal\n"
    "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"  # as nobody waits for Spark's workers
    "subprocess.Popen([sys.executable, '-c', {burn!r}]).wait()\n"
)


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_ended_processes_used_counts() -> None:
    # It cannot know when it was looked at, so it stays for some more looks after its work.
    burn = BURN.format(seconds=0.5, after=f"time.sleep({4 * POLL_S})")
    _, cost = timed(lambda: run(ORPHAN.format(burn=burn)))
    assert cost["cpu_seconds"] >= 0.5
    assert cost["peak_gb"] > 0.001
    assert cost["seconds"] >= 0.5


def test_the_sum_never_falls() -> None:
    with Watch() as watch:
        seen = []
        for _ in range(3):
            run(BURN.format(seconds=0.05, after=""))
            seen.append(watch.cpu_seconds)
    assert seen == sorted(seen) and seen[0] >= 0.0


def test_others_do_not_count() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            with Watch(without=other.pid) as watch:
                deadline = time.monotonic() + 0.3
                while time.monotonic() < deadline:
                    assert watch.cpu_seconds == 0.0
        finally:
            other.kill()
