"""Same seed, same run: the trace is equal byte for byte whatever the hash seed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"


def _play(hash_seed: str, seed: int, trace: Path) -> tuple[str, str]:
    """The result's text and the digest of the trace, from a process of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(SOURCE)}
    words = [sys.executable, "-m", "weft.cli.main", "sim", "--json", "--events", "60"]
    done = subprocess.run(
        [*words, "--seed", str(seed), "--trace", str(trace)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout, hashlib.sha256(trace.read_bytes()).hexdigest()


@pytest.mark.parametrize("seed", [3, 11])
def test_trace_does_not_depend_on_the_hash_seed(tmp_path: Path, seed: int) -> None:
    first = _play("1", seed, tmp_path / "one.jsonl")
    second = _play("2", seed, tmp_path / "two.jsonl")
    assert first == second
    lines = (tmp_path / "one.jsonl").read_bytes().splitlines()
    kinds = {json.loads(line)["type"] for line in lines}
    assert {"PUBLISH_MESSAGE", "DELIVER_MESSAGE", "SEND_RPC", "RECV_RPC", "JOIN"} <= kinds
    other = _play("1", seed + 1, tmp_path / "three.jsonl")
    assert other[1] != first[1]
