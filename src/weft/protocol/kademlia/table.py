"""The neighbours of one location: k-buckets by last seen (Kademlia, Sections 2.2 and 2.4).

Bucket i holds peers that share exactly i leading bits with the own location, at most k of them,
the least recently seen first. Peers that are alive stay: the longer one has been up, the likelier
it stays up, and nobody can push the known ones out by coming with many new ones. A newcomer to a
full bucket waits among the spare; the least recently seen is probed, and makes room only if it
does not answer several times.

A table is of one *location*, given by its number: a peer with several locations has several
tables. It holds no clock and sends nothing; `heard` says whom to probe.

Invariants: no entry with the own location, none twice, at most k live and `spare` waiting ones in
a bucket, live ones ordered by when they were last seen.

Deviation: an entry seen a short while ago is not probed for a newcomer, so that a flood of
strangers causes no flood of probes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.ids import Contact, Topic
from weft.protocol.context import require
from weft.protocol.seam import Millis
from weft.rules.prefix import common_prefix


@dataclass(frozen=True)
class Config:
    """Kademlia: tables, lookups, records held for others."""

    enabled: bool = False
    k: int = 20  # paper: bucket size, replicas, and how many a lookup finds
    alpha: int = 3  # paper: requests of one lookup at once
    spare: int = 20  # guess: newcomers remembered per full bucket
    failures_max: int = 3  # guess: requests unanswered in a row (5 in Kademlia's Section 4.1)
    fresh_ms: Millis = 60_000  # guess: seen so lately, a peer is not probed
    slow_ms: Millis = 1_000  # guess: then a request no longer counts towards alpha, and is repeated
    timeout_ms: Millis = 4_000  # guess: then it has failed
    requests_max: int = 128  # guess: of one lookup; about 30 are usual
    lookups_max: int = 64  # guess: lookups at once; others wait their turn
    background_max: int = 2  # guess: of these, refreshes and republishes
    waiting_max: int = 4_096  # guess: operations that wait
    refresh_first_ms: Millis = 5_000  # guess: the table is looked after first, doubling up to …
    refresh_ms: Millis = 600_000  # guess: … this, as in libp2p
    bucket_refresh_ms: Millis = 3_600_000  # paper: a range nobody looked into for so long
    quorum: int = 4  # guess: valid answers for a value that may change
    value_life_ms: Millis = 86_400_000  # paper: 24 hours
    republish_ms: Millis = 3_600_000  # paper: holders republish every hour
    values_max: int = 4_096  # guess: held for others
    values_bytes_max: int = 64 << 20  # guess: in total
    values_per_sender_max: int = 1_024  # guess: held on behalf of one peer
    value_bytes_max: int = (1 << 20) + (64 << 10)  # guess: an event of the largest size, described
    provider_life_ms: Millis = 172_800_000  # guess: 48 hours, as libp2p measured
    provide_again_ms: Millis = 79_200_000  # guess: 22 hours, as libp2p measured
    providers_max: int = 16_384  # guess: provider records held for others
    providers_per_key_max: int = 32  # guess
    providers_per_sender_max: int = 2_048  # guess
    provided_max: int = 16_384  # guess: keys this peer provides

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require(name == "enabled" or value >= 1, f"dht.{name} must be at least 1")
        require(self.k <= 64, "dht.k must be at most 64")
        require(self.providers_per_key_max <= 64, "dht.providers_per_key_max must be at most 64")
        require(self.alpha <= self.k, "dht.alpha must be at most dht.k")
        require(self.slow_ms < self.timeout_ms, "dht.slow_ms must be less than dht.timeout_ms")
        require(self.value_bytes_max <= 2 << 20, "dht.value_bytes_max must be at most 2 MiB")


class Entry:
    """One peer at one location."""

    __slots__ = ("contact", "failures", "key", "role", "seen_ms")

    def __init__(self, key: int, role: Topic, contact: Contact, seen_ms: Millis = 0) -> None:
        self.key = key  # the location
        self.role = role
        self.contact = contact
        self.seen_ms = seen_ms
        self.failures = 0  # requests unanswered since it was last heard from


class _Bucket:
    __slots__ = ("live", "probed", "spare", "touched_ms")

    def __init__(self, now: Millis) -> None:
        self.live: dict[int, Entry] = {}  # least recently seen first
        self.spare: dict[int, Entry] = {}  # latest last
        self.probed: int | None = None  # the location being probed for a newcomer
        self.touched_ms = now  # when a lookup last went into its range


class Table:
    """See the module's text."""

    __slots__ = ("_buckets", "_settings", "bits", "own")

    def __init__(self, own: int, bits: int, settings: Config) -> None:
        self.own = own
        self.bits = bits
        self._settings = settings
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
        """A peer spoke for itself. Returns an entry to be probed for its sake, if there is one."""
        if key == self.own or not contact.address:
            return None
        number = common_prefix(self.own, key, self.bits)
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = _Bucket(now)
        entry = bucket.live.pop(key, None)
        if entry is None and len(bucket.live) >= self._settings.k:
            return self._wait(bucket, Entry(key, role, contact, now), now)
        if entry is None:
            entry = Entry(key, role, contact)
            bucket.spare.pop(key, None)
        entry.contact = contact  # where it listens, only itself can tell anew
        entry.seen_ms = now
        entry.failures = 0
        bucket.live[key] = entry
        if bucket.probed == key:
            bucket.probed = None
        return None

    def _wait(self, bucket: _Bucket, newcomer: Entry, now: Millis) -> Entry | None:
        bucket.spare.pop(newcomer.key, None)
        bucket.spare[newcomer.key] = newcomer
        if len(bucket.spare) > self._settings.spare:
            del bucket.spare[next(iter(bucket.spare))]
        oldest = next(iter(bucket.live.values()))
        if bucket.probed is not None or now - oldest.seen_ms < self._settings.fresh_ms:
            return None
        bucket.probed = oldest.key
        return oldest

    def failed(self, key: int) -> bool:
        """A request was not answered. Several in a row, and a spare one takes the place.

        True: it is still in the table and was probed for a newcomer, so it is probed again.
        """
        bucket = self._buckets.get(common_prefix(self.own, key, self.bits))
        entry = bucket.live.get(key) if bucket is not None else None
        if bucket is None or entry is None:
            if bucket is not None:
                bucket.spare.pop(key, None)
            return False
        entry.failures += 1
        if entry.failures < self._settings.failures_max:
            return bucket.probed == key
        self.remove(key)
        return False

    def remove(self, key: int) -> None:
        """It is gone; the spare peer heard of last takes its place."""
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

    # --- who is closest ---------------------------------------------------------------------------

    def closest(self, target: int, count: int, sound: bool = False) -> list[Entry]:
        """The entries closest to a target, closest first; `sound`: only those that answered last.

        With d leading bits shared by the own location and the target, the peers in bucket d share
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
        """The last bucket that holds anybody, or -1."""
        return max(self._buckets, default=-1)

    def thin(self) -> list[int]:
        """Buckets up to the deepest with room left: nobody may live there, or nobody was met."""
        k = self._settings.k
        return [
            number
            for number in range(self.deepest() + 1)
            if number not in self._buckets or len(self._buckets[number].live) < k
        ]

    def untouched(self, since: Millis) -> list[int]:
        """Buckets whose range no lookup went into since then."""
        return sorted(n for n, bucket in self._buckets.items() if bucket.touched_ms < since)
