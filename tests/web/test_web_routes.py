"""Publishing, subscribing and looking over plain HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import weft
from net_kit import keeping, until
from swarm_kit import together
from web_kit import BEARER, alone, publish, request, served, subscribed
from weft.store.memory import MemoryStore
from weft.web.openapi import document
from weft.web.routes import KEPT_TOPICS, Routes
from weft.web.source import Single


async def test_what_is_published_here_arrives_elsewhere_and_the_other_way_round() -> None:
    async with together(3, history=True, config=keeping()) as peers, served(peers[0]) as web:
        far = await peers[1].subscribe("/chat")
        async with subscribed(web, "/api/events?topic=/chat") as events:
            assert events.answer.headers["content-type"].startswith("text/event-stream")
            receipt = (await publish(web, "/chat", "grüße".encode())).json
            assert receipt["outcome"] == "sent" and receipt["topic"] == "/chat"
            assert (await anext(far)).payload.decode() == "grüße"
            await peers[2].publish("/chat", b"\xff\x00")
            first, second = await events.take(2)
    assert (first["payload"], second["payload_base64"]) == ("grüße", "/wA=")
    assert second["publisher"] == peers[2].id


async def test_headers_go_along_both_ways() -> None:
    async with together(2, history=True, config=keeping()) as peers, served(peers[0]) as web:
        far = await peers[1].subscribe("/chat")
        async with subscribed(web, "/api/events?topic=/chat") as events:
            both = "/chat&header=kind=goal&header=by=a%3Db"
            assert (await publish(web, both, b"1")).json["outcome"] == "sent"
            assert (await anext(far)).headers == {"kind": "goal", "by": "a=b"}
            await peers[1].publish("/chat", b"2", headers={"kind": "end"})
            told = [note["headers"] for note in await events.take(2)]
            kept = (await request(web, "/api/history?topic=/chat")).json["events"]
            wrong = await publish(web, "/chat&header=kind", b"3")
    assert told == [{"kind": "goal", "by": "a=b"}, {"kind": "end"}]
    assert [event["headers"] for event in kept] == told
    assert wrong.status == 400 and "NAME=VALUE" in wrong.json["error"]


async def test_a_subscriber_that_comes_back_gets_each_event_once() -> None:
    async with together(2, history=True, config=keeping()) as peers, served(peers[0]) as web:
        path = "/api/events?topic=/chat"
        async with subscribed(web, path) as events:
            for number in range(5):
                await publish(web, "/chat", b"%d" % number)
            seen = [note["payload"] for note in await events.take(5)]
            place = events.last_id
        for number in range(5, 12):  # while nobody listens
            await peers[number % 2].publish("/chat", b"%d" % number)
        async with subscribed(web, path, {"Last-Event-ID": place}) as events:
            seen += [note["payload"] for note in await events.take(7)]
            await publish(web, "/chat", b"last")
            assert [note["payload"] for note in await events.take(1)] == ["last"]
    assert sorted(seen, key=int) == [str(number) for number in range(12)]


async def test_a_subscriber_that_has_seen_nothing_can_come_back_too() -> None:
    async with alone() as web:
        path = "/api/events?topic=/chat"
        await publish(web, "/chat", b"before")
        async with subscribed(web, path) as events:
            receipt = asyncio.create_task(publish(web, "/chat", b"after"))
            await events.take(1)
            await receipt
        async with subscribed(web, f"{path}&since=beginning") as events:
            assert [note["payload"] for note in await events.take(2)] == ["before", "after"]


async def test_a_client_that_goes_away_leaves_its_topic() -> None:
    async with weft.Peer.open(config=keeping()) as peer, served(peer) as web:
        for number in range(3):
            async with subscribed(web, f"/api/events?topic=/gone/{number}"):
                assert f"/gone/{number}" in topics_of(peer)
        async with subscribed(web, "/api/events?topic=/here"):
            await until(lambda: topics_of(peer) == ["/here"], "the others to be left")


async def test_with_a_store_the_peer_stays_in_the_latest_topics_alone() -> None:
    async with weft.Peer.open(config=keeping(), store=MemoryStore()) as peer:
        async with served(peer) as web:
            for number in range(KEPT_TOPICS + 8):
                async with subscribed(web, f"/api/events?topic=/gone/{number}"):
                    pass
            latest = sorted(f"/gone/{number}" for number in range(8, KEPT_TOPICS + 8))
            await until(lambda: topics_of(peer) == latest, "the others to be left")
        await until(lambda: not topics_of(peer), "all to be left")


def topics_of(peer: weft.Peer) -> list[str]:
    topics = peer.status()["topics"]
    assert isinstance(topics, dict)
    return sorted(topics)


async def test_the_address_that_is_printed_can_be_opened() -> None:
    """Where it listens on all addresses, too; a token may hold any character."""
    async with (
        weft.Peer.open(config=keeping()) as peer,
        served(peer, token="a+b/c==", where="0.0.0.0:0") as web,
    ):
        assert web.url == f"http://localhost:{web.address.rpartition(':')[2]}/"
        assert web.url_with_token == f"{web.url}#token=a%2Bb%2Fc%3D%3D"


async def test_events_of_publishers_without_a_store_come_too() -> None:
    async with (
        weft.Peer.open(config=keeping(), store=MemoryStore()) as keeper,
        weft.Peer.open(config=keeping(), join=keeper.address) as plain,
        served(keeper) as web,
        subscribed(web, "/api/events?topic=/chat") as events,
    ):
        await plain.publish("/chat", "not stored", confirm="taken")
        note = (await events.take(1))[0]
        assert note["payload"] == "not stored" and "cid" not in note
        assert (await request(web, "/api/history?topic=/chat")).json == {"events": []}


async def test_history_topics_and_status() -> None:
    async with alone() as web:
        for number in range(4):
            await publish(web, "/a/b", b"%d" % number)
        latest = (await request(web, "/api/history?topic=/a/b&limit=2")).json["events"]
        assert [event["payload"] for event in latest] == ["2", "3"]
        first = (await request(web, "/api/history?topic=/a/b&after=beginning&limit=1")).json
        after = first["events"][0]["cid"]
        rest = (await request(web, f"/api/history?topic=/a/b&after={after}")).json["events"]
        assert [event["payload"] for event in rest] == ["1", "2", "3"]
        assert (await request(web, "/api/topics")).json == {"/a/b": {"members": 0, "stored": 4}}
        status = (await request(web, "/api/status")).json
        assert status["store"] is True and status["isolated"] is True
        known = await request(web, f"/api/peers/{status['peer']}")
        assert known.json["counters"].keys() >= {"net_delivered"}
        assert (await request(web, "/api/peers/nobody")).status == 404


async def test_large_events_come_in_several_answers() -> None:
    async with alone() as web:
        for number in range(4):
            await publish(web, "/a", b"%d" % number + b"x" * 900_000)
        seen, after = "", "beginning"
        for path in ("/api/history?topic=/a", "/api/history?topic=/a&after=beginning"):
            events = (await request(web, path)).json["events"]
            seen, after = seen + "".join(event["payload"][0] for event in events), events[-1]["cid"]
        rest = (await request(web, f"/api/history?topic=/a&after={after}")).json["events"]
        assert (seen, [event["payload"][0] for event in rest]) == ("2301", ["2", "3"])


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/api/history", "which topic?"),
        ("/api/history?topic=chat", "chat"),
        ("/api/history?topic=/chat&limit=0", "limit is '0'"),
        (f"/api/history?topic=/chat&limit={'1' * 5_000}", "limit is '1111"),
        ("/api/history?topic=/chat&after=x", "x"),
        ("/api/events?topic=/chat&since=monday", "since is 'monday'"),
        ("/api/events?topic=/", "/"),
    ],
)
async def test_bad_requests_are_told_what_is_wrong(path: str, said: str) -> None:
    async with alone() as web:
        answer = await request(web, path)
        assert answer.status == 400 and said in answer.json["error"]


async def test_a_peer_that_keeps_nothing_says_so() -> None:
    async with weft.Peer.open(config=keeping()) as peer, served(peer) as web:
        past = await request(web, "/api/events?topic=/a&since=beginning")
        assert past.status == 400 and "has no store" in past.json["error"]
        assert (await request(web, "/api/history?topic=/a")).status == 503
        async with subscribed(web, "/api/events?topic=/a") as events:
            await publish(web, "/a", b"live")
            assert [note["payload"] for note in await events.take(1)] == ["live"]


async def test_a_position_from_elsewhere_is_refused_in_words() -> None:
    async with alone() as web:
        path = "/api/events?topic=/chat"
        answer = await request(web, path, headers={"Last-Event-ID": "not a position"})
        assert answer.status == 400 and "is no position" in answer.json["error"]


async def test_a_subscriber_whose_place_nobody_knows_is_told_and_forgets_it() -> None:
    path = "/api/events?topic=/chat"
    async with alone() as web, subscribed(web, path) as events:
        await publish(web, "/chat", b"before")
        await events.take(1)
        place = events.last_id
    async with alone() as web, subscribed(web, path, {"Last-Event-ID": place}) as events:
        [told] = await events.take(1)
        assert "error" in told and events.last_id == ""


async def test_what_is_not_there_is_told_as_json_too() -> None:
    async with alone() as web:
        assert (await request(web, "/nowhere")).json == {"error": "not found"}
        answer = await request(web, "/api/status", "DELETE", BEARER)
        assert (answer.status, answer.json) == (405, {"error": "method not allowed"})
        assert answer.headers["allow"]


async def test_verdicts_of_the_lab_and_nothing_beside_them(tmp_path: Path) -> None:
    folder = tmp_path / "lab" / "tera-4a"
    folder.mkdir(parents=True)
    (folder / "verdict.json").write_text(json.dumps({"id": "tera-4a", "passed": True}))
    (folder / "figure.svg").write_text("<svg/>")
    (tmp_path / "figure.svg").write_text("secret")
    (tmp_path / "lab" / "other").mkdir()
    (tmp_path / "lab" / "other" / "verdict.json").write_text("[]")
    async with weft.Peer.open(config=keeping()) as peer, served(peer, tmp_path / "lab") as web:
        found = (await request(web, "/api/lab")).json
        assert found == [{"id": "tera-4a", "passed": True, "figure": True}]
        assert (await request(web, "/api/lab/tera-4a/figure.svg")).body == b"<svg/>"
        for name in ("..", "%2e%2e", "a" * 1_000):
            assert (await request(web, f"/api/lab/{name}/figure.svg")).status == 404


async def test_files_of_the_page_and_no_others() -> None:
    async with alone() as web:
        for name in ("page.js", "page.css", "overlay.js", "icon.svg"):
            answer = await request(web, f"/static/{name}")
            assert answer.status == 200 and b"http://" not in answer.body.replace(
                b"http://www.w3.org/2000/svg", b""
            )
        for name in ("..%2f__init__.py", "__init__.py", "", "nothing.js", "a" * 1_000 + ".js"):
            assert (await request(web, f"/static/{name}")).status == 404


async def test_the_document_describes_what_is_served(tmp_path: Path) -> None:
    async with weft.Peer.open(config=keeping()) as peer:
        served_paths = {
            route.path  # type: ignore[attr-defined]
            for route in Routes(Single(peer), tmp_path).application().routes
        }
        described = document()["paths"]
        assert isinstance(described, dict)
        assert {path for path in served_paths if path.startswith("/api/")} == set(described)
        async with served(peer) as web:
            assert (await request(web, "/openapi.json")).json == json.loads(json.dumps(document()))


async def test_publishing_in_vain_is_no_success() -> None:
    async with alone() as web:
        answer = await publish(web, "/~nobody/orders", b"x")
        assert answer.status == 400
        answer = await request(web, "/api/publish?topic=/a", "GET", BEARER)
        assert answer.status == 405
