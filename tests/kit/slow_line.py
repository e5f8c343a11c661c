"""A line between two network namespaces that takes its time: a program, for kernels without netem.

    slow_line.py DELAY_MS SPACE DEVICE SPACE DEVICE

makes a device in each of the two spaces, says so, and carries every packet that goes into one of
them to the other, late by the delay and up to a fifth of it more or less, as netem's jitter: a
packet may overtake another. The kernels' own TCP runs over it. Ends when it is terminated.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import select
import struct
import sys
import time
from heapq import heappop, heappush

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
_CLONE_NEWNET = 0x40000000  # linux/sched.h
_PACKET_BYTES_MAX = 65_536


def device(space: str, name: str) -> int:
    """A new device, whose packets this process reads and writes."""
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns came with Python 3.12
    handle = os.open(f"/run/netns/{space}", os.O_RDONLY)
    if libc.setns(handle, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter {space}")
    os.close(handle)
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return tun


def carry(ends: tuple[int, int], delay_s: float) -> None:
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    draws = random.Random(1)
    under_way: list[tuple[float, int, int, bytes]] = []  # when it arrives, its number, where
    number = 0
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        for end in select.select(ends, [], [], wait)[0]:
            packet = os.read(end, _PACKET_BYTES_MAX)
            number += 1
            arrives = time.monotonic() + delay_s * draws.uniform(0.8, 1.2)
            heappush(under_way, (arrives, number, other[end], packet))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, end, packet = heappop(under_way)
            os.write(end, packet)


if __name__ == "__main__":
    delay_ms, *places = sys.argv[1:]
    try:
        made = (device(*places[:2]), device(*places[2:]))
    except OSError as problem:
        print(problem, flush=True)
        sys.exit(1)
    print("ready", flush=True)
    carry(made, int(delay_ms) / 1_000)
