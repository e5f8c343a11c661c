"""One event in several topics over real connections, and what a peer says of its links."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from test_net_api import linked, swarm

import weft
from net_kit import until
from weft.cli.status import in_words

TOPICS = ["/sports", "/news", "/radio"]


async def subscribed(peers: list[weft.Peer]) -> list[list[weft.Subscription]]:
    subs = [[await peer.subscribe(topic) for topic in TOPICS] for peer in peers]
    await until(
        lambda: all(linked(peer, topic) for peer in peers for topic in TOPICS), "links everywhere"
    )
    return subs


def payloads(peers: list[weft.Peer]) -> int:
    """Events that came with their payload, so far."""
    return sum(peer.counters.get("payloads_received", 0) for peer in peers)


async def test_an_event_in_three_topics_is_delivered_once_to_each_subscription() -> None:
    async with swarm(4) as peers:
        subs = await subscribed(peers)
        for number in range(20):
            receipts = await peers[number % 4].publish(TOPICS, f"event {number}")
            assert [receipt.outcome for receipt in receipts] == ["sent"] * 3
            assert [receipt.topic for receipt in receipts] == TOPICS
        expected = sorted(f"event {number}" for number in range(20))
        for mine in subs:
            for sub in mine:
                notes = [await anext(sub) for _ in range(20)]
                assert sorted(note.payload.decode() for note in notes) == expected
                assert len(sub) == 0


async def test_two_peers_in_three_topics_send_the_payload_once() -> None:
    async with swarm(2) as peers:
        subs = await subscribed(peers)
        before = payloads(peers)
        for number in range(10):
            await peers[0].publish(TOPICS, b"x" * 5_000)
            for sub in subs[1]:
                assert (await anext(sub)).payload == b"x" * 5_000
            assert payloads(peers) - before == number + 1
        assert peers[1].counters["agains_received"] == 20
        for topic in TOPICS:
            await peers[0].publish(topic, b"each by itself")
        await asyncio.gather(*(anext(sub) for sub in subs[1]))
        assert payloads(peers) - before == 13


async def test_a_publisher_that_is_not_subscribed_sends_it_once_to_a_common_access_point() -> None:
    async with swarm(2) as (subscriber, outsider):
        subs = [await subscriber.subscribe(topic) for topic in TOPICS]
        receipts = await outsider.publish(TOPICS, b"from outside")
        assert [receipt.outcome for receipt in receipts] == ["taken"] * 3
        for sub in subs:
            assert (await anext(sub)).payload == b"from outside"


async def test_topics_must_be_some_and_not_too_many() -> None:
    async with swarm(1) as (peer,):
        with pytest.raises(weft.UsageError, match="1 to 16 topics"):
            await peer.publish([], b"")
        with pytest.raises(weft.UsageError, match="1 to 16 topics"):
            await peer.publish([f"/{number}" for number in range(17)], b"")
        with pytest.raises(weft.UsageError, match="must start with"):
            await peer.publish(["/a", "b"], b"")
        assert len(await peer.publish(["/a", "/a"], b"")) == 1


async def test_a_peer_tells_its_logical_and_physical_links() -> None:
    async with swarm(3) as peers:
        await subscribed(peers)

        def links() -> Any:
            return peers[0].status()["links"]

        await until(lambda: links()["logical"] == 6, "links to both others in all topics")
        assert links()["physical"] == 2
        status: Any = peers[0].status()
        assert [status["topics"][topic]["shared_links"] for topic in TOPICS] == [2, 2, 2]
        words = in_words(status)
        assert "6 logical over 2 physical" in words
        assert "/news: 2 links, 2 shared with other topics" in words
        metrics = peers[0].metrics()
        assert "weft_links_logical" in metrics
        assert "weft_links_physical" in metrics
