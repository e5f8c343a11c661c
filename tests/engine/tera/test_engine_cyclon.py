"""The general overlay: what Cyclon must make of it, and that a seed decides it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from benchmarks.graph import Shape, indegrees, random_shape, shape
from scipy.stats import ks_2samp

from weft.engine.core.layout import ROW_BYTES, empty_rows, random_rows
from weft.engine.data.memberships import spread, uniform_sizes
from weft.engine.tera.cyclon import Overlay, random_overlay
from weft.engine.tera.topics import random_topics


def views_are_sound(overlay: Overlay) -> None:
    rows = overlay.rows
    for peer in range(overlay.peers):
        count = rows.counts()[peer]
        known = rows.ids()[peer, :count]
        assert peer not in known
        assert len(set(known.tolist())) == count <= rows.view_size
        assert ((known >= 0) & (known < overlay.peers)).all()


@pytest.fixture(scope="module")
def shapes() -> list[tuple[Shape, Shape]]:
    """10⁴ peers after 200 cycles, beside random graphs of the same out-degree."""
    found = []
    for seed in (1, 2, 3):
        overlay = random_overlay(10_000, seed)
        overlay.run(200)
        found.append((shape(overlay.rows, 10_000, seed), random_shape(10_000, 20, seed + 50)))
    return found


def test_indegrees_are_balanced(shapes: list[tuple[Shape, Shape]]) -> None:
    for found, _ in shapes:
        assert found.indegree_mean == 20.0
        assert found.indegree_std == pytest.approx(1.5, abs=0.1)


def test_the_graph_is_as_a_random_one(shapes: list[tuple[Shape, Shape]]) -> None:
    clustering = np.mean([[a.clustering, b.clustering] for a, b in shapes], axis=0)
    length = np.mean([[a.path_length, b.path_length] for a, b in shapes], axis=0)
    assert clustering[0] / clustering[1] == pytest.approx(1.0, abs=0.05)
    assert length[0] / length[1] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("peers", "view_size", "shuffle"), [(2, 20, 8), (15, 20, 8), (300, 20, 8), (300, 7, 3)]
)
def test_views_stay_sound(peers: int, view_size: int, shuffle: int) -> None:
    overlay = random_overlay(peers, 4, view_size, shuffle)
    for _ in range(20):
        overlay.run(1)
        views_are_sound(overlay)


def test_small_overlays_keep_all_their_members() -> None:
    overlay = random_overlay(12, 4)
    overlay.run(100)
    assert (overlay.rows.counts()[:12] == 11).all()


def test_first_views_are_random() -> None:
    rows = random_rows(2_000, 20, 9)
    degrees = indegrees(rows, 2_000)
    assert degrees.sum() == 40_000
    # in-degrees of random views are binomial: deviation sqrt(20)
    assert degrees.std() == pytest.approx(np.sqrt(20), rel=0.1)
    assert ks_2samp(degrees, indegrees(random_rows(2_000, 20, 10), 2_000)).statistic < 0.06


def test_a_seed_decides_the_run() -> None:
    runs = []
    for seed in (7, 7, 8):
        overlay = random_overlay(500, seed)
        overlay.run(30)
        runs.append(overlay.rows.octets.tobytes())
    assert runs[0] == runs[1] != runs[2]


def test_threads_do_not_change_a_result() -> None:
    def run(seed: int) -> bytes:
        overlay = random_overlay(2_000, seed)
        overlay.run(20)
        return overlay.rows.octets.tobytes()

    alone = [run(seed) for seed in range(6)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, range(6))) == alone


@pytest.mark.parametrize("threads", [2, 3])
def test_topics_shared_out_over_threads_stay_the_same(threads: int) -> None:
    held = spread(uniform_sizes(40, 9_000, 1_000, 3), 1_000, 3)
    alone, shared = (random_topics(held, 3) for _ in range(2))
    assert alone.run(10) == shared.run(10, threads=threads)
    assert np.array_equal(alone.rows.octets, shared.rows.octets)


def test_messages_are_two_per_exchange() -> None:
    assert random_overlay(1_000, 1).run(5) == 2 * 1_000 * 5


def test_a_peer_takes_a_row() -> None:
    assert len(empty_rows(1_000, 20).octets) == 1_000 * ROW_BYTES
    with pytest.raises(ValueError, match="view_size"):
        empty_rows(10, 21)
