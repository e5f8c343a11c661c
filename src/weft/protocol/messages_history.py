"""What peers say to each other about events that stay (protocol/history); part of
`messages.AnyMessage`.

Blocks travel as they are: whoever receives one checks that it is what it says, whoever sent it.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias, Union

from msgspec import Meta, Struct

from weft.ids import WireCid, WirePeerId, WireTopic
from weft.protocol.wire import Counter, Message

HEADS_MAX = 64
"""guess: heads told in one message; a stream has one per publisher at most, and mostly one."""
SEEN_MAX = 256
"""guess: publishers of whom a new subscriber is told what came before it."""
BLOCKS_MAX = 256
"""guess: blocks asked for or sent in one message."""
BLOCK_BYTES_MAX = 1 << 20
"""As in `documents/descriptor.py`."""
SEGMENT_MAX = 254
"""A topic has 256 bytes at most, two of them before the first segment and between two."""
REASON_MAX = 200
"""guess: a sentence."""
RECORD_BYTES_MAX = 4_096
"""As in `documents/record.py`."""

Block: TypeAlias = Annotated[bytes, Meta(max_length=BLOCK_BYTES_MAX)]
Cids: TypeAlias = Annotated[list[WireCid], Meta(max_length=BLOCKS_MAX)]
Blocks: TypeAlias = Annotated[list[Block], Meta(max_length=BLOCKS_MAX)]


class Head(Struct, frozen=True, array_like=True, gc=False):
    """An event that nobody has followed yet, or any place in the order of a stream."""

    cid: WireCid
    height: Counter


class Had(Struct, frozen=True, array_like=True, gc=False):
    """The highest number that the sender has had of one life of a publisher."""

    publisher: WirePeerId
    incarnation: Counter
    number: Counter


class Heads(Message, frozen=True, tag=60):
    """Where the sender's copy of a stream ends, and which topic record it holds."""

    topic: WireTopic
    heads: Annotated[list[Head], Meta(max_length=HEADS_MAX)]
    answer: bool  # the sender would like to know the receiver's
    sequence: Counter = 0  # of the record; 0: none
    version: WireCid | None = None  # what the record points at
    seen: Annotated[list[Had], Meta(max_length=SEEN_MAX)] | None = None  # to a new subscriber


class BlocksRequest(Message, frozen=True, tag=61):
    topic: WireTopic
    request: Counter
    cids: Cids


class BlocksReply(Message, frozen=True, tag=62):
    topic: WireTopic
    request: Counter
    blocks: Blocks
    lacking: Cids = []  # the sender does not have these (any more)


class PageRequest(Message, frozen=True, tag=63):
    """A stretch of a stream in its order: from the beginning, after an event, since a time, or
    what the asker lacks who has these heads; and then on from where the last page ended."""

    topic: WireTopic
    request: Counter
    since_event: WireCid | None = None
    since_ms: Counter | None = None
    heads: Annotated[list[WireCid], Meta(max_length=HEADS_MAX)] = []
    after: Head | None = None


class PageReply(Message, frozen=True, tag=64):
    topic: WireTopic
    request: Counter
    blocks: Blocks
    next: Head | None = None  # ask on after this; None: that was all
    pruned: bool = False  # older events that belong here are gone at the sender
    held: bool = True  # False: the sender does not have the event to read on from


class TopicNews(Message, frozen=True, tag=65):
    """A topic record: which version of a topic is the newest. Whoever adopts it passes it on."""

    topic: WireTopic
    record: Annotated[bytes, Meta(max_length=RECORD_BYTES_MAX)]


class SubTopicRequest(Message, frozen=True, tag=66):
    """To an owner of the topic: please hang this sub-topic under it."""

    topic: WireTopic
    request: Counter
    segment: Annotated[str, Meta(max_length=SEGMENT_MAX)]


class SubTopicReply(Message, frozen=True, tag=67):
    topic: WireTopic
    request: Counter
    granted: bool
    waits: bool  # for a word of the owner's
    reason: Annotated[str, Meta(max_length=REASON_MAX)]  # why not


HistoryMessage: TypeAlias = Union[
    Heads,
    BlocksRequest,
    BlocksReply,
    PageRequest,
    PageReply,
    TopicNews,
    SubTopicRequest,
    SubTopicReply,
]
