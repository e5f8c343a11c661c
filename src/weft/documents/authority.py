"""Which peers may publish in a topic and ask for a sub-topic of it (paper 004, Section 4.5).

Everything here judges documents that `descriptor` has already found whole and truly signed, and
answers with a `Reason`, or None where all is well.

Revoking a publisher must not undo history, and a revoked publisher must not slip new events in
under an old version of the topic. So an event is judged by the version it links to, and one that no
other event vouches for by the newest version as well. An accepted event vouches for its ancestors:
their CIDs are in it, so what was history when the owners revoked stays history.

Which version is the newest, and whose word counts there, is `protocol/history/ownership.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.documents.descriptor import SealedEvent, TopicVersion
from weft.documents.refusal import Reason
from weft.ids import PeerId, Topic
from weft.rules.hierarchy import ORIGIN, is_sub_topic, may_come_from


def may_publish(publisher: PeerId, topic: TopicVersion) -> bool:
    """Owners always may; others if they are named, or if anyone may."""
    return topic.allowed is None or publisher in topic.allowed or publisher in topic.owners


def judge_event(
    event: SealedEvent,
    topic: Topic,
    linked: TopicVersion | None,
    newest: TopicVersion | None,
    vouched: bool,
) -> Reason | None:
    """Whether an event belongs in a topic's stream.

    `linked` is the version the event names, `newest` the newest that is known (None: not at hand,
    or nobody owns the topic), `vouched` whether an accepted event names this one as its parent.
    """
    if event.topic != topic:
        return Reason.WRONG_TOPIC
    if event.link is None:  # a topic without owners, unless it has some by now
        return Reason.NOT_ALLOWED if newest is not None and not vouched else None
    if linked is None:
        return Reason.UNKNOWN_TOPIC
    if linked.cid != event.link or linked.name != topic:
        return Reason.WRONG_TOPIC
    if not may_publish(event.publisher, linked):
        return Reason.NOT_ALLOWED
    if newest is not None and not vouched and not may_publish(event.publisher, newest):
        return Reason.NOT_ALLOWED
    return None


def judge_origin(event: SealedEvent, roots: Iterable[str], vouched: bool) -> Reason | None:
    """Whether an event can have climbed from where it says. Hierarchies come and go, so history
    is asked for no more than a sub-topic."""
    claim = event.metadata.get(ORIGIN)
    if claim is None:
        return None
    topic = event.topic
    fits = is_sub_topic(claim, topic) if vouched else may_come_from(topic, claim, roots)
    return None if fits else Reason.OUTSIDE_HIERARCHY


def sub_topic_segment(parent: Topic, name: Topic) -> str | None:
    """The key under `#` for a sub-topic, or None if the name does not extend the parent's path
    by one segment."""
    start = parent + "/"
    segment = name.removeprefix(start)
    return segment if name.startswith(start) and "/" not in segment else None


def judge_sub_topic_request(parent: TopicVersion, asker: PeerId, segment: str) -> Reason | None:
    """Whether a peer that does not own a topic may ask for a sub-topic: a peer that may publish in
    it may, for one segment of a path that does not hang there yet."""
    if sub_topic_segment(parent.name, Topic(f"{parent.name}/{segment}")) != segment or not segment:
        return Reason.OUTSIDE_PARENT
    if not may_publish(asker, parent):
        return Reason.NOT_ALLOWED
    return Reason.WRONG_TOPIC if segment in parent.sub_topics else None
