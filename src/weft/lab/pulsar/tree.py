"""pulsar-tree: how long after a crash does every subscriber get events again?

A tree with four rendezvous and steady publishers. Then one of these crashes, at once and for good:
the member with most children (a *parent*), the rendezvous with most children (*rendezvous*), half
of the rendezvous (*half*), or all but one of them (*all but one*). Their neighbours notice at once,
or (silent) have to find out. From then on each event is followed: the repair took until the last
event was published that some live subscriber did not get promptly.

How long that may be follows from the settings. A loss is noticed at once, or by pings: a link is
probed after so long a silence, counts as lost after so many pings without an answer, and is looked
at every `ping_timeout_ms`. Then whoever lost its parent asks those it knows above, at the worst
each of the dead first, and is sent down by full members, level by level.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.lab.pulsar.world import JOIN_CYCLES, Net
from weft.protocol.config import Config, History, Pulsar
from weft.sim.network import Conditions, Latency
from weft.sim.record import Delivery

RENDEZVOUS = 4
"""So that half of them are fewer than all but one."""
CHILDREN_MAX = 4
"""So that few peers make a tree of several levels."""
ONE_WAY_MS = 20
PUBLISHERS = 3
EVERY_MS = 250
BEFORE_EVENTS = 20
AFTER_MS = 20_000
"""guess: events are published for so much longer than the repair may take."""
PROMPT_MS = 2_000
"""guess: much more than the way through a whole tree, and less than any timeout."""
LEVELS_MAX = 8
"""measured: deeper than trees of so few peers are."""


def run(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    config = settings(params["history"])
    net = Net(seed, params["peers"], config, Conditions(latency=Latency("constant", ONE_WAY_MS)))
    members = net.draw_subscribers(params["subscribers"])
    net.subscribe(*members, since="beginning" if params["history"] else None)
    net.run_cycles(2 * JOIN_CYCLES)
    doomed = _doomed(net, params["crash"])
    lasting = [number for number in members if number not in set(doomed)]
    publishers = net.dice.some("lab.publishers", lasting, PUBLISHERS)
    net.publish_all(publishers, BEFORE_EVENTS, EVERY_MS)
    crash_ms = net.world.now_ms
    net.crash(*doomed, silent=params["silent"])
    most_ms = allowed_ms(config, params["silent"], len(doomed))
    net.publish_all(publishers, (most_ms + AFTER_MS) // EVERY_MS, EVERY_MS)
    net.run_cycles(JOIN_CYCLES)
    return {
        "crashed": len(doomed),
        **_followed(net, lasting, crash_ms),
        "repair_ms_allowed": float(most_ms),
    }


def settings(history: bool) -> Config:
    return Config(
        routing="pulsarcast",
        pulsar=Pulsar(rendezvous=RENDEZVOUS, children_max=CHILDREN_MAX),
        history=History(enabled=history),
    )


def allowed_ms(config: Config, silent: bool, crashed: int, lost_after_ms: int = 1_000) -> int:
    """The most time until everybody gets events again, by the settings."""
    links = config.links
    pinged_ms = links.ping_after_ms + links.ping_timeout_ms  # and up to one look later
    noticed_ms = pinged_ms + links.pings_unanswered_max * links.ping_timeout_ms
    asked_ms = config.pulsar.reply_timeout_ms if silent else lost_after_ms
    return (
        (noticed_ms if silent else lost_after_ms)
        + crashed * asked_ms
        + LEVELS_MAX * 2 * ONE_WAY_MS
        + EVERY_MS
    )


def _doomed(net: Net, crash: str) -> list[int]:
    """Who is to crash, those with most children first."""
    places = {number: net.branch(number) for number in range(len(net.nodes))}
    order = sorted(
        (number for number, branch in places.items() if branch is not None),
        key=lambda number: (-len(places[number].children), number),  # type: ignore[union-attr]
    )
    roots = [number for number in order if places[number].rendezvous]  # type: ignore[union-attr]
    if len(roots) != RENDEZVOUS:
        raise RuntimeError(f"the tree has {len(roots)} rendezvous in place of {RENDEZVOUS}")
    if crash == "parent":
        return [number for number in order if number not in roots][:1]
    return roots[: {"rendezvous": 1, "half": RENDEZVOUS // 2, "all but one": RENDEZVOUS - 1}[crash]]


def _followed(net: Net, members: list[int], crash_ms: int) -> dict[str, Any]:
    """What became of the events that were published after the crash."""
    record = net.world.record
    got: dict[bytes, dict[int, Delivery]] = {}
    for one in record.deliveries:
        got.setdefault(one.event.payload, {}).setdefault(one.peer, one)
    last_ms, never, late = crash_ms - EVERY_MS, 0, 0
    affected: set[int] = set()
    events = [one for one in record.publications.values() if one.at_ms >= crash_ms]
    for publication in events:
        reached = got.get(publication.payload, {})
        for number in members:
            delivery = reached.get(number)
            if delivery is None or delivery.at_ms > publication.at_ms + PROMPT_MS:
                last_ms = max(last_ms, publication.at_ms)
                affected.add(number)
                never += delivery is None
                late += delivery is not None
    return {
        "repair_ms": float(last_ms + EVERY_MS - crash_ms),
        "affected": len(affected),
        "live": len(members),
        "owed": len(events) * len(members),
        "late": late,
        "never": never,
    }
