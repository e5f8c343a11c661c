"""The other side of `prune`: DuckDB in a process of its own, one answer per request."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import duckdb

QUERY = """
with memberships as (select "user", topic from read_parquet(?)),
popular as (select topic from memberships group by topic having count(*) >= ?)
select count(*), sum("user"), sum(topic), bit_xor("user" * ? + topic)
from memberships where topic in (select topic from popular)
"""


def answered(connection: Any, files: str, request: dict[str, int]) -> dict[str, Any]:
    before = time.process_time()
    row = connection.execute(QUERY, [files, request["least"], request["factor"]]).fetchone()
    return {"cpu_s": time.process_time() - before, "answer": [int(value) for value in row]}


def main(folder: str) -> None:
    connection = duckdb.connect()
    connection.execute("set threads = 2")  # as many as Spark has
    files = str(Path(folder) / "*.parquet")
    print(json.dumps({"version": duckdb.__version__}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answered(connection, files, json.loads(line))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
