"""One run, from a seed to a verdict: peers come up, faults strike, all heals, checkers judge.

    result = run(ScenarioSettings(seed=7, peers=25))
    assert not result.violations

The result has the faults that were drawn, counts, and the command that plays the same run again.
"""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from weft.ids import Topic
from weft.protocol import messages as m
from weft.protocol import rooms, seam
from weft.protocol.config import Config, Dissemination, HistorySettings, Routing
from weft.sim.builder import SimNet
from weft.sim.checkers import deliveries, dht, history, state, trees
from weft.sim.checkers.state import PeerState, states_of
from weft.sim.dice import Dice
from weft.sim.faults import (
    CROWD_EVENTS,
    NO_FAULTS,
    Attack,
    Crash,
    Crowd,
    Disaster,
    Episode,
    Fault,
    FaultPlan,
    Hostility,
    Stall,
    Timeline,
    draw_faults,
    draw_hostility,
    draw_timeline,
    hostile_count,
)
from weft.sim.hostile import Gang
from weft.sim.node import TRUE_CLOCK, Node
from weft.sim.record import Record
from weft.sim.recorded import Recorded
from weft.sim.workload import HIERARCHY, Publication, Shape, Workload, draw_workload
from weft.sim.world import World
from weft.store.interface import Since
from weft.trace import Writer

GHOST_PERCENT_MAX = 2
"""measured: of all view entries in a healed network of 25 peers up to 8 % named dead ones after
44 cycles, and up to 1 % after 80, which is when a run ends."""
PARASITE_GRACE_MS = 5_000
"""guess: well over the slowest way there and back in a healed run."""
HOSTILE_MAX = 90
"""guess: percent of all peers; with 80 there are four for each honest one."""
_START_CYCLES = 2
_PUBLISH_FROM_CYCLES = 4
_BURST_PERCENT = 25
"""guess: events that are published together with the one before, as one run."""
_ROOTS_MAX = 3
"""guess: trees of a topic in the topic-aware DHT; a run has one to so many."""
_SETTLE_CYCLES = 10
_SAMPLE_CYCLES = 4


# --- what is asked for ------------------------------------------------------------------------

AnyScheme: TypeAlias = seam.Scheme | rooms.Scheme

SCHEMES: dict[Routing, tuple[AnyScheme, ...]] = {
    "tera": seam.SCHEMES,
    "topic-dht": rooms.SCHEMES,
    "pulsarcast": (),
    "flood": (),
}
"""How events may spread within a topic, where a routing leaves a choice."""


@dataclass(frozen=True)
class ScenarioSettings:
    """The settings of a run; everything else follows from the seed."""

    seed: int
    peers: int = 25
    topics: int = 8
    events: int = 120
    scheme: AnyScheme | None = None  # None: the routing's usual one
    routing: Routing = "tera"
    calm: bool = False  # no faults at all
    history: bool = False  # events are signed and stay; stores survive crashes
    brief: bool = False  # with history: routing holds events for as long as by default
    hierarchy: bool = False  # some topics are sub-topics of others; half are in a hierarchy
    disasters: tuple[Disaster, ...] = ()  # in addition to the faults of the seed
    without: tuple[Fault, ...] = ()  # classes of the seed's faults that are left out
    hostile: int = 0  # percent of all peers that are hostile, in addition to the honest `peers`
    attack: Attack | None = None  # what hostile peers do; None: drawn
    recorded: Recorded | None = None  # a workload of real users, in place of a drawn one

    def __post_init__(self) -> None:
        if self.peers < 3:
            raise ValueError("a simulated network needs at least 3 peers")
        if self.topics < 1:
            raise ValueError("there must be at least 1 topic")
        if self.events < 0:
            raise ValueError("the number of events cannot be negative")
        if self.brief and not self.history:
            raise ValueError(
                "brief goes with history: without it, events are held for the whole run"
            )
        if self.calm and (self.disasters or self.without):
            raise ValueError("a calm run has no faults, so no disaster and none to leave out")
        if not 0 <= self.hostile <= HOSTILE_MAX:
            raise ValueError(f"hostile peers: 0 to {HOSTILE_MAX} percent of all")
        if self.attack is not None and not self.hostile:
            raise ValueError("an attack needs hostile peers")
        if self.recorded is not None:
            if self.hierarchy:
                raise ValueError("the topics of a recorded workload lie beside one another")
            if (self.peers, self.topics) != (
                len(self.recorded.interests),
                len(self.recorded.topics),
            ):
                raise ValueError("a recorded workload says how many peers and topics there are")
        known = SCHEMES[self.routing]
        if self.scheme is not None and self.scheme not in known:
            choice = f"there are {', '.join(known)}" if known else "there is none to choose"
            raise ValueError(f"no scheme {self.scheme} with the routing {self.routing}: {choice}")

    @property
    def scheme_used(self) -> AnyScheme | None:
        """The scheme asked for, or the usual one; None where there is no choice."""
        usual: dict[Routing, AnyScheme] = {
            "tera": Dissemination().scheme,
            "topic-dht": rooms.TopicDhtSettings().scheme,
        }
        return self.scheme or usual.get(self.routing)

    def command(self) -> str:
        """The command that plays this run again."""
        words = [
            f"./weft sim --seed {self.seed}",
            f"--peers {self.peers} --topics {self.topics}"
            if self.recorded is None
            else f"--workload {shlex.quote(self.recorded.name)}",
            f"--events {self.events}",
        ]
        return " ".join(
            words
            + [f"--scheme {self.scheme_used}"] * (self.scheme_used is not None)
            + [f"--routing {self.routing}"] * (self.routing != "tera")
            + ["--calm"] * self.calm
            + ["--history"] * self.history
            + ["--brief"] * self.brief
            + ["--hierarchy"] * self.hierarchy
            + [f"--disaster {disaster}" for disaster in self.disasters]
            + [f"--without {fault}" for fault in self.without]
            + [f"--hostile {self.hostile}"] * (self.hostile > 0)
            + [f"--attack {self.attack}"] * (self.attack is not None)
        )


def make_config(settings: ScenarioSettings, timeline: Timeline, tracing: bool) -> Config:
    """The default settings of a peer, with another scheme and two more changes.

    Events are held for repair for as long as the run lasts: a peer promises to repair events only
    during `recent_ms`, and the checkers judge that promise. Where history keeps what is older, they
    may be held briefly. In the topic-aware DHT events go out by two trees in one run of three, and
    by three trees in another.
    """
    usual = Config()
    recent_ms = usual.dissemination.recent_ms if settings.brief else timeline.end_ms
    spread = replace(usual.dissemination, recent_ms=recent_ms)
    located = replace(usual.topic_dht, roots=1 + Dice(settings.seed).below("roots", _ROOTS_MAX))
    # `ScenarioSettings` has made sure that the scheme is one of the routing's.
    if settings.scheme is not None and settings.routing == "tera":
        spread = replace(spread, scheme=settings.scheme)  # type: ignore[arg-type]
    elif settings.scheme is not None:
        located = replace(located, scheme=settings.scheme)  # type: ignore[arg-type]
    return replace(
        usual,
        routing=settings.routing,
        topic_dht=located,
        dissemination=spread,
        history=HistorySettings(enabled=settings.history),
        hierarchies=(HIERARCHY,) if settings.hierarchy else (),
        trace=tracing,
    )


# --- what is promised -----------------------------------------------------------------------


@dataclass(frozen=True)
class Promise:
    """What a routing promises in addition to what all routings must do."""

    repairs: bool = False  # what faults lose is made up for; else history does that
    overlays: bool = False  # a topic's subscribers form one overlay
    no_parasites: bool = False  # only subscribers handle a topic's events
    roles: bool = False  # forwarders and children are as Lemma 4.2 has it
    roots: bool = False  # every topic has its roots, and its subscribers hang below them


PROMISES: dict[Routing, Promise] = {
    "tera": Promise(repairs=True, overlays=True, no_parasites=True),
    "pulsarcast": Promise(repairs=True, roots=True),
    "flood": Promise(),
    "topic-dht": Promise(repairs=True, no_parasites=True, roles=True),
}


# --- one run --------------------------------------------------------------------------------


class Scenario:
    """A world with its peers, workload and faults, ready to be played."""

    def __init__(self, settings: ScenarioSettings, writer: Writer | None = None) -> None:
        self.settings = settings
        self.cycle_ms = Config().cyclon.cycle_ms
        # What only a peer has that has left for good is sought for so long.
        withheld_ms = HistorySettings().give_up_ms if settings.history else 0
        self.timeline = draw_timeline(
            settings.seed, self.cycle_ms, settings.calm, settings.disasters, withheld_ms
        )
        self.config = make_config(settings, self.timeline, tracing=writer is not None)
        self.plan = make_plan(settings, self.timeline)
        self.workload = make_workload(settings, self.timeline, self.cycle_ms, self.plan.crowd)
        self.net = SimNet(
            settings.seed,
            self.config,
            self.plan.healed,
            distance_ms_max=self.plan.distance_ms_max,
            writer=writer,
        )
        self._wanted = [dict.fromkeys(topics) for topics in self.workload.interests]
        self._sampled_violations: list[str] = []
        for clock in self.plan.clocks or (TRUE_CLOCK,) * settings.peers:
            self.net.add(clock=clock)
        if self.plan.hostility is not None:
            self._add_hostile(self.plan.hostility)
        self._schedule_start()
        self.net.schedule(self.workload.publications, _PUBLISH_FROM_CYCLES * self.cycle_ms)
        self._schedule_faults()
        self._schedule_samples()

    @property
    def world(self) -> World:
        return self.net.world

    # --- users --------------------------------------------------------------------------------

    def _known_to(self, peer: int) -> list[int]:
        """A peer joins by the well-known first peer and two others."""
        others = self.net.dice.some("start.contacts", range(self.settings.peers), 2, peer)
        return [other for other in dict.fromkeys([0, *others]) if other != peer]

    def _schedule_start(self) -> None:
        crowd = self.plan.crowd
        for peer in range(self.settings.peers):
            at_ms = self.net.dice.below("start.at", _START_CYCLES * self.cycle_ms, peer)
            if crowd is not None and peer in crowd.newcomers:
                at_ms = crowd.at_ms + self.net.dice.below("crowd.start", crowd.span_ms, peer)
            self.world.at(at_ms if peer else 0, partial(self._start, peer))

    def _start(self, peer: int) -> None:
        """Start a peer (again); it knows only its contacts and the topics of its user."""
        self.net.start(peer, self._known_to(peer))
        for topic in self._wanted[peer]:
            self._subscribe(self.net.nodes[peer], topic)

    def _add_hostile(self, plan: Hostility) -> None:
        """Add hostile peers, which subscribe to the topics that they attack."""
        topics = self.workload.topics
        attacked = list(dict.fromkeys(topics[number % len(topics)] for number in plan.topics))
        honest = [node.contact for node in self.net.nodes]
        quiet_ms = self.timeline.quiet_ms
        gang = Gang(self.settings.seed, plan.begins_ms, honest, attacked, quiet_ms)
        for attack in plan.attacks:
            node = self.net.add_hostile(gang, attack)
            self._wanted.append(dict.fromkeys(attacked))
            span_ms = _START_CYCLES * self.cycle_ms
            at_ms = plan.joins_ms + self.net.dice.below("start.at", span_ms, node.index)
            self.world.at(at_ms, partial(self._start, node.index))

    def _subscribe(self, node: Node, topic: Topic) -> None:
        since: Since | None = "beginning" if self.wants_past(node.index, topic) else None
        self.world.subscribe(node, topic, None, since)

    def wants_past(self, peer: int, topic: Topic) -> bool:
        """With history, half of the subscribers ask for all of the past, always the same ones."""
        number = self.workload.topics.index(topic)
        return self.settings.history and self.net.dice.percent("history.past", 50, peer, number)

    def _schedule_samples(self) -> None:
        for at_ms in range(0, self.timeline.end_ms, _SAMPLE_CYCLES * self.cycle_ms):
            self.world.at(at_ms, self._sample)
        if PROMISES[self.settings.routing].roots and not self._hostile:
            settle_ms = _SETTLE_CYCLES * self.cycle_ms
            from_ms = settle_ms if self.settings.calm else self.timeline.heal_ms + settle_ms
            for at_ms in range(from_ms, self.timeline.end_ms, self.cycle_ms):
                self.world.at(at_ms, self._look_at_roots)

    def _sample(self) -> None:
        states = states_of(self.world).values()
        self._sampled_violations += state.check_bounds(states, self.config, self.world.now_ms)

    def _look_at_roots(self) -> None:
        before_ms = self.world.now_ms - _SETTLE_CYCLES * self.cycle_ms
        self._sampled_violations += trees.check_rooted(self.world, before_ms)

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
        if plan.crowd is not None:
            self._schedule_crowd(plan.crowd)

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
            self.world.at(crash.restart_ms, partial(self._start, crash.peer))

    def _schedule_episode(self, episode: Episode) -> None:
        world = self.world
        world.at(episode.start_ms, partial(world.set_partition, episode.partition, episode.told))
        world.at(episode.end_ms, partial(world.set_partition, None))

    def _schedule_stall(self, stall: Stall) -> None:
        node = self.world.nodes[stall.peer]
        self.world.at(stall.start_ms, partial(self.world.stall, node))
        self.world.at(stall.end_ms, partial(self.world.unstall, node))

    def _schedule_churn(self) -> None:
        """Some users unsubscribe from a topic or subscribe to one, and some undo that again."""
        dice, timeline = self.net.dice, self.timeline
        for peer in range(self.settings.peers):
            if not dice.percent("churn.who", self.plan.churn_percent, peer):
                continue
            topic = dice.pick("churn.topic", self.workload.topics, peer)
            span_ms = timeline.heal_ms - timeline.faults_ms
            for turn in range(dice.between("churn.turns", 1, 3, peer)):
                at_ms = timeline.faults_ms + dice.below("churn.at", span_ms, peer, turn)
                self.world.at(at_ms, partial(self._turn, peer, topic))

    def _schedule_crowd(self, crowd: Crowd) -> None:
        topic = self.workload.topics[crowd.topic % len(self.workload.topics)]
        for peer in crowd.peers:
            at_ms = crowd.at_ms + self.net.dice.below("crowd.subscribe", crowd.span_ms, peer)
            if peer in crowd.newcomers:
                self._wanted[peer][topic] = None  # from its start on
            else:
                self.world.at(at_ms, partial(self._take_up, peer, topic))

    def _take_up(self, peer: int, topic: Topic) -> None:
        if topic not in self._wanted[peer]:
            self._turn(peer, topic)

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
        """Run to the end and judge; what a machine raises ends the run, as its only violation."""
        try:
            self.world.run_until(self.timeline.look_ms)
            violations = self.judge()
            if violations and self.timeline.look_ms < self.timeline.end_ms:
                self.world.run_until(self.timeline.end_ms)
                violations = self.judge()
        except Exception as error:  # whatever a machine under test may raise
            return [_failure_text(self.world, error)]
        return violations

    def judge(self) -> list[str]:
        """The violations of what must hold for honest peers, whatever hostile ones do."""
        config, now_ms, everything = self.config, self.world.now_ms, self.world.record
        forged = deliveries.check_genuine(everything, self.settings.peers)
        record = everything.among_honest(self.settings.peers) if self._hostile else everything
        states = states_of(self.world)
        settled_ms = self.timeline.heal_ms + _SETTLE_CYCLES * self.cycle_ms
        return [  # violations that may explain others come first
            *forged,
            *self._judge_routing(record, states),
            *self._judge_history(record, states),
            *self._judge_belief(record),
            *deliveries.check_only_subscribers(record),
            *deliveries.check_once(record),
            *self._judge_order(record),
            *self._judge_hierarchy(record),
            *deliveries.check_answers(record, settled_ms, self.timeline.quiet_ms),
            *self._sampled_violations,
            *state.check_bounds(states.values(), config, now_ms),
            *state.check_ghosts(everything, states, now_ms, GHOST_PERCENT_MAX),
        ]

    def _judge_belief(self, record: Record) -> list[str]:
        """Among honest peers, no peer calls another a liar."""
        if self._hostile:
            return []
        return deliveries.check_believed(record, self.net.counted("forged"))

    @property
    def _hostile(self) -> bool:
        return self.plan.hostility is not None

    def _judge_routing(self, record: Record, states: Mapping[int, PeerState]) -> list[str]:
        """Judge what this routing promises (`PROMISES`). In runs with hostile peers, which may take
        any role, roles and roots are not judged; the deliveries to honest peers are."""
        now_ms = self.world.now_ms
        promise = PROMISES[self.settings.routing]
        if promise.overlays:
            violations = state.check_merged(record, states, now_ms, one_id=not self._hostile)
        else:
            violations = state.check_general(record, states, now_ms)
        if promise.repairs or self.settings.history:
            liars = self.plan.hostility.count if self.plan.hostility is not None else 0
            captured = dht.captured_in(self.world) if promise.roles and self._hostile else ()
            held_ms = self.config.dissemination.recent_ms
            violations += deliveries.check_complete(
                record, self._hostile, liars, captured, self.plan.episodes, held_ms
            )
        if promise.no_parasites:
            healed_ms = self.timeline.heal_ms
            violations += deliveries.check_parasites(record, PARASITE_GRACE_MS, healed_ms)
        if promise.roles and not self._hostile:
            violations += dht.check_world(self.world, self.config)
        if promise.roots and not self._hostile:
            violations += trees.check_world(self.world, self.config)
        return violations

    def _judge_order(self, record: Record) -> list[str]:
        """While nothing goes wrong, each publisher's events come in their order, by every routing
        (`protocol/delivery.py`)."""
        if self._hostile or not self.settings.calm:
            return []
        return deliveries.check_in_order(record)

    def _judge_hierarchy(self, record: Record) -> list[str]:
        named = {each.payload: each.topic for each in self.workload.publications}
        roots = self.config.hierarchies
        return deliveries.check_levels(record, named, roots)

    def _judge_history(self, record: Record, states: Mapping[int, PeerState]) -> list[str]:
        if not self.settings.history:
            return []
        honest = self.world.nodes[: self.settings.peers]
        stores = {node.index: node.store for node in honest if node.store is not None}
        return [
            *history.check_same_streams(record, stores, self.wants_past),
            *history.check_complete_streams(states, self.world.now_ms, self.settings.peers),
            *history.check_order(record, stores),
            *history.check_answered(record, stores),
        ]


def make_plan(settings: ScenarioSettings, timeline: Timeline) -> FaultPlan:
    hostile = hostile_count(settings.peers, settings.hostile)
    hostility = draw_hostility(settings.seed, hostile, timeline, settings.attack)
    if settings.calm:
        return replace(NO_FAULTS, hostility=hostility)
    drawn = draw_faults(
        settings.seed, settings.peers, timeline, settings.disasters, settings.without, hostile
    )
    return replace(drawn, hostility=hostility)


def make_workload(
    settings: ScenarioSettings, timeline: Timeline, cycle_ms: int, crowd: Crowd | None = None
) -> Workload:
    from_ms = _PUBLISH_FROM_CYCLES * cycle_ms
    duration_ms = timeline.quiet_ms - from_ms
    shape = Shape(burst_percent=_BURST_PERCENT, nested=settings.hierarchy)
    if settings.recorded is not None:
        drawn = settings.recorded.workload(settings.seed, settings.events, duration_ms, shape)
    else:
        drawn = draw_workload(
            settings.seed, settings.peers, settings.topics, settings.events, duration_ms, shape
        )
    if crowd is None:
        return drawn
    dice = Dice(settings.seed)
    topic = drawn.topics[crowd.topic % len(drawn.topics)]
    members = drawn.subscribers()[topic]
    burst = [
        Publication(
            at_ms=crowd.at_ms - from_ms + dice.below("crowd.publish", crowd.span_ms, event),
            peer=dice.pick("crowd.publisher", members, event),
            topic=topic,
            payload=f"event {event} of the crowd".encode(),
        )
        for event in range(min(CROWD_EVENTS, settings.events))
    ]
    together = sorted((*drawn.publications, *burst), key=lambda one: (one.at_ms, one.payload))
    return replace(drawn, publications=tuple(together))


def _failure_text(world: World, error: Exception) -> str:
    where = traceback.format_exception(error)[-2].strip().replace("\n", " ")
    if world.handling is None:
        return f"{error!r} at {world.now_ms} ms, in {where}"
    node, fact = world.handling
    return f"peer {node.index} raised {error!r} at {world.now_ms} ms on {fact!r}, in {where}"


# --- what came of it ------------------------------------------------------------------------


@dataclass
class Result:
    settings: ScenarioSettings
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
            "brief": self.settings.brief,
            "hierarchy": self.settings.hierarchy,
            "hostile": self.settings.hostile,
            "faults": self.faults,
            "counts": self.counts,
            "violations": self.violations,
            "replay": self.settings.command(),
        }


def run(settings: ScenarioSettings, writer: Writer | None = None) -> Result:
    """Play one run and judge it."""
    scenario = Scenario(settings, writer)
    violations = scenario.play()
    return Result(settings, scenario.plan.mix(), count(scenario.world), violations)


def count(world: World) -> dict[str, object]:
    """What happened in the world so far.

    A copy is an event inside a message that a peer handled, however it came there: routed, pushed
    or repaired. A delivery here is one to a peer that did not publish the event itself, so the
    least possible is one copy per delivery.
    """
    record, network = world.record, world.network
    remote = sum(d.peer != record.index_of(d.event.publisher) for d in record.deliveries)
    sent = {kind.__name__: number for kind, number in world.sent.items()}
    payload_kinds = {kind.__name__ for kind in m.PAYLOAD_KINDS}
    control = sum(number for kind, number in sent.items() if kind not in payload_kinds)
    outcomes: dict[str, int] = {}
    for publication in record.publications.values():
        for _, answer in publication.answers[-1:]:
            outcomes[answer.outcome] = outcomes.get(answer.outcome, 0) + 1
    return {
        "virtual_ms": world.now_ms,
        "messages": dict(sorted(sent.items())),
        "sent": sum(sent.values()),
        "handled": world.handled,
        "facts": world.facts,
        "undelivered": world.dropped,
        "lost": network.lost,
        "cut": network.cut,
        "duplicated": network.duplicated,
        "published": len(record.publications),
        "outcomes": dict(sorted(outcomes.items())),
        "delivered": len(record.deliveries),
        "delivered_remotely": remote,
        "copies": world.copies,
        "duplicates": world.copies - remote,
        "payload_copies_per_delivery": ratio(world.copies, remote),
        "control_per_delivery": ratio(control, remote),
    }


def ratio(part: float, whole: float) -> float | None:
    """A quotient for reports and summaries; None if the divisor is 0."""
    return round(part / whole, 4) if whole else None
