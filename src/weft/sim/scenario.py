"""One run, from a seed to a verdict: peers come up, faults strike, all heals, checkers judge.

    result = run(Settings(seed=7, peers=25))
    assert not result.violations

The result says what was drawn, what was counted and which command plays exactly this run again.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from weft.documents.signing import Signer
from weft.ids import Contact, Topic
from weft.protocol.config import Config, Routing
from weft.protocol.peer import Peer
from weft.rules.hierarchy import above
from weft.sim import probe
from weft.sim.checkers import deliveries, history, state, topic_dht
from weft.sim.checkers.state import PeerState
from weft.sim.counts import count
from weft.sim.dice import Dice
from weft.sim.faults import (
    NO_FAULTS,
    Crash,
    Episode,
    FaultPlan,
    Stall,
    Timeline,
    draw_faults,
    draw_timeline,
)
from weft.sim.network import Network
from weft.sim.node import TRUE_CLOCK, Node, contact_of, keyed
from weft.sim.settings import Settings, make_config
from weft.sim.workload import Shape, Workload, draw_workload
from weft.sim.world import World
from weft.store.memory import MemoryStore
from weft.store.reader import Since
from weft.trace import Writer

GHOST_PERCENT_MAX = 2
"""measured: of all view entries in a healed network of 25 peers up to 8 % named dead ones after
44 cycles, and up to 1 % after 80, which is when a run ends."""
PARASITE_GRACE_MS = 5_000
"""guess: well over the slowest way there and back in a healed run."""
_START_CYCLES = 2
_PUBLISH_FROM_CYCLES = 4
_SETTLE_CYCLES = 10
_SAMPLE_CYCLES = 4


@dataclass(frozen=True)
class Promise:
    """What a routing promises beyond what is asked of all."""

    repairs: bool = False  # what faults lose is made up for; else history does that
    overlays: bool = False  # a topic's subscribers form one overlay
    no_parasites: bool = False  # only subscribers handle a topic's events
    roles: bool = False  # forwarders and children are as Lemma 4.2 has it


PROMISES: dict[Routing, Promise] = {
    "tera": Promise(repairs=True, overlays=True, no_parasites=True),
    "pulsarcast": Promise(repairs=True),
    "flood": Promise(),
    "topic-dht": Promise(repairs=True, no_parasites=True, roles=True),
}


@dataclass
class Result:
    settings: Settings
    faults: dict[str, object] = field(default_factory=dict)
    counts: dict[str, object] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        return {
            "seed": self.settings.seed,
            "peers": self.settings.peers,
            "topics": self.settings.topics,
            "events": self.settings.events,
            "scheme": self.settings.scheme_used,
            "routing": self.settings.routing,
            "history": self.settings.history,
            "hierarchy": self.settings.hierarchy,
            "faults": self.faults,
            "counts": self.counts,
            "violations": self.violations,
            "replay": self.settings.command(),
        }


def run(settings: Settings, writer: Writer | None = None) -> Result:
    """Play one run and judge it."""
    scenario = Scenario(settings, writer)
    crashed = scenario.play()
    result = Result(settings, faults=scenario.plan.mix(), counts=count(scenario.world))
    result.violations = crashed or scenario.judge()
    return result


class Scenario:
    """A world with its peers, workload and faults, ready to be played."""

    def __init__(self, settings: Settings, writer: Writer | None = None) -> None:
        self.settings = settings
        self.cycle_ms = Config().cyclon.cycle_ms
        self.timeline = draw_timeline(settings.seed, self.cycle_ms, settings.calm)
        self.config = make_config(settings, self.timeline, tracing=writer is not None)
        self.plan = make_plan(settings, self.timeline)
        self.workload = make_workload(settings, self.timeline, self.cycle_ms)
        network = Network(settings.seed, self.plan.healed, self.plan.distance_ms_max)
        self.world = World(network, writer=writer)
        self._dice = Dice(settings.seed)
        self._identities = [identity_of(settings, peer) for peer in range(settings.peers)]
        self._contacts = [contact for contact, _ in self._identities]
        self._wanted = [dict.fromkeys(topics) for topics in self.workload.interests]
        self._bound_violations: list[str] = []
        self._add_peers()
        self._schedule_start()
        self._schedule_workload()
        self._schedule_faults()
        self._schedule_samples()

    # --- building -----------------------------------------------------------------------------

    def _add_peers(self) -> None:
        clocks = self.plan.clocks or (TRUE_CLOCK,) * self.settings.peers
        for (contact, sign), clock in zip(self._identities, clocks, strict=True):
            store = MemoryStore() if self.settings.history else None
            self.world.add(contact, self._maker(contact, sign, store), clock, store)

    def _maker(
        self, contact: Contact, sign: Signer | None, store: MemoryStore | None
    ) -> Callable[[], Peer]:
        return lambda: Peer(contact, self.settings.seed, self.config, store, sign)

    def _known_to(self, peer: int) -> list[Contact]:
        """By whom a peer joins: the well-known first peer and two others."""
        others = self._dice.some("start.contacts", range(self.settings.peers), 2, peer)
        return [self._contacts[other] for other in dict.fromkeys([0, *others]) if other != peer]

    def _schedule_start(self) -> None:
        for node in self.world.nodes:
            at_ms = self._dice.below("start.at", _START_CYCLES * self.cycle_ms, node.index)
            self.world.at(at_ms if node.index else 0, partial(self._start, node))

    def _start(self, node: Node) -> None:
        """Up (again), with nothing but its contacts and the topics its user wants."""
        self.world.start(node, self._known_to(node.index))
        for topic in self._wanted[node.index]:
            self._subscribe(node, topic)

    def _subscribe(self, node: Node, topic: Topic) -> None:
        since: Since | None = "beginning" if self.wants_past(node.index, topic) else None
        self.world.subscribe(node, topic, None, since)

    def wants_past(self, peer: int, topic: Topic) -> bool:
        """With history, half of the subscribers ask for all of the past, always the same ones."""
        number = self.workload.topics.index(topic)
        return self.settings.history and self._dice.percent("history.past", 50, peer, number)

    def _schedule_workload(self) -> None:
        start_ms = _PUBLISH_FROM_CYCLES * self.cycle_ms
        for publication in self.workload.publications:
            node = self.world.nodes[publication.peer]
            publish = partial(self._publish, node, publication.topic, publication.payload)
            self.world.at(start_ms + publication.at_ms, publish)

    def _publish(self, node: Node, topic: Topic, payload: bytes) -> None:
        """In the topic, and in a hierarchy in those above it."""
        levels = above(topic, self.config.hierarchies)
        if len(levels) == 1:
            self.world.publish(node, topic, payload)
        else:
            self.world.publish_together(node, levels, payload)

    def _schedule_samples(self) -> None:
        for at_ms in range(0, self.timeline.end_ms, _SAMPLE_CYCLES * self.cycle_ms):
            self.world.at(at_ms, self._sample)

    def _sample(self) -> None:
        states = probe.states_of(self.world)
        self._bound_violations += state.check_bounds(
            states.values(), self.config, self.world.now_ms
        )

    # --- faults -------------------------------------------------------------------------------

    def _schedule_faults(self) -> None:
        world, plan = self.world, self.plan
        world.at(self.timeline.faults_ms, self._strike)
        world.at(self.timeline.heal_ms, self._heal)
        for crash in plan.crashes:
            self._schedule_crash(crash)
        for episode in plan.episodes:
            self._schedule_episode(episode)
        for stall in plan.stalls:
            self._schedule_stall(stall)
        self._schedule_churn()

    def _strike(self) -> None:
        self.world.network.set_conditions(self.plan.stormy)
        for slow in self.plan.slow:
            self.world.network.set_slow(slow.peer, slow.delay_ms)

    def _heal(self) -> None:
        self.world.network.set_conditions(self.plan.healed)
        self.world.set_partition(None)
        for slow in self.plan.slow:
            self.world.network.set_slow(slow.peer, 0)

    def _schedule_crash(self, crash: Crash) -> None:
        node = self.world.nodes[crash.peer]
        if crash.how == "leave":
            self.world.at(crash.at_ms, partial(self.world.leave, node))
        else:
            self.world.at(crash.at_ms, partial(self.world.crash, node, crash.how == "silent"))
        if crash.restart_ms is not None:
            self.world.at(crash.restart_ms, partial(self._start, node))

    def _schedule_episode(self, episode: Episode) -> None:
        world = self.world
        world.at(episode.start_ms, partial(world.set_partition, episode.partition, episode.told))
        world.at(episode.end_ms, partial(world.set_partition, None))

    def _schedule_stall(self, stall: Stall) -> None:
        node = self.world.nodes[stall.peer]
        self.world.at(stall.start_ms, partial(self.world.stall, node))
        self.world.at(stall.end_ms, partial(self.world.unstall, node))

    def _schedule_churn(self) -> None:
        """Some users drop a topic or take up another one, and some think again."""
        dice, timeline = self._dice, self.timeline
        for peer in range(self.settings.peers):
            if not dice.percent("churn.who", self.plan.churn_percent, peer):
                continue
            topic = dice.pick("churn.topic", self.workload.topics, peer)
            span_ms = timeline.heal_ms - timeline.faults_ms
            for turn in range(dice.between("churn.turns", 1, 3, peer)):
                at_ms = timeline.faults_ms + dice.below("churn.at", span_ms, peer, turn)
                self.world.at(at_ms, partial(self._turn, peer, topic))

    def _turn(self, peer: int, topic: Topic) -> None:
        node = self.world.nodes[peer]
        wanted = self._wanted[peer]
        if topic in wanted:
            del wanted[topic]
            self.world.unsubscribe(node, topic)
        else:
            wanted[topic] = None
            self._subscribe(node, topic)

    # --- playing and judging ------------------------------------------------------------------

    def play(self) -> list[str]:
        """Run to the end; a machine that raises ends the run and is the only violation."""
        try:
            self.world.run_until(self.timeline.end_ms)
        except Exception as error:  # whatever a machine under test may raise
            return [_failure_text(self.world, error)]
        return []

    def judge(self) -> list[str]:
        world, record, config = self.world, self.world.record, self.config
        now_ms = world.now_ms
        states = probe.states_of(world)
        settled_ms = self.timeline.heal_ms + _SETTLE_CYCLES * self.cycle_ms
        patience_ms = self.timeline.end_ms - self.timeline.quiet_ms
        return [  # what explains the rest comes first
            *self._judge_routing(states),
            *self._judge_history(states),
            *deliveries.check_only_subscribers(record),
            *deliveries.check_once(record),
            *self._judge_hierarchy(),
            *deliveries.check_answers(record, settled_ms, patience_ms),
            *self._bound_violations,
            *state.check_bounds(states.values(), config, now_ms),
            *state.check_ghosts(record, states, now_ms, GHOST_PERCENT_MAX),
        ]

    def _judge_routing(self, states: Mapping[int, PeerState]) -> list[str]:
        """What this routing promises (`PROMISES`)."""
        record, now_ms = self.world.record, self.world.now_ms
        promise = PROMISES[self.settings.routing]
        merged = state.check_merged if promise.overlays else state.check_general
        violations = merged(record, states, now_ms)
        if promise.repairs or self.settings.history:
            violations += deliveries.check_complete(record)
        if promise.no_parasites:
            healed_ms = self.timeline.heal_ms
            violations += deliveries.check_parasites(record, PARASITE_GRACE_MS, healed_ms)
        if promise.roles:
            violations += topic_dht.check_world(self.world, self.config)
        return violations

    def _judge_hierarchy(self) -> list[str]:
        named = {each.payload: each.topic for each in self.workload.publications}
        roots = self.config.hierarchies
        return deliveries.check_levels(self.world.record, named, roots)

    def _judge_history(self, states: Mapping[int, PeerState]) -> list[str]:
        if not self.settings.history:
            return []
        stores = {node.index: node.store for node in self.world.nodes if node.store is not None}
        return [
            *history.check_same_streams(self.world.record, stores, self.wants_past),
            *history.check_complete_streams(states, self.world.now_ms),
            *history.check_order(self.world.record, stores),
            *history.check_answered(self.world.record, stores),
        ]


def identity_of(settings: Settings, peer: int) -> tuple[Contact, Signer | None]:
    """Who a peer is; only with history it needs a key."""
    if settings.history:
        return keyed(settings.seed, peer)
    return contact_of(settings.seed, peer), None


def make_plan(settings: Settings, timeline: Timeline) -> FaultPlan:
    return NO_FAULTS if settings.calm else draw_faults(settings.seed, settings.peers, timeline)


def make_workload(settings: Settings, timeline: Timeline, cycle_ms: int) -> Workload:
    duration_ms = timeline.quiet_ms - _PUBLISH_FROM_CYCLES * cycle_ms
    shape = Shape(nested=settings.hierarchy)
    return draw_workload(
        settings.seed, settings.peers, settings.topics, settings.events, duration_ms, shape
    )


def _failure_text(world: World, error: Exception) -> str:
    where = traceback.format_exception(error)[-2].strip().replace("\n", " ")
    if world.handling is None:
        return f"{error!r} at {world.now_ms} ms, in {where}"
    node, fact = world.handling
    return f"peer {node.index} raised {error!r} at {world.now_ms} ms on {fact!r}, in {where}"
