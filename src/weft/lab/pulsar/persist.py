"""pulsar-persist: how many peers offer an event to strangers, and who finds it after a crash?

All subscribers publish in turn. A publisher provides its events in the DHT, and each other
subscriber that takes one in does so with probability p. Then a share of all peers crashes at once,
and a peer outside the topic asks the DHT for each event. An event has *survived* if a peer that
provides it is up, and is *found* if the DHT still leads to such a peer.

Who crashed is known, so what to expect is known for each event: not counting its publisher's own
copy, it has survived with the chance 1 − (1 − p)^L, where L is the number of other subscribers that
are up. That does not depend on how the crash fell, so nothing but the draws of p is noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.ids import Cid, Contact, PeerId
from weft.lab.pulsar.world import JOIN_CYCLES, Net
from weft.protocol.config import Config, History
from weft.protocol.history.providing import PROVIDERS_WANTED, block_key_of
from weft.protocol.peer import Peer
from weft.protocol.seam import DhtFindProviders
from weft.sim.node import Node

EVERY_MS = 100
PROVIDED_CYCLES = 2
"""measured: by then all providers have told the DHT."""
ASKED_AT_ONCE = 8
ANSWER_MS = 60_000
"""guess: a lookup through tables that name mostly the dead."""


def run(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    history = History(enabled=True, provide_probability=params["p"])
    net = Net(seed, params["peers"], Config(routing="pulsarcast", history=history))
    members = net.draw_subscribers(params["subscribers"])
    net.subscribe(*members, since="beginning")
    net.run_cycles(JOIN_CYCLES)
    net.publish_all(members, params["events"], EVERY_MS)
    net.run_cycles(PROVIDED_CYCLES)
    events = net.stored(members[0])
    providers = {event.cid: providers_of(net, event.cid) for event in events}
    crashed = round(params["crash"] * len(net.nodes))
    net.crash(*net.dice.some("lab.crash", range(len(net.nodes)), crashed))
    up = {net.nodes[number].contact.peer for number in net.alive()}
    named = {event.cid: up.intersection(providers_of(net, event.cid)) for event in events}
    found = _found(net, members, list(providers), up)
    live = len(net.alive(members))
    others = [providers[event.cid] - {event.publisher} for event in events]
    left = np.array([live - (event.publisher in up) for event in events])
    return {
        "event": np.arange(len(events), dtype=np.int32),
        "own_copy": np.array([event.publisher in providers[event.cid] for event in events]),
        "copies": np.array([len(some) for some in others], dtype=np.int32),
        "copies_expected": params["p"] * (len(members) - 1),
        "survived": np.array([bool(up & some) for some in others]),
        "expected": 1 - (1 - params["p"]) ** left,
        "held": np.array([bool(up & some) for some in providers.values()]),
        "named": np.array([bool(some) for some in named.values()]),
        "found": np.array([found[cid] for cid in providers]),
    }


def providers_of(net: Net, cid: Cid) -> set[PeerId]:
    """Whom the records of the peers that are up name as providers of a block."""
    key = block_key_of(cid)
    found: set[PeerId] = set()
    for node in net.nodes:
        if isinstance(node.machine, Peer) and node.machine.dht is not None:
            found.update(one.peer for one in node.machine.dht.providers.get(key))
    return found


def _found(net: Net, members: list[int], cids: list[Cid], up: set[PeerId]) -> dict[Cid, bool]:
    """Ask the DHT for each event, from a peer outside the topic (or the last one inside)."""
    inside = set(members)
    alive = net.alive()
    asker = net.nodes[next((one for one in alive if one not in inside), alive[-1])]
    blocks = {node.contact.peer: node.store for node in net.nodes}
    found: dict[Cid, bool] = {}
    for start in range(0, len(cids), ASKED_AT_ONCE):
        some = cids[start : start + ASKED_AT_ONCE]
        for cid, contacts in zip(some, _providers(net, asker, some), strict=True):
            found[cid] = any(_has(blocks, up, one.peer, cid) for one in contacts)
    return found


def _providers(net: Net, asker: Node, cids: list[Cid]) -> list[Sequence[Contact]]:
    """What the DHT answers, block by block."""
    answers = net.world.record.answers

    def ask(cid: Cid) -> int:
        key = block_key_of(cid)
        return net.world.ask(asker, lambda token: DhtFindProviders(token, key, PROVIDERS_WANTED))

    tokens = [ask(cid) for cid in cids]
    net.run_while(lambda: any(answers[token] is None for token in tokens), 100, ANSWER_MS)
    given = [answers[token] for token in tokens]
    return [answer[1].contacts if answer is not None else () for answer in given]


def _has(blocks: Mapping[PeerId, Any], up: set[PeerId], peer: PeerId, cid: Cid) -> bool:
    return peer in up and blocks[peer] is not None and blocks[peer].get(cid) is not None
