"""Algorithm 1 (Baehni and others 2004, Section 4.4): every period a child has its closest forwarder
found, and hangs on it from then on.

If the last period brought an answer, the child asks one of the forwarders it knows to route on its
behalf (`RouteParent`); else it looks for itself. The forwarder that is found (`IsParent`) takes the
child among its children and says so (`IsChild`).

So after a finite number of periods without further changes every child is at its closest forwarder,
whatever state it began in: an operation that is not over after two leases is given up, a lock ends
with its lease, and a child that was not confirmed for some periods and finds no forwarder enters
anew.

Deviations: a child tells its old parent that it has gone; a parent drops children it has not heard
of for some periods; a child stays with a parent that was confirmed in this period when a forwarder
farther away claims it, since that one was found by a lookup that missed the parent; and a child
takes the place of a parent that does more than its share (`rules/roles.py` `relieves`).
"""

from __future__ import annotations

from weft.ids import Contact, PeerId, WireTopic
from weft.protocol.context import Context
from weft.protocol.kademlia.table import Entry
from weft.protocol.topic_dht.initiator import Initiator
from weft.protocol.topic_dht.lookup import Exchange, Lookup
from weft.protocol.topic_dht.roles import (
    CHILDREN_MAX,
    Child,
    Config,
    Contacts,
    Count,
    Forget,
    Role,
    Roles,
    location,
)
from weft.protocol.wire import Message
from weft.rules import roles as rules
from weft.rules.draw import stream_of

# --- messages -------------------------------------------------------------------------------------


class RouteParent(Message, frozen=True, tag=88):
    """Find the sender's closest forwarder."""

    topic: WireTopic


class IsParent(Message, frozen=True, tag=89):
    """You were found to be the closest forwarder to `child`."""

    topic: WireTopic
    child: Contact


class IsChild(Message, frozen=True, tag=90):
    """The sender has the receiver among its children."""

    topic: WireTopic
    forwarders: Contacts = []
    topics: Count = 0  # |T_q| of the sender
    children: Count = 0  # |C_q|
    work: Count = 0  # subscribers that the sender serves, in all topics


# --- state ----------------------------------------------------------------------------------------

_ROUTER = stream_of("topic_dht.router")


class Stabilisation:
    """Algorithm 1 of one peer, as a child and as a forwarder; it has no state of its own."""

    def __init__(
        self,
        ctx: Context,
        roles: Roles,
        lookup: Lookup,
        exchange: Exchange,
        initiator: Initiator,
        config: Config,
    ) -> None:
        self._ctx = ctx
        self._roles = roles
        self._lookup = lookup
        self._exchange = exchange
        self._initiator = initiator
        self._config = config

    # --- every period, and when a parent is lost --------------------------------------------------

    def on_period(self, role: Role) -> None:
        now = self._ctx.now
        if role.operation and now - role.since_ms > 2 * self._config.lease_ms:
            self._ctx.counters["topic_dht_given_up"] += 1
            self._initiator.end(role, role.operation)
        role.expire(now)
        if role.forwarder is not None:
            role.forwarder.release_silent(now - self._config.silence_ms)
        child = role.child
        if child is None or not role.wanted or role.operation:
            self._initiator.settle_down(role)
        elif child.next_round():
            router = self._ctx.pick(_ROUTER, child.known())
            self._exchange.send(router, RouteParent(role.topic))
        else:
            self._seek_parent(role, child)

    def on_peer_lost(self, peer: PeerId) -> None:
        """A child whose parent cannot be reached looks for another one at once."""
        for role in list(self._roles.by_topic.values()):
            child = role.child
            if child is not None and child.parent.peer == peer and not role.operation:
                child.next_round()
                self._seek_parent(role, child)

    # --- messages ---------------------------------------------------------------------------------

    def on_route_parent(self, sender: Contact, message: RouteParent) -> None:
        forwarder = self._roles.forwarding(message.topic)
        if forwarder is None:
            return
        target = location(message.topic, sender.peer)
        own = forwarder.place.table.own

        def found(entries: list[Entry]) -> None:
            told = IsParent(message.topic, sender)
            if entries and rules.is_closer(target, entries[0].key, own):
                self._exchange.send(entries[0].contact, told)
            else:
                self._adopt(told)

        self._lookup.find(message.topic, target, found)

    def on_is_parent(self, sender: Contact, message: IsParent) -> None:
        self._adopt(message)

    def on_is_child(self, sender: Contact, message: IsChild) -> None:
        role = self._roles.by_topic.get(message.topic)
        child = role.child if role is not None else None
        if role is None or child is None or not role.wanted:
            if role is None or not role.operation:
                self._exchange.send(sender, Forget(message.topic))
            return
        child.answered()
        fresh = self._ctx.now - child.confirmed_ms < self._config.period_ms
        if fresh and self._roles.is_closer(message.topic, child.parent.peer, sender.peer):
            self._exchange.send(sender, Forget(message.topic))
        else:
            self._initiator.become_child(role, sender, message.forwarders)
            self._relieve(role, sender, message)

    # --- finding a parent, being one, taking its place --------------------------------------------

    def _seek_parent(self, role: Role, child: Child) -> None:
        def found(entries: list[Entry]) -> None:
            if entries:
                self._exchange.send(entries[0].contact, IsParent(role.topic, self._roles.me))
            elif role.child is child and self._is_lost(child):
                role.orphan()
                self._initiator.settle_down(role)

        self._lookup.find_closest(role.topic, found, child.known())

    def _is_lost(self, child: Child) -> bool:
        """No forwarder has said for long to be this one's parent."""
        return child.confirmed_ms < self._ctx.now - self._config.silence_ms

    def _adopt(self, message: IsParent) -> None:
        role, child = self._roles.by_topic.get(message.topic), message.child
        forwarder = role.forwarder if role is not None else None
        if role is None or forwarder is None or child.peer == self._roles.me.peer:
            return
        if child.peer not in forwarder.children and len(forwarder.children) >= CHILDREN_MAX:
            return
        forwarder.adopt(child, self._ctx.now)
        gates = forwarder.gates(self._config.alternatives_max)
        load = self._roles.load(message.topic)
        told = IsChild(message.topic, gates, load.topics, load.children, load.work)
        self._exchange.send(child, told)
        self._initiator.settle_down(role)

    def _relieve(self, role: Role, parent: Contact, message: IsChild) -> None:
        """Take over from a parent that does more than its share; one at a time, since each counts
        in the next."""
        if any(one.operation for one in self._roles.by_topic.values()):
            return
        theirs = rules.Load(0, message.topics, message.children, message.work)
        if rules.relieves(self._roles.load(), theirs):
            self._ctx.counters["topic_dht_reliefs"] += 1
            self._initiator.replace(role, parent)
