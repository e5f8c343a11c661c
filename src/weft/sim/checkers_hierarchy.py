"""Judges of topic hierarchies: an event counts in its topic and in those above it up to the root,
and nowhere else, and every subscriber learns where it was published.

That these topics' subscribers get it, once each, and nobody else, is judged by `checkers` for each
topic by itself. What is above a topic is told here without the rules under test.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from weft.ids import Topic
from weft.sim.record import Record


def expected_levels(topic: str, roots: Iterable[str]) -> list[str]:
    """A topic and every shorter path that is a root or lies below one."""
    segments = topic.split("/")
    paths = ["/".join(segments[:length]) for length in range(len(segments), 1, -1)]
    starts = [f"{root.rstrip('/')}/" for root in roots]
    inside = {path for path in paths for start in starts if f"{path}/".startswith(start)}
    return [path for path in paths if path == topic or path in inside]


def check_levels(
    record: Record, published: Mapping[bytes, Topic], roots: Iterable[str]
) -> list[str]:
    """`published` has for each payload the topic that its user named."""
    roots = list(roots)
    violations = []
    found: dict[tuple[int, bytes], list[Topic]] = defaultdict(list)
    for publication in record.publications.values():
        found[publication.peer, publication.payload].append(publication.topic)
    for (peer, payload), topics in found.items():
        expected = expected_levels(published[payload], roots)
        if sorted(topics) != sorted(expected):
            violations.append(
                f"peer {peer} published in {published[payload]}, and that went to "
                f"{', '.join(topics)} instead of {', '.join(expected)}"
            )
    for delivery in record.deliveries:
        named = published[delivery.event.payload]
        if delivery.topic not in expected_levels(named, roots):
            violations.append(
                f"peer {delivery.peer} was handed an event of {named} in {delivery.topic} "
                f"at {delivery.at_ms} ms"
            )
        elif (delivery.published_in or delivery.topic) != named:
            violations.append(
                f"peer {delivery.peer} was told at {delivery.at_ms} ms that an event of {named} "
                f"was published in {delivery.published_in or delivery.topic}"
            )
    return violations
