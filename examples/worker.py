"""A worker that handles every order exactly once, whatever is killed.

    python examples/worker.py RESULTS.db ADDRESS…

It keeps its place in the topic in the same transaction as its results, so both are there or
neither. Its peer's store and key lie beside the results: start it again after any crash, and it
goes on where its results end. ADDRESS is that of any peer of the network.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path

import weft

TOPIC = "/orders"


def handle(database: sqlite3.Connection, payload: bytes) -> None:
    """What the worker is for."""
    database.execute("INSERT INTO handled VALUES (?)", (payload.decode(),))


async def main(results: Path, join: list[str]) -> None:
    database = sqlite3.connect(results)
    database.execute("CREATE TABLE IF NOT EXISTS handled (what TEXT)")
    database.execute("CREATE TABLE IF NOT EXISTS place (position TEXT)")
    database.commit()
    found = database.execute("SELECT position FROM place").fetchone()
    async with weft.Peer.open(
        key=results.with_suffix(".key"), store=results.with_suffix(".store"), join=join
    ) as peer:
        async for note in peer.consume(TOPIC, after=found[0] if found else None):
            with database:  # one transaction: the result and the place
                handle(database, note.payload)
                database.execute("DELETE FROM place")
                database.execute("INSERT INTO place VALUES (?)", (note.position,))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
