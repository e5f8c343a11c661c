"""This peer becomes a forwarder of a topic, or stops being one; children go where they belong.

Children are never handed over: they are told to look for their closest forwarder again and join
it, as the paper's leave does (Lemma 4.4). Every operation that changes the set of forwarders comes
down to these two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.ids import Contact, PeerId
from weft.protocol.context import Context
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.table import Entry
from weft.protocol.messages_topic_dht import (
    ABORTED,
    Appeared,
    Forget,
    Rejoin,
    RoleReply,
    Vanished,
)
from weft.protocol.topic_dht.routing import FEW, Routing
from weft.protocol.topic_dht.space import TOPICS, location
from weft.protocol.topic_dht.state import Forwarder, Role
from weft.protocol.topic_dht.talking import Talking, after_all
from weft.rules import roles as rules

Then = Callable[[], None]
_TOLD_MAX = 64
"""guess: forwarders that are told of one that leaves; the others notice when they ask it."""


class Changing:
    """See the module's text."""

    def __init__(self, ctx: Context, dht: Kademlia, routing: Routing, talking: Talking) -> None:
        self._ctx = ctx
        self._dht = dht
        self._routing = routing
        self._talking = talking

    def become_forwarder(self, role: Role, gates: Sequence[Contact], then: Then) -> None:
        """Take up the location; `gates` are forwarders of the topic, none if there are none."""
        old, role.child = role.child, None
        place = self._dht.settle(TOPICS, role.topic, refreshed=False)
        role.forwarder = Forwarder(place)
        self._ctx.counters["topic_dht_promotions"] += 1
        self._routing.announce(place)
        own = place.table.own

        def found(entries: list[Entry]) -> None:
            near = rules.affected(own, [entry.key for entry in entries], TOPICS.bits)
            told = [entry.contact for entry in entries if entry.key in near]
            if old is not None and all(old.parent.peer != one.peer for one in told):
                self._talking.send(old.parent, Forget(role.topic))
            self.tell(role, told, then)

        if gates:
            self._routing.find(role.topic, own, found, self._ctx.config.dht.k, gates)
        else:
            then()

    def tell(self, role: Role, forwarders: Sequence[Contact], then: Then) -> None:
        """Tell forwarders around of this new one, and wait until they know."""
        answered = after_all(len(forwarders), then)
        for one in forwarders:
            self._talking.ask(one, lambda number: Appeared(number, role.topic), answered)

    def step_down(self, role: Role, heirs: Sequence[Contact], then: Then) -> None:
        """Give up the location and send the children to their closest forwarders."""
        forwarder, role.forwarder = role.forwarder, None
        if forwarder is None:
            then()
            return
        self._ctx.counters["topic_dht_demotions"] += 1
        self._dht.quit(TOPICS, role.topic)
        role.lock = None
        near = {one.peer: one for one in heirs}
        for entry in forwarder.neighbours():
            near.setdefault(entry.contact.peer, entry.contact)
        gates = list(near.values())
        for one in gates[:_TOLD_MAX]:
            self._talking.send(one, Vanished(role.topic))
        children = list(forwarder.children.values())
        answered = after_all(len(children), then)
        for child in children:
            self._send_on(role, child.contact, gates, answered)

    def make_room_for(self, role: Role, newcomer: Contact) -> None:
        """Send those children to a new forwarder that are closer to it."""
        forwarder = role.forwarder
        if forwarder is None:
            return
        forwarder.children.pop(newcomer.peer, None)
        forwarder.moving.pop(newcomer.peer, None)
        there = location(role.topic, newcomer.peer)
        own = forwarder.place.table.own
        for peer, child in list(forwarder.children.items()):
            if rules.is_closer(location(role.topic, peer), there, own):
                self._move(role, forwarder, child.contact, newcomer)

    def _move(self, role: Role, forwarder: Forwarder, child: Contact, to: Contact) -> None:
        peer = child.peer
        if peer in forwarder.moving:
            return
        forwarder.moving[peer] = None

        def answered(reply: RoleReply | None) -> None:
            if peer not in forwarder.moving:
                return  # it came back meanwhile, or went by itself
            del forwarder.moving[peer]
            if reply is None or reply.verdict != ABORTED:
                forwarder.children.pop(peer, None)

        self._send_on(role, child, [to], answered)

    def _send_on(
        self,
        role: Role,
        child: Contact,
        gates: Sequence[Contact],
        answered: Callable[[RoleReply | None], None],
    ) -> None:
        near = closest_first(role, child.peer, gates)[:FEW]
        self._talking.ask(child, lambda number: Rejoin(number, role.topic, near), answered)


def closest_first(role: Role, peer: PeerId, forwarders: Sequence[Contact]) -> list[Contact]:
    target = location(role.topic, peer)
    others = [one for one in forwarders if one.peer != peer]
    return sorted(others, key=lambda one: location(role.topic, one.peer) ^ target)
