"""Flooding and bounded-fanout gossip inside a topic's overlay, over a view of it: StaN's, or
Cyclon's moving one.

Flood is the paper's reference (TERA 4.3.2: out-degree = view size). Gossip sends each new event
to a fixed number of random neighbours instead; what it misses, the repair of `recent.py` brings.
"""

from __future__ import annotations

from typing import Protocol

from weft.ids import Contact, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.wire import Event, Payload


class View(Protocol):
    """Whom a member may send to."""

    def contacts(self) -> list[Contact]: ...

    def sample(self, count: int) -> list[Contact]: ...


class Spread:
    """Flood (`fanout` None) or gossip over one topic's view."""

    __slots__ = ("_ctx", "_fanout", "_topic", "_view")

    def __init__(self, ctx: Context, topic: Topic, view: View, fanout: int | None) -> None:
        self._ctx = ctx
        self._topic = topic
        self._view = view
        self._fanout = fanout

    def push_repaired(self, event: Event, repairer: PeerId) -> None:
        self.push(event, 0, repairer)

    def push(self, event: Event, hops: int, source: PeerId | None) -> None:
        targets = self._view.contacts() if self._fanout is None else self._view.sample(self._fanout)
        message = Payload(self._topic, event, hops + 1)
        for contact in targets:
            if contact.peer in (source, event.publisher):
                continue
            if event.parts:
                self._ctx.push(contact, message, tree=False)
            else:
                self._ctx.send(contact, message)
