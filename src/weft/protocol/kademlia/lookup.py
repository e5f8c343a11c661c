"""Iterative lookup: find the k closest peers to a target (Kademlia, Section 2.3).

The asker keeps a list of candidates by distance, first those of its own table(s), and asks the
closest ones it has not asked, α at once, for the closest they know; their answers bring new
candidates. When α answers in a row brought none that is closer, all of the k closest are asked at
once. A lookup ends when the k closest candidates that did not fail have all answered, or when the
answers were enough for its caller (a value, a peer). Where peers do not answer, more are asked at
once, up to k, and more than the k closest, since some of those are probably dead as well: so a
lookup gets past a table of dead peers in some rounds (Deviation: Kademlia keeps to α, which takes a
timeout per α dead peers). Each step halves the distance at least once, so hops grow with log n.

Every asked peer tells of the k closest it knows. If f of these turn out dead, no peer has told of
the live ones behind them, so the α closest are asked again, for k + f. The same holds for the
asker's own table: as long as fewer than k have answered, further peers of it are asked as well, and
at last any other peer that the asker knows.

Silence is a peer's, not a location's: in spaces with roles one peer has many locations, and once it
is slow in one role, it is not asked in another before it has spoken. A peer that was lost a moment
ago (`Lost`) is not asked either, unless no other answers at all: where a network is cut in two,
each lookup would else ask every peer of the other part, in all its roles.

What a liar can do is bounded. Locations are computed here, never believed; no peer counts as found
before it has answered; of one answer no more neighbours are read than asked for; a lookup asks at
most `requests_max` peers; and a peer that only named peers that do not answer is not listened to
any longer, unless most of those that the asker knew itself are dead, too.

A lookup takes tables and a space and knows neither what is looked for nor which peer lies where.

Of all lookups of one peer (`Searches`) some run at once, the others wait their turn. Those for
users come first; upkeep gets only a few at a time, so that it never keeps users waiting. Both
queues are bounded.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Literal, TypeAlias

from msgspec import Struct

from weft.bounded import BoundedDict
from weft.ids import GENERAL, Contact, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.kademlia.rpc import (
    NEIGHBOURS_MAX,
    NODES,
    Calls,
    FindReply,
    FindRequest,
    Neighbour,
)
from weft.protocol.kademlia.table import Entry, Space, Table
from weft.protocol.seam import Millis
from weft.rules.prefix import as_bytes, common_prefix

_CANDIDATES_PER_K = 8
"""guess: candidates remembered, in multiples of k; the farthest ones are forgotten."""
_WIDENED_MAX = 3
"""guess: rounds of asking again."""
_NAMED_IN_VAIN_MAX = 5
"""guess: a teller counts as a liar if so many peers that it named do not answer, and none does.
With a third of the peers dead and a fifth of the messages lost, one honest teller in 100 does."""
_LOST_MS = 10_000
"""guess: for how long a lost peer is not asked, a cycle; then it may be back."""
_LOST_MAX = 1_024
"""guess: peers remembered as lost."""


# --- what a lookup is asked for, and what comes of it ---------------------------------------------


class Question(Struct, frozen=True):
    """What a lookup asks along the way."""

    space: Space
    target: int
    want: int = NODES
    key: bytes = b""
    sender_role: Topic = GENERAL
    within: int = 0  # leading bits that a peer must share with the target to be asked
    count: int = 0  # how many of the closest are sought; 0: the k of the settings


class Outcome(Struct, frozen=True):
    """What a lookup found."""

    closest: list[Entry]  # peers that answered, closest first, at most k
    hops: int  # how many peers told of each other before the closest one was known
    requests: int


Seen = Callable[[Entry, FindReply], bool]
"""Told of every answer; True ends the lookup."""
Done = Callable[[Outcome], None]
News: TypeAlias = Literal["answered", "silent", "gone"]
"""Gone: the peer answered that it is not at this location."""
Heard = Callable[[Entry, News], None]
"""Told of every peer that was asked, for the tables."""
Reserve = Callable[[], Iterable[Neighbour]]


class Search(Struct, frozen=True):
    """A lookup to be made."""

    question: Question
    tables: tuple[Table, ...]  # to begin with, and to learn from it
    done: Done
    seen: Seen | None = None
    background: bool = False
    others: tuple[Neighbour, ...] = ()  # to begin with, besides the tables
    anew: bool = False  # begin with the others only, as if the tables were empty


# --- peers that were lost -------------------------------------------------------------------------


class Lost:
    """The peers that were lost a moment ago and have not spoken since."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at: BoundedDict[PeerId, Millis] = BoundedDict(_LOST_MAX)

    def add(self, peer: PeerId, now: Millis) -> None:
        self._at.renew(peer, now)

    def spoke(self, peer: PeerId) -> None:
        if self._at:
            self._at.pop(peer, None)

    def has(self, peer: PeerId, now: Millis) -> bool:
        at = self._at.get(peer)
        return at is not None and now - at < _LOST_MS


# --- one lookup -----------------------------------------------------------------------------------


class State(Enum):
    """What is known of a candidate."""

    NEW = 0
    ASKED = 1
    SLOW = 2
    ANSWERED = 3
    FAILED = 4
    DOUBTED = 5  # named by a liar alone
    HELD = 6  # its peer is slow in another role
    LOST = 7  # its peer was lost a moment ago


_NEW, _ANSWERED = State.NEW, State.ANSWERED
_OUT = (State.FAILED, State.DOUBTED, State.LOST)
"""States of candidates that the lookup expects no answer of."""


class _Candidate:
    """A peer on the way to the target."""

    __slots__ = ("distance", "entry", "hops", "named_in_vain", "named_well", "state", "teller")

    def __init__(self, entry: Entry, target: int, teller: _Candidate | None) -> None:
        self.entry = entry
        self.distance = entry.key ^ target
        self.state = State.NEW
        self.teller = teller  # the peer that named it, if only one did
        self.hops: int = teller.hops + 1 if teller is not None else 1
        self.named_well = 0  # peers it named that answered
        self.named_in_vain = 0  # peers it named that did not


def _distance(candidate: _Candidate) -> int:
    return candidate.distance


class Lookup:
    """One lookup in progress."""

    def __init__(
        self,
        ctx: Context,
        calls: Calls,
        search: Search,
        done: Done,
        heard: Heard,
        lost: Lost,
        reserve: Reserve,
    ) -> None:
        """`reserve` names the peers to ask when all others are dead."""
        question = search.question
        self._ctx = ctx
        self._calls = calls
        self._settings = ctx.config.dht
        self._k = question.count or ctx.config.dht.k
        self._question = question
        self._target = as_bytes(question.target, question.space.bits)
        self._done = done
        self._heard = heard
        self._lost = lost
        self._seen = search.seen
        self._tables = () if search.anew else search.tables
        self._order: list[_Candidate] = []  # by distance
        self._known: dict[int, _Candidate] = {}
        self._slow: dict[PeerId, None] = {}  # peers that are slow, in whatever role
        self._asking = 0  # requests on their way and not slow
        self._silent = 0  # candidates without a single teller that were slow or failed
        self._barren = 0  # answers in a row that brought no closer candidate
        self._again = 0  # candidates asked again that have not answered yet
        self._own_answered = 0  # candidates without a single teller that answered
        self._own_failed = 0
        self._own_lost = 0
        self._reserve = reserve
        self._widened_for = 0  # failures that the closest were asked again for
        self._widened = 0  # times
        self._requests = 0
        self._over = False

    def start(self, others: Iterable[Neighbour]) -> None:
        """Begin with the closest of the tables and with `others`."""
        for table in self._tables:
            table.touch(self._question.target, self._ctx.now)
            for entry in table.closest(self._question.target, self._k):
                self._add_own(entry)
        self._add_all(others, None)
        self._advance()

    # --- candidates -------------------------------------------------------------------------------

    def _confirm(self, candidate: _Candidate) -> None:
        """A second peer names a candidate: it has no single teller any more."""
        candidate.teller = None
        if candidate.state is State.DOUBTED:
            candidate.state = State.NEW

    def _add_own(self, entry: Entry) -> None:
        """Consider a peer of the asker's own table."""
        known = self._known.get(entry.key)
        if known is None:
            self._add_new(entry.key, entry.role, entry.contact, None)
        else:
            self._confirm(known)

    def _add_new(self, key: int, role: Topic, contact: Contact, teller: _Candidate | None) -> bool:
        """Consider a peer; returns whether it is the closest one so far."""
        if contact.peer == self._ctx.me.peer or not contact.address:
            return False
        within, bits = self._question.within, self._question.space.bits
        if within and common_prefix(key, self._question.target, bits) < within:
            return False
        candidate = _Candidate(Entry(key, role, contact), self._question.target, teller)
        if contact.peer in self._slow:
            candidate.state = State.HELD
        elif self._lost.has(contact.peer, self._ctx.now):
            candidate.state = State.LOST
            self._own_lost += teller is None
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
        """Consider several; returns whether one is closer than all before."""
        closer = False
        locate, known = self._question.space.locate, self._known
        for one in named:
            key = locate(one.role, one.contact.peer)
            if key is None:
                continue
            found = known.get(key)
            if found is None:
                closer |= self._add_new(key, one.role, one.contact, teller)
            elif found.teller is not teller:
                self._confirm(found)
        return closer

    def _advance(self) -> None:
        """Ask the next ones among the k closest; finish when these have all answered."""
        if self._over:
            return
        width = min(self._k, self._settings.alpha + self._silent)
        if self._barren >= self._settings.alpha:
            width = self._k
        wanted = self._k  # of those that did not fail: the lookup's end
        hoped = float(self._k)  # as many of those asked may answer
        hope = self._hope()
        open_ends = False
        for candidate in self._order:
            state = candidate.state
            if state in _OUT:
                continue
            if state is not _ANSWERED:
                if state is _NEW and not self._may_ask():
                    continue
                open_ends |= wanted > 0
                if state is _NEW and self._asking < width:
                    self._ask(candidate)
                elif state is State.SLOW or state is State.HELD:
                    continue  # probably dead, so the next candidate is asked in its place already
            wanted -= 1
            hoped -= 1 if state is _ANSWERED else hope
            if hoped <= 0:
                break
        if open_ends or self._again:
            return
        if wanted > 0 and self._refill():
            self._advance()
        elif not self._widen():
            self._finish()

    def _refill(self) -> bool:
        """Consider k more peers that the asker knows itself, then lost ones; False if there are
        none."""
        if not self._may_ask():
            return False
        target, before = self._question.target, len(self._known)
        for table in self._tables:
            for entry in table.closest(target, before + self._k):
                self._add_own(entry)
        if len(self._known) == before:
            self._add_all(self._reserve(), None)
        return len(self._known) > before or self._ask_lost()

    def _ask_lost(self) -> bool:
        """Consider lost peers if no other peer has answered; False if there are none."""
        if any(one.state is State.ANSWERED for one in self._order):
            return False
        lost = [one for one in self._order if one.state is State.LOST]
        for candidate in lost:
            candidate.state = State.NEW
        self._own_lost = 0
        return bool(lost)

    def _hope(self) -> float:
        """How likely a candidate answers, by the ones that the asker knew itself. (Those that one
        peer alone named do not count, since a liar may have made them up.)"""
        answered = self._own_answered + self._settings.alpha
        return answered / (answered + self._silent)

    def _may_ask(self) -> bool:
        return self._requests < self._settings.requests_max

    def _ask(self, candidate: _Candidate) -> None:
        self._asking += 1
        candidate.state = State.ASKED

        def answered(reply: FindReply | None) -> None:
            if reply is not None:
                self._on_answer(candidate, reply)
            else:
                self._on_failure(candidate)

        self._send(candidate, self._k, answered, lambda: self._on_slow(candidate))

    def _widen(self) -> bool:
        """Ask the closest again if dead ones took places in what was told; False if not."""
        k = self._k
        answered = [one for one in self._order if one.state is State.ANSWERED][:k]
        range_end = answered[-1].distance if len(answered) == k else None
        failed = sum(
            one.state in _OUT and (range_end is None or one.distance < range_end)
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
                self._ask_again(candidate, most)
        return self._again > 0

    def _ask_again(self, candidate: _Candidate, most: int) -> None:
        self._again += 1

        def answered(reply: FindReply | None) -> None:
            self._again -= 1
            if reply is not None and not self._over:
                self._add_all(reply.closer[:most], candidate)
            self._advance()

        self._send(candidate, most, answered)

    def _send(
        self,
        candidate: _Candidate,
        most: int,
        answered: Callable[[FindReply | None], None],
        slow: Callable[[], None] | None = None,
    ) -> None:
        question = self._question
        self._requests += 1

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

        self._calls.ask(candidate.entry.contact, make, FindReply, answered, slow)

    # --- what candidates report -------------------------------------------------------------------

    def _on_answer(self, candidate: _Candidate, reply: FindReply) -> None:
        self._leave_asking(candidate)
        self._let_go(candidate, State.NEW)
        if not reply.member:
            self._give_up(candidate, "gone")
            return
        candidate.state = State.ANSWERED
        if candidate.teller is not None:
            candidate.teller.named_well += 1
        else:
            self._own_answered += 1
        self._heard(candidate.entry, "answered")
        if self._over:
            return
        if self._seen is not None and self._seen(candidate.entry, reply):
            self._finish()
            return
        closer = self._add_all(reply.closer[: self._k], candidate)
        self._barren = 0 if closer else self._barren + 1
        self._advance()

    def _on_slow(self, candidate: _Candidate) -> None:
        self._leave_asking(candidate)
        self._silent += candidate.teller is None
        candidate.state = State.SLOW
        self._hold(candidate)
        self._advance()

    def _on_failure(self, candidate: _Candidate) -> None:
        self._silent += candidate.teller is None and candidate.state is State.ASKED
        self._leave_asking(candidate)
        for other in self._let_go(candidate, State.FAILED):
            self._note_failure(other, "silent")
        self._give_up(candidate, "silent")

    def _give_up(self, candidate: _Candidate, news: News) -> None:
        candidate.state = State.FAILED
        self._note_failure(candidate, news)
        self._advance()

    def _note_failure(self, candidate: _Candidate, news: News) -> None:
        self._heard(candidate.entry, news)
        teller = candidate.teller
        if teller is None:
            self._own_failed += 1
        else:
            teller.named_in_vain += 1
            if self._lies(teller):
                self._disbelieve(teller)

    def _hold(self, slow: _Candidate) -> None:
        """A peer is slow: it is not asked in other roles meanwhile."""
        peer = slow.entry.contact.peer
        self._slow[peer] = None
        for candidate in self._order:
            if candidate.state is State.NEW and candidate.entry.contact.peer == peer:
                candidate.state = State.HELD

    def _let_go(self, asked: _Candidate, state: State) -> list[_Candidate]:
        """A peer has answered, or failed: that settles the roles in which it was not asked, too."""
        peer = asked.entry.contact.peer
        if peer not in self._slow:
            return []
        del self._slow[peer]
        held = [
            one for one in self._order if one.state is State.HELD and one.entry.contact.peer == peer
        ]
        for candidate in held:
            candidate.state = state
        return held

    def _lies(self, teller: _Candidate) -> bool:
        """Whether a peer named dead peers only, while most that the asker knew itself are alive."""
        in_vain = teller.named_in_vain >= _NAMED_IN_VAIN_MAX and not teller.named_well
        return in_vain and self._own_failed + self._own_lost <= self._own_answered

    def _leave_asking(self, candidate: _Candidate) -> None:
        if candidate.state is State.ASKED:
            self._asking -= 1

    def _disbelieve(self, teller: _Candidate) -> None:
        """Drop the candidates that only this peer named and that were not asked yet."""
        self._ctx.counters["dht_disbelieved"] += 1
        for candidate in self._order:
            if candidate.teller is teller and candidate.state is State.NEW:
                candidate.state = State.DOUBTED

    # --- the end ----------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._over = True
        answered = [one for one in self._order if one.state is State.ANSWERED]
        closest = answered[: self._k]
        hops = closest[0].hops if closest else 0
        self._done(Outcome([one.entry for one in closest], hops, self._requests))


# --- all lookups of one peer ----------------------------------------------------------------------

Note = Callable[[Space, Table, Entry, News], None]
"""Told of every peer that was asked, once per table that the lookup began with."""


class Searches:
    """Runs lookups, at most `lookups_max` at once."""

    def __init__(
        self, ctx: Context, calls: Calls, known: Callable[[], list[Contact]], note: Note
    ) -> None:
        self._ctx = ctx
        self._calls = calls
        self.known = known  # names peers outside of the tables
        self._note = note
        self._waiting: deque[Search] = deque()
        self._waiting_upkeep: deque[Search] = deque()
        self._starting = False
        self.running = 0
        self._upkeeping = 0  # of these, in the background
        self.hops_most = 0
        self.lost = Lost()

    def start(self, search: Search) -> bool:
        """Begin a lookup now or in its turn; False if too many wait already."""
        waiting = self._waiting_upkeep if search.background else self._waiting
        if len(waiting) >= self._ctx.config.dht.waiting_max:
            self._ctx.counters["dht_refused_busy"] += 1
            return False
        waiting.append(search)
        self._start_waiting()
        return True

    def on_peer_lost(self, peer: PeerId) -> None:
        """Wait no longer for the peer, and neither ask nor name it for a while."""
        self.lost.add(peer, self._ctx.now)
        self._calls.on_peer_lost(peer)

    def close(self) -> None:
        self._waiting.clear()
        self._waiting_upkeep.clear()

    def _start_waiting(self) -> None:
        if self._starting:  # a lookup that knows no peer ends as it starts, and comes back here
            return
        self._starting = True
        settings = self._ctx.config.dht
        while self.running < settings.lookups_max:
            if self._waiting:
                self._run(self._waiting.popleft())
            elif self._waiting_upkeep and self._upkeeping < settings.background_max:
                self._run(self._waiting_upkeep.popleft())
            else:
                break
        self._starting = False

    def _run(self, search: Search) -> None:
        self.running += 1
        self._upkeeping += search.background

        def finished(outcome: Outcome) -> None:
            self.running -= 1
            self._upkeeping -= search.background
            counters = self._ctx.counters
            counters["dht_lookups"] += 1
            counters["dht_lookup_requests"] += outcome.requests
            counters["dht_lookup_hops"] += outcome.hops
            self.hops_most = max(self.hops_most, outcome.hops)
            search.done(outcome)
            self._start_waiting()

        def heard(entry: Entry, news: News) -> None:
            for table in search.tables:
                self._note(search.question.space, table, entry, news)

        reserve: Reserve = tuple if search.anew else self._strangers
        lookup = Lookup(self._ctx, self._calls, search, finished, heard, self.lost, reserve)
        lookup.start(search.others if search.anew else self._others(search))

    def _others(self, search: Search) -> tuple[Neighbour, ...]:
        """Neighbours of the general overlay are a random sample of all peers: they help where a
        table is nearly empty, and upkeep finds by them whole ranges that a table lacks."""
        few = sum(len(table) for table in search.tables) < self._ctx.config.dht.k
        if not (few or search.background):
            return search.others
        return (*search.others, *self._strangers())

    def _strangers(self) -> list[Neighbour]:
        return [Neighbour(contact) for contact in self.known()]
