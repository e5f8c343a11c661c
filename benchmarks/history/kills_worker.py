"""A process to be killed: stores events as fast as it can and prints the receipts.

    python -m benchmarks.history.kills_worker STORE

Goes on where the store left off. One topic is kept whole and its receipts go to stdout, a CID in
hex a line, written only when the commit is done. A second topic is pruned all the time, so that
kills also hit pruning.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from benchmarks.history.events import CREATED_MS, PUBLISHERS, TOPIC, published

from weft.ids import Topic
from weft.net.identity import Identity
from weft.store.durable import Durable
from weft.store.interface import Batch, Retention
from weft.store.reader import stream_of
from weft.store.sqlite import SqliteStore

AT_ONCE = 24
PRUNED = Topic("/benchmarks/pruned")
KEPT = Retention(events=60)
UNPRUNED_MAX = 60 + 8 * AT_ONCE  # what comes in between two prunes, generously


async def main(path: Path) -> None:
    store = SqliteStore(path)
    writer = Durable(store)
    keys = [Identity.generate() for _ in range(PUBLISHERS)]
    pruned_stream = stream_of(store, PRUNED)
    kept, pruned = published(stream_of(store, TOPIC), keys), published(pruned_stream, keys, PRUNED)

    async def publisher(number: int) -> None:
        while True:
            event = next(kept)
            await writer.put(Batch(CREATED_MS, (event, next(pruned))))
            os.write(1, event.cid.hex().encode() + b"\n")
            if number == 0:
                store.prune(PRUNED, KEPT, CREATED_MS)
                pruned_stream.floor = store.summary(PRUNED).floor

    await asyncio.gather(*(publisher(number) for number in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
