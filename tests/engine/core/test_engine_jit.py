"""Compiled code is kept by what its file says, wherever that file lies."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numba
import pytest

KERNEL = """
from weft.engine.core.jit import compiled

@compiled
def more(number):
    return number + {}
"""


def loaded(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kernel of a module that lies in this folder."""
    folder.mkdir()
    (folder / "kernel_of_a_test.py").write_text(text)
    spec = spec_from_file_location("kernel_of_a_test", folder / "kernel_of_a_test.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module.more


def test_a_copy_finds_what_was_compiled_and_a_change_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not numba.config.CACHE_DIR:
        pytest.skip("no folder for compiled code can be written here")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "kept"))
    found = []
    for name, added in (("first", 1), ("copy", 1), ("changed", 2)):
        kernel = loaded(tmp_path / name, KERNEL.format(added), monkeypatch)
        assert kernel(40) == 40 + added
        found.append(sum(kernel.stats.cache_hits.values()))
    assert found == [0, 1, 0]


def test_compiled_code_is_not_believed_where_others_can_write(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    script = "import numba, weft.engine.core.jit; print(numba.config.CACHE_DIR)"
    said = {
        folder: subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": str(folder)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for folder in (shared, tmp_path)
    }
    assert said[shared] == ""
    assert Path(said[tmp_path]).is_relative_to(tmp_path)
