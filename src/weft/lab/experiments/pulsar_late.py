"""pulsar-late: a late subscriber reads everything.

Some publishers have filled a topic. Then a peer enters the network and subscribes since the
beginning, while publishing goes on. It reads pages, one question and one answer each, parents
before children, and live events follow: everything once and in order.
"""

from __future__ import annotations

import math
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.lab import ground, pulsar
from weft.lab.defect import ARRIVE, Defect, handed_twice, lost
from weft.lab.experiment import Columns, Entry, Params, Size, every
from weft.lab.experiments.pulsar_gap import ONE_WAY_MS, REPAIR, settings, two_of_three
from weft.lab.figures import BLACK, Figure, means, panels
from weft.lab.measures import at_most, reals, reasons, smalls, texts, told, truths, wholes
from weft.lab.pulsar import ENTER_CYCLES, JOIN_CYCLES, Net, misplaced, replay
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers, together
from weft.protocol.history.blocks import BLOCKS_MAX
from weft.sim.network import Conditions, Latency

EVENTS = {"quick": (100, 600), "full": (100, 1_000, 5_000)}
REAL_EVENTS = {"quick": (600,), "full": (1_000, 5_000)}


def points(size: Size) -> list[Params]:
    routings = pulsar.ROUTINGS[: 3 if size == "full" else 2]
    real = routings if size == "full" else ("pulsarcast",)
    return [
        *every({"how": "machines"}, routing=routings, events=EVENTS[size]),
        *every({"how": "network"}, routing=real, events=REAL_EVENTS[size]),
    ]


def seconds(params: Params) -> float:
    return 0.5 + float(params["events"]) / (900 if params["how"] == "machines" else 1_200)


MEMBERS = 6
PUBLISHERS = 3
FILL_MS = 5
LIVE_MS = 100
LIVE_EVENTS = 50
"""guess: events published while the latecomer reads."""
LATE_PAGES = 2
"""A page may be cut short where live events come in between, and the last one may be empty."""


def run(params: Params, seed: int) -> Columns:
    if params["how"] == "network":
        return replay(params["routing"], params["events"])
    conditions = Conditions(latency=Latency("constant", ONE_WAY_MS))
    net = Net(seed, MEMBERS, settings(params["routing"]), conditions)
    net.subscribe(*range(MEMBERS), since="beginning")
    net.run_cycles(JOIN_CYCLES)
    net.publish_all(range(PUBLISHERS), params["events"], FILL_MS)
    net.run_cycles(1)
    late = net.come()
    net.run_cycles(ENTER_CYCLES)
    before, asked_ms = net.sent(REPAIR), net.world.now_ms
    net.subscribe(late.index, since="beginning")
    net.publish_all(range(PUBLISHERS), LIVE_EVENTS, LIVE_MS)
    total = params["events"] + LIVE_EVENTS
    net.run_while(lambda: len(net.deliveries(late.index)) < total, 1_000, 600_000)
    net.run_cycles(1)
    handed = net.deliveries(late.index)
    past_ms = handed[params["events"] - 1].at_ms if len(handed) >= params["events"] else None
    pages = -(-params["events"] // BLOCKS_MAX) + LATE_PAGES
    return {
        "lacking": total - len({one.event.payload for one in handed}),
        "misplaced": misplaced(handed),
        "same": net.stream(late.index) == net.stream(0),
        "waited_s": (handed[0].at_ms - asked_ms) / 1e3 if handed else math.nan,
        "read_s": (past_ms - handed[0].at_ms) / 1e3 if past_ms is not None else math.nan,
        "cpu_s": math.nan,
        "read_s_allowed": pages * 2 * ONE_WAY_MS / 1e3,
        "messages": float(net.sent(REPAIR) - before),
        "messages_allowed": 2.0 * pages,
    }


COLUMNS = joined(
    texts("how", "routing"),
    smalls("events"),
    wholes("lacking", "misplaced"),
    truths("same"),
    reals("waited_s", "read_s", "read_s_allowed", "cpu_s", "messages", "messages_allowed"),
)
GROUPS = ("how", "routing", "events")
TITLES = {
    "lacking": "events that the latecomer lacks",
    "misplaced": "events it got twice or before a parent",
    "different": "latecomers whose stream differs from the others'",
    "time": "reading time over the time allowed, the most",
    "messages": "messages over those allowed, the most",
}


def replayed(rows: DataFrame) -> DataFrame:
    """Per seed: the judged numbers, summed over all runs; of time and messages the worst."""
    simulated = F.col("how") == "machines"
    time = F.col("read_s") / F.col("read_s_allowed")
    messages = F.col("messages") / F.col("messages_allowed")
    return rows.groupBy("seed").agg(
        F.sum("lacking").alias("lacking"),
        F.sum("misplaced").alias("misplaced"),
        F.sum((~F.col("same")).cast("int")).alias("different"),
        F.max(F.when(simulated, time)).alias("time"),
        F.max(F.when(simulated, messages)).alias("messages"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    asked = at_most(0.0, *TITLES) | at_most(1.0, "time", "messages")
    point = F.format_string(
        "%s, %s, %d events; ",
        F.when(F.col("how") == "network", "real peers").otherwise("simulated"),
        F.col("routing"),
        F.col("events"),
    )
    whole = F.col("waited_s") + F.col("read_s")
    others = {
        "seconds until the first event": F.col("waited_s"),
        "milliseconds per event, all of it together": 1_000 * whole / F.col("events"),
        "events a second, all of it together": F.col("events") / whole,
        "microseconds of CPU time per event, at both ends": 1e6 * F.col("cpu_s") / F.col("events"),
    }
    return together(
        rows.transform(replayed).transform(numbers(TITLES, asked)),
        rows.transform(told(others, GROUPS, point)),
    )


def is_small(params: Params) -> bool:
    """Where defects are planted."""
    return bool(params["how"] == "machines" and params["events"] == EVENTS["quick"][0])


def figure(rows: DataFrame) -> Figure:
    found = means(rows, GROUPS, "waited_s", "read_s", "read_s_allowed")
    drawing, [simulated, real] = panels(columns=2)
    for panel, how in ((simulated, "machines"), (real, "network")):
        for routing in pulsar.ROUTINGS:
            some = found[(found["how"] == how) & (found["routing"] == routing)]
            if not len(some):
                continue
            style = {**pulsar.style(routing), "label": pulsar.NAMES[routing]}
            panel.plot(some["events"], 1e3 * (some["waited_s"] + some["read_s"]), **style)
        panel.set(xscale="log", yscale="log", xlabel="events in the topic")
        panel.set_ylabel("milliseconds until all are read")
    bound = found[(found["how"] == "machines") & (found["routing"] == "tera")]
    dashes: Any = {"color": BLACK, "ls": "--", "lw": 1, "label": "pages of 256 events, 40 ms each"}
    simulated.plot(bound["events"], 1e3 * bound["read_s_allowed"], **dashes)
    simulated.set_title("simulated, a round trip takes 40 ms")
    real.set_title("real peers on loopback")
    simulated.legend()
    real.legend()
    return drawing


ENTRY = Entry.of(
    __name__,
    title="A late subscriber reads the whole history",
    claim="A peer that subscribes since the beginning gets every past event and every live "
    "one, once each, parents first, and ends with the same stream as everybody else, at a "
    "round trip per page of 256 events. The time per event of real peers (sockets, TLS, every "
    "signature and CID checked, stores on disk) is told.",
    seeds={"quick": 1, "full": 2},
    tolerances=reasons(
        TITLES,
        lacking=ground.paper("2026-11-15", "All members have everything, and so has a latecomer."),
        misplaced=ground.asked(
            "2026-11-15",
            "Pages come in the stream's order, and what is live waits for its parents.",
        ),
        different=ground.asked("2026-11-15", "A stream is a set of events with one order."),
        time=ground.derived(
            "2026-11-15",
            "From the first event to the last of the past: a round trip per page, and two "
            "more for pages that are cut short by live events or empty.",
        ),
        messages=ground.derived(
            "2026-11-15", "A question and an answer per page, and for two more pages."
        ),
    ),
    defects=(
        Defect("nothing of the past is given", lost("BlocksReply", "PageReply"), where=is_small),
        Defect("applications are handed events twice", handed_twice, where=is_small),
        Defect(
            "two answers in three are lost",
            {ARRIVE: two_of_three},
            where=lambda params: params["how"] == "machines",
        ),
        Defect(
            "pages have sixteen events",
            {"weft.protocol.history.server:BLOCKS_MAX": lambda most: 16},
            where=lambda params: params["how"] == "machines" and not is_small(params),
        ),
    ),
)
