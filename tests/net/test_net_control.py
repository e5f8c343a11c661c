"""The control socket: private, one per peer, and clear about what it does not understand."""

from __future__ import annotations

import asyncio
import base64
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import msgspec
import pytest

import weft
from net_kit import until
from weft.cli import status, topics
from weft.ids import cid_of, cid_text
from weft.net.control import ControlServer
from weft.net.control_client import ControlClient
from weft.protocol.config import Routing


@asynccontextmanager
async def controlled(path: Path) -> AsyncGenerator[weft.Peer, None]:
    async with weft.Peer.open() as peer:
        server = ControlServer(peer, path)
        await server.open()
        try:
            yield peer
        finally:
            await server.close()


async def test_the_socket_is_private_and_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "home" / "control.sock"
    async with controlled(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


async def test_status_topics_and_metrics(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with controlled(path) as peer, ControlClient(path) as client:
        await peer.subscribe("/x")
        assert (await client.ask("status"))["status"]["address"] == peer.address
        assert list((await client.ask("topics"))["topics"]) == ["/x"]
        assert "weft_net_connections" in (await client.ask("metrics"))["text"]


async def test_publish_and_subscribe(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with controlled(path) as peer, ControlClient(path) as client:
        async with ControlClient(path) as listener:
            notes = listener.subscribe("/x")
            assert (await anext(notes))["outcome"] in ("joined", "instantiated")
            receipt = await client.publish("/x", b"\x00\xff")
            assert receipt["outcome"] == "alone"
            note = await anext(notes)
            assert note["payload"] == b"\x00\xff"
            assert note["event_id"] == receipt["event_id"]
            assert note["publisher"] == peer.id
            await notes.aclose()
        # Hanging up unsubscribes.
        await until(lambda: peer.status()["topics"] == {})


@pytest.mark.parametrize("routing", get_args(Routing))
async def test_topics_of_every_routing_are_shown(tmp_path: Path, routing: Routing) -> None:
    path = tmp_path / "control.sock"
    async with weft.Peer.open(routing=routing) as peer:
        server = ControlServer(peer, path)
        await server.open()
        async with ControlClient(path) as client:
            assert (await client.ask("topics"))["topics"] == {}
            await peer.subscribe("/x")
            listed = (await client.ask("topics"))["topics"]
            shown = (await client.ask("status"))["status"]
        await server.close()
    assert list(listed) == ["/x"]
    assert "/x" in topics.in_words(listed) and "/x: 0 links" in status.in_words(shown)
    assert "1 subscribed" in status.in_words(shown)


async def test_mistakes_get_an_answer_and_the_connection_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with controlled(path):
        reader, writer = await asyncio.open_unix_connection(path)
        for line, expected in (
            (b"hello\n", "not a request"),
            (b'{"op": "dance"}\n', "not a request"),
            (b'{"op": "publish", "topic": "x", "payload": "YQ=="}\n', "start with '/'"),
            (b'{"op": "publish", "topic": "/x", "payload": "%%%"}\n', "not a request"),
            (b'{"op": "stop"}\n', "cannot be stopped"),
        ):
            writer.write(line)
            answer = msgspec.json.decode(await reader.readline())
            assert answer["ok"] is False
            assert expected in answer["error"]
        writer.write(b'{"op": "status"}\n')
        assert msgspec.json.decode(await reader.readline())["ok"] is True
        writer.close()


async def test_a_request_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with controlled(path):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"x" * (5 << 20))
        assert b"too long" in await reader.readline()
        writer.close()


async def test_the_largest_payload_fits(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with controlled(path), ControlClient(path) as client, ControlClient(path) as listener:
        notes = listener.subscribe("/x")
        await anext(notes)
        data = bytes(range(256)) * 4_096
        await client.publish("/x", data)
        assert (await anext(notes))["payload"] == data
        assert len(base64.b64encode(data)) > 1 << 20
        await notes.aclose()


async def test_a_subscription_that_fails_later_says_why(tmp_path: Path) -> None:
    path, nowhere = tmp_path / "control.sock", cid_text(cid_of(b"nobody has it"))
    async with weft.Peer.open(store=":memory:") as peer:
        server = ControlServer(peer, path)
        await server.open()
        async with ControlClient(path) as client:
            notes = client.subscribe("/x", since=nowhere)
            await anext(notes)
            with pytest.raises(weft.ControlError, match="knows the event"):
                await anext(notes)
            assert (await client.ask("topics"))["topics"] == {}  # and the connection goes on
        await server.close()


async def test_stop_is_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    stopped = asyncio.Event()
    async with weft.Peer.open() as peer:
        server = ControlServer(peer, path, stopped.set)
        await server.open()
        async with ControlClient(path) as client:
            await client.ask("stop")
        await until(stopped.is_set)
        await server.close()


async def test_one_peer_per_socket(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with controlled(path) as peer:
        with pytest.raises(weft.ControlError, match="running already"):
            await ControlServer(peer, path).open()
        async with ControlClient(path) as client:  # and the first one still answers
            await client.ask("status")


async def test_a_socket_left_behind_is_replaced_but_a_file_is_not(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with controlled(path):
        left = path.stat().st_ino
        path.rename(tmp_path / "kept.sock")
    (tmp_path / "kept.sock").rename(path)
    assert path.stat().st_ino == left
    async with controlled(path), ControlClient(path) as client:
        await client.ask("status")
    path.write_text("a file")
    with pytest.raises(weft.ControlError, match="no socket"):
        async with controlled(path):
            pass


async def test_no_peer_and_too_long_a_name_are_explained(tmp_path: Path) -> None:
    with pytest.raises(weft.ControlError, match="weft peer"):
        async with ControlClient(tmp_path / "none.sock"):
            pass
    with pytest.raises(weft.ControlError, match="too long"):
        async with controlled(tmp_path / ("x" * 120)):
            pass
