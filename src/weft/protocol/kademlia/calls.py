"""Requests that wait for their answers.

A request that is not answered soon is *slow*: whoever asked may ask others meanwhile, and it is
sent again at the same interval until time is up (unless it is large). One that is not answered at
all, or whose receiver is lost, has failed. Every call ends in exactly one of `answered` and
`failed`. An answer counts only if it comes from the peer that was asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from weft.ids import GENERAL, Contact, PeerId
from weft.protocol.context import Context
from weft.protocol.messages_dht import StoreValue
from weft.protocol.seam import Millis
from weft.protocol.wire import Message

TIMER = "dht.call"

_LARGE_BYTES = 16 << 10
"""guess: larger values are not sent twice."""


class Reply(Protocol):
    """An answer, of any layer, says which request it belongs to."""

    @property
    def request(self) -> int: ...


class Call(Protocol):
    """Who waits for an answer, and of which kind."""

    @property
    def expects(self) -> type: ...

    def answered(self, reply: Reply) -> None: ...

    def slow(self) -> None: ...

    def failed(self) -> None: ...


class _Waiting:
    __slots__ = ("call", "contact", "ends_ms", "message", "slow")

    def __init__(self, call: Call, contact: Contact, message: Message, ends_ms: Millis) -> None:
        self.call = call
        self.contact = contact
        self.message = message
        self.ends_ms = ends_ms
        self.slow = False


class Calls:
    """All requests of this peer on their way."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._waiting: dict[int, _Waiting] = {}
        self._by_peer: dict[PeerId, dict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, contact: Contact, make: Callable[[int], Message], call: Call) -> None:
        """Send the message that `make` makes for a request's number."""
        ctx = self._ctx
        number = ctx.next_serial()
        message = make(number)
        ends_ms = ctx.now + ctx.config.dht.timeout_ms
        self._waiting[number] = _Waiting(call, contact, message, ends_ms)
        self._by_peer.setdefault(contact.peer, {})[number] = None
        ctx.counters["dht_requests"] += 1
        ctx.send(contact, message)
        ctx.set_timer(ctx.config.dht.slow_ms, TIMER, GENERAL, number)

    def on_reply(self, sender: Contact, reply: Reply) -> None:
        waiting = self._waiting.get(reply.request)
        if (
            waiting is None
            or waiting.contact.peer != sender.peer
            or type(reply) is not waiting.call.expects
        ):
            return
        self._forget(reply.request)
        waiting.call.answered(reply)

    def on_timer(self, number: int) -> None:
        waiting = self._waiting.get(number)
        if waiting is None:
            return
        ctx = self._ctx
        left_ms = waiting.ends_ms - ctx.now
        if left_ms <= 0:
            self._fail(number)
            return
        if not _is_large(waiting.message):
            ctx.send(waiting.contact, waiting.message)
        ctx.set_timer(min(left_ms, ctx.config.dht.slow_ms), TIMER, GENERAL, number)
        if not waiting.slow:
            waiting.slow = True
            waiting.call.slow()

    def on_peer_lost(self, peer: PeerId) -> None:
        for number in list(self._by_peer.get(peer, ())):
            self._fail(number)

    def close(self) -> None:
        """Nobody waits any more."""
        self._waiting.clear()
        self._by_peer.clear()

    def _fail(self, number: int) -> None:
        waiting = self._forget(number)
        if waiting is not None:
            self._ctx.counters["dht_requests_failed"] += 1
            waiting.call.failed()

    def _forget(self, number: int) -> _Waiting | None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            numbers = self._by_peer[waiting.contact.peer]
            del numbers[number]
            if not numbers:
                del self._by_peer[waiting.contact.peer]
        return waiting


def _is_large(message: Message) -> bool:
    return isinstance(message, StoreValue) and len(message.value) > _LARGE_BYTES
