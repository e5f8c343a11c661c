"""The live picture: looks at all peers while a page is open, and sends frames to every page.

One task looks for all pages; it runs only while a page is open. A page that does not keep up loses
frames; each frame of figures is complete, so the next one makes up for that. Frames:

    {"kind": "names", "first": 0, "names": [ID, …]}   numbers that peers have from now on
    {"kind": "figures", "figures": [{"n": 0, …}, …]}  all peers, as `source.Figure` says
    {"kind": "flow", "events": [[TOPIC, EVENT, [[n, hops], …]], …]}   notifications since the last
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator

import msgspec

from weft.errors import WeftError
from weft.web.source import Scene, Source

log = logging.getLogger("weft.web")

LOOK_S = 1.0
"""guess: how often all peers are looked at; 500 of them take 0.1 s of one core."""
FLOW_S = 0.2
"""guess: how often notifications are told; an eye sees no more."""
WAITING_MAX = 16
"""guess: frames that wait for a page."""


class Viewer:
    """The frames that wait for one open page; the oldest make room for new ones."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque(maxlen=WAITING_MAX)
        self._more = asyncio.Event()
        self.names = 0  # how many names it was told

    def put(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._more.set()

    async def take(self) -> bytes:
        while not self._frames:
            self._more.clear()
            await self._more.wait()
        return self._frames.popleft()

    def told(self, scene: Scene) -> bytes | None:
        """A frame with the names that the page does not know yet."""
        names = scene.names(self.names)
        if not names:
            return None
        frame = {"kind": "names", "first": self.names, "names": names}
        self.names += len(names)
        return msgspec.json.encode(frame)


class Picture:
    """Makes frames from a source, for all open pages."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._scene = Scene()
        self._viewers: dict[Viewer, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._look_at = 0.0
        self.seen = asyncio.Event()  # a page has been open

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The frames for one page, until it is closed."""
        viewer = Viewer()
        self._viewers[viewer] = None
        self.seen.set()
        self._look_at = 0.0  # at once, for the new page
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            while True:
                frame = await viewer.take()
                # Names come right before the first frame that needs them, and are never lost.
                if (names := viewer.told(self._scene)) is not None:
                    yield names
                yield frame
        finally:
            self._viewers.pop(viewer, None)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while self._viewers:
            try:
                if loop.time() >= self._look_at:
                    figures = self._scene.figures(await self._source.sights())
                    self._tell({"kind": "figures", "figures": figures})
                    self._look_at = loop.time() + LOOK_S
                if steps := self._scene.steps(await self._source.flow()):
                    self._tell({"kind": "flow", "events": steps})
            except WeftError as error:
                log.info("no news for the picture: %s", error)  # the swarm is leaving, say
            await asyncio.sleep(FLOW_S)

    def _tell(self, frame: dict[str, object]) -> None:
        encoded = msgspec.json.encode(frame)
        for viewer in self._viewers:
            viewer.put(encoded)
