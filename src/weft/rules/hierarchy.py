"""Topic hierarchies: which topics an event counts in, and what may be claimed of that (paper 002,
Sections 4.5 and 5.3).

Topics are paths, so `/sports` is above `/sports/football`. Inside a hierarchy, named by its highest
topic (its *root*), an event published in a topic is published in every topic above it too, up to
the root. So a subscriber of a topic gets the events of its sub-topics; outside hierarchies
every topic stands for itself.

The root "/" stands for all topics: it is no topic itself, and hierarchies then end at paths of one
segment. Of several roots above a topic the highest counts.

With history each of these topics has a stream of its own, and the event in it says, signed, where
it was published (`ORIGIN`); an owned topic's versions name the root of the hierarchy it is in
(`ROOT`).

Invariants: `above` begins with the topic itself and each further one is the parent of the one
before; the last is the root, or of one segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from weft.ids import BadId, Topic, parse_topic

EVERYTHING = "/"
"""The root above all topics."""
ORIGIN = "published_in"
"""Metadata of an event that climbed: the topic it was published in."""
ROOT = "hierarchy"
"""Metadata of a topic version: the root of the hierarchy that the topic is in."""


def parse_root(text: str) -> str:
    """Check that `text` can be the root of a hierarchy."""
    return EVERYTHING if text == EVERYTHING else parse_topic(text)


def is_below(topic: str, other: str) -> bool:
    """Whether `topic` is a sub-topic of `other`, at any depth; nothing is below itself."""
    start = EVERYTHING if other == EVERYTHING else other + "/"
    return len(topic) > len(start) and topic.startswith(start)


def above(topic: Topic, roots: Iterable[str]) -> list[Topic]:
    """The topics an event of `topic` counts in: itself, then upwards to the root."""
    containing = [root for root in roots if root == topic or is_below(topic, root)]
    levels = [topic]
    if not containing:
        return levels
    root = min(containing, key=len)
    while levels[-1] != root and (cut := levels[-1].rfind("/")) > 0:
        levels.append(Topic(levels[-1][:cut]))
    return levels


def climb(named: Iterable[Topic], levels: Callable[[Topic], Sequence[Topic]]) -> list[Topic]:
    """All topics that an event published in these counts in, each once; a topic that was named
    comes before those above it that were not."""
    return list(dict.fromkeys(level for topic in named for level in levels(topic)))


def origin(
    topic: Topic, topics: Iterable[Topic], levels: Callable[[Topic], Sequence[Topic]]
) -> Topic:
    """Where an event that counts in `topics` (in the order of `climb`) was published, as far as
    `topic` is concerned: there, or in the first of its sub-topics."""
    for other in topics:
        if other == topic or (is_below(other, topic) and topic in levels(other)):
            return other
    return topic


def claimed_origin(topic: Topic, metadata: Mapping[str, object]) -> Topic:
    """Where an event says that it was published; see `may_come_from`."""
    claim = metadata.get(ORIGIN)
    return Topic(claim) if isinstance(claim, str) else topic


def is_sub_topic(claim: object, topic: Topic) -> bool:
    """Whether what an event says of its origin is the name of one of a topic's sub-topics."""
    if not isinstance(claim, str) or not is_below(claim, topic):
        return False
    try:
        parse_topic(claim)
    except (BadId, UnicodeEncodeError):
        return False
    return True


def may_come_from(topic: Topic, claim: object, roots: Iterable[str]) -> bool:
    """Whether an event in `topic` can have climbed from where it claims."""
    return is_sub_topic(claim, topic) and topic in above(Topic(str(claim)), roots)


def root_in(metadata: Mapping[str, object], topic: Topic) -> str | None:
    """The root of the hierarchy that a version says its topic is in; None: it is in none."""
    root = metadata.get(ROOT)
    if isinstance(root, str) and (root == topic or (root != EVERYTHING and is_below(topic, root))):
        return root
    return None
