"""How a peer is attached to a tree: by its parent and children, or as a root.

To get in, or back in after its parent is lost, a peer first asks the members that it knows for a
place: after a loss those above the lost parent, then the rendezvous. If none has a place, a lookup
towards the topic's id asks each peer on the way whether it is a member. If none is, the
closest peers are the rendezvous; a joiner that is among them becomes one itself. A member without
room names other rendezvous and children of its own instead.

Invariants: there is at most one join under way per tree. A join asks at most `_ASKED_MAX` peers and
makes at most `_LOOKUPS_MAX` lookups; then the next cycle begins another one.

The roots (`Roots`) are the peers closest to the topic's id, the rendezvous, joined to each other.
Every cycle each rendezvous tells the others what it serves, and sends a beat down its part of the
tree. From time to time, and when one of them is lost, it looks the closest peers up again: a peer
that is among them now is told and becomes a rendezvous, one that is not any more becomes the child
of one. Each rendezvous alone holds the tree together: members below a lost one join the others,
which all members know of (`branch.py`). A rendezvous that serves no peer gives the tree up.

A peer that is asked to be a rendezvous checks by its own table whether it is close enough, so that
no peer can be made to serve topics far away from it. Anybody can make up topics close to it, so it
remembers which peer asked first (`Served`): for each asker it makes a bounded number of lookups a
cycle, and those that are left wait; where it has no room for another tree, an asker that has fewer
takes the place of the oldest tree of the asker that has most.

Sharing (`stan.enabled`; Matos and others, StaN): a tree leaves open which of its members is whose
parent. So a leaf whose connection to its parent serves this one tree asks, one a cycle, the peers
that it is linked to for other topics whether they have a place for it in this tree, and moves below
the first that has (`rules/stan.py` `shared_parent`). It keeps its place until then, and makes no
lookup for it. Only a leaf moves, so no circle comes of it.

From outside, a tree is found by a lookup towards its topic's id that asks each peer on the way
whether it is a member (as Scribe does on the way to its root). The lookup asks all of the closest
peers, so if none of them is a member there is no tree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import ClassVar

from msgspec import Struct, field

from weft.bounded import BoundedDict
from weft.ids import GENERAL, Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.lookup import Outcome, Question
from weft.protocol.kademlia.rpc import PROVIDERS, FindReply
from weft.protocol.kademlia.table import PLAIN, Entry
from weft.protocol.pulsar.branch import (
    Branch,
    Contacts,
    Events,
    RendezvousSync,
    TreeFamily,
    TreeLeave,
    Trees,
)
from weft.protocol.quota import Quota
from weft.protocol.recent import Offer
from weft.protocol.seam import Timer
from weft.protocol.wire import Counter, Message, Statements
from weft.rules.draw import stream_of
from weft.rules.multicast import (
    has_room,
    is_circle,
    is_cut_off,
    is_idle,
    is_overdue,
    is_rendezvous,
    may_join,
    opens_circle,
    push_down,
    repair_order,
    tree_key,
    tree_location,
)
from weft.rules.prefix import location_of
from weft.rules.stan import ranking, shared_parent

_DOWN = stream_of("pulsar.down")
_SHOWN = stream_of("pulsar.shown")
_SHOWN_TO = 2
"""guess: roots that an event of this peer's own is shown to, in each of two cycles. Where 30 % of
all peers are hostile, both are in one case of 11, and all three roots in one of 37."""
_SILENT_ROOTS = 2
"""guess: roots in a row that do not say what they have seen after an event of this peer's own,
before other members are looked for; one message of two may be lost."""
_STARVED_BEATS = 2
"""guess: beats, ten seconds apart, at which the root had seen more while nothing came; an event
that was just published may take as long as one."""
_FORSAKEN_BEATS = 4
"""guess: such beats after which other members are looked for; by then this peer has compared with
three roots."""
_ASKED_MAX = 32
"""guess: peers asked for a place in one join; the next cycle begins another."""
_LOOKUPS_MAX = 3
"""guess: lookups made in one join, each of which asks all of the closest peers."""
_AT_ONCE = 3
"""guess: peers that a member without a parent asks together; the first that has a place wins."""
_SHARED_MAX = 4_096
"""guess: pairs remembered of a tree and a peer asked there for sharing; 64 trees with 64 links."""
_INSTEAD = 3
"""guess: children named to a peer that a full member cannot take."""

# --- messages -------------------------------------------------------------------------------------


class TreeJoin(Message, frozen=True, tag=70):
    """Take me as your child."""

    asks: ClassVar[bool] = True

    topic: WireTopic
    subscribed: bool  # False: a former rendezvous that has children still
    root: bool = False  # you are among the closest to the topic's id: begin a tree if need be
    fresh: bool = False  # a new subscriber, that does not want what came before


class TreeJoinReply(Message, frozen=True, tag=71):
    """Whether the asker has a place now, or else where it may have one."""

    topic: WireTopic
    accepted: bool
    subscribed: bool = False  # whether the new parent is
    instead: Contacts = []  # not accepted for want of room: try these children of mine
    recent: Counter = 0  # fingerprint of what the new parent has seen
    seen: Statements = []  # to a new subscriber: what was published before


# --- timers ---------------------------------------------------------------------------------------

TIMER = "pulsar.join"

# --- roots ----------------------------------------------------------------------------------------

_FELLOWS = 2
"""guess: other rendezvous kept, in multiples of the wanted ones, while peers differ about them."""
_DOUBTING_MAX = 4
"""guess: lookups at once that others can cause by asking for a rendezvous."""
_YOUNG_CYCLES = 2
"""guess: cycles in which a new rendezvous looks the closest peers up, since its table may be new,
too."""
_LOOKUPS_FOR_ONE = 16
"""guess: lookups in a cycle for trees that one peer has asked this one to serve; each takes two
dozen messages, so that costs this peer 40 a second. Enough for 96 such trees at rest."""

HandOver = Callable[[Branch, list[Contact]], None]
"""Told of a tree that other peers should be the roots of, and of these peers."""
Met = Callable[[Contact], bool]
"""Told of a member on the way; True ends the lookup."""
Found = Callable[[list[Entry]], None]
"""Told at the end of a lookup of the closest peers to the topic's id that answered."""


class Served:
    """The trees that this peer is a root of because others asked it, by the peer that was the first
    to ask."""

    def __init__(self, ctx: Context, trees: Trees) -> None:
        self._ctx = ctx
        self._trees = trees
        self._askers: dict[Topic, PeerId] = {}
        self._by_asker: dict[PeerId, dict[Topic, None]] = {}  # the oldest tree first
        self._lookups: Quota[PeerId] = Quota(_LOOKUPS_FOR_ONE, ctx.config.cyclon.cycle_ms)

    def begin(self, topic: Topic, asker: PeerId) -> None:
        self._askers[topic] = asker
        self._by_asker.setdefault(asker, {})[topic] = None

    def end(self, topic: Topic) -> None:
        asker = self._askers.pop(topic, None)
        if asker is not None:
            del self._by_asker[asker][topic]
            if not self._by_asker[asker]:
                del self._by_asker[asker]

    def may_look_up(self, asker: PeerId) -> bool:
        """Whether there may be one more lookup in this cycle because this peer asked."""
        return self._lookups.takes(asker, self._ctx.now)

    def may_check(self, branch: Branch) -> bool:
        """Whether the closest peers to a tree's id may be looked up now."""
        asker = self._askers.get(branch.topic)
        return asker is None or branch.subscribed or self.may_look_up(asker)

    def way_for(self, asker: PeerId) -> Branch | None:
        """The tree to give up for want of room, so that an asker gets its share; None if no other
        asker has more, since two that have as much would take the place from each other."""
        most = max(self._by_asker.values(), key=len, default={})
        if len(most) <= len(self._by_asker.get(asker, {})) + 1:
            return None
        branches = (self._trees.by_topic[topic] for topic in most)
        return next((branch for branch in branches if not branch.subscribed), None)


class Roots:
    """The trees that this peer is a root of."""

    def __init__(
        self, ctx: Context, dht: Kademlia, trees: Trees, served: Served, hand_over: HandOver
    ) -> None:
        self._ctx = ctx
        self._dht = dht
        self._trees = trees
        self._served = served
        self._hand_over = hand_over
        self._checking: dict[Topic, None] = {}
        self._doubting: dict[Topic, None] = {}  # topics that this peer was asked to serve

    # --- the way to a tree ------------------------------------------------------------------------

    def find_members(self, topic: Topic, met: Met, then: Found) -> bool:
        """Look up a topic's id, and call `met` with each peer on the way that is in its tree; False
        if too many lookups wait."""

        def seen(entry: Entry, reply: FindReply) -> bool:
            peer = entry.contact.peer
            return any(one.peer == peer for one in reply.providers) and met(entry.contact)

        question = Question(PLAIN, tree_location(topic), PROVIDERS, tree_key(topic))
        return self._dht.find(question, lambda outcome: then(outcome.closest), seen)

    def is_among(self, branch: Branch, closest: list[Contact]) -> bool:
        """Whether this peer is one of the rendezvous, with these the closest others."""
        keys = [location_of(one.peer) for one in closest]
        count = self._ctx.config.pulsar.rendezvous
        return is_rendezvous(self._dht.home.table.own, keys, branch.location, count)

    def takes_child(self, branch: Branch, joiner: PeerId) -> bool:
        """Whether this peer's place allows for children. A peer that has lost its parent takes only
        joiners that lie farther from the topic's id than itself: so members without a parent find
        each other, and no circle comes of it."""
        distance = location_of(joiner) ^ branch.location
        closer = self._dht.home.table.own ^ branch.location < distance
        return branch.takes_children or (branch.orphaned and closer)

    def may_serve(self, topic: Topic, peer: PeerId, asker: PeerId) -> bool:
        """Whether a peer can be a rendezvous of a topic, as far as this one knows. If not, this one
        looks up whether the closer peers in its table are still there; then the peer may serve when
        the asker asks again."""
        count = _FELLOWS * self._ctx.config.pulsar.rendezvous
        location, table, place = tree_location(topic), self._dht.home.table, location_of(peer)
        near = [table.own, *(one.key for one in table.closest(location, count + 1, sound=True))]
        others = [key for key in near if key != place]
        may = is_rendezvous(place, others, location, count)
        few = len(self._doubting) < _DOUBTING_MAX and topic not in self._doubting
        if not may and few and self._served.may_look_up(asker):
            self._doubting[topic] = None

            def found(outcome: Outcome) -> None:  # the table has learned from it
                self._doubting.pop(topic, None)

            if not self._dht.find(Question(PLAIN, location, count=count), found):
                self._doubting.pop(topic, None)
        return may

    def probable(self, branch: Branch) -> list[Contact]:
        """The probable rendezvous of a tree, for a member below them: the closest of the peers that
        its parent named, and of those in its own table."""
        count = self._ctx.config.pulsar.rendezvous
        near = self._dht.home.table.closest(branch.location, count, sound=True)
        known = {entry.contact.peer: entry.contact for entry in near}
        for root in branch.roots:
            known.setdefault(root.peer, root)
        known.pop(self._ctx.me.peer, None)
        return sorted(known.values(), key=_distance_from(branch))[:count]

    # --- the rendezvous of a tree -----------------------------------------------------------------

    def invite(self, branch: Branch, others: list[Contact]) -> None:
        """Tell others that they are rendezvous, too."""
        for contact in others:
            if contact.peer not in branch.fellows and contact.peer != self._ctx.me.peer:
                self._ctx.send(contact, branch.sync(answer=True))

    def check(self, branch: Branch) -> None:
        """Look up which peers the rendezvous should be; if that has to wait, in a later cycle."""
        topic, settings = branch.topic, self._ctx.config.pulsar
        if topic in self._checking:
            return
        if not self._served.may_check(branch):
            branch.on_check_put_off()
            return

        def found(outcome: Outcome) -> None:
            self._checking.pop(topic, None)
            if self._trees.get(topic) is not branch or not branch.rendezvous:
                return
            count = settings.rendezvous
            contacts = self._present(branch, outcome.closest)[:count]
            among = self.is_among(branch, contacts)
            others = contacts[: count - 1]
            branch.compare_roots(among, others)
            if branch.idle_cycles:
                return  # rendezvous that invited each other would never give an idle tree up
            if among:
                self.invite(branch, others)
            else:
                self._hand_over(branch, contacts)

        self._checking[topic] = None
        # More than the few that count would only take longer where many are dead.
        question = Question(PLAIN, branch.location, count=_FELLOWS * settings.rendezvous)
        if not self._dht.find(question, found):
            self._checking.pop(topic, None)

    def _present(self, branch: Branch, found: list[Entry]) -> list[Contact]:
        """The peers that may be rendezvous, closest first: those that a lookup found, and the
        fellows heard from since the last cycle. A fellow may have answered the lookup too late, and
        a peer farther away would become a root in its place."""
        cycle = self._ctx.cycle
        present = {entry.contact.peer: entry.contact for entry in found}
        for peer, fellow in branch.fellows.items():
            if not is_overdue(fellow.heard_cycle, cycle):
                present.setdefault(peer, fellow.contact)
        return sorted(present.values(), key=_distance_from(branch))

    def on_sync(self, branch: Branch, sender: Contact, message: RendezvousSync) -> None:
        """Another rendezvous tells what it serves; this peer is one, too. A peer that lies too far
        from the topic's id is not believed, since all events would go to it."""
        ctx = self._ctx
        fellow = branch.fellows.get(sender.peer)
        if fellow is None:
            if ctx.config.defence.claims and not self.may_serve(
                branch.topic, sender.peer, sender.peer
            ):
                ctx.send(sender, TreeLeave(branch.topic))
                return
            if len(branch.fellows) >= _FELLOWS * ctx.config.pulsar.rendezvous:
                others = (fellow.contact for fellow in branch.fellows.values())
                farthest = max((*others, sender), key=_distance_from(branch))
                ctx.send(farthest, TreeLeave(branch.topic))
                if farthest.peer == sender.peer:
                    return
                branch.unlink(farthest.peer)
            fellow = branch.take_fellow(sender)
            if message.subscribed:
                branch.meet(sender)
        fellow.hear(message, ctx.me.peer, self._ctx.cycle)
        if message.answer:
            ctx.send(sender, branch.sync(answer=False))

    def run_cycle(self, branch: Branch) -> bool:
        """Do what a rendezvous does every cycle; returns False if it serves no peer (any more)."""
        ctx, settings, cycle = self._ctx, self._ctx.config.pulsar, self._ctx.cycle
        branch.on_root_cycle()
        for fellow in list(branch.fellows.values()):
            if is_cut_off(fellow.heard_cycle, cycle, settings.patience_cycles):
                branch.forget(fellow.contact.peer)
                ctx.send(fellow.contact, TreeLeave(branch.topic))
            else:
                overdue = is_overdue(fellow.heard_cycle, cycle)
                ctx.send(fellow.contact, branch.sync(answer=overdue))
        age = cycle - branch.begun_cycle
        if branch.fellows or age > _YOUNG_CYCLES:
            branch.leave_parent()
        branch.settle()
        branch.tell_children()
        elsewhere = sum(one.children + one.subscribed for one in branch.fellows.values())
        idle = is_idle(branch.subscribed, len(branch.children), elsewhere)
        if branch.count_idle(idle) > settings.patience_cycles:
            return False
        if age <= _YOUNG_CYCLES or branch.unsettled or age % settings.check_every_cycles == 0:
            self.check(branch)
        return True


def _distance_from(branch: Branch) -> Callable[[Contact], int]:
    """How far a peer is from the topic's id."""
    return lambda contact: location_of(contact.peer) ^ branch.location


# --- parent and children ------------------------------------------------------------------------


class _Attempt(Struct, eq=False):
    """A join under way."""

    candidates: deque[tuple[Contact, bool]]  # and whether each is asked as a rendezvous
    at_once: int  # how many are asked together
    sharing: bool = False  # asks a peer that is linked anyway, and no other
    asked: dict[PeerId, bool] = field(default_factory=dict)  # and whether as a rendezvous
    silent: dict[PeerId, Contact] = field(default_factory=dict)  # of these, without an answer
    waiting: dict[PeerId, None] = field(default_factory=dict)  # of these, still waited for
    serial: int = 0
    lookups: int = 0
    looking: bool = False  # a lookup is under way

    def is_new(self, peer: PeerId, root: bool) -> bool:
        """Whether a peer was not asked yet; one that refused may still be asked as a rendezvous."""
        return not self.asked[peer] and root if peer in self.asked else True


class _Shown(Struct):
    """A member's own events in one tree, while they are shown to roots."""

    cycles: int = 0
    asked: PeerId | None = None  # the root that was asked last, until it answers
    silent: int = 0  # roots in a row that did not answer


class Attachment:
    """The places of one peer in its trees, and the joins under way."""

    def __init__(self, ctx: Context, dht: Kademlia, trees: Trees, events: Events) -> None:
        self._ctx = ctx
        self._trees = trees
        self._events = events
        self._going: dict[Topic, _Attempt] = {}
        self._shown: dict[Topic, _Shown] = {}
        # For the sake of sharing: trees, the peers asked there, and in which cycle each was.
        self._place = ranking(ctx.me.peer)
        self._shared: BoundedDict[tuple[Topic, PeerId], int] = BoundedDict(_SHARED_MAX)
        self._served = Served(ctx, trees)
        self.roots = Roots(ctx, dht, trees, self._served, self._hand_over)

    def is_going(self, topic: Topic) -> bool:
        """Whether a join is under way."""
        return topic in self._going

    def has_asked(self, topic: Topic, peer: PeerId) -> bool:
        """Whether a join under way has asked this peer."""
        attempt = self._going.get(topic)
        return attempt is not None and peer in attempt.asked

    # --- coming and going -------------------------------------------------------------------------

    def start(self, branch: Branch, known: Iterable[Contact] = (), root: bool = False) -> None:
        """Look for a parent, first among those known; `root`: they are asked as rendezvous."""
        at_once = 1 if branch.fresh or root else _AT_ONCE
        attempt = _Attempt(deque((one, root) for one in known), at_once)
        self._going[branch.topic] = attempt
        self._next(branch, attempt)

    def share(self) -> None:
        """Ask one peer, in one tree, for a place over a connection that is there anyway."""
        if any(attempt.sharing for attempt in self._going.values()):
            return
        branches, cycle = list(self._trees.by_topic.values()), self._ctx.cycle
        since = cycle - self._ctx.config.stan.period_max
        links = {branch.topic: branch.links() for branch in branches}
        for branch in branches:
            parent, topic = branch.parent, branch.topic
            settled = parent is not None and branch.takes_children and not branch.rendezvous
            if parent is None or not settled or branch.children or self.is_going(topic):
                continue
            others = {
                peer: contact
                for there, linked in links.items()
                if there != topic
                for peer, contact in linked.items()
            }
            asked = [one for one in others if self._shared.get((topic, one), since) > since]
            chosen = shared_parent(parent.peer, others, asked, self._place)
            if chosen is not None:
                self._shared.renew((topic, chosen), cycle)
                self._ctx.counters["trees_shared_asked"] += 1
                candidates = deque([(others[chosen], False)])
                attempt = self._going[topic] = _Attempt(candidates, 1, sharing=True)
                self._next(branch, attempt)
                return

    def confirm(self, branch: Branch, parent: Contact) -> None:
        """Ask the parent for the place that this peer has: the parent answers with what it tells
        its children, and takes this peer in again if it has forgotten it."""
        self._ctx.counters["trees_confirmed"] += 1
        self._ctx.send(parent, TreeJoin(branch.topic, branch.subscribed, False, branch.fresh))

    def rejoin(self, branch: Branch) -> None:
        """The way up leads nowhere: join anew, by a lookup."""
        branch.leave_parent()
        self.start(branch)

    def unlink(self, branch: Branch, peer: PeerId, instead: list[Contact]) -> None:
        """A link is gone; if it was the parent's, look for a place, first above the lost parent."""
        ctx = self._ctx
        above = branch.parent is not None and branch.parent.peer == peer
        orphaned = above and not branch.rendezvous
        rootless = peer in branch.fellows
        known = self._known(branch, peer)
        branch.unlink(peer)
        if orphaned:
            ctx.counters["trees_repairs"] += 1
            self.start(branch, [*instead, *known])
        elif rootless:
            self.roots.check(branch)
            branch.tell_children()

    def serve(self, topic: Topic, asker: PeerId) -> Branch | None:
        """Become a rendezvous because another peer says so, if that can be."""
        me = self._ctx.me.peer
        if topic == GENERAL or not self.roots.may_serve(topic, me, asker):
            return None
        branch = self._trees.get(topic)
        if branch is None:
            if not self._makes_room(asker):
                return None
            self._served.begin(topic, asker)
            branch = self._trees.open(topic)
        self._become_root(branch)
        self.roots.check(branch)
        return branch

    def _makes_room(self, asker: PeerId) -> bool:
        """Whether there is room for one more tree, if need be by giving another one up."""
        if len(self._trees.by_topic) < self._ctx.config.pulsar.trees_max:
            return True
        given_up = self._served.way_for(asker)
        if given_up is None:
            return False
        self._ctx.counters["trees_given_up"] += 1
        self.leave(given_up)
        return True

    def leave(self, branch: Branch) -> None:
        """Leave a tree."""
        branch.leave()
        self._going.pop(branch.topic, None)
        self._served.end(branch.topic)
        self._shown.pop(branch.topic, None)
        self._trees.give_up(branch)

    # --- handlers ---------------------------------------------------------------------------------

    def on_join(self, sender: Contact, message: TreeJoin) -> None:
        """A peer wants to be a child."""
        ctx, topic = self._ctx, message.topic
        branch = self._trees.get(topic)
        if message.root and (branch is None or not branch.rendezvous):
            branch = self.serve(topic, sender.peer) or branch
        above = branch.above() if branch is not None else []
        takes = branch is not None and self.roots.takes_child(branch, sender.peer)
        attempt = self._going.get(topic)
        if attempt is not None and attempt.sharing:
            takes = False  # two peers that ask each other would be cut off from the rest
        if branch is None or not may_join(sender.peer, above, takes):
            ctx.send(sender, TreeJoinReply(topic, False))
            return
        known = sender.peer in branch.children
        if not known and not has_room(len(branch.children), ctx.config.pulsar.children_max):
            instead = self._instead(branch)
            ctx.counters["trees_pushed_down"] += 1
            ctx.send(sender, TreeJoinReply(topic, False, False, instead))
            return
        branch.take_child(sender, message.subscribed)
        recent = branch.recent
        told = message.fresh and self._events.answered.tells(topic, sender.peer)
        seen = recent.seen() if told else []
        reply = TreeJoinReply(topic, True, branch.subscribed, [], recent.fingerprint(), seen)
        ctx.send(sender, reply)
        branch.tell_children(sender.peer)
        if message.subscribed and (message.fresh or not known):
            branch.meet(sender)

    def on_join_reply(self, sender: Contact, message: TreeJoinReply) -> None:
        branch = self._trees.get(message.topic)
        attempt = self._going.get(message.topic)
        if branch is not None and not branch.rendezvous and branch.is_below(sender.peer):
            return  # said twice
        if branch is None or attempt is None or sender.peer not in attempt.asked:
            if message.accepted:
                self._ctx.send(sender, TreeLeave(message.topic))  # too late, or never asked
            return
        attempt.silent.pop(sender.peer, None)
        if message.accepted:
            del self._going[message.topic]
            for other in attempt.silent.values():  # it may have said yes, and the answer be lost
                self._ctx.send(other, TreeLeave(message.topic))
            self._attached(branch, sender, message)
        else:
            if not attempt.sharing:
                attempt.candidates.extendleft((one, False) for one in reversed(message.instead))
            self._no_place(branch, attempt, sender.peer)

    def on_family(self, sender: Contact, message: TreeFamily) -> None:
        branch = self._trees.get(message.topic)
        if branch is None or not branch.is_below(sender.peer):
            # A fellow root sent this before it heard that this peer is no child of it any more.
            fellow = branch is not None and sender.peer in branch.fellows
            if not fellow and not self.has_asked(message.topic, sender.peer):
                self._ctx.send(sender, TreeLeave(message.topic))
            return
        if branch.rendezvous:
            return  # it has no way up
        me = self._ctx.me.peer
        circle = is_circle(me, sender.peer, message.path)
        if circle and opens_circle(me, sender.peer, message.path, branch.location):
            self._ctx.counters["trees_circles"] += 1
            self.rejoin(branch)
            return
        beats = message.beat != branch.beat
        branch.on_family(message)
        self._events.compare_again(branch, sender, message.recent)
        starved = branch.count_starved() if beats else 0
        if starved >= _STARVED_BEATS:
            self._compare_with_root(branch)
        if starved >= _FORSAKEN_BEATS and starved.bit_count() == 1:
            self._compare_with_members(branch)

    def on_leave(self, sender: Contact, message: TreeLeave) -> None:
        branch = self._trees.get(message.topic)
        if branch is not None and sender.peer in branch.watched:
            self.unlink(branch, sender.peer, message.instead)

    def on_timer(self, timer: Timer) -> None:
        """The peer that was asked has not answered in time."""
        branch, attempt = self._trees.get(timer.topic), self._going.get(timer.topic)
        if branch is not None and attempt is not None and attempt.serial == timer.serial:
            attempt.waiting.clear()
            self._next(branch, attempt)

    def on_peer_lost(self, peer: PeerId) -> None:
        for branch in list(self._trees.by_topic.values()):
            if peer in branch.watched:
                self.unlink(branch, peer, [])
            branch.drop_everywhere(peer)
        for topic, attempt in list(self._going.items()):
            branch = self._trees.by_topic[topic]
            self._no_place(branch, attempt, peer)

    def on_offer(self, sender: Contact, message: Offer) -> None:
        """A member that is not linked offers events when its own parent may be gone."""
        branch = self._trees.get(message.topic)
        if branch is None:
            return
        shown = self._shown.get(message.topic)
        if shown is not None and shown.asked == sender.peer:
            shown.asked, shown.silent = None, 0
        stranger = message.first and sender.peer not in branch.watched
        if stranger and branch.parent is not None and not branch.rendezvous:
            self.confirm(branch, branch.parent)
        self._events.on_offer(sender, message)

    def on_peer_doubted(self, peer: PeerId) -> None:
        """A peer may be gone: a child of it looks for another place, and keeps this one until it
        has it; a join does not wait for it."""
        for branch in list(self._trees.by_topic.values()):
            going = self._going.get(branch.topic)
            if going is not None:
                self._no_place(branch, going, peer)
            seeking = going is not None and not going.sharing
            if branch.is_below(peer) and not branch.rendezvous and not seeking:
                self._warn(branch)
                self.start(branch, self._known(branch, peer))

    def show_published(self, branch: Branch) -> None:
        """Show what this peer published to some roots that it is not linked to (`branch.py`). From
        the second cycle on one of them is asked what it has seen as well: black holes do not say,
        whatever they take. So where roots are silent, members are looked for."""
        due = branch.count_show()
        shown = self._shown.get(branch.topic)
        if not due and (shown is None or shown.asked is None):
            self._shown.pop(branch.topic, None)
            return
        if shown is None:
            shown = self._shown[branch.topic] = _Shown()
        shown.silent += shown.asked is not None
        shown.cycles += 1
        shown.asked = None
        if shown.silent >= _SILENT_ROOTS:
            self._compare_with_members(branch)
            if not due:
                return
        roots = self._some_roots(branch, _SHOWN_TO if due else 1)
        if shown.cycles > 1 and roots:
            asked = roots.pop()
            shown.asked = asked.peer
            self._events.ask(branch, asked)
        self._events.show(branch, roots)

    def _compare_with_root(self, branch: Branch) -> None:
        """The parent does not bring what the root has seen: compare with a root (`branch.py`)."""
        if self._ctx.config.defence.access:
            for root in self._some_roots(branch, 1):
                self._events.offer(branch, root)

    def _compare_with_members(self, branch: Branch) -> None:
        """Comparing with roots brought nothing either: all of them may be black holes. So compare
        with members that a lookup finds, which no parent has chosen. Such lookups are made at
        growing intervals, since a liar can claim at every beat that its child is behind."""

        def met(member: Contact) -> bool:
            there = self._trees.get(branch.topic) is branch
            if there and member.peer not in branch.watched:
                self._events.offer(branch, member)
            return not there

        if self._ctx.config.defence.access:
            self.roots.find_members(branch.topic, met, lambda closest: None)

    def _some_roots(self, branch: Branch, count: int) -> list[Contact]:
        """Roots that this peer is not linked to, others each time."""
        left = [one for one in self.roots.probable(branch) if one.peer not in branch.watched]
        return push_down(left, self._ctx.next_key(_SHOWN), count)

    # --- helpers: asking for a place --------------------------------------------------------------

    def _warn(self, branch: Branch) -> None:
        """The parent may be gone: offer held events to members near by, most of them its children.
        They get what they missed, and check their own parent (`on_offer`): a member that has
        nothing to send notices a silent parent only when pings are due."""
        for one in branch.siblings:
            self._events.offer(branch, one)

    def _known(self, branch: Branch, lost: PeerId) -> list[Contact]:
        """The peers to ask for a place in place of a parent."""
        near = (*branch.roots, *branch.siblings)
        return repair_order(self._ctx.me.peer, branch.path, near, (lost,))

    def _no_place(self, branch: Branch, attempt: _Attempt, peer: PeerId) -> None:
        """A peer that was asked refused, or is gone: if its answer was awaited, ask the next."""
        if peer in attempt.waiting:
            del attempt.waiting[peer]
            self._next(branch, attempt)

    def _next(self, branch: Branch, attempt: _Attempt) -> None:
        """Ask the next candidates, or look for others."""
        ctx = self._ctx
        asked = False
        while (
            attempt.candidates
            and len(attempt.waiting) < attempt.at_once
            and len(attempt.asked) < _ASKED_MAX
        ):
            contact, root = attempt.candidates.popleft()
            peer = contact.peer
            if peer == ctx.me.peer or not attempt.is_new(peer, root):
                continue
            if peer in branch.children and not root:
                continue
            attempt.asked[peer] = root
            attempt.silent[peer] = contact
            attempt.waiting[peer] = None
            asked = True
            ctx.send(contact, TreeJoin(branch.topic, branch.subscribed, root, branch.fresh))
        if asked:
            attempt.serial = ctx.next_serial()
            ctx.set_timer(ctx.config.pulsar.reply_timeout_ms, TIMER, branch.topic, attempt.serial)
        elif attempt.sharing and not attempt.waiting:
            del self._going[branch.topic]
            for other in attempt.silent.values():  # it may have a place, and its answer be lost
                ctx.send(other, TreeLeave(branch.topic))
        elif not attempt.waiting and not attempt.looking:
            attempt.serial = 0
            self._look_up(branch, attempt)

    def _look_up(self, branch: Branch, attempt: _Attempt) -> None:
        """Look up the topic's id. A new subscriber stops at the first member on the way. A member
        that has lost its place asks all members on the way, since the first ones may be below it or
        have lost theirs, and if none has a place, the peers that should be the roots."""
        attempt.lookups += 1
        if branch.rendezvous or len(attempt.asked) >= _ASKED_MAX or attempt.lookups > _LOOKUPS_MAX:
            self._give_up(branch)
            return

        def met(member: Contact) -> bool:
            if self._going.get(branch.topic) is not attempt:
                return True
            if member.peer in attempt.asked or member.peer in branch.children:
                return False
            attempt.candidates.append((member, False))
            if not branch.fresh:
                self._next(branch, attempt)
            return branch.fresh

        def found(closest: list[Entry]) -> None:
            if self._going.get(branch.topic) is attempt:
                attempt.looking = False
                self._on_found(branch, attempt, closest)

        attempt.looking = True
        if not self.roots.find_members(branch.topic, met, found):
            self._going.pop(branch.topic, None)

    def _on_found(self, branch: Branch, attempt: _Attempt, closest: list[Entry]) -> None:
        """The way has been walked to its end, or for a new subscriber to the first member."""
        count = self._ctx.config.pulsar.rendezvous
        near = [entry.contact for entry in closest[:count]]
        if attempt.waiting or attempt.candidates:
            self._next(branch, attempt)
        elif self.roots.is_among(branch, near):
            self._become_root(branch)
            self.roots.invite(branch, near[: count - 1])
        else:
            attempt.at_once = 1  # the first new root invites the others
            attempt.candidates.extend((contact, True) for contact in near)
            self._next(branch, attempt)

    def _give_up(self, branch: Branch) -> None:
        """No peer has a place for this one. A member that had a place becomes a root, so that those
        below it have one; it steps down once closer roots are found. A new subscriber begins again
        with the next cycle."""
        del self._going[branch.topic]
        if not branch.attached and not branch.fresh:
            self._become_root(branch, for_want=True)

    def _instead(self, branch: Branch) -> list[Contact]:
        """Peers that may have room: another rendezvous, else the children."""
        most = self._ctx.config.pulsar.children_max
        fellows = branch.fellows.values()
        roots = [fellow.contact for fellow in fellows if has_room(fellow.children, most)]
        below = [child.contact for child in branch.children.values()]
        key = self._ctx.next_key(_DOWN)
        return [*push_down(roots, key, 1), *push_down(below, key, _INSTEAD)]

    # --- helpers: what comes of it ----------------------------------------------------------------

    def _attached(self, branch: Branch, parent: Contact, reply: TreeJoinReply) -> None:
        """A join has ended well: there is a (new) parent."""
        branch.take_parent(parent, reply.subscribed)
        self._events.skip_to(branch, reply.seen)
        self._events.compare(branch, parent, reply.recent, settle_ms=0)
        self._trees.answer(branch, "joined", parent)
        branch.tell_children()
        if reply.subscribed:
            branch.meet(parent)

    def _become_root(self, branch: Branch, for_want: bool = False) -> None:
        self._going.pop(branch.topic, None)
        branch.become_root(for_want)
        self._trees.answer(branch, "instantiated")

    def _hand_over(self, branch: Branch, others: list[Contact]) -> None:
        """This peer should not be a root: it asks the others, as roots, to take it as a child, and
        steps down when one has. Until then it stays a root, so the tree is never without one."""
        if not self.is_going(branch.topic):
            self.start(branch, others, root=True)
