"""Marked processes are found and ended with all their children, and nobody else is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from weft.pipeline import cluster, resources

PATIENCE_SECONDS = 300.0

# The programs sleep to be there until they are ended; nobody waits for that.
IDLE = "import time; print('there', flush=True); time.sleep(600)"
# Ignores politeness, and has a child of another session that outlives it.
STUBBORN = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", {IDLE!r}], start_new_session=True)
time.sleep(600)
"""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, program: str, mark: str) -> subprocess.Popen[str]:
    process = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, resources.MARK_VARIABLE: mark},
            text=True,
            stdout=subprocess.PIPE,
        )
    )
    stack.callback(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


def test_all_that_carry_the_mark_are_ended_and_no_others(stack: ExitStack) -> None:
    ours = start(stack, STUBBORN, "ours-1")
    other = start(stack, IDLE, "ours-12")
    found = resources.carriers("ours-1")
    assert ours.pid in found and len(found) == 2
    assert resources.end_carriers("ours-1", polite_seconds=0.5) == 2
    assert resources.wait_until(lambda: ours.poll() is not None, PATIENCE_SECONDS)
    assert resources.carriers("ours-1") == []
    assert other.poll() is None
    assert resources.carriers("ours-12") == [other.pid]


def test_there_is_nothing_to_end_where_nothing_runs() -> None:
    assert resources.end_carriers("nobody", polite_seconds=0.0) == 0


@pytest.mark.parametrize("memory", ["", "1", "1t", "0g", "g", "-1g", "511m", "1.5g"])
def test_memory_that_spark_would_not_take_is_refused(memory: str) -> None:
    with pytest.raises(cluster.ClusterError, match="memory"):
        cluster.Size(memory=memory)
