"""What commands print: columns for a terminal, notifications for people or for programs."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from weft.net.subscription import Notification


Fields: TypeAlias = dict[str, Any]
"""A JSON object."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns under their names."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    )


def fields_of(note: Notification) -> Fields:
    """What is shown of a notification, with its payload as bytes."""
    return {
        "topic": note.topic,
        "published_in": note.published_in,
        "payload": note.payload,
        "publisher": note.publisher,
        "event_id": note.event_id,
        "published_at": note.published_at,
        "hops": note.hops,
        **({"cid": note.cid} if note.descriptor is not None else {}),
    }


def show(note: Fields, *, as_json: bool, with_topic: bool) -> None:
    """One line: the payload as it is (after the topic it was published in, if there are several),
    or JSON."""
    if as_json:
        fields = dict(note)
        payload: bytes = fields.pop("payload")
        try:
            fields["payload"] = payload.decode()
        except UnicodeDecodeError:
            fields["payload_base64"] = base64.b64encode(payload).decode()
        line = json.dumps(fields).encode()
    else:
        line = note["payload"]
        if with_topic:
            line = f"{note['published_in']}\t".encode() + line
    sys.stdout.flush()
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
