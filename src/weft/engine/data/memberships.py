"""Synthetic subscriptions: topic popularity curves and their spread over peers (TERA 4.1).

The table of memberships is in compressed form: topic t has the members
`members[offsets[t] : offsets[t+1]]`, each a peer, none twice. The index into `members` names
the membership everywhere in the engine; it is also the number of its row in topic overlays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.engine.core.arrays import Ids, Numbers, offsets_of
from weft.engine.core.draws import absorb, base_key, below
from weft.engine.core.jit import Bits, compiled, i64
from weft.rules.draw import stream_of


class Memberships(NamedTuple):
    """The members of each topic, and the memberships of each peer."""

    peers: int
    offsets: Numbers
    members: Ids
    topic_of: Ids
    of_peer_offsets: Numbers
    of_peer: Ids  # memberships of each peer, ascending

    @property
    def topics(self) -> int:
        return len(self.offsets) - 1

    @property
    def total(self) -> int:
        return len(self.members)

    def sizes(self) -> Numbers:
        return np.diff(self.offsets)

    def per_peer(self) -> Numbers:
        """How many topics each peer subscribes to."""
        return np.diff(self.of_peer_offsets)


def zipf_sizes(topics: int, subscriptions: int, exponent: float) -> Numbers:
    """Popularity by Zipf as the rounded curve; rounding's remainder goes to the first topic.

    Topics whose share rounds to nothing are inactive and left out, so fewer may come back.
    """
    curve = np.arange(1, topics + 1, dtype=np.float64) ** -exponent
    sizes = np.rint(subscriptions * curve / curve.sum()).astype(np.int64)
    sizes[0] += subscriptions - int(sizes.sum())
    return np.asarray(sizes[sizes > 0], np.int64)


def uniform_sizes(
    topics: int, subscriptions: int, peers: int, seed: int, all_active: bool = True
) -> Numbers:
    """Each subscription falls on any topic with equal chance.

    With `all_active`, every topic has a subscriber first (TERA 4.3.2); without, empty topics
    are left out. No topic gets more subscribers than there are peers.
    """
    if subscriptions > topics * peers:
        raise ValueError("more subscriptions than peers times topics")
    if all_active and subscriptions < topics:
        raise ValueError("fewer subscriptions than topics")
    sizes = np.full(topics, 1 if all_active else 0, np.int64)
    key = base_key(seed, stream_of("workload.uniform"))
    _throw(sizes, subscriptions - int(sizes.sum()), peers, key)
    return sizes[sizes > 0]


@compiled
def _throw(sizes: Numbers, subscriptions: int, most: int, key: Bits) -> None:
    thrown = attempt = 0
    while thrown < subscriptions:
        topic = below(absorb(key, attempt), len(sizes))
        attempt += 1
        if sizes[topic] < most:
            sizes[topic] += 1
            thrown += 1


def spread(sizes: Numbers, peers: int, seed: int) -> Memberships:
    """Give each topic so many distinct peers, all sets equally likely."""
    if len(sizes) and int(sizes.max()) > peers:
        raise ValueError("a topic cannot have more subscribers than there are peers")
    offsets = offsets_of(sizes)
    members = np.empty(int(offsets[-1]), np.int32)
    _choose_members(offsets, members, peers, base_key(seed, stream_of("workload.spread")))
    return memberships(peers, offsets, members)


def memberships(peers: int, offsets: Numbers, members: Ids) -> Memberships:
    """The whole table, from the members of each topic."""
    topic_of = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
    of_peer = np.argsort(members, kind="stable").astype(np.int32)
    of_peer_offsets = offsets_of(np.bincount(members, minlength=peers))
    return Memberships(peers, offsets, members, topic_of, of_peer_offsets, of_peer)


@compiled
def _choose_members(offsets: Numbers, members: Ids, peers: int, base: Bits) -> None:
    """Draw distinct peers by rejection; for large topics, draw those left out."""
    marks = np.full(peers, -1, np.int64)
    for topic in range(len(offsets) - 1):
        key = absorb(base, topic)
        size = offsets[topic + 1] - offsets[topic]
        leave_out = 2 * size > peers
        wanted = peers - size if leave_out else size
        drawn = attempt = 0
        at = offsets[topic]
        while drawn < wanted:
            peer = below(absorb(key, attempt), peers)
            attempt += 1
            if marks[peer] != topic:
                marks[peer] = topic
                drawn += 1
                if not leave_out:
                    members[at] = peer
                    at += 1
        if leave_out:
            for peer in range(peers):
                if marks[peer] != topic:
                    members[at] = peer
                    at += 1


@compiled
def membership_of(held: Memberships, peer: int, topic: int) -> int:
    """The membership of a peer in a topic, or −1; a peer's memberships are sorted by topic."""
    low, high = held.of_peer_offsets[peer], held.of_peer_offsets[peer + 1]
    while low < high:
        middle = (low + high) // 2
        if held.topic_of[held.of_peer[middle]] < topic:
            low = middle + 1
        else:
            high = middle
    if low < held.of_peer_offsets[peer + 1] and held.topic_of[held.of_peer[low]] == topic:
        return i64(held.of_peer[low])
    return -1


def topic_name(topic: int) -> str:
    """What a topic of a synthetic workload is called in draws."""
    return f"/t/{topic}"
