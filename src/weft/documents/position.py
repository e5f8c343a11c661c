"""Places in the order of a stream (`dag.py`), for all that only name them: a peer without a store
does not load what keeps streams in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft.ids import Cid

if TYPE_CHECKING:
    from weft.documents.descriptor import SealedEvent


class Position(NamedTuple):
    """A place in the order of a stream."""

    height: int
    cid: Cid


START = Position(0, Cid(b""))
"""Before the first event of any stream."""


def position(event: SealedEvent) -> Position:
    return Position(event.height, event.cid)
