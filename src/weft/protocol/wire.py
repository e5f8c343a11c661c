"""The parts that messages are made of: numbers, events, runs of events."""

from __future__ import annotations

from typing import Annotated, ClassVar, Protocol, TypeAlias

from msgspec import Meta, Struct

from weft.ids import Topic, WirePeerId, WireTopic

Counter: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""A 63-bit number: ids, counters, milliseconds."""


class Message(Struct, frozen=True, array_like=True, gc=False):
    """Base of all messages. What a kind makes its sender expect (`liveness.py`):"""

    asks: ClassVar[bool] = False  # its receiver answers it
    feeds: ClassVar[bool] = False  # it goes over a link, at whose end somebody should be


class OfTopic(Protocol):
    """A message about one topic."""

    @property
    def topic(self) -> Topic: ...


LIST_MAX = 512
"""guess: no list in one message is longer; whatever is longer is paged."""


PAYLOAD_BYTES_MAX = 1 << 20
"""guess: 1 MiB, as libp2p's default."""


HOPS_MAX = 1 << 16


Hops: TypeAlias = Annotated[int, Meta(ge=0, le=HOPS_MAX)]


PARTS_MAX = 16
"""guess: topics that one event can be published in at once."""


class Part(Struct, frozen=True, array_like=True, gc=False):
    """One of the topics of an event that was published in several, and its number there."""

    topic: WireTopic
    number: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]


class Event(Struct, frozen=True, array_like=True, gc=False):
    """One published event. A publisher numbers its events in a topic 1, 2, 3, …; the
    incarnation (set when the publisher starts) keeps the numbers of two lives apart."""

    publisher: WirePeerId
    incarnation: Counter
    number: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
    published_ms: Counter
    payload: Annotated[bytes, Meta(max_length=PAYLOAD_BYTES_MAX)]
    # All its topics where it was published in several (protocol/multi_topic.py).
    parts: Annotated[tuple[Part, ...], Meta(max_length=PARTS_MAX)] = ()


class Span(Struct, frozen=True, array_like=True, gc=False):
    """Events `first` … `last` (inclusive) of one publisher's incarnation in one topic."""

    publisher: WirePeerId
    incarnation: Counter
    first: Counter
    last: Counter


Spans: TypeAlias = Annotated[list[Span], Meta(max_length=LIST_MAX)]


class Payload(Message, frozen=True, tag=22):
    """Pushes an event in one of its topics."""

    feeds: ClassVar[bool] = True

    topic: WireTopic
    event: Event
    hops: Hops
