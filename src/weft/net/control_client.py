"""The caller's end of the control socket (`net/control.py` is the peer's).

It imports little, so that commands such as `weft status` answer at once: a command that only asks a
running peer needs no peer of its own.
"""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from weft.net.errors import ControlError

Fields: TypeAlias = dict[str, Any]
"""One line of JSON, decoded."""

LINE_BYTES_MAX = 2 << 20
"""Enough for the largest payload (`documents/run.py`) in base64, and what is around it."""


def answers(path: Path) -> bool:
    """Whether a running peer listens at this socket; one that was killed leaves its file behind."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


async def write_line(writer: asyncio.StreamWriter, said: Mapping[str, object]) -> None:
    writer.write(msgspec.json.encode(said) + b"\n")
    await writer.drain()


class ControlClient:
    """Talks to a running peer; an async context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __aenter__(self) -> ControlClient:
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(
                self._path, limit=LINE_BYTES_MAX
            )
        except OSError as error:
            raise ControlError(
                f"no peer answers at {self._path} ({error.strerror}); start one with 'weft peer', "
                "or name its home with --home"
            ) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def ask(self, op: str, **fields: object) -> Fields:
        """One request and its answer; `ControlError` if the peer says no."""
        await write_line(self._writer, {"op": op, **fields})
        answer = await self._read()
        if not answer.get("ok"):
            raise _refusal(answer)
        return answer

    async def publish(self, topic: str, payload: bytes) -> Fields:
        """The receipt's fields."""
        answer = await self.ask("publish", topic=topic, payload=payload)
        receipt: Fields = answer["receipt"]
        return receipt

    async def publish_together(
        self,
        topics: list[str],
        payload: bytes,
        headers: Mapping[str, str] | None = None,
        **sure: object,
    ) -> list[Fields]:
        """The receipt's fields for each topic; `sure` are the arguments `confirm`, `copies` and
        `timeout` of `Peer.publish`."""
        answer = await self.ask(
            "publish", topics=topics, payload=payload, headers=dict(headers or {}), **sure
        )
        receipts: list[Fields] = answer["receipts"]
        return receipts

    async def subscribe(self, topic: str, **since: object) -> AsyncGenerator[Fields, None]:
        """Notifications' fields, with `payload` as bytes; the first item is the answer itself."""
        yield await self.ask("subscribe", topic=topic, **since)
        with suppress(asyncio.IncompleteReadError):
            while True:
                line = await self._read()
                if "note" not in line:
                    raise _refusal(line)
                note: Fields = line["note"]
                note["payload"] = base64.b64decode(note["payload"])
                yield note

    async def _read(self) -> Fields:
        try:
            line = await self._reader.readuntil(b"\n")
        except (asyncio.LimitOverrunError, OSError) as error:
            raise ControlError(f"the peer's answer could not be read: {error}") from error
        answer: Fields = msgspec.json.decode(line)
        return answer


def _refusal(answer: Fields) -> ControlError:
    return ControlError(str(answer.get("error", "the peer gave no reason")))
