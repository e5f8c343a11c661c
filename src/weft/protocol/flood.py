"""The baseline that the papers compare with: every event goes to every peer over the general
overlay (TERA, Section 4; Pulsarcast's naive flood), whether it is subscribed or not.

Deviation: so that history knows a peer to ask, subscribers make themselves known by a flood of
their own, when they subscribe and from time to time. Subscribers remember some of the others.
Nothing proves such an announcement that others pass on. So a peer takes a bounded number of them
from each neighbour, and what a subscriber said itself stands against what others say of it.

Invariants: at most `_TOPICS_MAX` topics are remembered that this peer is not subscribed to, per
topic `_MEMBERS_MAX` subscribers, and `_HEARD_MAX` announcements of subscribers in all. At most
`_WORDS_MAX` of these are taken from one neighbour while subscribers make themselves known once.
"""

from __future__ import annotations

from typing import NamedTuple

from weft.bounded import BoundedDict
from weft.documents.run import Proven, Run
from weft.ids import GENERAL, Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context, Handlers, MemberMet
from weft.protocol.delivery import Arrival, Delivery, Taken, note_copy, note_received
from weft.protocol.membership import Cyclon
from weft.protocol.quota import Quota
from weft.protocol.recent import Recent
from weft.protocol.routing import Due, Routing
from weft.protocol.seam import Scheme
from weft.protocol.subscriptions import Subscriptions, TopicPart
from weft.protocol.wire import HOPS_MAX, Counter, Message, Payload

_TOPICS_MAX = 1_024
"""guess: topics remembered whose events only pass through this peer."""
_MEMBERS_MAX = 32
"""guess: subscribers remembered per topic: some that a newcomer can ask."""
_HEARD_MAX = 4_096
"""guess: subscribers, over all topics, whose latest word is remembered, to be passed on once."""
_WORDS_MAX = 256
"""guess: announcements taken from one neighbour between two times at which subscribers make
themselves known; as many as are remembered in all come from sixteen neighbours."""
_UNSENT_MAX = 256
"""guess: events kept while this peer knows no other."""
_TELL_EVERY_CYCLES = 8
"""guess: how often subscribers make themselves known again."""


class FloodMember(Message, frozen=True, tag=75):
    """Where events are flooded: this peer is subscribed."""

    topic: WireTopic
    member: Contact
    incarnation: Counter
    tick: Counter  # the larger one is newer


class _Passing(TopicPart):
    """What is remembered of one topic, subscribed or not."""

    __slots__ = ("members",)

    def __init__(self, topic: Topic, recent: Recent) -> None:
        super().__init__(topic, recent)
        # Other subscribers, the one heard of last at the end.
        self.members: BoundedDict[PeerId, Contact] = BoundedDict(_MEMBERS_MAX)


class _Word(NamedTuple):
    """The latest announcement of one subscriber."""

    when: tuple[int, int]  # incarnation and tick
    member: Contact
    own: bool  # the subscriber itself said at this peer that it is there
    cycle: int  # it was heard in

    def gives_way(self, when: tuple[int, int], member: Contact, own: bool) -> bool:
        """Whether another announcement of the subscriber is news. Its own word always is: anybody
        could have passed on a later one in its name."""
        if own:
            return when != self.when
        return when > self.when and (member == self.member or not self.own)


class Flood(Routing):
    """One peer's part in the flood."""

    def __init__(self, ctx: Context, delivery: Delivery, general: Cyclon) -> None:
        super().__init__(ctx, delivery)
        self._general = general
        self._topics = Subscriptions(ctx, lambda topic, recent, _: _Passing(topic, recent))
        self._unsent: list[tuple[Topic, Run]] = []
        # Subscribers that made themselves known lately.
        self._heard: BoundedDict[tuple[Topic, PeerId], _Word] = BoundedDict(_HEARD_MAX)
        span_ms = _TELL_EVERY_CYCLES * ctx.config.cyclon.cycle_ms
        self._words: Quota[PeerId] = Quota(_WORDS_MAX, span_ms)
        self._cycle = 0

    def handlers(self) -> Handlers:
        return {FloodMember: self.on_member, Payload: self.on_payload}

    # --- the user's wishes ------------------------------------------------------------------------

    @property
    def subscribed(self) -> list[Topic]:
        return self._topics.subscribed

    def is_subscribed(self, topic: Topic) -> bool:
        return self._topics.is_subscribed(topic)

    def subscribe(self, token: int, topic: Topic, scheme: Scheme | None, hopeful: bool) -> None:
        self._open(topic)
        part = self._topics.subscribe(token, topic)
        if part is not None:
            self._topics.answer(part, "joined")
            self._make_known(topic)

    def unsubscribe(self, token: int, topic: Topic) -> None:
        self._topics.unsubscribe(token, topic)

    def publish(self, topic: Topic, proven: Proven, delivered: bool) -> bool:
        part, run = self._open(topic), proven.run
        if self._delivery.admit_own(part.recent, proven):
            if part.subscribed and not delivered:
                self._delivery.deliver(topic, run, 0, None)
            self._push(topic, run, 0, None)
        return True

    def close(self) -> None:
        self._topics.close()

    # --- handlers ---------------------------------------------------------------------------------

    def on_member(self, sender: Contact, message: FloodMember) -> None:
        """A subscriber makes itself known: remember it, pass it on once. One that was forgotten for
        want of room may go round again; what a neighbour may bring bounds that."""
        ctx, member = self._ctx, message.member
        if message.topic == GENERAL or member.peer == ctx.me.peer:
            return
        key, when = (message.topic, member.peer), (message.incarnation, message.tick)
        own, before = member.peer == sender.peer, self._heard.get(key)
        if before is not None and not before.gives_way(when, member, own):
            return
        if not self._words.takes(sender.peer, ctx.now):
            ctx.counters["members_refused"] += 1
            return
        own = own or (before is not None and before.own)
        self._heard.renew(key, _Word(when, member, own, self._cycle))
        part = self._open(message.topic)
        # A peer that is not subscribed may have stored events that the member lacks.
        if not part.subscribed or member.peer not in part.members:
            ctx.tell(MemberMet(message.topic, member))
        if part.subscribed:
            part.members.renew(member.peer, member)
        for contact in self._general.contacts():
            if contact.peer not in (sender.peer, member.peer):
                ctx.send(contact, message)

    def on_payload(self, sender: Contact, message: Payload) -> None:
        ctx, topic, run = self._ctx, message.topic, message.run
        note_received(ctx, "payloads_received", run)
        if topic == GENERAL:
            return
        part = self._open(topic)
        hops = min(message.hops, HOPS_MAX - 1)  # room for one more hop
        # A publisher that is no member has its earlier events, too.
        ask = sender if sender.peer == run.publisher else part.members.get(sender.peer)
        source, subscribed = sender.peer, part.subscribed
        arrival = Arrival(topic, part.recent, hops, source, ask, subscribed)
        taken = self._delivery.take_in(arrival, run)
        if taken is Taken.NEW:
            self._push(topic, run, hops, source)
        elif taken in (Taken.COPY, Taken.OLD):
            note_copy(ctx, topic, run, sender.peer, hops)

    def on_entered(self) -> None:
        if self._general.knows_nobody:
            return
        unsent, self._unsent = self._unsent, []
        for topic, run in unsent:
            self._push(topic, run, 0, None)
        for topic in self.subscribed:
            self._make_known(topic)

    def on_peer_lost(self, peer: PeerId) -> None:
        for part in self._topics.by_topic.values():
            part.members.pop(peer, None)

    def run_cycle(self, cycle: int, due: Due) -> None:
        self._cycle = cycle
        old = cycle - 2 * _TELL_EVERY_CYCLES
        for key in [key for key, heard in self._heard.items() if heard.cycle < old]:
            del self._heard[key]
        for topic, part in self._topics.by_topic.items():
            part.recent.purge(self._ctx.now)
            if part.subscribed and cycle % _TELL_EVERY_CYCLES == 0:
                self._make_known(topic)
        for topic in self.subscribed:
            due(topic)

    # --- helpers ----------------------------------------------------------------------------------

    def _open(self, topic: Topic) -> _Passing:
        """What is remembered of a topic; for want of room the oldest one is forgotten that this
        peer is not subscribed to."""
        part = self._topics.get(topic)
        if part is None:
            part = self._topics.open(topic)
            passing = [one for one in self._topics.by_topic.values() if not one.subscribed]
            if len(passing) > _TOPICS_MAX:
                self._topics.forget(passing[0])
        return part

    def _make_known(self, topic: Topic) -> None:
        tick = self._ctx.next_serial()
        message = FloodMember(topic, self._ctx.me, self._ctx.incarnation, tick)
        for contact in self._general.contacts():
            self._ctx.send(contact, message)

    def _push(self, topic: Topic, run: Run, hops: int, source: PeerId | None) -> None:
        contacts = self._general.contacts()
        message = Payload(topic, run, hops + 1)
        for contact in contacts:
            if contact.peer not in (source, run.publisher):
                self._ctx.send(contact, message)
        if not contacts and len(self._unsent) < _UNSENT_MAX:
            self._unsent.append((topic, run))

    # --- looking at it ----------------------------------------------------------------------------

    def members(self, topic: Topic) -> list[Contact]:
        part = self._topics.get(topic)
        return list(part.members.values()) if part is not None else []

    def recent(self, topic: Topic) -> Recent | None:
        part = self._topics.get(topic)
        return part.recent if part is not None else None

    def alone(self, topic: Topic) -> bool:
        return not self.members(topic)

    def reaches_others(self, topic: Topic) -> bool:
        return not self._general.knows_nobody  # a flood goes to all, members or not

    def links(self) -> dict[Topic, list[PeerId]]:
        return {}

    def status(self) -> dict[str, object]:
        topics = {topic: _status(part) for topic, part in self._topics.by_topic.items()}
        return {"topics": {topic: topics[topic] for topic in self.subscribed}, "routing": topics}


def _status(part: _Passing) -> dict[str, object]:
    return {
        "scheme": "flood",
        "members_estimate": 1 + len(part.members) if part.subscribed else None,
        "logical_links": 0,  # events go over the general overlay
        "shared_links": 0,
        "subscribed": part.subscribed,
        "recent_events": len(part.recent),
    }


def refusals(ctx: Context) -> Handlers:
    """Handlers of a peer that routes otherwise: it ignores the flood's messages."""
    return {FloodMember: lambda sender, message: None}
