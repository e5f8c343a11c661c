"""What the DHT finds and what that costs, in virtual time.

    ./weft bench dht --peers 1000 --json

Calm networks of growing size, then the largest with a fifth of the messages lost and three peers in
ten gone without a word, at once and after ten minutes. Every result is compared with the
closest peers of all. CPU is that of all peers that take part in a lookup and of the simulator; what
the network costs in the same time without lookups is taken off.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tracemalloc
from dataclasses import asdict
from typing import Any

from benchmarks.dht_runs import Run

from weft.ids import GENERAL
from weft.protocol.config import KademliaSettings
from weft.protocol.kademlia.table import Table
from weft.rules.prefix import BITS, location_of
from weft.sim.node import keyed

_LOSS_PERCENT, _CRASH_PERCENT = 20, 30
_LATER_MS = 600_000
_IDLE_MS = 20_000
_CONTACTS = 5_000


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def calm(peers: int, lookups: int, seed: int) -> dict[str, Any]:
    """Everything without faults, and the CPU of a lookup."""
    one = Run(seed, peers, lookups)
    one.come_up()
    one.put()
    providers = one.provide()
    before, start_ms = time.process_time(), one.world.now_ms
    one.world.run_until(start_ms + _IDLE_MS)
    idle_per_ms = (time.process_time() - before) / _IDLE_MS
    before, start_ms = time.process_time(), one.world.now_ms
    targets = one.targets()
    answers = one.closest_peers(targets)
    spent = time.process_time() - before - idle_per_ms * (one.world.now_ms - start_ms)
    one.judge(targets, answers)
    one.get()
    one.find_providers(providers)
    one.find_peers()
    return {**asdict(one.finish()), "cpu_ms_per_lookup": round(1_000 * spent / lookups, 2)}


def faulty(peers: int, lookups: int, seed: int, rest_ms: int) -> dict[str, Any]:
    """Everything with loss and crashes, so long after they began."""
    one = Run(seed, peers, lookups)
    one.come_up()
    one.put()
    providers = one.provide()
    one.spoil(_LOSS_PERCENT, _CRASH_PERCENT, rest_ms)
    one.look_up()
    one.get()
    one.find_providers(providers)
    one.find_peers()
    return asdict(one.finish())


def bytes_per_contact() -> float:
    """What an entry of a table takes: place, contact, key, and its share of the buckets."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    settings = KademliaSettings(enabled=True)
    table = Table(
        location_of(b"own"),
        BITS,
        k=settings.k,
        spare=0,
        failures_max=settings.failures_max,
        fresh_ms=settings.fresh_ms,
        takes=lambda contact, others: True,
    )
    for index in range(_CONTACTS):
        contact, _ = keyed(1, index)
        table.heard(location_of(contact.peer), GENERAL, contact, index)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return round(held / len(table), 1)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="weft bench dht", description=__doc__)
    parser.add_argument("--peers", type=int, default=1_000, metavar="N")
    parser.add_argument("--lookups", type=int, default=200, metavar="N", help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if args.peers < 30 or args.lookups < 1:
        parser.error("--peers must be at least 30 and --lookups at least 1")
    result: dict[str, Any] = {"bytes_per_contact": bytes_per_contact()}
    steps: list[tuple[str, Any]] = [
        (f"calm_{peers}", lambda peers=peers: calm(peers, args.lookups, args.seed))
        for peers in sorted({max(30, args.peers // 10), max(30, args.peers // 3), args.peers})
    ]
    for name, rest_ms in (("faults_at_once", 0), ("faults_after_10_min", _LATER_MS)):
        steps.append((name, lambda rest=rest_ms: faulty(args.peers, args.lookups, args.seed, rest)))
    started = time.monotonic()
    for number, (name, measure) in enumerate(steps, 1):
        result[name] = measure()
        _tell(f"{number}/{len(steps)} {name}, {time.monotonic() - started:.0f} s so far")
    if args.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:24} {value}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
