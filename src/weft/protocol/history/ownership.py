"""Owned topics: which version is the newest, who may publish and who may change it, and how every
peer learns of it (paper 004, Sections 4.1 and 4.5).

A topic that nobody owns has no versions, and anyone may publish in it. An owned topic's events link
to a version (`documents/authority.py` says how they are judged); a version that is not at hand is
fetched like any block, and the events that link to it wait for it (`Versions`).

A topic's holders write its versions; a signed record (`documents/record.py`) says which is the
newest (`Ownership`). A peer that adopts a newer record stores it and passes it on to the members it
knows, so a change runs through the topic like an event; members compare sequences whenever they
tell their heads, which mends what got lost. With a DHT, holders put record and version there and
renew them, and a peer that follows a topic without being subscribed finds them there.

Whose word counts in a topic?

- a peer that is told its holders (`FollowTopic`), or that made it, believes these and no others;
- a peer that has adopted a record believes the same holders from then on, also after a restart;
- a peer that knows neither believes the first record it hears, unless the stream it has is one that
  nobody owns: nobody can make a topic theirs that others use already.

A peer that may publish in a topic may ask for a sub-topic of it (`Wishes`). An owner either lets
every such wish come true (`accept_sub_topics`), or keeps it until its user adds the sub-topic, or
says no. The asker hears what came of it; that the sub-topic hangs there it hears like all members,
by the topic's news. Owners are asked one after another: those known as members, then those that
the DHT finds.

Deviation: the paper names a topic by its CID, which fixes its owner. Names are what people share,
so the first peer that claims a name has it; give the holders' keys where that matters.

Invariants: a version is known only if it is whole and truly signed; the events that wait for one
are bounded in number and bytes. At most `_WISHES_MAX` wishes are kept per topic, `_WISHES_EACH_MAX`
of one asker, in at most `_TOPICS_MAX` topics; they are not stored, so after a restart they have to
be made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta

from weft.bounded import BoundedDict
from weft.documents import record as records
from weft.documents.authority import (
    judge_event,
    judge_origin,
    judge_sub_topic_request,
    may_publish,
    sub_topic_segment,
)
from weft.documents.dagcbor import Scalar
from weft.documents.descriptor import SealedEvent, TopicVersion, known_event, open_topic, seal_topic
from weft.documents.record import RECORD_BYTES_MAX, Record
from weft.documents.refusal import Reason, Refused
from weft.documents.signature import Signer
from weft.ids import GENERAL, Cid, Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context
from weft.protocol.history.fetch import Fetch, block_key_of
from weft.protocol.history.storage import Storage
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.seam import (
    Answer,
    AskSubTopic,
    ChangeTopic,
    DhtFindPeer,
    DhtGet,
    DhtPut,
    FollowTopic,
    Outcome,
)
from weft.protocol.wire import Counter, Message
from weft.rules.hierarchy import ROOT, above, is_below, root_in
from weft.rules.prefix import record_key
from weft.store.interface import Store

SEGMENT_MAX = 254
"""A topic has 256 bytes at most, two of them before the first segment and between two."""
REASON_MAX = 200
"""guess: a sentence."""


class TopicNews(Message, frozen=True, tag=65):
    """A topic record: which version of a topic is the newest. A peer that adopts it passes it
    on."""

    topic: WireTopic
    record: Annotated[bytes, Meta(max_length=RECORD_BYTES_MAX)]


class SubTopicRequest(Message, frozen=True, tag=66):
    """To an owner of the topic: please hang this sub-topic under it."""

    topic: WireTopic
    request: Counter
    segment: Annotated[str, Meta(max_length=SEGMENT_MAX)]


class SubTopicReply(Message, frozen=True, tag=67):
    topic: WireTopic
    request: Counter
    granted: bool
    waits: bool  # until the owner's user agrees
    reason: Annotated[str, Meta(max_length=REASON_MAX)]  # why not


RENEW = "history.topics"
ASK = "history.ask"

_KNOWN_MAX = 1_024
"""guess: versions kept at hand; others are read from the store again."""
_FOLLOWED_MAX = 4_096
"""guess: topics of which holders or records are known."""
_WISHES_MAX = 64
_WISHES_EACH_MAX = 8
_TOPICS_MAX = 256
_ASKING_MAX = 64
"""guess, all four: this is about people."""

_WHY = {
    Reason.OUTSIDE_PARENT: "that is not one segment of a path",
    Reason.NOT_ALLOWED: "only a peer that may publish in the topic may ask for sub-topics",
    Reason.WRONG_TOPIC: "it hangs there already",
}

Members: TypeAlias = Callable[[Topic], list[Contact]]
"""Members of a topic that this peer knows, those to ask first in front."""
Waiting: TypeAlias = tuple[SealedEvent, Contact | None, int]
"""An event, the peer that brought it, and its hops."""


# --- versions -------------------------------------------------------------------------------------


class Versions:
    """The topic versions that one peer knows, and the events that wait for others."""

    def __init__(self, ctx: Context, stored: Callable[[Cid], bytes | None]) -> None:
        self._ctx = ctx
        self._stored = stored
        self._known: BoundedDict[Cid, TopicVersion] = BoundedDict(_KNOWN_MAX)
        self._newest: dict[Topic, TopicVersion] = {}
        self._held: dict[Cid, list[Waiting]] = {}
        self.held_count = 0
        self.held_bytes = 0

    def get(self, cid: Cid) -> TopicVersion | None:
        version = self._known.get(cid)
        if version is None:
            block = self._stored(cid)
            if block is not None:
                try:
                    version = open_topic(block, cid)
                except Refused:
                    return None
                self.note(version)
        return version

    def note(self, version: TopicVersion) -> None:
        self._known[version.cid] = version

    def block(self, cid: Cid) -> bytes | None:
        """A version that is at hand, stored or not yet."""
        version = self._known.get(cid)
        return version.block if version is not None else None

    def newest(self, topic: Topic) -> TopicVersion | None:
        return self._newest.get(topic)

    def link(self, topic: Topic) -> Cid | None:
        """What an event published now links to."""
        version = self._newest.get(topic)
        return version.cid if version is not None else None

    def set_newest(self, version: TopicVersion) -> None:
        """A topic record says that this is the newest version."""
        self.note(version)
        self._newest[version.name] = version

    def forget_newest(self, topic: Topic) -> None:
        """What was believed to be the newest is not believed any more."""
        self._newest.pop(topic, None)

    # --- judging events ---------------------------------------------------------------------------

    def refuses_me(self, topic: Topic) -> bool:
        """Whether this peer may not publish in a topic, as far as it knows."""
        return self.refuses(topic, self._ctx.me.peer)

    def refuses(self, topic: Topic, publisher: PeerId) -> bool:
        """The same of any publisher, by the newest version known."""
        version = self._newest.get(topic)
        return version is not None and not may_publish(publisher, version)

    def needed(self, event: SealedEvent) -> Cid | None:
        """The version that must be fetched before the event can be judged."""
        return event.link if event.link is not None and self.get(event.link) is None else None

    def judge(self, event: SealedEvent, vouched: bool) -> Reason | None:
        """Why an event may not be in its stream; `vouched`: an accepted event names it."""
        linked = self.get(event.link) if event.link is not None else None
        newest = self._newest.get(event.topic)
        reason = judge_event(event, event.topic, linked, newest, vouched)
        return reason or judge_origin(event, self._roots(linked), vouched)

    def _roots(self, version: TopicVersion | None) -> tuple[str, ...]:
        """The hierarchies that a topic may be in: those of the settings, and its owners'."""
        roots = self._ctx.config.hierarchies
        owners = root_in(version.metadata, version.name) if version is not None else None
        return roots if owners is None else (*roots, owners)

    def levels(self, topic: Topic) -> list[Topic]:
        """The topics that an event published now counts in."""
        return above(topic, self._roots(self._newest.get(topic)))

    def lacks_level(self, topic: Topic, origin: Topic) -> bool:
        """Whether an event cannot climb to `topic`, which has owners as the sub-topic it comes
        from has, because no version of it is known to link to."""
        version = self._newest.get(origin)
        owned = version is not None and root_in(version.metadata, origin) is not None
        return owned and topic not in self._newest

    # --- events that wait for a version -----------------------------------------------------------

    def hold(self, version: Cid, event: SealedEvent, source: Contact | None, hops: int) -> None:
        """Keep an event until the version it links to has come."""
        limits = self._ctx.config.history
        waiting = self._held.setdefault(version, [])
        if any(other.cid == event.cid for other, _, _ in waiting):
            return
        size = self.held_bytes + len(event.block)
        if self.held_count >= limits.held_max or size > limits.waiting_bytes_max:
            self._ctx.counters["history_held_dropped"] += 1
            return
        waiting.append((event, source, hops))
        self.held_count += 1
        self.held_bytes = size

    def expects(self, cid: Cid) -> bool:
        return cid in self._held

    def expected(self, topic: Topic) -> list[Cid]:
        """The versions that events of a topic wait for."""
        return [cid for cid, held in self._held.items() if held and held[0][0].topic == topic]

    def released(self, cid: Cid) -> list[Waiting]:
        """The events that waited for a version, which has come or will not."""
        waiting = self._held.pop(cid, [])
        self.held_count -= len(waiting)
        self.held_bytes -= sum(len(event.block) for event, _, _ in waiting)
        return waiting

    def forget_topic(self, topic: Topic) -> None:
        """This peer has no use for its events any more."""
        for cid in self.expected(topic):
            self.released(cid)


# --- records --------------------------------------------------------------------------------------


class Ownership:
    """The records that one peer believes, and the topics it holds."""

    def __init__(
        self,
        ctx: Context,
        library: Store,
        sign: Signer,
        versions: Versions,
        fetch: Fetch,
        storage: Storage,
        members: Members,
        dht: Kademlia | None,
    ) -> None:
        self._ctx = ctx
        self._library = library
        self._sign = sign
        self._versions = versions
        self._fetch = fetch
        self._storage = storage
        self._members = members
        self._dht = dht
        self._records: dict[Topic, Record] = {}
        self._holders: dict[Topic, tuple[PeerId, ...]] = {}  # as the user of this peer said
        self._coming: dict[Cid, tuple[Record, Contact | None]] = {}  # their versions are fetched
        for encoded in library.records().values():
            self._remember(records.read_record(encoded))

    def start(self) -> None:
        self._ctx.set_timer(self._ctx.config.history.topics_every_ms, RENEW, GENERAL)

    def _remember(self, record: Record) -> None:
        """A record of an earlier life; of two for one topic the later stands."""
        held = self._records.get(record.topic)
        version = self._versions.get(record.value)
        if version is not None and (held is None or held.rank < record.rank):
            self._records[record.topic] = record
            self._versions.set_newest(version)
            self._follow_levels(record, version)

    def record(self, topic: Topic) -> Record | None:
        return self._records.get(topic)

    def holds(self, topic: Topic) -> bool:
        """Whether this peer may write the topic's next version."""
        record = self._records.get(topic)
        return record is not None and self._ctx.me.peer in record.holders

    # --- the user's commands ----------------------------------------------------------------------

    def change(self, command: ChangeTopic) -> None:
        """Write the next version, or the first one."""
        try:
            versions = self._draft(command)
        except Refused as refused:
            self._count(refused)
            self._ctx.answer(Answer(command.token, "refused", reason=str(refused)))
            return
        sealed = [(version, self._record_of(version)) for version in versions]

        def then(error: str) -> None:
            if error:
                self._ctx.answer(Answer(command.token, "failed", reason=error))
                return
            for version, record in sealed:
                self._adopt(record, version, None, stored=True)
                self._put(record, version)
            cid = sealed[-1][0].cid
            self._ctx.answer(Answer(command.token, "stored", value=cid, count=len(sealed)))

        self._storage.publish_topic(versions, [record for _, record in sealed], then)

    def follow(self, command: FollowTopic) -> None:
        """Believe these holders; look their record up where there is a DHT."""
        topic, holders = command.topic, tuple(sorted(dict.fromkeys(command.holders)))
        held = self._records.get(topic)
        if held is not None and held.holders != holders:
            del self._records[topic]
            self._versions.forget_newest(topic)
        if topic not in self._holders and len(self._holders) >= _FOLLOWED_MAX:
            self._ctx.answer(Answer(command.token, "refused", reason="too many topics followed"))
            return
        self._holders[topic] = holders
        self._look_up(topic, lambda: self._answer_follow(command))

    def _answer_follow(self, command: FollowTopic) -> None:
        cid = self._versions.link(command.topic)
        outcome: Outcome = "found" if cid is not None else "not_found"
        self._ctx.answer(Answer(command.token, outcome, value=cid))

    # --- messages, blocks and timers --------------------------------------------------------------

    def on_news(self, sender: Contact, message: TopicNews) -> None:
        """Another peer's record, perhaps a newer one."""
        try:
            self._consider(message.topic, message.record, sender)
        except Refused as refused:
            self._count(refused)

    def compare(self, sender: Contact, topic: Topic, sequence: int, version: Cid | None) -> bool:
        """A member told which record it holds (sequence 0: none). Send this peer's to a member
        that has an older one, or another; whether it is this peer that should hear."""
        record = self._records.get(topic)
        if record is None:
            return sequence > 0
        if sequence == record.sequence and version == record.value:
            return False
        if sequence <= record.sequence and record.expires_ms > self._ctx.wall_ms:
            for level in self._levels(topic):
                known = self._records.get(level)
                if known is not None and known.expires_ms > self._ctx.wall_ms:
                    self._ctx.send(sender, TopicNews(level, known.encoded))
        return sequence > record.sequence

    def expects(self, cid: Cid) -> bool:
        """Whether a record or an event waits for this version."""
        return cid in self._coming or self._versions.expects(cid)

    def on_version(self, cid: Cid, block: bytes) -> list[Waiting]:
        """A version that a record or events point at has come; returns the events that waited
        for it. `Refused` if the block is no version of a topic."""
        version = open_topic(block, cid)
        self._versions.note(version)
        self._storage.add_version(version)
        self._on_awaited(version)
        return self._versions.released(cid)

    def _on_awaited(self, version: TopicVersion) -> None:
        """The version that a record points at, if one does, has come."""
        if version.cid in self._coming:
            record, source = self._coming.pop(version.cid)
            try:
                self._adopt(record, version, source)
            except Refused as refused:
                self._count(refused)

    def give_up(self, cid: Cid) -> None:
        """No peer has the version that a record points at."""
        self._coming.pop(cid, None)

    def on_timer(self) -> None:
        """Renew what this peer holds before it expires; look after what it follows."""
        self._ctx.set_timer(self._ctx.config.history.topics_every_ms, RENEW, GENERAL)
        for topic in dict.fromkeys((*self._records, *self._holders)):
            record = self._records.get(topic)
            if record is not None and self.holds(topic):
                if self._ctx.wall_ms >= record.renew_ms:
                    self._renew(record)
            else:
                self._look_up(topic, lambda: None)

    def _renew(self, record: Record) -> None:
        version = self._versions.get(record.value)
        if version is None:
            return
        renewed = self._seal_record(record.topic, record.holders, record.value, record.sequence)
        self._ctx.counters["history_records_renewed"] += 1
        self._adopt(renewed, version, None)
        self._put(renewed, version)

    def _count(self, refused: Refused) -> None:
        self._ctx.counters[f"history_refused_{refused.reason}"] += 1

    # --- believing a record -----------------------------------------------------------------------

    def _consider(self, topic: Topic, encoded: bytes, source: Contact | None) -> None:
        held = self._records.get(topic)
        if held is not None and held.encoded == encoded:
            return
        record = records.read_record(encoded)
        if record.topic != topic or not self._concerns(record):
            raise Refused(Reason.WRONG_TOPIC, "about a topic that is nothing to this peer")
        if not self._is_trusted(record):
            raise Refused(Reason.NOT_HOLDER, "held by others than this peer believes")
        same = held if held is not None and held.name == record.name else None
        records.open_record(encoded, record.name, self._ctx.wall_ms, same)
        version = self._versions.get(record.value)
        if version is not None:
            self._adopt(record, version, source)
            return
        if len(self._coming) < _FOLLOWED_MAX:
            self._coming[record.value] = record, source
            if source is not None:
                self._fetch.want(topic, [record.value], source, hearsay=True)

    def _concerns(self, record: Record) -> bool:
        topic = record.topic
        if topic in self._records or topic in self._holders or self._members(topic):
            return True
        coming = (other for other, _ in self._coming.values())  # perhaps of the same hierarchy
        return any(is_below(o.topic, topic) and o.holders == record.holders for o in coming)

    def _is_trusted(self, record: Record) -> bool:
        holders = self._holders.get(record.topic)
        if holders is not None:
            return record.holders == holders
        held = self._records.get(record.topic)
        if held is not None:
            return held.name == record.name
        return len(self._records) < _FOLLOWED_MAX and not self._is_nobodys(record.topic)

    def _is_nobodys(self, topic: Topic) -> bool:
        """Whether this peer has events of the topic that were published without an owner."""
        for cid in self._library.heads(topic):
            block = self._library.get(cid)
            if block is not None and known_event(block, cid).link is None:
                return True
        return False

    def _adopt(
        self, record: Record, version: TopicVersion, source: Contact | None, stored: bool = False
    ) -> None:
        """From now on this is the newest version; tell others."""
        topic = record.topic
        if version.name != topic:
            raise Refused(Reason.WRONG_TOPIC, "the record points at another topic's version")
        if version.author not in record.holders:
            raise Refused(Reason.NOT_OWNER, "the version's author does not hold the topic")
        held = self._records.get(topic)
        if held is not None and held.name == record.name and record.rank <= held.rank:
            return
        self._records[topic] = record
        self._versions.set_newest(version)
        if not stored:
            self._storage.add_version(version)
            self._storage.add_record(record)
        for level in self._follow_levels(record, version):
            self._look_up(level, lambda: None)
        self._ctx.counters["history_versions_adopted"] += 1
        news = TopicNews(topic, record.encoded)
        for contact in self._audience(topic):
            if source is None or contact.peer != source.peer:
                self._ctx.send(contact, news)

    def _levels(self, topic: Topic) -> list[Topic]:
        """An owned topic and those above it in the hierarchy that its owners put it in."""
        version = self._versions.newest(topic)
        root = root_in(version.metadata, topic) if version is not None else None
        return above(topic, () if root is None else (root,))

    def _follow_levels(self, record: Record, version: TopicVersion) -> list[Topic]:
        """A publisher in a topic needs the versions of those above it. They are believed of the
        same holders, unless this peer knows better; returns those that are followed now."""
        followed = []
        for level in self._levels(version.name)[1:]:
            known = level in self._records or level in self._holders
            if not known and len(self._holders) < _FOLLOWED_MAX:
                self._holders[level] = record.holders
                followed.append(level)
        return followed

    def _audience(self, topic: Topic) -> list[Contact]:
        """Peers that a topic's news concern: its members, and those of the topics below it."""
        below = [t for t in self._records if is_below(t, topic) and topic in self._levels(t)]
        met = {c.peer: c for name in (topic, *below) for c in self._members(name)}
        return list(met.values())

    # --- writing versions and records -------------------------------------------------------------

    def _draft(self, command: ChangeTopic) -> list[TopicVersion]:
        """The versions to write, the topic's own last; `Refused` if it cannot be."""
        topic = command.topic
        current = self._versions.newest(topic)
        if command.create:
            if current is not None:
                raise Refused(Reason.NOT_OWNER, f"{topic} has an owner already")
            owners: tuple[PeerId, ...] = (self._ctx.me.peer, *command.owners)
            allowed = None if command.anyone else command.allow
            metadata: dict[str, Scalar] = {ROOT: topic} if command.hierarchy else {}
            return [self._seal_version(topic, owners, allowed, {}, None, metadata)]
        if current is None:
            raise Refused(Reason.UNKNOWN_TOPIC, f"no version of {topic} is known here")
        if not self.holds(topic):
            raise Refused(Reason.NOT_OWNER, f"another peer holds {topic}")
        allowed = _next_allowed(command, current)
        sub_topics = dict(current.sub_topics)
        first: list[TopicVersion] = []
        if command.sub_topic:
            child, first = self._draft_child(topic, command.sub_topic, current)
            sub_topics[command.sub_topic] = child
        version = self._seal_version(
            topic, current.owners, allowed, sub_topics, current.cid, current.metadata
        )
        return [*first, version]

    def _draft_child(
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
        metadata: dict[str, Scalar] = {ROOT: root} if root is not None else {}
        made = self._seal_version(name, parent.owners, parent.allowed, {}, None, metadata)
        return made.cid, [made]

    def _seal_version(
        self,
        topic: Topic,
        owners: Sequence[PeerId],
        allowed: Sequence[PeerId] | None,
        sub_topics: dict[str, Cid],
        parent: Cid | None,
        metadata: Mapping[str, Scalar],
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

    def _record_of(self, version: TopicVersion) -> Record:
        """The record that makes a version of this peer's own the newest."""
        held = self._records.get(version.name)
        holders = held.holders if held is not None else version.owners
        sequence = held.sequence + 1 if held is not None else 1
        return self._seal_record(version.name, holders, version.cid, sequence)

    def _seal_record(
        self, topic: Topic, holders: tuple[PeerId, ...], value: Cid, sequence: int
    ) -> Record:
        return records.seal(
            self._sign,
            signer=self._ctx.me.peer,
            holders=holders,
            topic=topic,
            value=value,
            sequence=sequence,
            now_ms=self._ctx.wall_ms,
        )

    # --- the DHT ----------------------------------------------------------------------------------

    def _look_up(self, topic: Topic, then: Callable[[], None]) -> None:
        """Ask the DHT for a topic's record, then for the version it points at."""
        holders = self._holders.get(topic)
        if holders is None and topic in self._records:
            holders = self._records[topic].holders
        if self._dht is None or holders is None:
            then()
            return
        key = record_key(records.name_of(topic, holders))

        def on_record(answer: Answer) -> None:
            if answer.value is None:
                then()
                return
            try:
                self._consider(topic, answer.value, None)
            except Refused as refused:
                self._count(refused)
            value = records.read_record(answer.value).value
            if value not in self._coming:
                then()
                return
            self._get(block_key_of(value), lambda found: on_block(value, found))

        def on_block(cid: Cid, answer: Answer) -> None:
            if answer.value is not None and cid in self._coming:
                try:
                    self._on_awaited(open_topic(answer.value, cid))
                except Refused as refused:
                    del self._coming[cid]
                    self._count(refused)
            then()

        self._get(key, on_record)

    def _get(self, key: bytes, then: Callable[[Answer], None]) -> None:
        assert self._dht is not None
        self._dht.operations.get(DhtGet(self._ctx.quietly(then), key))

    def _put(self, record: Record, version: TopicVersion) -> None:
        """Have the DHT hold a record and the version it points at."""
        if self._dht is None:
            return
        for key, value in (
            (block_key_of(version.cid), version.block),
            (record_key(record.name), record.encoded),
        ):
            token = self._ctx.quietly(lambda answer: None)
            self._dht.operations.put(DhtPut(token, key, value))


def _next_allowed(command: ChangeTopic, current: TopicVersion) -> tuple[PeerId, ...] | None:
    """The peers that may publish from now on; None: anyone."""
    allowed = current.allowed
    if command.anyone:
        return None
    if command.anyone is False and allowed is None:
        allowed = ()
    if (command.allow or command.revoke) and allowed is None:
        raise Refused(Reason.BAD_SHAPE, f"anyone may publish in {current.name}: restrict it first")
    if allowed is None:
        return None
    for peer in command.revoke:
        if peer in current.owners:
            raise Refused(Reason.NOT_ALLOWED, "an owner's right to publish cannot be revoked")
    wanted = dict.fromkeys((*allowed, *command.allow))
    return tuple(peer for peer in wanted if peer not in command.revoke)


# --- sub-topics for peers that do not own a topic -------------------------------------------------


class _Wish:
    """One wish of this peer's user, and the owners still to be asked."""

    __slots__ = ("asked", "command", "owners")

    def __init__(self, command: AskSubTopic, owners: list[PeerId]) -> None:
        self.command = command
        self.owners = owners
        self.asked: PeerId | None = None


class Wishes:
    """The sub-topics that one peer asks for, and those that others ask of it."""

    def __init__(
        self,
        ctx: Context,
        ownership: Ownership,
        versions: Versions,
        members: Members,
        dht: Kademlia | None,
    ) -> None:
        self._ctx = ctx
        self._ownership = ownership
        self._versions = versions
        self._members = members
        self._dht = dht
        self._asking: dict[int, _Wish] = {}
        self._kept: dict[Topic, dict[str, PeerId]] = {}

    def of(self, topic: Topic) -> dict[str, PeerId]:
        """The sub-topics that others asked for, and which peer did; those that hang there by now
        are done."""
        version = self._versions.newest(topic)
        hang = version.sub_topics if version is not None else {}
        kept = {name: peer for name, peer in self._kept.get(topic, {}).items() if name not in hang}
        if topic in self._kept:
            self._kept[topic] = kept
        return kept

    # --- asking -----------------------------------------------------------------------------------

    def ask(self, command: AskSubTopic) -> None:
        topic, version = command.topic, self._versions.newest(command.topic)
        record = self._ownership.record(topic)
        if version is None or record is None:
            self._answer(command, "refused", f"nobody is known to own {topic}")
        elif self._ownership.holds(topic):
            self._answer(command, "refused", f"{topic} is this peer's own: add the sub-topic")
        elif len(self._asking) >= _ASKING_MAX:
            self._answer(command, "refused", "too many wishes are on their way")
        else:
            reason = judge_sub_topic_request(version, self._ctx.me.peer, command.segment)
            if reason is not None:
                self._answer(command, "refused", _WHY[reason])
                return
            known = {contact.peer for contact in self._members(topic)}
            owners = sorted(record.holders, key=lambda peer: (peer not in known, peer))
            self._ask_next(_Wish(command, owners))

    def on_timer(self, number: int) -> None:
        wish = self._asking.pop(number, None)
        if wish is not None:
            self._ask_next(wish)

    def on_reply(self, sender: Contact, message: SubTopicReply) -> None:
        wish = self._asking.get(message.request)
        if wish is None or wish.asked != sender.peer:
            self._ctx.counters["history_unasked"] += 1
            return
        del self._asking[message.request]
        if message.granted:
            self._answer(wish.command, "stored", "")
        elif message.waits:
            self._answer(wish.command, "queued", "an owner of the topic has to agree")
        else:
            self._answer(wish.command, "refused", message.reason)

    def _ask_next(self, wish: _Wish) -> None:
        topic = wish.command.topic
        while wish.owners:
            owner = wish.owners.pop(0)
            known = [contact for contact in self._members(topic) if contact.peer == owner]
            if known:
                self._ask_one(wish, known[0])
                return
            if self._dht is not None:
                token = self._ctx.quietly(lambda answer: self._on_found(wish, answer))
                self._dht.operations.find_peer(DhtFindPeer(token, owner))
                return
        reason = f"no owner of {topic} could be reached"
        self._answer(wish.command, "not_found", reason)

    def _on_found(self, wish: _Wish, answer: Answer) -> None:
        if answer.contact is not None:
            self._ask_one(wish, answer.contact)
        else:
            self._ask_next(wish)

    def _ask_one(self, wish: _Wish, owner: Contact) -> None:
        ctx, topic = self._ctx, wish.command.topic
        number = ctx.next_serial()
        wish.asked = owner.peer
        self._asking[number] = wish
        ctx.send(owner, SubTopicRequest(topic, number, wish.command.segment))
        ctx.set_timer(ctx.config.history.request_timeout_ms, ASK, topic, number)

    def _answer(self, command: AskSubTopic, outcome: Outcome, reason: str) -> None:
        self._ctx.answer(Answer(command.token, outcome, reason=reason))

    # --- being asked ------------------------------------------------------------------------------

    def on_request(self, sender: Contact, message: SubTopicRequest) -> None:
        """Another peer would like a sub-topic of a topic that this one holds."""
        topic, segment = message.topic, message.segment
        version = self._versions.newest(topic)
        if version is None or not self._ownership.holds(topic):
            self._refuse(sender, message, Reason.NOT_OWNER, f"this peer does not own {topic}")
            return
        reason = judge_sub_topic_request(version, sender.peer, segment)
        if reason is not None:
            self._refuse(sender, message, reason, _WHY[reason])
        elif self._ctx.config.history.accept_sub_topics:
            token = self._ctx.quietly(lambda answer: self._on_changed(sender, message, answer))
            self._ownership.change(ChangeTopic(token, topic, sub_topic=segment))
        elif self._keep(topic, segment, sender.peer):
            self._ctx.send(sender, SubTopicReply(topic, message.request, False, True, ""))
        else:
            self._refuse(sender, message, Reason.NO_ROOM, "too many wishes wait already")

    def _keep(self, topic: Topic, segment: str, asker: PeerId) -> bool:
        """Keep a wish, if there is room; the first peer that asks for a sub-topic is
        remembered."""
        wishes = self.of(topic)
        if segment in wishes:
            return True
        of_asker = sum(one == asker for one in wishes.values())
        full = topic not in self._kept and len(self._kept) >= _TOPICS_MAX
        if full or len(wishes) >= _WISHES_MAX or of_asker >= _WISHES_EACH_MAX:
            return False
        self._kept.setdefault(topic, {})[segment] = asker
        return True

    def _on_changed(self, sender: Contact, message: SubTopicRequest, answer: Answer) -> None:
        granted = answer.outcome == "stored"
        reason = "" if granted else answer.reason[:REASON_MAX]
        self._ctx.send(
            sender, SubTopicReply(message.topic, message.request, granted, False, reason)
        )

    def _refuse(self, sender: Contact, message: SubTopicRequest, reason: Reason, why: str) -> None:
        self._ctx.counters[f"history_refused_{reason}"] += 1
        reply = SubTopicReply(message.topic, message.request, False, False, why[:REASON_MAX])
        self._ctx.send(sender, reply)
