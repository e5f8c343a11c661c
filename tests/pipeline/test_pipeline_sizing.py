"""The notebook that goes from a CSV to the size of a network runs, and says what it should."""

from __future__ import annotations

import runpy
from pathlib import Path

from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "sizing.py"


def test_a_csv_becomes_the_size_of_a_network(spark: SparkSession, tmp_path: Path) -> None:
    lines = [f"u{user},t{topic}" for user in range(40) for topic in range(user % 7 + 1)]
    (tmp_path / "subs.csv").write_text("\n".join(["user,topic", *lines, ",t1"]) + "\n")
    found = runpy.run_path(str(NOTEBOOK))["sized"](spark, tmp_path / "subs.csv", tmp_path / "out")
    assert found["topics"] == 7
    assert [row["table"] for row in found["lookups"]] == [1, 2, 5]
    assert found["lookups"][0]["visits"] > found["lookups"][-1]["visits"] > 0
    assert found["links"]["StaN"] <= found["links"]["random"]
    assert {"figure.png", "figure.svg", "lake", "profile"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
