"""A machine vanishes without a word: how soon the other end of a link at rest notices.

Two peers in one topic, each in a network namespace of its own, on a switch in a third. Nothing is
published, and view exchanges are set so far apart that the link is at rest. Then the cable of one
is pulled at the switch, so that packets to it get lost and nobody is told. Counted are the seconds
until the other peer has no link in the topic any more, the worst of some turns, each of which waits
a different time before: in some of them a ping leaves between the end of one peer and the time at
which it is noticed. The packets at rest are those that the second peer's device sent and received
meanwhile, ARP included.

Needs the rights to make namespaces; without them it says so and measures nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.peer.machine import say
from benchmarks.peer.worker import Worker

TURNS = 5
REST_S = 12.0
STEP_S = 3.73
"""So that the turns fall on different phases of all timers; the longest is 20 s."""
TOPIC = "/bench/vanished"


class NoNetworks(Exception):
    """Network namespaces cannot be made here; the text says why."""


def ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoNetworks(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Switch:
    """Two machines on a switch: namespaces whose cables can be pulled."""

    def __init__(self) -> None:
        self.hub = f"weft-switch-{os.getpid()}"
        self.spaces = [f"weft-machine{place}-{os.getpid()}" for place in (1, 2)]
        self.addresses = ["10.77.3.1", "10.77.3.2"]

    def by(self, place: int) -> list[str]:
        """What starts a command on one of the machines."""
        return ["ip", "netns", "exec", self.spaces[place]]

    def pull(self, place: int) -> None:
        ip("-n", self.hub, "link", "set", f"port{place}", "down")

    def packets(self, place: int) -> int:
        """Received and sent so far by one of the machines."""
        counts = [
            int(
                subprocess.run(
                    [*self.by(place), "cat", f"/sys/class/net/eth/statistics/{way}_packets"],
                    capture_output=True,
                    check=True,
                ).stdout
            )
            for way in ("rx", "tx")
        ]
        return sum(counts)


@contextmanager
def switch() -> Iterator[Switch]:
    if shutil.which("ip") is None:
        raise NoNetworks("there is no command 'ip' (Debian: iproute2)")
    if os.geteuid() != 0:
        raise NoNetworks("only root makes networks")
    made = Switch()
    with ExitStack() as stack:
        for space in (made.hub, *made.spaces):
            ip("netns", "add", space)
            stack.callback(ip, "netns", "del", space)
        ip("-n", made.hub, "link", "add", "hub", "type", "bridge")
        ip("-n", made.hub, "link", "set", "hub", "up")
        for place, space in enumerate(made.spaces):
            cable = ("peer", "name", "eth", "netns", space)
            ip("-n", made.hub, "link", "add", f"port{place}", "type", "veth", *cable)
            ip("-n", made.hub, "link", "set", f"port{place}", "master", "hub", "up")
            ip("-n", space, "address", "add", f"{made.addresses[place]}/24", "dev", "eth")
            for device in ("eth", "lo"):
                ip("-n", space, "link", "set", device, "up")
        yield made


def turn(rest_s: float) -> dict[str, float]:
    with switch() as made, ExitStack() as stack:
        join: list[str] = []
        workers = []
        for place, address in enumerate(made.addresses):
            arguments = [f"{address}:4001", TOPIC, *join]
            worker = Worker("vanished_worker", arguments, by=made.by(place))
            workers.append(worker)
            stack.callback(worker.kill)
            join = [worker.hear()["address"]]
        for worker in workers:
            worker.ask({"until": "linked"})
        time.sleep(rest_s / 2)
        packets, began = made.packets(1), time.monotonic()
        time.sleep(rest_s / 2)
        packets, seconds = made.packets(1) - packets, time.monotonic() - began
        made.pull(0)
        began_ns = time.monotonic_ns()
        alone_ns = workers[1].ask({"until": "alone"})["at_ns"]
    return {
        "noticed_s": (alone_ns - began_ns) / 1e9,
        "packets_per_s": packets / seconds,
    }


def measure(quick: bool) -> dict[str, Any]:
    turns = []
    try:
        for number in range(2 if quick else TURNS):
            turns.append(turn(REST_S + number * STEP_S))
            say(f"vanished: noticed after {turns[-1]['noticed_s']:.2f} s")
    except NoNetworks as why:
        say(f"vanished: skipped, {why}")
        return {"skipped": str(why)}
    return {
        "vanished_s": max(each["noticed_s"] for each in turns),
        "rest_packets_per_s": max(each["packets_per_s"] for each in turns),
        "turns": turns,
    }
