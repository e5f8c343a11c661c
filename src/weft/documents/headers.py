"""Headers: short texts beside an event's payload, by name, signed with it.

A publisher that keeps history writes them into its event's document, among the metadata, each under
`header.` and its name. So they are signed, stored, archived and found by merkle paths as all
metadata is, and an older peer, which knows nothing of headers, reads such an event as it reads
any other.

The events of a publisher without a store have no document. There headers travel in the payload, in
an *envelope*, which the publisher signs with its run:

    mark 16, length 2 (big-endian), headers: a msgpack map of text to text, payload

The mark is a number drawn once. A payload that happens to begin with it is put into an envelope
without headers, so that what is taken out of an envelope is always what was put in. An older peer
passes envelopes on as it does all payloads, and hands its application the envelope.

Between an application and its peer's machines events with headers travel in envelopes, too, whether
the peer keeps history or not; a payload without headers is handed on as it is.

Invariants: `unwrap` returns headers within the bounds below; bytes that only look like an envelope
are a payload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from weft.documents.dagcbor import Scalar

HEADERS_MAX = 24
"""guess: metadata has room for 30 with what weft itself writes there."""
HEADERS_BYTES_MAX = 3 << 10
"""guess: of names and values; metadata has 4 KiB."""
NAME_MAX = 64
"""guess: letters of a name."""

MARK = bytes.fromhex("f7dba1c6ee0b4c35b20ce8d3f21a9977")
"""The first bytes of an envelope. Bytes that begin with the mark compare as equal or larger, so a
payload that is smaller is in no envelope, and the largest of many payloads shows it for all."""
_LENGTH_BYTES = 2
_PREFIX = "header."
NO_HEADERS: dict[str, str] = {}
"""The headers of most events: one object for all of them, which must not be changed."""

_encode = msgspec.msgpack.Encoder(order="sorted").encode
_decode = msgspec.msgpack.Decoder(dict[str, str]).decode


def problem(headers: Mapping[str, str]) -> str:
    """Why these cannot be headers; empty if they can."""
    if len(headers) > HEADERS_MAX:
        return f"{len(headers)} headers are too many (at most {HEADERS_MAX})"
    size = 0
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            return f"header {name!r:.60}: a name and a value are texts, not {value!r:.60}"
        if not 1 <= len(name) <= NAME_MAX or not name.isprintable():
            return f"header {name!r:.80}: a name has 1 to {NAME_MAX} printable letters"
        try:
            size += len(_PREFIX) + len(name.encode()) + len(value.encode())
        except UnicodeEncodeError:
            return f"header {name!r:.60} is no text that can be written in UTF-8"
    if size > HEADERS_BYTES_MAX:
        return f"headers of {size} bytes are too long (at most {HEADERS_BYTES_MAX})"
    return ""


def wrap(headers: Mapping[str, str], payload: bytes) -> bytes:
    """An event's payload as it travels with its headers."""
    if not headers and not payload.startswith(MARK):
        return payload
    packed = _encode(dict(headers))
    return b"".join((MARK, len(packed).to_bytes(_LENGTH_BYTES, "big"), packed, payload))


def unwrap(wrapped: bytes) -> tuple[dict[str, str], bytes]:
    """The headers and the payload of an event, from the form in which it travels."""
    if not wrapped.startswith(MARK):
        return NO_HEADERS, wrapped
    start = len(MARK) + _LENGTH_BYTES
    end = start + int.from_bytes(wrapped[len(MARK) : start], "big")
    try:
        headers = _decode(wrapped[start:end])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return NO_HEADERS, wrapped
    if end > len(wrapped) or problem(headers):
        return NO_HEADERS, wrapped
    return headers, wrapped[end:]


def payloads_in(wrapped: Sequence[bytes]) -> Sequence[bytes]:
    """The payloads of events without headers, from the form in which they travel."""
    if max(wrapped, default=b"") < MARK:  # nearly always
        return wrapped
    return [unwrap(one)[1] for one in wrapped]


def as_metadata(headers: Mapping[str, str]) -> dict[str, Scalar]:
    """Headers as they stand in an event's document."""
    return {_PREFIX + name: value for name, value in headers.items()}


def in_metadata(metadata: Mapping[str, Scalar]) -> dict[str, str]:
    """The headers in an event's document; none if they are not within the bounds."""
    found = {}
    for key, value in metadata.items():
        if key.startswith(_PREFIX) and isinstance(value, str):
            found[key.removeprefix(_PREFIX)] = value
    return {} if found and problem(found) else found
