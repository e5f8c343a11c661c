"""Whether simulated runs are still what they were: digests of their traces, against those kept.

    python -m benchmarks.traces            # which of the kept runs changed
    python -m benchmarks.traces --write    # the kept digests become those of now

A change that is only to tidy leaves every trace as it was, byte for byte; one that mends behaviour
says by the list which runs it touched. The runs are small, as a campaign draws them: all routings,
with and without history, faults and hostile peers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path
from typing import get_args

from weft.protocol.config import Routing
from weft.sim.campaign import Asked, draw_settings
from weft.sim.runs import begin_worker
from weft.sim.scenario import ScenarioSettings, run
from weft.trace import Writer

KEPT = Path(__file__).with_suffix(".json")
SEEDS = range(1, 61)
PEERS, TOPICS, EVENTS = 10, 4, 40
HOSTILE_EVERY, HOSTILE_PERCENT = 7, 10
"""measured: a run takes a second at most, one with hostile peers four, and all take a minute."""
_PROCESSES = 2


class Digest(BytesIO):
    """A file that keeps nothing of what is written to it but the digest."""

    def __init__(self) -> None:
        super().__init__()
        self.hash = hashlib.sha256()

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.hash.update(data)
        return len(data)


def settings_of(seed: int) -> ScenarioSettings:
    """The run of a seed: the routings take turns, and the campaign draws the rest."""
    routings: tuple[Routing, ...] = get_args(Routing)
    routing = routings[seed % len(routings)]
    drawn = draw_settings(seed, Asked(PEERS, TOPICS, EVENTS, routing))
    return replace(drawn, hostile=0 if seed % HOSTILE_EVERY else HOSTILE_PERCENT, attack=None)


def digest_of(settings: ScenarioSettings) -> str:
    """The digest of all that a run's trace has, and of its verdict."""
    file = Digest()
    result = run(settings, Writer(file))
    file.write("\n".join(result.violations).encode())
    return file.hash.hexdigest()


def differences(kept: dict[str, str], found: dict[str, str]) -> Iterator[str]:
    """A line for each run that is no longer what it was, with the command that plays it."""
    for command in {**kept, **found}:
        if command not in found:
            yield f"no longer drawn: {command}"
        elif command not in kept:
            yield f"not kept yet: {command}"
        elif kept[command] != found[command]:
            yield f"changed: {command}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.traces", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep the digests of now")
    parser.add_argument("--processes", type=int, default=_PROCESSES)
    args = parser.parse_args()
    runs = [settings_of(seed) for seed in SEEDS]
    with get_context("spawn").Pool(args.processes, begin_worker) as pool:
        digests = pool.map(digest_of, runs, chunksize=1)
    found = dict(zip([one.command() for one in runs], digests, strict=True))
    if args.write:
        KEPT.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    lines = list(differences(kept, found))
    print("\n".join([*lines, f"{len(lines)} of {len(found)} runs changed"]))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
