"""TERA's routing of one peer: its layers put together (Baldoni et al., 2007, Section 3).

From below: the access point table and lookups over the general overlay, advertisements,
subscriptions, and one `TopicState` per subscribed topic. This file composes: what the peer tells
goes to the layer it belongs to, messages by way of `inbox.py`.

One timer of the peer drives the topics that are due and the advertisements, so that a peer in
very many topics has no timer per topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from weft.ids import GENERAL, Contact, OverlayId, PeerId, Topic, peer_text
from weft.protocol.context import Context, LinkDown, LinkUp, LookupDone, SubscriptionsChanged
from weft.protocol.delivery import REJECT_MESSAGE, message_id
from weft.protocol.liveness import LinkList, Liveness
from weft.protocol.membership import (
    NO_NEWS,
    Cyclon,
    JoinGift,
    JoinReply,
    JoinRequest,
    JoinWalk,
    LeaveNotice,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.multi_topic import Again
from weft.protocol.publishing import RouteEvent, RouteResult
from weft.protocol.recent import IHave, Offer, Repair, Want
from weft.protocol.routing import Due, Handlers, Routing, Signals, Timers
from weft.protocol.seam import SCHEMES, Scheme, Timer
from weft.protocol.tera import access_points as lookup
from weft.protocol.tera import join, stan, tree
from weft.protocol.tera.access_points import (
    AccessPoints,
    Advertisement,
    Hint,
    Lookup,
    LookupHit,
    LookupMiss,
    LookupWalk,
    TableCopy,
)
from weft.protocol.tera.join import Advertising, Join
from weft.protocol.tera.links import LinkRelease, LinkReply, LinkRequest, Unlink
from weft.protocol.tera.size import SampleReply, SampleWalk
from weft.protocol.tera.topic import TopicState
from weft.protocol.tera.tree import Graft, Prune
from weft.protocol.wire import LIST_MAX, Event, Payload, Span

NEW_TOPICS = "new_topics"
_FEW_TOPICS = 64
"""guess: up to so many topics are looked through when a peer is lost."""
_NEW_TOPICS_MS = 20
"""guess: new subscriptions gathered into one advertisement for so long."""


class Tera(Routing):
    """See the module's text."""

    shares_events = True

    def __init__(self, ctx: Context, general: Cyclon, liveness: Liveness) -> None:
        super().__init__(ctx)
        self._general = general
        self._liveness = liveness
        ctx.twins.linked_in = liveness.topics_with
        self.topics: dict[Topic, TopicState] = {}
        self.table = AccessPoints(ctx)
        self.lookup = Lookup(ctx, self.table, general)
        self.advertising = Advertising(ctx, general, self.topics)
        self.subscribing = Join(ctx, self.topics, self.table, self.lookup, self.advertising)
        self._inbox = Inbox(ctx, self.topics, self.table, liveness, self.lookup, self.subscribing)
        self._schedule = Schedule()
        self._cycle = 0
        self._new_topics_armed = False

    def handlers(self) -> Handlers:
        return self._inbox.handlers()

    def timers(self) -> Timers:
        return {
            tree.LAZY: self._on_tree_timer,
            tree.MISSING: self._on_tree_timer,
            lookup.LOOKUP: lambda timer: self.lookup.on_timer(timer.serial),
            join.JOIN_TIMER: lambda timer: self.subscribing.on_timer(timer.topic, timer.serial),
            NEW_TOPICS: self._on_new_topics,
        }

    def signals(self) -> Signals:
        return {SubscriptionsChanged: lambda signal: self._advertise_soon()}

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
        isolated = self._general.knows_nobody
        if self.subscribing.subscribe(token, topic, scheme, isolated, hopeful):
            self._schedule.put(topic, self._cycle + 1)

    def unsubscribe(self, token: int, topic: Topic) -> None:
        self.subscribing.unsubscribe(token, topic)

    def publish(self, topic: Topic, event: Event, delivered: bool) -> bool:
        state = self.topics.get(topic)
        if state is None:
            return False
        state.publish(event, delivered)
        return True

    def collect(self) -> None:
        for state in self.topics.values():
            state.stan.collect(state.popularity)

    def close(self) -> None:
        self.subscribing.close()

    # --- access points ----------------------------------------------------------------------------

    def find(self, topic: Topic, avoid: Iterable[PeerId] = ()) -> int:
        return self.lookup.start(topic, avoid)

    def forget_entry(self, topic: Topic, peer: PeerId) -> None:
        self.table.forget_entry(topic, peer)

    def sample(self) -> list[int]:
        return self.table.sample()

    def on_sample(self, sample: list[int]) -> None:
        self.table.on_sample(sample)

    def welcome(self, newcomer: Contact) -> None:
        for page in self.table.copy():
            self._ctx.send(newcomer, page)

    # --- what happens below -----------------------------------------------------------------------

    def on_entered(self) -> None:
        isolated = self._general.knows_nobody
        self.subscribing.on_entered(isolated)
        if isolated:
            return
        self._advertise_soon()
        few = len(self.topics) <= _FEW_TOPICS
        for topic, state in self.topics.items():
            if state.alone:
                state.alone_period = 1
                self._schedule.put(topic, self._cycle + 1)
                if few:
                    self.subscribing.seek_others(topic)

    def on_peer_lost(self, peer: PeerId) -> None:
        self.table.forget_peer(peer)
        for topic in self._topics_with(peer):
            self.topics[topic].lose(peer)
        self.subscribing.on_peer_lost(peer)

    def _topics_with(self, peer: PeerId) -> list[Topic]:
        """Where a lost peer matters. In very many topics only the links do: a view drops the
        peer by itself when its turn to be asked comes."""
        few = len(self.topics) <= _FEW_TOPICS
        return list(self.topics) if few else self._liveness.topics_with(peer)

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

    def on_lookup_done(self, done: LookupDone) -> None:
        self.subscribing.on_lookup_done(done)
        self._advertise_soon()

    # --- time -------------------------------------------------------------------------------------

    def run_cycle(self, cycle: int, due: Due) -> None:
        self._cycle = cycle
        for topic in self._schedule.take(cycle, self._ctx.config.cyclon.exchanges_per_cycle_max):
            state = self.topics.get(topic)
            if state is not None:
                due(topic)
                self._run_topic(topic, state)
        self.advertising.run_cycle(cycle)

    def _run_topic(self, topic: Topic, state: TopicState) -> None:
        if state.alone:
            state.recent.purge(self._ctx.now)
            self.subscribing.seek_others(topic)
            pause = state.alone_period
            state.alone_period = min(2 * pause, 4 * self._ctx.config.cyclon.stable_period_max)
        else:
            state.alone_period = 1
            state.run_cycle()
            pause = state.period
        self._schedule.put(topic, self._cycle + pause)

    def _on_tree_timer(self, timer: Timer) -> None:
        state = self.topics.get(timer.topic)
        if state is not None and state.tree is not None:
            if timer.kind == tree.LAZY:
                state.tree.on_lazy_timer()
            else:
                state.tree.on_missing_timer()

    def _on_new_topics(self, timer: Timer) -> None:
        self._new_topics_armed = False
        self.advertising.flush_new()

    def _advertise_soon(self) -> None:
        if self.advertising.has_new and not self._new_topics_armed:
            self._new_topics_armed = True
            self._ctx.set_timer(_NEW_TOPICS_MS, NEW_TOPICS, GENERAL)

    # --- looking at it ----------------------------------------------------------------------------

    def members(self, topic: Topic) -> list[Contact]:
        state = self.topics.get(topic)
        if state is None:
            return []
        known = dict(state.links.linked)
        known.update((contact.peer, contact) for contact in state.view.contacts())
        return list(known.values())

    def alone(self, topic: Topic) -> bool:
        state = self.topics.get(topic)
        return state is not None and state.alone and not state.entering

    def links(self) -> dict[Topic, list[PeerId]]:
        return {topic: list(state.links.linked) for topic, state in self.topics.items()}

    def link_counts(self) -> dict[str, int]:
        return count_links(self.topics.values())

    @property
    def access_points(self) -> int:
        return len(self.table)

    def status(self) -> dict[str, object]:
        return {
            "links": self.link_counts(),
            "access_points": len(self.table),
            "topics_active_estimate": self.table.topics_active(),
            "topics": topics_status(self.topics),
        }


# --- inbox -------------------------------------------------------------------------------------
#
# Where TERA's messages go: each kind to the layer it belongs to.
#
# Messages about a topic this peer is not subscribed to are refused in a way that makes the sender
# stop: it learns that this peer is not a member (`refusing.py`).


TopicHandler: TypeAlias = Callable[[TopicState, Contact, Any], None]


class Inbox:
    """Hands each message to its layer."""

    def __init__(
        self,
        ctx: Context,
        topics: dict[Topic, TopicState],
        table: AccessPoints,
        liveness: Liveness,
        lookup: Lookup,
        subscribing: Join,
    ) -> None:
        self._ctx = ctx
        self._topics = topics
        self._table = table
        self._liveness = liveness
        self._lookup = lookup
        self._subscribing = subscribing
        self._refusing = Refusing(ctx)

    def handlers(self) -> Handlers:
        table, lookup = self._table, self._lookup
        in_topics: Handlers = {
            kind: self._in_topic(handle) for kind, handle in _ON_TOPIC_MESSAGE.items()
        }
        return {
            **in_topics,
            Payload: self._on_payload,
            ShuffleRequest: self._on_shuffle_request,
            ShuffleReply: self._on_shuffle_reply,
            JoinRequest: self._on_join_request,
            JoinReply: self._on_join_reply,
            LeaveNotice: self._on_leave_notice,
            Advertisement: self._on_advertisement,
            TableCopy: lambda sender, message: table.on_copy(message),
            LookupWalk: self._on_lookup_walk,
            LookupHit: lambda sender, message: lookup.on_hit(message),
            LookupMiss: lambda sender, message: lookup.on_miss(message),
            RouteEvent: self._on_route_event,
            Again: self._on_again,
            LinkList: self._on_link_list,
        }

    def _in_topic(self, handle: TopicHandler) -> Callable[[Contact, Any], None]:
        """For a message to members only."""
        topics, refuse = self._topics, self._refusing.refuse

        def on_message(sender: Contact, message: Any) -> None:
            state = topics.get(message.topic)
            if state is not None:
                handle(state, sender, message)
            else:
                refuse(sender, message)

        return on_message

    # --- events ---------------------------------------------------------------------------------

    def _on_payload(self, sender: Contact, message: Payload) -> None:
        state = self._topics.get(message.topic)
        if state is None:
            self._refusing.refuse(sender, message)
            return
        if state.tree is not None and sender.peer not in state.links.linked:
            state.links.adopt(sender)
        waiting = self._note_twins(sender, message.event)
        state.on_payload(sender, message)
        for other, again in waiting:
            self._on_again(other, again)

    def _on_route_event(self, sender: Contact, message: RouteEvent) -> None:
        state = self._topics.get(message.topic)
        event = message.event
        self._ctx.counters["routed_received"] += 1
        found = self._ctx.twins.resolve_routed(message.topic, event) if message.again else event
        if state is not None and found is not None:
            waiting = [] if message.again else self._note_twins(sender, found)
            state.accept(found, 1, sender if self._ctx.open_event is not None else None)
            for other, again in waiting:
                self._on_again(other, again)
        # With history an event may be refused, by whoever it is asked to spread it.
        taken = state is not None and found is not None and state.recent.has_seen(found)
        result = RouteResult(message.topic, event.incarnation, event.number, taken)
        self._ctx.send(sender, result)

    def _note_twins(self, sender: Contact, event: Event) -> list[tuple[Contact, Again]]:
        """What waited for the payload of an event of several topics."""
        return self._ctx.twins.arrived(event, sender.peer) if event.parts else []

    def _on_again(self, sender: Contact, message: Again) -> None:
        """An event that came in another of its topics is pushed in this one, too."""
        state = self._topics.get(message.topic)
        if state is None:
            self._refusing.refuse(sender, message)
            return
        self._ctx.counters["agains_received"] += 1
        if state.tree is not None and sender.peer not in state.links.linked:
            state.links.adopt(sender)
        event = self._ctx.twins.resolve(sender, message)
        if event is not None:
            state.on_pushed(sender, event, message.hops)
            return
        span = Span(message.publisher, message.incarnation, message.number, message.number)
        _ON_TOPIC_MESSAGE[IHave](state, sender, IHave(message.topic, [span]))

    # --- topic overlays -------------------------------------------------------------------------

    def _on_shuffle_request(self, sender: Contact, message: ShuffleRequest) -> None:
        state = self._topics.get(message.topic)
        if state is None:
            self._refusing.exchange(sender, message)
        else:
            state.on_shuffle_request(sender, message)

    def _on_shuffle_reply(self, sender: Contact, message: ShuffleReply) -> None:
        state = self._topics.get(message.topic)
        if state is None:
            return
        if message.member:
            state.on_shuffle_reply(sender, message)
        else:
            state.lose(sender.peer, left=True)

    def _on_join_request(self, sender: Contact, message: JoinRequest) -> None:
        state = self._topics.get(message.topic)
        if state is None:
            self._refusing.join(sender, message)
        else:
            state.view.on_join_request(sender, state.news(), state.recent.seen())
            state.maintain_links()

    def _on_join_reply(self, sender: Contact, message: JoinReply) -> None:
        self._subscribing.on_join_reply(sender, message)
        self._ctx.tell(SubscriptionsChanged())

    def _on_leave_notice(self, sender: Contact, message: LeaveNotice) -> None:
        self._table.forget_entry(message.topic, sender.peer)
        state = self._topics.get(message.topic)
        if state is not None:
            state.lose(sender.peer, left=True)

    # --- access points --------------------------------------------------------------------------

    def _on_advertisement(self, sender: Contact, message: Advertisement) -> None:
        for advert in message.adverts:
            self._table.on_advert(sender, advert)
            state = self._topics.get(advert.topic)
            if state is not None:
                state.on_advert(sender, OverlayId(advert.overlay))

    def _on_lookup_walk(self, sender: Contact, message: LookupWalk) -> None:
        self._lookup.on_walk(message, message.topic in self._topics)

    # --- links ----------------------------------------------------------------------------------

    def _on_link_list(self, sender: Contact, message: LinkList) -> None:
        """Settle which links both ends believe in (see `protocol/liveness.py`)."""
        mine = self._liveness.topics_with(sender.peer)
        theirs = set(message.topics)
        for topic in message.topics:
            state = self._topics.get(topic)
            if state is not None:
                state.links.adopt(sender)
            elif topic != GENERAL:
                self._ctx.send(sender, LeaveNotice(topic))
        if len(message.topics) < LIST_MAX:
            for topic in mine:
                if topic not in theirs:
                    self._topics[topic].links.lose(sender.peer)
        if message.first:
            self._liveness.send_list(sender, first=False)


def _over_link(
    handle: Callable[[Any, Contact, Any], None], without_tree: TopicHandler | None = None
) -> TopicHandler:
    """Tree messages travel over links: adopt or refuse the link first."""

    def on_message(state: TopicState, sender: Contact, message: Any) -> None:
        if state.tree is None:
            if without_tree is not None:
                without_tree(state, sender, message)
        elif state.links.adopt(sender):
            handle(state.tree, sender, message)

    return on_message


_ON_TOPIC_MESSAGE: dict[type, TopicHandler] = {
    JoinWalk: lambda state, sender, message: state.view.on_join_walk(message),
    JoinGift: lambda state, sender, message: state.view.on_join_gift(message),
    Hint: TopicState.on_hint,
    SampleWalk: lambda state, sender, message: state.size.on_walk(message),
    SampleReply: lambda state, sender, message: state.size.on_sample(sender, message),
    LinkRequest: lambda state, sender, message: state.links.on_request(
        sender, message, state.recent.fingerprint()
    ),
    LinkReply: TopicState.on_link_reply,
    Unlink: lambda state, sender, message: state.links.on_unlink(sender),
    IHave: _over_link(tree.Tree.on_ihave, TopicState.on_ihave),
    Graft: _over_link(tree.Tree.on_graft, TopicState.on_want),
    Prune: _over_link(lambda state, sender, message: state.on_prune(sender)),
    stan.CollectWalk: lambda state, sender, message: state.stan.on_walk(sender, message),
    stan.CollectReply: lambda state, sender, message: state.on_collect_reply(sender, message),
    stan.AdoptMe: lambda state, sender, message: state.stan.on_adopt_me(sender),
    stan.InLink: lambda state, sender, message: state.stan.on_in_link(sender, message),
    LinkRelease: lambda state, sender, message: state.on_link_release(sender),
    Offer: TopicState.on_offer,
    Want: TopicState.on_want,
    Repair: TopicState.on_repair,
}


# --- schedule ----------------------------------------------------------------------------------
#
# When each topic is next due, in cycles: the cost is by what is due, not by how many there are.


class Schedule:
    """Topics in buckets by the cycle they are due in; the earliest wish counts."""

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
        """The topics due by this cycle, at most so many; the rest comes first next time."""
        for topic in self._buckets.pop(cycle, {}):
            self._late[topic] = None
        taken = list(self._late)[:most]
        for topic in taken:
            del self._late[topic]
            del self._due[topic]
        return taken


# --- status ------------------------------------------------------------------------------------
#
# What a user wants to see of a peer's topics and links, ready for JSON.


def count_links(topics: Iterable[TopicState]) -> dict[str, int]:
    """Links over all topics: logical ones, one per topic and peer (LVS), and physical ones, one
    per peer (PVS); of those that carry events, and of the views that StaN ranks."""
    states = list(topics)
    carriers = [contact.peer for state in states for contact in state.carriers]
    ranked = [peer for state in states for peer in state.stan.entries]
    return {
        "logical": len(carriers),
        "physical": len(dict.fromkeys(carriers)),
        "ranked_logical": len(ranked),
        "ranked_physical": len(dict.fromkeys(ranked)),
    }


def topics_status(topics: Mapping[Topic, TopicState]) -> dict[Topic, dict[str, object]]:
    uses = Counter(contact.peer for state in topics.values() for contact in state.carriers)
    return {topic: _topic_status(state, uses) for topic, state in topics.items()}


def _topic_status(state: TopicState, uses: Counter[PeerId]) -> dict[str, object]:
    tree_state = state.tree
    carriers = state.carriers
    return {
        "overlay": f"{state.overlay:016x}",
        "scheme": state.scheme,
        "members_estimate": state.popularity,
        "view": [peer_text(peer) for peer in state.view.peers],
        "links": [peer_text(peer) for peer in state.links.linked],
        "ranked": [peer_text(peer) for peer in state.stan.entries],
        "walks": state.stan.waiting,
        "logical_links": len(carriers),
        "shared_links": sum(uses[contact.peer] > 1 for contact in carriers),
        "eager": [peer_text(peer) for peer in tree_state.eager] if tree_state else [],
        "recent_events": len(state.recent),
        "recent_evicted": state.recent.evicted,
    }


# --- refusing ----------------------------------------------------------------------------------
#
# What a peer says to messages about topics it is not subscribed to, or that it routes otherwise:
# it is not a member, so that the sender stops.


class Refusing:
    """Refuses, kindly."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def refuse(self, sender: Contact, message: Any) -> None:
        """Any message about a topic."""
        ctx = self._ctx
        ctx.counters["not_subscribed"] += 1
        if isinstance(message, Payload):
            ctx.counters["parasites"] += 1
            if ctx.tracing:
                fields = {
                    "messageID": message_id(message.topic, message.event),
                    "receivedFrom": ctx.name(sender.peer),
                    "reason": "not subscribed",
                    "topic": message.topic,
                }
                ctx.trace(REJECT_MESSAGE, fields)
        if message.topic != GENERAL:  # of which LeaveNotice would mean leaving the network
            ctx.send(sender, LeaveNotice(message.topic))

    def exchange(self, sender: Contact, message: ShuffleRequest) -> None:
        self._ctx.counters["not_subscribed"] += 1
        reply = ShuffleReply(message.topic, message.tick, [], NO_NEWS, False)
        self._ctx.send(sender, reply)

    def join(self, sender: Contact, message: JoinRequest) -> None:
        self._ctx.counters["not_subscribed"] += 1
        self._ctx.send(sender, JoinReply(message.topic, False))

    def walk(self, sender: Contact, message: LookupWalk) -> None:
        if message.origin.peer != self._ctx.me.peer:
            self._ctx.send(message.origin, LookupMiss(message.lookup))

    def event(self, sender: Contact, message: RouteEvent) -> None:
        self._ctx.counters["routed_received"] += 1
        event = message.event
        result = RouteResult(message.topic, event.incarnation, event.number, False)
        self._ctx.send(sender, result)

    def links(self, sender: Contact, message: LinkList) -> None:
        for topic in message.topics:
            if topic != GENERAL:
                self._ctx.send(sender, LeaveNotice(topic))


def refusals(ctx: Context) -> Handlers:
    """What a peer says to TERA's messages that routes otherwise itself."""
    refusing = Refusing(ctx)
    nothing = (
        *(ShuffleReply, JoinReply, LeaveNotice),
        *(Advertisement, TableCopy, LookupHit, LookupMiss),
    )
    about_topics = (
        *(Payload, Again, JoinWalk, JoinGift, Hint, SampleWalk, SampleReply),
        *(LinkRequest, LinkReply, Unlink, IHave, Graft, Prune),
        *(Offer, Want, Repair),
        *(stan.CollectWalk, stan.CollectReply, stan.AdoptMe, LinkRelease, stan.InLink),
    )
    return {
        **dict.fromkeys(nothing, _ignore),
        **dict.fromkeys(about_topics, refusing.refuse),
        ShuffleRequest: refusing.exchange,
        JoinRequest: refusing.join,
        LookupWalk: refusing.walk,
        RouteEvent: refusing.event,
        LinkList: refusing.links,
    }


def _ignore(sender: Contact, message: Any) -> None:
    """Answers to what this peer never asked, and news it has no use for."""
