"""A swarm of real peers spread over processes on this machine, all on loopback.

The near end is `Swarm`: it starts the processes, lets every peer join through one that is already
there, and passes requests on. Used as a context manager: on the way out the peers leave, and a
process that does not end in time is killed.

The far end is this module run as a program, with a `Host` of some peers. One JSON object per line:
a request on stdin (`{"id": 7, "op": "open", ...}`), its answer on stdout (`{"id": 7, "value": ...}`
or `{"id": 7, "error": "..."}`). Requests run at the same time; answers come as they are ready. When
stdin ends, for whatever reason, the peers leave and the process ends, so a swarm whose owner died
does not linger. Ctrl-C in a terminal reaches every process of the group; a host ignores it and
waits for its owner's word.

Demonstration, experiments and tests use this swarm. It needs nothing but weft's own peers.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import astuple
from itertools import count
from pathlib import Path
from typing import Any, Self, TypeAlias

import weft
from weft import private
from weft.errors import WeftError
from weft.lab.census import Census, Look, Sight, causes_of, sight_of
from weft.net import config as toml
from weft.sim.dice import Dice

Json: TypeAlias = Any
"""A line of JSON, decoded."""
Status: TypeAlias = dict[str, Json]
"""What `Peer.status` tells, with the peer's counters."""
Received: TypeAlias = tuple[int, str, int, int, int]
"""A notification: peer, topic, event, when (monotonic clock, ns), hops."""
Passed: TypeAlias = tuple[int, str, str, int]
"""A notification as a picture shows it: peer, topic, event, hops."""

LEAVE_SECONDS_MAX = 20.0
"""guess: longer than some dozens of peers take to flush everything when they close."""
LINE_BYTES_MAX = 256 << 20
"""guess: a harvest of some hundred thousand notifications."""
_ENTRANCES = 3
"""guess: addresses that a peer which comes back may join by."""
FLOW_MAX = 2_000
"""guess: notifications remembered for a picture; an eye sees no more between two looks."""


class SwarmError(WeftError):
    """A process of the swarm failed or died; the text is its own."""


def event_number(payload: bytes) -> int:
    """Which event of a workload this is: its payloads begin with "event N "."""
    return int(payload.split(b" ", 2)[1])


# --- the near end ---------------------------------------------------------------------------------


class Worker:
    """One process of a swarm, as its owner sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls) -> Worker:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "weft.lab.processes"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        return cls(process)

    async def ask(self, op: str, **fields: object) -> Json:
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
                continue  # the caller has given up
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
        """Close the pipe, at which the process leaves; kill it if it does not."""
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
        homes: Path | None = None,
    ) -> None:
        """With `homes`, each peer has a folder there with its key and its store, and is the same
        peer when it comes back."""
        self.peers = peers
        self.processes = min(peers, processes)
        self.addresses: list[str] = [""] * peers
        self._dice = Dice(seed)
        self._config = dict(config or {})
        self._join = list(join)
        self._trace = trace
        self._homes = homes
        self.workers: list[Worker] = []

    async def __aenter__(self) -> Self:
        try:
            for _ in range(self.processes):
                self.workers.append(await Worker.start())
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self.workers))

    async def open(self, first: int, last: int) -> None:
        """Start peers first … last−1; each joins through one that was there before."""
        await self._open({index: self._entrance(first, index) for index in range(first, last)})

    async def open_again(self, back: Sequence[int], by: Sequence[int]) -> None:
        """Start peers that have left or died. Each joins by several of `by`, since one of these may
        go before it has answered."""
        entrances = {
            index: [
                self.addresses[one]
                for one in self._dice.some("swarm.back", by, min(_ENTRANCES, len(by)), index)
            ]
            for index in back
        }
        await self._open(entrances)

    async def leave(self, gone: Sequence[int]) -> None:
        """Let some peers leave."""
        await asyncio.gather(
            *(self.workers[index % self.processes].ask("leave", index=index) for index in gone)
        )

    async def publish(self, index: int, topic: str, payload: str) -> str:
        """Have a peer publish an event of a workload; what became of it."""
        worker = self.workers[index % self.processes]
        outcome: str = await worker.ask("publish", index=index, topic=topic, payload=payload)
        return outcome

    async def kill(self, number: int) -> None:
        """Kill a process with all its peers, and start an empty one in its place."""
        self.workers[number].process.kill()
        await self.workers[number].stop()
        self.workers[number] = await Worker.start()

    async def _open(self, entrances: Mapping[int, Sequence[str]]) -> None:
        entries: list[list[dict[str, object]]] = [[] for _ in self.workers]
        for index, join in entrances.items():
            trace = self._trace / f"peer-{index:03}.jsonl" if self._trace else None
            home = self._homes / f"peer-{index:03}" if self._homes else None
            entries[index % self.processes].append(
                {
                    "index": index,
                    "join": list(join),
                    "trace": str(trace) if trace else None,
                    "home": str(home) if home else None,
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

    async def ask_all(self, op: str, **fields: object) -> list[Json]:
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

    async def status(self) -> dict[int, Status]:
        """The status of every peer, by number."""
        found: dict[int, Status] = {}
        for part in await self.ask_all("status"):
            found.update({int(index): status for index, status in part.items()})
        return dict(sorted(found.items()))

    async def census(self) -> Census:
        """Every peer at a glance; far cheaper than its status."""
        looks: dict[int, Look] = {}
        causes: Counter[str] = Counter()
        parts = await self.ask_all("census")
        for part in parts:
            looks.update({int(index): Look(*values) for index, values in part["looks"].items()})
            causes.update(part["causes"])
        cpu_seconds = sum(part["cpu_seconds"] for part in parts)
        return Census(dict(sorted(looks.items())), cpu_seconds, dict(causes.most_common()))

    async def sights(self) -> list[Sight]:
        """Every peer that is up, for a picture; from then on notifications are remembered for
        `flow`."""
        parts = await self.ask_all("sights")
        return [sight for part in parts for sight in part]

    async def flow(self) -> list[Passed]:
        """The notifications since the last call, the latest ones if there were many."""
        return [tuple(row) for part in await self.ask_all("flow") for row in part]

    async def status_of(self, index: int) -> Status:
        """The status of one peer, by its number."""
        status: Status = await self.workers[index % self.processes].ask("peer", index=index)
        return status


# --- the far end ----------------------------------------------------------------------------------


class Host:
    """The peers of this process, by their number in the swarm."""

    def __init__(self) -> None:
        self._peers: dict[int, weft.Peer] = {}
        self._published: list[tuple[int, int, str]] = []  # event, when (ns), outcome
        self._received: list[Received] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._unpublished = 0
        self._flow: deque[Passed] | None = None  # once there is a picture to draw
        self._operations: dict[str, Callable[[Json], Awaitable[object]]] = {
            "open": self._open,
            "subscribe": self._subscribe,
            "status": self._status,
            "census": self._census,
            "sights": self._sights,
            "flow": self._passed,
            "peer": self._status_of,
            "leave": self._leave,
            "drain": self._drain,
            "collect": self._collect,
            "play": self._play,
            "publish": self._publish_one,
            "progress": self._progress,
            "harvest": self._harvest,
            "close": self._close,
        }

    async def serve(self, requests: asyncio.StreamReader) -> None:
        """Answer requests until there are no more."""
        answers: set[asyncio.Task[None]] = set()
        while line := await requests.readline():
            _start(self._answer(json.loads(line)), answers)
        for task in answers:
            task.cancel()
        await self._close({})

    async def _answer(self, request: Json) -> None:
        reply: dict[str, object] = {"id": request["id"]}
        try:
            reply["value"] = await self._operations[request["op"]](request)
        except Exception as error:  # told to the swarm, which decides what it means
            reply["error"] = f"{type(error).__name__}: {error}"
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()

    async def _open(self, request: Json) -> dict[int, str]:
        """Start peers; returns the addresses others can join them by."""
        config = toml.from_table(request["config"], weft.Config, "swarm", "")
        for entry in request["peers"]:
            trace = Path(entry["trace"]) if entry["trace"] else None
            home = Path(entry["home"]) if entry["home"] else None
            if home is not None:
                private.make_folder(home)
            self._peers[entry["index"]] = await weft.Peer.start(
                listen="127.0.0.1:0",
                join=entry["join"],
                config=config,
                trace=trace,
                key=home / "key.pem" if home else None,
                store=home / "store.db" if home else None,
            )
        return {entry["index"]: self._peers[entry["index"]].address for entry in request["peers"]}

    async def _subscribe(self, request: Json) -> int:
        """Subscribe peers to topics and wait until all have joined. With `record`, events of a
        workload are expected and every notification is remembered for the harvest."""
        joining = []
        for index, topics in request["topics"].items():
            for topic in topics:
                subscription = self._peers[int(index)].subscribe(topic)
                listen = self._record if request["record"] else self._discard
                _start(listen(int(index), topic, subscription), self._tasks)
                joining.append(subscription)
        for subscription in joining:
            await subscription
        return len(joining)

    async def _discard(self, index: int, topic: str, subscription: weft.Subscription) -> None:
        async for note in subscription:
            self._pass(index, note)

    async def _record(self, index: int, topic: str, subscription: weft.Subscription) -> None:
        async for note in subscription:
            now = time.monotonic_ns()
            number = event_number(note.payload)
            self._received.append((index, topic, number, now, note.hops))
            self._pass(index, note)

    def _pass(self, index: int, note: weft.Notification) -> None:
        if self._flow is not None:
            self._flow.append((index, note.topic, note.event_id, note.hops))

    async def _status(self, request: Json) -> dict[int, Status]:
        return {index: _status(peer) for index, peer in self._peers.items()}

    async def _status_of(self, request: Json) -> Status:
        return _status(self._peers[request["index"]])

    async def _sights(self, request: Json) -> list[Sight]:
        if self._flow is None:
            self._flow = deque(maxlen=FLOW_MAX)
        return [sight_of(peer) for peer in self._peers.values()]

    async def _passed(self, request: Json) -> list[Passed]:
        passed = list(self._flow or ())
        if self._flow is not None:
            self._flow.clear()
        return passed

    async def _census(self, request: Json) -> dict[str, object]:
        """All peers at a glance, and what they cost."""
        return {
            "looks": {index: astuple(Look.at(peer)) for index, peer in self._peers.items()},
            "cpu_seconds": time.process_time(),
            "causes": causes_of(self._peers),
        }

    async def _collect(self, request: Json) -> int:
        """One round of StaN."""
        for peer in self._peers.values():
            peer.collect_links()
        return len(self._peers)

    async def _play(self, request: Json) -> int:
        """Publish each event when its time comes; returns at once."""
        self._unpublished += len(request["publications"])
        _start(self._play_all(request["start_ns"], request["publications"]), self._tasks)
        return len(request["publications"])

    async def _play_all(self, start_ns: int, publications: list[tuple[int, int, str, str]]) -> None:
        for at_ms, index, topic, payload in publications:
            wait_ns = start_ns + at_ms * 1_000_000 - time.monotonic_ns()
            if wait_ns > 0:
                await asyncio.sleep(wait_ns / 1e9)
            _start(self._publish(index, topic, payload.encode()), self._tasks)

    async def _publish(self, index: int, topic: str, payload: bytes) -> None:
        begun = time.monotonic_ns()
        outcome = await self._outcome(index, topic, payload)
        self._published.append((event_number(payload), begun, outcome))
        self._unpublished -= 1

    async def _publish_one(self, request: Json) -> str:
        return await self._outcome(request["index"], request["topic"], request["payload"].encode())

    async def _outcome(self, index: int, topic: str, payload: bytes) -> str:
        try:
            receipt = await (await self._peers[index].publish(topic, payload)).final()
        except weft.WeftError as error:
            return str(error)
        return receipt.outcome

    async def _progress(self, request: Json) -> dict[str, int]:
        return {"waiting": self._unpublished, "received": len(self._received)}

    async def _harvest(self, request: Json) -> dict[str, object]:
        """What the peers of this process published and received, for the swarm."""
        return {"published": self._published, "received": self._received}

    async def _drain(self, request: Json) -> dict[str, object]:
        """What happened since the last call; it is forgotten here."""
        found: dict[str, object] = {"published": self._published, "received": self._received}
        self._published, self._received = [], []
        return found

    async def _leave(self, request: Json) -> None:
        await self._peers.pop(request["index"]).close()

    async def _close(self, request: Json) -> int:
        """Let all peers leave."""
        for task in self._tasks:
            task.cancel()
        peers = list(self._peers.values())
        self._peers.clear()
        await asyncio.gather(*(peer.close() for peer in peers))
        return len(peers)


def _status(peer: weft.Peer) -> Status:
    return {**peer.status(), "counters": dict(peer.counters)}


def _start(work: Coroutine[None, None, None], running: set[asyncio.Task[None]]) -> None:
    """Run something in the background, held in a set until it is done."""
    task = asyncio.ensure_future(work)
    running.add(task)
    task.add_done_callback(running.discard)


def _allow_many_files() -> None:
    """Allow this process as many open files as the system does: every connection is one, and some
    hundred peers have thousands."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _allow_many_files()
    loop = asyncio.get_running_loop()
    requests = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    await Host().serve(requests)


if __name__ == "__main__":
    asyncio.run(main())
