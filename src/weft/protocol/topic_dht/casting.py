"""How events spread in a topic: the four schemes (Baehni and others, Sections 5.1, 5.2 and 6).

*TreeCast*: who publishes is the root of a tree over the forwarders, and puts other forwarders in
charge of parts of it (`rules/treecast.py`). *Gossip*: who gets an event for the first time tells
some members of its view (`rules/treecast.py`). In the full schemes every subscriber is a
forwarder; in the others a forwarder hands each event to its children, and a child that publishes
hands its event to its parent. So a tree takes N−1 payload messages for N subscribers, however it
is rooted, and one more if the publisher is none of them.

With more than one root, an event goes out by as many trees at once; each is passed on by itself,
and applications are handed the event once. f lost roots of f + 1 lose nothing, since each is a leaf
of the other trees (`treecast.delegates`). Other members may be inside of all trees, which the paper
overlooks: who is below a lost one in all of them is served by `mending.py`.

Deviation: a receiver that does not forward any more hands its charge to its parent, if that one
lies in it; if not, nobody does.
"""

from __future__ import annotations

from weft.ids import Contact, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.delivery import DUPLICATE_MESSAGE, Delivery, note_parasite, trace_event
from weft.protocol.messages_topic_dht import Cast, Forget, Vanished
from weft.protocol.publishing import RouteEvent, RouteResult
from weft.protocol.topic_dht.linking import size_estimate, sound
from weft.protocol.topic_dht.membership import Membership
from weft.protocol.topic_dht.settings import Settings
from weft.protocol.topic_dht.space import location, position
from weft.protocol.topic_dht.state import Forwarder, Role, Roles
from weft.protocol.wire import HOPS_MAX, Event, Payload
from weft.rules import treecast
from weft.rules.draw import stream_of
from weft.rules.prefix import BITS

ROUND = "topic_dht.round"
"""The timer of the calls that follow a push (`mending.py`)."""
_DELEGATE = stream_of("topic_dht.delegate")
_ROOTS = stream_of("topic_dht.roots")
_PARTNERS = stream_of("topic_dht.partners")


class Casting:
    """The events of one peer's topics."""

    def __init__(
        self,
        ctx: Context,
        delivery: Delivery,
        roles: Roles,
        members: dict[Topic, Membership],
        settings: Settings,
    ) -> None:
        self._ctx = ctx
        self._delivery = delivery
        self._roles = roles
        self._members = members
        self._settings = settings

    # --- events come in ---------------------------------------------------------------------------

    def publish(self, topic: Topic, event: Event, delivered: bool) -> bool:
        """Spread an event of this peer's own, if it is subscribed."""
        member = self._members.get(topic)
        if member is None or not member.subscribed:
            return False
        if member.recent.admit(event, 0, None, self._ctx.now):
            if not delivered:
                self._delivery.deliver(topic, event, 0, None)
            self.begin(member, event, 0, None)
        return True

    def on_cast(self, sender: Contact, message: Cast) -> None:
        member = self._received(sender, message)
        if member is None:
            return
        event, hops = message.event, min(message.hops, HOPS_MAX - 1)  # room for one more hop
        self._take_in(member, event, hops, sender)
        if member.recent.has_seen(event):
            role = self._roles.by_topic.get(message.topic)
            self._cast(member, role, message, hops, sender.peer)

    def on_payload(self, sender: Contact, message: Payload) -> None:
        """From a parent, or from somebody who gossips."""
        member = self._received(sender, message)
        if member is None:
            return
        event, hops = message.event, min(message.hops, HOPS_MAX - 1)
        if self._take_in(member, event, hops, sender):
            forwarder = self._roles.forwarding(message.topic)
            if forwarder is not None:
                if self._settings.gossips:
                    self._gossip(member, forwarder, event, hops, sender.peer)
                self._hand_down(forwarder, event, hops, sender.peer)

    def on_route_event(self, sender: Contact, message: RouteEvent) -> None:
        """Somebody outside hands an event to the topic."""
        event = message.event
        self._ctx.counters["routed_received"] += 1
        member = self._members.get(message.topic)
        taken = False
        if member is not None and member.subscribed and not member.entering and not message.again:
            if self._take_in(member, event, 1, sender):
                self.begin(member, event, 1, sender.peer)
            taken = member.recent.has_seen(event)
        result = RouteResult(message.topic, event.incarnation, event.number, taken)
        self._ctx.send(sender, result)

    def _received(self, sender: Contact, message: Cast | Payload) -> Membership | None:
        """The membership a message is about, or None after refusing it."""
        ctx = self._ctx
        ctx.counters["payloads_received"] += 1
        member = self._members.get(message.topic)
        if member is None:
            ctx.counters["not_subscribed"] += 1
            note_parasite(ctx, message.topic, message.event, sender.peer)
            ctx.send(sender, Vanished(message.topic))
            ctx.send(sender, Forget(message.topic))
        return member

    def _take_in(self, member: Membership, event: Event, hops: int, sender: Contact) -> bool:
        ctx, topic, source = self._ctx, member.topic, sender.peer
        if self._delivery.take_in(
            topic, member.recent, event, hops, source, sender, member.subscribed
        ):
            return True
        ctx.counters["duplicates"] += 1
        trace_event(ctx, DUPLICATE_MESSAGE, topic, event, source, hops)
        return False

    # --- and go on --------------------------------------------------------------------------------

    def begin(self, member: Membership, event: Event, hops: int, source: PeerId | None) -> None:
        """An event enters the topic here."""
        role = self._roles.by_topic.get(member.topic)
        if role is None or (role.forwarder is None and role.child is None):
            member.wait_with(event)
        elif self._settings.gossips:
            if role.forwarder is not None:
                self._gossip(member, role.forwarder, event, hops, source)
                self._hand_down(role.forwarder, event, hops, source)
            elif role.child is not None:
                self._ctx.send(role.child.parent, Payload(member.topic, event, hops + 1))
        else:
            self._root(member, role, event, hops, source)

    def _root(
        self, member: Membership, role: Role, event: Event, hops: int, source: PeerId | None
    ) -> None:
        """Cast an event from here; with several roots, have others cast it as well."""
        others = self._other_roots(member, role)
        names: list[PeerId] = []
        if others:
            first = role.child.parent if role.child is not None else self._ctx.me
            names = [first.peer, *(one.peer for one in others)]
        for tree, root in enumerate(others, 1):
            cast = Cast(member.topic, event, hops + 1, treecast.ROOT_CHARGE, tree, names)
            self._ctx.send(root, cast)
        own = Cast(member.topic, event, hops, treecast.ROOT_CHARGE, 0, names)
        self._cast(member, role, own, hops, source)

    def _other_roots(self, member: Membership, role: Role) -> list[Contact]:
        count = self._settings.roots - 1
        if not count:
            return []
        if role.forwarder is not None:
            contacts = [entry.contact for entry in sound(role.forwarder)]
        else:
            contacts = role.child.known()[1:] if role.child is not None else []
        known = {position(location(member.topic, one.peer)): one for one in contacts}
        key = self._ctx.next_key(_ROOTS)
        return [known[one] for one in treecast.other_roots(list(known), count, key, BITS)]

    def _cast(
        self,
        member: Membership,
        role: Role | None,
        message: Cast,
        hops: int,
        source: PeerId | None,
    ) -> None:
        """Pass an event on to all members that this one is in charge of."""
        topic, event = message.topic, message.event
        new, first = member.serve(event, message.tree)
        if role is None or not new:
            return
        forwarder, child = role.forwarder, role.child
        if forwarder is not None:
            for to, charge in self._delegates(member, forwarder, message):
                onward = Cast(topic, event, hops + 1, charge, message.tree, message.roots)
                self._ctx.send(to, onward)
            if first:
                self._hand_down(forwarder, event, hops, source)
        elif child is not None and child.parent.peer != source:
            own = position(self._roles.own(topic))
            there = position(location(topic, child.parent.peer))
            if treecast.is_in_charge(own, message.charge, there, BITS):
                up = Cast(topic, event, hops + 1, message.charge, message.tree, message.roots)
                self._ctx.send(child.parent, up)

    def _delegates(
        self, member: Membership, forwarder: Forwarder, message: Cast
    ) -> list[tuple[Contact, int]]:
        own, key = position(forwarder.place.table.own), self._ctx.next_key(_DELEGATE)
        links = {level: list(there) for level, there in member.links.items()}
        roots = [position(location(member.topic, peer)) for peer in message.roots]
        chosen = treecast.delegates(own, message.charge, links, key, BITS, roots)
        return [(member.links[charge - 1][place], charge) for place, charge in chosen]

    def _hand_down(
        self, forwarder: Forwarder, event: Event, hops: int, source: PeerId | None
    ) -> None:
        """To the children, who pass nothing on."""
        message = Payload(forwarder.place.role, event, hops + 1)
        for peer, child in forwarder.children.items():
            if peer not in (source, event.publisher):
                self._ctx.send(child.contact, message)

    def _gossip(
        self,
        member: Membership,
        forwarder: Forwarder,
        event: Event,
        hops: int,
        source: PeerId | None,
    ) -> None:
        view = self.partners(member.topic, forwarder)
        members = size_estimate(forwarder, self._ctx.config.dht.k)
        count = treecast.fanout(members, self._settings.gossip_mode)
        without = [one for one in view if one in (source, event.publisher)]
        key = self._ctx.next_key(_PARTNERS)
        for peer in treecast.partners(list(view), count, key, without):
            self._ctx.send(view[peer], Payload(member.topic, event, hops + 1))
        if self._settings.gossip_mode == "push-pull":
            if not member.rounds_left:
                self._ctx.set_timer(self._settings.gossip_round_ms, ROUND, member.topic)
            member.rounds_left = treecast.pull_rounds(members)

    def partners(self, topic: Topic, forwarder: Forwarder) -> dict[PeerId, Contact]:
        """With whom a forwarder gossips: its view, or before it has one whom it knows."""
        role = self._roles.by_topic.get(topic)
        if role is not None and role.view:
            return role.view
        return {entry.contact.peer: entry.contact for entry in sound(forwarder)}
