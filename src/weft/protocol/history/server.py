"""Answering other peers about history: blocks by their CID, and pages of a stream in its order
(paper 004, Section 4.5).

A peer answers from its store; everything that is stored may be asked for. An event that was
released but is still on its way to the store is answered from memory. An answer is bounded in
blocks and bytes, and so is the search for events that the asker lacks beside its heads. Each asker
has a share, so many bytes a second (`Pace`), since a peer that reads a long past, or asks without
end, must neither keep this peer from its own work nor take its uplink from others. The work of
looking is charged as well as the bytes sent: an answer without a block may take as long as a full
page. A peer that has had its share waits a little for the next answer; it is not refused, since it
would only ask another member. At most `_WAITING_MAX` questions wait, `_WAITING_EACH_MAX` of one
peer; a question that finds no room is counted and not answered, and the asker repeats it.

A peer that reads a long past asks for several pages at once. They are sent one after the other,
each from where the one before it ended and within the asker's share, so a question for many pages
costs no more than as many questions, without the way between them.

Invariants: no block is sent that is not in the store, or checked and on its way there; no answer is
larger than `page_bytes_max`, but for a single block; no asker gets more than its share, however it
asks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from weft.bounded import BoundedDict
from weft.documents.descriptor import SealedEvent
from weft.documents.position import Position, position
from weft.ids import Cid, Contact, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.history.blocks import BLOCKS_MAX, BlocksReply, BlocksRequest
from weft.protocol.history.reader import PageReply, PageRequest
from weft.protocol.history.storage import Storage
from weft.protocol.history.stream import Head
from weft.protocol.history.versions import Versions
from weft.protocol.seam import Millis
from weft.store.interface import NotHeld, Since, Store
from weft.store.reader import Reader as Pages

PACE = "history.pace"
BESIDE_MAX = 4_096
"""guess: positions of the stream searched for events that an asker lacks beside its heads, some
30 ms, so that no question makes this peer read its whole store. What is not found shows as gaps."""
_WAITING_MAX = 256
_WAITING_EACH_MAX = 8
_PEERS_MAX = 1_024
"""guess, all three: each is a few hundred bytes."""


class Server:
    """What one peer answers about history."""

    def __init__(
        self,
        ctx: Context,
        library: Store,
        storage: Storage,
        versions: Versions,
        has_given_up: Callable[[Cid], bool],
        evidence: Callable[[Topic, Cid], bytes | None],
    ) -> None:
        """`has_given_up`: whether this peer has given a block up. `evidence`: a block that is kept
        only for those that begin here."""
        self._ctx = ctx
        self._evidence = evidence
        self._has_given_up = has_given_up
        self._library = library
        self._storage = storage
        self._versions = versions
        self._pace = Pace(ctx)

    def on_blocks_request(self, sender: Contact, message: BlocksRequest) -> None:
        self._pace.serve(sender, message.topic, lambda: self._answer_blocks(sender, message))

    def on_page_request(self, sender: Contact, message: PageRequest) -> None:
        self._serve_page(sender, message, 0)

    def _serve_page(self, sender: Contact, message: PageRequest, part: int) -> None:
        """One of the pages that were asked for, and then those after it, each within the share."""
        answer = partial(self._answer_page, sender, message, part)
        self._pace.serve(sender, message.topic, answer, page=True)

    def on_pace_timer(self, number: int) -> None:
        self._pace.on_timer(number)

    def on_peer_lost(self, peer: PeerId) -> None:
        """Drop the questions of a peer that is gone."""
        self._pace.forget(peer)

    def block(self, cid: Cid) -> bytes | None:
        """A block that is stored, or at hand and on its way to the store: a received event that
        was released, a version of a topic, or anything that the store has."""
        for held in (self._storage.block, self._versions.block, self._library.get):
            block = held(cid)
            if block is not None:
                return block
        return None

    # --- one answer -------------------------------------------------------------------------------

    def _answer_blocks(self, sender: Contact, message: BlocksRequest) -> Cost:
        """Send as many of the blocks as one message may hold, and name those that are not here."""
        blocks: list[bytes] = []
        lacking: list[Cid] = []
        size = 0
        for cid in dict.fromkeys(message.cids):
            block = self.block(cid) or self._evidence(message.topic, cid)
            if block is None:
                lacking.append(cid)
            elif not blocks or size + len(block) <= self._ctx.config.history.page_bytes_max:
                blocks.append(block)
                size += len(block)
        self._ctx.counters["history_blocks_served"] += len(blocks)
        given_up = [cid for cid in lacking if self._has_given_up(cid)]
        topic, request = message.topic, message.request
        reply = BlocksReply(topic, request, blocks, lacking, given_up=given_up)
        self._ctx.send(sender, reply)
        return Cost(size, len(blocks) + len(lacking))

    def _answer_page(self, sender: Contact, message: PageRequest, part: int) -> Cost:
        """Send one page, or say that the event that the asker has to read on from is not here."""
        try:
            events, pruned, end, looked_at = self._read(message)
        except NotHeld:
            self._ctx.send(sender, PageReply(message.topic, message.request, [], held=False))
            return Cost(0, 1)
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
            part=part,
            more=message.pages - 1 - part if more else 0,
            top=max(self._library.heads(message.topic).values(), default=0) if more else 0,
        )
        self._ctx.send(sender, reply)
        then = None
        if reply.more:
            following = replace(message, after=reply.next)
            then = partial(self._serve_page, sender, following, part + 1)
        return Cost(sum(map(len, reply.blocks)), looked_at, then)

    def _read(self, message: PageRequest) -> tuple[list[SealedEvent], bool, Position, int]:
        """Events, whether older ones are gone, the position up to which was read, and how much was
        looked at. Events beside the asker's heads that do not fit show as gaps, and are asked for
        later."""
        looked_at = 0
        if message.since_ms is not None:  # a stream is not in the order of dates: all are read
            looked_at = self._library.summary(message.topic).events // _DATES_AT_ONCE
        if message.after is not None:
            after = Position(message.after.height, message.after.cid)
            since_ms = message.since_ms or 0
            events = self._library.events(message.topic, after, since_ms, BLOCKS_MAX)
            return events, False, position(events[-1]) if events else after, looked_at
        since: Since = "beginning"
        if message.since_event is not None:
            since = message.since_event
        elif message.since_ms is not None:
            since = message.since_ms
        elif message.heads:
            since = tuple(message.heads)
        reader = Pages(self._library, message.topic, since, BESIDE_MAX)
        events = reader.read(BLOCKS_MAX)
        return events, reader.pruned, reader.after, looked_at + reader.searched

    def _fitting(self, events: list[SealedEvent]) -> list[SealedEvent]:
        """As many as one message may hold, at least one."""
        size = 0
        for count, event in enumerate(events):
            size += len(event.block)
            if count and (size > self._ctx.config.history.page_bytes_max or count >= BLOCKS_MAX):
                return events[:count]
        return events


# --- each asker's share -----------------------------------------------------------------------


class Cost(NamedTuple):
    """What an answer cost this peer, and what follows it."""

    bytes: int  # of blocks that were sent
    looked_at: int  # positions of a stream, or names of blocks
    then: Callable[[], None] | None = None  # what is to be served next


Serve = Callable[[], Cost]
"""Sends an answer, and says what that took."""

_LOOKED_AT_PER_S = 16_384
"""measured: looking at a position takes some 9 µs (SQLite, 20,000 events), so looking takes a
seventh of a core at most for one asker."""
_ANSWER = 4
"""measured: an empty answer takes as long as looking at so many positions."""
_DATES_AT_ONCE = 64
"""measured: going through so many events by their date takes as long as looking at one."""


class _Waiting(NamedTuple):
    """A question that waits for its turn."""

    peer: PeerId
    answer: Serve
    page_of: Topic | None


class Pace:
    """How many bytes each asker was served, and the questions that wait for their turn."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        # When a peer was served last, and the bytes beyond its share at that time.
        self._owed: BoundedDict[PeerId, tuple[Millis, int]] = BoundedDict(_PEERS_MAX)
        self._waiting: dict[int, _Waiting] = {}

    def serve(self, sender: Contact, topic: Topic, answer: Serve, page: bool = False) -> None:
        """Answer at once, or as soon as the sender's share allows. A question for a `page` replaces
        the sender's earlier one in the topic: the sender has lost patience, or reads elsewhere."""
        peer = sender.peer
        if page:
            self._drop(lambda one: one.peer == peer and one.page_of == topic)
        wait_ms = self._wait_ms(peer)
        if wait_ms == 0:
            self._charge(peer, answer())
            return
        of_peer = sum(one.peer == peer for one in self._waiting.values())
        if len(self._waiting) >= _WAITING_MAX or of_peer >= _WAITING_EACH_MAX:
            self._ctx.counters["history_not_served"] += 1
            return
        self._ctx.counters["history_paced"] += 1
        number = self._ctx.next_serial()
        self._waiting[number] = _Waiting(peer, answer, topic if page else None)
        self._ctx.set_timer(wait_ms, PACE, topic, number)

    def on_timer(self, number: int) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            self._charge(waiting.peer, waiting.answer())

    def forget(self, peer: PeerId) -> None:
        """The peer is gone: drop its questions."""
        self._drop(lambda one: one.peer == peer)

    def _drop(self, which: Callable[[_Waiting], bool]) -> None:
        for number in [number for number, one in self._waiting.items() if which(one)]:
            del self._waiting[number]

    def _owes(self, peer: PeerId) -> int:
        """The bytes that a peer has had beyond its share so far."""
        since, served = self._owed.get(peer, (self._ctx.now, 0))
        return max(0, served - (self._ctx.now - since) * self._rate // 1_000)

    @property
    def _rate(self) -> int:
        return self._ctx.config.history.serve_bytes_per_s

    def _wait_ms(self, peer: PeerId) -> Millis:
        """Until no more than a second's share is owed."""
        over = self._owes(peer) - self._rate
        return -(-over * 1_000 // self._rate) if over > 0 else 0

    def _charge(self, peer: PeerId, cost: Cost) -> None:
        """Charge an answer to its asker. Looking at `_LOOKED_AT_PER_S` positions costs as much as
        the bytes of a second's share."""
        work = self._rate * (cost.looked_at + _ANSWER) // _LOOKED_AT_PER_S
        self._owed.renew(peer, (self._ctx.now, self._owes(peer) + cost.bytes + work))
        if cost.then is not None:
            cost.then()
