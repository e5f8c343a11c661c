"""Others' operations: this peer is the q of op(p, q, t) (Baehni and others 2004, 4.2 and 4.3).

An operation whose assumption does not hold is aborted at once, and a join is accepted or aborted
at once. What takes several steps is accepted only while nothing else is under way in the topic,
and locks it until the initiator says that it is through, or the lease ends.

| operation | assumption, else aborted | takes a lock |
| --- | --- | --- |
| look, seat | none | no |
| join | no closer forwarder is known here | no |
| split | no closer forwarder is known here | yes |
| replace | this peer does more than its share, or leaves | yes |
| makechild | no closer forwarder is known here | no, but waits for one |

A forwarder that appears gets the children that are closer to it than to this one. They are told
to join it, and stay here until they have answered.

Deviation: the paper has operations wait for those before them; here the initiator is told that
this peer is busy and tries again, so that nothing waits for a peer that has crashed.
"""

from __future__ import annotations

from functools import partial

from weft.ids import Contact, PeerId
from weft.protocol.context import Context
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.topic_dht.initiator import Initiator
from weft.protocol.topic_dht.lookup import Exchange
from weft.protocol.topic_dht.roles import (
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
    TOPICS,
    Appeared,
    Config,
    Forget,
    Forwarder,
    Role,
    RoleDone,
    RoleReply,
    RoleRequest,
    Roles,
    Vanished,
    location,
)
from weft.rules import roles as rules

# --- state ----------------------------------------------------------------------------------------


class Responder:
    """What one peer answers others' operations. The initiator is asked to see to what is left to
    do in a role afterwards."""

    def __init__(
        self,
        ctx: Context,
        dht: Kademlia,
        roles: Roles,
        exchange: Exchange,
        initiator: Initiator,
        config: Config,
    ) -> None:
        self._ctx = ctx
        self._dht = dht
        self._roles = roles
        self._exchange = exchange
        self._initiator = initiator
        self._config = config

    # --- messages ---------------------------------------------------------------------------------

    def on_request(self, sender: Contact, message: RoleRequest) -> None:
        role = self._roles.by_topic.get(message.topic)
        if role is None or role.forwarder is None:
            self._answer(sender, message, ABSENT)
            return
        if message.operation == LOOK:
            self._answer(sender, message, ACCEPTED)
        elif message.operation == SEAT:
            member = self._roles.seat(role.topic, message.seat)
            self._answer(sender, message, ACCEPTED, member=member)
        else:
            verdict, hints = self._judge(role, role.forwarder, sender, message)
            if verdict == ACCEPTED:
                self._accept(role, role.forwarder, sender, message)
                hints = role.forwarder.gates(self._config.alternatives_max)
            else:
                self._ctx.counters["topic_dht_aborts"] += 1
            self._answer(sender, message, verdict, hints)
            self._initiator.settle_down(role)

    def on_done(self, sender: Contact, message: RoleDone) -> None:
        role = self._roles.by_topic.get(message.topic)
        lock = role.unlock(sender.peer, message.request) if role is not None else None
        if role is None or lock is None:
            return
        if message.done and lock.operation == REPLACE and role.forwarder is not None:
            self._initiator.give_way(role, sender)
        else:
            self._initiator.settle_down(role)

    def on_appeared(self, sender: Contact, message: Appeared) -> None:
        role = self._roles.by_topic.get(message.topic)
        forwarder = role.forwarder if role is not None else None
        verdict = ACCEPTED if forwarder is not None else ABSENT
        self._exchange.send(sender, RoleReply(message.request, verdict))
        if role is not None and forwarder is not None:
            key = location(role.topic, sender.peer)
            self._dht.meet(TOPICS, forwarder.place.table, key, role.topic, sender)
            self._make_room(role, forwarder, sender)

    def on_vanished(self, sender: Contact, message: Vanished) -> None:
        role = self._roles.by_topic.get(message.topic)
        if role is not None:
            role.forget_forwarder(sender.peer)

    def on_forget(self, sender: Contact, message: Forget) -> None:
        forwarder = self._roles.forwarding(message.topic)
        if forwarder is not None:
            forwarder.release(sender.peer)

    # --- may it be, and what follows --------------------------------------------------------------

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
            if self._config.everybody_forwards or not unfair:
                return ABORTED, []
        if role.is_locked_for(sender.peer, message.request):
            return ACCEPTED, []  # the same again
        return (BUSY, []) if role.is_busy(self._ctx.now) else (ACCEPTED, [])

    def _accept(
        self, role: Role, forwarder: Forwarder, sender: Contact, message: RoleRequest
    ) -> None:
        operation = message.operation
        if operation in (JOIN, MAKECHILD):
            if operation == MAKECHILD:
                forwarder.place.table.remove(location(role.topic, sender.peer))
            forwarder.adopt(sender, self._ctx.now)
        elif operation in (SPLIT, REPLACE):
            until = self._ctx.now + self._config.lease_ms
            role.lock_for(sender.peer, message.request, operation, until)

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
        self._exchange.send(to, reply)

    def _make_room(self, role: Role, forwarder: Forwarder, newcomer: Contact) -> None:
        """Send those children to a new forwarder that are closer to it."""
        forwarder.release(newcomer.peer)
        there = location(role.topic, newcomer.peer)
        own = forwarder.place.table.own
        for peer, child in list(forwarder.children.items()):
            closer = rules.is_closer(location(role.topic, peer), there, own)
            if closer and forwarder.send_off(peer):
                moved = partial(_moved, forwarder, peer)
                self._initiator.send_on(role, child.contact, [newcomer], moved)


def _moved(forwarder: Forwarder, peer: PeerId, reply: RoleReply | None) -> None:
    """A child that was sent on has answered, or cannot be reached."""
    forwarder.moved(peer, gone=reply is None or reply.verdict != ABORTED)
