"""Views for differential tests: as rows of the engine, and as the lists that rules work on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from weft.engine.core.layout import Rows, empty_rows, get_age, set_age


@dataclass
class View:
    """A view as the rules see it."""

    peers: list[int]
    ages: list[int]


def to_rows(views: list[View], view_size: int) -> Rows:
    """Rows that hold these views; what lies in unused slots is rubbish on purpose."""
    rows = empty_rows(len(views), view_size)
    for row, view in enumerate(views):
        count = len(view.peers)
        rows.ids()[row] = (row + 1) % len(views)
        rows.ids()[row, :count] = view.peers
        for slot, age in enumerate(view.ages):
            set_age(rows.octets, row, slot, age)
        rows.counts()[row] = count
    return rows


def from_rows(rows: Rows) -> list[View]:
    return [
        View(
            rows.ids()[row, :count].tolist(),
            [get_age(rows.octets, row, slot) for slot in range(count)],
        )
        for row, count in enumerate(rows.counts().tolist())
    ]


@st.composite
def overlays(pick: st.DrawFn, most: int = 30) -> tuple[list[View], int, int]:
    """Views of some peers, a view size, and a shuffle length."""
    total = pick(st.integers(2, most))
    view_size = pick(st.integers(2, 20))
    shuffle_length = pick(st.integers(1, view_size))
    seed = pick(st.integers(0, 2**32 - 1))
    full = pick(st.booleans())
    oldest = pick(st.sampled_from([3, 40, 255]))
    draws = np.random.default_rng(seed)
    views = []
    for peer in range(total):
        others = [other for other in range(total) if other != peer]
        count = min(view_size, len(others))
        if not full:
            count = int(draws.integers(0, count + 1))
        peers = draws.permutation(others)[:count].tolist()
        views.append(View(peers, draws.integers(0, oldest + 1, count).tolist()))
    return views, view_size, shuffle_length
