"""The world carries effects out as the seam says, in the order of virtual time."""

from __future__ import annotations

import gc

from nameless import contact_of, unsigned_run
from scripted import Stage, ping
from weft.ids import Topic, peer_number
from weft.protocol import seam
from weft.protocol.liveness import Ping
from weft.protocol.publication import RouteEvent
from weft.protocol.recent import Repair
from weft.protocol.wire import Payload
from weft.sim.network import Conditions, Latency, Partition
from weft.sim.node import Clock

TOPIC = Topic("/a")


def test_identity_carries_the_index_and_is_distinct() -> None:
    contacts = [contact_of(7, index) for index in range(300)]
    assert [peer_number(contact.peer) for contact in contacts] == list(range(300))
    assert len({contact.address for contact in contacts}) == 300
    assert all(len(contact.peer) == 32 for contact in contacts)
    assert contact_of(8, 5).peer != contacts[5].peer


def test_message_arrives_after_the_latency_with_its_sender() -> None:
    stage = Stage()
    a, b = stage.add(), stage.add()
    stage.world.at(100, lambda: stage.send(a, b, 1))
    stage.world.run_until(1_000)
    assert stage.machines[1].heard() == [(110, 1)]
    received = stage.machines[1].log[-1][1]
    assert isinstance(received, seam.Received)
    assert received.sender == a.contact
    assert stage.world.handled == 1
    assert stage.world.sent[Ping] == 1


def test_same_time_happens_in_the_order_of_scheduling() -> None:
    stage = Stage()
    a, b = stage.add(), stage.add()
    for nonce in (3, 1, 2):
        stage.world.at(50, lambda nonce=nonce: stage.send(a, b, nonce))
    stage.world.run_until(100)
    assert [nonce for _, nonce in stage.machines[1].heard()] == [3, 1, 2]


def test_run_until_is_inclusive_and_keeps_the_rest() -> None:
    stage = Stage()
    a, b = stage.add(), stage.add()
    stage.world.at(0, lambda: stage.send(a, b, 1))
    stage.world.run_until(9)
    assert stage.machines[1].heard() == []
    stage.world.run_until(10)
    assert stage.machines[1].heard() == [(10, 1)]


def test_garbage_is_sought_rarely_while_a_run_is_played_and_as_before_afterwards() -> None:
    stage = Stage()
    usual = gc.get_threshold()
    meanwhile: list[tuple[int, int, int]] = []
    stage.world.at(5, lambda: meanwhile.append(gc.get_threshold()))
    stage.world.run_until(10)
    assert meanwhile[0] > usual
    assert gc.get_threshold() == usual


def test_timers_fire_by_the_peers_own_clock() -> None:
    timer = seam.Timer("tick")

    def rule(fact: seam.Input, now: int) -> list[seam.Effect]:
        return [seam.SetTimer(1_000, timer)] if isinstance(fact, seam.Started) else []

    stage = Stage()
    stage.add(rule)
    stage.add(rule, Clock(offset_ms=500, drift_ppm=100_000))
    stage.world.run_until(908)
    assert len(stage.machines[1].log) == 1
    stage.world.run_until(2_000)
    assert stage.machines[0].log[-1] == (1_000, seam.TimerFired(timer))
    # Ten percent fast: a second by its clock passes in 909.1 ms, and it started at 500.
    assert stage.machines[1].log[-1] == (1_502, seam.TimerFired(timer))


def test_no_clock_makes_a_timer_fire_too_soon() -> None:
    for drift_ppm in (-5_000, -333, -1, 0, 1, 77, 5_000):
        clock = Clock(offset_ms=12, drift_ppm=drift_ppm)
        for start_ms in range(0, 100_000, 997):
            for after_ms in (1, 50, 4_999, 120_000):
                end_ms = start_ms + clock.world_duration_ms(after_ms)
                passed_ms = clock.local_ms(end_ms) - clock.local_ms(start_ms)
                assert after_ms <= passed_ms <= after_ms + 3


def test_timers_and_messages_do_not_outlive_a_crash() -> None:
    def rule(fact: seam.Input, now: int) -> list[seam.Effect]:
        started = isinstance(fact, seam.Started)
        return [seam.SetTimer(100, seam.Timer("tick", serial=now))] if started else []

    stage = Stage()
    a, b = stage.add(), stage.add(rule)
    stage.world.at(45, lambda: stage.send(a, b, 1))
    stage.world.at(50, lambda: stage.world.crash(b, silent=True))
    stage.world.at(52, lambda: stage.world.start(b))
    stage.world.run_until(1_000)
    facts = [fact for _, fact in stage.machines[1].log]
    assert facts == [seam.Started(2, ()), seam.TimerFired(seam.Timer("tick", serial=52))]


def test_clean_crash_is_told_to_peers_that_hold_a_connection() -> None:
    stage = Stage()
    hub, holder, held, stranger = (stage.add() for _ in range(4))
    stage.world.carry_out(holder, [seam.Hold(hub.contact)])
    stage.world.carry_out(hub, [seam.Hold(held.contact)])
    stage.world.at(100, lambda: stage.world.crash(hub, silent=False))
    stage.world.run_until(5_000)
    assert [stage.machines[node.index].lost() for node in (holder, held, stranger)] == [
        [110],
        [110],
        [],
    ]


def test_released_connection_is_not_told() -> None:
    stage = Stage()
    hub, holder = stage.add(), stage.add()
    stage.world.carry_out(holder, [seam.Hold(hub.contact), seam.Release(hub.contact.peer)])
    stage.world.crash(hub, silent=False)
    stage.world.run_until(5_000)
    assert stage.machines[1].lost() == []


def test_sends_to_a_dead_peer_are_told_once_or_never() -> None:
    stage = Stage()
    a, clean, quiet = (stage.add() for _ in range(3))
    stage.world.crash(clean, silent=False)
    stage.world.crash(quiet, silent=True)
    for at_ms in (100, 200):
        stage.world.at(at_ms, lambda: stage.send(a, clean, 1))
        stage.world.at(at_ms, lambda: stage.send(a, quiet, 1))
    stage.world.at(5_000, lambda: stage.send(a, clean, 2))
    stage.world.run_until(10_000)
    assert stage.machines[0].lost() == [1_100, 6_000]
    assert all(
        fact.peer == clean.contact.peer
        for _, fact in stage.machines[0].log
        if isinstance(fact, seam.PeerLost)
    )
    assert stage.world.dropped == 5


def test_leave_lets_the_machine_say_goodbye() -> None:
    stage = Stage()
    listener = stage.add()

    def rule(fact: seam.Input, now: int) -> list[seam.Effect]:
        return [ping(listener.contact, 9)] if isinstance(fact, seam.Leave) else []

    leaver = stage.add(rule)
    stage.world.at(20, lambda: stage.world.leave(leaver))
    stage.world.run_until(100)
    assert stage.machines[0].heard() == [(30, 9)]
    life = stage.world.record.lives[1]
    assert (life.end_ms, life.how) == (20, "left")


def test_disconnect_is_told_to_the_other_end() -> None:
    stage = Stage()
    a, b = stage.add(), stage.add()
    stage.world.carry_out(b, [seam.Hold(a.contact)])
    stage.world.carry_out(a, [seam.Disconnect(b.contact.peer, "nonsense")])
    stage.world.run_until(100)
    assert stage.machines[1].lost() == [10]
    assert stage.machines[0].lost() == []
    assert stage.world.record.disconnects == [(0, 0, 1, "nonsense")]


def test_stalled_peer_handles_everything_later_in_order() -> None:
    stage = Stage()
    a, b = stage.add(), stage.add()
    stage.world.at(10, lambda: stage.world.stall(b))
    for nonce, at_ms in enumerate((20, 30, 40)):
        stage.world.at(at_ms, lambda nonce=nonce: stage.send(a, b, nonce))
    stage.world.at(500, lambda: stage.world.unstall(b))
    stage.world.run_until(1_000)
    assert stage.machines[1].heard() == [(500, 0), (500, 1), (500, 2)]


def test_told_partition_breaks_held_connections_and_sends() -> None:
    stage = Stage()
    a, b, c = (stage.add() for _ in range(3))
    stage.world.carry_out(a, [seam.Hold(b.contact)])
    stage.world.at(100, lambda: stage.world.set_partition(Partition((0, 1, 1)), told=True))
    stage.world.at(200, lambda: stage.send(a, c, 1))
    stage.world.at(5_000, lambda: stage.world.set_partition(None))
    stage.world.at(6_000, lambda: stage.send(a, c, 2))
    stage.world.run_until(10_000)
    assert stage.machines[0].lost() == [1_100, 1_200]
    assert stage.machines[1].lost() == [1_100]
    assert stage.machines[2].heard() == [(6_010, 2)]


def test_record_of_subscriptions_deliveries_and_answers() -> None:
    run = unsigned_run(contact_of(1, 0).peer, b"x", b"y")

    def rule(fact: seam.Input, now: int) -> list[seam.Effect]:
        if isinstance(fact, seam.Subscribe):
            return [seam.Answer(fact.token, "instantiated")]
        if isinstance(fact, seam.Publish):
            return [seam.Deliver(fact.topic, run, 0), seam.Answer(fact.token, "delivered")]
        return []

    stage = Stage()
    a = stage.add(rule)
    stage.world.at(10, lambda: stage.world.subscribe(a, TOPIC))
    stage.world.at(20, lambda: stage.world.publish(a, TOPIC, b"x", b"y"))
    stage.world.at(30, lambda: stage.world.unsubscribe(a, TOPIC))
    stage.world.at(40, lambda: stage.world.subscribe(a, TOPIC))
    stage.world.at(50, lambda: stage.world.crash(a, silent=True))
    stage.world.run_until(100)
    record = stage.world.record
    assert [(s.start_ms, s.joined_ms, s.end_ms) for s in record.stays] == [
        (10, 10, 30),
        (40, 40, 50),
    ]
    assert [(d.at_ms, d.peer, d.topic, d.event) for d in record.deliveries] == [
        (20, 0, TOPIC, event) for event in run.events()
    ]
    assert [(one.place, one.payload) for one in record.publications.values()] == [
        (0, b"x"),
        (1, b"y"),
    ]
    for one in record.publications.values():
        assert [(at_ms, answer.outcome) for at_ms, answer in one.answers] == [(20, "delivered")]
    assert record.alive_at_end() == []


def test_parasites_are_noted_and_copies_counted() -> None:
    run = unsigned_run(contact_of(1, 0).peer, b"x", b"y")
    stage = Stage()
    a, b = stage.add(), stage.add()
    payload = seam.Send(b.contact, Payload(TOPIC, run, 1))
    repair = seam.Send(b.contact, Repair(TOPIC, [run, run]))
    route = seam.Send(b.contact, RouteEvent(TOPIC, run))
    stage.world.carry_out(a, [payload, route])
    stage.world.run_until(50)
    stage.world.subscribe(b, TOPIC)
    stage.world.carry_out(a, [repair])
    stage.world.run_until(100)
    (parasite,) = stage.world.record.parasites
    assert (parasite.at_ms, parasite.sender, parasite.peer, parasite.kind) == (10, 0, 1, "Payload")
    assert stage.world.copies == 8


def test_a_peer_with_a_rate_handles_one_message_after_the_other() -> None:
    stage = Stage(Conditions(latency=Latency("constant", 10), messages_per_s=100))
    a, b, c = stage.add(), stage.add(), stage.add()
    stage.world.at(0, lambda: [stage.send(a, b, nonce) for nonce in (1, 2, 3)])
    stage.world.at(1, lambda: stage.send(c, b, 4))  # from another peer: it waits, too
    stage.world.at(1, lambda: stage.send(b, c, 5))  # to another peer: it does not
    stage.world.at(500, lambda: stage.send(a, b, 6))
    stage.world.run_until(1_000)
    assert stage.machines[1].heard() == [(20, 1), (30, 2), (40, 3), (50, 4), (520, 6)]
    assert stage.machines[2].heard() == [(21, 5)]


def test_what_waits_for_a_peer_that_crashes_is_lost() -> None:
    stage = Stage(Conditions(latency=Latency("constant", 10), messages_per_s=100))
    a, b = stage.add(), stage.add()
    before = stage.machines[1]
    stage.world.at(0, lambda: [stage.send(a, b, nonce) for nonce in (1, 2, 3)])
    stage.world.at(25, lambda: stage.world.crash(b, silent=True))
    stage.world.at(26, lambda: stage.world.start(b))
    stage.world.at(26, lambda: stage.send(a, b, 4))
    stage.world.run_until(1_000)
    assert (before.heard(), stage.machines[1].heard()) == ([(20, 1)], [(46, 4)])
