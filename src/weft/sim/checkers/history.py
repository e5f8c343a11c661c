"""Judges of events that stay: whether stores hold in the end what they must."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from weft.documents.descriptor import SealedEvent
from weft.ids import Cid, Topic, cid_text
from weft.sim.checkers.state import PeerState, StreamState
from weft.sim.record import Record
from weft.store.interface import Store
from weft.store.reader import read_all

Wants = Callable[[int, Topic], bool]
"""Whether a peer has asked for a topic's past."""
Stores = Mapping[int, Store]


def streams(stores: Stores, topic: Topic, peers: Iterable[int]) -> dict[int, list[Cid]]:
    """The events of a topic that peers hold, in the stream's order."""
    return {peer: [event.cid for event in read_all(stores[peer], topic)] for peer in peers}


def check_same_streams(record: Record, stores: Stores, wants: Wants) -> list[str]:
    """Every subscriber that asked for the past ends with the same stream, and with every event
    that any subscriber of the topic has."""
    violations = []
    for topic, stays in record.lasting_stays().items():
        lasting = sorted({stay.peer for stay in stays})
        held = streams(stores, topic, lasting)
        everything = dict.fromkeys(cid for stream in held.values() for cid in stream)
        for peer in lasting:
            if not wants(peer, topic):
                continue
            has = dict.fromkeys(held[peer])
            lacks = [cid for cid in everything if cid not in has]
            if lacks:
                owner = next(other for other in lasting if lacks[0] in held[other])
                violations.append(
                    f"peer {peer} asked for all of {topic} and lacks {len(lacks)} of "
                    f"{len(everything)} events, first {cid_text(lacks[0])}, which peer {owner} has"
                )
    return violations


def check_order(record: Record, stores: Stores) -> list[str]:
    """No application is handed an event after one of its descendants, whether it asked for the past
    or not.

    Distant ancestors are found through the events that any peer was handed or holds. Other checks
    require that a subscriber gets its events at all (`deliveries.check_complete`,
    `check_same_streams`), so no peer can be in order by leaving events out.
    """
    parents = _parents(record, stores)
    handed: dict[tuple[int, int, Topic], dict[Cid, Cid]] = {}
    violations = []
    for delivery in record.deliveries:
        event = delivery.descriptor
        if event is None:
            continue
        past = handed.setdefault((delivery.peer, delivery.life, delivery.topic), {})
        if event.cid in past:
            violations.append(
                f"peer {delivery.peer} was handed {cid_text(event.cid)} of {delivery.topic} at "
                f"{delivery.at_ms} ms, after {cid_text(past[event.cid])}, which follows it"
            )
        _note_ancestors(event, parents, past)
    return violations


def _parents(record: Record, stores: Stores) -> dict[Cid, tuple[Cid, ...]]:
    found = {d.descriptor.cid: d.descriptor.parents for d in record.deliveries if d.descriptor}
    for store in stores.values():
        for topic in store.topics():
            found.update((event.cid, event.parents) for event in read_all(store, topic))
    return found


def _note_ancestors(
    event: SealedEvent, parents: Mapping[Cid, tuple[Cid, ...]], past: dict[Cid, Cid]
) -> None:
    """Add an event's ancestors to those of the events before it, with the event's name."""
    ahead = list(event.parents)
    while ahead:
        cid = ahead.pop()
        if cid not in past:
            past[cid] = event.cid
            ahead += parents.get(cid, ())


def check_complete_streams(
    states: Mapping[int, PeerState], at_ms: int, honest: int | None = None
) -> list[str]:
    """After a quiet time, no event waits for a parent and no peer is still reading: a peer looks
    for missing parents until they come or are given up. A hostile publisher (those have the numbers
    from `honest` on) may withhold parents of its own events, which are given up only after minutes:
    its events may still wait."""
    return [
        f"peer {peer} at {at_ms} ms: {stream.waiting} events of {topic} wait for "
        f"{stream.missing} that are missing" + (", and it is still reading" * stream.reading)
        for peer, state in states.items()
        for topic, stream in state.streams.items()
        if stream.reading or ((stream.waiting or stream.missing) and not _withheld(stream, honest))
    ]


def _withheld(stream: StreamState, honest: int | None) -> bool:
    """Whether all waiting events are of hostile publishers."""
    return honest is not None and all(one >= honest for one in stream.publishers)


def check_answered(record: Record, stores: Stores) -> list[str]:
    """A publish that was answered has its event in the publisher's store, also after crashes."""
    violations = []
    payloads: dict[tuple[int, Topic], set[bytes]] = {}
    for publication in record.publications.values():
        outcomes = [answer.outcome for _, answer in publication.answers]
        if not any(outcome not in ("failed", "refused") for outcome in outcomes):
            continue
        key = publication.peer, publication.topic
        if key not in payloads:
            store = stores[publication.peer]
            payloads[key] = {event.payload for event in read_all(store, publication.topic)}
        if publication.payload not in payloads[key]:
            violations.append(
                f"peer {publication.peer} published in {publication.topic} at "
                f"{publication.at_ms} ms, was told {outcomes[0]} and does not have the event"
            )
    return violations
