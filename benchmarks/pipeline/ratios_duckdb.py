"""The other side of `ratios`: DuckDB in a process of its own, one answer per request."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from benchmarks.pipeline.trace_recount import recount

from weft.pipeline.traces.pieces import ROUTING
from weft.trace import CONTROL, CONTROL_KINDS, PAYLOAD, PAYLOAD_KINDS

POPULAR = 1_000
THREADS = 2  # as many as Spark has

INGEST = """
create or replace temp table raw as
select * from read_csv('{csv}', header = true, auto_detect = false,
  columns = {{'user': 'varchar', 'topic': 'varchar', 'time': 'bigint'}}, store_rejects = true);
create or replace temp table users as
  select row_number() over (order by length(name), name) - 1 as id, name
  from (select distinct "user" as name from raw);
create or replace temp table topics as
  select row_number() over (order by length(name), name) - 1 as id, name
  from (select distinct topic as name from raw);
create or replace temp table events as
  select u.id as "user", t.id as topic, make_timestamp(time * 1000000) as time
  from raw join users u on u.name = raw."user" join topics t on t.name = raw.topic;
create or replace temp table memberships as
  select "user", topic, min(time) as time from events group by all;
create or replace temp table rejects as
  select '{csv}' as file, line, error_message as reason, csv_line as text from reject_errors;
"""
DISTRIBUTION = """
with held as (from read_parquet('{files}')),
sizes as (select 'subscribers per topic' as kind, count(*) as size from held group by topic
          union all
          select 'subscriptions per node', count(*) from held group by "user")
select kind || ' ' || size, count(*) from sizes group by all
"""
CORRELATION = """
with held as (select "user", topic from read_parquet('{files}')),
nodes as (select count(distinct "user") as n from held),
chosen as (select topic, count(*) as s,
                  row_number() over (order by count(*) desc, topic) - 1 as place
           from held group by topic having count(*) < (select n from nodes)
           order by s desc, topic limit {popular}),
inside as (select "user", place from held join chosen using (topic)),
common as (select a.place as one, b.place as other, count(*) as c
           from inside a join inside b on a."user" = b."user" and a.place < b.place group by all),
pairs as (
  select a.place as one, b.place as other,
         (n * coalesce(c, 0) - a.s * b.s) / (sqrt(a.s * (n - a.s)) * sqrt(b.s * (n - b.s))) as value
  from chosen a join chosen b on a.place < b.place cross join nodes
  left join common on common.one = a.place and common.other = b.place)
select max(other) + 1 as topics, avg(value) as mean, quantile_cont(value, 0.5) as median,
       quantile_cont(value, 0.99) as percentile_99, max(value) as largest from pairs
"""


def ingested(db: Any, folder: Path, request: dict[str, str]) -> dict[str, float]:
    db.execute("drop table if exists reject_errors; drop table if exists reject_scans")
    db.execute(INGEST.format(csv=request["csv"]))
    found = {}
    for name in ("memberships", "users", "topics", "events", "rejects"):
        db.execute(f"copy {name} to '{folder / f'duckdb-{name}.parquet'}'")
        found[name] = float(db.execute(f"select count(*) from {name}").fetchone()[0])
    return found


def profiled(db: Any, folder: Path, request: dict[str, str]) -> dict[str, float]:
    files = f"{request['table']}/*.parquet"
    found = dict(db.execute(DISTRIBUTION.format(files=files)).fetchall())
    row = db.execute(CORRELATION.format(files=files, popular=POPULAR)).fetchone()
    names = [each[0] for each in db.description]
    return {name: float(value) for name, value in [*found.items(), *zip(names, row, strict=True)]}


def traced(db: Any, folder: Path, request: dict[str, str]) -> dict[str, float | None]:
    kinds = {PAYLOAD: PAYLOAD_KINDS, CONTROL: CONTROL_KINDS}
    return recount(Path(request["lines"]) / "*.jsonl", kinds, ROUTING, THREADS)


WORK: dict[str, Callable[[Any, Path, dict[str, str]], Any]] = {
    "ingest": ingested,
    "profile": profiled,
    "trace": traced,
}


def main(folder: str) -> None:
    db = duckdb.connect()
    db.execute(f"set threads = {THREADS}")
    print(json.dumps({"version": duckdb.__version__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        before = time.process_time()
        answer = WORK[request["what"]](db, Path(folder), request)
        print(json.dumps({"cpu_s": time.process_time() - before, "answer": answer}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
