"""Random sequences of operations against a simple model: what users want, and Lemma 4.2.

Without faults Algorithm 1 is switched off (its period is far longer than the test), so that the
operations alone must keep the invariants. With faults it has ten periods to restore them.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from topic_dht_kit import unsubscribe
from weft.ids import Contact, Topic
from weft.protocol.rooms import TopicDhtSettings as TopicConfig
from weft.protocol.topic_dht.roles import Role, location
from weft.protocol.topic_dht.topic_dht import TopicDht
from weft.rules.roles import closest_forwarder
from weft.sim.network import Conditions
from weft.sim.topic_dht import Run

PEERS = 12
TOPICS = (Topic("/a"), Topic("/b"), Topic("/c"))
QUIET_MS = 30_000
"""Longer than a request that is never answered and several retries."""

peers = st.integers(0, PEERS - 1)
topics = st.sampled_from(TOPICS)
some_topics = st.lists(topics, min_size=1, unique=True)


class Alone(RuleBasedStateMachine):
    """Operations one after another, nobody fails: Lemma 4.2."""

    @initialize(seed=st.integers(0, 3), k=st.integers(1, 3))
    def begin(self, seed: int, k: int) -> None:
        never = TopicConfig(children_max=k, period_ms=10**9, view_percent=0)
        self.run = Run(seed=seed, peers=PEERS, topics=never)
        self.run.come_up()

    def machine(self, peer: int) -> TopicDht:
        machine = self.run.machine(peer)
        assert machine is not None
        return machine.topics

    def role(self, peer: int, topic: Topic) -> Role | None:
        return self.machine(peer).roles.by_topic.get(topic)

    def forwarders(self, topic: Topic) -> dict[int, Contact]:
        return {
            location(topic, peer): machine.roles.me
            for peer, machine in self.run.machines().items()
            if machine.roles.forwarding(topic) is not None
        }

    @rule(peer=peers, wanted=some_topics)
    def subscribe(self, peer: int, wanted: list[Topic]) -> None:
        self.run.subscribe(peer, wanted)
        self.run.run(QUIET_MS)

    @rule(peer=peers, unwanted=some_topics)
    def unsubscribe(self, peer: int, unwanted: list[Topic]) -> None:
        unsubscribe(self.run, peer, unwanted)
        self.run.run(QUIET_MS)

    @rule(peer=peers, topic=topics, operation=st.sampled_from(("split", "replace")))
    def promote(self, peer: int, topic: Topic, operation: str) -> None:
        """A child does one of the operations with its parent."""
        role = self.role(peer, topic)
        if role is None or role.child is None:
            return
        initiator = self.machine(peer).initiator
        getattr(initiator, operation)(role, role.child.parent)
        self.run.flush(peer)
        self.run.run(QUIET_MS)

    @rule(peer=peers, topic=topics)
    def makechild(self, peer: int, topic: Topic) -> None:
        """A forwarder becomes a child of the closest other one."""
        role = self.role(peer, topic)
        others = self.forwarders(topic)
        own = others.pop(location(topic, self.machine(peer).roles.me.peer), None)
        closest = closest_forwarder(location(topic, own.peer), others) if own else None
        if role is None or closest is None:
            return
        self.machine(peer).initiator.makechild(role, others[closest])
        self.run.flush(peer)
        self.run.run(QUIET_MS)

    @invariant()
    def lemma_4_2(self) -> None:
        if not hasattr(self, "run"):
            return
        assert self.run.check().all == []
        for machine in self.run.machines().values():
            for role in machine.roles.by_topic.values():
                assert not role.operation and not role.acks, "an operation never ended"

    @invariant()
    def locations_are_those_of_forwarders(self) -> None:
        if hasattr(self, "run"):
            alone = (self.run.machine(peer) for peer in range(PEERS))
            places = sum(len(one.dht.places) for one in alone if one is not None)
            held = sum(m.roles.load().locations for m in self.run.machines().values())
            assert places == held + 2 * PEERS  # and home and the lobby, with everybody


class Together(RuleBasedStateMachine):
    """Operations at the same time, messages lost and doubled, peers that vanish."""

    @initialize(seed=st.integers(0, 3), k=st.integers(1, 3))
    def begin(self, seed: int, k: int) -> None:
        self.settings = TopicConfig(children_max=k, view_percent=0)
        self.run = Run(seed=seed, peers=PEERS, topics=self.settings)
        self.run.come_up()
        for peer in range(PEERS // 2):
            self.run.subscribe(peer, TOPICS[peer % 2 :])
        self.run.run(20)
        self.down: list[int] = []

    @rule(peer=peers, wanted=some_topics)
    def subscribe(self, peer: int, wanted: list[Topic]) -> None:
        self.run.subscribe(peer, wanted)

    @rule(peer=peers, unwanted=some_topics)
    def unsubscribe(self, peer: int, unwanted: list[Topic]) -> None:
        unsubscribe(self.run, peer, unwanted)

    @rule(duration=st.sampled_from((1, 10, 30, 100, 1_000, 5_000)))
    def wait(self, duration: int) -> None:
        self.run.run(duration)

    @rule(loss=st.sampled_from((0, 5, 30)), double=st.sampled_from((0, 20)), order=st.booleans())
    def spoil(self, loss: int, double: int, order: bool) -> None:
        self.run.world.network.set_conditions(
            Conditions(loss_percent=loss, duplicate_percent=double, in_order=order)
        )

    @precondition(lambda self: len(self.down) < PEERS // 3)
    @rule(peer=peers, silent=st.booleans())
    def crash(self, peer: int, silent: bool) -> None:
        if peer not in self.down:
            self.down.append(peer)
            self.run.crash(peer, silent=silent)

    @precondition(lambda self: self.down)
    @rule()
    def restart(self) -> None:
        node = self.run.world.nodes[self.down.pop()]
        known = [one.contact for one in self.run.world.nodes if one.machine is not None][:5]
        self.run.world.start(node, known)

    def teardown(self) -> None:
        if hasattr(self, "run"):
            self.run.world.network.set_conditions(Conditions())
            assert self.run.settle(10) is not None, self.run.check().all


TestAlone = Alone.TestCase
TestAlone.settings = settings(max_examples=25, stateful_step_count=12)
TestTogether = Together.TestCase
TestTogether.settings = settings(max_examples=20, stateful_step_count=25)
