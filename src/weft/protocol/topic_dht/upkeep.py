"""What is done in every period: children find their closest forwarder (Algorithm 1), and views of
random members are renewed (Algorithm 2; Baehni and others 2004, Sections 4.4 and 5.1).

Algorithm 1 (`Stabilisation`): every period a child has its closest forwarder found, and hangs on it
from then on.

If the last period brought an answer, the child asks one of the forwarders it knows to route on its
behalf (`RouteParent`); else it looks for itself. The forwarder that is found (`IsParent`) takes the
child among its children and says so (`IsChild`).

So after a finite number of periods without further changes every child is at its closest forwarder,
whatever state it began in: an operation that is not over after two leases is given up, a lock ends
with its lease, and a child that was not confirmed for some periods and finds no forwarder enters
anew.

Deviations: a child tells its old parent that it has gone; a parent drops children that were silent
for some periods; a child stays with a parent that was confirmed in this period when a forwarder
farther away claims it, since that one was found by a lookup that missed the parent; a child that
is claimed by a forwarder which it did not find itself looks its closest one up before it believes
that (`defence.claims`); and a child takes the place of a parent that does more than its
share (`rules/roles.py` `relieves`). Where groups are packed (`TopicDht.packs`), a forwarder stops
if those around it have room for its children and itself (`retires`): the paper has makechild for
that, and no rule when.

Random members (`Samples`, Lemma 4.7): a member is drawn in two steps, a forwarder from a random
region of the topic (`rules.Region`), then a seat with it, its own or a child's. An empty seat means
to draw anew. Every subscriber is equally likely while no forwarder has more than k children and no
region as many as `dht.k` members. The size of regions is estimated before from the density at some
random places, and again from time to time; a region that turns out too full makes all of them
smaller.

Algorithm 2: forwarders keep views, of other forwarders, since forwarders gossip; where all members
forward, that is all members. A view begins with all forwarders where one lookup finds them all,
else with some random ones; in a share of the periods some random ones come in, and the oldest go.
Where links are shared (`stan.enabled`), only the very oldest goes in such a period, which may be
gone, and of the others those stay that rank first at this peer, alike in all topics
(`rules/stan.py`): the views of its topics fall on the same peers.

Deviation: the paper takes the forwarder closest to a random value, which favours those with empty
space around them (`roles.Region`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from weft.ids import Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.table import Entry
from weft.protocol.quota import Quota
from weft.protocol.rooms import CHILDREN_MAX
from weft.protocol.topic_dht.operations import Initiator
from weft.protocol.topic_dht.roles import (
    ACCEPTED,
    LOOK,
    SEAT,
    TOPIC_BITS,
    TOPICS,
    Child,
    Contacts,
    Count,
    Forget,
    Role,
    RoleReply,
    RoleRequest,
    Roles,
    location,
)
from weft.protocol.topic_dht.search import Layer, Lookup, after_all
from weft.protocol.wire import Message
from weft.rules import roles as rules
from weft.rules.draw import absorb, below, chance, stream_of
from weft.rules.prefix import BITS, common_prefix
from weft.rules.stan import ranking

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
_PACK = stream_of("topic_dht.pack")
_PACK_EVERY = 8
"""guess: periods between two times at which a forwarder asks others for room, on average; groups
change slowly."""
_UNHEARD_MAX = 4
"""guess: times in a row that a parent tells of events and does not bring them when asked, before
its child forwards by itself; where 30 % of all messages get lost, an honest parent does so in one
of fourteen cases, which costs one forwarder more."""
NAMED_MAX = 8
"""guess: children that one peer may name to this one in a period; a router names those that asked
it just then."""

ROUTED_MAX = 2
"""guess: lookups made for one child of a topic in a period; a child asks once in its own period,
which may begin at another time."""

CLAIMED_MAX = 2
"""guess: lookups in a period because a forwarder says unasked that it is the parent; one is needed
where another forwarder has become the closest."""


class Stabilisation(Layer):
    """Algorithm 1 of one peer, as a child and as a forwarder; it has no state of its own."""

    def __init__(
        self, ctx: Context, dht: Kademlia, roles: Roles, lookup: Lookup, initiator: Initiator
    ) -> None:
        super().__init__(ctx, dht, roles, lookup)
        self._initiator = initiator
        self._named: Quota[PeerId] = Quota(NAMED_MAX, self._config.period_ms)
        self._routed: Quota[tuple[Topic, PeerId]] = Quota(ROUTED_MAX, self._config.period_ms)
        self._claimed: Quota[Topic] = Quota(CLAIMED_MAX, self._config.period_ms)

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
            if self._config.packs:
                self._pack(role)
        elif child.unheard >= _UNHEARD_MAX and self._ctx.config.defence.claims:
            self._initiator.secede(role, child)
        elif child.next_round():
            router = self._ctx.pick(_ROUTER, child.known())
            self._send(router, RouteParent(role.topic))
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
        key = message.topic, sender.peer
        if forwarder is None or not self._routed.takes(key, self._ctx.now):
            return
        target = location(message.topic, sender.peer)
        own = forwarder.place.table.own

        def found(entries: list[Entry]) -> None:
            told = IsParent(message.topic, sender)
            if entries and rules.is_closer(target, entries[0].key, own):
                self._send(entries[0].contact, told)
            else:
                self._adopt(told)

        self._lookup.find(message.topic, target, found)

    def on_is_parent(self, sender: Contact, message: IsParent) -> None:
        """This forwarder is a child's closest one. If another peer says so, the child is asked
        first: else a stranger could have events sent to any number of peers that never wanted
        them."""
        forwarder, child = self._roles.forwarding(message.topic), message.child
        if forwarder is None or child.peer == self._roles.me.peer:
            return
        known = child.peer == sender.peer or child.peer in forwarder.children
        if known or not self._ctx.config.defence.claims:
            self._adopt(message)
        elif self._named.takes(sender.peer, self._ctx.now):
            self._tell_child(message.topic, child)

    def on_is_child(self, sender: Contact, message: IsChild) -> None:
        role = self._roles.by_topic.get(message.topic)
        child = role.child if role is not None else None
        if role is None or child is None or not role.wanted:
            if role is None or not role.operation:
                self._send(sender, Forget(message.topic))
            return
        fresh = self._ctx.now - child.confirmed_ms < self._config.period_ms
        if fresh and self._roles.is_closer(message.topic, child.parent.peer, sender.peer):
            child.answered()
            self._send(sender, Forget(message.topic))
        elif self._ctx.config.defence.claims and not child.expects(sender.peer):
            if self._claimed.takes(message.topic, self._ctx.now):
                self._seek_parent(role, child, sender)
        else:
            self._initiator.become_child(role, sender, message.forwarders)
            self._relieve(role, sender, message)

    # --- finding a parent, being one, taking its place --------------------------------------------

    def _seek_parent(self, role: Role, child: Child, claimant: Contact | None = None) -> None:
        """Look for the closest forwarder; a `claimant` is asked as well."""

        def found(entries: list[Entry]) -> None:
            chosen = child.choose_parent([entry.contact for entry in entries])
            if chosen is not None:
                self._send(chosen, IsParent(role.topic, self._roles.me))
            elif role.orphan(child, self._ctx.now - self._config.silence_ms):
                self._initiator.settle_down(role)

        known = child.known() if claimant is None else [*child.known(), claimant]
        self._lookup.find_closest(role.topic, found, known)

    def _adopt(self, message: IsParent) -> None:
        role, child = self._roles.by_topic.get(message.topic), message.child
        forwarder = role.forwarder if role is not None else None
        if role is None or forwarder is None or child.peer == self._roles.me.peer:
            return
        if child.peer not in forwarder.children and len(forwarder.children) >= CHILDREN_MAX:
            return
        forwarder.adopt(child, self._ctx.now)
        self._tell_child(message.topic, child)
        self._initiator.settle_down(role)

    def _tell_child(self, topic: Topic, child: Contact) -> None:
        forwarder = self._roles.forwarding(topic)
        if forwarder is not None:
            gates = forwarder.gates(self._config.alternatives_max)
            load = self._roles.load(topic)
            self._send(child, IsChild(topic, gates, load.topics, load.children, load.work))

    def _relieve(self, role: Role, parent: Contact, message: IsChild) -> None:
        """Take over from a parent that does more than its share; in one topic at a time, since that
        changes this peer's load."""
        if any(one.operation for one in self._roles.by_topic.values()):
            return
        theirs = rules.Load(0, message.topics, message.children, message.work)
        if rules.relieves(self._roles.load(), theirs):
            self._ctx.counters["topic_dht_reliefs"] += 1
            self._initiator.replace(role, parent)

    def _pack(self, role: Role) -> None:
        """A forwarder whose children and itself have room with those around it stops (makechild).
        It asks them now and then, and believes their loads as a peer that joins does."""
        forwarder, k = role.forwarder, self._config.k
        if forwarder is None or not self._may_stop(role):
            return
        if not chance(self._ctx.bits(_PACK), 1, _PACK_EVERY):
            return
        around = {entry.key: entry.contact for entry in forwarder.neighbours()}
        own = forwarder.place.table.own
        children = [location(role.topic, peer) for peer in forwarder.children]
        taken = rules.heirs(own, children, list(around), TOPICS.bits) if around else {}
        if not taken or not all(rules.has_room(0, more, k) for more in taken.values()):
            return
        loads: dict[int, rules.Load] = {}

        def looked(key: int, reply: RoleReply | None) -> None:
            if reply is not None and reply.verdict == ACCEPTED:
                loads[key] = rules.Load(reply.locations, reply.topics, reply.children)
            heard()

        def decide() -> None:
            room = [
                key in loads and rules.has_room(loads[key].children, more, k)
                for key, more in taken.items()
            ]
            heir = min(taken, key=lambda key: key ^ own)
            still = role.forwarder is forwarder and self._may_stop(role)
            if still and all(room) and rules.retires(self._roles.load(), loads[heir]):
                self._initiator.makechild(role, around[heir])

        heard = after_all(len(taken), decide)
        for key in taken:
            self._ask(
                around[key],
                lambda number: RoleRequest(number, role.topic, LOOK),
                partial(looked, key),
            )

    def _may_stop(self, role: Role) -> bool:
        """Whether a forwarder may stop forwarding here; a peer keeps one location at least."""
        return role.wanted and not role.is_busy(self._ctx.now) and self._roles.load().locations > 1


# --- random members -------------------------------------------------------------------------------

_TARGET = stream_of("topic_dht.random")
_SEAT = stream_of("topic_dht.seat")
_ROUND = stream_of("topic_dht.round")
_ESTIMATES = 4
"""guess: random places from whose density the size of regions is estimated."""

Drawn = Callable[[Contact | None], None]
Opened = Callable[[rules.Region[Contact] | None, int], None]
"""Told the region, or None if none was found, and how many draws are left."""


class Samples(Layer):
    """Random members of one peer's topics."""

    def __init__(self, ctx: Context, dht: Kademlia, roles: Roles, lookup: Lookup) -> None:
        super().__init__(ctx, dht, roles, lookup)
        self._place = ranking(ctx.me.peer) if ctx.config.stan.enabled else None

    # --- what other layers and the clock ask for --------------------------------------------------

    def draw(self, topic: Topic, then: Drawn) -> None:
        """A random subscriber of a topic in which this peer has a role; None if none was found."""
        role = self._roles.by_topic.get(topic)
        if role is None:
            then(None)
        else:
            self._draw(role, then, self._config.draws_max)

    def random_target(self, topic: Topic) -> int:
        """A random place in a topic."""
        key = self._ctx.next_key(_TARGET)
        low = 0
        for word in range(BITS // 64):
            low = low << 64 | absorb(key, word)
        return self._roles.own(topic) >> BITS << BITS | low

    def on_period(self, role: Role) -> None:
        """One round of Algorithm 2, where there is gossip."""
        config = self._config
        if not config.gossips or role.forwarder is None or not role.wanted:
            return
        role.regions.next_round()
        if not role.view:
            self.fill_view(role)
        elif chance(self._ctx.bits(_ROUND), config.view_percent, 100):
            if self._place is not None:
                role.forget_oldest()
            self._see_some(role, config.view_fanout, config.draws_max)

    def fill_view(self, role: Role) -> None:
        """Begin with all forwarders where there are few, else with some random ones."""
        most = self._ctx.config.dht.k

        def found(entries: list[Entry]) -> None:
            if len(entries) < most:
                for entry in entries:
                    self._see(role, entry.contact)
            else:
                self._see_some(role, self._config.view_max, self._config.draws_max)

        self._lookup.find(role.topic, self.random_target(role.topic), found, most)

    # --- one random member ------------------------------------------------------------------------

    def _draw(self, role: Role, then: Drawn, left: int) -> None:
        def found(region: rules.Region[Contact] | None, left: int) -> None:
            if region is None:
                then(None)
            else:
                chosen = region.on(below(self._ctx.bits(_SEAT), region.seats))
                self._sit(role, chosen, then, left)

        self._open_region(role, found, left)

    def _open_region(self, role: Role, then: Opened, left: int) -> None:
        """Draw a region and find its forwarders, with this peer if it is one of them."""
        target, most = self.random_target(role.topic), self._ctx.config.dht.k

        def found(entries: list[Entry]) -> None:
            spots = {entry.key: entry.contact for entry in entries}
            if left <= 1:
                then(None, 0)
            elif len(entries) < most:  # that is the whole topic: one region, no empty seats
                self._add_self(role, spots)
                everybody = tuple(spots[key] for key in sorted(spots))
                then(rules.Region(everybody, max(1, len(everybody))), left - 1)
            elif role.regions.bits is None:
                estimate = rules.forwarders_estimate(target, list(spots), BITS)
                role.regions.learn(estimate, _ESTIMATES, most)
                self._open_region(role, then, left - 1)
            else:
                self._add_self(role, spots)
                depth = TOPIC_BITS + role.regions.bits
                inside = [k for k in spots if common_prefix(k, target, TOPICS.bits) >= depth]
                region = rules.Region(tuple(spots[key] for key in sorted(inside)), most)
                if region.is_whole:
                    then(region, left - 1)
                else:
                    self._ctx.counters["topic_dht_regions_full"] += 1
                    role.regions.halve()
                    self._open_region(role, then, left - 1)

        gates = role.child.known() if role.child is not None else []
        self._lookup.find(role.topic, target, found, most, gates)

    def _add_self(self, role: Role, spots: dict[int, Contact]) -> None:
        """Add this peer, if it forwards: a lookup finds only others."""
        if role.forwarder is not None:
            spots[role.forwarder.place.table.own] = self._roles.me

    def _sit(self, role: Role, chosen: Contact | None, then: Drawn, left: int) -> None:
        """Draw a seat with a forwarder: its own, or that of one of its children."""
        seat = below(self._ctx.bits(_SEAT), self._config.k + 1)

        def seated(member: Contact | None) -> None:
            if member is None:
                self._draw(role, then, left)
            else:
                then(member)

        def answered(reply: RoleReply | None) -> None:
            seated(reply.member if reply is not None else None)

        if chosen is None:
            seated(None)
        elif chosen.peer == self._roles.me.peer:
            seated(self._roles.seat(role.topic, seat))
        else:
            self._ask(
                chosen,
                lambda number: RoleRequest(number, role.topic, SEAT, seat=seat),
                answered,
            )

    # --- views ------------------------------------------------------------------------------------

    def _see_some(self, role: Role, count: int, left: int) -> None:
        """Take all forwarders of one random region after the other into the view, at least `count`.

        Whole regions, since a lookup has found all of a region's forwarders anyway: single seats
        took three lookups a place, as two seats of three are empty. Every forwarder is still
        equally likely: each region is drawn whatever those before it held.
        """

        def opened(region: rules.Region[Contact] | None, left: int) -> None:
            if region is None:
                return
            for member in region.members:
                self._see(role, member)
            missing = count - len(region.members)
            if missing > 0 and region.is_whole:  # else it is the whole topic, without empty seats
                self._see_some(role, missing, left)

        self._open_region(role, opened, left)

    def _see(self, role: Role, member: Contact) -> None:
        if member.peer != self._roles.me.peer:
            role.see(member, self._place)
