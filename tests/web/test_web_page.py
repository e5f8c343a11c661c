"""The page in a real browser: Chromium, headless."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from benchmarks.browser import MISSING, browser, chromium
from websockets.asyncio.client import connect

import weft
from net_kit import keeping
from swarm_kit import together
from web_kit import TOKEN, publish, served
from weft.lab.census import Sight
from weft.web.source import Scene

HTML = "<img src=x onerror=document.title='broken'>"


@pytest.mark.skipif(not chromium(), reason=MISSING)
async def test_the_page_shows_publishes_and_loads_nothing_from_elsewhere() -> None:
    async with together(3, history=True, config=keeping()) as peers, served(peers[0]) as web:
        far = await peers[1].subscribe("/a/<b>bold")
        await publish(web, "/a/%3Cb%3Ebold", HTML.encode())
        await anext(far)
        async with browser() as tab:
            await tab.open(f"{web.url}#token={TOKEN}")
            await tab.until("document.querySelectorAll('#tree button').length == 2")
            # By keyboard alone: to the topic, into it, and a word published in it.
            await tab.ask("document.querySelectorAll('#tree button')[1].focus()")
            await tab.press("Enter", "\r", 13)
            await tab.until("document.querySelectorAll('#events li').length == 1")
            assert await tab.ask("document.querySelector('#events li').firstChild.data") == HTML
            await tab.ask("document.getElementById('payload').focus()")
            await tab.type("by keyboard")
            await tab.press("Enter", "\r", 13)
            assert (await anext(far)).payload == b"by keyboard"
            await tab.until("document.querySelectorAll('#events li').length == 2")
            await tab.until("document.getElementById('receipt').textContent == 'sent'")
            # A payload that is long does not bury the others; what cannot be seen is marked.
            await publish(web, "/a/%3Cb%3Ebold", b"a\x00b" + b"x" * 5_000)
            await tab.until("document.querySelectorAll('#events li').length == 3")
            shown = await tab.ask("document.querySelector('#events li').firstChild.data")
            assert shown.startswith("a\ufffdbxx") and shown.endswith("x … (5,003 characters)")
            assert len(shown) < 1_100
            # A peer's panel, and the other tabs by arrow keys.
            await tab.until("document.querySelectorAll('#peer option').length >= 2")
            await tab.ask(
                "(() => { const s = document.getElementById('peer'); s.selectedIndex = 1;"
                " s.dispatchEvent(new Event('change')); })()"
            )
            await tab.until("document.getElementById('peer-rows').innerText.includes('/a/<b>')")
            await tab.until("document.getElementById('peer-all').textContent.includes('view')")
            await tab.ask("document.getElementById('tab-peer').focus()")
            await tab.press("ArrowRight", code=39)
            assert await tab.ask("!document.getElementById('panel-lab').hidden")
            light = await tab.ask("getComputedStyle(document.body).backgroundColor")
            await tab.colours("dark")
            assert light != await tab.ask("getComputedStyle(document.body).backgroundColor")
            # The field is free while an answer is waited for; what was not sent comes back into it.
            sent = "[document.getElementById('payload').value, receipt.textContent].join()"
            await tab.ask("document.getElementById('tab-topics').click()")
            for answer, shown in (
                ("new Promise(() => {})", ",sending …"),
                ("Promise.reject()", "a word,not sent: weft does not answer"),
            ):
                await tab.ask(f"(() => {{ window.fetch = () => {answer}; }})()")
                await tab.ask("document.getElementById('payload').focus()")
                await tab.type("a word")
                await tab.press("Enter", "\r", 13)
                assert await tab.ask(sent) == shown
            # Text of others stayed text, the token is not in the address, and all came from here.
            assert await tab.ask("document.title") == "weft"
            assert await tab.ask("document.querySelectorAll('img, b').length") == 0
            assert TOKEN not in await tab.ask("location.href")
            assert not tab.console
            assert {url.split("/")[2] for url in tab.requested if "//" in url} == {web.address}


@pytest.mark.skipif(not chromium(), reason=MISSING)
async def test_without_the_token_the_page_offers_no_publishing() -> None:
    async with weft.Peer.open(config=keeping()) as peer, served(peer) as web, browser() as tab:
        await tab.open(web.url)
        await tab.until("document.getElementById('state').textContent.startsWith('peer')")
        # A topic of which nothing was known is chosen in the list as soon as it is in there.
        await tab.ask("document.getElementById('topic').focus()")
        await tab.type("/new")
        await tab.press("Enter", "\r", 13)
        await tab.until("document.querySelectorAll('#overlay option').length == 2")
        assert await tab.ask("document.getElementById('overlay').value") == "/new"
        shown = "document.getElementById('{}').checkVisibility()"
        assert not await tab.ask(shown.format("publish"))
        assert await tab.ask(shown.format("read-only"))


@pytest.mark.skipif(not chromium(), reason=MISSING)
async def test_a_single_peer_is_shown_with_its_neighbours() -> None:
    async with together(3, config=keeping()) as peers, AsyncExitStack() as stack:
        for peer in peers:
            await stack.enter_async_context(await peer.subscribe("/a"))
        web = await stack.enter_async_context(served(peers[0]))
        tab = await stack.enter_async_context(browser())
        await tab.open(web.url)
        await tab.until("document.querySelectorAll('#overlay option').length == 2")
        await tab.ask(
            "(() => { const s = document.getElementById('overlay'); s.value = '/a';"
            " s.dispatchEvent(new Event('change')); })()"
        )
        # Itself, and the two that it has links with, which cannot be asked from here.
        await tab.until("legend.textContent.startsWith('blue: 3 known subscribers')")
        assert (await tab.ask("document.getElementById('tile-since').textContent"))[:6] == "since "


async def test_what_a_single_peer_gets_and_publishes_is_told_as_it_passes() -> None:
    async with together(2, config=keeping()) as peers, AsyncExitStack() as stack:
        for peer in peers:
            await stack.enter_async_context(await peer.subscribe("/a"))
        web = await stack.enter_async_context(served(peers[0]))
        socket = await stack.enter_async_context(connect(f"ws://{web.address}/live"))
        told: dict[str, list[Any]] = {}

        async def until_told(kind: str) -> Any:
            while True:
                frame = json.loads(await socket.recv())
                told.setdefault(frame["kind"], []).append(frame)
                if frame["kind"] == kind:
                    return frame

        assert (await until_told("figures"))["figures"][0]["links"] == {"/a": [1]}
        assert told["names"][0]["names"] == [peers[0].id, peers[1].id]
        await peers[1].publish("/a", b"from the neighbour")
        [[topic, _, reached]] = (await until_told("flow"))["events"]
        assert (topic, reached) == ("/a", [[1, 0], [0, 1]])
        await peers[0].publish("/a", b"from itself")
        [[topic, _, reached]] = (await until_told("flow"))["events"]
        assert (topic, reached) == ("/a", [[0, 0]])


@pytest.mark.skipif(not chromium(), reason=MISSING)
async def test_any_token_comes_through_the_address() -> None:
    """As base64 makes them; a plus would be read as a space."""
    token = "ab+cd/ef=="
    async with (
        weft.Peer.open(config=keeping()) as peer,
        served(peer, token=token) as web,
        browser() as tab,
    ):
        await tab.open(web.url_with_token)
        await tab.until("document.getElementById('state').textContent.startsWith('peer')")
        assert await tab.ask("sessionStorage.getItem('weft-token')") == token


@pytest.mark.skipif(not chromium(), reason=MISSING)
async def test_verdicts_are_a_list_that_opens_one_by_one(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        verdict = {
            "id": name,
            "title": HTML,
            "claim": "It holds.",
            "passed": name == "one",
            "tolerance": {"copies": {"relation": "at most", "bound": 1.05}},
            "measured": {"copies": {"value": 1.0049}},
        }
        (tmp_path / name / "verdict.json").write_text(json.dumps(verdict))
    async with (
        weft.Peer.open(config=keeping()) as peer,
        served(peer, tmp_path) as web,
        browser() as tab,
    ):
        await tab.open(web.url)
        await tab.ask("document.getElementById('tab-lab').click()")
        await tab.until("document.querySelectorAll('#verdicts details').length == 2")
        assert not await tab.ask("document.querySelectorAll('#verdicts details[open], img').length")
        await tab.ask("document.querySelector('#verdicts summary').focus()")
        await tab.press("Enter", "\r", 13)
        said = await tab.until("document.querySelector('#verdicts details[open]')?.innerText")
        assert (
            said.split()
            == f"holds one: {HTML} It holds. measured asked copies 1.005 at most 1.05".split()
        )


def sight(peer: str, view: list[str], **links: list[str]) -> Sight:
    return {
        "peer": peer,
        "isolated": False,
        "connections": 1,
        "view": view,
        "links": links,
        "delivered": 0,
        "frames": 0,
        "bytes": 0,
        "dropped": 0,
    }


def test_peers_keep_their_numbers() -> None:
    scene = Scene()
    figures = scene.figures([sight("a", ["z", "b"]), sight("b", ["a"], t=["a"])])
    assert [figure["n"] for figure in figures] == [0, 1]
    assert figures[0]["view"] == [2, 1] and figures[1]["links"] == {"t": [0]}
    assert scene.figures([sight("b", ["z"])])[0]["n"] == 1
    assert scene.names(1) == ["b", "z"]
    flow = [("a", "t", "e", 1), ("b", "t", "e", 2), ("b", "t", "f", 1)]
    assert json.loads(json.dumps(scene.steps(flow))) == [
        ["t", "e", [[0, 1], [1, 2]]],
        ["t", "f", [[1, 1]]],
    ]
