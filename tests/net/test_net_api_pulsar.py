"""Multicast trees of real peers on real sockets; one of them is a process of its own, and is
killed."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

import weft
from net_kit import PATIENCE_S, until
from swarm_kit import command, together
from weft.net.config import Network
from weft.net.errors import UsageError
from weft.protocol import config as protocol

CONFIG = weft.Config(
    network=Network(leave_timeout_ms=1_000),
    protocol=protocol.Config(
        cyclon=protocol.Cyclon(cycle_ms=500, reply_timeout_ms=2_000),
        dht=protocol.KademliaSettings(k=8, refresh_first_ms=500),
        pulsar=protocol.PulsarSettings(children_max=2),
    ),
)
SETTINGS = ["cyclon.cycle_ms=500", "routing='pulsarcast'", "dht.k=8", "dht.refresh_first_ms=500"]
"""The same, for a command."""
T = "/t"


swarm = partial(together, config=CONFIG)


def place(peer: weft.Peer) -> dict[str, object]:
    """Where a peer is in the tree."""
    trees = peer.status().get("routing", {})
    return trees.get(T, {})  # type: ignore[attr-defined,no-any-return]


def is_placed(peer: weft.Peer) -> bool:
    return bool(place(peer).get("rendezvous") or place(peer).get("parent"))


async def next_payload(subscription: weft.Subscription) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return (await anext(subscription)).payload


async def test_a_tree_carries_events_and_outlives_a_killed_member() -> None:
    async with (
        swarm(8, "pulsarcast") as peers,
        command("sub", T, "--join", peers[0].address, settings=SETTINGS) as process,
    ):
        inside, outside = peers[:7], peers[7]
        subscriptions = [await peer.subscribe(T) for peer in inside]
        await until(lambda: all(is_placed(peer) for peer in inside), "places in the tree")
        known = {peer.id for peer in peers}

        def strangers() -> list[str]:
            """The process, as its neighbours in the tree see it."""
            around: list[str] = []
            for here in map(place, peers):  # the one outside may be a rendezvous
                around += here.get("children", [])  # type: ignore[arg-type]
                around += here.get("fellows", [])  # type: ignore[arg-type]
                around.append(str(here.get("parent", "")))
            return [name for name in around if name and name not in known]

        await until(strangers, "the process in the tree")
        receipt = await inside[3].publish(T, b"before")
        assert receipt.outcome == "sent"
        assert [await next_payload(one) for one in subscriptions] == [b"before"] * 7

        process.kill()
        await until(lambda: not strangers(), "the dead to be noticed")
        await until(lambda: all(is_placed(peer) for peer in inside), "places in the tree again")
        receipt = await outside.publish(T, b"after")
        assert receipt.outcome in ("sent", "taken")  # it may be a rendezvous
        assert [await next_payload(one) for one in subscriptions] == [b"after"] * 7


async def test_a_flood_reaches_the_subscribers() -> None:
    async with swarm(4, "flood") as peers:
        subscriptions = [await peer.subscribe(T) for peer in peers[:3]]
        await until(lambda: all(not peer.isolated for peer in peers), "neighbours")
        await peers[3].publish(T, b"x")
        assert [await next_payload(one) for one in subscriptions] == [b"x"] * 3


async def test_a_routing_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="one of tera, flood, pulsarcast"):
        await weft.Peer.start(routing="carrier pigeon")  # type: ignore[arg-type]
