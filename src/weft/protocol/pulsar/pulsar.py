"""Pulsarcast's multicast trees as a routing of events (paper 004, Section 4): the trees that a peer
is in, as a subscriber or as their root.

Subscribing joins the topic's tree (`attachment.py`), in which events spread over all links
(`branch.py`). A peer outside of the tree hands an event to the first member it finds
(`attachment.py`, `protocol/publication.py`).

Links are watched by `protocol/liveness.py`, which pings silent peers. Besides, a beat comes down
from the roots every cycle: a member that misses one asks its parent for it, and a member that
misses beats for long is cut off, or in a circle, and joins anew. Events that get lost meanwhile are
repaired over new links and in every cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias, Union

from weft.documents.run import Proven
from weft.ids import GENERAL, Contact, PeerId, Topic, peer_text
from weft.protocol.context import Context, Handlers, LookupDone, Timers
from weft.protocol.delivery import Delivery
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.table import Entry
from weft.protocol.liveness import LinkList, Liveness
from weft.protocol.publication import OTHERS, RouteCheck, RouteEvent
from weft.protocol.pulsar import attachment
from weft.protocol.pulsar.attachment import Attachment, TreeJoin, TreeJoinReply
from weft.protocol.pulsar.branch import Branch, Events, RendezvousSync, TreeFamily, TreeLeave, Trees
from weft.protocol.recent import Offer, Recent, Repair, Want
from weft.protocol.routing import Due, Routing
from weft.protocol.seam import Scheme
from weft.protocol.wire import LIST_MAX, Payload
from weft.rules.multicast import is_cut_off, is_overdue

PulsarMessage: TypeAlias = Union[TreeJoin, TreeJoinReply, TreeFamily, TreeLeave, RendezvousSync]
"""What peers say to each other in a topic's tree. Events themselves travel as `Payload` and, from
peers outside of the tree, as `RouteEvent`."""


class Pulsar(Routing):
    """One peer's part in Pulsarcast's trees."""

    finds_several = True

    def __init__(self, ctx: Context, delivery: Delivery, dht: Kademlia, liveness: Liveness) -> None:
        super().__init__(ctx, delivery)
        self._liveness = liveness
        self.trees = Trees(ctx)
        self._events = Events(ctx, delivery, self.trees)
        self._attachment = Attachment(ctx, dht, self.trees, self._events)
        self._roots = self._attachment.roots

    def handlers(self) -> Handlers:
        return {
            TreeJoin: self._attachment.on_join,
            TreeJoinReply: self._attachment.on_join_reply,
            TreeFamily: self._attachment.on_family,
            TreeLeave: self._attachment.on_leave,
            RendezvousSync: self.on_sync,
            Payload: self.on_payload,
            RouteEvent: self._events.on_route_event,
            RouteCheck: self._events.on_route_check,
            Offer: self._attachment.on_offer,
            Want: self._events.on_want,
            Repair: self._events.on_repair,
            LinkList: self.on_link_list,
        }

    def timers(self) -> Timers:
        return {attachment.TIMER: self._attachment.on_timer}

    # --- the user's wishes ------------------------------------------------------------------------

    @property
    def subscribed(self) -> list[Topic]:
        return self.trees.subscribed

    def is_subscribed(self, topic: Topic) -> bool:
        return self.trees.is_subscribed(topic)

    def subscribe(self, token: int, topic: Topic, scheme: Scheme | None, hopeful: bool) -> None:
        """A peer that is just entering the network (`hopeful`) joins once it is in."""
        branch = self.trees.subscribe(token, topic)
        if branch is None:
            return
        if branch.attached:  # as a rendezvous, for others so far
            self.trees.answer(branch, "joined")
            for contact in branch.subscribers().values():
                branch.meet(contact)
            return
        if hopeful:
            self.trees.postpone(branch)
        elif not self._attachment.is_going(topic):
            self._attachment.start(branch)

    def unsubscribe(self, token: int, topic: Topic) -> None:
        branch = self.trees.unsubscribe(token, topic)
        if branch is not None and not branch.rendezvous:
            self._attachment.leave(branch)

    def publish(self, topic: Topic, proven: Proven, delivered: bool) -> bool:
        return self._events.publish(topic, proven, delivered)

    def collect(self) -> None:
        if self._ctx.config.stan.enabled:
            self._attachment.share()

    def close(self) -> None:
        """This peer leaves; its goodbye tells the peers that it is linked to."""
        self.trees.close()

    # --- finding a member from outside ------------------------------------------------------------

    def find(self, topic: Topic, avoid: Iterable[PeerId] = ()) -> int:
        """A lookup towards the topic's id takes the place of TERA's walks: its result is the first
        member found. If others are sought beside those to `avoid`, its result is as many as a
        publisher asks at once, since a lookup for each of them would cost two dozen messages."""
        number = self._ctx.next_serial()

        members: list[Contact] = []
        stale = frozenset(avoid)
        wanted = OTHERS if stale else 1

        def met(member: Contact) -> bool:
            if member.peer not in stale and member not in members:
                members.append(member)
            return len(members) >= wanted

        def then(closest: list[Entry]) -> None:
            self._ctx.tell(LookupDone(number, topic, tuple(members)))

        if not self._roots.find_members(topic, met, then):
            self._ctx.tell(LookupDone(number, topic, ()))
        return number

    def provides(self, key: bytes) -> bool:
        """Whether a lookup that asks for members of a tree has found one."""
        branch = self.trees.with_key(key)
        return branch is not None and (branch.takes_children or branch.orphaned)

    # --- handlers ---------------------------------------------------------------------------------

    def on_payload(self, sender: Contact, message: Payload) -> None:
        branch = self.trees.get(message.topic)
        linked = branch is not None and sender.peer in branch.watched
        if not linked and not self._attachment.has_asked(message.topic, sender.peer):
            self._ctx.send(sender, TreeLeave(message.topic))  # so that it stops
        self._events.on_payload(sender, message)

    def on_sync(self, sender: Contact, message: RendezvousSync) -> None:
        branch = self.trees.get(message.topic)
        if branch is None or not branch.rendezvous:
            branch = self._attachment.serve(message.topic, sender.peer)
        if branch is None:
            self._ctx.send(sender, TreeLeave(message.topic))
        elif branch.rendezvous:
            self._roots.on_sync(branch, sender, message)
            self._events.compare_again(branch, sender, message.recent)

    def on_link_list(self, sender: Contact, message: LinkList) -> None:
        """Settle which links both ends believe in (see `liveness.py`)."""
        mine = self._liveness.topics_with(sender.peer)
        theirs = set(message.topics)
        for topic in message.topics:
            if topic != GENERAL and topic not in mine:
                self._ctx.send(sender, TreeLeave(topic))
        if len(message.topics) < LIST_MAX:
            for topic in mine:
                branch = self.trees.get(topic)
                if topic not in theirs and branch is not None:
                    self._attachment.unlink(branch, sender.peer, [])
        if message.first:
            self._liveness.send_list(sender, first=False)

    def on_entered(self) -> None:
        """The peer got into the network, or stays outside for the time being."""
        for branch in self.trees.resume():
            if not branch.attached and not self._attachment.is_going(branch.topic):
                self._attachment.start(branch)
        for branch in list(self.trees.by_topic.values()):
            if branch.rendezvous and not branch.fellows:
                self._roots.check(branch)

    def on_peer_lost(self, peer: PeerId) -> None:
        self._attachment.on_peer_lost(peer)

    def on_peer_doubted(self, peer: PeerId) -> None:
        self._attachment.on_peer_doubted(peer)

    def run_cycle(self, cycle: int, due: Due) -> None:
        for branch in list(self.trees.by_topic.values()):
            branch.recent.purge(self._ctx.now)
            if branch.rendezvous:
                if not self._roots.run_cycle(branch):
                    self._attachment.leave(branch)
            elif not branch.subscribed and not branch.children:
                self._attachment.leave(branch)
            elif branch.parent is not None:
                self._watch_parent(branch, branch.parent)
                if self._ctx.config.defence.access:
                    self._attachment.show_published(branch)
            elif not self._attachment.is_going(branch.topic) and not self.trees.is_postponed(
                branch.topic
            ):
                self._attachment.start(branch)
        stan = self._ctx.config.stan
        if stan.enabled and stan.period_ms:
            self._attachment.share()
        for topic in self.subscribed:
            due(topic)

    # --- helpers ----------------------------------------------------------------------------------

    def _watch_parent(self, branch: Branch, parent: Contact) -> None:
        """Ask the parent for an overdue beat; join anew if none has come for long."""
        cycle, patience = self._ctx.cycle, self._ctx.config.pulsar.patience_cycles
        if is_cut_off(branch.heard_cycle, cycle, patience):
            self._ctx.counters["trees_cut_off"] += 1
            self._attachment.rejoin(branch)
        elif is_overdue(branch.heard_cycle, cycle):
            self._attachment.confirm(branch, parent)

    # --- looking at it ----------------------------------------------------------------------------

    def members(self, topic: Topic) -> list[Contact]:
        """Subscribers of a topic that this peer knows, linked ones first."""
        branch = self.trees.get(topic)
        return list(branch.subscribers().values()) if branch is not None else []

    def recent(self, topic: Topic) -> Recent | None:
        part = self.trees.get(topic)
        return part.recent if part is not None else None

    def alone(self, topic: Topic) -> bool:
        """Whether this peer is in the tree and has heard of no other subscriber."""
        branch = self.trees.get(topic)
        if branch is None or branch.subscribers():
            return False
        if branch.rendezvous:
            return self._ctx.cycle > branch.begun_cycle
        return branch.parent is not None and branch.family_heard

    def links(self) -> dict[Topic, list[PeerId]]:
        return {topic: list(branch.watched) for topic, branch in self.trees.by_topic.items()}

    def link_counts(self) -> dict[str, int]:
        """Links over all trees: one per tree and peer, and one per peer."""
        linked = [peer for branch in self.trees.by_topic.values() for peer in branch.links()]
        return {**super().link_counts(), "logical": len(linked), "physical": len(set(linked))}

    def status(self) -> dict[str, object]:
        """Every tree that this peer is in, as a subscriber or as a root for others."""
        branches = self.trees.by_topic
        uses = Counter(peer for branch in branches.values() for peer in branch.links())
        trees = {topic: _status(branch, uses) for topic, branch in branches.items()}
        return {
            "links": self.link_counts(),
            "topics": {topic: trees[topic] for topic in self.subscribed},
            "routing": trees,
        }


def _status(branch: Branch, uses: Counter[PeerId]) -> dict[str, object]:
    parent, links = branch.parent, branch.links()
    return {
        "scheme": "pulsarcast",
        "members_estimate": None,
        "logical_links": len(links),
        "shared_links": sum(uses[peer] > 1 for peer in links),
        "subscribed": branch.subscribed,
        "rendezvous": branch.rendezvous,
        "parent": peer_text(parent.peer) if parent is not None else "",
        "depth": 0 if branch.rendezvous else 1 + len(branch.path),
        "children": [peer_text(peer) for peer in branch.children],
        "fellows": [peer_text(peer) for peer in branch.fellows],
        "recent_events": len(branch.recent),
    }


def refusals(ctx: Context) -> Handlers:
    """Handlers of a peer that routes otherwise: it says that it is in no tree."""

    def leave(sender: Contact, message: RendezvousSync | TreeFamily) -> None:
        ctx.send(sender, TreeLeave(message.topic))

    return {
        TreeJoin: lambda sender, join: ctx.send(sender, TreeJoinReply(join.topic, False)),
        TreeJoinReply: lambda sender, message: None,
        TreeFamily: leave,
        TreeLeave: lambda sender, message: None,
        RendezvousSync: leave,
    }
