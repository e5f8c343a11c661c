"""pulsar-flood: what does a notification cost over a tree, and over the naive flood?

Everybody has joined and settled. Then some peers, subscribed or not, publish at a slow pace, and
what is sent meanwhile is counted and weighed by kind: events on their way (*payload*), what keeps
the tree up (*upkeep*: beats, syncs, joins, pings), and the messages of the *DHT*, which the tree
needs, once for all topics. Exchanges of views keep the general overlay up under every routing and
are left out. Of the flood only events are counted: that subscribers make themselves known there is
an addition of ours (`protocol/flood.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from weft.lab.pulsar.world import JOIN_CYCLES, Net, Weighing
from weft.protocol.config import Config
from weft.protocol.kademlia import rpc
from weft.protocol.liveness import LinkList, Ping, Pong
from weft.protocol.publishing import RouteEvent, RouteResult
from weft.protocol.pulsar.attachment import TreeJoin, TreeJoinReply
from weft.protocol.pulsar.branch import RendezvousSync, TreeFamily, TreeLeave
from weft.protocol.wire import Payload
from weft.sim.network import Conditions, Network

SETTLE_CYCLES = 20
"""guess: tables of the DHT are young and looked after often before."""
MEASURED_CYCLES = 20
PUBLISHERS = 8
PAYLOAD = (Payload, RouteEvent, RouteResult)
UPKEEP = (
    Ping,
    Pong,
    LinkList,
    TreeJoin,
    TreeJoinReply,
    TreeFamily,
    TreeLeave,
    RendezvousSync,
)
DHT = (rpc.FindRequest, rpc.FindReply)


def run(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    config = Config(routing=params["routing"])
    world = Weighing(Network(seed, Conditions()))
    net = Net(seed, params["peers"], config, world=world)
    members = net.draw_subscribers(max(2, round(params["share"] * params["peers"])))
    net.subscribe(members)
    net.run_cycles(JOIN_CYCLES + SETTLE_CYCLES)
    sent, weighed, told = Counter(world.sent), Counter(world.bytes_sent), len(_notes(net))
    publishers = net.dice.some("lab.publishers", range(params["peers"]), PUBLISHERS)
    every_ms = MEASURED_CYCLES * net.cycle_ms // params["events"]
    net.publish_all(publishers, params["events"], every_ms)
    sent, weighed = Counter(world.sent) - sent, world.bytes_sent - weighed
    inside = {*members, *(n for n in range(params["peers"]) if _is_root(net, n))}
    return {
        "subscribed": len(members),
        "in_tree": len(inside),
        "outside": sum(
            publishers[number % PUBLISHERS] not in inside for number in range(params["events"])
        ),
        "notifications": len(_notes(net)) - told,
        "owed": params["events"] * len(members),
        "payload_messages": _sum(sent, PAYLOAD),
        "payload_bytes": _sum(weighed, PAYLOAD),
        "upkeep_messages": _sum(sent, UPKEEP),
        "upkeep_bytes": _sum(weighed, UPKEEP),
        "dht_messages": _sum(sent, DHT),
        "dht_bytes": _sum(weighed, DHT),
        "cycles": MEASURED_CYCLES,
    }


def _notes(net: Net) -> list[Any]:
    return net.world.record.deliveries


def _is_root(net: Net, number: int) -> bool:
    branch = net.branch(number)
    return branch is not None and branch.rendezvous


def _sum(counts: Mapping[type, int], kinds: tuple[type, ...]) -> int:
    return sum(counts[kind] for kind in kinds)
