"""Pictures hold what they show, and stay within their frame."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.demo import charts, layout, svg
from weft.demo.summary import percentile
from weft.sim.workload import draw_workload

SVG = "{http://www.w3.org/2000/svg}"


def drawn(picture: svg.Picture) -> ElementTree.Element:
    return ElementTree.fromstring(picture.render(alone=True))


@given(st.floats(0.001, 1e9))
def test_ticks_are_round_and_cover(top: float) -> None:
    marks = svg.ticks(top)
    assert marks[0] == 0 and marks[-1] >= top * (1 - 1e-9)
    assert 2 <= len(marks) <= 7


def test_text_is_escaped() -> None:
    picture = svg.Picture(100, 100, "a < b")
    picture.text(1, 1, "<script>")
    picture.circle(1, 1, 1, "blue", hint='"&')
    root = drawn(picture)
    assert [text.text for text in root.iter(f"{SVG}text")] == ["<script>"]


@given(st.lists(st.floats(0.01, 1e5), max_size=50), st.lists(st.floats(0.01, 1e5), max_size=50))
def test_latency_bars_count_everything(inside: list[float], outside: list[float]) -> None:
    root = drawn(charts.latency(inside, outside))
    hints = [title.text or "" for title in root.iter(f"{SVG}title")]
    counted = sum(int(hint.split()[0]) for hint in hints if "notifications from" in hint)
    assert counted == len(inside) + len(outside)
    for bar in root.iter(f"{SVG}rect"):
        assert float(bar.get("height") or 0) <= 300


def test_interests_show_every_subscription() -> None:
    workload = draw_workload(1, peers=25, topics=12, events=100, duration_ms=1_000)
    root = drawn(charts.interests(workload))
    assert len(list(root.iter(f"{SVG}circle"))) == sum(map(len, workload.interests))


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
    points = layout.place(count, links)
    assert len(points) == count
    for x, y in points:
        assert -1e-9 <= x <= 1 + 1e-9 and -1e-9 <= y <= 1 + 1e-9
    assert layout.place(count, links) == points


def test_linked_peers_lie_closer_than_others() -> None:
    """Two groups of five, each fully linked, with one link between them."""
    groups = [range(5), range(5, 10)]
    links = {(a, b): 1 for group in groups for a in group for b in group if a < b}
    links[0, 5] = 1
    points = layout.place(10, links)

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
