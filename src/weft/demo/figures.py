"""The pictures of a demonstration and of `weft trace`: drawn with matplotlib, written as SVG.

Shapes have plain colours, so that any program shows them; for a dark screen, `STYLE` replaces these
colours, in a page and in a picture that stands alone. A shape's hint says what the shape shows; it
is written as `<title>`, which browsers show under the pointer.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import numpy.typing as npt
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import FuncFormatter

from weft.demo.traffic import Traffic, Way
from weft.lab.processes import Status
from weft.sim.workload import Workload
from weft.trace import GROUPS

_LIGHT = {
    **{"ink": "#1c2430", "muted": "#667085", "grid": "#e4e7ec", "paper": "#fffffe"},
    **{"panel": "#f8f9fb", "blue": "#2f6fde", "amber": "#d98a1f", "grey": "#a5afbf"},
    **{"green": "#1f9d6b", "red": "#d1435b"},
}
_DARK = {
    **{"ink": "#e8ecf3", "muted": "#98a2b3", "grid": "#2b3441", "paper": "#12171f"},
    **{"panel": "#19202b", "blue": "#6ea0ff", "amber": "#f0b054", "grey": "#5d6878"},
    **{"green": "#4cc38a", "red": "#f0728a"},
}


def _variables(colours: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


def _exchanged(use: str) -> str:
    """Style rules that replace the colours of filled (or drawn) shapes on a dark screen."""
    return " ".join(
        f'[style*="{use}: {light}"] {{ {use}: {_DARK[name]} !important; }}'
        for name, light in _LIGHT.items()
    )


STYLE = (
    f":root {{ {_variables(_LIGHT)} }}\n"
    f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(_DARK)} }}\n"
    f"{_exchanged('fill')}\n{_exchanged('stroke')} }}\n"
)
"""Colours as variables for a page, and rules for pictures on a dark screen."""

_RC = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "weft",  # the same picture is the same bytes
    "figure.dpi": 72,  # so that sizes are those of the page
    "font.size": 11,
    "text.color": _LIGHT["muted"],
    "axes.edgecolor": _LIGHT["grid"],
    "axes.labelcolor": _LIGHT["muted"],
    "axes.titlecolor": _LIGHT["muted"],
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": _LIGHT["grid"],
    "xtick.color": _LIGHT["muted"],
    "ytick.color": _LIGHT["muted"],
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.handlelength": 1.0,
    "legend.handleheight": 1.0,
}
GROUP_COLOURS = {"payload": "blue", "control": "amber", "maintenance": "grey"}
BARS_MAX = 200
_HINT = "hint: "


class Picture:
    """A figure of a fixed size, with a title for users that cannot see it."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._title = title
        self.figure = Figure(figsize=(width / 72, height / 72), layout="constrained")

    def panels(self, *widths: float) -> list[Axes]:
        """Panels side by side, of these relative widths."""
        grid = self.figure.subplots(1, len(widths), width_ratios=widths, squeeze=False)
        return list(grid.flat)

    def render(self, *, alone: bool = False) -> str:
        """SVG for a page, or with its own style and background to stand alone."""
        written = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with style.context(_RC):
            self.figure.savefig(written, format="svg", transparent=True, metadata=nothing)
        text = written.getvalue()
        text = text[text.index("<svg") :].rstrip()
        text = re.sub(rf'<g id="{_HINT}(.*?)">', r"<g><title>\1</title>", text)
        head, text = text.split(">", 1)
        head = re.sub(r' (width|height)="[^"]*"', "", head)
        page = f'<rect width="100%" height="100%" style="fill: {_LIGHT["paper"]}"/>'
        own = f"<style>{STYLE}</style>{page}" if alone else ""
        return f'{head} role="img" aria-label="{escape(self._title)}">{own}{text}'


def _hint(artist: Artist, text: str) -> None:
    """Attach a text to a shape that says what it shows."""
    artist.set_gid(_HINT + text)


def duration(milliseconds: float) -> str:
    """A time as people write it."""
    if milliseconds >= 1_000:
        return f"{milliseconds / 1_000:.3g} s"
    return f"{milliseconds:.3g} ms"


def _time_axis(panel: Axes, low: int, high: int) -> None:
    """A logarithmic axis of milliseconds, from one power of ten to another."""
    panel.set_xscale("log")
    panel.set_xlim(10.0**low, 10.0**high)
    marks = [10.0**power for power in range(low, high + 1)]
    panel.set_xticks(marks, [_short(mark) for mark in marks])
    panel.minorticks_off()
    panel.tick_params("x", pad=8)  # clear of the other axis' zero


def _short(milliseconds: float) -> str:
    for unit, size in (("s", 1e3), ("ms", 1.0), ("µs", 1e-3)):
        if milliseconds >= size * 0.999:
            return f"{milliseconds / size:g} {unit}"
    return f"{milliseconds * 1e6:g} ns"


def _decades(least: float, most: float) -> tuple[int, int]:
    """The powers of ten around some times in milliseconds."""
    low = math.floor(math.log10(least))
    return low, max(low + 1, math.ceil(math.log10(most)))


def _bars(panel: Axes, title: str) -> None:
    """Give a panel with one bar for each peer its title and axes."""
    panel.set_title(title)
    panel.set_xticks([])
    panel.set_xlabel("peers, busiest first")
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.locator_params("y", nbins=5, integer=True)


# --- a demonstration ------------------------------------------------------------------------------


@style.context(_RC)
def latency(inside: Sequence[float], outside: Sequence[float]) -> Picture:
    """The latency of notifications, on a logarithmic scale: from subscribers and from others."""
    picture = Picture(480, 292, "Distribution of latency")
    every = sorted([*inside, *outside])
    if not every:
        return picture
    [panel] = picture.panels(1)
    low, high = _decades(max(every[0], 0.1), every[-1])
    edges = np.logspace(low, high, 6 * (high - low) + 1)
    kinds = (
        (inside, "blue", "subscribers", "published by a subscriber"),
        (outside, "amber", "outsiders", "published from outside the topic"),
    )
    base = np.zeros(len(edges) - 1)
    for values, colour, senders, label in kinds:
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
        bars = panel.bar(
            edges[:-1],
            counts,
            np.diff(edges) * 0.94,
            base,
            align="edge",
            color=_LIGHT[colour],
            label=label,
        )
        for bar, count, start, end in zip(bars, counts, edges[:-1], edges[1:], strict=True):
            if count:
                _hint(bar, f"{count} notifications from {senders} in {start:.2g}–{end:.2g} ms")
        base += counts
    _time_axis(panel, low, high)
    panel.set_title("notifications")
    panel.locator_params("y", nbins=5, integer=True)
    for share, name, dashes in ((0.5, "half", (4, 2)), (0.99, "99 %", (1, 1.5))):
        value = max(np.quantile(every, share, method="inverted_cdf"), edges[0])
        label = f"{name} within {duration(value)}"
        panel.axvline(value, color=_LIGHT["ink"], lw=1.2, ls=(0, dashes), label=label)
    picture.figure.legend(loc="outside lower left", ncols=2)
    return picture


@style.context(_RC)
def load(traffic: Traffic, interests: Sequence[Sequence[str]]) -> Picture:
    """Messages sent by each peer, the busiest first."""
    picture = Picture(480, 292, "Messages sent by each peer")
    [panel] = picture.panels(1)
    peers = [(number, traffic.sent[peer]) for number, peer in enumerate(traffic.peers)]
    peers.sort(key=lambda entry: -entry[1].total())
    base = np.zeros(len(peers))
    for group in GROUPS:
        heights = [sent[group] for _, sent in peers]
        colour = _LIGHT[GROUP_COLOURS[group]]
        bars = panel.bar(range(len(peers)), heights, 0.84, base, color=colour, label=group)
        for bar, (number, sent) in zip(bars, peers, strict=True):
            topics = len(interests[number])
            _hint(bar, f"peer {number}, in {topics} topics: {sent[group]} {group}")
        base += heights
    _bars(panel, "messages sent")
    picture.figure.legend(loc="outside lower left", ncols=len(GROUPS))
    return picture


@style.context(_RC)
def interests(workload: Workload) -> Picture:
    """A dot for every subscription, topics by popularity; events per topic on the right."""
    subscribers = workload.subscribers()
    topics = sorted(subscribers, key=lambda topic: (-len(subscribers[topic]), topic))
    events = Counter(publication.topic for publication in workload.publications)
    peers = len(workload.interests)
    picture = Picture(480, 80 + 19 * len(topics), "Subscriptions of peers to topics")
    dots, counts = picture.panels(3.4, 1)
    order = sorted(range(peers), key=lambda peer: _home(workload, peer))
    column = {peer: place for place, peer in enumerate(order)}
    size = min(10.0, 280 / peers)
    for row, topic in enumerate(topics):
        for peer in subscribers[topic]:
            [dot] = dots.plot(column[peer], row, "o", ms=size, mew=0, color=_LIGHT["blue"])
            _hint(dot, f"peer {peer} is subscribed to {topic}")
        [bar] = counts.barh(row, events[topic], 0.62, color=_LIGHT["amber"])
        _hint(bar, f"{events[topic]} events on {topic}")
        counts.annotate(
            str(events[topic]),
            (events[topic], row),
            (4, 0),
            textcoords="offset points",
            va="center",
        )
    for panel in (dots, counts):
        panel.set_ylim(len(topics) - 0.4, -0.6)
        panel.set_xticks([])
        panel.spines["bottom"].set_visible(False)
    dots.set_yticks(range(len(topics)), topics)
    dots.set_xlim(-0.6, peers - 0.4)
    dots.set_title("subscribers (a dot for each peer)")
    dots.set_xlabel("peers, ordered by what they are interested in")
    counts.set_yticks([])
    counts.set_xlim(0, 1.45 * max(events.values(), default=1))
    counts.set_title("events published")
    return picture


def _home(workload: Workload, peer: int) -> float:
    """The angle of a peer's interests, if topics stand on a circle."""
    places = [workload.topics.index(topic) for topic in workload.interests[peer]]
    angles = [2 * math.pi * place / len(workload.topics) for place in places]
    return math.atan2(sum(map(math.sin, angles)), sum(map(math.cos, angles)))


@style.context(_RC)
def overlay(status: Mapping[int, Status], way: Way | None) -> Picture:
    """All peers, the links between them, and the way of one event."""
    picture = Picture(760, 520, "The peers, their links, and the way of one event")
    [panel] = picture.panels(1)
    panel.axis("off")
    panel.set_xlim(-0.04, 1.04)
    panel.set_ylim(1.05, -0.05)
    links = links_of(status)
    scale = min(1.0, 6 / math.sqrt(len(status)))  # many peers are drawn smaller, without numbers
    points = [(float(x), float(y)) for x, y in places_of(len(status), links)]
    sizes = [
        2 * scale * (7 + 1.6 * math.sqrt(len(status[index]["topics"])))
        for index in range(len(status))
    ]
    for (one, other), topics in sorted(links.items(), key=lambda entry: entry[1]):
        ends = zip(points[one], points[other], strict=True)
        width = scale * (0.6 + 0.8 * topics)
        [line] = panel.plot(*ends, color=_LIGHT["grey"], lw=width, alpha=0.3, zorder=1)
        _hint(line, f"peers {one} and {other} are linked in {topics} topics")
    if way is not None:
        for start, end in way.edges:
            from_outside = start == way.publisher and start not in way.reached
            radii = (sizes[start] / 2, sizes[end] / 2)
            _arrow(panel, points[start], points[end], "--" if from_outside else "-", radii)
    for index, (x, y) in enumerate(points):
        topics = len(status[index]["topics"])
        colour = "grey"
        if way is not None and index in way.reached:
            colour = "blue"
        if way is not None and index == way.publisher:
            colour = "amber"
        size = sizes[index]
        edge: float = min(1.5, size / 8)
        [dot] = panel.plot(
            x, y, "o", ms=size, color=_LIGHT[colour], mec=_LIGHT["paper"], mew=edge, zorder=3
        )
        _hint(dot, f"peer {index}, subscribed to {topics} topics")
        if scale == 1:
            text = panel.text(x, y, str(index), color=_LIGHT["paper"], ha="center", zorder=4)
            text.set(va="center_baseline", weight="bold")
    if way is not None:
        members = sum(way.topic in peer["topics"] for peer in status.values())
        entries = {
            "amber": f"published an event on {way.topic}",
            "blue": f"subscribers: {len(way.reached)} of {members} got it",
            "grey": "not subscribed: not involved",
        }
        for colour, label in entries.items():
            panel.plot([], [], "o", ms=10, mew=0, color=_LIGHT[colour], label=label)
        picture.figure.legend(loc="outside lower left", ncols=3)
    return picture


def _arrow(
    panel: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    line: str,
    radii: tuple[float, float],
) -> None:
    """A bent arrow from the edge of one dot to the edge of another. Straight ones hide behind dots
    on their way, and behind each other."""
    panel.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            connectionstyle="arc3,rad=0.16",
            linestyle=line,
            linewidth=2.2,
            mutation_scale=16,
            shrinkA=radii[0],
            shrinkB=radii[1] + 1,
            color=_LIGHT["blue"],
            zorder=2,
        )
    )


def links_of(status: Mapping[int, Status]) -> dict[tuple[int, int], int]:
    """In how many topics each pair of peers is linked."""
    numbers = {peer["peer"]: index for index, peer in status.items()}
    shared: dict[tuple[int, int], set[str]] = {}
    for index, peer in status.items():
        for topic, state in peer["topics"].items():
            for linked in state["links"]:
                if linked in numbers:
                    other = numbers[linked]
                    pair = (min(index, other), max(index, other))
                    shared.setdefault(pair, set()).add(topic)
    return {pair: len(topics) for pair, topics in sorted(shared.items())}


def places_of(count: int, links: Mapping[tuple[int, int], int]) -> npt.NDArray[np.float64]:
    """Points within the unit square for peers 0 … count−1, those with links close (Fruchterman and
    Reingold 1991): peers repel each other, links pull by their weight, and the whole cools down.
    Starts from a circle, so the same network always looks the same."""
    rounds, gravity, ideal = 300, 2.0, 2 / math.sqrt(count)
    angles = 2 * math.pi * np.arange(count) / count
    points = np.column_stack([np.cos(angles), np.sin(angles)])
    pull = np.zeros((count, count))
    for (one, other), weight in links.items():
        pull[one, other] = pull[other, one] = min(2.0, 0.6 + 0.2 * weight)
    for turn in range(rounds):
        apart = points[:, None] - points[None, :]
        square = np.maximum((apart**2).sum(axis=2), 1e-6)
        force = ideal**2 / square - pull * np.sqrt(square) / ideal
        push = (apart * force[..., None]).sum(axis=1) - gravity * points
        length = np.maximum(np.hypot(push[:, 0], push[:, 1]), 1e-12)
        points += push * (np.minimum(length, 0.2 * (1 - turn / rounds)) / length)[:, None]
    points -= points.min(axis=0)
    most = points.max(axis=0)
    return np.asarray(points / np.where(most > 0, most, 1.0))


# --- what the pipeline measured -------------------------------------------------------------------


@style.context(_RC)
def within(counts: Mapping[int, int]) -> Picture:
    """The share of deliveries within each time, on a logarithmic scale; `counts`: how many took
    how many ns."""
    picture = Picture(480, 280, "Share of deliveries within a time")
    total = sum(counts.values())
    if not total:
        return picture
    [panel] = picture.panels(1)
    times = sorted(counts)
    shares = 100 * np.cumsum([counts[time] for time in times]) / total
    low, high = _decades(max(times[0], 1) / 1e6, max(times[-1], 1) / 1e6)
    _time_axis(panel, low, high)
    shown = [10.0**low, *(max(time / 1e6, 10.0**low) for time in times)]
    panel.step(shown, [0, *shares], where="post", color=_LIGHT["blue"], lw=2)
    panel.set_ylim(0, 102)
    panel.set_yticks([0, 25, 50, 75, 100], [f"{share} %" for share in (0, 25, 50, 75, 100)])
    panel.set_title("deliveries within a time")
    return picture


@style.context(_RC)
def handled(loads: Sequence[int]) -> Picture:
    """Messages that each peer sent and received, the busiest first; at most some hundred bars."""
    picture = Picture(480, 280, "Messages handled by each peer")
    [panel] = picture.panels(1)
    shown = sorted(loads, reverse=True)[:: max(1, math.ceil(len(loads) / BARS_MAX))]
    panel.bar(range(len(shown)), shown, 0.8, color=_LIGHT["blue"])
    _bars(panel, "messages sent or received")
    return picture
