"""Whatever comes in which order, gets lost, or goes down in between: no application is handed an
event after one that follows it, and nothing is lost that a live neighbour has."""

from __future__ import annotations

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from history_kit import T, Town, hear, routed
from weft.documents.dag import Stream
from weft.documents.descriptor import INCARNATION, NUMBER, SealedEvent, seal_event
from weft.protocol.history.stream import Head, Heads
from weft.protocol.wire import Payload
from weft.sim.checkers import deliveries
from weft.sim.checkers import history as judges
from weft.sim.checkers.state import states_of
from weft.sim.network import Conditions, Latency
from weft.sim.node import keyed
from weft.store.interface import Batch

MEMBER, SUBJECT, STRANGER = range(3)
PUBLISHERS = 3
CALM = Conditions(latency=Latency(typical_ms=10))


class Publishers:
    """Some publishers from outside. Each knows its own events, and those of others it met."""

    def __init__(self) -> None:
        self.events: list[SealedEvent] = []
        self._known: list[Stream] = [Stream() for _ in range(PUBLISHERS)]
        self._had: list[list[SealedEvent]] = [[] for _ in range(PUBLISHERS)]
        self._numbers = [0] * PUBLISHERS

    def publish(self, number: int, now_ms: int) -> SealedEvent:
        contact, sign = keyed(1, 90 + number)
        self._numbers[number] += 1
        event = seal_event(
            sign,
            publisher=contact.peer,
            topic=T,
            payload=b"%d" % len(self.events),
            created_ms=now_ms,
            parents=self._known[number].parents(),
            metadata={INCARNATION: 1, NUMBER: self._numbers[number]},
        )
        routed(event)  # signed in the order of its numbers
        self.events.append(event)
        self._learn(number, event)
        return event

    def meet(self, number: int, other: int) -> None:
        """One gets to know all that the other does."""
        for event in self._had[other]:
            self._learn(number, event)

    def _learn(self, number: int, event: SealedEvent) -> None:
        if not self._known[number].knows(event.cid):
            self._known[number].add(event)
            self._had[number].append(event)


class Story:
    """A member that always wants everything, a subject to which all sorts of things happen, and a
    stranger that has all events, brings them to both, and can be asked for what they lack."""

    def __init__(self, since: str | None) -> None:
        self.town = Town(3, walk_back_max=3)
        self.publishers = Publishers()
        self.since = since
        self.town.subscribe(MEMBER, since="beginning")
        self.town.run(20_000)

    @property
    def up(self) -> bool:
        return self.town.nodes[SUBJECT].machine is not None

    @property
    def stays(self) -> bool:
        return T in self.town.world.record.topics_of(SUBJECT)

    def do(self, action: tuple[str, int, int]) -> None:
        what, one, other = action
        town, made = self.town, self.publishers
        if what == "publish":
            self.publish(one % PUBLISHERS)
        elif what == "meet":
            made.meet(one % PUBLISHERS, other % PUBLISHERS)
        elif what == "hear" and made.events:
            self.bring(made.events[other % len(made.events)], one % 2)
        elif what == "crash" and self.up:
            town.crash(SUBJECT)
        elif what == "start" and not self.up:
            town.start(SUBJECT, [MEMBER])
            self.subscribe()
        elif what == "subscribe" and self.up and not self.stays:
            self.subscribe()
        elif what == "unsubscribe" and self.stays:
            town.world.unsubscribe(town.nodes[SUBJECT], T)
        elif what == "loss":
            town.world.network.set_conditions(
                Conditions(latency=CALM.latency, loss_percent=30 * (one % 3))
            )
        elif what == "wait":
            town.run((10, 700, 4_000, 30_000)[one % 4])

    def publish(self, number: int) -> None:
        event = self.publishers.publish(number, self.town.world.now_ms)
        store = self.town.nodes[STRANGER].store
        assert store is not None
        store.commit([Batch(self.town.world.now_ms, (event,))])

    def subscribe(self) -> None:
        self.town.subscribe(SUBJECT, since=self.since)  # type: ignore[arg-type]

    def bring(self, event: SealedEvent, to: int) -> None:
        if to == MEMBER or self.stays:
            hear(self.town, to, STRANGER, Payload(T, routed(event), 1))

    def end(self) -> None:
        """All heals; the member gets everything, and once the subject has joined, more comes."""
        town, made = self.town, self.publishers
        town.world.network.set_conditions(CALM)
        self.do(("start", 0, 0))
        self.do(("subscribe", 0, 0))
        self.tell_heads()
        town.run(60_000)
        before = len(made.events)
        for number in range(PUBLISHERS):
            self.publish(number)
        for event in reversed(made.events[before:]):
            self.bring(event, MEMBER)
        town.run(60_000)

    def tell_heads(self) -> None:
        """The stranger tells the member where its stream ends."""
        store = self.town.nodes[STRANGER].store
        assert store is not None
        heads = [Head(cid, height) for cid, height in store.heads(T).items()]
        hear(self.town, MEMBER, STRANGER, Heads(T, heads, False))

    def judge(self) -> list[str]:
        world = self.town.world
        stores = {node.index: node.store for node in world.nodes if node.store is not None}
        made = {event.cid: event for event in self.publishers.events}
        life = world.nodes[SUBJECT].life
        handed = [d for d in world.record.deliveries if (d.peer, d.life) == (SUBJECT, life)]
        got = {d.descriptor.cid for d in handed if d.descriptor is not None}
        (stay,) = [s for s in world.record.unfinished_stays() if s.peer == SUBJECT]
        assert stay.joined_ms is not None
        owed = [e for e in made.values() if e.created_ms > stay.joined_ms]
        return [
            *judges.check_order(world.record, stores),
            *judges.check_same_streams(world.record, stores, lambda p, _: self._wants(p)),
            *judges.check_complete_streams(states_of(world), world.now_ms),
            *deliveries.check_once(world.record),
            *(f"never got {e.payload!r}" for e in owed if e.cid not in got),
        ]

    def _wants(self, peer: int) -> bool:
        return peer == MEMBER or self.since is not None


KINDS = (
    *["publish"] * 4,
    "meet",
    *["hear"] * 5,
    "crash",
    "start",
    "subscribe",
    "unsubscribe",
    "loss",
    *["wait"] * 3,
)
ACTIONS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 11), st.integers(0, 31)),
    min_size=40,
    max_size=120,
)


@settings(max_examples=60, derandomize=True, deadline=None, database=None, phases=[Phase.generate])
@given(ACTIONS, st.sampled_from([None, "beginning"]))
def test_no_event_comes_after_its_descendant_and_none_is_lost(
    actions: list[tuple[str, int, int]], since: str | None
) -> None:
    story = Story(since)
    for action in actions:
        story.do(action)
    story.end()
    assert story.judge() == []
