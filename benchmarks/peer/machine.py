"""What the figures were taken on, and how progress is told."""

from __future__ import annotations

import os
import platform
import ssl
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_started = time.monotonic()


def say(text: str) -> None:
    """Progress goes to stderr, so that stdout holds the result alone."""
    print(f"[{time.monotonic() - _started:6.1f}s] {text}", file=sys.stderr, flush=True)


def cache_folder() -> Path:
    """Where benchmarks keep what takes a while to make; made on first use."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "weft" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe() -> dict[str, Any]:
    """The machine and the versions, for the result."""
    versions = {"python": platform.python_version(), "openssl": ssl.OPENSSL_VERSION}
    for name in ("weft", "msgspec", "cryptography", "pyOpenSSL"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed as a package"
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "load_average": list(os.getloadavg()),
        "versions": versions,
    }


def proportional_set_kb(pid: int) -> int:
    """Memory of a process in kB; each process of a shared page counts its part (Linux's PSS)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise OSError(f"no Pss line in /proc/{pid}/smaps_rollup")


def process_cpu_seconds(pid: int) -> float:
    """User and system time of another process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
