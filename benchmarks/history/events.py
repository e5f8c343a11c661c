"""Signed events to measure with: one topic, three publishers that fork and join."""

from __future__ import annotations

import os
from collections.abc import Iterator

from weft.documents.dag import Stream
from weft.documents.descriptor import SealedEvent, seal_event
from weft.ids import Topic
from weft.net.identity import Identity

TOPIC = Topic("/benchmarks/history")
PAYLOAD_BYTES = 200
"""As in the other benchmarks: a short message."""
CREATED_MS = 1_800_000_000_000
PUBLISHERS = 3


def published(
    stream: Stream, publishers: list[Identity], topic: Topic = TOPIC
) -> Iterator[SealedEvent]:
    """Events without end. In each round all publishers follow the same heads, as if they had not
    heard of each other yet, so every round forks and joins."""
    while True:
        parents = stream.parents()
        for publisher in publishers:
            event = seal_event(
                publisher.sign,
                publisher=publisher.peer,
                topic=topic,
                payload=os.urandom(PAYLOAD_BYTES),
                created_ms=CREATED_MS,
                parents=parents,
            )
            if stream.add(event).released != [event]:
                raise RuntimeError("an event of our own was not taken")
            yield event


def some(count: int) -> list[SealedEvent]:
    """So many events of three publishers."""
    events = published(Stream(), [Identity.generate() for _ in range(PUBLISHERS)])
    return [next(events) for _ in range(count)]
