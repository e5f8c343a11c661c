"""Looks through what a store holds, without a network: topics, events, and the events before one.

python examples/browser.py STORE.db                the topics
python examples/browser.py STORE.db /orders        the latest events
python examples/browser.py STORE.db /orders CID    one event, and those that it follows
"""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path

from weft.documents.descriptor import known_event
from weft.documents.headers import in_metadata
from weft.ids import Topic, cid_text, parse_cid, peer_text
from weft.store.reader import read_all
from weft.store.sqlite import SqliteStore

SHOWN = 20


def main(path: Path, topic: str = "", cid: str = "") -> None:
    if not path.is_file():
        sys.exit(f"there is no store {path}")
    store = SqliteStore(path)
    if not topic:
        for name in store.topics():
            print(f"{name}: {store.summary(name).events} events")
    elif not cid:
        for event in deque(read_all(store, Topic(topic)), SHOWN):
            text = event.payload.decode(errors="replace")
            print(cid_text(event.cid), peer_text(event.publisher)[-6:], text)
    else:
        block = store.get(parse_cid(cid))
        if block is None:
            sys.exit(f"{cid} is not in the store")
        event = known_event(block, parse_cid(cid))
        print("payload", event.payload.decode(errors="replace"))
        print("headers", in_metadata(event.metadata))
        for parent in event.parents:
            print("follows", cid_text(parent))
    store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
