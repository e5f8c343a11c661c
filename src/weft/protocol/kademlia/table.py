"""Locations and their neighbours: k-buckets by last seen (Kademlia, Sections 2.2 and 2.4).

A *space* says how wide locations are and where a peer lies in a role. The plain space has one role,
the empty one, and a peer lies at the hash of its id. The generalised DHT (Baehni and others,
Section 4.1) is another space with the topic as role. A *place* is one location of this peer in one
space, with a table of its own; tables and lookups know nothing else of spaces and roles.

Bucket i of a table holds peers that share exactly i leading bits with its location, at most k of
them, the least recently seen first. Peers that are alive stay: the longer a peer has been up,
the likelier it stays up, and no peer can push the known ones out by coming with many new ones. A
newcomer to a full bucket waits among the spare; the least recently seen peer is probed, and makes
room only if it does not answer several times.

A table holds no clock and sends nothing; `heard` names the peer to be probed.

A bucket holds a few peers of one address (`Crowds` in `protocol/defence.py`), waiting ones
included: ids cost nothing, and most of a bucket could be one machine's.

Invariants: no entry with the table's own location, none twice, at most k live and `spare` waiting
ones in a bucket, live ones ordered by when they were last seen.

Deviation: an entry seen a short while ago is not probed for a newcomer, so that a flood of
strangers causes no flood of probes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from msgspec import Struct

from weft.bounded import BoundedDict
from weft.ids import GENERAL, Contact, PeerId, Topic
from weft.protocol.seam import Millis
from weft.rules import prefix
from weft.rules.prefix import common_prefix

_REMEMBERED = 4_096
"""guess: peers are named again and again; hashing them all costs a tenth of a lookup."""

Locate = Callable[[Topic, PeerId], int | None]
"""The location of a peer in a role; None for a role that does not exist in the space."""
Takes = Callable[[Contact, Iterable[Contact]], bool]
"""Whether a bucket that holds the other contacts may hold the first one, too."""


class Space(Struct, frozen=True):
    """How wide locations are, and where a peer lies in a role; `number` names it on the wire."""

    number: int
    bits: int
    locate: Locate

    def target(self, data: bytes) -> int | None:
        """A target from the wire, or None if it is none of this space."""
        return int.from_bytes(data, "big") if len(data) * 8 == self.bits else None


@lru_cache(_REMEMBERED)
def _locate_plain(role: Topic, peer: PeerId) -> int | None:
    return prefix.location_of(peer) if role == GENERAL else None


PLAIN = Space(0, prefix.BITS, _locate_plain)
"""Where records, providers and peers are found."""


class Entry(Struct, eq=False):
    """One peer at one location."""

    key: int  # the location
    role: Topic
    contact: Contact
    seen_ms: Millis = 0
    failures: int = 0  # requests unanswered since it was last heard from


class _Bucket:
    __slots__ = ("live", "probed", "spare", "touched_ms")

    def __init__(self, now: Millis, spare: int) -> None:
        self.live: dict[int, Entry] = {}  # least recently seen first
        self.spare: BoundedDict[int, Entry] = BoundedDict(spare)  # latest last
        self.probed: int | None = None  # the location being probed for a newcomer
        self.touched_ms = now  # when a lookup last went into its range

    def others(self, key: int) -> Iterator[Contact]:
        """All peers that are in it or wait, but for the one at `key`."""
        for part in (self.live, self.spare):
            yield from (entry.contact for entry in part.values() if entry.key != key)


class Table:
    """The neighbours of one location, given by its number."""

    __slots__ = ("_buckets", "_failures_max", "_fresh_ms", "_k", "_spare", "_takes", "bits", "own")

    def __init__(
        self,
        own: int,
        bits: int,
        *,
        k: int,
        spare: int,
        failures_max: int,
        fresh_ms: Millis,
        takes: Takes,
    ) -> None:
        """The limits are those of the DHT's settings (`rooms.KademliaSettings`)."""
        self.own = own
        self.bits = bits
        self._k = k
        self._spare = spare
        self._failures_max = failures_max
        self._fresh_ms = fresh_ms
        self._takes = takes
        self._buckets: dict[int, _Bucket] = {}

    def __len__(self) -> int:
        return sum(len(bucket.live) for bucket in self._buckets.values())

    def __iter__(self) -> Iterator[Entry]:
        for bucket in self._buckets.values():
            yield from bucket.live.values()

    def get(self, key: int) -> Entry | None:
        bucket = self._buckets.get(common_prefix(self.own, key, self.bits))
        return bucket.live.get(key) if bucket is not None else None

    # --- what is heard of peers -------------------------------------------------------------------

    def heard(self, key: int, role: Topic, contact: Contact, now: Millis) -> Entry | None:
        """A peer spoke for itself. Returns an entry to be probed if the peer waits for its
        place."""
        if key == self.own or not contact.address:
            return None
        number = common_prefix(self.own, key, self.bits)
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = _Bucket(now, self._spare)
        entry = bucket.live.pop(key, None)
        waits = bucket.spare.get(key)
        admitted = entry is not None or (waits is not None and waits.contact == contact)
        if not admitted and not self._takes(contact, bucket.others(key)):
            return None
        if entry is None and len(bucket.live) >= self._k:
            return self._wait(bucket, Entry(key, role, contact, now), now)
        if entry is None:
            entry = Entry(key, role, contact)
            bucket.spare.pop(key, None)
        entry.contact = contact  # a peer's address is changed by its own word alone
        entry.seen_ms = now
        entry.failures = 0
        bucket.live[key] = entry
        if bucket.probed == key:
            bucket.probed = None
        return None

    def _wait(self, bucket: _Bucket, newcomer: Entry, now: Millis) -> Entry | None:
        bucket.spare.renew(newcomer.key, newcomer)
        oldest = next(iter(bucket.live.values()))
        if bucket.probed is not None or now - oldest.seen_ms < self._fresh_ms:
            return None
        bucket.probed = oldest.key
        return oldest

    def failed(self, key: int) -> bool:
        """A request was not answered; after several in a row a spare peer takes the place.

        True: the peer is still in the table and was probed for a newcomer, so probe it again.
        """
        bucket = self._buckets.get(common_prefix(self.own, key, self.bits))
        entry = bucket.live.get(key) if bucket is not None else None
        if bucket is None or entry is None:
            if bucket is not None:
                bucket.spare.pop(key, None)
            return False
        entry.failures += 1
        if entry.failures < self._failures_max:
            return bucket.probed == key
        self.remove(key)
        return False

    def remove(self, key: int) -> None:
        """A peer is gone; the spare peer heard from last takes its place."""
        number = common_prefix(self.own, key, self.bits)
        bucket = self._buckets.get(number)
        if bucket is None:
            return
        bucket.spare.pop(key, None)
        if bucket.probed == key:
            bucket.probed = None
        if bucket.live.pop(key, None) is None:
            return
        if bucket.spare:
            _, newcomer = bucket.spare.popitem()
            rest = list(bucket.live.values())
            at = len(rest)
            while at and rest[at - 1].seen_ms > newcomer.seen_ms:
                at -= 1
            rest.insert(at, newcomer)
            bucket.live = {entry.key: entry for entry in rest}
        elif not bucket.live:
            del self._buckets[number]

    # --- which peers are closest ------------------------------------------------------------------

    def closest(self, target: int, count: int, sound: bool = False) -> list[Entry]:
        """The entries closest to a target, closest first; `sound`: only those that answered last.

        With d leading bits shared by the table's location and the target, peers in bucket d share
        more with the target, those in deeper buckets exactly d, and those in bucket i < d exactly
        i. So whole buckets come in this order, and only as many are sorted as are needed.
        """
        depth = common_prefix(self.own, target, self.bits)
        buckets = self._buckets
        deeper = [number for number in buckets if number > depth]
        groups = [[depth], deeper, *([n] for n in sorted(buckets, reverse=True) if n < depth)]
        found: list[Entry] = []
        for group in groups:
            part = [
                entry
                for number in group
                if number in buckets
                for entry in buckets[number].live.values()
                if not (sound and entry.failures)
            ]
            part.sort(key=lambda entry: entry.key ^ target)
            found += part
            if len(found) >= count:
                return found[:count]
        return found

    # --- looking after it -------------------------------------------------------------------------

    def touch(self, target: int, now: Millis) -> None:
        """A lookup went into this range."""
        bucket = self._buckets.get(common_prefix(self.own, target, self.bits))
        if bucket is not None:
            bucket.touched_ms = now

    def deepest(self) -> int:
        """The last bucket that holds a peer, or -1."""
        return max(self._buckets, default=-1)

    def thin(self) -> list[int]:
        """Buckets up to the deepest with room left: no peer lives there, or none was met."""
        return [
            number
            for number in range(self.deepest() + 1)
            if number not in self._buckets or len(self._buckets[number].live) < self._k
        ]

    def untouched(self, since: Millis) -> list[int]:
        """Buckets whose range no lookup went into since then."""
        return sorted(n for n, bucket in self._buckets.items() if bucket.touched_ms < since)


class Place(Struct, frozen=True):
    """One location of this peer: its role in a space, and the neighbours there."""

    space: Space
    role: Topic
    table: Table
    refreshed: bool  # by Kademlia's own timer, and not by the layer that settled it
