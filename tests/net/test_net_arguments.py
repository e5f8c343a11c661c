"""What callers give: taken for what it is, or refused in words, by an error of weft's own."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path

import pytest

import weft
from weft.net.dht import Dht

LONE = "\ud800"  # half of a letter: no file can be called so


class Name(StrEnum):
    """As programs keep their topics."""

    ORDERS = "/orders"
    BILLING = "billing"
    KIND = "kind"


class Raw(bytes):
    """As libraries hand out bytes that print as something else."""


@pytest.mark.parametrize("store", [None, ":memory:"])
async def test_texts_and_bytes_of_subclasses_are_plain_ones(store: str | None) -> None:
    async with weft.Peer.open(store=store) as peer:
        async with await peer.subscribe(Name.ORDERS) as sub:
            for topic in (Name.ORDERS, [Name.ORDERS]):
                await peer.publish(topic, Raw(b"x"), headers={Name.KIND: Name.BILLING})
                note = await anext(sub)
                assert (note.topic, note.payload) == ("/orders", b"x")
                assert note.headers == {"kind": "billing"}
                kinds = {type(one) for one in (note.topic, *note.headers, *note.headers.values())}
                assert kinds == {str}
            await sub.remove(Name.ORDERS)
        receipt = await peer.publish(Name.ORDERS, b"to nobody")
        assert receipt.outcome == "queued"
        if store is not None:
            async with peer.consume(Name.ORDERS, name=Name.BILLING) as orders:
                await (await anext(orders)).ack()
            await peer.reset_consumer(Name.ORDERS, Name.BILLING)


@pytest.mark.parametrize("name", ["listen", "announce"])
async def test_nothing_of_a_wrong_kind_is_no_default(name: str) -> None:
    for given in (0, [], {}, b""):
        with pytest.raises(weft.UsageError, match=name):
            await weft.Peer.start(**{name: given})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["key", "config", "trace", "store"])
async def test_files_that_cannot_be_are_named(name: str, tmp_path: Path) -> None:
    for given in (LONE, str(tmp_path / LONE), "a\0b"):
        with pytest.raises(weft.UsageError, match="no file can be called"):
            await weft.Peer.start(**{name: given})  # type: ignore[arg-type]
    with pytest.raises(weft.WeftError):
        await weft.Peer.start(**{name: str(tmp_path / ("x" * 300))})  # type: ignore[arg-type]


async def test_timeouts_that_no_clock_counts_to_are_for_ever() -> None:
    async with weft.Peer.open() as peer:
        for seconds in (math.inf, 10**400, 1e300):
            receipt = await peer.publish("/x", b"", confirm="accepted", timeout=seconds)
            assert receipt.outcome == "queued"


Use = Callable[[weft.Peer], Awaitable[object] | object]

WRONG: list[Use] = [
    lambda peer: peer.subscribe("/x", since="bé"),
    lambda peer: peer.owned.create("/x", publishers=5),  # type: ignore[arg-type]
    lambda peer: peer.owned.create("/x", owners=[5]),  # type: ignore[list-item]
    lambda peer: peer.owned.create("/x", made_from=5),  # type: ignore[arg-type]
    lambda peer: peer.owned.create("/x/#"),
    lambda peer: peer.owned.allow("/x", 5),  # type: ignore[arg-type]
    lambda peer: peer.owned.revoke("/x", 5),  # type: ignore[arg-type]
    lambda peer: peer.owned.follow("/x", 5),  # type: ignore[arg-type]
    lambda peer: peer.owned.follow("/x", "bafé"),
    lambda peer: peer.history.get(5),  # type: ignore[arg-type]
    lambda peer: peer.history.get("bafé"),
    lambda peer: peer.history.read("/x", limit=-1),
    lambda peer: peer.history.read_through("/x", limit="1"),  # type: ignore[arg-type]
]

DHT: list[Callable[[Dht], Awaitable[object]]] = [
    lambda dht: dht.put("key", b""),  # type: ignore[arg-type]
    lambda dht: dht.put(b"key", "value"),  # type: ignore[arg-type]
    lambda dht: dht.put(b"key", b"", life_ms=-1),
    lambda dht: dht.put_block("block"),  # type: ignore[arg-type]
    lambda dht: dht.get(5),  # type: ignore[arg-type]
    lambda dht: dht.get(b"key", quorum="1"),  # type: ignore[arg-type]
    lambda dht: dht.provide(None),  # type: ignore[arg-type]
    lambda dht: dht.stop_providing("key"),  # type: ignore[arg-type]
    lambda dht: dht.find_providers(b"key", wanted=0),
    lambda dht: dht.find_peer(b"short"),
    lambda dht: dht.closest_peers("key"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("use", WRONG)
async def test_what_cannot_be_used_is_an_error_of_ours(use: Use) -> None:
    async with weft.Peer.open(store=":memory:") as peer:
        with pytest.raises(weft.UsageError):
            result = use(peer)
            if isinstance(result, Awaitable):
                await result


@pytest.mark.parametrize("use", DHT)
async def test_what_cannot_be_used_in_the_dht_is_an_error_of_ours(
    use: Callable[[Dht], Awaitable[object]],
) -> None:
    async with weft.Peer.open(routing="topic-dht") as peer:
        with pytest.raises(weft.UsageError):
            await use(peer.dht)
