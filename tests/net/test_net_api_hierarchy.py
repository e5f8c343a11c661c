"""Topic hierarchies over real sockets: every routing, with and without history, owners, and the
command line's way in."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import weft
from net_kit import PATIENCE_S, until
from swarm_kit import together
from weft.cli import pub
from weft.net.config import Network
from weft.net.control import ControlServer
from weft.net.control_client import ControlClient
from weft.protocol import config as protocol

CONFIG = weft.Config(
    network=Network(leave_timeout_ms=2_000),
    protocol=protocol.Config(
        cyclon=protocol.Cyclon(cycle_ms=300, reply_timeout_ms=2_000),
        tera=protocol.Tera(lookup_timeout_ms=2_000, route_timeout_ms=2_000),
        dht=protocol.KademliaSettings(k=8, refresh_first_ms=500),
    ),
)
REACHED = ("sent", "taken")  # a flood, a member and a rendezvous spread an event themselves
SPORTS, BALL, FOOTBALL = "/sports", "/sports/ball", "/sports/ball/football"


swarm = partial(together, config=CONFIG, hierarchies=(SPORTS,))


async def notes(sub: weft.Subscription, count: int) -> list[tuple[str, str, bytes]]:
    """Topic, origin and payload of so many notifications, and that no more have come."""
    async with asyncio.timeout(PATIENCE_S):
        found = [await anext(sub) for _ in range(count)]
    assert len(sub) == 0
    return [(note.topic, note.published_in, note.payload) for note in found]


@pytest.mark.parametrize("history", [False, True], ids=["live", "history"])
@pytest.mark.parametrize("routing", ["tera", "flood", "pulsarcast", "topic-dht"])
async def test_a_subscriber_gets_the_events_of_sub_topics_once(
    routing: protocol.Routing, history: bool
) -> None:
    async with swarm(5, routing, history) as peers:
        above, beside, below, outside, other = peers
        sports = await above.subscribe(SPORTS)
        both = [await beside.subscribe(SPORTS), await beside.subscribe(FOOTBALL)]
        football = await below.subscribe(FOOTBALL)
        elsewhere = await other.subscribe("/sportswear")
        if routing == "tera":
            met = [(above, SPORTS), (beside, SPORTS), (beside, FOOTBALL), (below, FOOTBALL)]
            await until(
                lambda: all(p.status()["topics"][t]["links"] for p, t in met),  # type: ignore[index]
                "links",
            )
        for number, publisher in enumerate((below, outside)):
            receipt = await publisher.publish(FOOTBALL, b"goal %d" % number)
            assert receipt.topic == FOOTBALL and receipt.outcome in REACHED
            ball, top = await receipt.above()
            assert top.topic == SPORTS and top.outcome in REACHED
            assert ball.topic == BALL  # over a flood nobody can tell that it has no subscriber
            assert routing != "tera" or ball.outcome == "no_subscriber"
            climbed = [(SPORTS, FOOTBALL, b"goal %d" % number)]
            assert await notes(sports, 1) == climbed
            assert await notes(both[0], 1) == climbed
            own = [(FOOTBALL, FOOTBALL, b"goal %d" % number)]
            assert await notes(both[1], 1) == own
            assert await notes(football, 1) == own
        news = await outside.publish(SPORTS, b"news")
        assert (await news.final()).outcome in REACHED
        assert await notes(sports, 1) == [(SPORTS, SPORTS, b"news")]
        assert len(football) == len(elsewhere) == 0


async def test_two_peers_in_three_levels_send_the_payload_once() -> None:
    async with swarm(2) as (publisher, subscriber):
        topics = (FOOTBALL, BALL, SPORTS)
        subs = [await subscriber.subscribe(topic) for topic in topics]
        for topic in topics:
            await publisher.subscribe(topic)
        linked = publisher.status()["topics"]
        await until(
            lambda: all(publisher.status()["topics"][t]["links"] for t in topics),  # type: ignore[index]
            f"links {linked}",
        )
        for number in range(100):
            await publisher.publish(FOOTBALL, b"%4d" % number)
        for topic, sub in zip(topics, subs, strict=True):
            expected = [(topic, FOOTBALL, b"%4d" % number) for number in range(100)]
            assert await notes(sub, 100) == expected
        assert subscriber.counters["payloads_received"] == 100


async def test_several_topics_climb_together_and_are_not_too_many() -> None:
    async with swarm(2) as (publisher, subscriber):
        sub = await subscriber.subscribe(SPORTS)
        receipts = await publisher.publish([FOOTBALL, "/sports/tennis", "/news"], b"both")
        assert [receipt.topic for receipt in receipts] == [FOOTBALL, "/sports/tennis", "/news"]
        levels = [[level.topic for level in await receipt.above()] for receipt in receipts]
        assert levels == [[BALL, SPORTS], [SPORTS], []]
        assert await notes(sub, 1) == [(SPORTS, FOOTBALL, b"both")]
        with pytest.raises(weft.UsageError, match=r"1 to 16 topics at once, not in 17"):
            await publisher.publish(SPORTS + "/x" * 16, b"deep")
        assert (await publisher.publish("/x" * 20, b"deep, in no hierarchy")).topic == "/x" * 20


async def test_a_peer_that_leaves_at_once_has_published_at_every_level() -> None:
    """The receipt is that of the event's own topic, which this peer is in; finding somebody above
    takes a lookup, and leaving waits for it."""
    patient = replace(CONFIG, network=Network(leave_timeout_ms=60_000))
    async with swarm(3, "pulsarcast") as peers:
        sub = await peers[0].subscribe(SPORTS)
        async with weft.Peer.open(
            join=[peers[1].address], config=patient, routing="pulsarcast", hierarchies=[SPORTS]
        ) as hasty:
            await hasty.subscribe(FOOTBALL)
            receipt = await hasty.publish(FOOTBALL, b"bye")
            assert receipt.access_point_text == hasty.address
        assert await notes(sub, 1) == [(SPORTS, FOOTBALL, b"bye")]
        above = [level.outcome for level in await receipt.above()]
        assert above[1] in REACHED  # it may have become a rendezvous of that topic itself


async def test_a_bad_root_is_named() -> None:
    with pytest.raises(weft.UsageError, match="hierarchies: topic 'sports' must start with"):
        await weft.Peer.start(hierarchies=["sports"])


async def test_owners_make_hierarchies_and_the_past_keeps_its_names(tmp_path: Path) -> None:
    async with swarm(3, history=True, hierarchies=()) as (owner, member, late):
        subs = [await owner.subscribe(SPORTS), await member.subscribe("/sports/ball")]
        await owner.subscribe("/sports/ball")
        for other in (member, late):
            await other.owned.follow(SPORTS, owner.id)
        await owner.owned.create(SPORTS, publishers=[member.id], hierarchy=True)
        await owner.owned.add_subtopic(SPORTS, "ball")
        await until(
            lambda: member.owned.info(SPORTS) and member.owned.info(BALL), "news of both topics"
        )
        info = member.owned.info(BALL)
        assert info is not None and info.hierarchy == SPORTS
        receipt = await member.publish(BALL, b"goal")
        assert [receipt.outcome, *[level.outcome for level in await receipt.above()]] == [
            "sent",
            "taken",
        ]
        assert await notes(subs[0], 1) == [(SPORTS, BALL, b"goal")]
        await owner.owned.revoke(SPORTS, member.id)
        await until(lambda: member.owned.info(SPORTS).publishers == (), "the revocation")  # type: ignore[union-attr]
        (refused,) = await (await member.publish(BALL, b"offside")).above()
        assert refused.outcome == "refused" and SPORTS in refused.reason
        assert await notes(late.subscribe(SPORTS, since="beginning"), 1) == [
            (SPORTS, BALL, b"goal")
        ]
        again = owner.subscribe(SPORTS, since="beginning")  # from its own store
        assert await notes(again, 1) == [(SPORTS, BALL, b"goal")]


async def test_over_the_control_socket(tmp_path: Path) -> None:
    async with swarm(2, history=True) as (peer, other):
        server = ControlServer(peer, tmp_path / "control.sock")
        await server.open()
        try:
            async with (
                ControlClient(tmp_path / "control.sock") as client,
                ControlClient(tmp_path / "control.sock") as listener,
            ):
                stream = listener.subscribe(SPORTS)
                await anext(stream)
                await other.publish(FOOTBALL, b"goal")
                note = await anext(stream)
                assert (note["topic"], note["published_in"]) == (SPORTS, FOOTBALL)
                receipt = await client.publish(FOOTBALL, b"here")
                ball, sports = receipt["above"]  # nobody is in the topic itself
                assert (receipt["outcome"], ball["outcome"]) == ("no_subscriber", "no_subscriber")
                assert (sports["topic"], sports["outcome"]) == (SPORTS, "alone")  # but for this one
                assert pub.in_words(receipt).startswith(
                    f"no subscriber of {FOOTBALL}; above it, {SPORTS}: kept: the peer is subscribed"
                )
                made = await client.ask("topic", action="create", topic="/club", hierarchy=True)
                assert made["info"]["hierarchy"] == "/club"
        finally:
            await server.close()
