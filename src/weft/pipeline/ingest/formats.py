"""The formats by name, and which one a file is in: from what it begins with, then from its name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial

from weft.pipeline.ingest import mediawiki, pubsub, rows, snap
from weft.pipeline.ingest.files import MAGIC, Inspected
from weft.pipeline.ingest.options import BadInput, Options
from weft.pipeline.ingest.records import Reading
from weft.trace import KINDS

Plan = Callable[[Inspected, Options], Reading]

FORMATS: dict[str, Plan] = {
    "csv": partial(rows.plan_delimited, "csv"),
    "tsv": partial(rows.plan_delimited, "tsv"),
    rows.JSONL: rows.plan_json,
    rows.PARQUET: rows.plan_parquet,
    snap.EDGES: snap.plan_edges,
    snap.COMMUNITIES: snap.plan_communities,
    mediawiki.XML: mediawiki.plan_dump,
    mediawiki.HISTORY: mediawiki.plan_history,
    pubsub.WEFT: partial(pubsub.plan, pubsub.WEFT),
    pubsub.GOSSIPSUB: partial(pubsub.plan, pubsub.GOSSIPSUB),
}

_BY_SUFFIX = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv"}
_COMMUNITY_NAME = re.compile(r"\.cmty\b|communit", re.IGNORECASE)
_EDGES_NAME = re.compile(r"\.ungraph\b|edges?\b|graph\b", re.IGNORECASE)
_ARRAY = re.compile(r"\s*\[\s*(\{|$)")
_LOOK_AT = 20


def guessed(file: Inspected) -> str:
    """The name of the format, or `BadInput` if it could be anything."""
    if file.head.startswith(MAGIC):
        return rows.PARQUET
    sample = [line for line in file.lines if line.strip()][:_LOOK_AT]
    if not sample:
        raise BadInput(f"{file.path}: empty")
    if any(mediawiki.ROOT in line for line in sample):
        return mediawiki.XML
    if sample[0].lstrip().startswith("{"):
        return _json(sample[0])
    cells = sample[0].split("\t")
    if len(cells) >= mediawiki.WIDTH and cells[1] in mediawiki.ENTITIES:
        return mediawiki.HISTORY
    found = _by_name(file.name)
    if found is None and _ARRAY.match(sample[0]):
        raise BadInput(f"{file.path}: a JSON array, it seems; write an object on each line")
    found = found or _by_shape(sample)
    if found is None:
        raise BadInput(
            f"{file.path}: cannot tell the format from the name or from {file.beginning}; "
            "say it with --format"
        )
    return found


def _json(line: str) -> str:
    """A trace says what happened, by name (weft) or by number (go-libp2p-pubsub)."""
    try:
        kind = json.loads(line).get("type")
    except ValueError:
        return rows.JSONL
    if kind in KINDS:
        return pubsub.WEFT
    traced = isinstance(kind, int) and '"peerID"' in line and '"timestamp"' in line
    return pubsub.GOSSIPSUB if traced else rows.JSONL


def _by_name(name: str) -> str | None:
    for suffix, found in _BY_SUFFIX.items():
        if name.lower().endswith(suffix):
            return found
    if _COMMUNITY_NAME.search(name):
        return snap.COMMUNITIES
    if _EDGES_NAME.search(name):
        return snap.EDGES
    return None


def _by_shape(sample: Sequence[str]) -> str | None:
    if sample[0].startswith(("#", "%")):
        return snap.EDGES if snap.looks_like_edges(sample) else None
    for separator, found in (("\t", "tsv"), (",", "csv")):
        widths = {len(line.split(separator)) for line in sample}
        if len(widths) == 1 and widths != {1}:
            return found
    if all(word.isdecimal() for line in sample for word in line.split()):
        return snap.COMMUNITIES if any("\t" in line for line in sample) else None
    return None
