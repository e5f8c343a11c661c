"""One peer's place in the simulated world: its machine, clock, connections, disk and identity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from weft.documents.signature import Signer, key_pair
from weft.documents.signature import sign as sign_with
from weft.ids import Contact, PeerId, make_address
from weft.protocol import seam
from weft.store.interface import Batch, Store

_MILLION = 1_000_000


@dataclass(frozen=True)
class Clock:
    """A peer's own clock: off by a constant, and fast by `drift_ppm` parts in a million."""

    offset_ms: int = 0
    drift_ppm: int = 0

    def local_ms(self, world_ms: int) -> int:
        return world_ms + self.offset_ms + world_ms * self.drift_ppm // _MILLION

    def world_duration_ms(self, local_ms: int) -> int:
        """The world's time in which at least `local_ms` pass by this clock, rounded up."""
        if not self.drift_ppm:
            return local_ms
        return local_ms * _MILLION // (_MILLION + self.drift_ppm) + 2


TRUE_CLOCK = Clock()


class Node:
    """One peer's place in the world; `machine` is None while it is down."""

    def __init__(
        self,
        index: int,
        contact: Contact,
        make: Callable[[], seam.Machine],
        clock: Clock,
        store: Store | None,
    ) -> None:
        self.index = index
        self.contact = contact
        self.make = make
        self.clock = clock
        self.machine: seam.Machine | None = None
        self.life = 0  # changes with every start and end; happenings of another life are ignored
        self.lives = 0  # starts so far: the incarnation
        self.silent = False  # it went down without telling its neighbours
        self.backlog: list[seam.Input] | None = None  # not None while the peer is stalled
        self.busy_us = 0  # until when it handles messages that have come, if peers have a rate
        self.holds: dict[PeerId, Node] = {}  # dicts as ordered sets
        self.held_by: dict[PeerId, Node] = {}
        self.losing: dict[PeerId, None] = {}  # peers whose loss is about to be told
        self.store = store  # outlives the peer's lives, as a disk does
        self.storing: dict[int, seam.Store] = {}  # on their way to the disk, lost in a crash

    def begin(self) -> None:
        """The peer comes up."""
        self.life += 1
        self.lives += 1
        self.machine = self.make()
        self.silent = False
        self.busy_us = 0

    def end(self, silent: bool) -> list[Node]:
        """The peer is gone; `silent`: its neighbours are not told. Returns the peers that it was
        connected to."""
        self.machine = None
        self.life += 1
        self.backlog = None
        self.silent = silent
        self.losing.clear()
        self.storing.clear()
        return list({**self.held_by, **self.holds}.values())

    def stall(self) -> None:
        """From now on facts for the peer wait."""
        if self.machine is not None and self.backlog is None:
            self.backlog = []

    def postpone(self, fact: seam.Input) -> None:
        """A fact reaches a stalled peer."""
        assert self.backlog is not None
        self.backlog.append(fact)

    def unstall(self) -> list[seam.Input]:
        """End the stall; returns the facts that have waited."""
        waited, self.backlog = self.backlog, None
        return waited or []

    def handles_at(self, now_ms: int, message_us: int) -> int:
        """When a message that comes now is handled, if each takes so long."""
        self.busy_us = max(self.busy_us, now_ms * 1_000) + message_us
        return self.busy_us // 1_000

    # --- connections --------------------------------------------------------------------------

    def hold(self, other: Node) -> None:
        self.holds[other.contact.peer] = other
        other.held_by[self.contact.peer] = self

    def release(self, peer: PeerId) -> None:
        other = self.holds.pop(peer, None)
        if other is not None:
            other.held_by.pop(self.contact.peer, None)

    def begins_to_lose(self, peer: PeerId) -> bool:
        """Note that the loss of a peer will be told; False if this peer is down or that is noted
        already."""
        if self.machine is None or peer in self.losing:
            return False
        self.losing[peer] = None
        return True

    def lose(self, peer: PeerId) -> None:
        """The loss of a peer is told now."""
        self.losing.pop(peer, None)
        self.release(peer)

    # --- its disk -----------------------------------------------------------------------------

    def use_disk(self, wish: seam.Store | seam.Prune, at_ms: int) -> seam.Stored | seam.Pruned:
        """A write is on its way to the disk, or old events leave it; returns what the peer is told
        when that is done."""
        assert self.store is not None
        if isinstance(wish, seam.Prune):
            return seam.Pruned(wish.topic, self.store.prune(wish.topic, wish.retention, at_ms))
        self.storing[wish.token] = wish
        return seam.Stored(wish.token)

    def commit(self, token: int, at_ms: int) -> None:
        """The write with this token has reached the disk."""
        assert self.store is not None
        wish = self.storing.pop(token)
        batch = Batch(at_ms, wish.events, wish.topics, wish.records, wish.lost, wish.beginnings)
        self.store.commit([batch])


# --- identity ---------------------------------------------------------------------------------

_INDEX_BYTES = 8


def keyed(seed: int, index: int) -> tuple[Contact, Signer]:
    """The identity of the world's peer number `index`, drawn from the seed: a key pair, and an
    address that is well formed and never used."""
    key = (seed & (1 << 64) - 1).to_bytes(8, "big")
    secret = blake2b(index.to_bytes(_INDEX_BYTES, "big"), digest_size=32, key=key).digest()
    public, private = key_pair(secret)
    address = make_address(f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}", 1)

    def sign(data: bytes) -> bytes:
        return sign_with(data, private)

    return Contact(public, address), sign
