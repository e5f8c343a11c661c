"""Runs that tests sign go on from each other within one test, not from those of another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from history_kit import forget_routed
from protocol_kit import forget_runs


@pytest.fixture(autouse=True)
def _own_runs() -> Iterator[None]:
    forget_runs()
    forget_routed()
    yield
