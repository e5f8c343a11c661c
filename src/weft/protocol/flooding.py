"""The baseline that the papers compare with: every event goes to everybody over the general
overlay (TERA, Section 4; Pulsarcast's naive flood), whether they are subscribed or not.

Deviation: so that history has somebody to ask, subscribers make themselves known by a flood of
their own, when they subscribe and from time to time. Subscribers remember some of them.

Invariants: at most `_TOPICS_MAX` topics are remembered of those that only pass through, per topic
`_MEMBERS_MAX` subscribers, and `_HEARD_MAX` words of subscribers in all.
"""

from __future__ import annotations

from weft.ids import GENERAL, Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context, MemberMet
from weft.protocol.delivery import DUPLICATE_MESSAGE, JOIN, LEAVE, Delivery, trace_event
from weft.protocol.membership import Cyclon
from weft.protocol.recent import Recent
from weft.protocol.routing import Due, Handlers, Routing
from weft.protocol.seam import Answer, Scheme
from weft.protocol.wire import HOPS_MAX, Counter, Event, Message, Payload


class FloodMember(Message, frozen=True, tag=75):
    """Where events are flooded: this peer is subscribed (protocol/flooding.py)."""

    topic: WireTopic
    member: Contact
    incarnation: Counter
    tick: Counter  # the larger one is newer


_TOPICS_MAX = 1_024
"""guess"""
_MEMBERS_MAX = 32
"""guess"""
_HEARD_MAX = 4_096
"""guess: subscribers, over all topics, whose latest word is remembered, to be passed on once."""
_UNSENT_MAX = 256
"""guess: events kept while this peer knows nobody."""
_TELL_EVERY_CYCLES = 8
"""guess: how often subscribers make themselves known again."""


class _Known:
    """What is remembered of one topic."""

    __slots__ = ("members", "recent", "subscribed")

    def __init__(self, recent: Recent) -> None:
        self.recent = recent
        self.subscribed = False
        self.members: dict[
            PeerId, Contact
        ] = {}  # other subscribers, those heard of last at the end


class Flooding(Routing):
    """See the module's text."""

    def __init__(self, ctx: Context, delivery: Delivery, general: Cyclon) -> None:
        super().__init__(ctx, delivery)
        self._general = general
        self._topics: dict[Topic, _Known] = {}
        self._unsent: list[tuple[Topic, Event]] = []
        # Who made itself known lately: incarnation, tick, and the cycle it was heard in.
        self._heard: dict[tuple[Topic, PeerId], tuple[int, int, int]] = {}
        self._cycle = 0

    def handlers(self) -> Handlers:
        return {FloodMember: self.on_member, Payload: self.on_payload}

    # --- subscriptions ----------------------------------------------------------------------------

    @property
    def subscribed(self) -> list[Topic]:
        return [topic for topic, known in self._topics.items() if known.subscribed]

    def is_subscribed(self, topic: Topic) -> bool:
        known = self._topics.get(topic)
        return known is not None and known.subscribed

    def _known(self, topic: Topic) -> _Known:
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = _Known(Recent(self._ctx.config.dissemination))
            passing = [name for name, one in self._topics.items() if not one.subscribed]
            if len(passing) > _TOPICS_MAX:
                del self._topics[passing[0]]
        return known

    def subscribe(self, token: int, topic: Topic, scheme: Scheme | None, hopeful: bool) -> None:
        known = self._known(topic)
        if known.subscribed:
            self._ctx.out.append(Answer(token, "already"))
            return
        known.subscribed = True
        self._ctx.trace(JOIN, {"topic": topic})
        self._ctx.out.append(Answer(token, "joined"))
        self._make_known(topic)

    def unsubscribe(self, token: int, topic: Topic) -> None:
        known = self._topics.get(topic)
        if known is None or not known.subscribed:
            self._ctx.out.append(Answer(token, "already"))
            return
        known.subscribed = False
        self._ctx.trace(LEAVE, {"topic": topic})
        self._ctx.out.append(Answer(token, "left"))

    def close(self) -> None:
        for topic in self.subscribed:
            self._ctx.trace(LEAVE, {"topic": topic})

    def _make_known(self, topic: Topic) -> None:
        tick = self._ctx.next_serial()
        message = FloodMember(topic, self._ctx.me, self._ctx.incarnation, tick)
        for contact in self._general.contacts():
            self._ctx.send(contact, message)

    def on_member(self, sender: Contact, message: FloodMember) -> None:
        """A subscriber makes itself known: remember it, pass it on once."""
        ctx, who = self._ctx, message.member
        if message.topic == GENERAL or who.peer == ctx.me.peer:
            return
        key, when = (message.topic, who.peer), (message.incarnation, message.tick)
        before = self._heard.get(key)
        if before is not None and before[:2] >= when:
            return
        if before is None and len(self._heard) >= _HEARD_MAX:
            return  # what is not remembered must not be passed on: it would never end
        self._heard[key] = (*when, self._cycle)
        known = self._known(message.topic)
        if known.subscribed:
            if who.peer not in known.members:
                ctx.tell(MemberMet(message.topic, who))
            known.members.pop(who.peer, None)
            known.members[who.peer] = who
            if len(known.members) > _MEMBERS_MAX:
                del known.members[next(iter(known.members))]
        for contact in self._general.contacts():
            if contact.peer not in (sender.peer, who.peer):
                ctx.send(contact, message)

    # --- events -----------------------------------------------------------------------------------

    def publish(self, topic: Topic, event: Event, delivered: bool) -> bool:
        known = self._known(topic)
        if known.recent.admit(event, 0, None, self._ctx.now):
            if known.subscribed and not delivered:
                self._delivery.deliver(topic, event, 0, None)
            self._push(topic, event, 0, None)
        return True

    def on_payload(self, sender: Contact, message: Payload) -> None:
        ctx, topic, event = self._ctx, message.topic, message.event
        ctx.counters["payloads_received"] += 1
        if topic == GENERAL:
            return
        known = self._known(topic)
        hops = min(message.hops, HOPS_MAX - 1)  # room for one more hop
        ask = known.members.get(sender.peer)
        source, subscribed = sender.peer, known.subscribed
        if self._delivery.take_in(topic, known.recent, event, hops, source, ask, subscribed):
            self._push(topic, event, hops, source)
        else:
            ctx.counters["duplicates"] += 1
            trace_event(ctx, DUPLICATE_MESSAGE, topic, event, sender.peer, hops)

    def _push(self, topic: Topic, event: Event, hops: int, source: PeerId | None) -> None:
        contacts = self._general.contacts()
        message = Payload(topic, event, hops + 1)
        for contact in contacts:
            if contact.peer not in (source, event.publisher):
                self._ctx.send(contact, message)
        if not contacts and len(self._unsent) < _UNSENT_MAX:
            self._unsent.append((topic, event))

    # --- time and losses --------------------------------------------------------------------------

    def on_entered(self) -> None:
        if self._general.knows_nobody:
            return
        unsent, self._unsent = self._unsent, []
        for topic, event in unsent:
            self._push(topic, event, 0, None)
        for topic in self.subscribed:
            self._make_known(topic)

    def on_peer_lost(self, peer: PeerId) -> None:
        for known in self._topics.values():
            known.members.pop(peer, None)

    def run_cycle(self, cycle: int, due: Due) -> None:
        self._cycle = cycle
        old = cycle - 2 * _TELL_EVERY_CYCLES
        for key in [key for key, heard in self._heard.items() if heard[2] < old]:
            del self._heard[key]
        for topic, known in self._topics.items():
            known.recent.purge(self._ctx.now)
            if known.subscribed and cycle % _TELL_EVERY_CYCLES == 0:
                self._make_known(topic)
        for topic in self.subscribed:
            due(topic)

    # --- for upper layers -------------------------------------------------------------------------

    def members(self, topic: Topic) -> list[Contact]:
        known = self._topics.get(topic)
        return list(known.members.values()) if known is not None else []

    def alone(self, topic: Topic) -> bool:
        return not self.members(topic)

    def links(self) -> dict[Topic, list[PeerId]]:
        return {}

    def status(self) -> dict[str, object]:
        topics = {topic: _status(known) for topic, known in self._topics.items()}
        return {"topics": {topic: topics[topic] for topic in self.subscribed}, "routing": topics}


def _status(known: _Known) -> dict[str, object]:
    return {
        "scheme": "flood",
        "members_estimate": 1 + len(known.members) if known.subscribed else None,
        "logical_links": 0,  # events go over the general overlay
        "shared_links": 0,
        "subscribed": known.subscribed,
        "recent_events": len(known.recent),
    }


def refusals(ctx: Context) -> Handlers:
    """What a peer says that routes otherwise: nothing."""
    return {FloodMember: lambda sender, message: None}
