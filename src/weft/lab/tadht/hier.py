"""tadht-hier: an event reaches exactly the subscribers of its topic and of those above it.

Topics of a hierarchy three levels deep, one beside it whose name begins like its root, and one
elsewhere; peers subscribe to some of them at random. Events are published in each topic by random
peers, subscribers or not. Every event is then held against who is subscribed to the topics that it
counts in, as `sim/checkers/deliveries.py` has it, which does not use the rule under test.
"""

from __future__ import annotations

from collections import Counter

from weft.engine.experiments.common import Columns, Params, Point, Size
from weft.ids import Topic
from weft.lab.tadht.parasite import WAYS
from weft.lab.tadht.world import SUBSCRIBE_MS, Net
from weft.protocol.topic_dht.settings import Settings
from weft.rules.hierarchy import above
from weft.sim.checkers.deliveries import expected_levels
from weft.sim.network import Conditions

SEEDS = {"quick": 1, "full": 1}
ROOT = "/a"
TOPICS = tuple(
    Topic(name)
    for name in ("/a", "/a/b", "/a/c", "/a/b/c", "/a/b/d", "/a/c/b", "/ab", "/ab/c", "/other")
)
_BETWEEN_MS = 2_000


def points(size: Size) -> list[Point]:
    if size == "full":
        shape: Point = {"peers": 60, "per_peer": 3, "events": 45}
        return [
            {**shape, "scheme": scheme, "mode": mode, "loss_percent": loss}
            for loss in (0, 5)
            for scheme, mode in WAYS
        ]
    shape = {"peers": 24, "per_peer": 3, "events": 18, "loss_percent": 0}
    return [{**shape, "scheme": scheme, "mode": mode} for scheme, mode in WAYS if mode == "push"]


def run(params: Params, seed: int) -> Columns:
    """Rows: one per event."""
    settings = Settings(scheme=params["scheme"], gossip_mode=params["mode"])
    conditions = Conditions(loss_percent=params["loss_percent"])
    net = Net(seed, params["peers"], settings, conditions, [ROOT])
    for number in range(params["peers"]):
        net.subscribe(
            number, net.dice.some("tadht-hier.topics", TOPICS, params["per_peer"], number)
        )
        net.run(SUBSCRIBE_MS)
    net.run(2 * settings.period_ms)
    net.settle()
    rows = []
    for event in range(params["events"]):
        topic = TOPICS[event % len(TOPICS)]
        publisher = net.dice.below("tadht-hier.publisher", params["peers"], event)
        payload = b"event %d" % event
        net.world.publish_together(net.nodes[publisher], above(topic, [ROOT]), payload)
        net.run(_BETWEEN_MS)
        rows.append((topic, payload))
    net.run(6 * settings.period_ms)
    judged = [_judged(net, topic, payload) for topic, payload in rows]
    return {
        "event": list(range(len(rows))),
        "topic": [topic for topic, _ in rows],
        **{
            name: [one[name] for one in judged]
            for name in ("expected", "missing", "extra", "twice", "misnamed")
        },
        "parasites": net.parasites,
    }


def _judged(net: Net, topic: Topic, payload: bytes) -> dict[str, int]:
    """Who should have got the event in which topic, against who did."""
    wanted = {
        (number, level)
        for level in expected_levels(topic, [ROOT])
        for number in net.subscribers(Topic(level))
    }
    got = [one for one in net.world.record.deliveries if one.event.payload == payload]
    times = Counter((one.peer, str(one.topic)) for one in got)
    return {
        "expected": len(wanted),
        "missing": sum(one not in times for one in sorted(wanted)),
        "extra": sum(one not in wanted for one in times),
        "twice": sum(count > 1 for count in times.values()),
        "misnamed": sum((one.published_in or one.topic) != topic for one in got),
    }


def seconds(params: Params) -> float:
    return float(params["peers"]) * 0.4
