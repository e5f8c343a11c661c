"""Random routing: every subscriber equally likely, and nobody outside the topic is asked."""

from __future__ import annotations

import pytest

from chi_square import chi_square_p
from weft.ids import Contact, Topic
from weft.protocol.config import KademliaSettings
from weft.protocol.rooms import TopicDhtSettings as TopicConfig
from weft.sim.topic_dht import Run

T, OTHER = Topic("/t"), Topic("/other")
MEMBERS, STRANGERS, DRAWS = 24, 12, 960


@pytest.fixture(scope="module")
def run() -> Run:
    """Twenty-four subscribers of one topic, forwarders and children, among strangers."""
    settings = TopicConfig(children_max=2, period_ms=10**9, view_percent=0)
    few = KademliaSettings(enabled=True, k=6)  # so that the topic has several regions
    one = Run(seed=3, peers=MEMBERS + STRANGERS, topics=settings, dht=few)
    one.come_up()
    for peer in range(MEMBERS + STRANGERS):
        one.subscribe(peer, [OTHER] if peer % 2 or peer >= MEMBERS else [Topic(f"/own/{peer}")])
    one.run(20_000)
    for peer in range(MEMBERS):
        one.subscribe(peer, [T])
        one.run(1_000)
    one.run(20_000)
    assert one.check().all == []
    return one


def draw(run: Run, peer: int, count: int) -> list[Contact]:
    drawn: list[Contact | None] = []
    machine = run.machine(peer)
    assert machine is not None
    while len(drawn) < count:
        before = len(drawn)
        for _ in range(40):
            machine.topics.samples.draw(T, drawn.append)
        run.flush(peer)
        while len(drawn) < before + 40:
            run.run(50)
    assert None not in drawn
    return [one for one in drawn if one is not None][:count]


def roles(run: Run) -> tuple[list[int], list[int]]:
    forwarders, children = [], []
    for peer in range(MEMBERS):
        machine = run.machine(peer)
        assert machine is not None
        forwards = machine.topics.roles.forwarding(T) is not None
        (forwarders if forwards else children).append(peer)
    return forwarders, children


def test_every_subscriber_is_equally_likely_and_no_stranger_is_asked(run: Run) -> None:
    forwarders, children = roles(run)
    assert len(forwarders) > 6 and len(children) > 6  # several regions, several seats
    before = run.lookups.outside
    for asker in (forwarders[0], children[0]):
        counts = {run.world.nodes[peer].contact.peer: 0 for peer in range(MEMBERS)}
        for member in draw(run, asker, DRAWS):
            counts[member.peer] += 1
        assert chi_square_p(list(counts.values())) > 0.001, counts
    assert run.lookups.outside == before, "a request for a place in the topic left the topic"
    assert run.lookups.inside > 5_000 and run.lookups.parasites == 0


def test_the_bound_on_draws_ends_a_draw_in_vain() -> None:
    run = Run(seed=3, peers=4, topics=TopicConfig(draws_max=1))
    run.come_up()
    for peer in range(4):
        run.subscribe(peer, [T])
    run.run(20_000)
    machine = run.machine(0)
    assert machine is not None
    drawn: list[Contact | None] = []
    machine.topics.samples.draw(T, drawn.append)
    run.flush(0)
    run.run(10_000)
    assert drawn == [None]
    machine.topics.samples.draw(Topic("/nowhere"), drawn.append)
    assert drawn == [None, None]


def test_views_of_forwarders_fill_and_the_oldest_goes() -> None:
    """Algorithm 2, among more forwarders than one lookup finds."""
    settings = TopicConfig(scheme="full-gossip", period_ms=2_000, view_max=5, view_percent=50)
    run = Run(seed=2, peers=10, topics=settings, dht=KademliaSettings(enabled=True, k=6))
    run.come_up()
    for peer in range(10):
        run.subscribe(peer, [T])
    run.run(40_000)
    views = []
    for peer in range(10):
        machine = run.machine(peer)
        assert machine is not None
        views.append(list(machine.topics.roles.by_topic[T].view))
        assert len(views[-1]) == 5 and machine.ctx.me.peer not in views[-1]
    run.run(30_000)
    now = []
    for peer in range(10):
        machine = run.machine(peer)
        assert machine is not None
        now.append(list(machine.topics.roles.by_topic[T].view))
    assert sum(one != other for one, other in zip(views, now, strict=True)) > 5


def test_a_view_takes_whole_regions_and_favours_nobody() -> None:
    """Single seats took 894 requests for a view of twelve, whole regions take 87."""
    fills, peers = 40, 30
    settings = TopicConfig(scheme="full-gossip", period_ms=10**9, view_max=12)
    run = Run(seed=2, peers=peers, topics=settings, dht=KademliaSettings(enabled=True, k=6))
    run.come_up()
    for peer in range(peers):
        run.subscribe(peer, [T])
    run.run(5_000)
    machine = run.machine(0)
    assert machine is not None
    role = machine.topics.roles.by_topic[T]
    counts = {node.contact.peer: 0 for node in run.world.nodes[1:]}
    before = run.lookups.inside
    for _ in range(fills):
        machine.topics.samples.fill_view(role)
        run.flush(0)
        run.run(8_000)
        for peer_id in role.view:
            counts[peer_id] += 1
    assert len(role.view) == 12
    assert run.lookups.inside - before < 200 * fills
    assert chi_square_p(list(counts.values())) > 0.001, counts


def test_the_size_of_regions_is_estimated_anew_in_every_topic() -> None:
    """One count for two topics, which take turns, left the first of them as it was for ever."""
    settings = TopicConfig(scheme="full-gossip", period_ms=10**9)
    run = Run(seed=2, peers=4, topics=settings)
    run.come_up()
    for peer in range(4):
        run.subscribe(peer, [T, OTHER])
    run.run(5_000)
    machine = run.machine(0)
    assert machine is not None
    both = [machine.topics.roles.by_topic[topic] for topic in (T, OTHER)]
    for role in both:
        role.regions.learn(40.0, 1, 20)
        assert role.regions.bits is not None
    for _ in range(64):
        for role in both:
            machine.topics.samples.on_period(role)
    assert [role.regions.bits for role in both] == [None, None]


def test_children_and_trees_keep_no_views() -> None:
    settings = TopicConfig(scheme="forward-treecast", period_ms=2_000)
    run = Run(seed=2, peers=5, topics=settings)
    run.come_up()
    for peer in range(5):
        run.subscribe(peer, [T])
    run.run(20_000)
    machines = [run.machine(peer) for peer in range(5)]
    assert not any(m.topics.roles.by_topic[T].view for m in machines if m is not None)
