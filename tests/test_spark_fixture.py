"""A session that a test broke does not break the tests after it."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_fixture import SharedSpark


def works(session: SparkSession) -> bool:
    [row] = session.range(10).select(F.sum("id").alias("total")).collect()
    return bool(row.total == 45)


def test_a_session_that_works_is_kept(shared_spark: SharedSpark) -> None:
    first = shared_spark.session()
    assert works(first)
    assert shared_spark.session() is first


def test_a_killed_java_process_is_followed_by_another(shared_spark: SharedSpark) -> None:
    first = shared_spark.session()
    process = first.sparkContext._gateway.proc
    process.kill()
    process.wait()
    second = shared_spark.session()
    assert second.sparkContext._gateway.proc.pid != process.pid
    assert works(second)


def test_an_interrupted_call_is_followed_by_a_new_session(shared_spark: SharedSpark) -> None:
    """A time limit that ends a test in the middle of a call leaves an answer that was not read."""
    first = shared_spark.session()
    process = first.sparkContext._gateway.proc
    connection = first.sparkContext._gateway._gateway_client.get_thread_connection()
    connection.socket.sendall(b"c\nz:java.lang.System\nnanoTime\ne\n")
    second = shared_spark.session()
    assert process.poll() is not None  # the broken one was ended
    assert works(second)


def test_a_stopped_session_is_followed_by_a_new_one(shared_spark: SharedSpark) -> None:
    shared_spark.session().stop()
    assert works(shared_spark.session())
