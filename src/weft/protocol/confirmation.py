"""Copies: which other peers have an event, by their own word.

A publisher that spread an event knows that it sent it, not what became of it. A program that wants
to know asks for copies (`Confirm`): so many distinct peers must say that they have *taken* the
event, or that it is *stored* with them, on disk. Each says so over its own connection, which its
key has proven, so no peer can speak for another. The publisher's own copy does not count.

The publisher asks members of the topic that it knows, linked ones first, and the access point that
took its event. Where these are too few, it looks for more (`Routing.find`). A member that has not
got the event yet, or not on disk, is asked again soon, then at growing intervals, until the
caller's time is up. A few more than needed are asked, since some may not answer. Once a member was
asked `_OFTEN` times, others are looked for as well, for it may keep no store, or be gone.

A member that refused the event says why. One peer's refusal proves nothing, since it may lie; but
when every member that could be asked has refused, that is the answer, with the reason. A member
that refuses an event which its publisher handed it directly also says so unasked: the publisher's
user is warned, since a member's publish is answered before any other peer has seen the event.

Events that are published at once travel in one run, and all tasks that published them ask the same
of it: a run is asked about once for each strength, on behalf of all that wait. So the cost of a
burst of confirmed publishes grows with its runs, here and at the peers that answer.

On the wire the question is a `BlocksRequest` that names the run it is about (`about`), and the
answer a `BlocksReply` with a word on it and without blocks. An older peer, which ignores these
fields, answers with the blocks themselves or not at all, and never counts as a copy.

Invariants: at most `_ASKING_MAX` questions of users are open, each about one run and waited for by
at least one publish; each publish gets one answer, at the end of its own time at the latest; a
peer's word counts once, and only if it was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field

from weft.bounded import BoundedDict
from weft.documents.run import RUN_MAX, Run
from weft.ids import Cid, Contact, PeerId, Topic, cid_of, peer_text
from weft.protocol.context import Context, Handlers, LookupDone
from weft.protocol.delivery import Delivery
from weft.protocol.history.blocks import (
    NO_WORD,
    REFUSED,
    STORED,
    TAKEN,
    BlocksReply,
    BlocksRequest,
)
from weft.protocol.routing import Routing
from weft.protocol.seam import Answer, Confirm, Millis, Outcome, Strength, Warn
from weft.protocol.wire import Span, span_of
from weft.store.interface import Store
from weft.terminal import printable

TIMER = "confirm"
_ASKING_MAX = 16_384
"""guess: runs whose publisher waits for copies, as in a burst over so many topics; some hundred
bytes each, and as many for each publish that waits."""
_AGAIN_MS = 20
"""guess: an event is on another peer's disk by then, mostly; doubles up to `_AGAIN_MS_MAX`."""
_AGAIN_MS_MAX = 2_000
"""guess: the longest pause between two questions about one run."""
_MORE = 2
"""guess: peers asked beyond those needed, since some may not answer."""
_OFTEN = 4
"""guess: questions to one peer, the last of them 140 ms after the first; an event on its way to a
disk is there by then, mostly."""
_WARN_MS = 60_000
"""guess: between two warnings about one topic."""
_WARNED_MAX = 256
"""guess: topics of which it is remembered when this peer's user was warned."""
_LATE = "not enough peers said in time that they have it"
_CROWDED = "too many publishes wait for copies"


_Run: TypeAlias = tuple[Topic, Span, Strength]


class _Wait(NamedTuple):
    """A publish that waits for copies."""

    token: int
    copies: int
    deadline: Millis


class _Asking(Struct, eq=False):
    """The question about one run, the publishes that wait for it, and what was said so far."""

    key: _Run
    run: Run
    cids: list[Cid]  # of its blocks, where copies have to be on disk
    waiting: list[_Wait] = field(default_factory=list)
    copies: int = 0  # the most that any of these publishes wants
    due: Millis = 0  # when the timer that counts fires; earlier ones are stale
    said: dict[PeerId, Contact] = field(default_factory=dict)  # peers that say they have it
    refused: dict[PeerId, str] = field(default_factory=dict)  # peers that refused it, and why
    not_on_disk: dict[PeerId, None] = field(default_factory=dict)  # peers with it in memory only
    asked: dict[PeerId, Contact] = field(default_factory=dict)
    times: dict[PeerId, int] = field(default_factory=dict)  # how often each was asked
    found: dict[PeerId, Contact] = field(default_factory=dict)  # by lookups, and the access point
    finding: int = 0  # the lookup under way
    again_ms: Millis = _AGAIN_MS

    @property
    def topic(self) -> Topic:
        return self.key[0]

    @property
    def span(self) -> Span:
        return self.key[1]

    @property
    def lacks(self) -> int:
        """Copies that are still to be found."""
        return self.copies - len(self.said)


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
        self._by_run: dict[_Run, int] = {}
        self._by_lookup: dict[int, int] = {}
        self._warned: BoundedDict[Topic, Millis] = BoundedDict(_WARNED_MAX)

    def handlers(self, below: Handlers) -> Handlers:
        """The handlers of history (`below`), which also see to questions about copies, since these
        travel in the same messages."""
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
        """Ask for copies of a run of this peer's own, or wait with others for the same."""
        ctx = self._ctx
        key = (command.topic, span_of(command.run), command.strength)
        number = self._by_run.get(key)
        if number is None:
            if len(self._asking) >= _ASKING_MAX:
                ctx.answer(Answer(command.token, "dropped", reason=_CROWDED))
                return
            number = self._by_run[key] = ctx.next_serial()
            stored = command.strength == "stored"
            cids = [cid_of(block) for block in command.run.payloads] if stored else []
            self._asking[number] = _Asking(key, command.run, cids)
        asking = self._asking[number]
        if command.access_point is not None and command.access_point.peer != ctx.me.peer:
            asking.found[command.access_point.peer] = command.access_point
        wait = _Wait(command.token, command.copies, ctx.now + command.timeout_ms)
        asking.waiting.append(wait)
        if wait.copies > asking.copies:
            asking.copies = wait.copies
            self._ask_more(number, asking)
            self._come_back(number, asking)
        elif wait.copies <= len(asking.said):
            self._answer(number, "found", "", lambda one: one is wait)
        elif wait.deadline < asking.due:
            self._come_back(number, asking)

    def on_timer(self, number: int) -> None:
        asking = self._asking.get(number)
        now = self._ctx.now
        if asking is None or now < asking.due:
            return
        self._answer(number, "dropped", _late(asking), lambda wait: wait.deadline <= now)
        if number not in self._asking:
            return
        if asking.refused and not self._open(asking) and not asking.finding:
            self._answer(number, "refused", _first(asking.refused))
            return
        self._ask_more(number, asking)
        self._come_back(number, asking)

    def on_lookup_done(self, done: LookupDone) -> bool:
        """A lookup has ended: ask the members that it found. Returns whether it was begun here."""
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
        for number in list(self._asking):
            self._answer(number, "dropped", "this peer left the network")

    def _open(self, asking: _Asking) -> list[Contact]:
        """Peers that may still say that they have it, those that were asked least often first,
        since some never answer."""
        known = {**asking.found, **asking.asked}
        for member in self._routing.members(asking.topic):
            known[member.peer] = member
        closed = asking.said.keys() | asking.refused.keys()
        left = [contact for peer, contact in known.items() if peer not in closed]
        return sorted(left, key=lambda contact: asking.times.get(contact.peer, 0))

    def _ask_more(self, number: int, asking: _Asking) -> None:
        """Ask as many peers as are needed, and look for more where too few known ones are likely to
        have it."""
        left = self._open(asking)
        self._ask(number, asking, left[: asking.lacks + _MORE])
        hopeful = [one for one in left if asking.times.get(one.peer, 0) < _OFTEN]
        if len(hopeful) < asking.lacks and not asking.finding:
            known = [*asking.said, *asking.refused, *asking.asked]
            if not self._routing.is_subscribed(asking.topic):
                asking.finding = self._routing.find(asking.topic, known)
                self._by_lookup[asking.finding] = number

    def _come_back(self, number: int, asking: _Asking) -> None:
        """Set the timer of the next question: soon, later at growing intervals, and in time for the
        first deadline."""
        ctx = self._ctx
        first = min(wait.deadline for wait in asking.waiting)
        wait_ms = max(1, min(asking.again_ms, first - ctx.now))
        asking.again_ms = min(2 * asking.again_ms, _AGAIN_MS_MAX)
        asking.due = ctx.now + wait_ms
        ctx.set_timer(wait_ms, TIMER, asking.topic, number)

    def _ask(self, number: int, asking: _Asking, contacts: Iterable[Contact]) -> None:
        for contact in contacts:
            asking.asked[contact.peer] = contact
            asking.times[contact.peer] = asking.times.get(contact.peer, 0) + 1
            question = BlocksRequest(asking.topic, number, asking.cids, asking.span)
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
            copies = len(asking.said)
            self._answer(message.request, "found", "", lambda wait: wait.copies <= copies)

    def _warn(self, sender: Contact, message: BlocksReply) -> None:
        """Another peer refuses what this one publishes. Any peer can say so, even a liar, so the
        user is told seldom."""
        topic, now = message.topic, self._ctx.now
        warned = self._warned.get(topic)
        if not self._routing.is_subscribed(topic):
            return
        if warned is None or now - warned >= _WARN_MS:
            self._warned.renew(topic, now)
            told = f"{peer_text(sender.peer)} refused an event of this peer in {topic}"
            self._ctx.out.append(Warn(f"{told}: {printable(message.reason)}"))

    def _answer(
        self,
        number: int,
        outcome: Outcome,
        reason: str,
        to: Callable[[_Wait], bool] = lambda wait: True,
    ) -> None:
        """Answer the waiting publishes that `to` picks; a question that none waits for any more is
        forgotten."""
        asking = self._asking[number]
        said = tuple(asking.said.values())
        answered = [wait for wait in asking.waiting if to(wait)]
        asking.waiting = [wait for wait in asking.waiting if not to(wait)]
        asking.copies = max((wait.copies for wait in asking.waiting), default=0)
        if not asking.waiting:
            del self._asking[number], self._by_run[asking.key]
        for wait in answered:
            answer = Answer(wait.token, outcome, None, asking.run, contacts=said, reason=reason)
            self._ctx.answer(answer)

    # --- answering --------------------------------------------------------------------------------

    def _on_question(self, sender: Contact, message: BlocksRequest, about: Span) -> None:
        """Answer a publisher that asks about a run of its own; other peers get no answer. It learns
        nothing of blocks that are not of that run."""
        if about.publisher != sender.peer or about.last - about.first >= RUN_MAX:
            self._ctx.counters["confirm_foreign"] += 1
            return
        word, reason = self._word(message.topic, about, message.cids)
        reply = BlocksReply(message.topic, message.request, [], [], word, reason)
        self._ctx.send(sender, reply)

    def _word(self, topic: Topic, about: Span, cids: list[Cid]) -> tuple[int, str]:
        if cids and self._is_stored(topic, about, cids):
            return STORED, ""
        reason = self._delivery.refusal(topic, about)
        if reason:
            return REFUSED, reason
        recent = self._routing.recent(topic)
        taken = recent is not None and recent.has_taken(about)
        return (TAKEN if taken else NO_WORD), ""

    def _is_stored(self, topic: Topic, about: Span, cids: list[Cid]) -> bool:
        """Whether these are the blocks of this run, all of them, and on disk."""
        library = self._library
        if library is None or any(library.height(topic, cid) is None for cid in cids):
            return False
        recent = self._routing.recent(topic)
        held = recent.fetch([about], 1) if recent is not None else []
        if held and span_of(held[0].run) == about:
            return [cid_of(block) for block in held[0].run.payloads] == cids
        numbers = [_number_of(library, cid, about) for cid in cids]
        return numbers == list(range(about.first, about.last + 1))


def _number_of(library: Store, cid: Cid, about: Span) -> int | None:
    """The number of a stored event, if it is of the life of the publisher that a run is of."""
    from weft.documents.descriptor import known_event, number_of  # noqa: PLC0415

    block = library.get(cid)
    named = number_of(known_event(block, cid)) if block is not None else None
    of_life = named is not None and named[:2] == (about.publisher, about.incarnation)
    return named[2] if named is not None and of_life else None


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
