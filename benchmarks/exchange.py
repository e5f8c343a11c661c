"""curl, a browser and a swarm of ten peers exchange a thousand events: does each get every one?

    weft bench exchange [--events 1000] [--json]

Real processes throughout: `weft swarm --peers 10 --web`, curl and a headless Chromium. The page is
open at the topic. Half of the events are published by curl and half from inside the page, one after
another, both at the same time. Counted is what curl and the page got by Server-Sent Events, each
event once, and what the swarm's peers were notified of. The exit code is 1 if anything is lost or
came twice.
"""

# ruff: noqa: ASYNC110, ASYNC240 (what a process writes is waited for by looking)

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from benchmarks.browser import MISSING, PATIENCE_S, Tab, browser, chromium

PEERS = 10
TOPIC = "/chat"
_LISTEN = f"""
globalThis.got = [];
globalThis.heard = new EventSource("/api/events?topic={TOPIC}");
heard.onmessage = (message) => got.push(JSON.parse(message.data).payload);
new Promise((open) => {{ heard.onopen = () => open(true); }});
"""
_PUBLISH = """
(async () => {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem("weft-token")}` };
  for (const payload of %s) {
    const answer = await fetch("/api/publish?topic=%s", { method: "POST", headers, body: payload });
    if (!answer.ok) throw new Error(await answer.text());
  }
})()
"""


@asynccontextmanager
async def process(*command: str, said: Path) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    """A program whose output goes to a file; it is asked to end in the end."""
    with said.open("wb") as output:
        started = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.terminate()
        await started.wait()


async def written(file: Path, word: str) -> str:
    """What a file holds, once it has this word in it."""
    async with asyncio.timeout(PATIENCE_S):
        while word not in (text := file.read_text()):
            await asyncio.sleep(0.05)
    return text


def payloads_in(stream: str) -> list[str]:
    """Of the events in what curl wrote. Its last line may not be whole yet."""
    lines = stream.splitlines(keepends=True)
    data = (line[6:] for line in lines if line.startswith("data: ") and line.endswith("\n"))
    return [json.loads(line)["payload"] for line in data]


async def curl_publishes(url: str, token: str, payloads: Iterable[str], folder: Path) -> None:
    """One request after another, on one connection."""
    one = 'url = "{}api/publish?topic={}"\nheader = "Authorization: Bearer {}"\ndata = "{}"\nfail\n'
    requests = (one.format(url, TOPIC, token, payload) for payload in payloads)
    settings = folder / "requests"
    settings.write_text("next\n".join(requests))
    command = ("curl", "--silent", "--show-error", "--config", str(settings))
    async with process(*command, said=folder / "receipts") as curl:
        if await curl.wait():
            raise RuntimeError((folder / "receipts").read_text()[-500:])


def notifications_in(said: str) -> int:
    """What the swarm last said its peers were notified of."""
    return int(re.findall(r"(\d+) notifications", said)[-1])


async def page_publishes(tab: Tab, payloads: Sequence[str]) -> None:
    await tab.ask(_PUBLISH % (json.dumps(payloads), TOPIC))


async def measure(events: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        swarm, stream = folder / "swarm", folder / "stream"
        options = ("--peers", str(PEERS), "--subscribe", TOPIC, "--web", "127.0.0.1:0")
        async with process(sys.executable, "-m", "weft", "swarm", *options, said=swarm):
            said = await written(swarm, "the page is at ")
            url, token = re.findall(r"the page is at (\S+)#token=(\S+)", said)[0]
            subscribe = ("curl", "--silent", "--no-buffer", f"{url}api/events?topic={TOPIC}")
            async with process(*subscribe, said=stream), browser() as tab:
                await written(stream, "retry:")
                await tab.open(f"{url}#token={token}")
                await tab.until("document.querySelectorAll('#tree button').length > 0")
                await tab.ask("document.querySelector('#tree button').click()")
                await tab.ask(_LISTEN)
                return await _exchanged(tab, events, (url, token), swarm, stream)


async def _exchanged(
    tab: Tab, events: int, page: tuple[str, str], swarm: Path, stream: Path
) -> dict[str, float]:
    by_curl = [f"curl {number}" for number in range(events // 2)]
    by_page = [f"page {number}" for number in range(events - events // 2)]
    wanted = {*by_curl, *by_page}
    began = time.monotonic()
    await asyncio.gather(curl_publishes(*page, by_curl, swarm.parent), page_publishes(tab, by_page))
    published = time.monotonic()
    with suppress(TimeoutError):  # what is missing then is counted below
        async with asyncio.timeout(PATIENCE_S):
            await tab.until(f"got.length >= {events}")
            while len(payloads_in(stream.read_text())) < events:
                await asyncio.sleep(0.05)
    arrived = time.monotonic()
    with suppress(TimeoutError):
        await written(swarm, f" {PEERS * events} notifications")
    got = {"curl": payloads_in(stream.read_text()), "page": await tab.ask("got")}
    return {
        "events": events,
        "publishing_s": round(published - began, 2),
        "all_arrived_after_s": round(arrived - published, 2),
        **{f"{name}_lost": len(wanted.difference(seen)) for name, seen in got.items()},
        **{f"{name}_twice": len(seen) - len(set(seen)) for name, seen in got.items()},
        "peers_lost": PEERS * events - notifications_in(swarm.read_text()),
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("weft bench exchange")
    parser.add_argument("--events", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    for there, missing in (
        (chromium(), MISSING),
        (shutil.which("curl"), "no curl on this machine"),
    ):
        if not there:
            print(f"weft: {missing}", file=sys.stderr)
            return 1
    found = asyncio.run(measure(args.events))
    if args.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name:<20} {value}" for name, value in found.items()))
    return int(any(value for name, value in found.items() if name.endswith(("_lost", "_twice"))))
