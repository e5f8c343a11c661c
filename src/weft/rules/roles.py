"""Roles in a topic, forwarder or child: the decisions of the topic-aware DHT (Baehni,
Guerraoui, Handurukande, Jurca, Koldehofe 2004, Sections 4.2 to 4.5).

A forwarder of a topic has a location hash(topic) ∘ hash(peer) and a routing table for it; a child
has neither and hangs on the forwarder closest to where it would lie. T_p are the topics of a peer,
L_p those it forwards, k is the most children a forwarder has per topic.

Deviation: closest is meant by XOR, the metric of the tables (`rules/prefix.py`), not by the order
of the numbers. The paper's two neighbours of a new forwarder, the next smaller and the next larger
one, are here those that share the longest prefix with it (`affected`): nobody else can have
children that are closer to the newcomer. There is one of them in half of the cases, and rarely
more than a few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar

from weft.rules.prefix import common_prefix

Peer = TypeVar("Peer")
Choice: TypeAlias = Literal["forward", "split", "replace", "join"]


# --- fairness and bounds --------------------------------------------------------------------------


class Load(NamedTuple):
    """How much a peer forwards, by its own word."""

    locations: int  # |L_p|
    topics: int  # |T_p|
    children: int = 0  # |C_p| in the topic in question
    work: int = 0  # subscribers served: itself and its children, over all topics it forwards


def is_unfair(other: Load, mine: Load) -> bool:
    """(|L_q| − 1)/|T_q| > (|L_p| + 1)/|T_p|: even after I took over one of its locations, the
    other one forwards more of its topics than I do of mine."""
    return (other.locations - 1) * mine.topics > (mine.locations + 1) * other.topics


def relieves(mine: Load, parent: Load) -> bool:
    """Whether a child shall take its parent's place: the parent would still serve more
    subscribers for each of its topics than the child does then.

    Deviation: the paper asks once, on subscription, and counts locations. A location with many
    children is more work, and shares change with later subscriptions, so children go on asking.
    With the same children every exchange lowers the larger of two shares, so exchanges end; some
    children turn to other forwarders meanwhile, which takes a few exchanges more.
    """
    taken = parent.children + 1
    return (parent.work - taken) * mine.topics > (mine.work + taken) * parent.topics


def has_room(children: int, more: int, k: int) -> bool:
    """Whether a forwarder with `children` can take `more`."""
    return children + more <= k


def retires(mine: Load, heir: Load) -> bool:
    """Whether a forwarder, where those around it have room for its children and itself, shall stop
    and be a child of the closest of them, its heir (makechild; the paper has no rule when): if it
    keeps another location, and forwards no smaller share of its topics than the heir does."""
    return mine.locations > 1 and mine.locations * heir.topics >= heir.locations * mine.topics


def location_view_bound(topics: int, k: int) -> float:
    """1 + |T_p|/(k+1): the expected |L_p| where every topic has more than k subscribers."""
    return 1 + topics / (k + 1)


def is_overfull(children: int, k: int) -> bool:
    return children > k


# --- which role to take on subscription -----------------------------------------------------------


def choose_roles(found: Mapping[Peer, Load | None], mine: Load) -> dict[Peer, Choice]:
    """For topics subscribed together: what to do in each (Section 4.2, Subscriptions).

    `found` has, for each topic, what its closest forwarder says, or None where there is nobody.
    `mine` counts the new topics in `topics`. First forward where nobody does; if that leaves this
    peer without any location, one split, where there are most children; then take over from those
    that do more than their share; join the others.
    """
    choices: dict[Peer, Choice] = {}
    locations = mine.locations
    for topic, load in found.items():
        if load is None:
            choices[topic] = "forward"
            locations += 1
    rest = [(topic, load) for topic, load in found.items() if load is not None]
    if not locations and rest:
        topic, _ = max(rest, key=lambda one: one[1].children)
        choices[topic] = "split"
        locations += 1
    for topic, load in rest:
        if topic in choices:
            continue
        if is_unfair(load, Load(locations, mine.topics)):
            choices[topic] = "replace"
            locations += 1
        else:
            choices[topic] = "join"
    return choices


# --- the closest forwarder ------------------------------------------------------------------------


def closest_forwarder(location: int, forwarders: Iterable[int]) -> int | None:
    """The forwarder that a child at this location belongs to."""
    return min(forwarders, key=lambda one: one ^ location, default=None)


def is_closer(location: int, one: int, other: int) -> bool:
    return one ^ location < other ^ location


def affected(newcomer: int, forwarders: Sequence[int], bits: int) -> list[int]:
    """The forwarders whose children may be closer to a newcomer: the q and r of
    split(p, q, r, t), and the same ones whose children move when it leaves."""
    shared = [common_prefix(newcomer, one, bits) for one in forwarders]
    longest = max(shared, default=0)
    return [one for one, length in zip(forwarders, shared, strict=True) if length == longest]


def heirs(own: int, children: Iterable[int], forwarders: Sequence[int], bits: int) -> Counter[int]:
    """How many members each forwarder would get if this one stopped: its children and itself."""
    near = affected(own, forwarders, bits)
    return Counter(min(near, key=lambda one: one ^ place) for place in (own, *children))


def split_target(own: int, children: Sequence[int]) -> int:
    """Which child shall become a forwarder beside one that has too many: the one that would take
    the share of the children closest to a half; the first of equals by location."""
    half = len(children) / 2

    def unevenness(child: int) -> tuple[float, int]:
        taken = sum(one == child or is_closer(one, child, own) for one in children)
        return abs(taken - half), child

    return min(children, key=unevenness)


def heir(own: int, children: Sequence[int]) -> int:
    """Which child takes over from a leaving forwarder: the closest, whose cell is most alike."""
    return min(children, key=lambda child: child ^ own)


# --- random routing -------------------------------------------------------------------------------


class Region(NamedTuple, Generic[Peer]):
    """All forwarders that share the first bits with a random target: a way to draw one uniformly.

    The forwarder closest to a random target is no such draw: on the way down the tree of prefixes
    every fork halves what is left, so one with b forks on its way is it with probability 2^−b, not
    1/n. Lemma 4.7 holds for the mean over all hash functions, not for the peers that are there.

    All regions of so many bits are equally likely, and none has more than `seats` forwarders. Draw
    a seat: an empty one means to draw anew, a taken one is a forwarder, and every forwarder of the
    topic was equally likely. Its children sit with it: `1 + k` seats with each forwarder, drawn in
    the same way, make all subscribers equally likely.
    """

    members: tuple[Peer, ...]
    seats: int

    @property
    def is_whole(self) -> bool:
        """Whether a lookup that finds `seats` at most has found all of them."""
        return len(self.members) < self.seats

    def on(self, seat: int) -> Peer | None:
        return self.members[seat] if seat < len(self.members) else None


def forwarders_estimate(target: int, found: Sequence[int], bits: int) -> float:
    """How many locations there are in a range of `bits` bits, from the closest few to a random
    target: (r − 1) · 2^bits / d, where d is the distance of the r-th."""
    distance = max(one ^ target for one in found)
    return (len(found) - 1) * 2.0**bits / distance


def region_bits(forwarders: float, seats: int) -> int:
    """How many bits regions have: on average a third of the seats is taken or less, so that
    hardly any region has too many members. It must not depend on the region that was drawn:
    smaller regions only where there are many members would favour those with few around."""
    bits = 0
    while forwarders / 2**bits > seats / 3:
        bits += 1
    return bits
