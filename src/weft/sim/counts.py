"""The figures of a run: how many messages of which kind, and what a delivery cost."""

from __future__ import annotations

from weft.protocol import messages as m
from weft.sim.world import World


def count(world: World) -> dict[str, object]:
    """What happened in the world so far.

    A copy is an event inside a message that a peer handled, however it came there: routed, pushed
    or repaired. A delivery here is one to a peer that did not publish the event itself, so the
    least possible is one copy per delivery.
    """
    record, network = world.record, world.network
    remote = sum(d.peer != record.index_of(d.event.publisher) for d in record.deliveries)
    sent = {kind.__name__: number for kind, number in world.sent.items()}
    payload_kinds = {kind.__name__ for kind in m.PAYLOAD_KINDS}
    control = sum(number for kind, number in sent.items() if kind not in payload_kinds)
    outcomes: dict[str, int] = {}
    for publication in record.publications.values():
        for _, answer in publication.answers[-1:]:
            outcomes[answer.outcome] = outcomes.get(answer.outcome, 0) + 1
    return {
        "virtual_ms": world.now_ms,
        "messages": dict(sorted(sent.items())),
        "sent": sum(sent.values()),
        "handled": world.handled,
        "facts": world.facts,
        "undelivered": world.dropped,
        "lost": network.lost,
        "cut": network.cut,
        "duplicated": network.duplicated,
        "published": len(record.publications),
        "outcomes": dict(sorted(outcomes.items())),
        "delivered": len(record.deliveries),
        "delivered_remotely": remote,
        "copies": world.copies,
        "duplicates": world.copies - remote,
        "payload_copies_per_delivery": _ratio(world.copies, remote),
        "control_per_delivery": _ratio(control, remote),
    }


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
