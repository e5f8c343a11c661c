"""Subscription management: entering a topic's overlay, and telling others of it (TERA, Section 3
and Appendix A.1).

A new subscription looks an access point up and joins through it. If nobody is found, the peer
instantiates an overlay of its own, which partition merging joins to others later; a lookup whose
walks died has not found that there is nobody, and is made again. A peer tells others the list of
its topics, each with overlay id and popularity; their tables (`access_points.py`) lead others to
it.

Invariants: this peer has a part exactly in the topics that it is subscribed to; a join is under way
only in one of them. A member that looks for others again has a join under way, too, and a further
subscription waits for its outcome.

Deviation: the topic's state exists from the first moment (an overlay of one), so an event
published while the join is under way is kept and passed on; a member that knows no other looks
for access points again from time to time, instead of only waiting to be found.

Deviation: the list rides on the general overlay's view exchanges, on both sides' messages, where
the paper sends it every T cycles to D sampled peers. Partners of exchanges are as random, it takes
no message of its own, and tables hear of each member twice a cycle in place of D/T = 1 times: with
1 % of peers and subscriptions leaving per cycle that was what lookups needed (`tera-churn`).

Deviation: the list is paged, and only a few pages go with an exchange, so that a peer in 10⁵
topics never sends one giant message: the first rides, others follow in messages of their own. A new
subscription is advertised to D peers at once, which is when others need to learn of it most.

A peer of another capacity than the usual one advertises that much more or less often, and to more
or fewer peers (`rules/capacity.py`): strong peers become access points more often.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from weft.bounded import BoundedDict
from weft.ids import GENERAL, Contact, OverlayId, PeerId, Topic
from weft.protocol.context import Context, LookupDone
from weft.protocol.defence import Answered
from weft.protocol.delivery import Delivery
from weft.protocol.membership import Advert, Cyclon, JoinReply
from weft.protocol.multi_topic import MultiTopic
from weft.protocol.recent import Recent
from weft.protocol.seam import Millis, Outcome, Scheme
from weft.protocol.subscriptions import Subscriptions
from weft.protocol.tera.access_points import Advertisement, Lookup
from weft.protocol.tera.announcements import Announcer
from weft.protocol.tera.stan import Acquaintances
from weft.protocol.tera.topic import TopicState
from weft.rules.capacity import scaled, told_besides, told_in
from weft.rules.draw import chance, stream_of


class EntryLookupDone(LookupDone, frozen=True, gc=False):
    """The signal that a lookup for a join has ended."""


JOIN_TIMER = "join"
"""The time that an access point has to answer a join."""
NEW_TOPICS = "new_topics"
"""The time until new subscriptions are advertised."""

_OVERLAY = stream_of("overlay.id")
_RIDE = stream_of("adverts.ride")
_PARTS = 1_000
_ATTEMPTS_MAX = 4
"""guess, as for publishing: stale access points and lookups whose walks died, before this peer
starts an overlay of its own. Where many messages are lost all walks may die, and a user waits."""
_TOLD_MAX = 64
"""guess: peers remembered as told; about two are told in a cycle."""
_NEW_TOPICS_MS = 20
"""guess: how long new subscriptions are gathered into one advertisement."""


class _Joining(Struct):
    """A join under way."""

    fresh: bool  # of a subscription, not of a member that looks for others again
    attempts: int = 0
    contact: Contact | None = None  # the access point whose answer is awaited
    asked: dict[PeerId, None] = field(default_factory=dict)  # it, and others that may answer late
    failed: dict[PeerId, None] = field(default_factory=dict)  # of these, the stale ones
    serial: int = 0


class Joins(Subscriptions[TopicState]):
    """The topics of this peer, and the joins under way."""

    def __init__(
        self,
        ctx: Context,
        delivery: Delivery,
        multi_topic: MultiTopic,
        general: Cyclon,
        lookup: Lookup,
        announcer: Announcer,
    ) -> None:
        super().__init__(ctx, self._make_overlay)
        self._announcer = announcer
        self._delivery = delivery
        self._multi_topic = multi_topic
        self._general = general
        self._lookup = lookup
        self.adverts = Adverts(ctx, general, self.by_topic)
        self._acquaintances = Acquaintances(self.by_topic)
        self._joining: dict[Topic, _Joining] = {}
        self._answered = Answered(ctx)

    def _make_overlay(self, topic: Topic, recent: Recent, scheme: Scheme | None) -> TopicState:
        ctx = self._ctx
        return TopicState(
            ctx,
            self._delivery,
            self._multi_topic,
            self._acquaintances,
            self._announcer,
            topic,
            OverlayId(ctx.bits(_OVERLAY) >> 1),
            scheme or ctx.config.dissemination.scheme,
            recent,
            self._general.informants,
            self._answered,
        )

    # --- the user's wishes ------------------------------------------------------------------------

    def join(self, token: int, topic: Topic, scheme: Scheme | None, hopeful: bool) -> bool:
        """Returns whether the topic is new to this peer. A peer that is just entering the network
        (`hopeful`) looks for others once it is in."""
        state = self.subscribe(token, topic, scheme)
        if state is None:
            return False
        self._joining[topic] = _Joining(fresh=True)
        if hopeful:
            self.postpone(state)
        else:
            self._enter(state)
        return True

    def is_entering(self, part: TopicState) -> bool:
        return part.topic in self._joining

    def _enter(self, state: TopicState) -> None:
        """Look for a member; a peer outside of the network cannot find one."""
        if self._general.knows_nobody:
            self._finish(state, "instantiated", None)
        else:
            self._look_up(state.topic)

    def leave(self, token: int, topic: Topic) -> None:
        """Say goodbye to the members; then the user is answered, after those that wait."""
        state = self.get(topic)
        if state is not None:
            state.leave()
            self._joining.pop(topic, None)
            self.adverts.drop(topic)
        self.unsubscribe(token, topic)
        if state is not None:
            self.give_up(state)

    # --- what happens -----------------------------------------------------------------------------

    def on_entered(self) -> None:
        """The peer got into the network, or stays outside for the time being."""
        for state in self.resume():
            self._enter(state)

    def seek_others(self, topic: Topic) -> None:
        """This peer knows no other member: look for one again."""
        if topic not in self._joining:
            self._joining[topic] = _Joining(fresh=False)
            self._look_up(topic)

    def _look_up(self, topic: Topic) -> None:
        joining = self._joining[topic]
        self._lookup.start(topic, joining.failed, EntryLookupDone)

    def on_lookup_done(self, done: EntryLookupDone) -> None:
        joining = self._joining.get(done.topic)
        state = self.get(done.topic)
        if joining is not None and state is not None:
            if done.contacts:
                self._ask(state, joining, done.contacts[0])
            elif done.lost and not self._general.knows_nobody:
                self._try_another(done.topic, joining)  # dead walks say nothing about the topic
            else:
                self._finish(state, "instantiated", None)
        self.adverts.send_soon()

    def _ask(self, state: TopicState, joining: _Joining, contact: Contact) -> None:
        joining.contact = contact
        joining.asked[contact.peer] = None
        joining.serial = self._ctx.next_serial()
        state.view.ask_to_join(contact)
        timeout = self._ctx.config.cyclon.reply_timeout_ms
        self._ctx.set_timer(timeout, JOIN_TIMER, state.topic, joining.serial)

    def on_join_reply(self, sender: Contact, message: JoinReply) -> None:
        state = self.get(message.topic)
        joining = self._joining.get(message.topic)
        if state is not None and message.member:
            asked = joining is not None and sender.peer in joining.asked
            # Only a new subscriber starts after what came before. A member that looks for others
            # again wants what they have, also if its user has subscribed once more meanwhile.
            fresh = joining is not None and asked and joining.fresh
            state.on_join_reply(sender, message, fresh)
            if asked:
                self._finish(state, "joined", sender)
        elif joining is not None and _waits_for(joining, sender.peer):
            self._try_another(message.topic, joining)
        self.adverts.send_soon()

    def on_timer(self, topic: Topic, serial: int) -> None:
        joining = self._joining.get(topic)
        if joining is not None and joining.serial == serial:
            self._try_another(topic, joining)

    def on_peer_lost(self, peer: PeerId) -> None:
        for topic, joining in list(self._joining.items()):
            if _waits_for(joining, peer):
                self._try_another(topic, joining)

    def _try_another(self, topic: Topic, joining: _Joining) -> None:
        if joining.contact is not None:
            self._ctx.counters["access_points_stale"] += 1
            joining.failed[joining.contact.peer] = None
            self._lookup.disprove(topic, joining.contact.peer)
        joining.contact = None
        joining.serial = 0
        joining.attempts += 1
        if joining.attempts < _ATTEMPTS_MAX:
            self._look_up(topic)
        else:
            self._finish(self.by_topic[topic], "instantiated", None)

    def _finish(self, state: TopicState, outcome: Outcome, contact: Contact | None) -> None:
        del self._joining[state.topic]
        state.on_entered()
        if state.tokens:
            self.adverts.add(state.topic)
        self.answer(state, outcome, contact)


def _waits_for(joining: _Joining, peer: PeerId) -> bool:
    return joining.contact is not None and joining.contact.peer == peer


class Adverts:
    """What this peer tells others of its topics."""

    def __init__(self, ctx: Context, general: Cyclon, topics: Mapping[Topic, TopicState]) -> None:
        self._ctx = ctx
        self._general = general
        self._topics = topics
        self._left: list[Topic] = []  # of a round through all topics, where they take pages
        self._riding: list[list[Advert]] = []  # the pages that go with this cycle's exchanges
        self._told: BoundedDict[PeerId, Millis] = BoundedDict(_TOLD_MAX)
        self._new: dict[Topic, None] = {}
        self._new_armed = False

    def ride(self, contact: Contact) -> list[Advert]:
        """The first page of the list, for a peer that views are exchanged with; further pages are
        sent. A peer that asks again and again is told once a cycle."""
        told = self._told.get(contact.peer)
        pause_ms = self._ctx.config.cyclon.cycle_ms // 2
        if told is not None and self._ctx.now - told < pause_ms:
            return []
        self._told.renew(contact.peer, self._ctx.now)
        share = told_in(self._ctx.config.capacity, _PARTS)
        if share < _PARTS and not chance(self._ctx.bits(_RIDE), share, _PARTS):
            return []
        for page in self._riding[1:]:
            self._ctx.send(contact, Advertisement(page))
        return self._riding[0] if self._riding else []

    def run_cycle(self) -> None:
        """Encode the pages that ride until the next cycle, once for all exchanges."""
        if not self._left:
            self._left = list(self._topics)
        config = self._ctx.config.tera
        count = config.advert_page * config.advert_pages_per_cycle
        now, self._left = self._left[:count], self._left[count:]
        self._riding = self._pages(now)
        more = told_besides(self._ctx.config.capacity, self._ctx.config.cyclon.view_size)
        for contact in self._general.sample(more) if more and self._riding else ():
            for page in self._riding:
                self._ctx.send(contact, Advertisement(page))

    def drop(self, topic: Topic) -> None:
        """This peer has left a topic."""
        self._riding = [
            [advert for advert in page if advert.topic != topic] for page in self._riding
        ]

    def add(self, topic: Topic) -> None:
        """Advertise a new subscription without waiting for an exchange."""
        self._new[topic] = None

    def send_soon(self) -> None:
        """Send what `add` gathered, in a moment: there may be more to come."""
        if self._new and not self._new_armed:
            self._new_armed = True
            self._ctx.set_timer(_NEW_TOPICS_MS, NEW_TOPICS, GENERAL)

    def on_timer(self) -> None:
        """Advertise new subscriptions, as many as a cycle's pages hold."""
        self._new_armed = False
        if self._new and not self._general.knows_nobody:
            config = self._ctx.config.tera
            fresh = list(self._new)[: config.advert_page * config.advert_pages_per_cycle]
            self._new = {}
            for page in self._pages(fresh):
                for contact in self._general.sample(self._new_told_to):
                    self._ctx.send(contact, Advertisement(page))

    @property
    def _new_told_to(self) -> int:
        """How many peers hear of a new subscription at once (the paper's D)."""
        config = self._ctx.config
        return scaled(config.tera.advertise_to, config.capacity, 1, config.cyclon.view_size)

    def _pages(self, topics: list[Topic]) -> list[list[Advert]]:
        adverts = [
            Advert(topic, state.overlay, state.popularity_to_advertise)
            for topic in topics
            if (state := self._topics.get(topic)) is not None
        ]
        size = self._ctx.config.tera.advert_page
        return [adverts[start : start + size] for start in range(0, len(adverts), size)]
