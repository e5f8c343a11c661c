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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from weft.pipeline.session import Settings, opened

HELPERS = Path(__file__).parent
SETTINGS = Settings("local[2]", "weft tests", driver_memory="1g", small_tables=True)
ANSWER_SECONDS = 120.0  # for a call that takes milliseconds on an idle machine


class SharedSpark:
    """At most one session at a time."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._session: SparkSession | None = None

    def session(self) -> SparkSession:
        """The session, or a new one where there is none that works."""
        if self._session is not None and not echoes(self._session):
            self._session.sparkContext._gateway.proc.kill()
            self._session.sparkContext._gateway.proc.wait()
            self.close()
        if self._session is None:
            self._session = self._open.enter_context(opened(SETTINGS))
        return self._session

    def close(self) -> None:
        self._session = None
        self._open.close()


def echoes(session: SparkSession) -> bool:
    """Whether the session answers, and answers what it was asked."""
    gateway = session.sparkContext._gateway
    if gateway.proc.poll() is not None:
        return False
    word = secrets.token_hex(8)
    try:
        with limited(gateway):
            session.sparkContext.setLocalProperty("weft.tests.word", word)
            return session.sparkContext.getLocalProperty("weft.tests.word") == word
    except Exception:  # whatever py4j makes of an answer to another question
        return False


@contextmanager
def limited(gateway: object) -> Iterator[None]:
    """Bounds how long this thread waits for the Java process: a call that a time limit interrupted
    may still be at work there, and this thread's calls wait for its end."""
    connection = gateway._gateway_client.get_thread_connection()  # type: ignore[attr-defined]
    if connection is None or connection.socket is None:
        yield
        return
    connection.socket.settimeout(ANSWER_SECONDS)
    try:
        yield
    finally:
        if connection.socket is not None:
            connection.socket.settimeout(None)


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
