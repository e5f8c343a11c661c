"""One question to several peers, of which those that agree are counted."""

from __future__ import annotations

from collections.abc import Callable

from weft.protocol.kademlia.calls import Reply
from weft.protocol.messages_dht import StoreReply


class Poll:
    """Requests to several peers, of which those that agree are counted."""

    __slots__ = ("_count", "_left", "_then")

    def __init__(self, left: int, count: int, then: Callable[[int], None]) -> None:
        self._left = left
        self._count = count
        self._then = then

    def vote(self, accepted: bool) -> None:
        self._left -= 1
        self._count += accepted
        if not self._left:
            self._then(self._count)


class Vote:
    """One of them."""

    __slots__ = ("_poll",)
    expects = StoreReply

    def __init__(self, poll: Poll) -> None:
        self._poll = poll

    def answered(self, reply: Reply) -> None:
        assert isinstance(reply, StoreReply)
        self._poll.vote(reply.accepted)

    def slow(self) -> None:
        pass

    def failed(self) -> None:
        self._poll.vote(False)
