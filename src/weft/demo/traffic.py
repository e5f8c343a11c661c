"""Reads the peers' traces: how many messages of each kind, and the way of each event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from weft.trace import GROUPS, group_of


class _Meta(msgspec.Struct):
    kind: str = ""
    bytes: int = 0
    messages: list[dict[str, str]] = []


class _Rpc(msgspec.Struct):
    meta: _Meta


class _Delivery(msgspec.Struct, rename="camel"):
    message_id: str = msgspec.field(name="messageID")
    received_from: str
    hops: int = 0


class _Publish(msgspec.Struct):
    message_id: str = msgspec.field(name="messageID")


class _Record(msgspec.Struct, rename="camel"):
    """The fields of a trace record that are read here."""

    type: str
    peer_id: str = msgspec.field(name="peerID")
    timestamp: int
    send: _Rpc | None = msgspec.field(name="sendRPC", default=None)
    receive: _Rpc | None = msgspec.field(name="recvRPC", default=None)
    deliver: _Delivery | None = msgspec.field(name="deliverMessage", default=None)
    publish: _Publish | None = msgspec.field(name="publishMessage", default=None)


@dataclass(frozen=True)
class Step:
    """One delivery of one event."""

    peer: str
    source: str  # the peer that pushed it; the peer itself if it was not pushed
    hops: int
    timestamp_ns: int


@dataclass
class Traffic:
    """Counts over a stretch of time, and the deliveries of every event."""

    sent: dict[str, Counter[str]] = field(default_factory=dict)  # by peer: group → messages
    kinds: Counter[str] = field(default_factory=Counter)  # kind → messages
    bytes_sent: int = 0
    copies: int = 0  # events inside received messages
    setup: Counter[str] = field(default_factory=Counter)  # group → messages before the stretch
    steps: dict[str, list[Step]] = field(default_factory=dict)  # by message id
    publishers: dict[str, str] = field(default_factory=dict)  # by message id
    peers: list[str] = field(default_factory=list)  # by file

    def by_group(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for counts in self.sent.values():
            total.update(counts)
        return {group: total[group] for group in GROUPS}

    @property
    def remote_deliveries(self) -> int:
        """Deliveries to others than the publisher."""
        return sum(
            step.peer != self.publishers.get(message)
            for message, steps in self.steps.items()
            for step in steps
        )


def read(files: Iterable[Path], start_ns: int, end_ns: int) -> Traffic:
    """Read traces; messages count from `start_ns` to `end_ns` (wall clock)."""
    traffic = Traffic()
    decoder = msgspec.json.Decoder(_Record)
    for path in files:
        peer = ""
        sent: Counter[str] = Counter()
        with path.open("rb") as lines:
            for line in lines:
                record = decoder.decode(line)
                peer = record.peer_id
                if record.timestamp < start_ns:
                    if record.send is not None:
                        traffic.setup[group_of(record.send.meta.kind)] += 1
                elif record.timestamp <= end_ns:
                    _count(traffic, sent, record)
        traffic.peers.append(peer)
        traffic.sent[peer] = sent
    return traffic


def _count(traffic: Traffic, sent: Counter[str], record: _Record) -> None:
    if record.send is not None:
        meta = record.send.meta
        sent[group_of(meta.kind)] += 1
        traffic.kinds[meta.kind] += 1
        traffic.bytes_sent += meta.bytes
    elif record.receive is not None:
        traffic.copies += len(record.receive.meta.messages)
    elif record.deliver is not None:
        deliver = record.deliver
        step = Step(record.peer_id, deliver.received_from, deliver.hops, record.timestamp)
        traffic.steps.setdefault(deliver.message_id, []).append(step)
    elif record.publish is not None:
        traffic.publishers[record.publish.message_id] = record.peer_id


# --- the way of one event -------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How one event travelled: `edges` of (from, to), by peer number."""

    topic: str
    publisher: int
    edges: tuple[tuple[int, int], ...]
    reached: frozenset[int]


def way_of(traffic: Traffic) -> Way | None:
    """The way of the event that reached most peers. Among several, events with more pushes go
    first (the trace does not say where repaired events came from), then events from outside, then
    the latest."""
    numbers = {peer: number for number, peer in enumerate(traffic.peers)}

    def interest(entry: tuple[str, list[Step]]) -> tuple[int, int, bool, int]:
        message, steps = entry
        members = {step.peer for step in steps}
        pushed = sum(step.source != step.peer for step in steps)
        outside = traffic.publishers[message] not in members
        return len(members), pushed, outside, steps[0].timestamp_ns

    known = [entry for entry in traffic.steps.items() if entry[0] in traffic.publishers]
    if not known:
        return None
    message, steps = max(known, key=interest)
    publisher = numbers[traffic.publishers[message]]
    edges = []
    for step in steps:
        if step.source != step.peer:
            edges.append((numbers[step.source], numbers[step.peer]))
        elif step.hops == 1:  # routed from outside to an access point
            edges.append((publisher, numbers[step.peer]))
    return Way(
        topic=message.partition("@")[2],
        publisher=publisher,
        edges=tuple(edges),
        reached=frozenset(numbers[step.peer] for step in steps),
    )
