"""Runs one program of `docs/programs.md` that is not weft's, in an environment with its library.

    python programs_worker.py SYSTEM PORT < BODY

Imports the standard library and the system's own client, nothing else. NATS keeps what is published
in three of the subjects (JetStream), as the page presumes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
from collections.abc import Callable
from importlib import import_module
from typing import Any

KEPT = ["payments", "jobs", "log"]
"""Subjects of the stream of JetStream."""
QUEUED_MAX = 10
"""Of aiomqtt's client, as the program of the slow reader presumes."""


def coroutine(body: str, *names: str) -> Callable[..., Any]:
    """The program whose body this is, which is given these names."""
    source = f"async def program({', '.join(names)}):\n" + textwrap.indent(body, "    ")
    scope: dict[str, Any] = {"asyncio": asyncio, "json": json}
    exec(compile(source, "program", "exec"), scope)
    made: Callable[..., Any] = scope["program"]
    return made


async def run_nats(body: str, port: int) -> None:
    nats = import_module("nats")
    url = f"nats://127.0.0.1:{port}"

    async def ignore(error: Exception) -> None:
        """A slow consumer is told so here; the program looks at what it lost."""

    nc = await nats.connect(url, error_cb=ignore)
    js = nc.jetstream()
    await js.add_stream(name="programs", subjects=KEPT)
    await coroutine(body, "nc", "js", "nats", "url")(nc, js, nats, url)
    await nc.close()


async def run_mqtt(body: str, port: int) -> None:
    aiomqtt = import_module("aiomqtt")
    host = "127.0.0.1"
    program = coroutine(body, "client", "aiomqtt", "host", "port")
    async with aiomqtt.Client(
        host,
        port,
        protocol=aiomqtt.ProtocolVersion.V5,
        max_queued_incoming_messages=QUEUED_MAX,
    ) as client:
        await program(client, aiomqtt, host, port)


def main() -> None:
    system, port = sys.argv[1], int(sys.argv[2])
    run = {"nats": run_nats, "mqtt": run_mqtt}[system]
    asyncio.run(run(sys.stdin.read(), port))


if __name__ == "__main__":
    main()
