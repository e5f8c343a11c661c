"""Keys, events and topics for tests of descriptors, records and stores."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from weft.documents import descriptor
from weft.documents.dagcbor import Scalar
from weft.documents.descriptor import SealedEvent, TopicVersion
from weft.ids import Cid, PeerId, Topic

NOW_MS = 1_800_000_000_000
SPORTS = Topic("/sports")


class Key:
    """A key pair that a name leads to, the same in every run."""

    def __init__(self, name: str) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).digest())
        self.peer = PeerId(self._key.public_key().public_bytes_raw())
        self.sign = self._key.sign


ANNA, BEN, CAROL = Key("anna"), Key("ben"), Key("carol")


def event(
    payload: bytes = b"goal!",
    *after: SealedEvent,
    key: Key = ANNA,
    topic: Topic = SPORTS,
    link: Cid | None = None,
    created_ms: int = NOW_MS,
    metadata: Mapping[str, Scalar] | None = None,
) -> SealedEvent:
    """An event that follows others."""
    return descriptor.seal_event(
        key.sign,
        publisher=key.peer,
        topic=topic,
        payload=payload,
        created_ms=created_ms,
        parents={parent.cid: parent.height for parent in after},
        link=link,
        metadata=metadata,
    )


def chain(
    count: int, *after: SealedEvent, key: Key = ANNA, step_ms: int = 1_000
) -> list[SealedEvent]:
    """Events one after the other, the first after `after`."""
    events: list[SealedEvent] = []
    for number in range(count):
        before = (events[-1],) if events else after
        payload = b"%d" % number
        events.append(event(payload, *before, key=key, created_ms=NOW_MS + step_ms * number))
    return events


def topic(name: str = "/sports", key: Key = ANNA, **fields: object) -> TopicVersion:
    given = {"created_ms": NOW_MS, **fields}
    return descriptor.seal_topic(key.sign, author=key.peer, name=Topic(name), **given)  # type: ignore[arg-type]


def forked() -> list[SealedEvent]:
    """A trunk of three, a branch beside its middle, and an event that joins both."""
    one, two, three = chain(3)
    side = event(b"side", one, key=BEN)
    return [one, two, three, side, event(b"join", three, side, key=CAROL)]
