"""pulsar-gap: how long does it take to repair a gap, and how many messages?

One subscriber is cut off for a moment (nobody notices) while others publish as many events as the
gap is to have. Then the cut heals and one more event is published: its parent is missing. From then
on the clock runs until the subscriber has been handed everything, and its questions for events of
the past and the answers to them are counted. (Those of others to it are not: who gets its events
by way of the subscriber was cut off with it.)

What may be needed follows from the settings. An event names its parents, so a short gap is walked
back height by height: a question and an answer per missing event at the most, once the first was
given `patience_ms` to come by itself. A gap of more than `walk_back_max` heights is read in pages:
a question and an answer per page. (One publisher's events are one height each; concurrent ones
share heights.) Where messages are lost, a question is asked again until its answer comes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from weft.ids import Contact
from weft.lab.pulsar import peers as real
from weft.lab.pulsar.world import JOIN_CYCLES, Net
from weft.protocol.config import Config, History
from weft.protocol.messages_history import (
    BLOCKS_MAX,
    BlocksReply,
    BlocksRequest,
    PageReply,
    PageRequest,
)
from weft.protocol.wire import Message
from weft.sim.network import Conditions, Latency, Partition
from weft.sim.node import Node, keyed
from weft.sim.record import Delivery
from weft.sim.world import Observer

QUESTIONS, ANSWERS = (BlocksRequest, PageRequest), (BlocksReply, PageReply)
REPAIR = (*QUESTIONS, *ANSWERS)
ONE_WAY_MS = 20
EVERY_MS = 5
"""So quick that the cut is over before anybody takes the subscriber for lost."""
HOPS_MAX = 10
"""measured: more than an event takes to anybody among so few peers."""
STORE_MS = 5
"""As the simulator's disks."""
PATIENCE_MS = 400_000
"""guess: with losses it may take several rounds of asking."""


class Talk(Observer):
    """Counts what one peer sends and is sent, by kind, since `begin`."""

    def __init__(self, watched: Contact) -> None:
        self._watched = watched
        self.said: Counter[type] = Counter()
        self.heard: Counter[type] = Counter()

    def begin(self) -> None:
        self.said.clear()
        self.heard.clear()

    def sent(
        self, now_ms: int, sender: Node, to: Contact, receiver: Node | None, message: Message
    ) -> None:
        if sender.contact == self._watched:
            self.said[type(message)] += 1
        elif to == self._watched:
            self.heard[type(message)] += 1


def run(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    gap = params["gap"]
    if params["how"] == "network":
        return {**real.repair(params["routing"], gap), "heights": gap + 1, **_nothing_allowed()}
    conditions = Conditions(latency=Latency("constant", ONE_WAY_MS))
    talk = Talk(keyed(seed, params["peers"] - 1)[0])
    net = Net(seed, params["peers"], settings(params["routing"]), conditions, [talk])
    world = net.world
    members = list(range(params["peers"]))
    net.subscribe(*members, since="beginning")
    net.run_cycles(JOIN_CYCLES)
    publishers, victim = members[: params["publishers"]], net.nodes[members[-1]]
    net.publish_all(publishers, len(publishers), 1_000)
    _cut_off(net, victim, publishers, gap)
    loss_percent = round(100 * params["loss"])  # from now on, so that nobody else lacks anything
    world.network.set_conditions(replace(world.network.conditions, loss_percent=loss_percent))
    talk.begin()
    healed_ms = world.now_ms
    net.publish_next(publishers[0])
    wanted = gap + 1 + len(publishers)
    repaired = net.run_while(
        lambda: len(net.deliveries(victim.index)) < wanted, ONE_WAY_MS, PATIENCE_MS
    )
    handed = net.deliveries(victim.index)
    asked = sum(talk.said[kind] for kind in QUESTIONS)
    answered = sum(talk.heard[kind] for kind in ANSWERS)
    heights = _height(handed[-1]) - _height(handed[len(publishers) - 1])
    return {
        "missing": wanted - len(handed),
        "repair_ms": float(handed[-1].at_ms - healed_ms) if repaired else float("nan"),
        "messages": float(asked + answered),
        "heights": heights,
        **allowed(gap, heights, params["loss"]),
    }


def _cut_off(net: Net, victim: Node, publishers: Sequence[int], gap: int) -> None:
    """Let others publish while the victim hears nothing."""
    net.world.set_partition(Partition(tuple(int(node is victim) for node in net.nodes)))
    net.publish_all(publishers, gap, EVERY_MS)
    net.run(2 * ONE_WAY_MS)  # what is on its way is lost, too
    net.world.set_partition(None)


def _height(delivery: Delivery) -> int:
    assert delivery.descriptor is not None
    return delivery.descriptor.height


def settings(routing: Any) -> Config:
    return Config(routing=routing, history=History(enabled=True))


def allowed(gap: int, heights: int, loss: float) -> dict[str, Any]:
    """The most messages for a gap, by the settings, and the most time where nothing is lost.

    With losses, a question and its answer come through with a chance q, so n of them take n/q on
    average, with a standard deviation of √(n (1 − q))/q, of which three are allowed.
    """
    history = History()
    begins_ms = HOPS_MAX * ONE_WAY_MS + STORE_MS
    if heights <= history.walk_back_max:
        exchanges, turns = gap, heights
        begins_ms += history.patience_ms
    else:
        exchanges = turns = -(-(gap + 1) // BLOCKS_MAX) + 1  # one for what came meanwhile
    through = (1 - loss) ** 2
    asked = (exchanges + 3 * math.sqrt(exchanges * (1 - through))) / through
    return {
        "messages_allowed": 2 * asked,
        "ms_allowed": float(begins_ms + turns * 2 * ONE_WAY_MS) if not loss else math.nan,
    }


def _nothing_allowed() -> dict[str, Any]:
    return {"messages_allowed": math.nan, "ms_allowed": math.nan}
