"""Others' operations: this peer is the q of op(p, q, t) (Sections 4.2 and 4.3).

An operation whose assumption does not hold is aborted at once, and a join is accepted or aborted
at once. What takes several steps is accepted only while nothing else is under way in the topic,
and locks it until the initiator says that it is through, or the lease ends.

Deviation: the paper has operations wait for those before them; here the initiator is told that
this peer is busy and tries again, so that nothing waits for somebody who has crashed.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ids import Contact, Topic
from weft.protocol.context import Context
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.messages_topic_dht import (
    ABORTED,
    ABSENT,
    ACCEPTED,
    BUSY,
    CHILDREN_MAX,
    JOIN,
    LOOK,
    MAKECHILD,
    REPLACE,
    SEAT,
    SPLIT,
    Appeared,
    Forget,
    RoleDone,
    RoleReply,
    RoleRequest,
    Vanished,
)
from weft.protocol.topic_dht.changing import Changing
from weft.protocol.topic_dht.settings import Settings
from weft.protocol.topic_dht.space import TOPICS, location
from weft.protocol.topic_dht.state import ChildEntry, Forwarder, Lock, Role, Roles
from weft.protocol.topic_dht.talking import Talking
from weft.rules import roles as rules


class Serving:
    """See the module's text. `changed` is told when a role may have something to do;
    `give_way` when a peer has taken this one's place."""

    def __init__(
        self,
        ctx: Context,
        dht: Kademlia,
        roles: Roles,
        talking: Talking,
        changing: Changing,
        settings: Settings,
        changed: Callable[[Role], None],
        give_way: Callable[[Role, Contact], None],
    ) -> None:
        self._ctx = ctx
        self._dht = dht
        self._roles = roles
        self._talking = talking
        self._changing = changing
        self._settings = settings
        self._changed = changed
        self._give_way = give_way

    # --- requests ---------------------------------------------------------------------------------

    def on_request(self, sender: Contact, message: RoleRequest) -> None:
        role = self._roles.by_topic.get(message.topic)
        if role is None or role.forwarder is None:
            self._answer(sender, message, ABSENT)
            return
        if message.operation == LOOK:
            self._answer(sender, message, ACCEPTED)
        elif message.operation == SEAT:
            self._answer(sender, message, ACCEPTED, member=self.seat(role.topic, message.seat))
        else:
            verdict, hints = self._judge(role, role.forwarder, sender, message)
            if verdict == ACCEPTED:
                self._accept(role, role.forwarder, sender, message)
                hints = self.gates(role.forwarder)
            else:
                self._ctx.counters["topic_dht_aborts"] += 1
            self._answer(sender, message, verdict, hints)
            self._changed(role)

    def _judge(
        self, role: Role, forwarder: Forwarder, sender: Contact, message: RoleRequest
    ) -> tuple[int, list[Contact]]:
        """Does the operation's assumption hold, and may it begin?"""
        operation = message.operation
        if operation in (JOIN, SPLIT, MAKECHILD):
            closer = forwarder.closer(sender.peer)
            if closer is not None:
                # Perhaps it is gone; then the initiator is right when it comes again.
                self._dht.probe(TOPICS, forwarder.place.table, closer)
                return ABORTED, [closer.contact]
        if operation in (JOIN, MAKECHILD) and len(forwarder.children) >= CHILDREN_MAX:
            return BUSY, []
        if operation == JOIN:
            return ACCEPTED, []
        if operation == REPLACE and role.wanted:
            theirs = rules.Load(message.locations, message.topics, 0, message.work)
            mine = self._roles.load(role.topic)
            unfair = rules.is_unfair(mine, theirs) or rules.relieves(theirs, mine)
            if self._settings.everybody_forwards or not unfair:
                return ABORTED, []
        lock = role.lock
        if lock is not None and (lock.peer, lock.request) == (sender.peer, message.request):
            return ACCEPTED, []  # the same again
        return (BUSY, []) if role.is_busy(self._ctx.now) else (ACCEPTED, [])

    def _accept(
        self, role: Role, forwarder: Forwarder, sender: Contact, message: RoleRequest
    ) -> None:
        if message.operation in (JOIN, MAKECHILD):
            if message.operation == MAKECHILD:
                forwarder.place.table.remove(location(role.topic, sender.peer))
            self.adopt(forwarder, sender)
        elif message.operation in (SPLIT, REPLACE):
            until = self._ctx.now + self._settings.lease_ms
            role.lock = Lock(sender.peer, message.request, message.operation, until)

    def adopt(self, forwarder: Forwarder, child: Contact) -> None:
        forwarder.moving.pop(child.peer, None)
        forwarder.children[child.peer] = ChildEntry(child, self._ctx.now)

    def gates(self, forwarder: Forwarder) -> list[Contact]:
        """Forwarders around this one, for a child's F."""
        return [one.contact for one in forwarder.neighbours()[: self._settings.alternatives_max]]

    def seat(self, topic: Topic, seat: int) -> Contact | None:
        """Who sits there: this peer on the first seat, its children on the others."""
        forwarder = self._roles.forwarding(topic)
        if forwarder is None:
            return None
        members = [self._roles.me, *(one.contact for one in forwarder.children.values())]
        return members[seat] if seat < len(members) else None

    def _answer(
        self,
        to: Contact,
        message: RoleRequest,
        verdict: int,
        forwarders: list[Contact] | None = None,
        member: Contact | None = None,
    ) -> None:
        load = self._roles.load(message.topic)
        reply = RoleReply(
            message.request,
            verdict,
            forwarders or [],
            load.children,
            load.locations,
            load.topics,
            member,
        )
        self._talking.send(to, reply)

    # --- what follows -----------------------------------------------------------------------------

    def on_done(self, sender: Contact, message: RoleDone) -> None:
        role = self._roles.by_topic.get(message.topic)
        lock = role.lock if role is not None else None
        if role is None or lock is None:
            return
        if (lock.peer, lock.request) != (sender.peer, message.request):
            return
        role.lock = None
        if message.done and lock.operation == REPLACE and role.forwarder is not None:
            self._give_way(role, sender)
        else:
            self._changed(role)

    def on_appeared(self, sender: Contact, message: Appeared) -> None:
        role = self._roles.by_topic.get(message.topic)
        known = role is not None and role.forwarder is not None
        reply = RoleReply(message.request, ACCEPTED if known else ABSENT)
        self._talking.send(sender, reply)
        if role is not None and role.forwarder is not None:
            table = role.forwarder.place.table
            key = location(role.topic, sender.peer)
            self._dht.meet(TOPICS, table, key, role.topic, sender)
            self._changing.make_room_for(role, sender)

    def on_vanished(self, sender: Contact, message: Vanished) -> None:
        role = self._roles.by_topic.get(message.topic)
        if role is None:
            return
        role.view.pop(sender.peer, None)
        if role.forwarder is not None:
            role.forwarder.place.table.remove(location(role.topic, sender.peer))
        elif role.child is not None:
            rest = [one for one in role.child.alternatives if one.peer != sender.peer]
            role.child.alternatives = rest

    def on_forget(self, sender: Contact, message: Forget) -> None:
        forwarder = self._roles.forwarding(message.topic)
        if forwarder is not None:
            forwarder.children.pop(sender.peer, None)
            forwarder.moving.pop(sender.peer, None)
