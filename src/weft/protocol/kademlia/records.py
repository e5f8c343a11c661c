"""What a peer holds for others: values, and who provides what (Kademlia, Sections 2.3 and 2.5).

Values live for a time that whoever stores them names, at most a day. Their holders republish them
every hour, so that the k closest peers hold them however peers come and go; who has just been
given a value again puts that off, so one holder does it for all. A value is republished with what
is left of its life: it ends unless somebody who cares stores it again.

Provider records name their sender only, and are renewed by the provider.

Bounds: number, bytes, per sender. When values are full, one that lies farther from this peer than
the new one makes room: the closer a value, the more this peer is meant to hold it.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from heapq import heapify, heappop, heappush
from typing import Literal, TypeAlias

from weft.ids import Contact, PeerId
from weft.protocol.context import Context
from weft.protocol.kademlia.kinds import Kinds, kind_of
from weft.protocol.seam import Millis
from weft.rules.draw import below, stream_of
from weft.rules.prefix import location_of

_JITTER = stream_of("dht.republish")
_CROWDED = stream_of("dht.providers")

Verdict: TypeAlias = Literal["stored", "held", "older", "invalid", "oversized", "full"]


class _Held:
    __slots__ = ("distance", "due_ms", "ends_ms", "sender", "value")

    def __init__(self, value: bytes, sender: PeerId, distance: int) -> None:
        self.value = value
        self.sender = sender  # on whose behalf it came in
        self.distance = distance
        self.ends_ms: Millis = 0
        self.due_ms: Millis = 0  # to be republished


class Values:
    """Values held for others (and own ones, where this peer is among the closest)."""

    def __init__(self, ctx: Context, own: int, kinds: Kinds) -> None:
        self._ctx = ctx
        self._own = own
        self._kinds = kinds
        self._held: dict[bytes, _Held] = {}
        self._by_sender: dict[PeerId, int] = defaultdict(int)
        self._far: list[tuple[int, bytes]] = []  # a heap, farthest first; some are gone already
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: bytes) -> bytes | None:
        held = self._held.get(key)
        return held.value if held is not None and held.ends_ms > self._ctx.now else None

    def life_ms(self, key: bytes) -> Millis:
        """What is left of a value's life."""
        held = self._held.get(key)
        return max(0, held.ends_ms - self._ctx.now) if held is not None else 0

    # --- taking values in -------------------------------------------------------------------------

    def store(self, sender: PeerId, key: bytes, value: bytes, life_ms: Millis) -> Verdict:
        verdict = self._store(sender, key, value, life_ms)
        self._ctx.counters[f"dht_store_{verdict}"] += 1
        return verdict

    def _store(self, sender: PeerId, key: bytes, value: bytes, life_ms: Millis) -> Verdict:
        settings = self._ctx.config.dht
        kind = kind_of(self._kinds, key)
        if kind is None:
            return "invalid"
        if len(value) > settings.value_bytes_max:
            return "oversized"
        held = self._held.get(key)
        if held is not None and held.value == value:
            self._renew(held, life_ms)
            return "held"
        if not life_ms or not kind.valid(key, value, self._ctx.wall_ms):
            return "invalid"
        if held is not None:
            if not kind.newer(value, held.value) and kind.valid(key, held.value, self._ctx.wall_ms):
                return "older"
            self._remove(key)
        distance = location_of(key) ^ self._own
        if not self._make_room(sender, len(value), distance):
            return "full"
        self._renew(self._insert(sender, key, value, distance), life_ms)
        return "stored"

    def _renew(self, held: _Held, life_ms: Millis) -> None:
        ctx, settings = self._ctx, self._ctx.config.dht
        ends_ms = ctx.now + min(life_ms, settings.value_life_ms)
        held.ends_ms = max(held.ends_ms, ends_ms)
        # Between three and five quarters of the interval: somebody is first, and the rest wait.
        quarter = max(1, settings.republish_ms // 4)
        held.due_ms = ctx.now + 3 * quarter + below(ctx.bits(_JITTER), 2 * quarter)

    def _make_room(self, sender: PeerId, size: int, distance: int) -> bool:
        settings = self._ctx.config.dht
        own = sender == self._ctx.me.peer
        crowded = self._by_sender.get(sender, 0) >= settings.values_per_sender_max
        if (crowded and not own) or size > settings.values_bytes_max:
            return False
        while (
            len(self._held) >= settings.values_max or self.bytes + size > settings.values_bytes_max
        ):
            while self._far[0][1] not in self._held:
                heappop(self._far)
            farthest = self._far[0][1]
            if self._held[farthest].distance <= distance:
                return False
            self._remove(farthest)
            self._ctx.counters["dht_values_evicted"] += 1
        return True

    def _insert(self, sender: PeerId, key: bytes, value: bytes, distance: int) -> _Held:
        held = self._held[key] = _Held(value, sender, distance)
        self._by_sender[sender] += 1
        self.bytes += len(value)
        heappush(self._far, (-distance, key))
        if len(self._far) > 2 * len(self._held) + 16:
            self._far = [(-held.distance, key) for key, held in self._held.items()]
            heapify(self._far)
        return held

    def _remove(self, key: bytes) -> None:
        held = self._held.pop(key)
        self.bytes -= len(held.value)
        self._by_sender[held.sender] -= 1
        if not self._by_sender[held.sender]:
            del self._by_sender[held.sender]

    # --- looking after them -----------------------------------------------------------------------

    def expire(self) -> None:
        now = self._ctx.now
        for key in [key for key, held in self._held.items() if held.ends_ms <= now]:
            self._remove(key)

    def take_due(self, most: int) -> list[bytes]:
        """Keys to be republished now, the longest due first; each is put off by that."""
        now = self._ctx.now
        due = [(held.due_ms, key) for key, held in self._held.items() if held.due_ms <= now]
        taken = [key for _, key in sorted(due)[:most]]
        for key in taken:
            self._held[key].due_ms = now + self._ctx.config.dht.republish_ms
        return taken


class _Provider:
    __slots__ = ("contact", "ends_ms")

    def __init__(self, contact: Contact, ends_ms: Millis) -> None:
        self.contact = contact
        self.ends_ms = ends_ms


class Providers:
    """Who said to have what. Every record lives equally long, so the oldest ends first."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._by_key: dict[bytes, dict[PeerId, _Provider]] = {}
        # The one renewed longest ago comes first.
        self._order: OrderedDict[tuple[bytes, PeerId], None] = OrderedDict()
        self._by_sender: dict[PeerId, int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self._order)

    def get(self, key: bytes) -> list[Contact]:
        now = self._ctx.now
        known = self._by_key.get(key, {}).values()
        return [provider.contact for provider in known if provider.ends_ms > now]

    def add(self, sender: Contact, key: bytes) -> bool:
        settings = self._ctx.config.dht
        if not key or not sender.address:
            return False
        self.expire()
        if sender.peer in self._by_key.get(key, {}):
            self._remove(key, sender.peer)
        elif self._by_sender.get(sender.peer, 0) >= settings.providers_per_sender_max:
            return False
        elif len(self._by_key.get(key, {})) >= settings.providers_per_key_max:
            # Neither those who came first nor those who came last can keep all others out.
            self._remove(key, self._ctx.pick(_CROWDED, list(self._by_key[key])))
        elif len(self._order) >= settings.providers_max:
            self._remove(*next(iter(self._order)))
        ends_ms = self._ctx.now + settings.provider_life_ms
        self._by_key.setdefault(key, {})[sender.peer] = _Provider(sender, ends_ms)
        self._order[key, sender.peer] = None
        self._by_sender[sender.peer] += 1
        return True

    def _remove(self, key: bytes, peer: PeerId) -> None:
        providers = self._by_key[key]
        del providers[peer]
        if not providers:
            del self._by_key[key]
        del self._order[key, peer]
        self._by_sender[peer] -= 1
        if not self._by_sender[peer]:
            del self._by_sender[peer]

    def expire(self) -> None:
        now = self._ctx.now
        while self._order:
            key, peer = next(iter(self._order))
            if self._by_key[key][peer].ends_ms > now:
                return
            self._remove(key, peer)
