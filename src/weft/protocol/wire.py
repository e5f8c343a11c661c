"""The parts that messages are made of: numbers, spans of events, the push of a run.

What events travel in, the signed run, is `documents/run.py`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Protocol, TypeAlias

from msgspec import Meta, Struct

from weft.documents import run as runs
from weft.documents.run import Run, Statement
from weft.ids import Topic, WirePeerId, WireTopic

Counter: TypeAlias = runs.Counter


class Message(Struct, frozen=True, array_like=True, gc=False):
    """Base of all messages; the first two flags say which sign of life one calls for
    (`liveness.py`)."""

    asks: ClassVar[bool] = False  # the receiver answers it
    feeds: ClassVar[bool] = False  # it goes over a link, so the receiver should live
    carries: ClassVar[bool] = False  # it brings events; all others are control
    # It goes to the origin of a walk, which another peer named and may have made up.
    reports: ClassVar[bool] = False


class OfTopic(Protocol):
    """A message about one topic."""

    @property
    def topic(self) -> Topic: ...


LIST_MAX = 512
"""guess: no list in one message is longer; longer ones are sent in pages."""


HOPS_MAX = 1 << 16


Hops: TypeAlias = Annotated[int, Meta(ge=0, le=HOPS_MAX)]


class Span(Struct, frozen=True, array_like=True, gc=False):
    """Events `first` … `last` (inclusive) of one publisher's incarnation in one topic."""

    publisher: WirePeerId
    incarnation: Counter
    first: Counter
    last: Counter


def span_of(run: Run) -> Span:
    """The events of a run, by their numbers."""
    return Span(run.publisher, run.incarnation, run.first, run.last)


REASON_MAX = 200
"""guess: a sentence."""
WireReason: TypeAlias = Annotated[str, Meta(max_length=REASON_MAX)]
"""Why a peer does not take a run, in words for people."""

Spans: TypeAlias = Annotated[list[Span], Meta(max_length=LIST_MAX)]
Statements: TypeAlias = Annotated[list[Statement], Meta(max_length=LIST_MAX)]


class Payload(Message, frozen=True, tag=22):
    """Pushes a run of events in a topic."""

    feeds: ClassVar[bool] = True
    carries: ClassVar[bool] = True

    topic: WireTopic
    run: Run
    hops: Hops
    reach: Hops = 0  # the publisher pushes this run itself, over so many links; else 0
