"""Versions of owned topics: whose word counts in a topic, which version is the newest, and what
that means for an event (paper 004, Sections 4.1 and 4.5).

Whose word counts? A topic's *holders* are known by proof alone, never by hearsay:

- the name says so: in `/~<peer id>/orders`, and in all topics below `/~<peer id>`, that key holds;
- the user of this peer said so (`FollowTopic`), or made the topic here;
- a version of the topic above, which has known holders itself, hangs this one under `#`: the owners
  of what hangs there hold it.

In any other topic nobody's word counts, and anyone may publish: a peer that claims such a topic is
believed by the peers whose users said so, and by no other. A stranger's claim changes nothing.

Where the holders are known, an event is judged before it is stored or passed on. An event by a
holder is accepted. An event by another peer must link to a version that a holder wrote and that
lets its publisher publish, and the newest version known must let it, too, unless the linked version
follows that one. An event without a link is refused at once, without asking anybody. A linked
version that is not at hand may be newer than the newest known here. If the newest does not let the
publisher publish, only the peer that brought the event is asked for the linked version; the event
waits meanwhile and is not passed on. No version is stored before an event that links to it is
accepted.

Deviation: the paper names a topic by its CID, which fixes its owner. Names are what people share,
so a name may carry its owner's key; a name that does not is given an owner by each user.

Versions form a chain (`parent`), which `lineage` follows downwards; holders that change a topic at
once make it fork. A version beside the newest that no other one has taken over yet (a *rival*)
still counts for what it takes away: a revocation holds from the moment a peer hears of it.

Invariants: a version is known only if it is whole and truly signed; the events that wait for
versions are bounded in number and bytes per topic, and in number per sender; the oldest are
dropped first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from weft.bounded import BoundedDict
from weft.documents.authority import (
    is_revoked,
    judge_event,
    judge_origin,
    judge_sub_topic,
    judge_version,
    may_publish,
    merges,
)
from weft.documents.descriptor import SealedEvent, TopicVersion, open_topic
from weft.documents.refusal import Reason, Refused
from weft.ids import Cid, Contact, PeerId, Topic, owner_in
from weft.protocol.context import Context
from weft.rules.hierarchy import above, root_in

_KNOWN_MAX = 1_024
"""guess: versions kept at hand; others are read from the store again."""
_UNPROVEN_MAX = 128
"""guess: versions at hand that no accepted event and no record points at yet. One has 340 kB at
most, and a peer that missed `LINEAGE_MAX` changes fetches as many before it can tell."""
LINEAGE_MAX = 64
"""guess: versions followed downwards. A peer that missed more changes than that takes the newest
version on its holder's word, without seeing that it follows the one it had."""
RIVALS_MAX = 8
"""guess: versions beside the newest, per topic; half of the holders may write at once."""
_EACH_SHARE = 8
"""guess: one sender's events may take an eighth of the room for events that wait."""

Holders: TypeAlias = tuple[PeerId, ...]
"""The keys that hold a topic, ascending."""
Waiting: TypeAlias = tuple[SealedEvent, Contact | None, int]
"""An event, the peer that brought it, and its hops."""


class Rival(NamedTuple):
    """A version beside the newest, and the last one that both follow."""

    version: TopicVersion
    base: TopicVersion | None


class Lineage(NamedTuple):
    """A version and those before it, the nearest first."""

    cids: dict[Cid, None]
    missing: Cid | None  # a version that is not at hand, so those before it are not known
    whole: bool  # nothing is missing, and it was followed to the first version


class Versions:
    """The topic versions that one peer knows, and the events that wait for others."""

    def __init__(self, ctx: Context, stored: Callable[[Cid], bytes | None]) -> None:
        self._ctx = ctx
        self._stored = stored
        self._known: BoundedDict[Cid, TopicVersion] = BoundedDict(_KNOWN_MAX)
        # Versions that came, and no accepted event or record points at yet.
        self._unproven: BoundedDict[Cid, TopicVersion] = BoundedDict(_UNPROVEN_MAX)
        self._newest: dict[Topic, TopicVersion] = {}
        self._rivals: dict[Topic, dict[Cid, Rival]] = {}
        self._told: dict[Topic, Holders] = {}  # by the user of this peer, now or before
        # Versions that hang in a topic above, and are fetched.
        self._hung: BoundedDict[Cid, Topic] = BoundedDict(_KNOWN_MAX)
        self._followers: BoundedDict[tuple[Cid, Cid], bool] = BoundedDict(_KNOWN_MAX)
        """Whether the first of two versions follows the second."""
        self._held: dict[Topic, HeldEvents] = {}

    # --- versions at hand -------------------------------------------------------------------------

    def get(self, cid: Cid) -> TopicVersion | None:
        version = self._known.get(cid) or self._unproven.get(cid)
        if version is None:
            block = self._stored(cid)
            if block is not None:
                try:
                    version = open_topic(block, cid)
                except Refused:
                    return None
                self._known[cid] = version
        return version

    def note(self, version: TopicVersion) -> None:
        """A version has come. It is stored once an accepted event or a record points at it."""
        if version.cid not in self._known and self._stored(version.cid) is None:
            self._unproven[version.cid] = version

    def take_proven(self, cid: Cid | None) -> TopicVersion | None:
        """An accepted event or a holder's record points at a version; returns it if it is to be
        stored now."""
        version = self._unproven.pop(cid, None) if cid is not None else None
        if version is not None:
            self._known[version.cid] = version
        return version

    def block(self, cid: Cid) -> bytes | None:
        """A version that is at hand, stored or not yet."""
        version = self._known.get(cid) or self._unproven.get(cid)
        return version.block if version is not None else None

    def lineage(self, version: TopicVersion) -> Lineage:
        """The version and those before it, as far as they are at hand. `Refused` where one does
        not follow the one that it names."""
        cids: dict[Cid, None] = {version.cid: None}
        missing: Cid | None = None
        left = [version]
        while left and len(cids) < LINEAGE_MAX:
            later = left.pop(0)
            for cid in (later.parent, merges(later)):
                if cid is None or cid in cids:
                    continue
                before = self.get(cid)
                if before is None:
                    missing = missing or cid
                    continue
                reason = judge_version(later, before)
                if reason is not None:
                    raise Refused(reason, "a version does not follow the one that it names")
                cids[cid] = None
                left.append(before)
        return Lineage(cids, missing, missing is None and not left)

    def _follows(self, later: TopicVersion, earlier: Cid) -> bool:
        """Whether a version is known to follow another; asked for every event."""
        if later.cid == earlier:
            return True
        key = later.cid, earlier
        known = self._followers.get(key)
        if known is None:
            try:
                lineage = self.lineage(later)
            except Refused:
                return False
            known = earlier in lineage.cids
            if known or lineage.whole:
                self._followers[key] = known
        return known

    # --- whose word counts ------------------------------------------------------------------------

    def holders(self, topic: Topic) -> Holders | None:
        """The keys that hold a topic; None where that is not proven."""
        owner = owner_in(topic)
        if owner is not None:
            return (owner,)
        told = self._told.get(topic)
        if told is not None:
            return told
        parent, segment, cid = self._hangs_at(topic)
        child = self.get(cid) if cid is not None else None
        if parent is None or child is None or judge_sub_topic(parent, segment, child) is not None:
            return None
        return child.owners

    def tell(self, topic: Topic, holders: Holders) -> None:
        """The user of this peer says that these hold a topic."""
        self._told[topic] = holders

    @property
    def told(self) -> dict[Topic, Holders]:
        return self._told

    def lacks_hung(self, topic: Topic) -> Cid | None:
        """The version that hangs in the topic above in this one's place, if it is not at hand."""
        _, _, cid = self._hangs_at(topic)
        if cid is None or topic in self._told or self.get(cid) is not None:
            return None
        self._hung[cid] = topic
        return cid

    def is_hung(self, cid: Cid) -> bool:
        return cid in self._hung

    def _hangs_at(self, topic: Topic) -> tuple[TopicVersion | None, str, Cid | None]:
        """The newest version of the topic above, and what hangs there in this one's place."""
        path, _, segment = topic.rpartition("/")
        parent = self._newest.get(Topic(path))
        return parent, segment, parent.sub_topics.get(segment) if parent is not None else None

    # --- the newest version, and those beside it --------------------------------------------------

    def newest(self, topic: Topic) -> TopicVersion | None:
        return self._newest.get(topic)

    def link(self, topic: Topic) -> Cid | None:
        """The version that an event published now links to."""
        version = self._newest.get(topic)
        return version.cid if version is not None else None

    def set_newest(self, version: TopicVersion) -> None:
        """A topic record says that this is the newest version; the rivals that it has taken over
        count no longer."""
        self._known[version.cid] = version
        self._newest[version.name] = version
        self.settle(version.name)

    def settle(self, topic: Topic) -> Cid | None:
        """Drop the rivals that the newest version has taken over; returns a version that is not at
        hand and may show that it took over others."""
        newest, rivals = self._newest.get(topic), self._rivals.get(topic)
        if newest is None or not rivals:
            return None
        try:
            lineage = self.lineage(newest)
        except Refused:
            return None
        for cid in [cid for cid in rivals if cid in lineage.cids]:
            del rivals[cid]
        return lineage.missing if rivals else None

    def on_other_holders(self, topic: Topic) -> None:
        """The holders of a topic are others by now, so what they wrote before does not count."""
        self._newest.pop(topic, None)
        self._rivals.pop(topic, None)

    def rivals(self, topic: Topic) -> dict[Cid, Rival]:
        return self._rivals.get(topic, {})

    def add_rival(self, rival: Rival) -> bool:
        """Put a version beside the newest; returns whether there was room for it."""
        rivals = self._rivals.setdefault(rival.version.name, {})
        if len(rivals) >= RIVALS_MAX:
            return False
        rivals[rival.version.cid] = rival
        return True

    # --- judging events ---------------------------------------------------------------------------

    def refuses_me(self, topic: Topic) -> bool:
        """Whether this peer may not publish in a topic, as far as it knows."""
        return self.refuses(topic, self._ctx.me.peer)

    def refuses(self, topic: Topic, publisher: PeerId) -> bool:
        """Whether a peer may not publish in a topic, as far as this peer knows."""
        holders = self.holders(topic)
        if holders is None or publisher in holders:
            return False
        return not self._newest_lets(publisher, topic)

    def _newest_lets(self, publisher: PeerId, topic: Topic) -> bool:
        newest = self._newest.get(topic)
        if newest is None or not may_publish(publisher, newest):
            return False
        return not self._is_revoked(publisher, topic)

    def _is_revoked(self, publisher: PeerId, topic: Topic) -> bool:
        """Whether a rival takes the right to publish away from a peer."""
        return any(
            base is not None and is_revoked(publisher, base, version)
            for version, base in self.rivals(topic).values()
        )

    def needed(self, event: SealedEvent) -> Cid | None:
        """The version that must be fetched before the event can be judged; none where the topic's
        holders are not known."""
        if event.link is None or self.holders(event.topic) is None:
            return None
        return event.link if self.get(event.link) is None else None

    def judge(self, event: SealedEvent, vouched: bool) -> Reason | None:
        """Why an event may not be in its stream; `vouched`: an accepted event names it."""
        topic = event.topic
        linked = self.get(event.link) if event.link is not None else None
        newest = self._newest.get(topic)
        if linked is not None and newest is not None and not vouched:
            newest = linked if self._follows(linked, newest.cid) else newest
        holders = self.holders(topic)
        reason = judge_event(event, topic, holders, linked, newest, vouched)
        may = holders is None or vouched or event.publisher in holders
        if reason is None and not may and self._is_revoked(event.publisher, topic):
            reason = Reason.NOT_ALLOWED
        return reason or judge_origin(event, self._roots(linked), vouched)

    def lets(self, event: SealedEvent, vouched: bool) -> bool:
        """Whether an event may be passed on before the version that it links to is at hand: its
        publisher may publish by what is known already."""
        holders = self.holders(event.topic)
        known = holders is None or vouched or event.publisher in holders
        return known or self._newest_lets(event.publisher, event.topic)

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
        """Keep an event until the version that it links to has come."""
        held = self._held.get(event.topic)
        if held is None:
            limits = self._ctx.config.history
            held = HeldEvents(limits.held_max, limits.waiting_bytes_max)
            self._held[event.topic] = held
        self._ctx.counters["history_held_dropped"] += held.add(version, (event, source, hops))

    def held(self, topic: Topic) -> HeldEvents | None:
        """The events of a topic that wait for versions."""
        return self._held.get(topic)

    def expects(self, cid: Cid) -> bool:
        return cid in self._hung or any(cid in held.versions for held in self._held.values())

    def expected(self, topic: Topic) -> list[Cid]:
        """The versions that events of a topic wait for, and the one that hangs in its place."""
        held, hung = self._held.get(topic), self.lacks_hung(topic)
        return [*(held.versions if held is not None else ()), *([hung] if hung else ())]

    def released(self, cid: Cid) -> list[Waiting]:
        """The events that waited for a version, which has come or will not."""
        self._hung.pop(cid, None)
        waiting: list[Waiting] = []
        for topic in [topic for topic, held in self._held.items() if cid in held.versions]:
            waiting += self._held[topic].release(cid)
            if not len(self._held[topic]):
                del self._held[topic]
        return waiting

    def forget_topic(self, topic: Topic) -> None:
        """This peer has no use for its events any more."""
        self._held.pop(topic, None)


class HeldEvents:
    """The events of one topic that wait for versions. The events of one sender take a share of the
    room at most; where there is none left, the oldest are dropped, of that sender or of all."""

    def __init__(self, most: int, bytes_most: int) -> None:
        self._most = most
        self._each_most = max(1, most // _EACH_SHARE)
        self._bytes_most = bytes_most
        self._events: dict[Cid, tuple[Cid, Waiting]] = {}  # with the version, the oldest first
        self._by_sender: dict[PeerId, dict[Cid, None]] = {}
        self.versions: dict[Cid, dict[Cid, None]] = {}
        """The versions that are waited for, and the events that do."""
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._events)

    def add(self, version: Cid, waiting: Waiting) -> int:
        """Keep an event; returns how many were dropped for it."""
        event = waiting[0]
        if event.cid in self._events:
            return 0
        dropped = 0
        of_sender = self._by_sender.setdefault(_sender(waiting), {})
        if len(of_sender) >= self._each_most:
            self._remove(next(iter(of_sender)))
            of_sender = self._by_sender.setdefault(_sender(waiting), {})
            dropped += 1
        of_sender[event.cid] = None
        self._events[event.cid] = version, waiting
        self.versions.setdefault(version, {})[event.cid] = None
        self.bytes += len(event.block)
        while self._events and (len(self) > self._most or self.bytes > self._bytes_most):
            self._remove(next(iter(self._events)))
            dropped += 1
        return dropped

    def release(self, version: Cid) -> list[Waiting]:
        return [self._remove(cid) for cid in list(self.versions.get(version, ()))]

    def _remove(self, cid: Cid) -> Waiting:
        version, waiting = self._events.pop(cid)
        self.bytes -= len(waiting[0].block)
        for index, key in ((self.versions, version), (self._by_sender, _sender(waiting))):
            del index[key][cid]  # type: ignore[index]
            if not index[key]:  # type: ignore[index]
                del index[key]  # type: ignore[arg-type]
        return waiting


def _sender(waiting: Waiting) -> PeerId:
    """The peer that an event's room is charged to."""
    event, source, _ = waiting
    return source.peer if source is not None else event.publisher
