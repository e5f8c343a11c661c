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
from weft.protocol import entering, flooding, liveness, lookup, publishing, subscribing, tree
from weft.protocol import messages as m
from weft.protocol.access_points import AccessPoints
from weft.protocol.advertising import Advertising
from weft.protocol.config import Config
from weft.protocol.context import (
    Arrived,
    Context,
    LinkDown,
    LinkUp,
    LookupDone,
    MemberMet,
    NeighboursFound,
    PeerGone,
    Signal,
    SubscriptionsChanged,
)
from weft.protocol.cyclon import Cyclon
from weft.protocol.entering import Entering
from weft.protocol.flooding import Flooding
from weft.protocol.history import history, wiring
from weft.protocol.history.history import History
from weft.protocol.inbox import Inbox
from weft.protocol.kademlia import kademlia
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.liveness import Liveness
from weft.protocol.lookup import Lookup
from weft.protocol.publishing import Publishing
from weft.protocol.pulsar import pulsar
from weft.protocol.pulsar import wiring as pulsar_wiring
from weft.protocol.pulsar.pulsar import Pulsar
from weft.protocol.records import PUBLISH_MESSAGE, message_id
from weft.protocol.routing import Routing
from weft.protocol.schedule import Schedule
from weft.protocol.seam import (
    Answer,
    Collect,
    Disconnect,
    Effect,
    Input,
    Join,
    Leave,
    Millis,
    PeerLost,
    Publish,
    PublishTogether,
    Received,
    Started,
    Subscribe,
    TimerFired,
    Unsubscribe,
)
from weft.protocol.status import link_counts, topics_status
from weft.protocol.subscribing import Subscribing
from weft.protocol.topic import TopicState
from weft.rules.draw import below, stream_of
from weft.rules.signing import Signer
from weft.store.interface import Store

CYCLE = "cycle"
NEW_TOPICS = "new_topics"
_PHASE = stream_of("peer.phase")
_FEW_TOPICS = 64
"""guess: up to so many topics are looked through when a peer is lost."""
_NEW_TOPICS_MS = 20
"""guess: new subscriptions gathered into one advertisement for so long."""


class Peer:
    """The state machine of one weft peer."""

    def __init__(
        self,
        me: Contact,
        seed: int,
        config: Config | None = None,
        library: Store | None = None,
        sign: Signer | None = None,
    ) -> None:
        """With history in the config, `library` reads the peer's store and `sign` its key."""
        self._ctx = ctx = Context(me, seed, config or Config())
        self.config = ctx.config
        self.me = me
        self.topics: dict[Topic, TopicState] = {}
        self.general = Cyclon(ctx, GENERAL)
        self.table = AccessPoints(ctx)
        self.liveness = Liveness(ctx)
        ctx.twins.linked_in = self.liveness.topics_with
        self.lookup = Lookup(ctx, self.table, self.general)
        self.advertising = Advertising(ctx, self.general, self.topics)
        self.subscribing = Subscribing(ctx, self.topics, self.table, self.lookup, self.advertising)
        self.dht = Kademlia(ctx, self.general.contacts) if ctx.config.dht.enabled else None
        trees = flood = None
        if ctx.config.routing == "pulsarcast" and self.dht is not None:
            trees = Pulsar(ctx, self.dht, self.liveness)
        elif ctx.config.routing == "flood":
            flood = Flooding(ctx, self.general)
        self.routing: Routing | None = trees or flood  # None: TERA's
        if trees is not None:
            self.publishing = Publishing(ctx, trees.finding, trees.finding)
        else:
            self.publishing = Publishing(ctx, self.table, self.lookup)
        self.history: History | None = None
        if ctx.config.history.enabled:
            if library is None or sign is None:
                raise ValueError("history needs a store and a key to sign with")
            self.history = History(ctx, library, sign, self.members, self._route, self.dht)
            ctx.open_event = self.history.intake.open
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
            {
                **kademlia.handlers(ctx, self.dht),
                **wiring.handlers(ctx, self.history),
                **pulsar_wiring.handlers(ctx, trees),
                **flooding.handlers(ctx, flood),
            },
        )
        self._inputs: dict[type, Callable[[Any], None]] = {
            Started: self._on_started,
            TimerFired: self._on_timer_fired,
            PeerLost: self._on_peer_lost,
            Join: self._on_join,
            Subscribe: self._on_subscribe,
            Unsubscribe: self._on_unsubscribe,
            Publish: self._on_publish,
            PublishTogether: self._on_publish_together,
            Collect: self._on_collect,
            Leave: self._on_leave,
            **kademlia.commands(ctx, self.dht),
            **wiring.commands(ctx, self.history),
        }

    # --- for drivers and users ------------------------------------------------------------------

    @property
    def counters(self) -> dict[str, int]:
        return self._ctx.counters

    @property
    def isolated(self) -> bool:
        """Whether this peer knows nobody."""
        return self.general.knows_nobody

    @property
    def subscribed(self) -> list[Topic]:
        """The topics this peer is subscribed to."""
        return list(self.topics) if self.routing is None else self.routing.subscribed

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
        if self.history is not None:
            self.history.storing.flush()
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
            "links": link_counts(self.topics.values()),
            "access_points": len(self.table),
            "topics_active_estimate": self.table.topics_active(),
            "publishes_waiting": self.publishing.waiting,
            "topics": topics_status(self.topics),
            **({"routing": self.routing.status()} if self.routing is not None else {}),
            **({"dht": self.dht.status()} if self.dht is not None else {}),
            **({"history": self.history.status()} if self.history is not None else {}),
        }

    # --- starting, entering the network, leaving ------------------------------------------------

    def _on_started(self, fact: Started) -> None:
        ctx = self._ctx
        ctx.incarnation = fact.incarnation
        ctx.wall_offset_ms = fact.wall_ms - ctx.now if fact.wall_ms else 0
        self.running = True
        # Peers that start together must not all act in the same millisecond.
        phase = below(ctx.bits(_PHASE), ctx.config.cyclon.cycle_ms) + 1
        ctx.set_timer(phase, CYCLE, GENERAL)
        self.liveness.start()
        if self.dht is not None:
            self.dht.start()
        if self.history is not None:
            self.history.start()
        self._entering.enter(fact.contacts)

    def _on_join(self, fact: Join) -> None:
        self._entering.enter(fact.contacts)

    def _on_neighbours(self) -> None:
        """Called when the general view may have become non-empty."""
        if not self.isolated:
            self._entering.on_neighbours()
            self.publishing.on_neighbours()
            self.subscribing.on_entered(isolated=False)
            if self.dht is not None:
                self.dht.on_neighbours()
            if self.routing is not None:
                self.routing.on_entered()
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
        if self.routing is not None:
            self.routing.close()
        if self.dht is not None:
            self.dht.close()
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
        if self.routing is not None:
            self.routing.on_peer_lost(peer)
        if self.dht is not None:
            self.dht.on_peer_lost(peer)
        if self.history is not None:
            self.history.on_peer_lost(peer)
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
        hopeful = self._entering.hopeful
        if self.routing is not None:
            self.routing.subscribe(fact.token, fact.topic, hopeful)
        elif self.subscribing.subscribe(
            fact.token, fact.topic, fact.scheme, self.isolated, hopeful
        ):
            self._schedule.put(fact.topic, self.cycle + 1)
        if self.history is not None:
            self.history.subscribe(fact.topic, fact.since)

    def _on_unsubscribe(self, fact: Unsubscribe) -> None:
        if self.history is not None:
            self.history.unsubscribe(fact.topic)
        (self.routing or self.subscribing).unsubscribe(fact.token, fact.topic)

    def _on_collect(self, fact: Collect) -> None:
        for state in self.topics.values():
            state.stan.collect(state.popularity)

    def _on_publish_together(self, fact: PublishTogether) -> None:
        """With history each topic describes the event by itself, so there is nothing to share;
        other routings than TERA's do not share."""
        commands = zip(fact.tokens, fact.topics, strict=True)
        numbers = [self._ctx.published.get(topic, 0) + 1 for topic in fact.topics]
        parts = tuple(m.Part(*part) for part in zip(fact.topics, numbers, strict=True))
        alike = self.history is None and self.routing is None
        shared = parts if alike and len(parts) > 1 else ()
        for token, topic in commands:
            self._on_publish(Publish(token, topic, fact.payload, fact.published_ms), shared)

    def _on_publish(self, fact: Publish, parts: tuple[m.Part, ...] = ()) -> None:
        ctx, topic = self._ctx, fact.topic
        if self.history is not None and self.history.refuses(fact):
            return
        number = ctx.published.get(topic, 0) + 1
        ctx.published[topic] = number
        me, when = self.me.peer, fact.published_ms
        event = m.Event(me, ctx.incarnation, number, when, fact.payload, parts)
        if ctx.tracing:
            ctx.trace(PUBLISH_MESSAGE, {"messageID": message_id(topic, event), "topic": topic})
        ctx.counters["published"] += 1
        if self.history is not None:
            self.history.publish(fact, number)  # stored first, then routed
        else:
            self._route(fact.token, topic, event)

    def _route(self, token: int, topic: Topic, event: m.Event) -> None:
        """Spread an event of this peer's own."""
        state = self.topics.get(topic)
        delivered = self.history is not None
        if self.routing is not None and self.routing.publish(topic, event, delivered):
            self._ctx.out.append(Answer(token, "delivered", self.me, event))
        elif state is not None:
            state.publish(event, delivered)
            self._ctx.out.append(Answer(token, "delivered", self.me, event))
        else:
            self.publishing.publish(token, topic, event, self.isolated)

    def members(self, topic: Topic) -> list[Contact]:
        """Members of a topic that this peer knows, linked ones first."""
        if self.routing is not None:
            return self.routing.members(topic)
        state = self.topics.get(topic)
        if state is None:
            return []
        known = dict(state.links.linked)
        known.update((contact.peer, contact) for contact in state.view.contacts())
        return list(known.values())

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
                if self.routing is not None:
                    self.routing.on_entered()
        elif kind == NEW_TOPICS:
            self._new_topics_armed = False
            self.advertising.flush_new()
        elif kind in pulsar.TIMERS and self.routing is not None:
            self.routing.on_timer(timer)
        elif kind in kademlia.TIMERS and self.dht is not None:
            self.dht.on_timer(timer)
        elif kind in history.TIMERS and self.history is not None:
            self.history.on_timer(timer)

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
        if self.routing is not None:
            self._run_routing(self.routing)

    def _run_routing(self, routing: Routing) -> None:
        routing.run_cycle(self.cycle)
        if self.history is not None:
            for topic in routing.subscribed:
                self.history.run_topic(topic, alone=routing.alone(topic))

    def _run_topic(self, topic: Topic, state: TopicState) -> None:
        if self.history is not None:
            self.history.run_topic(topic, alone=state.alone and not state.entering)
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
                if self.history is not None:
                    self.history.link_up(signal.topic, signal.contact)
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
            if self.dht is not None:
                self.dht.forget(signal.peer)
        elif isinstance(signal, NeighboursFound):
            self._on_neighbours()
        elif isinstance(signal, SubscriptionsChanged):
            self._flush_new_topics_soon()
        elif isinstance(signal, MemberMet) and self.history is not None:
            self.history.link_up(signal.topic, signal.contact)
        elif isinstance(signal, Arrived) and self.history is not None:
            self.history.intake.take_in(signal.event, signal.source, signal.hops)

    def _flush_new_topics_soon(self) -> None:
        if self.advertising.has_new and not self._new_topics_armed:
            self._new_topics_armed = True
            self._ctx.set_timer(_NEW_TOPICS_MS, NEW_TOPICS, GENERAL)
