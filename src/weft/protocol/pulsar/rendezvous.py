"""The roots of a tree: the peers closest to the topic's id, joined to each other.

Every cycle each rendezvous tells the others what it serves, and sends a beat down its part of the
tree. From time to time, and when one of them is lost, it looks the closest peers up again: whoever
is among them now is told and becomes one, whoever is not any more becomes the child of one. Each of
them alone holds the tree together: what hung below a lost one joins the others, which everybody
knows of (`family.py`). A rendezvous that serves nobody lets the tree go.

Whoever is asked to be a rendezvous looks into its own table whether that can be: nobody can be
made to serve topics far away from it.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ids import Contact, Topic
from weft.protocol.context import Context
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.lookup import Outcome, Question
from weft.protocol.kademlia.table import PLAIN
from weft.protocol.messages_pulsar import RendezvousSync, TreeLeave
from weft.protocol.pulsar import family
from weft.protocol.pulsar.branch import Branch, Fellow
from weft.rules.multicast import is_cut_off, is_idle, is_overdue, is_rendezvous, tree_location

_FELLOWS = 2
"""guess: as many times more fellows than rendezvous are wanted, while opinions differ."""
_YOUNG_CYCLES = 2
"""guess: a new rendezvous looks twice, since its table may be new, too."""

Demoted = Callable[[Branch, list[Contact]], None]
"""Told of a tree that this peer is no root of any more, and of those who are."""


class Rendezvous:
    """The trees that this peer is a root of."""

    def __init__(
        self, ctx: Context, dht: Kademlia, trees: dict[Topic, Branch], demoted: Demoted
    ) -> None:
        self._ctx = ctx
        self._dht = dht
        self._trees = trees
        self._demoted = demoted
        self._checking: dict[Topic, None] = {}
        self.cycle = 0

    def may_serve(self, topic: Topic) -> bool:
        """Whether this peer can be a rendezvous of a topic, as far as it knows."""
        count = _FELLOWS * self._ctx.config.pulsar.rendezvous
        location, table = tree_location(topic), self._dht.home.table
        near = [entry.key for entry in table.closest(location, count, sound=True)]
        return is_rendezvous(table.own, near, location, count)

    def begin(self, branch: Branch) -> None:
        """Become a rendezvous, with whatever children there are."""
        ctx = self._ctx
        parent, branch.parent = branch.parent, None
        branch.rendezvous = True
        branch.begun_cycle = branch.heard_cycle = self.cycle
        branch.idle_cycles = 0
        branch.path, branch.siblings = (), ()
        branch.beat = 1
        ctx.counters["trees_rooted"] += 1
        if parent is not None:
            ctx.send(parent, TreeLeave(branch.topic))
        family.settle(ctx, branch)
        family.tell_children(ctx, branch, self.cycle)

    def invite(self, branch: Branch, others: list[Contact]) -> None:
        """Tell others that they are rendezvous, too."""
        for contact in others:
            if contact.peer not in branch.fellows and contact.peer != self._ctx.me.peer:
                self._ctx.send(contact, family.sync_of(branch, answer=True))

    def check(self, branch: Branch) -> None:
        """Look up who the rendezvous should be."""
        topic = branch.topic
        if topic in self._checking:
            return

        def found(outcome: Outcome) -> None:
            self._checking.pop(topic, None)
            if self._trees.get(topic) is not branch or not branch.rendezvous:
                return
            count = self._ctx.config.pulsar.rendezvous
            keys = [entry.key for entry in outcome.closest]
            contacts = [entry.contact for entry in outcome.closest[:count]]
            if is_rendezvous(self._dht.home.table.own, keys, branch.location, count):
                if not branch.idle_cycles:  # else they would keep each other from letting go
                    self.invite(branch, contacts[: count - 1])
            else:
                self.step_down(branch)
                self._demoted(branch, contacts)

        self._checking[topic] = None
        if not self._dht.find(Question(PLAIN, branch.location), found):
            self._checking.pop(topic, None)

    def step_down(self, branch: Branch) -> None:
        branch.rendezvous = False
        for fellow in branch.fellows.values():
            self._ctx.send(fellow.contact, TreeLeave(branch.topic))
        branch.fellows.clear()
        family.settle(self._ctx, branch)

    def on_sync(self, branch: Branch, sender: Contact, message: RendezvousSync) -> None:
        """Another rendezvous tells what it serves; this peer is one, too."""
        ctx = self._ctx
        fellow = branch.fellows.get(sender.peer)
        if fellow is None:
            if len(branch.fellows) >= _FELLOWS * ctx.config.pulsar.rendezvous:
                ctx.send(sender, TreeLeave(branch.topic))
                return
            branch.forget(sender.peer)
            fellow = branch.fellows[sender.peer] = Fellow(sender)
            family.settle(ctx, branch)
            family.tell_children(ctx, branch, self.cycle)
            if message.subscribed:
                family.meet(ctx, branch, sender)
        me = ctx.me.peer
        fellow.heard_cycle = self.cycle
        fellow.subscribed = message.subscribed
        fellow.children = min(message.children, 1 << 32)
        fellow.joined_to = {one.peer: one for one in message.rendezvous}
        fellow.members = [one for one in message.members if one.peer != me]
        if message.answer:
            ctx.send(sender, family.sync_of(branch, answer=False))

    def run_cycle(self, branch: Branch) -> bool:
        """What a rendezvous does every cycle; False if it serves nobody (any more)."""
        ctx, settings = self._ctx, self._ctx.config.pulsar
        branch.beat += 1
        branch.heard_cycle = self.cycle
        age = self.cycle - branch.begun_cycle
        for fellow in list(branch.fellows.values()):
            if is_cut_off(fellow.heard_cycle, self.cycle, settings.patience_cycles):
                branch.forget(fellow.contact.peer)
                ctx.send(fellow.contact, TreeLeave(branch.topic))
            else:
                overdue = is_overdue(fellow.heard_cycle, self.cycle)
                ctx.send(fellow.contact, family.sync_of(branch, answer=overdue))
        family.settle(ctx, branch)
        family.tell_children(ctx, branch, self.cycle)
        elsewhere = sum(one.children + one.subscribed for one in branch.fellows.values())
        idle = is_idle(branch.subscribed, len(branch.children), elsewhere)
        branch.idle_cycles = branch.idle_cycles + 1 if idle else 0
        if branch.idle_cycles > settings.patience_cycles:
            return False
        if age <= _YOUNG_CYCLES or age % settings.check_every_cycles == 0:
            self.check(branch)
        return True
