"""Two peers, one topic: notifications a second from `publish` to the other application.

One peer publishes as fast as `publish` lets it (it waits while queues are full), the other
insists on every event in order. Wall time, from the first `publish` to the last event read.
Three settings: two processes with both peers subscribed (the main figure), two processes with a
publisher that is not subscribed (events are routed to the access point, a window of them at a
time), and both peers in one process.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from statistics import median
from typing import Any

from benchmarks.peer import reference
from benchmarks.peer.machine import say
from benchmarks.peer.scenario import TOPIC, Load
from benchmarks.peer.swarm import LISTEN, links_of, until
from benchmarks.peer.throughput_worker import read_batch
from benchmarks.peer.worker import Worker

import weft

WARMUP = 2_000
EVENTS = 60_000
TURNS = 3


async def drain(subscription: weft.Subscription) -> None:
    """The publisher is subscribed too, and gets its own events."""
    async for _ in subscription:
        pass


async def publish_batch(peer: weft.Peer, count: int) -> float:
    """Publish `count` numbered events; returns when the first one was handed over."""
    filler = Load().payload()[8:]
    started = time.monotonic()
    for number in range(count):
        receipt = await peer.publish(TOPIC, number.to_bytes(8, "big") + filler)
        if receipt.outcome not in ("taken", "sent", "alone", "queued"):
            raise RuntimeError(f"event {number} was not taken: {receipt.outcome}")
    return started


def figures(
    count: int, started: float, reader: dict[str, Any], writer_cpu_s: float
) -> dict[str, Any]:
    seconds = reader["last_at"] - started
    return {
        "notifications_per_s": count / seconds,
        "notifications": count,
        "seconds": seconds,
        "publisher_cpu_us": writer_cpu_s / count * 1e6,
        "subscriber_cpu_us": reader["cpu_s"] / count * 1e6,
        "lost": 0,  # the reader insists on every event in order and fails otherwise
    }


async def two_processes(count: int, subscribed: bool) -> dict[str, Any]:
    """This process publishes, another one reads."""
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack:
        peer = await stack.enter_async_context(weft.Peer.open(listen=LISTEN))
        sizes = [str(WARMUP), str(count)]
        reader = stack.enter_context(Worker("throughput_worker", [peer.address, *sizes]))
        await loop.run_in_executor(None, reader.hear)
        await until(lambda: not peer.isolated, "the two peers to meet")
        if subscribed:
            subscription = await peer.subscribe(TOPIC)
            draining = asyncio.create_task(drain(subscription))
            stack.callback(draining.cancel)
            await until(lambda: bool(links_of(peer, TOPIC)), "a link between the two peers")
        await publish_batch(peer, WARMUP)
        await loop.run_in_executor(None, reader.hear)
        heard = loop.run_in_executor(None, reader.hear)
        cpu = time.process_time()
        started = await publish_batch(peer, count)
        result = await heard
        return figures(count, started, result, time.process_time() - cpu)


async def one_process(count: int) -> dict[str, Any]:
    async with contextlib.AsyncExitStack() as stack:
        writer = await stack.enter_async_context(weft.Peer.open(listen=LISTEN))
        reader = await stack.enter_async_context(
            weft.Peer.open(listen=LISTEN, join=[writer.address])
        )
        draining = asyncio.create_task(drain(await writer.subscribe(TOPIC)))
        stack.callback(draining.cancel)
        subscription = await reader.subscribe(TOPIC)
        await until(lambda: bool(links_of(reader, TOPIC)), "a link between the two peers")
        result: dict[str, Any] = {}
        for size in (WARMUP, count):
            reading = asyncio.create_task(read_batch(subscription, size))
            cpu = time.process_time()
            started = await publish_batch(writer, size)
            heard = await reading
            result = figures(size, started, heard, 0.0)
            both_us = (time.process_time() - cpu) / size * 1e6
        del result["publisher_cpu_us"], result["subscriber_cpu_us"]
        return result | {"cpu_us": both_us}


def least_cpu_us(runs: list[dict[str, Any]]) -> float:
    """Of both processes, per event."""
    return min(run["publisher_cpu_us"] + run["subscriber_cpu_us"] for run in runs)


def measure(quick: bool) -> dict[str, Any]:
    count = EVENTS // 10 if quick else EVENTS
    inside: list[dict[str, Any]] = []
    outside: list[dict[str, Any]] = []
    for _ in range(1 if quick else TURNS):
        for runs, subscribed in ((inside, True), (outside, False)):
            runs.append(asyncio.run(two_processes(count, subscribed)))
            where = "subscribed" if subscribed else "outside"
            say(f"{where}: {runs[-1]['notifications_per_s']:.0f} notifications a second")
    return {
        "notifications_per_s": median(run["notifications_per_s"] for run in inside),
        "outside_per_s": median(run["notifications_per_s"] for run in outside),
        "outside_ratio": least_cpu_us(outside) / least_cpu_us(inside),
        "two_processes": inside,
        "two_processes_publisher_not_subscribed": outside,
        "one_process": asyncio.run(one_process(count)),
        "payload_bytes": Load().payload_bytes,
        "reference": reference.messages(),
    }
