"""The Spark session: started quietly, on a laptop by default, on any master by its address.

With a local master, Spark and its Python workers run on this machine and nothing is reached from
outside: the Java process binds to loopback, the workers run this same Python with this same
package on their path, and everything Spark says goes to a file in a temporary folder that ends
with the session. If Spark fails to start, the end of that file is in the error.

With any other master, the package is shipped to the workers, which unpack it in their folder and
find it there first, so that they run the code of the driver; what it needs (numpy, numba, pyarrow,
pandas) must be installed there, for the Python that `PYSPARK_PYTHON` names.

Each task has one core, so the libraries that would start threads of their own are held to one.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from weft.pipeline.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE_THREAD = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SHIPPED = "weft-package"
"""The folder, in a worker's own, that the package is unpacked to. Not left zipped: the engine names
its compiled code after the content of its files."""


SMALL_TABLES = {
    # Queries are over before an optimising compiler has paid off, Java's or Spark's own.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}
"""measured: with these the lab's verdicts take a quarter of the CPU time."""


class SessionError(Exception):
    """Spark did not start; the text says what it said last."""


@dataclass(frozen=True)
class Settings:
    """How to start Spark."""

    master: str = "local[*]"
    name: str = "weft"
    driver_memory: str = "2g"  # guess: tables of the lab are small, arrays live in the workers
    small_tables: bool = False  # for tables of up to some 10⁵ rows, see SMALL_TABLES
    options: Mapping[str, str] = field(default_factory=dict)  # further Spark settings, these win

    @property
    def local(self) -> bool:
        """Whether the workers run on this machine as part of the driver."""
        return self.master == "local" or self.master.startswith("local[")


@contextmanager
def opened(settings: Settings | None = None) -> Iterator[SparkSession]:
    """A session for the time of a `with` block."""
    settings = settings or Settings()
    folder = Path(tempfile.mkdtemp(prefix="weft-spark-"))
    try:
        spark = _started(settings, folder)
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once."""
    return int(spark.sparkContext.defaultParallelism)


def _started(settings: Settings, folder: Path) -> SparkSession:
    from pyspark.errors import PySparkException  # noqa: PLC0415  (Spark is imported when it is used)
    from pyspark.sql import SparkSession  # noqa: PLC0415

    log = folder / "spark.log"
    builder = SparkSession.builder.master(settings.master).appName(settings.name)
    for key, value in {**_options(settings, folder), **settings.options}.items():
        builder = builder.config(key, value)
    try:
        with _environment(settings), _output_to(log):
            spark = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise SessionError("\n".join(["Spark did not start:", str(error), *_said(log)])) from error
    spark.sparkContext.setLogLevel("ERROR")
    if not settings.local:
        spark.sparkContext.addArchive(f"{_package_zip(folder)}#{SHIPPED}")
    return spark


def _said(log: Path) -> list[str]:
    """The last of what Spark said, without warnings and places in its source."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [line for line in lines if "WARN" not in line and not line.startswith("\tat ")][-10:]


def _options(settings: Settings, folder: Path) -> dict[str, str]:
    options = {
        "spark.driver.memory": settings.driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.scheduler.mode": "FAIR",  # a short query is not held up by a long job
    }
    if settings.local:
        options["spark.local.dir"] = str(folder / "local")
        options["spark.driver.bindAddress"] = "127.0.0.1"
        options["spark.driver.host"] = "127.0.0.1"
        # Small tables: a shuffle into 200 parts, Spark's default, would be 200 empty tasks.
        options["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
    else:
        options["spark.executorEnv.PYTHONPATH"] = SHIPPED
    if settings.small_tables:
        options |= SMALL_TABLES
    options |= {f"spark.executorEnv.{name}": "1" for name in ONE_THREAD}
    return options


@contextmanager
def _environment(settings: Settings) -> Iterator[None]:
    """What the Java process and, through it, the Python workers inherit."""
    source = str(Path(__file__).resolve().parents[2])
    wanted = {"JAVA_HOME": str(java_home()), **dict.fromkeys(ONE_THREAD, "1")}
    if settings.local:
        known = os.environ.get("PYTHONPATH", "")
        wanted |= {
            "PYTHONPATH": os.pathsep.join(part for part in (source, known) if part),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
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
