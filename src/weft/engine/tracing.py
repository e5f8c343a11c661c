"""The trace of an engine's run: what happens to events, in the records that peers write.

A cycle is a second. Written are JOIN for every membership, PUBLISH_MESSAGE, the way to an access
point (RouteEvent) and the flood (Payload), each sent and received, and DELIVER_MESSAGE or
DUPLICATE_MESSAGE for every copy. View exchanges, advertisements and lookups are only counted in the
engine, so they are not in its trace.

For runs of a size that one wants to look into; a record costs more than what it is about.
"""

from __future__ import annotations

from typing import BinaryIO

from weft import trace
from weft.engine.flood import Flood
from weft.engine.layout import Array
from weft.engine.workload import Memberships, topic_name
from weft.ids import PEER_ID_BYTES, PeerId, Topic, peer_text
from weft.protocol import records as r
from weft.protocol.publishing import RouteEvent
from weft.protocol.wire import Event, Payload

CYCLE_NS = 1_000_000_000
_NUMBER_BYTES = 8


def peer_of(number: int) -> PeerId:
    """The id of an engine's peer."""
    return PeerId(number.to_bytes(_NUMBER_BYTES, "big").ljust(PEER_ID_BYTES, b"\0"))


class EventTrace:
    """Writes records to a file; `Events` tells it what happens."""

    def __init__(self, memberships: Memberships, file: BinaryIO) -> None:
        self._held = memberships
        self._writer = trace.Writer(file)
        self._published: list[tuple[Topic, Event]] = []
        self._spreading: dict[int, int] = {}  # event of the flood → event as published
        self._hops: dict[int, dict[int, int]] = {}  # event of the flood → member: hops
        for peer, topic in zip(memberships.members, memberships.topic_of, strict=True):
            self._write(0, int(peer), r.JOIN, {"topic": topic_name(int(topic))})

    def published(self, cycle: int, topics: Array, publishers: Array) -> None:
        for topic, publisher in zip(topics, publishers, strict=True):
            event = Event(peer_of(int(publisher)), 1, len(self._published) + 1, cycle * 1000, b"")
            self._published.append((Topic(topic_name(int(topic))), event))
            self._write(cycle, int(publisher), r.PUBLISH_MESSAGE, self._about(-1))

    def routed(self, cycle: int, number: int, publisher: int, membership: int) -> None:
        """An event leaves for an access point."""
        point = int(self._held.members[membership])
        self._rpc(cycle, r.SEND_RPC, publisher, point, RouteEvent.__name__, number)

    def entered(
        self, cycle: int, number: int, spreading: int, membership: int, routed_by: int | None
    ) -> None:
        """An event is in its topic, at a member: its publisher, or the access point."""
        point = int(self._held.members[membership])
        if routed_by is not None:
            self._rpc(cycle, r.RECV_RPC, point, routed_by, RouteEvent.__name__, number)
        self._spreading[spreading] = number
        hops = 0 if routed_by is None else 1
        self._hops[spreading] = {membership: hops}
        fields = {"receivedFrom": peer_text(peer_of(point)), "hops": hops}
        self._write(cycle, point, r.DELIVER_MESSAGE, {**self._about(number), **fields})

    def spreading(self, cycle: int, flood: Flood) -> None:
        """The flood is about to make a hop: every member of its front sends to its whole view."""
        counts, views = flood.rows.counts(), flood.rows.ids()
        for event, row in flood.front():
            hops = self._hops[event][row] + 1
            for other in views[row, : counts[row]]:
                self._pushed(cycle, event, row, int(other), hops)

    def _pushed(self, cycle: int, event: int, row: int, other: int, hops: int) -> None:
        number, known = self._spreading[event], self._hops[event]
        sender, receiver = int(self._held.members[row]), int(self._held.members[other])
        self._rpc(cycle, r.SEND_RPC, sender, receiver, Payload.__name__, number)
        self._rpc(cycle, r.RECV_RPC, receiver, sender, Payload.__name__, number)
        kind = r.DUPLICATE_MESSAGE if other in known else r.DELIVER_MESSAGE
        known.setdefault(other, hops)
        fields = {"receivedFrom": peer_text(peer_of(sender)), "hops": hops}
        self._write(cycle, receiver, kind, {**self._about(number), **fields})

    def _rpc(self, cycle: int, kind: str, peer: int, other: int, rpc: str, number: int) -> None:
        about = self._about(number)
        meta = {"kind": rpc, "topic": about["topic"], "messages": [about]}
        role = "sendTo" if kind == r.SEND_RPC else "receivedFrom"
        self._write(cycle, peer, kind, {role: peer_text(peer_of(other)), "meta": meta})

    def _about(self, number: int) -> dict[str, object]:
        topic, event = self._published[number]
        return {"messageID": trace.message_id(topic, event), "topic": topic}

    def _write(self, cycle: int, peer: int, kind: str, fields: dict[str, object]) -> None:
        self._writer.write(peer_of(peer), cycle * CYCLE_NS, kind, fields)
