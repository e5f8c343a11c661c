"""Takes snapshots of what peers hold: the one place in the simulator that looks inside them.

Sizes are counted afresh here rather than asked for, so that a counter that is wrong inside a peer
does not hide a table that grew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft.ids import PeerId, peer_number
from weft.protocol.history.reader import Reader
from weft.protocol.peer import Peer
from weft.protocol.tera.tera import Tera
from weft.protocol.tera.topic import TopicState as Topic
from weft.sim.checkers.state import PeerState, StreamState, TopicState
from weft.sim.world import World

IndexOf = Callable[[PeerId], int]


def states_of(world: World) -> dict[int, PeerState]:
    """Snapshots of all peers that are up, by index."""
    return {
        node.index: state_of(node.index, node.machine, world.record.index_of)
        for node in world.nodes
        if isinstance(node.machine, Peer)
    }


def state_of(index: int, peer: Peer, index_of: IndexOf = peer_number) -> PeerState:
    topics = peer.routing.topics if isinstance(peer.routing, Tera) else {}
    streams = peer.history.readers if peer.history is not None else {}
    return PeerState(
        peer=index,
        view=_indices(peer.general.peers, index_of),
        access_points=peer.routing.access_points,
        pending=peer.publishing.waiting,
        topics={topic: _topic_state(part, index_of) for topic, part in topics.items()},
        streams={topic: _stream_state(part) for topic, part in streams.items()},
    )


def _topic_state(part: Topic, index_of: IndexOf) -> TopicState:
    streams = part.recent.lives.values()
    held = [held for stream in streams for held in stream.held.values()]
    return TopicState(
        overlay=part.overlay,
        view=_indices(part.view.peers, index_of),
        links=_indices(part.links.linked, index_of),
        ranked=_indices(part.stan.entries, index_of),
        ranked_wanted=part.stan.wanted,
        recent_events=len(held),
        recent_bytes=sum(len(one.event.payload) for one in held),
        streams=len(streams),
        gaps_most=max((len(stream.above) for stream in streams), default=0),
    )


def _stream_state(part: Reader) -> StreamState:
    dag = part.stream.dag
    return StreamState(dag.waiting, len(dag.missing()), part.reading)


def _indices(peers: Iterable[PeerId], index_of: IndexOf) -> tuple[int, ...]:
    return tuple(index_of(peer) for peer in peers)
