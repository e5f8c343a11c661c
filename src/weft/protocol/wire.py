"""What all messages are made of."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

Counter: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""A 63-bit number: ids, counters, milliseconds."""


class Message(Struct, frozen=True, array_like=True, gc=False):
    """Base of all messages."""
