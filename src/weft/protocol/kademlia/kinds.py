"""Which values may stand under which keys, by kind: a key's first byte.

A kind says whether a value is valid for its key and which of two valid ones stands. Whoever holds
values and whoever asks for them checks both: nobody in between is trusted. Values of unknown kinds
are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from weft.protocol.seam import Millis
from weft.rules import prefix, record, values


def _never_newer(new: bytes, old: bytes) -> bool:
    return False


@dataclass(frozen=True)
class Kind:
    """`valid` is asked with key, value and the wall clock in milliseconds."""

    valid: Callable[[bytes, bytes, Millis], bool]
    newer: Callable[[bytes, bytes], bool] = _never_newer  # of two valid ones: does the first win?
    single: bool = False  # only one value can be valid, so the first one found will do


Kinds = Mapping[int, Kind]


def _is_block(key: bytes, value: bytes, wall_ms: Millis) -> bool:
    return prefix.block_key(value) == key


def _is_record(key: bytes, value: bytes, wall_ms: Millis) -> bool:
    return values.validate_record(key, value, wall_ms) is None


def _is_later_record(new: bytes, old: bytes) -> bool:
    return record.choose((old, new)) == 1


BLOCK = Kind(valid=_is_block, single=True)
"""Any bytes that hash to their key; what they mean is up to whoever asked for them."""
TOPIC_RECORD = Kind(valid=_is_record, newer=_is_later_record)
KINDS: dict[int, Kind] = {prefix.BLOCK: BLOCK, prefix.TOPIC_RECORD: TOPIC_RECORD}
"""The kinds every peer knows."""


def kind_of(kinds: Kinds, key: bytes) -> Kind | None:
    return kinds.get(key[0]) if key else None
