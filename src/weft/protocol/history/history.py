"""History of one peer: its events stay, as signed blocks in the stream of their topic (paper 004,
Sections 4.1, 4.4 and 4.5). This module is the room's front: it puts the layers together, and hands
them what the peer hears, its timers and its user's commands.

Publishing: the event names the stream's heads as parents and is signed; it is routed once it is
durable, so what other peers have seen is never lost with its publisher.

Receiving: a block that routing brings is opened and checked (`open_run`) before it is passed on,
and then taken in (`take_in`): an event is delivered once all its parents were. A parent that is not
known is a gap, and is fetched. Members tell each other their heads over new links and at intervals,
so that a peer that missed the end of a stream finds out too. A peer that has stored events of a
topic without being subscribed, such as a publisher from outside, tells its heads to the members
that it meets: it may be the only peer that has these events.

A subscription is answered once its stream has begun, not as soon as the routing has entered the
topic: the answer means that every event published from then on comes. Another member says where the
stream begins. Where no member says so for half a minute (all are cut off), or all known members
keep no history, the stream begins with the next event that comes.

From below: `storage` (what goes to the store), `fetch` (blocks by their CID), `versions` (which
version of an owned topic counts), `ownership` (topics that have owners), `wishes` (sub-topics for
peers that own none), `stream` (the only writer of what is known of a stream), `reader` (gets the
events that a stream lacks), `server` (answers other peers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from weft.bounded import BoundedDict
from weft.documents.dagcbor import INTEGER_MAX, Scalar
from weft.documents.descriptor import (
    AMPLE_BYTES,
    INCARNATION,
    NUMBER,
    SealedEvent,
    TopicVersion,
    known_event,
    number_of,
    payload_bytes_max,
    seal_event,
)
from weft.documents.headers import as_metadata, unwrap
from weft.documents.refusal import Reason, Refused
from weft.documents.run import Part, Proven, Run, Statement
from weft.documents.signature import Signer
from weft.ids import Cid, Contact, PeerId, Topic, cid_of, cid_text, peer_text
from weft.protocol.context import Arrived, Commands, Context, Handlers, LookupDone, Timers
from weft.protocol.defence import Answered
from weft.protocol.delivery import Arrival, Delivery, Route
from weft.protocol.history import fetch, ownership, reader, server, storage, wishes
from weft.protocol.history.blocks import REFUSED, BlocksReply, BlocksRequest
from weft.protocol.history.fetch import Fetch, Providers
from weft.protocol.history.ownership import Find, Members, Ownership, TopicNews
from weft.protocol.history.reader import PageReply, PageRequest, Reader
from weft.protocol.history.server import Server
from weft.protocol.history.storage import Storage
from weft.protocol.history.stream import HEADS_MAX, Head, Heads, Streams
from weft.protocol.history.versions import Versions
from weft.protocol.history.wishes import SubTopicReply, SubTopicRequest, Wishes
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.recent import NOT_SEEN, Recent, compare
from weft.protocol.seam import (
    Answer,
    AskHeads,
    AskSubTopic,
    ChangeTopic,
    FindEvent,
    FollowTopic,
    Millis,
    Outcome,
    Pruned,
    Publish,
    Stored,
    Timer,
)
from weft.protocol.wire import Message, span_of
from weft.rules.draw import stream_of
from weft.rules.hierarchy import ORIGIN
from weft.store.interface import Since, Store

_TELL = stream_of("history.tell")
_Before: TypeAlias = tuple[Recent, list[Statement], Contact]
"""Where a subscriber's recent events are noted, the statements of runs published before it
subscribed, and the member that told them."""
_DESCRIBED_BYTES = 2_048
"""guess: what an event has beside its payload at most, with 16 parents and metadata."""
_TOLD_MS = 10_000
"""guess: a publisher is told that its events are refused in a topic once in this time at most."""
_TOLD_MAX = 1_024
"""guess: publishers remembered as told."""
_PUBLISHERS_SHOWN = 8
"""guess: of a topic, those with most bytes stored."""

_COUNTERS = (
    *("history_before", "history_caught_up", "history_gaps", "history_given_up", "history_late"),
    *("history_no_room", "history_pruned", "history_store_failed", "history_versions_adopted"),
    *("history_versions_beside", "history_versions_merged"),
    *(f"history_refused_{reason}" for reason in Reason),
)


class History(Delivery):
    """Delivery where events stay."""

    stored = True
    ample_bytes = AMPLE_BYTES

    def __init__(
        self,
        ctx: Context,
        library: Store,
        sign: Signer,
        members: Members,
        find: Find,
        route: Route,
        recent: Callable[[Topic], Recent | None],
        neighbours: Callable[[], list[Contact]],
        dht: Kademlia | None,
    ) -> None:
        """`members` names members of a topic, those to ask first; `find` looks for some from
        outside of it; `route` spreads an event; `recent` is what routing has seen of a topic;
        `neighbours` are peers of the network that this one knows, whatever their topics."""
        super().__init__(ctx, route, sign)
        self._recent = recent
        self._library = library
        self._sign = sign
        self._members = members
        self._neighbours = neighbours
        self.readers: dict[Topic, Reader] = {}
        self._entered: dict[Topic, list[Answer]] = {}  # answers kept back until the stream begins
        self._before: dict[Topic, list[_Before]] = {}  # of subscriptions that have just entered
        self._sought: dict[Cid, list[FindEvent]] = {}  # events that users look for
        self._providers = Providers(ctx, dht, library)
        self.storage = Storage(ctx, library)
        self.fetch = Fetch(
            *(ctx, members, self._publishers_above, self._height_above, self._providers),
            *(self._on_block, self._on_given_up, neighbours),
        )
        self.versions = Versions(ctx, library.get)
        self.ownership = Ownership(
            ctx,
            library,
            sign,
            self.versions,
            self.fetch,
            self.storage,
            members,
            find,
            self.readers.keys(),
            dht,
        )
        self.wishes = Wishes(
            ctx, library, self.ownership, self.versions, self.storage, members, dht
        )
        self.streams = Streams(
            ctx,
            library,
            self.versions,
            self.fetch,
            self.storage,
            self._providers,
            self.note_refused,
        )
        self._answered = Answered(ctx)
        self._told: BoundedDict[tuple[Topic, PeerId], Millis] = BoundedDict(_TOLD_MAX)
        """When publishers were told that their events are refused in a topic."""
        given_up = self.fetch.has_given_up
        self.server = Server(
            ctx, library, self.storage, self.versions, given_up, self.streams.evidence
        )

    def start(self) -> None:
        for name in _COUNTERS:
            self._ctx.counters[name] += 0  # so that it shows before it happens
        self.storage.start()
        self.ownership.start()
        self._providers.start()

    # --- which message, fact, command and timer goes where ----------------------------------------

    def handlers(self) -> Handlers:
        return {
            Heads: self.on_heads,
            BlocksRequest: self.server.on_blocks_request,
            BlocksReply: self.fetch.on_blocks_reply,
            PageRequest: self.server.on_page_request,
            PageReply: self.on_page_reply,
            TopicNews: self.ownership.on_news,
            SubTopicRequest: self.wishes.on_request,
            SubTopicReply: self.wishes.on_reply,
        }

    def commands(self) -> Commands:
        return {
            Stored: self.on_stored,
            Pruned: self.on_pruned,
            ChangeTopic: self.ownership.change,
            FollowTopic: self.ownership.follow,
            AskSubTopic: self.wishes.ask,
            FindEvent: self.find_event,
            AskHeads: self.ask_heads,
        }

    def timers(self) -> Timers:
        return {
            **super().timers(),
            fetch.TIMEOUT: lambda timer: self.fetch.on_timeout(timer.serial),
            fetch.AGAIN: lambda timer: self.fetch.on_again(),
            fetch.PATIENCE: lambda timer: self.fetch.on_patience(),
            fetch.PROVIDE: lambda timer: self._providers.on_timer(),
            reader.BEGIN: lambda timer: self._on_begin_timer(timer.topic, timer.serial),
            reader.TIMEOUT: self._on_reader_timer,
            reader.TAKE: self._on_reader_timer,
            storage.PRUNE: lambda timer: self.storage.on_prune_timer(self._library.topics()),
            ownership.RENEW: lambda timer: self.ownership.on_timer(),
            wishes.ASK: lambda timer: self.wishes.on_timer(timer.serial),
            server.PACE: lambda timer: self.server.on_pace_timer(timer.serial),
        }

    # --- what users see ---------------------------------------------------------------------------

    def newest_version(self, topic: Topic) -> TopicVersion | None:
        return self.versions.newest(topic)

    def on_lookup_done(self, signal: LookupDone) -> bool:
        return self.ownership.on_lookup_done(signal)

    def status(self) -> dict[str, object]:
        start = "history_refused_"
        refused = {
            name.removeprefix(start): count
            for name, count in sorted(self._ctx.counters.items())
            if name.startswith(start) and count
        }
        shown = {
            "missing": len(self.fetch),
            "refused": refused,
            "topics": {topic: self._topic_status(topic) for topic in self.readers},
        }
        return {"history": shown}

    def _topic_status(self, topic: Topic) -> dict[str, object]:
        held = self._library.summary(topic)
        reading = self.readers[topic]
        record = self.ownership.record(topic)
        return {
            "events": held.events,
            "bytes": held.bytes,
            "height": reading.stream.top(),
            "heads": len(reading.stream.dag.heads),
            "waiting": reading.stream.dag.waiting,
            "held": len(self.versions.held(topic) or ()),
            "reading": reading.reading,
            "pruned_to": held.floor.height,
            "publisher_bytes_max": self.storage.quota(topic),
            "publishers": {
                peer_text(publisher): size
                for publisher, size in self._library.signers(topic, _PUBLISHERS_SHOWN)
            },
            "version": cid_text(record.value) if record is not None else "",
            "sequence": record.sequence if record is not None else 0,
        }

    # --- subscriptions ----------------------------------------------------------------------------

    def entering(self, token: int, topic: Topic) -> int:
        def entered(answer: Answer) -> None:
            told = replace(answer, token=token)
            if answer.outcome == "left":
                self._ctx.out.append(told)
                return
            self._entered.setdefault(topic, []).append(told)
            self._answer_entered(topic)

        return self._ctx.quietly(entered)

    def _answer_entered(self, topic: Topic) -> None:
        """Pass the routing's answers on, once the stream has begun. Where the routing found no
        member, or only members that keep no history, the stream begins alone. (While `subscribe`
        has not made a reader yet, nothing is answered; it calls this again.)"""
        found = self.readers.get(topic)
        entered = self._entered.get(topic, [])
        if found is None or not entered:
            return
        if not found.stream.begun:
            joined = all(answer.outcome != "instantiated" for answer in entered)
            if joined and not found.nobody_keeps:
                return
            found.begin_alone()
        for answer in self._entered.pop(topic):
            self._ctx.out.append(answer)

    def enter_after(
        self, topic: Topic, recent: Recent, seen: list[Statement], member: Contact
    ) -> None:
        """Note what was published before a subscription. The past is read from members that keep
        history; where none does, the only past is what members still hold, so it is not passed
        over before that is known."""
        found = self.readers.get(topic)
        if seen and found is not None and found.stream.wants_past:
            self._before.setdefault(topic, []).append((recent, seen, member))
        else:
            self.skip_to(recent, seen)

    def weighs_past(self, topic: Topic) -> bool:
        return topic in self._before

    def _weigh_past(self, found: Reader) -> None:
        """Decide about what was published before a subscription, once a member has said that it
        keeps history, or all that they do not, or a turn is over: pass it over, or, where no member
        keeps history, have it repaired."""
        for recent, seen, member in self._before.pop(found.stream.topic, ()):
            if found.nobody_keeps:
                compare(self._ctx, found.stream.topic, recent, member, NOT_SEEN, settle_ms=0)
            else:
                self.skip_to(recent, seen)

    def _answer_left(self, topic: Topic) -> None:
        self._before.pop(topic, None)
        for answer in self._entered.pop(topic, ()):
            self._ctx.out.append(Answer(answer.token, "left"))

    def close(self) -> None:
        for topic in list(self._entered):
            self._answer_left(topic)

    def subscribe(self, topic: Topic, since: Since | None) -> None:
        stream = self.streams.subscribe(topic, since)
        found = self.readers.get(topic)
        if found is None:
            found = self.readers[topic] = Reader(
                self._ctx, stream, since, self.streams, self.fetch, self._library, self._members
            )
            self.fetch.want(topic, self._library.missing(topic), None)
            found.seek_beginning()
        else:
            found.on_subscriber(since)
        found.on_member(None)
        self._answer_entered(topic)

    def find_event(self, command: FindEvent) -> None:
        """A user names an event to read on from."""
        block = self.server.block(command.cid)
        if block is not None:
            self._ctx.answer(Answer(command.token, "found", value=block))
            return
        self._sought.setdefault(command.cid, []).append(command)
        self.fetch.want(command.topic, [command.cid], None)

    def _height_above(self, topic: Topic, cid: Cid) -> int | None:
        """The height of an event that names this one; None where none that does is at hand."""
        found = self.readers.get(topic)
        return found.stream.dag.lowest_child(cid) if found is not None else None

    def _publishers_above(self, topic: Topic, cid: Cid) -> list[Contact]:
        """The publishers of the events that wait for this one, of those that this peer knows."""
        found = self.readers.get(topic)
        publishers = found.stream.dag.publishers_above(cid) if found is not None else ()
        return [one for one in self._neighbours() if one.peer in publishers] if publishers else []

    def _answer_sought(self, cid: Cid, block: bytes | None) -> None:
        for command in self._sought.pop(cid, ()):
            outcome: Outcome = "not_found" if block is None else "found"
            self._ctx.answer(Answer(command.token, outcome, value=block))

    def unsubscribe(self, topic: Topic) -> None:
        super().unsubscribe(topic)
        for cid in [cid for cid, (one, *_) in self._sought.items() if one.topic == topic]:
            self._answer_sought(cid, None)
        if self.readers.pop(topic, None) is not None:
            self.streams.unsubscribe(topic)
            self.fetch.forget_topic(topic)
            self.versions.forget_topic(topic)
        self._answer_left(topic)

    def has_past(self, topic: Topic) -> bool:
        """Whether the past of a topic that was asked for is in the store, or on its way there, as
        far as this peer can tell."""
        found = self.readers.get(topic)
        return found is None or found.has_past

    def reads_past(self, topic: Topic) -> bool:
        """Whether a member is being asked for pages of a topic's stream, and may answer."""
        found = self.readers.get(topic)
        return found is not None and found.reading

    def told(self, topic: Topic) -> Sequence[Head] | None:
        """Where other members stand, as they said; None as long as there was no word."""
        found = self.readers.get(topic)
        if found is None:
            return None
        return () if found.nobody_keeps else found.told

    def ask_heads(self, command: AskHeads) -> None:
        """Ask as a peer that has nothing does: a member answers that in any case."""
        found = self.readers.get(command.topic)
        members = found.to_begin_with() if found is not None else []
        if members:
            self._ctx.send(self._ctx.pick(_TELL, members), Heads(command.topic, [], True))

    def is_getting(self, topic: Topic, cid: Cid) -> bool:
        """Whether an event that a member has named may still come into the store."""
        found = self.readers.get(topic)
        if found is None:
            return False
        stream = found.stream
        waits = cid in stream.dag.room or cid in {**stream.baseline, **stream.tips}
        return found.reading or waits or cid in self.fetch

    def lies_before(self, event: SealedEvent) -> bool:
        """Whether an event lies before where the stored stream of its topic begins."""
        found = self.readers.get(event.topic)
        return found is not None and found.stream.lies_before(event)

    def is_own(self, event: SealedEvent) -> bool:
        """Whether this life of this peer has published an event."""
        named = number_of(event)
        return named is not None and named[:2] == (self._ctx.me.peer, self._ctx.incarnation)

    def levels(self, topic: Topic) -> list[Topic]:
        return self.versions.levels(topic)

    # --- what routing brings ----------------------------------------------------------------------

    def _admit(self, arrival: Arrival, proven: Proven) -> bool:
        topic, recent, hops, source, ask, subscribed = arrival
        run = proven.run
        if not run.sealed:
            if self.versions.refuses(topic, PeerId(run.publisher)):
                self.streams.refuse(topic, Reason.NOT_ALLOWED, source, run)
                self._tell_refused(topic, run, ask)
                return False
            self._ctx.counters["history_plain"] += len(run.payloads)
            return super()._admit(arrival, proven)
        if subscribed and self._is_far_ahead(topic, run):
            recent.admit(proven, hops, self._ctx.now, self._ctx.wall_ms)
            return True
        opened = self.open_run(topic, run, source)
        if opened is None:
            self._tell_refused(topic, run, ask)
            return False
        for event in opened if subscribed else ():
            self._ctx.tell(Arrived(event, ask, hops))
        if any(self.streams.is_undecided(event) for event in opened):
            return False
        recent.admit(proven, hops, self._ctx.now, self._ctx.wall_ms)
        return True

    def _is_far_ahead(self, topic: Topic, run: Run) -> bool:
        """Whether this peer is so far behind that the stream's pages bring a run sooner than it
        could be handed out. Then it is passed on as its publisher signed it, and its blocks are not
        verified: a peer that verifies everything twice never catches up with a busy stream. (The
        next peers verify them, and so does this peer when pages bring them.)"""
        found = self.readers.get(topic)
        if found is None or not found.reading:
            return False
        try:
            first = known_event(run.payloads[0], cid_of(run.payloads[0]))
        except Refused:
            return False
        if first.topic != topic or not found.brings(first.height):
            return False
        if self.versions.refuses(topic, PeerId(run.publisher)):
            return False
        self._ctx.counters["history_left_to_pages"] += len(run.payloads)
        return True

    def _tell_refused(self, topic: Topic, run: Run, source: Contact | None) -> None:
        """Tell a member that publishes, though it did not ask, that its events are refused here."""
        if source is None or source.peer != run.publisher:
            return
        ctx, key = self._ctx, (topic, source.peer)
        told = self._told.get(key)
        if told is None or ctx.now - told >= _TOLD_MS:
            self._told.renew(key, ctx.now)
            why = self.refusal(topic, span_of(run))
            ctx.send(source, BlocksReply(topic, 0, [], word=REFUSED, reason=why))

    def source(self, sender: Contact) -> Contact | None:
        return sender

    # --- publishing -------------------------------------------------------------------------------

    def _parts(self, topics: tuple[Topic, ...]) -> tuple[Part, ...]:
        """Each topic describes the event by itself, so there is nothing to share."""
        return ()

    def _payload_bytes_max(
        self, topic: Topic, headers: Mapping[str, str], envelope_bytes: int, origin: Topic | None
    ) -> int:
        """The largest payload that fits in a block, where headers stand among the metadata."""
        return payload_bytes_max(topic, _metadata(INTEGER_MAX, INTEGER_MAX, headers, origin))

    def refuses(self, fact: Publish, origin: Topic | None) -> bool:
        """Whether this peer may not publish in the topic, as far as it knows; then the user is told
        why. `origin` is the sub-topic that the event climbs from, if it does."""
        lacks = origin is not None and self.versions.lacks_level(fact.topic, origin)
        refused = self.versions.refuses_me(fact.topic)
        if lacks or (refused and self.versions.link(fact.topic) is None):
            self.streams.refuse(fact.topic, Reason.UNKNOWN_TOPIC)
            known = "no version of it is known here that lets this peer publish"
            reason = f"{fact.topic} has owners, and {known}"
        elif refused:
            self.streams.refuse(fact.topic, Reason.NOT_ALLOWED)
            reason = f"the owners of {fact.topic} do not let this peer publish in it"
        elif self._is_full(fact.topic, fact.payloads):
            self.streams.refuse(fact.topic, Reason.OVER_QUOTA)
            reason = (
                f"this peer has published as much in {fact.topic} as one peer may have stored "
                "(history.keep.publisher_bytes); there is room once some of it was pruned"
            )
        else:
            return False
        if refused:
            self.ownership.ask_again(fact.topic)
        self._ctx.out.append(Answer(fact.token, "refused", reason=reason))
        return True

    def _is_full(self, topic: Topic, payloads: tuple[bytes, ...]) -> bool:
        quota = self.storage.quota(topic)
        used = self.storage.used(topic, self._ctx.me.peer)
        return bool(quota) and used + sum(len(p) + _DESCRIBED_BYTES for p in payloads) > quota

    def _spread(
        self, fact: Publish, first: int, parts: tuple[Part, ...], origin: Topic | None
    ) -> None:
        """Seal events, each with the one before it as its parent, and have them stored together;
        they are routed as one run once they are durable. `origin`: see `refuses`."""
        topic, ctx = fact.topic, self._ctx
        events = []
        for number, wrapped in enumerate(fact.payloads, first):
            headers, payload = unwrap(wrapped)
            sealed = seal_event(
                self._sign,
                publisher=ctx.me.peer,
                topic=topic,
                payload=payload,
                created_ms=fact.published_ms,
                parents=self.streams.parents(topic),
                link=self.versions.link(topic),
                metadata=_metadata(ctx.incarnation, number, headers, origin),
            )
            self.streams.append(sealed)
            events.append(sealed)
        # Signed now, so that runs go on from each other in the order of their numbers.
        blocks = tuple(event.block for event in events)
        proven = self.sign(topic, first, fact.published_ms, blocks)
        self.storage.publish(
            tuple(events), lambda error: self._on_published(fact.token, proven, events, error)
        )

    def _on_published(
        self, token: int, proven: Proven, events: list[SealedEvent], error: str
    ) -> None:
        for event in events:
            error = self.streams.settle(event, error)
        if error:
            self._ctx.out.append(Answer(token, "failed", reason=error))
            return
        for event in events:
            self._providers.own(event)
        self._route(token, events[0].topic, proven, ORIGIN in events[0].metadata)

    # --- links, turns and the beginning -----------------------------------------------------------

    def open_run(self, topic: Topic, run: Run, sender: PeerId | None) -> list[SealedEvent] | None:
        """The events in a run of blocks that routing brought; None if it must not be passed on."""
        return self.streams.open(topic, run, sender)

    def on_arrived(self, signal: Arrived) -> None:
        """An event that routing brought and `open_run` let through."""
        event, source, hops = signal.event, signal.source, signal.hops
        found = self.readers.get(event.topic)
        if found is not None:
            found.on_event(event, source, hops)

    def link_up(self, topic: Topic, contact: Contact) -> None:
        """A new link: tell each other where the stream stands."""
        found = self.readers.get(topic)
        if found is None:
            self._tell_from_outside(topic, contact)
            return
        found.on_member(contact)
        begun = found.stream.begun
        if not begun or self._ctx.me.peer < contact.peer:  # one end is enough
            self._send_heads(contact, found, answer=True)

    def run_topic(self, topic: Topic, alone: bool) -> None:
        """A topic's turn: tell a member where the stream stands, in case either missed its end, and
        go through what is missing. `alone`: no other member is known."""
        found = self.readers.get(topic)
        if found is None:
            return
        if alone and not found.stream.begun:
            self._begin_alone(found)
        self._weigh_past(found)
        members = self._members(topic)
        found.on_turn(bool(members))
        if members:
            self.fetch.want(topic, self.versions.expected(topic), None)
            self._send_heads(self._ctx.pick(_TELL, members), found, answer=True)

    def _begin_alone(self, found: Reader) -> None:
        found.begin_alone()
        self._answer_entered(found.stream.topic)

    def _on_begin_timer(self, topic: Topic, serial: int) -> None:
        """Ask another member where to begin, once the routing has entered the topic."""
        found = self.readers.get(topic)
        if found is None or found.begin_serial != serial or found.stream.begun:
            return
        if topic in self._entered:
            if found.waits_in_vain():
                self._begin_alone(found)
                return
            members = found.to_begin_with()
            if members:
                self._send_heads(self._ctx.pick(_TELL, members), found, answer=True)
        found.seek_beginning()

    def _on_keeps_none(self, found: Reader) -> None:
        """A member that was asked where to begin, or for a page, keeps no history: ask the next one
        at once."""
        if found.nobody_keeps:
            self._weigh_past(found)
        if found.stream.begun:
            return
        members = found.to_begin_with()
        if members:
            self._send_heads(members[0], found, answer=True)
        else:
            self._answer_entered(found.stream.topic)

    def flush(self) -> None:
        """The end of a step: send what it released to the store."""
        self.storage.flush()

    # --- messages ---------------------------------------------------------------------------------

    def on_heads(self, sender: Contact, message: Heads) -> None:
        """A member tells where its stream stands, and which topic record it holds."""
        found = self.readers.get(message.topic)
        if found is None:
            return
        found.note_kept(sender, message.kept)
        if not message.kept:
            self._on_keeps_none(found)
            return
        self._weigh_past(found)
        found.on_member(sender)
        asks = False
        if found.stream.begun:
            found.on_heads(sender, message.heads)
        elif not found.may_begin_with(sender.peer):
            asks = found.is_member(sender.peer)
        elif message.heads and message.seen is None:
            asks = True  # so that the member also tells what came before these heads
        else:
            found.begin_with(sender, message)
            self._answer_entered(message.topic)
        found.note_told(sender.peer, message)
        behind = self.ownership.compare(sender, message.topic, message.sequence, message.version)
        told = {head.cid for head in message.heads}
        news = any(head.cid not in told for head in found.stream.heads(self.streams.unsettled))
        # A peer that has nothing may wait for a word to begin with, even if there is nothing yet.
        owed = asks or behind or (message.answer and (news or not told))
        # A peer that has had its share of long answers gets none: it asks again, or another member.
        if owed and (told or self._answered.tells(message.topic, sender.peer)):
            self._send_heads(sender, found, answer=asks, seen=not told)

    def on_page_reply(self, sender: Contact, message: PageReply) -> None:
        found = self.readers.get(message.topic)
        if found is None:
            self._ctx.counters["history_unasked"] += 1
        else:
            self._weigh_past(found)
            found.on_page_reply(sender, message)

    def _send_heads(self, to: Contact, found: Reader, answer: bool, seen: bool = False) -> None:
        """Tell where this peer's stream stands; with `seen`, for a member that begins there."""
        stream = found.stream
        record = self.ownership.record(stream.topic)
        sequence = record.sequence if record is not None else 0
        version = record.value if record is not None else None
        heads = stream.heads(self.streams.unsettled) if stream.begun else []
        told, proofs, tips = None, [], []
        if seen and stream.begun:
            told = stream.told()
            recent = self._recent(stream.topic)
            signed = recent.seen() if recent is not None else []
            proofs = stream.proofs_told(one for one in signed if one.sealed)
            tips = stream.tips_told(proofs)
        if answer:
            found.note_asked(to.peer)
        words = Heads(stream.topic, heads, answer, sequence, version, told, True, proofs, tips)
        self._ctx.send(to, words)

    def _tell_from_outside(self, topic: Topic, member: Contact) -> None:
        """A member may lack what is stored here, be it only as the parent of another event."""
        held = self._library.heads(topic)
        heads = [Head(cid, height) for cid, height in held.items()][:HEADS_MAX]
        if heads:
            self._ctx.send(member, Heads(topic, heads, False))
        if self.ownership.holds(topic):
            self.ownership.tell(member, topic)

    # --- blocks that were fetched -----------------------------------------------------------------

    def _on_block(self, topic: Topic, cid: Cid, block: bytes, sender: Contact | None) -> None:
        """A block that was asked for: a topic version, or an event. An event that only a user asked
        for need not be part of the stream."""
        if self.ownership.expects(cid):
            self._on_version(topic, cid, block)
            return
        found = self.readers.get(topic)
        if cid in self._sought:
            self._answer_sought(cid, block)
            if found is None or not found.stream.dag.awaits(cid):
                self.fetch.forget(cid)
                return
        if found is None:
            return
        event = self.streams.open_block(found.stream, cid, block)
        if event is not None:
            found.take(event, sender, 0)
        else:  # no other block has this CID, so no peer has a better one
            self.fetch.forget(cid)
            self._on_given_up(topic, cid, False)

    def _on_version(self, topic: Topic, cid: Cid, block: bytes) -> None:
        self.fetch.forget(cid)
        try:
            waited = self.ownership.on_version(cid, block)
        except Refused as refused:
            self.streams.refuse(topic, refused.reason)
            self._on_given_up(topic, cid, False)
            return
        for event, source, hops in waited:
            found = self.readers.get(event.topic)
            if found is not None:
                found.take(event, source, hops)

    def _on_given_up(self, topic: Topic, cid: Cid, hearsay: bool) -> None:
        """No peer has a block, or (`hearsay`) the peer that spoke of it does not."""
        self._answer_sought(cid, None)
        self.ownership.give_up(cid)
        self.streams.on_given_up(topic, cid, hearsay)

    # --- the store, timers and losses -------------------------------------------------------------

    def on_stored(self, fact: Stored) -> None:
        written = self.storage.on_stored(fact)
        if fact.error:
            self.streams.on_store_failed(written.events)
        if written.then is not None:
            written.then(fact.error)

    def on_pruned(self, fact: Pruned) -> None:
        self._ctx.counters["history_pruned"] += fact.events
        self.storage.on_pruned()
        self.streams.on_pruned(fact.topic)

    def _on_reader_timer(self, timer: Timer) -> None:
        found = self.readers.get(timer.topic)
        if found is None:
            return
        if timer.kind == reader.TIMEOUT:
            found.on_timeout(timer.serial)
        else:
            found.on_take()

    def on_peer_lost(self, peer: PeerId) -> None:
        self.fetch.on_peer_lost(peer)
        self.server.on_peer_lost(peer)
        for found in self.readers.values():
            found.on_peer_lost(peer)


# --- without a store ------------------------------------------------------------------------------


def refusals(ctx: Context) -> Handlers:
    """Handlers of a peer without a store: messages about history are counted and refused, and a
    subscriber that waits for a word to begin with, or for a page, is told so."""

    def refuse(sender: Contact, message: Message) -> None:
        ctx.counters["history_off"] += 1

    def on_heads(sender: Contact, message: Heads) -> None:
        refuse(sender, message)
        if message.answer:
            ctx.send(sender, keeps_none(message.topic))

    def on_blocks_request(sender: Contact, message: BlocksRequest) -> None:
        """Say that the blocks are lacking here, so that the sender asks another peer at once."""
        refuse(sender, message)
        ctx.send(sender, BlocksReply(message.topic, message.request, [], lacking=message.cids))

    def on_page_request(sender: Contact, message: PageRequest) -> None:
        refuse(sender, message)
        ctx.send(sender, keeps_none(message.topic))

    def keeps_none(topic: Topic) -> Heads:
        return Heads(topic, [], answer=False, kept=False)

    kinds = (BlocksReply, PageReply, TopicNews, SubTopicReply, SubTopicRequest)
    return {
        **dict.fromkeys(kinds, refuse),
        Heads: on_heads,
        BlocksRequest: on_blocks_request,
        PageRequest: on_page_request,
    }


def _metadata(
    incarnation: int, number: int, headers: Mapping[str, str], origin: Topic | None
) -> dict[str, Scalar]:
    """The metadata of an event of this peer's own."""
    climbed = {} if origin is None else {ORIGIN: origin}
    return {INCARNATION: incarnation, NUMBER: number, **climbed, **as_metadata(headers)}
