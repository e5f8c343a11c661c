"""The topic-aware DHT of real peers on real sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import weft
from net_kit import PATIENCE_S, until
from swarm_kit import together
from weft.net.config import Network
from weft.protocol import config as protocol
from weft.protocol.rooms import Scheme
from weft.protocol.rooms import TopicDhtSettings as Settings

T = "/t"


def config(scheme: Scheme) -> weft.Config:
    return weft.Config(
        network=Network(leave_timeout_ms=1_000),
        protocol=protocol.Config(
            cyclon=protocol.Cyclon(cycle_ms=500, reply_timeout_ms=2_000),
            dht=protocol.KademliaSettings(refresh_first_ms=500),
            topic_dht=Settings(
                scheme=scheme, children_max=2, period_ms=1_000, gossip_mode="push-pull"
            ),
        ),
    )


def place(peer: weft.Peer) -> dict[str, Any]:
    """Where a peer is in the topic."""
    topics = peer.status().get("routing", {})
    return topics.get(T, {})  # type: ignore[attr-defined,no-any-return]


def has_its_place(peer: weft.Peer) -> bool:
    """It has a role in the topic, and knows others there."""
    where = place(peer)
    return bool(where["parent"] or (where["forwards"] and (where["links"] or where["children"])))


async def payloads(subscription: weft.Subscription, count: int) -> list[bytes]:
    async with asyncio.timeout(PATIENCE_S):
        return sorted([(await anext(subscription)).payload for _ in range(count)])


@pytest.mark.parametrize("scheme", ["forward-treecast", "full-gossip"])
async def test_events_reach_all_subscribers_and_nobody_else(scheme: Scheme) -> None:
    async with together(7, "topic-dht", config=config(scheme)) as peers:
        inside, outside = peers[:6], peers[6]
        if scheme.startswith("forward"):  # a forwarder of one topic is a child elsewhere
            for number, peer in enumerate(inside):
                await peer.subscribe(f"/own/{number}")
        subscriptions = [await peer.subscribe(T) for peer in inside]
        assert {one.outcome for one in subscriptions} <= {"joined", "instantiated"}
        await until(lambda: all(map(has_its_place, inside)), "roles")
        for peer in (inside[1], inside[4], outside):
            receipt = await peer.publish(T, peer.id.encode())
            assert receipt.outcome in ("sent", "taken")  # by forwarders, and by all others
        expected = sorted(one.id.encode() for one in (inside[1], inside[4], outside))
        assert [await payloads(one, 3) for one in subscriptions] == [expected] * 6
        assert sum(peer.counters.get("parasites", 0) for peer in peers) == 0
        assert outside.counters.get("payloads_received", 0) == 0

        await inside[0].close()  # it says so, and its children look elsewhere
        rest = inside[1:]
        await until(lambda: all(map(has_its_place, rest)), "roles")
        receipt = await rest[2].publish(T, b"after")
        assert receipt.outcome in ("sent", "taken")
        assert [await payloads(one, 1) for one in subscriptions[1:]] == [[b"after"]] * 5


async def test_history_and_signatures_over_it() -> None:
    async with together(4, "topic-dht", True, config=config("forward-treecast")) as peers:
        subscriptions = [await peer.subscribe(T) for peer in peers[:3]]
        await until(lambda: all(not peer.isolated for peer in peers), "neighbours")
        for number in range(3):
            await peers[number].publish(T, b"%d" % number)
        expected = [b"0", b"1", b"2"]
        assert [await payloads(one, 3) for one in subscriptions] == [expected] * 3
        late = await peers[3].subscribe(T, since="beginning")
        async with asyncio.timeout(PATIENCE_S):
            notes = [await anext(late) for _ in range(3)]
        assert sorted(note.payload for note in notes) == expected
