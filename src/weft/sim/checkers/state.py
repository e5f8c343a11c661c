"""Judges of the state inside peers: bounded tables, merged overlays, no ghosts (entries of peers
that are gone).

They compare plain snapshots (`PeerState`) with the settings and with the peers that were up and
subscribed according to the record. `states_of` takes the snapshots: it looks inside the machines
and counts sizes itself, so that a wrong counter inside a peer does not hide a table that grew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from weft.ids import PeerId, Topic
from weft.protocol.config import Config
from weft.protocol.history.reader import Reader
from weft.protocol.peer import Peer
from weft.protocol.tera.tera import Tera
from weft.protocol.tera.topic import TopicState as OverlayPart
from weft.rules.capacity import links_most
from weft.sim.record import Record
from weft.sim.world import World

IndexOf: TypeAlias = Callable[[PeerId], int]


@dataclass(frozen=True)
class TopicState:
    """One peer's part in a topic. Other peers are named by index."""

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
    """How far one peer is with a topic's stream."""

    waiting: int = 0  # events that lack parents
    missing: int = 0  # parents that they lack
    reading: bool = False
    publishers: tuple[int, ...] = ()  # whose events wait


@dataclass(frozen=True)
class PeerState:
    peer: int
    view: tuple[int, ...] = ()
    access_points: int = 0
    pending: int = 0
    topics: Mapping[Topic, TopicState] = field(default_factory=dict)
    streams: Mapping[Topic, StreamState] = field(default_factory=dict)


# --- snapshots --------------------------------------------------------------------------------


def states_of(world: World) -> dict[int, PeerState]:
    """Snapshots of all peers that are up, by index."""
    return {
        node.index: _state_of(node.index, node.machine, world.record.index_of)
        for node in world.nodes
        if isinstance(node.machine, Peer)
    }


def _state_of(index: int, peer: Peer, index_of: IndexOf) -> PeerState:
    topics = peer.routing.topics if isinstance(peer.routing, Tera) else {}
    streams = peer.history.readers if peer.history is not None else {}
    return PeerState(
        peer=index,
        view=_indices(peer.general.peers, index_of),
        access_points=peer.routing.access_points,
        pending=peer.publishing.waiting,
        topics={topic: _topic_state(part, index_of) for topic, part in topics.items()},
        streams={topic: _stream_state(part, index_of) for topic, part in streams.items()},
    )


def _topic_state(part: OverlayPart, index_of: IndexOf) -> TopicState:
    streams = part.recent.lives.values()
    held = [held for stream in streams for held in stream.held.values()]
    return TopicState(
        overlay=part.overlay,
        view=_indices(part.view.peers, index_of),
        links=_indices(part.links.linked, index_of),
        ranked=_indices(part.stan.entries, index_of),
        ranked_wanted=part.stan.wanted,
        recent_events=sum(len(one.run.payloads) for one in held),
        recent_bytes=sum(one.run.size for one in held),
        streams=len(streams),
        gaps_most=max((len(stream.above) for stream in streams), default=0),
    )


def _stream_state(part: Reader, index_of: IndexOf) -> StreamState:
    dag = part.stream.dag
    publishers = tuple(sorted(_indices(dag.room.publishers(), index_of)))
    return StreamState(dag.waiting, len(dag.missing()), part.reading, publishers)


def _indices(peers: Iterable[PeerId], index_of: IndexOf) -> tuple[int, ...]:
    return tuple(index_of(peer) for peer in peers)


# --- tables are bounded -----------------------------------------------------------------------


def check_bounds(states: Iterable[PeerState], config: Config, at_ms: int) -> list[str]:
    """No table is larger than its setting allows; no view holds its owner or a peer twice."""
    violations = []
    most_links = links_most(config.links.most, config.links.wanted, config.capacity)
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
                (f"links of {topic}", len(part.links), most_links),
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


def check_merged(
    record: Record, states: Mapping[int, PeerState], at_ms: int, one_id: bool = True
) -> list[str]:
    """All live peers are in one general overlay, all live subscribers of a topic in one topic
    overlay under one id. Connected means: over views and links, taken in both directions. Without
    `one_id`, for runs with hostile peers, ids are not compared: liars make new ids at any time,
    which take a cycle to spread."""
    violations = check_general(record, states, at_ms)
    for topic, stays in sorted(record.lasting_stays().items()):
        members = sorted(stay.peer for stay in stays)
        violations += _judge_topic(topic, members, states, at_ms, one_id)
    return violations


def _judge_topic(
    topic: Topic, members: list[int], states: Mapping[int, PeerState], at_ms: int, one_id: bool
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
    if one_id and len(ids) > 1:
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


# --- no ghosts --------------------------------------------------------------------------------


def check_ghosts(
    record: Record, states: Mapping[int, PeerState], at_ms: int, percent_max: int
) -> list[str]:
    """Peers that are gone vanish: at most `percent_max` percent of all entries of all views name
    one, and no link goes to one."""
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
