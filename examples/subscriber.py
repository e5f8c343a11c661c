"""Subscribes over plain HTTP, with nothing but Python's standard library, and loses nothing.

    python examples/subscriber.py http://127.0.0.1:8700 /chat

The page of weft (`weft web`) sends each event with an `id`. When the connection breaks, or this
program is started again, it tells the last one it has printed, and the events after it come from
the store. The id is kept in a file beside this program's output: `subscriber.id`. If no store
holds that place any more, weft says so with the event `lost`, and this program forgets it.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

PLACE = Path("subscriber.id")


def listen(base: str, topic: str) -> None:
    """Print events until the connection ends."""
    url = f"{base}/api/events?topic={urllib.parse.quote(topic)}"
    last = {"Last-Event-ID": PLACE.read_text()} if PLACE.exists() else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=last)) as events:
        place = kind = ""
        for line in events:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                place = value
            elif name == "event":
                kind = value
            elif name == "data" and kind == "lost":
                print(f"events may be missing: {json.loads(value)['error']}", file=sys.stderr)
                PLACE.unlink(missing_ok=True)
            elif name == "data":
                print(json.loads(value).get("payload", "(bytes)"), flush=True)
            if place and not line.strip():
                PLACE.write_text(place)  # after the event has been dealt with


if __name__ == "__main__":
    while True:
        try:
            listen(*sys.argv[1:3])
        except (urllib.error.URLError, OSError) as problem:
            print(f"trying again: {problem}", file=sys.stderr)
        time.sleep(1)
