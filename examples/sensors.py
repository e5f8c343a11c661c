"""A thousand sensors, each with a topic of its own, and one program that knows the latest of all.

    python examples/sensors.py

One subscription, one queue and one callback for all topics; a sensor that comes later is added.
"""

from __future__ import annotations

import asyncio
import json

import weft

SENSORS = 1_000


async def main(sensors: int = SENSORS) -> dict[str, float]:
    latest: dict[str, float] = {}
    complete = asyncio.Event()

    def remember(note: weft.Notification) -> None:
        reading = note.value
        assert isinstance(reading, dict)
        latest[note.topic] = reading["celsius"]
        if len(latest) == sensors + 1:
            complete.set()

    async with weft.Peer.open(encode=json.dumps, decode=json.loads) as peer:
        names = [f"/sensors/{number}" for number in range(sensors)]
        sub = await peer.subscribe(names, callback=remember)
        await sub.add("/sensors/late")
        for number, name in enumerate(sub.topics):
            headers = {"unit": "celsius"}
            await peer.publish(name, {"celsius": 20 + number / sensors}, headers=headers)
        await complete.wait()
    print(f"{len(latest)} sensors, the warmest has {max(latest.values()):.1f} °C")
    return latest


if __name__ == "__main__":
    asyncio.run(main())
