"""The load that weft and py-libp2p both carry, so that their costs can be divided.

Ten peers on loopback in one process, one topic, everyone subscribed. In a round every peer
publishes one event; the next round starts when every other peer has them all. A notification is
an event handed to the application of a subscriber other than its publisher.

Imports nothing but the standard library: the worker that runs py-libp2p reads it too.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass

TOPIC = "/bench/one"
ROUND_TIMEOUT_S = 30.0
SETTLE_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Load:
    peers: int = 10
    payload_bytes: int = 200
    warmup_rounds: int = 5
    rounds: int = 10

    @property
    def notifications_per_round(self) -> int:
        return self.peers * (self.peers - 1)

    def payload(self) -> bytes:
        return bytes(index % 251 for index in range(self.payload_bytes))

    def arguments(self) -> list[str]:
        """This load as command-line arguments, for a worker in another process."""
        return [f"--{name.replace('_', '-')}={value}" for name, value in asdict(self).items()]


def add_load_arguments(parser: argparse.ArgumentParser) -> None:
    for name, value in asdict(Load()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)


def load_of(args: argparse.Namespace) -> Load:
    return Load(args.peers, args.payload_bytes, args.warmup_rounds, args.rounds)
