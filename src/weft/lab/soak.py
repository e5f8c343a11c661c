"""A soak: a swarm with stores, left alone for hours with publishing, churn and kills.

What a test of a minute does not show is what grows: memory, file handles, stores, and events that
fail to arrive once everything has been killed a few times. Every few seconds a sample of these is
written to `samples.jsonl`; `draw` makes `soak.svg` of them, `verdict` says what is wrong.

Delivery counts what is promised: an event must reach every peer that was subscribed and up from
well before it was published until well after. Peers that come and go in between are not counted.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from weft.lab.processes import Swarm, SwarmError
from weft.sim.dice import Dice

EVERY_S = 5.0
"""guess: between two samples."""
RATE = 5.0
"""guess: events published a second, so that a store grows by some megabytes an hour."""
CHURN_S = 20.0
"""guess: between two peers that leave and come back."""
KILL_S = 120.0
"""guess: between two kills of a process with all its peers."""
AWAY_S = 5.0
SETTLED_S = 30.0
"""guess: a peer counts once it has been up for so long, and an event is judged so long after it was
published."""
GROWTH_MAX = 1.5
"""guess: how much more memory the second half may take than the first, at most."""
DELIVERY_MIN = 0.999
"""guess: a kill may take an event with it that no other peer had yet."""


class Sample(TypedDict):
    """The swarm at one moment."""

    seconds: float
    up: int
    published: int
    ratio: float | None  # of deliveries that were promised, of the events judged since the last
    expected: int
    megabytes: float  # resident, all processes
    handles: int  # open files and sockets, all processes
    store_megabytes: float  # on disk, all peers
    kills: int


class Soak:
    """One run."""

    def __init__(
        self,
        peers: int,
        processes: int,
        topics: Sequence[str],
        config: Mapping[str, object],
        out: Path,
    ) -> None:
        self._out = out
        self._topics = list(topics)
        self._homes = out / "homes"
        self._dice = Dice(1)
        shutil.rmtree(out, ignore_errors=True)
        self._homes.mkdir(parents=True)
        self._swarm = Swarm(peers, processes, seed=1, config=config, homes=self._homes)
        self._up: dict[int, float] = {}  # since when
        self._down: dict[int, float] = {}  # when it went last
        self._events: dict[int, tuple[float, int]] = {}  # number: when, publisher
        self._reached: dict[int, set[int]] = {}
        self._number = 0
        self._kills = 0
        self._busy = asyncio.Lock()

    async def run(self, seconds: float) -> None:
        async with self._swarm:
            await self._swarm.open(0, 1)
            await self._swarm.open(1, self._swarm.peers)
            await self._settle(range(self._swarm.peers))
            end = time.monotonic() + seconds
            work = [
                asyncio.create_task(each)
                for each in (
                    self._repeat(1 / RATE, self._publish),
                    self._repeat(CHURN_S, self._churn),
                    self._repeat(KILL_S, self._kill),
                )
            ]
            try:
                while time.monotonic() < end:
                    await asyncio.sleep(EVERY_S)
                    await self._sample(end - seconds)
                    for task in work:
                        if task.done():
                            task.result()
            finally:
                for task in work:
                    task.cancel()
                await asyncio.gather(*work, return_exceptions=True)

    async def _repeat(self, every_s: float, work: object) -> None:
        assert callable(work)
        while True:
            await asyncio.sleep(every_s)
            try:
                await work()
            except SwarmError:
                continue  # asked a process that was killed meanwhile

    async def _settle(self, back: Sequence[int]) -> None:
        await self._swarm.subscribe(dict.fromkeys(back, self._topics), record=True)
        self._up.update(dict.fromkeys(back, time.monotonic()))

    # --- what happens to it -----------------------------------------------------------------------

    async def _publish(self) -> None:
        if not self._up:
            return
        self._number += 1
        number, up = self._number, sorted(self._up)
        peer = up[self._dice.below("soak.publisher", len(up), number)]
        topic = self._topics[self._dice.below("soak.topic", len(self._topics), number)]
        row = [0, peer, topic, f"event {number} " + "x" * 200]
        worker = self._swarm.workers[peer % self._swarm.processes]
        await worker.ask("play", start_ns=time.monotonic_ns(), publications=[row])
        self._events[number] = (time.monotonic(), peer)

    async def _churn(self) -> None:
        async with self._busy:
            up = sorted(self._up)
            peer = up[self._dice.below("soak.churn", len(up), self._number)]
            self._gone([peer])
            await self._swarm.leave([peer])
            await asyncio.sleep(AWAY_S)
            await self._swarm.open_again([peer], sorted(self._up))
            await self._settle([peer])

    async def _kill(self) -> None:
        async with self._busy:
            number = self._dice.below("soak.kill", self._swarm.processes, self._kills)
            dead = [peer for peer in sorted(self._up) if peer % self._swarm.processes == number]
            self._gone(dead)
            self._kills += 1
            await self._swarm.kill(number)
            await asyncio.sleep(AWAY_S)
            await self._swarm.open_again(dead, sorted(self._up))
            await self._settle(dead)

    def _gone(self, peers: Sequence[int]) -> None:
        for peer in peers:
            del self._up[peer]
            self._down[peer] = time.monotonic()

    # --- what is seen of it -----------------------------------------------------------------------

    async def _sample(self, begun: float) -> None:
        for worker in list(self._swarm.workers):
            try:
                found = await worker.ask("drain")
            except SwarmError:
                continue  # killed; its peers do not count for these events
            for peer, _, number, _, _ in found["received"]:
                self._reached.setdefault(number, set()).add(peer)
        expected, reached = self._judge(time.monotonic())
        processes = [worker.process.pid for worker in self._swarm.workers]
        stores = sum(path.stat().st_size for path in self._homes.glob("*/store.db*"))
        sample: Sample = {
            "seconds": round(time.monotonic() - begun, 1),
            "up": len(self._up),
            "published": self._number,
            "ratio": reached / expected if expected else None,
            "expected": expected,
            "megabytes": round(sum(map(_resident_kb, processes)) / 1024, 1),
            "handles": sum(map(_handles, processes)),
            "store_megabytes": round(stores / 1e6, 2),
            "kills": self._kills,
        }
        with (self._out / "samples.jsonl").open("a") as file:
            file.write(json.dumps(sample) + "\n")

    def _judge(self, now: float) -> tuple[int, int]:
        """Deliveries promised and seen, of events that are old enough; these are forgotten."""
        expected = reached = 0
        for number, (when, _) in list(self._events.items()):
            if now - when < SETTLED_S:
                continue
            got = self._reached.pop(number, set())
            del self._events[number]
            for peer, since in self._up.items():
                if since < when - SETTLED_S and self._down.get(peer, 0.0) < when:
                    expected += 1
                    reached += peer in got
        return expected, reached


def _resident_kb(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])
    except (OSError, IndexError):
        return 0


def _handles(process: int) -> int:
    try:
        return len(list(Path(f"/proc/{process}/fd").iterdir()))
    except OSError:
        return 0


def samples(out: Path) -> list[Sample]:
    try:
        lines = (out / "samples.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def verdict(out: Path) -> list[str]:
    """What is wrong with a run; nothing if it is as it should be."""
    found = samples(out)
    if not found:
        return ["the run was too short for a sample"]
    expected = sum(one["expected"] for one in found)
    reached = sum(one["expected"] * (one["ratio"] or 0.0) for one in found)
    problems = []
    if expected and reached < DELIVERY_MIN * expected:
        problems.append(f"{reached:.0f} of {expected} promised deliveries were seen")
    half = len(found) // 2
    for name in ("megabytes", "handles"):
        first, second = (
            sum(float(one[name]) for one in part) / max(1, len(part))
            for part in (found[half // 2 : half], found[half:])
        )
        if first and second > GROWTH_MAX * first:
            problems.append(f"{name} went from {first:.0f} to {second:.0f}")
    return problems


def draw(out: Path) -> Path:
    """The run as a picture: memory, handles, stores and delivery over time."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (an extra)

    found = samples(out)
    minutes = [one["seconds"] / 60 for one in found]
    figure = Figure(figsize=(9, 8), layout="constrained")
    panels = figure.subplots(4, 1, sharex=True)
    rows = (
        ("memory of all processes, MB", [one["megabytes"] for one in found]),
        ("open files and sockets", [one["handles"] for one in found]),
        ("stores on disk, MB", [one["store_megabytes"] for one in found]),
        (
            "promised deliveries seen, %",
            [100 * one["ratio"] if one["ratio"] is not None else float("nan") for one in found],
        ),
    )
    killed = [
        minutes[place]
        for place in range(1, len(found))
        if found[place]["kills"] > found[place - 1]["kills"]
    ]
    for panel, (title, values) in zip(panels, rows, strict=True):
        panel.plot(minutes, values, color="#0072B2", linewidth=1.4)
        panel.set_title(title, loc="left", fontsize=10)
        panel.grid(color="#e6e6e6", linewidth=0.7)
        panel.set_ylim(bottom=0)
        for moment in killed:
            panel.axvline(moment, color="#D55E00", linewidth=0.6, alpha=0.6)
    panels[3].set_ylim(0, 105)
    panels[3].set_xlabel("minutes (a line: a process with all its peers was killed)")
    target = out / "soak.svg"
    figure.savefig(target, metadata={"Date": None})
    return target
