"""Real peers for an experiment, over several processes on this machine, all on loopback.

Each process hosts some peers and speaks JSON lines: a request on standard input, its answer on
standard output. When the input ends, for whatever reason, the peers leave and the process ends.
Used as a context manager: on the way out, a process that does not end in time is killed.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import weft
from weft.net import config as toml

LEAVE_SECONDS_MAX = 20.0
"""guess: longer than some dozens of peers take to leave."""
LINE_BYTES_MAX = 64 << 20


class SwarmFailed(RuntimeError):
    """A process of the swarm raised an error or ended; the text says what it said."""


class Swarm:
    """`peers` peers over some processes; peer i lives in process i mod `processes`."""

    def __init__(self, peers: int, processes: int, settings: Mapping[str, object]) -> None:
        self.peers = peers
        self._settings = dict(settings)
        self._parts = [
            subprocess.Popen(  # noqa: S603  (our own interpreter and module)
                [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for _ in range(min(peers, processes))
        ]

    def __enter__(self) -> Swarm:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for part in self._parts:
            assert part.stdin is not None
            part.stdin.close()
        for part in self._parts:
            try:
                part.wait(LEAVE_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                part.kill()
                part.wait()
            assert part.stdout is not None
            part.stdout.close()

    def ask(self, op: str, each: Callable[[int], object] | None = None, **fields: object) -> Any:
        """The same request to all processes at once, with what is due to each of their peers;
        returns the peers' answers by number."""
        for number, part in enumerate(self._parts):
            mine = range(number, self.peers, len(self._parts))
            request: dict[str, object] = {"op": op, **fields}
            request["peers"] = {peer: each(peer) if each else None for peer in mine}
            assert part.stdin is not None
            part.stdin.write(json.dumps(request).encode() + b"\n")
            part.stdin.flush()
        found: dict[int, Any] = {}
        for part in self._parts:
            assert part.stdout is not None
            line = part.stdout.readline(LINE_BYTES_MAX)
            answer: Any = json.loads(line) if line else {"error": "a process of the swarm ended"}
            if "error" in answer:
                raise SwarmFailed(answer["error"])
            found.update((int(peer), value) for peer, value in answer["value"].items())
        return dict(sorted(found.items()))

    def open(self) -> list[str]:
        """Start all peers; the first lets the others in. Returns their ids."""
        first = self.ask("open", lambda peer: None if peer else [], settings=self._settings)
        door = first[0]
        self.ask("open", lambda peer: [door] if peer else None, settings=self._settings)
        return [str(name) for name in self.ask("name").values()]

    def subscribe(self, interests: Sequence[Sequence[str]]) -> None:
        """Returns when all have joined."""
        self.ask("subscribe", lambda peer: list(interests[peer]))


# --- in a process of the swarm --------------------------------------------------------------------


class Host:
    """The peers of this process, by their number in the swarm."""

    def __init__(self) -> None:
        self.peers: dict[int, weft.Peer] = {}
        self._readers: list[asyncio.Task[None]] = []

    async def open(self, request: Mapping[str, Any]) -> dict[int, str]:
        config = toml.from_table(request["settings"], weft.Config, "swarm", "")
        started = {}
        for number, join in request["peers"].items():
            if join is not None:
                peer = await weft.Peer.start(listen="127.0.0.1:0", join=join, config=config)
                self.peers[int(number)] = peer
                started[int(number)] = peer.address
        return started

    async def name(self, request: Mapping[str, Any]) -> dict[int, str]:
        return {number: peer.id for number, peer in self.peers.items()}

    async def subscribe(self, request: Mapping[str, Any]) -> dict[int, int]:
        joining = []
        for number, topics in request["peers"].items():
            for topic in topics:
                subscription = self.peers[int(number)].subscribe(topic)
                self._readers.append(asyncio.ensure_future(_read(subscription)))
                joining.append(subscription)
        for subscription in joining:
            await subscription
        return {int(number): len(topics) for number, topics in request["peers"].items()}

    async def collect(self, request: Mapping[str, Any]) -> dict[int, None]:
        """One round of StaN."""
        for peer in self.peers.values():
            peer.collect_links()
        return dict.fromkeys(self.peers)

    async def ranked(self, request: Mapping[str, Any]) -> dict[int, object]:
        """The ranked views, by topic; and how many connections are open."""
        found: dict[int, object] = {}
        for number, peer in self.peers.items():
            status: Any = peer.status()
            views = {topic: state["ranked"] for topic, state in status["topics"].items()}
            members = {topic: state["view"] for topic, state in status["topics"].items()}
            found[number] = {
                "views": views,
                "known": {topic: len(view) for topic, view in members.items()},
                "walks": sum(state["walks"] for state in status["topics"].values()),
                "links": status["links"],
                "connections": len(status["connections"]),
            }
        return found

    async def close(self) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*(peer.close() for peer in self.peers.values()))


async def _read(subscription: weft.Subscription) -> None:
    async for _ in subscription:
        pass  # nobody waits for events here


async def _serve() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides, by closing the pipe
    requests = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    host = Host()
    operations = {
        "open": host.open,
        "name": host.name,
        "subscribe": host.subscribe,
        "collect": host.collect,
        "ranked": host.ranked,
    }
    while line := await requests.readline():
        request = json.loads(line)
        try:
            answer: dict[str, object] = {"value": await operations[request["op"]](request)}
        except Exception as error:  # told to the owner, who decides what it means
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    await host.close()


if __name__ == "__main__":
    asyncio.run(_serve())
