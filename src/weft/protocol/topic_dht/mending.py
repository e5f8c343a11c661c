"""What trees and gossip miss is found by comparing, and made up for (`protocol/recent.py`).

Members that are linked say from time to time what they have seen (`Beat`, a fingerprint), more
often while there are events, and at once over a link that is new: whatever was lost with the link
before it is found there. Where fingerprints differ they exchange what the other lacks; who got
something in that way announces it to all around it, since those it is in charge of lack it too.

Deviation: the paper's heartbeats go from a root down its tree, and who misses them looks for its
incoming link. Here they go over links of all levels, from both ends: they need no tree that is
whole, and say not only that a link works but whether anything got lost on it.
"""

from __future__ import annotations

from weft.ids import Contact, PeerId, Topic
from weft.protocol import recent
from weft.protocol.context import Context
from weft.protocol.delivery import Delivery
from weft.protocol.messages_topic_dht import Beat, Forget, Vanished
from weft.protocol.recent import IHave, Offer, Repair, Want
from weft.protocol.topic_dht.casting import ROUND, Casting
from weft.protocol.topic_dht.linking import family
from weft.protocol.topic_dht.membership import Membership
from weft.protocol.topic_dht.settings import Settings
from weft.protocol.topic_dht.state import Roles
from weft.protocol.wire import Event, Span
from weft.rules.draw import stream_of

_QUIET_EVERY = 4
"""guess: cycles from one beat to the next while there are no events."""
_CALL = stream_of("topic_dht.call")
_WHO = stream_of("topic_dht.beat")


class Mending:
    """See the module's text."""

    def __init__(
        self,
        ctx: Context,
        delivery: Delivery,
        roles: Roles,
        members: dict[Topic, Membership],
        casting: Casting,
        settings: Settings,
    ) -> None:
        self._ctx = ctx
        self._delivery = delivery
        self._roles = roles
        self._members = members
        self._casting = casting
        self._settings = settings

    # --- saying what was seen ---------------------------------------------------------------------

    def run_cycle(self, member: Membership) -> None:
        """Beat over all links if something was seen since the last time, else over one of them:
        now and then, or as long as somebody has seen something else."""
        if member.entering:
            return
        around, fingerprint = self.around(member), member.recent.fingerprint()
        if fingerprint != member.beaten:
            member.beaten, member.quiet_cycles = fingerprint, 0
            self.beat(member, list(around.values()), fresh=False)
            return
        member.quiet_cycles += 1
        if member.differs or member.quiet_cycles % _QUIET_EVERY == 0:
            member.differs = False
            others = list({**around, **self._alternatives(member)}.values())
            if others:
                self.beat(member, [self._ctx.pick(_WHO, others)], fresh=False)

    def _alternatives(self, member: Membership) -> dict[PeerId, Contact]:
        """Of a child: its parent may not have what it lacks, having come later."""
        role = self._roles.by_topic.get(member.topic)
        child = role.child if role is not None else None
        return {one.peer: one for one in child.alternatives} if child is not None else {}

    def beat(self, member: Membership, contacts: list[Contact], fresh: bool) -> None:
        message = Beat(member.topic, member.recent.fingerprint(), fresh)
        for contact in contacts:
            self._ctx.send(contact, message)

    def around(self, member: Membership) -> dict[PeerId, Contact]:
        """Links, parent, children."""
        found = member.linked()
        role = self._roles.by_topic.get(member.topic)
        if role is not None:
            found.update({one.peer: one for one in family(role)})
        return found

    # --- rounds of push-pull ----------------------------------------------------------------------

    def on_round(self, topic: Topic) -> None:
        """Call somebody at random, for some rounds after the latest event."""
        member = self._members.get(topic)
        forwarder = self._roles.forwarding(topic)
        if member is None or member.rounds_left <= 0:
            return
        member.rounds_left -= 1
        if member.rounds_left:
            self._ctx.set_timer(self._settings.gossip_round_ms, ROUND, topic)
        if forwarder is not None:
            view = list(self._casting.partners(topic, forwarder).values())
            if view:
                self.beat(member, [self._ctx.pick(_CALL, view)], fresh=True)

    # --- comparing --------------------------------------------------------------------------------

    def on_beat(self, sender: Contact, message: Beat) -> None:
        member = self._member(sender, message.topic)
        if member is None or member.entering:
            return
        settle_ms = 0 if message.fresh else self._ctx.config.dissemination.settle_ms
        recent.compare(self._ctx, message.topic, member.recent, sender, message.recent, settle_ms)

    def on_offer(self, sender: Contact, message: Offer) -> None:
        member = self._member(sender, message.topic)
        if member is not None and not member.entering and member.subscribed:
            member.differs = True
            recent.on_offer(self._ctx, member.recent, sender, message)

    def on_ihave(self, sender: Contact, message: IHave) -> None:
        member = self._member(sender, message.topic)
        if member is not None and not member.entering and member.subscribed:
            recent.ask_for(self._ctx, member.recent, sender, message)

    def on_want(self, sender: Contact, message: Want) -> None:
        member = self._member(sender, message.topic)
        if member is not None:
            recent.on_want(self._ctx, member.recent, sender, message)

    def on_repair(self, sender: Contact, message: Repair) -> None:
        member = self._member(sender, message.topic)
        if member is None:
            return
        ctx = self._ctx
        new = [
            event
            for event in message.events
            if self._delivery.take_in(
                message.topic, member.recent, event, 0, sender.peer, sender, member.subscribed
            )
        ]
        ctx.counters["repaired"] += len(new)
        ctx.counters["repairs_duplicate"] += len(message.events) - len(new)
        self._announce(member, new, sender.peer)

    def _announce(self, member: Membership, events: list[Event], source: PeerId) -> None:
        if not events:
            return
        spans = [Span(one.publisher, one.incarnation, one.number, one.number) for one in events]
        message = IHave(member.topic, spans)
        for peer, contact in self.around(member).items():
            if peer != source:
                self._ctx.send(contact, message)

    def _member(self, sender: Contact, topic: Topic) -> Membership | None:
        """The membership that a message is about, or None after refusing it."""
        member = self._members.get(topic)
        if member is None:
            self._ctx.counters["not_subscribed"] += 1
            self._ctx.send(sender, Vanished(topic))
            self._ctx.send(sender, Forget(topic))
        return member
