"""History of one peer: events sealed, checked, put into their stream, stored, repaired, delivered
(paper 004, Sections 4.1, 4.4 and 4.5).

Publishing: the event names the stream's heads as parents and is signed; it is stored first and
routed once it is durable, so what others have seen is never lost with its publisher.

Receiving (`intake.py`): blocks are checked before they are passed on (a block that is not what it
says goes no further). An event is delivered once all its parents were; a parent that is not known
is a gap, and fetched (`fetch.py`). Members tell each other their heads over new links and now and
then, so that whoever missed the end of a stream finds out too.

Deviation: the paper's events have no number beside their parent. Ours carry the number that routing
knows them by in their metadata, signed, so that nobody can pass one event off under two numbers.

Reading the store is a question that it answers at once (memory, or SQLite's page cache), so it is
asked directly; writing takes a disk's time and is an effect (`seam.Store`), answered by a fact.
What is on its way to the store is known here (`storing.py`).

Invariants: each event of a topic is delivered at most once in a life of this peer, and after its
parents; nothing is stored or delivered that was not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.ids import Cid, Contact, PeerId, Topic, cid_text
from weft.protocol.context import Context
from weft.protocol.history import catchup, fetch, ownership, storing
from weft.protocol.history.answers import Answers
from weft.protocol.history.fetch import Fetch
from weft.protocol.history.intake import INCARNATION, NUMBER, Intake, routed
from weft.protocol.history.ownership import Ownership
from weft.protocol.history.serving import Serving
from weft.protocol.history.storing import Storing
from weft.protocol.history.topic_history import TopicHistory
from weft.protocol.history.versions import Versions
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.messages import Event as Routed
from weft.protocol.messages_history import (
    Heads,
)
from weft.protocol.seam import (
    Answer,
    DhtFindProviders,
    DhtProvide,
    Pruned,
    Publish,
    Timer,
)
from weft.rules.dag import START, Stream
from weft.rules.descriptor import Event, seal_event
from weft.rules.draw import chance, stream_of
from weft.rules.prefix import BLOCK, DIGEST_BYTES
from weft.rules.refusal import Reason
from weft.rules.signing import Signer
from weft.store.interface import Store as StoreOfPeer
from weft.store.reader import Since
from weft.store.reader import stream_of as stored_stream

TIMERS = (
    fetch.TIMEOUT,
    fetch.AGAIN,
    fetch.PATIENCE,
    catchup.TIMEOUT,
    storing.PRUNE,
    ownership.TIMER,
)
_PROVIDE = stream_of("history.provide")
_TELL = stream_of("history.tell")
_PROVIDE_PARTS = 1_000_000
_PROVIDERS_WANTED = 3
"""guess: providers looked for before a missing block is asked of them."""

_COUNTERS = (
    "history_caught_up",
    "history_gaps",
    "history_given_up",
    "history_pruned",
    "history_store_failed",
    "history_versions_adopted",
    *(f"history_refused_{reason}" for reason in Reason),
)

Route = Callable[[int, Topic, Routed], None]
"""Spread an event and answer the command with this token."""


class History:
    """See the module's text."""

    def __init__(
        self,
        ctx: Context,
        library: StoreOfPeer,
        sign: Signer,
        members: Callable[[Topic], list[Contact]],
        route: Route,
        dht: Kademlia | None,
    ) -> None:
        """`members` names members of a topic, those to ask first; `route` spreads an event."""
        self._ctx = ctx
        self._library = library
        self._sign = sign
        self._members = members
        self._route = route
        self._dht = dht
        self.topics: dict[Topic, TopicHistory] = {}
        self._outside: dict[Topic, Stream] = {}  # published to without a subscription
        self._unsettled: dict[Cid, None] = {}  # own events that are not durable yet
        self.storing = Storing(ctx, self._on_store_failed)
        self.fetch = Fetch(ctx, members, self._find_providers, self._give_up)
        self.versions = Versions(ctx, library.get)
        self.serving = Serving(ctx, library, self._block_at_hand)
        self.intake = Intake(
            ctx, self.topics, self.versions, self.fetch, self.storing, self._maybe_provide
        )
        self.ownership = Ownership(
            ctx, library, sign, self.versions, self.fetch, self.storing, members, dht
        )
        self.answers = Answers(
            ctx,
            self.topics,
            self.intake,
            self.fetch,
            self.storing,
            self.versions,
            self.ownership,
            self._give_up,
        )

    def start(self) -> None:
        for name in _COUNTERS:
            self._ctx.counters[name] += 0  # so that it shows before it happens
        self.storing.start()
        self.ownership.start()

    def status(self) -> dict[str, object]:
        """What a user wants to see, ready for JSON."""
        start = "history_refused_"
        refused = {
            name.removeprefix(start): count
            for name, count in sorted(self._ctx.counters.items())
            if name.startswith(start) and count
        }
        return {
            "missing": len(self.fetch),
            "refused": refused,
            "topics": {topic: self._topic_status(topic) for topic in self.topics},
        }

    def _topic_status(self, topic: Topic) -> dict[str, object]:
        state, held = self.topics[topic], self._library.summary(topic)
        record = self.ownership.record(topic)
        return {
            "events": held.events,
            "bytes": held.bytes,
            "height": state.top(),
            "heads": len(state.stream.heads),
            "waiting": state.stream.waiting,
            "reading": state.catch_up.reading,
            "pruned_to": held.floor.height,
            "version": cid_text(record.value) if record is not None else "",
            "sequence": record.sequence if record is not None else 0,
        }

    def _block_at_hand(self, cid: Cid) -> bytes | None:
        event = self.storing.unstored.get(cid)
        return event.block if event is not None else self.versions.block(cid)

    # --- subscriptions ----------------------------------------------------------------------------

    def subscribe(self, topic: Topic, since: Since | None) -> None:
        state = self.topics.get(topic)
        if state is None:
            self._outside.pop(topic, None)
            state = TopicHistory(self._ctx, topic, since, self._library, self._members)
            self.topics[topic] = state
            self.fetch.want(topic, self._library.missing(topic), None)
        elif since is not None:
            state.since = since
        self._read_past(state, None)

    def entered(self, topic: Topic, alone: bool) -> None:
        """The subscription was answered; `alone`: nobody else was found."""
        state = self.topics.get(topic)
        if state is not None and alone and not state.begun:
            state.begin_alone()
            self.intake.take_in_early(state)

    def unsubscribe(self, topic: Topic) -> None:
        if self.topics.pop(topic, None) is not None:
            self.fetch.forget_topic(topic)
            self.versions.forget_topic(topic)

    def _read_past(self, state: TopicHistory, source: Contact | None) -> None:
        """Read the past that a subscriber asked for, as soon as there is somebody to ask. Whoever
        has the stream from its beginning lacks only what follows."""
        if state.since is None or state.catch_up.reading:
            return
        if source is None and not self._members(state.topic):
            return
        since, state.since = state.since, None
        floor = self._library.summary(state.topic).floor
        if state.stream.heads and not state.wanted_above and floor == START:
            since = state.behind()
        elif since == "beginning":
            state.wanted_above = 0
        state.catch_up.start(source, since)

    # --- publishing -------------------------------------------------------------------------------

    def refuses(self, fact: Publish) -> bool:
        """Whether this peer may not publish there, as far as it knows; then that is answered."""
        if not self.versions.refuses_me(fact.topic):
            return False
        self.intake.refuse(fact.topic, Reason.NOT_ALLOWED)
        reason = f"the owners of {fact.topic} do not let this peer publish in it"
        self._ctx.out.append(Answer(fact.token, "refused", reason=reason))
        return True

    def publish(self, fact: Publish, number: int) -> None:
        """Seal an event and have it stored; it is routed once it is durable."""
        topic, ctx = fact.topic, self._ctx
        stream = self._stream(topic)
        event = seal_event(
            self._sign,
            publisher=ctx.me.peer,
            topic=topic,
            payload=fact.payload,
            created_ms=fact.published_ms,
            parents=stream.parents(),
            link=self.versions.link(topic),
            metadata={INCARNATION: ctx.incarnation, NUMBER: number},
        )
        stream.add(event, new=True)
        self._unsettled[event.cid] = None
        self.storing.publish(event, lambda error: self._on_published(fact.token, event, error))

    def _on_published(self, token: int, event: Event, error: str) -> None:
        self._unsettled.pop(event.cid, None)
        if error:
            self._ctx.out.append(Answer(token, "failed", reason=error))
            return
        if event.topic in self.topics:
            self.intake.deliver(event, 0, self._ctx.me.peer)
        self._maybe_provide(event)
        self._route(token, event.topic, routed(event, event.block))

    def _stream(self, topic: Topic) -> Stream:
        state = self.topics.get(topic)
        if state is not None:
            return state.stream
        stream = self._outside.get(topic)
        if stream is None:
            stream = self._outside[topic] = stored_stream(self._library, topic)
            if len(self._outside) > self._ctx.config.history.outside_max:
                del self._outside[next(iter(self._outside))]
        return stream

    def _on_store_failed(self, events: Sequence[Event]) -> None:
        """Nothing may follow an event that nobody has: begin again from what is stored."""
        self.intake.not_stored(event for event in events if event.cid not in self._unsettled)
        for topic in dict.fromkeys(event.topic for event in events):
            self._outside.pop(topic, None)
            state = self.topics.get(topic)
            if state is not None:
                state.stream = stored_stream(self._library, topic)

    def on_pruned(self, fact: Pruned) -> None:
        """What was dropped is not taken in again."""
        self._ctx.counters["history_pruned"] += fact.events
        floor = self._library.summary(fact.topic).floor
        state = self.topics.get(fact.topic)
        stream = state.stream if state is not None else self._outside.get(fact.topic)
        if stream is not None:
            stream.floor = max(stream.floor, floor)

    # --- providing and finding in the DHT ---------------------------------------------------------

    def _maybe_provide(self, event: Event) -> None:
        """Each peer on the way provides the event with probability p (Section 4.4)."""
        history = self._ctx.config.history
        share = round(history.provide_probability * _PROVIDE_PARTS)
        if self._dht is None or not share:
            return
        if chance(self._ctx.bits(_PROVIDE), share, _PROVIDE_PARTS):
            command = DhtProvide(self._ctx.quietly(lambda answer: None), block_key_of(event.cid))
            self._dht.operations.provide(command)

    def _find_providers(self, cid: Cid, then: Callable[[Sequence[Contact]], None]) -> bool:
        """Ask the DHT who has a block; False where there is no DHT."""
        if self._dht is None:
            return False
        token = self._ctx.quietly(lambda answer: then(answer.contacts))
        command = DhtFindProviders(token, block_key_of(cid), _PROVIDERS_WANTED)
        self._dht.operations.find_providers(command)
        return True

    def _give_up(self, topic: Topic, cid: Cid, hearsay: bool) -> None:
        """Nobody has a block, or (`hearsay`) who spoke of it does not."""
        for event, _, _ in self.versions.released(cid):
            self.intake.refuse(event.topic, Reason.UNKNOWN_TOPIC)
        self.ownership.give_up(cid)
        state = self.topics.get(topic)
        if state is None:
            return
        state.baseline.pop(cid, None)
        if state.stream.awaits(cid):
            self.intake.give_up(state, (cid,))
        elif not hearsay:  # the parent of an event that was stored in an earlier life
            self.storing.lose(topic, cid)

    # --- what members tell each other -------------------------------------------------------------

    def _heads(self, state: TopicHistory, answer: bool) -> Heads:
        record = self.ownership.record(state.topic)
        sequence = record.sequence if record is not None else 0
        version = record.value if record is not None else None
        highest = state.highest(self._unsettled)
        return Heads(state.topic, highest, answer, sequence, version)

    def link_up(self, topic: Topic, contact: Contact) -> None:
        """A new link: tell each other where the stream stands."""
        state = self.topics.get(topic)
        if state is None:
            return
        self._read_past(state, contact)
        if not state.begun or self._ctx.me.peer < contact.peer:  # one end is enough
            self._ctx.send(contact, self._heads(state, answer=True))

    def run_topic(self, topic: Topic, alone: bool) -> None:
        """Now and then: tell a member, in case either missed the end of the stream, and go
        through what is missing."""
        if alone:
            self.entered(topic, alone)
        state = self.topics.get(topic)
        members = self._members(topic) if state is not None else []
        if state is None or not members:
            return
        if state.since is None and not state.catch_up.reading:
            state.since, state.catch_up.failed_since = state.catch_up.failed_since, None
        self._read_past(state, None)
        if not state.catch_up.reading:
            self.fetch.want(topic, state.stream.missing(), None)
        self.fetch.want(topic, self.versions.expected(topic), None)
        contact = self._ctx.pick(_TELL, members)
        self._ctx.send(contact, self._heads(state, answer=True))

    def on_heads(self, sender: Contact, message: Heads) -> None:
        state = self.topics.get(message.topic)
        if state is None:
            return
        self._read_past(state, sender)
        if not state.begun:
            wanted = state.begin_with(message.heads)
            self.fetch.want(state.topic, wanted, sender, hearsay=True)
            self.intake.take_in_early(state)
        else:
            self._compare_heads(state, sender, message)
        behind = self.ownership.compare(sender, message)
        told = {head.cid for head in message.heads}
        news = any(head.cid not in told for head in state.highest(self._unsettled))
        # Whoever has nothing may wait for a word to begin with, even if there is nothing yet.
        if behind or (message.answer and (news or not told)):
            self._ctx.send(sender, self._heads(state, answer=False))

    def _compare_heads(self, state: TopicHistory, sender: Contact, message: Heads) -> None:
        """Fetch what the other has seen and this peer has not."""
        unknown = [head for head in message.heads if not state.stream.knows(head.cid)]
        far = max((head.height for head in unknown), default=0) - state.climbed
        if far > self._ctx.config.history.walk_back_max:
            state.catch_up.start(sender, state.behind())
        elif unknown and not state.catch_up.reading and state.since is None:
            cids = [head.cid for head in unknown]
            self.fetch.want(state.topic, cids, sender, hearsay=True)

    # --- timers and losses ------------------------------------------------------------------------

    def on_timer(self, timer: Timer) -> None:
        if timer.kind == fetch.TIMEOUT:
            self.fetch.on_timeout(timer.serial)
        elif timer.kind == fetch.AGAIN:
            self.fetch.on_again()
        elif timer.kind == fetch.PATIENCE:
            self.fetch.on_patience()
        elif timer.kind == storing.PRUNE:
            self.storing.on_prune_timer(list(self._library.topics()))
        elif timer.kind == ownership.TIMER:
            self.ownership.on_timer()
        elif timer.kind == catchup.TIMEOUT:
            state = self.topics.get(timer.topic)
            if state is not None:
                state.catch_up.on_timeout(timer.serial)

    def on_peer_lost(self, peer: PeerId) -> None:
        self.fetch.on_peer_lost(peer)
        for state in self.topics.values():
            state.catch_up.on_peer_lost(peer)


def block_key_of(cid: Cid) -> bytes:
    """The DHT's key of a block."""
    return bytes((BLOCK,)) + cid[-DIGEST_BYTES:]
