"""pulsar-late: a late subscriber reads the whole history.

Some publishers have filled a topic. Then a peer enters the network and subscribes since the
beginning, while publishing goes on. It reads pages, one question and one answer each, parents
before children, and live events follow: everything once and in order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from weft.lab.pulsar import peers as real
from weft.lab.pulsar.gap import ONE_WAY_MS, REPAIR, settings
from weft.lab.pulsar.world import ENTER_CYCLES, JOIN_CYCLES, Net, misplaced
from weft.protocol.messages_history import BLOCKS_MAX
from weft.sim.network import Conditions, Latency

MEMBERS = 6
PUBLISHERS = 3
FILL_MS = 5
LIVE_MS = 100
LIVE_EVENTS = 50
"""guess: events published while the latecomer reads."""
LATE_PAGES = 2
"""A page may be cut short where live events come in between, and the last one may be empty."""


def run(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    if params["how"] == "network":
        return real.replay(params["routing"], params["events"])
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
        "waited_s": (handed[0].at_ms - asked_ms) / 1e3,
        "read_s": (past_ms - handed[0].at_ms) / 1e3 if past_ms is not None else math.nan,
        "cpu_s": math.nan,
        "read_s_allowed": pages * 2 * ONE_WAY_MS / 1e3,
        "messages": float(net.sent(REPAIR) - before),
        "messages_allowed": 2.0 * pages,
    }
