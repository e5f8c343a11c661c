"""A swarm of peers spread over processes on this machine, all on loopback.

Starts the workers (`weft.demo.worker`), lets every peer join through one that is already there,
and passes requests on. Used as a context manager: on the way out the peers leave, and a worker
that does not end in time is killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

from weft.demo.worker import LINE_BYTES_MAX
from weft.net.errors import WeftError
from weft.sim.dice import Dice

LEAVE_SECONDS_MAX = 10.0
"""guess: longer than a peer takes to flush everything when it closes."""


class SwarmError(WeftError):
    """A worker failed or died; the text is the worker's."""


class Worker:
    """The near end of one worker process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls) -> Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "weft.demo.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        return cls(process)

    async def ask(self, op: str, **fields: object) -> Any:
        """Send a request and wait for its answer."""
        if self._reader.done():
            raise self._gone()
        number = next(self._ids)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        line = json.dumps({"id": number, "op": op, **fields}).encode() + b"\n"
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        return await answer

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            reply = json.loads(line)
            answer = self._waiting.pop(reply["id"])
            if answer.done():
                continue  # whoever asked has given up
            if "error" in reply:
                answer.set_exception(SwarmError(reply["error"]))
            else:
                answer.set_result(reply["value"])
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._gone())

    def _gone(self) -> SwarmError:
        return SwarmError(f"a process of the swarm (pid {self.process.pid}) ended unexpectedly")

    async def stop(self) -> None:
        """Close the pipe, at which the worker leaves; kill it if it does not."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), LEAVE_SECONDS_MAX)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        await self._reader


class Swarm:
    """`peers` peers over `processes` processes; peer i lives in worker i mod processes."""

    def __init__(
        self,
        peers: int,
        processes: int,
        *,
        seed: int = 0,
        config: Mapping[str, object] | None = None,
        join: Sequence[str] = (),
        trace: Path | None = None,
    ) -> None:
        self.peers = peers
        self.processes = min(peers, processes)
        self.addresses: list[str] = [""] * peers
        self._dice = Dice(seed)
        self._config = dict(config or {})
        self._join = list(join)
        self._trace = trace
        self.workers: list[Worker] = []

    async def __aenter__(self) -> Swarm:
        try:
            for _ in range(self.processes):
                self.workers.append(await Worker.start())
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self.workers))

    def trace_file(self, index: int) -> Path | None:
        return self._trace / f"peer-{index:03}.jsonl" if self._trace else None

    async def open(self, first: int, last: int) -> None:
        """Start peers first … last−1; each joins through one that was there before."""
        entries: list[list[dict[str, object]]] = [[] for _ in self.workers]
        for index in range(first, last):
            trace = self.trace_file(index)
            entries[index % self.processes].append(
                {
                    "index": index,
                    "join": self._entrance(first, index),
                    "trace": str(trace) if trace else None,
                }
            )
        for addresses in await asyncio.gather(
            *(
                worker.ask("open", peers=mine, config=self._config)
                for worker, mine in zip(self.workers, entries, strict=True)
                if mine
            )
        ):
            for index, address in addresses.items():
                self.addresses[int(index)] = address

    def _entrance(self, there: int, index: int) -> list[str]:
        if not there:
            return self._join
        return [self.addresses[self._dice.below("swarm.join", there, index)]]

    async def ask_all(self, op: str, **fields: object) -> list[Any]:
        """The same request to all workers."""
        return await asyncio.gather(*(worker.ask(op, **fields) for worker in self.workers))

    async def subscribe(
        self, interests: Mapping[int, Sequence[str]], *, record: bool = False
    ) -> None:
        """Subscribe peers (by number) to topics; returns when all have joined. With `record`, the
        workers remember every notification of a workload's events."""
        await asyncio.gather(
            *(
                worker.ask(
                    "subscribe",
                    record=record,
                    topics={
                        index: list(topics)
                        for index, topics in interests.items()
                        if index % self.processes == number
                    },
                )
                for number, worker in enumerate(self.workers)
            )
        )

    async def status(self) -> dict[int, dict[str, Any]]:
        """The status of every peer, by number."""
        found: dict[int, dict[str, Any]] = {}
        for part in await self.ask_all("status"):
            found.update({int(index): status for index, status in part.items()})
        return dict(sorted(found.items()))
