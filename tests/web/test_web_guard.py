"""The door of the page: which requests come in."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

import weft
from net_kit import keeping
from web_kit import BEARER, alone, publish, request, served, subscribed
from weft.web.guard import BODY_BYTES_MAX, STREAMS_MAX, Allowance

PUBLISH = "/api/publish?topic=/a"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),  # a name that leads here by DNS rebinding
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": ""}, 400),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
async def test_only_this_page_and_programs_are_answered(
    headers: dict[str, str], status: int
) -> None:
    async with alone() as web:
        answer = await request(web, "/api/status", headers=headers)
        assert answer.status == status
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer \xff"},
    ],
)
async def test_without_the_token_it_is_read_only(headers: dict[str, str]) -> None:
    async with alone() as web:
        answer = await request(web, PUBLISH, "POST", headers, b"x")
        assert answer.status == 401 and "read-only" in answer.json["error"]
        assert (await request(web, "/api/topics")).json == {}


async def test_payloads_have_a_limit_with_and_without_a_length() -> None:
    async with alone() as web:
        large = bytes(BODY_BYTES_MAX + 1)
        assert (await publish(web, "/a", large[1:])).status == 200
        assert (await request(web, PUBLISH, "POST", BEARER, large)).status == 413
        chunked = {**BEARER, "Content-Length": "", "Transfer-Encoding": "chunked"}
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(large), large)
        assert (await request(web, PUBLISH, "POST", chunked, body)).status == 413


async def test_web_sockets_of_other_pages_are_refused() -> None:
    async with alone() as web:
        address = f"ws://{web.address}/live"
        async with connect(address, origin=f"http://{web.address}") as socket:
            assert '"kind":"names"' in str(await socket.recv())
        with pytest.raises(InvalidStatus):
            async with connect(address, origin="http://evil.example"):
                pass


async def test_a_client_has_so_many_streams_and_others_are_answered_meanwhile() -> None:
    async with alone() as web, AsyncExitStack() as stack:
        statuses = []
        for number in range(40):
            events = subscribed(web, f"/api/events?topic=/{number}")
            statuses.append((await stack.enter_async_context(events)).answer.status)
        assert statuses.count(200) == STREAMS_MAX and set(statuses[STREAMS_MAX:]) == {429}
        assert (await request(web, "/api/status")).status == 200


async def test_a_client_that_asks_without_end_is_told_to_wait() -> None:
    async with weft.Peer.open(config=keeping()) as peer, served(peer, reads_per_s=1) as web:
        answers = await asyncio.gather(*(request(web, "/static/icon.svg") for _ in range(100)))
        refused = [answer for answer in answers if answer.status == 429]
        assert refused and refused[0].headers["retry-after"] == "1"
        assert (await publish(web, "/a", b"with the token")).status == 200


@pytest.mark.parametrize(
    ("proxies", "told", "streams"),
    [
        (["127.0.0.1"], "203.0.113.7, 192.0.2.{}", 4),  # the last word is the proxy's own
        (["127.0.0.0/8"], "192.0.2.{}", 4),
        (["127.0.0.9"], "192.0.2.{}", 2),  # another machine is the proxy: anyone can say that
        ([], "192.0.2.{}", 2),
        (["127.0.0.1"], "2001:db8::{}", 2),  # one network: one client
        (["127.0.0.1"], "2001:db8:{}::1", 4),
    ],
)
async def test_clients_behind_a_proxy_have_limits_of_their_own(
    proxies: list[str], told: str, streams: int
) -> None:
    async with weft.Peer.open(config=keeping()) as peer, AsyncExitStack() as stack:
        web = await stack.enter_async_context(served(peer, proxies=proxies))
        statuses = []
        for number in (1, 2):
            for _ in range(STREAMS_MAX):
                said = {"X-Forwarded-For": told.format(number)}
                events = subscribed(web, "/api/events?topic=/a", said)
                statuses.append((await stack.enter_async_context(events)).answer.status)
        assert statuses.count(200) == streams * STREAMS_MAX // 2


def test_an_allowance_fills_again() -> None:
    allowance = Allowance(per_s=10, now=0)
    assert [allowance.take(0) for _ in range(21)] == [True] * 20 + [False]
    assert allowance.take(0.1) and not allowance.take(0.1)


async def test_every_answer_forbids_what_the_page_does_not_need() -> None:
    async with alone() as web:
        for path in ("/", "/api/status", "/nothing", "/static/page.js"):
            headers = (await request(web, path)).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
