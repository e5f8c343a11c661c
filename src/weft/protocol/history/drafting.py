"""What the next version of an owned topic says, and the record that makes it the newest (paper
004, Sections 4.1 and 4.5). `ownership.py` stores both and tells others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from weft.documents import record as records
from weft.documents.authority import sub_topic_segment
from weft.documents.dagcbor import Scalar
from weft.documents.descriptor import TopicVersion, seal_topic
from weft.documents.record import Record
from weft.documents.refusal import Reason, Refused
from weft.documents.signing import Signer
from weft.ids import Cid, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.history.versions import Versions
from weft.protocol.seam import ChangeTopic
from weft.rules.hierarchy import ROOT, root_in

Metadata: TypeAlias = Mapping[str, Scalar]


class Drafting:
    """Writes and signs versions and records of the topics that this peer holds."""

    def __init__(self, ctx: Context, sign: Signer, versions: Versions) -> None:
        self._ctx = ctx
        self._sign = sign
        self._versions = versions

    def record(
        self, topic: Topic, holders: tuple[PeerId, ...], value: Cid, sequence: int
    ) -> Record:
        """The word of this peer that `value` is the topic's newest version."""
        return records.seal(
            self._sign,
            signer=self._ctx.me.peer,
            holders=holders,
            topic=topic,
            value=value,
            sequence=sequence,
            now_ms=self._ctx.wall_ms,
        )

    def next_versions(self, command: ChangeTopic, holds: bool) -> list[TopicVersion]:
        """The versions to write, the topic's own last; `Refused` if it cannot be. `holds`: this
        peer may write them."""
        topic, me = command.topic, self._ctx.me.peer
        current = self._versions.newest(topic)
        if command.create:
            if current is not None:
                raise Refused(Reason.NOT_OWNER, f"{topic} has an owner already")
            owners: tuple[PeerId, ...] = (me, *command.owners)
            allowed = None if command.anyone else command.allow
            metadata: Metadata = {ROOT: topic} if command.hierarchy else {}
            return [self._seal(topic, owners, allowed, {}, None, metadata)]
        if current is None:
            raise Refused(Reason.UNKNOWN_TOPIC, f"no version of {topic} is known here")
        if not holds:
            raise Refused(Reason.NOT_OWNER, f"another peer holds {topic}")
        allowed = self._next_allowed(command, current)
        sub_topics, first = dict(current.sub_topics), []
        if command.sub_topic:
            child, made = self._child(topic, command.sub_topic, current)
            sub_topics[command.sub_topic] = child
            first = made
        version = self._seal(
            topic, current.owners, allowed, sub_topics, current.cid, current.metadata
        )
        return [*first, version]

    def _next_allowed(
        self, command: ChangeTopic, current: TopicVersion
    ) -> tuple[PeerId, ...] | None:
        """Who may publish from now on."""
        allowed = current.allowed
        if command.anyone:
            return None
        if command.anyone is False and allowed is None:
            allowed = ()
        if (command.allow or command.revoke) and allowed is None:
            raise Refused(
                Reason.BAD_SHAPE, f"anyone may publish in {current.name}: restrict it first"
            )
        if allowed is None:
            return None
        for peer in command.revoke:
            if peer in current.owners:
                raise Refused(Reason.NOT_ALLOWED, "an owner's right to publish cannot be revoked")
        wanted = dict.fromkeys((*allowed, *command.allow))
        return tuple(peer for peer in wanted if peer not in command.revoke)

    def _child(
        self, topic: Topic, segment: str, parent: TopicVersion
    ) -> tuple[Cid, list[TopicVersion]]:
        """A sub-topic's version: the newest one known, or a first one made for it."""
        name = Topic(f"{topic}/{segment}")
        if sub_topic_segment(topic, name) != segment:
            raise Refused(Reason.OUTSIDE_PARENT, f"{segment!r} is not one segment of a path")
        known = self._versions.newest(name)
        if known is not None:
            if parent.sub_topics.get(segment) == known.cid:
                raise Refused(Reason.WRONG_TOPIC, f"{name} hangs there already")
            return known.cid, []
        root = root_in(parent.metadata, topic)
        metadata: Metadata = {ROOT: root} if root is not None else {}
        made = self._seal(name, parent.owners, parent.allowed, {}, None, metadata)
        return made.cid, [made]

    def _seal(
        self,
        topic: Topic,
        owners: Sequence[PeerId],
        allowed: Sequence[PeerId] | None,
        sub_topics: dict[str, Cid],
        parent: Cid | None,
        metadata: Metadata,
    ) -> TopicVersion:
        return seal_topic(
            self._sign,
            author=self._ctx.me.peer,
            name=topic,
            created_ms=max(0, self._ctx.wall_ms),
            owners=owners,
            allowed=allowed,
            sub_topics=sub_topics,
            parent=parent,
            metadata=metadata,
        )
