"""A process that hosts some peers and does what the swarm tells it.

One JSON object per line: a request on stdin (`{"id": 7, "op": "open", ...}`), its answer on
stdout (`{"id": 7, "value": ...}` or `{"id": 7, "error": "..."}`). Requests run at the same time;
answers come as they are ready. When stdin ends, for whatever reason, the peers leave and the
process ends, so a swarm whose owner died does not linger. Ctrl-C in a terminal reaches every
process of the group; a worker ignores it and waits for its owner's word.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import weft
from weft.demo.verdict import event_number
from weft.net import config as toml

Request = dict[str, Any]
LINE_BYTES_MAX = 256 << 20
"""guess: a harvest of some hundred thousand notifications."""


class Host:
    """The peers of this process, by their number in the swarm."""

    def __init__(self) -> None:
        self.peers: dict[int, weft.Peer] = {}
        self.published: list[tuple[int, int, str]] = []  # event, when (ns), outcome
        self.received: list[tuple[int, str, int, int, int]] = []  # peer, topic, event, ns, hops
        self._tasks: set[asyncio.Task[None]] = set()
        self._unpublished = 0
        self.operations: dict[str, Callable[[Request], Awaitable[object]]] = {
            "open": self.open,
            "subscribe": self.subscribe,
            "status": self.status,
            "play": self.play,
            "progress": self.progress,
            "harvest": self.harvest,
            "close": self.close,
        }

    async def open(self, request: Request) -> dict[int, str]:
        """Start peers; returns the addresses others can join them by."""
        config = toml.from_table(request["config"], weft.Config, "swarm", "")
        for entry in request["peers"]:
            trace = Path(entry["trace"]) if entry["trace"] else None
            self.peers[entry["index"]] = await weft.Peer.start(
                listen="127.0.0.1:0", join=entry["join"], config=config, trace=trace
            )
        return {entry["index"]: self.peers[entry["index"]].address for entry in request["peers"]}

    async def subscribe(self, request: Request) -> int:
        """Subscribe peers to topics and wait until all have joined. With `record`, events of a
        workload are expected and every notification is remembered for the harvest."""
        joining = []
        for index, topics in request["topics"].items():
            for topic in topics:
                subscription = self.peers[int(index)].subscribe(topic)
                listen = self._record if request["record"] else self._discard
                self._start(listen(int(index), topic, subscription))
                joining.append(subscription)
        for subscription in joining:
            await subscription
        return len(joining)

    async def _discard(self, index: int, topic: str, subscription: weft.Subscription) -> None:
        async for _ in subscription:
            pass  # the peer counts them

    async def _record(self, index: int, topic: str, subscription: weft.Subscription) -> None:
        async for note in subscription:
            now = time.monotonic_ns()
            number = event_number(note.payload)
            self.received.append((index, topic, number, now, note.hops))

    async def play(self, request: Request) -> int:
        """Publish each event when its time comes; returns at once."""
        self._unpublished += len(request["publications"])
        self._start(self._play(request["start_ns"], request["publications"]))
        return len(request["publications"])

    async def _play(self, start_ns: int, publications: list[list[Any]]) -> None:
        for at_ms, index, topic, payload in publications:
            wait_ns = start_ns + at_ms * 1_000_000 - time.monotonic_ns()
            if wait_ns > 0:
                await asyncio.sleep(wait_ns / 1e9)
            self._start(self._publish(index, topic, payload.encode()))

    async def _publish(self, index: int, topic: str, payload: bytes) -> None:
        begun = time.monotonic_ns()
        try:
            receipt = await (await self.peers[index].publish(topic, payload)).final()
            outcome: str = receipt.outcome
        except weft.WeftError as error:
            outcome = str(error)
        self.published.append((event_number(payload), begun, outcome))
        self._unpublished -= 1

    async def status(self, request: Request) -> dict[int, object]:
        return {
            index: {**peer.status(), "counters": dict(peer.counters)}
            for index, peer in self.peers.items()
        }

    async def progress(self, request: Request) -> dict[str, int]:
        return {"waiting": self._unpublished, "received": len(self.received)}

    async def harvest(self, request: Request) -> dict[str, object]:
        """All that happened here."""
        return {"published": self.published, "received": self.received}

    async def close(self, request: Request) -> int:
        """Let all peers leave."""
        for task in list(self._tasks):
            task.cancel()
        peers = list(self.peers.values())
        self.peers.clear()
        await asyncio.gather(*(peer.close() for peer in peers))
        return len(peers)

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def serve(host: Host, requests: asyncio.StreamReader) -> None:
    """Answer requests until there are no more."""
    running: set[asyncio.Task[None]] = set()
    while line := await requests.readline():
        task = asyncio.create_task(answer(host, json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)
    for task in running:
        task.cancel()
    await host.close({})


async def answer(host: Host, request: Request) -> None:
    reply: dict[str, object] = {"id": request["id"]}
    try:
        reply["value"] = await host.operations[request["op"]](request)
    except Exception as error:  # told to the swarm, which decides what it means
        reply["error"] = f"{type(error).__name__}: {error}"
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


async def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loop = asyncio.get_running_loop()
    requests = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    await serve(Host(), requests)


if __name__ == "__main__":
    asyncio.run(main())
