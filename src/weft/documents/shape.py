"""The bounds and types of the fields of documents, one function per kind of field.

Each takes what was read from a block, whatever that is, and returns it typed or raises `Refused`
with the reason. Exact types are asked for, since a bool is an int to Python and not to dag-cbor.
"""

from __future__ import annotations

from functools import lru_cache

from weft.documents.dagcbor import INTEGER_MAX, Scalar
from weft.documents.refusal import Reason, Refused
from weft.ids import PEER_ID_BYTES, BadId, Cid, PeerId, Topic, is_cid, parse_path

PARENTS_MAX = 16
"""guess: heads that one event joins; further ones are joined by the events after it."""
HEIGHT_MAX = (1 << 53) - 1
"""guess: no honest stream gets that high, and every language can count so far exactly."""
METADATA_MAX = 32
METADATA_BYTES_MAX = 4_096
OWNERS_MAX = 16
ALLOWED_MAX = 1_024
SUB_TOPICS_MAX = 1_024
"""guess: all five."""
PROTOCOL = 1
"""The version of this format, in the metadata of every document."""

CREATED, PROTOCOL_KEY = "created", "protocol"
RESERVED = (CREATED, PROTOCOL_KEY)
"""Metadata keys that weft sets itself."""


def require(condition: bool, text: str) -> None:
    if not condition:
        raise Refused(Reason.BAD_SHAPE, text)


def height(value: object) -> int:
    if type(value) is not int or not 1 <= value <= HEIGHT_MAX:
        raise Refused(Reason.BAD_SHAPE, "a height is a number from 1")
    return value


def counter(value: object) -> int:
    """A time in milliseconds, or a sequence number."""
    if type(value) is not int or not 0 <= value <= INTEGER_MAX:
        raise Refused(Reason.BAD_SHAPE, "times and sequences are numbers from 0 of 63 bits")
    return value


def payload(value: object) -> bytes:
    if type(value) is not bytes:
        raise Refused(Reason.BAD_SHAPE, "a payload is bytes")
    return value


def parents(value: object) -> tuple[Cid, ...]:
    if type(value) is not list:
        raise Refused(Reason.BAD_SHAPE, "parents are a list of links")
    if len(value) > PARENTS_MAX:
        raise Refused(Reason.TOO_MANY_PARENTS, f"{len(value)} parents, over {PARENTS_MAX}")
    last = b""
    for cid in value:
        if type(cid) is not bytes or not is_cid(cid) or cid <= last:
            raise Refused(Reason.BAD_SHAPE, "parents are links, ascending, each once")
        last = cid
    return tuple(value)


def keys(value: object, most: int) -> tuple[PeerId, ...]:
    """Public keys, ascending, each once."""
    if type(value) is not list or len(value) > most:
        raise Refused(Reason.BAD_SHAPE, f"keys are a list of at most {most}")
    last = b""
    for item in value:
        if key(item) <= last:
            raise Refused(Reason.BAD_SHAPE, "keys are ascending, each once")
        last = item
    return tuple(value)


def key(value: object) -> PeerId:
    if type(value) is not bytes or len(value) != PEER_ID_BYTES:
        raise Refused(Reason.BAD_SHAPE, "a key is 32 bytes")
    return PeerId(value)


def link(value: object) -> Cid | None:
    if value is None:
        return None
    if type(value) is not bytes or not is_cid(value):
        raise Refused(Reason.BAD_SHAPE, "a link is a CID of a dag-cbor block, or null")
    return Cid(value)


_parsed = lru_cache(maxsize=1_024)(parse_path)  # streams name the same topic again and again


def name(value: object) -> Topic:
    if type(value) is not str:
        raise Refused(Reason.BAD_SHAPE, "a topic's name is text")
    try:
        return _parsed(value)
    except (BadId, UnicodeEncodeError) as error:
        raise Refused(Reason.BAD_SHAPE, str(error)) from error


def sub_topics(value: object) -> dict[str, Cid]:
    if type(value) is not dict or len(value) > SUB_TOPICS_MAX:
        raise Refused(Reason.BAD_SHAPE, f"sub-topics are a map of at most {SUB_TOPICS_MAX} links")
    for segment, cid in value.items():
        require(type(cid) is bytes and is_cid(cid), "a sub-topic is a link")
        try:
            whole = parse_path(f"/{segment}")
        except (BadId, UnicodeEncodeError) as error:
            raise Refused(Reason.OUTSIDE_PARENT, f"sub-topic {segment!r}: {error}") from error
        if "/" in whole[1:]:
            raise Refused(Reason.OUTSIDE_PARENT, f"sub-topic {segment!r} is not one segment")
    return value


def metadata(value: object) -> tuple[int, dict[str, Scalar]]:
    """The time of creation, and the metadata beside the reserved keys."""
    if type(value) is not dict or len(value) > METADATA_MAX:
        raise Refused(Reason.BAD_SHAPE, f"metadata is a map of at most {METADATA_MAX}")
    created, protocol = counter(value.get(CREATED)), value.get(PROTOCOL_KEY)
    if type(protocol) is not int or protocol != PROTOCOL:
        raise Refused(Reason.BAD_SHAPE, f"metadata 'protocol' is {PROTOCOL}")
    if len(value) == len(RESERVED):
        return created, {}
    size = 0
    extra: dict[str, Scalar] = {}
    for word, item in value.items():
        if word not in RESERVED:
            extra[word] = item
        size += _scalar_size(word) + _scalar_size(item)
    require(size <= METADATA_BYTES_MAX, f"metadata is at most {METADATA_BYTES_MAX} bytes")
    return created, extra


def _scalar_size(value: object) -> int:
    if type(value) is str:
        try:
            return len(value.encode())
        except UnicodeEncodeError as error:
            raise Refused(Reason.BAD_SHAPE, f"metadata: {error}") from error
    require(type(value) in (int, bool), "metadata holds text, integers and booleans")
    if type(value) is int:
        require(-INTEGER_MAX <= value <= INTEGER_MAX, "metadata integers have 63 bits")
    return 8
