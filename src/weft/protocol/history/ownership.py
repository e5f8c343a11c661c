"""Owned topics: who may change them, which version is the newest, and how everybody learns of it
(paper 004, Sections 4.1 and 4.5).

A topic's holders write its versions (`drafting.py`); a signed record (`documents/record.py`) says
which is the newest. Whoever adopts a newer record stores it and passes it on to the members it
knows, so a change runs through the topic like an event; members compare sequences whenever they
tell their heads, which mends what got lost. With a DHT, holders put record and version there and
renew them, and whoever follows a topic without being subscribed finds them there.

Whose word counts in a topic?

- whoever is told its holders (`FollowTopic`), or made it, believes these and nobody else;
- whoever has adopted a record believes the same holders from then on, also after a restart;
- whoever knows neither believes the first record it hears, unless the stream it has is one that
  nobody owns: nobody can make a topic theirs that others use already.

Deviation: the paper names a topic by its CID, which fixes its owner. Names are what people share,
so a name can be taken by whoever comes first; give the holders' keys where that matters.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.documents import record as records
from weft.documents.descriptor import TopicVersion, known_event, open_topic
from weft.documents.record import Record
from weft.documents.refusal import Reason, Refused
from weft.documents.signing import Signer
from weft.ids import GENERAL, Cid, Contact, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.history.drafting import Drafting
from weft.protocol.history.fetch import Fetch
from weft.protocol.history.storing import Storing
from weft.protocol.history.versions import Versions
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.messages_history import Heads, TopicNews
from weft.protocol.seam import Answer, ChangeTopic, DhtGet, DhtPut, FollowTopic
from weft.rules.hierarchy import above, is_below, root_in
from weft.rules.prefix import BLOCK, DIGEST_BYTES, TOPIC_RECORD
from weft.store.interface import Store

TIMER = "history.topics"
_FOLLOWED_MAX = 4_096
"""guess: topics of which holders or records are known."""


class Ownership:
    """The records that one peer believes, and the topics it holds."""

    def __init__(
        self,
        ctx: Context,
        library: Store,
        sign: Signer,
        versions: Versions,
        fetch: Fetch,
        storing: Storing,
        members: Callable[[Topic], list[Contact]],
        dht: Kademlia | None,
    ) -> None:
        self._ctx = ctx
        self._library = library
        self._versions = versions
        self._drafting = Drafting(ctx, sign, versions)
        self._fetch = fetch
        self._storing = storing
        self._members = members
        self._dht = dht
        self._records: dict[Topic, Record] = {}
        self._holders: dict[Topic, tuple[PeerId, ...]] = {}  # as its user said
        self._coming: dict[Cid, tuple[Record, Contact | None]] = {}  # their versions are fetched
        for encoded in library.records().values():
            self._remember(records.read_record(encoded))

    def start(self) -> None:
        self._ctx.set_timer(self._ctx.config.history.topics_every_ms, TIMER, GENERAL)

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

    # --- changing a topic -------------------------------------------------------------------------

    def change(self, command: ChangeTopic) -> None:
        """Write the next version, or the first one."""
        try:
            versions = self._drafting.next_versions(command, self.holds(command.topic))
        except Refused as refused:
            self._ctx.counters[f"history_refused_{refused.reason}"] += 1
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

        self._storing.publish_topic(versions, [record for _, record in sealed], then)

    def _record_of(self, version: TopicVersion) -> Record:
        held = self._records.get(version.name)
        holders = held.holders if held is not None else version.owners
        sequence = held.sequence + 1 if held is not None else 1
        return self._drafting.record(version.name, holders, version.cid, sequence)

    # --- hearing of a newer version ---------------------------------------------------------------

    def on_news(self, sender: Contact, message: TopicNews) -> None:
        """Another peer's record, perhaps a newer one."""
        try:
            self._consider(message.topic, message.record, sender)
        except Refused as refused:
            self._ctx.counters[f"history_refused_{refused.reason}"] += 1

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

    def expects(self, cid: Cid) -> bool:
        return cid in self._coming

    def on_block(self, cid: Cid, block: bytes) -> None:
        """The version that a record points at has come."""
        record, source = self._coming.pop(cid)
        try:
            self._adopt(record, open_topic(block, cid), source)
        except Refused as refused:
            self._ctx.counters[f"history_refused_{refused.reason}"] += 1

    def give_up(self, cid: Cid) -> None:
        self._coming.pop(cid, None)

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
            self._storing.add_version(version)
            self._storing.add_record(record)
        for level in self._follow_levels(record, version):
            self._look_up(level, lambda: None)
        self._ctx.counters["history_versions_adopted"] += 1
        news = TopicNews(topic, record.encoded)
        for contact in self._audience(topic):
            if source is None or contact.peer != source.peer:
                self._ctx.send(contact, news)

    # --- hierarchies ------------------------------------------------------------------------------

    def _levels(self, topic: Topic) -> list[Topic]:
        """An owned topic and those above it in the hierarchy that its owners put it in."""
        version = self._versions.newest(topic)
        root = root_in(version.metadata, topic) if version is not None else None
        return above(topic, () if root is None else (root,))

    def _follow_levels(self, record: Record, version: TopicVersion) -> list[Topic]:
        """Whoever publishes in a topic needs the versions of those above it. They are believed of
        the same holders, unless this peer knows better; returns those that are followed now."""
        followed = []
        for level in self._levels(version.name)[1:]:
            known = level in self._records or level in self._holders
            if not known and len(self._holders) < _FOLLOWED_MAX:
                self._holders[level] = record.holders
                followed.append(level)
        return followed

    def _audience(self, topic: Topic) -> list[Contact]:
        """Whom a topic's news concern: its members, and those of the topics below it."""
        below = [t for t in self._records if is_below(t, topic) and topic in self._levels(t)]
        met = {c.peer: c for name in (topic, *below) for c in self._members(name)}
        return list(met.values())

    # --- telling ----------------------------------------------------------------------------------

    def compare(self, sender: Contact, message: Heads) -> bool:
        """Send this peer's record to a member that has an older one, or another; whether it is
        this peer that should hear."""
        record = self._records.get(message.topic)
        if record is None:
            return message.sequence > 0
        if message.sequence == record.sequence and message.version == record.value:
            return False
        if message.sequence <= record.sequence and record.expires_ms > self._ctx.wall_ms:
            for level in self._levels(message.topic):
                known = self._records.get(level)
                if known is not None and known.expires_ms > self._ctx.wall_ms:
                    self._ctx.send(sender, TopicNews(level, known.encoded))
        return message.sequence > record.sequence

    # --- the DHT ----------------------------------------------------------------------------------

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
        version = self._versions.newest(command.topic)
        found = version is not None
        self._ctx.answer(
            Answer(
                command.token,
                "found" if found else "not_found",
                value=version.cid if version is not None else None,
            )
        )

    def _look_up(self, topic: Topic, then: Callable[[], None]) -> None:
        """Ask the DHT for a topic's record, then for the version it points at."""
        holders = self._holders.get(topic)
        if holders is None and topic in self._records:
            holders = self._records[topic].holders
        if self._dht is None or holders is None:
            then()
            return
        key = bytes((TOPIC_RECORD,)) + records.name_of(topic, holders)

        def on_record(answer: Answer) -> None:
            if answer.value is None:
                then()
                return
            try:
                self._consider(topic, answer.value, None)
            except Refused as refused:
                self._ctx.counters[f"history_refused_{refused.reason}"] += 1
            value = records.read_record(answer.value).value
            if not self.expects(value):
                then()
                return
            self._get(bytes((BLOCK,)) + value[-DIGEST_BYTES:], lambda found: on_block(value, found))

        def on_block(cid: Cid, answer: Answer) -> None:
            if answer.value is not None and self.expects(cid):
                self.on_block(cid, answer.value)
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
            (bytes((BLOCK,)) + version.cid[-DIGEST_BYTES:], version.block),
            (bytes((TOPIC_RECORD,)) + record.name, record.encoded),
        ):
            token = self._ctx.quietly(lambda answer: None)
            self._dht.operations.put(DhtPut(token, key, value))

    def on_timer(self) -> None:
        """Renew what this peer holds before it expires; look after what it follows."""
        self._ctx.set_timer(self._ctx.config.history.topics_every_ms, TIMER, GENERAL)
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
        renewed = self._drafting.record(record.topic, record.holders, record.value, record.sequence)
        self._ctx.counters["history_records_renewed"] += 1
        self._adopt(renewed, version, None)
        self._put(renewed, version)
