"""Questions along the push tree (`tree.py`): does this event still come?

An announced event that has not come may be queued on a link of the tree, for however long. So a
member asks its eager links (`Overdue`):

- A neighbour that has the event answers (`Passed`), and links keep their order: the answer comes
  behind all that was queued there.
- A neighbour that lacks the event, too, asks its own other links, and answers `Passed` once none of
  them brings it.

So every question ends, with the event or with `Passed`; `Passed` over every link that was asked
means that the tree is cut between the asker and the event.

The link that brought the publisher's events so far, the feed, is asked alone at first. It may be
out of date: where a second copy closed a cycle and a link was pruned, events run the other way
round for all members on that cycle. A member whose own feed asks it knows that, and asks its other
links. Before a member answers that nothing comes, it asks back: by that the other end can tell the
answer of a member that lacks the event from that of one that has passed it on.

Deviation: Plumtree asks nobody; it grafts when its timer ends. Questions are about single events,
and each is passed on once over a link, so they cost at most two small messages per link of the part
that lacks the event. Where that part has a cycle, members wait for each other until their patience
ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct, field

from weft.bounded import BoundedDict
from weft.documents.run import Run
from weft.ids import Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context
from weft.protocol.quota import Quota
from weft.protocol.recent import Recent
from weft.protocol.seam import Millis
from weft.protocol.tera.announcements import LifeKey
from weft.protocol.wire import LIST_MAX, Message, Span, Spans
from weft.rules import tree as rules


class Overdue(Message, frozen=True, tag=36):
    """Events that were announced to me: will you push them to me? About the first of each span."""

    topic: WireTopic
    spans: Spans


class Passed(Message, frozen=True, tag=37):
    """Answers `Overdue`: those of these events that you lack will not come over this link."""

    topic: WireTopic
    spans: Spans


EventKey: TypeAlias = tuple[PeerId, int, int]
"""Publisher, incarnation and number."""

_ASKED_MAX = 512
"""guess: lives of publishers whose events this member or its neighbours have asked about."""
_NUMBERS_MAX = 8
"""guess: events of one publisher; each member asks about one at a time."""
_PASSED_ON = 512
"""guess: questions of one neighbour that are passed on to others than the feed …"""
_PASSED_ON_MS = 10_000
"""guess: … in a cycle: a question about an event that was never published reaches all members."""


_FEEDS_MAX = 4_096
"""guess: publishers whose feed is known; as many as are remembered at all."""


class _Feed(Struct):
    """The link over which one publisher's events come, in order."""

    peer: PeerId
    first: int  # number that came over it
    last: int
    lag: Millis  # the least time between an event's date there and its arrival here
    straight: bool  # the publisher itself, which pushes to all members
    behind: Millis | None = None  # when another member first offered a later event


class Feeds:
    """The feeds of one member in one topic."""

    __slots__ = ("_feeds",)

    def __init__(self) -> None:
        self._feeds: BoundedDict[LifeKey, _Feed] = BoundedDict(_FEEDS_MAX)

    def note(self, run: Run, link: PeerId, now: Millis, straight: bool = False) -> None:
        """A new run came over this link."""
        key = run.publisher, run.incarnation
        feed, lag = self._feeds.get(key), now - run.published_ms
        if feed is not None and lag > feed.lag:
            lag = feed.lag
        if feed is not None and feed.peer == link and run.first > feed.last:
            feed.last, feed.lag, feed.straight, feed.behind = run.last, lag, straight, None
        else:
            self._feeds.renew(key, _Feed(link, run.first, run.last, lag, straight))

    def end(self, key: LifeKey, link: PeerId, number: int) -> None:
        """If this link is the feed, it does not bring the publisher's event of this number."""
        feed = self._feeds.get(key)
        if feed is not None and feed.peer == link and feed.last < number:
            del self._feeds[key]

    def move(self, link: PeerId, to: PeerId | None) -> None:
        """The events that came over one link come over another one from now on, if any."""
        for key, feed in list(self._feeds.items()):
            if feed.peer == link and to is None:
                del self._feeds[key]
            elif feed.peer == link and to is not None:
                feed.peer, feed.first, feed.straight = to, feed.last + 1, False

    def has(self, link: PeerId) -> bool:
        return any(feed.peer == link for feed in self._feeds.values())

    def peer(self, key: LifeKey) -> PeerId | None:
        """The other end of a publisher's feed."""
        feed = self._feeds.get(key)
        return feed.peer if feed is not None else None

    def last(self, key: LifeKey) -> int:
        """The latest number that came over a publisher's feed."""
        feed = self._feeds.get(key)
        return feed.last if feed is not None else 0

    def lag(self, key: LifeKey) -> Millis | None:
        feed = self._feeds.get(key)
        return feed.lag if feed is not None else None

    def is_straight(self, key: LifeKey) -> bool:
        """Whether the publisher brings its events itself, over a link of the tree or not."""
        feed = self._feeds.get(key)
        return feed is not None and feed.straight

    def behind_since(self, key: LifeKey, now: Millis) -> Millis:
        """When another member first offered an event that the feed has not brought."""
        feed = self._feeds.get(key)
        if feed is None:
            return now
        if feed.behind is None:
            feed.behind = now
        return feed.behind

    def fate(self, key: LifeKey, number: int) -> rules.Fate:
        """What became of an announced event that has not come."""
        feed = self._feeds.get(key)
        if feed is None:
            return rules.Fate.UNKNOWN
        return rules.fate(number, feed.first, feed.last)


class _Question(Struct):
    """About one event that this member lacks."""

    asked: dict[PeerId, None] = field(default_factory=dict)  # neighbours asked about it
    denied: dict[PeerId, None] = field(default_factory=dict)  # of these, answered `Passed`
    waiting: dict[PeerId, None] = field(default_factory=dict)  # neighbours that have asked
    told: dict[PeerId, None] = field(default_factory=dict)  # of these, answered with `Passed`
    mine: bool = False  # this member wants to know it for itself
    strayed: bool = False  # others than the feed were asked
    missed: bool = False  # a neighbour has the event, and did not push it here

    def waits_for(self, but: PeerId | None = None) -> list[PeerId]:
        """The links that have not answered."""
        return [peer for peer in self.asked if peer not in self.denied and peer != but]


class Questions:
    """What one member and its neighbours have asked about in one topic."""

    __slots__ = (
        "_asked",
        "_ctx",
        "_eager",
        "_feeds",
        "_lazy",
        "_overdue",
        "_passed",
        "_passed_on",
        "_recent",
        "_topic",
    )

    def __init__(
        self,
        ctx: Context,
        topic: Topic,
        recent: Recent,
        eager: Mapping[PeerId, Contact],
        lazy: Mapping[PeerId, Contact],
        feeds: Feeds,
    ) -> None:
        """`eager`: the links of the tree; `lazy`: all other links."""
        self._ctx = ctx
        self._topic = topic
        self._recent = recent
        self._eager = eager
        self._lazy = lazy
        self._feeds = feeds
        self._asked: BoundedDict[LifeKey, BoundedDict[int, _Question]] = BoundedDict(_ASKED_MAX)
        self._overdue: dict[PeerId, list[Span]] = {}  # to be sent
        self._passed: dict[PeerId, list[Span]] = {}
        self._passed_on: Quota[PeerId] = Quota(_PASSED_ON, _PASSED_ON_MS)

    # --- asking and answering ---------------------------------------------------------------------

    def ask(self, event: EventKey, announcers: Iterable[PeerId]) -> list[PeerId]:
        """This member wants to know whether an event comes; its announcers do not push it.
        Returns the links that are waited for."""
        question = self._question(event)
        question.mine = True
        for peer in announcers:
            question.asked[peer] = question.denied[peer] = None
        if not question.waits_for():
            self._ask_links(event, question, None)
        return question.waits_for()

    def waits_for(self, event: EventKey) -> list[PeerId]:
        """The links that have not answered."""
        question = self._find(event)
        return question.waits_for() if question is not None else []

    def strays(self, event: EventKey) -> bool:
        """Whether it is not known which link should bring an event."""
        question = self._find(event)
        return question is not None and question.strayed

    def on_overdue(self, sender: PeerId, message: Overdue) -> list[EventKey]:
        """A neighbour asks about events. Returns those that, as it turns out, come to this member
        over no link."""
        found = []
        for span in message.spans:
            event = (span.publisher, span.incarnation, span.first)
            if sender not in self._eager or not self._lacks(event) or not self._may_ask(sender):
                self._passed.setdefault(sender, []).append(_span(event))
                continue
            question = self._question(event)
            question.waiting[sender] = None
            if self._settle(event, question):
                found.append(event)
        return found

    def on_passed(self, sender: PeerId, message: Passed) -> list[EventKey]:
        """Some events do not come over this link. Returns those that come over none."""
        found = []
        for span in message.spans:
            event = (span.publisher, span.incarnation, span.first)
            question = self._find(event)
            if question is None or sender not in question.asked or not self._lacks(event):
                continue
            question.denied[sender] = None
            if sender not in question.waiting:
                question.missed = True  # it asks for nothing, so it has the event
            if self._settle(event, question):
                found.append(event)
        return found

    def is_mender(self, event: EventKey) -> bool:
        """Whether this member is the one to mend the tree for an event that comes over no link."""
        question = self._find(event)
        return question is None or rules.mends(self._ctx.me.peer, question.told)

    # --- what becomes of them ---------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self._asked)

    def came(self, key: LifeKey, last: int) -> None:
        """Events up to this number have come. They are pushed on, which answers all questions about
        them."""
        self.take(key, 0, last)

    def take(self, key: LifeKey, first: int, last: int) -> list[PeerId]:
        """Some events have come. Returns the neighbours that have asked about them."""
        questions = self._asked.get(key)
        if questions is None:
            return []
        answered = [number for number in questions if first <= number <= last]
        waiting = [peer for number in answered for peer in questions.pop(number).waiting]
        if not questions:
            del self._asked[key]
        return list(dict.fromkeys(waiting))

    def deny(self, event: EventKey) -> None:
        """This member will not push an event: tell the neighbours that have asked about it."""
        question = self._find(event)
        if question is not None:
            for peer in question.waiting:
                if peer not in question.told:
                    self._passed.setdefault(peer, []).append(_span(event))
            del self._asked[event[:2]][event[2]]

    def link_gone(self, peer: PeerId, broken: bool) -> list[EventKey]:
        """No more events come or go over this link; `broken`: it is gone altogether. Returns the
        events that come over no link now."""
        found = []
        for key, questions in list(self._asked.items()):
            for number, question in list(questions.items()):
                question.waiting.pop(peer, None)
                question.told.pop(peer, None)
                if peer in question.waits_for():
                    question.denied[peer] = None
                    question.missed |= broken and peer == self._feeds.peer(key)
                    if self._settle((*key, number), question):
                        found.append((*key, number))
        return found

    def send(self) -> None:
        """Send questions and answers, those for one neighbour together; a neighbour that gets both
        gets the question first."""
        for kind, said in ((Overdue, self._overdue), (Passed, self._passed)):
            for peer, spans in said.items():
                contact = self._eager.get(peer) or self._lazy.get(peer)
                if contact is not None:
                    for start in range(0, len(spans), LIST_MAX):
                        page = spans[start : start + LIST_MAX]
                        self._ctx.send(contact, kind(self._topic, page))
            said.clear()

    # --- helpers ----------------------------------------------------------------------------------

    def _question(self, event: EventKey) -> _Question:
        questions = self._asked.setdefault(event[:2], BoundedDict(_NUMBERS_MAX))
        return questions.setdefault(event[2], _Question())

    def _find(self, event: EventKey) -> _Question | None:
        questions = self._asked.get(event[:2])
        return questions.get(event[2]) if questions is not None else None

    def _may_ask(self, peer: PeerId) -> bool:
        rates = self._ctx.config.defence.rates
        return self._passed_on.takes(peer, self._ctx.now) or not rates

    def _lacks(self, event: EventKey) -> bool:
        return bool(self._recent.lacking([_span(event)]))

    def _settle(self, event: EventKey, question: _Question) -> bool:
        """Ask further links, or answer neighbours. Returns whether the event comes over no link;
        then neighbours keep waiting, since this member may mend the tree for all of them."""
        everybody = question.missed or all(peer in question.asked for peer in self._eager)
        if everybody and not question.waits_for():
            return True
        for peer in question.waiting:
            if peer in question.told or question.waits_for(but=peer):
                continue
            if not self._ask_links(event, question, peer):
                self._tell(event, question, peer)
        if question.mine and not question.waits_for():
            self._ask_links(event, question, None)
        return False

    def _ask_links(self, event: EventKey, question: _Question, but: PeerId | None) -> bool:
        """Ask further links whether they bring an event; returns whether there were any."""
        feed, ways = self._feeds.peer(event[:2]), list(self._eager)
        if feed is not None and feed in self._lazy and self._feeds.is_straight(event[:2]):
            ways.append(feed)
        links = [peer for peer in ways if peer not in question.asked and peer != but]
        if feed in links:
            links = [feed]
        elif links:
            question.strayed = True
        for peer in links:
            question.asked[peer] = None
            self._overdue.setdefault(peer, []).append(_span(event))
        return bool(links)

    def _tell(self, event: EventKey, question: _Question, peer: PeerId) -> None:
        """The event comes to this member over no link but one, whose other end asks for it."""
        question.told[peer] = None
        if peer not in question.asked:
            question.asked[peer] = None
            self._overdue.setdefault(peer, []).append(_span(event))
        self._passed.setdefault(peer, []).append(_span(event))


def _span(event: EventKey) -> Span:
    return Span(*event, event[2])
