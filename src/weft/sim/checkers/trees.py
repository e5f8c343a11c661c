"""Judge of Pulsarcast's trees: every topic with subscribers has its roots, and all of its
subscribers are below these roots. At no time is a topic without any root.

It knows all live peers and their places, which no peer does. A healed network must get the roots
that the rules name (`rules/multicast.py`): the peers closest to the topic's id, each joined to the
others. The subscribers are those of the record, not of the machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from weft.ids import PeerId, Topic
from weft.protocol.config import Config
from weft.protocol.peer import Peer
from weft.protocol.pulsar.branch import Branch
from weft.protocol.pulsar.pulsar import Pulsar
from weft.rules.multicast import tree_location
from weft.rules.prefix import closest, location_of
from weft.sim.world import World


@dataclass(frozen=True)
class Spot:
    """One live peer's place in one tree, as it sees it itself. Peers are named by index."""

    root: bool = False
    parent: int | None = None
    children: tuple[int, ...] = ()
    fellows: tuple[int, ...] = ()  # other roots that it is joined to


# --- snapshots --------------------------------------------------------------------------------


def spots_of(world: World) -> dict[Topic, dict[int, Spot]]:
    """The places of all live peers that route by trees, by topic and peer."""
    found: dict[Topic, dict[int, Spot]] = {}
    for node in world.nodes:
        routing = node.machine.routing if isinstance(node.machine, Peer) else None
        if isinstance(routing, Pulsar):
            for topic, branch in routing.trees.by_topic.items():
                found.setdefault(topic, {})[node.index] = _spot(branch, world.record.peers)
    return found


def _spot(branch: Branch, index_of: Mapping[PeerId, int]) -> Spot:
    return Spot(
        branch.rendezvous,
        index_of[branch.parent.peer] if branch.parent is not None else None,
        tuple(index_of[peer] for peer in branch.children),
        tuple(index_of[peer] for peer in branch.fellows),
    )


# --- judging ----------------------------------------------------------------------------------


def check_tree(
    topic: Topic, spots: Mapping[int, Spot], members: Iterable[int], nearest: Iterable[int]
) -> list[str]:
    """One topic: `members` are the live peers that want it, `nearest` the live peers that its roots
    should be."""
    roots = sorted(peer for peer, spot in spots.items() if spot.root)
    if not roots:
        return [f"{topic} has subscribers and no root"]
    violations = []
    if roots != sorted(nearest):
        violations.append(f"{topic} has the roots {roots}, not the closest peers {sorted(nearest)}")
    for peer in roots:
        lacking = sorted({*roots} - {peer, *spots[peer].fellows})
        if lacking:
            violations.append(f"{topic}: root {peer} is not joined to {lacking}")
    for peer in sorted(members):
        problem = _climb(peer, spots)
        if problem:
            violations.append(f"{topic}: subscriber {peer} {problem}")
    return violations


def _climb(peer: int, spots: Mapping[int, Spot]) -> str:
    """A text about the way up from a member if it does not lead to a root, else an empty one."""
    seen = [peer]
    while True:
        spot = spots.get(seen[-1])
        if spot is None:
            return f"has the way up {seen}, which ends outside of the tree"
        if spot.root:
            return ""
        if spot.parent is None:
            return f"has the way up {seen}, which ends without a root"
        if spot.parent in seen:
            return f"has the way up {seen}, a circle"
        above = spots.get(spot.parent)
        if above is not None and seen[-1] not in above.children:
            return f"has the way up {seen}, whose end is no child of {spot.parent}"
        seen.append(spot.parent)


def check_world(world: World, config: Config) -> list[str]:
    """Judge the trees of all topics that have subscribers in the end."""
    spots = spots_of(world)
    live = {location_of(node.contact.peer): node.index for node in world.nodes if node.machine}
    violations = []
    for topic, stays in sorted(world.record.lasting_stays().items()):
        at = closest(tree_location(topic), live, config.pulsar.rendezvous)
        nearest = [live[location] for location in at]
        members = [stay.peer for stay in stays]
        violations += check_tree(topic, spots.get(topic, {}), members, nearest)
    return violations


def check_rooted(world: World, before_ms: int) -> list[str]:
    """The topics that have had a subscriber since `before_ms` and have no root now: a root steps
    down when another has taken over, and not before."""
    stays = [stay for stay in world.record.unfinished_stays() if stay.start_ms <= before_ms]
    topics = {stay.topic for stay in stays if world.nodes[stay.peer].machine is not None}
    trees = spots_of(world).items()
    rooted = {topic for topic, spots in trees if any(spot.root for spot in spots.values())}
    return [
        f"{topic} has had subscribers since {before_ms} ms and has no root at {world.now_ms} ms"
        for topic in sorted(topics - rooted)
    ]
