"""Where a view lies in memory: one row of 128 bytes, two cache lines, per view.

    bytes   0 …  79   ids of up to 20 neighbours, 32 bits each: the number of their row
    bytes  80 …  99   their ages in cycles, one byte each; 0 in empty slots
    byte  100         how many slots are in use; used slots come first
    bytes 101 … 127   unused

An exchange touches two random rows, so what it costs is set by how many cache lines a view
spans and how many bytes a core can fetch, not by how much is computed (see `docs/engine.md`).
Both an exchange's rows are complete after two fetches each.
"""

from __future__ import annotations

import mmap
import os
from typing import NamedTuple

import numpy as np

from weft.engine.core.arrays import Ids, Octets
from weft.engine.core.draws import absorb, base_key, below
from weft.engine.core.jit import Bits, compiled, i32, i64, part, u8, u64
from weft.engine.core.vector import LANES, lanes_equal, prefetch
from weft.rules.draw import stream_of

ROW_BYTES = 128
VIEW_MAX = LANES
_WORDS = u64(ROW_BYTES // 4)
_OCTETS = u64(ROW_BYTES)
_LINE_WORDS = u64(16)
_AGES_AT = u64(80)
_COUNT_AT = u64(100)


class Rows(NamedTuple):
    """The views of an overlay: the same memory as 32-bit words and as bytes."""

    words: Ids
    octets: Octets
    view_size: int

    def ids(self) -> Ids:
        """Neighbours as a matrix, one row per view; only the first `counts` are in use."""
        return self.words.reshape(-1, ROW_BYTES // 4)[:, :LANES]

    def counts(self) -> Octets:
        return self.octets.reshape(-1, ROW_BYTES)[:, 100]


def empty_rows(capacity: int, view_size: int) -> Rows:
    """Rows with empty views, in huge pages where the system has them."""
    if not 2 <= view_size <= VIEW_MAX:
        raise ValueError(f"view_size must be 2 to {VIEW_MAX}, not {view_size}")
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if os.name == "posix" else {}
    memory = mmap.mmap(-1, max(1, capacity) * ROW_BYTES, **private)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # else every access to a random row misses the TLB
        memory.madvise(mmap.MADV_HUGEPAGE)
    octets = np.frombuffer(memory, np.uint8)
    return Rows(octets.view(np.int32), octets, view_size)


def random_rows(peers: int, view_size: int, seed: int) -> Rows:
    """A random overlay: each of `peers` knows `view_size` others, all sets equally likely."""
    rows = empty_rows(peers, view_size)
    base = base_key(seed, stream_of("engine.first_views"))
    fill_randomly(rows, 0, peers, min(view_size, peers - 1), base)
    return rows


# --- one row, inside kernels ---------------------------------------------------------------------


@part
def words_at(row: int) -> Bits:
    return u64(row) * _WORDS


@part
def ages_at(row: int) -> Bits:
    return u64(row) * _OCTETS + _AGES_AT


@part
def get_id(words: Ids, row: int, slot: int) -> int:
    return i64(words[u64(row) * _WORDS + u64(slot)])


@part
def set_id(words: Ids, row: int, slot: int, peer: int) -> None:
    words[u64(row) * _WORDS + u64(slot)] = i32(peer)


@part
def get_age(octets: Octets, row: int, slot: int) -> int:
    return i64(octets[u64(row) * _OCTETS + _AGES_AT + u64(slot)])


@part
def set_age(octets: Octets, row: int, slot: int, age: int) -> None:
    octets[u64(row) * _OCTETS + _AGES_AT + u64(slot)] = u8(age)


@part
def get_count(octets: Octets, row: int) -> int:
    return i64(octets[u64(row) * _OCTETS + _COUNT_AT])


@part
def set_count(octets: Octets, row: int, count: int) -> None:
    octets[u64(row) * _OCTETS + _COUNT_AT] = u8(count)


@part
def slot_of(rows: Rows, row: int, peer: int) -> int:
    """The slot that holds `peer`, or −1."""
    used = (i64(1) << get_count(rows.octets, row)) - 1
    found = lanes_equal(rows.words, words_at(row), i32(peer)) & used
    if found == 0:
        return -1
    slot = 0
    while (found >> slot) & 1 == 0:
        slot += 1
    return slot


@part
def prefetch_row(words: Ids, row: int) -> None:
    prefetch(words, u64(row) * _WORDS)
    prefetch(words, u64(row) * _WORDS + _LINE_WORDS)


# --- first views ---------------------------------------------------------------------------------


@compiled
def fill_randomly(rows: Rows, first: int, peers: int, wanted: int, base: Bits) -> None:
    """Give each of rows first … first+peers−1 `wanted` distinct others of them, age 0."""
    for peer in range(peers):
        key = absorb(base, first + peer)
        row = first + peer
        count = 0
        attempt = 0
        while count < wanted:
            other = below(absorb(key, attempt), peers)
            attempt += 1
            set_count(rows.octets, row, count)
            if other != peer and slot_of(rows, row, first + other) < 0:
                set_id(rows.words, row, count, first + other)
                set_age(rows.octets, row, count, 0)
                count += 1
        set_count(rows.octets, row, count)
