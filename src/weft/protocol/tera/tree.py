"""Plumtree: a push tree over the stable links of one topic (Leitão, Pereira, Rodrigues, "Epidemic
Broadcast Trees", 2007).

**The tree.** Every link of a member (`links.py`) is *eager* or *lazy*. An event is pushed over the
eager links and announced over the lazy ones. Links start eager. The first copy of an event keeps
its link eager; a second copy over another link makes that one lazy on both ends (`Prune`). So the
eager links become one tree, shared by all publishers, and each member gets one copy.

**Repair.** Announcements (`IHave`, see `recent.py`) are gathered for `lazy_delay_ms`. A member
waits for an announced event as long as its *patience* says; then it asks an *announcer* for it
(`Graft`), which makes that link eager on both ends: the tree heals itself. If the event does not
come, the next announcer is asked.

**Bursts.** In a burst an announcement overtakes the event, which is queued on the tree's link
behind many others. So a member knows for each publisher the link that brings its events, the
*feed*. Links keep their order, so the feed's latest number tells two cases apart:

- The event is below it: it was lost on the way. It is asked for at once, and on the side (`Want`):
  that makes no link eager, since the tree is whole.
- The event is above it: it may be queued there, for however long. When patience ends, the member
  asks along the tree whether it still comes (`questions.py`). Only if the answer is that the tree
  is cut, or if links that were asked stay silent, is an announcer asked: one link is grafted, and
  further announcers send on the side. Neighbours that have asked this member wait meanwhile.

While it is unclear which link should bring an event, the event is fetched on the side as well: the
question also goes to neighbours through which the event does not come, and one of them may stay
silent. A link that was grafted for an event that came over the tree after all is pruned again.

Neighbours may lie. A feed that was silent when it was asked is doubted for all publishers at once,
and what it should bring is fetched on the side until it brings something. Only the neighbours that
announced an event are asked for it; an event that is dated after it was asked for does not make a
member more patient. Before a link is given up, all others become eager until the next wave.

Deviation: Plumtree grafts when its timer ends ("Fault Tolerance and Tree Repair"), which in a burst
turns the tree into a flood (measured: ten peers all to all at full speed had 4 to 5 copies of each
event).

**Waves.** Deviation: only the second copies of some events, the *waves*, prune links, since two
events in flight would else tear the tree. One publisher at a time makes waves, the *shaper*, and
not with all of its events (`rules/tree.py`). The neighbour that brought the latest wave first is a
member's *parent*.

**Members that read the past.** A member with a store that is far behind a busy stream reads its
past in pages (`history/reader.py`), which bring new events as well, sooner than it could hand them
out. So it tells its feed (`Behind`), which announces to it what is stored in place of pushing it.
Once the member is nearly level it says so; the feed pushes again, and answers with what lies before
that and comes in pages (`Level`). Only a member that passes nothing on does so, with one eager
link: one that others are fed by keeps being fed. Events that no member stores are pushed all the
time.

Invariants: eager and lazy are disjoint and together exactly the topic's stable links; the link that
brought the latest wave first does not become lazy, whatever its other end says.

Deviation: no optimisation by hop counts, which trades duplicates for depth; announcements name runs
of numbers and are gathered for a short while. In a topic so small that all members are linked to
each other, the tree begins as a star around the first publisher (`begin_as_star`), and other
publishers that are linked to all push *straight*: over eager and lazy links, saying over how many.
A member with no more links than that passes the run on to nobody, and only announces it. So all
members are one hop away, for one copy each. Such runs leave the tree as it is, and what got lost of
them is asked for on the side. Stored events go over the tree, since a member that reads the past
has told its feed alone that it wants no pushes; so do those of several topics.

Members of a topic may choose another scheme than the tree (`protocol/spread.py`).

The settings are `recent.Config` (`dissemination.…` in files), shared with repair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from msgspec import Struct, field

from weft.bounded import BoundedDict
from weft.documents.run import Run
from weft.ids import Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context
from weft.protocol.defence import Silence
from weft.protocol.delivery import GRAFT, PRUNE, Taken
from weft.protocol.multi_topic import MultiTopic
from weft.protocol.recent import IHave, Recent, Want
from weft.protocol.seam import Millis
from weft.protocol.spread import MISSING
from weft.protocol.tera.announcements import Announcer, Gathered, Gathering, LifeKey
from weft.protocol.tera.questions import EventKey, Feeds, Overdue, Passed, Questions
from weft.protocol.wire import LIST_MAX, Message, Payload, Span, Spans, Statements, span_of
from weft.rules import tree as rules
from weft.rules.draw import stream_of
from weft.rules.stretches import Stretch

# --- messages -------------------------------------------------------------------------------------


class Graft(Message, frozen=True, tag=24):
    """Send me these, and push to me from now on."""

    topic: WireTopic
    spans: Spans


class Prune(Message, frozen=True, tag=25):
    """Stop pushing to me; announce to me instead."""

    topic: WireTopic


class Behind(Message, frozen=True, tag=58):
    """`far`: I read the past, and pass nothing on, so only announce to me what is stored. Else push
    to me again."""

    topic: WireTopic
    far: bool


class Level(Message, frozen=True, tag=59):
    """Answers the end of `Behind`: what I push to you comes after these."""

    topic: WireTopic
    seen: Statements


# --- state ----------------------------------------------------------------------------------------

_REATTACH = stream_of("tree.reattach")
_AWAITED_MAX = 1_024
"""guess: publishers whose announced events are waited for; the events of others are left to the
repair of view exchanges."""
_KNOWN_MAX = 4_096
"""guess: publishers of which it is known since when; as many as are remembered at all."""
_SILENT_PATIENCE = 4
"""guess: for how many times its patience a member waits for a feed that it asked about an event and
that sends nothing. On a busy machine a process waits longer for its turn than an event takes."""
_FEED_PATIENCE_MS = 30_000
"""guess: how long a feed that brings other events is believed to bring these, too. It may lie; what
got lost comes with the repair of view exchanges meanwhile."""
_OFFERS_PATIENCE_MS = 10_000
"""guess: the same for events that another member offers in a repair; shorter, since a member
without lazy links gets lost events by offers alone."""
_PROMISES_MAX = 16
"""guess: announcements of one neighbour, of one publisher's events, that it is held to."""
_ASKS_MAX = 8
"""guess: how often an event is asked for, of one announcer after the other; then it is left to the
repair of view exchanges."""

_Asked: TypeAlias = dict[PeerId, tuple[Contact, list[Span]]]
"""Announcers, and the events that each is asked for."""


class _Awaited(Struct):
    """Announced events of one publisher that have not all come yet."""

    first: int  # the lowest announced number that has not come
    last: int
    due: Millis  # when to ask for them
    since: Millis  # when an event of the publisher came last
    announcers: dict[PeerId, Contact] = field(default_factory=dict)
    promised: dict[PeerId, deque[Stretch]] = field(default_factory=dict)  # what each announced
    asked: int = 0  # how often announcers were asked since an event came …
    asked_ms: Millis = 0  # … and when for the first time
    tried: dict[PeerId, None] = field(default_factory=dict)  # announcers that were asked
    grafted: dict[PeerId, None] = field(default_factory=dict)  # links, because of these events
    lost: int = 0  # up to this number, what the feed has passed over was asked for at once
    probed: int = 0  # the number that links of the tree were asked about last …
    asked_feed: Millis = 0  # … and when
    fetched: int = 0  # the number that was asked for on the side last

    def promisers(self) -> list[Contact]:
        """The announcers that may have the first of these events; if none is known to, all."""
        told = self.promised
        found = [
            contact
            for peer, contact in self.announcers.items()
            if any(last >= self.first for _, last in told[peer])
        ]
        return found or list(self.announcers.values())  # older promises are forgotten

    def forget(self, peer: PeerId) -> None:
        """Nothing is expected of an announcer any more, nor what it alone has promised."""
        for of in (self.announcers, self.promised, self.tried):
            of.pop(peer, None)
        self.last = max((last for told in self.promised.values() for _, last in told), default=0)


class Tree:
    """Eager and lazy links of one peer in one topic."""

    __slots__ = (
        *("_announce", "_announce_all", "_announcer", "_awaited", "_ctx", "_doubted"),
        *("_far_behind", "_feeds", "_first_ms", "_known", "_missing_timer", "_multi_topic"),
        *("_orphan", "_parent", "_patience_ms", "_prune_sent", "_pruned", "_pushed_ms"),
        *("_questions", "_readers", "_recent", "_resuming", "_shaper", "_shaper_heard"),
        *("_silence", "_told_behind", "_topic", "_wave", "eager", "lazy"),
    )

    def __init__(
        self,
        ctx: Context,
        multi_topic: MultiTopic,
        topic: Topic,
        recent: Recent,
        silence: Silence,
        announcer: Announcer,
    ) -> None:
        self._ctx = ctx
        self._multi_topic = multi_topic
        self._topic = topic
        self._recent = recent
        self._silence = silence
        self._announcer = announcer
        self.eager: dict[PeerId, Contact] = {}
        self.lazy: dict[PeerId, Contact] = {}
        self._pruned: dict[PeerId, Millis] = {}  # when links became lazy
        self._prune_sent: dict[PeerId, Millis] = {}  # when a `Prune` was sent over them last
        self._shaper: PeerId | None = None  # the publisher whose waves shape the tree
        self._shaper_heard: Millis = 0
        self._pushed_ms: Millis = 0  # when an event was last pushed
        self._known: BoundedDict[PeerId, Millis] = BoundedDict(_KNOWN_MAX)  # publishers, since when
        self._first_ms: Millis | None = None  # when the topic's first event came here
        self._wave: EventKey | None = None  # the latest one
        self._parent: PeerId | None = None  # the neighbour that brought the wave first
        self._orphan = False  # the wave came, but over no link yet
        self._announce = Gathering()  # for lazy links
        self._announce_all = Gathering()  # for all links
        self._feeds = Feeds()
        self._awaited: dict[LifeKey, _Awaited] = {}
        self._questions = Questions(ctx, topic, recent, self.eager, self.lazy, self._feeds)
        self._patience_ms = ctx.config.dissemination.graft_timeout_ms
        self._missing_timer: tuple[int, Millis] | None = None  # its serial, and when it is due
        # Links that were silent when they were asked, and since when.
        self._doubted: dict[PeerId, Millis] = {}
        self._far_behind = False  # this member reads the past
        self._told_behind: dict[PeerId, None] = {}  # links whose other ends only announce meanwhile
        self._resuming: dict[PeerId, None] = {}  # links that were told to push again
        self._readers: dict[PeerId, None] = {}  # eager links to members that read the past

    # --- events -----------------------------------------------------------------------------------

    def push(self, run: Run, hops: int, source: PeerId | None) -> None:
        """Pass on a run that is new to this member."""
        if self._awaited and self.is_untried:
            self._make_announcers_lazy(run)
        self._pushed_ms = self._ctx.now
        was_shaper = self._shaper in (run.publisher, None)
        self._note_shaper(run.publisher)
        if run.publisher == self._shaper:
            self._note_wave(run, source, was_shaper)
        if source is not None and source in self.lazy:
            self._take_back(source)
        key = run.publisher, run.incarnation
        if source is not None and self._is_linked(source):
            self._feeds.note(run, source, self._ctx.now)
        if self._awaited:
            self._note_arrival(run, source)
        if self._questions:
            self._questions.came(key, run.last)
        if source is None or self.passes_on(source):
            message = Payload(self._topic, run, hops + 1)
            send = self._multi_topic.push_over_tree if run.parts else self._ctx.send
            readers = self._readers if run.sealed else ()
            for peer, contact in self.eager.items():
                if peer != source and peer not in readers:
                    send(contact, message)
        if self.lazy or self._readers:
            self._announce_later(run, self._announce)

    def push_straight(self, run: Run, source: PeerId | None) -> None:
        """A run of a small topic that its publisher, here or at the other end of a link, pushes to
        all members itself. It leaves the tree as it is, unless it is the first one."""
        self._pushed_ms = self._ctx.now
        self._note_known(run.publisher)
        if source is None:
            message = Payload(self._topic, run, 1, len(self.eager) + len(self.lazy))
            for links in (self.eager, self.lazy):
                for contact in links.values():
                    self._ctx.send(contact, message)
            return
        if self.is_untried:
            self._note_shaper(run.publisher)
            self._note_wave(run, source, True)
        key = run.publisher, run.incarnation
        gap = Span(*key, self._feeds.last(key) + 1, run.first - 1)
        shows_loss = self._feeds.is_straight(key) and gap.first <= gap.last
        self._feeds.note(run, source, self._ctx.now, straight=True)
        if self._awaited:
            self._note_arrival(run, source)
        link = self.eager.get(source) or self.lazy.get(source)
        if shows_loss and link is not None:  # perhaps lost to all members: none announces it
            self.on_ihave(link, IHave(self._topic, [gap]))
        self._answer(run)
        # A link of the tree between two others brings no copy, so what got lost is announced there.
        beyond = self.passes_on(source)
        self._announce_later(run, self._announce_all if beyond else self._announce)

    def passes_on(self, source: PeerId) -> bool:
        """Whether an event that comes over this link goes on to another member."""
        return len(self.eager) > (source in self.eager)

    @property
    def is_untried(self) -> bool:
        """Whether no event has shaped it yet."""
        return self._wave is None

    def begin_as_star(self, centre: PeerId) -> None:
        """The first event of the topic came from its publisher, which reaches most members itself
        (`topic.py` knows). So the tree begins as a star around the publisher: links between two
        other members begin lazy. Both ends of such a link conclude so by themselves, which saves a
        copy and a `Prune`; an end that did not pushes a copy, and is sent a `Prune`."""
        if centre in self.eager:
            for peer in [peer for peer in self.eager if peer != centre]:
                self._make_lazy(peer)

    def _make_announcers_lazy(self, run: Run) -> None:
        """The first event was announced before it came: members that announced it have it, and
        hold their ends of the links for lazy ones."""
        awaited = self._awaited.get((run.publisher, run.incarnation))
        if awaited is not None:
            for peer in awaited.announcers:
                if peer not in awaited.grafted:
                    self._make_lazy(peer)

    def push_repaired(self, run: Run, repairer: PeerId) -> None:
        """Most members have a repaired run already, and a push would tear the tree: announce
        it on all links instead. Neighbours that have asked about it are pushed to."""
        if self._awaited:
            self._note_arrival(run, repairer)
        self._answer(run)
        if self.eager or self.lazy:
            self._announce_later(run, self._announce_all)

    def _answer(self, run: Run) -> None:
        """Push a run that goes on to nobody else to the neighbours that have asked about it."""
        key = run.publisher, run.incarnation
        waiting = self._questions.take(key, run.first, run.last) if self._questions else ()
        for held in self._recent.fetch([span_of(run)], LIST_MAX) if waiting else ():
            for peer in waiting:
                self._ctx.send(self.eager[peer], Payload(self._topic, held.run, held.hops + 1))

    def on_no_news(self, sender: Contact, run: Run, taken: Taken) -> None:
        """A run came over a link and was not taken. After a refusal nothing more is awaited of that
        life of the publisher, whose further events would be refused, too."""
        if taken is Taken.REFUSED:
            self._awaited.pop((run.publisher, run.incarnation), None)
        elif taken in (Taken.COPY, Taken.OLD):
            self._on_duplicate(sender, run)

    def _on_duplicate(self, sender: Contact, run: Run) -> None:
        """A second copy came over a link: if it shapes the tree, the link is not in the tree."""
        if self._doubted.pop(sender.peer, None) is not None:  # it was only slow
            usual_ms = self._ctx.config.dissemination.graft_timeout_ms
            self._patience_ms = rules.patience(self._patience_ms, True, usual_ms)
        if self._orphan and _key(run) == self._wave and self._is_linked(sender.peer):
            self._adopt(sender.peer)
            return
        if sender.peer not in self.eager:
            if sender.peer in self.lazy:  # the other end has not heard yet
                told = self._prune_sent.get(sender.peer)
                wait_ms = self._ctx.config.dissemination.graft_timeout_ms
                if told is None or self._ctx.now - told >= wait_ms:
                    self._send_prune(sender)
            return
        fed = self._parent in self.eager
        if _key(run) != self._wave or not rules.prunes(self._parent, fed, sender.peer):
            return
        self._make_lazy(sender.peer)
        self._send_prune(sender)
        self._trace(PRUNE, sender.peer)

    def _send_prune(self, contact: Contact) -> None:
        self._prune_sent[contact.peer] = self._ctx.now
        self._ctx.send(contact, Prune(self._topic))

    # --- messages and timers ----------------------------------------------------------------------

    def on_prune(self, sender: Contact) -> None:
        """The other end wants no more pushes over this link."""
        if sender.peer == self._parent:  # it judges by another wave; this member needs the link
            self._graft(sender, [])
            return
        self.eager.setdefault(sender.peer, sender)
        self._make_lazy(sender.peer)

    def on_graft(self, sender: Contact, message: Graft) -> None:
        """Send what is asked for, and push over this link from now on."""
        self._make_eager(sender.peer)
        self._readers.pop(sender.peer, None)
        self._tell_links()
        for held in self._recent.fetch(message.spans, LIST_MAX):
            self._ctx.send(sender, Payload(self._topic, held.run, held.hops + 1))

    def on_ihave(self, sender: Contact, message: IHave) -> None:
        """Wait for what was announced and has not come; while this member reads the past, pages
        bring it."""
        if self._told_behind:
            return
        ctx = self._ctx
        # No link brings anything to a member that has had no event: the publisher passed it by.
        gathered_ms = ctx.config.dissemination.lazy_delay_ms
        patience_ms = gathered_ms if self.is_untried else self._patience_ms
        soonest: Millis | None = None
        for span in self._recent.lacking(message.spans):
            key = span.publisher, span.incarnation
            awaited = self._awaited.get(key)
            if awaited is None:
                if len(self._awaited) >= _AWAITED_MAX:
                    ctx.counters["missing_forgotten"] += 1
                    return
                due = ctx.now + (gathered_ms if self._is_feed_doubted(key) else patience_ms)
                awaited = self._awaited[key] = _Awaited(span.first, span.last, due, ctx.now)
                soonest = due if soonest is None else min(soonest, due)
            awaited.first = min(awaited.first, span.first)
            awaited.last = max(awaited.last, span.last)
            if len(awaited.announcers) < ctx.config.links.most:
                awaited.announcers[sender.peer] = sender
                promised = awaited.promised.setdefault(sender.peer, deque(maxlen=_PROMISES_MAX))
                promised.append((span.first, span.last))
            self._feeds.end(key, sender.peer, span.last)  # its other end announces: pushes nothing
            self._ask_for_losses(key, awaited)
        if soonest is not None:
            self._arm_missing(soonest)

    @property
    def topic(self) -> Topic:
        return self._topic

    def take_announcements(self) -> Iterator[Gathered]:
        """The events gathered so far, which are announced now, and to whose links."""
        readers = [self.eager[peer] for peer in self._readers]
        yield self._announce.take(), [*self.lazy.values(), *readers]
        yield self._announce_all.take(), [*self.eager.values(), *self.lazy.values()]

    def on_missing_timer(self, serial: int) -> None:
        """Ask for announced events that did not come, each from its next announcer."""
        if self._missing_timer is None or self._missing_timer[0] != serial:
            return  # an earlier one has done it
        self._missing_timer = None
        ctx = self._ctx
        asked: _Asked = {}
        for key, awaited in list(self._awaited.items()):
            if awaited.due > ctx.now:
                continue
            spans = self._lacking(key, awaited)
            if awaited.asked >= _ASKS_MAX or not spans:
                del self._awaited[key]
                self._questions.deny((*key, awaited.first))
                continue
            if awaited.asked == _ASKS_MAX // 2:  # neighbours that wait for this may do better
                self._questions.deny((*key, awaited.first))
            fate = self._feeds.fate(key, spans[0].first)
            if fate is not rules.Fate.LOST and self._waits_for_tree(key, awaited):
                continue
            awaited.due = ctx.now + self._retry_ms(awaited)
            if fate is rules.Fate.LOST:
                ctx.send(self._next_announcer(awaited), Want(self._topic, spans))
            else:
                self._ask_announcer(awaited, spans, asked)
        self._send_grafts(asked)
        self._questions.send()
        if self._awaited:
            self._arm_missing(min(awaited.due for awaited in self._awaited.values()))

    def on_overdue(self, sender: Contact, message: Overdue) -> None:
        """A neighbour asks whether events come to it over the tree."""
        self._mend(self._questions.on_overdue(sender.peer, message))

    def on_passed(self, sender: Contact, message: Passed) -> None:
        """Events that this member asked about and still lacks do not come over this link."""
        found = self._questions.on_passed(sender.peer, message)
        for span in message.spans:
            key = span.publisher, span.incarnation
            if not self._feeds.is_straight(key):  # the publisher brings its next ones all the same
                self._feeds.end(key, sender.peer, span.first)
        self._mend(found)

    def _mend(self, events: list[EventKey]) -> None:
        """Events come over no link of the tree: have an announcer push them from now on. Without
        one, neighbours that have asked about them are told, and may know of one."""
        asked: _Asked = {}
        for event in events:
            awaited = self._awaited.get(event[:2])
            spans = self._lacking(event[:2], awaited) if awaited is not None else []
            if awaited is None or not spans or spans[0].first > event[2]:
                self._questions.deny(event)
            elif not awaited.asked:
                if self._questions.is_mender(event):
                    self._ask_announcer(awaited, spans, asked)
                    awaited.due = self._ctx.now + self._retry_ms(awaited)
                else:
                    awaited.due = self._ctx.now + self._patience_ms
        self._send_grafts(asked)
        self._questions.send()

    # --- members that read the past ---------------------------------------------------------------

    def on_far_behind(self, far: bool) -> None:
        """This member reads the past and has far to go, or is nearly level."""
        self._far_behind = far
        self._tell_links()

    def _tell_links(self) -> None:
        """Have the link that feeds this member announce to it as long as it is far behind and
        passes nothing on; and push again as soon as either ends."""
        leaf = self._far_behind and len(self.eager) == 1
        wanted = self.eager if leaf else {}
        for peer in [peer for peer in self._told_behind if peer not in wanted]:
            del self._told_behind[peer]
            contact = self.eager.get(peer) or self.lazy.get(peer)
            if contact is not None:
                self._resuming[peer] = None
                self._ctx.send(contact, Behind(self._topic, False))
        for peer, contact in wanted.items():
            if peer not in self._told_behind:
                self._told_behind[peer] = None
                self._resuming.pop(peer, None)
                self._ctx.counters["tree_spared"] += 1
                self._ctx.send(contact, Behind(self._topic, True))

    def on_behind(self, sender: Contact, message: Behind) -> None:
        """The other end reads the past, or wants events again."""
        if not message.far:
            self._readers.pop(sender.peer, None)
            self._ctx.send(sender, Level(self._topic, self._recent.seen()))
        elif sender.peer in self.eager:
            self._readers[sender.peer] = None

    def expects_level(self, peer: PeerId) -> bool:
        """Whether this end has asked for events again, and what they come after; once."""
        expected = peer in self._resuming
        self._resuming.pop(peer, None)
        return expected

    # --- links ------------------------------------------------------------------------------------

    def link_up(self, contact: Contact) -> None:
        """A stable link stands."""
        if contact.peer in self.lazy:  # the prune that made the link known came first
            return
        if not rules.starts_eager(bool(self.eager), self._shaper is not None):
            self.lazy[contact.peer] = contact
            return
        fed = bool(self.eager)
        self.eager[contact.peer] = contact
        if not fed and self._shaper is not None:
            self._graft(contact, [])  # the other end may have begun lazily

    def link_down(self, peer: PeerId) -> None:
        """A stable link is gone."""
        was_fed = self.eager.pop(peer, None) is not None
        self.lazy.pop(peer, None)
        found = self._questions.link_gone(peer, broken=True)
        self._feeds.move(peer, None)
        for links in (self._pruned, self._prune_sent, self._doubted):
            links.pop(peer, None)
        for some in (self._told_behind, self._resuming, self._readers):
            some.pop(peer, None)
        if peer == self._parent:
            self._parent = None
        if was_fed and not self.eager and self.lazy:
            # The only link that brought events is gone. Another one must, and cannot close a
            # cycle: no need to wait until an announced event does not come.
            self._graft(self._ctx.pick(_REATTACH, list(self.lazy.values())), [])
        self._mend(found)

    @property
    def busy(self) -> bool:
        """Whether events came within the last cycle: links shall not move under them."""
        ctx = self._ctx
        return self._shaper is not None and ctx.now - self._pushed_ms < ctx.config.cyclon.cycle_ms

    def carries(self, peer: PeerId) -> bool:
        """Whether the tree would lose a branch with this link; before there were events, none."""
        return self._shaper is not None and peer in self.eager

    def _is_linked(self, peer: PeerId) -> bool:
        return peer in self.eager or peer in self.lazy

    def _make_eager(self, peer: PeerId) -> None:
        contact = self.lazy.pop(peer, None)
        if contact is not None:
            self.eager[peer] = contact
            self._pruned.pop(peer, None)
            self._prune_sent.pop(peer, None)

    def _make_lazy(self, peer: PeerId) -> None:
        contact = self.eager.pop(peer, None)
        if contact is not None:
            self.lazy[peer] = contact
            self._readers.pop(peer, None)
            self._pruned[peer] = self._ctx.now
            # The link closed a cycle with the one to the parent, which brings its events now.
            fed = self._parent != peer and self._parent in self.eager
            self._feeds.move(peer, self._parent if fed else None)
            if self._questions:
                self._mend(self._questions.link_gone(peer, broken=False))

    def _take_back(self, peer: PeerId) -> None:
        """An event came first over a lazy link. An event that was on its way when the link was
        pruned says nothing; a later one means that the other end still pushes, and rightly so."""
        pruned = self._pruned.get(peer, 0)
        if self._ctx.now - pruned >= self._ctx.config.dissemination.graft_timeout_ms:
            self._make_eager(peer)

    def _graft(self, contact: Contact, spans: list[Span]) -> None:
        self._make_eager(contact.peer)
        self._told_behind.pop(contact.peer, None)  # its other end pushes from now on
        self._trace(GRAFT, contact.peer)
        self._ctx.counters["grafts_sent"] += 1
        self._ctx.send(contact, Graft(self._topic, spans))

    # --- waves ------------------------------------------------------------------------------------

    def _note_shaper(self, publisher: PeerId) -> None:
        """Of the publishers heard of lately, the one with the smallest id is the shaper."""
        now, quiet_ms = self._ctx.now, self._ctx.config.dissemination.shaper_quiet_ms
        self._note_known(publisher)
        if rules.shapes_tree(self._shaper, self._shaper_heard, publisher, now, quiet_ms):
            known_ms, topic_ms = now - self._known[publisher], now - (self._first_ms or 0)
            if publisher == self._shaper or rules.may_shape(known_ms, topic_ms):
                self._shaper = publisher
                self._shaper_heard = now

    def _note_known(self, publisher: PeerId) -> None:
        if publisher not in self._known:
            now = self._ctx.now
            self._first_ms = now if self._first_ms is None else self._first_ms
            self._known[publisher] = now

    def _note_wave(self, run: Run, source: PeerId | None, was_shaper: bool) -> None:
        """If this run shapes the tree, the link that brought it is in the tree. `was_shaper`: its
        publisher had the role before, or nobody had it."""
        before = self._recent.before(run)
        before_ms = before.published_ms if before is not None else None
        every_ms = self._ctx.config.dissemination.shaper_quiet_ms
        if rules.is_wave(run.first, run.published_ms, before_ms, every_ms, was_shaper):
            self._wave, self._parent = _key(run), None
            if source is not None and self._is_linked(source):
                self._adopt(source)
            # A wave that came over no link of this member has no parent yet: the link of the next
            # copy becomes that. A member to which the publisher handed the wave needs none.
            self._orphan = self._parent is None and source not in (None, run.publisher)

    def _adopt(self, parent: PeerId) -> None:
        """The wave came over this link: it is in the tree."""
        self._parent = parent
        self._orphan = False
        if parent in self.lazy:
            self._graft(self.lazy[parent], [])

    # --- announcements ----------------------------------------------------------------------------

    def _announce_later(self, run: Run, where: Gathering) -> None:
        where.add(run)
        self._announcer.soon(self._topic, run.first == 1)

    # --- what is waited for -----------------------------------------------------------------------

    def may_be_queued(self, span: Span) -> bool:
        """Whether events that another member offers are likely to come over the tree, too: then the
        offer is not taken up, so that repair does not double a burst. A feed that brings other
        events but not these is believed for a while only."""
        if self._told_behind:
            return True  # pages bring them
        key, now = (span.publisher, span.incarnation), self._ctx.now
        feed = self._feeds.peer(key)
        if feed is None or self._feeds.fate(key, span.first) is not rules.Fate.QUEUED:
            return False
        heard = self._silence.heard_at(feed) or 0
        spoke = now - heard < _SILENT_PATIENCE * self._patience_ms
        return spoke and now - self._feeds.behind_since(key, now) < _OFFERS_PATIENCE_MS

    def _waits_for_tree(self, key: LifeKey, awaited: _Awaited) -> bool:
        """Whether to wait on for events that may be queued on the tree.

        The tree's links are asked once about the first of these events. The wait ends when all
        links that have not answered stay silent (a feed must do so twice, since a busy peer may
        wait for its turn), or when `_FEED_PATIENCE_MS` are over. Once an announcer was asked, there
        is no waiting for the tree: the next announcer is asked."""
        now, event = self._ctx.now, (*key, awaited.first)
        if awaited.asked or self.is_untried or now - awaited.since >= _FEED_PATIENCE_MS:
            return False
        is_new = awaited.probed != awaited.first
        if is_new:
            awaited.probed, awaited.asked_feed = awaited.first, now
            self._questions.ask(event, [one.peer for one in awaited.promisers()])
        links = self._questions.waits_for(event)
        doubted = any(map(self._is_doubted, links))
        if links and (doubted or (not is_new and self._questions.strays(event))):
            self._fetch(event, awaited)
        if is_new:
            awaited.due = now + self._patience_ms
            return bool(links)
        patience_ms = _SILENT_PATIENCE * self._patience_ms
        due = max((self._heard_ms(peer, awaited) for peer in links), default=now - patience_ms)
        due += patience_ms
        feed = self._feeds.peer(key)
        if due <= now and feed in links and not self._is_doubted(feed):
            self._doubt(feed)
            self._fetch(event, awaited)
            due = now + patience_ms
        awaited.due = max(due, now + 1)
        return due > now

    def _heard_ms(self, link: PeerId, awaited: _Awaited) -> Millis:
        """From when on a link that was asked about events counts as silent."""
        if self._is_doubted(link):
            return self._doubted[link]
        return max(awaited.asked_feed, self._silence.heard_at(link) or 0)

    def _is_doubted(self, link: PeerId) -> bool:
        since = self._doubted.get(link)
        return since is not None and (self._silence.heard_at(link) or 0) <= since

    def _is_feed_doubted(self, key: LifeKey) -> bool:
        feed = self._feeds.peer(key)
        return feed is not None and self._is_doubted(feed)

    def _doubt(self, link: PeerId) -> None:
        """A feed was asked and said nothing. So all events that it should bring, of any publisher,
        are asked for on the side as well, and after as long again it is no feed."""
        now = self._ctx.now
        self._doubted[link] = now
        for key, awaited in self._awaited.items():
            if not awaited.asked and self._feeds.peer(key) == link:
                awaited.due = now

    def _fetch(self, event: EventKey, awaited: _Awaited) -> None:
        """Ask for one event on the side, once, while the tree may still bring it."""
        if awaited.fetched != awaited.first:
            awaited.fetched = awaited.first
            contact = self._first_announcer(awaited.promisers())
            self._ctx.send(contact, Want(self._topic, [Span(*event, event[2])]))

    def _retry_ms(self, awaited: _Awaited) -> Millis:
        """How long an announcer has time to send what it was asked for."""
        config = self._ctx.config.dissemination
        usual_ms = config.graft_retry_ms * (awaited.asked + 1)
        return usual_ms * self._patience_ms // config.graft_timeout_ms

    def _next_announcer(self, awaited: _Awaited) -> Contact:
        """The member to ask for events: first one that has kept what it promised, and over a link
        that this end takes for one of the tree; it closes no cycle."""
        if awaited.tried:  # the one before has had its time
            before = next(reversed(awaited.tried))
            if any(first <= awaited.first <= last for first, last in awaited.promised[before]):
                self._silence.break_promise(before)
        if not awaited.asked:
            awaited.asked_ms = self._ctx.now
        awaited.asked += 1
        left = [one for one in awaited.promisers() if one.peer not in awaited.tried]
        if not left:
            awaited.tried.clear()
            left = awaited.promisers()
        contact = self._first_announcer(left)
        awaited.tried[contact.peer] = None
        return contact

    def _first_announcer(self, announcers: Iterable[Contact]) -> Contact:
        rank, broken = rules.announcer_rank, self._silence.broken_promises
        return min(announcers, key=lambda one: rank(broken(one.peer), one.peer in self.eager))

    def _ask_announcer(self, awaited: _Awaited, spans: list[Span], asked: _Asked) -> None:
        """Note what the next announcer is asked for: with what others have published, in one graft
        where it may, since an announcement that was false names many publishers. Only one link is
        grafted for these events, which may be queued there, too; others send them on the side."""
        contact = self._next_announcer(awaited)
        grafted = awaited.asked > 1 and awaited.grafted and contact.peer in self.lazy
        if grafted or self._feeds.is_straight((spans[0].publisher, spans[0].incarnation)):
            self._ctx.send(contact, Want(self._topic, spans))
            return
        if contact.peer in self.lazy:
            awaited.grafted[contact.peer] = None
        asked.setdefault(contact.peer, (contact, []))[1].extend(spans)

    def _send_grafts(self, asked: _Asked) -> None:
        for contact, spans in asked.values():
            few: list[Span] = []
            events = 0
            for span in spans:
                length = span.last - span.first + 1
                if few and events + length > LIST_MAX:  # no more is sent for one graft
                    self._graft(contact, few)
                    few, events = [], 0
                few.append(span)
                events += length
            self._graft(contact, few)

    def forget_announcer(self, peer: PeerId) -> None:
        """This member announces what it does not have: nothing is expected of it any more."""
        for key, awaited in list(self._awaited.items()):
            if peer in awaited.announcers:
                awaited.forget(peer)
                if awaited.last < awaited.first:
                    del self._awaited[key]
                    self._questions.deny((*key, awaited.first))

    def part_with(self, peer: PeerId) -> None:
        """A link is given up, though it may be whole. Which other link can bring its events is not
        known, so all push until the next wave shows which of them close cycles."""
        if self._feeds.has(peer):
            for contact in [one for other, one in self.lazy.items() if other != peer]:
                self._graft(contact, [])

    def _note_arrival(self, run: Run, source: PeerId | None) -> None:
        """Some events came of a publisher of which more may have been announced."""
        key = run.publisher, run.incarnation
        awaited = self._awaited.get(key)
        if awaited is None:
            return
        for peer in awaited.announcers:  # they spoke the truth
            self._silence.hear(peer)
        if awaited.asked:
            if source is not None and source in awaited.tried:
                self._silence.keep_promise(source)
            usual_ms = self._ctx.config.dissemination.graft_timeout_ms
            false_alarm = source not in awaited.tried
            if not false_alarm or self._published_ms(run) < awaited.asked_ms:
                self._patience_ms = rules.patience(self._patience_ms, false_alarm, usual_ms)
            if false_alarm:
                self._undo_grafts(awaited)
            awaited.asked = 0
            awaited.tried.clear()
            awaited.grafted.clear()
        awaited.since = self._ctx.now
        spans = self._lacking(key, awaited)
        if not spans:
            del self._awaited[key]
        elif self._feeds.fate(key, spans[0].first) is rules.Fate.QUEUED:
            awaited.due = self._ctx.now + self._patience_ms
        else:
            self._ask_for_losses(key, awaited)

    def _published_ms(self, run: Run) -> Millis:
        """When a run was published by this peer's clock, as near as its feed tells. If it was asked
        for before that, its announcer lied, and the tree is not slow."""
        lag = self._feeds.lag((run.publisher, run.incarnation))
        return run.published_ms + lag if lag is not None else self._ctx.now

    def _undo_grafts(self, awaited: _Awaited) -> None:
        """The tree brought what an announcer was asked for: it is whole without that link."""
        for peer in awaited.grafted:
            contact = self.eager.get(peer)
            if contact is not None and peer != self._parent:
                self._make_lazy(peer)
                self._send_prune(contact)
                self._trace(PRUNE, peer)

    def _ask_for_losses(self, key: LifeKey, awaited: _Awaited) -> None:
        """Ask at once for the announced events that the publisher's feed has passed over."""
        passed = self._feeds.last(key)
        if passed <= awaited.lost:
            return
        spans = self._lacking(key, awaited)
        lost = [one for one in spans if self._feeds.fate(key, one.first) is rules.Fate.LOST]
        if lost:
            contact = list(awaited.announcers.values())[-1]
            self._ctx.counters["losses_asked"] += 1
            self._ctx.send(contact, Want(self._topic, lost))
            awaited.lost = passed
            awaited.due = self._ctx.now + self._patience_ms

    def _lacking(self, key: LifeKey, awaited: _Awaited) -> list[Span]:
        """The lowest of the announced numbers that have not come."""
        spans = self._recent.lacking([Span(*key, awaited.first, awaited.last)])
        if spans:
            awaited.first = spans[0].first
        return spans

    def _arm_missing(self, due: Millis) -> None:
        """Have what is awaited looked at when `due` comes, unless a timer ends earlier."""
        if self._missing_timer is None or due < self._missing_timer[1]:
            self._missing_timer = serial, _ = self._ctx.next_serial(), due
            self._ctx.set_timer(max(1, due - self._ctx.now), MISSING, self._topic, serial)

    def _trace(self, kind: str, peer: PeerId) -> None:
        if self._ctx.tracing:
            self._ctx.trace(kind, {"peerID": self._ctx.name(peer), "topic": self._topic})


def _key(run: Run) -> EventKey:
    return run.publisher, run.incarnation, run.first
