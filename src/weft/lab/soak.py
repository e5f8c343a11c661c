"""A soak: a swarm with stores, left alone for hours with publishing, churn and kills.

What a test of a minute does not show is what grows: memory, file handles, stores, and events that
fail to arrive once everything has been killed a few times. Every few seconds a sample of these is
written to `samples.jsonl`; `draw` makes `soak.svg` of them, `verdict` says what is wrong. The first
process is never killed (its peers leave and come back like others), because what grows slowly is
seen only in a process that grows old.

Delivery counts what is promised: from the moment that the publisher's receipt is here ("sent" or
"taken"), the event is in the publisher's store and must reach every peer that was subscribed and
up from well before it was published until it is judged. So must an event whose publisher is killed
right after the receipt: it comes out of the store once that peer is back. Peers that come and go
in between are not counted, nor events whose publisher died, or left, before there was a receipt.
What comes within half a minute is in time, later it is late, and what has not come after ten
minutes is missing; a run goes on for that long to learn it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

from weft.bounded import BoundedDict
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
"""guess: a peer counts once it has been up for so long, and an event is in time for so long after
its receipt."""
LOST_S = 600.0
"""guess: an event that has not come then will not come."""
LATE_MAX = 0.001
"""guess: the share of all promised deliveries that may be late; a machine that leaves peers without
a processor for many seconds makes more of them late."""
GROWTH_MAX = 1.5
"""guess: how many times as much memory the second half may take as the first, at most."""

_ON_THE_WAY = ("sent", "taken")
"""Outcomes of a publish that promise something."""
_REACHED_MAX = 10_000
"""guess: events whose deliveries are remembered, half an hour of them."""
_OLDEST = 0
"""The process that is never killed."""
_WATCHED: Mapping[Literal["megabytes", "oldest_megabytes", "handles"], str] = {
    "megabytes": "memory of all processes, MB",
    "oldest_megabytes": "memory of the process never killed, MB",
    "handles": "open files and sockets",
}
"""The figures of a sample that may not grow, in words."""


class Sample(TypedDict):
    """The swarm at one moment."""

    seconds: float
    up: int
    published: int
    expected: int  # deliveries that were promised, of the events judged since the last sample
    late: int  # of these, not within half a minute
    missing: int  # of all that were late, given up since the last sample
    megabytes: float  # resident, all processes
    oldest_megabytes: float  # of these, the process that is never killed
    handles: int  # open files and sockets, all processes
    store_megabytes: float  # on disk, all peers
    kills: int


class Soak:
    """A swarm under faults for hours: what it delivered, and what it held at each sample."""

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
        self._promised: dict[int, float] = {}  # events with a receipt, and when it was given
        self._late: dict[int, tuple[float, set[int]]] = {}  # since when, and which peers lack it
        self._reached: BoundedDict[int, set[int]] = BoundedDict(_REACHED_MAX)
        self._publishing: set[asyncio.Task[None]] = set()
        self._number = 0
        self._kills = 0
        self._busy = asyncio.Lock()

    async def run(self, seconds: float) -> None:
        async with self._swarm:
            await self._swarm.open(0, 1)
            await self._swarm.open(1, self._swarm.peers)
            await self._settle(range(self._swarm.peers))
            begun = time.monotonic()
            work = [
                asyncio.create_task(_repeat(every_s, do))
                for every_s, do in (
                    (1 / RATE, self._publish),
                    (CHURN_S, self._churn),
                    (KILL_S, self._kill),
                )
            ]
            try:
                while time.monotonic() < begun + seconds:
                    await asyncio.sleep(EVERY_S)
                    await self._sample(begun)
                    for task in work:
                        if task.done():
                            task.result()
            finally:
                for task in (*work, *self._publishing):
                    task.cancel()
                await asyncio.gather(*work, *self._publishing, return_exceptions=True)
            while self._late:
                await asyncio.sleep(EVERY_S)
                await self._sample(begun)

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
        publishing = asyncio.create_task(self._publish_by(peer, topic, number))
        self._publishing.add(publishing)
        publishing.add_done_callback(self._publishing.discard)

    async def _publish_by(self, peer: int, topic: str, number: int) -> None:
        payload = f"event {number} " + "x" * 200
        try:
            outcome = await self._swarm.publish(peer, topic, payload)
        except SwarmError:
            return  # its process was killed before there was a receipt, or the peer has left
        if outcome in _ON_THE_WAY:
            self._promised[number] = time.monotonic()

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
            others = [n for n in range(self._swarm.processes) if n != _OLDEST]
            number = others[self._dice.below("soak.kill", len(others), self._kills)]
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

    # --- what is seen of it -----------------------------------------------------------------------

    async def _sample(self, begun: float) -> None:
        for worker in list(self._swarm.workers):
            try:
                found = await worker.ask("drain")
            except SwarmError:
                continue  # killed; its peers do not count for these events
            for peer, _, number, _, _ in found["received"]:
                self._reached.setdefault(number, set()).add(peer)
        now = time.monotonic()
        expected, late = self._judge(now)
        processes = [worker.process.pid for worker in self._swarm.workers]
        stores = sum(map(_size, self._homes.glob("*/store.db*")))
        sample: Sample = {
            "seconds": round(time.monotonic() - begun, 1),
            "up": len(self._up),
            "published": self._number,
            "expected": expected,
            "late": late,
            "missing": self._give_up(now),
            "megabytes": round(sum(map(_resident_kb, processes)) / 1024, 1),
            "oldest_megabytes": round(_resident_kb(processes[_OLDEST]) / 1024, 1),
            "handles": sum(map(_handles, processes)),
            "store_megabytes": round(stores / 1e6, 2),
            "kills": self._kills,
        }
        with (self._out / "samples.jsonl").open("a") as file:
            file.write(json.dumps(sample) + "\n")

    def _judge(self, now: float) -> tuple[int, int]:
        """Deliveries promised and late, of events that are old enough."""
        expected = late = 0
        for number, when in list(self._promised.items()):
            if now - when < SETTLED_S:
                continue
            del self._promised[number]
            there = {peer for peer, since in self._up.items() if since < when - SETTLED_S}
            lacking = there - self._reached.get(number, set())
            expected += len(there)
            late += len(lacking)
            if lacking:
                self._late[number] = (when, lacking)
        return expected, late

    def _give_up(self, now: float) -> int:
        """Late deliveries that are not waited for any more. A peer that went meanwhile reads what
        it lacks when it is back, and is not counted."""
        missing = 0
        for number, (when, lacking) in list(self._late.items()):
            there = {peer for peer in lacking if self._up.get(peer, now) < when}
            left = there - self._reached.get(number, set())
            if left and now - when < LOST_S:
                self._late[number] = (when, left)
                continue
            del self._late[number]
            missing += len(left)
            if left:
                with (self._out / "missing.jsonl").open("a") as file:
                    file.write(json.dumps({"event": number, "peers": sorted(left)}) + "\n")
        return missing


async def _repeat(every_s: float, do: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(every_s)
        await do()


def _resident_kb(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])
    except (OSError, IndexError):
        return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # a log beside a store that was closed meanwhile
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
    missing = sum(one["missing"] for one in found)
    problems = []
    late = sum(one["late"] for one in found)
    if missing:
        problems.append(f"{missing} of {expected} promised deliveries are missing")
    if late > LATE_MAX * expected:
        problems.append(f"{late} of {expected} promised deliveries took more than {SETTLED_S:g} s")
    half = len(found) // 2
    for name, words in _WATCHED.items():
        first, second = (
            sum(float(one[name]) for one in part) / max(1, len(part))
            for part in (found[half // 2 : half], found[half:])
        )
        if first and second > GROWTH_MAX * first:
            problems.append(f"{words}: {first:.0f} at first, {second:.0f} in the second half")
    return problems


def summary(out: Path) -> str:
    """What a run did, in a line."""
    found = samples(out)
    owed, late, missing = (
        sum(one[name] for one in found) for name in ("expected", "late", "missing")
    )
    published, kills = (found[-1]["published"], found[-1]["kills"]) if found else (0, 0)
    return (
        f"weft: {published} events, {owed} promised deliveries looked at, {late} of them late, "
        f"{missing} missing; {kills} kills"
    )


def draw(out: Path) -> Path:
    """The run as a picture: memory, handles, stores and delivery over time."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (an extra)

    found = samples(out)
    minutes = [one["seconds"] / 60 for one in found]
    figure = Figure(figsize=(9, 9), layout="constrained")
    panels = figure.subplots(5, 1, sharex=True)
    rows = (
        *((words, [float(one[name]) for one in found]) for name, words in _WATCHED.items()),
        ("stores on disk, MB", [one["store_megabytes"] for one in found]),
        (
            f"promised deliveries within {SETTLED_S:g} s, %",
            [
                100 * (1 - one["late"] / one["expected"]) if one["expected"] else float("nan")
                for one in found
            ],
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
    panels[-1].set_ylim(0, 105)
    panels[-1].set_xlabel("minutes (a red line: a process was killed with all its peers)")
    target = out / "soak.svg"
    figure.savefig(target, metadata={"Date": None})
    return target
