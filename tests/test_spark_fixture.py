"""A session that a test broke does not break the tests after it."""

from __future__ import annotations

import socket
import threading

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_fixture import SharedSpark, has_ended, java_of, kill


def works(session: SparkSession) -> bool:
    [row] = session.range(10).select(F.sum("id").alias("total")).collect()
    return bool(row.total == 45)


def test_a_session_that_works_is_kept(shared_spark: SharedSpark) -> None:
    first = shared_spark.session()
    assert works(first)
    assert shared_spark.session() is first


def test_a_killed_java_process_is_followed_by_another(shared_spark: SharedSpark) -> None:
    java = java_of(shared_spark.session())
    kill(java)
    second = shared_spark.session()
    assert java_of(second) != java
    assert works(second)


class Interrupted(BaseException):
    """As pytest's own at a time limit: no `except Exception` catches it."""


def test_an_interrupted_call_is_followed_by_a_new_session(
    shared_spark: SharedSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time limit that ends a test in the middle of a call leaves an answer that was not read."""
    first = shared_spark.session()
    java = java_of(first)
    here, read = threading.current_thread(), socket.SocketIO.readinto

    def interrupted(stream: socket.SocketIO, buffer: bytearray) -> int | None:
        if threading.current_thread() is here:
            raise Interrupted
        return read(stream, buffer)

    # The connection lives as long as the traceback, which pytest keeps of a test that failed.
    with monkeypatch.context() as patch, pytest.raises(Interrupted) as kept:
        patch.setattr(socket.SocketIO, "readinto", interrupted)
        first.sparkContext.getLocalProperty("the question was sent")
    second = shared_spark.session()
    assert kept.tb is not None and has_ended(java)  # the broken one
    assert works(second)


def test_a_stopped_session_is_followed_by_a_new_one(shared_spark: SharedSpark) -> None:
    shared_spark.session().stop()
    assert works(shared_spark.session())
