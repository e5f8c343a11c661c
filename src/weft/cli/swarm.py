"""`weft swarm`: runs many peers on this machine, to try things with."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.output import table
from weft.cli.parser import folder, hours, plain_topic, repeated_option, seconds, whole_option
from weft.cli.problem import FAILED, USAGE, Problem
from weft.cli.settings import config_of, network_options
from weft.cli.stop import Stop, stop_on_signals
from weft.cli.web import needs_web, swarm_window, web_option

if TYPE_CHECKING:
    from weft.lab.census import Census
    from weft.lab.processes import Swarm
    from weft.net.config import Config

HELP = "Run many peers on this machine"
DETAILS = """
Starts peers on loopback, spread over some processes, prints their addresses and
shows their state until Ctrl-C, when all of them leave. On a terminal the table
is redrawn in place; otherwise one line is printed each time.

It says when the swarm has settled: no peer is isolated, each knows enough others
and has all its links. With --settle it publishes an event in each topic then, and
leaves once they have reached all peers; exit code 1 if that takes too long.
"""
EXAMPLES = """
weft swarm --peers 10
weft swarm --peers 50 --processes 4 --subscribe /chat
weft swarm --peers 400 --subscribe /chat --settle 60   how long it takes, at what cost
weft swarm --peers 50 --subscribe /chat --web           a page to watch them by
weft swarm --peers 20 --processes 4 --soak 1            an hour of churn and kills, as a picture
weft sub --join ADDRESS /chat          in another terminal, with any of the addresses
"""
_SHOWN_CAUSES = 6
_SHOWN_PEERS = 20
_PROBE = "has the swarm settled?"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    whole_option(parser, "--peers", 1, 1_000, "number of peers (10)", default=10)
    whole_option(parser, "--processes", 1, 64, "processes for the peers (2)", default=2)
    subscribe = "subscribe every peer to this topic (repeat for more)"
    repeated_option(parser, "--subscribe", "TOPIC", subscribe, plain_topic)
    network_options(parser)
    web_option(parser)
    parser.add_argument(
        "--every", type=seconds, default=2.0, metavar="S", help="seconds between looks (2)"
    )
    parser.add_argument(
        "--soak",
        type=hours,
        metavar="HOURS",
        help="for so many hours let peers with stores publish, come, go and be killed; then say "
        "whether events came late or not at all, and whether memory grew",
    )
    parser.add_argument(
        "--out",
        type=folder,
        default=Path("out/soak"),
        metavar="DIR",
        help="results of --soak (out/soak)",
    )
    parser.add_argument(
        "--settle", type=seconds, metavar="S", help="leave once it has settled, within S seconds"
    )


def run(args: argparse.Namespace) -> int:
    if args.web:
        needs_web()
    config = config_of(args)
    if config.network.listen != type(config.network)().listen:
        raise Problem(
            "a swarm's peers listen on free ports of 127.0.0.1; leave network.listen out", USAGE
        )
    if args.soak is not None:
        return _soak(args, config)
    return asyncio.run(_run(args, config))


def _soak(args: argparse.Namespace, config: Config) -> int:
    from dataclasses import asdict

    from weft.lab.soak import Soak, draw, summary, verdict

    if args.peers < 2 * args.processes or args.processes < 2:
        problem = "--soak kills processes: it needs --processes 2 or more, and two peers for each"
        raise Problem(problem, USAGE)
    topics = args.subscribe or ["/soak/a", "/soak/b"]
    soak = Soak(args.peers, args.processes, topics, asdict(config), args.out)
    try:
        asyncio.run(soak.run(args.soak * 3_600))
    except KeyboardInterrupt:
        print("weft: interrupted; the results so far are drawn", file=sys.stderr)
    print(f"{draw(args.out)}")
    print(summary(args.out), file=sys.stderr)
    problems = verdict(args.out)
    for problem in problems:
        print(f"weft: {problem}", file=sys.stderr)
    return FAILED if problems else 0


async def _run(args: argparse.Namespace, config: Config) -> int:
    from dataclasses import asdict

    from weft.lab.processes import Swarm

    with stop_on_signals() as stop:
        began = time.monotonic()
        swarm = Swarm(args.peers, args.processes, config=asdict(config), join=args.join)
        async with swarm:
            watch = Watch(swarm, config, args.subscribe, args.settle, began)
            opening = asyncio.create_task(_open(swarm, args.subscribe))
            showing = asyncio.create_task(_show(args, swarm, config, opening))
            watching = asyncio.create_task(watch.run(stop, args.every, opening))
            try:
                await watching
            finally:
                opening.cancel()
                showing.cancel()
                await asyncio.gather(showing, return_exceptions=True)
            print("weft: leaving", file=sys.stderr)
    return stop.code


async def _open(swarm: Swarm, topics: list[str]) -> None:
    await swarm.open(0, 1)
    await swarm.open(1, swarm.peers)
    for address in swarm.addresses:
        print(address, flush=True)
    await swarm.subscribe(dict.fromkeys(range(swarm.peers), topics))


async def _show(
    args: argparse.Namespace, swarm: Swarm, config: Config, opening: asyncio.Task[None]
) -> None:
    """Serve the page, from when the swarm is up until this is cancelled."""
    if args.web is None:
        return
    await asyncio.wait([opening])
    join = [address for address in swarm.addresses[:3] if address]
    async with swarm_window(swarm, args, config, join):
        await asyncio.Event().wait()


class Watch:
    """Shows a swarm, from its first peer on, and says when it has settled."""

    def __init__(
        self,
        swarm: Swarm,
        config: Config,
        topics: list[str],
        within_s: float | None,
        began: float,
    ) -> None:
        self._swarm = swarm
        self._config = config.protocol
        self._topics = topics
        self._within_s = within_s
        self._began = began
        self._settled = False
        self._live = sys.stderr.isatty()
        self._height = 0
        self._last: tuple[float, float] = (began, 0.0)  # when, and connections made until then

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    async def run(self, stop: Stop, every_s: float, opening: asyncio.Task[None]) -> None:
        """Look at the swarm every `every_s` seconds, until the end is asked for."""
        waiting = asyncio.create_task(stop.wait())
        try:
            while not waiting.done():
                if opening.done():
                    opening.result()  # raises what went wrong
                census = await self._swarm.census()
                self._show(census)
                if opening.done() and not self._settled:
                    await self._judge(census, stop)
                await asyncio.wait([waiting], timeout=every_s)
        finally:
            waiting.cancel()

    async def _judge(self, census: Census, stop: Stop) -> None:
        """Say if the swarm has settled; with --settle, probe all topics then and end."""
        count = census.settled(self._swarm.peers, len(self._topics), self._config)
        late = self._within_s is not None and self._seconds > self._within_s
        if count == self._swarm.peers and not late:
            self._settled = True
            self._say(_cost(census, self._seconds))
            if self._within_s is not None:
                for topic in self._topics:
                    await self._probe(topic, stop)
                stop.ask()
        elif late:
            rest = self._swarm.peers - count
            self._say(f"weft: not settled within {self._within_s:g} s: {rest} peers are left")
            stop.ask(1)

    async def _probe(self, topic: str, stop: Stop) -> None:
        """Publish an event, and wait until it has reached all peers."""
        wanted = _notifications(await self._swarm.census()) + self._swarm.peers
        start = time.monotonic()
        publication = [0, 0, topic, f"event 0 {_PROBE}"]
        await self._swarm.workers[0].ask(
            "play", start_ns=time.monotonic_ns(), publications=[publication]
        )
        while not stop and _notifications(await self._swarm.census()) < wanted:
            if self._within_s is not None and self._seconds > self._within_s:
                self._say(f"weft: an event in {topic} did not reach all in time")
                stop.ask(1)
            await asyncio.sleep(0.1)
        if not stop:
            self._say(f"an event in {topic} reached all within {time.monotonic() - start:.1f} s")

    # --- what is shown --------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        """Print a line that is not redrawn."""
        print(text, file=sys.stderr, flush=True)
        self._height = 0

    def _show(self, census: Census) -> None:
        now, made = time.monotonic(), census.connections_made
        before, made_before = self._last
        self._last = (now, made)
        rate = (made - made_before) / max(1, len(census.looks)) / max(0.001, now - before)
        line = f"{_line(census)}, {rate:.2f} connections made per peer and second"
        text = f"{_table(census)}\n{line}\nCtrl-C: all leave" if self._live else line
        up = f"\x1b[{self._height}A\x1b[J" if self._live and self._height else ""
        print(up + text, file=sys.stderr, flush=True)
        self._height = text.count("\n") + 1


def _notifications(census: Census) -> int:
    return sum(look.notifications for look in census.looks.values())


def _line(census: Census) -> str:
    looks = census.looks.values()
    joined = sum(not look.isolated for look in looks)
    links = sum(look.linked for look in looks) // 2
    counted = f"{joined} joined, {links} linked pairs, {_notifications(census)} notifications"
    return f"{len(looks)} peers, {counted}"


def _cost(census: Census, after_s: float) -> str:
    peers = len(census.looks)
    made = census.connections_made / peers
    cpu_ms = 1_000 * census.cpu_seconds / peers
    most = list(census.causes.items())[:_SHOWN_CAUSES]
    causes = ", ".join(f"{name} {count / peers:.1f}" for name, count in most)
    return (
        f"settled after {after_s:.1f} s: {peers} peers, each with {cpu_ms:.0f} ms of CPU "
        f"and {made:.1f} connections, dialled for: {causes}"
    )


def _table(census: Census) -> str:
    rows = [
        [
            str(index),
            str(look.view),
            str(look.linked),
            str(look.connections),
            str(look.topics),
            str(look.notifications),
        ]
        for index, look in list(census.looks.items())[:_SHOWN_PEERS]
    ]
    head = ["peer", "view", "linked", "connections", "topics", "notifications"]
    more = len(census.looks) - len(rows)
    rest = [f"… and {more} more"] if more else []
    return "\n".join(["", table(head, rows), *rest])
