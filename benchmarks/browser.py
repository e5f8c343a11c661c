"""A real browser, headless: Chromium, driven over its own protocol (CDP) by a web socket."""

# ruff: noqa: ASYNC110, ASYNC240 (what a page or a browser becomes is waited for by looking)

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-port=0", "--remote-allow-origins=*", "--window-size=1280,800"),
)
PATIENCE_S = 120.0


MISSING = "no Chromium on this machine (Debian: apt install chromium)"


def chromium() -> str:
    """The browser of this machine; empty where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or ""


class Tab:
    """One page."""

    def __init__(self, socket: ClientConnection, session: str, process: int) -> None:
        self.process = process  # of the browser
        self._socket = socket
        self._session = session
        self._ids = count(1_000)
        self.console: list[str] = []  # errors that the page has had
        self.requested: list[str] = []
        self._traced: list[dict[str, Any]] = []
        self._trace_ended = False

    async def call(self, method: str, **params: object) -> dict[str, Any]:
        number = next(self._ids)
        request = {"id": number, "method": method, "params": params, "sessionId": self._session}
        await self._socket.send(json.dumps(request))
        while True:
            answer = json.loads(await self._socket.recv())
            self._note(answer)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.console.append(json.dumps(params["exceptionDetails"])[:500])
        elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.console.append(params["entry"]["text"])
        elif message.get("method") == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])
        elif message.get("method") == "Tracing.dataCollected":
            self._traced += params["value"]
        elif message.get("method") == "Tracing.tracingComplete":
            self._trace_ended = True

    async def open(self, url: str) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)
        await self.until("location.protocol == 'http:' && document.readyState == 'complete'")

    async def ask(self, expression: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        params = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        found = await self.call("Runtime.evaluate", **params)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait for an expression to become true."""
        async with asyncio.timeout(PATIENCE_S):
            while not (value := await self.ask(expression)):
                await asyncio.sleep(0.05)
        return value

    async def traced(self, seconds: float) -> list[dict[str, Any]]:
        """The browser's own timeline of so many seconds: what its threads did, in the events of
        Chrome's trace format."""
        self._traced, self._trace_ended = [], False
        wanted = {"includedCategories": ["toplevel", "blink.user_timing"]}
        await self.call("Tracing.start", transferMode="ReportEvents", traceConfig=wanted)
        await asyncio.sleep(seconds)
        await self.call("Tracing.end")
        while not self._trace_ended:
            self._note(json.loads(await self._socket.recv()))
        return self._traced

    async def press(self, key: str, text: str = "", code: int = 0) -> None:
        names = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **names)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **names)

    async def type(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def colours(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def screenshot(self, path: Path) -> None:
        found = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))


@asynccontextmanager
async def browser() -> AsyncGenerator[Tab, None]:
    """A browser with one empty tab; it is killed in the end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            *(chromium(), *FLAGS, f"--user-data-dir={profile}", "about:blank"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            port = Path(profile) / "DevToolsActivePort"
            async with asyncio.timeout(PATIENCE_S):
                while not (port.exists() and port.read_text().count("\n")):
                    await asyncio.sleep(0.05)
            number, path = port.read_text().splitlines()[:2]
            async with connect(f"ws://127.0.0.1:{number}{path}", max_size=1 << 26) as socket:
                yield Tab(socket, await _attach(socket), process.pid)
                await socket.send(json.dumps({"id": 3, "method": "Browser.close"}))
                async with asyncio.timeout(PATIENCE_S):
                    await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _attach(socket: ClientConnection) -> str:
    """A new tab; returns the name of the session with it."""

    async def call(number: int, method: str, **params: object) -> dict[str, Any]:
        await socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while (answer := json.loads(await socket.recv())).get("id") != number:
            pass
        return dict(answer["result"])

    target = await call(1, "Target.createTarget", url="about:blank")
    found = await call(2, "Target.attachToTarget", targetId=target["targetId"], flatten=True)
    return str(found["sessionId"])
