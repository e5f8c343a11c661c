"""Plumtree: a push tree over the stable links of one topic (Leitão, Pereira, Rodrigues, "Epidemic
Broadcast Trees", 2007).

Every link of a member (`links.py`) is eager or lazy. An event is pushed over the eager links and
announced over the lazy ones. The first links of a topic start eager. The first copy of an event
keeps its link eager; a second copy over another link makes that one lazy on both ends (`Prune`). So
the eager links become one tree, shared by all publishers, and each member gets one copy.

The lazy links keep the tree whole. They carry announcements (`IHave`, see `recent.py`), gathered
for `lazy_delay_ms`. A member waits for an announced event as long as its patience says; then it
asks an announcer for it (`Graft`), which makes that link eager on both ends: the tree heals itself.
If the event does not come, the next announcer is asked.

Invariants: eager and lazy are disjoint and together exactly the topic's stable links; the link that
brought the latest wave first does not become lazy, whatever its other end says.

Deviation: only the second copies of some events prune links, the waves (`rules/tree.py` says which,
and why two events in flight would else tear the tree).

Deviation: no optimisation by hop counts, which trades duplicates for depth; announcements name runs
of numbers and are gathered for a short while.

Members of a topic may choose another scheme than the tree: *flood* is TERA's reference (Section
4.3.2: out-degree = view size), *gossip* sends each new event to a fixed number of random
neighbours. Both go over a view of the topic's overlay, StaN's or Cyclon's moving one (`Spread`);
what they miss, the repair of `recent.py` brings.

The settings are `recent.Config`, in files `dissemination.…`, which repair shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from weft.documents.run import Run
from weft.ids import Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context
from weft.protocol.delivery import GRAFT, PRUNE
from weft.protocol.multi_topic import MultiTopic
from weft.protocol.recent import IHave, Recent
from weft.protocol.seam import Millis
from weft.protocol.wire import LIST_MAX, Message, Payload, Span, Spans
from weft.rules import tree as rules
from weft.rules.draw import stream_of

# --- messages -------------------------------------------------------------------------------------


class Graft(Message, frozen=True, tag=24):
    """Send me these, and push to me from now on."""

    topic: WireTopic
    spans: Spans


class Prune(Message, frozen=True, tag=25):
    """Stop pushing to me; announce to me instead."""

    topic: WireTopic


# --- timers ---------------------------------------------------------------------------------------

LAZY = "tree.lazy"
"""What was gathered is announced."""
MISSING = "tree.missing"
"""An announced event has not come in time."""

# --- state ----------------------------------------------------------------------------------------

_REATTACH = stream_of("tree.reattach")
_MISSING_MAX = 4_096
"""guess: announced events waited for; more are left to the repair of view exchanges."""
_ASKS_MAX = 8
"""guess: asked for so often, round the announcers; then it is left to that repair too."""

EventKey: TypeAlias = tuple[PeerId, int, int]
"""Publisher, incarnation and number."""
_Runs: TypeAlias = dict[tuple[PeerId, int], list[list[int]]]
"""By publisher and incarnation: first and last numbers of runs of events."""


@dataclass(slots=True)
class _Missing:
    """An announced event that has not come yet."""

    announcers: list[Contact]
    due: Millis
    asked: int = 0


class Tree:
    """Eager and lazy links of one peer in one topic."""

    __slots__ = (
        "_announce",
        "_announce_all",
        "_ctx",
        "_lazy_armed",
        "_missing",
        "_missing_armed",
        "_multi_topic",
        "_orphan",
        "_parent",
        "_patience_ms",
        "_pruned",
        "_recent",
        "_shaper",
        "_shaper_heard",
        "_topic",
        "_wave",
        "eager",
        "lazy",
    )

    def __init__(self, ctx: Context, multi_topic: MultiTopic, topic: Topic, recent: Recent) -> None:
        self._ctx = ctx
        self._multi_topic = multi_topic
        self._topic = topic
        self._recent = recent
        self.eager: dict[PeerId, Contact] = {}
        self.lazy: dict[PeerId, Contact] = {}
        self._pruned: dict[PeerId, Millis] = {}  # when links became lazy
        self._shaper: PeerId | None = None  # the publisher whose waves shape the tree
        self._shaper_heard: Millis = 0
        self._wave: EventKey | None = None  # the latest
        self._parent: PeerId | None = None  # the neighbour that brought it first
        self._orphan = False  # it came, but over no link yet
        self._announce: _Runs = {}  # gathered for lazy links
        self._announce_all: _Runs = {}  # gathered for all links
        self._missing: dict[EventKey, _Missing] = {}
        self._patience_ms = ctx.config.dissemination.graft_timeout_ms
        self._lazy_armed = False
        self._missing_armed = False

    # --- events -----------------------------------------------------------------------------------

    def push(self, run: Run, hops: int, source: PeerId | None) -> None:
        """Pass on a run that is new to this member."""
        self._note_shaper(run.publisher)
        if run.publisher == self._shaper:
            self._note_wave(run, source)
        if source is not None and source in self.lazy:
            self._take_back(source)
        if self._missing:
            self._note_arrival(run, source)
        eager = self.eager
        if eager:
            message = Payload(self._topic, run, hops + 1)
            send = self._multi_topic.push_over_tree if run.parts else self._ctx.send
            for peer, contact in eager.items():
                if peer != source:
                    send(contact, message)
        if self.lazy:
            self._announce_later(run, self._announce)

    def push_repaired(self, run: Run, repairer: PeerId) -> None:
        """Most members have a repaired run already, and a push would tear the tree: announce
        it on all links instead."""
        if self._missing:
            for key in _keys(run):
                self._missing.pop(key, None)
        if self.eager or self.lazy:
            self._announce_later(run, self._announce_all)

    def on_duplicate(self, sender: Contact, run: Run) -> None:
        """A second copy came over a link: if it shapes the tree, the link is not in the tree."""
        if self._orphan and _key(run) == self._wave and self._is_linked(sender.peer):
            self._adopt(sender.peer)
            return
        if sender.peer not in self.eager:
            if sender.peer in self.lazy:  # the other end has not heard yet
                self._ctx.send(sender, Prune(self._topic))
            return
        fed = self._parent in self.eager
        if _key(run) != self._wave or not rules.prunes(self._parent, fed, sender.peer):
            return
        self._make_lazy(sender.peer)
        self._ctx.send(sender, Prune(self._topic))
        self._trace(PRUNE, sender.peer)

    # --- messages and timers ----------------------------------------------------------------------

    def on_prune(self, sender: Contact) -> None:
        """The other end wants no more pushes over this link."""
        if sender.peer == self._parent:  # it goes by another wave; this member needs the link
            self._graft(sender, [])
            return
        self.eager.setdefault(sender.peer, sender)
        self._make_lazy(sender.peer)

    def on_graft(self, sender: Contact, message: Graft) -> None:
        """Send what is asked for, and push over this link from now on."""
        self._make_eager(sender.peer)
        for held in self._recent.fetch(message.spans, LIST_MAX):
            self._ctx.send(sender, Payload(self._topic, held.run, held.hops + 1))

    def on_ihave(self, sender: Contact, message: IHave) -> None:
        """Wait for what was announced and has not come."""
        ctx = self._ctx
        due = ctx.now + self._patience_ms
        for span in self._recent.lacking(message.spans):
            for number in range(span.first, span.last + 1):
                key = (span.publisher, span.incarnation, number)
                missing = self._missing.get(key)
                if missing is None:
                    if len(self._missing) >= _MISSING_MAX:
                        self._ctx.counters["missing_forgotten"] += 1
                        return
                    self._missing[key] = _Missing([sender], due)
                elif (
                    len(missing.announcers) < ctx.config.links.most
                    and sender not in missing.announcers
                ):
                    missing.announcers.append(sender)
        if self._missing and not self._missing_armed:
            self._arm_missing(self._patience_ms)

    def on_lazy_timer(self) -> None:
        """Announce what was gathered."""
        self._lazy_armed = False
        lazy, everyone = self._announce, self._announce_all
        self._announce, self._announce_all = {}, {}
        self._send_announcements(lazy, list(self.lazy.values()))
        self._send_announcements(everyone, [*self.eager.values(), *self.lazy.values()])

    def on_missing_timer(self) -> None:
        """Ask for announced events that did not come, each from its next announcer."""
        self._missing_armed = False
        ctx, config = self._ctx, self._ctx.config.dissemination
        asks: dict[PeerId, tuple[Contact, list[Span]]] = {}
        for key, missing in list(self._missing.items()):
            if missing.due > ctx.now:
                continue
            if missing.asked >= _ASKS_MAX or self._is_seen(key):
                del self._missing[key]
                continue
            contact = missing.announcers[missing.asked % len(missing.announcers)]
            missing.asked += 1
            missing.due = ctx.now + config.graft_retry_ms * missing.asked
            _, spans = asks.setdefault(contact.peer, (contact, []))
            _append(spans, key)
        for contact, spans in asks.values():
            self._graft(contact, spans)
        if self._missing:
            soonest = min(missing.due for missing in self._missing.values())
            self._arm_missing(max(1, soonest - ctx.now))

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
        self._pruned.pop(peer, None)
        if peer == self._parent:
            self._parent = None
        if was_fed and not self.eager and self.lazy:
            # The only link that brought events is gone. Another one must, and cannot close a
            # cycle: no need to wait until an announced event does not come.
            self._graft(self._ctx.pick(_REATTACH, list(self.lazy.values())), [])

    @property
    def busy(self) -> bool:
        """Whether events came within the last cycle: links shall not move under them."""
        ctx = self._ctx
        return self._shaper is not None and (
            ctx.now - self._shaper_heard < ctx.config.cyclon.cycle_ms
        )

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

    def _make_lazy(self, peer: PeerId) -> None:
        contact = self.eager.pop(peer, None)
        if contact is not None:
            self.lazy[peer] = contact
            self._pruned[peer] = self._ctx.now

    def _take_back(self, peer: PeerId) -> None:
        """An event came first over a lazy link. An event that was on its way when the link was
        pruned says nothing; a later one means that the other end still pushes, and rightly so."""
        pruned = self._pruned.get(peer, 0)
        if self._ctx.now - pruned >= self._ctx.config.dissemination.graft_timeout_ms:
            self._make_eager(peer)

    def _graft(self, contact: Contact, spans: list[Span]) -> None:
        self._make_eager(contact.peer)
        self._trace(GRAFT, contact.peer)
        self._ctx.counters["grafts_sent"] += 1
        for start in range(0, max(1, len(spans)), LIST_MAX):
            self._ctx.send(contact, Graft(self._topic, spans[start : start + LIST_MAX]))

    # --- waves ------------------------------------------------------------------------------------

    def _note_shaper(self, publisher: PeerId) -> None:
        now, quiet_ms = self._ctx.now, self._ctx.config.dissemination.shaper_quiet_ms
        if rules.shapes_tree(self._shaper, self._shaper_heard, publisher, now, quiet_ms):
            self._shaper = publisher
            self._shaper_heard = now

    def _note_wave(self, run: Run, source: PeerId | None) -> None:
        """If this run shapes the tree, the link that brought it is in the tree."""
        before = self._recent.before(run)
        before_ms = before.published_ms if before is not None else None
        every_ms = self._ctx.config.dissemination.shaper_quiet_ms
        if rules.is_wave(run.first, run.published_ms, before_ms, every_ms):
            self._wave, self._parent = _key(run), None
            if source is not None and self._is_linked(source):
                self._adopt(source)
            # A link that only the other end believed in is none: the next copy's has to do. But
            # a member that begins a wave in this topic is fed over no link.
            self._orphan = self._parent is None and source not in (None, run.publisher)

    def _adopt(self, parent: PeerId) -> None:
        """The wave came over this link: it is in the tree."""
        self._parent = parent
        self._orphan = False
        if parent in self.lazy:
            self._graft(self.lazy[parent], [])

    # --- announcements ----------------------------------------------------------------------------

    def _announce_later(self, run: Run, where: _Runs) -> None:
        runs = where.setdefault((run.publisher, run.incarnation), [])
        if runs and runs[-1][1] + 1 == run.first:
            runs[-1][1] = run.last
        else:
            runs.append([run.first, run.last])
        if not self._lazy_armed:
            self._lazy_armed = True
            delay = self._ctx.config.dissemination.lazy_delay_ms
            self._ctx.set_timer(delay, LAZY, self._topic)

    def _send_announcements(self, announced: _Runs, contacts: list[Contact]) -> None:
        spans = [Span(*key, *run) for key, runs in announced.items() for run in runs]
        for start in range(0, len(spans), LIST_MAX):
            message = IHave(self._topic, spans[start : start + LIST_MAX])
            for contact in contacts:
                self._ctx.send(contact, message)

    def _note_arrival(self, run: Run, source: PeerId | None) -> None:
        """A run came whose events may have been announced, and perhaps asked for."""
        usual_ms = self._ctx.config.dissemination.graft_timeout_ms
        for key in _keys(run):
            missing = self._missing.pop(key, None)
            if missing is None or not missing.asked:
                continue
            asked = missing.announcers[: missing.asked]
            false_alarm = all(contact.peer != source for contact in asked)
            self._patience_ms = rules.patience(self._patience_ms, false_alarm, usual_ms)

    def _arm_missing(self, after_ms: Millis) -> None:
        self._missing_armed = True
        self._ctx.set_timer(after_ms, MISSING, self._topic)

    def _is_seen(self, key: EventKey) -> bool:
        life = self._recent.lives.get((key[0], key[1]))
        return life is not None and life.has_seen(key[2])

    def _trace(self, kind: str, peer: PeerId) -> None:
        if self._ctx.tracing:
            self._ctx.trace(kind, {"peerID": self._ctx.name(peer), "topic": self._topic})


def _key(run: Run) -> EventKey:
    return run.publisher, run.incarnation, run.first


def _keys(run: Run) -> list[EventKey]:
    numbers = range(run.first, run.last + 1)
    return [(run.publisher, run.incarnation, number) for number in numbers]


def _append(spans: list[Span], key: EventKey) -> None:
    """Add an event to a list of spans, lengthening the last one where it fits."""
    if spans:
        last = spans[-1]
        if (last.publisher, last.incarnation, last.last + 1) == key:
            spans[-1] = Span(last.publisher, last.incarnation, last.first, key[2])
            return
    spans.append(Span(key[0], key[1], key[2], key[2]))


# --- the other schemes ----------------------------------------------------------------------------


class View(Protocol):
    """The neighbours that a member may send to."""

    def contacts(self) -> list[Contact]: ...

    def sample(self, count: int) -> list[Contact]: ...


class Spread:
    """Flood (`fanout` None) or gossip over one topic's view."""

    __slots__ = ("_ctx", "_fanout", "_multi_topic", "_topic", "_view")

    def __init__(
        self,
        ctx: Context,
        multi_topic: MultiTopic,
        topic: Topic,
        view: View,
        fanout: int | None,
    ) -> None:
        self._ctx = ctx
        self._multi_topic = multi_topic
        self._topic = topic
        self._view = view
        self._fanout = fanout

    def push(self, run: Run, hops: int, source: PeerId | None) -> None:
        """Pass on a run that is new to this member."""
        targets = self._view.contacts() if self._fanout is None else self._view.sample(self._fanout)
        message = Payload(self._topic, run, hops + 1)
        send = self._multi_topic.push if run.parts else self._ctx.send
        for contact in targets:
            if contact.peer not in (source, run.publisher):
                send(contact, message)

    def push_repaired(self, run: Run, repairer: PeerId) -> None:
        """Pass on a run that a repair brought."""
        self.push(run, 0, repairer)
