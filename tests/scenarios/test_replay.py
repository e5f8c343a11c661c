"""Same seed, same run: the trace is equal byte for byte whatever the hash seed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from processes import PATIENCE_SECONDS

SOURCE = Path(__file__).parents[2] / "src"


def _play(hash_seed: str, seed: int, trace: Path) -> tuple[str, str]:
    """The result's text and the digest of the trace, from a process of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(SOURCE)}
    words = [
        sys.executable,
        "-m",
        "weft.cli.main",
        "sim",
        "--json",
        "--peers",
        "12",
        "--events",
        "60",
    ]
    done = subprocess.run(
        [*words, "--seed", str(seed), "--trace", str(trace)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout, hashlib.sha256(trace.read_bytes()).hexdigest()


def test_trace_does_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    traces = []
    for seed in (3, 11):
        first, second = (_play(each, seed, tmp_path / f"{seed}-{each}.jsonl") for each in "12")
        assert first == second
        traces.append(first[1])
        lines = (tmp_path / f"{seed}-1.jsonl").read_bytes().splitlines()
        kinds = {json.loads(line)["type"] for line in lines}
        assert {"PUBLISH_MESSAGE", "DELIVER_MESSAGE", "SEND_RPC", "RECV_RPC", "JOIN"} <= kinds
    assert traces[0] != traces[1]
