"""One client of one system, in a process of its own: publishes and reads what it is told to.

    python client.py SYSTEM PLACE ROLE

Answers each line of JSON on its standard input with one. Imports the standard library and its own
system's client, nothing else, since every system has its own environment. A payload holds the
publisher, its number and the instant; readers insist on every event once and in order.

Each system is used as its documentation shows it, with its defaults but for what would lose events:
ZeroMQ's high-water marks are off, and Zenoh's publishers wait where queues are full.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

HEAD = struct.Struct(">HQQ")
FILLER = bytes(index % 251 for index in range(200 - HEAD.size))
TOPIC = "/bench/one"
OFTEN = 64
"""Commands in one of Redis's pipelines."""

Take = Callable[[bytes], None]


class Reader:
    """The application: counts, and checks the order."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.count = 0
        self.wrong = 0
        self.first_at = 0
        self.delays: list[int] | None = None

    def take(self, payload: bytes) -> None:
        publisher, number, sent = HEAD.unpack_from(payload)
        if number != self.seen.get(publisher, 0) + 1:
            self.wrong += 1
        self.seen[publisher] = number
        self.count += 1
        if not self.first_at:
            self.first_at = time.monotonic_ns()
        if self.delays is not None:
            self.delays.append(time.monotonic_ns() - sent)


class System(Protocol):
    """One system's client."""

    async def open(self, place: dict[str, Any], publisher: int, take: Take | None) -> Any:
        """Take part; with `take`, subscribed. Returns what others need to reach this one."""

    async def meet(self, others: list[Any]) -> None:
        """The places of all others are known."""

    async def publish(self, payload: bytes) -> None: ...

    async def flush(self) -> None: ...

    async def close(self) -> None: ...


class Weft:
    """Publishers in a star are subscribed, too: that makes them members. As with the others, they
    do not read their own events."""

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._open = import_module("weft").Peer.open

    async def open(self, place: dict[str, Any], publisher: int, take: Take | None) -> str:
        joins = [place["join"]] if place.get("join") else []
        opening = self._open(listen="127.0.0.1:0", join=joins)
        self._peer = await self._stack.enter_async_context(opening)
        if not place.get("outside"):
            subscription = await self._peer.subscribe(TOPIC, own=False)
            self._task = asyncio.create_task(self._read(subscription, take))
        if joins:
            await self._peer.joined(60)
        return str(self._peer.address)

    async def _read(self, subscription: Any, take: Take | None) -> None:
        async for note in subscription:
            if take is not None:
                take(note.payload)

    async def meet(self, others: list[Any]) -> None:
        if others:
            await until(lambda: self._peer.status()["topics"][TOPIC]["links"])

    async def publish(self, payload: bytes) -> None:
        await self._peer.publish(TOPIC, payload)

    async def flush(self) -> None:
        await asyncio.sleep(0)

    async def close(self) -> None:
        await self._stack.aclose()


class Nats:
    def __init__(self) -> None:
        self._nats = import_module("nats")

    async def open(self, place: dict[str, Any], publisher: int, take: Take | None) -> None:
        context = ssl.create_default_context(cafile=place["authority"])
        url = f"tls://localhost:{place['port']}"
        self._client = await self._nats.connect(url, tls=context, no_echo=True)
        if take is not None:
            keep = take

            async def on_message(message: Any) -> None:
                keep(message.data)

            await self._client.subscribe("bench.one", cb=on_message)
            await self._client.flush()

    async def meet(self, others: list[Any]) -> None:
        pass

    async def publish(self, payload: bytes) -> None:
        await self._client.publish("bench.one", payload)

    async def flush(self) -> None:
        await self._client.flush(timeout=60)

    async def close(self) -> None:
        await self._client.close()


class Zenoh:
    """Peers without a broker; one of them is known to all, and tells of the others."""

    def __init__(self) -> None:
        self._zenoh = import_module("zenoh")

    async def open(self, place: dict[str, Any], publisher: int, take: Take | None) -> str:
        zenoh = self._zenoh
        me = f"tls/localhost:{place['listen']}"
        config = zenoh.Config()
        for key, value in {
            "mode": "peer",
            "listen/endpoints": [me],
            "connect/endpoints": [place["join"]] if place.get("join") else [],
            "scouting/multicast/enabled": False,
            "transport/link/tls/root_ca_certificate": place["authority"],
            "transport/link/tls/listen_private_key": place["key"],
            "transport/link/tls/listen_certificate": place["certificate"],
        }.items():
            config.insert_json5(key, json.dumps(value))
        self._session = zenoh.open(config)
        if take is not None:
            keep = take

            def on_sample(sample: Any) -> None:
                keep(sample.payload.to_bytes())

            self._subscriber = self._session.declare_subscriber(
                "bench/one", on_sample, allowed_origin=zenoh.Locality.REMOTE
            )
        self._publisher = self._session.declare_publisher(
            "bench/one", congestion_control=zenoh.CongestionControl.BLOCK
        )
        return me

    async def meet(self, others: list[Any]) -> None:
        await until(lambda: len(self._session.info.peers_zid()) >= len(others))

    async def publish(self, payload: bytes) -> None:
        self._publisher.put(payload)

    async def flush(self) -> None:
        pass

    async def close(self) -> None:
        self._session.close()


class Zmq:
    """A PUB and a SUB socket each, with CURVE; every reader is connected to every publisher."""

    def __init__(self) -> None:
        self._zmq = zmq = import_module("zmq")
        self._context = zmq.Context()
        self._public, self._secret = zmq.curve_keypair()

    async def open(self, place: dict[str, Any], publisher: int, take: Take | None) -> Any:
        zmq = self._zmq
        self._take = take
        self._pub = self._context.socket(zmq.PUB)
        self._pub.setsockopt(zmq.SNDHWM, 0)
        self._pub.setsockopt(zmq.CURVE_SERVER, 1)
        self._pub.setsockopt(zmq.CURVE_SECRETKEY, self._secret)
        port = self._pub.bind_to_random_port("tcp://127.0.0.1")
        return [port, self._public.decode()]

    async def meet(self, others: list[Any]) -> None:
        zmq, take = self._zmq, self._take
        if take is None:
            await asyncio.sleep(1)  # a PUB socket does not say when its readers are there
            return
        sub = self._context.socket(zmq.SUB)
        sub.setsockopt(zmq.RCVHWM, 0)
        public, secret = zmq.curve_keypair()
        sub.setsockopt(zmq.CURVE_PUBLICKEY, public)
        sub.setsockopt(zmq.CURVE_SECRETKEY, secret)
        sub.setsockopt(zmq.SUBSCRIBE, b"")
        for port, key in others:
            sub.setsockopt(zmq.CURVE_SERVERKEY, key.encode())
            sub.connect(f"tcp://127.0.0.1:{port}")

        def read() -> None:
            while True:
                take(sub.recv())

        threading.Thread(target=read, daemon=True).start()
        await asyncio.sleep(1)

    async def publish(self, payload: bytes) -> None:
        self._pub.send(payload)

    async def flush(self) -> None:
        pass

    async def close(self) -> None:
        pass  # the process ends, and with it its sockets


class Mqtt:
    def __init__(self) -> None:
        client = import_module("paho.mqtt.client")
        self._client = client.Client(client.CallbackAPIVersion.VERSION2, protocol=client.MQTTv5)

    async def open(self, place: dict[str, Any], publisher: int, take: Take | None) -> None:
        there = threading.Event()
        self._client.tls_set(ca_certs=place["authority"])
        self._client.on_connect = lambda *said: there.set()
        if take is not None:
            keep = take
            self._client.on_message = lambda client, data, message: keep(message.payload)
        self._client.connect("localhost", place["port"])
        self._client.loop_start()
        await asyncio.to_thread(there.wait, 30)
        if take is not None:
            made = import_module("paho.mqtt.subscribeoptions").SubscribeOptions
            options = made(qos=0, noLocal=True)
            self._client.subscribe("bench/one", options=options)

    async def meet(self, others: list[Any]) -> None:
        await asyncio.sleep(0.5)

    async def publish(self, payload: bytes) -> None:
        self._last = self._client.publish("bench/one", payload)

    async def flush(self) -> None:
        await asyncio.to_thread(self._last.wait_for_publish, 60)

    async def close(self) -> None:
        self._client.disconnect()


class Redis:
    """Publishes in pipelines, since each lone command waits for its answer."""

    def __init__(self) -> None:
        self._redis = import_module("redis.asyncio")

    async def open(self, place: dict[str, Any], publisher: int, take: Take | None) -> None:
        self._client = self._redis.Redis(
            host="localhost", port=place["port"], ssl=True, ssl_ca_certs=place["authority"]
        )
        self._pipeline = self._client.pipeline(transaction=False)
        self._me = publisher
        if take is not None:
            self._subscription = self._client.pubsub()
            await self._subscription.subscribe("bench.one")
            self._task = asyncio.create_task(self._read(take))

    async def _read(self, take: Take) -> None:
        async for message in self._subscription.listen():
            if message["type"] == "message" and HEAD.unpack_from(message["data"])[0] != self._me:
                take(message["data"])

    async def meet(self, others: list[Any]) -> None:
        await asyncio.sleep(0.5)

    async def publish(self, payload: bytes) -> None:
        self._pipeline.publish("bench.one", payload)
        if len(self._pipeline) >= OFTEN:
            await self._pipeline.execute()

    async def flush(self) -> None:
        await self._pipeline.execute()

    async def close(self) -> None:
        await self._client.aclose()


SYSTEMS: dict[str, type[System]] = {
    "weft": Weft,
    "nats": Nats,
    "zenoh": Zenoh,
    "zmq": Zmq,
    "mqtt": Mqtt,
    "redis": Redis,
}


async def until(holds: Callable[[], object]) -> None:
    """Look now and then: not every system has something to wait for."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def publish_all(system: System, me: int, first: int, count: int, rate: float) -> int:
    """Numbered events, flat out or so many a second; returns when the first one was published."""
    pack, publish, now = HEAD.pack, system.publish, time.monotonic_ns
    started = now()
    for index in range(count):
        if rate:
            wait_ns = started + int(index * 1e9 / rate) - now()
            if wait_ns > 0:
                await asyncio.sleep(wait_ns / 1e9)
        await publish(pack(me, first + index, now()) + FILLER)
    await system.flush()
    return started


async def serve(system: System, place: dict[str, Any], me: int, reads: bool) -> None:
    reader, published = Reader(), 0
    at = await system.open(place, me, reader.take if reads else None)
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    answer: dict[str, Any] = {"at": at}
    while True:
        print(json.dumps(answer), flush=True)
        line = await lines.readline()
        if not line:
            break
        asked = json.loads(line)
        answer = {}
        if "meet" in asked:
            await system.meet(asked["meet"])
        if "publish" in asked:
            count = asked["publish"]
            answer["first_at"] = await publish_all(
                system, me, published + 1, count, asked.get("rate", 0)
            )
            published += count
        if "delays" in asked:
            reader.delays = [] if asked["delays"] else None
        wanted = asked.get("until", 0)
        await until(lambda wanted=wanted: reader.count >= wanted)
        answer |= {"cpu_s": time.process_time(), "count": reader.count, "wrong": reader.wrong}
        answer["first_read_at"] = reader.first_at
        if "told" in asked:
            answer["delays"] = reader.delays
    await system.close()


if __name__ == "__main__":
    chosen, where, number, is_reader = sys.argv[1:]
    asyncio.run(serve(SYSTEMS[chosen](), json.loads(where), int(number), is_reader == "reads"))
