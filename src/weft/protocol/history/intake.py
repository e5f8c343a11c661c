"""Taking events in: checked, judged, put into their stream, stored, delivered; gaps found.

Whatever brings a block (routing, an answer to a request, a page of a stream), it goes through here.
An event that waits for a parent vouches for it: it was judged, and it names it by its CID. So what
fills a gap is judged as history, everything else by the newest version of its topic as well
(`documents/authority.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from weft.documents.dag import Added
from weft.documents.descriptor import Event, known_event, verify_event
from weft.documents.refusal import Reason, Refused
from weft.ids import Cid, Contact, PeerId, Topic, cid_of
from weft.protocol.context import Context
from weft.protocol.delivery import DELIVER_MESSAGE, REJECT_MESSAGE, message_id, number_of
from weft.protocol.history.fetch import Fetch
from weft.protocol.history.storing import Storing
from weft.protocol.history.topic_history import TopicHistory
from weft.protocol.history.versions import Versions
from weft.protocol.seam import Deliver
from weft.protocol.wire import Event as Routed
from weft.rules.hierarchy import claimed_origin

_TOLD_MAX = 65_536
"""guess: events remembered that were delivered but could not be stored."""


class Intake:
    """See the module's text."""

    def __init__(
        self,
        ctx: Context,
        topics: dict[Topic, TopicHistory],
        versions: Versions,
        fetch: Fetch,
        storing: Storing,
        provide: Callable[[Event], None],
    ) -> None:
        """`provide` is told of each event that was released, to offer it to others."""
        self._ctx = ctx
        self._topics = topics
        self._versions = versions
        self._fetch = fetch
        self._storing = storing
        self._provide = provide
        self._told: OrderedDict[Cid, None] = OrderedDict()

    # --- checking ---------------------------------------------------------------------------------

    def open(self, topic: Topic, event: Routed, source: PeerId | None) -> Event | None:
        """The event in what routing brought; None, and counted, if it is not what it says or its
        publisher may not, so that it goes no further. What is known already is not verified
        again.

        What there is no room for here is passed on all the same: else routing would not know it,
        and bring it again and again, and who is behind would keep others from what they can use.
        """
        state = self._topics.get(topic)
        try:
            opened = _read(topic, event.payload, cid_of(event.payload))
            if not _same_event(event, opened):
                raise Refused(Reason.BAD_SHAPE, "routed under another number or publisher")
            if state is None or not state.stream.knows(opened.cid, opened.height):
                verify_event(opened)
                self._check_publisher(state, opened)
            return opened
        except Refused as refused:
            self.refuse(topic, refused.reason, source, event)
            return None

    def _check_publisher(self, state: TopicHistory | None, event: Event) -> None:
        """As far as the version that the event links to is at hand; else that is fetched later."""
        if state is not None and self._versions.needed(event) is None:
            reason = self._versions.judge(event, state.stream.awaits(event.cid))
            if reason is not None:
                raise Refused(reason, "its publisher may not")

    def open_block(
        self, state: TopicHistory, cid: Cid, block: bytes, sender: PeerId
    ) -> Event | None:
        """The event in a block that another peer sent, of which this is the CID."""
        try:
            event = _read(state.topic, block, cid)
            return event if state.stream.knows(cid, event.height) else verify_event(event)
        except Refused as refused:
            self.refuse(state.topic, refused.reason, sender)
            return None

    def refuse(
        self,
        topic: Topic,
        reason: Reason,
        source: PeerId | None = None,
        event: Routed | None = None,
    ) -> None:
        """Count what is not taken, and trace it where it has a name in traces."""
        ctx = self._ctx
        ctx.counters[f"history_refused_{reason}"] += 1
        if ctx.tracing and event is not None:
            ctx.trace(
                REJECT_MESSAGE,
                {
                    "messageID": message_id(topic, event),
                    "topic": topic,
                    "receivedFrom": ctx.name(source if source else ctx.me.peer),
                    "reason": str(reason),
                },
            )

    # --- into the stream --------------------------------------------------------------------------

    def take_in(self, event: Event, source: Contact | None, hops: int) -> None:
        """An event that routing brought and `open` let through."""
        state = self._topics.get(event.topic)
        if state is None:
            return
        if not state.begun:
            state.wait(event, source, hops)
            return
        self.add(state, event, source, hops)

    def take_in_early(self, state: TopicHistory) -> None:
        """The subscription has begun: what waited for that. Nothing was delivered yet, so even
        what lies before the beginning comes in order."""
        for event, source, hops in state.take_early():
            self.add(state, event, source, hops, early=True)

    def add(
        self,
        state: TopicHistory,
        event: Event,
        source: Contact | None,
        hops: int,
        early: bool = False,
    ) -> bool:
        """Find an event's place and deliver what that releases; whether it belongs here."""
        stream = state.stream
        if stream.knows(event.cid, event.height):
            self._fetch.forget(event.cid)
            return True
        if state.is_before(event) and not early and event.cid not in state.baseline:
            self._pass_over(state, event)
            return True
        needed = self._versions.needed(event)
        if needed is not None:
            self._versions.hold(needed, event, source, hops)
            self._fetch.want(state.topic, [needed], source)
            return True
        vouched = stream.awaits(event.cid)
        reason = self._versions.judge(event, vouched)
        if reason is not None:
            self._fetch.forget(event.cid)
            self.refuse(event.topic, reason, None, routed(event, b""))
            return False
        added = stream.add(event, new=True)
        for cid in (event.cid, *added.displaced):
            self._fetch.forget(cid)
        if added.refused is Reason.NO_ROOM:
            self._no_room(state, source)
        elif added.refused is not None:
            self.refuse(event.topic, added.refused)
        self._released(state, added, hops)
        if added.refused is None:
            self._look_back(state, event, added.missing, source, patient=not vouched)
        return added.refused is None

    def _pass_over(self, state: TopicHistory, event: Event) -> None:
        """An event from before the beginning: nobody shall wait for it."""
        self._fetch.forget(event.cid)
        self._ctx.counters["history_before"] += 1
        self._storing.lose(state.topic, event.cid)
        self._released(state, state.stream.pass_over(event.cid), 0)

    def _no_room(self, state: TopicHistory, source: Contact | None) -> None:
        """Too much waits for what is missing: whoever is so far behind reads on from where its own
        stream ends, or, if what waits is close to that, from where its branch forked off."""
        self._ctx.counters["history_no_room"] += 1
        if state.catch_up.reading:
            return
        lowest = state.stream.lowest_waiting()
        if lowest > state.top() + self._ctx.config.history.walk_back_max:
            state.catch_up.start(source, state.behind())
        else:
            state.catch_up.start_below(source, lowest)

    def _look_back(
        self,
        state: TopicHistory,
        event: Event,
        missing: list[Cid],
        source: Contact | None,
        patient: bool,
    ) -> None:
        """Parents that are not there: given up where the past is not wanted, else fetched."""
        state.widen_gap(event, missing)
        begins = event.cid in state.baseline
        if begins:
            del state.baseline[event.cid]
        if not missing:
            state.climbed = max(state.climbed, event.height)
        if not patient:
            state.walked = state.walked + 1 if missing else 0
        if begins or state.is_before(event):
            state.wanted_above = min(state.wanted_above, event.height)
            self.give_up(state, missing)
        elif missing:
            self._fill_gap(state, event, missing, source, patient)

    def _fill_gap(
        self,
        state: TopicHistory,
        event: Event,
        missing: list[Cid],
        source: Contact | None,
        patient: bool,
    ) -> None:
        """Walk back from the event where the gap is short; read the stream where it is long. (What
        waits above an older gap does not make a new one longer.) While the stream is being read
        already, gaps are left to that: the end of the reading shows which are left."""
        reader, below = state.catch_up, state.climbed
        state.climbed = max(below, event.height)
        if state.since is not None or (reader.reading and not reader.whole):
            return
        if reader.searching:
            reader.searching = False  # the page begins too high
            state.walked = 0
            return
        if reader.reading:
            return
        if state.walked > self._ctx.config.history.walk_back_max:
            state.walked = 0
            if event.height <= state.wanted_above:
                self.give_up(state, missing)
                return
            reader.start_below(source, event.height)
            return
        if event.height - below <= self._ctx.config.history.walk_back_max:
            self._fetch.want(state.topic, missing, source, patient)
        else:
            reader.start(source, state.behind())

    def give_up(self, state: TopicHistory, cids: Iterable[Cid]) -> None:
        """These parents will not come: what waits for them is released."""
        for cid in cids:
            if state.stream.awaits(cid):
                self._storing.lose(state.topic, cid)
                self._released(state, state.stream.give_up(cid), 0)

    def _released(self, state: TopicHistory, added: Added, hops: int) -> None:
        for event in added.released:
            self._storing.add(event)
            state.seen.note(event)
            if event.cid in added.late and not state.wants_past:
                self._ctx.counters["history_late"] += 1
            else:
                self.deliver(event, hops, None)
            self._provide(event)
        for event in added.dropped:
            self._fetch.forget(event.cid)
            self.refuse(event.topic, Reason.WRONG_HEIGHT)

    # --- to the application -----------------------------------------------------------------------

    def deliver(self, event: Event, hops: int, source: PeerId | None) -> None:
        if event.cid in self._told:  # delivered before; the store could not take it then
            del self._told[event.cid]
            return
        ctx, topic = self._ctx, event.topic
        note = routed(event, event.payload)
        origin = claimed_origin(topic, event.metadata)
        climbed = origin if origin != topic else None
        ctx.out.append(Deliver(topic, note, hops, event, climbed))
        if ctx.tracing:
            ctx.trace(
                DELIVER_MESSAGE,
                {
                    "messageID": message_id(topic, note),
                    "topic": topic,
                    "receivedFrom": ctx.name(source if source else ctx.me.peer),
                    "hops": hops,
                },
            )

    def not_stored(self, events: Iterable[Event]) -> None:
        """These were delivered and not stored: when they come again, they are stored only."""
        for event in events:
            self._told[event.cid] = None
            if len(self._told) > _TOLD_MAX:
                self._told.popitem(last=False)


def routed(event: Event, payload: bytes) -> Routed:
    """How routing, traces and applications know an event; routing carries its block as payload."""
    _, incarnation, number = number_of(event) or (event.publisher, 0, event.height)
    return Routed(event.publisher, incarnation, number, event.created_ms, payload)


def _read(topic: Topic, block: bytes, cid: Cid) -> Event:
    """What a block says, not verified yet."""
    event = known_event(block, cid)
    if event.topic != topic:
        raise Refused(Reason.WRONG_TOPIC, "belongs to another topic")
    return event


def _same_event(event: Routed, opened: Event) -> bool:
    """Whether routing names the event as its publisher signed it."""
    return (event.publisher, event.incarnation, event.number) == number_of(opened)
