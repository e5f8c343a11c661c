"""Pulsarcast's routing of one peer: the trees it is in, as a subscriber or as their root.

Subscribing joins the topic's tree (`joining.py`), in which events spread over all links
(`spreading.py`). Whoever is outside hands an event to the first member it finds (`finding.py`,
`protocol/publishing.py`).

Links are watched by `protocol/liveness.py`, which pings whoever is silent. Besides, a beat comes
down from the roots every cycle: a member that misses one asks its parent for it, and one that
misses it for long is cut off, or in a circle, and joins anew. What gets lost on the way meanwhile
is made up for over new links and every cycle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.ids import GENERAL, Contact, PeerId, Topic
from weft.protocol.context import Context, require
from weft.protocol.delivery import JOIN, LEAVE, Delivery
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.liveness import LinkList, Liveness
from weft.protocol.messages_pulsar import (
    RendezvousSync,
    TreeFamily,
    TreeJoin,
    TreeJoinReply,
    TreeLeave,
)
from weft.protocol.publishing import RouteEvent
from weft.protocol.pulsar import family, joining, status
from weft.protocol.pulsar.branch import Branch
from weft.protocol.pulsar.finding import Finding
from weft.protocol.pulsar.hosting import Hosting
from weft.protocol.pulsar.joining import Joining
from weft.protocol.pulsar.rendezvous import Rendezvous
from weft.protocol.pulsar.spreading import Spreading
from weft.protocol.recent import Offer, Past, Repair, Want
from weft.protocol.routing import Due, Handlers, Routing, Timers
from weft.protocol.seam import Answer, Millis, Outcome, Scheme
from weft.protocol.wire import LIST_MAX, Event, Payload
from weft.rules.multicast import is_circle, is_cut_off, is_overdue, repair_order


@dataclass(frozen=True)
class Config:
    """Multicast trees (protocol/pulsar)."""

    rendezvous: int = 3  # guess: roots per tree (the paper leaves k open); all but one may be lost
    children_max: int = 8  # guess: about the links of a peer in a topic overlay
    reply_timeout_ms: Millis = 3_000  # guess: a round trip with a handshake
    patience_cycles: int = 3  # guess: beats missed before the way up counts as broken
    check_every_cycles: int = 6  # guess: how often the closest peers are looked up again
    trees_max: int = 4_096  # guess: at which others' trees are not served any more

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require(value >= 1, f"pulsar.{name} must be at least 1")
        require(self.rendezvous <= 8, "pulsar.rendezvous must be at most 8")
        require(2 <= self.children_max <= 64, "pulsar.children_max must be 2 to 64")


class Pulsar(Routing):
    """See the module's text."""

    def __init__(self, ctx: Context, delivery: Delivery, dht: Kademlia, liveness: Liveness) -> None:
        super().__init__(ctx, delivery)
        self._dht = dht
        self._liveness = liveness
        self.trees: dict[Topic, Branch] = {}
        self.finding = Finding(ctx, dht)
        self.joining = Joining(ctx, dht, self.trees, self)
        self.roots = Rendezvous(ctx, dht, self.trees, self._demoted)
        self.hosting = Hosting(ctx, self.trees, self.roots, self._serve)
        self.spreading = Spreading(ctx, delivery, self.trees, self.joining)
        self._by_key: dict[bytes, Branch] = {}
        self._postponed: dict[Topic, None] = {}  # until this peer is in the network
        self._past = Past(ctx.config.dissemination)
        dht.also_provides = self._is_member

    def handlers(self) -> Handlers:
        return {
            TreeJoin: self.hosting.on_join,
            TreeJoinReply: self.joining.on_reply,
            TreeFamily: self.on_family,
            TreeLeave: self.on_leave,
            RendezvousSync: self.on_sync,
            Payload: self.spreading.on_payload,
            RouteEvent: self.spreading.on_route_event,
            Offer: self.spreading.on_offer,
            Want: self.spreading.on_want,
            Repair: self.spreading.on_repair,
            LinkList: self.on_link_list,
        }

    def timers(self) -> Timers:
        return {joining.TIMER: lambda timer: self.joining.on_timer(timer.topic, timer.serial)}

    def _is_member(self, key: bytes) -> bool:
        """Whether a lookup that asks for members of a tree has found one."""
        branch = self._by_key.get(key)
        return branch is not None and self.hosting.takes_children(branch)

    # --- subscriptions ----------------------------------------------------------------------------

    @property
    def subscribed(self) -> list[Topic]:
        return [topic for topic, branch in self.trees.items() if branch.subscribed]

    def is_subscribed(self, topic: Topic) -> bool:
        branch = self.trees.get(topic)
        return branch is not None and branch.subscribed

    def subscribe(self, token: int, topic: Topic, scheme: Scheme | None, hopeful: bool) -> None:
        """A peer that is just entering the network (`hopeful`) joins once it is in."""
        ctx = self._ctx
        branch = self.trees.get(topic)
        if branch is not None and branch.subscribed:
            if branch.tokens:
                branch.tokens.append(token)
            else:
                ctx.out.append(Answer(token, "already"))
            return
        if branch is None:
            branch = self._plant(topic)
        branch.subscribed = True
        branch.tokens.append(token)
        ctx.trace(JOIN, {"topic": topic})
        if branch.attached:  # as a rendezvous, for others so far
            self._answer(branch, "joined", None)
            for contact in branch.subscribers().values():
                family.meet(ctx, branch, contact)
            return
        branch.fresh = True
        if hopeful:
            self._postponed[topic] = None
        elif not self.joining.is_going(topic):
            self.joining.start(branch)

    def on_entered(self) -> None:
        """The peer got into the network, or stays outside for the time being."""
        postponed, self._postponed = self._postponed, {}
        for topic in postponed:
            branch = self.trees.get(topic)
            if branch is not None and not branch.attached and not self.joining.is_going(topic):
                self.joining.start(branch)
        for branch in list(self.trees.values()):
            if branch.rendezvous and not branch.fellows:
                self.roots.check(branch)

    def unsubscribe(self, token: int, topic: Topic) -> None:
        ctx = self._ctx
        branch = self.trees.get(topic)
        if branch is None or not branch.subscribed:
            ctx.out.append(Answer(token, "already"))
            return
        branch.subscribed = False
        self._answer(branch, "left", None)
        ctx.trace(LEAVE, {"topic": topic})
        ctx.out.append(Answer(token, "left"))
        if not branch.rendezvous:
            self._uproot(branch)

    def close(self) -> None:
        """This peer leaves; those it is linked to are told by its goodbye."""
        for branch in self.trees.values():
            self._answer(branch, "left", None)
            if branch.subscribed:
                self._ctx.trace(LEAVE, {"topic": branch.topic})

    def _plant(self, topic: Topic) -> Branch:
        branch = self.trees[topic] = Branch(topic, self._past.recall(topic))
        self._by_key[branch.key] = branch
        branch.heard_cycle = self.roots.cycle
        return branch

    def _uproot(self, branch: Branch) -> None:
        """Leave a tree; children are told where to go instead."""
        ctx = self._ctx
        above = [] if branch.parent is None else [branch.parent]
        instead = [*above, *(one for one in branch.roots if one not in above)]
        links, children = branch.links(), branch.children
        for peer, contact in links.items():
            ctx.send(contact, TreeLeave(branch.topic, instead[:4] if peer in children else []))
        for peer in links:
            branch.forget(peer)
        branch.rendezvous = False
        family.settle(ctx, branch)
        self.joining.stop(branch.topic)
        self._postponed.pop(branch.topic, None)
        del self.trees[branch.topic]
        del self._by_key[branch.key]
        self._past.remember(branch.topic, branch.recent, ctx.now)

    def _answer(self, branch: Branch, outcome: Outcome, contact: Contact | None) -> None:
        for token in branch.tokens:
            self._ctx.out.append(Answer(token, outcome, contact))
        branch.tokens.clear()

    # --- places in trees --------------------------------------------------------------------------

    def attached(self, branch: Branch, parent: Contact, reply: TreeJoinReply) -> None:
        """A join has ended well: there is a (new) parent."""
        ctx, subscribed = self._ctx, reply.subscribed
        if branch.rendezvous:
            self.roots.step_down(branch)
        branch.forget(parent.peer)
        branch.parent, branch.parent_subscribed = parent, subscribed
        branch.path = ()
        branch.heard_cycle = self.roots.cycle
        branch.family_heard = False
        family.settle(ctx, branch)
        if branch.fresh:
            branch.fresh = False
            branch.recent.skip_to(reply.seen, ctx.now)
        self.spreading.compare(branch, parent, reply.recent, settle_ms=0)
        self._answer(branch, "joined", parent)
        family.tell_children(ctx, branch, self.roots.cycle)
        if subscribed:
            family.meet(ctx, branch, parent)

    def become_root(self, branch: Branch, others: list[Contact]) -> None:
        """A join has ended with this peer among the closest to the topic's id."""
        self._begin(branch)
        self.roots.invite(branch, others)

    def _begin(self, branch: Branch) -> None:
        self.joining.stop(branch.topic)
        branch.fresh = False
        self.roots.begin(branch)
        self._answer(branch, "instantiated", None)

    def _demoted(self, branch: Branch, others: list[Contact]) -> None:
        if branch.subscribed or branch.children:
            self.joining.start(branch, others, root=True)
        else:
            self._uproot(branch)

    def _serve(self, topic: Topic) -> Branch | None:
        """Become a rendezvous because another peer says so, if that can be."""
        branch = self.trees.get(topic)
        full = len(self.trees) >= self._ctx.config.pulsar.trees_max
        if topic == GENERAL or (branch is None and full) or not self.roots.may_serve(topic):
            return None
        if branch is None:
            branch = self._plant(topic)
        self._begin(branch)
        self.roots.check(branch)
        return branch

    def on_family(self, sender: Contact, message: TreeFamily) -> None:
        branch = self.trees.get(message.topic)
        if branch is None or branch.parent is None or branch.parent.peer != sender.peer:
            if branch is None or not self.joining.has_asked(message.topic, sender.peer):
                self._ctx.send(sender, TreeLeave(message.topic))
            return
        me = self._ctx.me.peer
        if is_circle(me, sender.peer, message.path):
            self._ctx.counters["trees_circles"] += 1
            self._leave_parent(branch)
            return
        path, roots = tuple(message.path), tuple(message.rendezvous)
        changed = (message.beat, path, roots) != (branch.beat, branch.path, branch.roots)
        heard_cycle = self.roots.cycle - message.age
        if branch.family_heard:
            branch.heard_cycle = max(branch.heard_cycle, heard_cycle)
        else:
            branch.heard_cycle = heard_cycle
        begins = not branch.family_heard and not branch.parent_subscribed
        branch.beat, branch.path, branch.roots = message.beat, path, roots
        branch.siblings = tuple(one for one in message.siblings if one.peer != me)
        branch.parent_subscribed = message.subscribed
        branch.family_heard = True
        if begins and branch.siblings:
            family.meet(self._ctx, branch, branch.siblings[0])
        if changed:
            family.tell_children(self._ctx, branch, self.roots.cycle)
        self.spreading.compare_again(branch, sender, message.recent)

    def _leave_parent(self, branch: Branch) -> None:
        """The way up leads nowhere: join anew, by a lookup."""
        if branch.parent is not None:
            self._ctx.send(branch.parent, TreeLeave(branch.topic))
            branch.parent = None
        branch.path = ()
        family.settle(self._ctx, branch)
        self.joining.start(branch)

    def on_leave(self, sender: Contact, message: TreeLeave) -> None:
        branch = self.trees.get(message.topic)
        if branch is not None and sender.peer in branch.watched:
            self._unlink(branch, sender.peer, message.instead)

    def _unlink(self, branch: Branch, peer: PeerId, instead: list[Contact]) -> None:
        """A link is gone; without a parent, those above the lost one are asked first."""
        ctx = self._ctx
        orphaned = branch.parent is not None and branch.parent.peer == peer
        rootless = peer in branch.fellows
        branch.forget(peer)
        family.settle(ctx, branch)
        if orphaned:
            ctx.counters["trees_repairs"] += 1
            order = repair_order(ctx.me.peer, [*instead, *branch.path], branch.roots, (peer,))
            branch.path = ()
            self.joining.start(branch, order)
        elif rootless:
            self.roots.check(branch)
            family.tell_children(ctx, branch, self.roots.cycle)

    def on_sync(self, sender: Contact, message: RendezvousSync) -> None:
        branch = self.trees.get(message.topic)
        if branch is None or not branch.rendezvous:
            branch = self._serve(message.topic)
        if branch is None:
            self._ctx.send(sender, TreeLeave(message.topic))
        elif branch.rendezvous:
            self.roots.on_sync(branch, sender, message)
            self.spreading.compare_again(branch, sender, message.recent)

    def on_peer_lost(self, peer: PeerId) -> None:
        for branch in list(self.trees.values()):
            if peer in branch.watched:
                self._unlink(branch, peer, [])
            branch.drop_everywhere(peer)
        self.joining.on_peer_lost(peer)

    def on_link_list(self, sender: Contact, message: LinkList) -> None:
        """Settle which links both ends believe in (see `liveness.py`)."""
        mine = self._liveness.topics_with(sender.peer)
        theirs = set(message.topics)
        for topic in message.topics:
            if topic != GENERAL and topic not in mine:
                self._ctx.send(sender, TreeLeave(topic))
        if len(message.topics) < LIST_MAX:
            for topic in mine:
                if topic not in theirs and topic in self.trees:
                    self._unlink(self.trees[topic], sender.peer, [])
        if message.first:
            self._liveness.send_list(sender, first=False)

    # --- events -----------------------------------------------------------------------------------

    def publish(self, topic: Topic, event: Event, delivered: bool) -> bool:
        return self.spreading.publish(topic, event, delivered)

    def find(self, topic: Topic, avoid: Iterable[PeerId] = ()) -> int:
        return self.finding.start(topic, avoid)

    # --- time -------------------------------------------------------------------------------------

    def run_cycle(self, cycle: int, due: Due) -> None:
        patience = self._ctx.config.pulsar.patience_cycles
        self.roots.cycle = cycle
        for branch in list(self.trees.values()):
            branch.recent.purge(self._ctx.now)
            if branch.rendezvous:
                if not self.roots.run_cycle(branch):
                    self._uproot(branch)
            elif not branch.subscribed and not branch.children:
                self._uproot(branch)
            elif branch.parent is not None:
                if is_cut_off(branch.heard_cycle, cycle, patience):
                    self._ctx.counters["trees_cut_off"] += 1
                    self._leave_parent(branch)
                elif is_overdue(branch.heard_cycle, cycle):
                    self.joining.confirm(branch, branch.parent)
            elif not self.joining.is_going(branch.topic) and branch.topic not in self._postponed:
                self.joining.start(branch)
        for topic in self.subscribed:
            due(topic)

    # --- for upper layers -------------------------------------------------------------------------

    def members(self, topic: Topic) -> list[Contact]:
        """Subscribers of a topic that this peer knows, linked ones first."""
        branch = self.trees.get(topic)
        return list(branch.subscribers().values()) if branch is not None else []

    def alone(self, topic: Topic) -> bool:
        """Whether this peer is in the tree and has heard of no other subscriber."""
        branch = self.trees.get(topic)
        if branch is None or branch.subscribers():
            return False
        if branch.rendezvous:
            return self.roots.cycle > branch.begun_cycle
        return branch.parent is not None and branch.family_heard

    def links(self) -> dict[Topic, list[PeerId]]:
        return {topic: list(branch.watched) for topic, branch in self.trees.items()}

    def link_counts(self) -> dict[str, int]:
        return status.link_counts(self.trees.values())

    def status(self) -> dict[str, object]:
        trees = status.trees_status(self.trees.values())
        return {
            "links": self.link_counts(),
            "topics": {topic: trees[topic] for topic in self.subscribed},
            "routing": trees,
        }
