"""One peer: all its layers put together, one `handle` for the driver.

From below: the general overlay and entering it (`membership.py`), liveness of linked peers, the
DHT, delivery (`delivery.py`, or `history/` where events stay), one routing (`routing.py`: TERA's
topic overlays, or another), and publishing from outside of a topic. This file only composes and
hands on: inputs to the layer they belong to, messages by their kind, signals of lower layers to
upper ones.

View exchanges and joins are spoken in the general overlay and, by some routings, in overlays of
topics; the topic in the message says which is meant.

Time goes in cycles: one timer drives the general overlay and the routing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from weft.documents.run import Proven
from weft.documents.signature import Signer
from weft.ids import GENERAL, Contact, PeerId, Topic, contact_text, peer_text
from weft.protocol import confirmation, liveness, membership, publication
from weft.protocol.config import Config
from weft.protocol.confirmation import Confirmations
from weft.protocol.context import (
    Arrived,
    Commands,
    Context,
    FarBehind,
    Handler,
    Handlers,
    Late,
    LinkDown,
    LinkUp,
    LookupDone,
    MemberMet,
    NeighboursFound,
    PeerBack,
    PeerGone,
    Signals,
    Timers,
)
from weft.protocol.defence import Informants
from weft.protocol.delivery import Delivery
from weft.protocol.liveness import Liveness, Ping, Pong
from weft.protocol.membership import (
    NO_NEWS,
    Cyclon,
    Entrance,
    JoinGift,
    JoinReply,
    JoinRequest,
    JoinWalk,
    LeaveNotice,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.multi_topic import MultiTopic
from weft.protocol.publication import Publishing, RouteKnown, RouteResult
from weft.protocol.recent import Recent
from weft.protocol.routing import NO_LINKS, Routing
from weft.protocol.seam import (
    Answer,
    ClockMoved,
    Collect,
    Confirm,
    DhtCommand,
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
    Resumed,
    Stalled,
    Started,
    Subscribe,
    Timer,
    TimerFired,
    Unsubscribe,
)
from weft.protocol.tera.tera import Refusals, Tera
from weft.rules.draw import below, stream_of

if TYPE_CHECKING:
    from weft.documents.descriptor import TopicVersion
    from weft.protocol.history.history import History
    from weft.protocol.kademlia.kademlia import Kademlia
    from weft.store.interface import Store

CYCLE = "cycle"
_PHASE = stream_of("peer.phase")
_FILLING_CYCLES = 1
"""guess: after so many cycles the usual exchanges fill a newcomer's view."""
_OLDEST = 2
"""guess: neighbours pinged when another peer is gone."""
_FEW_TOPICS = 16
"""guess: topics whose members are pinged when many peers die at once."""
_LOOKED_AT_MAX = 64
"""guess: peers that are pinged when many peers die at once."""


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
        """`sign` signs with the peer's key, without which it publishes nothing; with history in the
        config, `library` reads its store."""
        self._ctx = ctx = Context(me, seed, config or Config())
        self.config = ctx.config
        self.me = me
        self.running = False
        self._informants = Informants(ctx)
        self.general = Cyclon(ctx, GENERAL, self._informants)
        self._entrance = Entrance(ctx, self.general)
        self.liveness = Liveness(ctx)
        self.dht = self._make_dht() if ctx.config.dht.enabled else None
        self.history: History | None = None
        if ctx.config.history.enabled:
            if library is None or sign is None:
                raise ValueError("history needs a store and a key to sign with")
            self.history = self._make_history(library, sign)
        self._delivery: Delivery = self.history or Delivery(ctx, self._route, sign)
        multi_topic = MultiTopic(ctx, self.liveness.topics_with)
        self.routing = self._make_routing(multi_topic)
        self.publishing = Publishing(ctx, ctx.config.tera, self.routing, multi_topic)
        self._confirmations = Confirmations(ctx, self._delivery, self.routing, library)
        self._inputs: Commands = {
            Started: self._on_started,
            ClockMoved: self._on_clock_moved,
            Received: self._on_received,
            TimerFired: self._on_timer_fired,
            PeerLost: lambda fact: self._lose(fact.peer),
            Stalled: lambda fact: ctx.on_stalled(fact.peer),
            Resumed: lambda fact: self._on_resumed(fact.peer),
            Join: lambda fact: self._entrance.enter(fact.contacts),
            Subscribe: self._on_subscribe,
            Unsubscribe: self._on_unsubscribe,
            Publish: self._on_publish,
            PublishTogether: self._on_publish_together,
            Confirm: self._confirmations.confirm,
            Collect: lambda fact: self.routing.collect(),
            Leave: self._on_leave,
            **self._dht_commands(),
            **self._delivery.commands(),
        }
        self._in_general = self._general_handlers()
        self._handlers = self._other_handlers()
        self._timers = self._all_timers()
        self._signals = self._all_signals()

    # --- rooms that most peers are without (rooms.py), loaded here and nowhere else ---------------

    def _make_dht(self) -> Kademlia:
        from weft.protocol.kademlia.kademlia import Kademlia  # noqa: PLC0415

        return Kademlia(self._ctx, self.general.contacts)

    def _make_history(self, library: Store, sign: Signer) -> History:
        from weft.protocol.history.history import History  # noqa: PLC0415

        return History(
            *(self._ctx, library, sign, self.members, self._find, self._route, self._recent),
            *(self.general.known, self.dht),
        )

    def _make_routing(self, multi_topic: MultiTopic) -> Routing:
        """The routing that the settings ask for."""
        ctx, delivery = self._ctx, self._delivery
        chosen = ctx.config.routing
        if chosen == "pulsarcast" and self.dht is not None:
            from weft.protocol.pulsar.pulsar import Pulsar  # noqa: PLC0415

            return Pulsar(ctx, delivery, self.dht, self.liveness)
        if chosen == "topic-dht" and self.dht is not None:
            from weft.protocol.topic_dht.topic_dht import TopicRouting  # noqa: PLC0415

            return TopicRouting(ctx, delivery, self.dht)
        if chosen == "flood":
            from weft.protocol.flood import Flood  # noqa: PLC0415

            return Flood(ctx, delivery, self.general)
        return Tera(ctx, delivery, multi_topic, self.general, self.liveness)

    def _refusals(self, room: str) -> Handlers:
        """What a peer without a room answers to its messages."""
        ctx = self._ctx
        if room == "kademlia":
            from weft.protocol.kademlia import kademlia  # noqa: PLC0415

            return kademlia.refusals(ctx)
        if room == "history":
            from weft.protocol.history import history  # noqa: PLC0415

            return self._confirmations.handlers(history.refusals(ctx))
        if room == "pulsar":
            from weft.protocol.pulsar import pulsar  # noqa: PLC0415

            return pulsar.refusals(ctx)
        if room == "flood":
            from weft.protocol import flood  # noqa: PLC0415

            return flood.refusals(ctx)
        from weft.protocol.topic_dht import topic_dht  # noqa: PLC0415

        return topic_dht.refusals(ctx)

    def _handler(self, kind: type) -> Handler:
        """The handler of a message. Of a room that this peer is without, the first message that
        comes brings the refusals of them all."""
        if kind not in self._handlers:
            room = kind.__module__.split(".")[2]
            self._handlers = {**self._refusals(room), **self._handlers}
        return self._handlers[kind]

    # --- where inputs and messages go -------------------------------------------------------------

    def _dht_commands(self) -> Commands:
        """Where the user's commands for the DHT go; a peer without one refuses them."""
        ctx = self._ctx
        if self.dht is not None:
            return self.dht.commands()
        return dict.fromkeys(
            get_args(DhtCommand), lambda command: ctx.answer(Answer(command.token, "refused"))
        )

    def _general_handlers(self) -> Handlers:
        """Messages about the general overlay."""
        general = self.general
        return {
            ShuffleRequest: self._on_shuffle_request,
            ShuffleReply: self._on_shuffle_reply,
            JoinRequest: self._on_join_request,
            JoinReply: self._on_join_reply,
            JoinWalk: general.on_join_walk,
            JoinGift: general.on_join_gift,
            LeaveNotice: lambda sender, message: self._ctx.tell(PeerGone(sender.peer)),
        }

    def _other_handlers(self) -> Handlers:
        """All other messages; for those of rooms that this peer is without, see `_handler`."""
        ctx, dht, history = self._ctx, self.dht, self.history
        return {
            **Refusals(ctx, self._informants).handlers(),
            **self.routing.handlers(),
            **(dht.handlers(self.routing.provides) if dht is not None else {}),
            **(self._confirmations.handlers(history.handlers()) if history is not None else {}),
            RouteResult: self.publishing.on_result,
            RouteKnown: self.publishing.on_known,
            Ping: self._on_ping,
            Pong: self.liveness.on_pong,
        }

    def _all_timers(self) -> Timers:
        timers: Timers = {
            CYCLE: lambda timer: self._run_cycle(),
            liveness.TIMER: lambda timer: self.liveness.on_timer(),
            liveness.ANSWERS: self._on_answers_timer,
            membership.REJOIN: self._on_rejoin_timer,
            confirmation.TIMER: lambda timer: self._confirmations.on_timer(timer.serial),
            **self._delivery.timers(),
            publication.TIMER: lambda timer: self.publishing.on_timer(timer.serial),
            **self.routing.timers(),
        }
        if self.dht is not None:
            timers.update(self.dht.timers())
        return timers

    def _all_signals(self) -> Signals:
        return {
            LinkUp: self._on_link_up,
            LinkDown: self._on_link_down,
            LookupDone: self._on_lookup_done,
            Late: lambda signal: self.liveness.look_at(signal.contacts),
            PeerGone: self._on_peer_gone,
            PeerBack: self._on_peer_back,
            NeighboursFound: lambda signal: self._on_neighbours(),
            MemberMet: lambda signal: self._delivery.link_up(signal.topic, signal.contact),
            Arrived: self._delivery.on_arrived,
            FarBehind: self.routing.on_far_behind,
            **self.routing.signals(),
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
        return self.routing.subscribed

    @property
    def tera(self) -> Tera:
        """TERA's layers, of a peer that routes by them."""
        assert isinstance(self.routing, Tera)
        return self.routing

    def members(self, topic: Topic) -> list[Contact]:
        """Members of a topic that this peer knows, linked ones first."""
        return self.routing.members(topic)

    def newest_version(self, topic: Topic) -> TopicVersion | None:
        """The newest version of an owned topic that this peer knows; None: it knows of no owner."""
        return self._delivery.newest_version(topic)

    def levels(self, topic: Topic) -> list[Topic]:
        """The topics that an event of `topic` counts in: itself, then those above it in its
        hierarchy. The driver of this peer publishes in all of them (`PublishTogether`)."""
        return self._delivery.levels(topic)

    def too_large(self, topic: Topic, wrapped: bytes, origin: Topic | None = None) -> str:
        """Why an event, `wrapped` with its headers, is too large for a topic; empty if it is not.
        `origin`: the sub-topic that it climbs from."""
        return self._delivery.too_large(topic, wrapped, origin)

    def handle(self, fact: Input, now: Millis) -> list[Effect]:
        """Take one fact in; returns what the driver shall do."""
        ctx = self._ctx
        ctx.begin(now)
        kind = type(fact)
        if self.running or kind is Started:
            self._inputs[kind](fact)
        while ctx.signals:
            signal = ctx.signals.popleft()
            self._signals[type(signal)](signal)
        self._delivery.flush()
        effects = ctx.take_effects()
        if effects:
            self.liveness.sent(effects)
            # Liveness may have put out effects of its own, such as a timer.
            effects += ctx.take_effects()
        return effects

    def status(self) -> dict[str, object]:
        """What a user wants to see, ready for JSON."""
        return {
            "peer": peer_text(self.me.peer),
            "address": contact_text(self.me),
            "cycle": self._ctx.cycle,
            "view": [contact_text(contact) for contact in self.general.contacts()],
            "linked_peers": len(self.liveness.watched),
            "links": NO_LINKS,
            "access_points": 0,
            "topics_active_estimate": 0,
            "publishes_waiting": self.publishing.waiting,
            "equivocations": self._delivery.evidence(),
            "topics": {},
            **self.routing.status(),
            **({"dht": self.dht.status()} if self.dht is not None else {}),
            **self._delivery.status(),
        }

    # --- messages -------------------------------------------------------------------------------

    def _on_received(self, fact: Received) -> None:
        sender, message = fact.sender, fact.message
        kind = type(message)
        self.liveness.heard_from(sender.peer, message.feeds)
        if sender.peer == self.me.peer:
            return
        if self._informants.doubted:
            self._informants.spoke(sender)
            self.general.admit()
        if kind in self._in_general and message.topic == GENERAL:  # type: ignore[attr-defined]
            was_isolated = self.isolated
            self._in_general[kind](sender, message)
            if was_isolated and not self.isolated:
                self._ctx.tell(NeighboursFound())
        else:
            self._handler(kind)(sender, message)

    def _on_shuffle_reply(self, sender: Contact, message: ShuffleReply) -> None:
        if self.general.on_reply(sender, message):
            self._entrance.worked(sender)
            self._entrance.heard_of(message.descriptors)
            self.routing.on_adverts(sender, message.adverts)
            if self._ctx.cycle < _FILLING_CYCLES:
                self.general.fill_up(sender, NO_NEWS)

    def _on_shuffle_request(self, sender: Contact, message: ShuffleRequest) -> None:
        self._entrance.worked(sender)
        self._entrance.heard_of(message.descriptors)
        self.general.on_request(sender, message, NO_NEWS, self.routing.adverts_for)
        self.routing.on_sample(message.topics_sample)
        self.routing.on_adverts(sender, message.adverts)

    def _on_join_request(self, sender: Contact, message: JoinRequest) -> None:
        self.general.on_join_request(sender, NO_NEWS, [])
        self.routing.welcome(sender)

    def _on_join_reply(self, sender: Contact, message: JoinReply) -> None:
        self.general.on_join_reply(sender, message)
        self.general.add(sender)
        self.general.fill_up(sender, NO_NEWS)

    def _on_ping(self, sender: Contact, message: Ping) -> None:
        self.liveness.on_ping(sender, message)
        if self._entrance.needs_any:  # any peer that speaks may be a neighbour then
            was_isolated = self.isolated
            self.general.welcome(sender)
            if was_isolated and not self.isolated:
                self._ctx.tell(NeighboursFound())

    # --- starting, entering the network, leaving ------------------------------------------------

    def _on_started(self, fact: Started) -> None:
        ctx = self._ctx
        ctx.start(fact.incarnation, fact.wall_ms)
        self.running = True
        # Peers that start together must not all act in the same millisecond.
        phase = below(ctx.bits(_PHASE), ctx.config.cyclon.cycle_ms) + 1
        ctx.set_timer(phase, CYCLE, GENERAL)
        self.liveness.start()
        if self.dht is not None:
            self.dht.start()
        self.routing.start()
        self._delivery.start()
        self._entrance.enter(fact.contacts)

    def _on_clock_moved(self, fact: ClockMoved) -> None:
        slept_ms = self._ctx.set_wall(fact.wall_ms)
        if self.dht is not None and slept_ms > 0:
            self.dht.operations.on_slept(slept_ms)

    def _on_neighbours(self) -> None:
        """The general view may have become non-empty."""
        if not self.isolated:
            self._entrance.on_neighbours()
            self.publishing.on_neighbours()
            if self.dht is not None:
                self.dht.on_neighbours()
            self.routing.on_entered()

    def _on_rejoin_timer(self, timer: Timer) -> None:
        self._entrance.on_timer(timer.serial)
        if self.isolated and not self._entrance.hopeful:
            self.routing.on_entered()

    def _on_leave(self, fact: Leave) -> None:
        ctx = self._ctx
        notice = LeaveNotice(GENERAL)
        told = {watch.contact.peer: watch.contact for watch in self.liveness.watched.values()}
        for contact in self.general.contacts():
            told[contact.peer] = contact
        for contact in told.values():
            ctx.send(contact, notice)
        self.publishing.close()
        self._confirmations.close()
        self.routing.close()
        self._delivery.close()
        if self.dht is not None:
            self.dht.close()
        self.running = False

    # --- losing peers ---------------------------------------------------------------------------

    def _on_peer_gone(self, signal: PeerGone) -> None:
        self._informants.left(signal.peer)
        self._lose(signal.peer, left=True)
        if self.dht is not None:
            self.dht.forget(signal.peer)

    def _on_peer_back(self, signal: PeerBack) -> None:
        self.general.welcome(signal.contact)
        if self.dht is not None:
            self.dht.on_peer_back(signal.contact.peer)
        self.routing.on_peer_back(signal.contact, signal.topics)

    def _on_answers_timer(self, timer: Timer) -> None:
        doubted, lost = self.liveness.on_answers_timer()
        for contact in doubted:
            self._entrance.on_peer_failed(contact.peer)
            self.routing.on_peer_doubted(contact.peer)
            self.publishing.on_peer_doubted(contact.peer)
            if self.dht is not None and not self.liveness.is_wary:
                self.dht.on_peer_doubted(contact.peer)
        for contact in lost:
            self._ctx.counters["peers_silent"] += 1
            if contact.peer in self.liveness.watched:
                self._ctx.out.append(Disconnect(contact.peer, "no answer to pings"))
            self._lose(contact.peer)
        if doubted:
            self._look_around()

    def _look_around(self) -> None:
        """A peer died, or may have: ping others to see whether it is the only one. If many die at
        once, ping all linked peers and those in the views."""
        if not self.liveness.many_lost:
            self.liveness.look_at(self.general.oldest(_OLDEST))
            return
        linked = [watch.contact for watch in self.liveness.watched.values()]
        members = [one for topic in self.subscribed[:_FEW_TOPICS] for one in self.members(topic)]
        known = dict.fromkeys([*linked, *self.general.contacts(), *members])
        self.liveness.look_at(list(known)[:_LOOKED_AT_MAX])

    def _on_resumed(self, peer: PeerId) -> None:
        self._ctx.end_stall(peer, lost=False)
        self.liveness.on_resumed(peer)

    def _lose(self, peer: PeerId, left: bool = False) -> None:
        was_isolated, needed_any = self.isolated, self._entrance.needs_any
        self._ctx.end_stall(peer, lost=True)
        self.liveness.lose(peer, left)
        self._informants.lost(peer)
        self.general.remove(peer)
        self.routing.on_peer_lost(peer)
        self.publishing.on_peer_lost(peer)
        if self.dht is not None:
            self.dht.on_peer_lost(peer)
        self._delivery.on_peer_lost(peer)
        # A peer that was (nearly) isolated before has asked already, and asks again by its timer.
        self._entrance.on_peer_failed(peer)
        if (self._entrance.needs_any and not needed_any) or (self.isolated and not was_isolated):
            self._heal_view()
            if self.isolated or (self._entrance.needs_any and not needed_any):
                self._entrance.ask()
        self._look_around()

    def _heal_view(self) -> None:
        """Fill the general view with peers that this one is linked to, since they live."""
        for peer, watch in self.liveness.watched.items():
            if not self.liveness.doubts(peer):
                self.general.add(watch.contact)

    # --- commands -------------------------------------------------------------------------------

    def _on_subscribe(self, fact: Subscribe) -> None:
        problem = self.routing.scheme_problem(fact.topic, fact.scheme)
        if problem:
            self._ctx.out.append(Answer(fact.token, "refused", reason=problem))
            return
        token = self._delivery.entering(fact.token, fact.topic)
        self.routing.subscribe(token, fact.topic, fact.scheme, self._entrance.hopeful)
        self._delivery.subscribe(fact.topic, fact.since)

    def _on_unsubscribe(self, fact: Unsubscribe) -> None:
        self._delivery.unsubscribe(fact.topic)
        self.routing.unsubscribe(fact.token, fact.topic)

    def _on_publish(self, fact: Publish) -> None:
        self._delivery.publish(fact)
        if fact.goes_on:
            self.publishing.go_on(fact.token)

    def _on_publish_together(self, fact: PublishTogether) -> None:
        self._delivery.publish_together(fact, self.routing.shares_events)

    def _route(self, token: int, topic: Topic, proven: Proven, climbs: bool) -> None:
        """Spread a run of this peer's own: in the topic, or through a peer that is in it."""
        if self.routing.publish(topic, proven, self._delivery.stored):
            alone = self.is_alone_in(topic)
            self._ctx.out.append(Answer(token, "delivered", self.me, proven.run, alone=alone))
        else:
            self.publishing.publish(token, topic, proven.run, self.isolated, climbs)

    def is_alone_in(self, topic: Topic) -> bool:
        """Whether events that this peer spreads in a topic reach no other peer, as far as it
        knows."""
        if self.isolated and not self.routing.members(topic):
            return True
        return not self.routing.reaches_others(topic)

    def _find(self, topic: Topic) -> int:
        """Look for members of a topic from outside; `LookupDone` follows."""
        return self.routing.find(topic)

    def _recent(self, topic: Topic) -> Recent | None:
        """What the routing has seen of a topic lately."""
        return self.routing.recent(topic)

    # --- timers and signals ---------------------------------------------------------------------

    def _on_lookup_done(self, signal: LookupDone) -> None:
        if self._confirmations.on_lookup_done(signal):
            return
        if not self._delivery.on_lookup_done(signal):
            self.publishing.on_lookup_done(signal)

    def _on_timer_fired(self, fact: TimerFired) -> None:
        on_timer = self._timers.get(fact.timer.kind)
        if on_timer is not None:
            on_timer(fact.timer)

    def _run_cycle(self) -> None:
        ctx = self._ctx
        cycle = ctx.next_cycle()
        ctx.set_timer(ctx.config.cyclon.cycle_ms, CYCLE, GENERAL)
        if self._entrance.is_thin:
            self._heal_view()
        self.general.exchange(NO_NEWS, self.routing.sample(), self.routing.adverts_for)
        if self.isolated:
            self._entrance.ask()
        self._entrance.run_cycle(cycle)
        self.routing.run_cycle(cycle, self._on_topic_due)
        self.publishing.run_cycle()

    def _on_topic_due(self, topic: Topic) -> None:
        self._delivery.run_topic(topic, alone=self.routing.alone(topic))

    def _on_link_up(self, signal: LinkUp) -> None:
        self.liveness.link_up(signal.contact, signal.topic)
        self._entrance.worked(signal.contact)
        if self.routing.on_link_up(signal):
            self._delivery.link_up(signal.topic, signal.contact)

    def _on_link_down(self, signal: LinkDown) -> None:
        self.liveness.link_down(signal.peer, signal.topic)
        self.routing.on_link_down(signal)
