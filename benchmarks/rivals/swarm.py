"""Clients of one system, each in its own process, and what they use together with their broker."""

from __future__ import annotations

import json
import select
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from benchmarks.peer.machine import process_cpu_seconds
from benchmarks.peer.worker import WorkerFailed, surroundings
from benchmarks.rivals.environment import Place, free_port, place, python_of

CLIENT = Path(__file__).with_name("client.py")
WITH_TLS = ("weft", "nats", "zenoh", "zmq", "mqtt", "redis")
"""ZeroMQ has CURVE in its place."""
ANSWER_S = 180
"""A client that says nothing for so long has got stuck, as Zenoh's now and then."""


def _surroundings() -> dict[str, str]:
    """As users have it: compiled modules are kept, weft's as the others'."""
    kept = surroundings()
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept


class Client:
    """One process."""

    def __init__(self, system: str, fields: dict[str, Any], number: int, reads: bool) -> None:
        self.system = system
        command = [str(python_of(system)), str(CLIENT), system, json.dumps(fields)]
        self._process = subprocess.Popen(
            [*command, str(number), "reads" if reads else "writes"],
            env=_surroundings(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, **request: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], ANSWER_S)[0]:
            raise WorkerFailed(f"{self.system}'s client has said nothing for {ANSWER_S} s")
        line = self._process.stdout.readline()
        if not line:
            raise WorkerFailed(f"{self.system}'s client ended: {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        self.tell(**request)
        return self.hear()

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Swarm:
    """Some clients that know each other: so many publish, so many read; a client that does both
    counts in both."""

    def __init__(self, system: str, publishers: int, readers: int, both: bool = False) -> None:
        self.system = system
        self._stack = ExitStack()
        self._count = publishers if both else publishers + readers
        self._publishers = publishers
        self._readers = range(self._count) if both else range(publishers, self._count)

    def __enter__(self) -> Self:
        try:
            self.place: Place = self._stack.enter_context(place(self.system))
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        self.clients: list[Client] = []
        places: list[Any] = []
        for number in range(self._count):
            reads = number in self._readers
            client = self.add(number, reads, places[0] if places else None)
            self.clients.append(client)
            places.append(client.hear()["at"])
        for number, client in enumerate(self.clients):
            client.tell(meet=[at for other, at in enumerate(places) if other != number])
        for client in self.clients:
            client.hear()
        self.known = places

    def add(self, number: int, reads: bool, join: Any, **more: object) -> Client:
        """One more process; its first answer says where it is."""
        fields = {**self.place.fields, "listen": free_port(), "join": join, **more}
        client = Client(self.system, fields, number, reads)
        self._stack.callback(client.close)
        return client

    @property
    def publishers(self) -> list[Client]:
        return self.clients[: self._publishers]

    @property
    def readers(self) -> list[Client]:
        return [self.clients[number] for number in self._readers]

    def publish(self, each: int, total_each: int, rate: float = 0) -> list[dict[str, Any]]:
        """Every publisher publishes so many events; waits until every reader has `total_each` of
        every other publisher. Returns what the clients say."""
        for number, client in enumerate(self.clients):
            request: dict[str, Any] = {"until": 0}
            if number in self._readers:
                others = self._publishers - (number < self._publishers)
                request["until"] = total_each * others
            if number < self._publishers:
                request |= {"publish": each, "rate": rate}
            client.tell(**request)
        return [client.hear() for client in self.clients]

    def cpu_seconds(self, answers: list[dict[str, Any]]) -> float:
        pid = self.place.broker_pid
        broker = process_cpu_seconds(pid) if pid is not None else 0.0
        used: float = sum(answer["cpu_s"] for answer in answers) + broker
        return used
