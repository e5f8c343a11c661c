"""Where to draw the peers of a network so that those with links lie close (Fruchterman and
Reingold 1991): peers repel each other, links pull, and the whole cools down. Starts from a
circle, so the same network always looks the same."""

from __future__ import annotations

import math
from collections.abc import Mapping

_ROUNDS = 300
_GRAVITY = 2.0
"""A pull to the middle that keeps parts without links to the rest on the page."""
Point = tuple[float, float]


def place(count: int, links: Mapping[tuple[int, int], int]) -> list[Point]:
    """Points within the unit square for peers 0 … count−1; links pull by their weight."""
    points = [
        (math.cos(2 * math.pi * index / count), math.sin(2 * math.pi * index / count))
        for index in range(count)
    ]
    ideal = 2 / math.sqrt(count)
    for turn in range(_ROUNDS):
        heat = 0.2 * (1 - turn / _ROUNDS)
        points = _step(points, links, ideal, heat)
    return _fit(points)


def _step(
    points: list[Point], links: Mapping[tuple[int, int], int], ideal: float, heat: float
) -> list[Point]:
    push = [[0.0, 0.0] for _ in points]
    for one, (x, y) in enumerate(points):
        for other in range(one):
            dx, dy = x - points[other][0], y - points[other][1]
            square = max(dx * dx + dy * dy, 1e-6)
            force = ideal * ideal / square
            for index, sign in ((one, 1), (other, -1)):
                push[index][0] += sign * dx * force
                push[index][1] += sign * dy * force
    for (one, other), weight in links.items():
        dx, dy = points[one][0] - points[other][0], points[one][1] - points[other][1]
        force = math.hypot(dx, dy) / ideal * min(2.0, 0.6 + 0.2 * weight)
        for index, sign in ((one, -1), (other, 1)):
            push[index][0] += sign * dx * force
            push[index][1] += sign * dy * force
    moved = []
    for (x, y), (away_x, away_y) in zip(points, push, strict=True):
        dx, dy = away_x - _GRAVITY * x, away_y - _GRAVITY * y
        length = math.hypot(dx, dy) or 1.0
        step = min(length, heat)
        moved.append((x + dx / length * step, y + dy / length * step))
    return moved


def _fit(points: list[Point]) -> list[Point]:
    left, top = min(x for x, _ in points), min(y for _, y in points)
    width = max(x for x, _ in points) - left or 1.0
    height = max(y for _, y in points) - top or 1.0
    return [((x - left) / width, (y - top) / height) for x, y in points]
