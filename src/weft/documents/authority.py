"""Which peers may publish in a topic, write its next version and ask for a sub-topic of it (paper
004, Section 4.5).

Everything here judges documents that `descriptor` has already found whole and truly signed, and
answers with a `Reason`, or None where all is well.

A topic is owned where its *holders* are known: the keys whose word counts in it. How a peer comes
to know them is `protocol/history/versions.py`; here they are given. In a topic without known
holders anyone may publish.

Revoking a publisher must not undo history, and a revoked publisher must not slip new events in
under an old version of the topic. So an event is judged by the version it links to, and one that no
other event vouches for by the newest version as well. An accepted event vouches for its ancestors,
since it names them by CID; so events that were history when the owners revoked stay history.

Holders that change a topic at once make two versions after the same one. Neither is lost: a third
follows one of them, names the other (`MERGES`) and has the changes of both (`merged`). Where they
contradict each other the narrower right stands: a revocation is never undone by another owner's
change.

Anyone may make a topic from another's descriptor (Section 4.5). The versions of such a topic name
that descriptor and the heads of its stream then (`MadeFrom`), so that its history is theirs, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from weft.documents.dagcbor import Scalar
from weft.documents.descriptor import SealedEvent, TopicVersion
from weft.documents.refusal import Reason
from weft.documents.shape import ALLOWED_MAX, SUB_TOPICS_MAX
from weft.ids import BadId, Cid, PeerId, Topic, cid_text, parse_cid, parse_topic
from weft.rules.hierarchy import ORIGIN, is_sub_topic, may_come_from

MERGES = "merges"
"""Metadata of a topic version: the CID, as text, of a version beside its parent whose changes it
has taken over."""

FROM, FROM_VERSION, FROM_HEADS = "from", "from_version", "from_heads"
"""Metadata of a topic version: the name of the topic that this one was made from, the CID of its
version, and those of its stream's heads, all as text and with spaces between heads."""
HEADS_NAMED_MAX = 16
"""As many as an event names as its parents: the next event names the others."""

Allowed = tuple[PeerId, ...] | None
"""The peers that may publish beside the owners; None: anyone."""


def may_publish(publisher: PeerId, topic: TopicVersion) -> bool:
    """Owners always may; others if they are named, or if anyone may."""
    return topic.allowed is None or publisher in topic.allowed or publisher in topic.owners


def judge_event(
    event: SealedEvent,
    topic: Topic,
    holders: tuple[PeerId, ...] | None,
    linked: TopicVersion | None,
    newest: TopicVersion | None,
    vouched: bool,
) -> Reason | None:
    """Whether an event belongs in a topic's stream.

    `linked` is the version the event names, `newest` the newest that is known (None: not at hand)
    and not older than `linked`, `vouched` whether an accepted event names this one as its parent.
    """
    if event.topic != topic:
        return Reason.WRONG_TOPIC
    if holders is None:
        return None
    if event.link is None:  # holders may publish without a version, and history may have none
        return None if vouched or event.publisher in holders else Reason.NOT_ALLOWED
    if linked is None:
        return Reason.UNKNOWN_TOPIC
    if linked.cid != event.link or linked.name != topic:
        return Reason.WRONG_TOPIC
    if linked.author not in holders and not vouched:
        return Reason.NOT_OWNER
    if not may_publish(event.publisher, linked):
        return Reason.NOT_ALLOWED
    if newest is not None and not vouched and not may_publish(event.publisher, newest):
        return Reason.NOT_ALLOWED
    return None


# --- versions -------------------------------------------------------------------------------------


def judge_version(version: TopicVersion, before: TopicVersion) -> Reason | None:
    """Whether a topic version is a successor of `before`: of the same topic, naming it as its
    parent or as the one it merges, by one of its owners, with the same owners.

    Anyone may start a topic of their own from another's (Section 4.5); that is a valid document,
    but not a new version of the other's topic.
    """
    if version.name != before.name or before.cid not in (version.parent, merges(version)):
        return Reason.WRONG_TOPIC
    by_owner = version.author in before.owners and version.owners == before.owners
    return None if by_owner else Reason.NOT_OWNER


def merges(version: TopicVersion) -> Cid | None:
    """The version beside its parent whose changes a version has taken over."""
    named = version.metadata.get(MERGES)
    try:
        return parse_cid(named) if isinstance(named, str) else None
    except BadId:
        return None


class MadeFrom(NamedTuple):
    """Another topic, as it stood when a topic was made from it."""

    topic: Topic
    version: Cid
    heads: tuple[Cid, ...]

    def metadata(self) -> dict[str, Scalar]:
        named = {FROM: self.topic, FROM_VERSION: cid_text(self.version)}
        heads = " ".join(map(cid_text, self.heads))
        return {**named, **({FROM_HEADS: heads} if heads else {})}


def made_from(version: TopicVersion) -> MadeFrom | None:
    """What a topic was made from, by its owners' word."""
    texts = [version.metadata.get(name, "") for name in (FROM, FROM_VERSION, FROM_HEADS)]
    topic, cid, heads = (text if isinstance(text, str) else "" for text in texts)
    try:
        named = tuple(map(parse_cid, heads.split()[:HEADS_NAMED_MAX]))
        return MadeFrom(parse_topic(topic), parse_cid(cid), named)
    except BadId:
        return None


class Merged(NamedTuple):
    """The rights and sub-topics of a version that has the changes of two others."""

    allowed: Allowed
    sub_topics: dict[str, Cid]


def merged(base: TopicVersion | None, one: TopicVersion, other: TopicVersion) -> Merged:
    """The changes of `one` on top of `other`, both made after `base`. Where they contradict each
    other, the sub-topics of `other` stand, and the narrower rights."""
    before = base.allowed if base is not None else None
    allowed = _merged_allowed(before, one.allowed, other.allowed)
    sub_topics = {**one.sub_topics, **other.sub_topics}
    if len(sub_topics) > SUB_TOPICS_MAX:
        sub_topics = dict(other.sub_topics)
    return Merged(allowed, sub_topics)


def _merged_allowed(base: Allowed, one: Allowed, other: Allowed) -> Allowed:
    given = [allowed for allowed in (one, other) if allowed is not None]
    if base is None:  # both restricted it, one did, or none
        return _first_keys(peer for allowed in given for peer in allowed) if given else None
    revoked = {peer for allowed in given for peer in base if peer not in allowed}
    if len(given) < 2 and not revoked:  # one let anyone publish, and nothing speaks against it
        return None
    kept = (peer for peer in base if peer not in revoked)
    added = (peer for allowed in given for peer in allowed if peer not in base)
    return _first_keys((*kept, *added))


def _first_keys(keys: Iterable[PeerId]) -> tuple[PeerId, ...]:
    """Each once, ascending, no more than a version may name."""
    return tuple(sorted(list(dict.fromkeys(keys))[:ALLOWED_MAX]))


def is_revoked(publisher: PeerId, base: TopicVersion, version: TopicVersion) -> bool:
    """Whether a version made after `base` takes a peer's right to publish away."""
    return may_publish(publisher, base) and not may_publish(publisher, version)


# --- where events come from -----------------------------------------------------------------------


def judge_origin(event: SealedEvent, roots: Iterable[str], vouched: bool) -> Reason | None:
    """Whether an event can have climbed from where it says. Hierarchies come and go, so a vouched
    event need only come from a sub-topic."""
    claim = event.metadata.get(ORIGIN)
    if claim is None:
        return None
    topic = event.topic
    fits = is_sub_topic(claim, topic) if vouched else may_come_from(topic, claim, roots)
    return None if fits else Reason.OUTSIDE_HIERARCHY


# --- sub-topics -----------------------------------------------------------------------------------


def sub_topic_segment(parent: Topic, name: Topic) -> str | None:
    """The key under `#` for a sub-topic, or None if the name does not extend the parent's path
    by one segment."""
    start = parent + "/"
    segment = name.removeprefix(start)
    return segment if name.startswith(start) and "/" not in segment else None


def judge_sub_topic_request(parent: TopicVersion, asker: PeerId, segment: str) -> Reason | None:
    """Whether a peer that does not own a topic may ask for a sub-topic: it must be allowed to
    publish in the topic, and name one segment of a path that does not hang there yet."""
    if sub_topic_segment(parent.name, Topic(f"{parent.name}/{segment}")) != segment or not segment:
        return Reason.OUTSIDE_PARENT
    if not may_publish(asker, parent):
        return Reason.NOT_ALLOWED
    return Reason.WRONG_TOPIC if segment in parent.sub_topics else None


def judge_sub_topic(parent: TopicVersion, segment: str, child: TopicVersion) -> Reason | None:
    """Whether what hangs under `#/<segment>` is the sub-topic of that name."""
    if parent.sub_topics.get(segment) != child.cid:
        return Reason.WRONG_TOPIC
    if sub_topic_segment(parent.name, child.name) != segment:
        return Reason.OUTSIDE_PARENT
    return None
