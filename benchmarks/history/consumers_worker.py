"""The publisher of `consumers.py`, a process to be killed: prints what was receipted, a line each.

    python -m benchmarks.history.consumers_worker STORE PORT [quiet]

The first line names its address. `quiet`: it has published enough, and only hands over what it has.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import weft

TOPIC = "/orders"
AT_ONCE = 8
PAUSE_S = 0.08
"""Between so many: 100 events a second. A worker that commits each one does 50 to some hundred, by
how busy the disk is; what it is behind after the kills is waited for in the end."""


async def main(store: Path, port: int, quiet: bool) -> None:
    life = time.time_ns()
    async with weft.Peer.open(
        key=store.with_suffix(".key"), store=store, listen=f"127.0.0.1:{port}"
    ) as peer:
        await peer.subscribe(TOPIC)
        os.write(1, f"at {peer.address}\n".encode())
        if quiet:
            await asyncio.Event().wait()
        number = 0
        while True:
            await asyncio.sleep(PAUSE_S)
            numbers = range(number, number + AT_ONCE)
            receipts = await asyncio.gather(
                *(peer.publish(TOPIC, f"{life}-{one}") for one in numbers)
            )
            number += AT_ONCE
            for one, receipt in zip(numbers, receipts, strict=True):
                if receipt.outcome in ("taken", "sent", "alone"):  # stored here, either way
                    os.write(1, f"{life}-{one}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), "quiet" in sys.argv[3:]))
