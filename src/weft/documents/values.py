"""What may stand in a DHT under which key, by the key's kind (its first byte, `rules/prefix.py`).

Two questions, asked by whoever holds values and by whoever looks them up: may this value stand
under this key now (None, or the reason why not), and which of several valid ones stands. Blocks
are named by their hash, so all valid ones are equal; of records the latest stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.documents import descriptor, record
from weft.documents.refusal import Reason, Refused
from weft.rules import prefix


@dataclass(frozen=True)
class Kind:
    """The two answers for one kind of key."""

    validate: Callable[[bytes, bytes, int], Reason | None]  # key, value, wall clock in ms
    choose: Callable[[Sequence[bytes]], int]  # the index of the one that stands


def validate_block(key: bytes, value: bytes, now_ms: int) -> Reason | None:
    """Under a block's key: whatever hashes to it. What it means, and whether it is truly signed, is
    checked by whoever asked for it; a holder that checked it as well would pay a signature's time
    for each block and keep nobody from storing."""
    if len(value) > descriptor.BLOCK_BYTES_MAX:
        return Reason.TOO_LARGE
    return None if prefix.block_key(value) == key else Reason.BAD_CID


def validate_record(key: bytes, value: bytes, now_ms: int) -> Reason | None:
    """Under a topic record's key: a record of that name that is signed and not expired."""
    try:
        record.open_record(value, key[1:], now_ms)
    except Refused as refused:
        return refused.reason
    return None


def choose_block(values: Sequence[bytes]) -> int:
    return 0


KINDS: dict[int, Kind] = {
    prefix.BLOCK: Kind(validate_block, choose_block),
    prefix.TOPIC_RECORD: Kind(validate_record, record.choose),
}


def validate(key: bytes, value: bytes, now_ms: int) -> Reason | None:
    """Whether a value may stand under a key of any kind."""
    kind = KINDS.get(key[0]) if key else None
    return Reason.UNKNOWN_KIND if kind is None else kind.validate(key, value, now_ms)
