"""Fetching blocks by their CID: a gap in a stream is asked for (paper 004, Section 4.5: NAK).

Routing may bring an event before its parent, so a gap is given `patience_ms` to close by itself.
The peer that brought the event very likely has its parent too, so it is asked first; then other
members of the topic, one after another; then the publisher of the event that lacks it, if this peer
knows where that is: a publisher from outside of the topic may be the only peer that has what it
published while no member kept a store. Then, with a DHT, the peers that provide the block. When
all were asked in vain, asking pauses for `retry_ms` and begins again; after `give_up_ms` the block
is given up: the stream goes on without it, and the counter `history_given_up` says so. Time in
which this peer was cut off from the whole network does not count: no peer could have answered.

A publisher may name a parent that it never sends. A peer that meets the gap later than others would
wait for `give_up_ms` once more, with all events that follow. So a member that lacks a block says
whether it has given the block up (`given_up`), and a peer that has asked all members gives up as
well where at least `_AGREED` of them, and most of those that answered, have done so. The word of
one peer, or of a few among many that still wait, is not enough: liars would make others pass over
events that a cut network keeps from them.

A block that no event names, but that a peer says there is (its heads, a topic record), is
*hearsay*: only the peers that said so are asked, and if none of them has it, it is forgotten. So no
peer can make another one pester others with names that it made up.

In the DHT a peer says which segments of a stream it has events of, and finds peers that have events
of a segment (Section 4.5). A segment is `segment_heights` of the stream's heights; the segment of a
missing event is known from the event that names it.

Deviation: the paper provides each event under a key of its own. A key costs a lookup and a message
to each of the 20 closest peers; with one per event that was three of five messages of a busy topic
(286 peers, 4.9 million messages in 400 s). With 256 heights a key, a stream costs as much as its
members, and what a member stores is found whether its coin fell for that event or for a neighbour.

With `put_bytes_max` a publisher puts blocks up to that size into the DHT as the paper does (Section
4.4), so that they outlive it for a day though no other peer has them; a gap is asked of the DHT by
the block's own name then, before providers are looked for.

Deviation: that is off by default, for a put costs as much as the key per event above. The segment
is provided as well: that costs one key in 256 heights, and is renewed for as long as the publisher
has the events, where a value that was put ends after a day.

Invariants: a block is asked for at one peer at a time; at most `requests_max` requests are on their
way, each for at most `blocks_per_request` blocks; at most `wants_max` blocks are wanted, of these
`wants_per_source_max` on the word of one peer. A block that finds no room is not looked for now;
members tell their heads again, and gaps are gone through anew at the topic's next turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from weft.bounded import BoundedDict
from weft.documents.dag import Stream
from weft.documents.descriptor import SealedEvent
from weft.documents.position import Position, position
from weft.documents.refusal import Reason
from weft.ids import GENERAL, Cid, Contact, PeerId, Topic, cid_of
from weft.protocol.context import Context
from weft.protocol.history.blocks import BlocksReply, BlocksRequest
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.seam import DhtFindProviders, DhtGet, DhtProvide, DhtPut, Millis
from weft.rules.draw import absorb, chance, stream_of
from weft.rules.prefix import BLOCK, DIGEST_BYTES, segment_key
from weft.store.interface import Store

TIMEOUT = "history.fetch"
PROVIDE = "history.provide"
AGAIN = "history.again"
PATIENCE = "history.patience"

PROVIDERS_WANTED = 20
"""measured: with 3, one in seven events that live peers provide was not found after half of the
peers had crashed, for the first three named may all be gone (`pulsar-persist`). A reply names 32 at
most."""
_PROVIDERS_MAX = 2 * PROVIDERS_WANTED
"""guess: providers remembered of a block, those of the latest searches: each search may be for
another segment, and a provider that was asked in vain may have the block later."""
_AGREED = 2
"""guess: members that have given a block up before others do so by their word."""
_GIVEN_UP_MAX = 4_096
"""guess: blocks remembered that were given up; a name of 36 bytes each."""
_SOURCES_MAX = 8
"""guess: peers remembered that should have a block, since they named it; the latest stay."""
_SOUGHT_MAX = 64
"""guess: events of a topic that were given up and are sought again at a time."""
_PAUSE_MAX = 64
"""guess: turns between two rounds of questions, some ten minutes or more."""
_PROVIDE = stream_of("history.provide")
_PARTS = 1_000_000
_LOOK_MS = 60_000
_LOOKED_AT = 16
"""guess, both: segments of a store looked at in a minute. In most segments one of the first events
read is a provided one, so this takes some milliseconds in all."""
_READ = 32
"""guess: events read from the store at a time."""
_FARTHER = 12
"""guess: how often a search that does not know an event's height doubles its step before it begins
again: up to a million heights, with 256 in a segment."""


class _Want:
    """A block that is missing."""

    __slots__ = (
        "asked",
        "first",
        "given_up_by",
        "got",
        "hearsay",
        "lacked_by",
        "looked_up",
        "providers",
        "searches",
        "sources",
        "topic",
        "until",
    )

    def __init__(self, topic: Topic, until: Millis, first: PeerId | None, hearsay: bool) -> None:
        self.topic = topic
        self.until = until  # when it is given up
        self.first = first  # the peer on whose word it is looked for
        self.hearsay = hearsay  # no event names it
        self.sources: BoundedDict[PeerId, Contact] = BoundedDict(_SOURCES_MAX)  # best first
        self.providers: BoundedDict[PeerId, Contact] = BoundedDict(_PROVIDERS_MAX)  # in the DHT
        self.asked: dict[PeerId, None] = {}  # in this round
        self.lacked_by: dict[PeerId, None] = {}  # of these
        self.given_up_by: dict[PeerId, None] = {}  # of these
        self.got = False  # the DHT was asked for the block itself
        self.looked_up = False  # and for peers that have it
        self.searches = 0  # for these

    def begin_round(self) -> None:
        """All peers may be asked for the block again."""
        for peers in (self.asked, self.lacked_by, self.given_up_by):
            peers.clear()
        self.got = self.looked_up = False

    @property
    def is_in_vain(self) -> bool:
        """Whether most of the peers that lack it, of all asked in this round, have given it up."""
        agreed = len(self.given_up_by)
        return agreed >= _AGREED and 2 * agreed > len(self.lacked_by)


class _Request:
    """Blocks asked of one peer."""

    __slots__ = ("asked_at", "cids", "contact", "topic")

    def __init__(self, topic: Topic, contact: Contact, cids: list[Cid], now: Millis) -> None:
        self.asked_at = now
        self.topic = topic
        self.contact = contact
        self.cids = cids


class RoundTrip:
    """How long answers take, smoothed, and so how long the next one may take."""

    __slots__ = ("_smoothed",)

    def __init__(self) -> None:
        self._smoothed: Millis | None = None

    def note(self, took: Millis) -> None:
        before = self._smoothed
        self._smoothed = took if before is None else (7 * before + took) // 8

    def patience(self, longest: Millis) -> Millis:
        """Four times what the last answers took and a little more; `longest` before the first."""
        return longest if self._smoothed is None else min(longest, 200 + 4 * self._smoothed)


class Fetch:
    """All blocks that one peer is missing."""

    def __init__(
        self,
        ctx: Context,
        members: Callable[[Topic], list[Contact]],
        publishers_above: Callable[[Topic, Cid], list[Contact]],
        height_above: Callable[[Topic, Cid], int | None],
        providers: Providers,
        take_in: Callable[[Topic, Cid, bytes, Contact | None], None],
        give_up: Callable[[Topic, Cid, bool], None],
        neighbours: Callable[[], list[Contact]],
    ) -> None:
        """`publishers_above` names the publishers of the events that name a block as their parent,
        as far as this peer knows where they are; `height_above` tells the height of such an event,
        if one is known; `take_in` gets each block that came, with its sender unless it came from
        the DHT, and calls `forget`; `give_up` is told of blocks that no peer has, and whether they
        were only hearsay; `neighbours` are peers of the network, whatever their topics."""
        self._ctx = ctx
        self._members = members
        self._publishers_above = publishers_above
        self._height_above = height_above
        self._providers = providers
        self._take_in = take_in
        self._give_up = give_up
        self._neighbours = neighbours
        self._wants: dict[Cid, _Want] = {}
        self.per_source: dict[PeerId, int] = {}
        self._idle: dict[Cid, None] = {}  # wants that no peer is being asked for
        self.requests: dict[int, _Request] = {}
        self._paused: dict[Cid, None] = {}  # all were asked in vain
        self._again_armed = False
        self._round_trip = RoundTrip()
        self._given_up: BoundedDict[Cid, None] = BoundedDict(_GIVEN_UP_MAX)
        self._fresh: dict[Cid, Millis] = {}  # gaps that may close by themselves, and until when
        self._patience_armed = False

    def __len__(self) -> int:
        return len(self._wants)

    def __contains__(self, cid: Cid) -> bool:
        return cid in self._wants

    # --- what is wanted -------------------------------------------------------------------------

    def want(
        self,
        topic: Topic,
        cids: Iterable[Cid],
        source: Contact | None,
        patient: bool = False,
        hearsay: bool = False,
    ) -> None:
        """Begin to fetch blocks; `source` is likely to have them. `patient`: they may come by
        themselves, so wait a little. `hearsay`: no event names them."""
        for cid in cids:
            want = self._wants.get(cid)
            if want is None:
                want = self._begin(topic, cid, source, patient, hearsay)
            if want is None:
                continue
            if not hearsay:
                want.hearsay = False
            if source is not None:
                want.sources.setdefault(source.peer, source)
        self._arm_patience()
        self._pump()

    def forget(self, cid: Cid) -> None:
        """The block came, by any way, or is not wanted any more."""
        want = self._wants.pop(cid, None)
        if want is not None:
            if want.first is not None:
                left = self.per_source.pop(want.first) - 1
                if left:
                    self.per_source[want.first] = left
            self._idle.pop(cid, None)
            self._paused.pop(cid, None)
            self._fresh.pop(cid, None)

    def forget_topic(self, topic: Topic) -> None:
        for cid in [cid for cid, want in self._wants.items() if want.topic == topic]:
            self.forget(cid)

    def has_given_up(self, cid: Cid) -> bool:
        """Whether this peer has given a block up after all were asked for it."""
        return cid in self._given_up

    # --- answers, timers and losses -------------------------------------------------------------

    def on_blocks_reply(self, sender: Contact, message: BlocksReply) -> None:
        """Each block is checked against its CID. Blocks that the answer had no room for may be
        asked of the same peer again."""
        request = self.requests.get(message.request)
        if request is None or request.contact.peer != sender.peer:
            self._ctx.counters["history_unasked"] += 1
            return
        del self.requests[message.request]
        self._round_trip.note(self._ctx.now - request.asked_at)
        left = dict.fromkeys(request.cids)
        for block in message.blocks:
            cid = cid_of(block)
            if cid in left:
                del left[cid]
                self._take_in(request.topic, cid, block, sender)
            else:  # not asked for, or not what its name says
                self._ctx.counters[f"history_refused_{Reason.BAD_CID}"] += 1
        for cid in message.lacking:
            left.pop(cid, None)
            self._note_lacking(request, cid, cid in message.given_up)
        got_some = len(left) < len(request.cids) - len(message.lacking)
        self._settle(request, left if got_some else ())

    def _note_lacking(self, request: _Request, cid: Cid, given_up: bool) -> None:
        want = self._wants.get(cid)
        if want is not None and cid in request.cids:
            want.lacked_by[request.contact.peer] = None
            if given_up:
                want.given_up_by[request.contact.peer] = None

    def on_patience(self) -> None:
        """Gaps that did not close by themselves are asked for."""
        self._patience_armed = False
        while self._fresh:
            cid, until = next(iter(self._fresh.items()))
            if until > self._ctx.now:
                break
            del self._fresh[cid]
            self._idle[cid] = None
        self._arm_patience()
        self._pump()

    def on_again(self) -> None:
        """A while later: all may be asked again."""
        self._again_armed = False
        paused, self._paused = self._paused, {}
        for cid in paused:
            self._wants[cid].begin_round()
            self._idle[cid] = None
        self._pump()

    def on_timeout(self, number: int) -> None:
        request = self.requests.pop(number, None)
        if request is not None:
            self._settle(request)

    def on_peer_lost(self, peer: PeerId) -> None:
        lost = [n for n, request in self.requests.items() if request.contact.peer == peer]
        for number in lost:
            self.on_timeout(number)

    # --- asking ---------------------------------------------------------------------------------

    def _begin(
        self, topic: Topic, cid: Cid, source: Contact | None, patient: bool, hearsay: bool
    ) -> _Want | None:
        """A new want, if there is room."""
        ctx, limits = self._ctx, self._ctx.config.history
        first = source.peer if source is not None else None
        of_source = self.per_source.get(first, 0) if first is not None else 0
        if len(self._wants) >= limits.wants_max or of_source >= limits.wants_per_source_max:
            ctx.counters["history_wants_refused"] += 1
            return None
        want = self._wants[cid] = _Want(topic, ctx.now + limits.give_up_ms, first, hearsay)
        if first is not None:
            self.per_source[first] = of_source + 1
        ctx.counters["history_gaps"] += not hearsay
        if patient:
            self._fresh[cid] = ctx.now + limits.patience_ms
        else:
            self._idle[cid] = None
        return want

    def _arm_patience(self) -> None:
        if self._fresh and not self._patience_armed:
            self._patience_armed = True
            soonest = next(iter(self._fresh.values()))
            self._ctx.set_timer(max(1, soonest - self._ctx.now), PATIENCE, GENERAL)

    def _pump(self) -> None:
        """Ask for idle blocks, those of one topic and source together."""
        limits = self._ctx.config.history
        while self._idle and len(self.requests) < limits.requests_max:
            first = next(iter(self._idle))
            contact = self._next_source(first)
            if contact is None:
                del self._idle[first]
                self._nobody_left(first)
                continue
            topic = self._wants[first].topic
            cids = [cid for cid in self._idle if self._may_ask(cid, topic, contact)]
            self._ask(topic, contact, cids[: limits.blocks_per_request])

    def _may_ask(self, cid: Cid, topic: Topic, contact: Contact) -> bool:
        want = self._wants[cid]
        asked = contact.peer in want.asked or contact.peer == self._ctx.me.peer
        return want.topic == topic and not asked

    def _next_source(self, cid: Cid) -> Contact | None:
        want = self._wants[cid]
        members = [] if want.hearsay else self._members(want.topic)
        for contact in (*want.sources.values(), *want.providers.values(), *members):
            if self._may_ask(cid, want.topic, contact):
                return contact
        publishers = [] if want.hearsay else self._publishers_above(want.topic, cid)
        return next((one for one in publishers if self._may_ask(cid, want.topic, one)), None)

    def _ask(self, topic: Topic, contact: Contact, cids: list[Cid]) -> None:
        ctx = self._ctx
        number = ctx.next_serial()
        for cid in cids:
            del self._idle[cid]
            self._wants[cid].asked[contact.peer] = None
        self.requests[number] = _Request(topic, contact, cids, ctx.now)
        ctx.send(contact, BlocksRequest(topic, number, cids))
        patience = self._round_trip.patience(ctx.config.history.request_timeout_ms)
        ctx.set_timer(patience, TIMEOUT, topic, number)

    def _settle(self, request: _Request, cut_short: Collection[Cid] = ()) -> None:
        """Ask elsewhere for the blocks that a request did not bring. For those in `cut_short` the
        answer had no room, so the same peer may be asked again."""
        for cid in request.cids:
            want = self._wants.get(cid)
            if want is not None and cid not in self._paused and cid not in self._fresh:
                if cid in cut_short:
                    want.asked.pop(request.contact.peer, None)
                self._idle[cid] = None
        self._pump()

    def _nobody_left(self, cid: Cid) -> None:
        """All members were asked in vain: ask the DHT for the block, look for providers, else pause
        and begin again."""
        want = self._wants[cid]
        if want.hearsay:
            self.forget(cid)
            self._ctx.counters["history_hearsay"] += 1
            self._give_up(want.topic, cid, True)
            return
        if not want.got:
            want.got = True
            if self._providers.get(cid, lambda block: self._on_got(cid, block)):
                return
        if not want.looked_up:
            want.looked_up = True
            want.searches += 1
            above = self._height_above(want.topic, cid)
            number = self._providers.to_search(want.topic, above, want.searches - 1)
            if self._providers.find(want.topic, number, lambda some: self._on_providers(cid, some)):
                return
        if not self._neighbours():
            want.until += self._ctx.config.history.retry_ms
        elif want.until <= self._ctx.now or want.is_in_vain:
            self.forget(cid)
            self._given_up[cid] = None
            self._ctx.counters["history_given_up"] += 1
            self._give_up(want.topic, cid, False)
            return
        self._paused[cid] = None
        if not self._again_armed:
            self._again_armed = True
            self._ctx.set_timer(self._ctx.config.history.retry_ms, AGAIN, want.topic)

    def _on_got(self, cid: Cid, block: bytes | None) -> None:
        """The DHT has the block itself, or has not."""
        want = self._wants.get(cid)
        if want is None:
            return
        if block is not None and cid_of(block) == cid:
            self._ctx.counters["history_got"] += 1
            self._take_in(want.topic, cid, block, None)
        else:
            self._idle[cid] = None
            self._pump()

    def _on_providers(self, cid: Cid, found: Sequence[Contact]) -> None:
        want = self._wants.get(cid)
        if want is not None:
            for contact in found:
                want.providers.renew(contact.peer, contact)
            self._idle[cid] = None
            self._pump()


# --- what was given up ----------------------------------------------------------------------------


class Pause:
    """How many of a topic's turns pass before something that failed is tried again: twice as many
    after each failure."""

    __slots__ = ("_left", "_length")

    def __init__(self) -> None:
        self._length = 1
        self._left = 1

    def is_over(self) -> bool:
        """A turn comes: whether enough of them have passed."""
        self._left -= 1
        return self._left <= 0

    def lengthen(self) -> None:
        """The thing was tried: until it is tried again, twice as many turns pass."""
        self._length = min(2 * self._length, _PAUSE_MAX)
        self._left = self._length

    def end(self) -> None:
        """There is reason to try at the next turn."""
        self._length = self._left = 1


class Losses:
    """The events that a reader wants and gave up, and how they are sought again.

    An event is given up if no member had it for long, or if it lies before the place where this
    peer began. Neither is final: after a cut a member that has the event may be back, and a member
    that had given it up, too, may have got it, or have imported it from a file. An event that comes
    so is stored, and is not handed out after the events that follow it (`stream.py`).
    """

    __slots__ = ("_dag", "_fetch", "_library", "_members", "_pause", "_sought", "_topic")

    def __init__(
        self,
        topic: Topic,
        dag: Stream,
        library: Store,
        fetch: Fetch,
        members: Callable[[Topic], list[Contact]],
    ) -> None:
        self._topic = topic
        self._dag = dag
        self._library = library
        self._fetch = fetch
        self._members = members
        self._sought: list[Cid] = []  # since a reading came to its end
        self._pause = Pause()

    @property
    def are_sought(self) -> bool:
        """Whether something that was sought after a reading may still come."""
        return any(cid in self._fetch or cid in self._dag.room for cid in self._sought)

    def on_read(self) -> None:
        """The past has been read from one member, perhaps not from its beginning; what was given up
        may lie below, or on a branch that this member lacks: all are asked once."""
        self._pause.end()
        lacking = self._lacking()
        # Those of an earlier reading may still be on their way.
        self._sought = list(dict.fromkeys((*self._sought, *lacking)))[-_SOUGHT_MAX:]
        self._ask_all(lacking)

    def on_heads(self, member: Contact, heads: Collection[Cid]) -> None:
        """A member tells heads that are all known here. Where they are fewer than this peer's own,
        something follows the others there that was given up here."""
        if heads and any(cid not in heads for cid in self._dag.heads):
            self._fetch.want(self._topic, self._lacking(), member, hearsay=True)

    def on_turn(self) -> None:
        """The topic's turn, and nothing is being read: ask all, the longer in vain the rarer."""
        if self._pause.is_over():
            self._pause.lengthen()
            self._ask_all(self._lacking())

    def _lacking(self) -> list[Cid]:
        """Events that were given up and have not come since, some of them."""
        lost = self._library.lost(self._topic, _SOUGHT_MAX)
        return [cid for cid in lost if not self._dag.knows(cid)]

    def _ask_all(self, lacking: list[Cid]) -> None:
        for member in self._members(self._topic):
            self._fetch.want(self._topic, lacking, member, hearsay=True)


# --- providers in the DHT -------------------------------------------------------------------------


class Segment(NamedTuple):
    """A part of a topic's stream: heights that follow on one another, all alike in number."""

    topic: Topic
    number: int


class Providers:
    """Tells the DHT which segments this peer has events of, and asks it which peers have events of
    a segment; without a DHT it does neither.

    Whether a peer provides an event's segment is drawn from the peer's number and the event's CID,
    so a later life of the peer draws the same: it goes through its store, the latest segments of
    each topic first, and provides them anew, some at a time. A segment that is not in the store any
    more is not provided further.
    """

    def __init__(self, ctx: Context, dht: Kademlia | None, library: Store) -> None:
        self._ctx = ctx
        self._dht = dht
        self._library = library
        # When each was looked at last, in that order; the oldest are dropped, as in the DHT.
        self._provided: BoundedDict[Segment, Millis] = BoundedDict(ctx.config.dht.provided_max)
        self._earlier: deque[Iterator[Segment]] = deque()  # of earlier lives, by topic
        self._searches: dict[Segment, list[Callable[[Sequence[Contact]], None]]] = {}

    def start(self) -> None:
        if self._dht is not None:
            self._earlier.extend(self._latest_first(topic) for topic in self._library.topics())
            self._ctx.set_timer(_LOOK_MS, PROVIDE, GENERAL)

    # --- saying what is here ----------------------------------------------------------------------

    def perhaps(self, event: SealedEvent) -> None:
        """Each peer on the way provides the event with probability p."""
        if self._dht is not None and self._is_drawn(event.cid):
            self._provide(self._segment_of(event.topic, event.height))

    def own(self, event: SealedEvent) -> None:
        """This peer has published an event. The paper's publisher puts an event into the DHT before
        spreading it. Ours always provides its own events where the routing is Pulsarcast's;
        elsewhere it draws like any other peer.

        Deviation: the block stays in the publisher's store, durable before any peer hears of it,
        and the DHT is told which peer has it; spreading does not wait for the DHT's answer.
        """
        if self._dht is None:
            return
        if len(event.block) <= self._ctx.config.history.put_bytes_max:
            self._ctx.counters["history_put"] += 1
            token = self._ctx.quietly(lambda answer: None)
            self._dht.operations.put(DhtPut(token, block_key_of(event.cid), event.block))
        if self._provides_own or self._is_drawn(event.cid):
            self._provide(self._segment_of(event.topic, event.height))

    @property
    def _provides_own(self) -> bool:
        return self._ctx.config.routing == "pulsarcast"

    def _is_drawn(self, cid: Cid) -> bool:
        share = round(self._ctx.config.history.provide_probability * _PARTS)
        key = absorb(absorb(_PROVIDE, self._ctx.number), int.from_bytes(cid[-8:], "big"))
        return bool(share) and chance(key, share, _PARTS)

    def _provide(self, segment: Segment) -> None:
        if segment in self._provided:
            return
        self._ctx.counters["history_provided"] += 1
        self._provided[segment] = self._ctx.now
        self._tell(segment)

    def _tell(self, segment: Segment, stop: bool = False) -> None:
        assert self._dht is not None
        token = self._ctx.quietly(lambda answer: None)
        self._dht.operations.provide(DhtProvide(token, segment_key(*segment), stop))

    def on_timer(self) -> None:
        """Provide some more of what earlier lives stored; stop providing what is gone."""
        self._ctx.set_timer(_LOOK_MS, PROVIDE, GENERAL)
        now = self._ctx.now
        for segment, looked_ms in list(islice(self._provided.items(), _LOOKED_AT)):
            if looked_ms > now - _LOOK_MS:
                break  # it may still be on its way to the store
            del self._provided[segment]
            if any(self._stored(segment, 1)):
                self._provided[segment] = now
            else:
                self._tell(segment, stop=True)
        most = self._ctx.config.dht.provided_max
        looked_at = 0
        while self._earlier and looked_at < _LOOKED_AT and len(self._provided) < most:
            looked_at += 1
            segments = self._earlier.popleft()
            found = next(segments, None)
            if found is None:
                continue
            self._earlier.append(segments)
            if found not in self._provided and any(map(self._is_mine, self._stored(found, _READ))):
                self._provide(found)

    def _is_mine(self, event: SealedEvent) -> bool:
        """Whether this peer provides the event."""
        own = self._provides_own and event.publisher == self._ctx.me.peer
        return own or self._is_drawn(event.cid)

    # --- segments ---------------------------------------------------------------------------------

    def _segment_of(self, topic: Topic, height: int) -> Segment:
        return Segment(topic, max(0, height - 1) // self._ctx.config.history.segment_heights)

    def _latest_first(self, topic: Topic) -> Iterator[Segment]:
        """The segments of a topic that the store has anything of now."""
        lowest = self._segment_of(topic, self._library.summary(topic).floor.height)
        for number in range(self._top(topic).number, lowest.number - 1, -1):
            yield Segment(topic, number)

    def _top(self, topic: Topic) -> Segment:
        return self._segment_of(topic, max(self._library.heads(topic).values(), default=0))

    def _stored(self, segment: Segment, at_once: int) -> Iterator[SealedEvent]:
        """The events of a segment that are in the store."""
        heights = self._ctx.config.history.segment_heights
        after = Position(segment.number * heights + 1, Cid(b""))
        while some := self._library.events(segment.topic, after, limit=at_once):
            for event in some:
                if event.height > (segment.number + 1) * heights:
                    return
                yield event
            if len(some) < at_once:
                return
            after = position(some[-1])

    # --- asking -----------------------------------------------------------------------------------

    def to_search(self, topic: Topic, above: int | None, turn: int) -> int:
        """The number of the segment to search for an event at this turn, the likeliest first. Most
        parents lie right below the event that names them, whose height is `above`. Where that is
        not known, the search goes down from the highest segment stored here, or up from the
        beginning if none is, by steps that double."""
        if above is not None:
            near = self._segment_of(topic, above - 1).number
            return max(0, near - (turn + 1) // 2) if turn % 2 else near
        step = (1 << turn % _FARTHER) - 1
        top = self._top(topic).number
        return max(0, top - step) if top else step

    def find(self, topic: Topic, number: int, then: Callable[[Sequence[Contact]], None]) -> bool:
        """Ask the DHT which peers have events of a segment; False where there is no DHT."""
        if self._dht is None:
            return False
        segment = Segment(topic, number)
        waiting = self._searches.setdefault(segment, [])
        waiting.append(then)
        if len(waiting) == 1:
            token = self._ctx.quietly(lambda answer: self._on_found(segment, answer.contacts))
            command = DhtFindProviders(token, segment_key(*segment), PROVIDERS_WANTED)
            self._dht.operations.find_providers(command)
        return True

    def get(self, cid: Cid, then: Callable[[bytes | None], None]) -> bool:
        """Ask the DHT for a block; False where publishers put none there."""
        if self._dht is None or not self._ctx.config.history.put_bytes_max:
            return False
        token = self._ctx.quietly(lambda answer: then(answer.value))
        self._dht.operations.get(DhtGet(token, block_key_of(cid)))
        return True

    def _on_found(self, segment: Segment, found: Sequence[Contact]) -> None:
        for then in self._searches.pop(segment):
            then(found)


def block_key_of(cid: Cid) -> bytes:
    """The DHT's key of a block."""
    return bytes((BLOCK,)) + cid[-DIGEST_BYTES:]
