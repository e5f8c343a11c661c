"""The topic-aware DHT as the routing of a peer: its roles, its links, its events.

Below is the DHT by itself (`topic_dht.py`), which sees to it that a subscriber is forwarder or
child. Above it: how a subscription begins (`beginning.py`), the links by which events go
(`linking.py`), the four schemes (`casting.py`), and repair (`mending.py`). Whoever is outside of a
topic hands an event to the forwarder closest to a random place, which becomes its root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from weft.ids import GENERAL, Contact, PeerId, Topic, peer_text
from weft.protocol.context import Context, LinkUp, LookupDone
from weft.protocol.delivery import JOIN, LEAVE, Delivery
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.table import Entry
from weft.protocol.liveness import LinkList
from weft.protocol.messages_topic_dht import Beat, Cast, SeenReply, SeenRequest, Vanished
from weft.protocol.publishing import RouteEvent
from weft.protocol.recent import IHave, Offer, Past, Repair, Want
from weft.protocol.routing import Due, Handlers, Routing, Timers
from weft.protocol.seam import Answer, Outcome, Scheme
from weft.protocol.topic_dht import topic_dht
from weft.protocol.topic_dht.beginning import Beginning
from weft.protocol.topic_dht.casting import ROUND, Casting
from weft.protocol.topic_dht.linking import Linking, family
from weft.protocol.topic_dht.membership import Membership
from weft.protocol.topic_dht.mending import Mending
from weft.protocol.topic_dht.state import Role
from weft.protocol.topic_dht.topic_dht import TopicDht
from weft.protocol.wire import Event, Payload

_TOLD_MAX = 64
"""guess: forwarders of a topic that are told when this peer leaves the network."""
_FIND_TIMES = 2
"""guess: lookups before a topic is taken to have no subscriber; one may have lost its way."""


class TopicRouting(Routing):
    """See the module's text."""

    def __init__(self, ctx: Context, delivery: Delivery, dht: Kademlia) -> None:
        super().__init__(ctx, delivery)
        self._dht = dht
        self._members: dict[Topic, Membership] = {}
        self._postponed: dict[Topic, None] = {}  # until this peer is in the network
        self._past = Past(ctx.config.dissemination)
        self.topics = TopicDht(ctx, dht, ctx.config.topic_dht)
        self.topics.operating.ended = self._on_role
        settings, roles = self.topics.settings, self.topics.roles
        self.linking = Linking(ctx, roles, self.topics.routing, settings)
        self.casting = Casting(ctx, delivery, roles, self._members, settings)
        self.mending = Mending(ctx, delivery, roles, self._members, self.casting, settings)
        self.beginning = Beginning(ctx, roles, dht.calls, self._begun)

    def handlers(self) -> Handlers:
        roles = {
            kind: self._then_settle(handle)
            for kind, handle in topic_dht.handlers(self.topics).items()
        }
        return {
            **roles,
            Cast: self.casting.on_cast,
            Payload: self.casting.on_payload,
            RouteEvent: self.casting.on_route_event,
            Beat: self.mending.on_beat,
            Offer: self.mending.on_offer,
            Want: self.mending.on_want,
            Repair: self.mending.on_repair,
            IHave: self.mending.on_ihave,
            SeenRequest: self._on_seen_request,
            SeenReply: self._dht.calls.on_reply,
            LinkList: lambda sender, message: None,  # links need not stand at both ends
        }

    def timers(self) -> Timers:
        return {
            **dict.fromkeys(topic_dht.TIMERS, self.topics.on_timer),
            ROUND: lambda timer: self.mending.on_round(timer.topic),
        }

    def _then_settle(
        self, handle: Callable[[Contact, Any], None]
    ) -> Callable[[Contact, Any], None]:
        """Messages about roles may change who is linked to whom."""

        def handled(sender: Contact, message: Any) -> None:
            handle(sender, message)
            member = self._members.get(getattr(message, "topic", GENERAL))
            if member is not None:
                self._settle(member)

        return handled

    # --- subscriptions ----------------------------------------------------------------------------

    @property
    def subscribed(self) -> list[Topic]:
        return [topic for topic, member in self._members.items() if member.subscribed]

    def is_subscribed(self, topic: Topic) -> bool:
        member = self._members.get(topic)
        return member is not None and member.subscribed

    def scheme_problem(self, topic: Topic, scheme: Scheme | None) -> str:
        """The scheme is the network's, not a subscription's: all members know who passes on."""
        why = super().scheme_problem(topic, scheme)
        return why and f"{why}: the setting protocol.topic_dht.scheme does, at all peers"

    def subscribe(self, token: int, topic: Topic, scheme: Scheme | None, hopeful: bool) -> None:
        ctx = self._ctx
        member = self._members.get(topic)
        if member is not None and member.subscribed:
            if member.tokens:
                member.tokens.append(token)
            else:
                ctx.out.append(Answer(token, "already"))
            return
        if member is None:
            most = ctx.config.dissemination.recent_events_max
            member = self._members[topic] = Membership(topic, self._past.recall(topic), most)
        member.subscribed = member.entering = True
        member.asking = False  # one who was about to leave has missed what came meanwhile
        member.tokens.append(token)
        ctx.trace(JOIN, {"topic": topic})
        if hopeful:
            self._postponed[topic] = None
        else:
            self._take_part(topic)

    def _take_part(self, topic: Topic) -> None:
        self.topics.subscribe([topic])
        role = self.topics.roles.by_topic.get(topic)
        if role is not None and not role.operation:  # it was about to be given up
            self._on_role(role)

    def unsubscribe(self, token: int, topic: Topic) -> None:
        ctx = self._ctx
        member = self._members.get(topic)
        if member is None or not member.subscribed:
            ctx.out.append(Answer(token, "already"))
            return
        member.subscribed = False
        self._answer(member, "left", None)
        ctx.trace(LEAVE, {"topic": topic})
        ctx.out.append(Answer(token, "left"))
        self._postponed.pop(topic, None)
        self.topics.unsubscribe([topic])
        if topic not in self.topics.roles.by_topic:
            self._drop(member)

    def _drop(self, member: Membership) -> None:
        """The role is given up, too."""
        if self._members.pop(member.topic, None) is not None:
            self.linking.unwatch(member)
            self._past.remember(member.topic, member.recent, self._ctx.now)

    def close(self) -> None:
        """Those it is linked to hear of it by the peer's goodbye, others by this."""
        for member in self._members.values():
            self._answer(member, "left", None)
            if member.subscribed:
                self._ctx.trace(LEAVE, {"topic": member.topic})
            forwarder = self.topics.roles.forwarding(member.topic)
            for entry in forwarder.neighbours()[:_TOLD_MAX] if forwarder is not None else ():
                if entry.contact.peer not in member.watched:
                    self._ctx.send(entry.contact, Vanished(member.topic))

    def _answer(self, member: Membership, outcome: Outcome, contact: Contact | None) -> None:
        for token in member.tokens:
            self._ctx.out.append(Answer(token, outcome, contact))
        member.tokens.clear()

    # --- roles and links --------------------------------------------------------------------------

    def _on_role(self, role: Role) -> None:
        """An operation of this peer's own has ended, perhaps with another role."""
        member = self._members.get(role.topic)
        if member is None:
            return
        if role.topic not in self.topics.roles.by_topic and not member.subscribed:
            self._drop(member)
            return
        self._settle(member)
        placed = role.forwarder is not None or role.child is not None
        if placed and member.entering and member.subscribed and not member.asking:
            member.asking = True
            self.beginning.begin(member)

    def _settle(self, member: Membership) -> None:
        """Choose links; what was lost with those before them is found over new ones."""
        came = self.linking.maintain(member)
        role = self.topics.roles.by_topic.get(member.topic)
        forwards = role is not None and role.forwarder is not None
        if role is not None and forwards and not member.forwards:
            self.linking.seek_all(member)
            if self.topics.settings.gossips:
                self.topics.sampling.fill_view(role)
        member.forwards = forwards
        if not member.entering:
            self.mending.beat(member, came, fresh=True)
            self._send_waiting(member)

    def _begun(self, member: Membership, contact: Contact | None) -> None:
        """The subscription stands."""
        member.asking = member.entering = False
        self._answer(member, "joined" if contact is not None else "instantiated", contact)
        self.mending.beat(member, list(self.mending.around(member).values()), fresh=True)
        self._send_waiting(member)

    def _send_waiting(self, member: Membership) -> None:
        unsent, member.unsent = member.unsent, []
        for event in unsent:
            self.casting.begin(member, event, 0, None)

    def _on_seen_request(self, sender: Contact, message: SeenRequest) -> None:
        self.beginning.on_request(sender, message, self._members.get(message.topic))

    # --- events -----------------------------------------------------------------------------------

    def publish(self, topic: Topic, event: Event, delivered: bool) -> bool:
        return self.casting.publish(topic, event, delivered)

    def find(self, topic: Topic, avoid: Iterable[PeerId] = ()) -> int:
        """Find a forwarder: the root of an event from outside, so at a random place."""
        number = self._ctx.next_serial()
        self._look_for(number, topic, tuple(avoid), _FIND_TIMES)
        return number

    def _look_for(self, number: int, topic: Topic, avoid: tuple[PeerId, ...], left: int) -> None:
        def found(entries: list[Entry]) -> None:
            contacts = [entry.contact for entry in entries if entry.contact.peer not in avoid]
            if contacts or left <= 1:
                self._ctx.tell(LookupDone(number, topic, tuple(contacts)))
            else:
                self._look_for(number, topic, avoid, left - 1)

        self.topics.routing.enter(topic, self.topics.sampling.random_target(topic), found)

    # --- time and losses --------------------------------------------------------------------------

    def start(self) -> None:
        self.topics.start()

    def on_entered(self) -> None:
        self.topics.look_around()
        postponed, self._postponed = self._postponed, {}
        for topic in postponed:
            self._take_part(topic)

    def on_peer_lost(self, peer: PeerId) -> None:
        near = [member for member in self._members.values() if peer in member.watched]
        for member in self._members.values():
            self.linking.lose(member, peer)
        self.topics.on_peer_lost(peer)
        for member in near:
            self._settle(member)

    def on_link_up(self, signal: LinkUp) -> bool:
        return self.is_subscribed(signal.topic)  # whoever is linked to is subscribed, too

    def run_cycle(self, cycle: int, due: Due) -> None:
        for member in list(self._members.values()):
            member.recent.purge(self._ctx.now)
            self._settle(member)
            self.mending.run_cycle(member)
            if member.subscribed:
                due(member.topic)

    # --- looking at it ----------------------------------------------------------------------------

    def members(self, topic: Topic) -> list[Contact]:
        member = self._members.get(topic)
        role = self.topics.roles.by_topic.get(topic)
        if member is None or role is None:
            return []
        known = self.mending.around(member)
        if role.child is not None:
            known.update((one.peer, one) for one in role.child.known())
        if role.forwarder is not None:
            known.update((one.contact.peer, one.contact) for one in role.forwarder.neighbours())
        return list(known.values())

    def alone(self, topic: Topic) -> bool:
        member = self._members.get(topic)
        return member is not None and not member.entering and not self.members(topic)

    def links(self) -> dict[Topic, list[PeerId]]:
        return {topic: list(member.watched) for topic, member in self._members.items()}

    def link_counts(self) -> dict[str, int]:
        linked = [peer for member in self._members.values() for peer in member.watched]
        return {**super().link_counts(), "logical": len(linked), "physical": len(set(linked))}

    def status(self) -> dict[str, object]:
        topics = {topic: self._status(member) for topic, member in self._members.items()}
        return {
            "links": self.link_counts(),
            "topic_dht": {"scheme": self.topics.settings.scheme, **self.topics.status()},
            "topics": {topic: topics[topic] for topic in self.subscribed},
            "routing": topics,
        }

    def _status(self, member: Membership) -> dict[str, object]:
        role = self.topics.roles.by_topic.get(member.topic)
        around = family(role) if role is not None else []
        forwards = role is not None and role.forwarder is not None
        names = [peer_text(one.peer) for one in around]
        others = [one for one in self._members.values() if one is not member]
        shared = [peer for peer in member.watched if any(peer in one.watched for one in others)]
        return {
            "scheme": self.topics.settings.scheme,
            "members_estimate": None,
            "logical_links": len(member.watched),
            "shared_links": len(shared),
            "subscribed": member.subscribed,
            "forwards": forwards,
            "parent": "" if forwards or not names else names[0],
            "children": names if forwards else [],
            "links": [peer_text(peer) for peer in member.linked()],
            "recent_events": len(member.recent),
        }
