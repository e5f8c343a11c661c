"""A Spark cluster on this machine: one master and some workers, from the installed package.

It is a small copy of a cluster elsewhere: the driver, the workers and the Python processes below
them are separate, and any worker can be lost. Unless an address is given to listen at, the cluster
listens on loopback alone and cannot be reached from outside. A process that wants to talk to it, on
this machine too, must know a secret that only this user can read, and all traffic is encrypted.
Workers of other machines that see the cluster's folder, where the secret is, may join.

All that is known of a cluster is in its folder:

    DIR/cluster.json   its address, its size and the mark its processes carry (see `resources`)
    DIR/conf/          Spark's settings for the daemons and for drivers, the secret among them
    DIR/*.log          what master and workers said last; the only thing that `down` leaves
    DIR/work           what the workers keep for running jobs

The description is written before the first process starts, so a start that is killed can still be
cleaned up after.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from weft.errors import WeftError
from weft.pipeline import resources
from weft.pipeline.java import java_home
from weft.pipeline.resources import held

HOST = "127.0.0.1"
START_SECONDS = 300.0  # guess: some 5 s on an idle machine; a daemon that ends is told at once
END_SECONDS = 15.0  # guess: daemons end within one, executors within a few
DAEMON_MEMORY = "256m"  # measured: master and worker keep small tables only
# Daemons do little for long: a small heap and no optimising compiler make them start sooner.
DAEMON_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dweft.log.level=info"

_FILE = "cluster.json"
_ADDRESS = re.compile(r"Starting Spark master at (spark://\S+)")
_PAGE = re.compile(r"MasterWebUI.* started at (http://\S+)")
LOGGING = """\
rootLogger.level = ${sys:weft.log.level:-warn}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


State: TypeAlias = dict[str, Any]
"""What a master says of itself, as JSON."""


class ClusterError(WeftError):
    """What a user can mend: a cluster that runs already, does not run, or did not start."""


@dataclass(frozen=True)
class Size:
    """How large a cluster is to be."""

    workers: int = 2
    cores: int = 1  # of each worker: so many tasks at once
    memory: str = "1g"  # of each worker's executor; Python processes come on top

    def __post_init__(self) -> None:
        if self.workers < 1 or self.cores < 1:
            raise ClusterError("a cluster needs at least one worker with one core")
        if not re.fullmatch(r"[1-9]\d*[mg]", self.memory):
            raise ClusterError(f"memory {self.memory!r}: expected a number with m or g, as in 1g")
        if int(self.memory[:-1]) * (1024 if self.memory.endswith("g") else 1) < 512:
            raise ClusterError(f"memory {self.memory!r}: Spark's executors need 512m or more")


@dataclass(frozen=True)
class Cluster:
    """One cluster as its folder describes it."""

    folder: Path
    mark: str
    size: Size
    master: str = ""  # its address, once it is known
    page: str = ""  # its web page
    host: str = HOST  # what it listens at

    @property
    def conf(self) -> Path:
        return self.folder / "conf"

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def processes(self) -> list[int]:
        """The living processes: daemons, executors and their Python workers."""
        return resources.carriers(self.mark)

    def state(self) -> State | None:
        """What the master says of itself, its workers and jobs; None if it does not answer."""
        if not self.page:
            return None
        try:
            with urllib.request.urlopen(f"{self.page}/json/", timeout=10) as answer:  # noqa: S310
                found: State = json.load(answer)
        except (urllib.error.URLError, OSError, ValueError):
            return None
        return found

    def workers_alive(self) -> int:
        state = self.state() or {}
        return sum(worker["state"] == "ALIVE" for worker in state.get("workers", []))

    def properties(self) -> dict[str, str]:
        """Spark's settings for all that take part."""
        lines = (self.conf / "spark-defaults.conf").read_text().splitlines()
        return dict(line.split(maxsplit=1) for line in lines)


def default_folder() -> Path:
    """Where a cluster is described by default."""
    return resources.users_folder("cluster")


def described(folder: Path) -> Cluster | None:
    """The cluster that a folder describes, running or not."""
    try:
        written = json.loads((folder / _FILE).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise ClusterError(f"{folder / _FILE} is no description of a cluster") from None
    return Cluster(folder.resolve(), **{**written, "size": Size(**written["size"])})


def known(master: str) -> Cluster | None:
    """The cluster with this address, if the user's own folder describes it."""
    found = described(default_folder())
    return found if found is not None and found.master == master else None


# --- up and down ----------------------------------------------------------------------------------


def up(folder: Path, size: Size, port: int = 0, page_port: int = 0, host: str = HOST) -> Cluster:
    """Start a cluster and wait until all its workers are there; all or nothing."""
    _check_host(host)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        older = described(folder)
        if older is not None:
            if older.processes():
                raise ClusterError(
                    f"a cluster runs already: {older.master or 'not quite started'}, described in "
                    f"{folder}; 'weft cluster down' ends it"
                )
            end(older.mark, folder, _FILE)
        cluster = Cluster(folder.resolve(), secrets.token_hex(16), size, host=host)
        try:
            _describe(cluster)
            _configure(cluster)
            cluster = _with_master(cluster, port, page_port)
            _with_workers(cluster, size, host)
        except BaseException:  # after an interruption, too, half a cluster must not stay
            end(cluster.mark, folder, _FILE)
            raise
    return cluster


def join(folder: Path, size: Size, host: str) -> Cluster:
    """Start more workers of the cluster that a folder describes, on this machine, and wait until
    all are there; all or nothing. `down` on the same machine ends them with it."""
    _check_host(host)
    with _alone(folder):
        cluster = described(folder)
        if cluster is None or not cluster.master:
            raise ClusterError(f"no cluster is described in {folder}; 'weft cluster up' starts one")
        if cluster.state() is None:
            raise ClusterError(f"the master {cluster.master} does not answer")
        total = replace(cluster.size, workers=cluster.size.workers + size.workers)
        _with_workers(cluster, size, host)
        cluster = replace(cluster, size=total)
        _describe(cluster)
    return cluster


def _check_host(host: str) -> None:
    """Raise `ClusterError` unless this is one address of this machine that others can answer to."""
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)}
        if any(ipaddress.ip_address(each).is_unspecified for each in found):
            raise ClusterError(f"{host} means all addresses; name the one that workers can reach")
        with socket.socket(socket.AF_INET6 if ":" in min(found) else socket.AF_INET) as tried:
            tried.bind((min(found), 0))
    except OSError as error:
        raise ClusterError(f"{host}: no address of this machine ({error})") from error


def down(folder: Path) -> int:
    """End the cluster of a folder, however much of it is left; returns how many processes."""
    if not folder.is_dir():
        raise ClusterError(f"no cluster is described in {folder}")
    with _alone(folder):
        cluster = described(folder)
        if cluster is None:
            raise ClusterError(f"no cluster is described in {folder}")
        return end(cluster.mark, folder, _FILE)


def _alone(folder: Path) -> AbstractContextManager[None]:
    """One start or end at a time."""
    return held(folder, ClusterError(f"the cluster of {folder} is being started or ended"))


def _describe(cluster: Cluster) -> None:
    written = {name: value for name, value in asdict(cluster).items() if name != "folder"}
    resources.put(cluster.folder / _FILE, json.dumps(written, indent=2) + "\n")


def end(mark: str, folder: Path, description: str) -> int:
    """End the processes that carry a mark and remove what their folder holds but for logs; returns
    how many there were. Nothing is removed while one of them is left."""
    ended = resources.end_carriers(mark, END_SECONDS)
    if left := resources.carriers(mark):
        raise ClusterError(f"these processes do not end: {left}")
    for name in ("conf", "work"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / description).unlink(missing_ok=True)
    return ended


def _configure(cluster: Cluster) -> None:
    shutil.rmtree(cluster.conf, ignore_errors=True)
    cluster.conf.mkdir(mode=0o700)
    settings = {
        # A user that may submit a job may run anything as this one, so other users of this machine
        # may not.
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(32),
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.saslFallback": "false",
        "spark.master.rest.enabled": "false",
        "spark.ui.killEnabled": "false",
        "spark.executor.memory": cluster.size.memory,
        # What a finished job leaves with the workers goes after a day.
        "spark.worker.cleanup.enabled": "true",
        "spark.worker.cleanup.appDataTtl": "86400",
    }
    text = "".join(f"{name} {value}\n" for name, value in settings.items())
    defaults = cluster.conf / "spark-defaults.conf"
    defaults.touch(mode=0o600)
    defaults.write_text(text)
    (cluster.conf / "log4j2.properties").write_text(LOGGING)


# --- daemons --------------------------------------------------------------------------------------


def _with_master(cluster: Cluster, port: int, page_port: int) -> Cluster:
    """Start the master; the ports it got are read from what it says."""
    ports = ["--port", str(port), "--webui-port", str(page_port)]
    log = cluster.log("master")
    daemon = _started(
        cluster, "master", "org.apache.spark.deploy.master.Master", cluster.host, *ports
    )
    heard: dict[str, str] = {}

    def ready() -> bool:
        said = log.read_text(errors="replace")
        for name, pattern in (("master", _ADDRESS), ("page", _PAGE)):
            if found := pattern.search(said):
                heard[name] = found[1]
        return len(heard) == 2 or daemon.poll() is not None

    if not resources.wait_until(ready, START_SECONDS) or len(heard) < 2:
        raise ClusterError("\n".join(["the master did not start:", *last_words(log)]))
    for wanted, address in ((port, heard["master"]), (page_port, heard["page"])):
        if wanted and not address.endswith(f":{wanted}"):
            raise ClusterError(f"port {wanted} is taken")
    cluster = replace(cluster, master=heard["master"], page=heard["page"])
    _describe(cluster)
    return cluster


def _with_workers(cluster: Cluster, size: Size, host: str) -> None:
    before = cluster.workers_alive()
    names = [f"worker-{number}" for number in range(before + 1, before + size.workers + 1)]
    room = ["--cores", str(size.cores), "--memory", size.memory]
    daemons = [
        _started(
            cluster,
            name,
            "org.apache.spark.deploy.worker.Worker",
            host,
            *["--port", "0", "--webui-port", "0", *room],
            *["--work-dir", str(cluster.folder / "work" / name), cluster.master],
        )
        for name in names
    ]

    def ready() -> bool:
        ended = any(daemon.poll() is not None for daemon in daemons)
        return ended or cluster.workers_alive() == before + len(daemons)

    in_time = resources.wait_until(ready, START_SECONDS)
    for name, daemon in zip(names, daemons, strict=True):
        if not in_time or daemon.poll() is not None:
            log = cluster.log(name)
            for each in daemons:
                each.terminate()
            raise ClusterError("\n".join([f"{name} did not come up:", *last_words(log)]))


def _started(
    cluster: Cluster, name: str, kind: str, host: str, *arguments: str
) -> subprocess.Popen[bytes]:
    """Start a master or a worker; returns its process."""
    return daemon(
        [kind, "--host", host, *arguments],
        work=cluster.folder / "work" / name,
        log=cluster.log(name),
        environment={
            resources.MARK_VARIABLE: cluster.mark,
            "SPARK_CONF_DIR": str(cluster.conf),
            "SPARK_LOCAL_IP": host,
            "SPARK_PUBLIC_DNS": host,  # what the page's address reads
            "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": f"{DAEMON_OPTIONS} {resources.mark_argument(cluster.mark)}",
        },
    )


def daemon(
    program: Sequence[str], *, work: Path, log: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """A program of Spark that stays, in a session of its own, so that it outlives the terminal."""
    spark_home = _spark_home()
    work.mkdir(parents=True, exist_ok=True)
    known = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
    spark = {
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_DIRS": str(work / "scratch"),
        "SPARK_LAUNCHER_OPTS": DAEMON_OPTIONS,
    }
    with log.open("wb") as said:
        return subprocess.Popen(  # noqa: S603  (Spark's own program, with arguments of ours)
            [str(spark_home / "bin" / "spark-class"), *program],
            env={**known, **spark, **environment},
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _spark_home() -> Path:
    import pyspark  # noqa: PLC0415  (Spark is imported when it is used)

    return Path(pyspark.__file__).resolve().parent


def last_words(log: Path) -> list[str]:
    """What a daemon said last, without the places in its source."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [line for line in lines if not line.startswith("\tat ")][-10:]
