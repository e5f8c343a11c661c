"""The programs that the pages and the folder of examples show do what they say."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import runpy
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import weft
import weft.net.config
from net_kit import keeping, until
from weft.ids import cid_text
from weft.store.memory import MemoryStore

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "docs" / "programs.md"
TWINS = ("nats", "mqtt")


def programs(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PROGRAMS.read_text(), re.S | re.M)


def coroutine(body: str, *names: str) -> Callable[..., Any]:
    """The program whose body this is, which is given these names."""
    source = f"async def program({', '.join(names)}):\n" + textwrap.indent(body, "    ")
    scope: dict[str, Any] = {"asyncio": asyncio, "json": json, "weft": weft}
    exec(compile(source, PROGRAMS, "exec"), scope)
    made: Callable[..., Any] = scope["program"]
    return made


def test_each_program_stands_beside_its_twins() -> None:
    ours = programs("python weft")
    assert len(ours) == len(programs("text")) == 12
    for twin in TWINS:
        assert len(programs(f"python {twin}")) == 12
        for body in programs(f"python {twin}"):
            ast.parse("async def program():\n" + textwrap.indent(body, "    "))


async def test_the_programs_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    async with (
        weft.Peer.open(config=keeping(), store=MemoryStore()) as peer,
        weft.Peer.open(config=keeping(), store=MemoryStore(), join=peer.address) as other,
    ):
        await other.joined(60)
        for body, expected in zip(programs("python weft"), programs("text"), strict=True):
            await asyncio.wait_for(coroutine(body, "peer", "other")(peer, other), 300)
            assert capsys.readouterr().out == expected, body


# --- the folder of examples -----------------------------------------------------------------------


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


async def test_chat(capsys: pytest.CaptureFixture[str]) -> None:
    said = ""

    def heard(text: str) -> bool:
        nonlocal said
        said += capsys.readouterr().out
        return text in said

    async def types(*lines: str, until_heard: str) -> AsyncIterator[str]:
        for line in lines:
            yield line
        await until(lambda: heard(until_heard), until_heard)

    chat = example("chat")["main"]
    ann = asyncio.create_task(chat("Ann", [], types(until_heard="Ben: hello")))
    await until(lambda: heard("others join by "), "an address")
    address = said.rsplit(maxsplit=1)[-1]
    await chat("Ben", [address], types("hello", until_heard="Ben: hello"))
    await ann


async def test_a_thousand_sensors(capsys: pytest.CaptureFixture[str]) -> None:
    latest = await example("sensors")["main"](300)
    assert len(latest) == 301
    assert capsys.readouterr().out == "301 sensors, the warmest has 21.0 °C\n"


async def test_the_browser_shows_what_a_store_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store.db"
    async with weft.Peer.open(store=store) as peer:
        await peer.subscribe("/orders")
        for number in range(3):
            await peer.publish("/orders", f"order {number}", headers={"by": "ann"})
        first, second, _ = peer.history.read("/orders")
    browse = example("browser")["main"]
    browse(store)
    assert capsys.readouterr().out == "/orders: 3 events\n"
    browse(store, "/orders")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines] == [f"order {n}" for n in range(3)]
    browse(store, "/orders", cid_text(second.cid))
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["payload order 1", "headers {'by': 'ann'}", f"follows {cid_text(first.cid)}"]


async def test_the_supervisor_tells_of_isolation(capsys: pytest.CaptureFixture[str]) -> None:
    async with weft.Peer.open(config=keeping()) as peer:
        watching = asyncio.create_task(example("supervisor")["watch"](peer))
        said = ""

        def tells(text: str) -> bool:
            nonlocal said
            said += capsys.readouterr().out
            return text in said

        await until(lambda: tells("isolated"), "isolation")
        async with weft.Peer.open(config=keeping(), join=peer.address) as other:
            await other.joined(60)
            await until(lambda: tells("among others again, after"), "company")
    await watching
