"""The page with 500 peers: how long its main thread takes from a message to the painted frame, and
how much memory the browser has for it.

    weft bench page [--peers 500] [--seconds 20] [--json]

A made-up network is shown, so that only the page is measured: every peer knows 20 others, has 6
links in a topic, views change each second, and each second 50 events reach all. The browser's own
timeline has the times (`performance.measure` around each message); its memory is the resident set
of the tab's process, as the system tells it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.browser import MISSING, Tab, browser, chromium

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


async def _cpu_ms(tab: Tab) -> float:
    """What the page's main thread has computed so far; unlike the times, it does not depend on
    what else the machine does."""
    found = (await tab.call("Performance.getMetrics"))["metrics"]
    return 1_000 * next(one["value"] for one in found if one["name"] == "TaskDuration")


async def measure(peers: int, seconds: float, picture: Path | None) -> dict[str, float]:
    async with (
        weft.Peer.open(store=MemoryStore()) as speaker,
        Web(Painted(speaker, peers), "127.0.0.1:0") as web,
        browser() as tab,
    ):
        await tab.open(web.url)
        await tab.until("document.querySelectorAll('#peer option').length > 2")
        await tab.call("Performance.enable", timeDomain="threadTicks")
        before = await _cpu_ms(tab)
        await tab.ask("performance.clearMeasures()")
        await asyncio.sleep(seconds)
        spent = await _cpu_ms(tab) - before
        found = await tab.ask(
            "JSON.stringify(performance.getEntriesByType('measure').map(e => e.duration))"
        )
        times = sorted(json.loads(found))
        heap = await tab.ask("performance.memory.usedJSHeapSize")
        if picture is not None:
            await tab.screenshot(picture)
        return {
            "peers": peers,
            "messages": len(times),
            "p50_ms": round(times[len(times) // 2], 1),
            "p95_ms": round(times[len(times) * 95 // 100], 1),
            "max_ms": round(times[-1], 1),
            "cpu_ms_per_message": round(spent / len(times), 1),
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
    found["p95_ms_max"], found["resident_mb_max"] = P95_MS_MAX, MEGABYTES_MAX
    if args.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name:<16} {value}" for name, value in found.items()))
    return int(found["p95_ms"] > P95_MS_MAX or found["resident_mb"] > MEGABYTES_MAX)
