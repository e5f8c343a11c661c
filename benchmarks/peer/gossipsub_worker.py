"""py-libp2p's GossipSub under the load of `scenario`: CPU time per delivered notification.

Run by `gossipsub.py` as a script, with the interpreter of the environment that holds py-libp2p,
never with ours. Prints one JSON object.

GossipSub's degree (6, between 5 and 12) and heartbeat (1 s) are those of its specification:
py-libp2p has no defaults for the degrees. Its limit of ten events a second per peer and topic
would drop the load, so that is off. Everything else is as the library has it.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import multiaddr
import trio
from libp2p import new_host
from libp2p.peer.peerinfo import PeerInfo
from libp2p.pubsub import gossipsub
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.tools.anyio_service import background_trio_service
from scenario import (
    ROUND_TIMEOUT_S,
    SETTLE_TIMEOUT_S,
    TOPIC,
    Load,
    add_load_arguments,
    load_of,
)

DEGREE, DEGREE_LOW, DEGREE_HIGH = 6, 5, 12
PROTOCOLS = {
    "1.1": [gossipsub.PROTOCOL_ID_V11],
    "1.2": [gossipsub.PROTOCOL_ID_V12, gossipsub.PROTOCOL_ID_V11],
}


class Peer:
    """One libp2p host with a GossipSub router, and how much its application has received."""

    def __init__(self, protocol: str, signed: bool) -> None:
        self.host = new_host()
        self.router = GossipSub(
            protocols=PROTOCOLS[protocol],
            degree=DEGREE,
            degree_low=DEGREE_LOW,
            degree_high=DEGREE_HIGH,
            heartbeat_interval=1,
            spam_protection_enabled=False,
        )
        self.pubsub = Pubsub(self.host, self.router, strict_signing=signed)
        self.me = self.host.get_id()
        self.received = 0

    async def start(self, stack: AsyncExitStack) -> None:
        address = multiaddr.Multiaddr("/ip4/127.0.0.1/tcp/0")
        await stack.enter_async_context(self.host.run(listen_addrs=[address]))
        await stack.enter_async_context(background_trio_service(self.pubsub))
        await stack.enter_async_context(background_trio_service(self.router))
        await self.pubsub.wait_until_ready()

    async def read(self, arrived: Callable[[], None]) -> None:
        me = self.me.to_bytes()
        async for message in await self.pubsub.subscribe(TOPIC):
            if message.from_id != me:
                self.received += 1
                arrived()


class Swarm:
    """The peers of one run; counts arrivals and wakes the publishing loop."""

    def __init__(self, load: Load, dials: int, protocol: str, signed: bool) -> None:
        self.load = load
        self.dials = min(dials, load.peers - 1)
        self.peers = [Peer(protocol, signed) for _ in range(load.peers)]
        self._missing = 0
        self._all_here = trio.Event()

    @property
    def degree(self) -> int:
        """To how many others each peer is connected: it dials some, as many dial it."""
        return min(2 * self.dials, self.load.peers - 1)

    def note_arrival(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._all_here.set()

    async def connect(self) -> None:
        """Each peer dials those before it on a ring, unless they are connected already."""
        done: set[frozenset[int]] = set()
        for index, peer in enumerate(self.peers):
            for step in range(1, self.dials + 1):
                other = (index - step) % self.load.peers
                pair = frozenset((index, other))
                if pair not in done:
                    done.add(pair)
                    await peer.host.connect(contact(self.peers[other]))

    async def settle(self) -> None:
        """Wait until every peer knows its neighbours' subscriptions and has a mesh."""
        least = min(DEGREE_LOW, self.degree)
        with trio.fail_after(SETTLE_TIMEOUT_S):
            for peer in self.peers:
                while not (  # noqa: ASYNC110 - py-libp2p has no event for a mesh of a size
                    len(peer.pubsub.peer_topics.get(TOPIC, ())) == self.degree
                    and len(peer.router.mesh.get(TOPIC, ())) >= least
                ):
                    await trio.sleep(0.05)

    async def publish_round(self, payload: bytes) -> int:
        """One event from every peer; returns how many notifications never came."""
        self._missing, self._all_here = self.load.notifications_per_round, trio.Event()
        for peer in self.peers:
            await peer.pubsub.publish(TOPIC, payload)
        with trio.move_on_after(ROUND_TIMEOUT_S):
            await self._all_here.wait()
        return self._missing

    def received(self) -> int:
        return sum(peer.received for peer in self.peers)

    def mesh_degree_mean(self) -> float:
        return sum(len(p.router.mesh.get(TOPIC, ())) for p in self.peers) / len(self.peers)


def contact(peer: Peer) -> PeerInfo:
    addresses = [
        multiaddr.Multiaddr(str(address).split("/p2p/", maxsplit=1)[0])
        for address in peer.host.get_addrs()
    ]
    return PeerInfo(peer.me, addresses)


async def publish_and_count(swarm: Swarm) -> dict[str, Any]:
    payload = swarm.load.payload()
    for _ in range(swarm.load.warmup_rounds):
        await swarm.publish_round(payload)
    before, wall, cpu = swarm.received(), time.perf_counter(), time.process_time()
    lost = 0
    for _ in range(swarm.load.rounds):
        lost += await swarm.publish_round(payload)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    delivered = swarm.received() - before
    return {
        "cpu_us_per_notification": cpu / delivered * 1e6,
        "notifications": delivered,
        "lost": lost,
        "cpu_s": cpu,
        "wall_s": wall,
        "connections_per_peer": swarm.degree,
        "mesh_degree_mean": swarm.mesh_degree_mean(),
    }


async def measure(load: Load, dials: int, protocol: str, signed: bool) -> dict[str, Any]:
    swarm = Swarm(load, dials, protocol, signed)
    async with AsyncExitStack() as stack:
        for peer in swarm.peers:
            await peer.start(stack)
        async with trio.open_nursery() as nursery:
            for peer in swarm.peers:
                nursery.start_soon(peer.read, swarm.note_arrival)
            await swarm.connect()
            await swarm.settle()
            figures = await publish_and_count(swarm)
            nursery.cancel_scope.cancel()
    return figures | {
        "protocol": protocol,
        "signed": signed,
        "load": asdict(load),
        "versions": {name: version(name) for name in ("libp2p", "trio", "noiseprotocol")}
        | {"python": sys.version.split()[0]},
    }


def first_cause(problem: BaseException) -> str:
    """What went wrong first, out of the groups in which trio and py-libp2p wrap it."""
    for _ in range(64):
        if not isinstance(problem, BaseExceptionGroup):
            break
        problem = problem.exceptions[0]
    return f"{type(problem).__name__}: {problem}"


def main() -> None:
    parser = argparse.ArgumentParser()
    add_load_arguments(parser)
    parser.add_argument("--dials", type=int, default=1 << 16, help="peers each one dials")
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS), default="1.1")
    parser.add_argument("--unsigned", action="store_true")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    try:
        result = trio.run(measure, load_of(args), args.dials, args.protocol, not args.unsigned)
    except Exception as problem:
        result = {"error": first_cause(problem)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
