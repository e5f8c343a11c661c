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
from dataclasses import dataclass, field

from weft.documents.dag import START, Stream
from weft.documents.descriptor import Event, seal_event
from weft.documents.refusal import Reason
from weft.documents.signing import Signer
from weft.ids import Cid, Contact, PeerId, Topic, cid_text
from weft.protocol.context import Arrived, Context, require
from weft.protocol.delivery import INCARNATION, NUMBER, Delivery, Route
from weft.protocol.history import asking, catchup, fetch, ownership, pacing, storing
from weft.protocol.history.answers import Answers
from weft.protocol.history.asking import Asking
from weft.protocol.history.fetch import Fetch
from weft.protocol.history.intake import Intake, routed
from weft.protocol.history.ownership import Ownership
from weft.protocol.history.providing import Providing
from weft.protocol.history.seen import Seen
from weft.protocol.history.serving import Serving
from weft.protocol.history.storing import Storing
from weft.protocol.history.topic_history import TopicHistory
from weft.protocol.history.versions import Versions
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.messages_history import (
    Heads,
)
from weft.protocol.recent import Recent
from weft.protocol.seam import (
    Answer,
    Millis,
    Pruned,
    Publish,
    Timer,
)
from weft.protocol.wire import Event as Routed
from weft.protocol.wire import Part
from weft.rules.draw import stream_of
from weft.rules.hierarchy import ORIGIN
from weft.store.interface import Retention
from weft.store.interface import Store as StoreOfPeer
from weft.store.reader import Since
from weft.store.reader import stream_of as stored_stream


@dataclass(frozen=True)
class Keep:
    """How much of a topic's stream is kept; 0: without limit."""

    age_ms: Millis = 0  # guess: all of it, until somebody says otherwise
    events: int = 0  # guess
    bytes: int = 0  # guess

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require(value >= 0, f"keep.{name} must not be negative")

    def retention(self) -> Retention:
        return Retention(self.age_ms or None, self.events or None, self.bytes or None)


@dataclass(frozen=True)
class Config:
    """Events that stay (protocol/history)."""

    enabled: bool = False
    provide_probability: float = 0.1  # guess: how likely a peer on the way provides an event
    request_timeout_ms: Millis = 3_000  # guess
    patience_ms: Millis = 500  # guess: a parent that routing has not brought yet may still come
    retry_ms: Millis = 5_000  # guess: after everybody was asked for a block in vain
    give_up_ms: Millis = 600_000  # guess: then the stream goes on without it
    requests_max: int = 8  # guess: requests for blocks at once
    blocks_per_request: int = 64  # guess
    page_bytes_max: int = 256 << 10  # guess: of blocks in one message
    serve_bytes_per_s: int = 16 << 20  # guess: of blocks, to each peer that asks for the past
    walk_back_max: int = 16  # measured: walking back 16 takes 1.2 s and 32 messages, a page 2
    early_max: int = 1_024  # guess: events that wait until a subscription has begun
    held_max: int = 1_024  # guess: events that wait for their topic's version
    publishers_max: int = 1_024  # guess: of whom a topic's members know what they have had
    outside_max: int = 1_024  # guess: topics published to without a subscription
    waiting_bytes_max: int = 8 << 20  # guess: per topic, of early and of held events
    wants_max: int = 4_096  # guess: missing blocks that are looked for at once
    wants_per_source_max: int = 1_024  # guess: of these on the word of one peer
    accept_sub_topics: bool = False  # whoever may publish gets the sub-topics it asks for, at once
    topics_every_ms: Millis = 600_000  # guess: how often records are looked at for renewal
    prune_every_ms: Millis = 60_000  # guess
    keep: Keep = field(default_factory=Keep)
    keep_topics: dict[str, Keep] = field(default_factory=dict)  # guess: for some topics, by name

    def __post_init__(self) -> None:
        require(0 <= self.provide_probability <= 1, "history.provide_probability must be 0 to 1")
        for name, value in vars(self).items():
            if isinstance(value, int) and not isinstance(value, bool):
                require(value >= 1, f"history.{name} must be at least 1")
        require(self.blocks_per_request <= 256, "history.blocks_per_request must be at most 256")
        require(self.page_bytes_max <= 1 << 20, "history.page_bytes_max must be at most 1 MiB")

    def retention(self, topic: str) -> Retention:
        """How much of a topic is kept."""
        return self.keep_topics.get(topic, self.keep).retention()


TIMERS = (
    fetch.TIMEOUT,
    fetch.AGAIN,
    fetch.PATIENCE,
    catchup.TIMEOUT,
    storing.PRUNE,
    ownership.TIMER,
    pacing.TIMER,
    asking.TIMER,
)
_TELL = stream_of("history.tell")

_LEFT_MAX = 256
"""guess: topics unsubscribed from of which this peer remembers what it has had."""

_COUNTERS = (
    "history_before",
    "history_caught_up",
    "history_gaps",
    "history_given_up",
    "history_late",
    "history_pruned",
    "history_store_failed",
    "history_versions_adopted",
    *(f"history_refused_{reason}" for reason in Reason),
)


class History(Delivery):
    """Delivery where events stay."""

    stored = True

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
        super().__init__(ctx, route)
        self._library = library
        self._sign = sign
        self._members = members
        self.topics: dict[Topic, TopicHistory] = {}
        self._outside: dict[Topic, Stream] = {}  # published to without a subscription
        self._left: dict[Topic, Seen] = {}  # what was had of topics unsubscribed from
        self._unsettled: dict[Cid, None] = {}  # own events that are not durable yet
        self.providing = Providing(ctx, dht)
        self.storing = Storing(ctx, self._on_store_failed)
        self.fetch = Fetch(ctx, members, self.providing.find, self._give_up)
        self.versions = Versions(ctx, library.get)
        self.serving = Serving(ctx, library, self._block_at_hand)
        self.intake = Intake(
            ctx, self.topics, self.versions, self.fetch, self.storing, self.providing.perhaps
        )
        self.ownership = Ownership(
            ctx, library, sign, self.versions, self.fetch, self.storing, members, dht
        )
        self.asking = Asking(ctx, self.ownership, self.versions, members, dht)
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
            seen = self._left.pop(topic, None)
            state = TopicHistory(self._ctx, topic, since, self._library, self._members, seen)
            # What was published without a subscription may not be stored yet.
            state.stream = self._outside.pop(topic, state.stream)
            self.topics[topic] = state
            self.fetch.want(topic, self._library.missing(topic), None)
        elif since is not None:
            state.want_past(since)
        self._read_past(state, None)

    def entered(self, topic: Topic, alone: bool) -> None:
        """The subscription was answered; `alone`: nobody else was found."""
        state = self.topics.get(topic)
        if state is not None and alone and not state.begun:
            state.begin_alone()
            self.intake.take_in_early(state)

    def unsubscribe(self, topic: Topic) -> None:
        state = self.topics.pop(topic, None)
        if state is not None:
            self._left[topic] = state.seen
            if len(self._left) > _LEFT_MAX:
                del self._left[next(iter(self._left))]
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

    def levels(self, topic: Topic) -> list[Topic]:
        return self.versions.levels(topic)

    # --- what routing brings ----------------------------------------------------------------------

    def _admit(
        self,
        topic: Topic,
        recent: Recent,
        event: Routed,
        hops: int,
        source: PeerId | None,
        ask: Contact | None,
        subscribed: bool,
    ) -> bool:
        opened = self.intake.open(topic, event, source)
        if opened is None:
            return False
        recent.admit(event, hops, source, self._ctx.now)
        if subscribed:
            self._ctx.tell(Arrived(opened, ask, hops))
        return True

    def source(self, sender: Contact) -> Contact | None:
        return sender

    def on_arrived(self, signal: Arrived) -> None:
        self.intake.take_in(signal.event, signal.source, signal.hops)

    def flush(self) -> None:
        self.storing.flush()

    # --- publishing -------------------------------------------------------------------------------

    def _parts(self, topics: tuple[Topic, ...]) -> tuple[Part, ...]:
        """Each topic describes the event by itself, so there is nothing to share."""
        return ()

    def refuses(self, fact: Publish, origin: Topic | None) -> bool:
        """Whether this peer may not publish there, as far as it knows; then that is answered.
        `origin` is the sub-topic that the event climbs from, if it does."""
        if self.versions.refuses_me(fact.topic):
            self.intake.refuse(fact.topic, Reason.NOT_ALLOWED)
            reason = f"the owners of {fact.topic} do not let this peer publish in it"
        elif origin is not None and self.versions.lacks_level(fact.topic, origin):
            self.intake.refuse(fact.topic, Reason.UNKNOWN_TOPIC)
            reason = f"{fact.topic} has owners, and no version of it is known here"
        else:
            return False
        self._ctx.out.append(Answer(fact.token, "refused", reason=reason))
        return True

    def _spread(self, fact: Publish, event: Routed, origin: Topic | None) -> None:
        """Seal an event and have it stored; it is routed once it is durable. `origin`: see
        `refuses`."""
        topic, ctx = fact.topic, self._ctx
        stream = self._stream(topic)
        climbed: dict[str, str | int | bool] = {} if origin is None else {ORIGIN: origin}
        sealed = seal_event(
            self._sign,
            publisher=ctx.me.peer,
            topic=topic,
            payload=fact.payload,
            created_ms=fact.published_ms,
            parents=stream.parents(),
            link=self.versions.link(topic),
            metadata={INCARNATION: ctx.incarnation, NUMBER: event.number, **climbed},
        )
        stream.add(sealed, new=True)
        self._unsettled[sealed.cid] = None
        self.storing.publish(sealed, lambda error: self._on_published(fact.token, sealed, error))

    def _on_published(self, token: int, event: Event, error: str) -> None:
        self._unsettled.pop(event.cid, None)
        if error:
            self._ctx.out.append(Answer(token, "failed", reason=error))
            return
        state = self.topics.get(event.topic)
        if state is not None:
            state.seen.note(event)
            self.intake.deliver(event, 0, self._ctx.me.peer)
        self.providing.own(event)
        climbs = ORIGIN in event.metadata
        self._route(token, event.topic, routed(event, event.block), climbs)

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

    # --- what cannot be had -----------------------------------------------------------------------

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

    def _heads(self, state: TopicHistory, answer: bool, seen: bool = False) -> Heads:
        """Where this peer's stream stands; with `seen`, for somebody who begins there."""
        record = self.ownership.record(state.topic)
        sequence = record.sequence if record is not None else 0
        version = record.value if record is not None else None
        highest = state.highest(self._unsettled) if state.begun else []
        told = state.seen.told() if seen and state.begun else None
        return Heads(state.topic, highest, answer, sequence, version, told)

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
        asks = False
        if state.begun:
            self._compare_heads(state, sender, message)
        elif message.heads and message.seen is None:
            asks = True  # what has come before these heads?
        else:
            wanted = state.begin_with(message.heads, message.seen or ())
            self.fetch.want(state.topic, wanted, sender, hearsay=True)
            self.intake.take_in_early(state)
        behind = self.ownership.compare(sender, message)
        told = {head.cid for head in message.heads}
        news = any(head.cid not in told for head in state.highest(self._unsettled))
        # Whoever has nothing may wait for a word to begin with, even if there is nothing yet.
        if asks or behind or (message.answer and (news or not told)):
            self._ctx.send(sender, self._heads(state, answer=asks, seen=not told))

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
        elif timer.kind == asking.TIMER:
            self.asking.on_timer(timer.serial)
        elif timer.kind == pacing.TIMER:
            self.serving.pacing.on_timer(timer.serial)
        elif timer.kind == catchup.TIMEOUT:
            state = self.topics.get(timer.topic)
            if state is not None:
                state.catch_up.on_timeout(timer.serial)

    def on_peer_lost(self, peer: PeerId) -> None:
        self.fetch.on_peer_lost(peer)
        self.serving.pacing.forget(peer)
        for state in self.topics.values():
            state.catch_up.on_peer_lost(peer)
