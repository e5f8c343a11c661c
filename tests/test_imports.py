"""Which room may import which (the contracts in pyproject.toml), and that the rule has teeth."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from weft.cli.check import CHECKS

ROOT = Path(__file__).resolve().parents[1]
COMMAND = dict(CHECKS)["imports"]


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    """Run the import rule on a checkout, whatever weft this test itself runs from."""
    return subprocess.run(
        [sys.executable, *COMMAND, "--no-cache"],
        cwd=root,
        env={"PYTHONPATH": str(root / "src"), "PATH": "", "NO_COLOR": "1"},
        text=True,
        capture_output=True,
        check=False,
    )


def test_imports_point_one_way() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("rules/cyclon.py", "import random"),
        ("rules/cyclon.py", "from weft.protocol import seam"),
        ("protocol/membership.py", "import time"),
        ("protocol/membership.py", "from weft.net import codec"),
        ("protocol/recent.py", "from weft.protocol.tera import tree"),
        ("protocol/flood.py", "from weft.protocol.tera import tree"),
        ("sim/world.py", "from weft.net import codec"),
        ("sim/world.py", "import asyncio"),
        ("net/codec.py", "import numpy"),
        ("net/codec.py", "from weft.cli import main"),
    ],
)
def test_forbidden_import_is_found(module: str, line: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = tmp_path / "src" / "weft" / module
    path.write_text(path.read_text() + f"\n{line}\n")
    done = lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout
