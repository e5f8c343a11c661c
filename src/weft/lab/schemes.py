"""The names and colours that experiments on the topic-aware DHT give to its four schemes."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from weft.lab.figures import look

NAMES = {
    ("full-gossip", "push"): "FullGossip",
    ("full-gossip", "push-pull"): "FullGossip, push-pull",
    ("forward-gossip", "push"): "ForwardGossip",
    ("forward-gossip", "push-pull"): "ForwardGossip, push-pull",
    ("full-treecast", "push"): "FullTreeCast",
    ("forward-treecast", "push"): "ForwardTreeCast",
}
"""By scheme and mode of gossip, as the paper calls them."""
TREES = ("FullTreeCast", "ForwardTreeCast")
PUSHED = ("FullGossip", "ForwardGossip")
ORDER = tuple(NAMES.values())


def named() -> Column:
    """The paper's name, from the columns scheme and mode."""
    found = F.lit(None)
    for (scheme, mode), name in NAMES.items():
        both = (F.col("scheme") == scheme) & (F.col("mode") == mode)
        found = F.when(both, F.lit(name)).otherwise(found)
    return found


def style(name: str) -> dict[str, Any]:
    """The colour, marker and label that a scheme is drawn with."""
    number = ORDER.index(name)
    return {**look(number), "label": name}
