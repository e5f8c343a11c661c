"""TERA's routing of one peer: its layers put together (Baldoni et al., 2007, Section 3).

From below: the access point table and lookups over the general overlay, subscriptions and their
advertisements, and one `TopicState` per subscribed topic. This file hands each command, message,
timer and signal to the layer that it belongs to.

Messages about a topic that this peer is not subscribed to are refused in a way that makes the
sender stop: it learns that this peer is not a member (`Refusals`). A peer that routes otherwise
refuses all messages of TERA's in the same way.

One timer of the peer drives the topics that are due and the advertisements, so that a peer in
very many topics has no timer per topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, Union

from weft.documents.run import Proven, Run
from weft.ids import GENERAL, Contact, OverlayId, PeerId, Topic
from weft.protocol.context import Context, FarBehind, Handlers, LinkDown, LinkUp, Signals, Timers
from weft.protocol.defence import Informants
from weft.protocol.delivery import Delivery, note_parasite, note_received
from weft.protocol.liveness import LinkList, Liveness
from weft.protocol.membership import (
    NO_NEWS,
    Advert,
    Cyclon,
    JoinGift,
    JoinReply,
    JoinRequest,
    JoinWalk,
    LeaveNotice,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.multi_topic import Again, MultiTopic
from weft.protocol.publication import RouteCheck, RouteEvent, RouteResult, answer_check
from weft.protocol.quota import Quota
from weft.protocol.recent import IHave, Judged, Offer, Recent, Repair, Want, is_proven
from weft.protocol.routing import Due, Routing
from weft.protocol.seam import SCHEMES, Scheme, Timer
from weft.protocol.spread import MISSING
from weft.protocol.tera.access_points import (
    LOOKUP,
    LOOKUP_LATE,
    AccessPoints,
    Advertisement,
    Hint,
    Lookup,
    LookupHit,
    LookupMiss,
    LookupWalk,
    Stale,
    TableCopy,
)
from weft.protocol.tera.announcements import LAZY, Announcer, IHaveOfTopics
from weft.protocol.tera.join import JOIN_TIMER, NEW_TOPICS, EntryLookupDone, Joins
from weft.protocol.tera.links import LinkRelease, LinkReply, LinkRequest, Unlink
from weft.protocol.tera.questions import Overdue, Passed
from weft.protocol.tera.size import SampleReply, SampleWalk
from weft.protocol.tera.stan import AdoptMe, CollectReply, CollectWalk, InLink, StanMessage
from weft.protocol.tera.topic import TopicState
from weft.protocol.tera.tree import Behind, Graft, Level, Prune
from weft.protocol.wire import LIST_MAX, OfTopic, Payload, Span, span_of

AccessPointMessage: TypeAlias = Union[
    Advertisement, TableCopy, Hint, LookupWalk, LookupHit, LookupMiss, Stale
]
LinkMessage: TypeAlias = Union[
    LinkRequest, LinkReply, LinkRelease, Unlink, Graft, Prune, Overdue, Passed, Behind, Level
]
TeraMessage: TypeAlias = Union[
    IHaveOfTopics, AccessPointMessage, LinkMessage, SampleWalk, SampleReply, StanMessage
]

_TOLD_MS = 2_000
"""guess: a peer that speaks of a topic which this one is not in is told so once in this time: often
enough to make up for a lost answer, and not for each message of a stranger that goes on."""
_FEW_TOPICS = 64
"""guess: with so many topics at most, all of them are looked through when a peer is lost."""

TopicHandler: TypeAlias = Callable[[TopicState, Contact, Any], None]

_TO_MEMBERS: dict[type, TopicHandler] = {
    JoinWalk: TopicState.on_join_walk,
    JoinGift: lambda state, sender, message: state.view.on_join_gift(sender, message),
    Hint: TopicState.on_hint,
    SampleWalk: lambda state, sender, message: state.size.on_walk(sender, message),
    SampleReply: lambda state, sender, message: state.size.on_sample(sender, message),
    LinkRequest: lambda state, sender, message: state.links.on_request(
        sender, message, state.recent.fingerprint()
    ),
    LinkReply: TopicState.on_link_reply,
    LinkRelease: lambda state, sender, message: state.on_link_release(sender),
    Unlink: lambda state, sender, message: state.links.on_unlink(
        sender, state.recent.fingerprint()
    ),
    IHave: TopicState.on_ihave,
    Graft: TopicState.on_graft,
    Prune: TopicState.on_prune,
    Overdue: TopicState.on_overdue,
    Passed: TopicState.on_passed,
    Behind: TopicState.on_behind,
    Level: TopicState.on_level,
    CollectWalk: lambda state, sender, message: state.stan.on_walk(sender, message),
    CollectReply: TopicState.on_collect_reply,
    AdoptMe: lambda state, sender, message: state.stan.on_adopt_me(sender),
    InLink: lambda state, sender, message: state.stan.on_in_link(sender, message),
    Offer: TopicState.on_offer,
    Want: TopicState.on_want,
    Repair: TopicState.on_repair,
}
"""Messages that only members of a topic answer."""


class Tera(Routing):
    """One peer's part in TERA."""

    shares_events = True

    def __init__(
        self,
        ctx: Context,
        delivery: Delivery,
        multi_topic: MultiTopic,
        general: Cyclon,
        liveness: Liveness,
    ) -> None:
        super().__init__(ctx, delivery)
        self._multi_topic = multi_topic
        self._general = general
        self._liveness = liveness
        self.table = AccessPoints(ctx)
        self._lookup = Lookup(ctx, self.table, general)
        self._announcer = Announcer(ctx)
        self._joins = Joins(ctx, delivery, multi_topic, general, self._lookup, self._announcer)
        self.topics = self._joins.by_topic
        self._refusals = Refusals(ctx, general.informants)
        self._schedule = Schedule()
        self._cycle = 0

    def handlers(self) -> Handlers:
        table, lookup, refusals = self.table, self._lookup, self._refusals.handlers()
        to_members: dict[type, TopicHandler] = {
            **_TO_MEMBERS,
            Payload: self._on_payload,
            Again: self._on_again,
            ShuffleRequest: TopicState.on_shuffle_request,
            ShuffleReply: TopicState.on_shuffle_reply,
            JoinRequest: TopicState.on_join_request,
        }
        handlers: Handlers = {
            kind: self._to_members(on, refusals[kind]) for kind, on in to_members.items()
        }
        return {
            **handlers,
            IHaveOfTopics: lambda sender, message: _each_topic(sender, message, handlers[IHave]),
            RouteEvent: self._on_route_event,
            RouteCheck: self._on_route_check,
            JoinReply: self._joins.on_join_reply,
            LeaveNotice: self._on_leave_notice,
            Advertisement: lambda sender, message: self.on_adverts(sender, message.adverts),
            TableCopy: lambda sender, message: table.on_copy(message),
            LookupWalk: self._on_lookup_walk,
            LookupHit: lookup.on_hit,
            LookupMiss: lambda sender, message: lookup.on_miss(message),
            Stale: lookup.on_stale,
            LinkList: self._on_link_list,
        }

    def _to_members(
        self, handle: TopicHandler, refuse: Callable[..., object]
    ) -> Callable[[Contact, OfTopic], None]:
        topics = self.topics

        def on_message(sender: Contact, message: OfTopic) -> None:
            state = topics.get(message.topic)
            if state is not None:
                handle(state, sender, message)
            else:
                refuse(sender, message)

        return on_message

    def timers(self) -> Timers:
        return {
            LAZY: lambda timer: self._on_lazy_timer(),
            MISSING: self._on_missing_timer,
            LOOKUP: lambda timer: self._lookup.on_timer(timer.serial),
            LOOKUP_LATE: lambda timer: self._lookup.on_late_timer(timer.serial),
            JOIN_TIMER: lambda timer: self._joins.on_timer(timer.topic, timer.serial),
            NEW_TOPICS: lambda timer: self._joins.adverts.on_timer(),
        }

    def signals(self) -> Signals:
        return {EntryLookupDone: self._joins.on_lookup_done}

    # --- the user's wishes ------------------------------------------------------------------------

    @property
    def subscribed(self) -> list[Topic]:
        return list(self.topics)

    def is_subscribed(self, topic: Topic) -> bool:
        return topic in self.topics

    def scheme_problem(self, topic: Topic, scheme: Scheme | None) -> str:
        """Members of a topic may use different schemes, but each of them one."""
        if scheme is None:
            return ""
        if scheme not in SCHEMES:
            return f"no scheme {scheme!r} with the routing tera; there are {', '.join(SCHEMES)}"
        state = self.topics.get(topic)
        if state is not None and state.scheme != scheme:
            return f"this peer is subscribed to {topic} by the scheme {state.scheme} already"
        return ""

    def subscribe(self, token: int, topic: Topic, scheme: Scheme | None, hopeful: bool) -> None:
        if self._joins.join(token, topic, scheme, hopeful):
            self._schedule.put(topic, self._cycle + 1)

    def unsubscribe(self, token: int, topic: Topic) -> None:
        self._joins.leave(token, topic)

    def publish(self, topic: Topic, proven: Proven, delivered: bool) -> bool:
        state = self.topics.get(topic)
        if state is None:
            return False
        state.publish(proven, delivered)
        return True

    def collect(self) -> None:
        for state in self.topics.values():
            state.stan.collect(state.popularity)

    def close(self) -> None:
        self._joins.close()

    # --- access points ----------------------------------------------------------------------------

    def find(self, topic: Topic, avoid: Iterable[PeerId] = ()) -> int:
        return self._lookup.start(topic, avoid)

    def forget_entry(self, topic: Topic, peer: PeerId) -> None:
        self._lookup.disprove(topic, peer)

    def sample(self) -> list[int]:
        return self.table.sample()

    def on_sample(self, sample: list[int]) -> None:
        self.table.on_sample(sample)

    def adverts_for(self, contact: Contact) -> list[Advert]:
        return self._joins.adverts.ride(contact)

    def on_adverts(self, sender: Contact, adverts: list[Advert]) -> None:
        for advert in adverts:
            self.table.on_advert(sender, advert)
            state = self.topics.get(advert.topic)
            if state is not None:
                state.on_advert(sender, OverlayId(advert.overlay))

    def welcome(self, newcomer: Contact) -> None:
        for page in self.table.copy():
            self._ctx.send(newcomer, page)

    def _on_lookup_walk(self, sender: Contact, message: LookupWalk) -> None:
        self._lookup.on_walk(sender, message, message.topic in self.topics)

    # --- events -----------------------------------------------------------------------------------

    def _on_payload(self, state: TopicState, sender: Contact, message: Payload) -> None:
        run = message.run
        note_received(self._ctx, "payloads_received", run)
        straight = message.reach > 0 and state.is_straight(sender, run, message.reach)
        judged = state.judge(run, sender, straight)
        waiting = self._waiting_for(sender, run, judged)
        state.on_pushed(sender, run, judged, message.hops, straight)
        self._go_on_with(waiting)

    def _on_route_event(self, sender: Contact, message: RouteEvent) -> None:
        """A publisher outside of the topic hands a run to this member."""
        state = self.topics.get(message.topic)
        run = message.run
        note_received(self._ctx, "routed_received", run)
        found: Run | None = run
        if message.again:
            found = self._multi_topic.resolve_routed(run)
        taken = False
        if state is not None and found is not None:
            judged = state.judge(found, sender)
            waiting = [] if message.again else self._waiting_for(sender, found, judged)
            taken = state.on_route_event(sender, found, judged)
            self._go_on_with(waiting)
        why = "" if taken else self._delivery.refusal(message.topic, span_of(run))
        result = RouteResult(message.topic, run.incarnation, run.first, taken, why)
        self._ctx.send(sender, result)

    def _on_route_check(self, sender: Contact, message: RouteCheck) -> None:
        """A publisher outside of the topic asks whether its runs have come here."""
        state = self.topics.get(message.topic)
        if state is None:
            self._refusals.on_route_check(sender, message)
            return
        answer_check(self._ctx, sender, message, state.recent, state.entering)

    def _waiting_for(
        self, sender: Contact, run: Run, judged: Judged
    ) -> list[tuple[Contact, Again]]:
        """The references that waited for the payload of an event of several topics, which came
        now."""
        if run.parts and is_proven(judged):
            return self._multi_topic.arrived(run, sender.peer)
        return []

    def _go_on_with(self, waiting: list[tuple[Contact, Again]]) -> None:
        for sender, again in waiting:
            state = self.topics.get(again.topic)
            if state is not None:
                self._on_again(state, sender, again)
            else:
                self._refusals.refuse(sender, again)

    def _on_again(self, state: TopicState, sender: Contact, message: Again) -> None:
        """An event that came in another of its topics is pushed in this one, too."""
        self._ctx.counters["agains_received"] += 1
        run = self._multi_topic.resolve(sender, message)
        if run is not None:
            state.on_pushed(sender, run, state.judge(run, sender), message.hops)
        else:
            span = Span(message.publisher, message.incarnation, message.number, message.number)
            state.on_ihave(sender, IHave(message.topic, [span]))

    # --- topic overlays ---------------------------------------------------------------------------

    def _on_leave_notice(self, sender: Contact, message: LeaveNotice) -> None:
        self.table.forget_entry(message.topic, sender.peer)
        state = self.topics.get(message.topic)
        if state is not None:
            state.lose(sender.peer, left=True)

    # --- links ------------------------------------------------------------------------------------

    def on_link_up(self, signal: LinkUp) -> bool:
        state = self.topics.get(signal.topic)
        if state is None or signal.contact.peer not in state.links.linked:
            return False
        state.link_up(signal.contact, signal.recent)
        return True

    def on_link_down(self, signal: LinkDown) -> None:
        state = self.topics.get(signal.topic)
        if state is not None and signal.peer not in state.links.linked:
            state.link_down(signal.peer)

    def on_far_behind(self, signal: FarBehind) -> None:
        state = self.topics.get(signal.topic)
        if state is not None:
            state.on_far_behind(signal.far)

    def _on_link_list(self, sender: Contact, message: LinkList) -> None:
        """Settle which links both ends believe in (see `protocol/liveness.py`)."""
        mine = self._liveness.topics_with(sender.peer)
        theirs = set(message.topics)
        for topic in message.topics:
            state = self.topics.get(topic)
            if state is not None:
                state.links.adopt(sender)
            elif topic != GENERAL:
                self._ctx.send(sender, LeaveNotice(topic))
        if len(message.topics) < LIST_MAX:
            for topic in mine:
                if topic not in theirs:
                    self.topics[topic].links.lose(sender.peer)
        if message.first:
            self._liveness.send_list(sender, first=False)

    # --- entering the network, losing peers -------------------------------------------------------

    def on_entered(self) -> None:
        self._joins.on_entered()
        if self._general.knows_nobody:
            return
        self._joins.adverts.send_soon()
        few = len(self.topics) <= _FEW_TOPICS
        for topic, state in self.topics.items():
            if state.seek_if_alone():
                self._schedule.put(topic, self._cycle + 1)
                if few:
                    self._joins.seek_others(topic)

    def on_peer_lost(self, peer: PeerId) -> None:
        self.table.forget_peer(peer)
        for topic in self._topics_with(peer):
            state = self.topics[topic]
            known = not state.alone
            state.lose(peer)
            if known and state.alone:
                self._joins.seek_others(topic)  # at once: there may be others yet
            elif known and state.is_thin:
                self._joins.adverts.add(topic)
        self._joins.on_peer_lost(peer)
        self._joins.adverts.send_soon()
        self._lookup.on_peer_lost(peer)

    def on_peer_doubted(self, peer: PeerId) -> None:
        self._lookup.on_peer_lost(peer)
        if len(self.topics) <= _FEW_TOPICS:
            for state in self.topics.values():
                state.on_doubt(peer)

    def on_peer_back(self, contact: Contact, topics: Sequence[Topic]) -> None:
        for topic, state in self.topics.items():
            state.on_peer_back(contact, topic in topics)

    def _topics_with(self, peer: PeerId) -> list[Topic]:
        """The topics in which a lost peer matters. Of very many topics only those with a link to
        it: a view drops the peer by itself when its turn to be asked comes."""
        few = len(self.topics) <= _FEW_TOPICS
        return list(self.topics) if few else self._liveness.topics_with(peer)

    # --- time -------------------------------------------------------------------------------------

    def run_cycle(self, cycle: int, due: Due) -> None:
        self._cycle = cycle
        for topic in self._schedule.take(cycle, self._ctx.config.cyclon.exchanges_per_cycle_max):
            state = self.topics.get(topic)
            if state is not None:
                due(topic)
                if state.alone:
                    self._joins.seek_others(topic)
                self._schedule.put(topic, cycle + state.run_cycle())
        self._joins.adverts.run_cycle()

    def _on_lazy_timer(self) -> None:
        states = [self.topics.get(topic) for topic in self._announcer.take_topics()]
        trees = [state.tree for state in states if state is not None]
        self._announcer.announce(tree for tree in trees if tree is not None)

    def _on_missing_timer(self, timer: Timer) -> None:
        state = self.topics.get(timer.topic)
        if state is not None:
            state.on_missing_timer(timer.serial)

    # --- looking at it ----------------------------------------------------------------------------

    def members(self, topic: Topic) -> list[Contact]:
        state = self.topics.get(topic)
        if state is None:
            return []
        known = dict(state.links.linked)
        known.update((contact.peer, contact) for contact in state.view.contacts())
        return list(known.values())

    def recent(self, topic: Topic) -> Recent | None:
        part = self.topics.get(topic)
        return part.recent if part is not None else None

    def alone(self, topic: Topic) -> bool:
        state = self.topics.get(topic)
        return state is not None and state.alone and not state.entering

    def reaches_others(self, topic: Topic) -> bool:
        state = self.topics.get(topic)
        return state is not None and not state.alone

    def links(self) -> dict[Topic, list[PeerId]]:
        return {topic: list(state.links.linked) for topic, state in self.topics.items()}

    def link_counts(self) -> dict[str, int]:
        """Links over all topics (paper 003, Section 3.4): logical ones, one per topic and peer
        (LVS), and physical ones, one per peer (PVS); of the links that carry events, and of the
        views that StaN ranks."""
        states = self.topics.values()
        carriers = [contact.peer for state in states for contact in state.carriers]
        ranked = [peer for state in states for peer in state.stan.entries]
        return {
            "logical": len(carriers),
            "physical": len(dict.fromkeys(carriers)),
            "ranked_logical": len(ranked),
            "ranked_physical": len(dict.fromkeys(ranked)),
        }

    @property
    def access_points(self) -> int:
        return len(self.table)

    def status(self) -> dict[str, object]:
        uses = Counter(one.peer for state in self.topics.values() for one in state.carriers)
        return {
            "links": self.link_counts(),
            "access_points": len(self.table),
            "topics_active_estimate": self.table.topics_active(),
            "topics": {topic: state.status(uses) for topic, state in self.topics.items()},
        }


def _each_topic(
    sender: Contact, message: IHaveOfTopics, handle: Callable[[Contact, Any], object]
) -> None:
    """Announcements of several topics, one by one."""
    for one in message.announced:
        handle(sender, IHave(one.topic, one.spans))


class Schedule:
    """Topics in buckets by the cycle in which they are due; of two cycles for one topic the earlier
    counts. A cycle costs by the topics that are due, not by all topics."""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Topic, None]] = {}
        self._due: dict[Topic, int] = {}
        self._late: dict[Topic, None] = {}  # due earlier, but their turn did not come

    def put(self, topic: Topic, cycle: int) -> None:
        due = self._due.get(topic)
        if due is not None:
            if due <= cycle:
                return
            self._buckets[due].pop(topic, None)
        self._due[topic] = cycle
        self._buckets.setdefault(cycle, {})[topic] = None

    def take(self, cycle: int, most: int) -> list[Topic]:
        """The topics due by this cycle, `most` of them at most; the rest come first next time."""
        for topic in self._buckets.pop(cycle, {}):
            self._late[topic] = None
        taken = list(self._late)[:most]
        for topic in taken:
            del self._late[topic]
            del self._due[topic]
        return taken


class Refusals:
    """The answers of a peer that is not a member of a topic, or does not route by TERA."""

    def __init__(self, ctx: Context, informants: Informants) -> None:
        self._ctx = ctx
        self._informants = informants
        self._told: Quota[tuple[PeerId, Topic]] = Quota(1, _TOLD_MS)

    def handlers(self) -> Handlers:
        """For all messages of TERA's, at a peer that routes otherwise."""
        # Answers to what this peer never asked, and news it has no use for.
        ignored = (
            *(ShuffleReply, JoinReply, LeaveNotice),
            *(Advertisement, TableCopy, LookupHit, LookupMiss, Stale),
        )
        return {
            **dict.fromkeys(ignored, lambda sender, message: None),
            **dict.fromkeys((Payload, Again, *_TO_MEMBERS), self.refuse),
            ShuffleRequest: self._on_shuffle_request,
            JoinRequest: self._on_join_request,
            LookupWalk: self._on_lookup_walk,
            IHaveOfTopics: lambda sender, message: _each_topic(sender, message, self.refuse),
            RouteEvent: self._on_route_event,
            RouteCheck: self.on_route_check,
            LinkList: self._on_link_list,
        }

    def refuse(self, sender: Contact, message: OfTopic) -> None:
        """Answer a message that only members of a topic should get."""
        ctx = self._ctx
        ctx.counters["not_subscribed"] += 1
        if isinstance(message, Payload):
            note_parasite(ctx, message.topic, message.run, sender.peer)
        if message.topic == GENERAL:  # of which LeaveNotice would mean leaving the network
            return
        if self._told.takes((sender.peer, message.topic), ctx.now):
            ctx.send(sender, LeaveNotice(message.topic))

    def _on_shuffle_request(self, sender: Contact, message: ShuffleRequest) -> None:
        self._ctx.counters["not_subscribed"] += 1
        self._ctx.send(sender, ShuffleReply(message.topic, message.tick, [], NO_NEWS, False))

    def _on_join_request(self, sender: Contact, message: JoinRequest) -> None:
        self._ctx.counters["not_subscribed"] += 1
        self._ctx.send(sender, JoinReply(message.topic, False))

    def _on_lookup_walk(self, sender: Contact, message: LookupWalk) -> None:
        origin = message.origin
        if origin.peer != self._ctx.me.peer and self._informants.may_send(sender, origin):
            self._ctx.send(origin, LookupMiss(message.lookup, message.attempt))

    def _on_route_event(self, sender: Contact, message: RouteEvent) -> None:
        run = message.run
        note_received(self._ctx, "routed_received", run)
        self._ctx.send(sender, RouteResult(message.topic, run.incarnation, run.first, False))

    def on_route_check(self, sender: Contact, message: RouteCheck) -> None:
        answer_check(self._ctx, sender, message, None, False)

    def _on_link_list(self, sender: Contact, message: LinkList) -> None:
        for topic in message.topics:
            if topic != GENERAL:
                self._ctx.send(sender, LeaveNotice(topic))
