"""What a lookup is asked for, whom it tells, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from weft.ids import GENERAL, Topic
from weft.protocol.kademlia.space import Space
from weft.protocol.kademlia.table import Entry
from weft.protocol.messages_dht import NODES, FindReply


class Question:
    """What a lookup asks along the way."""

    __slots__ = ("count", "key", "sender_role", "space", "target", "want", "within")

    def __init__(
        self,
        space: Space,
        target: int,
        want: int = NODES,
        key: bytes = b"",
        sender_role: Topic = GENERAL,
        within: int = 0,
        count: int = 0,
    ) -> None:
        """`within`: only peers that share so many leading bits with the target are asked;
        `count`: how many of the closest are sought (0: the k of the settings)."""
        self.within = within
        self.count = count
        self.space = space
        self.target = target
        self.want = want
        self.key = key
        self.sender_role = sender_role


class Outcome:
    """What a lookup found."""

    __slots__ = ("closest", "hops", "requests", "stopped")

    def __init__(self, closest: list[Entry], hops: int, requests: int, stopped: bool) -> None:
        self.closest = closest  # that answered, closest first, at most k
        self.hops = hops  # how many peers told of each other before the closest one was known
        self.requests = requests
        self.stopped = stopped  # early, because the answers were enough


Seen = Callable[[Entry, FindReply], bool]
"""Told of every answer; True ends the lookup."""
Done = Callable[[Outcome], None]
News: TypeAlias = Literal["answered", "silent", "gone"]
"""Gone: it answered that it is not at this location."""
Heard = Callable[[Entry, News], None]
"""Told of every peer that was asked, for the tables."""
