"""tadht-parasite: events and lookups in a network of real state machines, and whom they reach.

Peers subscribe to topics of Zipf 0.7, then events are published one after the other: most by
subscribers, every fourth by somebody outside of the topic. *calm*: nothing fails. *loss*: five in a
hundred messages are lost, from the beginning. *crash*: nearly a third of the peers go down without
a word halfway through the events. *churn*: peers unsubscribe and others subscribe between events.
"""

from __future__ import annotations

from typing import Any

from weft.engine.experiments.common import Columns, Params, Point, Size, workload
from weft.lab.tadht.world import Net, Spread, topic_of
from weft.protocol.topic_dht.settings import Settings
from weft.sim.network import Conditions

SEEDS = {"quick": 1, "full": 1}
WAYS = (
    ("full-gossip", "push"),
    ("full-gossip", "push-pull"),
    ("forward-gossip", "push"),
    ("forward-gossip", "push-pull"),
    ("full-treecast", "push"),
    ("forward-treecast", "push"),
)
CONDITIONS = ("calm", "loss", "crash", "churn")
_LOSS_PERCENT, _CRASH_PERCENT = 5, 30
_BETWEEN_MS = 2_000
_OUTSIDE_EVERY = 4
_JOIN_MS = 3_000
"""guess: a newcomer is promised what is published once it is in."""
SHAPES: dict[str, Point] = {
    "quick": {"peers": 24, "topics": 3, "subscriptions": 40, "zipf": 0.7, "events": 8},
    "full": {"peers": 60, "topics": 6, "subscriptions": 180, "zipf": 0.7, "events": 24},
}


def points(size: Size) -> list[Point]:
    return [
        {**SHAPES[size], "scheme": scheme, "mode": mode, "condition": condition}
        for condition in CONDITIONS
        for scheme, mode in WAYS
        if size == "full" or mode == "push"
    ]


def run(params: Params, seed: int) -> Columns:
    """Rows: one per event."""
    settings = Settings(scheme=params["scheme"], gossip_mode=params["mode"])
    condition = params["condition"]
    loss = _LOSS_PERCENT if condition == "loss" else 0
    net = Net(seed, params["peers"], settings, Conditions(loss_percent=loss))
    net.subscribe_all(workload(params, seed))
    net.run(2 * settings.period_ms)
    settled = net.settle()
    sent = []
    for event in range(params["events"]):
        if condition == "crash" and event == params["events"] // 2:
            _crash(net)
        if condition == "churn":
            _churn(net, event, params["topics"])
        sent.append(_publish(net, event, params["topics"]))
    net.run(6 * settings.period_ms)
    spreads = [_outcome(net, *one) for one in sent]
    return {
        "event": list(range(len(sent))),
        "outside": [outside for _, _, _, outside in sent],
        **{
            name: [getattr(one, name) for one in spreads]
            for name in ("members", "copies", "rounds", "missed")
        },
        "settled_periods": -1 if settled is None else settled,
        "lookups": net.lookups.inside,
        "lookups_parasite": net.lookups.parasites,
        "copies_all": net.copies.all,
        "copies_parasite": len(net.world.record.parasites),
    }


def _crash(net: Net) -> None:
    count = len(net.nodes) * _CRASH_PERCENT // 100
    net.crash(*net.dice.some("lab.crash", range(len(net.nodes)), count))


def _churn(net: Net, event: int, topics: int) -> None:
    """One subscriber leaves a topic, and somebody joins it who never was there."""
    topic = topic_of(net.dice.below("lab.churn", topics, event))
    inside = net.subscribers(topic)
    known = {stay.peer for stay in net.world.record.stays if stay.topic == topic}
    outside = [one for one in net.alive() if one not in known]
    if len(inside) > 2 and outside:
        net.unsubscribe(net.dice.pick("lab.leaves", inside, event), topic)
        net.subscribe(net.dice.pick("lab.comes", outside, event), [topic])
        net.run(_JOIN_MS)


def _publish(net: Net, event: int, topics: int) -> tuple[int, list[int], int, bool]:
    """The publication, who was subscribed, the topic, whether it came from outside."""
    number = event % topics
    members = net.subscribers(topic_of(number))
    strangers = [one for one in net.alive() if one not in members]
    outside = event % _OUTSIDE_EVERY == _OUTSIDE_EVERY - 1 and bool(strangers)
    publisher = net.dice.pick("lab.publisher", strangers if outside else members, event)
    publication = net.publish(publisher, topic_of(number))
    net.run(_BETWEEN_MS)
    return publication, members, number, outside


def _outcome(net: Net, publication: int, members: list[int], number: int, _: Any) -> Spread:
    stayed = frozenset(net.subscribers(topic_of(number)))
    spread = net.spread_of(publication, [one for one in members if one in stayed], topic_of(number))
    return Spread(len(members), spread.copies, spread.rounds, spread.missed)


def seconds(params: Params) -> float:
    gossip = 3.0 if params["scheme"] == "full-gossip" else 1.0
    return float(params["subscriptions"]) * 0.08 * gossip
