"""One Spark session for all tests that need one; conftest files of folders import it.

Its workers also find the helper modules of the tests' folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from weft.pipeline.session import Settings, opened

HELPERS = Path(__file__).parent / "lab"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        known = os.environ.get("PYTHONPATH", "")
        patch.setenv("PYTHONPATH", os.pathsep.join(part for part in (str(HELPERS), known) if part))
        settings = Settings("local[2]", "weft tests", driver_memory="1g", small_tables=True)
        with opened(settings) as session:
            yield session
