"""Events verified a second on one core: CID, the one canonical encoding, shape, signature.

CPU time, best of several turns. For comparison: the bare signature check of the library that is
used and of the other one, over messages of the same length.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.history.events import some
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from weft.documents.descriptor import open_event
from weft.documents.signature import verified

TURNS = 5


def per_second(count: int, turn: Callable[[], None]) -> float:
    """The best of several turns, by CPU time."""
    best = float("inf")
    for _ in range(TURNS):
        started = time.process_time()
        turn()
        best = min(best, time.process_time() - started)
    return count / best


def measure(quick: bool) -> dict[str, Any]:
    events = some(500 if quick else 5_000)
    # What was signed: the purpose, and the document without its last field.
    signed = [(e.publisher, e.block[-64:], b"weft event:\xa6" + e.block[1:-76]) for e in events]
    keys = {e.publisher: Ed25519PublicKey.from_public_bytes(e.publisher) for e in events}

    def whole() -> None:
        for event in events:
            open_event(event.block, event.cid)

    def libsodium() -> None:
        if not all(verified(*each) for each in signed):
            raise RuntimeError("a true signature was refused")

    def openssl() -> None:
        for key, signature, data in signed:
            keys[key].verify(signature, data)

    return {
        "verify_per_s": per_second(len(events), whole),
        "events": len(events),
        "block_bytes": sum(len(e.block) for e in events) / len(events),
        "reference": {
            "signatures_per_s_libsodium": per_second(len(events), libsodium),
            "signatures_per_s_openssl": per_second(len(events), openssl),
        },
    }
