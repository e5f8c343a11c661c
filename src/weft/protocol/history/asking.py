"""Sub-topics for those who do not own a topic: they ask its owners (paper 004, Section 4.5).

Whoever may publish in a topic may ask for a sub-topic. An owner either lets every such wish come
true (`accept_sub_topics`), or keeps it until its user adds the sub-topic, or says no. The asker
hears what came of it; that the sub-topic hangs there it hears like everybody, by the topic's news.

Owners are asked one after another: those known as members, then those that the DHT finds.

Invariants: at most `_WISHES_MAX` wishes are kept per topic, `_WISHES_EACH_MAX` of one asker, in at
most `_TOPICS_MAX` topics; they are not stored, so after a restart they have to be made again.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.documents.authority import judge_sub_topic_request
from weft.documents.refusal import Reason
from weft.ids import Contact, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.history.ownership import Ownership
from weft.protocol.history.versions import Versions
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.messages_history import REASON_MAX, SubTopicReply, SubTopicRequest
from weft.protocol.seam import Answer, AskSubTopic, ChangeTopic, DhtFindPeer, Outcome

TIMER = "history.ask"
_WISHES_MAX = 64
_WISHES_EACH_MAX = 8
_TOPICS_MAX = 256
_ASKING_MAX = 64
"""guess, all four: this is about people."""

_WHY = {
    Reason.OUTSIDE_PARENT: "that is not one segment of a path",
    Reason.NOT_ALLOWED: "only who may publish in the topic may ask for sub-topics",
    Reason.WRONG_TOPIC: "it hangs there already",
}


class _Asking:
    """One wish, and the owners still to be asked."""

    __slots__ = ("asked", "command", "owners")

    def __init__(self, command: AskSubTopic, owners: list[PeerId]) -> None:
        self.command = command
        self.owners = owners
        self.asked: PeerId | None = None


class Asking:
    """See the module's text."""

    def __init__(
        self,
        ctx: Context,
        ownership: Ownership,
        versions: Versions,
        members: Callable[[Topic], list[Contact]],
        dht: Kademlia | None,
    ) -> None:
        self._ctx = ctx
        self._ownership = ownership
        self._versions = versions
        self._members = members
        self._dht = dht
        self._asking: dict[int, _Asking] = {}
        self._wishes: dict[Topic, dict[str, PeerId]] = {}

    def wishes(self, topic: Topic) -> dict[str, PeerId]:
        """The sub-topics that others asked for, and who; those that hang there by now are done."""
        version = self._versions.newest(topic)
        hang = version.sub_topics if version is not None else {}
        kept = {name: who for name, who in self._wishes.get(topic, {}).items() if name not in hang}
        if topic in self._wishes:
            self._wishes[topic] = kept
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
            self._ask_next(_Asking(command, owners))

    def _ask_next(self, asking: _Asking) -> None:
        topic = asking.command.topic
        while asking.owners:
            owner = asking.owners.pop(0)
            known = [contact for contact in self._members(topic) if contact.peer == owner]
            if known:
                self._ask_one(asking, known[0])
                return
            if self._dht is not None:
                token = self._ctx.quietly(lambda answer: self._on_found(asking, answer))
                self._dht.operations.find_peer(DhtFindPeer(token, owner))
                return
        reason = f"no owner of {topic} could be reached"
        self._answer(asking.command, "not_found", reason)

    def _on_found(self, asking: _Asking, answer: Answer) -> None:
        if answer.contact is not None:
            self._ask_one(asking, answer.contact)
        else:
            self._ask_next(asking)

    def _ask_one(self, asking: _Asking, owner: Contact) -> None:
        ctx, topic = self._ctx, asking.command.topic
        number = ctx.next_serial()
        asking.asked = owner.peer
        self._asking[number] = asking
        ctx.send(owner, SubTopicRequest(topic, number, asking.command.segment))
        ctx.set_timer(ctx.config.history.request_timeout_ms, TIMER, topic, number)

    def on_timer(self, number: int) -> None:
        asking = self._asking.pop(number, None)
        if asking is not None:
            self._ask_next(asking)

    def on_reply(self, sender: Contact, message: SubTopicReply) -> None:
        asking = self._asking.get(message.request)
        if asking is None or asking.asked != sender.peer:
            self._ctx.counters["history_unasked"] += 1
            return
        del self._asking[message.request]
        if message.granted:
            self._answer(asking.command, "stored", "")
        elif message.waits:
            self._answer(asking.command, "queued", "an owner of the topic has to agree")
        else:
            self._answer(asking.command, "refused", message.reason)

    def _answer(self, command: AskSubTopic, outcome: Outcome, reason: str) -> None:
        self._ctx.answer(Answer(command.token, outcome, reason=reason))

    # --- being asked ------------------------------------------------------------------------------

    def on_request(self, sender: Contact, message: SubTopicRequest) -> None:
        """Somebody would like a sub-topic of a topic that this peer holds."""
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
        """Keep a wish, if there is room; the first one who asks for a sub-topic is remembered."""
        wishes = self.wishes(topic)
        if segment in wishes:
            return True
        of_asker = sum(one == asker for one in wishes.values())
        full = topic not in self._wishes and len(self._wishes) >= _TOPICS_MAX
        if full or len(wishes) >= _WISHES_MAX or of_asker >= _WISHES_EACH_MAX:
            return False
        self._wishes.setdefault(topic, {})[segment] = asker
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
