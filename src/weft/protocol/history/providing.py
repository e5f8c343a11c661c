"""Who has an event, said in the DHT and asked of it (paper 004, Section 4.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.documents.descriptor import Event
from weft.ids import Cid, Contact
from weft.protocol.context import Context
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.seam import DhtFindProviders, DhtProvide
from weft.rules.draw import chance, stream_of
from weft.rules.prefix import BLOCK, DIGEST_BYTES

_PROVIDE = stream_of("history.provide")
_PARTS = 1_000_000
PROVIDERS_WANTED = 20
"""measured: with 3, one in seven events that live peers provide was not found after half of the
peers had crashed, for the first three named may all be gone (`pulsar-persist`). A reply names 32 at
most."""


class Providing:
    """One peer's part in it; without a DHT there is none."""

    def __init__(self, ctx: Context, dht: Kademlia | None) -> None:
        self._ctx = ctx
        self._dht = dht

    def perhaps(self, event: Event) -> None:
        """Each peer on the way provides the event with probability p."""
        share = round(self._ctx.config.history.provide_probability * _PARTS)
        if self._dht is not None and share and chance(self._ctx.bits(_PROVIDE), share, _PARTS):
            self._provide(event)

    def own(self, event: Event) -> None:
        """The paper's publisher puts an event before it spreads it; so does ours where events
        spread by its trees. Elsewhere it provides like any other peer.

        Deviation: the block stays in the publisher's store, durable before anybody hears of it, and
        the DHT is told who has it; spreading does not wait until the DHT has answered.
        """
        if self._ctx.config.routing == "pulsarcast":
            self._provide(event)
        else:
            self.perhaps(event)

    def _provide(self, event: Event) -> None:
        if self._dht is not None:
            self._ctx.counters["history_provided"] += 1
            token = self._ctx.quietly(lambda answer: None)
            self._dht.operations.provide(DhtProvide(token, block_key_of(event.cid)))

    def find(self, cid: Cid, then: Callable[[Sequence[Contact]], None]) -> bool:
        """Ask the DHT who has a block; False where there is no DHT."""
        if self._dht is None:
            return False
        token = self._ctx.quietly(lambda answer: then(answer.contacts))
        command = DhtFindProviders(token, block_key_of(cid), PROVIDERS_WANTED)
        self._dht.operations.find_providers(command)
        return True


def block_key_of(cid: Cid) -> bytes:
    """The DHT's key of a block."""
    return bytes((BLOCK,)) + cid[-DIGEST_BYTES:]
