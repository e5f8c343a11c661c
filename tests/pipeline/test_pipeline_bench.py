"""What the pipeline's benchmark says of the processes that it watches."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.pipeline.processes import Watch, children, timed

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n{after}"
ORPHAN = (
    "import subprocess, sys, signal\n"
    "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"  # as nobody waits for Spark's workers
    "subprocess.Popen([sys.executable, '-c', {burn!r}]).wait()\n"
)
USER_TIME = 11  # the place of a process's ticks among its fields


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_ended_processes_used_counts() -> None:
    # The process is looked at after its work, and only then ends. The kernel tells its time in
    # whole ticks of 10 ms, so it works for a little longer than is asked of it below.
    burn = BURN.format(seconds=0.6, after="print(flush=True)\nimport sys\nsys.stdin.read()")
    program = [sys.executable, "-c", ORPHAN.format(burn=burn)]
    with (
        Watch() as watch,
        subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent,
    ):
        assert parent.stdin is not None and parent.stdout is not None
        assert parent.stdout.readline() == b"\n"
        used = watch.cpu_seconds
        assert used >= 0.5
        parent.stdin.close()
        assert parent.wait() == 0
        assert watch.cpu_seconds >= used
    assert watch.peak_bytes > watch.driver_peak_bytes > 1_000_000


def test_what_this_process_uses_counts_as_well() -> None:
    with Watch() as watch:
        sum(range(1_000_000))
        assert watch.cpu_seconds > 0


def test_some_work_is_timed() -> None:
    result, cost = timed(lambda: run(BURN.format(seconds=0.05, after="")) or "done")
    assert result == "done"
    assert cost["seconds"] > 0 and cost["cpu_seconds"] >= 0 and cost["peak_gb"] >= 0


def test_the_sum_never_falls() -> None:
    with Watch() as watch:
        seen = []
        for _ in range(3):
            run(BURN.format(seconds=0.05, after=""))
            seen.append(watch.cpu_seconds)
    assert seen == sorted(seen) and seen[0] >= 0.0


def test_others_do_not_count() -> None:
    """A process that is left out counts in no sum; whatever else runs below this one, Spark of
    other tests perhaps, counts in both."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            with Watch() as everything, Watch(without=other.pid) as others:
                while int(children()[other.pid][USER_TIME]) < 100:
                    assert other.pid not in children(without=other.pid)
                assert everything.cpu_seconds - others.cpu_seconds > 0.5
        finally:
            other.kill()
