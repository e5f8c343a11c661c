"""The pictures of the report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.demo.layout import place
from weft.demo.svg import Picture, duration, label, legend, ticks
from weft.demo.traffic import Step, Traffic
from weft.sim.workload import Workload
from weft.trace import GROUPS

COLOURS = {"payload": "blue", "control": "amber", "maintenance": "grey"}


def _axis(picture: Picture, top: float, box: tuple[float, float, float, float], unit: str) -> float:
    """Horizontal grid lines with their values; returns the value at the top."""
    left, upper, right, lower = box
    marks = ticks(top)
    for value in marks:
        y = lower - (lower - upper) * value / marks[-1]
        picture.line((left, y), (right, y), "grid")
        picture.text(left - 6, y + 4, label(value), anchor="end")
    picture.text(left, upper - 26, unit)
    return marks[-1]


# --- latency ----------------------------------------------------------------------------------


def latency(inside: Sequence[float], outside: Sequence[float]) -> Picture:
    """How long notifications took, on a logarithmic scale: from subscribers and from others."""
    picture = Picture(480, 292, "Distribution of latency")
    left, upper, right, lower = box = (44.0, 48.0, 466.0, 236.0)
    every = sorted([*inside, *outside])
    if not every:
        return picture
    per_decade = 6
    low = math.floor(math.log10(max(every[0], 0.1)))
    high = max(low + 1, math.ceil(math.log10(every[-1])))
    bins = (high - low) * per_decade

    def place_of(value: float) -> float:
        return (math.log10(max(value, 10**low)) - low) / (high - low)

    counts = [
        Counter(min(bins - 1, int(place_of(value) * bins)) for value in values)
        for values in (inside, outside)
    ]
    top = _axis(picture, max((counts[0] + counts[1]).values()), box, "notifications")
    width = (right - left) / bins
    for bar in range(bins):
        base = lower
        span = "–".join(f"{10 ** (low + edge / per_decade):.2g}" for edge in (bar, bar + 1))
        for count, colour, who in zip(
            counts, ("blue", "amber"), ("subscribers", "outsiders"), strict=True
        ):
            height = (lower - upper) * count[bar] / top
            if count[bar]:
                hint = f"{count[bar]} notifications from {who} in {span} ms"
                picture.rect(left + bar * width + 1, base - height, width - 2, height, colour, hint)
            base -= height
    for decade in range(low, high + 1):
        x = left + (right - left) * (decade - low) / (high - low)
        text = f"{10**decade:g} ms" if decade < 3 else f"{10 ** (decade - 3):g} s"
        anchor = {low: "start", high: "end"}.get(decade, "middle")
        picture.text(x, lower + 18, text, anchor=anchor)
    for share, name, rise in ((0.5, "half", 2), (0.99, "99 %", 14)):
        value = every[max(0, math.ceil(len(every) * share) - 1)]
        x = left + (right - left) * place_of(value)
        picture.line((x, upper - rise), (x, lower), "ink", dashes="3 3", opacity=0.6)
        late = x > (left + 2 * right) / 3
        text = f"{name} within {duration(value)}"
        picture.text(
            x + (-4 if late else 4), upper - rise + 5, text, anchor="end" if late else "start"
        )
    legend(
        picture,
        left,
        lower + 42,
        [("blue", "published by a subscriber"), ("amber", "published from outside the topic")],
    )
    return picture


# --- load -------------------------------------------------------------------------------------


def load(traffic: Traffic, interests: Sequence[Sequence[str]]) -> Picture:
    """Messages sent by each peer, the busiest first."""
    picture = Picture(480, 292, "Messages sent by each peer")
    left, upper, right, lower = box = (44.0, 48.0, 466.0, 236.0)
    peers = [(number, traffic.sent[peer]) for number, peer in enumerate(traffic.peers)]
    peers.sort(key=lambda entry: -entry[1].total())
    top = _axis(picture, max((sent.total() for _, sent in peers), default=0), box, "messages sent")
    width = (right - left) / max(1, len(peers))
    for place_number, (number, sent) in enumerate(peers):
        base = lower
        for group in GROUPS:
            height = (lower - upper) * sent[group] / top
            hint = f"peer {number}, in {len(interests[number])} topics: {sent[group]} {group}"
            picture.rect(
                left + place_number * width + 1,
                base - height,
                width - 2,
                height,
                COLOURS[group],
                hint,
            )
            base -= height
    picture.text((left + right) / 2, lower + 18, "peers, busiest first", anchor="middle")
    legend(picture, left, lower + 42, [(COLOURS[group], group) for group in GROUPS])
    return picture


# --- who is interested in what ----------------------------------------------------------------


def interests(workload: Workload) -> Picture:
    """A dot for every subscription, topics by popularity; events per topic at the right."""
    subscribers = workload.subscribers()
    topics = sorted(subscribers, key=lambda topic: (-len(subscribers[topic]), topic))
    events = Counter(publication.topic for publication in workload.publications)
    row = 19
    peers = len(workload.interests)
    left, upper, right = 72.0, 40.0, 366.0
    picture = Picture(480, int(upper + row * len(topics) + 40), "Who is subscribed to what")
    picture.text(left, upper - 22, "subscribers (a dot for each peer)")
    picture.text(right + 14, upper - 22, "events published")
    step = (right - left) / peers
    most = max(events.values(), default=1)
    order = sorted(range(peers), key=lambda peer: _home(workload, peer))
    column = {peer: place_number for place_number, peer in enumerate(order)}
    for line, topic in enumerate(topics):
        y = upper + row * line
        picture.line((left, y), (right, y), "grid")
        picture.text(left - 8, y + 4, topic, anchor="end")
        for peer in subscribers[topic]:
            x = left + step * (column[peer] + 0.5)
            picture.circle(x, y, min(5, step / 2), "blue", f"peer {peer} is subscribed to {topic}")
        bar = 64 * events[topic] / most
        hint = f"{events[topic]} events on {topic}"
        picture.rect(right + 14, y - 6, max(1.0, bar), 12, "amber", hint)
        picture.text(right + 20 + bar, y + 4, str(events[topic]))
    bottom = upper + row * len(topics) + 12
    note = "peers, ordered by what they are interested in"
    picture.text((left + right) / 2, bottom, note, anchor="middle")
    return picture


def _home(workload: Workload, peer: int) -> float:
    """Where on the circle of topics a peer's interests lie."""
    places = [workload.topics.index(topic) for topic in workload.interests[peer]]
    angles = [2 * math.pi * place_number / len(workload.topics) for place_number in places]
    return math.atan2(sum(map(math.sin, angles)), sum(map(math.cos, angles)))


# --- the overlay and the way of one event -----------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How one event travelled: `edges` of (from, to), by peer number."""

    topic: str
    publisher: int
    edges: tuple[tuple[int, int], ...]
    reached: frozenset[int]
    took_ms: float


def way_of(traffic: Traffic) -> Way | None:
    """The way of the event that reached most peers: rather one whose whole way is known (what is
    repaired later comes from nobody in particular), rather from outside, rather a late one."""
    numbers = {peer: number for number, peer in enumerate(traffic.peers)}

    def interest(entry: tuple[str, list[Step]]) -> tuple[int, int, bool, int]:
        message, steps = entry
        members = {step.peer for step in steps}
        pushed = sum(step.source != step.peer for step in steps)
        outside = traffic.publishers[message] not in members
        return len(members), pushed, outside, steps[0].timestamp_ns

    known = [entry for entry in traffic.steps.items() if entry[0] in traffic.publishers]
    if not known:
        return None
    message, steps = max(known, key=interest)
    publisher = numbers[traffic.publishers[message]]
    edges = []
    for step in steps:
        if step.source != step.peer:
            edges.append((numbers[step.source], numbers[step.peer]))
        elif step.hops == 1:  # routed from outside to an access point
            edges.append((publisher, numbers[step.peer]))
    times = [step.timestamp_ns for step in steps]
    return Way(
        topic=message.partition("@")[2],
        publisher=publisher,
        edges=tuple(edges),
        reached=frozenset(numbers[step.peer] for step in steps),
        took_ms=(max(times) - min(times)) / 1e6,
    )


def overlay(status: Mapping[int, dict[str, Any]], way: Way | None) -> Picture:
    """All peers and the links between them, and the way one event took."""
    picture = Picture(760, 520, "The peers, their links, and the way of one event")
    links = _links(status)
    scale = min(1.0, 6 / math.sqrt(len(status)))  # many peers are drawn smaller, without numbers
    points = [(60 + 640 * x, 60 + 390 * y) for x, y in place(len(status), links)]
    for (one, other), topics in sorted(links.items(), key=lambda entry: entry[1]):
        hint = f"peers {one} and {other} are linked in {topics} topics"
        picture.line(
            points[one],
            points[other],
            "grey",
            width=scale * (0.6 + 0.8 * topics),
            opacity=0.45,
            hint=hint,
        )
    if way is not None:
        for start, end in way.edges:
            outside = start == way.publisher and start not in way.reached
            dashes = "5 4" if outside else ""
            picture.line(points[start], points[end], "blue", width=2.4, dashes=dashes, arrow=True)
    for index, (x, y) in enumerate(points):
        topics = len(status[index]["topics"])
        colour = "grey"
        if way is not None and index in way.reached:
            colour = "blue"
        if way is not None and index == way.publisher:
            colour = "amber"
        hint = f"peer {index}, subscribed to {topics} topics"
        picture.circle(x, y, scale * (7 + 1.6 * math.sqrt(topics)), colour, hint)
        if scale == 1:
            picture.text(x, y + 4, str(index), anchor="middle", style="on")
    if way is not None:
        members = sum(way.topic in peer["topics"] for peer in status.values())
        entries = [
            ("amber", f"published an event on {way.topic}"),
            ("blue", f"subscribers: {len(way.reached)} of {members} got it"),
            ("grey", "not subscribed: not involved"),
        ]
        legend(picture, 20, 504, entries)
    return picture


def _links(status: Mapping[int, dict[str, Any]]) -> dict[tuple[int, int], int]:
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
