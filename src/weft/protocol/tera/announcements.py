"""Announcements of a peer's trees, those of different topics to one neighbour in one message.

A tree announces what it pushes to those of its neighbours that it does not push to (Plumtree's
lazy links, `tree.py`). A peer in many topics has much the same neighbours in all of them. So its
trees do not send their announcements themselves: they say here that they have some, and after
`lazy_delay_ms` those of all topics go out together. While events flow the pause is four times as
long, since each frame wakes a process, and members wait longer than that for the tree before they
ask for an event. A publisher's first event does not wait so long, since no link may bring it yet.

measured: 10 peers in 200 topics, 1,000 events a second: 8.0 frames per delivery with a message for
each topic, of which 6.7 were announcements. 450 events a second to nine readers: with one in 50 ms,
announcements were 19 to 28 % of the frames that came to a reader, and nearly all that left one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Protocol, TypeAlias

from msgspec import Meta, Struct

from weft.documents.run import Run
from weft.ids import GENERAL, Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context
from weft.protocol.recent import IHave
from weft.protocol.seam import Millis
from weft.protocol.wire import LIST_MAX, Message, Span, Spans


class Announced(Struct, frozen=True, array_like=True, gc=False):
    """Events of one topic that the sender holds."""

    topic: WireTopic
    spans: Spans


class IHaveOfTopics(Message, frozen=True, tag=49):
    """As `IHave`, in several topics."""

    feeds: ClassVar[bool] = True

    announced: Annotated[list[Announced], Meta(max_length=LIST_MAX)]


LAZY = "tree.lazy"
"""The time at which gathered announcements are sent."""
_FLOWING = 4
"""guess: times `lazy_delay_ms` between two announcements."""

LifeKey: TypeAlias = tuple[PeerId, int]
"""Publisher and incarnation."""
Gathered: TypeAlias = tuple[list[Span], list[Contact]]
"""Events, and the neighbours that they are announced to."""


class Gathering:
    """Events of one topic that are announced together."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: dict[LifeKey, list[list[int]]] = {}  # first and last numbers, in stretches

    def add(self, run: Run) -> None:
        runs = self._runs.setdefault((run.publisher, run.incarnation), [])
        if runs and runs[-1][1] + 1 == run.first:
            runs[-1][1] = run.last
        else:
            runs.append([run.first, run.last])

    def take(self) -> list[Span]:
        """What was gathered so far; from now on it is empty."""
        gathered, self._runs = self._runs, {}
        return [Span(*key, *run) for key, runs in gathered.items() for run in runs]


class Announcing(Protocol):
    """What an announcer asks of a topic's tree: the events to announce, and to which neighbours."""

    @property
    def topic(self) -> Topic: ...

    def take_announcements(self) -> Iterator[Gathered]: ...


class Announcer:
    """Which topics of a peer have something to announce."""

    __slots__ = ("_ctx", "_due", "_rests_until", "_topics")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._topics: dict[Topic, None] = {}
        self._due: Millis = 0  # when these are announced
        self._rests_until: Millis = 0  # after the latest announcements

    def soon(self, topic: Topic, first: bool) -> None:
        """There is something to announce in this topic; `first`: a publisher's first event."""
        if topic in self._topics and not first:  # nearly always
            return
        due = self._ctx.now + self._ctx.config.dissemination.lazy_delay_ms
        if not first:
            due = max(due, self._rests_until)
        if not self._topics or due < self._due:
            self._due = due
            self._ctx.set_timer(due - self._ctx.now, LAZY, GENERAL)
        self._topics[topic] = None

    def take_topics(self) -> list[Topic]:
        """The topics whose announcements are to be sent now."""
        topics, self._topics = list(self._topics), {}
        if topics:
            gathered_ms = self._ctx.config.dissemination.lazy_delay_ms
            self._rests_until = self._ctx.now + _FLOWING * gathered_ms
        return topics

    def announce(self, trees: Iterable[Announcing]) -> None:
        """Send each neighbour the announcements of all topics, in as few messages as they fit."""
        to: dict[PeerId, tuple[Contact, list[Announced]]] = {}
        for tree in trees:
            for spans, contacts in tree.take_announcements():
                for start in range(0, len(spans), LIST_MAX):
                    announced = Announced(tree.topic, spans[start : start + LIST_MAX])
                    for contact in contacts:
                        to.setdefault(contact.peer, (contact, []))[1].append(announced)
        # Neighbours that hear the same get the same object, which is encoded once.
        made: dict[tuple[int, ...], list[Message]] = {}
        for contact, said in to.values():
            key = tuple(map(id, said))
            if key not in made:
                made[key] = list(_messages(said))
            for message in made[key]:
                self._ctx.send(contact, message)


def _messages(said: list[Announced]) -> Iterator[Message]:
    """The messages for one neighbour, with at most `LIST_MAX` spans each."""
    page: list[Announced] = []
    room = LIST_MAX
    for one in said:
        if page and len(one.spans) > room:
            yield _message(page)
            page, room = [], LIST_MAX
        page.append(one)
        room -= len(one.spans)
    if page:
        yield _message(page)


def _message(page: list[Announced]) -> Message:
    if len(page) > 1:
        return IHaveOfTopics(page)
    return IHave(page[0].topic, page[0].spans)
