"""Where files are: a folder of this machine, or an address of another file system.

    lake                     a folder, seen from where the command was started
    file:///data/lake        the same, in full
    s3://bucket/lake         S3 and what speaks like it (s3a:// means the same); gs:// is Google's
    hdfs://host:8020/lake    Hadoop's

All addresses go through this module: pyarrow's file systems open, list and remove files,
`deltalake` gets its options from here, and Spark an address with its scheme. The server of S3 and
the account are taken from the environment (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_REGION …; for
Google's GOOGLE_APPLICATION_CREDENTIALS, or STORAGE_EMULATOR_HOST), as other programs take them;
tasks on other machines get these settings with their work. hdfs:// needs Hadoop's own libraries.

Tried with local files and with moto's server of S3. gs:// and hdfs:// are handed to the same
libraries. gs:// was tried by hand with an emulator, hdfs:// never.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from ctypes.util import find_library
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, ClassVar
from urllib.parse import quote, unquote, urlsplit

from pyarrow import fs

from weft.errors import WeftError
from weft.net.errors import UsageError
from weft.pipeline.resources import put

S3 = ("s3", "s3a")
GOOGLE, HADOOP = "gs", "hdfs"
SCHEMES = ("file", *S3, GOOGLE, HADOOP)
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/+(.*)", re.DOTALL)
_TRIES, _SECONDS = 3, 20  # guess: a server that has not answered by then will not answer
_COLOURS = re.compile("\x1b\\[[0-9;]*m")
_SHOWN = 300
_ANSWER = re.compile("<Code>(.*?)</Code>.*?<Message>(.*?)</Message>")
_EMULATOR = "STORAGE_EMULATOR_HOST"
_ASKED = re.compile(rf"(?:AWS|GOOGLE)_[A-Z0-9_]+|{_EMULATOR}")
_LIBHDFS = "libhdfs.so"


class Unreachable(WeftError):
    """A file system elsewhere does not answer, or not as it should; the text says why."""

    what: ClassVar[str] = "cannot be reached"

    def __init__(self, place: Location, error: Exception) -> None:
        lines = [_COLOURS.sub("", line).strip("↳ ") for line in str(error).splitlines()]
        said = ": ".join(line for line in lines if line)
        if answer := _ANSWER.search(said):  # of a server of S3, as XML
            said = ": ".join(answer.groups())
        if len(said) > _SHOWN:  # causes stand at the end
            said = f"{said[: _SHOWN // 2]} … {said[-_SHOWN // 2 :]}"
        if place.scheme == GOOGLE and _is_anonymous(place.access):
            said += "; there are no credentials: set GOOGLE_APPLICATION_CREDENTIALS"
        super().__init__(f"{place}: {self.what} ({said})")


class Unwritable(Unreachable):
    """Tables cannot be changed there: the disk is full or read-only, or a file is damaged."""

    what = "cannot be changed"


class BadAddress(UsageError):
    """An address that cannot be used; the text says why."""


@dataclass(frozen=True)
class Location:
    """A file or folder by its address: `file:///…` or another scheme, without a slash in the end.

    `access` is what the environment says about a file system that is not this machine's own.
    """

    url: str
    access: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(given: str | Path | Location, access: Mapping[str, str] | None = None) -> Location:
        """What a user named: a path or an address; `access` is by default what the environment
        says here."""
        if isinstance(given, Location):
            return given
        found = _ADDRESS.fullmatch(str(given)) if isinstance(given, str) else None
        if found is None or found[1] == "file":
            path = Path(given) if found is None else Path("/" + unquote(found[2]))
            _check(given, path)
            return Location("file://" + str(path.resolve()))
        scheme = found[1].lower()
        if scheme not in SCHEMES:
            listed = ", ".join(f"{each}://" for each in SCHEMES)
            raise BadAddress(f"{given}: no file system that weft knows; it knows {listed}")
        if not found[2].strip("/"):
            raise BadAddress(f"{given}: the address has no bucket or host")
        if scheme == HADOOP and not _has_libhdfs():
            raise BadAddress(
                f"{given}: this needs Hadoop's {_LIBHDFS}, which is not on this machine; set "
                "HADOOP_HOME, and CLASSPATH to what `hadoop classpath --glob` prints"
            )
        known = environment() if access is None else access
        return Location(f"{scheme}://{found[2].rstrip('/')}", known)

    def __str__(self) -> str:
        return self.url.removeprefix("file://")

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.url}/{name}", self.access)

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"

    @property
    def local(self) -> Path:
        """The path; `BadAddress` where it is not one of this machine."""
        if not self.is_local:
            raise BadAddress(f"{self}: a folder of this machine is needed here, not an address")
        return Path(self.url.removeprefix("file://"))

    # --- for others -----------------------------------------------------------------------------

    @property
    def for_spark(self) -> str:
        """How Spark names it, whatever its own default is (as on YARN)."""
        return re.sub("^s3:", "s3a:", self.url)

    @property
    def for_delta(self) -> str:
        """How `deltalake` names it."""
        return str(self.local) if self.is_local else re.sub("^s3a:", "s3:", self.url)

    @property
    def delta_options(self) -> dict[str, str]:
        """What `deltalake` needs to know to get there."""
        if self.scheme not in (*S3, GOOGLE):
            return {}
        patience = {"max_retries": str(_TRIES), "retry_timeout": f"{_SECONDS}s"}
        if self.scheme == GOOGLE:
            return {**patience, **_google_options(self.access)}
        known = {name: value for name, value in self.access.items() if name.startswith("AWS_")}
        plain = known.get("AWS_ENDPOINT_URL", "").startswith("http://")
        return {**patience, **known, **({"AWS_ALLOW_HTTP": "true"} if plain else {})}

    # --- files ----------------------------------------------------------------------------------

    def opened(self) -> tuple[Any, str]:
        """The file system of pyarrow, and the path there."""
        if self.is_local:
            return fs.LocalFileSystem(), str(self.local)
        if self.scheme in S3:
            return _s3(self.access), self.url.partition("://")[2]
        if self.scheme == GOOGLE:
            return _google(self.access), self.url.partition("://")[2]
        system, path = fs.FileSystem.from_uri(quote(self.url, safe=":/@?&=%"))
        return system, path

    @contextmanager
    def told(self) -> Iterator[None]:
        """Within the block, errors of a file system elsewhere are `Unreachable`."""
        try:
            yield
        except OSError as error:
            if self.is_local:
                raise
            raise Unreachable(self, error) from error

    @contextmanager
    def reached(self) -> Iterator[tuple[Any, str]]:
        """What `opened` returns; errors on the way there, and within the block, are `told`."""
        with self.told():
            yield self.opened()

    def exists(self) -> bool:
        with self.reached() as (system, path):
            return bool(system.get_file_info(path).type != fs.FileType.NotFound)

    def size(self) -> int:
        """How many bytes a file has."""
        with self.reached() as (system, path):
            return int(system.get_file_info(path).size)

    def names(self) -> list[str]:
        """What is in a folder; nothing if there is no such folder."""
        if self.is_local:  # pyarrow refuses names that are not UTF-8
            return sorted(os.listdir(self.local)) if self.local.is_dir() else []
        with self.reached() as (system, path):
            found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(each.base_name for each in found)

    def write(self, content: bytes) -> None:
        """Write a small file of text; it is there whole, or as it was."""
        if self.is_local:
            self.local.parent.mkdir(parents=True, exist_ok=True)
            put(self.local, content.decode())
            return
        with self.reached() as (system, path), system.open_output_stream(path) as file:
            file.write(content)

    def reader(self) -> IO[bytes]:
        """Open the file for reading, from any position."""
        with self.reached() as (system, path):
            file: IO[bytes] = system.open_input_file(path)
        return file

    def remove(self) -> None:
        """Remove a folder with all that is in it; nothing if there is none."""
        if self.is_local:
            shutil.rmtree(self.local, ignore_errors=True)
            return
        with self.reached() as (system, path):
            if system.get_file_info(path).type == fs.FileType.Directory:
                # Google's folders are parts of names: none is there once what was in it is removed.
                with suppress(FileNotFoundError):
                    system.delete_dir(path)


def _check(given: object, path: Path) -> None:
    """Raise `BadAddress` unless Spark and tables can hold a path. An empty path, as of a variable
    that is not set, would mean this folder."""
    shown = os.fsencode(path).decode(errors="replace")
    if not str(given):
        raise BadAddress("an empty path; '.' is this folder")
    if shown != str(path) or "\0" in shown:
        raise BadAddress(f"{shown!r}: not a path in UTF-8")


def environment() -> dict[str, str]:
    """What this process was told about file systems elsewhere."""
    return {name: value for name, value in os.environ.items() if _ASKED.fullmatch(name)}


def _s3(access: Mapping[str, str]) -> Any:
    settings: dict[str, object] = {
        "connect_timeout": _SECONDS,
        "retry_strategy": fs.AwsStandardS3RetryStrategy(_TRIES),
    }
    if endpoint := access.get("AWS_ENDPOINT_URL"):
        parts = urlsplit(endpoint)
        settings |= {"endpoint_override": parts.netloc, "scheme": parts.scheme}
    for name, key in (
        ("AWS_ACCESS_KEY_ID", "access_key"),
        ("AWS_SECRET_ACCESS_KEY", "secret_key"),
        ("AWS_SESSION_TOKEN", "session_token"),
        ("AWS_REGION", "region"),
    ):
        if value := access.get(name):
            settings[key] = value
    return fs.S3FileSystem(**settings)


def _google(access: Mapping[str, str]) -> Any:
    # By default pyarrow tries for a quarter of an hour.
    settings: dict[str, object] = {"retry_time_limit": timedelta(seconds=_SECONDS)}
    if place := _emulator(access):
        parts = urlsplit(place)
        settings |= {"endpoint_override": parts.netloc, "scheme": parts.scheme, "anonymous": True}
    return fs.GcsFileSystem(**settings)


def _google_options(access: Mapping[str, str]) -> dict[str, str]:
    known = {name: value for name, value in access.items() if name.startswith("GOOGLE_")}
    if place := _emulator(access):  # as an account without a key, which is how deltalake takes it
        nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        key = {"gcs_base_url": place, "disable_oauth": True, **nobody}
        known |= {"google_service_account_key": json.dumps(key), "allow_http": "true"}
    return known


def _emulator(access: Mapping[str, str]) -> str:
    """Where an emulator of Google's storage answers; empty if none is asked for."""
    place = access.get(_EMULATOR, "").rstrip("/")
    return place if "://" in place or not place else f"http://{place}"


def _is_anonymous(access: Mapping[str, str]) -> bool:
    """Whether there are no credentials for Google but perhaps those of the machine itself."""
    usual = Path.home() / ".config" / "gcloud" / "application_default_credentials.json"
    return not access and not usual.exists()


def _has_libhdfs() -> bool:
    """Whether pyarrow would find Hadoop's library; it prints a page if it does not."""
    folders = [os.environ.get("ARROW_LIBHDFS_DIR")]
    if home := os.environ.get("HADOOP_HOME"):
        folders.append(f"{home}/lib/native")
    found = any(each and (Path(each) / _LIBHDFS).exists() for each in folders)
    return found or find_library("hdfs") is not None
