"""Writes the stores that later trees must be able to open: run it with the tree to be remembered.

    PYTHONPATH=TREE/src python tests/kit/old_stores.py NAME

writes `stores/NAME.db.gz`, a store as a peer of that tree leaves it when it closes;
`stores/NAME.crashed.db.gz` and `stores/NAME.crashed.db-wal.gz`, its files as a crash would have
left them just before; and `stores/NAME.json`, what that tree itself reads in the store. It uses
nothing but the public API, so that it runs with any tree.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import tempfile
from pathlib import Path

import weft
from weft.ids import Topic, cid_text
from weft.store.reader import read_all
from weft.store.sqlite import SqliteStore

STORES = Path(__file__).parent / "stores"
CHAT, OWNED, TWICE = "/chat", "/owned", "/chat/twice"


async def write(path: Path) -> dict[str, bytes]:
    """A peer publishes in an open topic, in one of its own, and in two at once. Returns the files
    as they were just before it closed."""
    async with weft.Peer.open(store=path) as peer:
        for topic in (CHAT, OWNED, TWICE):
            await peer.subscribe(topic)
        await peer.owned.create(OWNED)
        for number in range(12):
            await peer.publish(CHAT, f"event {number}")
        for number in range(4):
            await peer.publish(OWNED, f"owned {number}")
            await peer.publish([CHAT, TWICE], f"both {number}")
        await peer.owned.add_subtopic(OWNED, "below")
        return {end: path.with_name(path.name + end).read_bytes() for end in ("", "-wal")}


def described(path: Path) -> dict[str, object]:
    """What this tree reads in a store."""
    store = SqliteStore(path)
    try:
        return {
            "topics": {
                topic: {
                    "events": [
                        [cid_text(event.cid), event.height, event.payload.decode()]
                        for event in read_all(store, Topic(topic))
                    ],
                    "heads": [cid_text(cid) for cid in store.heads(Topic(topic))],
                    "bytes": store.summary(Topic(topic)).bytes,
                }
                for topic in store.topics()
            },
            "records": {name.hex(): record.hex() for name, record in store.records().items()},
            "beginnings": [topic for topic in store.topics() if _beginning(store, topic)],
        }
    finally:
        store.close()


def _beginning(store: SqliteStore, topic: str) -> bytes:
    """The oldest tree does not keep it."""
    found = getattr(store, "beginning", None)
    return found(Topic(topic)) if found is not None else b""


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        crashed = asyncio.run(write(path))
        STORES.mkdir(exist_ok=True)
        for end, data in ((".db.gz", path.read_bytes()), (".crashed.db.gz", crashed[""])):
            (STORES / f"{name}{end}").write_bytes(gzip.compress(data, mtime=0))
        (STORES / f"{name}.crashed.db-wal.gz").write_bytes(gzip.compress(crashed["-wal"], mtime=0))
        text = json.dumps(described(path), indent=1, sort_keys=True)
        (STORES / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
