"""Subscription management: entering a topic's overlay (TERA, Section 3 and Appendix A.1).

A new subscription looks an access point up and joins through it. If nobody is found, the peer
instantiates an overlay of its own, which partition merging joins to others later.

Deviation: the topic's state exists from the first moment (an overlay of one), so an event
published while the join is under way is kept and passed on; a member that knows no other looks
for access points again from time to time, instead of only waiting to be found.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.ids import Contact, OverlayId, PeerId, Topic
from weft.protocol.context import Context, LookupDone
from weft.protocol.delivery import JOIN, LEAVE
from weft.protocol.membership import Cyclon, JoinReply
from weft.protocol.recent import Past
from weft.protocol.seam import Answer, Outcome, Scheme
from weft.protocol.tera.access_points import AccessPoints, Advert, Advertisement, Lookup
from weft.protocol.tera.stan import Acquaintances
from weft.protocol.tera.topic import TopicState
from weft.rules.draw import below, stream_of

JOIN_TIMER = "join"
_OVERLAY = stream_of("overlay.id")
_ATTEMPTS_MAX = 3
"""guess: stale access points tried before an overlay of its own will do."""


class _Joining:
    """A join under way."""

    __slots__ = ("asked", "attempts", "contact", "serial", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.attempts = 0
        self.contact: Contact | None = None  # the one being waited for
        self.asked: dict[PeerId, None] = {}  # it and those before it, which may answer late
        self.serial = 0


class Join:
    """The subscription table and the joins under way."""

    def __init__(
        self,
        ctx: Context,
        topics: dict[Topic, TopicState],
        table: AccessPoints,
        lookup: Lookup,
        advertising: Advertising,
    ) -> None:
        self._ctx = ctx
        self._topics = topics
        self._table = table
        self._lookup = lookup
        self._advertising = advertising
        self._acquaintances = Acquaintances(topics)
        self._joining: dict[Topic, _Joining] = {}
        self._lookups: dict[int, Topic] = {}
        self._postponed: dict[Topic, None] = {}  # until this peer is in the network
        self._past = Past(ctx.config.dissemination)

    def subscribe(
        self, token: int, topic: Topic, scheme: Scheme | None, isolated: bool, hopeful: bool
    ) -> bool:
        """Returns whether the topic is new to this peer.

        A peer that is just entering the network (`hopeful`) looks for others once it is in.
        """
        ctx = self._ctx
        if topic in self._topics:
            joining = self._joining.get(topic)
            if joining is not None:
                joining.tokens.append(token)
            else:
                ctx.out.append(Answer(token, "already"))
            return False
        overlay = OverlayId(ctx.bits(_OVERLAY) >> 1)
        chosen = scheme or ctx.config.dissemination.scheme
        recent = self._past.recall(topic)
        acquaintances = self._acquaintances
        self._topics[topic] = TopicState(ctx, topic, overlay, chosen, recent, acquaintances)
        ctx.trace(JOIN, {"topic": topic})
        joining = self._joining[topic] = _Joining()
        joining.tokens.append(token)
        if hopeful:
            self._postponed[topic] = None
        elif isolated:
            self._finish(topic, "instantiated", None)
        else:
            self._look_up(topic)
        return True

    def on_entered(self, isolated: bool) -> None:
        """The peer got into the network, or stays outside for the time being."""
        postponed, self._postponed = self._postponed, {}
        for topic in postponed:
            if topic not in self._joining:
                continue
            if isolated:
                self._finish(topic, "instantiated", None)
            else:
                self._look_up(topic)

    def unsubscribe(self, token: int, topic: Topic) -> None:
        ctx = self._ctx
        state = self._topics.pop(topic, None)
        if state is None:
            ctx.out.append(Answer(token, "already"))
            return
        state.leave()
        self._past.remember(topic, state.recent, ctx.now)
        joining = self._joining.pop(topic, None)
        for waiting in joining.tokens if joining is not None else ():
            ctx.out.append(Answer(waiting, "left"))
        ctx.trace(LEAVE, {"topic": topic})
        ctx.out.append(Answer(token, "left"))

    def close(self) -> None:
        """This peer leaves: answer the joins under way."""
        for topic in list(self._joining):
            self._finish(topic, "left", None)
        for topic in self._topics:
            self._ctx.trace(LEAVE, {"topic": topic})

    def seek_others(self, topic: Topic) -> None:
        """This peer knows no other member: look for one again."""
        if topic not in self._joining:
            self._joining[topic] = _Joining()
            self._look_up(topic)

    def _look_up(self, topic: Topic) -> None:
        self._lookups[self._lookup.start(topic)] = topic

    def on_lookup_done(self, done: LookupDone) -> bool:
        """Returns whether the lookup was one of ours."""
        if self._lookups.pop(done.lookup, None) is None:
            return False
        joining = self._joining.get(done.topic)
        state = self._topics.get(done.topic)
        if joining is None or state is None:
            return True
        if not done.contacts:
            self._finish(done.topic, "instantiated", None)
            return True
        joining.contact = done.contacts[0]
        joining.asked[joining.contact.peer] = None
        joining.serial = self._ctx.next_serial()
        state.view.ask_to_join(joining.contact)
        timeout = self._ctx.config.cyclon.reply_timeout_ms
        self._ctx.set_timer(timeout, JOIN_TIMER, done.topic, joining.serial)
        return True

    def on_join_reply(self, sender: Contact, message: JoinReply) -> None:
        state = self._topics.get(message.topic)
        joining = self._joining.get(message.topic)
        if state is None:
            return
        if message.member:
            asked = joining is not None and sender.peer in joining.asked
            # Only a subscriber that was not answered yet starts after what came before.
            fresh = joining is not None and asked and bool(joining.tokens)
            state.on_join_reply(sender, message, fresh)
            if asked:
                self._finish(message.topic, "joined", sender)
        elif joining is not None and joining.contact and joining.contact.peer == sender.peer:
            self._try_another(message.topic, joining)

    def on_timer(self, topic: Topic, serial: int) -> None:
        joining = self._joining.get(topic)
        if joining is not None and joining.serial == serial:
            self._try_another(topic, joining)

    def on_peer_lost(self, peer: PeerId) -> None:
        for topic, joining in list(self._joining.items()):
            if joining.contact is not None and joining.contact.peer == peer:
                self._try_another(topic, joining)

    def _try_another(self, topic: Topic, joining: _Joining) -> None:
        if joining.contact is not None:
            self._ctx.counters["access_points_stale"] += 1
            self._table.forget_entry(topic, joining.contact.peer)
        joining.contact = None
        joining.serial = 0
        joining.attempts += 1
        if joining.attempts < _ATTEMPTS_MAX:
            self._look_up(topic)
        else:
            self._finish(topic, "instantiated", None)

    def _finish(self, topic: Topic, outcome: Outcome, contact: Contact | None) -> None:
        joining = self._joining.pop(topic)
        self._topics[topic].entering = False
        for token in joining.tokens:
            self._ctx.out.append(Answer(token, outcome, contact))
        if joining.tokens:
            self._advertising.add(topic)


# --- advertising -------------------------------------------------------------------------------
#
# Subscription advertisements (TERA, Section 3, "Subscription Management").
#
# Every T cycles a peer sends the list of its topics, each with overlay id and popularity, to D
# peers sampled from the general overlay.
#
# Deviation: the list is paged, and only so many pages leave in a cycle, so that a peer in 10⁵
# topics never sends one giant message; a new subscription is advertised at once, which is when
# others need to learn of it most.


_PHASE = stream_of("advertise.phase")


class Advertising:
    """What this peer still has to advertise in the current round."""

    def __init__(self, ctx: Context, view: Cyclon, topics: Mapping[Topic, TopicState]) -> None:
        self._ctx = ctx
        self._view = view
        self._topics = topics
        self._left: list[Topic] = []
        self._new: dict[Topic, None] = {}
        # Peers that start together must not advertise in the same cycles.
        self._phase = below(ctx.bits(_PHASE), ctx.config.tera.advertise_every_cycles)

    @property
    def has_new(self) -> bool:
        return bool(self._new)

    def add(self, topic: Topic) -> None:
        """Advertise a new subscription without waiting for its round."""
        self._new[topic] = None

    def flush_new(self) -> None:
        """Send what `add` gathered, as far as one cycle's pages go."""
        if self._new and not self._view.knows_nobody:
            tera = self._ctx.config.tera
            fresh = list(self._new)[: tera.advert_page * tera.advert_pages_per_cycle]
            self._new = {}
            self._send_pages(fresh)

    def run_cycle(self, cycle: int) -> None:
        tera = self._ctx.config.tera
        if not self._left and (cycle + self._phase) % tera.advertise_every_cycles == 0:
            self._left = list(self._topics)
        if not self._left or self._view.knows_nobody:
            return
        count = tera.advert_page * tera.advert_pages_per_cycle
        now, self._left = self._left[:count], self._left[count:]
        self._send_pages(now)

    def _send_pages(self, topics: list[Topic]) -> None:
        tera = self._ctx.config.tera
        for start in range(0, len(topics), tera.advert_page):
            adverts = [
                Advert(topic, state.overlay, state.popularity_to_advertise)
                for topic in topics[start : start + tera.advert_page]
                if (state := self._topics.get(topic)) is not None
            ]
            if not adverts:
                continue
            message = Advertisement(adverts)
            for contact in self._view.sample(tera.advertise_to):
                self._ctx.send(contact, message)
