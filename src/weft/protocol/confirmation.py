"""Copies: which other peers have an event, by their own word.

A publisher that spread an event knows that it sent it, not what became of it. A program that wants
to know asks for copies (`Confirm`): so many distinct peers must say that they have *taken* the
event, or that it is *stored* with them, on disk. Each says so over its own connection, which its
key has proven, so nobody can speak for another. The publisher's own copy does not count.

The publisher asks members of the topic that it knows, linked ones first, and the access point that
took its event. Where these are too few, it looks for more (`Routing.find`). A member that has not
got the event yet, or not on disk, is asked again soon, and ever more seldom, until the caller's
time is up. A few more than needed are asked, since some may not answer.

A member that refused the event says why. One peer's refusal proves nothing, it may lie; but when
every member that could be asked has refused, that is the answer, with the reason. A member that
refuses what its publisher handed it directly says so unasked, as well: the publisher's user is
warned, since a member's publish is answered before any other peer has seen the event.

On the wire the question is a `BlocksRequest` that names the run it is about (`about`), and the
answer a `BlocksReply` with a word on it and without blocks. A peer of before, which ignores these
fields, answers with the blocks themselves or not at all, and never counts as a copy.

Invariants: at most `_ASKING_MAX` questions of users are open, each about one run; nobody is asked
twice within `_AGAIN_MS`; an answer counts once, and only from a peer that was asked.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.bounded import BoundedDict
from weft.documents.run import RUN_MAX
from weft.ids import Cid, Contact, PeerId, Topic, cid_of, peer_text
from weft.protocol.context import Context, LookupDone
from weft.protocol.delivery import Delivery
from weft.protocol.history.fetch import (
    NO_WORD,
    REFUSED,
    STORED,
    TAKEN,
    BlocksReply,
    BlocksRequest,
)
from weft.protocol.routing import Handlers, Routing
from weft.protocol.seam import Answer, Confirm, Millis, Outcome, Warn
from weft.protocol.wire import Span, span_of
from weft.store.interface import Store
from weft.terminal import printable

TIMER = "confirm"
_ASKING_MAX = 4_096
"""guess: runs whose publisher waits for copies; some hundred bytes each."""
_AGAIN_MS = 20
"""guess: an event is on another peer's disk by then, mostly; doubles up to …"""
_AGAIN_MS_MAX = 2_000
"""guess: … this."""
_MORE = 2
"""guess: peers asked beyond those needed, since some may not answer."""
_WARN_MS = 60_000
"""guess: between two warnings about one topic."""
_WARNED_MAX = 256
"""guess: topics that this peer's user was warned of."""
_LATE = "not enough peers said so in time"
_CROWDED = "too many publishes wait for copies"


class _Asking:
    """A user's question about one run, and what was said so far."""

    __slots__ = (
        "again_ms",
        "asked",
        "cids",
        "command",
        "deadline",
        "finding",
        "found",
        "not_on_disk",
        "refused",
        "said",
        "span",
        "times",
    )

    def __init__(self, command: Confirm, deadline: Millis) -> None:
        self.command = command
        self.deadline = deadline
        self.span = span_of(command.run)
        stored = command.strength == "stored"
        self.cids = [cid_of(block) for block in command.run.payloads] if stored else []
        self.said: dict[PeerId, Contact] = {}  # they have it
        self.refused: dict[PeerId, str] = {}  # and why
        self.not_on_disk: dict[PeerId, None] = {}  # they have it, and it should be stored
        self.asked: dict[PeerId, Contact] = {}
        self.times: dict[PeerId, int] = {}  # how often
        self.found: dict[PeerId, Contact] = {}  # by lookups, and the access point
        self.finding = 0  # the lookup under way
        self.again_ms = _AGAIN_MS

    @property
    def lacks(self) -> int:
        """Copies that are still to be found."""
        return self.command.copies - len(self.said)


class Confirmations:
    """What one peer asks others about its events, and what it answers about theirs."""

    def __init__(
        self, ctx: Context, delivery: Delivery, routing: Routing, library: Store | None
    ) -> None:
        """`library`: the store, where there is one."""
        self._ctx = ctx
        self._delivery = delivery
        self._routing = routing
        self._library = library
        self._asking: dict[int, _Asking] = {}
        self._by_lookup: dict[int, int] = {}
        self._warned: BoundedDict[Topic, Millis] = BoundedDict(_WARNED_MAX)

    def handlers(self, below: Handlers) -> Handlers:
        """Those of history, `below`; questions about copies travel in its messages."""
        ask, answer = below[BlocksRequest], below[BlocksReply]

        def on_request(sender: Contact, message: BlocksRequest) -> None:
            if message.about is None:
                ask(sender, message)
            else:
                self._on_question(sender, message, message.about)

        def on_reply(sender: Contact, message: BlocksReply) -> None:
            if message.word == NO_WORD and message.request not in self._asking:
                answer(sender, message)
            else:
                self._on_word(sender, message)

        return {**below, BlocksRequest: on_request, BlocksReply: on_reply}

    # --- asking -----------------------------------------------------------------------------------

    def confirm(self, command: Confirm) -> None:
        """Ask for copies of a run of this peer's own."""
        ctx = self._ctx
        if len(self._asking) >= _ASKING_MAX:
            ctx.answer(Answer(command.token, "dropped", reason=_CROWDED))
            return
        number = ctx.next_serial()
        asking = _Asking(command, ctx.now + command.timeout_ms)
        if command.access_point is not None and command.access_point.peer != ctx.me.peer:
            asking.found[command.access_point.peer] = command.access_point
        self._asking[number] = asking
        self._go_on(number, asking)

    def on_timer(self, number: int) -> None:
        asking = self._asking.get(number)
        if asking is None:
            return
        if self._ctx.now >= asking.deadline:
            self._finish(number, asking, "dropped", _late(asking))
        elif asking.refused and not self._open(asking) and not asking.finding:
            self._finish(number, asking, "refused", _first(asking.refused))
        else:
            self._go_on(number, asking)

    def on_lookup_done(self, done: LookupDone) -> bool:
        """Whether a lookup was begun here."""
        number = self._by_lookup.pop(done.lookup, None)
        if number is None:
            return False
        asking = self._asking.get(number)
        if asking is not None:
            asking.finding = 0
            new = [one for one in done.contacts if one.peer != self._ctx.me.peer]
            asking.found.update((one.peer, one) for one in new)
            self._ask(number, asking, new[: asking.lacks + _MORE])
        return True

    def close(self) -> None:
        """This peer leaves."""
        for number, asking in list(self._asking.items()):
            self._finish(number, asking, "dropped", "this peer left the network")

    def _open(self, asking: _Asking) -> list[Contact]:
        """Peers that may still say that they have it, those that were asked least often first: some
        never answer, and others must have their turn."""
        known = {**asking.found, **asking.asked}
        for member in self._routing.members(asking.command.topic):
            known[member.peer] = member
        closed = asking.said.keys() | asking.refused.keys()
        left = [contact for peer, contact in known.items() if peer not in closed]
        return sorted(left, key=lambda contact: asking.times.get(contact.peer, 0))

    def _go_on(self, number: int, asking: _Asking) -> None:
        """Ask as many as are needed, look for more where too few are known, and come back soon."""
        ctx, topic = self._ctx, asking.command.topic
        left = self._open(asking)
        self._ask(number, asking, left[: asking.lacks + _MORE])
        if len(left) < asking.lacks and not asking.finding:
            known = [*asking.said, *asking.refused, *asking.asked]
            if not self._routing.is_subscribed(topic):
                asking.finding = self._routing.find(topic, known)
                self._by_lookup[asking.finding] = number
        wait_ms = max(1, min(asking.again_ms, asking.deadline - ctx.now))
        asking.again_ms = min(2 * asking.again_ms, _AGAIN_MS_MAX)
        ctx.set_timer(wait_ms, TIMER, topic, number)

    def _ask(self, number: int, asking: _Asking, contacts: Iterable[Contact]) -> None:
        for contact in contacts:
            asking.asked[contact.peer] = contact
            asking.times[contact.peer] = asking.times.get(contact.peer, 0) + 1
            question = BlocksRequest(asking.command.topic, number, asking.cids, asking.span)
            self._ctx.send(contact, question)

    def _on_word(self, sender: Contact, message: BlocksReply) -> None:
        """A peer says whether it has an event; or, unasked, that it refused one."""
        asking = self._asking.get(message.request)
        if asking is None or sender.peer not in asking.asked:
            if message.word == REFUSED and message.request == 0:
                self._warn(sender, message)
            else:
                self._ctx.counters["history_unasked"] += 1
            return
        if message.word == REFUSED:
            asking.refused[sender.peer] = message.reason
        elif message.word == TAKEN and asking.cids:
            asking.not_on_disk[sender.peer] = None
        elif message.word in (STORED, TAKEN):
            asking.not_on_disk.pop(sender.peer, None)
            asking.said[sender.peer] = sender
            if asking.lacks <= 0:
                self._finish(message.request, asking, "found", "")

    def _warn(self, sender: Contact, message: BlocksReply) -> None:
        """Another peer refuses what this one publishes. Anybody can say so: it is told seldom."""
        topic, now = message.topic, self._ctx.now
        warned = self._warned.get(topic)
        if not self._routing.is_subscribed(topic):
            return
        if warned is None or now - warned >= _WARN_MS:
            self._warned.renew(topic, now)
            told = f"{peer_text(sender.peer)} refused an event of this peer in {topic}"
            self._ctx.out.append(Warn(f"{told}: {printable(message.reason)}"))

    def _finish(self, number: int, asking: _Asking, outcome: Outcome, reason: str) -> None:
        del self._asking[number]
        said = tuple(asking.said.values())
        run = asking.command.run
        token = asking.command.token
        self._ctx.answer(Answer(token, outcome, None, run, contacts=said, reason=reason))

    # --- answering --------------------------------------------------------------------------------

    def _on_question(self, sender: Contact, message: BlocksRequest, about: Span) -> None:
        """Only a publisher asks about its own events; others learn nothing here."""
        if about.publisher != sender.peer or about.last - about.first >= RUN_MAX:
            self._ctx.counters["confirm_foreign"] += 1
            return
        word, reason = self._word(message.topic, about, message.cids)
        reply = BlocksReply(message.topic, message.request, [], [], word, reason)
        self._ctx.send(sender, reply)

    def _word(self, topic: Topic, about: Span, cids: list[Cid]) -> tuple[int, str]:
        library = self._library
        if library is not None and 0 < len(cids) <= RUN_MAX:
            held = [library.height(topic, cid) for cid in cids]
            if None not in held:
                return STORED, ""
        reason = self._delivery.refusal(topic, about)
        if reason:
            return REFUSED, reason
        recent = self._routing.recent(topic)
        taken = recent is not None and recent.has_taken(about)
        return (TAKEN if taken else NO_WORD), ""


def _late(asking: _Asking) -> str:
    """Why there are too few copies, as far as peers told."""
    why = _LATE
    if asking.not_on_disk:
        why += f"; {len(asking.not_on_disk)} took it and did not store it: perhaps without a store"
    if asking.refused:
        why += f"; {len(asking.refused)} refused it: {_first(asking.refused)}"
    return why


def _first(refused: dict[PeerId, str]) -> str:
    """What the first peer that refused the event said."""
    return next(iter(refused.values()))
