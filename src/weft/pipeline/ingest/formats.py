"""The formats by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from weft.pipeline.ingest import (
    columnar,
    delimited,
    jsonlines,
    mediawiki_history,
    mediawiki_xml,
    pubsub,
    snap,
)
from weft.pipeline.ingest.files import Inspected
from weft.pipeline.ingest.options import Options
from weft.pipeline.ingest.reading import Reading

Plan = Callable[[Inspected, Options], Reading]

FORMATS: dict[str, Plan] = {
    "csv": partial(delimited.plan, "csv"),
    "tsv": partial(delimited.plan, "tsv"),
    jsonlines.FORMAT: jsonlines.plan,
    columnar.FORMAT: columnar.plan,
    snap.EDGES: snap.plan_edges,
    snap.COMMUNITIES: snap.plan_communities,
    mediawiki_xml.FORMAT: mediawiki_xml.plan,
    mediawiki_history.FORMAT: mediawiki_history.plan,
    pubsub.WEFT: partial(pubsub.plan, pubsub.WEFT),
    pubsub.GOSSIPSUB: partial(pubsub.plan, pubsub.GOSSIPSUB),
}
