"""The base of all references: the seam, the numbers of a peer's own events, the events it has seen,
its links, and the records of the trace by which all systems are measured.

A reference overrides what differs: `period_ms` and `tick` (its heartbeat), `enter` and `quit` (a
subscription begins or ends), `spread` (an event that is new here), `hear` (any other message),
`lose` (a peer cannot be reached).

Deviation: none of these systems signs events. An event carries an empty signature of the same
length, so that bytes can be compared; nothing is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeAlias, TypeVar

from weft import trace
from weft.bounded import BoundedDict
from weft.documents.run import NOTHING_BEFORE, Run
from weft.documents.signature import SIGNATURE_BYTES
from weft.ids import Contact, PeerId, Topic, peer_number, peer_text
from weft.protocol import seam
from weft.protocol.wire import Message, Payload
from weft.rules.draw import below, draw, key_of, slots_in, stream_of, subset_mask

T = TypeVar("T")
Key: TypeAlias = tuple[Topic, PeerId, int, int]
"""Names a run: topic, publisher, incarnation, first number."""

PUBLISH, _, DUPLICATE, DELIVER, *_rest = trace.KINDS
JOIN, LEAVE = trace.KINDS[9:11]
SEEN_MAX = 1 << 16
"""guess: events that a peer remembers as seen; more than any run of the lab publishes."""
HEARTBEAT = seam.Timer("reference.heartbeat")


def key_of_run(topic: Topic, run: Run) -> Key:
    return topic, PeerId(run.publisher), run.incarnation, run.first


class Reference:
    """A peer of another system."""

    period_ms: ClassVar[int] = 1_000

    def __init__(self, me: Contact, seed: int) -> None:
        self.me = me
        self.seed = seed
        self.now: seam.Millis = 0
        self.out: list[seam.Effect] = []
        self.topics: dict[Topic, None] = {}  # the user's subscriptions, in their order
        self.links: dict[PeerId, Contact] = {}
        self._number = peer_number(me.peer)
        self._incarnation = 0
        self._published: dict[Topic, int] = {}
        self._seen: BoundedDict[Key, None] = BoundedDict(SEEN_MAX)
        self._draws = 0
        self._text = peer_text(me.peer)

    # --- what a reference overrides ---------------------------------------------------------------

    def begin(self, contacts: Sequence[Contact]) -> None:
        """The peer has started and knows these contacts."""

    def tick(self) -> None:
        """A period is over."""

    def enter(self, topic: Topic) -> None:
        """The user has subscribed."""

    def quit(self, topic: Topic) -> None:
        """The user has unsubscribed."""

    def spread(self, topic: Topic, run: Run, hops: int, source: PeerId | None) -> None:
        """An event is new here; `source` is None for this peer's own. Every reference must define
        how it spreads."""
        raise NotImplementedError

    def again(self, topic: Topic, run: Run, hops: int, source: PeerId) -> None:
        """An event has come that was seen before."""

    def hear(self, sender: Contact, message: Message) -> None:
        """A message that is not an event has come."""

    def lose(self, peer: PeerId) -> None:
        """A peer cannot be reached; the link to it is removed already."""

    # --- the seam ---------------------------------------------------------------------------------

    def handle(self, fact: seam.Input, now: seam.Millis) -> list[seam.Effect]:
        self.now, self.out = now, []
        if isinstance(fact, seam.Received):
            self._receive(fact.sender, fact.message)
        elif isinstance(fact, seam.TimerFired):
            self.out.append(seam.SetTimer(self.period_ms, HEARTBEAT))
            self.tick()
        elif isinstance(fact, seam.PeerLost):
            self.links.pop(fact.peer, None)
            self.lose(fact.peer)
        else:
            self._obey(fact)
        return self.out

    def _obey(self, fact: seam.Input) -> None:
        if isinstance(fact, seam.Started):
            self._incarnation = fact.incarnation
            # Heartbeats of different peers are out of step, as on a real network.
            phase = below(self.bits("phase"), self.period_ms)
            self.out.append(seam.SetTimer(1 + phase, HEARTBEAT))
            self.begin(fact.contacts)
        elif isinstance(fact, seam.Join):
            self.begin(fact.contacts)
        elif isinstance(fact, seam.Subscribe):
            known = fact.topic in self.topics
            self.out.append(seam.Answer(fact.token, "already" if known else "joined"))
            if not known:
                self.topics[fact.topic] = None
                self._trace(JOIN, {"topic": fact.topic})
                self.enter(fact.topic)
        elif isinstance(fact, seam.Unsubscribe):
            self.out.append(seam.Answer(fact.token, "left"))
            self._unsubscribe(fact.topic)
        elif isinstance(fact, seam.Publish):
            self._publish(fact)
        elif isinstance(fact, seam.Leave):
            for topic in list(self.topics):
                self._unsubscribe(topic)

    def _unsubscribe(self, topic: Topic) -> None:
        if topic in self.topics:
            del self.topics[topic]
            self._trace(LEAVE, {"topic": topic})
            self.quit(topic)

    # --- events -----------------------------------------------------------------------------------

    def _publish(self, fact: seam.Publish) -> None:
        topic, first = fact.topic, self._published.get(fact.topic, 0) + 1
        self._published[topic] = first + len(fact.payloads) - 1
        run = Run(
            *(self.me.peer, self._incarnation, first, fact.published_ms, fact.payloads),
            *(NOTHING_BEFORE, bytes(SIGNATURE_BYTES)),
        )
        for event in run.events():
            self._trace(PUBLISH, {"messageID": trace.message_id(topic, event), "topic": topic})
        self.out.append(seam.Answer(fact.token, "delivered", run=run))
        self._see(topic, run, 0, None)
        self.spread(topic, run, 0, None)

    def _receive(self, sender: Contact, message: Message) -> None:
        if not isinstance(message, Payload):
            self.hear(sender, message)
        elif self._see(message.topic, message.run, message.hops, sender.peer):
            self.spread(message.topic, message.run, message.hops, sender.peer)
        else:
            self.again(message.topic, message.run, message.hops, sender.peer)

    def _see(self, topic: Topic, run: Run, hops: int, source: PeerId | None) -> bool:
        """Note an event and hand it to a subscriber; False if it was seen before."""
        key = key_of_run(topic, run)
        new = key not in self._seen
        if new:
            self._seen[key] = None
        if topic in self.topics:
            self._about(DELIVER if new else DUPLICATE, topic, run, hops, source)
            if new:
                self.out.append(seam.Deliver(topic, run, hops))
        return new

    def has_seen(self, key: Key) -> bool:
        return key in self._seen

    def push(self, to: Iterable[Contact], topic: Topic, run: Run, hops: int) -> None:
        """Send an event on, one hop further than it came."""
        message = Payload(topic, run, hops + 1)
        self.out += [seam.Send(contact, message) for contact in to]

    # --- help for references ----------------------------------------------------------------------

    def send(self, to: Contact, message: Message) -> None:
        self.out.append(seam.Send(to, message))

    def link(self, contact: Contact) -> None:
        """Keep a connection to this peer; `lose` is called when it ends."""
        if contact.peer not in self.links and contact.peer != self.me.peer:
            self.links[contact.peer] = contact
            self.out.append(seam.Hold(contact))

    def unlink(self, peer: PeerId) -> None:
        if self.links.pop(peer, None) is not None:
            self.out.append(seam.Release(peer))

    def bits(self, purpose: str) -> int:
        """Random bits for the next decision of this peer."""
        self._draws += 1
        return draw(self.seed, stream_of(f"reference.{purpose}"), self._number, self._draws, 0)

    def some(self, purpose: str, items: Sequence[T], wanted: int) -> list[T]:
        """`wanted` of the items, every subset equally likely."""
        if wanted >= len(items):
            return list(items)
        self._draws += 1
        stream = stream_of(f"reference.{purpose}")
        key = key_of(self.seed, stream, self._number, self._draws)
        return [items[slot] for slot in slots_in(subset_mask(key, len(items), max(0, wanted)))]

    def _about(self, kind: str, topic: Topic, run: Run, hops: int, source: PeerId | None) -> None:
        giver = self._text if source is None else peer_text(source)
        for event in run.events():
            named = {"messageID": trace.message_id(topic, event), "topic": topic}
            self._trace(kind, {**named, "receivedFrom": giver, "hops": hops})

    def _trace(self, kind: str, fields: dict[str, object]) -> None:
        self.out.append(seam.Trace(kind, fields))
