"""Durable publishes a second on one peer: sealed, added to the stream, synced to disk, delivered.

A publish counts when its receipt is there, that is after the sync that carries it. Many callers
wait at once, as in a program that serves many; the syncs are grouped. Wall time, since waiting for
the disk is the point, and CPU time beside it. For comparison: the same on the store alone, and bare
syncs of a small file.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.history.events import (
    CREATED_MS,
    PAYLOAD_BYTES,
    PUBLISHERS,
    TOPIC,
    published,
)

import weft
from weft.documents.dag import Stream
from weft.net.identity import Identity
from weft.store.durable import Durable
from weft.store.interface import Batch
from weft.store.reader import read_all
from weft.store.sqlite import SqliteStore

AT_ONCE = 512


async def publish_by_peer(store: SqliteStore, count: int) -> dict[str, Any]:
    """Through the API of a peer that is subscribed, too, and reads what it is handed."""
    async with weft.Peer.open(store=store) as peer:
        subscription = await peer.subscribe(TOPIC)
        left = count

        async def publisher() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                receipt = await peer.publish(TOPIC, os.urandom(PAYLOAD_BYTES))
                if receipt.outcome not in ("taken", "sent", "alone"):
                    raise RuntimeError(f"not taken: {receipt.outcome} {receipt.reason}")

        async def reader() -> None:
            for _ in range(count):
                await anext(subscription)

        started, cpu = time.monotonic(), time.process_time()
        await asyncio.gather(reader(), *(publisher() for _ in range(AT_ONCE)))
        seconds, cpu = time.monotonic() - started, time.process_time() - cpu
        held = store.summary(TOPIC).events
    if held != count:
        raise RuntimeError(f"{held} of {count} events are stored")
    return {
        "durable_publishes_per_s": count / seconds,
        "publishes": count,
        "cpu_us_per_publish": cpu / count * 1e6,
    }


async def publish(store: SqliteStore, count: int) -> dict[str, Any]:
    """On the store alone."""
    writer = Durable(store)
    commits: list[None] = []
    writer.watch(lambda: commits.append(None))
    events = published(Stream(), [Identity.generate() for _ in range(PUBLISHERS)])
    left = count

    async def publisher() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await writer.put(Batch(CREATED_MS, (next(events),)))

    started, cpu = time.monotonic(), time.process_time()
    await asyncio.gather(*(publisher() for _ in range(AT_ONCE)))
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    await writer.close()
    return {
        "store_publishes_per_s": count / seconds,
        "cpu_us_per_store_publish": cpu / count * 1e6,
        "commits": len(commits),
    }


def replayed(store: SqliteStore) -> dict[str, Any]:
    started, cpu = time.monotonic(), time.process_time()
    count = sum(1 for _ in read_all(store, TOPIC))
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    return {
        "store_reads_per_s": count / seconds,
        "store_reads": count,
        "cpu_us_per_read": cpu / count * 1e6,
    }


def bare_syncs_per_s(place: Path, count: int = 200) -> float:
    """How often a small append can be synced."""
    with (place / "bare").open("wb", buffering=0) as file:
        started = time.monotonic()
        for _ in range(count):
            file.write(bytes(4_096))
            os.fdatasync(file.fileno())
        return count / (time.monotonic() - started)


def measure(quick: bool) -> dict[str, Any]:
    count = 3_000 if quick else 100_000
    # Beside the benchmarks, because a temporary folder may be in memory, where syncs are free.
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent, prefix=".store-") as name:
        by_peer = asyncio.run(publish_by_peer(SqliteStore(Path(name) / "peer.db"), count))
        store = SqliteStore(Path(name) / "store.db")
        figures = asyncio.run(publish(store, count)) | replayed(store)
        if store.verify() != count or figures["store_reads"] != count:
            raise RuntimeError("the store does not hold what was published")
        store.close()
        figures["file_bytes_per_event"] = (Path(name) / "store.db").stat().st_size / count
        return by_peer | figures | {"reference": {"bare_syncs_per_s": bare_syncs_per_s(Path(name))}}
