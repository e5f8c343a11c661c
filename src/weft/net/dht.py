"""The DHT of a running peer, for applications: `peer.dht`.

    key = await peer.dht.put_block(b"some bytes")
    assert await other.dht.get(key) == b"some bytes"

A key's first byte is its kind, which says which values it may have (`weft.rules.prefix`,
`weft.protocol.kademlia.records`): a value that is not valid for its key is refused here and by
all other peers. Switched on by the setting `protocol.dht.enabled`.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ids import PEER_ID_BYTES, Contact, PeerId, parse_peer
from weft.net.arguments import bytes_in, number_in
from weft.net.errors import ClosedError, DhtError, UsageError, usable
from weft.net.runtime import Runtime
from weft.protocol import seam
from weft.rules import prefix


class Dht:
    """Operations on the DHT; each is one or more round trips to peers close to the key."""

    def __init__(self, runtime: Runtime, enabled: bool) -> None:
        self._runtime = runtime
        self._enabled = enabled

    async def put(self, key: bytes, value: bytes, life_ms: int = 0) -> int:
        """Have the closest peers hold a value; returns how many do. `life_ms` 0: a day."""
        key, value = bytes_in("key", key), bytes_in("value", value)
        number_in("life_ms", life_ms)
        answer = await self._ask(lambda token: seam.DhtPut(token, key, value, life_ms))
        if answer.outcome == "refused":
            raise UsageError("the value is not valid for this key, or too large")
        return answer.count

    async def put_block(self, block: bytes) -> bytes:
        """Store immutable bytes under their own hash; returns the key."""
        block = bytes_in("block", block)
        key = prefix.block_key(block)
        if not await self.put(key, block):
            raise DhtError("no peer took the block")
        return key

    async def get(self, key: bytes, quorum: int = 0) -> bytes | None:
        """The value under a key, or None. Of a value that may change, the newest among the answers
        of `quorum` peers."""
        key = bytes_in("key", key)
        number_in("quorum", quorum)
        answer = await self._ask(lambda token: seam.DhtGet(token, key, quorum))
        if answer.outcome == "refused":
            raise UsageError("no values are known under keys of this kind: see the first byte")
        return answer.value

    async def provide(self, key: bytes) -> int:
        """Tell the closest peers, now and from time to time, that this one has `key`."""
        key = bytes_in("key", key)
        answer = await self._ask(lambda token: seam.DhtProvide(token, key))
        if answer.outcome == "refused":
            raise UsageError("the key cannot be used, or this peer provides too many")
        return answer.count

    async def stop_providing(self, key: bytes) -> None:
        """Stop telling that this peer has `key`; what was told before expires by itself."""
        key = bytes_in("key", key)
        await self._ask(lambda token: seam.DhtProvide(token, key, True))

    async def find_providers(self, key: bytes, wanted: int = 3) -> list[Contact]:
        """Peers that say they have `key`; a peer that more holders name comes earlier."""
        key = bytes_in("key", key)
        number_in("wanted", wanted, 1)
        answer = await self._ask(lambda token: seam.DhtFindProviders(token, key, wanted))
        return list(answer.contacts)

    async def find_peer(self, peer: str | PeerId) -> Contact | None:
        """Where a peer listens, or None."""
        wanted = _peer(peer)
        return (await self._ask(lambda token: seam.DhtFindPeer(token, wanted))).contact

    async def find_peer_local(self, peer: str | PeerId) -> Contact | None:
        """As `find_peer`, but only among the peers that this one knows; no other peer is asked."""
        wanted = _peer(peer)
        return (await self._ask(lambda token: seam.DhtFindPeer(token, wanted, True))).contact

    async def closest_peers(self, key: bytes) -> list[Contact]:
        """The k peers closest to a key, closest first; this one too where it belongs."""
        location = prefix.as_bytes(prefix.location_of(bytes_in("key", key)))
        answer = await self._ask(lambda token: seam.DhtClosest(token, location))
        return list(answer.contacts)

    async def _ask(self, make: Callable[[int], seam.DhtCommand]) -> seam.Answer:
        if not self._enabled:
            raise UsageError("the DHT is off: set protocol.dht.enabled = true")
        answer = await self._runtime.ask(make)
        if answer.outcome == "failed" and answer.reason:
            raise DhtError(answer.reason)
        if answer.outcome == "dropped":
            if self._runtime.closed:
                raise ClosedError("this peer is closed")
            raise DhtError("too many DHT operations at once (protocol.dht.waiting_max)")
        return answer


def _peer(peer: str | PeerId) -> PeerId:
    if not isinstance(peer, bytes):
        return usable(parse_peer, peer)
    if len(peer) != PEER_ID_BYTES:
        raise UsageError(f"a peer's key has {PEER_ID_BYTES} bytes, not {len(peer)}")
    return PeerId(peer)
