"""Some of the ten peers of `dag`, in a process of their own, each with a store on disk.

    python -m benchmarks.history.dag_worker FOLDER PEERS LOSS_PERCENT SEED [ADDRESS …]

Prints the address of the first peer once all are subscribed. Then each line on standard input is a
request: `publish` so many events through the first peer, `state` (what each peer holds, and the
CPU time so far), `read` (wait until a late subscriber's application has got so many), `digest`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.history.events import PAYLOAD_BYTES, TOPIC
from benchmarks.history.loss import Loss
from benchmarks.peer.idle_worker import commands

import weft
from weft.protocol import config as protocol
from weft.store.reader import read_all
from weft.store.sqlite import SqliteStore

AT_ONCE = 64
"""Publishes of one peer that wait for the disk at once."""
PATIENCE_S = 120.0


def config() -> weft.Config:
    """As it comes, but for shorter cycles, so that ten peers have found each other soon."""
    return weft.Config(protocol=protocol.Config(cyclon=protocol.Cyclon(cycle_ms=1_000)))


class Member:
    """One peer, its store, and an application that reads what comes."""

    def __init__(self, peer: weft.Peer, store: SqliteStore, loss: Loss) -> None:
        self.peer = peer
        self.store = store
        self.loss = loss
        self.read = 0
        self.first_at = self.read_at = 0.0
        self.cpu_s = time.process_time()

    async def follow(self, subscription: weft.Subscription) -> None:
        async for _ in subscription:
            self.read += 1
            self.read_at = time.monotonic()
            self.first_at = self.first_at or self.read_at

    def state(self) -> dict[str, Any]:
        counters = self.peer.counters
        wanted = ("history_gaps", "history_given_up", "history_caught_up", "repaired")
        return {
            "held": self.store.summary(TOPIC).events,
            "read": self.read,
            "lost": self.loss.dropped,
            "sent": self.loss.sent,
            **{name: counters.get(name, 0) for name in wanted},
            "refused": sum(
                count for name, count in counters.items() if name.startswith("history_refused")
            ),
        }

    def digest(self) -> dict[str, Any]:
        """The whole stream in its order, in a few bytes."""
        hashed, count = sha256(), 0
        for event in read_all(self.store, TOPIC):
            hashed.update(event.cid)
            count += 1
        return {
            "events": count,
            "digest": hashed.hexdigest(),
            "heads": len(self.store.heads(TOPIC)),
            "missing": len(self.store.missing(TOPIC)),
        }


async def publish(peer: weft.Peer, count: int) -> None:
    left = count

    async def publisher() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            receipt = await peer.publish(TOPIC, os.urandom(PAYLOAD_BYTES))
            if receipt.outcome not in ("taken", "sent", "alone"):
                raise RuntimeError(f"an event was not taken: {receipt.outcome} {receipt.reason}")

    await asyncio.gather(*(publisher() for _ in range(AT_ONCE)))


async def answer(members: list[Member], request: dict[str, Any]) -> dict[str, Any]:
    if "publish" in request:
        started = time.monotonic()
        await publish(members[0].peer, request["publish"])
        return {"seconds": time.monotonic() - started}
    if "read" in request:
        deadline, [late] = time.monotonic() + request["patience_s"], members
        while time.monotonic() < deadline:
            if late.read >= request["read"] and late.store.summary(TOPIC).events >= late.read:
                break
            await asyncio.sleep(0.02)
        cpu_s = time.process_time() - late.cpu_s
        return {"read": late.read, "seconds": late.read_at - late.first_at, "cpu_s": cpu_s}
    if "digest" in request:
        for member in members:
            member.loss.stop()
        return {"digests": [member.digest() for member in members]}
    return {"cpu_s": time.process_time(), "states": [member.state() for member in members]}


async def serve(folder: Path, count: int, percent: float, seed: int, join: list[str]) -> None:
    lines = await commands()
    async with AsyncExitStack() as stack:
        members: list[Member] = []
        tasks = []
        for number in range(count):
            store = SqliteStore(folder / f"{seed}-{number}.db")
            known = join or [member.peer.address for member in members[:1]]
            peer = await stack.enter_async_context(
                weft.Peer.open(join=known, config=config(), store=store)
            )
            member = Member(peer, store, Loss(peer, percent, seed * 100 + number))
            members.append(member)
            subscription = peer.subscribe(TOPIC, since="beginning")
            await asyncio.wait_for(subscription, PATIENCE_S)
            tasks.append(asyncio.create_task(member.follow(subscription)))
        print(json.dumps({"address": members[0].peer.address}), flush=True)
        while line := await lines.readline():
            print(json.dumps(await answer(members, json.loads(line))), flush=True)
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    place, peers, loss, number = sys.argv[1:5]
    asyncio.run(serve(Path(place), int(peers), float(loss), int(number), sys.argv[5:]))
