"""An ingest that is told to end in the midst leaves nothing behind."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from processes import PATIENCE_SECONDS, started
from weft.cli.problem import INTERRUPTED
from weft.pipeline import resources


@pytest.mark.parametrize("whole_group", [False, True], ids=["alone", "with its children"])
def test_an_ingest_that_is_terminated_leaves_no_lake(tmp_path: Path, whole_group: bool) -> None:
    """By SIGTERM, which a service manager sends to all processes of the command at once."""
    subs, lake = tmp_path / "subs.csv", tmp_path / "lake"
    subs.write_text("user,topic\n" + "".join(f"u{n},t{n % 9}\n,bad\n" for n in range(300_000)))
    with started("data", "ingest", str(subs), "--out", str(lake)) as command:
        written = resources.wait_until((lake / "rejects").exists, PATIENCE_SECONDS)
        assert written, command.story()
        (command.send_group if whole_group else command.send)(signal.SIGTERM)
        assert command.end() == INTERRUPTED, command.story()
        assert not lake.exists(), sorted(lake.rglob("*"))
        assert f"weft: interrupted; {lake} is as it was" in command.complained
        if not whole_group:  # Spark's own threads tell that their Java process is gone
            assert not any("Traceback" in line for line in command.complained), command.complained
