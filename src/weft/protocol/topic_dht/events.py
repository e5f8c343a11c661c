"""How a topic's events reach its subscribers: links, the four schemes, and repair (Baehni and
others 2004, Sections 5.1, 5.2 and 6). Roles lie below this layer, which only reads them.

*A subscription begins* with a role, and with what was published before it. A new subscriber does
not want events of the past (history brings them where they are wanted), so it asks its parent or a
forwarder near it what there has been (`SeenRequest`). Only then it is subscribed and compares with
others; what reached it meanwhile has been delivered already. A membership outlives the
subscription until the role is given up: a leaving forwarder still passes on what it gets.

*Links.* The level-i links of a forwarder, by which trees go (`rules/treecast.py`), are some of the
forwarders that its routing table has in that bucket: for each of a few places of that half, drawn
once and for all, the one closest to it. So they depend on which forwarders are there and not on
which came first (else the first ones would do most of the work), they change only when a closer one
comes or they are lost, and they lead to the same peers in all topics that are shared with them.
Repair works from both ends, as the paper has it: a newcomer makes itself known to those that only
it can serve as a link of that level (`roles.affected`: they are told by `Appeared`), and a new
forwarder that has no link on a level routes to that level's place. Parent, children and links are
watched (`protocol/liveness.py`): a silent one is pinged.

*Schemes.* TreeCast: the publisher is the root of a tree over the forwarders, and puts other
forwarders in charge of parts of it (`Cast`). Gossip: a forwarder that gets an event for the first
time tells some members of its view (`Payload`). In the full schemes every subscriber is a
forwarder; in the others a forwarder hands each event to its children, and a child that publishes
hands its event to its parent. So a tree takes N−1 payload messages for N subscribers, however it
is rooted, and one more if the publisher is none of them.

With more than one root, an event goes out by as many trees at once; each tree passes it on by
itself, and applications are handed the event once. With f + 1 trees, f lost members keep events
from their own children only, since no member is inside of two trees (`treecast.forest_delegates`).
The roots' ids travel with the event: a forwarder that did not get it by all of their trees knows
which one failed (Section 5.2), and mends it as far as it can (`_mend_trees`).

*Repair.* Linked members say from time to time what they have seen (`Beat`, a fingerprint), more
often while there are events, and at once over a new link, since events may have been lost with the
link before it. Where fingerprints differ they exchange the events that the other lacks
(`protocol/recent.py`); a member that got events in that way announces them to all around it, since
the members that it is in charge of lack them too.

Deviations: a subscribed publisher is the root of its event's first tree (a child: its parent is),
where the paper draws all roots at random; that saves a message and a hop, and is the least fair
where one member publishes everything, which `tadht-fair` judges. A receiver that does not forward
any more hands its charge to its parent, if that one lies in it; if not, repair serves those
members. The paper's heartbeats go from a root down its
tree, and a member that misses them looks for its incoming link; here they go over links of all
levels, from both ends: they need no tree that is whole, and say not only that a link works but
whether anything got lost on it.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar, NamedTuple

from msgspec import Meta

from weft.bounded import BoundedDict
from weft.documents.run import Proven, Run
from weft.ids import Contact, PeerId, Topic, WirePeerId, WireTopic
from weft.protocol import recent
from weft.protocol.context import Context, Late, LinkDown, LinkUp
from weft.protocol.defence import Answered
from weft.protocol.delivery import Arrival, Delivery, Taken, note_copy, note_parasite, note_received
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.table import Entry
from weft.protocol.publication import RouteCheck, RouteEvent, RouteResult, answer_check
from weft.protocol.recent import IHave, Offer, Recent, Repair, Want
from weft.protocol.routing import Due
from weft.protocol.seam import Millis, Outcome
from weft.protocol.subscriptions import Subscriptions, TopicPart
from weft.protocol.topic_dht.roles import (
    TOLD_MAX,
    Forget,
    Forwarder,
    Role,
    Roles,
    Vanished,
    location,
    position,
)
from weft.protocol.topic_dht.search import FEW, Layer, Lookup
from weft.protocol.topic_dht.upkeep import Samples
from weft.protocol.wire import HOPS_MAX, Counter, Hops, Message, Payload, Span, Statements, span_of
from weft.rules import treecast
from weft.rules.draw import stream_of
from weft.rules.prefix import BITS
from weft.rules.treecast import ROOTS_MAX

# --- messages -------------------------------------------------------------------------------------


class Cast(Message, frozen=True, tag=91):
    """A run, for all members that share the receiver's first `charge` bits."""

    feeds: ClassVar[bool] = True
    carries: ClassVar[bool] = True

    topic: WireTopic
    run: Run
    hops: Hops
    charge: Annotated[int, Meta(ge=0, le=BITS)]
    tree: Annotated[int, Meta(ge=0, le=ROOTS_MAX - 1)] = 0  # of the trees it goes out by
    roots: Annotated[list[WirePeerId], Meta(max_length=ROOTS_MAX)] = []  # of several trees


class SeenRequest(Message, frozen=True, tag=92):
    """What was published in the topic so far?"""

    asks: ClassVar[bool] = True

    request: Counter
    topic: WireTopic


class SeenReply(Message, frozen=True, tag=93):
    """Answers `SeenRequest` with the statements of what the sender has seen."""

    request: Counter
    member: bool  # False: the asked peer is not subscribed
    seen: Statements = []


class Beat(Message, frozen=True, tag=94):
    """The sender has a link to the receiver and has seen events with this fingerprint."""

    topic: WireTopic
    recent: Counter  # as in OverlayNews
    fresh: bool = False  # a new link: nothing is on its way over it, so compare at once


# --- timers ---------------------------------------------------------------------------------------

ROUND = "topic_dht.round"
"""The time of the next call after a push."""

# --- state ----------------------------------------------------------------------------------------

_ASKED_MAX = 3
"""guess: members asked in turn what was published before."""
_UNSENT_MAX = 256
"""guess: events kept until there is a role."""
_QUIET_EVERY = 4
"""guess: cycles from one beat to the next while there are no events."""
_WARY_CYCLES = 8
"""guess: cycles after the latest event in which a child compares with two other forwarders each; a
dozen of them are asked by then."""
_KEEP = stream_of("topic_dht.links")
_DELEGATE = stream_of("topic_dht.delegate")
_ROOTS = stream_of("topic_dht.roots")
_PARTNERS = stream_of("topic_dht.partners")
_CALL = stream_of("topic_dht.call")
_ONE = stream_of("topic_dht.beat")

_DOUBTED_MAX = 4
"""guess: members of a failed tree that are pinged, besides its root."""

EventKey = tuple[PeerId, int, int]
Links = dict[int, dict[int, Contact]]
"""By level, by position of the member it leads to."""


class Casting(NamedTuple):
    """When an event came by the first of its trees, and the roots of all."""

    since: Millis
    roots: tuple[PeerId, ...]


class Membership(TopicPart):
    """What a subscriber remembers of one topic's events and of the links they come and go by."""

    __slots__ = (
        "asking",
        "beaten",
        "castings",
        "differs",
        "entering",
        "fed",
        "forwards",
        "links",
        "quiet_cycles",
        "rounds_left",
        "served",
        "unsent",
        "watched",
    )

    def __init__(self, topic: Topic, recent: Recent, served_max: int) -> None:
        super().__init__(topic, recent)
        self.entering = True  # no role yet, or not known what was published before
        self.asking = False  # others are asked what was published before
        self.fed = False  # another peer has passed on an event that was not its own
        self.forwards = False  # as a forwarder, it has looked for links
        self.unsent: list[Run] = []  # own runs that wait for a role
        self.links: Links = {}  # of a forwarder
        self.watched: dict[PeerId, None] = {}  # links, parent and children, as upper layers know
        self.beaten = 0  # the fingerprint at the last beat
        self.quiet_cycles = 0  # since something was seen
        self.differs: Contact | None = None  # this member has seen something else
        self.rounds_left = 0  # calls still to be made after the latest event (push-pull)
        self.served: BoundedDict[EventKey, int] = BoundedDict(served_max)  # by which trees, as bits
        self.castings: BoundedDict[EventKey, Casting] = BoundedDict(served_max)  # not by all yet

    def enter(self) -> None:
        """The peer subscribes, perhaps while it was about to leave: then it has missed events."""
        super().enter()
        self.entering = True
        self.asking = False

    @property
    def is_doubtful(self) -> bool:
        """Whether there are events here, and nobody has ever passed one on to this peer."""
        return not self.fed and len(self.recent) > 0

    def note_source(self, run: Run, sender: PeerId) -> None:
        """A run that is new has come from this peer."""
        self.fed = self.fed or sender != run.publisher

    def serve(self, run: Run, tree: int) -> tuple[bool, bool]:
        """Note that a run is passed on by a tree; returns whether that is new, and whether it is
        the first tree for this run."""
        key = (run.publisher, run.incarnation, run.first)
        before = self.served.get(key, 0)
        if before >> tree & 1:
            return False, False
        self.served[key] = before | 1 << tree
        return True, not before

    def expect(self, run: Run, roots: list[PeerId], now: Millis) -> None:
        """Note the trees that a run is to come by."""
        key = (run.publisher, run.incarnation, run.first)
        if self.served[key] == (1 << len(roots)) - 1:
            self.castings.pop(key, None)
        elif key not in self.castings:
            self.castings[key] = Casting(now, tuple(roots))

    def failed_trees(self, before: Millis) -> dict[tuple[PeerId, ...], int]:
        """The trees that runs which came by the time `before` have not come by, as bits, by their
        roots. Each run is reported once."""
        found: dict[tuple[PeerId, ...], int] = {}
        for key, (since, roots) in list(self.castings.items()):
            if since <= before:
                del self.castings[key]
                lacking = ~self.served.get(key, 0) & (1 << len(roots)) - 1
                found[roots] = found.get(roots, 0) | lacking
        return found

    def linked(self) -> dict[PeerId, Contact]:
        """The peers that the links lead to."""
        return {one.peer: one for level in self.links.values() for one in level.values()}


class Events(Layer):
    """The memberships of one peer, and the events of its topics."""

    def __init__(
        self,
        ctx: Context,
        delivery: Delivery,
        dht: Kademlia,
        roles: Roles,
        lookup: Lookup,
        samples: Samples,
    ) -> None:
        super().__init__(ctx, dht, roles, lookup)
        self._delivery = delivery
        self._samples = samples
        self._answered = Answered(ctx)
        served_max = ctx.config.dissemination.recent_events_max
        self.members = Subscriptions(
            ctx, lambda topic, recent, scheme: Membership(topic, recent, served_max)
        )

    # --- subscriptions ----------------------------------------------------------------------------

    def drop(self, member: Membership) -> None:
        """The role is given up."""
        if self.members.get(member.topic) is not None:
            for peer in member.watched:
                self._ctx.tell(LinkDown(member.topic, peer))
            member.watched.clear()
            self.members.give_up(member)

    def close(self) -> None:
        """This peer leaves: tell forwarders that know it and are not linked, as these hear its
        goodbye."""
        for member in self.members.by_topic.values():
            self.members.end(member)
            forwarder = self._roles.forwarding(member.topic)
            for entry in forwarder.neighbours()[:TOLD_MAX] if forwarder is not None else ():
                if entry.contact.peer not in member.watched:
                    self._ctx.send(entry.contact, Vanished(member.topic))

    # --- roles and time ---------------------------------------------------------------------------

    def on_role(self, role: Role) -> None:
        """An operation of this peer's own has ended, perhaps with another role."""
        member = self.members.get(role.topic)
        if member is None:
            return
        if role.topic not in self._roles.by_topic and not member.subscribed:
            self.drop(member)
            return
        self.settle(member)
        if role.is_placed and member.entering and member.subscribed and not member.asking:
            member.asking = True
            self._ask_seen(member, self._oracles(member))

    def settle(self, member: Membership) -> None:
        """Choose links, and compare over new ones at once: events may have been lost with links
        before them."""
        came = self._choose_links(member)
        role = self._roles.by_topic.get(member.topic)
        forwards = role is not None and role.forwarder is not None
        if role is not None and forwards and not member.forwards:
            self._seek_links(member)
            if self._config.gossips:
                self._samples.fill_view(role)
        member.forwards = forwards
        if not member.entering:
            self._beat(member, came, fresh=True)
            self._send_waiting(member)

    def run_cycle(self, due: Due) -> None:
        for member in list(self.members.by_topic.values()):
            member.recent.purge(self._ctx.now)
            self.settle(member)
            self._mend_trees(member)
            self._beat_sometimes(member)
            if member.subscribed:
                due(member.topic)

    def on_round(self, topic: Topic) -> None:
        """Push-pull: call a random partner, for some rounds after the latest event."""
        member = self.members.get(topic)
        forwarder = self._roles.forwarding(topic)
        if member is None or member.rounds_left <= 0:
            return
        member.rounds_left -= 1
        if member.rounds_left:
            self._ctx.set_timer(self._config.gossip_round_ms, ROUND, topic)
        if forwarder is not None:
            view = list(self._partners(topic, forwarder).values())
            if view:
                self._beat(member, [self._ctx.pick(_CALL, view)], fresh=True)

    # --- messages and events ----------------------------------------------------------------------

    def publish(self, topic: Topic, proven: Proven, delivered: bool) -> bool:
        """Spread a run of this peer's own, if it is subscribed."""
        member = self.members.get(topic)
        if member is None or not member.subscribed:
            return False
        if self._delivery.admit_own(member.recent, proven):
            if not delivered:
                self._delivery.deliver(topic, proven.run, 0, None)
            self._spread(member, proven.run, 0, None)
        return True

    def on_cast(self, sender: Contact, message: Cast) -> None:
        member = self._received(sender, message)
        if member is None:
            return
        run, hops = message.run, min(message.hops, HOPS_MAX - 1)  # room for one more hop
        if self._take_in(member, run, hops, sender) in (Taken.NEW, Taken.COPY):
            role = self._roles.by_topic.get(message.topic)
            self._cast(member, role, message, hops, sender.peer)

    def on_payload(self, sender: Contact, message: Payload) -> None:
        """From a parent, or in gossip."""
        member = self._received(sender, message)
        if member is None:
            return
        run, hops = message.run, min(message.hops, HOPS_MAX - 1)
        if self._take_in(member, run, hops, sender) is Taken.NEW:
            forwarder = self._roles.forwarding(message.topic)
            if forwarder is not None:
                if self._config.gossips:
                    self._gossip(member, forwarder, run, hops, sender.peer)
                self._hand_down(forwarder, run, hops, sender.peer)

    def on_route_event(self, sender: Contact, message: RouteEvent) -> None:
        """A peer outside hands a run to the topic."""
        run = message.run
        note_received(self._ctx, "routed_received", run)
        member = self.members.get(message.topic)
        taken = False
        if member is not None and member.subscribed and not member.entering and not message.again:
            if self._take_in(member, run, 1, sender) is Taken.NEW:
                self._spread(member, run, 1, sender.peer)
            taken = member.recent.has_taken(run)
        why = "" if taken else self._delivery.refusal(message.topic, span_of(run))
        result = RouteResult(message.topic, run.incarnation, run.first, taken, why)
        self._ctx.send(sender, result)

    def on_route_check(self, sender: Contact, message: RouteCheck) -> None:
        member = self.members.get(message.topic)
        takes_part = member is not None and member.subscribed
        recent = member.recent if member is not None and takes_part else None
        answer_check(self._ctx, sender, message, recent, member is None or member.entering)

    def on_seen_request(self, sender: Contact, message: SeenRequest) -> None:
        member = self.members.get(message.topic)
        if member is None or not member.subscribed:
            self._ctx.send(sender, SeenReply(message.request, False))
        else:
            told = self._answered.tells(message.topic, sender.peer)
            seen = member.recent.seen() if told else []
            self._ctx.send(sender, SeenReply(message.request, True, seen))

    def on_beat(self, sender: Contact, message: Beat) -> None:
        member = self._member(sender, message.topic)
        if member is None or member.entering:
            return
        if message.recent != member.recent.fingerprint():
            self._note_parent(sender, message.topic, brings=False)
        settle_ms = 0 if message.fresh else self._ctx.config.dissemination.settle_ms
        recent.compare(self._ctx, message.topic, member.recent, sender, message.recent, settle_ms)

    def on_offer(self, sender: Contact, message: Offer) -> None:
        member = self._member(sender, message.topic)
        if member is None or member.entering or not member.subscribed:
            return
        member.differs = sender
        self._note_parent(sender, message.topic, brings=True)
        listed = message.first and sender.peer not in member.watched
        if not listed or self._answered.offers(message.topic, sender.peer):
            recent.on_offer(self._ctx, member.recent, sender, message)

    def on_ihave(self, sender: Contact, message: IHave) -> None:
        member = self._member(sender, message.topic)
        if member is not None and not member.entering and member.subscribed:
            recent.ask_for(self._ctx, member.recent, sender, message)

    def on_want(self, sender: Contact, message: Want) -> None:
        member = self._member(sender, message.topic)
        if member is None:
            return
        linked = sender.peer in member.watched
        may = self._answered.repairs(message.topic, sender.peer, linked)
        recent.on_want(self._ctx, member.recent, sender, message, may)

    def on_repair(self, sender: Contact, message: Repair) -> None:
        member = self._member(sender, message.topic)
        if member is None:
            return
        self._note_parent(sender, message.topic, brings=True)
        new: list[Run] = []
        for run in message.runs:
            taken = self._judge(member, run, 0, sender)
            if taken is Taken.FORGED:
                break  # the sender of a forgery is not worth further verifications
            if taken is Taken.NEW:
                new.append(run)
            counted = "repaired" if taken is Taken.NEW else "repairs_duplicate"
            self._ctx.counters[counted] += len(run.payloads)
        self._announce(member, new, sender.peer)

    def _received(self, sender: Contact, message: Cast | Payload) -> Membership | None:
        """The membership that an event is for, or None after refusing it."""
        note_received(self._ctx, "payloads_received", message.run)
        self._note_parent(sender, message.topic, brings=True)
        if self.members.get(message.topic) is None:
            note_parasite(self._ctx, message.topic, message.run, sender.peer)
        return self._member(sender, message.topic)

    def _member(self, sender: Contact, topic: Topic) -> Membership | None:
        """The membership that a message is about, or None after refusing it."""
        member = self.members.get(topic)
        if member is None:
            self._ctx.counters["not_subscribed"] += 1
            self._ctx.send(sender, Vanished(topic))
            self._ctx.send(sender, Forget(topic))
        return member

    def _note_parent(self, sender: Contact, topic: Topic, brings: bool) -> None:
        role = self._roles.by_topic.get(topic)
        if role is not None and role.child is not None:
            role.child.note_parent(sender.peer, brings)

    def _take_in(self, member: Membership, run: Run, hops: int, sender: Contact) -> Taken:
        """What becomes of a run; copies are counted."""
        taken = self._judge(member, run, hops, sender)
        if taken in (Taken.COPY, Taken.OLD):
            note_copy(self._ctx, member.topic, run, sender.peer, hops)
        return taken

    def _judge(self, member: Membership, run: Run, hops: int, sender: Contact) -> Taken:
        arrival = Arrival(member.topic, member.recent, hops, sender.peer, sender, member.subscribed)
        taken = self._delivery.take_in(arrival, run)
        if taken is Taken.NEW:
            member.note_source(run, sender.peer)
        return taken

    # --- how a subscription begins ----------------------------------------------------------------

    def _oracles(self, member: Membership) -> list[Contact]:
        """The members to be asked what was published before."""
        role = self._roles.by_topic.get(member.topic)
        if role is not None and role.child is not None:
            return role.child.known()[:_ASKED_MAX]
        if role is None or role.forwarder is None:
            return []
        own = role.forwarder.place.table.own
        near = sorted(role.forwarder.sound(), key=lambda entry: entry.key ^ own)
        return [entry.contact for entry in near[:_ASKED_MAX]]

    def _ask_seen(self, member: Membership, candidates: list[Contact]) -> None:
        if not candidates:
            self._begin(member, None)
            return
        first, *others = candidates

        def answered(reply: SeenReply | None) -> None:
            if not member.entering:
                return
            if reply is None or not reply.member:
                self._ask_seen(member, others)
                return
            self._delivery.skip_to(member.recent, reply.seen)
            self._begin(member, first)

        request = partial(SeenRequest, topic=member.topic)
        self._dht.calls.ask(first, request, SeenReply, answered)

    def _begin(self, member: Membership, contact: Contact | None) -> None:
        """The subscription stands; without a contact there seems to be no other member."""
        member.asking = member.entering = False
        outcome: Outcome = "joined" if contact is not None else "instantiated"
        self.members.answer(member, outcome, contact)
        self._beat(member, list(self.around(member).values()), fresh=True)
        self._send_waiting(member)

    def _send_waiting(self, member: Membership) -> None:
        unsent, member.unsent = member.unsent, []
        for run in unsent:
            self._spread(member, run, 0, None)

    # --- links ------------------------------------------------------------------------------------

    def _choose_links(self, member: Membership) -> list[Contact]:
        """Choose links anew. Returns the peers that were not linked before, but for children, which
        compare by themselves."""
        forwarder = self._roles.forwarding(member.topic)
        member.links = self._links_of(forwarder) if forwarder is not None else {}
        came = self._watch(member)
        children = forwarder.children if forwarder is not None else ()
        return [one for one in came if one.peer not in children]

    def _links_of(self, forwarder: Forwarder) -> Links:
        own = position(forwarder.place.table.own)
        known = {position(entry.key): entry.contact for entry in forwarder.sound()}
        count, key = self._config.links_per_level, self._ctx.key(_KEEP, 0)
        chosen: Links = {}
        for level, there in treecast.levels(own, known, BITS).items():
            kept = treecast.kept_links(own, level, there, (), count, key, BITS)
            chosen[level] = {one: known[one] for one in kept}
        return chosen

    def _watch(self, member: Membership) -> list[Contact]:
        """Tell upper layers which links came and went; returns those that came."""
        now = self.around(member)
        for peer in [peer for peer in member.watched if peer not in now]:
            del member.watched[peer]
            self._ctx.tell(LinkDown(member.topic, peer))
        came = [contact for peer, contact in now.items() if peer not in member.watched]
        for contact in came:
            member.watched[contact.peer] = None
            self._ctx.tell(LinkUp(member.topic, contact, 0))
        return came

    def around(self, member: Membership) -> dict[PeerId, Contact]:
        """Links, parent, children."""
        found = member.linked()
        role = self._roles.by_topic.get(member.topic)
        if role is not None:
            found.update({one.peer: one for one in role.family()})
        return found

    def _seek_links(self, member: Membership) -> None:
        """A new forwarder looks for links on all levels that have none. Its table learns of the
        forwarders that are found; `settle` chooses among them the next time."""
        own = self._roles.own(member.topic)
        for level in range(max(member.links, default=0)):
            if level not in member.links:
                place = treecast.link_target(position(own), level, BITS)
                target = own >> BITS << BITS | place
                self._lookup.find(member.topic, target, lambda entries: None, FEW)

    # --- schemes ----------------------------------------------------------------------------------

    def _spread(self, member: Membership, run: Run, hops: int, source: PeerId | None) -> None:
        """An event enters the topic here: spread it by the scheme."""
        role = self._roles.by_topic.get(member.topic)
        if role is None or not role.is_placed:
            if len(member.unsent) < _UNSENT_MAX:
                member.unsent.append(run)
        elif not self._config.gossips:
            self._root(member, role, run, hops, source)
        elif role.forwarder is not None:
            self._gossip(member, role.forwarder, run, hops, source)
            self._hand_down(role.forwarder, run, hops, source)
        elif role.child is not None:
            self._ctx.send(role.child.parent, Payload(member.topic, run, hops + 1))

    def _root(
        self, member: Membership, role: Role, run: Run, hops: int, source: PeerId | None
    ) -> None:
        """Cast an event from here; with several roots, have others cast it as well."""
        others = self._other_roots(member, role)
        names: list[PeerId] = []
        if others:
            first = role.child.parent if role.child is not None else self._ctx.me
            names = [first.peer, *(one.peer for one in others)]
        for tree, root in enumerate(others, 1):
            cast = Cast(member.topic, run, hops + 1, treecast.ROOT_CHARGE, tree, names)
            self._ctx.send(root, cast)
        own = Cast(member.topic, run, hops, treecast.ROOT_CHARGE, 0, names)
        self._cast(member, role, own, hops, source)

    def _other_roots(self, member: Membership, role: Role) -> list[Contact]:
        count = self._config.roots - 1
        if not count:
            return []
        if role.forwarder is not None:
            contacts = [entry.contact for entry in role.forwarder.sound()]
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
        topic, run = message.topic, message.run
        new, first = member.serve(run, message.tree)
        if role is None or not new:
            return
        forwarder, child = role.forwarder, role.child
        if forwarder is not None:
            if message.roots:
                member.expect(run, message.roots, self._ctx.now)
            for to, charge in self._delegates(member, forwarder, message):
                onward = Cast(topic, run, hops + 1, charge, message.tree, message.roots)
                self._ctx.send(to, onward)
            if first:
                self._hand_down(forwarder, run, hops, source)
        elif child is not None and child.parent.peer != source:
            own = position(self._roles.own(topic))
            there = position(location(topic, child.parent.peer))
            if treecast.is_in_charge(own, message.charge, there, BITS):
                up = Cast(topic, run, hops + 1, message.charge, message.tree, message.roots)
                self._ctx.send(child.parent, up)

    def _delegates(
        self, member: Membership, forwarder: Forwarder, message: Cast
    ) -> list[tuple[Contact, int]]:
        own, key = position(forwarder.place.table.own), self._ctx.next_key(_DELEGATE)
        if message.tree >= len(message.roots):  # one tree, which names no roots
            links = {level: list(there) for level, there in member.links.items()}
            chosen = treecast.delegates(own, message.charge, links, key, BITS)
            return [(member.links[charge - 1][place], charge) for place, charge in chosen]
        known = {position(entry.key): entry.contact for entry in forwarder.sound()}
        roots = [position(location(member.topic, peer)) for peer in message.roots]
        levels, whole = treecast.levels(own, known, BITS), self._ctx.config.dht.k
        chosen = treecast.forest_delegates(
            own, message.charge, levels, key, BITS, message.tree, roots, whole
        )
        return [(known[place], charge) for place, charge in chosen]

    def _hand_down(self, forwarder: Forwarder, run: Run, hops: int, source: PeerId | None) -> None:
        """To the children, which pass nothing on."""
        message = Payload(forwarder.place.role, run, hops + 1)
        for peer, child in forwarder.children.items():
            if peer not in (source, run.publisher):
                self._ctx.send(child.contact, message)

    def _gossip(
        self,
        member: Membership,
        forwarder: Forwarder,
        run: Run,
        hops: int,
        source: PeerId | None,
    ) -> None:
        view = self._partners(member.topic, forwarder)
        members = forwarder.size_estimate(self._ctx.config.dht.k)
        count = treecast.fanout(members, self._config.gossip_mode)
        without = [one for one in view if one in (source, run.publisher)]
        key = self._ctx.next_key(_PARTNERS)
        for peer in treecast.partners(list(view), count, key, without):
            self._ctx.send(view[peer], Payload(member.topic, run, hops + 1))
        if self._config.gossip_mode == "push-pull":
            if not member.rounds_left:
                self._ctx.set_timer(self._config.gossip_round_ms, ROUND, member.topic)
            member.rounds_left = treecast.pull_rounds(members)

    def _partners(self, topic: Topic, forwarder: Forwarder) -> dict[PeerId, Contact]:
        """The peers that a forwarder gossips with: its view, or before it has one its table."""
        role = self._roles.by_topic.get(topic)
        if role is not None and role.view:
            return role.view
        return {entry.contact.peer: entry.contact for entry in forwarder.sound()}

    # --- repair -----------------------------------------------------------------------------------

    def _mend_trees(self, member: Membership) -> None:
        """The roots that came with events reveal trees that failed on their way here (Section 5.2):
        ping such a root and the closest members inside of its tree, one of which should have sent
        to this one, and look for this member's own place, so that its neighbours know it."""
        forwarder = self._roles.forwarding(member.topic)
        before = self._ctx.now - self._ctx.config.dissemination.settle_ms
        failed = member.failed_trees(before)
        if forwarder is None or not any(failed.values()):
            return
        self._ctx.counters["trees_failed"] += sum(one.bit_count() for one in failed.values())
        doubted: dict[PeerId, Contact] = {}
        for names, lacking in failed.items():
            roots = [position(location(member.topic, peer)) for peer in names]
            inside = [
                entry.contact
                for entry in forwarder.neighbours()
                if lacking >> treecast.tree_of(position(entry.key), roots, BITS) & 1
            ]
            near = inside[:_DOUBTED_MAX]
            near += [one for one in inside[_DOUBTED_MAX:] if one.peer in names]
            doubted.update({one.peer: one for one in near})
        self._ctx.tell(Late(tuple(doubted.values())))
        own = self._roles.own(member.topic)
        self._lookup.find(member.topic, own, lambda entries: None, FEW)

    def _beat_sometimes(self, member: Membership) -> None:
        """Beat over all links if an event was seen since the last time, else over one of them: now
        and then, or as long as another member has seen something else. That member gets a beat,
        too, since it could not yet offer an event that had only just come to it. A child, whose
        only link is its parent, beats to other forwarders by turns, more often after events, and
        meets more of them: one that has what its parent leaves out tells it."""
        if member.entering:
            return
        around, fingerprint = self.around(member), member.recent.fingerprint()
        if fingerprint != member.beaten:
            member.beaten, member.quiet_cycles = fingerprint, 0
            self._beat(member, [*around.values(), *self._second_source(member)], fresh=False)
            return
        member.quiet_cycles += 1
        seldom = member.quiet_cycles % _QUIET_EVERY == 0
        told = [member.differs] if member.differs is not None else []
        member.differs = None
        others = list(self._alternatives(member).values())
        wary = member.quiet_cycles <= _WARY_CYCLES
        if others:
            told.append(others[member.quiet_cycles % len(others)])
            if wary:
                told.append(others[(member.quiet_cycles + len(others) // 2) % len(others)])
            if seldom or (wary and member.quiet_cycles % 2 == 0):
                self._meet_others(member.topic)
            if member.is_doubtful and member.quiet_cycles.bit_count() == 1:
                self._meet_strangers(member)
        elif around and (told or seldom):
            told.append(self._ctx.pick(_ONE, list(around.values())))
        self._beat(member, list(dict.fromkeys(told)), fresh=False)

    def _alternatives(self, member: Membership) -> dict[PeerId, Contact]:
        """Other forwarders for a child to ask: its parent may have come later and lack events."""
        role = self._roles.by_topic.get(member.topic)
        child = role.child if role is not None else None
        return {one.peer: one for one in child.alternatives} if child is not None else {}

    def _meet_others(self, topic: Topic) -> None:
        """A child looks for forwarders at a random place, since its parent may name liars only."""
        role = self._roles.by_topic.get(topic)
        child = role.child if role is not None else None
        if child is None:
            return

        def found(entries: list[Entry]) -> None:
            child.meet([entry.contact for entry in entries], self._config.alternatives_max)

        target = self._samples.random_target(topic)
        gates = [*child.known(), *self._lookup.heard_of(topic)]
        self._lookup.find(topic, target, found, FEW, gates)

    def _meet_strangers(self, member: Membership) -> None:
        """A child to which nobody brings anything compares with members that speak for themselves,
        ever more rarely: all forwarders that it can find may be hostile, and then children are all
        that is left of the topic."""

        def met(members: list[Contact]) -> None:
            known = self.around(member)
            others = [one for one in members if one.peer not in known]
            self._beat(member, others, fresh=True)

        if self._ctx.config.defence.claims:
            self._lookup.find_members(member.topic, met)

    def _second_source(self, member: Membership) -> list[Contact]:
        """Another forwarder for a child to compare with, since a parent that leaves events out does
        not tell so."""
        others = list(self._alternatives(member).values())
        return [self._ctx.pick(_ONE, others)] if others else []

    def _beat(self, member: Membership, contacts: list[Contact], fresh: bool) -> None:
        message = Beat(member.topic, member.recent.fingerprint(), fresh)
        for contact in contacts:
            self._ctx.send(contact, message)

    def _announce(self, member: Membership, runs: list[Run], source: PeerId) -> None:
        if not runs:
            return
        spans = [Span(one.publisher, one.incarnation, one.first, one.last) for one in runs]
        message = IHave(member.topic, spans)
        for peer, contact in self.around(member).items():
            if peer != source:
                self._ctx.send(contact, message)
