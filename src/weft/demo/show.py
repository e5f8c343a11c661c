"""The demonstration: a swarm connects its topics, publishes events, and checks every notification.

Peers join through each other, subscribe by a workload in which neighbours share interests, and
publish from inside and outside the topics. Publishing starts when every topic is one connected
overlay, by the peers' own status. The notifications are then compared with those that should come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from weft.demo.verdict import Verdict, events_of, judge
from weft.lab.processes import Received, Status, Swarm, SwarmError
from weft.lab.progress import Phases
from weft.sim.workload import Workload, draw_workload

Beside: TypeAlias = Callable[[Swarm], AbstractAsyncContextManager[None]]
"""Makes a context that is open beside the swarm's work, such as the page."""

CONFIG: dict[str, object] = {"protocol": {"cyclon": {"cycle_ms": 1_000}}}
"""A cycle of a second in place of ten, so that a minute shows what otherwise takes longer."""
_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 30.0
"""guess: many times what weaving and the last deliveries take on a slow machine."""


@dataclass(frozen=True)
class Plan:
    """The size of a demonstration."""

    peers: int = 25
    processes: int = 4
    topics: int = 12
    events: int = 300
    seconds: int = 10  # over which the events are spread
    seed: int = 1


@dataclass
class Outcome:
    """What happened until now, or until the demonstration ended."""

    plan: Plan
    workload: Workload
    published: dict[int, tuple[int, str]] = field(default_factory=dict)  # event: when, outcome
    received: list[Received] = field(default_factory=list)
    status: dict[int, Status] = field(default_factory=dict)  # at the end of publishing
    publishing_ns: tuple[int, int] = (0, 0)  # wall clock: first event, last notification
    seconds: dict[str, float] = field(default_factory=dict)  # by phase
    complete: bool = False

    @property
    def verdict(self) -> Verdict:
        return judge(self.workload, [(peer, event) for peer, _, event, _, _ in self.received])


class Show:
    """Runs a plan; `outcome` is filled as it goes."""

    def __init__(
        self,
        plan: Plan,
        trace: Path | None,
        progress: Phases,
        beside: Beside | None = None,
    ) -> None:
        """`beside` is open from when the topics are connected until the peers leave."""
        self.plan = plan
        self.progress = progress
        self._beside = beside
        workload = draw_workload(
            plan.seed, plan.peers, plan.topics, plan.events, plan.seconds * 1_000
        )
        self.outcome = Outcome(plan, workload)
        self.swarm = Swarm(plan.peers, plan.processes, seed=plan.seed, config=CONFIG, trace=trace)

    async def run(self) -> Outcome:
        async with self.swarm:
            try:
                await self._phase("starting", self.plan.peers, self._start)
                await self._phase("subscribing", self.subscriptions, self._subscribe)
                await self._phase("weaving", self.plan.topics, self._weave)
                expected = self.outcome.verdict.expected
                async with self._beside(self.swarm) if self._beside else nullcontext():
                    await self._phase("publishing", expected, self._publish)
                self.outcome.complete = True
            finally:
                self.progress.clear()
                await self._harvest()
            await self._phase("leaving", self.plan.peers, self._leave)
        return self.outcome

    @property
    def subscriptions(self) -> int:
        return sum(len(topics) for topics in self.outcome.workload.interests)

    async def _phase(self, name: str, total: int, work: Callable[[], Awaitable[str]]) -> None:
        self.progress.begin(name, total)
        begun = time.monotonic()
        result = await work()
        self.outcome.seconds[name] = round(time.monotonic() - begun, 3)
        self.progress.end(result)

    # --- the phases ---------------------------------------------------------------------------

    async def _start(self) -> str:
        """Open a few peers first, then the rest through them: each joins by an earlier one."""
        there = 0
        while there < self.plan.peers:
            more = min(self.plan.peers, max(1, there * 3))
            await self.swarm.open(there, more)
            there = more
            self.progress.update(there)
        await self._until(
            lambda status: [not peer["isolated"] for peer in status.values()],
            "peers joined",
        )
        return f"{self.plan.peers} peers in {self.swarm.processes} processes"

    async def _subscribe(self) -> str:
        interests = self.outcome.workload.interests
        await self.swarm.subscribe(dict(enumerate(interests)), record=True)
        return f"{self.subscriptions} subscriptions to {self.plan.topics} topics"

    async def _weave(self) -> str:
        members = self.outcome.workload.subscribers()
        await self._until(
            lambda status: [woven(topic, group, status) for topic, group in members.items()],
            "topics connected",
        )
        return f"every topic is one connected overlay of its {self.subscriptions} members"

    async def _publish(self) -> str:
        start_ns = time.monotonic_ns() + 50_000_000
        first = time.time_ns()
        self.outcome.publishing_ns = (first, first + 3600 * 10**9)  # until it is over
        parts: list[list[list[object]]] = [[] for _ in self.swarm.workers]
        for event in self.outcome.workload.publications:
            row: list[object] = [event.at_ms, event.peer, event.topic, event.payload.decode()]
            parts[event.peer % self.swarm.processes].append(row)
        await asyncio.gather(
            *(
                worker.ask("play", start_ns=start_ns, publications=part)
                for worker, part in zip(self.swarm.workers, parts, strict=True)
            )
        )
        expected = self.outcome.verdict.expected
        give_up = time.monotonic() + self.plan.seconds + _PATIENCE_SECONDS
        while time.monotonic() < give_up:
            counts = await self.swarm.ask_all("progress")
            received = sum(count["received"] for count in counts)
            waiting = sum(count["waiting"] for count in counts)
            self.progress.update(received, "notifications")
            if received >= expected and not waiting:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        self.outcome.publishing_ns = (first, time.time_ns())
        self.outcome.status = await self.swarm.status()
        return f"{self.plan.events} events, {received} of {expected} notifications"

    async def _leave(self) -> str:
        left = sum(await self.swarm.ask_all("close"))
        return f"{left} peers left"

    async def _harvest(self) -> None:
        """Fetch the events published and received; of a run that broke off, those so far."""
        parts = await asyncio.gather(
            *(worker.ask("harvest") for worker in self.swarm.workers),
            return_exceptions=not self.outcome.complete,
        )
        for part in parts:
            if isinstance(part, BaseException):
                continue  # a worker that died is the reason why we are here
            for event, when_ns, outcome in part["published"]:
                self.outcome.published[event] = (when_ns, outcome)
            self.outcome.received += [tuple(row) for row in part["received"]]

    async def _until(self, holds: Callable[[Mapping[int, Status]], list[bool]], what: str) -> None:
        """Look at all peers until all values of `holds` are true, or patience ends."""
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while True:
            found = holds(await self.swarm.status())
            self.progress.update(sum(found), what)
            if all(found):
                return
            if time.monotonic() > give_up:
                raise SwarmError(f"only {sum(found)} of {len(found)} {what} in time")
            await asyncio.sleep(_LOOK_SECONDS)


def woven(topic: str, group: list[int], status: Mapping[int, Status]) -> bool:
    """Whether a topic's subscribers are in one overlay and reach each other over its links."""
    mine = {status[index]["peer"]: status[index]["topics"].get(topic) for index in group}
    if any(state is None for state in mine.values()):
        return False
    if len({state["overlay"] for state in mine.values()}) > 1:
        return False
    reached = {next(iter(mine))}
    frontier = list(reached)
    while frontier:
        for linked in mine[frontier.pop()]["links"]:
            if linked in mine and linked not in reached:
                reached.add(linked)
                frontier.append(linked)
    return len(reached) == len(mine)


def latencies_ms(outcome: Outcome) -> tuple[list[float], list[float]]:
    """Times from publish to notification at other peers: of events that a subscriber published, and
    of the others. The monotonic clock is the same in all processes of a machine."""
    events, subscribers = events_of(outcome.workload), outcome.workload.subscribers()
    parts: tuple[list[float], list[float]] = ([], [])
    for peer, _, event, received_ns, _ in outcome.received:
        publication = events[event]
        if event in outcome.published and peer != publication.peer:
            outside = publication.peer not in subscribers[publication.topic]
            parts[outside].append((received_ns - outcome.published[event][0]) / 1e6)
    return parts
