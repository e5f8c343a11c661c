"""Pictures hold what they show, and stay within their frame."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.demo import figures
from weft.demo.output import percentile
from weft.sim.workload import draw_workload

SVG = "{http://www.w3.org/2000/svg}"


def drawn(picture: figures.Picture) -> ElementTree.Element:
    return ElementTree.fromstring(picture.render(alone=True))


def hints(picture: figures.Picture) -> list[str]:
    return [title.text or "" for title in drawn(picture).iter(f"{SVG}title")]


def test_text_is_escaped_and_colours_follow_the_page() -> None:
    workload = draw_workload(1, peers=3, topics=1, events=5, duration_ms=1_000)
    named = replace(
        workload,
        topics=("<b> &",),
        interests=tuple(("<b> &",) for _ in range(3)),
        publications=tuple(replace(each, topic="<b> &") for each in workload.publications),
    )
    picture = figures.interests(named)
    assert "<b> &" in [text.text for text in drawn(picture).iter(f"{SVG}text")]
    assert "peer 0 is subscribed to <b> &" in hints(picture)
    text = picture.render()
    assert text.startswith("<svg ") and "#2f6fde" in text and "<style>:root" not in text
    assert "prefers-color-scheme: dark" in picture.render(alone=True)
    assert text == picture.render()


@settings(max_examples=15)  # each draws a figure
@given(st.lists(st.floats(0.01, 1e5), max_size=50), st.lists(st.floats(0.01, 1e5), max_size=50))
def test_latency_bars_count_everything(inside: list[float], outside: list[float]) -> None:
    shown = [
        hint for hint in hints(figures.latency(inside, outside)) if "notifications from" in hint
    ]
    assert sum(int(hint.split()[0]) for hint in shown) == len(inside) + len(outside)


def test_interests_show_every_subscription() -> None:
    workload = draw_workload(1, peers=25, topics=12, events=100, duration_ms=1_000)
    shown = [hint for hint in hints(figures.interests(workload)) if "is subscribed to" in hint]
    assert len(set(shown)) == len(shown) == sum(map(len, workload.interests))


@settings(max_examples=20)  # each lays out a network, twice
@given(
    st.integers(1, 30).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.dictionaries(
                st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)),
                st.integers(1, 5),
                max_size=20,
            ),
        )
    )
)
def test_layout_stays_on_the_page(network: tuple[int, dict[tuple[int, int], int]]) -> None:
    count, links = network
    points = figures.places_of(count, links)
    assert len(points) == count
    for x, y in points:
        assert -1e-9 <= x <= 1 + 1e-9 and -1e-9 <= y <= 1 + 1e-9
    assert np.array_equal(figures.places_of(count, links), points)


def test_linked_peers_lie_closer_than_others() -> None:
    """Two groups of five, each fully linked, with one link between them."""
    groups = [range(5), range(5, 10)]
    links = {(a, b): 1 for group in groups for a in group for b in group if a < b}
    links[0, 5] = 1
    points = figures.places_of(10, links)

    def distance(a: int, b: int) -> float:
        return abs(complex(*points[a]) - complex(*points[b]))

    inside = [distance(a, b) for group in groups for a in group for b in group if a < b]
    across = [distance(a, b) for a in groups[0] for b in groups[1]]
    assert sum(inside) / len(inside) < 0.7 * sum(across) / len(across)


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1.0), (50, 5.0), (90, 9.0), (99, 10.0), (100, 10.0)]
)
def test_percentile(percent: float, expected: float) -> None:
    assert percentile([float(value) for value in range(1, 11)], percent) == expected
    assert percentile([], percent) is None
