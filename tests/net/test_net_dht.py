"""The DHT of real peers on real sockets; one of them is a process of its own, and is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import weft
from net_kit import PATIENCE_S, until
from swarm_kit import command, together
from weft.ids import cid_of, cid_text, parse_cid, parse_contact
from weft.net.config import Network
from weft.net.errors import HistoryError, UsageError
from weft.protocol import config as protocol
from weft.rules.prefix import block_key, closest, location_of
from weft.store.memory import MemoryStore

CONFIG = weft.Config(
    network=Network(leave_timeout_ms=1_000),
    protocol=protocol.Config(
        cyclon=protocol.Cyclon(cycle_ms=1_000, reply_timeout_ms=2_000),
        dht=protocol.KademliaSettings(enabled=True, k=8, refresh_first_ms=500),
    ),
)
SETTINGS = ["cyclon.cycle_ms=1000", "dht.enabled=true", "dht.k=8", "dht.refresh_first_ms=500"]
"""The same, for a command."""
PEERS = 19


def contacts(peer: weft.Peer) -> int:
    return int(peer.status()["dht"]["contacts"])  # type: ignore[index]


def values(peer: weft.Peer) -> int:
    return int(peer.status()["dht"]["values"])  # type: ignore[index]


async def test_twenty_peers_hold_and_find_and_survive_a_kill(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WEFT_HOME", str(tmp_path))
    async with (
        together(PEERS, config=CONFIG) as peers,
        command("peer", "--join", peers[0].address, settings=SETTINGS) as process,
    ):
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        address = line.decode().strip()
        victim = parse_contact(address)
        await until(lambda: all(contacts(peer) >= 8 for peer in peers), "tables to fill")

        while await peers[3].dht.find_peer(victim.peer) != victim:
            pass  # each search is some round trips
        everybody = {location_of(parse_contact(p.address).peer): p.address for p in peers}
        everybody[location_of(victim.peer)] = address

        # A value whose holders include the one that will be killed.
        block = next(
            data
            for data in (b"block %d" % number for number in range(1_000))
            if location_of(victim.peer) in closest(location_of(block_key(data)), everybody, 4)
        )
        key = block_key(block)
        assert await peers[1].dht.put(key, block) >= 7
        assert await peers[5].dht.provide(key) >= 7
        for peer in peers[::6]:
            assert await peer.dht.get(key) == block
            [provider] = await peer.dht.find_providers(key)
            assert provider.peer == parse_contact(peers[5].address).peer
        near = await peers[2].dht.closest_peers(key)
        truth = closest(location_of(key), everybody, 8)
        assert len(set(truth) & {location_of(one.peer) for one in near}) >= 7

        process.kill()
        for peer in peers[1::6]:
            assert await peer.dht.get(key) == block
            assert await peer.dht.find_providers(key)
        again = await peers[4].dht.closest_peers(key)
        assert victim.peer not in [one.peer for one in again]
        another = await peers[7].dht.put_block(b"after the kill")
        assert await peers[8].dht.get(another) == b"after the kill"


async def test_a_path_leads_through_blocks_that_only_other_peers_hold() -> None:
    async with (
        weft.Peer.open(config=CONFIG, store=MemoryStore()) as owner,
        weft.Peer.open(config=CONFIG, store=MemoryStore(), join=[owner.address]) as reader,
    ):
        await until(lambda: contacts(reader) and contacts(owner), "tables to fill")
        first = await owner.owned.create("/sports")
        last = await owner.owned.add_subtopic("/sports", "football")
        await until(lambda: values(owner) >= 3, "both versions and the record")
        assert not any(map(reader.history.store.get, (parse_cid(first), parse_cid(last))))
        assert await reader.history.get(f"{last}/parent/name") == "/sports"
        with pytest.raises(HistoryError, match="is not to be had"):
            await reader.history.get(f"{cid_text(cid_of(b'nothing'))}/name")


async def test_what_is_wrong_is_said() -> None:
    async with together(2, config=CONFIG) as (one, other):
        await until(lambda: contacts(one) and contacts(other), "the two to meet")
        with pytest.raises(UsageError, match="not valid"):
            await one.dht.put(block_key(b"a"), b"b")
        with pytest.raises(UsageError, match="no values are known"):
            await one.dht.get(b"\x77what")
        with pytest.raises(UsageError, match="base58"):
            await one.dht.find_peer("no peer id 0OIl")
        with pytest.raises(UsageError, match="cannot be used"):
            await one.dht.provide(b"")
        assert await one.dht.get(block_key(b"nobody has it")) is None
        found = await one.dht.find_peer_local(other.id)
        assert found == parse_contact(other.address)
        await one.dht.provide(b"some key")
        await one.dht.stop_providing(b"some key")


async def test_the_dht_is_off_unless_it_is_asked_for() -> None:
    async with weft.Peer.open() as peer:
        with pytest.raises(UsageError, match=r"protocol\.dht\.enabled"):
            await peer.dht.get(block_key(b""))
        assert "dht" not in peer.status()


async def test_a_closed_peer_answers_nothing() -> None:
    peer = await weft.Peer.start(config=CONFIG)
    await peer.close()
    with pytest.raises(weft.ClosedError):
        await peer.dht.get(block_key(b""))
