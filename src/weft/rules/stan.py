"""StaN: which members of a topic a peer keeps as neighbours, so that topics share connections
(Matos, Felber, Oliveira, Pereira, Rivière, "Scaling up publish/subscribe overlays using interest
correlation for link sharing", Sections 2.3 and 2.4).

Every peer ranks all others by a weight: a hash of its own id and theirs. The ranking is the same
in every topic, so a peer that shares several topics with another tends to link to it in all of
them, over one connection. The hash makes the choice uniform (every other peer is as likely as any
to come first) and asymmetric (that q ranks high at p says nothing of p at q), so each overlay
stays as random as it was.

Beyond the paper, each switchable:
- *Lean weights* divide an exponential draw by the number of topics that two peers share, so that
  the first of a ranking is each candidate with a chance proportional to what it shares (a weighted
  rendezvous hash). They need to know a candidate's topics, hence they are opt-in.
- *Adoption*: a view has room for a few neighbours that are kept whatever their weight. A peer that
  takes a member into its view, or drops it, tells it so; a member counts its in-links by that. A
  member that has none left can be found by no walk any more, and asks to be adopted at once. So
  does a member that no walk from afar has passed for some periods: its holders may be cut off as
  well, or gone. It asks its neighbours, the lightest first, which are the same peers in many
  topics, so that adoption too shares links. It stops at the first neighbour that has it in its view
  or takes it, and that walks find without the asker; other neighbours, and those without room,
  refuse. Cost: two messages for each neighbour exchanged, none once views have settled.
- The walk's period backs off as `rules/tera.py`'s `next_period` says, and a peer that a walk passes
  may read it for candidates of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterable
from hashlib import blake2b

from weft.ids import PeerId
from weft.rules.draw import MASK64, absorb, stream_of
from weft.rules.tree import pair_weight

_WEIGHT = absorb(0, stream_of("stan.weight"))
CONNECTED_WITH = 0.99
"""paper (Section 3.3): how likely an overlay of random views is to be connected."""
TTL = 6
"""measured: about the diameter of the overlays of our traces, as the paper asks (Section 2.4)."""
ROUNDS = 8
"""paper (Section 3.3): rounds that views are improved for."""
PATIENCE = 2
"""measured: periods without a walk from afar, after which a member asks to be adopted though it
knows of an in-link. With 1, many ask in vain, and adopted links save less; with 3, small groups
that only hold each other stay apart for too long."""
FAR = 1
"""measured: steps a walk must have taken before, to tell a member that it can be found. A walk
that has just begun may come from a member that cannot be found either."""
ADOPTED_PART = 4
"""guess: at most one in so many neighbours is adopted, and always room for one."""

_FRACTION_BITS = 58
"""Bits of a lean weight behind the point: −ln(1−u) stays below 2⁶ for a u of 53 bits."""


def number_of(identity: bytes) -> int:
    """The 64-bit number that stands for a peer's id in weights."""
    return int.from_bytes(blake2b(identity, digest_size=8).digest(), "big")


def weight(at: int, other: int) -> int:
    """The weight, 64 bits, that the peer numbered `at` gives another; the lowest are kept."""
    return absorb(absorb(_WEIGHT, at), other)


def lean_weight(at: int, other: int, shared: int) -> int:
    """The weight of a peer that shares `shared` topics: −ln(1−u)/shared, as a fixed-point number of
    64 bits, where u is the plain weight as a fraction. A peer that shares nothing is last."""
    if shared < 1:
        return MASK64
    fraction = (weight(at, other) >> 11) * 2.0**-53
    return int(-math.log1p(-fraction) / shared * 2.0**_FRACTION_BITS)


def visits(ttl: int) -> int:
    """How many peers a walk visits. By lines 4 to 13 of Algorithm 2 the walk starts with `ttl` at
    the first peer, and each that gets it with more than 0 passes it on: one more than `ttl`."""
    return ttl + 1


def kept(
    candidates: Iterable[int],
    wanted: int,
    weigh: Callable[[int], int],
    adopted: Iterable[int] = (),
) -> list[int]:
    """The `wanted` neighbours to keep: the adopted ones, then those of lowest weight, lowest first
    (Algorithm 2, lines 16 and 17)."""
    first = set(adopted)
    others = set(candidates) | first

    def place(other: int) -> tuple[bool, int, int]:
        return (other not in first, weigh(other), other)

    return sorted(others, key=place)[:wanted]


def ranking(me: PeerId) -> Callable[[PeerId], int]:
    """How early the peer `me` wants a connection to another one, alike in all topics and at both
    ends; the lowest first. For routings other than TERA, whose neighbours are found without walks.
    """
    at = number_of(me)

    def place(other: PeerId) -> int:
        there = number_of(other)
        return pair_weight(weight(at, there), weight(there, at))

    return place


def gives_way(view: Iterable[PeerId], newcomer: PeerId, place: Callable[[PeerId], int]) -> PeerId:
    """The one of a full view and a newly found member that is not kept: the last by rank. Whatever
    the order in which members are found, the view ends with those that rank first (Algorithm 2,
    lines 16 and 17, one member at a time)."""
    return max((*view, newcomer), key=lambda one: (place(one), one))


def shared_parent(
    parent: PeerId,
    elsewhere: Collection[PeerId],
    asked: Container[PeerId],
    place: Callable[[PeerId], int],
) -> PeerId | None:
    """Which peer a leaf of a tree asks to be its parent in place of the one it has, so that one
    connection less is needed: of the peers that it is linked to for other topics, the one that
    ranks first and was not asked yet. None if there is no other, or if the connection to the parent
    is needed elsewhere as well. Every move gives up a connection and opens none, so moves end."""
    if parent in elsewhere:
        return None
    others = [one for one in elsewhere if one not in asked]
    return min(others, key=lambda one: (place(one), one), default=None)


def is_from_afar(steps: int) -> bool:
    """Whether a walk that took `steps` before it came here shows that walks find this peer."""
    return steps >= FAR


def is_lonely(in_links: int, quiet_periods: int, patience: int = PATIENCE) -> bool:
    """Whether a member asks for adoption: `in_links` others hold it, and no walk from afar has
    passed it for `quiet_periods`."""
    return in_links < 1 or quiet_periods >= patience


def can_be_found(lately: bool, others: int) -> bool:
    """Whether walks find a member without the peer that asks it: a walk from afar has passed it
    lately, and `others` members beside that peer hold it."""
    return lately and others >= 1


def adopts(adopted: int, wanted: int, found: bool = True) -> bool:
    """Whether a member with a view of `wanted` neighbours, `adopted` of them adopted, adopts one
    more: if it has room, and can be found itself."""
    return found and adopted < max(1, wanted // ADOPTED_PART)


def view_size(members: int) -> int:
    """How many random neighbours connect an overlay with `CONNECTED_WITH`: ln n + c, where
    e^(−e^(−c)) is the probability (Kermarrec, Massoulié, Ganesh 2003); c = 4.6 for 0.99."""
    if members <= 1:
        return 0
    constant = -math.log(-math.log(CONNECTED_WITH))
    return min(members - 1, math.ceil(math.log(members) + constant))
