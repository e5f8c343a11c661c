"""A Spark that stays running, so that commands need not start one: a Spark Connect server on this
machine.

`up` starts it, `down` ends it, and a command of the same user and checkout finds it by itself. Each
command has a session of its own there, with its own settings, names of tables and Python processes;
what they share is a Java process whose classes are loaded and whose code is compiled.

It listens on loopback, and takes a request only from a process that knows its token. All that is
known of it is in its folder, which only its user can read:

    spark.json   where it listens, the token, and the mark its processes carry (see `resources`)
    conf         Spark's settings
    spark.log    what it said last; the only thing that `down` leaves
    work         what it keeps for running jobs
"""

from __future__ import annotations

import json
import re
import secrets
import socket
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from weft import private
from weft.errors import WeftError
from weft.pipeline import resources
from weft.pipeline.cluster import HOST, LOGGING, START_SECONDS, daemon, end, last_words
from weft.pipeline.resources import held
from weft.pipeline.session import CONNECT, SessionSettings, for_daemon

_FILE = "spark.json"
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTED = re.compile(r"Spark Connect server started at: \S+:(\d+)")
_ANSWER_SECONDS = 2.0  # guess: on loopback it is there at once, or not at all
_LOGGING = f"""\
{LOGGING}logger.server.name = {_SERVER}
logger.server.level = info
"""


class StandbyError(WeftError):
    """What a user can mend: a Spark that runs already, is not there, or did not start."""


@dataclass(frozen=True)
class Standby:
    """A Spark that stays, as its folder describes it."""

    folder: Path
    mark: str
    token: str
    memory: str
    source: str  # where the code is that its Python processes run
    port: int = 0  # once it is known

    @property
    def address(self) -> str:
        """What to give as a master. Spark lets a token pass without TLS to this name alone."""
        return f"{CONNECT}localhost:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "spark.log"

    def processes(self) -> list[int]:
        """The living processes: Java and its Python workers."""
        return resources.carriers(self.mark)

    def answers(self) -> bool:
        """Whether it listens."""
        try:
            socket.create_connection((HOST, self.port), _ANSWER_SECONDS).close()
        except OSError:
            return False
        return bool(self.port)


def default_folder() -> Path:
    """Where it is described by default."""
    return resources.users_folder("spark")


def described(folder: Path) -> Standby | None:
    """The Spark that a folder describes, running or not."""
    try:
        written = json.loads((folder / _FILE).read_text())
        return Standby(folder.resolve(), **written)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise StandbyError(f"{folder / _FILE} is no description of a Spark") from None


def found(master: str | None = None) -> Standby | None:
    """The user's own, if it runs and runs this code; with a master, only if that is its address."""
    known = described(default_folder())
    if known is None or not known.answers() or (master and master != known.address):
        return None
    return known if master or known.source == _source() else None


def up(folder: Path, memory: str = "", cores: int = 0) -> Standby:
    """Start a Spark and wait until it listens; all or nothing."""
    private.make_folder(folder)
    private.close_folder(folder)
    with _alone(folder):
        older = described(folder)
        if older is not None:
            if older.processes():
                raise StandbyError(
                    f"a Spark runs already: {older.address}; 'weft spark down' ends it"
                )
            end(older.mark, folder, _FILE)
        settings = SessionSettings(
            f"local[{cores or '*'}]", "weft", driver_memory=memory, token=secrets.token_hex(32)
        )
        mark = secrets.token_hex(16)
        made = Standby(folder.resolve(), mark, settings.token, settings.java_memory, _source())
        try:
            _describe(made)
            made = replace(made, port=_started(made, settings))
            _describe(made)
        except BaseException:  # an interruption as well
            end(made.mark, folder, _FILE)
            raise
    return made


def down(folder: Path) -> int:
    """End the Spark of a folder, however much of it is left; returns how many processes it had."""
    known = described(folder) if folder.is_dir() else None
    if known is None:
        raise StandbyError(f"no Spark is described in {folder}; 'weft spark up' starts one")
    with _alone(folder):
        return end(known.mark, folder, _FILE)


def _started(known: Standby, settings: SessionSettings) -> int:
    """Start the server; the port that it got, as it says."""
    work, conf = known.folder / "work", known.folder / "conf"
    options, environment = for_daemon(settings, work)
    options |= {
        "spark.master": settings.master,
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": "0",
        # By file, because what is given on a command line can be read by anybody.
        "spark.connect.authenticate.token": known.token,
    }
    conf.mkdir(mode=0o700, exist_ok=True)
    lines = "".join(f"{name} {value}\n" for name, value in options.items())
    private.write(conf / "spark-defaults.conf", lines.encode(), replace=True)
    private.write(conf / "log4j2.properties", _LOGGING.encode(), replace=True)
    private.make_file(known.log)
    server = daemon(
        ["org.apache.spark.deploy.SparkSubmit", "--class", _SERVER, "spark-internal"],
        work=work,
        log=known.log,
        environment={
            **environment,
            resources.MARK_VARIABLE: known.mark,
            "SPARK_CONF_DIR": str(conf),
            "SPARK_CONNECT_MODE": "0",
        },
    )
    heard: list[int] = []

    def ready() -> bool:
        if told := _STARTED.search(known.log.read_text(errors="replace")):
            heard.append(int(told[1]))
        return bool(heard) or server.poll() is not None

    if not resources.wait_until(ready, START_SECONDS) or not heard:
        raise StandbyError("\n".join(["Spark did not start:", *last_words(known.log)]))
    return heard[0]


def _source() -> str:
    return str(Path(__file__).resolve().parents[2])


def _alone(folder: Path) -> AbstractContextManager[None]:
    """One start or end at a time."""
    return held(folder, StandbyError(f"the Spark of {folder} is being started or ended"))


def _describe(known: Standby) -> None:
    written = {name: value for name, value in asdict(known).items() if name != "folder"}
    text = json.dumps(written, indent=2) + "\n"
    private.write(known.folder / _FILE, text.encode(), replace=True)
