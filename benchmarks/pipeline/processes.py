"""What the processes below this one use: Spark's Java process and its Python workers."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def _stat(pid: int) -> list[str] | None:
    """The fields of Linux's process table from the third on; None for one that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def children(without: int | None = None) -> dict[int, list[str]]:
    """All processes below this one with their fields, those below `without` and itself excepted."""
    table = {int(e.name): _stat(int(e.name)) for e in os.scandir("/proc") if e.name.isdecimal()}
    below: dict[int, list[int]] = {}
    for pid, fields in table.items():
        if fields is not None:
            below.setdefault(int(fields[1]), []).append(pid)
    found: dict[int, list[str]] = {}
    waiting = [os.getpid()]
    while waiting:
        for pid in below.get(waiting.pop(), []):
            fields = table[pid]
            if pid != without and fields is not None:
                found[pid] = fields
                waiting.append(pid)
    return found


def children_cpu_seconds(without: int | None = None) -> float:
    """User and system time of them all so far, with that of their own ended children."""
    used = (sum(map(int, fields[11:15])) for fields in children(without).values())
    return sum(used) / _TICKS


def children_resident_bytes(without: int | None = None) -> int:
    """Their memory now; what they share is counted in each."""
    return sum(int(fields[21]) for fields in children(without).values()) * _PAGE
