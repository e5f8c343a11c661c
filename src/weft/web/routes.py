"""The routes: the page with its files, the HTTP interface, and the live picture.

`openapi.py` describes the interface; a test holds the two together.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

import weft
from weft.documents.refusal import Refused
from weft.errors import WeftError
from weft.ids import BadId, parse_plain_topic
from weft.net.errors import UsageError, usable
from weft.store.cursor import PositionError, PositionGap, PositionUnknown
from weft.store.interface import NotHeld
from weft.web.guard import TooLarge
from weft.web.openapi import document
from weft.web.picture import Picture
from weft.web.source import Source
from weft.web.stream import HISTORY_MAX, HISTORY_USUAL, Stream, has_store, history

LIVE, EVENTS = "/live", "/api/events"
STREAMS = (LIVE, EVENTS)
_STATIC = Path(str(files("weft.web")))
_KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_STATUS = {"refused": 403, "failed": 503, "dropped": 503}
"""Status codes of publishes that failed, by outcome."""


class Json(Response):
    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return msgspec.json.encode(content)


KEPT_TOPICS = 32
"""guess: topics that a peer with a store stays in after their last client has gone."""


class Routes:
    """The application's handlers, over one source."""

    def __init__(self, source: Source, lab: Path) -> None:
        self._source = source
        self._lab = lab
        self.closing = asyncio.Event()
        self.picture = Picture(source)
        self._kept: dict[str, weft.Consumer] = {}  # topics, the latest last

    def application(self) -> Starlette:
        routes = [
            Route("/", self._page),
            Route("/static/{name}", self._static),
            Route("/openapi.json", self._openapi),
            Route("/api/status", self._status),
            Route("/api/peers/{peer}", self._peer),
            Route("/api/topics", self._topics),
            Route("/api/history", self._history),
            Route(EVENTS, self._events),
            Route("/api/publish", self._publish, methods=["POST"]),
            Route("/api/lab", self._verdicts),
            Route("/api/lab/{id}/figure.svg", self._figure),
            WebSocketRoute(LIVE, self._live),
        ]
        handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
            WeftError: _explain,
            BadId: _explain,
            Refused: _explain,
            TooLarge: _too_large,
            HTTPException: _refuse,
        }
        return Starlette(routes=routes, exception_handlers=handlers)

    # --- the page ---------------------------------------------------------------------------------

    async def _page(self, request: Request) -> Response:
        return _file("index.html")

    async def _static(self, request: Request) -> Response:
        return _file(request.path_params["name"])

    async def _openapi(self, request: Request) -> Response:
        return Json(document())

    async def _live(self, socket: WebSocket) -> None:
        await socket.accept()
        ended = asyncio.create_task(self.closing.wait())
        shown = asyncio.create_task(self._show(socket))
        heard = asyncio.create_task(_drain(socket))
        tasks: list[asyncio.Task[object]] = [ended, shown, heard]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(1001)

    async def _show(self, socket: WebSocket) -> None:
        with suppress(WebSocketDisconnect):
            async for frame in self.picture.frames():
                await socket.send_text(frame.decode())

    # --- looking ----------------------------------------------------------------------------------

    async def _status(self, request: Request) -> Response:
        peer = self._source.speaker
        return Json(
            {
                "version": weft.__version__,
                "peer": peer.id,
                "address": peer.address,
                "network": peer.config.network.name,
                "isolated": peer.isolated,
                "store": has_store(peer),
                "topics": peer.status()["topics"],
                "counters": peer.counters,
            }
        )

    async def _peer(self, request: Request) -> Response:
        found = await self._source.status_of(request.path_params["peer"])
        return Json(found) if found is not None else _error(404, "this peer cannot be asked here")

    async def _topics(self, request: Request) -> Response:
        """Topics that any of the peers is subscribed to, and those that the store has events of."""
        members: dict[str, int] = {}
        for sight in await self._source.sights():
            for topic in sight["links"]:
                members[topic] = members.get(topic, 0) + 1
        peer = self._source.speaker
        held = peer.history.store.topics() if has_store(peer) else {}
        stored = {str(topic): summary.events for topic, summary in held.items()}
        return Json(
            {
                topic: {"members": members.get(topic, 0), "stored": stored.get(topic, 0)}
                for topic in sorted({*members, *stored})
            }
        )

    async def _history(self, request: Request) -> Response:
        topic, limit = _topic(request), request.query_params.get("limit", str(HISTORY_USUAL))
        if not re.fullmatch("[0-9]{1,4}", limit) or not 1 <= int(limit) <= HISTORY_MAX:
            wanted = f"expected a whole number from 1 to {HISTORY_MAX}"
            raise UsageError(f"limit is {limit!r:.40}; {wanted}")
        after = request.query_params.get("after")
        return Json({"events": history(self._source.speaker, topic, after, int(limit))})

    async def _verdicts(self, request: Request) -> Response:
        return Json(await asyncio.to_thread(_read_verdicts, self._lab))

    async def _figure(self, request: Request) -> Response:
        name = request.path_params["id"]
        path = self._lab / name / "figure.svg"
        if name.startswith(".") or not _is_file(path):
            return _error(404, "no such figure")
        return FileResponse(path, media_type="image/svg+xml")

    # --- publishing and subscribing ---------------------------------------------------------------

    async def _publish(self, request: Request) -> Response:
        topic = _topic(request)
        headers = dict(map(_header, request.query_params.getlist("header")))
        body = await request.body()
        receipt = await self._source.speaker.publish(topic, body, headers=headers)
        return Json(await receipt.report(), _STATUS.get(receipt.outcome, 200))

    async def _events(self, request: Request) -> Response:
        peer = self._source.speaker
        after: str | None = request.headers.get("last-event-id") or None
        if after is None:
            since = request.query_params.get("since", "now")
            if since not in ("now", "beginning"):
                raise UsageError(f"since is {since!r}; expected 'now' or 'beginning'")
            after = "now" if since == "now" else None
        if after != "now" and not has_store(peer):
            raise UsageError("this peer has no store, so there is no past to read")
        topic = _topic(request)
        await self._stay_in(topic)
        stream = Stream(peer, topic, after)
        try:
            await stream.open()
        except BaseException:
            await stream.close()
            raise
        return _Events(stream, self.closing)

    async def _stay_in(self, topic: str) -> None:
        """With a store, stay in a topic after its last client has gone, so that a client that comes
        back gets the events it missed. Only the latest topics are kept, since any client may name
        new ones."""
        peer = self._source.speaker
        if not has_store(peer):
            return
        known = topic in self._kept
        self._kept[topic] = self._kept.pop(topic) if known else peer.consume(topic, after="now")
        while len(self._kept) > KEPT_TOPICS:
            await self._kept.pop(next(iter(self._kept))).close()

    async def leave(self) -> None:
        """Leave the topics that were kept for clients that may come back."""
        while self._kept:
            await self._kept.popitem()[1].close()


class _Events(StreamingResponse):
    """A stream that leaves its topic when its client has gone."""

    def __init__(self, stream: Stream, closing: asyncio.Event) -> None:
        self._stream = stream
        self._pieces = stream.pieces(closing)
        super().__init__(self._pieces, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:  # here, since the generator is cancelled when the client goes, and this awaits
            await self._pieces.aclose()
            await self._stream.close()


def _topic(request: Request) -> str:
    given = request.query_params.get("topic")
    if not given:
        raise UsageError("which topic? Add ?topic=/name")
    return usable(parse_plain_topic, given)


def _header(given: str) -> tuple[str, str]:
    """A header of an event; `publish` says what is wrong with its name or value."""
    name, equals, value = given.partition("=")
    if not equals:
        raise UsageError(f"header is {given!r:.40}; expected NAME=VALUE")
    return name, value


def _file(name: str) -> Response:
    path = _STATIC / name
    kind = _KINDS.get(Path(name).suffix)
    if kind is None or "/" in name or not _is_file(path):
        return _error(404, "no such file")
    return Response(path.read_bytes(), media_type=kind)


def _is_file(path: Path) -> bool:
    """Whether there is such a file; False also for a name that no file can have."""
    try:
        return path.is_file()
    except OSError:
        return False


def _error(status: int, why: str) -> Response:
    return Json({"error": why}, status)


async def _explain(request: Request, error: Exception) -> Response:
    if isinstance(error, PositionGap | PositionUnknown | NotHeld):
        return _error(410, str(error))
    wrong = isinstance(error, UsageError | BadId | PositionError)
    return _error(400 if wrong else 503, str(error))


async def _refuse(request: Request, error: Exception) -> Response:
    """The answer to an unknown path, or to a method that a path does not have."""
    assert isinstance(error, HTTPException)
    return Json({"error": error.detail.lower()}, error.status_code, error.headers)


async def _too_large(request: Request, error: Exception) -> Response:
    return _error(413, "the payload is too large")


async def _drain(socket: WebSocket) -> None:
    """Read and ignore all messages of a page until it goes away."""
    with suppress(WebSocketDisconnect):
        while True:
            await socket.receive_text()


def _read_verdicts(folder: Path) -> list[object]:
    """The verdicts that 'weft lab run' has written, by their files' names."""
    found: list[object] = []
    for path in sorted(folder.glob("*/verdict.json")):
        try:
            verdict = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
        except (OSError, msgspec.DecodeError):
            continue  # it is being written, or no file of weft's
        verdict["figure"] = (path.parent / "figure.svg").is_file()
        found.append(verdict)
    return found
