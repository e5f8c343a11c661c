"""What a user wants to see of a peer's trees, ready for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from weft.ids import PeerId, Topic, peer_text
from weft.protocol.pulsar.branch import Branch


def trees_status(trees: Iterable[Branch]) -> dict[Topic, dict[str, object]]:
    """Every tree that this peer is in, as a subscriber or as a root for others."""
    branches = list(trees)
    uses = Counter(peer for branch in branches for peer in branch.links())
    return {branch.topic: _status(branch, uses) for branch in branches}


def link_counts(trees: Iterable[Branch]) -> dict[str, int]:
    """Links over all trees: one per tree and peer, and one per peer."""
    linked = [peer for branch in trees for peer in branch.links()]
    return {
        "logical": len(linked),
        "physical": len(dict.fromkeys(linked)),
        "ranked_logical": 0,
        "ranked_physical": 0,
    }


def _status(branch: Branch, uses: Counter[PeerId]) -> dict[str, object]:
    parent, links = branch.parent, branch.links()
    return {
        "scheme": "pulsarcast",
        "members_estimate": None,
        "logical_links": len(links),
        "shared_links": sum(uses[peer] > 1 for peer in links),
        "subscribed": branch.subscribed,
        "rendezvous": branch.rendezvous,
        "parent": peer_text(parent.peer) if parent is not None else "",
        "depth": 0 if branch.rendezvous else 1 + len(branch.path),
        "children": [peer_text(peer) for peer in branch.children],
        "fellows": [peer_text(peer) for peer in branch.fellows],
        "recent_events": len(branch.recent),
    }
