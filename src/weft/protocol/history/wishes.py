"""Sub-topics for peers that do not own a topic (paper 004, Section 4.3).

A peer that may publish in a topic may ask for a sub-topic of it. An owner either lets every such
wish come true (`accept_sub_topics`), or keeps it until its user adds the sub-topic, or says no. The
asker hears what came of it; that the sub-topic hangs there it hears like all members, by the
topic's news. Owners are asked one after another: those known as members, then those that the DHT
finds. Wishes that wait are stored, so that a restart of the owner loses none.

`ownership.py` knows which peers own a topic, and writes its versions. A wish is only ever asked of
the topic's proven holders, and only their answer counts. A peer that made a wish may leave: the
owner keeps the wish, and the asker finds the sub-topic like any other peer. A kept wish costs its
owner a name and a key.

Invariants: at most `_WISHES_MAX` wishes are kept per topic, `_WISHES_EACH_MAX` of one asker, in at
most `_TOPICS_MAX` topics; an asker has at most `_ASKING_MAX` wishes on their way.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from weft.documents import record as records
from weft.documents.authority import judge_sub_topic_request
from weft.documents.refusal import Reason
from weft.ids import Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context
from weft.protocol.history.ownership import Members, Ownership
from weft.protocol.history.storage import Storage
from weft.protocol.history.versions import Versions
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.seam import Answer, AskSubTopic, ChangeTopic, DhtFindPeer, Outcome
from weft.protocol.wire import REASON_MAX, Counter, Message, WireReason
from weft.store.interface import Store

SEGMENT_MAX = 254
"""A topic has 256 bytes at most, two of them before the first segment and between two."""


class SubTopicRequest(Message, frozen=True, tag=66):
    """To an owner of the topic: please hang this sub-topic under it."""

    topic: WireTopic
    request: Counter
    segment: Annotated[str, Meta(max_length=SEGMENT_MAX)]


class SubTopicReply(Message, frozen=True, tag=67):
    """From an owner: the sub-topic hangs there, or waits for the owner's user, or neither.

    A sub-topic that hangs there already is refused, too: its asker finds it by the topic's news."""

    topic: WireTopic
    request: Counter
    granted: bool
    waits: bool  # until the owner's user agrees
    reason: WireReason  # why not


ASK = "history.ask"

_WISHES_MAX = 64
_WISHES_EACH_MAX = 8
_TOPICS_MAX = 256
_ASKING_MAX = 64
"""guess, all four: people make wishes by hand, so few are on their way at once."""

_WHY = {
    Reason.OUTSIDE_PARENT: "a sub-topic is named by one segment of a path, without slashes",
    Reason.NOT_ALLOWED: "only a peer that may publish in the topic may ask for sub-topics",
    Reason.WRONG_TOPIC: "it hangs there already",
}


class _Wish:
    """One wish of this peer's user, the owners still to be asked, and the one that is asked now."""

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
        library: Store,
        ownership: Ownership,
        versions: Versions,
        storage: Storage,
        members: Members,
        dht: Kademlia | None,
    ) -> None:
        self._ctx = ctx
        self._storage = storage
        self._ownership = ownership
        self._versions = versions
        self._members = members
        self._dht = dht
        self._asking: dict[int, _Wish] = {}  # by the number of the question on its way
        self._sought = 0  # wishes whose next owner the DHT looks for
        self._kept: dict[Topic, dict[str, PeerId]] = {}
        for encoded in library.records().values():
            wishes = records.read_wishes(encoded)
            if wishes is not None:
                self._kept[wishes[0]] = wishes[1]

    def of(self, topic: Topic) -> dict[str, PeerId]:
        """The sub-topics that others asked for, and which peer did; those that hang there by now
        are done."""
        version = self._versions.newest(topic)
        hang = version.sub_topics if version is not None else {}
        kept = {name: peer for name, peer in self._kept.get(topic, {}).items() if name not in hang}
        if kept:
            self._kept[topic] = kept
        else:
            self._kept.pop(topic, None)
        return kept

    # --- asking -----------------------------------------------------------------------------------

    def ask(self, command: AskSubTopic) -> None:
        """The user of this peer would like a sub-topic: ask the topic's holders, members first.
        What an owner would refuse for sure is refused here: unknown holders, a topic of one's own,
        a name that is no segment or hangs there already, a peer that may not publish."""
        topic, version = command.topic, self._versions.newest(command.topic)
        record = self._ownership.record(topic)
        if version is None or record is None:
            self._answer(command, "refused", f"nobody is known to own {topic}")
        elif self._ownership.holds(topic):
            self._answer(command, "refused", f"{topic} is this peer's own: add the sub-topic")
        elif len(self._asking) + self._sought >= _ASKING_MAX:
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
        """An owner did not answer in time: ask the next one."""
        wish = self._asking.pop(number, None)
        if wish is not None:
            self._ask_next(wish)

    def on_reply(self, sender: Contact, message: SubTopicReply) -> None:
        """The owner that was asked has answered; anybody else's answer counts for nothing."""
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
        """Ask the next owner that can be reached; tell the user if there is none left."""
        topic = wish.command.topic
        while wish.owners:
            owner = wish.owners.pop(0)
            known = [contact for contact in self._members(topic) if contact.peer == owner]
            if known:
                self._ask_one(wish, known[0])
                return
            if self._dht is not None:
                self._sought += 1
                token = self._ctx.quietly(lambda answer: self._on_found(wish, answer))
                self._dht.operations.find_peer(DhtFindPeer(token, owner))
                return
        reason = f"no owner of {topic} could be reached"
        self._answer(wish.command, "not_found", reason)

    def _on_found(self, wish: _Wish, answer: Answer) -> None:
        """The DHT has found an owner that is no member, or has not."""
        self._sought -= 1
        if answer.contact is not None:
            self._ask_one(wish, answer.contact)
        else:
            self._ask_next(wish)

    def _ask_one(self, wish: _Wish, owner: Contact) -> None:
        """Send the wish to one owner, and wait for its answer."""
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
        others = sum(bool(self.of(one)) for one in list(self._kept) if one != topic)
        full = not wishes and others >= _TOPICS_MAX
        if full or len(wishes) >= _WISHES_MAX or of_asker >= _WISHES_EACH_MAX:
            return False
        # All wishes of a topic are one note in the store, so this also drops those that came true.
        kept = self._kept.setdefault(topic, {})
        kept[segment] = asker
        self._storage.add_named(*records.seal_wishes(topic, kept))
        return True

    def _on_changed(self, sender: Contact, message: SubTopicRequest, answer: Answer) -> None:
        """A wish that comes true at once is written, or could not be."""
        granted = answer.outcome == "stored"
        reason = "" if granted else answer.reason[:REASON_MAX]
        self._ctx.send(
            sender, SubTopicReply(message.topic, message.request, granted, False, reason)
        )

    def _refuse(self, sender: Contact, message: SubTopicRequest, reason: Reason, why: str) -> None:
        """Refuse the sub-topic, tell the asker why, and count the reason."""
        self._ctx.counters[f"history_refused_{reason}"] += 1
        reply = SubTopicReply(message.topic, message.request, False, False, why[:REASON_MAX])
        self._ctx.send(sender, reply)
