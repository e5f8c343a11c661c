"""All lookups of one peer: some at once, the others wait their turn.

Those for users come first; upkeep gets only a few at a time, so that it never keeps users waiting.
Both queues are bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from weft.ids import Contact
from weft.protocol.context import Context
from weft.protocol.kademlia.calls import Calls
from weft.protocol.kademlia.lookup import Lookup
from weft.protocol.kademlia.question import Done, News, Outcome, Question, Seen
from weft.protocol.kademlia.space import Space
from weft.protocol.kademlia.table import Entry, Table
from weft.protocol.messages_dht import Neighbour

Note = Callable[[Space, Table, Entry, News], None]


@dataclass(frozen=True)
class Search:
    """A lookup to be made."""

    question: Question
    tables: tuple[Table, ...]  # to begin with, and to learn from it
    done: Done
    seen: Seen | None = None
    background: bool = False
    others: tuple[Neighbour, ...] = ()  # to begin with, besides the tables
    anew: bool = False  # begin with the others only, as if the tables were empty


class Searches:
    """See the module's text."""

    def __init__(
        self, ctx: Context, calls: Calls, known: Callable[[], list[Contact]], note: Note
    ) -> None:
        self._ctx = ctx
        self._calls = calls
        self._known = known
        self._note = note
        self._waiting: deque[Search] = deque()
        self._waiting_upkeep: deque[Search] = deque()
        self._starting = False
        self.running = 0
        self._upkeeping = 0  # of these, in the background
        self.hops_most = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._waiting_upkeep)

    def start(self, search: Search) -> bool:
        """False if too many wait already."""
        waiting = self._waiting_upkeep if search.background else self._waiting
        if len(waiting) >= self._ctx.config.dht.waiting_max:
            self._ctx.counters["dht_refused_busy"] += 1
            return False
        waiting.append(search)
        self._start_waiting()
        return True

    def close(self) -> None:
        self._waiting.clear()
        self._waiting_upkeep.clear()

    def _start_waiting(self) -> None:
        if self._starting:  # a lookup that knows nobody ends as it starts, and we are back here
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

        lookup = Lookup(self._ctx, self._calls, search.question, finished, heard, search.seen)
        if search.anew:
            lookup.start((), search.others)
        else:
            lookup.start(search.tables, self._others(search), self._strangers)

    def _others(self, search: Search) -> tuple[Neighbour, ...]:
        """Neighbours of the general overlay are a random sample of all peers: they help where a
        table is nearly empty, and upkeep finds by them whole ranges that a table lacks."""
        few = sum(len(table) for table in search.tables) < self._ctx.config.dht.k
        if not (few or search.background):
            return search.others
        return (*search.others, *self._strangers())

    def _strangers(self) -> list[Neighbour]:
        return [Neighbour(contact) for contact in self._known()]
