"""pulsar-deliver: does every live subscriber end with the same whole stream, whatever is lost and
whoever crashes?

Subscribers ask for the stream from its beginning. Some of them, and one peer outside, publish in
turn. In the midst of it a share of the peers crashes for good, publishers among them, every other
one without anybody being told; then others publish on. Messages are lost from the first to
the last one. In the end everybody alive must hold whatever anybody alive holds, in one order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.ids import Cid
from weft.lab.pulsar.world import JOIN_CYCLES, Net, misplaced
from weft.protocol.config import Config, History
from weft.sim.network import Conditions, Latency

CONTACTS = 1
"""The least: who comes up knows one peer that may not be in itself yet."""
PUBLISHERS = 4
"""guess: so that events are concurrent; the last of them is not subscribed."""
EVERY_MS = 150
"""guess: shorter than an event takes to reach all over slow links."""
CALM_MS = 60_000
"""guess: without history nothing more comes after that."""
PATIENCE_MS = 300_000
"""guess: beyond the time after which a missing event is given up."""


def run(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    history = bool(params["history"])
    config = Config(routing=params["routing"], history=History(enabled=history))
    net = Net(seed, params["peers"], config, conditions(params), contacts=CONTACTS)
    members = net.draw_subscribers(params["subscribers"])
    outsiders = [number for number in range(params["peers"]) if number not in set(members)]
    net.subscribe(*members, since="beginning" if history else None)
    net.run_cycles(JOIN_CYCLES)
    count = params["events"]
    net.publish_all([*members[: PUBLISHERS - 1], *outsiders[:1]], count // 2, EVERY_MS)
    crashed = round(params["crash"] * params["peers"])
    doomed = net.dice.some("lab.crash", range(params["peers"]), crashed)
    net.crash(*doomed[::2], silent=True)
    net.crash(*doomed[1::2])
    alive = net.alive(members)
    publishers = [*alive[: PUBLISHERS - 1], *net.alive(outsiders)[:1]]
    net.publish_all(publishers, count - count // 2, EVERY_MS)
    last_ms = net.world.now_ms
    if history:
        most_ms = config.history.give_up_ms + PATIENCE_MS
        net.run_while(lambda: _somebody_lacks(net, alive), net.cycle_ms, most_ms)
    net.run(CALM_MS)
    found = _streams(net, alive) if history else _coverage(net, alive)
    return {**found, **_cost(net, alive, last_ms)}


def conditions(params: Mapping[str, Any]) -> Conditions:
    return Conditions(
        latency=Latency("around", params["latency_ms"], params["jitter_ms"]),
        loss_percent=round(100 * params["loss"]),
    )


def _somebody_lacks(net: Net, alive: list[int]) -> bool:
    expected = len(net.held(net.alive()))
    return any(len(net.stream(number)) < expected for number in alive)


def _streams(net: Net, alive: list[int]) -> dict[str, Any]:
    """What the live subscribers hold and were handed, against what any live peer holds."""
    expected = net.held(net.alive())
    streams = {number: net.stream(number) for number in alive}
    handed = {number: net.deliveries(number) for number in alive}
    wanted: set[Cid] = set(expected)
    told = sum(
        len(wanted & {one.descriptor.cid for one in some if one.descriptor is not None})
        for some in handed.values()
    )
    return {
        "kept": len(expected),
        "different": sum(stream != expected for stream in streams.values()),
        "lacking": sum(len(wanted.difference(stream)) for stream in streams.values()),
        "misplaced": sum(misplaced(some) for some in handed.values()),
        "coverage": told / (len(expected) * len(alive)),
    }


def _coverage(net: Net, alive: list[int]) -> dict[str, Any]:
    """Without history nothing stays: how much of what was published was delivered."""
    published = len(net.world.record.publications)
    told = sum(len({one.event.payload for one in net.deliveries(number)}) for number in alive)
    return {
        "kept": published,
        "different": 0,
        "lacking": 0,
        "misplaced": 0,
        "coverage": told / (published * len(alive)),
    }


def _cost(net: Net, alive: list[int], last_ms: int) -> dict[str, Any]:
    record = net.world.record
    ended_ms = max(one.at_ms for one in record.deliveries)
    return {
        "published": len(record.publications),
        "live": len(alive),
        "settled_s": max(0, ended_ms - last_ms) / 1e3,
        "messages": sum(net.world.sent.values()),
    }
