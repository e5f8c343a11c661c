"""One peer: all its layers put together, one `handle` for the driver.

From below: the general overlay (`cyclon`), liveness of linked peers, the access point table and
lookups, advertisements, subscriptions, one `TopicState` per subscribed topic, and publishing.
This file only routes: inputs to the layer they belong to (messages by way of `inbox.py`), signals
of lower layers to upper ones.

Time goes in cycles. One timer drives the general overlay, the topics that are due, and the
advertisements, so a peer in very many topics has no timer per topic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ids import GENERAL, Contact, PeerId, Topic, contact_text, peer_text
from weft.protocol import entering, liveness, lookup, publishing, subscribing, tree
from weft.protocol import messages as m
from weft.protocol.access_points import AccessPoints
from weft.protocol.advertising import Advertising
from weft.protocol.config import Config
from weft.protocol.context import (
    Context,
    LinkDown,
    LinkUp,
    LookupDone,
    NeighboursFound,
    PeerGone,
    Signal,
    SubscriptionsChanged,
)
from weft.protocol.cyclon import Cyclon
from weft.protocol.entering import Entering
from weft.protocol.inbox import Inbox
from weft.protocol.liveness import Liveness
from weft.protocol.lookup import Lookup
from weft.protocol.publishing import Publishing
from weft.protocol.records import PUBLISH_MESSAGE, message_id
from weft.protocol.schedule import Schedule
from weft.protocol.seam import (
    Answer,
    Disconnect,
    Effect,
    Input,
    Join,
    Leave,
    Millis,
    PeerLost,
    Publish,
    Received,
    Started,
    Subscribe,
    TimerFired,
    Unsubscribe,
)
from weft.protocol.subscribing import Subscribing
from weft.protocol.topic import TopicState
from weft.rules.draw import below, stream_of

CYCLE = "cycle"
NEW_TOPICS = "new_topics"
_PHASE = stream_of("peer.phase")
_FEW_TOPICS = 64
"""guess: up to so many topics are looked through when a peer is lost."""
_NEW_TOPICS_MS = 20
"""guess: new subscriptions gathered into one advertisement for so long."""


class Peer:
    """The state machine of one weft peer."""

    def __init__(self, me: Contact, seed: int, config: Config | None = None) -> None:
        self._ctx = ctx = Context(me, seed, config or Config())
        self.config = ctx.config
        self.me = me
        self.topics: dict[Topic, TopicState] = {}
        self.general = Cyclon(ctx, GENERAL)
        self.table = AccessPoints(ctx)
        self.liveness = Liveness(ctx)
        self.lookup = Lookup(ctx, self.table, self.general)
        self.advertising = Advertising(ctx, self.general, self.topics)
        self.subscribing = Subscribing(ctx, self.topics, self.table, self.lookup, self.advertising)
        self.publishing = Publishing(ctx, self.table, self.lookup)
        self._schedule = Schedule()
        self._entering = Entering(ctx, self.general)
        self._new_topics_armed = False
        self.cycle = 0
        self.running = False
        self._inbox = Inbox(
            ctx,
            self.topics,
            self.general,
            self.table,
            self.liveness,
            self.lookup,
            self.subscribing,
            self.publishing,
        )
        self._inputs: dict[type, Callable[[Any], None]] = {
            Started: self._on_started,
            TimerFired: self._on_timer_fired,
            PeerLost: self._on_peer_lost,
            Join: self._on_join,
            Subscribe: self._on_subscribe,
            Unsubscribe: self._on_unsubscribe,
            Publish: self._on_publish,
            Leave: self._on_leave,
        }

    # --- for drivers and users ------------------------------------------------------------------

    @property
    def counters(self) -> dict[str, int]:
        return self._ctx.counters

    @property
    def isolated(self) -> bool:
        """Whether this peer knows nobody."""
        return self.general.knows_nobody

    def handle(self, fact: Input, now: Millis) -> list[Effect]:
        """Take one fact in; returns what the driver shall do."""
        ctx = self._ctx
        ctx.now = now
        kind = type(fact)
        if kind is Received:
            if self.running:
                self._inbox.on_received(fact)  # type: ignore[arg-type]
        elif self.running or kind is Started:
            self._inputs[kind](fact)
        while ctx.signals:
            self._on_signal(ctx.signals.popleft())
        effects, ctx.out = ctx.out, []
        return effects

    def status(self) -> dict[str, object]:
        """What a user wants to see, ready for JSON."""
        return {
            "peer": peer_text(self.me.peer),
            "address": contact_text(self.me),
            "cycle": self.cycle,
            "view": [contact_text(contact) for contact in self.general.contacts()],
            "linked_peers": len(self.liveness.watched),
            "access_points": len(self.table),
            "topics_active_estimate": self.table.topics_active(),
            "publishes_waiting": self.publishing.waiting,
            "topics": {topic: _topic_status(state) for topic, state in self.topics.items()},
        }

    # --- starting, entering the network, leaving ------------------------------------------------

    def _on_started(self, fact: Started) -> None:
        ctx = self._ctx
        ctx.incarnation = fact.incarnation
        self.running = True
        # Peers that start together must not all act in the same millisecond.
        phase = below(ctx.bits(_PHASE), ctx.config.cyclon.cycle_ms) + 1
        ctx.set_timer(phase, CYCLE, GENERAL)
        self.liveness.start()
        self._entering.enter(fact.contacts)

    def _on_join(self, fact: Join) -> None:
        self._entering.enter(fact.contacts)

    def _on_neighbours(self) -> None:
        """Called when the general view may have become non-empty."""
        if not self.isolated:
            self._entering.on_neighbours()
            self.publishing.on_neighbours()
            self.subscribing.on_entered(isolated=False)
            self._flush_new_topics_soon()
            few = len(self.topics) <= _FEW_TOPICS
            for topic, state in self.topics.items():
                if state.alone:
                    state.alone_period = 1
                    self._schedule.put(topic, self.cycle + 1)
                    if few:
                        self.subscribing.seek_others(topic)

    def _on_leave(self, fact: Leave) -> None:
        ctx = self._ctx
        notice = m.LeaveNotice(GENERAL)
        told = {watch.contact.peer: watch.contact for watch in self.liveness.watched.values()}
        for contact in self.general.contacts():
            told[contact.peer] = contact
        for contact in told.values():
            ctx.send(contact, notice)
        self.publishing.close()
        self.subscribing.close()
        self.running = False

    def _on_peer_lost(self, fact: PeerLost) -> None:
        self._peer_gone(fact.peer)

    def _peer_gone(self, peer: PeerId) -> None:
        was_isolated = self.isolated
        self.general.remove(peer)
        self.table.forget_peer(peer)
        for topic in self._topics_with(peer):
            self.topics[topic].lose(peer)
        self.subscribing.on_peer_lost(peer)
        self.publishing.on_peer_lost(peer)
        # Who was isolated before has asked already, and asks again when its timer says so.
        if self.isolated and not was_isolated:
            self._entering.ask()

    def _topics_with(self, peer: PeerId) -> list[Topic]:
        """Where a lost peer matters. In very many topics only the links do: a view drops the
        peer by itself when its turn to be asked comes."""
        few = len(self.topics) <= _FEW_TOPICS
        return list(self.topics) if few else self.liveness.topics_with(peer)

    # --- commands -------------------------------------------------------------------------------

    def _on_subscribe(self, fact: Subscribe) -> None:
        if self.subscribing.subscribe(
            fact.token, fact.topic, fact.scheme, self.isolated, self._entering.hopeful
        ):
            self._schedule.put(fact.topic, self.cycle + 1)

    def _on_unsubscribe(self, fact: Unsubscribe) -> None:
        self.subscribing.unsubscribe(fact.token, fact.topic)

    def _on_publish(self, fact: Publish) -> None:
        ctx, topic = self._ctx, fact.topic
        number = ctx.published.get(topic, 0) + 1
        ctx.published[topic] = number
        event = m.Event(self.me.peer, ctx.incarnation, number, fact.published_ms, fact.payload)
        if ctx.tracing:
            ctx.trace(PUBLISH_MESSAGE, {"messageID": message_id(topic, event), "topic": topic})
        ctx.counters["published"] += 1
        state = self.topics.get(topic)
        if state is not None:
            state.publish(event)
            ctx.out.append(Answer(fact.token, "delivered", self.me, event))
        else:
            self.publishing.publish(fact.token, topic, event, self.isolated)

    # --- timers and signals ---------------------------------------------------------------------

    def _on_timer_fired(self, fact: TimerFired) -> None:
        timer = fact.timer
        kind = timer.kind
        if kind == CYCLE:
            self._run_cycle()
        elif kind == liveness.TIMER:
            for contact in self.liveness.on_timer():
                self._ctx.counters["peers_silent"] += 1
                self._ctx.out.append(Disconnect(contact.peer, "no answer to pings"))
                self._peer_gone(contact.peer)
        elif kind in (tree.LAZY, tree.MISSING):
            state = self.topics.get(timer.topic)
            if state is not None and state.tree is not None:
                if kind == tree.LAZY:
                    state.tree.on_lazy_timer()
                else:
                    state.tree.on_missing_timer()
        elif kind == lookup.TIMER:
            self.lookup.on_timer(timer.serial)
        elif kind == publishing.TIMER:
            self.publishing.on_timer(timer.serial)
        elif kind == subscribing.TIMER:
            self.subscribing.on_timer(timer.topic, timer.serial)
        elif kind == entering.TIMER:
            self._entering.on_timer(timer.serial)
            if self.isolated and not self._entering.hopeful:
                self.subscribing.on_entered(isolated=True)
        elif kind == NEW_TOPICS:
            self._new_topics_armed = False
            self.advertising.flush_new()

    def _run_cycle(self) -> None:
        ctx = self._ctx
        self.cycle += 1
        ctx.set_timer(ctx.config.cyclon.cycle_ms, CYCLE, GENERAL)
        self.general.exchange(m.NO_NEWS, self.table.sample())
        if self.isolated:
            self._entering.ask()
        self._entering.run_cycle(self.cycle)
        for topic in self._schedule.take(self.cycle, ctx.config.cyclon.exchanges_per_cycle_max):
            state = self.topics.get(topic)
            if state is not None:
                self._run_topic(topic, state)
        self.advertising.run_cycle(self.cycle)
        self.publishing.run_cycle()

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
        self._schedule.put(topic, self.cycle + pause)

    def _on_signal(self, signal: Signal) -> None:
        if isinstance(signal, LinkUp):
            self.liveness.link_up(signal.contact, signal.topic)
            state = self.topics.get(signal.topic)
            if state is not None and signal.contact.peer in state.links.linked:
                state.link_up(signal.contact, signal.recent)
        elif isinstance(signal, LinkDown):
            self.liveness.link_down(signal.peer, signal.topic)
            state = self.topics.get(signal.topic)
            if state is not None and signal.peer not in state.links.linked:
                state.link_down(signal.peer)
        elif isinstance(signal, LookupDone):
            if not self.publishing.on_lookup_done(signal):
                self.subscribing.on_lookup_done(signal)
                self._flush_new_topics_soon()
        elif isinstance(signal, PeerGone):
            self._peer_gone(signal.peer)
        elif isinstance(signal, NeighboursFound):
            self._on_neighbours()
        elif isinstance(signal, SubscriptionsChanged):
            self._flush_new_topics_soon()

    def _flush_new_topics_soon(self) -> None:
        if self.advertising.has_new and not self._new_topics_armed:
            self._new_topics_armed = True
            self._ctx.set_timer(_NEW_TOPICS_MS, NEW_TOPICS, GENERAL)


def _topic_status(state: TopicState) -> dict[str, object]:
    tree_state = state.tree
    return {
        "overlay": f"{state.overlay:016x}",
        "scheme": state.scheme,
        "members_estimate": state.popularity,
        "view": [peer_text(peer) for peer in state.view.peers],
        "links": [peer_text(peer) for peer in state.links.linked],
        "eager": [peer_text(peer) for peer in tree_state.eager] if tree_state else [],
        "recent_events": len(state.recent),
        "recent_evicted": state.recent.evicted,
    }
