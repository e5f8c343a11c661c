"""A peer under fuzzed frames: whatever a neighbour writes, nothing ends and memory stays.

In a simulated network at work all frames are written down that its peers send. Then they come again
at one peer, most of them changed: in one half bytes are flipped, cut out, doubled, or taken from
another frame, in the other half one value is replaced by another of its type. The codec refuses
many; what it lets through is a valid message that no honest peer sent, and the peer handles it as
if it came from one of the others, which answer it in turn. Time goes on meanwhile, so that timers
fire.

One peer for each routing, with a store. What counts: exceptions that leave the peer (none may), and
how much larger the process is at the end than after the first fifth, by when all tables are full.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

from msgspec import msgpack

from weft.ids import Contact
from weft.net import codec
from weft.net.codec import HEADER_BYTES, FrameFault, Goodbye
from weft.protocol import seam
from weft.protocol.config import Config, HistorySettings, Routing
from weft.protocol.wire import Message
from weft.sim.builder import OneTopic
from weft.sim.node import Node
from weft.sim.world import Observer

ROUTINGS: tuple[Routing, ...] = ("tera", "topic-dht", "pulsarcast", "flood")
FRAMES, QUICK_FRAMES = 1_000_000, 20_000
PEERS = 8
STEP_FRAMES, STEP_MS = 500, 1_000
CORPUS_MAX = 20_000


class Frames(Observer):
    """What peers sent, as bodies of frames."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def sent(
        self, now_ms: int, sender: Node, to: Contact, receiver: Node | None, message: Message
    ) -> None:
        if len(self.bodies) < CORPUS_MAX:
            self.bodies.append(codec.encode(message)[HEADER_BYTES:])


def mutated(dice: random.Random, bodies: list[bytes]) -> bytes:
    """One of the frames, with up to four changes; one in ten stays as it is."""
    body = bytearray(dice.choice(bodies))
    for _ in range(0 if dice.random() < 0.1 else dice.randint(1, 4)):
        at = dice.randrange(len(body) + 1)
        match dice.randrange(4):
            case 0 if at < len(body):
                body[at] = dice.randrange(256)
            case 1:
                del body[at : at + dice.randint(1, 8)]
            case 2:
                body[at:at] = body[at : at + dice.randint(1, 32)]
            case _:
                other = dice.choice(bodies)
                start = dice.randrange(len(other) + 1)
                body[at : at + 16] = other[start : start + dice.randint(1, 16)]
    return bytes(body)


def twisted(dice: random.Random, body: bytes) -> bytes:
    """A frame with one of its values replaced by another of its type."""
    value = msgpack.decode(body)
    holder, at = value, 0
    while isinstance(holder, list) and holder:
        at = dice.randrange(len(holder))
        if not isinstance(holder[at], list) or dice.random() < 0.2:
            break
        holder = holder[at]
    if isinstance(holder, list) and holder:
        holder[at] = _another(dice, holder[at])
    return msgpack.encode(value)


def _another(dice: random.Random, value: object) -> object:
    match value:
        case bool():
            return not value
        case int():
            return dice.choice((0, 1, value + 1, max(0, value - 1), 1 << dice.randrange(63)))
        case bytes():
            return dice.choice((b"", value[:-1], dice.randbytes(len(value)), value * 2))
        case str():
            return dice.choice(("", value + "/x", value[:-1], "/" + "x" * dice.randrange(300)))
        case list():
            return dice.choice(([], value[:-1], value * 2, value[::-1]))
        case _:
            return dice.choice((None, 0, b"", "", []))


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def attack(routing: Routing, frames: int) -> dict[str, Any]:
    heard = Frames()
    config = Config(routing=routing, history=HistorySettings(enabled=True))
    net = OneTopic(1, config, observers=[heard])
    for number in range(PEERS):
        net.enter([0] if number else [], then_ms=200)
    net.subscribe(*range(PEERS))
    net.run(20_000)
    for turn in range(5):
        net.publish(*range(PEERS), payload=b"event %d" % turn, every_ms=100)
    net.run(30_000)
    bodies, victim = heard.bodies, net.nodes[0]
    senders = [node.contact for node in net.nodes[1:]]
    dice = random.Random(1)
    raised = valid = 0
    first_mb = 0.0
    for number in range(frames):
        if number == frames // 5:
            first_mb = resident_mb()
        try:
            whole = dice.random() < 0.5
            body = twisted(dice, dice.choice(bodies)) if whole else mutated(dice, bodies)
            message = codec.decode(body)
        except FrameFault:
            continue
        if isinstance(message, Goodbye):
            continue
        valid += 1
        assert victim.machine is not None
        try:
            fact = seam.Received(dice.choice(senders), message)
            net.world.carry_out(victim, victim.machine.handle(fact, net.world.now_ms))
            if valid % STEP_FRAMES == 0:
                net.run(STEP_MS)
        except Exception as error:  # whatever it is, it is what is counted
            raised += 1
            print(f"{routing}: {error!r} by {message!r}")
    growth = 100 * (resident_mb() / first_mb - 1)
    return {"routing": routing, "valid": valid, "raised": raised, "growth_percent": growth}


def measure(quick: bool) -> dict[str, Any]:
    frames = (QUICK_FRAMES if quick else FRAMES) // len(ROUTINGS)
    start_s = time.process_time()
    runs = [attack(routing, frames) for routing in ROUTINGS]
    return {
        "fuzz_raised": sum(run["raised"] for run in runs),
        "fuzz_growth_percent": max(run["growth_percent"] for run in runs),
        "frames": frames * len(ROUTINGS),
        "cpu_s": time.process_time() - start_s,
        "runs": runs,
    }
