"""pulsar-flood: what does a notification cost over a tree, and over the naive flood?

Everybody has joined and settled. Then some peers, subscribed or not, publish at a slow pace, and
what is sent meanwhile is counted and weighed by kind: events on their way (*payload*), what keeps
the tree up (*upkeep*: beats, syncs, joins, pings), and the messages of the *DHT*, which the tree
needs, once for all topics. Exchanges of views keep the general overlay up under every routing and
are left out. Of the flood only events are counted: that subscribers make themselves known there is
an addition of ours (`protocol/flooding.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from weft.ids import Contact
from weft.lab.pulsar.world import JOIN_CYCLES, Net
from weft.net import codec
from weft.protocol import messages_dht, messages_pulsar
from weft.protocol.config import Config
from weft.protocol.liveness import Ping, Pong
from weft.protocol.publishing import RouteEvent, RouteResult
from weft.protocol.tera.links import LinkList
from weft.protocol.wire import Message, Payload
from weft.sim.node import Node
from weft.sim.world import Observer

SETTLE_CYCLES = 20
"""guess: tables of the DHT are young and looked after often before."""
MEASURED_CYCLES = 20
PUBLISHERS = 8
PAYLOAD = (Payload, RouteEvent, RouteResult)
UPKEEP = (
    Ping,
    Pong,
    LinkList,
    messages_pulsar.TreeJoin,
    messages_pulsar.TreeJoinReply,
    messages_pulsar.TreeFamily,
    messages_pulsar.TreeLeave,
    messages_pulsar.RendezvousSync,
)
DHT = (messages_dht.FindRequest, messages_dht.FindReply)


class Scales(Observer):
    """Counts the bytes of what is sent, by kind, as they would lie on the wire."""

    def __init__(self) -> None:
        self.bytes_sent: Counter[type] = Counter()

    def sent(
        self, now_ms: int, sender: Node, to: Contact, receiver: Node | None, message: Message
    ) -> None:
        self.bytes_sent[type(message)] += len(codec.encode(message))


def run(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    config = Config(routing=params["routing"])
    scales = Scales()
    net = Net(seed, params["peers"], config, observers=[scales])
    members = net.draw_subscribers(max(2, round(params["share"] * params["peers"])))
    net.subscribe(*members)
    net.run_cycles(JOIN_CYCLES + SETTLE_CYCLES)
    record, kinds = net.world.record, net.world.sent
    sent, weighed, told = Counter(kinds), Counter(scales.bytes_sent), len(record.deliveries)
    publishers = net.dice.some("lab.publishers", range(params["peers"]), PUBLISHERS)
    every_ms = MEASURED_CYCLES * net.cycle_ms // params["events"]
    net.publish_all(publishers, params["events"], every_ms)
    sent, weighed = Counter(kinds) - sent, scales.bytes_sent - weighed
    inside = {*members, *(n for n in range(params["peers"]) if _is_root(net, n))}
    return {
        "subscribed": len(members),
        "in_tree": len(inside),
        "outside": sum(
            publishers[number % PUBLISHERS] not in inside for number in range(params["events"])
        ),
        "notifications": len(record.deliveries) - told,
        "owed": params["events"] * len(members),
        "payload_messages": _sum(sent, PAYLOAD),
        "payload_bytes": _sum(weighed, PAYLOAD),
        "upkeep_messages": _sum(sent, UPKEEP),
        "upkeep_bytes": _sum(weighed, UPKEEP),
        "dht_messages": _sum(sent, DHT),
        "dht_bytes": _sum(weighed, DHT),
        "cycles": MEASURED_CYCLES,
    }


def _is_root(net: Net, number: int) -> bool:
    branch = net.branch(number)
    return branch is not None and branch.rendezvous


def _sum(counts: Mapping[type, int], kinds: tuple[type, ...]) -> int:
    return sum(counts[kind] for kind in kinds)
