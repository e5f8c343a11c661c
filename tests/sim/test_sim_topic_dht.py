"""Crashes and losses in the topic-aware DHT."""

from __future__ import annotations

import pytest

from weft.ids import Contact, Topic
from weft.protocol.config import Config
from weft.protocol.kademlia.rpc import FindRequest
from weft.protocol.rooms import TopicDhtSettings as TopicSettings
from weft.protocol.wire import Message
from weft.rules.roles import location_view_bound
from weft.sim.builder import SimNet
from weft.sim.network import Conditions
from weft.sim.node import Node
from weft.sim.topic_dht import Run
from weft.sim.world import Observer

TOPICS = [Topic(f"/t{number}") for number in range(4)]


def crowd(seed: int, peers: int = 40) -> Run:
    """Peers that subscribe to some topics each, overlapping in time."""
    run = Run(seed=seed, peers=peers, topics=TopicSettings(view_percent=0))
    run.come_up()
    for peer in range(peers):
        wanted = [
            topic
            for number, topic in enumerate(TOPICS)
            if run.dice.percent("topic_dht.subscribe", 60, peer, number)
        ]
        run.subscribe(peer, wanted or TOPICS[:1])
        run.run(50)
    return run


@pytest.mark.parametrize(("seed", "loss"), [(1, 0), (2, 0), (3, 10)])
def test_a_third_vanishes_and_ten_periods_mend_it(seed: int, loss: int) -> None:
    run = crowd(seed)
    assert run.settle(10) is not None, run.check().all
    # Everybody forwards something, so a mean beyond the bound would be a fault of the choice.
    loads = [machine.roles.load() for machine in run.machines().values()]
    bound = sum(location_view_bound(one.topics, 8) for one in loads)
    assert sum(one.locations for one in loads) <= bound
    run.world.network.set_conditions(Conditions(loss_percent=loss, duplicate_percent=loss))
    for node in run.dice.some("topic_dht.crash", run.world.nodes, len(run.world.nodes) * 3 // 10):
        run.crash(node.index)
    assert run.check().parents, "nobody lost a parent"
    periods = run.settle(10)
    assert periods is not None and periods >= 1, run.check().all
    assert run.lookups.inside > 1_000 and run.lookups.parasites == 0


def test_two_parts_of_a_topic_meet() -> None:
    """Both founded it at the same time, neither knew of the other."""
    run = Run(seed=4, peers=20, topics=TopicSettings(view_percent=0))
    run.come_up()
    for peer in range(20):
        run.subscribe(peer, TOPICS[:1])
    run.run(1_000)
    assert sum(m.roles.forwarding(TOPICS[0]) is not None for m in run.machines().values()) > 1
    assert run.settle(10) is not None, run.check().all
    tables = [m.roles.forwarding(TOPICS[0]) for m in run.machines().values()]
    known = [len(one.neighbours()) for one in tables if one is not None]
    assert min(known) > 0


def test_the_same_seed_gives_the_same_run() -> None:
    one, other = crowd(5, 20), crowd(5, 20)
    assert one.world.handled == other.world.handled
    assert dict(one.world.sent) == dict(other.world.sent)


class Requests(Observer):
    """The lookups' requests of one peer."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0

    def sent(
        self, now_ms: int, sender: Node, to: Contact, receiver: Node | None, message: Message
    ) -> None:
        self.count += sender.index == self.number and isinstance(message, FindRequest)


def test_looking_for_members_beside_the_only_one_costs_little() -> None:
    """A publisher from outside wants to be told by other members, too, and there may be none: it
    asked all peers that it knows four times then, 270 requests an event."""
    requests = Requests(20)
    net = SimNet(2, Config(routing="topic-dht"), observers=(requests,))
    for number in range(30):
        net.enter([0] if number else [], 200)
    topic = Topic("/a")
    net.world.subscribe(net.nodes[3], topic)
    net.run(150_000)
    before = requests.count
    net.run(50_000)
    at_rest = requests.count - before
    net.publish_in(20, topic, b"x")
    net.run(50_000)
    assert len(net.deliveries(3)) == 1
    assert requests.count - before - 2 * at_rest < 100
