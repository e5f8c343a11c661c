"""Iterative lookup: find the k closest peers to a target (Kademlia, Section 2.3).

The asker keeps a list of candidates by distance, first those of its own table(s), and asks the
closest ones it has not asked, α at once, for the closest they know; their answers bring new
candidates. When α answers in a row brought nobody closer, all of the k closest are asked at once.
It ends when the k closest candidates that did not fail have all answered, or when the answers
were enough for whoever asked (a value, a peer). Each step halves the distance at least once, so
hops grow with log n.

Everybody tells of the k closest they know. Where f of these turn out dead, the live ones beyond
are told by nobody, so the α closest are asked again, for k + f. The asker's own table is such a
teller, too: as long as fewer than k have answered, those beyond its k closest are asked as well,
and at last whoever else it knows.

What a liar can do is bounded. Locations are computed here, never believed; nobody counts as found
before having answered; of one answer no more neighbours are read than asked for; a lookup asks at
most `requests_max` peers; and who only named peers that do not answer is not listened to any
longer, unless most of those that the asker knew itself are dead, too.

It takes tables and a space and knows neither what is looked for nor who lies where.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from weft.ids import Contact, Topic
from weft.protocol.context import Context
from weft.protocol.kademlia.calls import Call, Calls, Reply
from weft.protocol.kademlia.question import Done, Heard, News, Outcome, Question, Seen
from weft.protocol.kademlia.table import Entry, Table
from weft.protocol.messages_dht import NEIGHBOURS_MAX, FindReply, FindRequest, Neighbour
from weft.rules.prefix import as_bytes, common_prefix

_CANDIDATES_PER_K = 8
"""guess: candidates remembered, in multiples of k; the farthest ones are forgotten."""
_WIDENED_MAX = 3
"""guess: rounds of asking again."""
_NAMED_IN_VAIN_MAX = 5
"""guess: so many peers that do not answer and none that does, and a teller is a liar. With a
third of the peers dead and a fifth of the messages lost, one honest teller in a hundred is."""


class State(Enum):
    NEW = 0
    ASKED = 1
    SLOW = 2
    ANSWERED = 3
    FAILED = 4
    DOUBTED = 5  # named by nobody but a liar


class Lookup:
    """One lookup in progress."""

    def __init__(
        self,
        ctx: Context,
        calls: Calls,
        question: Question,
        done: Done,
        heard: Heard,
        seen: Seen | None = None,
    ) -> None:
        self._ctx = ctx
        self._calls = calls
        self._settings = ctx.config.dht
        self._k = question.count or ctx.config.dht.k
        self.question = question
        self._target = as_bytes(question.target, question.space.bits)
        self._done = done
        self._heard = heard
        self._seen = seen
        self._order: list[_Candidate] = []  # by distance
        self._known: dict[int, _Candidate] = {}
        self._asking = 0  # on their way and not slow
        self._barren = 0  # answers in a row that brought nobody closer
        self._again = 0  # asked again and not answered yet
        self._own_answered = 0  # of those on nobody's word alone
        self._own_failed = 0
        self._tables: Sequence[Table] = ()
        self._reserve: Callable[[], Iterable[Neighbour]] = tuple
        self._widened_for = 0  # failures that the closest were asked again for
        self._widened = 0  # times
        self.requests = 0
        self.over = False

    def start(
        self,
        tables: Sequence[Table],
        others: Iterable[Neighbour] = (),
        reserve: Callable[[], Iterable[Neighbour]] = tuple,
    ) -> None:
        """Begin with the closest of these tables and with `others`; `reserve` names whom to ask
        when all of them are dead."""
        self._tables = tables
        self._reserve = reserve
        for table in tables:
            table.touch(self.question.target, self._ctx.now)
            for entry in table.closest(self.question.target, self._k):
                self._add(entry.key, entry.role, entry.contact, None)
        self._add_all(others, None)
        self._advance()

    # --- candidates -------------------------------------------------------------------------------

    def _add(self, key: int, role: Topic, contact: Contact, teller: _Candidate | None) -> bool:
        """Consider a peer; says whether it is the closest one so far."""
        known = self._known.get(key)
        if known is not None:
            if known.teller is not teller:
                known.teller = None  # two say so
                if known.state is State.DOUBTED:
                    known.state = State.NEW
            return False
        if contact.peer == self._ctx.me.peer or not contact.address:
            return False
        within, bits = self.question.within, self.question.space.bits
        if within and common_prefix(key, self.question.target, bits) < within:
            return False
        candidate = _Candidate(self, Entry(key, role, contact), teller)
        closer = not self._order or candidate.distance < self._order[0].distance
        self._known[key] = candidate
        insort(self._order, candidate, key=_distance)
        if len(self._order) > _CANDIDATES_PER_K * self._settings.k:
            farthest = self._order[-1]
            if farthest.state is State.NEW:
                self._order.pop()
                del self._known[farthest.entry.key]
        return closer

    def _add_all(self, named: Iterable[Neighbour], teller: _Candidate | None) -> bool:
        """Consider several; says whether one is closer than all before."""
        closer = False
        locate = self.question.space.locate
        for one in named:
            key = locate(one.role, one.contact.peer)
            if key is not None:
                closer |= self._add(key, one.role, one.contact, teller)
        return closer

    def _advance(self) -> None:
        """Ask whom there is to ask among the k closest; finish when they have all answered."""
        if self.over:
            return
        width = self._settings.alpha
        if self._barren >= self._settings.alpha:
            width = self._k
        left = self._k
        open_ends = False
        for candidate in self._order:
            state = candidate.state
            if state is State.FAILED or state is State.DOUBTED:
                continue
            if state is State.NEW and not self._may_ask():
                continue
            if state is not State.ANSWERED:
                open_ends = True
                if state is State.NEW and self._asking < width:
                    self._ask(candidate)
                elif state is State.SLOW:
                    continue  # probably dead, so whoever would take its place is asked already
            left -= 1
            if not left:
                break
        if open_ends or self._again:
            return
        if left and self._refill():
            self._advance()
        elif not self._widen():
            self._finish(stopped=False)

    def _refill(self) -> bool:
        """Consider k more of those that the asker knows itself; False if there are none."""
        if not self._may_ask():
            return False
        target, before = self.question.target, len(self._known)
        for table in self._tables:
            for entry in table.closest(target, before + self._k):
                self._add(entry.key, entry.role, entry.contact, None)
        if len(self._known) == before:
            self._add_all(self._reserve(), None)
        return len(self._known) > before

    def _may_ask(self) -> bool:
        return self.requests < self._settings.requests_max

    def _ask(self, candidate: _Candidate) -> None:
        self._asking += 1
        candidate.state = State.ASKED
        self._send(candidate, candidate, self._k)

    def _widen(self) -> bool:
        """Ask the closest again if dead ones took places in what was told; False if not."""
        k = self._k
        answered = [one for one in self._order if one.state is State.ANSWERED][:k]
        range_end = answered[-1].distance if len(answered) == k else None
        failed = sum(
            one.state in (State.FAILED, State.DOUBTED)
            and (range_end is None or one.distance < range_end)
            for one in self._order
        )
        most = min(NEIGHBOURS_MAX, k + failed)
        if failed <= self._widened_for or most == k or self._widened >= _WIDENED_MAX:
            return False
        self._widened_for = failed
        self._widened += 1
        trusted = sorted(answered, key=lambda one: one.named_in_vain > one.named_well)
        for candidate in trusted[: self._settings.alpha]:
            if self._may_ask():
                self._again += 1
                self._send(candidate, _Again(self, candidate, most), most)
        return self._again > 0

    def _send(self, candidate: _Candidate, call: Call, most: int) -> None:
        question = self.question
        self.requests += 1

        def make(number: int) -> FindRequest:
            return FindRequest(
                number,
                question.space.number,
                candidate.entry.role,
                question.sender_role,
                self._target,
                question.want,
                question.key,
                most,
            )

        self._calls.ask(candidate.entry.contact, make, call)

    # --- what candidates report -------------------------------------------------------------------

    def on_answer(self, candidate: _Candidate, reply: FindReply) -> None:
        self._leave_asking(candidate)
        if not reply.member:
            self._give_up(candidate, "gone")
            return
        candidate.state = State.ANSWERED
        if candidate.teller is not None:
            candidate.teller.named_well += 1
        else:
            self._own_answered += 1
        self._heard(candidate.entry, "answered")
        if self.over:
            return
        if self._seen is not None and self._seen(candidate.entry, reply):
            self._finish(stopped=True)
            return
        closer = self._read(candidate, reply, self._k)
        self._barren = 0 if closer else self._barren + 1
        self._advance()

    def on_more(self, candidate: _Candidate, reply: FindReply | None, most: int) -> None:
        """Somebody who was asked again answered, or did not."""
        self._again -= 1
        if reply is not None and not self.over:
            self._read(candidate, reply, most)
        self._advance()

    def _read(self, teller: _Candidate, reply: FindReply, most: int) -> bool:
        """Consider whom an answer names; says whether one is closer than all before."""
        return self._add_all(reply.closer[:most], teller)

    def on_slow(self, candidate: _Candidate) -> None:
        self._leave_asking(candidate)
        candidate.state = State.SLOW
        self._advance()

    def on_failure(self, candidate: _Candidate) -> None:
        self._leave_asking(candidate)
        self._give_up(candidate, "silent")

    def _give_up(self, candidate: _Candidate, news: News) -> None:
        candidate.state = State.FAILED
        self._heard(candidate.entry, news)
        teller = candidate.teller
        if teller is None:
            self._own_failed += 1
        else:
            teller.named_in_vain += 1
            if self._lies(teller):
                self._disbelieve(teller)
        self._advance()

    def _lies(self, teller: _Candidate) -> bool:
        """Whether somebody named only the dead, while what the asker knew itself was alive."""
        in_vain = teller.named_in_vain >= _NAMED_IN_VAIN_MAX and not teller.named_well
        return in_vain and self._own_failed <= self._own_answered

    def _leave_asking(self, candidate: _Candidate) -> None:
        if candidate.state is State.ASKED:
            self._asking -= 1

    def _disbelieve(self, teller: _Candidate) -> None:
        """Drop whom only this one named and who was not asked yet."""
        self._ctx.counters["dht_disbelieved"] += 1
        for candidate in self._order:
            if candidate.teller is teller and candidate.state is State.NEW:
                candidate.state = State.DOUBTED

    # --- the end ----------------------------------------------------------------------------------

    def _finish(self, stopped: bool) -> None:
        self.over = True
        answered = [one for one in self._order if one.state is State.ANSWERED]
        closest = answered[: self._k]
        hops = closest[0].hops if closest else 0
        self._done(Outcome([one.entry for one in closest], hops, self.requests, stopped))


class _Candidate:
    """A peer on the way to the target; the call that waits for its answer."""

    __slots__ = (
        "_lookup",
        "distance",
        "entry",
        "hops",
        "named_in_vain",
        "named_well",
        "state",
        "teller",
    )

    def __init__(self, lookup: Lookup, entry: Entry, teller: _Candidate | None) -> None:
        self._lookup = lookup
        self.entry = entry
        self.distance = entry.key ^ lookup.question.target
        self.state = State.NEW
        self.teller = teller  # who named it, if it is only one
        self.hops: int = teller.hops + 1 if teller is not None else 1
        self.named_well = 0  # peers it named that answered
        self.named_in_vain = 0  # peers it named that did not

    expects = FindReply

    def answered(self, reply: Reply) -> None:
        assert isinstance(reply, FindReply)
        self._lookup.on_answer(self, reply)

    def slow(self) -> None:
        self._lookup.on_slow(self)

    def failed(self) -> None:
        self._lookup.on_failure(self)


class _Again:
    """A call to a candidate that has answered before."""

    __slots__ = ("_candidate", "_lookup", "_most")
    expects = FindReply

    def __init__(self, lookup: Lookup, candidate: _Candidate, most: int) -> None:
        self._lookup = lookup
        self._candidate = candidate
        self._most = most

    def answered(self, reply: Reply) -> None:
        assert isinstance(reply, FindReply)
        self._lookup.on_more(self._candidate, reply, self._most)

    def slow(self) -> None:
        pass

    def failed(self) -> None:
        self._lookup.on_more(self._candidate, None, self._most)


def _distance(candidate: _Candidate) -> int:
    return candidate.distance
