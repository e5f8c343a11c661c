"""Algorithm 1: every period a child has its closest forwarder found, and hangs on it from then on.

If the last period brought an answer, the child asks one of the forwarders it knows to route on its
behalf; else it looks for itself. Whoever is found takes the child among its children and says so.

Deviations: a child tells its old parent that it has gone; a parent drops children it has not heard
of for some periods; a child stays with a parent that was confirmed in this period when somebody
farther away claims it, since that one was found by a lookup that missed the parent; and a child
takes the place of a parent that does more than its share (`rules/roles.py` `relieves`).
"""

from __future__ import annotations

from weft.ids import Contact
from weft.protocol.context import Context
from weft.protocol.kademlia.table import Entry
from weft.protocol.messages_topic_dht import (
    CHILDREN_MAX,
    Forget,
    IsChild,
    IsParent,
    RouteParent,
)
from weft.protocol.topic_dht.operating import Operating
from weft.protocol.topic_dht.routing import FEW, Routing
from weft.protocol.topic_dht.serving import Serving
from weft.protocol.topic_dht.settings import Settings
from weft.protocol.topic_dht.space import location
from weft.protocol.topic_dht.state import Child, Forwarder, Role, Roles
from weft.protocol.topic_dht.talking import Talking
from weft.rules import roles as rules
from weft.rules.draw import stream_of

_ROUTER = stream_of("topic_dht.router")


class Stabilising:
    """See the module's text."""

    def __init__(
        self,
        ctx: Context,
        roles: Roles,
        routing: Routing,
        talking: Talking,
        serving: Serving,
        operating: Operating,
        settings: Settings,
    ) -> None:
        self._ctx = ctx
        self._roles = roles
        self._routing = routing
        self._talking = talking
        self._serving = serving
        self._operating = operating
        self._settings = settings

    # --- every period -----------------------------------------------------------------------------

    def on_period(self, role: Role) -> None:
        settings, now = self._settings, self._ctx.now
        if role.operation and now - role.since_ms > 2 * settings.lease_ms:
            self._ctx.counters["topic_dht_given_up"] += 1
            self._operating.end(role, role.operation)
        if role.lock is not None and role.lock.until_ms <= now:
            role.lock = None
        if role.forwarder is not None:
            self._drop_silent(role.forwarder)
        if role.child is not None and role.wanted and not role.operation:
            self.seek_parent(role, role.child)
        else:
            self._operating.settle_down(role)

    def _drop_silent(self, forwarder: Forwarder) -> None:
        since = self._ctx.now - self._settings.silent_periods * self._settings.period_ms
        for peer, child in list(forwarder.children.items()):
            if child.heard_ms < since:
                del forwarder.children[peer]
                forwarder.moving.pop(peer, None)

    def seek_parent(self, role: Role, child: Child) -> None:
        if child.updated:
            child.updated = False
            router = self._ctx.pick(_ROUTER, child.known())
            self._talking.send(router, RouteParent(role.topic))
            return
        own = self._roles.own(role.topic)

        def found(entries: list[Entry]) -> None:
            if entries:
                self._talking.send(entries[0].contact, IsParent(role.topic, self._roles.me))
            else:
                self._routing.enter(role.topic, own, entered)

        def entered(entries: list[Entry]) -> None:
            if entries:
                self._talking.send(entries[0].contact, IsParent(role.topic, self._roles.me))
            elif role.child is child and self._is_lost(child):
                role.child = None
                self._operating.settle_down(role)

        self._routing.find(role.topic, own, found, FEW, child.known())

    def _is_lost(self, child: Child) -> bool:
        """Nobody has said for long to be this one's parent."""
        since = self._ctx.now - self._settings.silent_periods * self._settings.period_ms
        return child.confirmed_ms < since

    # --- messages ---------------------------------------------------------------------------------

    def on_route_parent(self, sender: Contact, message: RouteParent) -> None:
        forwarder = self._roles.forwarding(message.topic)
        if forwarder is None:
            return
        target = location(message.topic, sender.peer)
        own = forwarder.place.table.own

        def found(entries: list[Entry]) -> None:
            if entries and rules.is_closer(target, entries[0].key, own):
                self._talking.send(entries[0].contact, IsParent(message.topic, sender))
            else:
                self._adopt(IsParent(message.topic, sender))

        self._routing.find(message.topic, target, found)

    def on_is_parent(self, sender: Contact, message: IsParent) -> None:
        self._adopt(message)

    def _adopt(self, message: IsParent) -> None:
        role, child = self._roles.by_topic.get(message.topic), message.child
        forwarder = role.forwarder if role is not None else None
        if role is None or forwarder is None or child.peer == self._roles.me.peer:
            return
        if child.peer not in forwarder.children and len(forwarder.children) >= CHILDREN_MAX:
            return
        self._serving.adopt(forwarder, child)
        gates, load = self._serving.gates(forwarder), self._roles.load(message.topic)
        told = IsChild(message.topic, gates, load.topics, load.children, load.work)
        self._talking.send(child, told)
        self._operating.settle_down(role)

    def on_is_child(self, sender: Contact, message: IsChild) -> None:
        role = self._roles.by_topic.get(message.topic)
        child = role.child if role is not None else None
        if role is None or child is None or not role.wanted:
            if role is None or not role.operation:
                self._talking.send(sender, Forget(message.topic))
            return
        child.updated = True
        own = self._roles.own(message.topic)
        here = location(message.topic, child.parent.peer)
        there = location(message.topic, sender.peer)
        fresh = self._ctx.now - child.confirmed_ms < self._settings.period_ms
        if fresh and rules.is_closer(own, here, there):
            self._talking.send(sender, Forget(message.topic))
        else:
            self._operating.become_child(role, sender, message.forwarders)
            self._relieve(role, sender, message)

    def _relieve(self, role: Role, parent: Contact, message: IsChild) -> None:
        """Take over from a parent that does more than its share; one at a time, since each counts
        in the next."""
        if any(one.operation for one in self._roles.by_topic.values()):
            return
        theirs = rules.Load(0, message.topics, message.children, message.work)
        if rules.relieves(self._roles.load(), theirs):
            self._ctx.counters["topic_dht_reliefs"] += 1
            self._operating.replace(role, parent)
