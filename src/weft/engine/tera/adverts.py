"""Subscription advertisements, and the merging of partitions that they bring about.

Every T cycles, at its own phase, a peer sends the list of its topics to D distinct neighbours
of the general overlay (TERA, Section 3, "Subscription Management"). One message carries the
whole list. It is handled in the next cycle: the receiver updates its access point table and, for
a topic it subscribes to itself, compares overlay ids; if they differ, two parts of the topic
have met, and the receiver forces a view exchange with the sender ("Partition Merging").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.engine.core import draws
from weft.engine.core.draws import absorb, base_key, below, subset_mask
from weft.engine.core.jit import compiled, i64, u64
from weft.engine.core.layout import Array, Octets, Words, get_count, get_id
from weft.engine.core.vector import trailing_zeros
from weft.engine.data.workload import membership_of
from weft.engine.tera.exchange import forced_exchange
from weft.engine.tera.tables import hear_advert
from weft.rules.draw import stream_of

_ONE = np.uint64(1)


def phases(peers: int, period: int, seed: int) -> Array:
    """In which cycle of a period each peer advertises; drawn as the protocol does."""
    found = np.empty(peers, np.int32)
    _draw_phases(found, period, base_key(seed, stream_of("advertise.phase")))
    return found


@compiled
def _draw_phases(found: Array, period: int, base: Any) -> None:
    for peer in range(len(found)):
        found[peer] = below(absorb(absorb(absorb(base, peer), 0), 0), period)


@compiled
def send_adverts(
    words: Words,
    octets: Octets,
    peers: int,
    of_peer_offsets: Array,
    phase: Array,
    alive: Array | None,
    cycle: int,
    period: int,
    wanted: Array,
    sample_base: Any,
    order_base: Any,
    sent: Array,
) -> int:
    """Write (sender, receiver) of this cycle's advertisements to `sent`; returns how many.

    `wanted` is D, for each peer.
    """
    total = 0
    order_key = absorb(order_base, cycle)
    bits = u64(draws.domain_bits(peers))
    for position in range(i64(1) << i64(bits)):
        peer = i64(draws.scrambled(u64(position), order_key, bits))
        if peer >= peers or (cycle + phase[peer]) % period != 0:
            continue
        if of_peer_offsets[peer] == of_peer_offsets[peer + 1]:
            continue
        if alive is not None and not alive[peer]:
            continue
        key = absorb(absorb(sample_base, peer), cycle)
        mask = subset_mask(key, get_count(octets, peer), i64(wanted[peer]))
        while mask != u64(0):
            slot = i64(trailing_zeros(mask))
            mask &= mask - _ONE
            sent[total, 0] = peer
            sent[total, 1] = get_id(words, peer, slot)
            total += 1
    return total


@compiled
def receive_adverts(
    sent: Array,
    total: int,
    of_peer_offsets: Array,
    of_peer: Array,
    topic_of: Array,
    popularity: Array,
    topics: Array,
    points: Array,
    counts: Array,
    ticks: Array,
    keys: Array,
) -> int:
    """Update the receivers' tables; returns how many topics were advertised to somebody."""
    entries = 0
    for item in range(total):
        sender, receiver = i64(sent[item, 0]), i64(sent[item, 1])
        for at in range(of_peer_offsets[sender], of_peer_offsets[sender + 1]):
            membership = i64(of_peer[at])
            entries += 1
            hear_advert(
                topics,
                points,
                counts,
                ticks,
                keys,
                receiver,
                i64(topic_of[membership]),
                membership,
                i64(popularity[membership]),
            )
    return entries


@compiled
def merge_partitions(
    sent: Array,
    total: int,
    of_peer_offsets: Array,
    of_peer: Array,
    topic_of: Array,
    overlays: Array,
    words: Words,
    octets: Octets,
    members: Array,
    topic_keys: Array,
    tick: int,
    view_size: int,
    shuffle_length: int,
    met: Array,
) -> int:
    """Force a view exchange wherever an advertisement reveals another overlay of a topic.

    `met[topic]` is set to the tick at which its parts first met. Returns forced exchanges.
    """
    forced = 0
    request = np.empty((64, 2), np.int64)
    reply = np.empty((64, 2), np.int64)
    for item in range(total):
        sender, receiver = i64(sent[item, 0]), i64(sent[item, 1])
        for at in range(of_peer_offsets[sender], of_peer_offsets[sender + 1]):
            theirs = i64(of_peer[at])
            topic = i64(topic_of[theirs])
            mine = membership_of(of_peer_offsets, of_peer, topic_of, receiver, topic)
            if mine < 0 or overlays[mine] == overlays[theirs]:
                continue
            forced_exchange(
                words,
                octets,
                mine,
                theirs,
                i64(members[mine]),
                topic_keys[topic, 0],
                topic_keys[topic, 1],
                tick,
                view_size,
                shuffle_length,
                request,
                reply,
            )
            surviving = min(overlays[mine], overlays[theirs])
            overlays[mine] = overlays[theirs] = surviving
            forced += 1
            if met[topic] == 0:
                met[topic] = tick
    return forced
