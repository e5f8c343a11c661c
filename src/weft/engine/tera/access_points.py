"""Access point tables as columns, and the advertisements that fill them (TERA, Section 3).

Peer p's table is row p of two columns: topics, and for each the membership that serves as its
access point (which names the peer and finds it in the topic's overlay). Draws are numbered per
peer, so a table's content depends on the advertisements it saw and on nothing else. Which topic
enters a table and which entry makes room are the rules themselves (`weft.rules.tera`).

Every T cycles, at its own phase, a peer sends the list of its topics to D distinct neighbours
of the general overlay ("Subscription Management"). One message carries the whole list. It is
handled in the next cycle: the receiver updates its access point table and, for a topic it
subscribes to itself, compares overlay ids; if they differ, two parts of the topic have met, and
the receiver forces a view exchange with the sender ("Partition Merging").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from weft.engine.core.arrays import Ids, Numbers, Octets, Words
from weft.engine.core.draws import absorb, base_key, below, domain_bits, scrambled, subset_mask
from weft.engine.core.jit import ONE, Bits, compiled, i64, part, shared, u64
from weft.engine.core.layout import Rows, get_count, get_id
from weft.engine.core.vector import trailing_zeros
from weft.engine.data.memberships import Memberships, membership_of
from weft.engine.tera.cyclon import Cycle, blank_letters, forced_exchange
from weft.rules.draw import stream_of
from weft.rules.tera import admits, evicted_slot, surviving

NOT_FOUND = -1
_ADMIT, _EVICT = 0, 1

shared(admits, evicted_slot)


class Tables(NamedTuple):
    """The access point tables of all peers."""

    topics: Ids  # peers × size
    points: Ids  # peers × size: memberships
    counts: Ids
    ticks: Numbers  # peers × 2: draws made so far, to admit and to evict
    keys: Words  # base keys, to admit and to evict

    @property
    def size(self) -> int:
        return int(self.topics.shape[1])

    def times_held(self, topics: int) -> Numbers:
        """In how many tables each topic is."""
        used = np.arange(self.size)[None, :] < self.counts[:, None]
        return np.bincount(self.topics[used], minlength=topics).astype(np.int64)


def empty_tables(peers: int, size: int, seed: int) -> Tables:
    keys = [base_key(seed, stream_of(purpose)) for purpose in ("apt.admit", "apt.evict")]
    return Tables(
        np.full((peers, size), -1, np.int32),
        np.full((peers, size), -1, np.int32),
        np.zeros(peers, np.int32),
        np.zeros((peers, 2), np.int64),
        np.array(keys, np.uint64),
    )


# --- tables in the long run -----------------------------------------------------------------------


class Settled(NamedTuple):
    """Tables as they are in the long run, drawn when they are asked for."""

    base: Bits
    size: int


def settled(seed: int, size: int) -> Settled:
    return Settled(base_key(seed, stream_of("engine.settled_tables")), size)


def settled_tables(memberships: Memberships, size: int, seed: int) -> Tables:
    """Tables as they are in the long run: random topics, random members as access points.

    That tables come to this state by themselves is what experiments tera-3a … 3c show; the
    others start from it, since with rare advertisements it takes thousands of cycles.
    """
    tables = empty_tables(memberships.peers, size, seed)
    _settle(tables, memberships.offsets, settled(seed, size).base)
    return tables


@part
def _deal(deck: Numbers, key: Bits, size: int) -> None:
    """Bring a random subset of `deck` to its front, by the first steps of a shuffle."""
    for slot in range(size):
        other = slot + below(absorb(key, 2 * slot), len(deck) - slot)
        deck[slot], deck[other] = deck[other], deck[slot]


@part
def _undeal(deck: Numbers, key: Bits, size: int) -> None:
    for slot in range(size - 1, -1, -1):
        other = slot + below(absorb(key, 2 * slot), len(deck) - slot)
        deck[slot], deck[other] = deck[other], deck[slot]


@part
def _some_member(offsets: Numbers, topic: int, key: Bits, slot: int) -> int:
    size = offsets[topic + 1] - offsets[topic]
    return i64(offsets[topic]) + below(absorb(key, 2 * slot + 1), size)


@compiled
def _settle(tables: Tables, offsets: Numbers, base: Bits) -> None:
    active = len(offsets) - 1
    size = min(tables.topics.shape[1], active)
    deck = np.arange(active)
    for peer in range(len(tables.counts)):
        key = absorb(base, peer)
        _deal(deck, key, size)
        for slot in range(size):
            tables.topics[peer, slot] = deck[slot]
            tables.points[peer, slot] = _some_member(offsets, deck[slot], key, slot)
        _undeal(deck, key, size)
        tables.counts[peer] = size


@part
def settled_point(deck: Numbers, offsets: Numbers, of: Settled, peer: int, topic: int) -> int:
    """What a peer's settled table holds for a topic, without keeping any table: a membership
    or NOT_FOUND. `deck` counts 0, 1, 2, … over the topics, and does so again afterwards."""
    key = absorb(of.base, peer)
    _deal(deck, key, of.size)
    point = NOT_FOUND
    for slot in range(of.size):
        if deck[slot] == topic:
            point = _some_member(offsets, topic, key, slot)
    _undeal(deck, key, of.size)
    return point


# --- one table ------------------------------------------------------------------------------------


@part
def find(tables: Tables, peer: int, topic: int) -> int:
    """The slot of a topic in a peer's table, or NOT_FOUND."""
    for slot in range(tables.counts[peer]):
        if tables.topics[peer, slot] == topic:
            return slot
    return NOT_FOUND


@compiled
def drop_entries(tables: Tables, peers: Numbers, stale: Numbers) -> None:
    """Forget, in each peer's table, the access point beside it; the last entry moves into its
    place."""
    for item in range(len(peers)):
        peer = peers[item]
        for slot in range(tables.counts[peer] - 1, -1, -1):
            if tables.points[peer, slot] == stale[item]:
                last = tables.counts[peer] - 1
                tables.topics[peer, slot] = tables.topics[peer, last]
                tables.points[peer, slot] = tables.points[peer, last]
                tables.counts[peer] = last


@part
def _next_bits(tables: Tables, peer: int, kind: int) -> Bits:
    """The bits of this peer's next decision of a kind."""
    tick = tables.ticks[peer, kind]
    tables.ticks[peer, kind] = tick + 1
    return absorb(absorb(absorb(tables.keys[u64(kind)], peer), tick), 0)


@part
def _hear(tables: Tables, peer: int, topic: int, membership: int, popularity: int) -> None:
    """What a peer's table does on an advertisement for a topic by one of its members."""
    slot = find(tables, peer, topic)
    if slot != NOT_FOUND:
        tables.points[peer, slot] = membership
        return
    if not admits(_next_bits(tables, peer, _ADMIT), u64(popularity)):
        return
    count = i64(tables.counts[peer])
    size = tables.topics.shape[1]
    slot = count
    if count == size:
        # One of size + 1 entries, the new one included, makes room.
        slot = i64(evicted_slot(_next_bits(tables, peer, _EVICT), u64(size + 1)))
        if slot == size:
            return
    else:
        tables.counts[peer] = count + 1
    tables.topics[peer, slot] = topic
    tables.points[peer, slot] = membership


# --- advertisements -------------------------------------------------------------------------------


class Plan(NamedTuple):
    """When and to how many each peer advertises."""

    every: int  # T
    phase: Ids  # by peer
    to: Ids  # D, by peer
    sample: Bits  # base keys: which neighbours, and in what order peers send
    order: Bits


@dataclass
class Adverts:
    """The advertisements of a run: those that were sent in the last cycle are under way."""

    plan: Plan
    sent: Ids = field(init=False)  # rows (sender, receiver), in the order they were sent
    _room: Ids = field(init=False)

    def __post_init__(self) -> None:
        self._room = np.empty((int(self.plan.to.sum(dtype=np.int64)) + 1, 2), np.int32)
        self.sent = self._room[:0]

    def send(
        self, rows: Rows, held: Memberships, peers: int, cycle: int, alive: Octets | None = None
    ) -> int:
        """The peers with numbers below `peers` send the advertisements that are due in this cycle;
        returns how many messages that takes."""
        total = _send(rows, held, peers, self.plan, cycle, alive, self._room)
        self.sent = self._room[:total]
        return len(self.sent)

    def ride(self, pairs: Ids) -> None:
        """Advertisements of this cycle ride on view exchanges: both sides of each pair have told
        the other their topics."""
        self.sent = np.concatenate([pairs, pairs[:, ::-1]])


def adverts(every: int, to: Ids, seed: int) -> Adverts:
    """Advertisements every `every` cycles, by each peer to the number of neighbours in `to`; phases
    are drawn as the protocol draws them."""
    phase = np.empty(len(to), np.int32)
    _draw_phases(phase, every, base_key(seed, stream_of("advertise.phase")))
    sample = base_key(seed, stream_of("cyclon.sample"))
    order = base_key(seed, stream_of("engine.advert_order"))
    return Adverts(Plan(every, phase, to, sample, order))


@compiled
def _draw_phases(found: Ids, period: int, base: Bits) -> None:
    for peer in range(len(found)):
        found[peer] = below(absorb(absorb(absorb(base, peer), 0), 0), period)


@compiled
def _send(
    rows: Rows,
    held: Memberships,
    peers: int,
    plan: Plan,
    cycle: int,
    alive: Octets | None,
    sent: Ids,
) -> int:
    """Write (sender, receiver) of this cycle's advertisements to `sent`; returns how many."""
    total = 0
    order_key = absorb(plan.order, cycle)
    bits = u64(domain_bits(peers))
    for position in range(i64(1) << i64(bits)):
        peer = i64(scrambled(u64(position), order_key, bits))
        if peer >= peers or (cycle + plan.phase[peer]) % plan.every != 0:
            continue
        if held.of_peer_offsets[peer] == held.of_peer_offsets[peer + 1]:
            continue
        if alive is not None and not alive[peer]:
            continue
        key = absorb(absorb(plan.sample, peer), cycle)
        mask = subset_mask(key, get_count(rows.octets, peer), i64(plan.to[peer]))
        while mask != u64(0):
            slot = i64(trailing_zeros(mask))
            mask &= mask - ONE
            sent[total, 0] = peer
            sent[total, 1] = get_id(rows.words, peer, slot)
            total += 1
    return total


@compiled
def receive_adverts(sent: Ids, held: Memberships, popularity: Ids, tables: Tables) -> None:
    """Update the receivers' tables; `popularity` is what each membership advertises."""
    for item in range(len(sent)):
        sender, receiver = i64(sent[item, 0]), i64(sent[item, 1])
        for at in range(held.of_peer_offsets[sender], held.of_peer_offsets[sender + 1]):
            membership = i64(held.of_peer[at])
            topic = i64(held.topic_of[membership])
            _hear(tables, receiver, topic, membership, i64(popularity[membership]))


@compiled
def merge_partitions(
    sent: Ids, held: Memberships, rows: Rows, overlays: Numbers, cycle: Cycle, met: Numbers
) -> int:
    """Force a view exchange wherever an advertisement reveals another overlay of a topic.

    `cycle` has a row of keys for each topic; `met[topic]` is set to the tick at which its parts
    first met. Returns forced exchanges.
    """
    forced = 0
    letters = blank_letters()
    for item in range(len(sent)):
        sender, receiver = i64(sent[item, 0]), i64(sent[item, 1])
        for at in range(held.of_peer_offsets[sender], held.of_peer_offsets[sender + 1]):
            theirs = i64(held.of_peer[at])
            topic = i64(held.topic_of[theirs])
            mine = membership_of(held, receiver, topic)
            if mine < 0 or overlays[mine] == overlays[theirs]:
                continue
            inside = Cycle(cycle.keys[topic], cycle.tick, cycle.shuffle_length)
            forced_exchange(rows, mine, theirs, i64(held.members[mine]), inside, letters)
            overlays[mine] = overlays[theirs] = surviving(overlays[mine], overlays[theirs])
            forced += 1
            if met[topic] == 0:
                met[topic] = cycle.tick
    return forced
