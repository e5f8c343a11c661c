"""Taking others as children: who may come, how many, and where the rest go.

A member takes children only as long as its own way up is whole, as far as it has heard; else those
below a lost root would all join each other.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ids import Contact, Topic
from weft.protocol.context import Context
from weft.protocol.messages_pulsar import TreeJoin, TreeJoinReply
from weft.protocol.pulsar import family
from weft.protocol.pulsar.branch import Branch, Child
from weft.protocol.pulsar.rendezvous import Rendezvous
from weft.rules.draw import stream_of
from weft.rules.multicast import has_room, is_cut_off, may_join, push_down

_DOWN = stream_of("pulsar.down")
_INSTEAD = 3
"""guess: children named to somebody that a full member cannot take."""


class Hosting:
    """The children of one peer, in all its trees."""

    def __init__(
        self,
        ctx: Context,
        trees: dict[Topic, Branch],
        roots: Rendezvous,
        serve: Callable[[Topic], Branch | None],
    ) -> None:
        """`serve` makes this peer a rendezvous of a topic, if that can be."""
        self._ctx = ctx
        self._trees = trees
        self._roots = roots
        self._serve = serve

    def takes_children(self, branch: Branch) -> bool:
        patience = self._ctx.config.pulsar.patience_cycles
        whole = not is_cut_off(branch.heard_cycle, self._roots.cycle, patience - 1)
        return branch.rendezvous or (branch.parent is not None and whole)

    def on_join(self, sender: Contact, message: TreeJoin) -> None:
        ctx, topic = self._ctx, message.topic
        branch = self._trees.get(topic)
        if message.root and (branch is None or not branch.attached):
            branch = self._serve(topic)
        parent = branch.parent.peer if branch is not None and branch.parent is not None else None
        if branch is None or not may_join(
            sender.peer, parent, branch.path, self.takes_children(branch)
        ):
            ctx.send(sender, TreeJoinReply(topic, False))
            return
        children = branch.children
        known = sender.peer in children
        if not known and not has_room(len(children), self._children_max):
            instead = self._instead(branch)
            ctx.counters["trees_pushed_down"] += 1
            ctx.send(sender, TreeJoinReply(topic, False, False, instead))
            return
        branch.forget(sender.peer)
        children[sender.peer] = Child(sender, message.subscribed)
        family.settle(ctx, branch)
        recent = branch.recent
        seen = recent.seen() if message.fresh else []
        reply = TreeJoinReply(topic, True, branch.subscribed, [], recent.fingerprint(), seen)
        ctx.send(sender, reply)
        family.tell_children(ctx, branch, self._roots.cycle, sender.peer)
        if message.subscribed and (message.fresh or not known):
            family.meet(ctx, branch, sender)

    def _instead(self, branch: Branch) -> list[Contact]:
        """Who may have room: another rendezvous, else the children."""
        roots = [
            fellow.contact
            for fellow in branch.fellows.values()
            if has_room(fellow.children, self._children_max)
        ]
        below = [child.contact for child in branch.children.values()]
        key = self._ctx.next_key(_DOWN)
        return [*push_down(roots, key, 1), *push_down(below, key, _INSTEAD)]

    @property
    def _children_max(self) -> int:
        return self._ctx.config.pulsar.children_max
