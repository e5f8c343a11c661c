"""What became of a publish, and the answers to commands that callers wait for.

Events that an application publishes in one turn of its loop are sent as one run, with one answer.
Their receipts point to that answer, so that a receipt that nobody reads costs little. Reading what
only sending can tell (the event's number, the peers it went to) sends the run at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal, TypeAlias, TypeVar, get_args

from msgspec import Struct

from weft.documents.run import Event, Run
from weft.ids import Contact, PeerId, Topic, contact_text, peer_text
from weft.net.errors import NotConfirmed
from weft.protocol.delivery import message_id
from weft.protocol.seam import Answer, Outcome, Strength

T = TypeVar("T")

Became: TypeAlias = Outcome | Literal["alone", "sent", "taken"]
"""Outcomes of publishing an event; `Receipt` explains them."""
Confirm: TypeAlias = Literal["accepted"] | Strength
"""How far an event must get, for a publisher that waits for it; see `Peer.publish`."""
CONFIRM: tuple[Confirm, ...] = ("accepted", *get_args(Strength))
_ACCEPTED: tuple[Became, ...] = ("taken", "sent", "alone", "queued")

UNANSWERED = Answer(0, "failed", reason="no answer: it could not be handled, see the log")


class Sent:
    """The result of sending a run of events, which the receipts of all of them share."""

    __slots__ = ("_answer", "_dropped", "_me", "_peers")

    def __init__(
        self, me: PeerId, answer: Answer | None = None, peers: int = 0, dropped: int = 0
    ) -> None:
        self._me = me
        self._answer = answer
        self._peers = peers
        self._dropped = dropped

    def send(self) -> None:
        """Send what was gathered now, so that its answer is known, if it was not sent already."""
        sent = self._take_off()
        if sent is not None:
            self._peers, self._dropped = sent

    def _take_off(self) -> tuple[int, int] | None:
        """Sends a run; returns to how many peers it went, and for how many there was no room. Here
        it was sent already."""
        return None

    def on_answer(self, answer: Answer, peers: int) -> bool:
        """An answer came, by which the run has been sent to so many peers. False: it had one
        before, and this is the later one."""
        if self._answer is not None:
            return False
        self._answer, self._peers = answer, peers
        return True

    @property
    def outcome(self) -> Became:
        answer = self.answer
        if answer.outcome != "delivered":
            return answer.outcome
        if answer.alone:
            return "alone"
        return "sent" if answer.contact is None or answer.contact.peer == self._me else "taken"

    def followed_by(self, answer: Answer) -> Sent:
        """This result with the answer that came later."""
        taken = answer.contact is not None and answer.contact.peer != self._me
        return Sent(self._me, answer, 1 if taken else self.peers, self.dropped)

    @property
    def answer(self) -> Answer:
        if self._answer is None:
            self.send()
        return self._answer or UNANSWERED

    @property
    def late(self) -> asyncio.Future[Answer] | None:
        """The future of the later answer, if there will be one."""
        return None

    @property
    def peers(self) -> int:
        self.send()
        return self._peers

    @property
    def dropped(self) -> int:
        self.send()
        return self._dropped


class Receipt(Struct, frozen=True, eq=False, gc=False):
    """What became of one event. `outcome` is one of

    - ``taken``: this peer is not subscribed, and an access point, which is, has said that it has
      the event and spreads it in the topic;
    - ``sent``: this peer is subscribed and has sent the event to other members, which do not say
      what they do with it unless they are asked (`confirm`);
    - ``alone``: this peer is subscribed and knows no other peer of the topic. Its own subscriptions
      got the event; members that it meets later get it while it is recent, with a store always;
    - ``queued``: it is on its way to an access point, or there is no network yet; `final` waits
      for the outcome;
    - ``no_subscriber``: no subscriber to the topic was found;
    - ``dropped``: given up (no access point took it, or too many publishes were waiting);
    - ``failed``: it could not be stored (`reason` says why) and was not published;
    - ``refused``: the topic's owners do not let this peer publish in it, as far as it knows, or
      peers of the topic said so; `reason` has their words.

    With a store, every other outcome means that the event is durable here.
    """

    topic: Topic
    _sent: Sent
    _place: int = 0  # of the event among those that were sent as one run
    _final: asyncio.Future[Answer] | None = None
    _above: Sequence[Callable[[], Awaitable[Receipt]]] = ()
    copies: tuple[str, ...] = ()
    """The ids of other peers that said that they have the event, as far as they were asked."""

    @property
    def outcome(self) -> Became:
        """What became of the event, as listed above."""
        return self._sent.outcome

    @property
    def access_point(self) -> Contact | None:
        """The peer that took the event, if this one is not subscribed."""
        return self._sent.answer.contact

    @property
    def reason(self) -> str:
        """Why it failed, or was refused or dropped; else empty."""
        return self._sent.answer.reason

    @property
    def peers(self) -> int:
        """How many peers it was sent to at once."""
        return self._sent.peers

    @property
    def dropped(self) -> int:
        """How many of these had no room for it."""
        return self._sent.dropped

    @property
    def event(self) -> Event | None:
        """Its number and its publisher; None if no event came to be, or not yet."""
        run = self._sent.answer.run
        return run.event(self._place) if run is not None else None

    @property
    def event_id(self) -> str:
        """The event's id, as in notifications and in the trace; empty if no event was made."""
        event = self.event
        return message_id(self.topic, event) if event is not None else ""

    @property
    def access_point_text(self) -> str:
        return contact_text(self.access_point) if self.access_point is not None else ""

    async def final(self) -> Receipt:
        """This receipt, or for a queued event the receipt with the final outcome."""
        final = self._final or self._sent.late
        if final is None:
            return self
        answer = await asyncio.shield(final)
        sent = self._sent.followed_by(answer)
        return Receipt(self.topic, sent, self._place, None, self._above)

    def with_copies(self, copies: Sequence[Contact]) -> Receipt:
        """This receipt, with the other peers that said that they have the event."""
        named = tuple(peer_text(one.peer) for one in copies)
        return Receipt(self.topic, self._sent, self._place, self._final, self._above, named)

    @property
    def run(self) -> Run | None:
        """The run that the event was sent in."""
        return self._sent.answer.run

    async def confirmed(self, confirm: Confirm) -> Receipt:
        """This receipt, or the final one, if the event was accepted; else `NotConfirmed`. For more
        than "accepted" a queued event's final outcome is waited for."""
        receipt = self if confirm == "accepted" else await self.final()
        if receipt.outcome not in _ACCEPTED:
            raise NotConfirmed(receipt.in_words, receipt.outcome)
        return receipt

    @property
    def in_words(self) -> str:
        """The outcome as a text for people."""
        return {
            "taken": f"taken by {self.access_point_text}",
            "sent": f"sent to {self.peers} peers of the topic",
            "alone": f"no other peer of {self.topic} is known",
            "queued": f"queued: no peer of {self.topic} has taken it yet; this peer keeps trying",
            "no_subscriber": f"no subscriber of {self.topic} was found",
        }.get(self.outcome, f"{self.outcome}: {self.reason or 'the peer closed'}")

    async def above(self) -> list[Receipt]:
        """In a hierarchy: what became of the event in the topics above this one, the nearest
        first. A level without subscribers ends as ``no_subscriber``, which is no fault."""
        return [await level() for level in self._above]

    async def report(self) -> dict[str, object]:
        """As `as_dict`. If the event's own topic has no subscribers, "above" says what became of it
        in the topics above, which is waited for."""
        report = self.as_dict()
        if self.outcome == "no_subscriber" and self._above:
            report["above"] = [level.as_dict() for level in await self.above()]
        return report

    def as_dict(self) -> dict[str, object]:
        """The receipt, ready for JSON."""
        return {
            "outcome": self.outcome,
            "topic": self.topic,
            "event_id": self.event_id,
            "access_point": self.access_point_text,
            "peers": self.peers,
            "dropped": self.dropped,
            "reason": self.reason,
            "copies": list(self.copies),
        }

    def __repr__(self) -> str:
        return f"Receipt({self.outcome}, {self.topic!r}, {self.event_id!r}, peers={self.peers})"


def unconfirmed(topic: str, error: NotConfirmed) -> dict[str, object]:
    """As `Receipt.as_dict`, for an event that was not confirmed."""
    told = {"outcome": error.outcome, "topic": topic, "event_id": "", "access_point": ""}
    return {
        **told,
        "peers": 0,
        "dropped": 0,
        "reason": str(error),
        "copies": [],
        "confirmed": False,
    }


class Answers:
    """Answers waited for, by the tokens of their commands.

    Most commands are answered while they are carried out, and their caller takes the answer from
    here as the command returns: that makes no future. Others are answered later, some of them
    twice: first that the event is queued, then what became of it.
    """

    __slots__ = ("_loop", "_prompt", "_prompt_token", "_token", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._token = 0
        self._waiting: dict[int, Callable[[Answer], None]] = {}
        self._prompt: Answer | None = None  # to the command being carried out
        self._prompt_token = 0

    def next_token(self, then: Callable[[Answer], None] | None = None) -> int:
        """The token of a new command. `then` is called with its answers, but not with one that
        comes at once."""
        self._token += 1
        if then is not None:
            self._waiting[self._token] = then
        return self._token

    @contextmanager
    def asking(self, then: Callable[[Answer], None]) -> Iterator[int]:
        """The token of a command that is given in the block. If that fails, no answer comes."""
        token = self.next_token(then)
        try:
            yield token
        except Exception:
            self._waiting.pop(token, None)
            raise

    def on_answer(self, answer: Answer) -> None:
        if answer.token == self._prompt_token:
            self._prompt = answer
            self._prompt_token = 0
            return
        tell = self._waiting.get(answer.token)
        if tell is not None:
            if answer.outcome != "queued":  # a final answer follows that one
                del self._waiting[answer.token]
            tell(answer)

    def while_doing(self, step: Callable[[], object], token: int) -> Answer | None:
        """Carry out a command; returns its answer, if that comes at once."""
        self._prompt = None
        self._prompt_token = token
        step()
        self._prompt_token = 0
        if self._prompt is not None and self._prompt.outcome != "queued":  # no other follows
            self._waiting.pop(self._prompt.token, None)
        return self._prompt

    def expect(self, token: int) -> asyncio.Future[Answer]:
        """A future for the next answer to a command; its caller may cancel it."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[token] = partial(give, future)
        future.add_done_callback(lambda done: self._waiting.pop(token, None))
        return future

    def expect_two(
        self, token: int, note: Callable[[Answer], None]
    ) -> tuple[asyncio.Future[Answer], asyncio.Future[Answer]]:
        """Futures for the answer to a command, which `note` is called with at once, and for the
        final answer if the first was "queued"."""
        first: asyncio.Future[Answer] = self._loop.create_future()
        final: asyncio.Future[Answer] = self._loop.create_future()

        def tell(answer: Answer) -> None:
            if not first.done():
                note(answer)
            give(final if first.done() else first, answer)

        self._waiting[token] = tell
        return first, final

    def close(self) -> None:
        """No more answers will come."""
        waiting, self._waiting = self._waiting, {}
        for token, tell in waiting.items():
            tell(Answer(token, "dropped"))


def give(future: asyncio.Future[T], result: T) -> None:
    """Set a future's result, unless it has one or its caller has gone."""
    if not future.done():  # nor cancelled
        future.set_result(result)
