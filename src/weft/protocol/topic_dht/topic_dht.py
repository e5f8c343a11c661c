"""The topic-aware DHT as the routing of a peer: all its layers put together.

`TopicDht` is the DHT by itself, which makes each subscriber a forwarder or a child (`roles.py`, and
the layers that change roles): the simulator plays it alone, too. `TopicRouting` adds events
(`events.py`) and is what a peer asks of its routing (`protocol/routing.py`). A peer outside of a
topic hands an event to the forwarder closest to a random place, which becomes its root.

Messages about roles go to the layer that handles them, and then links are chosen anew, since a
message may have changed the forwarders that a member knows. A peer that routes otherwise answers
questions by saying that it is in no topic (`refusals`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, Union

from weft.documents.run import Proven
from weft.ids import GENERAL, Contact, PeerId, Topic, peer_text
from weft.protocol.context import Context, Handlers, LinkUp, LookupDone, Timers
from weft.protocol.delivery import Delivery, note_parasite
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.table import Entry
from weft.protocol.liveness import LinkList
from weft.protocol.publication import RouteCheck, RouteEvent
from weft.protocol.quota import Quota
from weft.protocol.recent import IHave, Offer, Recent, Repair, Want
from weft.protocol.routing import Due, Routing
from weft.protocol.seam import Scheme, Timer
from weft.protocol.topic_dht.events import (
    ROUND,
    Beat,
    Cast,
    Events,
    Membership,
    SeenReply,
    SeenRequest,
)
from weft.protocol.topic_dht.operations import RETRY, Ended, Initiator, Responder
from weft.protocol.topic_dht.roles import (
    ABSENT,
    Appeared,
    Forget,
    Invite,
    Rejoin,
    Role,
    RoleDone,
    RoleReply,
    RoleRequest,
    Roles,
    Vanished,
)
from weft.protocol.topic_dht.search import Lookup
from weft.protocol.topic_dht.upkeep import IsChild, IsParent, RouteParent, Samples, Stabilisation
from weft.protocol.wire import Payload
from weft.rules.draw import below, stream_of

# --- messages -------------------------------------------------------------------------------------

RoleMessage: TypeAlias = Union[
    RoleRequest,
    RoleDone,
    Invite,
    Appeared,
    Vanished,
    Rejoin,
    Forget,
    RouteParent,
    IsParent,
    IsChild,
]
TopicDhtMessage: TypeAlias = Union[RoleMessage, RoleReply, Cast, SeenRequest, SeenReply, Beat]

# --- timers ---------------------------------------------------------------------------------------

PERIOD = "topic_dht.period"
LOOK_AROUND = "topic_dht.look_around"

# --- state ----------------------------------------------------------------------------------------

_PHASE = stream_of("topic_dht.phase")
_ENTER_MS = 500
"""guess: between knowing the first neighbour and taking a place in the lobby."""
_STRANGERS_MS = 60_000
"""guess: how long a publisher is content with the members that it has met among strangers; those
are asked about later events as well."""
_FIND_TIMES = 2
"""guess: lookups before a topic is taken to have no subscriber, since one may go astray. A lookup
for other forwarders than those known already is made once, since there may be none."""


class TopicDht:
    """The topic-aware DHT of one peer by itself. `ended` is told when an operation has ended."""

    def __init__(self, ctx: Context, dht: Kademlia, ended: Ended) -> None:
        self._ctx = ctx
        self.roles = roles = Roles(ctx.me, dht, ctx.config.topic_dht)
        self.lookup = lookup = Lookup(ctx, dht, roles)
        self.initiator = Initiator(ctx, dht, roles, lookup, ended)
        self._responder = Responder(ctx, dht, roles, lookup, self.initiator)
        self._stabilisation = Stabilisation(ctx, dht, roles, lookup, self.initiator)
        self.samples = Samples(ctx, dht, roles, lookup)
        self.config = ctx.config.topic_dht
        self._periods = 0

    def handlers(self) -> Handlers:
        """Where the messages about roles go (`RoleMessage`)."""
        return {
            RoleRequest: self._responder.on_request,
            RoleDone: self._responder.on_done,
            Appeared: self._responder.on_appeared,
            Vanished: self._responder.on_vanished,
            Forget: self._responder.on_forget,
            Invite: self.initiator.on_invite,
            Rejoin: self.initiator.on_rejoin,
            RouteParent: self._stabilisation.on_route_parent,
            IsParent: self._stabilisation.on_is_parent,
            IsChild: self._stabilisation.on_is_child,
        }

    def timers(self) -> Timers:
        return {
            RETRY: lambda timer: self.initiator.on_retry(timer.topic, timer.serial),
            PERIOD: self._on_period,
            LOOK_AROUND: lambda timer: self.lookup.announce_lobby(),
        }

    def start(self) -> None:
        phase = below(self._ctx.bits(_PHASE), self.config.period_ms) + 1
        self._ctx.set_timer(phase, PERIOD, GENERAL)
        self._ctx.set_timer(below(self._ctx.bits(_PHASE), _ENTER_MS) + 1, LOOK_AROUND, GENERAL)

    def on_peer_lost(self, peer: PeerId) -> None:
        self._stabilisation.on_peer_lost(peer)

    def _on_period(self, timer: Timer) -> None:
        self._ctx.set_timer(self.config.period_ms, PERIOD, GENERAL)
        self._periods += 1
        for role in list(self.roles.by_topic.values()):
            self._stabilisation.on_period(role)
            self.samples.on_period(role)
            self.lookup.refresh(role, self._periods)
        self.lookup.refresh_lobby(self._periods)

    def status(self) -> dict[str, object]:
        load = self.roles.load()
        children = [
            len(role.forwarder.children)
            for role in self.roles.by_topic.values()
            if role.forwarder is not None
        ]
        return {
            "topics": load.topics,
            "locations": load.locations,
            "children": sum(children),
            "children_most": max(children, default=0),
        }


class TopicRouting(Routing):
    """The topic-aware DHT, and events over it."""

    def __init__(self, ctx: Context, delivery: Delivery, dht: Kademlia) -> None:
        super().__init__(ctx, delivery)
        self._dht = dht
        self.config = ctx.config.topic_dht
        self.topics = topics = TopicDht(ctx, dht, self._on_role)
        self._role_handlers = topics.handlers()
        self._roles = topics.roles
        self.events = Events(ctx, delivery, dht, self._roles, topics.lookup, topics.samples)
        self._members = self.events.members
        self._strangers: Quota[Topic] = Quota(1, _STRANGERS_MS)

    def handlers(self) -> Handlers:
        events = self.events
        return {
            **dict.fromkeys(self._role_handlers, self._on_role_message),
            RoleReply: self._dht.calls.on_reply,
            Cast: events.on_cast,
            Payload: events.on_payload,
            RouteEvent: events.on_route_event,
            RouteCheck: events.on_route_check,
            Beat: events.on_beat,
            Offer: events.on_offer,
            Want: events.on_want,
            Repair: events.on_repair,
            IHave: events.on_ihave,
            SeenRequest: events.on_seen_request,
            SeenReply: self._dht.calls.on_reply,
            LinkList: _ignore,  # links need not stand at both ends
        }

    def timers(self) -> Timers:
        return {
            **self.topics.timers(),
            ROUND: lambda timer: self.events.on_round(timer.topic),
        }

    def _on_role_message(self, sender: Contact, message: RoleMessage) -> None:
        self._role_handlers[type(message)](sender, message)
        member = self._members.get(message.topic)
        if member is not None:
            self.events.settle(member)

    def _on_role(self, role: Role) -> None:
        self.events.on_role(role)

    # --- subscriptions ----------------------------------------------------------------------------

    @property
    def subscribed(self) -> list[Topic]:
        return self._members.subscribed

    def is_subscribed(self, topic: Topic) -> bool:
        return self._members.is_subscribed(topic)

    def scheme_problem(self, topic: Topic, scheme: Scheme | None) -> str:
        """The scheme is the network's, not a subscription's: all members know which of them pass
        events on."""
        why = super().scheme_problem(topic, scheme)
        return why and f"{why}: the setting protocol.topic_dht.scheme does, at all peers"

    def subscribe(self, token: int, topic: Topic, scheme: Scheme | None, hopeful: bool) -> None:
        member = self._members.subscribe(token, topic)
        if member is None:
            return
        if hopeful:
            self._members.postpone(member)
        else:
            self._take_part(topic)

    def _take_part(self, topic: Topic) -> None:
        self.topics.initiator.subscribe([topic])
        role = self._roles.by_topic.get(topic)
        if role is not None and not role.operation:  # the role was about to be given up
            self.events.on_role(role)

    def unsubscribe(self, token: int, topic: Topic) -> None:
        member = self._members.unsubscribe(token, topic)
        if member is not None:
            self.topics.initiator.unsubscribe([topic])
            if topic not in self._roles.by_topic:
                self.events.drop(member)

    def close(self) -> None:
        self.events.close()

    # --- events -----------------------------------------------------------------------------------

    def publish(self, topic: Topic, proven: Proven, delivered: bool) -> bool:
        return self.events.publish(topic, proven, delivered)

    def find(self, topic: Topic, avoid: Iterable[PeerId] = ()) -> int:
        """Find a forwarder: the root of an event from outside, so at a random place. Where others
        are sought beside those to `avoid`, and no forwarder is left, other members do as well: all
        forwarders may lie."""
        number = self._ctx.next_serial()
        self._look_for(number, topic, tuple(avoid), _FIND_TIMES)
        return number

    def _look_for(self, number: int, topic: Topic, avoid: Sequence[PeerId], left: int) -> None:
        def met(members: list[Contact]) -> None:
            others = [member for member in members if member.peer not in avoid]
            self._ctx.tell(LookupDone(number, topic, tuple(others)))

        def found(entries: list[Entry]) -> None:
            contacts = [entry.contact for entry in entries if entry.contact.peer not in avoid]
            if avoid and not contacts and self._may_ask_strangers(topic):
                self.topics.lookup.find_members(topic, met)
            elif contacts or avoid or left <= 1:
                self._ctx.tell(LookupDone(number, topic, tuple(contacts)))
            else:
                self._look_for(number, topic, avoid, left - 1)

        target = self.topics.samples.random_target(topic)
        self.topics.lookup.enter(topic, target, found, avoid)

    def _may_ask_strangers(self, topic: Topic) -> bool:
        access = self._ctx.config.defence.access
        return access and self._strangers.takes(topic, self._ctx.now)

    def provides(self, key: bytes) -> bool:
        """Whether a lookup that asks for members of a topic has found one."""
        member = self._members.with_key(key)
        return member is not None and member.subscribed and not member.entering

    # --- time and losses --------------------------------------------------------------------------

    def start(self) -> None:
        self.topics.start()

    def on_entered(self) -> None:
        self.topics.lookup.look_around()
        for member in self._members.resume():
            self._take_part(member.topic)

    def on_peer_lost(self, peer: PeerId) -> None:
        near = [one for one in self._members.by_topic.values() if peer in one.watched]
        for role in self._roles.by_topic.values():
            role.lose(peer)
        self.topics.on_peer_lost(peer)
        for member in near:
            self.events.settle(member)

    def on_link_up(self, signal: LinkUp) -> bool:
        return self.is_subscribed(signal.topic)  # a linked peer is subscribed, too

    def run_cycle(self, cycle: int, due: Due) -> None:
        self.events.run_cycle(due)

    # --- looking at it ----------------------------------------------------------------------------

    def members(self, topic: Topic) -> list[Contact]:
        member = self._members.get(topic)
        role = self._roles.by_topic.get(topic)
        if member is None or role is None:
            return []
        known = self.events.around(member)
        if role.child is not None:
            known.update((one.peer, one) for one in role.child.known())
        if role.forwarder is not None:
            known.update((one.contact.peer, one.contact) for one in role.forwarder.neighbours())
        return list(known.values())

    def recent(self, topic: Topic) -> Recent | None:
        part = self._members.get(topic)
        return part.recent if part is not None else None

    def alone(self, topic: Topic) -> bool:
        member = self._members.get(topic)
        return member is not None and not member.entering and not self.members(topic)

    def links(self) -> dict[Topic, list[PeerId]]:
        return {topic: list(one.watched) for topic, one in self._members.by_topic.items()}

    def link_counts(self) -> dict[str, int]:
        linked = [peer for peers in self.links().values() for peer in peers]
        return {**super().link_counts(), "logical": len(linked), "physical": len(set(linked))}

    def status(self) -> dict[str, object]:
        topics = {topic: self._status(one) for topic, one in self._members.by_topic.items()}
        return {
            "links": self.link_counts(),
            "topic_dht": {"scheme": self.config.scheme, **self.topics.status()},
            "topics": {topic: topics[topic] for topic in self.subscribed},
            "routing": topics,
        }

    def _status(self, member: Membership) -> dict[str, object]:
        role = self._roles.by_topic.get(member.topic)
        forwards = role is not None and role.forwarder is not None
        names = [peer_text(one.peer) for one in role.family()] if role is not None else []
        others = [one for one in self._members.by_topic.values() if one is not member]
        shared = [peer for peer in member.watched if any(peer in one.watched for one in others)]
        return {
            "scheme": self.config.scheme,
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


# --- peers that route otherwise -------------------------------------------------------------------


def refusals(ctx: Context) -> Handlers:
    """Handlers of a peer that routes otherwise: it says that it is in no topic."""

    def absent(sender: Contact, message: RoleRequest | Appeared | Rejoin) -> None:
        ctx.send(sender, RoleReply(message.request, ABSENT))

    def vanished(sender: Contact, message: RouteParent | Beat | Cast) -> None:
        ctx.send(sender, Vanished(message.topic))

    def parasite(sender: Contact, message: Cast) -> None:
        ctx.counters["not_subscribed"] += 1
        note_parasite(ctx, message.topic, message.run, sender.peer)
        vanished(sender, message)

    def forget(sender: Contact, message: IsChild) -> None:
        ctx.send(sender, Forget(message.topic))

    def unseen(sender: Contact, message: SeenRequest) -> None:
        ctx.send(sender, SeenReply(message.request, False))

    ignored = (RoleReply, RoleDone, Invite, Vanished, Forget, IsParent, SeenReply)
    return {
        **dict.fromkeys(ignored, _ignore),
        **dict.fromkeys((RoleRequest, Appeared, Rejoin), absent),
        **dict.fromkeys((RouteParent, Beat), vanished),
        IsChild: forget,
        Cast: parasite,
        SeenRequest: unseen,
    }


def _ignore(sender: Contact, message: object) -> None:
    """An answer to what this peer never asked, or news that it has no use for."""
