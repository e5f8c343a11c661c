"""Judges of what applications saw: which events they got, how often, and in which order.

They know only the `Record` of an outside observer, nothing of the machines under test. Each returns
a sentence for each violation, which names the peer, the topic, the event and the time. `state.py`
judges the state inside peers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from weft.ids import PeerId, Topic, peer_number
from weft.sim.faults import Episode
from weft.sim.record import Delivery, EventKey, Parasite, Publication, Record, Stay, event_key

FINAL_OUTCOMES = ("delivered", "no_subscriber", "dropped")

LIARS_ASKED = 20
"""A publisher that is not subscribed asks so many peers that say they are in a topic, if there are
as many (SECURITY.md): fewer liars cannot be all of them."""


def event_text(key: EventKey) -> str:
    topic, publisher, incarnation, number = key
    return f"event {number} of peer {peer_number(publisher)} (life {incarnation}) in {topic}"


# --- every live subscriber gets every event ---------------------------------------------------


@dataclass(frozen=True)
class _Known:
    """An event that the network must not lose, and why."""

    published_ms: int
    because: str


def check_complete(
    record: Record,
    receipts: bool = False,
    liars: int = 0,
    captured: Collection[Topic] = (),
    cuts: Collection[Episode] = (),
    held_ms: int = 0,
) -> list[str]:
    """A peer that subscribed before an event was published and stayed until the end has got it.

    This is required of an event that some peer still holds: a peer that delivered it to its own
    application and has stayed subscribed since, or an access point that accepted it and has stayed.
    If all holders of an event went down or left, it is lost under any protocol.

    With `receipts`, for runs with hostile peers, it is also required of an event whose publisher
    lives and was told by another peer that it is delivered. (A member that publishes is told by
    itself, at once: it counts as a holder, as above.) A receipt counts for nothing if the `liars`
    are so many that they may be all peers that a publisher asks, and more than the topic's members;
    and during one of the `cuts` if it was true and all members that got the event have left since:
    they may have been all members on their side. Where no member was on the publisher's side, but
    a liar, or a peer that routes for members as Pulsarcast's roots do, the event is held for
    `held_ms`, and nothing is required if the cut goes on for longer. Nothing is required in topics
    that hostile peers have `captured`.
    """
    deliveries = record.deliveries_by_event()
    lasting = record.lasting_stays()
    known = _known_events(record, deliveries, lasting)
    if receipts:
        for key, told, publisher in _receipts(record):
            # What somebody got that still holds it is known already.
            at_ms = told.published_ms
            during = [cut for cut in cuts if cut.start_ms <= at_ms <= cut.end_ms]
            left = bool(during and deliveries.get(key))
            alone = any(
                cut.end_ms > at_ms + held_ms and _is_alone(record, key[0], publisher, at_ms, cut)
                for cut in during
            )
            if not left and not alone and not _outnumbered(record, key[0], at_ms, liars):
                known.setdefault(key, told)
    violations = []
    for key, reason in known.items():
        if key[0] in captured:
            continue
        got = {(d.peer, d.life) for d in deliveries.get(key, ())}
        for stay in lasting.get(key[0], ()):
            if not _is_owed(stay, reason.published_ms) or (stay.peer, stay.life) in got:
                continue
            violations.append(
                f"peer {stay.peer}, in {stay.topic} since {stay.joined_ms} ms, never got "
                f"{event_text(key)}, published at {reason.published_ms} ms, though {reason.because}"
            )
    return violations


def _is_owed(stay: Stay, published_ms: int) -> bool:
    return stay.joined_ms is not None and stay.joined_ms < published_ms


def _known_events(
    record: Record,
    deliveries: dict[EventKey, list[Delivery]],
    lasting: dict[Topic, list[Stay]],
) -> dict[EventKey, _Known]:
    published = {
        (p.topic, p.payload): p.at_ms for p in record.publications.values()
    }  # payloads are unique in a workload
    known: dict[EventKey, _Known] = {}
    for key, copies in deliveries.items():
        holders = {(stay.peer, stay.life): stay for stay in lasting.get(key[0], ())}
        for copy in copies:
            stay = holders.get((copy.peer, copy.life))
            if stay is not None and stay.start_ms <= copy.at_ms:
                because = f"peer {copy.peer} got it at {copy.at_ms} ms and holds it"
                known[key] = _Known(published[key[0], copy.event.payload], because)
                break
    for publication in record.publications.values():
        for key, accepted in _acceptances(record, publication, lasting):
            known.setdefault(key, accepted)
    return known


def _acceptances(
    record: Record, publication: Publication, lasting: dict[Topic, list[Stay]]
) -> Iterator[tuple[EventKey, _Known]]:
    """The events of receipts that name an access point which has stayed subscribed since."""
    for at_ms, answer in publication.answers:
        event = publication.event(answer)
        if answer.outcome != "delivered" or event is None or answer.contact is None:
            continue
        access_point = record.index_of(answer.contact.peer)
        for stay in lasting.get(publication.topic, ()):
            if stay.peer == access_point and stay.start_ms <= publication.at_ms:
                because = f"access point {access_point} had accepted it by {at_ms} ms and holds it"
                key = event_key(publication.topic, event)
                yield key, _Known(publication.at_ms, because)


def _members(record: Record, topic: Topic, at_ms: int) -> list[int]:
    """The peers that were subscribed then."""
    return [
        stay.peer
        for stay in record.stays
        if stay.topic == topic
        and stay.start_ms <= at_ms
        and (stay.end_ms is None or stay.end_ms >= at_ms)
    ]


def _is_alone(record: Record, topic: Topic, publisher: int, at_ms: int, cut: Episode) -> bool:
    """Whether the cut is between a publisher and all members of the topic."""
    sides = cut.partition
    return all(
        sides.cuts(publisher, member) or sides.cuts(member, publisher)
        for member in _members(record, topic, at_ms)
    )


def _outnumbered(record: Record, topic: Topic, at_ms: int, liars: int) -> bool:
    """Whether the liars are more than the topic's members then, and as many as a publisher asks."""
    return liars >= LIARS_ASKED and liars > len(_members(record, topic, at_ms))


def _receipts(record: Record) -> Iterator[tuple[EventKey, _Known, int]]:
    """Events whose publisher lives on and was told by another peer that they are delivered, and
    that publisher."""
    running = {(life.peer, life.number) for life in record.lives if life.end_ms is None}
    for publication in record.publications.values():
        if (publication.peer, publication.life) not in running:
            continue
        for at_ms, answer in publication.answers:
            event = publication.event(answer)
            if answer.outcome != "delivered" or event is None or answer.contact is None:
                continue
            if answer.contact.peer != event.publisher:
                because = f"its publisher was told at {at_ms} ms that it is delivered"
                told = _Known(publication.at_ms, because)
                yield event_key(publication.topic, event), told, publication.peer


# --- among honest peers, no peer is called a liar ---------------------------------------------


def check_believed(record: Record, forged: int) -> list[str]:
    """No peer reports that another signed two different things, or that a signature is wrong."""
    found = [f"peer {peer} warns at {at_ms} ms: {text}" for at_ms, peer, text in record.warnings]
    if forged:
        found.append(f"{forged} runs or statements were taken for forged")
    return found


# --- nothing in the name of an honest peer that it has not published --------------------------


def check_genuine(record: Record, honest: int) -> list[str]:
    """Events under the name of an honest peer (those have the first numbers) are its own."""
    return [
        f"peer {delivery.peer} was handed "
        f"{event_text(event_key(delivery.topic, delivery.event))} at {delivery.at_ms} ms, which "
        f"peer {record.index_of(delivery.event.publisher)} has never published"
        for delivery in record.deliveries
        if record.index_of(delivery.event.publisher) < honest and not record.is_genuine(delivery)
    ]


# --- only subscribers get one, and once -------------------------------------------------------


def check_only_subscribers(record: Record) -> list[str]:
    """No application gets an event of a topic that it is not subscribed to."""
    stays = record.stays_by_topic()
    violations = []
    for delivery in record.deliveries:
        if not any(_covers(stay, delivery) for stay in stays.get(delivery.topic, ())):
            text = event_text(event_key(delivery.topic, delivery.event))
            violations.append(
                f"peer {delivery.peer} was handed {text} at {delivery.at_ms} ms "
                "while it was not subscribed"
            )
    return violations


def _covers(stay: Stay, delivery: Delivery) -> bool:
    if (stay.peer, stay.life) != (delivery.peer, delivery.life):
        return False
    return stay.start_ms <= delivery.at_ms and (
        stay.end_ms is None or delivery.at_ms <= stay.end_ms
    )


def check_once(record: Record) -> list[str]:
    """No application gets the same event twice within one life."""
    violations = []
    for key, copies in record.deliveries_by_event().items():
        first: dict[tuple[int, int], Delivery] = {}
        for copy in copies:
            earlier = first.setdefault((copy.peer, copy.life), copy)
            if earlier is not copy:
                violations.append(
                    f"peer {copy.peer} was handed {event_text(key)} at {copy.at_ms} ms, "
                    f"and already at {earlier.at_ms} ms"
                )
    return violations


def check_in_order(record: Record) -> list[str]:
    """No application gets an event after a later one of the same publisher. Faults that delay an
    event for long may cause that (`protocol/delivery.py`), so only runs without faults are
    judged."""
    latest: dict[tuple[int, int, Topic, PeerId, int], int] = {}
    violations = []
    for one in record.deliveries:
        event = one.event
        key = one.peer, one.life, one.topic, event.publisher, event.incarnation
        if event.number < latest.get(key, 0):
            violations.append(
                f"peer {one.peer} was handed {event_text(event_key(one.topic, event))} at "
                f"{one.at_ms} ms, after number {latest[key]}"
            )
        latest[key] = max(latest.get(key, 0), event.number)
    return violations


# --- what was answered ----------------------------------------------------------------------------


def check_answers(record: Record, healed_ms: int, last_ms: int) -> list[str]:
    """Every publish ends in one final answer, every subscribe in an overlay; and once the
    network has healed, an event for a topic with subscribers finds them.

    `healed_ms` is when that may be expected; what a peer did later than `last_ms` had too little
    time before the end of the run, and is not judged.
    """
    running = {(life.peer, life.number) for life in record.lives if life.end_ms is None}
    violations = [
        f"peer {stay.peer} subscribed to {stay.topic} at {stay.start_ms} ms "
        "and was never told that it has joined"
        for stay in record.unfinished_stays()
        if stay.joined_ms is None and stay.start_ms < last_ms
    ]
    for publication in record.publications.values():
        if (publication.peer, publication.life) in running and publication.at_ms < last_ms:
            violations += _judge_answers(record, publication, healed_ms)
    return violations


def _judge_answers(record: Record, publication: Publication, healed_ms: int) -> list[str]:
    outcomes = [answer.outcome for _, answer in publication.answers]
    what = f"peer {publication.peer} published in {publication.topic} at {publication.at_ms} ms"
    final = [outcome for outcome in outcomes if outcome in FINAL_OUTCOMES]
    if len(final) != 1 or outcomes[-1] != final[0]:
        told = ", ".join(outcomes) or "nothing"
        return [f"{what} and was told {told}, not one final outcome"]
    if final[0] != "delivered" and publication.at_ms >= healed_ms:
        subscribers = sum(
            stay.topic == publication.topic and _is_owed(stay, healed_ms)
            for stay in record.unfinished_stays()
        )
        if subscribers:
            return [
                f"{what} and was told {final[0]}, though {subscribers} peers had been "
                f"subscribed since before {healed_ms} ms"
            ]
    return []


# --- no parasite messages -------------------------------------------------------------------------


def check_parasites(record: Record, grace_ms: int, healed_ms: int) -> list[str]:
    """Events travel only among a topic's subscribers.

    A peer that never subscribed is never sent an event. A peer that unsubscribed may still be sent
    events by peers that do not know it yet; it tells them again. So from `grace_ms` after the end
    of the subscription on, each sender may err once; more often only before `healed_ms`, while
    messages that tell it may get lost.
    """
    stays = record.stays_by_topic()
    told_ms: dict[tuple[int, int, Topic], int] = {}
    violations = []
    for parasite in record.parasites:
        ended_ms = _latest_end(stays.get(parasite.topic, []), parasite)
        if ended_ms is not None and parasite.at_ms <= ended_ms + grace_ms:
            continue
        link = (parasite.sender, parasite.peer, parasite.topic)
        warned_ms = told_ms.get(link, -1)
        if parasite.at_ms >= healed_ms:
            told_ms.setdefault(link, parasite.at_ms)
        if ended_ms is not None and (
            warned_ms <= ended_ms or parasite.at_ms <= warned_ms + grace_ms
        ):
            continue
        since = f"unsubscribed since {ended_ms} ms" if ended_ms is not None else "never subscribed"
        violations.append(
            f"peer {parasite.peer}, {since}, was sent a {parasite.kind} of {parasite.topic} "
            f"by peer {parasite.sender} at {parasite.at_ms} ms"
        )
    return violations


def _latest_end(stays: list[Stay], parasite: Parasite) -> int | None:
    """When the peer's last subscription before the message ended; None: there was none."""
    ends = [stay.end_ms for stay in stays if stay.peer == parasite.peer and stay.end_ms is not None]
    return max((end_ms for end_ms in ends if end_ms <= parasite.at_ms), default=None)


# --- hierarchies ------------------------------------------------------------------------------
#
# An event counts in its topic and in those above it up to the root, and nowhere else, and every
# subscriber learns where it was published. The functions above judge each topic by itself: that its
# subscribers get the event, and once. `expected_levels` does not use the rules under test.


def expected_levels(topic: str, roots: Iterable[str]) -> list[str]:
    """A topic and every shorter path that is a root or lies below one."""
    segments = topic.split("/")
    paths = ["/".join(segments[:length]) for length in range(len(segments), 1, -1)]
    starts = [f"{root.rstrip('/')}/" for root in roots]
    inside = {path for path in paths for start in starts if f"{path}/".startswith(start)}
    return [path for path in paths if path == topic or path in inside]


def check_levels(
    record: Record, published: Mapping[bytes, Topic], roots: Iterable[str]
) -> list[str]:
    """`published` has for each payload the topic that its user named."""
    roots = list(roots)
    violations = []
    found: dict[tuple[int, bytes], list[Topic]] = defaultdict(list)
    for publication in record.publications.values():
        found[publication.peer, publication.payload].append(publication.topic)
    for (peer, payload), topics in found.items():
        expected = expected_levels(published[payload], roots)
        if sorted(topics) != sorted(expected):
            violations.append(
                f"peer {peer} published in {published[payload]}, and that went to "
                f"{', '.join(topics)} instead of {', '.join(expected)}"
            )
    for delivery in record.deliveries:
        named = published[delivery.event.payload]
        if delivery.topic not in expected_levels(named, roots):
            violations.append(
                f"peer {delivery.peer} was handed an event of {named} in {delivery.topic} "
                f"at {delivery.at_ms} ms"
            )
        elif (delivery.published_in or delivery.topic) != named:
            violations.append(
                f"peer {delivery.peer} was told at {delivery.at_ms} ms that an event of {named} "
                f"was published in {delivery.published_in or delivery.topic}"
            )
    return violations
