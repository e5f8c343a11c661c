"""Judges of what peers hold inside: bounded tables, merged overlays, no ghosts.

They are given plain snapshots (`PeerState`, made by `probe`) and compare them with the settings
and with who was up and subscribed according to the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from weft.ids import Topic
from weft.protocol.config import Config
from weft.sim.record import Record


@dataclass(frozen=True)
class TopicState:
    """One peer's part in a topic. Peers are named by index."""

    overlay: int
    view: tuple[int, ...] = ()
    links: tuple[int, ...] = ()
    ranked: tuple[int, ...] = ()  # StaN's view
    ranked_wanted: int = 0
    recent_events: int = 0
    recent_bytes: int = 0
    streams: int = 0
    gaps_most: int = 0  # of the publisher with the most


@dataclass(frozen=True)
class StreamState:
    """How far one peer is with a topic's events that stay."""

    waiting: int = 0  # events that lack parents
    missing: int = 0  # parents that they lack
    reading: bool = False


@dataclass(frozen=True)
class PeerState:
    peer: int
    view: tuple[int, ...] = ()
    access_points: int = 0
    pending: int = 0
    topics: Mapping[Topic, TopicState] = field(default_factory=dict)
    streams: Mapping[Topic, StreamState] = field(default_factory=dict)


# --- tables are bounded -----------------------------------------------------------------------


def check_bounds(states: Iterable[PeerState], config: Config, at_ms: int) -> list[str]:
    """No table is larger than its setting allows; no view holds its owner or anybody twice."""
    violations = []
    for state in states:
        where = f"peer {state.peer} at {at_ms} ms"
        sizes = [
            ("view", len(state.view), config.cyclon.view_size),
            ("access point table", state.access_points, config.tera.table_size),
            ("publishes in progress", state.pending, config.tera.pending_max),
        ]
        violations += _judge_view(where, state.peer, state.view, "its view")
        for topic, part in state.topics.items():
            spread = config.dissemination
            sizes += [
                (f"view of {topic}", len(part.view), config.cyclon.view_size),
                (f"links of {topic}", len(part.links), config.links.most),
                (f"ranked view of {topic}", len(part.ranked), part.ranked_wanted),
                (f"recent events of {topic}", part.recent_events, spread.recent_events_max),
                (f"recent bytes of {topic}", part.recent_bytes, spread.recent_bytes_max),
                (f"publishers of {topic}", part.streams, spread.streams_max),
                (f"gaps of {topic}", part.gaps_most, spread.gaps_max),
            ]
            violations += _judge_view(where, state.peer, part.view, f"its view of {topic}")
            violations += _judge_view(where, state.peer, part.links, f"its links of {topic}")
            violations += _judge_view(where, state.peer, part.ranked, f"its ranking in {topic}")
        for name, size, most in sizes:
            if size > most:
                violations.append(f"{where}: {name} holds {size}, more than {most}")
    return violations


def _judge_view(where: str, owner: int, view: Sequence[int], name: str) -> list[str]:
    violations = []
    if owner in view:
        violations.append(f"{where}: {name} holds the peer itself")
    if len(set(view)) != len(view):
        violations.append(f"{where}: {name} holds a peer twice")
    return violations


# --- partitions merge -------------------------------------------------------------------------


def check_general(record: Record, states: Mapping[int, PeerState], at_ms: int) -> list[str]:
    """All live peers are in one general overlay."""
    alive = [peer for peer in record.alive_at_end() if peer in states]
    edges = {peer: states[peer].view for peer in alive}
    return _judge_connected(alive, edges, "the general overlay", at_ms)


def check_merged(record: Record, states: Mapping[int, PeerState], at_ms: int) -> list[str]:
    """All live peers are in one general overlay, all live subscribers of a topic in one topic
    overlay under one id; connected means: over views and links, whatever their direction."""
    violations = check_general(record, states, at_ms)
    members: dict[Topic, list[int]] = {}
    for stay in record.unfinished_stays():
        members.setdefault(stay.topic, []).append(stay.peer)
    for topic in sorted(members):
        violations += _judge_topic(topic, sorted(members[topic]), states, at_ms)
    return violations


def _judge_topic(
    topic: Topic, members: list[int], states: Mapping[int, PeerState], at_ms: int
) -> list[str]:
    parts = {}
    violations = []
    for peer in members:
        part = states[peer].topics.get(topic)
        if part is None:
            violations.append(f"peer {peer} is subscribed to {topic} but in no overlay of it")
        else:
            parts[peer] = part
    ids: dict[int, list[int]] = {}
    for peer, part in parts.items():
        ids.setdefault(part.overlay, []).append(peer)
    if len(ids) > 1:
        groups = "; ".join(f"{overlay}: peers {peers}" for overlay, peers in sorted(ids.items()))
        violations.append(f"{topic} still has {len(ids)} overlays at {at_ms} ms: {groups}")
    edges = {peer: (*part.view, *part.links) for peer, part in parts.items()}
    return violations + _judge_connected(list(parts), edges, f"the overlay of {topic}", at_ms)


def _judge_connected(
    members: Sequence[int], edges: Mapping[int, Sequence[int]], name: str, at_ms: int
) -> list[str]:
    groups = components(members, edges)
    if len(groups) <= 1:
        return []
    return [f"{name} is in {len(groups)} pieces at {at_ms} ms: peers {groups}"]


def components(members: Sequence[int], edges: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """The connected pieces among the members, edges taken both ways; largest first."""
    inside = set(members)
    neighbours: dict[int, list[int]] = {peer: [] for peer in members}
    for peer in members:
        for other in edges[peer]:
            if other in inside:
                neighbours[peer].append(other)
                neighbours[other].append(peer)
    groups = []
    seen: set[int] = set()
    for start in members:
        if start in seen:
            continue
        group, waiting = [], [start]
        seen.add(start)
        while waiting:
            peer = waiting.pop()
            group.append(peer)
            for other in neighbours[peer]:
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        groups.append(sorted(group))
    return sorted(groups, key=lambda group: (-len(group), group))


# --- links are shared -------------------------------------------------------------------------


def check_ranked(states: Mapping[int, PeerState], at_ms: int) -> list[str]:
    """StaN's views are as large as wanted, wherever a peer knows so many members."""
    violations = []
    for peer, state in states.items():
        for topic, part in state.topics.items():
            known = len({*part.view, *part.links, *part.ranked})
            if len(part.ranked) < min(part.ranked_wanted, known):
                violations.append(
                    f"peer {peer} at {at_ms} ms ranks {len(part.ranked)} members of {topic}, "
                    f"wants {part.ranked_wanted} and knows {known}"
                )
    return violations


def view_sizes(states: Iterable[PeerState]) -> tuple[int, int]:
    """Of all peers together: logical links of StaN's views, and the physical ones they need."""
    logical = physical = 0
    for state in states:
        others = [other for part in state.topics.values() for other in part.ranked]
        logical += len(others)
        physical += len(set(others))
    return logical, physical


# --- no ghosts --------------------------------------------------------------------------------


def check_ghosts(
    record: Record, states: Mapping[int, PeerState], at_ms: int, percent_max: int
) -> list[str]:
    """Peers that are gone vanish: of all entries of all views at most so many percent name one;
    and no stable link does."""
    alive = set(record.alive_at_end())
    entries = ghosts = 0
    violations = []
    for peer in sorted(alive & states.keys()):
        state = states[peer]
        for view in (state.view, *(part.view for part in state.topics.values())):
            entries += len(view)
            ghosts += sum(other not in alive for other in view)
        for topic, part in state.topics.items():
            dead = [other for other in part.links if other not in alive]
            if dead:
                violations.append(f"peer {peer} keeps links in {topic} to {dead} at {at_ms} ms")
    if ghosts * 100 > entries * percent_max:
        violations.append(
            f"{ghosts} of {entries} view entries at {at_ms} ms name peers that are gone"
        )
    return violations
