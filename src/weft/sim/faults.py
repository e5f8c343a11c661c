"""The faults of a run, all drawn from one seed.

A run has three phases: the peers come up, then faults strike, then the network heals: nothing is
lost or cut any more, the peers that restart have restarted, and all must converge within a bounded
time (the plan of TigerBeetle's simulator). Not every run has every fault: a draw of its own decides
about each class, because a mix of all faults hides what a few of them can do together. `without`
leaves classes out, to find those that a failure needs.

Disasters are added on request: most peers crash at one moment, a group loses power and comes back,
the network stays cut until it heals, a crowd arrives, a third of the peers is slow.

Hostile peers (`sim/hostile.py`) are added on request, too, in addition to the honest peers. Their
attack begins with the faults, and does not end when the network heals.

Times are counted in cycles of the view exchange and handed out in milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias, get_args

from weft.sim.dice import Dice
from weft.sim.network import Conditions, Latency, LatencyKind, Partition
from weft.sim.node import Clock

Ending: TypeAlias = Literal["silent", "clean", "leave"]

Fault: TypeAlias = Literal[
    "loss", "duplication", "distance", "crashes", "partitions", "stalls", "slow", "clocks", "churn"
]
Disaster: TypeAlias = Literal[
    "mass-crash", "power-loss", "long-partition", "flash-crowd", "slow-peers"
]
Attack: TypeAlias = Literal[
    "poison", "eclipse", "black-hole", "drop", "forge", "replay", "spam", "lie", "ground"
]

FAULTS: tuple[Fault, ...] = get_args(Fault)
ATTACKS: tuple[Attack, ...] = get_args(Attack)
DISASTERS: tuple[Disaster, ...] = get_args(Disaster)
LATENCIES: tuple[LatencyKind, ...] = ("constant", "uniform", "long_tail")
CROWD_EVENTS = 30
"""guess: events published in the crowd's topic while it arrives, on top of the workload."""
_AT_ONCE_MS = 1_000  # guess: time in which a group comes back, or a crowd arrives


@dataclass(frozen=True)
class Timeline:
    """When the phases of a run begin and end, in milliseconds."""

    faults_ms: int
    heal_ms: int
    quiet_ms: int  # the last event is published before this
    look_ms: int  # if there is no violation now, the run ends here
    end_ms: int


def draw_timeline(
    seed: int,
    cycle_ms: int,
    calm: bool = False,
    disasters: Collection[Disaster] = (),
    withheld_ms: int = 0,
) -> Timeline:
    """When the phases begin and end. All lengths are guesses: they leave time for views to mix, and
    in one of seven runs the faults last so long that views forget peers that were cut off.

    `withheld_ms`: how long a peer waits for an event that a hostile publisher names and withholds.
    Descendants of that event may reach a single member. The others hear of them when that member
    has waited in vain, and then wait as long themselves. So the run ends after both times, unless
    there is no violation when a run without hostile peers would end.
    """
    warm, faults, publishing, quiet = (8, 0, 12, 8) if calm else (8, 20, 20, 60)
    patience = 8 + 2 * withheld_ms // cycle_ms if withheld_ms and not calm else quiet
    if "long-partition" in disasters or (not calm and Dice(seed).percent("faults.long", 14)):
        faults = 70
    return Timeline(
        faults_ms=warm * cycle_ms,
        heal_ms=(warm + faults) * cycle_ms,
        quiet_ms=(warm + faults + publishing) * cycle_ms,
        look_ms=(warm + faults + publishing + quiet) * cycle_ms,
        end_ms=(warm + faults + publishing + patience) * cycle_ms,
    )


@dataclass(frozen=True)
class Crash:
    peer: int
    at_ms: int
    how: Ending
    restart_ms: int | None  # None: it stays down


@dataclass(frozen=True)
class Episode:
    """The network is cut for a while."""

    start_ms: int
    end_ms: int
    partition: Partition
    told: bool  # connections across the cut break, rather than fall silent


@dataclass(frozen=True)
class Stall:
    """A peer handles nothing for a while, as if its process were stopped."""

    peer: int
    start_ms: int
    end_ms: int


@dataclass(frozen=True)
class Slow:
    """All messages to this peer take longer, while faults last."""

    peer: int
    delay_ms: int


@dataclass(frozen=True)
class Crowd:
    """Peers that all subscribe to one topic within a moment, some of them as they come up for the
    first time, while events are published in it."""

    topic: int  # drawn; modulo the number of topics, the topic's place in the workload
    at_ms: int
    span_ms: int
    peers: tuple[int, ...]
    newcomers: tuple[int, ...]  # of these peers


@dataclass(frozen=True)
class Hostility:
    """Hostile peers. Their numbers follow those of the honest peers."""

    count: int
    attacks: tuple[Attack, ...]  # one for each
    begins_ms: int
    joins_ms: int  # when they come up: with the honest peers, or when they strike
    topics: tuple[int, ...]  # drawn; modulo the number of topics, the topics under attack


@dataclass(frozen=True)
class FaultPlan:
    """Everything that goes wrong in one run."""

    stormy: Conditions = field(default_factory=Conditions)  # while faults strike
    healed: Conditions = field(default_factory=Conditions)  # before and after
    distance_ms_max: int = 0
    crashes: tuple[Crash, ...] = ()
    episodes: tuple[Episode, ...] = ()
    stalls: tuple[Stall, ...] = ()
    slow: tuple[Slow, ...] = ()
    clocks: tuple[Clock, ...] = ()  # by peer; none: all are right
    churn_percent: int = 0  # peers that change a subscription while faults strike
    crowd: Crowd | None = None
    hostility: Hostility | None = None

    def mix(self) -> dict[str, object]:
        """The plan in a few words, for the result of a run."""
        stormy = self.stormy
        return {
            "latency": asdict(stormy.latency),
            "distance_ms_max": self.distance_ms_max,
            "loss_percent": stormy.loss_percent,
            "loss_uneven": stormy.loss_uneven,
            "duplicate_percent": stormy.duplicate_percent,
            "in_order": stormy.in_order,
            "crashes": [asdict(crash) for crash in self.crashes],
            "partitions": [
                {
                    "start_ms": episode.start_ms,
                    "end_ms": episode.end_ms,
                    "sides": _side_sizes(episode.partition),
                    "one_way": episode.partition.one_way,
                    "told": episode.told,
                }
                for episode in self.episodes
            ],
            "stalls": [asdict(stall) for stall in self.stalls],
            "slow": [asdict(slow) for slow in self.slow],
            "clock_offset_ms_max": max((abs(c.offset_ms) for c in self.clocks), default=0),
            "clock_drift_ppm_max": max((abs(c.drift_ppm) for c in self.clocks), default=0),
            "churn_percent": self.churn_percent,
            **({"crowd": asdict(self.crowd)} if self.crowd is not None else {}),
            **({"hostile": asdict(self.hostility)} if self.hostility is not None else {}),
        }


def _side_sizes(partition: Partition) -> list[int]:
    sides = sorted(set(partition.groups))
    return [partition.groups.count(side) for side in sides]


NO_FAULTS = FaultPlan()


def draw_faults(
    seed: int,
    peers: int,
    timeline: Timeline,
    disasters: Collection[Disaster] = (),
    without: Collection[Fault] = (),
    hostile: int = 0,
) -> FaultPlan:
    """The faults of this seed. Peer 0, by which others join, never stays down. The `hostile` peers,
    whose numbers follow those of the others, suffer no faults but cuts."""
    dice = Dice(seed)
    latency = Latency(dice.pick("faults.latency", LATENCIES), dice.between("faults.typical", 2, 80))
    in_order = dice.percent("faults.in_order", 50)
    healed = Conditions(latency=latency, in_order=in_order)
    loss = _sometimes(dice, "faults.loss", 75, 1, 30)
    duplicate = _sometimes(dice, "faults.duplicate", 50, 1, 10)
    stormy = Conditions(
        latency=latency,
        loss_percent=0 if "loss" in without else loss,
        loss_uneven=dice.percent("faults.uneven", 30),
        duplicate_percent=0 if "duplication" in without else duplicate,
        in_order=in_order,
    )
    distance_ms_max = _sometimes(dice, "faults.distance", 50, 5, 120)
    churn_percent = _sometimes(dice, "faults.churn", 60, 5, 40)
    crashes = () if "crashes" in without else _draw_crashes(dice, peers, timeline)
    episodes = () if "partitions" in without else _draw_episodes(dice, peers, hostile, timeline)
    slow = () if "slow" in without else _draw_slow(dice, peers)
    if "mass-crash" in disasters:
        crashes += _draw_mass_crash(dice, peers, timeline)
    if "power-loss" in disasters:
        crashes += _draw_power_loss(dice, peers, timeline)
    if "long-partition" in disasters:
        episodes = _draw_long_partition(dice, peers + hostile, timeline)
    if "slow-peers" in disasters:
        slow = _draw_slow_peers(dice, peers)
    return FaultPlan(
        stormy=stormy,
        healed=healed,
        distance_ms_max=0 if "distance" in without else distance_ms_max,
        crashes=crashes,
        episodes=episodes,
        stalls=() if "stalls" in without else _draw_stalls(dice, peers, timeline),
        slow=slow,
        clocks=() if "clocks" in without else _draw_clocks(dice, peers),
        churn_percent=0 if "churn" in without else churn_percent,
        crowd=_draw_crowd(dice, peers, timeline) if "flash-crowd" in disasters else None,
    )


def _sometimes(dice: Dice, purpose: str, percent: int, low: int, high: int) -> int:
    """A number from low to high in `percent` of a hundred runs, else 0."""
    if not dice.percent(purpose, percent, 1):
        return 0
    return dice.between(purpose, low, high, 2)


def _draw_crashes(dice: Dice, peers: int, timeline: Timeline) -> tuple[Crash, ...]:
    share = _sometimes(dice, "faults.crash.share", 75, 3, 30)
    count = (peers * share + 99) // 100
    endings: tuple[Ending, ...] = ("silent", "clean", "leave")
    one_ending = dice.percent("faults.crash.one_ending", 50)
    crashes = []
    for peer in dice.some("faults.crash.peer", range(peers), min(count, peers - 2)):
        span_ms = timeline.heal_ms - timeline.faults_ms
        at_ms = timeline.faults_ms + dice.below("faults.crash.at", span_ms, peer)
        restart_ms = dice.between("faults.crash.restart", at_ms + 1, timeline.heal_ms, peer)
        comes_back = peer == 0 or dice.percent("faults.crash.back", 60, peer)
        how = dice.pick("faults.crash.how", endings, 0 if one_ending else peer)
        crashes.append(Crash(peer, at_ms, how, restart_ms if comes_back else None))
    return tuple(crashes)


def _draw_episodes(dice: Dice, peers: int, hostile: int, timeline: Timeline) -> tuple[Episode, ...]:
    """Up to three cuts, one after the other, in a part of the runs."""
    episodes = []
    start_ms = timeline.faults_ms
    for number in range(_sometimes(dice, "faults.cut.count", 65, 1, 3)):
        left_ms = timeline.heal_ms - start_ms
        if left_ms < 2:
            break
        start_ms += dice.below("faults.cut.wait", max(1, left_ms // 2), number)
        end_ms = dice.between("faults.cut.end", start_ms + 1, timeline.heal_ms, number)
        partition = _draw_partition(dice, peers, hostile, number)
        told = dice.percent("faults.cut.told", 50, number)
        episodes.append(Episode(start_ms, end_ms, partition, told))
        start_ms = end_ms
    return tuple(episodes)


def _draw_partition(dice: Dice, peers: int, hostile: int, number: int) -> Partition:
    everybody = range(peers + hostile)
    kind = dice.pick("faults.cut.kind", ("halves", "thirds", "few"), number)
    if kind == "few":
        away = dice.below("faults.cut.few", max(1, peers // 4), number) + 1
        cut_off = frozenset(dice.some("faults.cut.who", range(peers), away, number))
        groups = tuple(int(peer in cut_off) for peer in everybody)
    else:
        sides = 2 if kind == "halves" else 3
        groups = tuple(dice.below("faults.cut.side", sides, peer, number) for peer in everybody)
    return Partition(groups, one_way=dice.percent("faults.cut.one_way", 20, number))


def _draw_stalls(dice: Dice, peers: int, timeline: Timeline) -> tuple[Stall, ...]:
    count = min(_sometimes(dice, "faults.stall.count", 40, 1, 3), peers)
    stalls = []
    for peer in dice.some("faults.stall.peer", range(peers), count):
        span_ms = timeline.heal_ms - timeline.faults_ms
        start_ms = timeline.faults_ms + dice.below("faults.stall.at", span_ms, peer)
        end_ms = dice.between("faults.stall.end", start_ms, timeline.heal_ms, peer)
        stalls.append(Stall(peer, start_ms, end_ms))
    return tuple(stalls)


def _draw_slow(dice: Dice, peers: int) -> tuple[Slow, ...]:
    count = min(_sometimes(dice, "faults.slow.count", 40, 1, 4), peers)
    return tuple(
        Slow(peer, dice.between("faults.slow.delay", 50, 2_000, peer))
        for peer in dice.some("faults.slow.peer", range(peers), count)
    )


def _draw_clocks(dice: Dice, peers: int) -> tuple[Clock, ...]:
    """Clocks that are off by up to an hour, and fast or slow by up to half a percent."""
    if not dice.percent("faults.clock", 60):
        return ()
    return tuple(
        Clock(
            offset_ms=dice.between("faults.clock.offset", 0, 3_600_000, peer),
            drift_ppm=dice.between("faults.clock.drift", -5_000, 5_000, peer),
        )
        for peer in range(peers)
    )


# --- disasters --------------------------------------------------------------------------------


def _draw_mass_crash(dice: Dice, peers: int, timeline: Timeline) -> tuple[Crash, ...]:
    """Most peers are gone at one moment, all by the same ending; in some runs a part comes back."""
    span_ms = timeline.heal_ms - timeline.faults_ms
    at_ms = timeline.faults_ms + dice.below("disaster.crash.at", span_ms // 2)
    share = dice.between("disaster.crash.share", 30, 90)
    how: Ending = "silent" if dice.percent("disaster.crash.silent", 50) else "clean"
    back_percent = dice.pick("disaster.crash.back", (0, 0, 50, 100))
    crashes = []
    for peer in dice.some(
        "disaster.crash.peer", range(peers), min(peers * share // 100, peers - 2)
    ):
        restart_ms = dice.between("disaster.crash.restart", at_ms + 1, timeline.heal_ms, peer)
        comes_back = peer == 0 or dice.percent("disaster.crash.back.peer", back_percent, peer)
        crashes.append(Crash(peer, at_ms, how, restart_ms if comes_back else None))
    return tuple(crashes)


def _draw_power_loss(dice: Dice, peers: int, timeline: Timeline) -> tuple[Crash, ...]:
    """A group of peers crashes silently at one moment, and all of it is back at a later one."""
    span_ms = timeline.heal_ms - timeline.faults_ms
    at_ms = timeline.faults_ms + dice.below("disaster.power.at", span_ms // 2)
    back_ms = dice.between("disaster.power.back", at_ms + 1, timeline.heal_ms - _AT_ONCE_MS)
    count = max(1, peers * dice.between("disaster.power.share", 10, 60) // 100)
    return tuple(
        Crash(peer, at_ms, "silent", back_ms + dice.below("disaster.power.late", _AT_ONCE_MS, peer))
        for peer in dice.some("disaster.power.peer", range(peers), count)
    )


def _draw_long_partition(dice: Dice, peers: int, timeline: Timeline) -> tuple[Episode, ...]:
    """One cut in halves or thirds from soon after the faults begin until they end."""
    span_ms = timeline.heal_ms - timeline.faults_ms
    start_ms = timeline.faults_ms + dice.below("disaster.cut.at", span_ms // 10)
    sides = dice.between("disaster.cut.sides", 2, 3)
    groups = tuple(dice.below("disaster.cut.side", sides, peer) for peer in range(peers))
    told = dice.percent("disaster.cut.told", 50)
    return (Episode(start_ms, timeline.heal_ms, Partition(groups, one_way=False), told),)


def _draw_slow_peers(dice: Dice, peers: int) -> tuple[Slow, ...]:
    count = max(1, peers * dice.between("disaster.slow.share", 20, 50) // 100)
    return tuple(
        Slow(peer, dice.between("disaster.slow.delay", 200, 3_000, peer))
        for peer in dice.some("disaster.slow.peer", range(peers), count)
    )


def _draw_crowd(dice: Dice, peers: int, timeline: Timeline) -> Crowd:
    span_ms = timeline.heal_ms - timeline.faults_ms
    count = max(1, peers * dice.between("disaster.crowd.share", 30, 80) // 100)
    crowd = dice.some("disaster.crowd.peer", range(1, peers), min(count, peers - 1))
    return Crowd(
        topic=dice.below("disaster.crowd.topic", 1 << 16),
        at_ms=timeline.faults_ms + dice.below("disaster.crowd.at", span_ms),
        span_ms=_AT_ONCE_MS,
        peers=tuple(crowd),
        newcomers=tuple(peer for peer in crowd if dice.percent("disaster.crowd.new", 50, peer)),
    )


# --- hostile peers ----------------------------------------------------------------------------

TOPICS_ATTACKED = 3
"""guess: topics that a gang is in; with few topics it attacks each of them harder."""


def hostile_count(peers: int, share: int) -> int:
    """How many hostile peers are `share` percent of all, together with `peers` honest ones."""
    return -(-peers * share // (100 - share))


def draw_hostility(
    seed: int, count: int, timeline: Timeline, attack: Attack | None = None
) -> Hostility | None:
    """Hostile peers that all make `attack`. If that is None, it is drawn; in some runs each peer
    has its own."""
    if not count:
        return None
    dice = Dice(seed)
    drawn = attack if attack is not None else dice.pick("hostile.attack", ATTACKS)
    mixed = attack is None and dice.percent("hostile.mixed", 30)
    infiltrated = dice.percent("hostile.infiltrated", 50)
    return Hostility(
        count=count,
        attacks=tuple(
            dice.pick("hostile.each", ATTACKS, peer) if mixed else drawn for peer in range(count)
        ),
        begins_ms=timeline.faults_ms,
        joins_ms=0 if infiltrated else timeline.faults_ms,
        topics=tuple(dice.below("hostile.topic", 1 << 16, n) for n in range(TOPICS_ATTACKED)),
    )
