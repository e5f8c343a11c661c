"""The events of one peer: numbered and signed on their way out, taken in once, handed to the
application.

Every routing brings runs of events here (`documents/run.py`) and no routing delivers by itself. A
run is taken in once per topic, and only if its publisher has signed it: before that it is neither
stored nor passed on nor noted. A run that comes over its publisher's own connection, to a member
that passes it on to nobody, is handed out at once, and noted until it is proven or taken back
(`recent.py`).

A publisher that signs two different things under one number, or a run that does not go on from the
one before it, lies to other peers. The first run stays; both statements are kept as evidence, which
anybody can check, and the user is told (`Warn`, `Peer.status`).

There are two kinds of delivery. This module has the plain one, of a peer without a store: events
are handed out at once and not kept. `history/` has the other one, `History`, which stores an event
before it is routed, opens the signed block that routing brings, and hands events out in the order
of their stream. Both kinds have the same methods, so no routing asks whether there is a store.

Where its publisher keeps history, a run's payloads are signed blocks (`Run.sealed`). A peer without
a store passes the blocks on as they are and hands its application the payloads inside (`opened`).
The other way round, a peer with a store hands out and passes on what a publisher without one has
signed, but does not store it: there is no block of it, and it has no place in the topic's stream.
So peers of both kinds can be subscribed to a topic.

The events of one publisher are handed out in the order of their numbers. An event that comes before
an earlier one, since the tree has changed or a message got lost, waits for it, but not for ever:
after `dissemination.order_ms` the earlier one counts as missing (after `settle_ms`, if no event of
its publisher has come before). If it comes after all, it is handed out late rather than not at all.
Only handing out waits; a run is passed on at once.

Invariants: a peer numbers its events in a topic 1, 2, 3, … without a gap; no event is handed out
twice in a life of this peer, as far as `recent.py` remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from weft.bounded import BoundedDict
from weft.documents.headers import in_metadata, unwrap, wrap
from weft.documents.refusal import Refused
from weft.documents.run import (
    NOTHING_BEFORE,
    PAYLOAD_BYTES_MAX,
    Event,
    Part,
    Proven,
    Run,
    Statement,
    sign_run,
    signed_bytes,
)
from weft.documents.signature import Signer
from weft.ids import GENERAL, Contact, PeerId, Topic, cid_of, owner_in, peer_text
from weft.protocol.context import Arrived, Commands, Context, Handlers, LookupDone, Timers
from weft.protocol.recent import WORD_MS, Contradiction, Judged, Life, Recent, Verdict
from weft.protocol.seam import (
    Answer,
    AskSubTopic,
    ChangeTopic,
    Deliver,
    FindEvent,
    FollowTopic,
    Millis,
    Publish,
    PublishTogether,
    TopicCommand,
    Warn,
)
from weft.protocol.wire import REASON_MAX, Span
from weft.rules import hierarchy
from weft.store.interface import Since

if TYPE_CHECKING:
    from weft.documents.descriptor import TopicVersion

PUBLISH_MESSAGE = "PUBLISH_MESSAGE"
REJECT_MESSAGE = "REJECT_MESSAGE"
DUPLICATE_MESSAGE = "DUPLICATE_MESSAGE"
DELIVER_MESSAGE = "DELIVER_MESSAGE"
ADD_PEER = "ADD_PEER"
REMOVE_PEER = "REMOVE_PEER"
RECV_RPC = "RECV_RPC"
SEND_RPC = "SEND_RPC"
DROP_RPC = "DROP_RPC"
JOIN = "JOIN"
LEAVE = "LEAVE"
GRAFT = "GRAFT"
PRUNE = "PRUNE"
"""The kinds of trace records, in the vocabulary of libp2p's pubsub tracer; `weft.trace` writes
them."""

_COUNTERS = ("forged", "equivocations")
_REFUSED_MAX = 1_024
"""guess: runs remembered as refused, so that their publishers can be told why."""
_EVIDENCE_MAX = 64
"""guess: lives of publishers that were found to lie and are remembered."""

WORD = "delivery.word"
"""The time at which runs that were taken on their publishers' words are proven."""
ORDER = "delivery.order"
"""The time at which events that wait for earlier ones are looked through."""
_EARLY_BYTES_MAX = 4 << 20
"""guess: payloads that wait for earlier ones; above that, those that wait longest are handed
out."""
_ORDERS_MAX = 1_024
"""guess: publishers of which runs wait; above that, the same."""

Route: TypeAlias = Callable[[int, Topic, Proven, bool], None]
"""Spreads a run of this peer's own and answers the command with this token; the last argument says
whether its event climbs from a sub-topic."""


class Taken(Enum):
    """What became of a run that routing brought."""

    NEW = "new"  # to be passed on
    COPY = "copy"  # the same as a held run, so its sender passed on a true one
    OLD = "old"  # seen before, and not held any more: this copy was not verified
    REFUSED = "refused"  # its publisher signed it, and may not publish it
    FORGED = "forged"  # its publisher did not sign it; no honest peer passes it on


_KNOWN = {Verdict.COPY: Taken.COPY, Verdict.OLD: Taken.OLD, Verdict.FORGED: Taken.FORGED}


class Arrival(NamedTuple):
    """The way on which a run came here, and what this peer has of its topic."""

    topic: Topic
    recent: Recent
    hops: int
    source: PeerId | None
    ask: Contact | None  # the member to ask for the events before it; only with a store
    subscribed: bool = True


class _Early(Struct):
    """A run that came before an earlier one of its publisher."""

    run: Run
    hops: int
    source: PeerId | None
    since: Millis


class _Order(Struct):
    """The early runs of one publisher's life in a topic."""

    life: Life
    early: dict[int, _Early] = field(default_factory=dict)  # by their first numbers
    handed: int = 0  # the last number that was handed out though earlier ones were missing


class Delivery:
    """Delivery without a store. `History` overrides what differs with one."""

    stored = False
    """Whether an own event is stored, and delivered here, before it is routed."""
    ample_bytes = PAYLOAD_BYTES_MAX
    """A payload with its headers that has no more bytes than this is never too large."""

    def __init__(self, ctx: Context, route: Route, sign: Signer | None) -> None:
        """A peer without a key (`sign` None) publishes nothing."""
        self._ctx = ctx
        self._route = route
        self._sign_with = sign
        self._published: dict[Topic, int] = {}  # number of the last own event, per topic
        self._signed: dict[Topic, bytes] = {}  # digest of the last own statement, per topic
        self._on_word: dict[Topic, Recent] = {}  # with runs taken on their publishers' words
        self._orders: dict[tuple[Topic, PeerId, int], _Order] = {}
        self._early_bytes = 0
        self._order_armed = False
        for counter in _COUNTERS:
            ctx.counters[counter] += 0  # so that it shows before it happens
        self._refused: BoundedDict[tuple[Topic, PeerId, int, int], str] = BoundedDict(_REFUSED_MAX)
        self._evidence: BoundedDict[tuple[Topic, PeerId, int], Contradiction] = BoundedDict(
            _EVIDENCE_MAX
        )

    def levels(self, topic: Topic) -> list[Topic]:
        """The topics that an event of `topic` counts in: itself, then those above it in its
        hierarchy."""
        return hierarchy.above(topic, self._ctx.config.hierarchies)

    def too_large(self, topic: Topic, wrapped: bytes, origin: Topic | None = None) -> str:
        """Why an event is too large for a topic; empty if it is not. `origin`: the sub-topic that
        it climbs from."""
        if len(wrapped) <= self.ample_bytes:
            return ""
        headers, payload = unwrap(wrapped)
        most = self._payload_bytes_max(topic, headers, len(wrapped) - len(payload), origin)
        if len(payload) <= most:
            return ""
        beside = " with these headers" if headers else ""
        return f"a payload of {len(payload)} bytes is too large (at most {most}{beside})"

    def _payload_bytes_max(
        self, topic: Topic, headers: Mapping[str, str], envelope_bytes: int, origin: Topic | None
    ) -> int:
        """Without a store, headers travel in an envelope around the payload."""
        return PAYLOAD_BYTES_MAX - envelope_bytes

    # --- own events -------------------------------------------------------------------------------

    def publish(
        self, fact: Publish, parts: tuple[Part, ...] = (), origin: Topic | None = None
    ) -> None:
        """Number events and have them spread as one run. `parts`: all topics of an event, where it
        names them; `origin`: the sub-topic that it climbs from."""
        ctx, topic = self._ctx, fact.topic
        if self._sign_with is None:
            reason = "a peer without a key cannot publish"
            ctx.out.append(Answer(fact.token, "refused", reason=reason))
            return
        if self._is_too_large(fact, origin) or self.refuses(fact, origin):
            return
        first = self._next_number(topic)
        count = len(fact.payloads)
        self._published[topic] = first + count - 1
        if ctx.tracing:
            for number in range(first, first + count):
                said = f"{peer_text(ctx.me.peer)}-{ctx.incarnation}-{number}@{topic}"
                ctx.trace(PUBLISH_MESSAGE, {"messageID": said, "topic": topic})
        ctx.counters["published"] += count
        self._spread(fact, first, parts, origin)

    def publish_together(self, fact: PublishTogether, by_reference: bool) -> None:
        """Publish one event in several topics. The event names them where the routing sends
        references to it, or where it climbs."""
        topics = fact.topics
        origins = [hierarchy.origin(topic, topics, self.levels) for topic in topics]
        climbed = [o if o != topic else None for o, topic in zip(origins, topics, strict=True)]
        parts = self._parts(topics) if by_reference or any(climbed) else ()
        for token, topic, origin in zip(fact.tokens, topics, climbed, strict=True):
            one = Publish(token, topic, (fact.payload,), fact.published_ms)
            self.publish(one, parts, origin)

    def _parts(self, topics: tuple[Topic, ...]) -> tuple[Part, ...]:
        if len(topics) < 2:
            return ()
        return tuple(Part(topic, self._next_number(topic)) for topic in topics)

    def _is_too_large(self, fact: Publish, origin: Topic | None) -> bool:
        """Whether an event is too large; then the command is answered."""
        if sum(map(len, fact.payloads)) <= self.ample_bytes:  # nearly always
            return False
        for payload in fact.payloads:
            reason = self.too_large(fact.topic, payload, origin)
            if reason:
                self._ctx.out.append(Answer(fact.token, "refused", reason=reason))
                return True
        return False

    def _next_number(self, topic: Topic) -> int:
        return self._published.get(topic, 0) + 1

    def refuses(self, fact: Publish, origin: Topic | None) -> bool:
        """Whether this peer may not publish in the topic; then the command is answered. Without a
        store, only the topic's name can tell."""
        owner = owner_in(fact.topic)
        if owner is None or owner == self._ctx.me.peer:
            return False
        reason = f"by its name {fact.topic} is {peer_text(owner)}'s; a peer that it lets publish"
        self._ctx.out.append(Answer(fact.token, "refused", reason=f"{reason} needs a store"))
        return True

    def _spread(
        self, fact: Publish, first: int, parts: tuple[Part, ...], origin: Topic | None
    ) -> None:
        proven = self.sign(fact.topic, first, fact.published_ms, fact.payloads, parts)
        self._route(fact.token, fact.topic, proven, origin is not None)

    def sign(
        self,
        topic: Topic,
        first: int,
        published_ms: int,
        payloads: tuple[bytes, ...],
        parts: tuple[Part, ...] = (),
    ) -> Proven:
        """The next run of this peer's own in a topic."""
        ctx, sign = self._ctx, self._sign_with
        assert sign is not None
        me, prev = ctx.me.peer, self._signed.get(topic, NOTHING_BEFORE)
        life = ctx.incarnation
        sealed = self.stored
        proven = sign_run(sign, topic, me, life, first, published_ms, payloads, prev, sealed, parts)
        self._signed[topic] = proven.digest
        return proven

    # --- events that routing brings ---------------------------------------------------------------

    def judge(
        self,
        topic: Topic,
        recent: Recent,
        run: Run,
        source: PeerId | None,
        passed_on: bool = True,
    ) -> Judged:
        """Whether a run is new and proven; only evidence against its publisher is noted. A run that
        its publisher sent itself, and that is neither stored nor passed on, may be proven later
        (`recent.py`)."""
        ctx = self._ctx
        vouched = source == run.publisher and not (passed_on or self.stored or run.parts)
        judged = recent.judge(run, ctx.now, vouched)
        if isinstance(judged, Proven):
            if self._is_not_mine(topic, run):
                judged = Verdict.FORGED
        elif isinstance(judged, Contradiction):
            self._keep_evidence(topic, judged)
            trace_rejected(ctx, topic, run, source, "contradicts what its publisher signed")
        if judged is Verdict.FORGED:
            ctx.counters["forged"] += 1
            trace_rejected(ctx, topic, run, source, "not signed by its publisher")
        return judged

    def take_in(self, arrival: Arrival, run: Run) -> Taken:
        """Note a run, and deliver it to a subscriber; returns what became of it."""
        judged = self.judge(arrival.topic, arrival.recent, run, arrival.source)
        return self.take_judged(arrival, judged)

    def take_judged(self, arrival: Arrival, judged: Judged) -> Taken:
        """As `take_in`, of a run that was judged."""
        if isinstance(judged, Contradiction):
            return Taken.REFUSED
        if isinstance(judged, Verdict):
            return _KNOWN[judged]
        if not self._admit(arrival, judged):
            return Taken.REFUSED
        if not arrival.subscribed and arrival.source is not None:
            note_parasite(self._ctx, arrival.topic, judged.run, arrival.source)
        return Taken.NEW

    def _admit(self, arrival: Arrival, proven: Proven) -> bool:
        topic, recent, hops, source, _, subscribed = arrival
        if not _may_be_named(topic, proven.run):
            self._ctx.counters["refused_by_name"] += 1
            self.note_refused(topic, proven.run, "by its name the topic is another peer's")
            return False
        recent.admit(proven, hops, self._ctx.now, self._ctx.wall_ms)
        if proven.vouched:
            self._prove_soon(topic, recent)
        if subscribed:
            self._deliver_in_order(topic, recent, proven.run, hops, source)
        return True

    def _prove_soon(self, topic: Topic, recent: Recent) -> None:
        """A timer has the signature verified, so that no run waits for that."""
        if not self._on_word:
            self._ctx.set_timer(WORD_MS, WORD, GENERAL)
        self._on_word[topic] = recent

    def _on_word_timer(self) -> None:
        taken, self._on_word = self._on_word, {}
        for recent in taken.values():
            recent.prove()

    def note_refused(self, topic: Topic, run: Run, reason: str) -> None:
        """Remember why a run of another peer is neither taken in nor passed on."""
        key = topic, PeerId(run.publisher), run.incarnation, run.first
        self._refused[key] = reason[:REASON_MAX]

    def refusal(self, topic: Topic, about: Span) -> str:
        """Why a run, or an event of it, was refused lately; empty if none was."""
        publisher, life = PeerId(about.publisher), about.incarnation
        for number in range(about.first, about.last + 1) if self._refused else ():
            reason = self._refused.get((topic, publisher, life, number))
            if reason is not None:
                return reason
        return ""

    def admit_own(self, recent: Recent, proven: Proven) -> bool:
        """Note a run of this peer's own; returns whether it is to be spread."""
        if recent.has_seen(proven.run):
            return False
        recent.admit(proven, 0, self._ctx.now, self._ctx.wall_ms)
        return True

    def skip_to(self, recent: Recent, seen: list[Statement]) -> None:
        """Pass over what was published before a fresh subscription, as far as that is proven."""
        forged = recent.skip_to(seen, self._ctx.now, self._ctx.wall_ms)
        self._ctx.counters["forged"] += forged

    def enter_after(
        self, topic: Topic, recent: Recent, seen: list[Statement], member: Contact
    ) -> None:
        """A fresh subscriber hears from a member what was published before."""
        self.skip_to(recent, seen)

    def weighs_past(self, topic: Topic) -> bool:
        """Whether it is not known yet if a fresh subscriber wants the events of that time."""
        return False

    def source(self, sender: Contact) -> Contact | None:
        """The source to note for an event that `sender` handed over outside of the push: none,
        since without a store nobody is asked for what came before it."""
        return None

    # --- in the order of their numbers ------------------------------------------------------------

    def _deliver_in_order(
        self, topic: Topic, recent: Recent, run: Run, hops: int, source: PeerId | None
    ) -> None:
        """Hand an admitted run out, and the runs that waited for it; or let it wait."""
        life = recent.lives[run.publisher, run.incarnation]
        if life.floor >= run.last and not self._orders:  # nearly always
            self.deliver(topic, run, hops, source)
            return
        key = topic, PeerId(run.publisher), run.incarnation
        order = self._orders.get(key)
        if life.floor >= run.last or (order is not None and run.first <= order.handed + 1):
            self.deliver(topic, run, hops, source)
            if order is not None:
                order.handed = max(order.handed, run.last)
                self._go_on(key, order, before=-1)
            return
        if order is None:
            order = self._orders[key] = _Order(life)
        order.early[run.first] = _Early(run, hops, source, self._ctx.now)
        self._ctx.counters["early"] += len(run.payloads)
        self._early_bytes += run.size
        while self._early_bytes > _EARLY_BYTES_MAX or len(self._orders) > _ORDERS_MAX:
            oldest, longest = next(iter(self._orders.items()))
            self._go_on(oldest, longest, before=self._ctx.now)
            self._orders.pop(oldest, None)
        if not self._order_armed:
            self._arm_order()

    def _go_on(self, key: tuple[Topic, PeerId, int], order: _Order, before: Millis) -> None:
        """Hand out the runs that need not wait any more: all earlier ones are there, or they came
        by the time `before`, or they follow on such a run."""
        for first in sorted(order.early):
            one = order.early[first]
            there = order.life.floor >= one.run.last or first <= order.handed + 1
            if not there and one.since > before:
                break
            del order.early[first]
            self._early_bytes -= one.run.size
            order.handed = max(order.handed, one.run.last)
            self._ctx.counters["missing_passed"] += not there
            self.deliver(key[0], one.run, one.hops, one.source)
        if not order.early and order.life.floor >= order.handed:
            self._orders.pop(key, None)

    def _arm_order(self) -> None:
        self._order_armed = True
        self._ctx.set_timer(self._ctx.config.dissemination.settle_ms, ORDER, GENERAL)

    def _on_order_timer(self) -> None:
        """Hand out the early runs that have waited long enough for those before them."""
        ctx, config = self._ctx, self._ctx.config.dissemination
        self._order_armed = False
        orders = self._orders.items()
        due = [one for one in orders if one[1].early or one[1].life.floor >= one[1].handed]
        for key, order in due:
            known = order.life.floor > 0 or order.handed > 0
            self._go_on(key, order, ctx.now - (config.order_ms if known else config.settle_ms))
        if self._orders:
            self._arm_order()

    def _forget_orders(self, topic: Topic) -> None:
        """Nobody wants the topic's events any more."""
        for key in [key for key in self._orders if key[0] == topic]:
            order = self._orders.pop(key)
            self._early_bytes -= sum(one.run.size for one in order.early.values())

    def deliver(self, topic: Topic, run: Run, hops: int, source: PeerId | None) -> None:
        """Hand a run to the application."""
        ctx = self._ctx
        origin = self._origin(topic, run.parts) if run.parts else None
        handed = opened(topic, run) if run.sealed else run
        ctx.out.append(Deliver(topic, handed, hops, None, origin))
        if ctx.tracing:
            trace_run(ctx, DELIVER_MESSAGE, topic, run, source, hops)

    def _origin(self, topic: Topic, parts: tuple[Part, ...]) -> Topic | None:
        """Where an event that counts in several topics was published, if not in this one."""
        found = hierarchy.origin(topic, (part.topic for part in parts), self.levels)
        return None if found == topic else found

    def _is_not_mine(self, topic: Topic, run: Run) -> bool:
        """Nobody else can have an event of this life that this peer has not published yet, even if
        its key signed it. (Another process with the same key has another incarnation.)"""
        ctx = self._ctx
        if run.publisher != ctx.me.peer or run.incarnation != ctx.incarnation:
            return False
        return run.last > self._published.get(topic, 0)

    # --- evidence against publishers --------------------------------------------------------------

    def _keep_evidence(self, topic: Topic, found: Contradiction) -> None:
        ctx, said = self._ctx, found.said
        ctx.counters["equivocations"] += 1
        key = (topic, PeerId(said.publisher), said.incarnation)
        if key not in self._evidence:
            self._evidence[key] = found
            ctx.out.append(
                Warn(
                    f"{peer_text(said.publisher)} has signed two different things in {topic}, about"
                    f" its events from number {min(said.first, found.known.first)} on"
                )
            )

    def evidence(self) -> list[dict[str, object]]:
        """The publishers that were found to lie, ready for JSON: what each has signed, so that
        anybody can check it."""
        return [
            {
                "peer": peer_text(publisher),
                "topic": topic,
                "incarnation": incarnation,
                "statements": [_shown(topic, one) for one in (found.known, found.said)],
            }
            for (topic, publisher, incarnation), found in self._evidence.items()
        ]

    # --- what it listens to, asked once; nearly nothing without a store ---------------------------

    def handlers(self) -> Handlers:
        """The handlers of its messages."""
        return {}

    def commands(self) -> Commands:
        """The handlers of its facts and commands; without a store, topics have no owners."""

        def refuse(command: TopicCommand) -> None:
            reason = "owned topics need a store: open the peer with store=…"
            self._ctx.answer(Answer(command.token, "refused", reason=reason))

        return dict.fromkeys((ChangeTopic, FollowTopic, AskSubTopic, FindEvent), refuse)

    def timers(self) -> Timers:
        return {
            ORDER: lambda timer: self._on_order_timer(),
            WORD: lambda timer: self._on_word_timer(),
        }

    # --- what the peer asks -----------------------------------------------------------------------

    def newest_version(self, topic: Topic) -> TopicVersion | None:
        """The newest version of an owned topic that this peer knows; None: it knows of no owner."""
        return None

    def status(self) -> dict[str, object]:
        """Its part of `Peer.status` beside `evidence`, ready for JSON."""
        return {}

    # --- what the peer tells; without a store nothing follows from it -----------------------------

    def start(self) -> None:
        """The peer is up."""

    def entering(self, token: int, topic: Topic) -> int:
        """A user subscribes; returns the token with which the routing answers. Without a store it
        is the user's own."""
        return token

    def subscribe(self, topic: Topic, since: Since | None) -> None:
        """The application subscribed; with `since` it wants the past from there on, too."""

    def unsubscribe(self, topic: Topic) -> None:
        """The application has no use for the topic any more."""
        self._forget_orders(topic)

    def link_up(self, topic: Topic, contact: Contact) -> None:
        """Another subscriber became known, which may know the topic's stream."""

    def run_topic(self, topic: Topic, alone: bool) -> None:
        """The topic's turn in a cycle has come; `alone`: no other subscriber is known."""

    def on_lookup_done(self, signal: LookupDone) -> bool:
        """A lookup for members of a topic has ended; returns whether it was begun here."""
        return False

    def on_arrived(self, signal: Arrived) -> None:
        """An event was opened and found whole; only delivery with a store opens events."""

    def on_peer_lost(self, peer: PeerId) -> None:
        """The peer cannot be reached."""

    def close(self) -> None:
        """This peer leaves the network."""

    def flush(self) -> None:
        """The end of a step: all that followed from one fact is done."""


def _may_be_named(topic: Topic, run: Run) -> bool:
    """Whether a run can be in a topic whose name carries its owner's key: by that key, or under a
    version, which only a peer with a store can judge."""
    owner = owner_in(topic)
    if owner is None or run.publisher == owner:
        return True
    return run.sealed and all(_is_linked(block) for block in run.payloads)


def _is_linked(block: bytes) -> bool:
    """Whether an event links to a version of its topic."""
    from weft.documents.descriptor import known_event  # noqa: PLC0415

    try:
        return known_event(block, cid_of(block)).link is not None
    except Refused:
        return False


def opened(topic: Topic, run: Run) -> Run:
    """A run of blocks as an application knows it. A payload is opened only if it is a block with
    the run's publisher, this topic and its number; the run's signature proves the rest."""
    payloads = [_payload_in(topic, run.event(place)) for place in range(len(run.payloads))]
    return replace(run, payloads=tuple(payloads))


def _payload_in(topic: Topic, event: Event) -> bytes:
    from weft.documents.descriptor import known_event, number_of  # noqa: PLC0415

    try:
        block = known_event(event.payload, cid_of(event.payload))
    except Refused:
        return event.payload
    name = event.publisher, event.incarnation, event.number
    if block.topic != topic or number_of(block) != name:
        return event.payload
    return wrap(in_metadata(block.metadata), block.payload)


def _shown(topic: Topic, statement: Statement) -> dict[str, object]:
    return {
        "first": statement.first,
        "last": statement.last,
        "signed": signed_bytes(topic, statement).hex(),
        "signature": statement.signature.hex(),
    }


# --- the trace ------------------------------------------------------------------------------------


def message_id(topic: str, event: Event) -> str:
    """The id of an event in the trace: publisher, incarnation, topic and number."""
    return f"{peer_text(event.publisher)}-{event.incarnation}-{event.number}@{topic}"


def note_parasite(ctx: Context, topic: Topic, run: Run, source: PeerId) -> None:
    """A run came to a peer that is not subscribed to its topic."""
    ctx.counters["parasites"] += len(run.payloads)
    trace_rejected(ctx, topic, run, source, "not subscribed")


def trace_rejected(
    ctx: Context, topic: Topic, run: Run, source: PeerId | None, reason: str
) -> None:
    if ctx.tracing:
        for event in run.events():
            fields = {
                "messageID": message_id(topic, event),
                "receivedFrom": ctx.name(source if source else ctx.me.peer),
                "reason": reason,
                "topic": topic,
            }
            ctx.trace(REJECT_MESSAGE, fields)


def note_received(ctx: Context, counter: str, run: Run) -> None:
    """A message brought a run: count its events, and the message."""
    ctx.counters[counter] += len(run.payloads)
    ctx.counters["runs_received"] += 1


def note_copy(ctx: Context, topic: Topic, run: Run, source: PeerId, hops: int) -> None:
    """A run came that was seen before."""
    ctx.counters["duplicates"] += len(run.payloads)
    if ctx.tracing:
        trace_run(ctx, DUPLICATE_MESSAGE, topic, run, source, hops)


def trace_run(
    ctx: Context, kind: str, topic: Topic, run: Run, source: PeerId | None, hops: int
) -> None:
    """One record for each of the run's events."""
    if ctx.tracing:
        for event in run.events():
            fields = {
                "messageID": message_id(topic, event),
                "topic": topic,
                "receivedFrom": ctx.name(source if source else ctx.me.peer),
                "hops": hops,
            }
            ctx.trace(kind, fields)
