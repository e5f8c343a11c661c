"""Finding peers on the local network."""

from __future__ import annotations

from dataclasses import replace

import pytest

import weft
from net_kit import keeping, until
from swarm_kit import together
from weft.net.local import LocalNetwork


async def test_a_peer_that_is_told_of_another_joins_by_it() -> None:
    async with weft.Peer.open(config=keeping()) as a, weft.Peer.open(config=keeping()) as b:
        local = LocalNetwork(b)
        for told in (
            {"address": a.address, "network": "another"},
            {"address": b.address, "network": "weft"},
            {"address": "no address", "network": "weft"},
            {},
        ):
            local.found(dict(told))
        assert a.isolated and b.isolated
        local.found({"address": a.address, "network": "weft"})
        await until(lambda: not a.isolated and not b.isolated, "the two to meet")


async def test_two_peers_find_each_other_by_multicast() -> None:
    network = replace(keeping().network, name="a network of the tests")
    config = replace(keeping(), network=network)
    async with weft.Peer.open(config=config) as a, weft.Peer.open(config=config) as b:
        try:
            local = await LocalNetwork(a).__aenter__()
        except OSError as error:
            pytest.skip(f"no multicast on this machine: {error}")
        try:
            async with LocalNetwork(b):
                await a.joined(60)
                await b.joined(60)
        except weft.IsolatedError:
            pytest.skip("what is sent by multicast does not arrive on this machine")
        finally:
            await local.__aexit__()


async def test_a_peer_that_cannot_be_dialled_gets_everything() -> None:
    """As behind NAT: others are told an address at which nothing answers."""
    config = keeping()
    async with together(4, config=config) as peers:
        entrance = peers[0].address
        async with weft.Peer.open(config=config, join=entrance, announce="127.0.0.1:1") as hidden:
            subscriptions = [await peer.subscribe("/t") for peer in peers]
            mine = await hidden.subscribe("/t")
            await until(lambda: not hidden.isolated, "it to join")
            payloads = {b"%d" % number for number in range(60)}
            for payload in sorted(payloads):
                await peers[int(payload) % 4].publish("/t", payload)
            await hidden.publish("/t", b"from inside")
            payloads.add(b"from inside")
            for subscription in (mine, *subscriptions):
                await until(lambda one=subscription: len(one) == 61, "all events")
                assert {(await anext(subscription)).payload for _ in payloads} == payloads
