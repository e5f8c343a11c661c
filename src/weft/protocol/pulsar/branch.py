"""What one peer knows of one topic's tree: its place, and the levels around it.

Invariant: a linked peer is exactly one of parent, child and fellow rendezvous. A rendezvous has no
parent. All lists are bounded by the messages they come from, children by `children_max`, fellows
by twice the number of rendezvous.
"""

from __future__ import annotations

from weft.ids import Contact, PeerId, Topic
from weft.protocol.recent import Recent
from weft.rules.multicast import tree_key, tree_location


class Child:
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


class Branch:
    """One tree, seen from one peer."""

    __slots__ = (
        "beat",
        "begun_cycle",
        "children",
        "differs",
        "family_heard",
        "fellows",
        "fresh",
        "heard_cycle",
        "idle_cycles",
        "key",
        "location",
        "parent",
        "parent_subscribed",
        "path",
        "recent",
        "rendezvous",
        "roots",
        "siblings",
        "subscribed",
        "tokens",
        "topic",
        "watched",
    )

    def __init__(self, topic: Topic, recent: Recent) -> None:
        self.topic = topic
        self.key = tree_key(topic)
        self.location = tree_location(topic)
        self.recent = recent
        self.subscribed = False
        self.tokens: list[int] = []  # subscriptions to be answered
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
        self.heard_cycle = 0  # when the beat last changed
        self.begun_cycle = 0  # as a rendezvous
        self.idle_cycles = 0  # as a rendezvous that serves nobody
        self.differs = 0  # cycles in which a linked member had seen something else
        self.watched: dict[PeerId, None] = {}  # links that upper layers were told of

    @property
    def attached(self) -> bool:
        """Whether this peer is in the tree."""
        return self.rendezvous or self.parent is not None

    def links(self) -> dict[PeerId, Contact]:
        """Everybody that events go to and come from."""
        found = {peer: fellow.contact for peer, fellow in self.fellows.items()}
        if self.parent is not None:
            found[self.parent.peer] = self.parent
        for peer, child in self.children.items():
            found[peer] = child.contact
        return found

    def forget(self, peer: PeerId) -> None:
        """There is no link to a peer (any more)."""
        self.children.pop(peer, None)
        self.fellows.pop(peer, None)
        if self.parent is not None and self.parent.peer == peer:
            self.parent = None

    def drop_everywhere(self, peer: PeerId) -> None:
        """A peer is gone: nobody shall ask it for anything."""
        self.forget(peer)
        self.path = tuple(one for one in self.path if one.peer != peer)
        self.roots = tuple(one for one in self.roots if one.peer != peer)
        self.siblings = tuple(one for one in self.siblings if one.peer != peer)
        for fellow in self.fellows.values():
            fellow.members = [one for one in fellow.members if one.peer != peer]

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
