"""Fetching blocks by their CID: a gap in a stream is asked for (paper 004, Section 4.5: NAK).

Routing may bring an event before its parent, so a gap is given `patience_ms` to close by itself.
Whoever brought the event that names the missing one very likely has it, so it is asked first; then
other members of the topic, one after another; then, with a DHT, whoever provides the block. Who has
asked everybody waits a while and begins again, and after `give_up_ms` gives the block up: the
stream goes on without it, and the counter `history_given_up` says so.

What no event names, but a peer says that there is (its heads, a topic record), is *hearsay*: only
those who said so are asked, and if none of them has it, it is forgotten. So nobody can make a peer
pester others with names it made up.

Invariants: a block is asked for at one peer at a time; at most `requests_max` requests are on their
way, each for at most `blocks_per_request` blocks; at most `wants_max` blocks are wanted, of these
`wants_per_source_max` on the word of one peer. What finds no room is not looked for; members tell
their heads again and again, and gaps are gone through anew at the topic's next turn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from weft.ids import GENERAL, Cid, Contact, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.messages_history import BlocksReply, BlocksRequest
from weft.protocol.seam import Millis

TIMEOUT = "history.fetch"
AGAIN = "history.again"
PATIENCE = "history.patience"
_SOURCES_MAX = 8
"""guess: peers remembered that should have a block; the latest stay."""

Providers = Callable[[Cid, Callable[[Sequence[Contact]], None]], bool]
"""Looks a block's providers up and calls back; False where there is no DHT."""


class _Want:
    """A block that is missing."""

    __slots__ = ("asked", "first", "hearsay", "looked_up", "sources", "topic", "until")

    def __init__(self, topic: Topic, until: Millis, first: PeerId | None, hearsay: bool) -> None:
        self.topic = topic
        self.until = until  # given up then
        self.first = first  # on whose word it is looked for
        self.hearsay = hearsay  # no event names it
        self.sources: dict[PeerId, Contact] = {}  # who should have it, best first
        self.asked: dict[PeerId, None] = {}  # in this round
        self.looked_up = False


class Request:
    """Blocks asked of one peer."""

    __slots__ = ("asked_at", "cids", "contact", "topic")

    def __init__(self, topic: Topic, contact: Contact, cids: list[Cid], now: Millis) -> None:
        self.asked_at = now
        self.topic = topic
        self.contact = contact
        self.cids = cids


class Fetch:
    """All blocks that one peer is missing."""

    def __init__(
        self,
        ctx: Context,
        members: Callable[[Topic], list[Contact]],
        providers: Providers,
        give_up: Callable[[Topic, Cid, bool], None],
    ) -> None:
        """`give_up` is told of blocks that nobody has, and whether they were only hearsay."""
        self._ctx = ctx
        self._members = members
        self._providers = providers
        self._give_up = give_up
        self._wants: dict[Cid, _Want] = {}
        self._per_source: dict[PeerId, int] = {}
        self._idle: dict[Cid, None] = {}  # wants that nobody is being asked for
        self._requests: dict[int, Request] = {}
        self._paused: dict[Cid, None] = {}  # everybody was asked in vain
        self._again_armed = False
        self._round_trip: Millis | None = None  # of the last answers, smoothed
        self._fresh: dict[Cid, Millis] = {}  # gaps that may close by themselves, and until when
        self._patience_armed = False

    def __len__(self) -> int:
        return len(self._wants)

    def want(
        self,
        topic: Topic,
        cids: Iterable[Cid],
        source: Contact | None,
        patient: bool = False,
        hearsay: bool = False,
    ) -> None:
        """Begin to fetch; `source` is likely to have them. `patient`: they may come anyway."""
        for cid in cids:
            want = self._wants.get(cid)
            if want is None:
                want = self._begin(topic, cid, source, patient, hearsay)
            if want is None:
                continue
            if not hearsay:
                want.hearsay = False
            if source is not None:
                want.sources.setdefault(source.peer, source)
                while len(want.sources) > _SOURCES_MAX:
                    del want.sources[next(iter(want.sources))]
        self._arm_patience()
        self._pump()

    def _begin(
        self, topic: Topic, cid: Cid, source: Contact | None, patient: bool, hearsay: bool
    ) -> _Want | None:
        """A new want, if there is room."""
        ctx, limits = self._ctx, self._ctx.config.history
        first = source.peer if source is not None else None
        of_source = self._per_source.get(first, 0) if first is not None else 0
        if len(self._wants) >= limits.wants_max or of_source >= limits.wants_per_source_max:
            ctx.counters["history_wants_refused"] += 1
            return None
        want = self._wants[cid] = _Want(topic, ctx.now + limits.give_up_ms, first, hearsay)
        if first is not None:
            self._per_source[first] = of_source + 1
        ctx.counters["history_gaps"] += not hearsay
        if patient:
            self._fresh[cid] = ctx.now + limits.patience_ms
        else:
            self._idle[cid] = None
        return want

    def _arm_patience(self) -> None:
        if self._fresh and not self._patience_armed:
            self._patience_armed = True
            soonest = next(iter(self._fresh.values()))
            self._ctx.set_timer(max(1, soonest - self._ctx.now), PATIENCE, GENERAL)

    def on_patience(self) -> None:
        """Gaps that did not close by themselves are asked for."""
        self._patience_armed = False
        while self._fresh:
            cid, until = next(iter(self._fresh.items()))
            if until > self._ctx.now:
                break
            del self._fresh[cid]
            self._idle[cid] = None
        self._arm_patience()
        self._pump()

    def forget(self, cid: Cid) -> None:
        """The block came, by whatever way, or is not wanted any more."""
        want = self._wants.pop(cid, None)
        if want is not None:
            if want.first is not None:
                left = self._per_source.pop(want.first) - 1
                if left:
                    self._per_source[want.first] = left
            self._idle.pop(cid, None)
            self._paused.pop(cid, None)
            self._fresh.pop(cid, None)

    def forget_topic(self, topic: Topic) -> None:
        for cid in [cid for cid, want in self._wants.items() if want.topic == topic]:
            self.forget(cid)

    # --- asking -----------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Ask for idle blocks, those of one topic and source together."""
        limits = self._ctx.config.history
        while self._idle and len(self._requests) < limits.requests_max:
            first = next(iter(self._idle))
            contact = self._next_source(self._wants[first])
            if contact is None:
                del self._idle[first]
                self._nobody_left(first)
                continue
            topic = self._wants[first].topic
            cids = [cid for cid in self._idle if self._may_ask(cid, topic, contact)]
            self._ask(topic, contact, cids[: limits.blocks_per_request])

    def _may_ask(self, cid: Cid, topic: Topic, contact: Contact) -> bool:
        want = self._wants[cid]
        return want.topic == topic and contact.peer not in want.asked

    def _next_source(self, want: _Want) -> Contact | None:
        members = [] if want.hearsay else self._members(want.topic)
        for contact in (*want.sources.values(), *members):
            if contact.peer not in want.asked and contact.peer != self._ctx.me.peer:
                return contact
        return None

    def _ask(self, topic: Topic, contact: Contact, cids: list[Cid]) -> None:
        ctx = self._ctx
        number = ctx.next_serial()
        for cid in cids:
            del self._idle[cid]
            self._wants[cid].asked[contact.peer] = None
        self._requests[number] = Request(topic, contact, cids, ctx.now)
        ctx.send(contact, BlocksRequest(topic, number, cids))
        ctx.set_timer(self._answer_ms(), TIMEOUT, topic, number)

    def _answer_ms(self) -> Millis:
        """How long an answer may take: some times what the last ones took."""
        longest = self._ctx.config.history.request_timeout_ms
        return longest if self._round_trip is None else min(longest, 200 + 4 * self._round_trip)

    def _nobody_left(self, cid: Cid) -> None:
        """Members were asked in vain: look for providers, else wait and begin again."""
        want = self._wants[cid]
        if want.hearsay:
            self.forget(cid)
            self._ctx.counters["history_hearsay"] += 1
            self._give_up(want.topic, cid, True)
            return
        if not want.looked_up:
            want.looked_up = True
            if self._providers(cid, lambda found: self._on_providers(cid, found)):
                return
        if want.until <= self._ctx.now:
            self.forget(cid)
            self._ctx.counters["history_given_up"] += 1
            self._give_up(want.topic, cid, False)
            return
        self._paused[cid] = None
        if not self._again_armed:
            self._again_armed = True
            self._ctx.set_timer(self._ctx.config.history.retry_ms, AGAIN, want.topic)

    def _on_providers(self, cid: Cid, found: Sequence[Contact]) -> None:
        want = self._wants.get(cid)
        if want is not None:
            want.sources.update((contact.peer, contact) for contact in found)
            self._idle[cid] = None
            self._pump()

    def on_again(self) -> None:
        """A while later: begin again with everybody."""
        self._again_armed = False
        paused, self._paused = self._paused, {}
        for cid in paused:
            want = self._wants[cid]
            want.asked.clear()
            want.looked_up = False
            self._idle[cid] = None
        self._pump()

    # --- answers ----------------------------------------------------------------------------------

    def on_reply(self, sender: Contact, message: BlocksReply) -> Request | None:
        """The request that this answers, None if there is none. The blocks are the caller's to take
        in (each is then forgotten here), before it says `settle`."""
        request = self._requests.get(message.request)
        if request is None or request.contact.peer != sender.peer:
            return None
        took, before = self._ctx.now - request.asked_at, self._round_trip
        self._round_trip = took if before is None else (7 * before + took) // 8
        return self._requests.pop(message.request)

    def settle(self, request: Request, cut_short: Collection[Cid] = ()) -> None:
        """What a request did not bring is asked for elsewhere; of those in `cut_short` there was
        no room in the answer, so the same peer may be asked again."""
        for cid in request.cids:
            want = self._wants.get(cid)
            if want is not None and cid not in self._paused and cid not in self._fresh:
                if cid in cut_short:
                    want.asked.pop(request.contact.peer, None)
                self._idle[cid] = None
        self._pump()

    def on_timeout(self, number: int) -> None:
        request = self._requests.pop(number, None)
        if request is not None:
            self.settle(request)

    def on_peer_lost(self, peer: PeerId) -> None:
        lost = [n for n, request in self._requests.items() if request.contact.peer == peer]
        for number in lost:
            self.on_timeout(number)
