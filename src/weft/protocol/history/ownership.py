"""Owned topics: how a peer learns of their versions, writes them, and tells others (paper 004,
Sections 4.1 and 4.5).

A topic is owned where its holders are known: by its name, by the user's word, or by the topic above
(`versions.py` says which proof counts). Their versions say which peers may publish; a signed record
(`documents/record.py`) says which is the newest (`Ownership`). Everybody else's records are claims:
they are shown to the user that asks, and change nothing.

A peer that adopts a newer record stores it and passes it on to the members it knows, so a change
runs through the topic like an event; members compare sequences whenever they tell their heads,
which mends what got lost. A holder that is not subscribed looks for members as a publisher from
outside does, and tells them; a follower that is not subscribed asks them. With a DHT, holders put
record and version there and renew them, and a peer that knows a topic's holders without being
subscribed finds them there.

A record is adopted if its version follows the newest one (`documents/authority.py`,
`judge_version`); the versions between them are fetched. Two holders may change a topic at once. Of
their records all peers take the same one as the newest, by rank; the other's version is a *rival*,
which is passed on as well and counts for what it revokes, until a version takes it over. The holder
that wrote the rival does so at once, any other holder at its next turn (`on_timer`): the next
version has the changes of both.

Invariants: a record counts only by the topic's proven holders; a holder's own changes are written
one after the other, each on top of the newest version that it knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple, TypeAlias

from msgspec import Meta

from weft.bounded import BoundedDict
from weft.documents import record as records
from weft.documents.authority import (
    HEADS_NAMED_MAX,
    MERGES,
    MadeFrom,
    judge_sub_topic,
    merged,
    sub_topic_segment,
)
from weft.documents.dagcbor import Scalar
from weft.documents.descriptor import TopicVersion, open_topic, seal_topic
from weft.documents.record import RECORD_BYTES_MAX, Record
from weft.documents.refusal import Reason, Refused
from weft.documents.signature import Signer
from weft.ids import GENERAL, Cid, Contact, PeerId, Topic, WireTopic, cid_text, owner_in, peer_text
from weft.protocol.context import Context, LookupDone
from weft.protocol.history.fetch import Fetch, block_key_of
from weft.protocol.history.storage import Storage
from weft.protocol.history.versions import Holders, Lineage, Rival, Versions, Waiting
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.seam import (
    Answer,
    ChangeTopic,
    DhtGet,
    DhtPut,
    FollowTopic,
    Millis,
    Outcome,
    Warn,
)
from weft.protocol.wire import Message
from weft.rules.hierarchy import ROOT, above, is_below, root_in
from weft.rules.prefix import record_key
from weft.store.interface import Store


class TopicNews(Message, frozen=True, tag=65):
    """A topic record: which version of a topic is the newest. A peer that adopts it passes it
    on. Without a record it is a question, from a peer that is not subscribed."""

    topic: WireTopic
    record: Annotated[bytes, Meta(max_length=RECORD_BYTES_MAX)]


RENEW = "history.topics"

_FOLLOWED_MAX = 4_096
"""guess: topics of which holders or records are known."""
_COMING_MAX = 1_024
_COMING_EACH_MAX = 8
"""guess, both: versions that records wait for, and records that wait for one version."""
_CLAIMED_MAX = 256
_CLAIMS_MAX = 4
"""guess, both: topics without known holders of which claims are shown, and claims of each."""
_CHANGES_MAX = 64
"""guess: changes that wait for the store."""
_ASK_MS: Millis = 1_000
"""guess: a publisher that is refused asks for the topic's newest version once in this time."""
_SOUGHT_MAX = 64
"""guess: topics held or followed from outside whose members are looked for at one turn."""

Members: TypeAlias = Callable[[Topic], list[Contact]]
"""Members of a topic that this peer knows, those to ask first in front."""
Find: TypeAlias = Callable[[Topic], int]
"""Begin to look for members of a topic; `LookupDone` follows with this number."""


class _Change(NamedTuple):
    """A change that is to be written when its turn has come."""

    draft: Callable[[], list[TopicVersion]]  # the versions to write; `Refused` if it cannot be
    refused: Callable[[Refused], None]
    then: Callable[[str, list[TopicVersion]], None]  # gets the store's error, and the versions


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
        find: Find,
        subscribed: Collection[Topic],
        dht: Kademlia | None,
    ) -> None:
        """`subscribed`: the topics that this peer is subscribed to, at any time."""
        self._ctx = ctx
        self._library = library
        self._sign = sign
        self._versions = versions
        self._fetch = fetch
        self._storage = storage
        self._members = members
        self._find = find
        self._subscribed = subscribed
        self._dht = dht
        self._records: dict[Topic, Record] = {}
        self._rivals: dict[Topic, dict[Cid, Record]] = {}  # of `Versions.rivals`
        # Records whose version, or one before it, is fetched: by the version that they wait for.
        self._coming: BoundedDict[Cid, BoundedDict[Record, Contact | None]]
        self._coming = BoundedDict(_COMING_MAX)
        self._found_then: dict[Cid, list[Callable[[], None]]] = {}  # when the DHT has answered
        self._claims: BoundedDict[Topic, BoundedDict[Holders, tuple[Record, Contact | None]]]
        self._claims = BoundedDict(_CLAIMED_MAX)
        self._contested: BoundedDict[tuple[Topic, Holders], None] = BoundedDict(_CLAIMED_MAX)
        """Others' claims on topics that this peer holds, of which its user was warned."""
        self._changes: deque[_Change] = deque()  # each waits for the one before
        self._writing = False
        self._unweighed: list[Record] = []  # stored, and their place beside the newest not known
        self._seeking: dict[int, Topic] = {}  # lookups for members, from outside
        self._sought = 0  # of the topics held or followed from outside, the next to look for
        self._asked: BoundedDict[Topic, Millis] = BoundedDict(_FOLLOWED_MAX)  # since a refusal
        self._remember_all(library.records().values())

    def start(self) -> None:
        self._ctx.set_timer(self._ctx.config.history.topics_every_ms, RENEW, GENERAL)

    def _remember_all(self, stored: Iterable[bytes]) -> None:
        """Take up what an earlier life was told and believed. Where the records of a topic are by
        different holders, those that the user named count, else those of the latest record."""
        found: list[Record] = []
        for encoded in stored:
            told = records.read_told(encoded)
            if told is not None:
                self._versions.tell(*told)
            elif records.read_wishes(encoded) is None:
                found.append(records.read_record(encoded))
        for record in sorted(found, key=lambda record: record.rank, reverse=True):
            if self._versions.holders(record.topic) is None:
                self._versions.tell(record.topic, record.holders)
        for record in sorted(found, key=lambda record: record.rank, reverse=True):
            version = self._versions.get(record.value)
            if version is None or self._versions.holders(record.topic) != record.holders:
                continue
            newest = self._versions.newest(record.topic)
            if newest is None:
                self._records[record.topic] = record
                self._versions.set_newest(version)
            else:
                self._remember_rival(record, version, newest)

    def _remember_rival(self, record: Record, version: TopicVersion, newest: TopicVersion) -> None:
        """Take up a stored record beside the newest version's, or keep it to be weighed later."""
        try:
            lineage = self._versions.lineage(newest)
            base = self._base(version, lineage)
        except Refused:
            return
        if version.cid in lineage.cids:
            return
        if lineage.whole or base is not None:
            self._add_rival(record, Rival(version, base))
        else:
            self._unweighed.append(record)

    def record(self, topic: Topic) -> Record | None:
        return self._records.get(topic)

    def holds(self, topic: Topic) -> bool:
        """Whether this peer may write the topic's next version."""
        record = self._records.get(topic)
        return record is not None and self._ctx.me.peer in record.holders

    def claims(self, topic: Topic) -> list[Holders]:
        """The peers that say that they hold a topic, and are not believed."""
        if self._versions.holders(topic) is not None:
            return []
        return list(self._claims.get(topic, ()))

    # --- the user's commands ----------------------------------------------------------------------

    def change(self, command: ChangeTopic) -> None:
        """Write the next version, or the first one."""

        def refuse(refused: Refused) -> None:
            self._count(refused)
            self._ctx.answer(Answer(command.token, "refused", reason=str(refused)))

        def then(error: str, versions: list[TopicVersion]) -> None:
            if error:
                self._ctx.answer(Answer(command.token, "failed", reason=error))
                return
            cid = versions[-1].cid
            self._ctx.answer(Answer(command.token, "stored", value=cid, count=len(versions)))

        if command.create:
            for holders in self.claims(command.topic):
                self._warn_contested(command.topic, holders)
        if len(self._changes) >= _CHANGES_MAX:
            refuse(Refused(Reason.NO_ROOM, "too many changes wait for the store"))
        else:
            self._write(_Change(lambda: self._draft(command), refuse, then))

    def follow(self, command: FollowTopic) -> None:
        """Believe these holders; look their record up."""
        topic, holders = command.topic, tuple(sorted(dict.fromkeys(command.holders)))
        owner, told = owner_in(topic), self._versions.told
        if owner is not None and holders != (owner,):
            reason = f"by its name {topic} is {peer_text(owner)}'s, and nobody else's"
        elif topic not in told and len(told) >= _FOLLOWED_MAX:
            reason = "too many topics followed"
        else:
            self._believe(topic, holders)
            self._look_up(topic, lambda: self._answer_follow(command))
            if self._dht is None:
                self._seek(topic)
            return
        self._ctx.answer(Answer(command.token, "refused", reason=reason))

    def _believe(self, topic: Topic, holders: Holders) -> None:
        held = self._records.get(topic)
        if held is not None and held.holders != holders:
            del self._records[topic]
            self._rivals.pop(topic, None)
            self._versions.on_other_holders(topic)
        self._versions.tell(topic, holders)
        self._storage.add_named(*records.seal_told(topic, holders))
        claims = self._claims.pop(topic, None)
        if claims is not None and holders in claims:
            claimed, source = claims[holders]
            self.on_news(source, TopicNews(topic, claimed.encoded))

    def _answer_follow(self, command: FollowTopic) -> None:
        cid = self._versions.link(command.topic)
        outcome: Outcome = "found" if cid is not None else "not_found"
        self._ctx.answer(Answer(command.token, outcome, value=cid))

    # --- messages, blocks and timers --------------------------------------------------------------

    def on_news(self, sender: Contact | None, message: TopicNews) -> None:
        """Another peer's record, perhaps a newer one; or it asks for this peer's."""
        if not message.record:
            held = self._records.get(message.topic)
            if sender is not None and held is not None and held.expires_ms > self._ctx.wall_ms:
                self._ctx.send(sender, TopicNews(message.topic, held.encoded))
            return
        try:
            self._consider(message.topic, message.record, sender)
        except Refused as refused:
            self._count(refused)

    def compare(self, sender: Contact, topic: Topic, sequence: int, version: Cid | None) -> bool:
        """A member told which record it holds (sequence 0: none). Send this peer's record to a
        member that has an older or another one; returns whether this peer's is the older one."""
        record = self._records.get(topic)
        if record is None:
            return sequence > 0 and self._versions.holders(topic) is not None
        if sequence == record.sequence and version == record.value:
            if sender.peer in record.holders:  # a holder can take the rivals over
                self._tell_rivals(sender, topic)
            return False
        if sequence <= record.sequence:
            for level in self._levels(topic):
                self.tell(sender, level)
        behind = sequence == record.sequence and (version or b"") > record.value
        return behind or sequence > record.sequence

    def tell(self, to: Contact, topic: Topic) -> None:
        """Tell a peer which version of a topic is the newest, and what was written beside it."""
        record = self._records.get(topic)
        if record is not None and record.expires_ms > self._ctx.wall_ms:
            self._ctx.send(to, TopicNews(topic, record.encoded))
            self._tell_rivals(to, topic)

    def _tell_rivals(self, to: Contact, topic: Topic) -> None:
        for record in self._rivals.get(topic, {}).values():
            if record.expires_ms > self._ctx.wall_ms:
                self._ctx.send(to, TopicNews(topic, record.encoded))

    def on_lookup_done(self, done: LookupDone) -> bool:
        """A lookup for members has ended; returns whether it was started here. A holder tells the
        members the newest record, any other peer asks them for it."""
        topic = self._seeking.pop(done.lookup, None)
        if topic is None:
            return False
        for contact in done.contacts:
            if self.holds(topic):
                self.tell(contact, topic)
            else:
                self._ctx.send(contact, TopicNews(topic, b""))
        return True

    def expects(self, cid: Cid) -> bool:
        """Whether a record or an event waits for this version."""
        return cid in self._coming or self._versions.expects(cid)

    def on_version(self, cid: Cid, block: bytes) -> list[Waiting]:
        """A version that a record or events point at has come; returns the events that waited
        for it. `Refused` if the block is no version of a topic."""
        version = open_topic(block, cid)
        self._versions.note(version)
        if self._versions.is_hung(cid):
            self._store(cid)
        waited = self._versions.released(cid)
        self._on_awaited(cid)
        return waited

    def _on_awaited(self, cid: Cid) -> None:
        """A version that records wait for has come."""
        for record, source in self._coming.pop(cid, {}).items():
            try:
                self._weigh(record, source)
            except Refused as refused:
                self._count(refused)
            if record is self._records.get(record.topic):
                self._settle(record)

    def give_up(self, cid: Cid) -> None:
        """No peer has a version that records wait for. If it is one before a record's own, the
        record counts all the same, since its holder says what is the newest."""
        for record, source in self._coming.pop(cid, {}).items():
            try:
                self._weigh(record, source, all_came=True)
            except Refused as refused:
                self._count(refused)

    def on_timer(self) -> None:
        """Renew the records of topics that this peer holds, and take rivals over; look up the
        records of topics that it follows."""
        self._ctx.set_timer(self._ctx.config.history.topics_every_ms, RENEW, GENERAL)
        unweighed, self._unweighed = self._unweighed, []
        for lacking in unweighed:
            try:
                self._weigh(lacking, None)
            except Refused as refused:
                self._count(refused)
        for topic in dict.fromkeys((*self._records, *self._versions.told)):
            record = self._records.get(topic)
            if record is not None and self.holds(topic):
                if self._ctx.wall_ms >= record.renew_ms:
                    self._renew(record)
                for cid in list(self._versions.rivals(topic)):
                    self._take_over(topic, cid)
            elif record is not None and self._versions.rivals(topic):
                self._settle(record)
            else:
                self._look_up(topic, lambda: None)
        self._seek_from_outside()

    def _renew(self, record: Record) -> None:
        version = self._versions.get(record.value)
        if version is None:
            return
        renewed = self._seal_record(record.topic, record.holders, record.value, record.sequence)
        self._ctx.counters["history_records_renewed"] += 1
        self._adopt(renewed, version, None)
        self._put(renewed, version)

    def _seek_from_outside(self) -> None:
        """Look for members of topics that this peer holds, or follows without a DHT, and is not
        subscribed to; some at each turn."""
        known = dict.fromkeys((*self._records, *self._versions.told))
        sought = [topic for topic in known if self._dht is None or self.holds(topic)]
        outside = [topic for topic in sought if topic not in self._subscribed]
        start = self._sought if self._sought < len(outside) else 0
        for topic in outside[start : start + _SOUGHT_MAX]:
            self._seek(topic)
        self._sought = start + _SOUGHT_MAX

    def _seek(self, topic: Topic) -> None:
        if topic not in self._subscribed:
            self._seeking[self._find(topic)] = topic

    def ask_again(self, topic: Topic) -> None:
        """Look for a newer version, since the known one does not let this peer publish."""
        now = self._ctx.now
        if now - self._asked.get(topic, now - _ASK_MS) >= _ASK_MS:
            self._asked.renew(topic, now)
            self._seek(topic)

    def _count(self, refused: Refused) -> None:
        self._ctx.counters[f"history_refused_{refused.reason}"] += 1

    # --- believing a record -----------------------------------------------------------------------

    def _consider(self, topic: Topic, encoded: bytes, source: Contact | None) -> None:
        """Another peer brought a record. It counts if the topic's holders are known and it is
        theirs; nothing is fetched for any other record."""
        held = self._records.get(topic)
        rivals = self._rivals.get(topic, {}).values()
        if held is not None and encoded in (held.encoded, *(rival.encoded for rival in rivals)):
            return
        record = records.read_record(encoded)
        if record.topic != topic or not self._concerns(topic):
            raise Refused(Reason.WRONG_TOPIC, "about a topic that is nothing to this peer")
        holders = self._versions.holders(topic)
        if holders is None:
            hung = self._versions.lacks_hung(topic)
            if hung is None:
                self._note_claim(record, source)
                raise Refused(Reason.NOT_HOLDER, "nothing proves that these hold the topic")
            records.open_record(encoded, record.name, self._ctx.wall_ms)
            self._await(hung, record, source)
            return
        if record.holders != holders:
            if self.holds(topic):
                records.open_record(encoded, record.name, self._ctx.wall_ms)
                self._warn_contested(topic, record.holders)
            raise Refused(Reason.NOT_HOLDER, "held by others than this peer believes")
        records.open_record(encoded, record.name, self._ctx.wall_ms)
        self._weigh(record, source)

    def _warn_contested(self, topic: Topic, holders: Holders) -> None:
        """Another peer says that it owns a topic that this peer created, or is about to create:
        neither is the owner for everybody, so tell the user."""
        if (topic, holders) not in self._contested:
            self._contested[topic, holders] = None
            claim = f"{topic} is claimed by {', '.join(map(peer_text, holders))}, too"
            self._ctx.out.append(
                Warn(f"{claim}: each peer believes the owners that its user follows")
            )

    def _concerns(self, topic: Topic) -> bool:
        known = topic in self._records or topic in self._versions.told or topic in self._asked
        if known or topic in self._subscribed or self._members(topic):
            return True
        below = (*self._subscribed, *self._records)  # events of a sub-topic may count in `topic`
        return any(is_below(other, topic) for other in below)

    def _note_claim(self, record: Record, source: Contact | None) -> None:
        """Keep a claim, truly signed, for the user to see."""
        records.open_record(record.encoded, record.name, self._ctx.wall_ms)
        claims = self._claims.setdefault(record.topic, BoundedDict(_CLAIMS_MAX))
        claims.renew(record.holders, (record, source))

    def _await(self, cid: Cid, record: Record, source: Contact | None) -> None:
        """Fetch a version that decides about a record by a holder."""
        waiting = self._coming.setdefault(cid, BoundedDict(_COMING_EACH_MAX))
        waiting[record] = source
        before = cid != record.value
        if source is not None or (before and record.topic in self._subscribed):
            self._fetch.want(record.topic, [cid], source, hearsay=not before)
        elif self._dht is not None:
            self._get(block_key_of(cid), lambda found: self._on_found(cid, found))

    def _on_found(self, cid: Cid, answer: Answer) -> None:
        """The DHT has, or has not, a version that records wait for."""
        if answer.value is None:
            self.give_up(cid)
        elif cid in self._coming:
            try:
                self._versions.note(open_topic(answer.value, cid))
                self._on_awaited(cid)
            except Refused as refused:
                self._coming.pop(cid, None)
                self._count(refused)
        for then in self._found_then.pop(cid, []):
            then()

    def _weigh(self, record: Record, source: Contact | None, all_came: bool = False) -> None:
        """Find where a record of the topic's holders stands: after the record that this peer has,
        before it, or beside it. `all_came`: versions that are still missing will not come."""
        topic, held = record.topic, self._records.get(record.topic)
        if self._versions.holders(topic) != record.holders:
            raise Refused(Reason.NOT_HOLDER, "held by others than this peer believes")
        if held is not None and held.holders != record.holders:
            held = None  # the topic above gave it to others
        if held is None and len(self._records) >= _FOLLOWED_MAX:
            raise Refused(Reason.NO_ROOM, "too many topics with owners")
        version, newest = self._versions.get(record.value), self._versions.newest(topic)
        if version is None:
            if not all_came:
                self._await(record.value, record, source)
            return
        self._check_version(record, version)
        if held is None or newest is None or held.value == record.value:
            if held is None or held.rank < record.rank:
                self._adopt(record, version, source)
            return
        theirs, ours = self._versions.lineage(version), self._versions.lineage(newest)
        if newest.cid in theirs.cids:
            if held.rank < record.rank:
                self._adopt(record, version, source)
        elif version.cid in ours.cids:
            raise Refused(Reason.OLDER_SEQUENCE, "the version that it points at is older")
        elif version.cid not in self._versions.rivals(topic):
            missing = theirs.missing or ours.missing
            if missing is not None and not all_came:
                self._await(missing, record, source)
            else:
                self._weigh_beside(record, version, theirs, newest, ours, source)

    def _check_version(self, record: Record, version: TopicVersion) -> None:
        """Refuse a record whose version is not one of its topic by its holders, or names something
        else as a sub-topic, as far as the sub-topics' versions are at hand."""
        if version.name != record.topic:
            raise Refused(Reason.WRONG_TOPIC, "the record points at another topic's version")
        if version.author not in record.holders or version.owners != record.holders:
            raise Refused(Reason.NOT_OWNER, "the version's owners do not hold the topic")
        for segment, cid in version.sub_topics.items():
            child = self._versions.get(cid)
            reason = judge_sub_topic(version, segment, child) if child is not None else None
            if reason is not None:
                raise Refused(reason, f"what hangs under {segment!r} is not that sub-topic")

    def _weigh_beside(
        self,
        record: Record,
        version: TopicVersion,
        theirs: Lineage,
        newest: TopicVersion,
        ours: Lineage,
        source: Contact | None,
    ) -> None:
        """Neither of two versions is known to follow the other."""
        held = self._records[record.topic]
        base = self._base(version, ours)
        if base is None and not (theirs.whole and ours.whole):
            if held.rank < record.rank:  # too far apart to be compared
                self._adopt(record, version, source)
            return
        if held.rank < record.rank:
            self._adopt(record, version, source)
            self._stand_beside(held, Rival(newest, base), source)
        else:
            self._stand_beside(record, Rival(version, base), source)

    def _base(self, version: TopicVersion, ours: Lineage) -> TopicVersion | None:
        """The last version that both follow."""
        for cid in self._versions.lineage(version).cids:
            if cid in ours.cids:
                return self._versions.get(cid)
        return None

    def _stand_beside(self, record: Record, rival: Rival, source: Contact | None) -> None:
        """A version lost against the newest: keep it as a rival, tell others, and, if this peer
        wrote it, take it over."""
        topic, cid = record.topic, rival.version.cid
        if not self._add_rival(record, rival):
            return
        self._store(cid)
        self._storage.add_named(records.rival_name(record), record.encoded)
        self._ctx.counters["history_versions_beside"] += 1
        self._pass_on(record, source)
        if rival.version.author == self._ctx.me.peer:
            self._take_over(topic, cid)

    def _add_rival(self, record: Record, rival: Rival) -> bool:
        added = self._versions.add_rival(rival)
        if added:
            self._rivals.setdefault(record.topic, {})[record.value] = record
        return added

    def _store(self, cid: Cid) -> None:
        version = self._versions.take_proven(cid)
        if version is not None:
            self._storage.add_version(version)

    def _adopt(
        self, record: Record, version: TopicVersion, source: Contact | None, stored: bool = False
    ) -> None:
        """From now on this is the newest version; tell others."""
        topic = record.topic
        held = self._records.get(topic)
        if held is not None and held.name == record.name and record.rank <= held.rank:
            return
        if held is not None and held.name != record.name:
            self._rivals.pop(topic, None)
            self._versions.on_other_holders(topic)
        self._records[topic] = record
        if self._versions.holders(topic) is None:  # made here
            self._versions.tell(topic, record.holders)
        self._versions.set_newest(version)
        self._settle(record)
        if not stored:
            for cid in self._versions.lineage(version).cids:
                self._store(cid)
            self._storage.add_record(record)
        self._follow_around(topic, source)
        self._ctx.counters["history_versions_adopted"] += 1
        self._pass_on(record, source)

    def _settle(self, newest: Record) -> None:
        """Forget the rivals that the newest version has taken over; fetch a version that may show
        that it took over others."""
        topic = newest.topic
        missing, rivals = self._versions.settle(topic), self._versions.rivals(topic)
        kept = self._rivals.get(topic, {})
        self._rivals[topic] = {cid: record for cid, record in kept.items() if cid in rivals}
        if missing is not None:
            self._await(missing, newest, None)

    def _pass_on(self, record: Record, source: Contact | None) -> None:
        news = TopicNews(record.topic, record.encoded)
        for contact in self._audience(record.topic):
            if source is None or contact.peer != source.peer:
                self._ctx.send(contact, news)

    def _levels(self, topic: Topic) -> list[Topic]:
        """An owned topic and those above it in the hierarchy that its owners put it in."""
        version = self._versions.newest(topic)
        root = root_in(version.metadata, topic) if version is not None else None
        return above(topic, () if root is None else (root,))

    def _follow_around(self, topic: Topic, source: Contact | None) -> None:
        """A publisher in a topic needs the versions of the topics above it: look them up where
        their holders are known. A member of a sub-topic needs the version that hangs there."""
        for level in self._levels(topic)[1:]:
            if level not in self._records:
                self._look_up(level, lambda: None)
        for other in self._subscribed:
            hung = self._versions.lacks_hung(other) if is_below(other, topic) else None
            if hung is not None:
                self._fetch.want(other, [hung], source)

    def _audience(self, topic: Topic) -> list[Contact]:
        """Peers that a topic's news concern: its members, and those of the topics below it."""
        below = [t for t in self._records if is_below(t, topic) and topic in self._levels(t)]
        met = {c.peer: c for name in (topic, *below) for c in self._members(name)}
        return list(met.values())

    # --- writing versions and records -------------------------------------------------------------

    def _write(self, change: _Change) -> None:
        """Changes are written one after the other, each on top of the one before, so that of two
        that were asked for at once none is lost."""
        self._changes.append(change)
        self._write_next()

    def _write_next(self) -> None:
        while self._changes and not self._writing:
            change = self._changes.popleft()
            try:
                sealed = [(version, self._record_of(version)) for version in change.draft()]
            except Refused as refused:
                change.refused(refused)
                continue
            if sealed:
                self._writing = True
                self._write_now(change, sealed)

    def _write_now(self, change: _Change, sealed: list[tuple[TopicVersion, Record]]) -> None:
        versions = [version for version, _ in sealed]

        def then(error: str) -> None:
            for version, record in [] if error else sealed:
                self._on_written(version, record)
            self._writing = False  # only now: changes that `_on_written` asks for queue up
            change.then(error, versions)
            self._write_next()

        self._storage.publish_topic(versions, [record for _, record in sealed], then)

    def _on_written(self, version: TopicVersion, record: Record) -> None:
        """A version of this peer's own is durable. Another holder's version may have come
        meanwhile, or the user may believe other holders by now."""
        topic = record.topic
        if self._versions.link(topic) == version.parent:
            self._adopt(record, version, None, stored=True)
        else:
            try:
                self._weigh(record, None)
            except Refused as refused:
                self._count(refused)
        newest, current = self._records.get(topic), self._versions.newest(topic)
        if newest is None or current is None:
            return
        if newest is not record:  # the store must keep both
            self._storage.add_record(newest)
            self._storage.add_named(records.rival_name(record), record.encoded)
        self._put(newest, current)
        self._seek(topic)

    def _take_over(self, topic: Topic, cid: Cid) -> None:
        """Write a version that has the changes of the newest and of a rival."""

        def draft() -> list[TopicVersion]:
            newest, rival = self._versions.newest(topic), self._versions.rivals(topic).get(cid)
            if newest is None or rival is None or not self.holds(topic):
                return []
            allowed, sub_topics = merged(rival.base, rival.version, newest)
            metadata = {**newest.metadata, MERGES: cid_text(cid)}
            return [
                self._seal_version(topic, newest.owners, allowed, sub_topics, newest.cid, metadata)
            ]

        def then(error: str, versions: list[TopicVersion]) -> None:
            self._ctx.counters["history_versions_merged"] += not error

        self._write(_Change(draft, self._count, then))

    def _draft(self, command: ChangeTopic) -> list[TopicVersion]:
        """The versions to write, the topic's own last; `Refused` if it cannot be."""
        topic, owner = command.topic, owner_in(command.topic)
        current = self._versions.newest(topic)
        if owner is not None and owner != self._ctx.me.peer:
            raise Refused(Reason.NOT_OWNER, f"by its name {topic} is {peer_text(owner)}'s")
        if command.create:
            if current is not None and self.holds(topic):
                change = "change it (allow, revoke, restrict, add)"
                raise Refused(Reason.NOT_OWNER, f"{topic} is this peer's already: {change}")
            if current is not None:
                owners = ", ".join(map(peer_text, current.owners))
                raise Refused(Reason.NOT_OWNER, f"{topic} has an owner already: {owners}")
            return [self._draft_first(command, owner)]
        if current is None and owner is None:
            raise Refused(Reason.UNKNOWN_TOPIC, f"no version of {topic} is known here")
        if current is not None and not self.holds(topic):
            raise Refused(Reason.NOT_OWNER, f"another peer holds {topic}")
        # A topic that is this peer's by its name needs no first version.
        template = current or self._seal_version(topic, (), (), {}, None, {})
        allowed = _next_allowed(command, template)
        sub_topics = dict(template.sub_topics)
        first: list[TopicVersion] = []
        if command.sub_topic:
            child, first = self._draft_child(topic, command.sub_topic, template)
            sub_topics[command.sub_topic] = child
        metadata = {key: value for key, value in template.metadata.items() if key != MERGES}
        parent = current.cid if current is not None else None
        version = self._seal_version(topic, template.owners, allowed, sub_topics, parent, metadata)
        return [*first, version]

    def _draft_first(self, command: ChangeTopic, owner: PeerId | None) -> TopicVersion:
        topic, holders = command.topic, self._versions.holders(command.topic)
        owners = tuple(sorted({self._ctx.me.peer, *command.owners}))
        if owner is not None and owners != (owner,):
            raise Refused(Reason.NOT_OWNER, f"by its name {topic} has one owner: this peer")
        if holders is not None and holders != owners:
            raise Refused(Reason.NOT_OWNER, f"{topic} has an owner already")
        allowed = None if command.anyone else command.allow
        metadata: dict[str, Scalar] = {ROOT: topic} if command.hierarchy else {}
        if command.made_from is not None:
            metadata |= self._origin(topic, command.made_from).metadata()
        return self._seal_version(topic, owners, allowed, {}, None, metadata)

    def _origin(self, topic: Topic, version: Cid) -> MadeFrom:
        """The topic that a new one is made from, as it stands here; anybody may own it."""
        found = self._versions.get(version)
        if found is None:
            raise Refused(Reason.UNKNOWN_TOPIC, f"{cid_text(version)} is not known here")
        if found.name == topic:
            raise Refused(Reason.WRONG_TOPIC, f"{topic} cannot be made from itself")
        heads = self._library.heads(found.name)
        highest = sorted(heads, key=lambda cid: (-heads[cid], cid))[:HEADS_NAMED_MAX]
        return MadeFrom(found.name, version, tuple(highest))

    def _draft_child(
        self, topic: Topic, segment: str, parent: TopicVersion
    ) -> tuple[Cid, list[TopicVersion]]:
        """A sub-topic's version: the newest one known, or a first one made for it."""
        name = Topic(f"{topic}/{segment}")
        if sub_topic_segment(topic, name) != segment:
            said = f"{segment!r} is no name for a sub-topic: that is one segment of a path"
            raise Refused(Reason.OUTSIDE_PARENT, said)
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
        holders = self._versions.holders(topic)
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
            if value in self._coming:
                self._found_then.setdefault(value, []).append(then)
            else:
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
