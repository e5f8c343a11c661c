"""One Spark session for all tests that need one (`spark` in conftest.py).

A test that runs into its time limit in the middle of a call leaves a session behind that gives
wrong answers: the next call reads the answer to the interrupted one. So before each use the session
is asked to echo a word. One that does not, or whose Java process is gone, is ended, and the next
test gets a new one.

Its workers also find the helper modules of the tests' folders.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from weft.pipeline.session import SessionSettings, opened

HELPERS = Path(__file__).parent
SETTINGS = SessionSettings("local[2]", "weft tests", driver_memory="1g", small_tables=True)
ANSWER_SECONDS = 120.0  # for a call that takes milliseconds on an idle machine


class SharedSpark:
    """At most one session at a time."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._session: SparkSession | None = None
        self._java = 0

    def session(self) -> SparkSession:
        """The session, or a new one where there is none that works."""
        if self._session is not None and not echoes(self._session, self._java):
            kill(self._java)
            self.close()
        if self._session is None:
            self._session = self._open.enter_context(opened(SETTINGS))
            self._java = java_of(self._session)
        return self._session

    def close(self) -> None:
        self._session = None
        self._open.close()


def java_of(session: SparkSession) -> int:
    """The number of the Java process behind a session."""
    [row] = session.sql("SELECT java_method('java.lang.ProcessHandle', 'current')").collect()
    return int(row[0])


def has_ended(java: int) -> bool:
    """Whether a process that this one started is gone. Its exit code stays for Spark to read."""
    try:
        return os.waitid(os.P_PID, java, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:  # Spark has read it
        return True


def kill(java: int) -> None:
    if not has_ended(java):
        os.kill(java, signal.SIGKILL)
        os.waitid(os.P_PID, java, os.WEXITED | os.WNOWAIT)


def echoes(session: SparkSession, java: int) -> bool:
    """Whether the session answers, and answers what it was asked.

    A call that a time limit interrupted may still be at work in the Java process, and this thread's
    calls wait for its end. A process that does not answer in time is killed, which ends the wait.
    """
    if has_ended(java):
        return False
    word = secrets.token_hex(8)
    watch = threading.Timer(ANSWER_SECONDS, kill, [java])
    watch.start()
    try:
        session.sparkContext.setLocalProperty("weft.tests.word", word)
        return session.sparkContext.getLocalProperty("weft.tests.word") == word
    except Exception:  # whatever py4j makes of an answer to another question
        return False
    finally:
        watch.cancel()


@contextmanager
def shared() -> Iterator[SharedSpark]:
    spark = SharedSpark()
    with pytest.MonkeyPatch.context() as patch:
        known = os.environ.get("PYTHONPATH", "")
        patch.setenv("PYTHONPATH", os.pathsep.join(part for part in (str(HELPERS), known) if part))
        try:
            yield spark
        finally:
            spark.close()
