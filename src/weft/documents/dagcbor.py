"""dag-cbor, the encoding of all that weft keeps: writing with types, reading with doubt.

IPLD's dag-cbor gives every document exactly one encoding (shortest heads, map keys by length and
then by bytes, links as tag 42), so equal documents have equal CIDs.

Reading is libipld's, in compiled code. Writing is ours: libipld has one Python type for byte
strings and links and writes as a link whatever bytes happen to look like one, so a payload or a
signature with unlucky bytes would change its meaning. Here the writer knows from the shape which is
which. Since libipld also reads heads that are longer than need be, a block counts as canonical only
if writing again what was read gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from weft.documents.refusal import Reason, Refused
from weft.ids import Cid

Scalar: TypeAlias = str | int | bool
"""What the values of a metadata map may be."""

BLOCK_BYTES_MAX = 1 << 20
"""guess: 1 MiB, what one message can carry, and within what IPFS exchanges."""
INTEGER_MAX = (1 << 63) - 1
NULL = b"\xf6"
_LINK = b"\xd8\x2a\x58\x25\x00"  # tag 42, a byte string of 37: a zero and the CID
_SMALL = tuple(tuple(bytes((major << 5 | value,)) for value in range(24)) for major in range(8))


def head(major: int, value: int) -> bytes:
    """The head of an item: its major type and the shortest form of its argument."""
    if value < 24:
        return _SMALL[major][value]
    if value < 1 << 8:
        return bytes((major << 5 | 24, value))
    if value < 1 << 16:
        return bytes((major << 5 | 25,)) + value.to_bytes(2, "big")
    if value < 1 << 32:
        return bytes((major << 5 | 26,)) + value.to_bytes(4, "big")
    return bytes((major << 5 | 27,)) + value.to_bytes(8, "big")


def integer(value: int) -> bytes:
    return head(0, value) if value >= 0 else head(1, -1 - value)


def binary(data: bytes) -> bytes:
    return head(2, len(data)) + data


def text(value: str) -> bytes:
    data = value.encode()
    return head(3, len(data)) + data


def link(cid: Cid) -> bytes:
    return _LINK + cid


def optional_link(cid: Cid | None) -> bytes:
    return NULL if cid is None else _LINK + cid


def array(items: Iterable[bytes]) -> bytes:
    """An array of items that are already written."""
    written = list(items)
    return head(4, len(written)) + b"".join(written)


def key_order(key: str) -> tuple[int, bytes]:
    """dag-cbor's order of map keys: the shorter first, then by bytes."""
    data = key.encode()
    return len(data), data


def mapping(items: Mapping[str, bytes]) -> bytes:
    """A map of values that are already written, its keys in dag-cbor's order."""
    parts = [head(5, len(items))]
    for key in sorted(items, key=key_order):
        parts += (text(key), items[key])
    return b"".join(parts)


def scalar(value: Scalar) -> bytes:
    if isinstance(value, bool):
        return b"\xf5" if value else b"\xf4"
    return integer(value) if isinstance(value, int) else text(value)


def read(block: bytes) -> object:
    """The document in a block. Links come as plain bytes; only writing tells them from others."""
    import libipld  # noqa: PLC0415  (0.3 MB, and a peer without a store reads no document)

    try:
        document: object = libipld.decode_dag_cbor(block)
    except (ValueError, RecursionError) as error:
        raise Refused(Reason.NOT_CANONICAL, f"not dag-cbor: {error}") from error
    return document
