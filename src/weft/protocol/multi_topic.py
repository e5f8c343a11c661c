"""One event in several topics: its payload crosses a connection once (StaN, Section 2.1, the
dissemination management).

Such an event has a number in each of its topics (its `parts`) and travels in each as any other,
so every topic delivers and repairs it by itself. But a peer that has sent its payload to another,
or got it from there, sends no more than a reference for the other topics (`Again`, or a
`RouteEvent` without payload). A reference that comes before the payload waits for it; if that never
comes, the reference counts as an announcement, and the event is asked for.

A peer in several of the topics needs the payload once. Over a tree it gets it in the first of them,
in the order of the parts: a neighbour that pushes in a later topic and is linked to it in an
earlier one, too, knows that, and sends a reference. The more links topics share, the more this
saves.

Invariants: at most `_GROUPS_MAX` events and `recent_bytes_max` bytes of them are remembered, each
with at most `_PEERS_MAX` peers and `_WAITING_MAX` references.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import ClassVar, TypeAlias

from msgspec.structs import replace

from weft.documents.run import Digest, Number, Part, Run, Signature
from weft.ids import Contact, PeerId, Topic, WirePeerId, WireTopic
from weft.protocol.context import Context
from weft.protocol.wire import Counter, Hops, Message, Payload


class Again(Message, frozen=True, tag=34):
    """Pushes an event whose payload the receiver got, or sent, in another of its topics."""

    feeds: ClassVar[bool] = True

    topic: WireTopic
    publisher: WirePeerId
    incarnation: Counter
    number: Number
    hops: Hops
    first: Part  # of the event's topics
    prev: Digest  # this and the signature differ from topic to topic
    signature: Signature


_GROUPS_MAX = 64
"""guess: events of several topics on their way at once."""
_PEERS_MAX = 64
_WAITING_MAX = 16
"""guess, both: links of a member in all topics of an event, and a few of its topics."""

GroupKey: TypeAlias = tuple[PeerId, int, Topic, int]
"""Publisher, incarnation, and the first of an event's topics with its number there."""


class _Group:
    """What is known of one event in several topics."""

    __slots__ = ("crossed", "run", "waiting")

    def __init__(self) -> None:
        self.run: Run | None = None  # its part in any of the topics
        self.crossed: dict[PeerId, None] = {}  # peers that have its payload
        self.waiting: list[tuple[Contact, Again]] = []


class MultiTopic:
    """The events of several topics that this peer has seen lately."""

    __slots__ = ("_bytes", "_bytes_max", "_ctx", "_groups", "_linked_in")

    def __init__(self, ctx: Context, linked_in: Callable[[PeerId], Container[Topic]]) -> None:
        """`linked_in`: the topics in which this peer has a link to another."""
        self._ctx = ctx
        self._linked_in = linked_in
        self._bytes_max = ctx.config.dissemination.recent_bytes_max
        self._groups: dict[GroupKey, _Group] = {}
        self._bytes = 0

    # --- sending --------------------------------------------------------------------------------

    def push(self, to: Contact, message: Payload) -> None:
        """Send an event of several topics, by reference if the peer has its payload already."""
        if self.crosses(to, message.run):
            self._ctx.send(to, message)
        else:
            self._ctx.send(to, _reference(message))

    def push_over_tree(self, to: Contact, message: Payload) -> None:
        """Send it by reference also where the tree of an earlier topic brings the payload."""
        if self._comes_earlier(to, message):
            self._ctx.send(to, _reference(message))
        else:
            self.push(to, message)

    def _comes_earlier(self, to: Contact, message: Payload) -> bool:
        """Whether the tree of an earlier topic brings the event to a peer."""
        links = self._linked_in(to.peer)
        for part in message.run.parts:
            if part.topic == message.topic:
                return False
            if part.topic in links:
                return True
        return False

    def crosses(self, to: Contact, run: Run) -> bool:
        """Note that a payload goes to a peer; returns whether the peer lacked it."""
        group = self._group(_key_of(run))
        if to.peer in group.crossed:
            return False
        self._hold(group, run)
        if len(group.crossed) < _PEERS_MAX:
            group.crossed[to.peer] = None
        return True

    # --- receiving ------------------------------------------------------------------------------

    def arrived(self, run: Run, source: PeerId | None) -> list[tuple[Contact, Again]]:
        """Note an event with its payload, which is proven; returns the references that waited for
        it."""
        group = self._group(_key_of(run))
        self._hold(group, run)
        if source is not None and len(group.crossed) < _PEERS_MAX:
            group.crossed[source] = None
        waiting, group.waiting = group.waiting, []
        return waiting

    def resolve(self, sender: Contact, message: Again) -> Run | None:
        """The run that a reference means, or None while its payload has not come."""
        first = message.first
        group = self._group((message.publisher, message.incarnation, first.topic, first.number))
        if len(group.crossed) < _PEERS_MAX:
            group.crossed[sender.peer] = None
        if group.run is None:
            if len(group.waiting) < _WAITING_MAX:
                group.waiting.append((sender, message))
            return None
        return replace(
            group.run, first=message.number, prev=message.prev, signature=message.signature
        )

    def resolve_routed(self, run: Run) -> Run | None:
        """A run that was routed without its payload, completed; None if that is not here."""
        if not run.parts:
            return None
        group = self._groups.get(_key_of(run))
        if group is None or group.run is None:
            return None
        return replace(run, payloads=group.run.payloads)

    # --- remembering ----------------------------------------------------------------------------

    def _group(self, key: GroupKey) -> _Group:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group()
            while len(self._groups) > _GROUPS_MAX or (
                self._bytes > self._bytes_max and len(self._groups) > 1
            ):
                self._forget(next(iter(self._groups)))
        return group

    def _forget(self, key: GroupKey) -> None:
        run = self._groups.pop(key).run
        if run is not None:
            self._bytes -= run.size

    def _hold(self, group: _Group, run: Run) -> None:
        if group.run is None:
            group.run = run
            self._bytes += run.size


def _key_of(run: Run) -> GroupKey:
    first = run.parts[0]
    return run.publisher, run.incarnation, first.topic, first.number


def _reference(message: Payload) -> Again:
    run = message.run
    return Again(
        message.topic,
        run.publisher,
        run.incarnation,
        run.first,
        message.hops,
        run.parts[0],
        run.prev,
        run.signature,
    )


def without_payload(run: Run) -> Run:
    """The run as it is sent to a peer that has the payload already."""
    return replace(run, payloads=(b"",))
