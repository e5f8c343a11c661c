"""What became of a publish."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from weft.ids import Contact, Topic, contact_text
from weft.protocol.delivery import message_id
from weft.protocol.seam import Answer, Outcome
from weft.protocol.wire import Event


class Receipt:
    """`outcome` is one of

    - ``delivered``: an access point (perhaps this peer itself) spreads the event in its topic;
    - ``queued``: there is no network yet; `final` waits for what becomes of it;
    - ``no_subscriber``: no subscriber to the topic was found;
    - ``dropped``: given up (no access point took it, or too many publishes were waiting);
    - ``failed``: it could not be stored (`reason` says why) and was not published;
    - ``refused``: the topic's owners do not let this peer publish in it.

    With a store, every other outcome means that the event is durable here.
    """

    __slots__ = (
        "_above",
        "_event",
        "_final",
        "access_point",
        "dropped",
        "outcome",
        "peers",
        "reason",
        "topic",
    )

    def __init__(
        self,
        topic: Topic,
        answer: Answer,
        peers: int,
        dropped: int,
        final: asyncio.Future[Answer] | None = None,
        above: Sequence[Callable[[], Awaitable[Receipt]]] = (),
    ) -> None:
        self.topic = topic
        self.outcome: Outcome = answer.outcome
        self.access_point: Contact | None = answer.contact
        self.peers = peers  # how many peers it was sent to at once
        self.reason = answer.reason
        self.dropped = dropped  # how many of these had no room for it
        self._event = answer.event
        self._final = final
        self._above = above

    @property
    def event(self) -> Event | None:
        return self._event

    @property
    def event_id(self) -> str:
        """As in notifications and in the trace; empty if no event came to be."""
        return message_id(self.topic, self._event) if self._event is not None else ""

    @property
    def access_point_text(self) -> str:
        return contact_text(self.access_point) if self.access_point is not None else ""

    async def final(self) -> Receipt:
        """Itself, or for a queued event the receipt that follows."""
        if self._final is None:
            return self
        answer = await asyncio.shield(self._final)
        return Receipt(self.topic, answer, self.peers, self.dropped, None, self._above)

    async def above(self) -> list[Receipt]:
        """In a hierarchy: what became of the event in the topics above this one, the nearest
        first. A level without subscribers ends as ``no_subscriber``, which is no fault."""
        return [await level() for level in self._above]

    async def report(self) -> dict[str, object]:
        """As `as_dict`, but where the event's own topic has no subscribers with what became of it
        in those above, which is waited for."""
        report = self.as_dict()
        if self.outcome == "no_subscriber" and self._above:
            report["above"] = [level.as_dict() for level in await self.above()]
        return report

    def as_dict(self) -> dict[str, object]:
        return {
            "outcome": self.outcome,
            "topic": self.topic,
            "event_id": self.event_id,
            "access_point": self.access_point_text,
            "peers": self.peers,
            "dropped": self.dropped,
            "reason": self.reason,
        }

    def __repr__(self) -> str:
        return f"Receipt({self.outcome}, {self.topic!r}, {self.event_id!r}, peers={self.peers})"
