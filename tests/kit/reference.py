"""A cycle of Cyclon in plain Python over `weft.rules`: what the engine's kernels must equal."""

from __future__ import annotations

import numpy as np

from views import View
from weft.engine.core.draws import absorb, base_key, domain_bits, scrambled
from weft.rules import cyclon
from weft.rules.draw import key_of, stream_of


def turns(peers: int, seed: int, tick: int, topic: str = "") -> list[int]:
    """The order in which the peers act in this cycle."""

    key = np.uint64(absorb(base_key(seed, stream_of("engine.order", topic)), tick))
    bits = domain_bits(peers)
    found = [int(scrambled(np.uint64(at), key, np.uint64(bits))) for at in range(1 << bits)]
    return [peer for peer in found if peer < peers]


def exchange(
    views: list[View], asker: int, seed: int, tick: int, view_size: int, shuffle_length: int
) -> int | None:
    """One peer's turn, by the rules; returns the peer that it asked."""
    mine = views[asker]
    if not mine.peers:
        return None
    mine.ages = cyclon.aged(mine.ages)
    asked = mine.peers[cyclon.oldest_slot(mine.ages)]
    exchange_with(views, asker, asked, seed, tick, view_size, shuffle_length)
    return asked


def exchange_with(
    views: list[View],
    asker: int,
    asked: int,
    seed: int,
    tick: int,
    view_size: int,
    shuffle_length: int,
) -> None:
    """An exchange with this peer, by the rules."""
    mine, theirs = views[asker], views[asked]
    if asked in mine.peers:
        cyclon.take_out(mine.peers, mine.ages, mine.peers.index(asked))
    ask_key = key_of(seed, stream_of("cyclon.ask"), asker, tick)
    answer_key = key_of(seed, stream_of("cyclon.answer"), asker, tick)
    sending = cyclon.slots_to_send(ask_key, len(mine.peers), shuffle_length - 1)
    answering = cyclon.slots_to_send(answer_key, len(theirs.peers), shuffle_length)
    request = [(mine.peers[s], mine.ages[s]) for s in sending] + [(asker, 0)]
    answer = [(theirs.peers[s], theirs.ages[s]) for s in answering]
    sent, answered = [peer for peer, _ in request[:-1]], [peer for peer, _ in answer]
    cyclon.merge(theirs.peers, theirs.ages, request, answered, asked, view_size)
    cyclon.merge(mine.peers, mine.ages, answer, sent, asker, view_size)
    if len(mine.peers) < view_size and asked not in mine.peers:
        mine.peers.append(asked)
        mine.ages.append(0)


def cycle(views: list[View], seed: int, tick: int, view_size: int, shuffle_length: int) -> None:
    for asker in turns(len(views), seed, tick):
        exchange(views, asker, seed, tick, view_size, shuffle_length)
