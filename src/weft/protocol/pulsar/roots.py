"""The roots of a tree, the peers closest to the topic's id joined to each other; and the way there.

Every cycle each rendezvous tells the others what it serves, and sends a beat down its part of the
tree. From time to time, and when one of them is lost, it looks the closest peers up again: a peer
that is among them now is told and becomes one, a rendezvous that is not any more becomes the child
of one. Each of them alone holds the tree together: what hung below a lost one joins the others,
which all members know of (`branch.py`). A rendezvous that serves no peer lets the tree go.

A peer that is asked to be a rendezvous looks into its own table whether that can be: no peer can
be made to serve topics far away from it.

From outside, a tree is found by a lookup towards its topic's id that asks each peer on the way
whether it is a member (as Scribe does on the way to its root). The lookup asks all of the closest
peers, so if none of them is a member there is no tree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from weft.ids import Contact, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.lookup import Outcome, Question
from weft.protocol.kademlia.rpc import PROVIDERS, FindReply
from weft.protocol.kademlia.table import PLAIN, Entry
from weft.protocol.pulsar.branch import Branch, RendezvousSync, TreeLeave, Trees
from weft.rules.multicast import (
    is_cut_off,
    is_idle,
    is_overdue,
    is_rendezvous,
    tree_key,
    tree_location,
)

_FELLOWS = 2
"""guess: as many times more fellows than rendezvous are wanted, while opinions differ."""
_YOUNG_CYCLES = 2
"""guess: a new rendezvous looks twice, since its table may be new, too."""

Demoted = Callable[[Branch, list[Contact]], None]
"""Told of a tree that this peer is no root of any more, and of the peers that are."""
Found = Callable[[Contact | None, list[Entry]], None]
"""The first member on the way, or None and the closest peers to the topic's id."""


class Roots:
    """The trees that this peer is a root of."""

    def __init__(self, ctx: Context, dht: Kademlia, trees: Trees, demoted: Demoted) -> None:
        self._ctx = ctx
        self._dht = dht
        self._trees = trees
        self._demoted = demoted
        self._checking: dict[Topic, None] = {}

    # --- the way to a tree ------------------------------------------------------------------------

    def find_member(self, topic: Topic, without: Collection[PeerId], then: Found) -> bool:
        """Walk towards a topic's id until a peer is in its tree; False if too many lookups wait."""
        member: list[Contact] = []

        def seen(entry: Entry, reply: FindReply) -> bool:
            peer = entry.contact.peer
            if peer not in without and any(one.peer == peer for one in reply.providers):
                member.append(entry.contact)
            return bool(member)

        def done(outcome: Outcome) -> None:
            then(member[0] if member else None, outcome.closest)

        question = Question(PLAIN, tree_location(topic), PROVIDERS, tree_key(topic))
        return self._dht.find(question, done, seen)

    def is_among(self, branch: Branch, closest: list[Entry]) -> bool:
        """Whether this peer is one of the rendezvous, with these the closest others."""
        keys = [entry.key for entry in closest]
        count = self._ctx.config.pulsar.rendezvous
        return is_rendezvous(self._dht.home.table.own, keys, branch.location, count)

    def may_serve(self, topic: Topic) -> bool:
        """Whether this peer can be a rendezvous of a topic, as far as it knows."""
        count = _FELLOWS * self._ctx.config.pulsar.rendezvous
        location, table = tree_location(topic), self._dht.home.table
        near = [entry.key for entry in table.closest(location, count, sound=True)]
        return is_rendezvous(table.own, near, location, count)

    # --- the rendezvous of a tree -----------------------------------------------------------------

    def invite(self, branch: Branch, others: list[Contact]) -> None:
        """Tell others that they are rendezvous, too."""
        for contact in others:
            if contact.peer not in branch.fellows and contact.peer != self._ctx.me.peer:
                self._ctx.send(contact, branch.sync(answer=True))

    def check(self, branch: Branch) -> None:
        """Look up which peers the rendezvous should be."""
        topic = branch.topic
        if topic in self._checking:
            return

        def found(outcome: Outcome) -> None:
            self._checking.pop(topic, None)
            if self._trees.get(topic) is not branch or not branch.rendezvous:
                return
            count = self._ctx.config.pulsar.rendezvous
            contacts = [entry.contact for entry in outcome.closest[:count]]
            if self.is_among(branch, outcome.closest):
                if not branch.idle_cycles:  # else they would keep each other from letting go
                    self.invite(branch, contacts[: count - 1])
            else:
                branch.step_down()
                self._demoted(branch, contacts)

        self._checking[topic] = None
        if not self._dht.find(Question(PLAIN, branch.location), found):
            self._checking.pop(topic, None)

    def on_sync(self, branch: Branch, sender: Contact, message: RendezvousSync) -> None:
        """Another rendezvous tells what it serves; this peer is one, too."""
        ctx = self._ctx
        fellow = branch.fellows.get(sender.peer)
        if fellow is None:
            if len(branch.fellows) >= _FELLOWS * ctx.config.pulsar.rendezvous:
                ctx.send(sender, TreeLeave(branch.topic))
                return
            fellow = branch.take_fellow(sender)
            if message.subscribed:
                branch.meet(sender)
        fellow.hear(message, ctx.me.peer, self._trees.cycle)
        if message.answer:
            ctx.send(sender, branch.sync(answer=False))

    def run_cycle(self, branch: Branch) -> bool:
        """What a rendezvous does every cycle; False if it serves no peer (any more)."""
        ctx, settings, cycle = self._ctx, self._ctx.config.pulsar, self._trees.cycle
        branch.next_beat()
        for fellow in list(branch.fellows.values()):
            if is_cut_off(fellow.heard_cycle, cycle, settings.patience_cycles):
                branch.forget(fellow.contact.peer)
                ctx.send(fellow.contact, TreeLeave(branch.topic))
            else:
                overdue = is_overdue(fellow.heard_cycle, cycle)
                ctx.send(fellow.contact, branch.sync(answer=overdue))
        branch.settle()
        branch.tell_children()
        elsewhere = sum(one.children + one.subscribed for one in branch.fellows.values())
        idle = is_idle(branch.subscribed, len(branch.children), elsewhere)
        if branch.count_idle(idle) > settings.patience_cycles:
            return False
        age = cycle - branch.begun_cycle
        if age <= _YOUNG_CYCLES or age % settings.check_every_cycles == 0:
            self.check(branch)
        return True
