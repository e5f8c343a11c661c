"""The folder that a demonstration writes: never somebody else's, never half of two runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from weft.net.errors import UsageError

MADE_BY = "weft demo"


class Output:
    """`summary.json`, `report.html`, `overlay.svg`, `trace/peer-*.jsonl` and the pipeline's
    `tables/` in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.summary = folder / "summary.json"
        self.report = folder / "report.html"
        self.picture = folder / "overlay.svg"
        self.trace = folder / "trace"
        self.tables = folder / "tables"

    def prepare(self) -> None:
        """Make the folder, or clear it of an earlier demonstration; refuse any other folder that
        holds something."""
        if self.folder.exists() and not self.folder.is_dir():
            raise UsageError(f"{self.folder} is a file; name a folder")
        if self.folder.is_dir() and any(self.folder.iterdir()) and not self._is_ours():
            raise UsageError(
                f"{self.folder} is not empty and no earlier demo wrote it; name another folder"
            )
        self.trace.mkdir(parents=True, exist_ok=True)
        for path in (self.report, self.picture, *self.traces()):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.tables, ignore_errors=True)
        # Says whose folder it is, even if nothing else gets written.
        self.write_summary({"made_by": MADE_BY, "complete": False})

    def _is_ours(self) -> bool:
        try:
            found = json.loads(self.summary.read_text())
        except (OSError, ValueError):
            return False
        return isinstance(found, dict) and found.get("made_by") == MADE_BY

    def traces(self) -> list[Path]:
        return sorted(self.trace.glob("peer-*.jsonl"))

    def write_summary(self, summary: Mapping[str, object]) -> None:
        draft = self.summary.with_suffix(".draft")
        draft.write_text(json.dumps(summary, indent=2) + "\n")
        draft.replace(self.summary)
