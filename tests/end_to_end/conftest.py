"""Peers for end-to-end tests; every process ends with its test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from processes import Peers


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    with ExitStack() as stack:
        yield Peers(tmp_path, stack)
