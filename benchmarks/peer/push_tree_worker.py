"""Weft's push tree under the load of `scenario`: CPU time per delivered notification.

The twin of `gossipsub_worker.py`: same swarm, same payload, same rounds, one process.
`--links N` makes peers want N stable links in the topic instead of the configured number.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import time
from typing import Any

from benchmarks.peer.scenario import (
    ROUND_TIMEOUT_S,
    TOPIC,
    Load,
    add_load_arguments,
    load_of,
)
from benchmarks.peer.swarm import Swarm

import weft


def config_with_links(wanted: int | None) -> weft.Config:
    config = weft.Config()
    if wanted is None:
        return config
    links = dataclasses.replace(config.protocol.links, wanted=wanted, most=2 * wanted)
    protocol = dataclasses.replace(config.protocol, links=links)
    return dataclasses.replace(config, protocol=protocol)


async def publish_round(swarm: Swarm, load: Load, payload: bytes) -> int:
    """One event from every peer; returns how many notifications never came."""
    swarm.expect(load.notifications_per_round)
    for member in swarm.members:
        await member.peer.publish(TOPIC, payload)
    return await swarm.all_here(ROUND_TIMEOUT_S)


async def measure(load: Load, links: int | None) -> dict[str, Any]:
    payload, config = load.payload(), config_with_links(links)
    async with Swarm(TOPIC) as swarm:
        await swarm.grow(load.peers, config=config)
        await swarm.settle(min(config.protocol.links.wanted, load.peers - 1))
        for _ in range(load.warmup_rounds):
            await publish_round(swarm, load, payload)
        before, copies = swarm.received(), swarm.copies()
        wall, cpu = time.perf_counter(), time.process_time()
        lost = 0
        for _ in range(load.rounds):
            lost += await publish_round(swarm, load, payload)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        delivered = swarm.received() - before
        return {
            "cpu_us_per_notification": cpu / delivered * 1e6,
            "notifications": delivered,
            "lost": lost,
            "cpu_s": cpu,
            "wall_s": wall,
            "links_per_peer": swarm.links_mean(),
            "payload_copies_per_delivery": (swarm.copies() - copies) / delivered,
            "load": dataclasses.asdict(load),
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    add_load_arguments(parser)
    parser.add_argument("--links", type=int, default=None)
    args = parser.parse_args()
    print(json.dumps(asyncio.run(measure(load_of(args), args.links))))


if __name__ == "__main__":
    main()
