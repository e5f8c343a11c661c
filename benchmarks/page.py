"""The page with 500 peers: how long its main thread takes from a message to the painted frame, and
how much memory the browser has for it.

    weft bench page [--peers 500] [--seconds 20] [--json]

A made-up network is shown, so that only the page is measured: every peer knows 20 others, has 6
links in a topic, views change each second, and each second 50 events reach all. The page marks each
message from its arrival until the frame after it is painted (`performance.measure`). The browser's
own timeline tells what the main thread computed in between, by the thread's clock (`main_…_ms`,
which is judged), so that the figure is the page's and not that of what else the machine does; the
time that passed is beside it (`wall_…_ms`). Memory is the resident set of the tab's process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.browser import MISSING, browser, chromium

import weft
from weft.lab.census import Sight
from weft.lab.processes import Status
from weft.sim.dice import Dice
from weft.store.memory import MemoryStore
from weft.web.server import Web
from weft.web.source import Passing

TOPICS = ("/chat", "/sports/football", "/sports/tennis", "/news")
P95_MS_MAX = 100.0
MEGABYTES_MAX = 300.0


class Painted:
    """A network that is only drawn."""

    def __init__(self, speaker: weft.Peer, peers: int) -> None:
        self.speaker = speaker
        self._names = [speaker.id, *(f"12D3KooWpage{number:08}" for number in range(1, peers))]
        self._dice = Dice(7)
        self._round = 0

    def _others(self, name: str, number: int, many: int) -> list[str]:
        below = self._dice.below
        return [self._names[below(name, len(self._names), number * 64 + n)] for n in range(many)]

    async def sights(self) -> list[Sight]:
        self._round += 1
        return [self._sight(number, name) for number, name in enumerate(self._names)]

    def _sight(self, number: int, name: str) -> Sight:
        topics = [topic for place, topic in enumerate(TOPICS) if (number + place) % 2 == 0]
        return {
            "peer": name,
            "isolated": False,
            "connections": 26,
            "view": self._others(f"view.{self._round}", number, 20),
            "links": {topic: self._others(topic, number, 6) for topic in topics},
            "delivered": self._round * 50,
            "frames": self._round * 75,
            "bytes": self._round * 20_000,
            "dropped": 0,
        }

    async def flow(self) -> list[Passing]:
        return [
            (name, TOPICS[event % 4], f"{self._round}-{event}", 1 + number % 5)
            for event in range(10)
            for number, name in enumerate(self._names)
        ]

    async def status_of(self, peer: str) -> Status | None:
        return None


def resident_megabytes(browser: int) -> float:
    """The largest resident set among the browser's processes that draw pages."""
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status = (entry / "status").read_text()
            parents[int(entry.name)] = int(status.partition("PPid:")[2].split()[0])
            if b"--type=renderer" in (entry / "cmdline").read_bytes():
                sizes[int(entry.name)] = int(status.partition("VmRSS:")[2].split()[0])
        except (OSError, IndexError):
            continue  # it has ended meanwhile

    def descends(process: int) -> bool:
        return process == browser or (process in parents and descends(parents[process]))

    return max((size for process, size in sizes.items() if descends(process)), default=0) / 1024


class Message(NamedTuple):
    """From the arrival of a message to the painted frame."""

    wall_ms: float
    main_ms: float  # computed by the main thread meanwhile


def messages_in(trace: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The page's messages in a timeline of the browser. A task counts as far as it lies between
    arrival and paint."""
    marks = sorted(
        (one for one in trace if one["name"].startswith("weft-")),
        key=lambda one: (one["ts"], one["ph"]),
    )
    if not marks:
        return []
    page = marks[0]["pid"]
    [thread] = {
        one["tid"]
        for one in trace
        if one["name"] == "thread_name"
        and one["pid"] == page
        and one["args"]["name"] == "CrRendererMain"
    }
    tasks = [
        (one["ts"], one["ts"] + one["dur"], one.get("tdur", 0))
        for one in trace
        if one["name"] == "ThreadControllerImpl::RunTask"
        and "dur" in one  # unlike one that was under way at the end
        and (one["pid"], one["tid"]) == (page, thread)
    ]
    begun: dict[object, list[float]] = {}
    found = []
    for mark in marks:
        key = (mark["name"], mark["id2"]["local"])
        if mark["ph"] == "b":
            begun.setdefault(key, []).append(mark["ts"])
        elif begun.get(key):
            since, until = begun[key].pop(0), mark["ts"]
            main = sum(
                spent * (min(end, until) - max(start, since)) / max(1, end - start)
                for start, end, spent in tasks
                if start < until and end > since
            )
            found.append(Message((until - since) / 1_000, main / 1_000))
    return found


def _quantiles(name: str, times: Sequence[float]) -> dict[str, float]:
    ordered = sorted(times)
    places = {"p50": len(ordered) // 2, "p95": len(ordered) * 95 // 100, "max": -1}
    return {f"{name}_{each}_ms": round(ordered[place], 1) for each, place in places.items()}


async def measure(peers: int, seconds: float, picture: Path | None) -> dict[str, float]:
    async with (
        weft.Peer.open(store=MemoryStore()) as speaker,
        Web(Painted(speaker, peers), "127.0.0.1:0") as web,
        browser() as tab,
    ):
        await tab.open(web.url)
        await tab.until("document.querySelectorAll('#peer option').length > 2")
        messages = messages_in(await tab.traced(seconds))
        heap = await tab.ask("performance.memory.usedJSHeapSize")
        if picture is not None:
            await tab.screenshot(picture)
        return {
            "peers": peers,
            "messages": len(messages),
            **_quantiles("main", [one.main_ms for one in messages]),
            **_quantiles("wall", [one.wall_ms for one in messages]),
            "resident_mb": round(resident_megabytes(tab.process), 1),
            "heap_mb": round(heap / 1e6, 1),
        }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("weft bench page")
    parser.add_argument("--peers", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="save a screenshot")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    if not chromium():
        print(f"weft: {MISSING}", file=sys.stderr)
        return 1
    found = asyncio.run(measure(args.peers, args.seconds, args.picture))
    found["main_p95_ms_max"], found["resident_mb_max"] = P95_MS_MAX, MEGABYTES_MAX
    if args.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name:<16} {value}" for name, value in found.items()))
    return int(found["main_p95_ms"] > P95_MS_MAX or found["resident_mb"] > MEGABYTES_MAX)
