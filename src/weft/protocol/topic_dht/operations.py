"""Operations between two peers, op(p, q, t): p initiates, q responds (Baehni and others 2004,
Sections 4.2 and 4.3). `Initiator` is p's side and tries again when q aborts; `Responder` is q's.

Subscribing and unsubscribing are made of operations (Section 4.2). To
subscribe, the peer finds the closest forwarder of each topic and asks how loaded it is; from all
these loads and its own follows whether to join there, to split or replace that forwarder, or, where
there is none, to be the first (`rules.choose_roles`).

| operation | effect | initiated |
| --- | --- | --- |
| join(p, q, t) | p is a child of q, its closest forwarder | on subscribing; when sent on |
| split(p, q, t) | p forwards beside q, with the children closer to it | when q is full |
| replace(p, q, t) | p forwards instead of q | for fairness; when q leaves |
| makechild(p, q, t) | p stops forwarding, and is a child of q | on invitation |
| leave(p, t) | p stops forwarding, and sends its children on | on unsubscribing |

One operation at a time is under way in a topic. However it ends, `settle_down` looks at what is
left to do: the peer wants a topic and has no role in it, does not want it and still has
one, or has too many children. Every operation that changes the set of forwarders comes down to
`become_forwarder` and `step_down`. Children are never handed over: they are told to look for their
closest forwarder again and join it, as the paper's leave does (Lemma 4.4).

Where everybody shall forward (`TopicDht.everybody_forwards`) there are no children to be moved, so
a subscriber takes its location at once, without a split (Corollary 4.1).

Deviation: a forwarder that is replaced for fairness' sake stays subscribed, so it becomes a child;
by the letter of the paper's replace it would be neither, against its own Lemma 4.2.

The other side: an operation whose assumption does not hold is aborted at once, and a join is
accepted or aborted at once. An operation of several steps is accepted only while no other is under
way in the topic, and locks it until the initiator says that it is through, or the lease ends.

| operation | assumption, else aborted | takes a lock |
| --- | --- | --- |
| look, seat | none | no |
| join | no closer forwarder is known here | no |
| split | no closer forwarder is known here | yes |
| replace | this peer does more than its share, or leaves; no closer forwarder is known here | yes |
| makechild | no closer forwarder is known here | no, but waits for one |

A forwarder that appears gets the children that are closer to it than to this one. They are told to
join it, and stay here until they have answered.

Deviation: a load is what a peer says of itself, so a liar can take a place, but only that of the
forwarder closest to it. No peer follows an invitation to stop forwarding (makechild): the inviting
peer would decide from then on which events the invited one gets (`defence.claims`).

Deviation: the paper has operations wait for those before them; here the initiator is told that the
responder is busy and tries again, so that nothing waits for a peer that has crashed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from weft.ids import Contact, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.table import Entry
from weft.protocol.quota import Quota
from weft.protocol.rooms import CHILDREN_MAX
from weft.protocol.topic_dht.roles import (
    ABORTED,
    ABSENT,
    ACCEPTED,
    BUSY,
    JOIN,
    LOOK,
    MAKECHILD,
    REPLACE,
    SEAT,
    SPLIT,
    TOLD_MAX,
    TOPICS,
    Appeared,
    Child,
    Forget,
    Forwarder,
    Invite,
    Rejoin,
    Role,
    RoleDone,
    RoleReply,
    RoleRequest,
    Roles,
    Vanished,
    location,
)
from weft.protocol.topic_dht.search import FEW, Answered, Layer, Lookup, after_all
from weft.rules import roles as rules
from weft.rules.draw import below, stream_of

# --- timers ---------------------------------------------------------------------------------------

RETRY = "topic_dht.retry"
"""The time of the next attempt."""

# --- state ----------------------------------------------------------------------------------------

_PAUSE = stream_of("topic_dht.retry")
_SLOWER_MAX = 3
"""guess: doublings of the pause before the next attempt; an overloaded peer must not be hurried."""
_APPEARED_MAX = 2
"""guess: times in a lease that one forwarder may have children sent to it."""
_HINTS_MAX = 8
"""guess: times a joining peer is sent on before it looks for itself again."""

_PROMOTIONS: dict[rules.Choice, int] = {"split": SPLIT, "replace": REPLACE}

Accepted = Callable[[RoleReply, int], None]
Ended = Callable[[Role], None]
Then = Callable[[], None]


class Initiator(Layer):
    """The operations that one peer initiates. `ended` is called when one has ended, and when a role
    is given up."""

    def __init__(
        self, ctx: Context, dht: Kademlia, roles: Roles, lookup: Lookup, ended: Ended
    ) -> None:
        super().__init__(ctx, dht, roles, lookup)
        self._ended = ended

    # --- what the user, the clock and others ask for ----------------------------------------------

    def subscribe(self, topics: Sequence[Topic]) -> None:
        wanted = [self._roles.want(topic) for topic in topics]
        batch = [role for role in wanted if role is not None]
        if batch:
            self._enter(batch)

    def unsubscribe(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            role = self._roles.unwant(topic)
            if role is not None:
                self.settle_down(role)

    def on_retry(self, topic: Topic, serial: int) -> None:
        role = self._roles.by_topic.get(topic)
        if role is None or role.retry != serial or role.operation:
            return
        if role.wanted and not role.is_placed:
            self._enter([role])
        else:
            self._follow_invitation(role)
            self.settle_down(role)

    def on_invite(self, sender: Contact, message: Invite) -> None:
        role = self._roles.by_topic.get(message.topic)
        until = self._ctx.now + self._config.lease_ms
        if role is not None and role.invite(sender, message.operation, until):
            self._follow_invitation(role)

    def on_rejoin(self, sender: Contact, message: Rejoin) -> None:
        role = self._roles.by_topic.get(message.topic)
        mine = role is not None and (
            role.operation or (role.child is not None and role.child.parent.peer == sender.peer)
        )
        if role is None or role.forwarder is not None or not mine:
            self._send(sender, RoleReply(message.request, ACCEPTED))
            return
        role.owe(sender, message.request)
        if not role.operation:
            others = role.child.alternatives if role.child is not None else []
            self._join(role, self._begin(role), [*message.forwarders, *others])

    # --- begin, end, what then --------------------------------------------------------------------

    def _begin(self, role: Role) -> int:
        return role.begin(self._ctx.next_serial(), self._ctx.now)

    def end(self, role: Role, serial: int) -> None:
        if role.operation != serial:
            return
        acks = role.end()
        parent = role.child.parent.peer if role.child is not None else None
        for asker, request in acks:
            verdict = ABORTED if asker.peer == parent else ACCEPTED
            self._send(asker, RoleReply(request, verdict))
        self.settle_down(role)
        self._follow_invitation(role)
        self._ended(role)

    def settle_down(self, role: Role) -> None:
        """If no operation is under way, begin what is left to do."""
        if role.operation:
            return
        if role.wanted:
            if role.is_placed:
                self._shed(role)
            else:
                self._later(role)
        elif role.forwarder is not None:
            if role.is_busy(self._ctx.now):
                self._later(role)
            else:
                self._leave(role)
        else:
            if role.child is not None:
                self._send(role.child.parent, Forget(role.topic))
            self._roles.drop(role)
            self._ended(role)

    def _later(self, role: Role) -> None:
        serial = self._ctx.next_serial()
        pause = self._config.retry_ms << min(role.next_try(serial), _SLOWER_MAX)
        after = pause // 2 + below(self._ctx.bits(_PAUSE), pause) + 1
        self._ctx.set_timer(after, RETRY, role.topic, serial)

    def _shed(self, role: Role) -> None:
        """Too many children: one of them shall split; it is asked again until it has."""
        forwarder = role.forwarder
        if forwarder is None:
            return
        if rules.is_overfull(len(forwarder.children), self._config.k):
            self._later(role)
            if not role.is_busy(self._ctx.now):
                chosen = forwarder.pick_child(rules.split_target)
                self._send(chosen.contact, Invite(role.topic, SPLIT))

    def _follow_invitation(self, role: Role) -> None:
        """Initiate what this peer was asked for, now or as soon as nothing else is under way."""
        now = self._ctx.now
        invitation = role.take_invitation(now)
        if invitation is None:
            if role.invitation is not None:
                self._later(role)
            return
        if role.operation or not role.wanted or now >= invitation.until_ms:
            return
        sender, operation = invitation.sender, invitation.operation
        child = role.child is not None and role.child.parent.peer == sender.peer
        if operation == SPLIT and child:
            self.split(role, sender)
        elif operation == REPLACE and child:
            self.replace(role, sender)
        elif (
            operation == MAKECHILD
            and role.forwarder is not None
            and not self._ctx.config.defence.claims
        ):
            self.makechild(role, sender)

    # --- which role to take -----------------------------------------------------------------------

    def _enter(self, batch: list[Role]) -> None:
        """Choose which role to take in each topic, and take it."""
        serials = {role.topic: self._begin(role) for role in batch}
        loads: dict[Topic, rules.Load | None] = {}  # of the closest forwarder; None: there is none
        gates: dict[Topic, Contact] = {}
        heard = after_all(
            len(batch), lambda: self._take(batch, serials, self._choices(loads), gates)
        )

        def found(topic: Topic, entries: list[Entry]) -> None:
            if not entries:
                loads[topic] = None
                heard()
                return
            gates[topic] = entries[0].contact
            self._ask(
                gates[topic],
                lambda number: RoleRequest(number, topic, LOOK),
                partial(looked, topic),
            )

        def looked(topic: Topic, reply: RoleReply | None) -> None:
            if reply is not None and reply.verdict == ACCEPTED:
                loads[topic] = rules.Load(reply.locations, reply.topics, reply.children)
            heard()

        for role in batch:
            topic = role.topic
            self._lookup.enter(topic, self._roles.own(topic), partial(found, topic))

    def _choices(self, loads: dict[Topic, rules.Load | None]) -> dict[Topic, rules.Choice]:
        """What to do in each topic; a topic whose forwarder did not answer is left out."""
        if self._config.everybody_forwards:
            return dict.fromkeys(loads, "forward")
        return rules.choose_roles(loads, self._roles.load())

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
                self.become_forwarder(role, known, partial(self.end, role, serial))
            elif choice in _PROMOTIONS:
                self._promote(role, gates[role.topic], serial, _PROMOTIONS[choice])
            else:
                self._join_at(role, serial, gates[role.topic])

    # --- join -------------------------------------------------------------------------------------

    def _join(self, role: Role, serial: int, gates: Sequence[Contact]) -> None:
        """join(p, q, t) with the closest forwarder; `gates` help to find it."""

        def found(entries: list[Entry]) -> None:
            if entries:
                self._join_at(role, serial, entries[0].contact)
            elif role.operation == serial and role.wanted:  # join(p, ⊥, t), Lemma 4.3
                self.become_forwarder(role, [], partial(self.end, role, serial))
            else:
                self.end(role, serial)

        self._lookup.find_closest(role.topic, found, gates)

    def _join_at(self, role: Role, serial: int, at: Contact, hints: int = 0) -> None:
        def is_better(one: Contact) -> bool:
            me = self._roles.me.peer
            return one.peer != me and self._roles.is_closer(role.topic, one.peer, at.peer)

        def answered(reply: RoleReply | None) -> None:
            if role.operation != serial:
                return
            if reply is None or reply.verdict != ACCEPTED:
                self._ctx.counters["topic_dht_joins_aborted"] += 1
                named = reply.forwarders if reply is not None else []
                closer = [one for one in named if is_better(one)]
                if closer and hints < _HINTS_MAX:
                    self._join_at(role, serial, closer[0], hints + 1)
                else:
                    self.end(role, serial)
                return
            self.become_child(role, at, reply.forwarders)
            self.end(role, serial)

        self._ask(at, lambda number: self._request(number, role, JOIN), answered)

    def become_child(self, role: Role, parent: Contact, forwarders: Sequence[Contact]) -> None:
        named = (parent.peer, self._roles.me.peer)
        others = [one for one in forwarders if one.peer not in named]
        most = self._config.alternatives_max
        left = role.become_child(parent, others, most, self._ctx.now)
        if left is not None:
            self._send(left, Forget(role.topic))

    # --- split, replace, makechild ----------------------------------------------------------------

    def split(self, role: Role, at: Contact) -> None:
        """split(p, q, t): become a forwarder beside the closest one."""
        self._promote(role, at, self._begin(role), SPLIT)

    def secede(self, role: Role, child: Child) -> None:
        """A child whose parent keeps events back forwards by itself, unasked: other members find
        it then, and compare with it."""
        self._ctx.counters["topic_dht_secessions"] += 1
        serial = self._begin(role)
        self.become_forwarder(role, child.known(), partial(self.end, role, serial))

    def replace(self, role: Role, at: Contact) -> None:
        """replace(p, q, t): become a forwarder instead of q."""
        self._promote(role, at, self._begin(role), REPLACE)

    def _promote(self, role: Role, at: Contact, serial: int, operation: int) -> None:
        def accepted(reply: RoleReply, request: int) -> None:
            def settled() -> None:
                self._send(at, RoleDone(role.topic, request, True))
                self.end(role, serial)

            self.become_forwarder(role, [at, *reply.forwarders], settled)

        self._propose(role, serial, at, operation, accepted)

    def makechild(self, role: Role, at: Contact) -> None:
        """makechild(p, q, t): stop forwarding, and become a child of q."""
        serial = self._begin(role)

        def accepted(reply: RoleReply, request: int) -> None:
            self.become_child(role, at, reply.forwarders)
            self.step_down(role, [at], partial(self.end, role, serial))

        self._propose(role, serial, at, MAKECHILD, accepted)

    def _propose(
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
            # The operation is given up; if the other side accepted it, it shall not wait for it.
            self._send(at, RoleDone(role.topic, numbers[0], False))
            self.end(role, serial)

        self._ask(at, make, answered)

    def _request(self, number: int, role: Role, operation: int) -> RoleRequest:
        load = self._roles.load()
        return RoleRequest(
            number, role.topic, operation, load.locations, load.topics, work=load.work
        )

    # --- leave ------------------------------------------------------------------------------------

    def _leave(self, role: Role) -> None:
        """leave(p, t), or have a child take over where there is no other forwarder."""
        serial = self._begin(role)

        def found(entries: list[Entry]) -> None:
            forwarder = role.forwarder
            if role.operation != serial or forwarder is None or role.wanted:
                self.end(role, serial)
                return
            if entries or not forwarder.children:
                heirs = [entry.contact for entry in entries]
                self.step_down(role, heirs, partial(self.end, role, serial))
                return
            heir = forwarder.pick_child(rules.heir)
            role.on_heir_picked()
            self._send(heir.contact, Invite(role.topic, REPLACE))
            self._later(role)

        self._lookup.find(role.topic, self._roles.own(role.topic), found)

    def give_way(self, role: Role, heir: Contact) -> None:
        """Another peer has taken this forwarder's place."""
        serial = self._begin(role)
        if role.wanted:
            near = role.forwarder.gates(FEW) if role.forwarder is not None else []
            self.step_down(role, [heir], lambda: None)  # the children see to themselves
            self._join(role, serial, [heir, *near])
        else:
            self.step_down(role, [heir], partial(self.end, role, serial))

    # --- what the operations come down to ---------------------------------------------------------

    def become_forwarder(self, role: Role, gates: Sequence[Contact], then: Then) -> None:
        """Take up the location; `gates` are forwarders of the topic, none if there are none."""
        place, old = self._roles.take_location(role)
        self._ctx.counters["topic_dht_promotions"] += 1
        self._lookup.announce(role, place)
        own = place.table.own

        def found(entries: list[Entry]) -> None:
            near = rules.affected(own, [entry.key for entry in entries], TOPICS.bits)
            told = [entry.contact for entry in entries if entry.key in near]
            if old is not None and all(old.parent.peer != one.peer for one in told):
                self._send(old.parent, Forget(role.topic))
            answered = after_all(len(told), then)
            for one in told:
                self._ask(one, lambda number: Appeared(number, role.topic), answered)

        if gates:
            self._lookup.find(role.topic, own, found, self._ctx.config.dht.k, gates)
        else:
            then()

    def step_down(self, role: Role, heirs: Sequence[Contact], then: Then) -> None:
        """Give up the location and send the children to their closest forwarders."""
        forwarder = self._roles.give_location(role)
        if forwarder is None:
            then()
            return
        self._ctx.counters["topic_dht_demotions"] += 1
        near = {one.peer: one for one in heirs}
        for entry in forwarder.neighbours():
            near.setdefault(entry.contact.peer, entry.contact)
        gates = list(near.values())
        for one in gates[:TOLD_MAX]:
            self._send(one, Vanished(role.topic))
        children = list(forwarder.children.values())
        answered = after_all(len(children), then)
        for child in children:
            self.send_on(role, child.contact, gates, answered)

    def send_on(
        self, role: Role, child: Contact, gates: Sequence[Contact], answered: Answered
    ) -> None:
        """Tell a child to join its closest forwarder, which may be one of the gates."""
        near = _closest_first(role.topic, child.peer, gates)[:FEW]
        self._ask(child, lambda number: Rejoin(number, role.topic, near), answered)


def _closest_first(topic: Topic, peer: PeerId, forwarders: Sequence[Contact]) -> list[Contact]:
    target = location(topic, peer)
    others = [one for one in forwarders if one.peer != peer]
    return sorted(others, key=lambda one: location(topic, one.peer) ^ target)


# --- the other side -------------------------------------------------------------------------------


class Responder(Layer):
    """One peer's answers to others' operations. Afterwards its own initiator does the rest that
    a changed role needs."""

    def __init__(
        self, ctx: Context, dht: Kademlia, roles: Roles, lookup: Lookup, initiator: Initiator
    ) -> None:
        super().__init__(ctx, dht, roles, lookup)
        self._initiator = initiator
        # An honest forwarder says that it appeared once, or twice if the answer got lost.
        self._appeared: Quota[tuple[PeerId, Topic]] = Quota(_APPEARED_MAX, self._config.lease_ms)

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
                self._accept(role, role.forwarder, sender, message.operation)
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
        self._send(sender, RoleReply(message.request, verdict))
        if role is not None and forwarder is not None:
            key = location(role.topic, sender.peer)
            self._dht.meet(TOPICS, forwarder.place.table, key, role.topic, sender)
            forwarder.release(sender.peer)
            if self._appeared.takes((sender.peer, role.topic), self._ctx.now):
                self._make_room(role, forwarder, sender)

    def on_vanished(self, sender: Contact, message: Vanished) -> None:
        role = self._roles.by_topic.get(message.topic)
        if role is not None:
            role.forget_forwarder(sender.peer)

    def on_forget(self, sender: Contact, message: Forget) -> None:
        forwarder = self._roles.forwarding(message.topic)
        if forwarder is not None:
            forwarder.release(sender.peer)

    # --- judging a request, and carrying it out ---------------------------------------------------

    def _judge(
        self, role: Role, forwarder: Forwarder, sender: Contact, message: RoleRequest
    ) -> tuple[int, list[Contact]]:
        """Does the operation's assumption hold, and may it begin? Then it gets the lock that it
        needs."""
        operation, now = message.operation, self._ctx.now
        if operation != REPLACE or self._ctx.config.defence.claims:
            closer = forwarder.closer(sender.peer)
            if closer is not None:
                # The closer one may be gone; then the probe shows it, and the initiator asks again.
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
        if operation in (SPLIT, REPLACE):
            lease_ms = self._config.lease_ms
            begins = role.lock_for(sender.peer, message.request, operation, now, lease_ms)
        else:
            begins = role.admits(sender.peer, message.request, now)
        return (ACCEPTED if begins else BUSY), []

    def _accept(self, role: Role, forwarder: Forwarder, sender: Contact, operation: int) -> None:
        if operation in (JOIN, MAKECHILD):
            if operation == MAKECHILD:
                forwarder.place.table.remove(location(role.topic, sender.peer))
            forwarder.adopt(sender, self._ctx.now)

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
        self._send(to, reply)

    def _make_room(self, role: Role, forwarder: Forwarder, newcomer: Contact) -> None:
        """Send those children to a new forwarder that are closer to it."""
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
