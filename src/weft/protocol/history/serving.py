"""Answering others: blocks by their CID, and pages of a stream in its order.

Whatever is stored may be asked for; answers are bounded in blocks and bytes, and so is the search
for what an asker lacks beside its heads. What was released but is still on its way to the store is
answered from memory. No peer is served faster than its share (`pacing.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from weft.documents.dag import Position, position
from weft.documents.descriptor import Event
from weft.ids import Cid, Contact
from weft.protocol.context import Context
from weft.protocol.history.pacing import Pacing
from weft.protocol.messages_history import (
    BLOCKS_MAX,
    BlocksReply,
    BlocksRequest,
    Head,
    PageReply,
    PageRequest,
)
from weft.store.interface import NotHeld, Store
from weft.store.reader import Reader, Since

_BESIDE_MAX = 4_096
"""guess: how far down the order is searched for what an asker lacks beside its heads; what is not
found shows as gaps. Some 30 ms: nobody can make this peer read its whole store."""

Block = Callable[[Cid], bytes | None]


class Serving:
    """What one peer answers about history."""

    def __init__(self, ctx: Context, library: Store, unstored: Block) -> None:
        """`unstored` has what is not stored yet."""
        self._ctx = ctx
        self._library = library
        self._unstored = unstored
        self.pacing = Pacing(ctx)

    def block(self, cid: Cid) -> bytes | None:
        waiting = self._unstored(cid)
        return waiting if waiting is not None else self._library.get(cid)

    def on_blocks_request(self, sender: Contact, message: BlocksRequest) -> None:
        self.pacing.serve(sender, message.topic, lambda: self._answer_blocks(sender, message))

    def on_page_request(self, sender: Contact, message: PageRequest) -> None:
        self.pacing.serve(sender, message.topic, lambda: self._answer_page(sender, message))

    def _answer_blocks(self, sender: Contact, message: BlocksRequest) -> int:
        blocks: list[bytes] = []
        lacking: list[Cid] = []
        size = 0
        for cid in dict.fromkeys(message.cids):
            block = self.block(cid)
            if block is None:
                lacking.append(cid)
            elif not blocks or size + len(block) <= self._ctx.config.history.page_bytes_max:
                blocks.append(block)
                size += len(block)
        self._ctx.counters["history_blocks_served"] += len(blocks)
        reply = BlocksReply(message.topic, message.request, blocks, lacking)
        self._ctx.send(sender, reply)
        return size

    def _answer_page(self, sender: Contact, message: PageRequest) -> int:
        try:
            events, pruned, end = self._read(message)
        except NotHeld:
            self._ctx.send(sender, PageReply(message.topic, message.request, [], held=False))
            return 0
        fitting = self._fitting(events)
        more = len(fitting) < len(events) or len(events) == BLOCKS_MAX
        if len(fitting) < len(events):
            end = position(fitting[-1])
        self._ctx.counters["history_blocks_served"] += len(fitting)
        reply = PageReply(
            message.topic,
            message.request,
            [event.block for event in fitting],
            Head(end.cid, end.height) if more else None,
            pruned,
        )
        self._ctx.send(sender, reply)
        return sum(map(len, reply.blocks))

    def _read(self, message: PageRequest) -> tuple[list[Event], bool, Position]:
        """Events, whether older ones are gone, and the position up to which was read. What does
        not fit of the events beside the asker's heads shows as gaps, and is asked for."""
        if message.after is not None:
            after = Position(message.after.height, message.after.cid)
            since_ms = message.since_ms or 0
            events = self._library.events(message.topic, after, since_ms, BLOCKS_MAX)
            return events, False, position(events[-1]) if events else after
        since: Since = "beginning"
        if message.since_event is not None:
            since = message.since_event
        elif message.since_ms is not None:
            since = message.since_ms
        elif message.heads:
            since = tuple(message.heads)
        reader = Reader(self._library, message.topic, since, _BESIDE_MAX)
        events = reader.read(BLOCKS_MAX)
        return events, reader.pruned, reader.after

    def _fitting(self, events: list[Event]) -> list[Event]:
        """As many as one message may hold, at least one."""
        size = 0
        for count, event in enumerate(events):
            size += len(event.block)
            if count and (size > self._ctx.config.history.page_bytes_max or count >= BLOCKS_MAX):
                return events[:count]
        return events
