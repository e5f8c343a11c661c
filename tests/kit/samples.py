"""Small inputs that several tests use."""

from __future__ import annotations

import json
from pathlib import Path

JOINED = [
    ("alice", "/a", 1_000_000_001),
    ("alice", "/b", 2_000_000_000),
    ("bob", "/a", 3_000_000_000),
]


def weft_trace() -> str:
    """Three joins, one leave by a peer that was there before, one publication."""
    records: list[dict[str, object]] = [
        {"type": "JOIN", "peerID": peer, "timestamp": at, "join": {"topic": topic}}
        for peer, topic, at in JOINED
    ]
    records.append(
        {"type": "LEAVE", "peerID": "carol", "timestamp": 9_000_000, "leave": {"topic": "/b"}}
    )
    published = {"messageID": "alice-1@/a", "topic": "/a"}
    records.append(
        {
            "type": "PUBLISH_MESSAGE",
            "peerID": "alice",
            "timestamp": 4_000_000_000,
            "publishMessage": published,
        }
    )
    return "".join(json.dumps(record) + "\n" for record in records)


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, hidden ones too, byte for byte."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
