"""Third tier: peers that act when they like, over a network with latencies, against the engine's
cycles: not equal, but equal in distribution."""

from __future__ import annotations

import numpy as np
from benchmarks.graph import indegrees
from scipy.stats import ks_2samp

from weft.engine.tera.cyclon import random_overlay
from weft.protocol.config import Config
from weft.sim.builder import SimNet

PEERS = 300
CYCLES = 30


def asynchronous_indegrees(seed: int) -> np.ndarray:
    """In-degrees in the simulator, where cycles are not aligned and messages take their time."""
    net = SimNet(seed, Config())
    dice = np.random.default_rng(seed)
    for index in range(PEERS):
        known = dice.integers(0, max(1, index), 3).tolist()
        net.enter(known if index else [])
    net.run_cycles(CYCLES)
    degrees = np.zeros(PEERS, np.int64)
    for peer in net.peers():
        for known_peer in peer.general.peers:
            degrees[net.world.record.index_of(known_peer)] += 1
    return degrees


def engine_indegrees(seed: int) -> np.ndarray:
    overlay = random_overlay(PEERS, seed)
    overlay.run(CYCLES)
    return indegrees(overlay.rows, PEERS).astype(np.int64)


def test_indegrees_are_distributed_alike() -> None:
    seeds = (1, 2, 3)
    there = np.concatenate([asynchronous_indegrees(seed) for seed in seeds])
    here = np.concatenate([engine_indegrees(seed) for seed in seeds])
    # Kolmogorov–Smirnov at 1 %: two samples of n values each.
    critical = 1.63 * np.sqrt(2 / len(here))
    assert ks_2samp(there, here).statistic < critical
    assert abs(there.mean() - here.mean()) < 0.5
