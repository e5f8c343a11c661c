"""Sending this protocol's messages, and waiting for answers (by the DHT's own calls)."""

from __future__ import annotations

from collections.abc import Callable

from weft.ids import Contact
from weft.protocol.context import Context
from weft.protocol.kademlia.rpc import Calls
from weft.protocol.messages_topic_dht import RoleReply, TopicDhtMessage

Answered = Callable[[RoleReply | None], None]
"""Told of the answer, or None if there was none."""


def after_all(count: int, then: Callable[[], None]) -> Callable[..., None]:
    """To be called so many times, whatever with; after the last (or none at all) `then` is."""
    waiting = count
    if not waiting:
        then()

    def one(*_: object) -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            then()

    return one


class Talking:
    """See the module's text."""

    def __init__(self, ctx: Context, calls: Calls) -> None:
        self._ctx = ctx
        self._calls = calls

    def send(self, to: Contact, message: TopicDhtMessage) -> None:
        self._ctx.counters["topic_dht_messages"] += 1
        self._ctx.send(to, message)

    def ask(self, to: Contact, make: Callable[[int], TopicDhtMessage], then: Answered) -> None:
        """Send the message that `make` makes for a request's number; it is repeated while it is
        not answered, so whoever gets it may get it twice."""
        self._ctx.counters["topic_dht_messages"] += 1
        self._calls.ask(to, make, RoleReply, then)
