"""What one peer knows of one topic's tree: its place, and the levels around it; and what members
tell each other of these.

A parent names to its children, every cycle and whenever it changes, the way up to the root, the
rendezvous, and some subscribers near by. Repair starts from these peers, and history asks them.
Only live links pass such names on, so a peer that is gone is soon not named any more. The
rendezvous of a tree tell each other what they serve.

Invariants: a linked peer is exactly one of parent, child and fellow rendezvous. A rendezvous has no
parent, but for the link to the one it had before, for a cycle or two. All lists are bounded by the
messages they come from, children by `children_max`, fellows by twice the number of rendezvous.
`watched` are the links that upper layers were told of; every method that changes links tells them,
unless it says otherwise.

The rest of the package decides; only this module writes.

How events spread (`Events`): an event of a member goes over all its links, and each member passes
it on over all of its own but the one it came by. Over every new link, and every cycle, the two ends
compare what they have seen (`recent.py`). So a member that was without a parent for a while gets
the events that it missed and gives those that should have gone up, two parts of a tree that find
each other again end with the same events, and a lost message is made up for within some cycles. A
repaired event is passed on like any other, since members below missed it as well.

Deviation: the only way from a member to the rest of the tree is its parent, which may be a black
hole that passes nothing on and has seen the same as its child. So a member that has published shows
its events to roots as well (numbers, no payload), for two cycles; a root that lacks one asks for it
and spreads it. One of them is asked what it has seen, too; where two in a row do not say, members
that a lookup meets are shown the events, since what black holes take goes no farther. The roots are
the closest peers to the topic's id of those that this peer knows and those that its parent names,
so a parent cannot make them up. Two black holes above each other agree on what the lower one never
got. So beats carry what their root has seen, and a member that stays behind while nothing comes
compares with a root itself, and where all roots bring nothing, with members that a lookup meets. (A
parent that lies about the root's beat as well still starves its children: comparing with roots all
the time would cost messages at rest.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Annotated, TypeAlias

from msgspec import Meta

from weft.bounded import BoundedDict
from weft.documents.run import Proven, Run, Statement
from weft.ids import Contact, PeerId, Topic, WireTopic
from weft.protocol import recent
from weft.protocol.context import Context, LinkDown, LinkUp, MemberMet
from weft.protocol.defence import Answered
from weft.protocol.delivery import Arrival, Delivery, Taken, note_copy, note_parasite, note_received
from weft.protocol.publication import RouteCheck, RouteEvent, RouteResult, answer_check
from weft.protocol.recent import NOT_SEEN, Offer, Recent, Repair, Want
from weft.protocol.seam import Millis, Scheme
from weft.protocol.subscriptions import Subscriptions, TopicPart
from weft.protocol.wire import HOPS_MAX, Counter, Message, Payload, span_of
from weft.rules.draw import stream_of
from weft.rules.multicast import is_cut_off, onward, push_down, tree_location

_SIBLINGS = stream_of("pulsar.siblings")
_SIBLINGS_TOLD = 8
"""guess: subscribers named to a child."""
_INSTEAD_TOLD = 4
"""guess: peers named to the children that a leaving parent had."""
_SHOWS = 2
"""guess: cycles after an event of this peer's own in which it is shown to roots: in the first of
them it may not have spread yet."""
_DIFFERING_MAX = 16
"""guess: linked members remembered to have seen something else; a root has some fellows."""

# --- messages -------------------------------------------------------------------------------------

FAMILY_MAX = 16
"""guess: peers of one kind that one message names."""
PATH_WIRE_MAX = 32
"""As many ancestors as a member can have (rules/multicast.py)."""
AGE_MAX = 1 << 16

Contacts: TypeAlias = Annotated[list[Contact], Meta(max_length=FAMILY_MAX)]


class TreeFamily(Message, frozen=True, tag=72):
    """From a parent, passed down from the roots every cycle: the peers around and above."""

    topic: WireTopic
    beat: Counter  # of the root, counted up every cycle
    age: Annotated[int, Meta(ge=0, le=AGE_MAX)]  # cycles since the parent heard of a new one
    subscribed: bool  # whether the parent is
    path: Annotated[
        list[Contact], Meta(max_length=PATH_WIRE_MAX)
    ]  # above the parent, nearest first
    rendezvous: Contacts
    siblings: Contacts  # some subscribers near by
    recent: Counter = 0  # fingerprint of what the parent has seen
    root_recent: Counter = 0  # and of what the root had seen at this beat; 0: nothing, or not told


class TreeLeave(Message, frozen=True, tag=73):
    """There is no link between us in this tree (any more)."""

    topic: WireTopic
    instead: Contacts = []  # where children may go


class RendezvousSync(Message, frozen=True, tag=74):
    """Between the roots of a topic's tree: what each of them serves."""

    topic: WireTopic
    beat: Counter
    subscribed: bool
    children: Counter
    rendezvous: Contacts  # those that the sender is joined to
    members: Contacts  # some of the sender's children that are subscribed
    answer: bool  # whether one is wanted
    recent: Counter = 0  # fingerprint of what the sender has seen


# --- state ----------------------------------------------------------------------------------------


class Child:
    """A peer that gets the events from this one."""

    __slots__ = ("contact", "subscribed")

    def __init__(self, contact: Contact, subscribed: bool) -> None:
        self.contact = contact
        self.subscribed = subscribed


class Fellow:
    """Another rendezvous of the topic."""

    __slots__ = ("children", "contact", "heard_cycle", "joined_to", "members", "subscribed")

    def __init__(self, contact: Contact) -> None:
        self.contact = contact
        self.subscribed = False
        self.children = 0
        self.joined_to: dict[PeerId, Contact] = {}  # rendezvous that it passes events to itself
        self.members: list[Contact] = []
        self.heard_cycle = 0

    def hear(self, message: RendezvousSync, me: PeerId, cycle: int) -> None:
        """This root told its children and the roots that it is joined to."""
        self.heard_cycle = cycle
        self.subscribed = message.subscribed
        self.children = min(message.children, 1 << 32)
        self.joined_to = {one.peer: one for one in message.rendezvous}
        self.members = [one for one in message.members if one.peer != me]


class Branch(TopicPart):
    """One tree, seen from one peer."""

    __slots__ = (
        "_ctx",
        "_differs",
        "_seen_then",
        "_starved",
        "beat",
        "begun_cycle",
        "children",
        "family_heard",
        "fellows",
        "fresh",
        "heard_cycle",
        "idle_cycles",
        "location",
        "parent",
        "parent_subscribed",
        "path",
        "rendezvous",
        "root_recent",
        "roots",
        "shows",
        "siblings",
        "unsettled",
        "watched",
    )

    def __init__(self, ctx: Context, topic: Topic, recent: Recent) -> None:
        super().__init__(topic, recent)
        self._ctx = ctx
        self.location = tree_location(topic)
        self.fresh = False  # a subscriber that does not know yet what came before
        self.rendezvous = False
        self.parent: Contact | None = None
        self.parent_subscribed = False
        self.children: dict[PeerId, Child] = {}
        self.fellows: dict[PeerId, Fellow] = {}
        self.path: tuple[Contact, ...] = ()  # above the parent, nearest first
        self.roots: tuple[Contact, ...] = ()  # rendezvous heard of
        self.siblings: tuple[Contact, ...] = ()  # some subscribers near by
        self.family_heard = False
        self.beat = 0
        self.root_recent = 0  # fingerprint of what the root had seen then
        self.heard_cycle = ctx.cycle  # when the beat last changed
        self.begun_cycle = 0  # as a rendezvous
        self.idle_cycles = 0  # as a rendezvous that serves no peer
        self.unsettled = False  # a rendezvous, while the roots are not those that should be
        self.shows = 0  # times that this peer's own events are yet to be shown to roots
        self.watched: dict[PeerId, None] = {}  # links that upper layers were told of
        # By linked member: cycles in a row in which it had seen something else.
        self._differs: BoundedDict[PeerId, int] = BoundedDict(_DIFFERING_MAX)
        self._starved = 0  # beats in a row at which the root had seen more, and nothing had come
        self._seen_then = 0  # fingerprint of what this peer had seen at the latest beat

    @property
    def attached(self) -> bool:
        """Whether this peer is in the tree."""
        return self.rendezvous or self.parent is not None

    @property
    def takes_children(self) -> bool:
        """Whether this peer's own way up is whole, as far as it has heard; else the members below a
        lost root would all join each other."""
        patience = self._ctx.config.pulsar.patience_cycles
        whole = not is_cut_off(self.heard_cycle, self._ctx.cycle, patience - 1)
        return self.rendezvous or (self.parent is not None and whole)

    @property
    def orphaned(self) -> bool:
        """Whether this peer was in the tree, and has lost its place for now."""
        return not self.attached and not self.fresh

    def above(self) -> list[Contact]:
        """The way up to the root, nearest first."""
        return [] if self.parent is None or self.rendezvous else [self.parent, *self.path]

    def is_below(self, peer: PeerId) -> bool:
        """Whether a peer is the parent."""
        return self.parent is not None and self.parent.peer == peer

    def links(self) -> dict[PeerId, Contact]:
        """All peers that events go to and come from."""
        found = {peer: fellow.contact for peer, fellow in self.fellows.items()}
        if self.parent is not None:
            found[self.parent.peer] = self.parent
        for peer, child in self.children.items():
            found[peer] = child.contact
        return found

    def subscribers(self) -> dict[PeerId, Contact]:
        """Other subscribers that this peer knows, linked ones first."""
        found: dict[PeerId, Contact] = {}
        if self.parent is not None and self.parent_subscribed:
            found[self.parent.peer] = self.parent
        for child in self.children.values():
            if child.subscribed:
                found[child.contact.peer] = child.contact
        for fellow in self.fellows.values():
            if fellow.subscribed:
                found[fellow.contact.peer] = fellow.contact
            for one in fellow.members:
                found.setdefault(one.peer, one)
        for one in self.siblings:
            found.setdefault(one.peer, one)
        return found

    # --- places -----------------------------------------------------------------------------------

    def enter(self) -> None:
        """A new subscriber does not want what was published before, unless it has had that anyhow,
        as a rendezvous for others."""
        super().enter()
        if not self.attached:
            self.fresh = True

    def take_parent(self, parent: Contact, subscribed: bool) -> None:
        """There is a (new) parent."""
        if self.parent is not None and self.parent.peer != parent.peer:
            self._ctx.send(self.parent, TreeLeave(self.topic))
        self.forget(parent.peer)  # first, so that a former fellow is not left
        if self.rendezvous:
            self.step_down()
        self.parent, self.parent_subscribed = parent, subscribed
        self.path = ()
        self.heard_cycle = self._ctx.cycle
        self.family_heard = False
        self.settle()

    def end_fresh(self) -> bool:
        """The peer knows now what was published before it subscribed; returns whether it did not
        until now."""
        fresh, self.fresh = self.fresh, False
        return fresh

    def take_child(self, contact: Contact, subscribed: bool) -> None:
        self.forget(contact.peer)
        self.children[contact.peer] = Child(contact, subscribed)
        self.settle()

    def take_fellow(self, contact: Contact) -> Fellow:
        """Another peer is a rendezvous of the tree, as this one is."""
        self.forget(contact.peer)
        fellow = self.fellows[contact.peer] = Fellow(contact)
        self.settle()
        self.tell_children()
        return fellow

    def become_root(self, for_want: bool = False) -> None:
        """Become a rendezvous, with the children that there are; `for_want` of another one, so that
        closer peers are looked for. The link to the parent stays for events, until other roots are
        known (`Roots.run_cycle`): nothing is cut off meanwhile."""
        self.fresh = False
        self.rendezvous = True
        self.begun_cycle = self.heard_cycle = self._ctx.cycle
        self.idle_cycles = 0
        self.unsettled = self.unsettled or for_want
        self.path, self.siblings = (), ()
        self.beat = 1
        self._ctx.counters["trees_rooted"] += 1
        self.settle()
        self.tell_children()

    def step_down(self) -> None:
        """This peer is no rendezvous any more."""
        self.rendezvous = self.unsettled = False
        for fellow in self.fellows.values():
            self._ctx.send(fellow.contact, TreeLeave(self.topic))
        self.fellows.clear()
        self.settle()

    def leave_parent(self) -> None:
        """The way up leads nowhere: this peer has no parent any more."""
        if self.parent is not None:
            self._ctx.send(self.parent, TreeLeave(self.topic))
            self.parent = None
        self.path = ()
        self.settle()

    def leave(self) -> None:
        """Leave the tree; children are told where to go instead."""
        above = [] if self.parent is None else [self.parent]
        instead = [*above, *(one for one in self.roots if one not in above)][:_INSTEAD_TOLD]
        links, children = self.links(), self.children
        for peer, contact in links.items():
            self._ctx.send(contact, TreeLeave(self.topic, instead if peer in children else []))
        for peer in links:
            self.forget(peer)
        self.rendezvous = False
        self.settle()

    def unlink(self, peer: PeerId) -> None:
        """A link is gone; with the parent, the way up is."""
        if self.parent is not None and self.parent.peer == peer:
            self.path = ()
        self.forget(peer)
        self.settle()

    def forget(self, peer: PeerId) -> None:
        """There is no link to a peer (any more); upper layers are told by `settle`."""
        self.children.pop(peer, None)
        self.fellows.pop(peer, None)
        if self.parent is not None and self.parent.peer == peer:
            self.parent = None

    def drop_everywhere(self, peer: PeerId) -> None:
        """A peer is gone, so it is not asked for anything; upper layers know."""
        self.forget(peer)
        self.path = tuple(one for one in self.path if one.peer != peer)
        self.roots = tuple(one for one in self.roots if one.peer != peer)
        self.siblings = tuple(one for one in self.siblings if one.peer != peer)
        for fellow in self.fellows.values():
            fellow.members = [one for one in fellow.members if one.peer != peer]

    def settle(self) -> None:
        """Tell upper layers which links came and went, so that they are watched."""
        links = self.links()
        for peer in [peer for peer in self.watched if peer not in links]:
            del self.watched[peer]
            self._ctx.tell(LinkDown(self.topic, peer))
        for peer, contact in links.items():
            if peer not in self.watched:
                self.watched[peer] = None
                self._ctx.tell(LinkUp(self.topic, contact, 0))

    # --- what is counted --------------------------------------------------------------------------

    def on_root_cycle(self) -> None:
        """A cycle of a root begins: that is another beat."""
        self.beat += 1
        self.heard_cycle = self._ctx.cycle

    def count_idle(self, idle: bool) -> int:
        """How many cycles in a row a root has served no peer."""
        self.idle_cycles = self.idle_cycles + 1 if idle else 0
        return self.idle_cycles

    def note_published(self) -> None:
        """This peer has spread an event of its own."""
        self.shows = _SHOWS

    def count_show(self) -> bool:
        """Whether events of this peer's own are to be shown to roots in this cycle."""
        due = self.shows > 0
        self.shows -= due
        return due

    def compare_roots(self, among: bool, others: Sequence[Contact]) -> None:
        """A lookup has found the closest peers, `others` and perhaps this one (`among`): the roots
        are settled if they are these."""
        self.unsettled = not (among and all(one.peer in self.fellows for one in others))

    def on_check_put_off(self) -> None:
        """The roots are looked up in a later cycle: until then they are not known to be the right
        ones."""
        self.unsettled = True

    def count_differing(self, other: PeerId, differs: bool) -> int:
        """How many comparisons in a row found that this linked member had seen something else. Each
        member is counted by itself, since one that agrees may lack the same events."""
        count = self._differs.pop(other, 0)
        if differs:
            count += 1
            self._differs[other] = count
            return count
        return 0

    def count_starved(self) -> int:
        """At how many beats in a row the root had seen something else, while nothing has come here
        in between. Where events flow, the two differ at any time, and that says nothing."""
        seen = self.recent.fingerprint()
        starved = self.root_recent not in (0, seen) and seen == self._seen_then
        self._seen_then = seen
        self._starved = self._starved + 1 if starved else 0
        return self._starved

    # --- what members tell each other -------------------------------------------------------------

    def on_family(self, message: TreeFamily) -> None:
        """The parent tells of the levels around and above."""
        me = self._ctx.me.peer
        path = tuple(takewhile(lambda one: one.peer != me, message.path))
        roots = tuple(message.rendezvous)
        changed = (message.beat, path, roots) != (self.beat, self.path, self.roots)
        heard_cycle = self._ctx.cycle - message.age
        if self.family_heard:
            heard_cycle = max(self.heard_cycle, heard_cycle)
        self.heard_cycle = heard_cycle
        begins = not self.family_heard and not self.parent_subscribed
        self.beat, self.path, self.roots = message.beat, path, roots
        self.root_recent = message.root_recent
        self.siblings = tuple(one for one in message.siblings if one.peer != me)
        self.parent_subscribed = message.subscribed
        self.family_heard = True
        if begins and self.siblings:
            self.meet(self.siblings[0])
        if changed:
            self.tell_children()

    def meet(self, contact: Contact) -> None:
        """Another subscriber is known now: history begins with it."""
        if self.subscribed:
            self._ctx.tell(MemberMet(self.topic, contact))

    def tell_children(self, only: PeerId | None = None) -> None:
        """Send the family around this peer to its children, or to one of them."""
        if not self.children:
            return
        ctx, around = self._ctx, self.subscribers()
        above = self.above()
        if self.rendezvous:
            roots = [ctx.me, *(fellow.contact for fellow in self.fellows.values())]
        else:
            roots = list(self.roots)
        for peer, child in self.children.items():
            if only is not None and peer != only:
                continue
            others = [one for one in around.values() if one.peer != peer]
            key = ctx.next_key(_SIBLINGS)
            message = TreeFamily(
                self.topic,
                self.beat,
                min(max(0, self._ctx.cycle - self.heard_cycle), AGE_MAX),
                self.subscribed,
                above[:PATH_WIRE_MAX],
                roots[:FAMILY_MAX],
                push_down(others, key, _SIBLINGS_TOLD),
                self.recent.fingerprint(),
                self.recent.fingerprint() if self.rendezvous else self.root_recent,
            )
            ctx.send(child.contact, message)

    def sync(self, answer: bool) -> RendezvousSync:
        """What this peer, as a rendezvous, tells the topic's other rendezvous."""
        members = [child.contact for child in self.children.values() if child.subscribed]
        return RendezvousSync(
            self.topic,
            self.beat,
            self.subscribed,
            len(self.children),
            [fellow.contact for fellow in self.fellows.values()][:FAMILY_MAX],
            members[:FAMILY_MAX],
            answer,
            self.recent.fingerprint(),
        )


class Trees(Subscriptions[Branch]):
    """The trees of one peer."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx, self._plant)

    def _plant(self, topic: Topic, recent: Recent, scheme: Scheme | None) -> Branch:
        return Branch(self._ctx, topic, recent)


# --- events ---------------------------------------------------------------------------------------

_ELSEWHERE = stream_of("pulsar.elsewhere")
_DIFFERS_MAX = 2
"""guess: cycles; while events flow, the two ends of a link often differ for a moment."""


class Events:
    """The events of one peer's trees."""

    def __init__(self, ctx: Context, delivery: Delivery, trees: Trees) -> None:
        self._ctx = ctx
        self._delivery = delivery
        self._trees = trees
        self.answered = Answered(ctx)

    def publish(self, topic: Topic, proven: Proven, delivered: bool) -> bool:
        """Spread a run of this peer's own, if it is in the tree or about to be."""
        branch = self._trees.get(topic)
        if branch is None:
            return False
        if self._delivery.admit_own(branch.recent, proven):
            if branch.subscribed and not delivered:
                self._delivery.deliver(topic, proven.run, 0, None)
            self._push(branch, proven.run, 0, None)
            branch.note_published()
        return True

    def skip_to(self, branch: Branch, seen: list[Statement]) -> None:
        """A fresh subscriber passes over what was published before."""
        if branch.end_fresh():
            self._delivery.skip_to(branch.recent, seen)

    # --- handlers ---------------------------------------------------------------------------------

    def on_payload(self, sender: Contact, message: Payload) -> None:
        ctx, run = self._ctx, message.run
        note_received(ctx, "payloads_received", run)
        branch = self._trees.get(message.topic)
        if branch is None:
            ctx.counters["not_subscribed"] += 1
            note_parasite(ctx, message.topic, run, sender.peer)
            return
        hops = min(message.hops, HOPS_MAX - 1)  # room for one more hop
        if self._accept(branch, run, hops, sender) in (Taken.COPY, Taken.OLD):
            note_copy(ctx, message.topic, run, sender.peer, hops)

    def on_route_event(self, sender: Contact, message: RouteEvent) -> None:
        """A peer outside of the tree hands a run to it."""
        run = message.run
        note_received(self._ctx, "routed_received", run)
        branch = self._trees.get(message.topic)
        taken = False
        if branch is not None and not branch.fresh and not message.again:
            self._accept(branch, run, 1, sender)
            taken = branch.recent.has_taken(run)
        why = "" if taken else self._delivery.refusal(message.topic, span_of(run))
        result = RouteResult(message.topic, run.incarnation, run.first, taken, why)
        self._ctx.send(sender, result)

    def on_route_check(self, sender: Contact, message: RouteCheck) -> None:
        branch = self._trees.get(message.topic)
        recent = branch.recent if branch is not None else None
        answer_check(self._ctx, sender, message, recent, branch is None or branch.fresh)

    def on_offer(self, sender: Contact, message: Offer) -> None:
        branch = self._trees.get(message.topic)
        if branch is None or branch.fresh:
            return
        listed = message.first and sender.peer not in branch.watched
        if not listed or self.answered.offers(message.topic, sender.peer):
            recent.on_offer(self._ctx, branch.recent, sender, message)

    def on_want(self, sender: Contact, message: Want) -> None:
        branch = self._trees.get(message.topic)
        if branch is None:
            return
        linked = sender.peer in branch.watched
        may = self.answered.repairs(message.topic, sender.peer, linked)
        recent.on_want(self._ctx, branch.recent, sender, message, may)

    def on_repair(self, sender: Contact, message: Repair) -> None:
        branch = self._trees.get(message.topic)
        if branch is None:
            return
        for run in message.runs:
            taken = self._accept(branch, run, 0, sender)
            if taken is Taken.FORGED:
                break  # the sender of a forgery is not worth further verifications
            counted = "repaired" if taken is Taken.NEW else "repairs_duplicate"
            self._ctx.counters[counted] += len(run.payloads)

    # --- comparing over links ---------------------------------------------------------------------

    def compare(self, branch: Branch, other: Contact, fingerprint: int, settle_ms: Millis) -> bool:
        """Offer what is held here to another member that has seen something else; returns whether
        it has."""
        if branch.fresh:
            return False
        return recent.compare(self._ctx, branch.topic, branch.recent, other, fingerprint, settle_ms)

    def offer(self, branch: Branch, other: Contact) -> None:
        """Offer what is held here to a member, whatever it has seen."""
        self.compare(branch, other, NOT_SEEN, settle_ms=0)

    def show(self, branch: Branch, others: Iterable[Contact]) -> None:
        """Offer events that should have spread by now to members that may lack them."""
        for other in others:
            settle_ms = self._ctx.config.dissemination.settle_ms
            recent.show(self._ctx, branch.topic, branch.recent, other, settle_ms)

    def ask(self, branch: Branch, other: Contact) -> None:
        """Show as well, and have a member say what it has seen."""
        settle_ms = self._ctx.config.dissemination.settle_ms
        self.compare(branch, other, NOT_SEEN, settle_ms)

    def compare_again(self, branch: Branch, other: Contact, fingerprint: int) -> None:
        """Compare over a standing link, once a cycle. If its ends differ for longer, neither may
        hold what the other lacks (one that came later passed it over): then compare with any other
        member."""
        settle_ms = self._ctx.config.dissemination.settle_ms
        differs = self.compare(branch, other, fingerprint, settle_ms)
        if branch.count_differing(other.peer, differs) < _DIFFERS_MAX:
            return
        known = {one.peer: one for one in (*branch.path, *branch.roots)}
        known |= branch.subscribers()
        linked = branch.links()
        others = [one for peer, one in known.items() if peer not in linked]
        others = [one for one in others if one.peer != self._ctx.me.peer]
        if others:
            chosen = self._ctx.pick(_ELSEWHERE, others)
            self.compare(branch, chosen, fingerprint, settle_ms)

    # --- helpers ----------------------------------------------------------------------------------

    def _accept(self, branch: Branch, run: Run, hops: int, sender: Contact) -> Taken:
        delivery, source = self._delivery, sender.peer
        ask = branch.subscribers().get(source) if delivery.stored else None
        arrival = Arrival(branch.topic, branch.recent, hops, source, ask, branch.subscribed)
        taken = delivery.take_in(arrival, run)
        if taken is Taken.NEW:
            self._push(branch, run, hops, sender.peer)
        return taken

    def _push(self, branch: Branch, run: Run, hops: int, source: PeerId | None) -> None:
        fellow = branch.fellows.get(source) if source is not None else None
        told: list[PeerId] = []
        if fellow is not None:  # other roots; what it says of this one's children does not count
            told = [peer for peer in fellow.joined_to if peer in branch.fellows]
        message = Payload(branch.topic, run, hops + 1)
        for contact in onward(branch.links(), source, told):
            self._ctx.send(contact, message)
