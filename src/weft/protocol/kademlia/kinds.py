"""Which values may stand under which keys, by kind: a key's first byte (`documents/record.py`).

A kind says whether a value is valid for its key and which of two valid ones stands. Whoever holds
values and whoever asks for them checks both: nobody in between is trusted. Values of unknown kinds
are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from weft.documents import record
from weft.protocol.seam import Millis
from weft.rules import prefix


def _never_newer(new: bytes, old: bytes) -> bool:
    return False


@dataclass(frozen=True)
class Kind:
    """`valid` is asked with key, value and the wall clock in milliseconds."""

    valid: Callable[[bytes, bytes, Millis], bool]
    newer: Callable[[bytes, bytes], bool] = _never_newer  # of two valid ones: does the first win?
    single: bool = False  # only one value can be valid, so the first one found will do


Kinds = Mapping[int, Kind]


def _by(rule: record.Kind, single: bool = False) -> Kind:
    return Kind(
        valid=lambda key, value, wall_ms: rule.validate(key, value, wall_ms) is None,
        newer=lambda new, old: rule.choose((old, new)) == 1,
        single=single,
    )


BLOCK = _by(record.KINDS[prefix.BLOCK], single=True)
TOPIC_RECORD = _by(record.KINDS[prefix.TOPIC_RECORD])
KINDS: dict[int, Kind] = {prefix.BLOCK: BLOCK, prefix.TOPIC_RECORD: TOPIC_RECORD}
"""The kinds every peer knows."""


def kind_of(kinds: Kinds, key: bytes) -> Kind | None:
    return kinds.get(key[0]) if key else None
