"""The control socket of a running peer: how `weft status`, `topics`, `pub` and `sub` reach it.

A unix socket of mode 0600 (a user that may open it may use the peer) that speaks JSON lines, one
request and one answer at a time:

    {"op": "status"}                                     {"ok": true, "status": {…}}
    {"op": "topics"}                                     {"ok": true, "topics": {…}}
    {"op": "metrics"}                                    {"ok": true, "text": "…"}
    {"op": "publish", "topic": "/a", "payload": BASE64}  {"ok": true, "receipt": {…}}
                   "topics": ["/a", "/b"] for several           {"ok": true, "receipts": [{…}, {…}]}
                   "headers": {"name": "text"}
                   "confirm": "taken", "copies": 2, "timeout": 10     (the receipt of an event that
                   was not confirmed has "confirmed": false and a "reason")
    {"op": "subscribe", "topic": "/a"}                   {"ok": true, "outcome": "joined"}
                   "since": "beginning" or a CID, or "since_ms": the past comes first
    {"op": "topic", "action": "create", "topic": "/a"}   {"ok": true, "cid": "…", "info": {…}}
                   name, show, add, ask, allow, revoke, restrict, follow; "peers": […],
                   "owners": […], "segment": "…" (`Request` has all fields)
    {"op": "get", "path": "CID/parents/0"}               {"ok": true, "value": …}
    {"op": "stop"}                                       {"ok": true}

After `subscribe` the connection carries one line per notification, {"note": {…}}, until the
caller closes it, which unsubscribes. Anything wrong gets {"ok": false, "error": "…"}.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from weft import private
from weft.documents.headers import HEADERS_MAX
from weft.documents.merkle import Link
from weft.documents.run import PARTS_MAX
from weft.documents.shape import ALLOWED_MAX, OWNERS_MAX
from weft.errors import WeftError
from weft.ids import cid_text
from weft.net.api import Peer
from weft.net.control_client import LINE_BYTES_MAX, answers, write_line
from weft.net.errors import ControlError, NotConfirmed
from weft.net.listener import Acceptor
from weft.net.receipt import Confirm, unconfirmed
from weft.net.subscription import Notification, Subscription
from weft.protocol.seam import Scheme

_CLIENTS_MAX = 64  # guess
_PATH_BYTES_MAX = 107  # the kernel's limit for unix socket names


class Request(Struct, forbid_unknown_fields=True):
    op: Literal["status", "topics", "metrics", "publish", "subscribe", "stop", "topic", "get"]
    topic: Annotated[str, Meta(max_length=1_024)] = ""
    topics: Annotated[list[str], Meta(max_length=PARTS_MAX)] = []  # to publish in several at once
    payload: bytes = b""  # base64 in JSON
    headers: Annotated[dict[str, str], Meta(max_length=HEADERS_MAX)] = {}
    confirm: Confirm | None = None
    copies: Annotated[int, Meta(ge=1)] = 1
    timeout: Annotated[float, Meta(ge=0)] | None = None
    scheme: Scheme | None = None
    since: Annotated[str, Meta(max_length=128)] = ""
    since_ms: Annotated[int, Meta(ge=0, le=1 << 50)] | None = None
    action: Literal[
        "", "create", "name", "show", "add", "ask", "allow", "revoke", "restrict", "follow"
    ] = ""
    peers: Annotated[list[str], Meta(max_length=ALLOWED_MAX)] = []
    owners: Annotated[list[str], Meta(max_length=OWNERS_MAX)] = []
    anyone: bool = False
    segment: Annotated[str, Meta(max_length=256)] = ""
    hierarchy: bool = False
    made_from: Annotated[str, Meta(max_length=1_024)] = ""
    path: Annotated[str, Meta(max_length=65_536)] = ""

    def starting(self) -> str | datetime | None:
        """Where a subscription begins in the past, as `Peer.subscribe` takes it."""
        if self.since_ms is not None:
            return datetime.fromtimestamp(self.since_ms / 1_000, UTC)
        return self.since or None


_requests = msgspec.json.Decoder(Request)


def fields_of(note: Notification) -> dict[str, object]:
    """The fields of a notification that clients get, with its payload as bytes."""
    return {
        "topic": note.topic,
        "published_in": note.published_in,
        "payload": note.payload,
        "headers": note.headers,
        "publisher": note.publisher,
        "event_id": note.event_id,
        "published_at": note.published_at,
        "hops": note.hops,
        **({"cid": note.cid} if note.descriptor is not None else {}),
    }


def _note(note: Notification) -> dict[str, object]:
    """A notification as it goes over the control socket."""
    return fields_of(note) | {"payload": base64.b64encode(note.payload).decode()}


class ControlServer:
    """Serves one peer's control socket until it is closed."""

    def __init__(self, peer: Peer, path: Path, stop: Callable[[], None] | None = None) -> None:
        self._peer = peer
        self._path = path
        self._stop = stop
        self._acceptor: Acceptor | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Start listening; a socket left behind by a dead peer is replaced."""
        if len(os.fsencode(self._path)) > _PATH_BYTES_MAX:
            raise ControlError(f"{self._path} is too long for a socket name; use a shorter --home")
        if self._path.exists():
            if not stat.S_ISSOCK(self._path.stat().st_mode):
                raise ControlError(f"{self._path} exists and is no socket")
            if answers(self._path):
                raise ControlError(f"a peer is running already: {self._path} answers")
            self._path.unlink()
        try:
            private.make_folder(self._path.parent)
            listener = _bind_private(self._path)
            self._acceptor = Acceptor(listener, self._protocol)
            self._acceptor.open(_CLIENTS_MAX)
        except OSError as error:
            raise ControlError(f"cannot open {self._path}: {error.strerror}") from error

    async def close(self) -> None:
        if self._acceptor is not None:
            await self._acceptor.close()
            self._path.unlink(missing_ok=True)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        return asyncio.StreamReaderProtocol(reader, self._accept)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= _CLIENTS_MAX:
            writer.close()
            return
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the caller went away, or the peer closes
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                line = await reader.readuntil(b"\n")
                request = _requests.decode(line)
                if request.op == "subscribe":
                    await self._stream(request, reader, writer)
                    return
                answer = await self._answer(request)
            except asyncio.LimitOverrunError:
                await write_line(writer, {"ok": False, "error": "the request is too long"})
                return
            except msgspec.DecodeError as error:
                answer = {"ok": False, "error": f"not a request: {error}"}
            except WeftError as error:
                answer = {"ok": False, "error": str(error)}
            await write_line(writer, answer)

    async def _answer(self, request: Request) -> dict[str, object]:
        peer = self._peer
        if request.op == "status":
            return {"ok": True, "status": peer.status()}
        if request.op == "topics":
            return {"ok": True, "topics": peer.status()["topics"]}
        if request.op == "metrics":
            return {"ok": True, "text": peer.metrics()}
        if request.op == "publish":
            if request.topics:
                return {"ok": True, "receipts": await _publish(peer, request, request.topics)}
            # A list is waited for until an access point has answered.
            [receipt] = await _publish(peer, request, [request.topic])
            return {"ok": True, "receipt": receipt}
        if request.op == "topic":
            return await change_topic(peer, request)
        if request.op == "get":
            return {"ok": True, "value": plain(await peer.history.get(request.path))}
        if self._stop is None:
            return {"ok": False, "error": "this peer cannot be stopped from here"}
        self._stop()
        return {"ok": True}

    async def _stream(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        since = request.starting()
        subscription = self._peer.subscribe(request.topic, request.scheme, since)
        watch = asyncio.create_task(_end_with(reader, subscription))
        try:
            await subscription
            await write_line(writer, {"ok": True, "outcome": subscription.outcome})
            async for note in subscription:
                await write_line(writer, {"note": _note(note)})
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)  # only one may read at a time
            await subscription.close()


async def _publish(peer: Peer, request: Request, topics: list[str]) -> list[dict[str, object]]:
    """A receipt's fields for each topic."""
    try:
        receipts = await peer.publish(
            topics,
            request.payload,
            headers=request.headers,
            confirm=request.confirm,
            copies=request.copies,
            timeout=request.timeout,
        )
    except NotConfirmed as error:
        return [unconfirmed(topic, error) for topic in topics]
    return [await receipt.report() for receipt in receipts]


async def change_topic(peer: Peer, request: Request) -> dict[str, object]:
    """Carry out a request about an owned topic; the answer says how the topic is set up then."""
    owned, topic, cid, outcome = peer.owned, request.topic, "", ""
    claims = owned.claims(topic) if request.action != "name" else []
    if request.action == "create":
        cid = await owned.create(
            topic,
            request.peers,
            request.owners,
            request.anyone,
            request.hierarchy,
            request.made_from,
        )
    elif request.action == "add":
        cid = await owned.add_subtopic(topic, request.segment)
    elif request.action == "ask":
        outcome = await owned.ask_subtopic(topic, request.segment)
    elif request.action == "allow":
        cid = await owned.allow(topic, request.peers)
    elif request.action == "revoke":
        cid = await owned.revoke(topic, request.peers)
    elif request.action == "restrict":
        cid = await owned.restrict(topic, request.anyone)
    elif request.action == "follow":
        await owned.follow(topic, request.owners)
    elif request.action == "name":
        return {"ok": True, "cid": "", "outcome": owned.name(topic), "info": None, "claims": []}
    info = owned.info(topic)
    fields = info.as_dict() if info is not None else None
    believed = owned.believed(topic)
    claims = [one for one in claims if set(one) != set(believed)]
    return {
        **{"ok": True, "cid": cid, "outcome": outcome, "info": fields, "claims": claims},
        "believed": believed,
    }


def plain(value: object) -> object:
    """A document or a field of one as dag-json: links as {"/": CID}, bytes as
    {"/": {"bytes": BASE64}}."""
    if isinstance(value, Link):
        return {"/": cid_text(value.cid)}
    if isinstance(value, bytes):
        return {"/": {"bytes": base64.b64encode(value).decode().rstrip("=")}}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


async def _end_with(reader: asyncio.StreamReader, subscription: Subscription) -> None:
    """Close the subscription when its caller closes the connection."""
    while await reader.read(1_024):
        pass  # the caller should send nothing more; if it does, that is ignored
    await subscription.close()


def _bind_private(path: Path) -> socket.socket:
    """A listening unix socket that is never, not even for a moment, open to others."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # the name inherits it
        listener.bind(str(path))
        path.chmod(0o600)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
