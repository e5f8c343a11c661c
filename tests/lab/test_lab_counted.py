"""An engine's counts give the figures that its trace gives, by the same transforms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from frames import frame
from weft.engine.core.arrays import RECEIVED, SENT, no_loads
from weft.engine.data.memberships import spread, zipf_sizes
from weft.engine.tera.events import Events, EventTrace, peer_of
from weft.engine.tera.world import WorldSettings, build
from weft.ids import peer_text
from weft.lab.counted import COUNTS, TOPIC, Count, loads_of, rows_of, traffic
from weft.pipeline import tables
from weft.pipeline.traces import figures
from weft.pipeline.traces.measure import measure
from weft.pipeline.traces.source import find
from weft.protocol.delivery import DELIVER_MESSAGE, RECV_RPC
from weft.protocol.wire import Payload


def test_counts_of_a_run_and_its_trace_say_the_same(spark: SparkSession, tmp_path: Path) -> None:
    held = spread(zipf_sizes(4, 60, 0.7), 30, seed=5)
    world = build(WorldSettings(load=True), held, seed=5)
    world.run(5)
    world.topics.loads = no_loads(held.total)  # views are exchanged already; floods follow
    with (tmp_path / "engine.jsonl").open("wb") as file:
        events = Events(world, EventTrace(held, file))
        events.publish(np.arange(held.topics), held.members[held.offsets[:-1]].astype(np.int64))
        while not events.is_over:
            events.advance()
    found = measure(spark, find([tmp_path / "engine.jsonl"]), tmp_path / "out")

    loads, rpc = world.loads_in_topics(), Payload.__name__
    counts = [
        Count(TOPIC, loads[:, SENT], rpc),
        Count(TOPIC, loads[:, RECEIVED], rpc, RECV_RPC),
        Count(TOPIC, held.per_peer(), kind=DELIVER_MESSAGE),  # one event in each topic
    ]
    columns = {name: value for name, value in rows_of(counts).items() if value is not None}
    listed = zip(*(np.asarray(value).tolist() for value in columns.values()), strict=True)
    rows = frame(spark, COUNTS, [dict(zip(columns, values, strict=True)) for values in listed])

    counted = rows.transform(loads_of, {"topic": TOPIC}, "seed").collect()
    by_peer = {row.peer: row for row in counted}
    traced = {row["peer"]: row for row in tables.read_small(tmp_path / "out" / "peers")}
    assert len(traced) == held.peers
    for number in range(held.peers):
        one, other = by_peer[str(number)], traced[peer_text(peer_of(number))]
        for name in ("sent", "received", "payload_sent", "deliveries"):
            assert one[name] == other[name]
        assert one.topic == other["sent"] + other["received"]
    given = rows.where(rows["kind"] == DELIVER_MESSAGE).groupBy("seed").sum("messages")
    [cost] = traffic(rows).transform(figures.messages, given, ("seed",)).collect()
    assert cost.group == "payload"
    assert cost.per_notification == found["messages_per_notification"]
