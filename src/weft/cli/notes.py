"""Notifications on their way to a terminal or another program."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.net.subscription import Notification

Fields = Mapping[str, Any]


def fields_of(note: Notification) -> dict[str, Any]:
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
