"""Blocks on the wire: how peers ask each other for them, and for word of a run.

Confirmation of a publish (`protocol/confirmation.py`) travels in these messages also at peers that
keep no history, so they stand apart from what fetches (`fetch.py`).
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from weft.documents.dagcbor import BLOCK_BYTES_MAX
from weft.ids import WireCid, WireTopic
from weft.protocol.wire import Counter, Message, Span, WireReason

BLOCKS_MAX = 256
"""guess: blocks asked for or sent in one message."""

Block: TypeAlias = Annotated[bytes, Meta(max_length=BLOCK_BYTES_MAX)]
Cids: TypeAlias = Annotated[list[WireCid], Meta(max_length=BLOCKS_MAX)]
Blocks: TypeAlias = Annotated[list[Block], Meta(max_length=BLOCKS_MAX)]
"""Blocks travel as they are: the receiver of one checks that it is what it says."""


NO_WORD, TAKEN, STORED, REFUSED = range(4)
"""What a peer says of a run that its publisher asks about: nothing, so far; that it has it; that it
has it on disk; that it does not take it."""


class BlocksRequest(Message, frozen=True, tag=61):
    """Asks for blocks; or, with `about`, a publisher asks whether the receiver has one of its runs,
    of which these are the blocks (`protocol/confirmation.py`)."""

    topic: WireTopic
    request: Counter
    cids: Cids
    about: Span | None = None  # the run; then no blocks are sent


class BlocksReply(Message, frozen=True, tag=62):
    """Answers `BlocksRequest`; with request 0 it tells a publisher, unasked, of a refusal."""

    topic: WireTopic
    request: Counter
    blocks: Blocks
    lacking: Cids = []  # the sender does not have these (any more)
    word: Annotated[int, Meta(ge=NO_WORD, le=REFUSED)] = NO_WORD  # on the run that was asked about
    reason: WireReason = ""  # why it is refused
    given_up: Cids = []  # of those that it lacks: it has looked for them in vain, for long
