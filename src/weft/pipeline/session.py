"""The Spark session: started quietly, on a laptop by default, on any master by its address.

With a local master, Spark and its Python workers run on this machine and nothing is reached from
outside: the Java process binds to loopback, the workers run this same Python with this same
package on their path, and everything Spark says goes to a file in a temporary folder that ends
with the session. If Spark fails to start, the end of that file is in the error.

With any other master, the package is shipped to the workers, which unpack it in their folder and
find it there first, so that they run the code of the driver; what it needs (numpy, numba, pyarrow,
pandas, scipy) must be installed there, for the Python that `PYSPARK_PYTHON` names. A master on
loopback, such as the one of `weft cluster up`, is this machine again: its workers use this same
Python. Of the user's own cluster the secret is known as well (see `cluster`). A master that has no
room for the job is an error after a while, not a job that waits for ever.

A master `sc://HOST:PORT` is a Spark Connect server: a Spark that is there already, such as the one
of `weft spark up` (`standby`), in which each command has a session of its own. It has no
`sparkContext` on this side, so jobs come here for what would need one (`shared`, `parallelism`,
`cancel`). Its settings are its own but for those of SQL, and its Python must have this package:
nothing is shipped.

A task that fails on a cluster is tried again, up to four times in all (Spark's own number). No task
is started a second time because it is slow: long tasks are simulations, which take as long
anywhere. Both would be safe: a task that is run twice leaves one result in the tables.

Each task has one core, so the libraries that would start threads of their own are held to one.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import pickle
import re
import socket
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from weft.errors import WeftError
from weft.pipeline import cluster, resources
from weft.pipeline.java import ClassArchive, java_home
from weft.pipeline.resources import scratch

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession

ONE_THREAD = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SHIPPED = "weft-package"
"""The folder, in a worker's own, that the package is unpacked to. Not left zipped: the engine names
its compiled code after the content of its files."""

_KEPT = "What was finished is kept; the same command goes on from there"
_ENDED = f"Spark's Java process has ended before its time: was it killed, or out of memory? {_KEPT}"
_PATIENCE_SECONDS = 1.0
"""guess: a process that broke off its connections is gone by then."""
EXECUTORS_SECONDS = 90.0  # guess: a cluster that starts machines on demand needs a minute
_PREPARE_SECONDS = 300.0  # guess: Java writes its classes in 3 s, ten times that on a busy machine
MASTER_SECONDS = 10.0  # guess: a master across the world answers in one
_STANDALONE = "spark://"
CONNECT = "sc://"
_CONNECT_PORT = "15002"  # Spark's own
_CONNECT_TRIES = 5  # guess: some 17 s in all, as Spark spaces them; by default it tries for minutes
_CONNECT_VARIABLE = "SPARK_CONNECT_MODE_ENABLED"
_SESSION_VARIABLE = "SPARK_JOB_ARTIFACT_UUID"
"""What Spark names a session in the environment of the Python processes that work for it."""
_TOLD_PARALLELISM = "weft.parallelism"
_FULL = "No space left on device"
_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]+: ")
_SHOWN = 300
_LOOPBACK = re.compile(r"spark://(127\.\d+\.\d+\.\d+|localhost|\[::1\]):\d+")

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_WRITE_ARCHIVE = "-XX:ArchiveClassesAtExit"
_SMALL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SMALL_TABLES = {
    # Queries are over before an optimising compiler has paid off, Java's or Spark's own, and a heap
    # this small is collected soonest by one thread.
    _JAVA_OPTIONS: _SMALL_JAVA,
    "spark.executor.extraJavaOptions": _SMALL_JAVA,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}
"""measured: with these the lab's verdicts take a quarter of the CPU time."""


_LARGE_JAVA = "-XX:+UseParallelGC"
LARGE_TABLES = {
    # Java's own choice, G1, keeps pauses short, which nobody waits for here: it tracks every
    # reference that is written, and clears up on threads of its own beside the tasks.
    _JAVA_OPTIONS: _LARGE_JAVA,
    "spark.executor.extraJavaOptions": _LARGE_JAVA,
    # Counting by a key goes through a hash table of compiled code until that is full, and through
    # one three times slower beyond; Spark's own size is 2^16 keys for each task.
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "20",
}
"""measured: counting 2·10⁷ memberships by 10⁶ topics takes half the CPU time, 8 MB more a task; an
ingest of 10⁶ rows on a warm session 5.8 s with this collector, 7.9 with G1."""


_SQL = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # not INT96, as by default
    # Times in nanoseconds, as pandas writes them, are refused otherwise; so they are numbers.
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.timeType.enabled": "true",  # else a table with hours in any column is refused
    # measured: one task looks at 10⁴ named files in 2.5 s; a task for each takes 37.5.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}
"""What every session has, on whatever Spark."""


class SessionError(WeftError):
    """Spark did not start, and the text says what it said last; or it ended before its time."""


@dataclass(frozen=True)
class SessionSettings:
    """How to start Spark."""

    master: str = "local[*]"
    name: str = "weft"
    driver_memory: str = ""  # Java's, as Spark writes it; empty: by the machine, see below
    small_tables: bool = False  # for tables of up to some 10⁵ rows, see SMALL_TABLES
    options: Mapping[str, str] = field(default_factory=dict)  # further Spark settings, these win
    token: str = ""  # of a Spark Connect server of the user's own on this machine (`standby`)

    @property
    def remote(self) -> bool:
        """Whether it is a Spark Connect server."""
        return self.master.startswith(CONNECT)

    @property
    def local(self) -> bool:
        """Whether the workers run on this machine as part of the driver."""
        return self.master == "local" or self.master.startswith("local[")

    @property
    def java_memory(self) -> str:
        """What Java gets in the driver: with a local master, where it is worker as well, a quarter
        of the machine's memory (guess: Python's workers and the page cache need theirs), from 1 to
        8 GB; with another one, where it only plans, 2 GB."""
        if self.driver_memory:
            return self.driver_memory
        quarter = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 22  # MB
        return f"{min(8192, max(1024, quarter))}m" if self.local else "2g"

    @property
    def here(self) -> bool:
        """Whether everything runs on this machine: in the driver, or in a cluster on loopback."""
        return self.local or _LOOPBACK.fullmatch(self.master) is not None


@contextmanager
def opened(settings: SessionSettings | None = None) -> Iterator[SparkSession]:
    """A session for the time of a `with` block."""
    from py4j.protocol import Py4JError  # noqa: PLC0415

    settings = settings or SessionSettings()
    if settings.remote:
        with _attached(settings) as spark:
            yield spark
        return
    with scratch() as folder:
        spark = _started(settings, folder)
        try:
            yield spark
        except (ConnectionError, Py4JError) as error:
            if _has_ended(spark, _PATIENCE_SECONDS):
                raise SessionError(_ENDED) from error
            raise
        finally:
            _end(spark)


def reason_of(error: BaseException) -> str:
    """What a person needs of an error of Spark, in a line: its innermost cause."""
    text = str(error)
    if _FULL in text:
        return _FULL.lower()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    thrown = [line for line in lines if line.startswith(": ")]
    said = [*lines[:1], *thrown[:1], *causes[-1:]][-1] if lines else type(error).__name__
    return _CLASS.sub("", said.removeprefix("Caused by:").lstrip(": "))[:_SHOWN]


def _has_ended(spark: SparkSession, within_seconds: float) -> bool:
    """Whether the Java process that this one started is gone."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return process is not None and resources.wait_until(
        lambda: process.poll() is not None, within_seconds
    )


def _end(spark: SparkSession) -> None:
    """Stop a session, or let go of it if its Java process is gone, or goes meanwhile."""
    from py4j.protocol import Py4JError  # noqa: PLC0415

    if not _has_ended(spark, 0):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                spark.stop()
            return
        except (ConnectionError, Py4JError):
            if not _has_ended(spark, _PATIENCE_SECONDS):
                raise
    _forget(spark)


def _forget(spark: SparkSession) -> None:
    """Let go of a session whose Java process is gone, so that the next one starts another."""
    context, gateway = spark.sparkContext, spark.sparkContext._gateway
    assert gateway is not None
    contexts, sessions = type(context), type(spark)
    with warnings.catch_warnings(), suppress(ConnectionError):
        warnings.simplefilter("ignore")
        context.stop()  # Java can no longer be told …
    context.stop()  # … and what is left is on this side
    gateway.close()
    with suppress(OSError):
        gateway.proc.stdin.close()
    if contexts._gateway is gateway:
        contexts._gateway = contexts._jvm = None
        sessions._instantiatedSession = sessions._activeSession = None


def prepare() -> bool:
    """Make the archive of Java's classes, unless it is there; says whether it is there now. There
    must be no session yet in this process."""
    archive = _class_archive()
    if archive.find() is not None:
        return True
    try:
        archive.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.folder) as folder:
            made = Path(folder) / "made.jsa"
            options = {_JAVA_OPTIONS: f"{_SMALL_JAVA} {_WRITE_ARCHIVE}={made}"}
            with opened(SessionSettings("local[1]", driver_memory="1g", options=options)) as spark:
                _use_classes(spark)
                gateway = spark.sparkContext._gateway
                assert gateway is not None
                gateway.proc.stdin.close()  # Java ends, and writes the archive
                gateway.proc.wait(_PREPARE_SECONDS)
            archive.put(made)
    except (WeftError, OSError, subprocess.TimeoutExpired):
        return False  # without the archive sessions start more slowly, and all else works
    return archive.find() is not None


def _use_classes(spark: SparkSession) -> None:
    """Make Java load the classes that most commands use."""
    with scratch() as folder:
        table = str(folder / "table")
        spark.range(100).selectExpr("id", "string(id % 7) AS word").write.parquet(table)
        rows = spark.read.parquet(table)
        counts = rows.groupBy("word").count()
        rows.join(counts, "word").orderBy("id").toPandas()
        counts.write.csv(str(folder / "counts"))
        spark.read.csv(str(folder / "counts")).toPandas()


def for_small_tables(spark: SparkSession) -> SparkSession:
    """A session beside this one, on the same Spark, with the settings for small tables; on Spark
    Connect, where sessions share no tables, the same one."""
    if is_remote(spark):
        return spark
    beside = spark.newSession()
    for key, value in SMALL_TABLES.items():
        if key.startswith("spark.sql."):
            beside.conf.set(key, value)
    return beside


def is_remote(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once."""
    if not is_remote(spark):
        return int(spark.sparkContext.defaultParallelism)
    known = spark.conf.get(_TOLD_PARALLELISM, "")
    if not known:  # a range is parted into as many
        parts = "SELECT spark_partition_id() AS part FROM range(100000)"
        known = str(spark.sql(parts).distinct().count())
        spark.conf.set(_TOLD_PARALLELISM, known)
    return int(known)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Within the block, this session plans queries with another value of a Spark SQL setting."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def cancel(spark: SparkSession) -> None:
    """End what Spark does for this session."""
    if is_remote(spark):
        spark.interruptAll()
    else:
        spark.sparkContext.cancelAllJobs()


class Sent:
    """A value that all tasks have; `shared` sends it."""

    def __init__(self, source: Any) -> None:
        self._source = source  # a broadcast, or the name of a file that the session has

    @property
    def value(self) -> Any:
        """The value. A task that asks more than once should keep it."""
        if not isinstance(self._source, str):
            return self._source.value
        from pyspark import SparkFiles  # noqa: PLC0415

        with open(SparkFiles.get(self._source), "rb") as file:
            return pickle.load(file)  # noqa: S301  (written by `shared`)

    def forget(self) -> None:
        """Let tasks drop the value; a file stays until the session ends."""
        if not isinstance(self._source, str):
            self._source.unpersist()


def shared(spark: SparkSession, value: Any) -> Sent:
    """Send a value to all tasks, once; on Spark Connect, which has no broadcasts, as a file."""
    if not is_remote(spark):
        return Sent(spark.sparkContext.broadcast(value))
    content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    name = f"weft-{hashlib.sha256(content).hexdigest()}"
    with scratch() as folder:
        (folder / name).write_bytes(content)
        spark.addArtifacts(str(folder / name), file=True)
    return Sent(name)


def packed(costs: npt.NDArray[np.float64], bins: int) -> npt.NDArray[np.int32]:
    """A bin for each cost, so that the bins' sums are about equal: the largest first, each into the
    bin that has least so far."""
    loads = [(0.0, number) for number in range(bins)]
    chosen = np.zeros(len(costs), np.int32)
    for place in np.argsort(-costs, kind="stable"):
        load, number = loads[0]
        chosen[place] = number
        heapq.heapreplace(loads, (load + float(costs[place]), number))
    return chosen


def _started(settings: SessionSettings, folder: Path) -> SparkSession:
    from pyspark.errors import PySparkException  # noqa: PLC0415  (Spark is imported when it is used)
    from pyspark.sql import SparkSession  # noqa: PLC0415

    _look_for_master(settings.master)
    log = folder / "spark.log"
    builder = SparkSession.builder.master(settings.master).appName(settings.name)
    for key, value in _with_archive({**_options(settings, folder), **settings.options}).items():
        builder = builder.config(key, value)
    try:
        with _environment(settings), _output_to(log):
            spark = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise SessionError("\n".join(["Spark did not start:", str(error), *_said(log)])) from error
    spark.sparkContext.setLogLevel("ERROR")
    _hush()
    if not settings.local:
        try:
            spark.sparkContext.addArchive(f"{_package_zip(folder)}#{SHIPPED}")
            _wait_for_executors(spark, settings)
        except BaseException:
            spark.stop()
            raise
    return spark


def _hush() -> None:
    """Silence two messages of Spark: a log of a wrong query, whose text the error has as well; and
    the warning of windows without parts, which here are over tables of a few rows."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415

    for kind in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(kind).setLevel("CRITICAL")
    warnings.filterwarnings("ignore", ".*No Partition Defined for Window", UserWarning)


@contextmanager
def _attached(settings: SessionSettings) -> Iterator[SparkSession]:
    """A session on a Spark Connect server, which goes on when the session ends."""
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415

    _look_for_master(settings.master)
    _hush()
    own, name = bool(settings.token), settings.master.partition("/;")[0]
    url = f"{settings.master}/;token={settings.token}" if own else settings.master
    sizes = SMALL_TABLES if settings.small_tables else LARGE_TABLES
    builder = SparkSession.builder.remote(url)
    for key, value in {**_SQL, **sizes, **settings.options}.items():
        if key.startswith("spark.sql."):
            builder = builder.config(key, value)
    before = os.environ.get(_CONNECT_VARIABLE)
    try:
        spark: Any = builder.create()
        spark.client.set_retry_policies([DefaultPolicy(max_retries=_CONNECT_TRIES)])
        try:
            if not own:
                _check_package(spark, name)
            yield spark
        finally:
            named = getattr(spark.client, "_server_session_id", None)
            with suppress(PySparkException):
                spark.stop()
            if own and named:
                # Each session has Python processes of its own, which Spark would keep.
                resources.end_carriers(named, _PATIENCE_SECONDS, _SESSION_VARIABLE)
    except PySparkException as error:
        if why := _not_taken(str(error)):
            raise SessionError(f"{name}: {why}") from error
        raise
    finally:  # the next session of this process may be of another kind
        if before is None:
            os.environ.pop(_CONNECT_VARIABLE, None)


def _not_taken(said: str) -> str:
    """What is wrong with a Spark Connect server, if it is that."""
    if "StatusCode.UNAUTHENTICATED" in said:
        return "it asks for another token; 'sc://HOST:PORT/;token=…' gives one"
    if "StatusCode.UNAVAILABLE" in said:
        return "the Spark Connect server has ended, or there is none. " + _KEPT
    return ""


def _check_package(spark: SparkSession, master: str) -> None:
    """Whether the tasks of a server find this same package."""
    from pyspark.errors import PythonException  # noqa: PLC0415

    try:
        [row] = spark.range(0, 1, 1, 1).mapInArrow(_package_of, "digest string").collect()
    except PythonException as error:
        raise SessionError(
            f"{master}: its Python has no weft ({reason_of(error)}); install it there"
        ) from error
    if row.digest != _package_digest():
        raise SessionError(f"{master}: its Python has another version of weft")


def _package_of(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    import pyarrow  # noqa: PLC0415

    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"digest": [_package_digest()]})


def _package_digest() -> str:
    """Names the code of this package."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _look_for_master(master: str) -> None:
    """Raise `SessionError` if no master or Spark Connect server answers at its address: Spark would
    try for a minute and then print a stack trace."""
    if master.startswith(CONNECT):
        said = master.removeprefix(CONNECT).partition("/")[0]
        places = [said if re.search(r":\d+$", said) else f"{said}:{_CONNECT_PORT}"]
    elif master.startswith(_STANDALONE):
        places = master.removeprefix(_STANDALONE).split(",")
    else:
        return
    why: Exception | None = None
    for place in places:
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), MASTER_SECONDS).close()
        except (OSError, ValueError) as error:
            why = error
        else:
            return
    kind = "Spark Connect server" if master.startswith(CONNECT) else "Spark master"
    named = master.partition("/;")[0]  # without a token
    raise SessionError(f"{named}: no {kind} answers there ({why})")


def _with_archive(options: dict[str, str]) -> dict[str, str]:
    """The options, with the place of Java's archive of classes. measured: a session with one small
    query takes 4.3 s of CPU time in place of 9.1."""
    archive = _class_archive().find()
    given = options.get(_JAVA_OPTIONS, "")
    if archive is None or _WRITE_ARCHIVE in given:
        return options
    return {**options, _JAVA_OPTIONS: f"{given} -XX:SharedArchiveFile={archive}".strip()}


def _class_archive() -> ClassArchive:
    from pyspark import __version__  # noqa: PLC0415

    return ClassArchive(java_home(), __version__)


def _wait_for_executors(spark: SparkSession, settings: SessionSettings) -> None:
    """Wait until the cluster has given the session an executor."""
    status = spark.sparkContext._jsc.sc().statusTracker()
    # The driver is listed too.
    if not resources.wait_until(lambda: len(status.getExecutorInfos()) > 1, EXECUTORS_SECONDS):
        wanted = spark.conf.get("spark.executor.memory", "1g")
        raise SessionError(
            f"{settings.master} gave no executor within {EXECUTORS_SECONDS:.0f} s; does it have a "
            f"worker with {wanted} of memory and a core to spare?"
        )


def _said(log: Path) -> list[str]:
    """The last of what Spark said, without warnings and places in its source."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [line for line in lines if "WARN" not in line and not line.startswith("\tat ")][-10:]


def _options(settings: SessionSettings, folder: Path) -> dict[str, str]:
    options = {
        "spark.driver.memory": settings.java_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # measured: noting where each call comes from takes two fifths of this process's time.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.scheduler.mode": "FAIR",  # a short query is not held up by a long job
        # Spark keeps 100 pieces of compiled code, less than an ingest of two million rows has.
        # measured: of 96 pieces it compiled 52 again, and Java optimised them again, each time.
        "spark.sql.codegen.cache.maxEntries": "1000",
        **_SQL,
    }
    if settings.local:
        # guess: driver and worker are one process, so a silence is that of a machine that slept.
        options["spark.network.timeout"] = "30d"
    if settings.here:
        options["spark.local.dir"] = str(folder / "local")
        options["spark.driver.bindAddress"] = "127.0.0.1"
        options["spark.driver.host"] = "127.0.0.1"
        # Small tables: a shuffle into 200 parts, Spark's default, would be 200 empty tasks.
        options["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
    own = None if settings.here else cluster.known(settings.master)
    if own is not None:  # the driver is where the master is, and workers find it by that address
        options["spark.driver.bindAddress"] = options["spark.driver.host"] = own.host
    if not settings.local:
        options["spark.executorEnv.PYTHONPATH"] = SHIPPED
        from pyspark import SparkContext  # noqa: PLC0415

        # A Java process that runs already, as it outlives sessions, does not read the folder again.
        if SparkContext._gateway is not None and (own := cluster.known(settings.master)):
            options |= own.properties()
    options |= SMALL_TABLES if settings.small_tables else LARGE_TABLES
    options |= {f"spark.executorEnv.{name}": "1" for name in ONE_THREAD}
    return options


def for_daemon(settings: SessionSettings, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Spark's settings, and the environment, of a Spark that a process beside this one runs."""
    options = _with_archive({**_options(settings, folder), **settings.options})
    return options, _inherited(settings)


@contextmanager
def _environment(settings: SessionSettings) -> Iterator[None]:
    """Have the Java process that is started meanwhile inherit what it needs."""
    wanted = _inherited(settings)
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _inherited(settings: SessionSettings) -> dict[str, str]:
    """What the Java process and, through it, the Python workers inherit."""
    source = str(Path(__file__).resolve().parents[2])
    wanted = {"JAVA_HOME": str(java_home()), **dict.fromkeys(ONE_THREAD, "1")}
    if settings.here:
        wanted |= {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
    elif (listening := cluster.known(settings.master)) is not None:
        wanted["SPARK_LOCAL_IP"] = listening.host
        wanted["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON") or sys.executable
    if settings.local:
        known = os.environ.get("PYTHONPATH", "")
        wanted["PYTHONPATH"] = os.pathsep.join(part for part in (source, known) if part)
    elif own := cluster.known(settings.master):
        # By file, because what is given on a command line can be read by anybody.
        wanted["SPARK_CONF_DIR"] = str(own.conf)
    return wanted


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Send what a process started meanwhile prints, now and for the rest of its life, to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in (1, 2)]
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)
        os.close(target)


def _package_zip(folder: Path) -> Path:
    """This package as one file that Spark can ship."""
    root = Path(__file__).resolve().parents[1]
    target = folder / "weft.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*.py")):
            archive.write(path, path.relative_to(root.parent))
    return target


if __name__ == "__main__":
    sys.exit(not prepare())
