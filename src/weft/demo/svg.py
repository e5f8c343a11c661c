"""Small pictures without a plotting library: shapes, axes and colours as inline SVG.

Colours are named by CSS variables, so a picture follows the page, or the reader's choice of a
light or dark screen where it stands alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

STYLE = """
:root { --ink: #1c2430; --muted: #667085; --grid: #e4e7ec; --paper: #ffffff; --panel: #f8f9fb;
  --blue: #2f6fde; --amber: #d98a1f; --grey: #a5afbf; --green: #1f9d6b; --red: #d1435b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ecf3; --muted: #98a2b3; --grid: #2b3441; --paper: #12171f; --panel: #19202b;
    --blue: #6ea0ff; --amber: #f0b054; --grey: #5d6878; --green: #4cc38a; --red: #f0728a; } }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg text.small { font-size: 11px; fill: var(--muted); }
svg text.on { font-size: 11px; font-weight: 600; fill: var(--paper); }
svg .axis { stroke: var(--grid); stroke-width: 1; }
"""


def number(value: float) -> str:
    """A coordinate, short."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


class Picture:
    """A drawing of a fixed size, filled from back to front."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height = width, height
        self._title = title
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, colour: str, hint: str = ""
    ) -> None:
        self._parts.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(max(0, width))}" '
            f'height="{number(max(0, height))}" rx="1.5" fill="var(--{colour})">{_hint(hint)}'
            "</rect>"
        )

    def circle(
        self, x: float, y: float, radius: float, colour: str, hint: str = "", ring: str = "paper"
    ) -> None:
        self._parts.append(
            f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" '
            f'fill="var(--{colour})" stroke="var(--{ring})" '
            f'stroke-width="{number(min(1.5, radius / 4))}">{_hint(hint)}'
            "</circle>"
        )

    def line(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        colour: str,
        *,
        width: float = 1,
        opacity: float = 1,
        dashes: str = "",
        arrow: bool = False,
        hint: str = "",
    ) -> None:
        extra = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._parts.append(
            f'<line x1="{number(start[0])}" y1="{number(start[1])}" x2="{number(end[0])}" '
            f'y2="{number(end[1])}" stroke="var(--{colour})" stroke-width="{number(width)}" '
            f'stroke-opacity="{opacity:.2f}"{extra}>{_hint(hint)}</line>'
        )
        if arrow:
            self._arrow_head(start, end, colour)

    def _arrow_head(
        self, start: tuple[float, float], end: tuple[float, float], colour: str
    ) -> None:
        """A small triangle a little before the middle of the second half."""
        angle = math.atan2(end[1] - start[1], end[0] - start[0])
        tip = (start[0] + 0.62 * (end[0] - start[0]), start[1] + 0.62 * (end[1] - start[1]))
        points = [tip] + [
            (tip[0] - 8 * math.cos(angle + turn), tip[1] - 8 * math.sin(angle + turn))
            for turn in (0.42, -0.42)
        ]
        text = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self._parts.append(f'<polygon points="{text}" fill="var(--{colour})"/>')

    def text(
        self, x: float, y: float, text: str, *, anchor: str = "start", style: str = "small"
    ) -> None:
        """Styles: `small` for axes and legends, `on` for text on a coloured shape."""
        self._parts.append(
            f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}" class="{style}">'
            f"{escape(text)}</text>"
        )

    def render(self, *, alone: bool = False) -> str:
        """SVG for a page, or with its own style and background to stand alone."""
        style = (
            f"<style>{STYLE}</style>"
            f'<rect width="{self.width}" height="{self.height}" fill="var(--paper)"/>'
            if alone
            else ""
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'role="img" aria-label="{escape(self._title)}">{style}'
            + "\n".join(self._parts)
            + "</svg>"
        )


def _hint(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def ticks(top: float, count: int = 4) -> list[float]:
    """Round values from 0 up to at least `top`."""
    if top <= 0:
        return [0, 1]
    rough = top / count
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    return [step * place for place in range(math.ceil(top / step - 1e-9) + 1)]


def label(value: float) -> str:
    """A number on an axis."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


def duration(milliseconds: float) -> str:
    """A time as people write it."""
    if milliseconds >= 1_000:
        return f"{milliseconds / 1_000:.3g} s"
    return f"{milliseconds:.3g} ms"


def legend(picture: Picture, x: float, y: float, entries: Sequence[tuple[str, str]]) -> None:
    """Coloured squares with their meaning, in a row."""
    for colour, text in entries:
        picture.rect(x, y - 9, 10, 10, colour)
        picture.text(x + 15, y, text)
        x += 30 + 6.2 * len(text)
