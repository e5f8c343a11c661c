"""This peer's own operations: it is the p of op(p, q, t), and tries again when q aborts.

Subscribing (`choosing.py` says which operation it takes) and unsubscribing are made of them
(Section 4.2). One operation at a time is under way in a topic; when it ends, whatever way,
`settle_down` looks at what is left to do: the peer wants a topic and has no role in it, does not
want it and still has one, or has too many children.

Where everybody shall forward (`Settings.everybody_forwards`) there are no children to be moved, so
a subscriber takes its location at once, without a split (Corollary 4.1).

Deviation: who is replaced as a forwarder for fairness' sake stays subscribed, so it becomes a
child; by the letter of the paper's replace it would be neither, against its own Lemma 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from weft.ids import Contact, Topic
from weft.protocol.context import Context
from weft.protocol.kademlia.table import Entry
from weft.protocol.messages_topic_dht import (
    ABORTED,
    ACCEPTED,
    JOIN,
    MAKECHILD,
    REPLACE,
    SPLIT,
    Forget,
    Invite,
    Rejoin,
    RoleDone,
    RoleReply,
    RoleRequest,
)
from weft.protocol.topic_dht.changing import Changing
from weft.protocol.topic_dht.choosing import Choosing
from weft.protocol.topic_dht.routing import FEW, Routing
from weft.protocol.topic_dht.settings import Settings
from weft.protocol.topic_dht.space import location
from weft.protocol.topic_dht.state import Child, Invitation, Role, Roles
from weft.protocol.topic_dht.talking import Talking
from weft.rules import roles as rules
from weft.rules.draw import below, stream_of

RETRY = "topic_dht.retry"
_PAUSE = stream_of("topic_dht.retry")
_SLOWER_MAX = 3
"""guess: doublings of the pause before the next attempt; who is overloaded must not be hurried."""
_HINTS_MAX = 8
"""guess: times a joining peer is sent on before it looks for itself again."""

Accepted = Callable[[RoleReply, int], None]
Then = Callable[[], None]


class Operating:
    """See the module's text."""

    def __init__(
        self,
        ctx: Context,
        roles: Roles,
        routing: Routing,
        talking: Talking,
        changing: Changing,
        settings: Settings,
    ) -> None:
        self._ctx = ctx
        self._roles = roles
        self._routing = routing
        self._talking = talking
        self._changing = changing
        self._settings = settings
        self._choosing = Choosing(roles, routing, talking, settings)
        self.ended: Callable[[Role], None] = _nothing  # told when an operation has ended

    # --- begin, end, what then --------------------------------------------------------------------

    def begin(self, role: Role) -> int:
        role.operation = self._ctx.next_serial()
        role.since_ms = self._ctx.now
        return role.operation

    def end(self, role: Role, serial: int) -> None:
        if role.operation != serial:
            return
        role.operation = 0
        if role.forwarder is not None or role.child is not None:
            role.tries = 0
        acks, role.acks = role.acks, []
        parent = role.child.parent.peer if role.child is not None else None
        for asker, request in acks:
            verdict = ABORTED if asker.peer == parent else ACCEPTED
            self._talking.send(asker, RoleReply(request, verdict))
        self.settle_down(role)
        self._follow_invitation(role)
        self.ended(role)

    def settle_down(self, role: Role) -> None:
        """Nothing is under way (if so): is there anything left to do?"""
        if role.operation:
            return
        if role.wanted:
            if role.forwarder is None and role.child is None:
                self._later(role)
            else:
                self._shed(role)
        elif role.forwarder is not None:
            if role.is_busy(self._ctx.now):
                self._later(role)
            else:
                self._leave(role)
        else:
            if role.child is not None:
                self._talking.send(role.child.parent, Forget(role.topic))
            self._roles.by_topic.pop(role.topic, None)
            self.ended(role)

    def _later(self, role: Role) -> None:
        role.retry = self._ctx.next_serial()
        pause = self._settings.retry_ms << min(role.tries, _SLOWER_MAX)
        role.tries += 1
        after = pause // 2 + below(self._ctx.bits(_PAUSE), pause) + 1
        self._ctx.set_timer(after, RETRY, role.topic, role.retry)

    def on_retry(self, topic: Topic, serial: int) -> None:
        role = self._roles.by_topic.get(topic)
        if role is None or role.retry != serial or role.operation:
            return
        if role.wanted and role.forwarder is None and role.child is None:
            self._enter([role])
        else:
            self._follow_invitation(role)
            self.settle_down(role)

    def _shed(self, role: Role) -> None:
        """Too many children: one of them shall split; it is asked again until it has."""
        forwarder = role.forwarder
        if forwarder is None:
            return
        if rules.is_overfull(len(forwarder.children), self._settings.k):
            self._later(role)
            if not role.is_busy(self._ctx.now):
                chosen = forwarder.pick_child(rules.split_target)
                self._talking.send(chosen.contact, Invite(role.topic, SPLIT))

    # --- subscribing ------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[Topic]) -> None:
        batch = []
        for topic in topics:
            role = self._roles.by_topic.get(topic)
            if role is None:
                role = self._roles.by_topic[topic] = Role(topic)
                batch.append(role)
            role.wanted = True
        if batch:
            self._enter(batch)

    def _enter(self, batch: list[Role]) -> None:
        """Have the roles chosen, and take them."""
        serials = {role.topic: self.begin(role) for role in batch}
        self._choosing.choose(list(serials), partial(self._take, batch, serials))

    def _take(
        self,
        batch: list[Role],
        serials: dict[Topic, int],
        choices: dict[Topic, rules.Choice],
        gates: dict[Topic, Contact],
    ) -> None:
        for role in batch:
            serial, choice = serials[role.topic], choices.get(role.topic)
            if role.operation != serial:
                continue
            if choice is None or not role.wanted:
                self.end(role, serial)
            elif choice == "forward":
                known = [gates[role.topic]] if role.topic in gates else []
                self._changing.become_forwarder(role, known, partial(self.end, role, serial))
            elif choice == "split":
                self._promote(role, gates[role.topic], serial, SPLIT)
            elif choice == "replace":
                self._promote(role, gates[role.topic], serial, REPLACE)
            else:
                self._join_at(role, serial, gates[role.topic])

    def unsubscribe(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            role = self._roles.by_topic.get(topic)
            if role is not None:
                role.wanted = False
                self.settle_down(role)

    # --- join -------------------------------------------------------------------------------------

    def join(self, role: Role, gates: Sequence[Contact]) -> None:
        """join(p, q, t) with whoever is the closest forwarder; `gates` help to find it."""
        self._join(role, self.begin(role), gates)

    def _join(self, role: Role, serial: int, gates: Sequence[Contact]) -> None:
        own = self._roles.own(role.topic)

        def entered(entries: list[Entry]) -> None:
            if entries:
                self._join_at(role, serial, entries[0].contact)
            elif role.operation == serial and role.wanted:  # join(p, ⊥, t), Lemma 4.3
                self._changing.become_forwarder(role, [], partial(self.end, role, serial))
            else:
                self.end(role, serial)

        def found(entries: list[Entry]) -> None:
            if entries:
                self._join_at(role, serial, entries[0].contact)
            else:
                self._routing.enter(role.topic, own, entered)

        self._routing.find(role.topic, own, found, FEW, gates)

    def _join_at(self, role: Role, serial: int, at: Contact, hints: int = 0) -> None:
        def answered(reply: RoleReply | None) -> None:
            if role.operation != serial:
                return
            if reply is None or reply.verdict != ACCEPTED:
                self._ctx.counters["topic_dht_joins_aborted"] += 1
                named = reply.forwarders if reply is not None else []
                closer = [one for one in named if self._is_closer(role, one, at)]
                if closer and hints < _HINTS_MAX:
                    self._join_at(role, serial, closer[0], hints + 1)
                else:
                    self.end(role, serial)
                return
            self.become_child(role, at, reply.forwarders)
            self.end(role, serial)

        self._talking.ask(at, lambda number: self._request(number, role, JOIN), answered)

    def _is_closer(self, role: Role, one: Contact, other: Contact) -> bool:
        own = self._roles.own(role.topic)
        there, here = location(role.topic, one.peer), location(role.topic, other.peer)
        return one.peer != self._roles.me.peer and rules.is_closer(own, there, here)

    def become_child(self, role: Role, parent: Contact, forwarders: Sequence[Contact]) -> None:
        old = role.child
        alternatives = [
            one for one in forwarders if one.peer not in (parent.peer, self._roles.me.peer)
        ]
        if old is not None:
            named = {one.peer for one in alternatives} | {parent.peer}
            alternatives += [one for one in old.alternatives if one.peer not in named]
            if old.parent.peer != parent.peer:
                self._talking.send(old.parent, Forget(role.topic))
        del alternatives[self._settings.alternatives_max :]
        role.child = Child(parent, alternatives, self._ctx.now)

    def on_rejoin(self, sender: Contact, message: Rejoin) -> None:
        role = self._roles.by_topic.get(message.topic)
        mine = role is not None and (
            role.operation or (role.child is not None and role.child.parent.peer == sender.peer)
        )
        if role is None or role.forwarder is not None or not mine:
            self._talking.send(sender, RoleReply(message.request, ACCEPTED))
            return
        if (sender, message.request) not in role.acks:
            role.acks.append((sender, message.request))
        if not role.operation:
            others = role.child.alternatives if role.child is not None else []
            self.join(role, [*message.forwarders, *others])

    # --- split, replace, makechild, reassign ------------------------------------------------------

    def split(self, role: Role, at: Contact, then: Then | None = None) -> None:
        """split(p, q, t): become a forwarder beside the closest one."""
        self._promote(role, at, self.begin(role), SPLIT, then)

    def replace(self, role: Role, at: Contact) -> None:
        """replace(p, q, t): become a forwarder instead of q."""
        self._promote(role, at, self.begin(role), REPLACE)

    def reassign(self, role: Role, at: Contact) -> None:
        """reassign(p, q, t): split(p, q, t), then makechild(q, p, t)."""
        self.split(role, at, lambda: self._talking.send(at, Invite(role.topic, MAKECHILD)))

    def _promote(
        self, role: Role, at: Contact, serial: int, operation: int, then: Then | None = None
    ) -> None:
        def accepted(reply: RoleReply, request: int) -> None:
            def settled() -> None:
                self._talking.send(at, RoleDone(role.topic, request, True))
                if then is not None:
                    then()
                self.end(role, serial)

            self._changing.become_forwarder(role, [at, *reply.forwarders], settled)

        self._ask(role, serial, at, operation, accepted)

    def makechild(self, role: Role, at: Contact) -> None:
        """makechild(p, q, t): stop forwarding, and become a child of q."""
        serial = self.begin(role)

        def accepted(reply: RoleReply, request: int) -> None:
            self.become_child(role, at, reply.forwarders)
            self._changing.step_down(role, [at], partial(self.end, role, serial))

        self._ask(role, serial, at, MAKECHILD, accepted)

    def _ask(
        self, role: Role, serial: int, at: Contact, operation: int, accepted: Accepted
    ) -> None:
        numbers: list[int] = []

        def make(number: int) -> RoleRequest:
            numbers.append(number)
            return self._request(number, role, operation)

        def answered(reply: RoleReply | None) -> None:
            if role.operation == serial and role.wanted and reply is not None:
                if reply.verdict == ACCEPTED:
                    accepted(reply, numbers[0])
                    return
                self._ctx.counters["topic_dht_aborted"] += 1
            # Whatever it was, it is given up: if it was accepted, nobody shall wait for it.
            self._talking.send(at, RoleDone(role.topic, numbers[0], False))
            self.end(role, serial)

        self._talking.ask(at, make, answered)

    def _request(self, number: int, role: Role, operation: int) -> RoleRequest:
        load = self._roles.load()
        return RoleRequest(
            number, role.topic, operation, load.locations, load.topics, work=load.work
        )

    def on_invite(self, sender: Contact, message: Invite) -> None:
        role = self._roles.by_topic.get(message.topic)
        if role is not None and role.wanted:
            until = self._ctx.now + self._settings.lease_ms
            role.invitation = Invitation(sender, message.operation, until)
            self._follow_invitation(role)

    def _follow_invitation(self, role: Role) -> None:
        """Initiate what somebody asked for, now or as soon as nothing else is under way."""
        invitation, now = role.invitation, self._ctx.now
        if invitation is None:
            return
        if role.is_busy(now) and now < invitation.until_ms:
            self._later(role)
            return
        role.invitation = None
        sender, operation = invitation.sender, invitation.operation
        child = role.child is not None and role.child.parent.peer == sender.peer
        if role.operation or not role.wanted or now >= invitation.until_ms:
            return
        if operation == SPLIT and child:
            self.split(role, sender)
        elif operation == REPLACE and child:
            self.replace(role, sender)
        elif operation == MAKECHILD and role.forwarder is not None:
            self.makechild(role, sender)

    # --- leave ------------------------------------------------------------------------------------

    def _leave(self, role: Role) -> None:
        """leave(p, t), or have a child take over where there is no other forwarder."""
        serial = self.begin(role)

        def found(entries: list[Entry]) -> None:
            forwarder = role.forwarder
            if role.operation != serial or forwarder is None or role.wanted:
                self.end(role, serial)
                return
            if entries or not forwarder.children:
                heirs = [entry.contact for entry in entries]
                self._changing.step_down(role, heirs, partial(self.end, role, serial))
                return
            heir = forwarder.pick_child(rules.heir)
            role.operation = 0  # it is the child's operation now
            self._talking.send(heir.contact, Invite(role.topic, REPLACE))
            self._later(role)

        self._routing.find(role.topic, self._roles.own(role.topic), found)

    def give_way(self, role: Role, heir: Contact) -> None:
        """Somebody has taken this forwarder's place."""
        serial = self.begin(role)
        if role.wanted:
            self._changing.step_down(role, [heir], _nothing)  # the children see to themselves
            self._join(role, serial, [heir])
        else:
            self._changing.step_down(role, [heir], partial(self.end, role, serial))


def _nothing(*_: object) -> None:
    """Nobody wants to know."""
