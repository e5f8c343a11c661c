"""What a user wants to see of a peer's topics and links, ready for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from weft.ids import PeerId, Topic, peer_text
from weft.protocol.tera.topic import TopicState


def link_counts(topics: Iterable[TopicState]) -> dict[str, int]:
    """Links over all topics: logical ones, one per topic and peer (LVS), and physical ones, one
    per peer (PVS); of those that carry events, and of the views that StaN ranks."""
    states = list(topics)
    carriers = [contact.peer for state in states for contact in state.carriers]
    ranked = [peer for state in states for peer in state.stan.entries]
    return {
        "logical": len(carriers),
        "physical": len(dict.fromkeys(carriers)),
        "ranked_logical": len(ranked),
        "ranked_physical": len(dict.fromkeys(ranked)),
    }


def topics_status(topics: Mapping[Topic, TopicState]) -> dict[Topic, dict[str, object]]:
    uses = Counter(contact.peer for state in topics.values() for contact in state.carriers)
    return {topic: _topic_status(state, uses) for topic, state in topics.items()}


def _topic_status(state: TopicState, uses: Counter[PeerId]) -> dict[str, object]:
    tree_state = state.tree
    carriers = state.carriers
    return {
        "overlay": f"{state.overlay:016x}",
        "scheme": state.scheme,
        "members_estimate": state.popularity,
        "view": [peer_text(peer) for peer in state.view.peers],
        "links": [peer_text(peer) for peer in state.links.linked],
        "ranked": [peer_text(peer) for peer in state.stan.entries],
        "walks": state.stan.waiting,
        "logical_links": len(carriers),
        "shared_links": sum(uses[contact.peer] > 1 for contact in carriers),
        "eager": [peer_text(peer) for peer in tree_state.eager] if tree_state else [],
        "recent_events": len(state.recent),
        "recent_evicted": state.recent.evicted,
    }
