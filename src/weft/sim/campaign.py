"""A campaign: new runs over all sizes, routings and faults, until a given time is over.

A fixed list of seeds shows that mended defects stay mended. A campaign looks for unknown defects:
each run has a seed that was never played, and with it a network from 4 to 300 peers, 1 to 50
topics, a routing and scheme, faults and disasters or none, with or without history, hierarchies and
hostile peers. Nearly all networks are small (`PEERS`): they show most failures, at a fraction of
the time.

A run with a violation is shrunk: peers, events, topics and one class of faults after the other are
removed while the same kind of violation remains, so that a reader has less to look at. One command
line plays each run again, also a shrunk one (`command`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import active_children, get_context
from typing import TypeAlias

from weft.protocol.config import Routing
from weft.sim.dice import Dice
from weft.sim.faults import DISASTERS, FAULTS, Attack, Disaster, Fault
from weft.sim.runs import begin_worker
from weft.sim.scenario import SCHEMES, AnyScheme, Result, ScenarioSettings, run

Weighted: TypeAlias = tuple[tuple[int, int, int], ...]  # weight, from, to

PEERS: Weighted = (
    *((220, 4, 8), (160, 9, 16), (85, 17, 32)),
    *((25, 33, 64), (7, 65, 128), (3, 129, 300)),
)
HOSTILE_PEERS: Weighted = (
    *((320, 4, 8), (135, 9, 16), (35, 17, 32)),
    *((6, 33, 64), (3, 65, 128), (1, 129, 300)),
)
"""Weights out of 500, without hostile peers and with them. A run of 4 to 8 peers takes half a
second of CPU time, one of 17 to 32 three seconds, one of 129 to 300 a minute; with hostile peers,
which strike every second, five times as much. Most failures show with a few peers. So two of a
hundred runs have more than 64 peers; they take about a third of the time, which is enough in a
campaign of thousands to find failures of large networks."""
TOPICS: Weighted = ((2, 1, 1), (3, 2, 5), (3, 6, 15), (2, 16, 50))
EVENTS: Weighted = ((3, 10, 60), (4, 61, 200), (1, 201, 500))
"""guess, both: the median is some five topics and a hundred events."""
ROUTINGS: tuple[tuple[int, Routing], ...] = (
    (35, "tera"),
    (30, "topic-dht"),
    (25, "pulsarcast"),
    (10, "flood"),
)
CALM_PERCENT, HISTORY_PERCENT, HIERARCHY_PERCENT, DISASTER_PERCENT = 15, 50, 25, 50
BRIEF_PERCENT = 50
"""guess: of the runs with history, those in which routing holds events for two minutes only."""

HOSTILE_PERCENT = 33
"""The share of runs in which hostile peers are drawn: a third."""
HOSTILE_SHARES = (10, 20, 30)

TRIES_MAX = 80  # guess: to shrink one failure
TRY_S_MAX = 120.0  # guess: CPU seconds to shrink one failure
_TOLD_EVERY_S = 1.0


# --- what is played ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """The options that all runs of a campaign share; None: drawn for each run."""

    peers: int | None = None
    topics: int | None = None
    events: int | None = None
    routing: Routing | None = None
    scheme: AnyScheme | None = None
    calm: bool = False
    history: bool = False
    hierarchy: bool = False
    disasters: tuple[Disaster, ...] = ()
    hostile: int = 0
    attack: Attack | None = None


def draw_settings(seed: int, asked: Asked | None = None) -> ScenarioSettings:
    """The run that this seed stands for in a campaign."""
    asked = asked or Asked()
    dice = Dice(seed)
    routings = [
        (weight, routing)
        for weight, routing in ROUTINGS
        if asked.scheme is None or asked.scheme in SCHEMES[routing]
    ]
    drawn = dice.weighted("campaign.routing", [weight for weight, _ in routings])
    routing = asked.routing or routings[drawn][1]
    schemes: tuple[AnyScheme | None, ...] = (None, *SCHEMES[routing])
    hostile = asked.hostile
    if not hostile and dice.percent("campaign.hostile", HOSTILE_PERCENT):
        hostile = dice.pick("campaign.hostile.share", HOSTILE_SHARES)
    history = asked.history or dice.percent("campaign.history", HISTORY_PERCENT)
    calm = asked.calm or (not asked.disasters and dice.percent("campaign.calm", CALM_PERCENT))
    return ScenarioSettings(
        seed=seed,
        peers=asked.peers or _size(dice, "campaign.peers", HOSTILE_PEERS if hostile else PEERS),
        topics=asked.topics or _size(dice, "campaign.topics", TOPICS),
        events=asked.events if asked.events is not None else _size(dice, "campaign.events", EVENTS),
        scheme=asked.scheme or dice.pick("campaign.scheme", schemes),
        routing=routing,
        calm=calm,
        history=history,
        brief=history and dice.percent("campaign.brief", BRIEF_PERCENT),
        hierarchy=asked.hierarchy or dice.percent("campaign.hierarchy", HIERARCHY_PERCENT),
        disasters=asked.disasters or (() if calm else _disasters(dice)),
        hostile=hostile,
        attack=asked.attack,
    )


def _size(dice: Dice, purpose: str, sizes: Weighted) -> int:
    _, low, high = sizes[dice.weighted(purpose, [weight for weight, _, _ in sizes], 1)]
    return dice.between(purpose, low, high, 2)


def _disasters(dice: Dice) -> tuple[Disaster, ...]:
    """None in half of the runs, else one or two."""
    if not dice.percent("campaign.disaster", DISASTER_PERCENT):
        return ()
    return tuple(dice.some("campaign.disasters", DISASTERS, dice.between("campaign.many", 1, 2)))


# --- shrinking --------------------------------------------------------------------------------


def kind_of(violation: str) -> str:
    """The beginning of a violation's sentence without words that have digits: violations of one
    kind look the same then."""
    words = [word for word in violation.split() if not any(c.isdigit() for c in word)]
    return " ".join(words[:12])


def shrink(
    settings: ScenarioSettings,
    kinds: frozenset[str],
    play: Callable[[ScenarioSettings], Result] = run,
) -> Result | None:
    """The smallest run found that still has a violation of one of these kinds; None if nothing
    could be removed. Each cut is repeated while the failure stays, and all cuts are tried until
    none helps any more; the search ends after `TRIES_MAX` tries or `TRY_S_MAX` of CPU time."""
    smallest: Result | None = None
    tried = {settings}
    end_s = time.process_time() + TRY_S_MAX
    shrinking = True
    while shrinking:
        shrinking = False
        for cut in _CUTS:
            while (candidate := cut(settings)) not in tried:
                if len(tried) > TRIES_MAX or time.process_time() > end_s:
                    return smallest
                tried.add(candidate)
                result = play(candidate)
                if not any(kind_of(violation) in kinds for violation in result.violations):
                    break
                smallest, settings, shrinking = result, candidate, True
    return smallest


_Cut: TypeAlias = Callable[[ScenarioSettings], ScenarioSettings]  # returns the same: nothing to cut


def _part(part: int, of: int) -> list[_Cut]:
    return [
        lambda settings: replace(settings, peers=max(3, settings.peers * part // of)),
        lambda settings: replace(settings, events=settings.events * part // of),
        lambda settings: replace(settings, topics=max(1, settings.topics * part // of)),
    ]


def _without_disaster(settings: ScenarioSettings, disaster: Disaster) -> ScenarioSettings:
    return replace(settings, disasters=tuple(d for d in settings.disasters if d != disaster))


def _without_fault(settings: ScenarioSettings, fault: Fault) -> ScenarioSettings:
    if settings.calm or fault in settings.without:
        return settings
    return replace(settings, without=(*settings.without, fault))


_CUTS: list[_Cut] = [  # the boldest first
    *(partial(_without_disaster, disaster=disaster) for disaster in DISASTERS),
    lambda settings: replace(settings, hostile=0, attack=None),
    lambda settings: replace(settings, hostile=settings.hostile // 2 or settings.hostile),
    lambda settings: replace(settings, hierarchy=False),
    lambda settings: replace(settings, brief=False),
    lambda settings: replace(settings, history=False, brief=False),
    *_part(1, 2),
    *(partial(_without_fault, fault=fault) for fault in FAULTS),
    *_part(3, 4),
    *_part(9, 10),
]


# --- the campaign -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Played:
    """One run of a campaign; if it failed, with the smallest run that fails alike."""

    result: Result
    spent_s: float  # of CPU time, to play it
    shrunk: Result | None = None  # None: there was no violation, or nothing could be removed


class WorkerDied(Exception):
    """A process ended in the middle of its work; the runs are those that it may have died of."""

    def __init__(self, runs: Sequence[ScenarioSettings]) -> None:
        super().__init__(f"a process died with {len(runs)} runs under way")
        self.runs = runs


def play(settings: ScenarioSettings) -> Played:
    started_s = time.process_time()
    result = run(settings)
    return Played(result, time.process_time() - started_s)


def shrunk(played: Played) -> Played:
    """The same, with the smallest run found that fails alike."""
    result = played.result
    kinds = frozenset(map(kind_of, result.violations))
    return replace(played, shrunk=shrink(result.settings, kinds))


def campaign(
    next_seed: Callable[[], int],
    over: Callable[[], bool],
    asked: Asked | None = None,
    processes: int | None = None,
    told: Callable[[int, int], object] | None = None,
) -> Iterator[Played]:
    """Yields runs as they end, in no fixed order; those that failed when they have been shrunk.

    No run begins once the campaign is `over`; runs that have begun are still waited for. If the
    caller stops iterating, the processes end at once. At an interrupt, and where a process dies,
    failed runs that are being shrunk come as they are. `told` is called every second with the
    number of runs that are being played, and of those that are being shrunk.
    """
    most = processes or os.cpu_count() or 1
    others = set(active_children())
    pool = ProcessPoolExecutor(most, get_context("spawn"), begin_worker)
    playing: dict[Future[Played], ScenarioSettings] = {}
    shrinking: dict[Future[Played], ScenarioSettings] = {}
    failed: dict[ScenarioSettings, Played] = {}  # and not yet yielded
    try:
        while True:
            while len(playing) + len(shrinking) < most and not over():
                settings = draw_settings(next_seed(), asked)
                playing[pool.submit(play, settings)] = settings
            if not playing and not shrinking:
                return
            done, _ = wait((*playing, *shrinking), _TOLD_EVERY_S, FIRST_COMPLETED)
            for future in done:
                played = future.result()
                settings = played.result.settings
                if playing.pop(future, None) is not None and played.result.violations:
                    failed[settings] = played
                    shrinking[pool.submit(shrunk, played)] = settings
                else:
                    shrinking.pop(future, None)
                    failed.pop(settings, None)
                    yield played
            if told is not None:
                told(len(playing), len(shrinking))
    except KeyboardInterrupt:
        yield from failed.values()
        raise
    except BrokenProcessPool as error:
        yield from failed.values()
        raise WorkerDied([*playing.values(), *shrinking.values()]) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(active_children()) - others:
            process.terminate()
        pool.shutdown()
