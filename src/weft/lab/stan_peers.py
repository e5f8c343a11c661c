"""StaN's rounds on a synthetic grid, three times over: in the engine's kernel, in the real state
machines under the simulator, and in real peers on loopback with TLS (StaN 3.3 and 3.4, Fig. 6).

All three start from random views of the sizes that connect the overlays and then run plain
Algorithm 2, one walk per peer, topic and round. The kernel is told the sizes of topics; the peers
estimate them. The machines and the real peers get the command for a round at the same moment; when
a walk comes back is up to the network. A round lasts a second, and on a busy machine until the
walks of the real peers are back, at most the paper's thirty seconds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.engine.data.grid import Grid, draw_grid
from weft.engine.data.workload import Memberships, topic_name
from weft.engine.stan import overlays as stan
from weft.ids import PeerId, Topic
from weft.lab.swarm import Swarm
from weft.protocol import config as c
from weft.protocol.peer import Peer
from weft.sim.builder import SimNet

ROUND_MS = 1_000  # guess: much longer than a walk takes, here
ROUND_S_MAX = 30.0  # paper (Section 3.3)
CYCLE_MS = 5_000  # guess: a hundred peers on two cores keep up with it
MIX_CYCLES = 8  # measured: Cyclon's views are random by then
SETTLE_S = 300.0  # guess: real peers that have not found each other by then never will

Rows = dict[str, Any]
Views = Sequence[Mapping[str, Sequence[Any]]]
"""By peer and topic: the neighbours."""


def settings(ttl: int) -> c.Config:
    """Plain Algorithm 2, a round only when told; short cycles."""
    return c.Config(
        cyclon=c.Cyclon(cycle_ms=CYCLE_MS, stable_period_max=1, reply_timeout_ms=30_000),
        stan=c.Stan(
            True,
            walk_steps=ttl,
            period_ms=0,
            period_max=1,
            overhear=False,
            sample=False,
            adopt=False,
        ),
    )


def run(params: Mapping[str, Any], seed: int) -> Rows:
    """One run on the grid of this seed; `how` is engine, machines or network."""
    grid = draw_grid(Grid(nodes=params["nodes"], topics=params["topics"]), seed)
    how = {"engine": in_engine, "machines": in_machines, "network": in_network}[params["how"]]
    return how(grid, params["ttl"], params["rounds"], seed)


def interests_of(grid: Memberships) -> list[list[str]]:
    """The topics of each peer, by name."""
    found: list[list[str]] = [[] for _ in range(grid.peers)]
    for place, peer in enumerate(grid.members):
        found[int(peer)].append(topic_name(int(grid.topic_of[place])))
    return found


# --- in the engine ----------------------------------------------------------------------------


def in_engine(grid: Memberships, ttl: int, rounds: int, seed: int) -> Rows:
    overlays = stan.overlays_of(grid.topic_of, grid.members)
    asked = (*range(rounds + 1), stan.IDEAL)
    outcome = stan.run(overlays, stan.Config(ttl=ttl, rounds=rounds), seed, asked)
    logical = np.bincount(outcome.owners(), minlength=grid.peers)
    return _rows(
        [
            (round_, logical, stan.distinct(outcome.owners(), outcome.at(round_), grid.peers))
            for round_ in asked
        ]
    )


# --- in the state machines --------------------------------------------------------------------


def in_machines(grid: Memberships, ttl: int, rounds: int, seed: int) -> Rows:
    interests, config = interests_of(grid), settings(ttl)
    net = SimNet(seed, config)
    populate(net, interests)
    net.run_cycles(MIX_CYCLES)
    found = []
    for round_ in range(rounds + 1):
        for node in net.nodes:
            net.world.collect(node)
        net.run(ROUND_MS if round_ else 0)
        found.append((round_, *_sizes([_views_of(peer) for peer in net.peers()])))
    return _rows(found)


def populate(net: SimNet, interests: Sequence[Sequence[str]]) -> None:
    """Peers come up one after the other, each by one that is up, and then all subscribe."""
    for peer in range(len(interests)):
        net.enter([net.dice.below("stan.join", peer, peer)] if peer else [], then_ms=10)
    for node, topics in zip(net.nodes, interests, strict=True):
        for topic in topics:
            net.world.subscribe(node, Topic(topic))


def _views_of(peer: Peer) -> dict[str, list[PeerId]]:
    return {topic: list(state.stan.entries) for topic, state in peer.tera.topics.items()}


# --- on a network -----------------------------------------------------------------------------


def in_network(grid: Memberships, ttl: int, rounds: int, seed: int) -> Rows:
    interests, config = interests_of(grid), settings(ttl)
    chosen = {
        "network": {"idle_ms": 120_000},  # connections of exchanges are used again
        "protocol": {"cyclon": vars(config.cyclon), "stan": vars(config.stan)},
    }
    with Swarm(grid.peers, processes=4, settings=chosen) as swarm:
        swarm.open()
        swarm.subscribe(interests)
        _wait_until_mixed(swarm, grid)
        found = []
        for round_ in range(rounds + 1):
            swarm.ask("collect")  # the first one only draws the views
            views = _after_round(swarm) if round_ else swarm.ask("ranked")
            found.append((round_, *_sizes([answer["views"] for answer in views.values()])))
    return _rows(found)


def _after_round(swarm: Swarm) -> dict[int, Any]:
    """The peers' views when a second has passed and the walks are back."""
    deadline = time.monotonic() + ROUND_S_MAX
    while True:
        time.sleep(ROUND_MS / 1e3)
        answers: dict[int, Any] = swarm.ask("ranked")
        waiting = sum(answer["walks"] for answer in answers.values())
        if not waiting or time.monotonic() > deadline:
            return answers


def _wait_until_mixed(swarm: Swarm, grid: Memberships) -> None:
    """Wait until everyone's view is at least half full (exchanges under way always leave gaps),
    then some cycles more."""
    room = c.Cyclon().view_size
    sizes = {topic_name(topic): int(size) for topic, size in enumerate(grid.sizes())}
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        answers = swarm.ask("ranked").values()
        if all(
            2 * known >= min(room, sizes[topic] - 1)
            for answer in answers
            for topic, known in answer["known"].items()
        ):
            time.sleep(MIX_CYCLES * CYCLE_MS / 1e3)
            return
        time.sleep(0.5)
    raise TimeoutError(f"the topics' overlays have not formed within {SETTLE_S:.0f} s")


# --- rows -------------------------------------------------------------------------------------


def _sizes(views: Views) -> tuple[list[int], list[int]]:
    """Logical and physical view sizes, by peer."""
    logical = [sum(len(view) for view in mine.values()) for mine in views]
    physical = [len({other for view in mine.values() for other in view}) for mine in views]
    return logical, physical


def _rows(rounds: Sequence[tuple[int, Any, Any]]) -> Rows:
    peers = len(rounds[0][1])
    return {
        "round": np.repeat([round_ for round_, _, _ in rounds], peers).astype(np.int32),
        "node": np.tile(np.arange(peers, dtype=np.int32), len(rounds)),
        "lvs": np.concatenate([lvs for _, lvs, _ in rounds]).astype(np.int64),
        "pvs": np.concatenate([pvs for _, _, pvs in rounds]).astype(np.int64),
    }
