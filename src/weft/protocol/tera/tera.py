"""TERA's routing of one peer: its layers put together (Baldoni et al., 2007, Section 3).

From below: the access point table and lookups over the general overlay, advertisements,
subscriptions, and one `TopicState` per subscribed topic. This file composes: what the peer tells
goes to the layer it belongs to, messages by way of `inbox.py`.

One timer of the peer drives the topics that are due and the advertisements, so that a peer in
very many topics has no timer per topic.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.ids import GENERAL, Contact, PeerId, Topic
from weft.protocol.context import Context, LinkDown, LinkUp, LookupDone, SubscriptionsChanged
from weft.protocol.cyclon import Cyclon
from weft.protocol.liveness import Liveness
from weft.protocol.routing import Due, Handlers, Routing, Signals, Timers
from weft.protocol.seam import SCHEMES, Scheme, Timer
from weft.protocol.tera import lookup, status, subscribing, tree
from weft.protocol.tera.access_points import AccessPoints
from weft.protocol.tera.advertising import Advertising
from weft.protocol.tera.inbox import Inbox
from weft.protocol.tera.lookup import Lookup
from weft.protocol.tera.schedule import Schedule
from weft.protocol.tera.subscribing import Subscribing
from weft.protocol.tera.topic import TopicState
from weft.protocol.wire import Event

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
        self.subscribing = Subscribing(ctx, self.topics, self.table, self.lookup, self.advertising)
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
            lookup.TIMER: lambda timer: self.lookup.on_timer(timer.serial),
            subscribing.TIMER: lambda timer: self.subscribing.on_timer(timer.topic, timer.serial),
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
        return status.link_counts(self.topics.values())

    @property
    def access_points(self) -> int:
        return len(self.table)

    def status(self) -> dict[str, object]:
        return {
            "links": self.link_counts(),
            "access_points": len(self.table),
            "topics_active_estimate": self.table.topics_active(),
            "topics": status.topics_status(self.topics),
        }
