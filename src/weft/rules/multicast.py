"""Multicast trees with several roots: the decisions (Pulsarcast, Section 4, after Scribe).

A topic has an id, the hash of its name. The peers closest to it are its *rendezvous*: the roots of
its tree, joined to each other. Every other member has one parent and a bounded number of children,
and knows its ancestors up to a root. An event crosses every link once, wherever it is published.

Deviation: in Scribe peers on the way to the root become forwarders of topics that are not theirs.
Here only rendezvous do: a subscriber is itself the child of the member it found, so no peer but the
roots handles events it has no use for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import takewhile

from weft.ids import Contact, PeerId, Topic
from weft.rules.draw import absorb
from weft.rules.prefix import closest, location_of

TREE = 3
"""Kind of a key in the DHT: a peer that answers to it is a member of the topic. The number is that
of `prefix.SEGMENT`, too; what is hashed behind it differs."""
PATH_MAX = 32
"""guess: ancestors a member can have. With two children each this is more than all peers."""


def tree_key(topic: Topic) -> bytes:
    """The key with which a lookup asks the peers on its way for members of a topic."""
    return bytes((TREE,)) + sha256(topic.encode()).digest()


def tree_location(topic: Topic) -> int:
    """The topic's id, towards which lookups go."""
    return int.from_bytes(tree_key(topic)[1:], "big")


def is_rendezvous(own: int, others: Iterable[int], target: int, count: int) -> bool:
    """Whether a peer is among the `count` closest to a topic's id."""
    return own in closest(target, [own, *others], count)


def may_join(joiner: PeerId, above: Iterable[Contact], attached: bool) -> bool:
    """Whether a member may take a joiner below it: it is in the tree, and not below the joiner."""
    return attached and all(joiner != one.peer for one in above)


def has_room(children: int, most: int) -> bool:
    return children < most


def push_down(children: Sequence[Contact], key: int, count: int) -> list[Contact]:
    """The children to which a full member sends a newcomer: a different choice for each key."""
    return sorted(children, key=lambda one: absorb(key, int.from_bytes(one.peer[:8], "big")))[
        :count
    ]


def is_circle(me: PeerId, parent: PeerId, path: Sequence[Contact]) -> bool:
    """Whether the way up leads back to this member, or is longer than any without a circle."""
    return parent == me or len(path) >= PATH_MAX or any(one.peer == me for one in path)


def opens_circle(me: PeerId, parent: PeerId, path: Sequence[Contact], target: int) -> bool:
    """Whether this member is the one of a circle that leaves its parent: the closest to the topic's
    id. If all members of it left, a tree that is whole but for its root would fall to pieces."""
    if len(path) >= PATH_MAX:
        return True
    circle = [parent, *takewhile(lambda peer: peer != me, (one.peer for one in path))]
    own = location_of(me) ^ target
    return all(own <= location_of(peer) ^ target for peer in circle)


def repair_order(
    me: PeerId,
    path: Sequence[Contact],
    rendezvous: Sequence[Contact],
    without: Collection[PeerId],
) -> list[Contact]:
    """The members to ask for a place once the parent is lost: grandparent, its parent, …, roots."""
    order: dict[PeerId, Contact] = {}
    for one in (*path, *rendezvous):
        if one.peer != me and one.peer not in without:
            order.setdefault(one.peer, one)
    return list(order.values())


def onward(
    links: Mapping[PeerId, Contact],
    source: PeerId | None,
    told_by_source: Collection[PeerId],
) -> list[Contact]:
    """The links over which an event goes on: every one but that by which it came, and not to peers
    that the sender has told itself, as it does between rendezvous."""
    return [
        contact for peer, contact in links.items() if peer != source and peer not in told_by_source
    ]


def is_cut_off(heard_cycle: int, cycle: int, patience: int) -> bool:
    """Whether no beat has come down from a root for longer than `patience` cycles, so that the way
    up must be broken."""
    return cycle - heard_cycle > patience


def is_overdue(heard_cycle: int, cycle: int) -> bool:
    """Whether a beat got lost, of which one comes in every cycle. Then the parent is asked for it,
    since on a way of several links a few losses in a row prove nothing."""
    return cycle - heard_cycle > 1


def is_idle(subscribed: bool, children: int, elsewhere: int) -> bool:
    """Whether a rendezvous serves nobody: no child of its own, nor any with the others."""
    return not subscribed and not children and not elsewhere
