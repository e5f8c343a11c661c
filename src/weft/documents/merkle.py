"""Merkle paths: any field of any document, by the CID of one that leads there (paper 004, Section
4.1).

    /<cid>/#/<sub-topic>            a sub-topic's descriptor
    /<cid>/parent                   the version before, or an event's first parent
    /<cid>/parents/1/payload        a field of an event's second parent
    /<cid>/topic/link/owners/0      a key that owns the topic of an event

A link is followed wherever a path goes on, or ends, at it. Blocks come from a function, so paths
resolve over whatever holds blocks, and every block on the way is checked in full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from weft.documents import descriptor
from weft.documents.descriptor import SealedEvent, TopicVersion
from weft.documents.shape import CREATED, PROTOCOL, PROTOCOL_KEY
from weft.errors import WeftError
from weft.ids import BadId, Cid, cid_text, parse_cid

SEGMENTS_MAX = 256
"""guess: bounds how many blocks one path can make a peer fetch."""

Getter: TypeAlias = Callable[[Cid], bytes | None]
"""The block of a CID, or None where it is not to be had."""


class Link(Struct, frozen=True):
    """A link in a document, as opposed to bytes that look like one."""

    cid: Cid


class Unresolved(WeftError):
    """A path leads nowhere; the text says where it ends. `missing` is the block that is lacking,
    if that is why."""

    def __init__(self, text: str, missing: Cid | None = None) -> None:
        super().__init__(text)
        self.missing = missing


def document(found: SealedEvent | TopicVersion) -> dict[str, object]:
    """A descriptor as the document it is, in the words of the paper."""
    metadata = {CREATED: found.created_ms, PROTOCOL_KEY: PROTOCOL, **found.metadata}
    signature = found.block[-64:]
    if isinstance(found, SealedEvent):
        return {
            "topic": {"name": found.topic, "link": _link(found.link)},
            "height": found.height,
            "parents": [Link(cid) for cid in found.parents],
            "payload": found.payload,
            "metadata": metadata,
            "publisher": found.publisher,
            "signature": signature,
        }
    return {
        "#": {segment: Link(cid) for segment, cid in found.sub_topics.items()},
        "name": found.name,
        "author": found.author,
        "owners": list(found.owners),
        "parent": _link(found.parent),
        "allowed": None if found.allowed is None else list(found.allowed),
        "metadata": metadata,
        "signature": signature,
    }


def _link(cid: Cid | None) -> Link | None:
    return None if cid is None else Link(cid)


def parse_path(path: str) -> tuple[Cid, list[str]]:
    """The CID that a path starts with, and its segments; `BadId` where it does not."""
    start, *segments = path.strip("/").split("/")
    try:
        return parse_cid(start), segments
    except BadId as error:
        raise BadId(f"a merkle path starts with a CID: {error}") from error


def resolve(path: str, get: Getter) -> object:
    """What a path leads to: a plain value, or a whole document as a dict.

    `Unresolved` where it leads nowhere, `Refused` where a block on the way is not what it should
    be, `BadId` where it does not start with a CID.
    """
    root, segments = parse_path(path)
    if len(segments) > SEGMENTS_MAX:
        raise Unresolved(f"a path of {len(segments)} segments is too long")
    done = "/" + cid_text(root)
    value: object = _fetch(root, get, done)
    for segment in segments:
        value = _step(value, segment, done)
        done += "/" + segment
        if isinstance(value, Link):
            value = _fetch(value.cid, get, done)
    return value


def _step(value: object, segment: str, done: str) -> object:
    if isinstance(value, dict):
        if segment == "parent" and "parents" in value:  # the paper's name for an event's parent
            value, segment = value["parents"], "0"
        elif segment in value:
            return value[segment]
    if isinstance(value, list) and segment.isascii() and segment.isdecimal() and len(segment) < 6:
        index = int(segment)
        if index < len(value):
            return value[index]
    raise Unresolved(f"{done} has no {segment!r}")


def _fetch(cid: Cid, get: Getter, path: str) -> dict[str, object]:
    block = get(cid)
    if block is None:
        raise Unresolved(f"the block of {path} is not to be had ({cid_text(cid)})", cid)
    return document(descriptor.open_any(block, cid))
