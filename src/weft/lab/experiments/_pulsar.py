"""What the experiments on Pulsarcast share: names and looks of the routings."""

from __future__ import annotations

from typing import Any

from weft.lab.figures import colour, marker

ROUTINGS = ("tera", "pulsarcast", "flood", "topic-dht")
NAMES = {
    "tera": "TERA",
    "pulsarcast": "Pulsarcast's trees",
    "flood": "flood",
    "topic-dht": "topic-aware DHT",
}


def style(routing: str) -> dict[str, Any]:
    """How a routing is drawn."""
    number = ROUTINGS.index(routing)
    return {"color": colour(number), "marker": marker(number)}
