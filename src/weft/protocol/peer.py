"""One peer: all its layers put together, one `handle` for the driver.

From below: the general overlay (`cyclon`), liveness of linked peers, the access point table and
lookups, advertisements, subscriptions, one `TopicState` per subscribed topic, and publishing.
This file only routes: inputs to the layer they belong to, signals of lower layers to upper ones.

Time goes in cycles. One timer drives the general overlay, the topics that are due, and the
advertisements, so a peer in very many topics has no timer per topic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ids import GENERAL, Contact, OverlayId, PeerId, Topic, contact_text, peer_text
from weft.protocol import liveness, lookup, publishing, subscribing, tree
from weft.protocol import messages as m
from weft.protocol.access_points import AccessPoints
from weft.protocol.advertising import Advertising
from weft.protocol.config import Config
from weft.protocol.context import Context, LinkDown, LinkUp, Signal
from weft.protocol.cyclon import Cyclon
from weft.protocol.liveness import Liveness
from weft.protocol.lookup import Lookup
from weft.protocol.publishing import Publishing
from weft.protocol.records import PUBLISH_MESSAGE, REJECT_MESSAGE, message_id
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
    Timer,
    TimerFired,
    Unsubscribe,
)
from weft.protocol.subscribing import Subscribing
from weft.protocol.topic import TopicState
from weft.rules.draw import below, stream_of

CYCLE = "cycle"
REJOIN = "rejoin"
NEW_TOPICS = "new_topics"
_PHASE = stream_of("peer.phase")
_ENTRY = stream_of("peer.entry")
_ENTRIES = 3
"""guess: known peers asked at once when entering the network."""
_REJOIN_FIRST_MS = 500
"""guess: first pause before asking again; doubles up to the cycle."""
_NEW_TOPICS_MS = 20
"""guess: new subscriptions gathered into one advertisement for so long."""

Handler = Callable[[Contact, Any], None]
TopicHandler = Callable[[TopicState, Contact, Any], None]


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
        self._numbers: dict[Topic, int] = {}  # of the last event published, per topic
        self._entries: dict[PeerId, Contact] = {}  # peers given to enter the network by
        self._reserve: list[Contact] = []  # neighbours of better days
        self._rejoin_ms = _REJOIN_FIRST_MS
        self._rejoin_serial = 0
        self._new_topics_armed = False
        self.cycle = 0
        self.running = False
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
        self._on_message: dict[type, Handler] = {
            m.ShuffleRequest: self._on_shuffle_request,
            m.ShuffleReply: self._on_shuffle_reply,
            m.JoinRequest: self._on_join_request,
            m.JoinReply: self._on_join_reply,
            m.JoinWalk: self._on_join_walk,
            m.JoinGift: self._on_join_gift,
            m.LeaveNotice: self._on_leave_notice,
            m.Advertisement: self._on_advertisement,
            m.Hint: self._on_hint,
            m.LookupWalk: self._on_lookup_walk,
            m.LookupHit: lambda sender, message: self.lookup.on_hit(message),
            m.LookupMiss: lambda sender, message: self.lookup.on_miss(message),
            m.RouteEvent: self._on_route_event,
            m.RouteResult: self.publishing.on_result,
            m.Ping: self.liveness.on_ping,
            m.Pong: self.liveness.on_pong,
            m.LinkList: self._on_link_list,
        }

    # --- for drivers and users ------------------------------------------------------------------

    @property
    def counters(self) -> dict[str, int]:
        return self._ctx.counters

    @property
    def isolated(self) -> bool:
        """Whether this peer knows nobody."""
        return not self.general.peers

    def handle(self, fact: Input, now: Millis) -> list[Effect]:
        """Take one fact in; returns what the driver shall do."""
        ctx = self._ctx
        ctx.now = now
        kind = type(fact)
        if kind is Received:
            if self.running:
                self._on_received(fact)  # type: ignore[arg-type]
        elif self.running or kind is Started:
            self._inputs[kind](fact)
        while ctx.signals:
            self._on_signal(ctx.signals.pop(0))
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
        self._enter(fact.contacts)

    def _on_join(self, fact: Join) -> None:
        self._enter(fact.contacts)

    def _enter(self, contacts: tuple[Contact, ...]) -> None:
        for contact in contacts:
            if contact.peer != self.me.peer:
                self._entries[contact.peer] = contact
        if self._entries:
            self._ask_to_enter()

    def _ask_to_enter(self) -> None:
        """Ask some known peers to let us in, and again later if none answers."""
        ctx = self._ctx
        known = [*self._entries.values(), *self._reserve]
        for _ in range(min(_ENTRIES, len(known))):
            contact = ctx.pick(_ENTRY, known)
            known.remove(contact)
            self.general.ask_to_join(contact)
        self._rejoin_serial = ctx.next_serial()
        ctx.set_timer(self._rejoin_ms, REJOIN, GENERAL, self._rejoin_serial)
        self._rejoin_ms = min(self._rejoin_ms * 2, max(self._rejoin_ms, ctx.config.cyclon.cycle_ms))

    def _on_rejoin_timer(self, timer: Timer) -> None:
        if timer.serial == self._rejoin_serial and self.isolated:
            self._ask_to_enter()

    def _on_neighbours(self) -> None:
        """Called when the general view may have become non-empty."""
        if not self.isolated:
            self._rejoin_ms = _REJOIN_FIRST_MS
            self.publishing.on_neighbours()
            self._flush_new_topics_soon()
            for topic, state in self.topics.items():
                if state.alone:
                    state.alone_period = 1
                    self._schedule.put(topic, self.cycle + 1)

    def _on_leave(self, fact: Leave) -> None:
        ctx = self._ctx
        notice = m.LeaveNotice(GENERAL)
        told = {watch.contact.peer: watch.contact for watch in self.liveness.watched.values()}
        for contact in self.general.contacts():
            told[contact.peer] = contact
        for contact in told.values():
            ctx.send(contact, notice)
        self.running = False

    def _on_peer_lost(self, fact: PeerLost) -> None:
        self._peer_gone(fact.peer)

    def _peer_gone(self, peer: PeerId) -> None:
        self.general.remove(peer)
        self.table.forget_peer(peer)
        for state in self.topics.values():
            state.lose(peer)
        self.subscribing.on_peer_lost(peer)
        self.publishing.on_peer_lost(peer)
        if self.isolated and (self._entries or self._reserve):
            self._ask_to_enter()

    # --- commands -------------------------------------------------------------------------------

    def _on_subscribe(self, fact: Subscribe) -> None:
        if self.subscribing.subscribe(fact.token, fact.topic, fact.scheme, self.isolated):
            self._schedule.put(fact.topic, self.cycle + 1)

    def _on_unsubscribe(self, fact: Unsubscribe) -> None:
        self.subscribing.unsubscribe(fact.token, fact.topic)

    def _on_publish(self, fact: Publish) -> None:
        ctx, topic = self._ctx, fact.topic
        number = self._numbers.get(topic, 0) + 1
        self._numbers[topic] = number
        event = m.Event(self.me.peer, ctx.incarnation, number, fact.published_ms, fact.payload)
        if ctx.tracing:
            ctx.trace(PUBLISH_MESSAGE, {"messageID": message_id(topic, event), "topic": topic})
        ctx.counters["published"] += 1
        state = self.topics.get(topic)
        if state is not None:
            state.accept(event, 0, None)
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
        elif kind == REJOIN:
            self._on_rejoin_timer(timer)
        elif kind == NEW_TOPICS:
            self._new_topics_armed = False
            self.advertising.flush_new()

    def _run_cycle(self) -> None:
        ctx = self._ctx
        self.cycle += 1
        ctx.set_timer(ctx.config.cyclon.cycle_ms, CYCLE, GENERAL)
        if self.general.peers:
            self._reserve = self.general.contacts()
            self.general.exchange(m.NO_NEWS, self.table.sample())
        elif self._entries or self._reserve:
            self._ask_to_enter()
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
        elif not self.publishing.on_lookup_done(signal):
            self.subscribing.on_lookup_done(signal)
            self._flush_new_topics_soon()

    def _flush_new_topics_soon(self) -> None:
        if self.advertising.has_new and not self._new_topics_armed:
            self._new_topics_armed = True
            self._ctx.set_timer(_NEW_TOPICS_MS, NEW_TOPICS, GENERAL)

    # --- messages -------------------------------------------------------------------------------

    def _on_received(self, fact: Received) -> None:
        sender, message = fact.sender, fact.message
        kind = type(message)
        watch = self.liveness.watched.get(sender.peer)
        if watch is not None:
            watch.heard = self._ctx.now
            watch.unanswered = 0
        if sender.peer == self.me.peer:
            return
        if kind is m.Payload:  # by far the most frequent
            state = self.topics.get(message.topic)  # type: ignore[union-attr]
            if state is not None:
                if state.tree is not None and sender.peer not in state.links.linked:
                    state.links.adopt(sender)
                state.on_payload(sender, message)  # type: ignore[arg-type]
                return
        handler = self._on_message.get(kind)
        if handler is not None:
            handler(sender, message)
            return
        topic: Topic = message.topic  # type: ignore[union-attr]
        state = self.topics.get(topic)
        if state is not None:
            _ON_TOPIC_MESSAGE[kind](state, sender, message)
        else:
            self._refuse(sender, message)

    def _refuse(self, sender: Contact, message: Any) -> None:
        """A message for a topic this peer is not subscribed to: say so, so that it stops."""
        ctx = self._ctx
        ctx.counters["not_subscribed"] += 1
        if isinstance(message, m.Payload):
            ctx.counters["parasites"] += 1
            if ctx.tracing:
                fields = {
                    "messageID": message_id(message.topic, message.event),
                    "receivedFrom": ctx.name(sender.peer),
                    "reason": "not subscribed",
                    "topic": message.topic,
                }
                ctx.trace(REJECT_MESSAGE, fields)
        ctx.send(sender, m.LeaveNotice(message.topic))

    def _overlay(self, sender: Contact, message: Any) -> Cyclon | None:
        """The view a message is about, or None after refusing it."""
        if message.topic == GENERAL:
            return self.general
        state = self.topics.get(message.topic)
        if state is None:
            self._refuse(sender, message)
            return None
        return state.view

    def _on_shuffle_request(self, sender: Contact, message: m.ShuffleRequest) -> None:
        if message.topic == GENERAL:
            was_isolated = self.isolated
            self.general.on_request(sender, message, m.NO_NEWS)
            self.table.on_sample(message.topics_sample)
            if was_isolated:
                self._on_neighbours()
            return
        state = self.topics.get(message.topic)
        if state is None:
            self._ctx.counters["not_subscribed"] += 1
            reply = m.ShuffleReply(message.topic, message.tick, [], m.NO_NEWS, False)
            self._ctx.send(sender, reply)
        else:
            state.on_shuffle_request(sender, message)

    def _on_shuffle_reply(self, sender: Contact, message: m.ShuffleReply) -> None:
        if message.topic == GENERAL:
            self.general.on_reply(sender, message)
            return
        state = self.topics.get(message.topic)
        if state is None:
            return
        if message.member:
            state.on_shuffle_reply(sender, message)
        else:
            state.lose(sender.peer)

    def _on_join_request(self, sender: Contact, message: m.JoinRequest) -> None:
        if message.topic == GENERAL:
            was_isolated = self.isolated
            self.general.on_join_request(sender, m.NO_NEWS, [])
            if was_isolated:
                self._on_neighbours()
            return
        state = self.topics.get(message.topic)
        if state is None:
            self._ctx.counters["not_subscribed"] += 1
            self._ctx.send(sender, m.JoinReply(message.topic, False))
        else:
            state.view.on_join_request(sender, state.news(), state.recent.seen())
            state.maintain_links()

    def _on_join_reply(self, sender: Contact, message: m.JoinReply) -> None:
        if message.topic == GENERAL:
            was_isolated = self.isolated
            self.general.on_join_reply(message)
            self.general.add(sender)
            if was_isolated:
                self._on_neighbours()
        else:
            self.subscribing.on_join_reply(sender, message)
            self._flush_new_topics_soon()

    def _on_join_walk(self, sender: Contact, message: m.JoinWalk) -> None:
        view = self._overlay(sender, message)
        if view is not None:
            view.on_join_walk(message)

    def _on_join_gift(self, sender: Contact, message: m.JoinGift) -> None:
        view = self._overlay(sender, message)
        if view is not None:
            view.on_join_gift(message)

    def _on_leave_notice(self, sender: Contact, message: m.LeaveNotice) -> None:
        if message.topic == GENERAL:
            self._peer_gone(sender.peer)
            return
        self.table.forget_entry(message.topic, sender.peer)
        state = self.topics.get(message.topic)
        if state is not None:
            state.lose(sender.peer)

    def _on_advertisement(self, sender: Contact, message: m.Advertisement) -> None:
        for advert in message.adverts:
            self.table.on_advert(sender, advert)
            state = self.topics.get(advert.topic)
            if state is not None:
                state.on_advert(sender, OverlayId(advert.overlay))

    def _on_hint(self, sender: Contact, message: m.Hint) -> None:
        state = self.topics.get(message.topic)
        if state is None:
            self._refuse(sender, message)
        elif message.overlay != state.overlay:
            self._ctx.counters["partitions_found"] += 1
            state.exchange_with(message.member)

    def _on_lookup_walk(self, sender: Contact, message: m.LookupWalk) -> None:
        self.lookup.on_walk(message, message.topic in self.topics)

    def _on_route_event(self, sender: Contact, message: m.RouteEvent) -> None:
        state = self.topics.get(message.topic)
        event = message.event
        self._ctx.counters["routed_received"] += 1
        if state is not None:
            state.accept(event, 1, None)
        result = m.RouteResult(message.topic, event.incarnation, event.number, state is not None)
        self._ctx.send(sender, result)

    def _on_link_list(self, sender: Contact, message: m.LinkList) -> None:
        """Settle which links both ends believe in (see `liveness.py`)."""
        mine = self.liveness.topics_with(sender.peer)
        theirs = set(message.topics)
        for topic in message.topics:
            state = self.topics.get(topic)
            if state is None:
                self._ctx.send(sender, m.LeaveNotice(topic))
            else:
                state.links.adopt(sender)
        if len(message.topics) < m.LIST_MAX:
            for topic in mine:
                if topic not in theirs:
                    self.topics[topic].links.lose(sender.peer)
        if message.first:
            self.liveness.send_list(sender, first=False)


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


def _over_link(handle: Callable[[Any, Contact, Any], None]) -> TopicHandler:
    """Tree messages travel over links: adopt or refuse the link first."""

    def on_message(state: TopicState, sender: Contact, message: Any) -> None:
        if state.tree is not None and state.links.adopt(sender):
            handle(state.tree, sender, message)

    return on_message


_ON_TOPIC_MESSAGE: dict[type, TopicHandler] = {
    m.SampleWalk: lambda state, sender, message: state.size.on_walk(message),
    m.SampleReply: lambda state, sender, message: state.size.on_sample(sender, message),
    m.LinkRequest: lambda state, sender, message: state.links.on_request(
        sender, message, state.recent.fingerprint()
    ),
    m.LinkReply: lambda state, sender, message: state.links.on_reply(sender, message),
    m.Unlink: lambda state, sender, message: state.links.on_unlink(sender),
    m.Payload: TopicState.on_payload,
    m.IHave: _over_link(tree.Tree.on_ihave),
    m.Graft: _over_link(tree.Tree.on_graft),
    m.Prune: _over_link(lambda state, sender, message: state.on_prune(sender)),
    m.Offer: TopicState.on_offer,
    m.Want: TopicState.on_want,
    m.Repair: TopicState.on_repair,
}
