"""Full queues: callers that wait, how long, and what is dropped and counted when waiting is over.

The slow reader is a real connection whose other end does not read from its socket.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import weft
from nameless import unsigned_run
from net_kit import TOPIC, Caller, Node, caller, node, payload, quick, turn, until
from weft.documents.run import PAYLOAD_BYTES_MAX, RUN_MAX
from weft.ids import Contact, PeerId, Topic
from weft.net.codec import Hello
from weft.net.config import Network
from weft.net.congestion import WINDOW_BYTES, WINDOW_RUNS, WINDOWS_RUNS
from weft.net.errors import LossError, NotConfirmed
from weft.net.subscription import Gap, OnLoss, Subscription
from weft.protocol import seam
from weft.protocol.liveness import LinkList, Ping
from weft.protocol.wire import Payload
from weft.store.sqlite import SqliteStore

KIB = 1 << 10
LIMITS = quick(
    frame_bytes_max=64 * KIB,
    queue_soft_bytes=64 * KIB,
    queue_hard_bytes=256 * KIB,
    queue_control_bytes=64 * KIB,
    queue_patience_ms=300,
    overload_ms=60_000,
)
EVENT_BYTES = 1_000


async def slow_reader(target: Node, one: Caller) -> Contact:
    """Connects, and then does not read from its socket."""
    assert isinstance(await one.greet(target.me), Hello)
    one.stop_reading()
    await until(lambda: target.connections == 1)
    return Contact(one.identity.peer, "/ip4/127.0.0.1/tcp/9")


def publisher_to(*contacts: Contact) -> object:
    """A reaction: every publish is sent to these contacts and answered at once."""
    numbers = iter(range(1, 1 << 30))

    def react(fact: seam.Input) -> list[seam.Effect]:
        if not isinstance(fact, seam.Publish):
            return []
        run = unsigned_run(PeerId(b"p" * 32), *fact.payloads, first=next(numbers))
        for _ in fact.payloads[1:]:
            next(numbers)
        message = Payload(fact.topic, run, 1)
        sends: list[seam.Effect] = [seam.Send(contact, message) for contact in contacts]
        return [*sends, seam.Answer(fact.token, "delivered", None, run)]

    return react


def queued(one: Node) -> int:
    return one.pool.gauges()["queued_bytes"]


async def publish_until_it_waits(a: Node) -> asyncio.Task[object]:
    """Publish until one is suspended; returns that one."""
    while True:
        task = asyncio.create_task(a.runtime.publish(TOPIC, bytes(EVENT_BYTES)))
        await until(lambda task=task: task.done() or queued(a) > LIMITS.queue_soft_bytes)  # type: ignore[misc]
        for _ in range(3):
            await turn()  # what was gathered is sent, its answer comes, and its publisher hears it
        if not task.done():
            return task
        await task


async def send_until_dropped(a: Node, to: Contact) -> None:
    """Events until one finds no room; on each turn some go on into the kernel's buffers."""
    while not a.runtime.counters.events_dropped:
        a.send(to, payload(1, EVENT_BYTES))
        await turn()


async def test_publish_waits_for_a_slow_reader_and_goes_on_when_it_reads() -> None:
    patient = quick(**{**vars(LIMITS), "queue_patience_ms": 60_000})
    async with node(patient) as a, caller() as slow:
        contact = await slow_reader(a, slow)
        a.machine.react = publisher_to(contact)  # type: ignore[assignment]
        task = await publish_until_it_waits(a)
        assert queued(a) < LIMITS.queue_soft_bytes + 2 * EVENT_BYTES
        assert a.count("publish_waits_queue") == 1
        slow.read_on()
        receive = asyncio.create_task(slow.goodbye())
        receipt = await task
        assert receipt.outcome == "sent"  # type: ignore[attr-defined]
        assert a.runtime.counters.events_dropped == 0
        await until(lambda: queued(a) == 0)
        receive.cancel()


async def test_a_stalled_reader_is_waited_for_once_and_then_costs_drops_not_time() -> None:
    async with node(LIMITS) as a, node() as healthy, caller() as slow:
        contact = await slow_reader(a, slow)
        a.machine.react = publisher_to(contact, healthy.me)  # type: ignore[assignment]
        [remote] = [one for one in a.pool.peers if one.peer == contact.peer]
        while not remote.congestion.given_up:
            await a.runtime.publish(TOPIC, bytes(EVENT_BYTES))
        waits = a.count("publish_waits_queue")
        assert waits <= 1  # none if this process stood still for as long as it is patient
        # From here on nobody waits: far more than fits goes out, and only the slow one loses.
        assert not remote.congestion.blocks
        receipts = [await a.runtime.publish(TOPIC, bytes(EVENT_BYTES)) for _ in range(1_000)]
        assert remote.congestion.given_up and a.count("publish_waits_queue") == waits
        assert sum(receipt.dropped for receipt in receipts) > 500
        assert a.runtime.counters.events_dropped == sum(r.dropped for r in receipts)
        assert a.count("dropped_event_queue_full") == a.runtime.counters.events_dropped
        assert remote.queued <= LIMITS.queue_hard_bytes
        assert remote.dropped == a.runtime.counters.events_dropped
        await until(
            lambda: (
                healthy.machine.messages
                and healthy.machine.messages[-1].run.last  # type: ignore[union-attr]
                == receipts[-1].event.number
            )  # type: ignore[union-attr]
        )
        got = [message.run.first for message in healthy.machine.messages]  # type: ignore[union-attr]
        assert got == list(range(1, got[-1] + 1))  # in order, none lost


def outside(fact: seam.Input) -> list[seam.Effect]:
    """A reaction: each run is on its way to an access point that does not answer."""
    return [seam.Answer(fact.token, "queued")] if isinstance(fact, seam.Publish) else []


def tokens(a: Node) -> list[int]:
    """Of the runs that were published."""
    return [fact.token for fact in a.machine.facts if isinstance(fact, seam.Publish)]


async def test_publish_from_outside_waits_for_answers_while_its_window_is_full() -> None:
    async def publish_all(a: Node) -> None:
        for _ in range(2 * WINDOW_RUNS * RUN_MAX):
            await a.runtime.publish(TOPIC, b"", "queued")

    async with node(LIMITS) as a:
        a.machine.react = outside
        task = asyncio.create_task(publish_all(a))
        await until(lambda: len(tokens(a)) == WINDOW_RUNS)
        for _ in range(3):
            await turn()
        assert len(tokens(a)) == WINDOW_RUNS and not task.done()
        assert a.count("publish_waits_window") == 1
        a.do(seam.Answer(tokens(a)[0], "delivered"))
        await until(lambda: len(tokens(a)) == WINDOW_RUNS + 1)
        a.do(*(seam.Answer(token, "delivered") for token in tokens(a)[1:]))
        a.machine.react = publisher_to()  # type: ignore[assignment]
        await task


async def test_publish_from_outside_waits_while_too_many_bytes_are_on_their_way() -> None:
    async def publish_all(a: Node) -> None:
        for _ in range(2 * count):
            await a.runtime.publish(TOPIC, bytes(size), "queued")

    size = PAYLOAD_BYTES_MAX // 2
    count = WINDOW_BYTES // size
    async with node(LIMITS) as a:
        a.machine.react = outside
        task = asyncio.create_task(publish_all(a))
        await until(lambda: a.count("publish_waits_window") == 1)
        sent = [fact for fact in a.machine.facts if isinstance(fact, seam.Publish)]
        on_the_way = sum(len(payload) for fact in sent for payload in fact.payloads)
        assert WINDOW_BYTES <= on_the_way < WINDOW_BYTES + PAYLOAD_BYTES_MAX
        a.machine.react = publisher_to()  # type: ignore[assignment]
        a.do(*(seam.Answer(token, "delivered") for token in tokens(a)))
        await task


@pytest.mark.parametrize("linger_ms", [0, 60_000])
@pytest.mark.parametrize("at_once", [False, True])
async def test_publish_from_outside_waits_while_runs_of_many_topics_are_on_their_way(
    linger_ms: int, at_once: bool
) -> None:
    """The machine keeps only so many; those that are being gathered count."""
    topics = [Topic(f"/{number}") for number in range(3 * WINDOWS_RUNS)]

    async def publish_all(a: Node) -> None:
        published = (a.runtime.publish(topic, b"", "queued") for topic in topics)
        if at_once:
            await asyncio.gather(*published)
        else:
            for one in published:
                await one

    async with node(replace(LIMITS, linger_ms=linger_ms)) as a:
        a.machine.react = outside
        task = asyncio.create_task(publish_all(a))
        for answered in (0, 1, WINDOWS_RUNS):
            a.do(*(seam.Answer(token, "delivered") for token in tokens(a)[:answered]))
            await until(lambda n=answered: len(tokens(a)) == WINDOWS_RUNS + n)  # type: ignore[misc]
            for _ in range(3):
                await turn()
            assert len(tokens(a)) == WINDOWS_RUNS + answered and not task.done()
        a.machine.react = publisher_to()  # type: ignore[assignment]
        a.do(*(seam.Answer(token, "delivered") for token in tokens(a)[WINDOWS_RUNS:]))
        await task


async def test_queues_to_peers_without_a_link_are_bounded_together() -> None:
    """Each is within its own bound; the peer that this one is linked to stays."""
    limits = quick(
        **{
            **vars(LIMITS),
            "queue_stranger_bytes": 128 * KIB,
            "queue_strangers_bytes": 256 * KIB,
        }
    )
    async with (
        node(limits) as a,
        caller() as one,
        caller() as two,
        caller() as three,
        caller() as linked,
    ):
        contacts = []
        for count, reader in enumerate((linked, one, two, three), 1):
            assert isinstance(await reader.greet(a.me), Hello)
            reader.stop_reading()
            await until(lambda count=count: a.connections == count)  # type: ignore[misc]
            contacts.append(Contact(reader.identity.peer, "/ip4/127.0.0.1/tcp/9"))
        a.pool.carry_out(seam.Hold(contacts[0]))
        while a.connections == len(contacts):
            for contact in contacts:
                a.send(contact, payload(1, EVENT_BYTES))
            strangers = [peer for peer in a.pool.peers if peer.peer != contacts[0].peer]
            assert all(peer.queued <= limits.queue_stranger_bytes for peer in strangers)
            assert sum(peer.queued for peer in strangers) <= limits.queue_strangers_bytes
            await turn()
        assert contacts[0].peer in [peer.peer for peer in a.pool.peers]
        assert a.count("fault_overload") == 1


async def test_control_messages_have_headroom_over_events() -> None:
    async with node(LIMITS) as a, caller() as slow:
        contact = await slow_reader(a, slow)
        await send_until_dropped(a, contact)
        a.send(contact, Ping(1, 0))
        assert a.count("dropped_control_queue_full") == 0
        while not a.count("dropped_control_queue_full"):
            a.send(contact, LinkList([TOPIC] * 500, True))
        assert queued(a) <= LIMITS.queue_hard_bytes + LIMITS.queue_control_bytes


async def test_a_peer_that_stays_over_the_hard_limit_is_disconnected() -> None:
    network = quick(**{**vars(LIMITS), "overload_ms": 300, "drain_timeout_ms": 200})
    async with node(network) as a, caller() as slow:
        contact = await slow_reader(a, slow)
        [remote] = a.pool.peers
        connection = remote.connection
        assert connection is not None
        await send_until_dropped(a, contact)
        await until(lambda: a.machine.lost == [contact.peer])
        assert a.count("fault_overload") == 1
        assert a.connections == 0
        assert queued(a) == 0
        assert a.count("dropped_event_peer_lost") > 0
        await until(lambda: not connection.connected)  # although it never read the goodbye


async def test_a_message_larger_than_a_frame_is_dropped_and_counted() -> None:
    async with node(LIMITS) as a, node(LIMITS) as b:
        a.send(b.me, payload(1, 100 * KIB), Ping(1, 0))
        await until(lambda: b.machine.nonces == [1])
        assert a.count("dropped_event_too_large") == 1


async def test_drops_are_traced(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    async with node(LIMITS, trace=path) as a, caller() as slow:
        contact = await slow_reader(a, slow)
        await send_until_dropped(a, contact)
        dropped = a.runtime.counters.events_dropped
    records = [json.loads(line) for line in path.read_text().splitlines()]
    drops = [record["dropRPC"] for record in records if record["type"] == "DROP_RPC"]
    assert sum(drop["reason"] == "queue full" for drop in drops) == dropped
    assert drops[0]["reason"] == "queue full"
    assert drops[0]["meta"]["kind"] == "Payload"
    assert drops[0]["meta"]["messages"][0]["topic"] == TOPIC


# --- subscriptions --------------------------------------------------------------------------------

SMALL = quick(subscription_events_max=100, subscription_patience_ms=60_000)


def deliver_payloads(fact: seam.Input) -> list[seam.Effect]:
    """A machine that hands every payload to the application."""
    if isinstance(fact, seam.Received) and isinstance(fact.message, Payload):
        return [seam.Deliver(fact.message.topic, fact.message.run, fact.message.hops)]
    if isinstance(fact, seam.Subscribe):
        return [seam.Answer(fact.token, "joined")]
    if isinstance(fact, seam.Publish):
        run = unsigned_run(PeerId(b"p" * 32), *fact.payloads)
        return [seam.Deliver(fact.topic, run, 0), seam.Answer(fact.token, "delivered")]
    if isinstance(fact, seam.Unsubscribe):
        return [seam.Answer(fact.token, "left")]
    return []


async def flood(a: Node, b: Node, count: int) -> None:
    """Send so many events that b's queue and the kernel's buffers are full."""
    for number in range(1, count + 1):
        a.send(b.me, payload(number, EVENT_BYTES))
        if number % 50 == 0:
            await turn()


async def test_a_full_subscription_stops_reading_and_loses_nothing() -> None:
    count = 5_000
    async with node() as a, node(SMALL) as b:
        b.machine.react = deliver_payloads
        sub = b.runtime.subscribe(TOPIC)
        await sub
        await flood(a, b, count)
        await until(lambda: len(sub) > 100)
        full = len(sub)
        assert full <= 100 + 2
        assert b.count("reads_held") == 1
        a.ping(b, 1)  # stuck behind the events, as it must be: order is kept
        got = [(await anext(sub)).number for _ in range(count)]
        assert got == list(range(1, count + 1))
        assert sub.dropped == 0
        await until(lambda: b.machine.nonces == [1])


async def test_only_the_connection_that_brings_the_events_waits() -> None:
    async with node() as a, node() as c, node(SMALL) as b:
        b.machine.react = deliver_payloads
        sub = await b.runtime.subscribe(TOPIC)
        c.ping(b, 1)
        await flood(a, b, 1_000)
        await until(lambda: len(sub) > 100)
        c.ping(b, 2)
        await until(lambda: b.machine.nonces == [1, 2])
        assert b.count("reads_held") == 1


async def test_after_its_patience_a_full_subscription_drops_and_counts(tmp_path: Path) -> None:
    network = quick(subscription_events_max=100, subscription_patience_ms=200)
    path = tmp_path / "trace.jsonl"
    async with node() as a, node(network, trace=path) as b:
        b.machine.react = deliver_payloads
        sub = await b.runtime.subscribe(TOPIC)
        await flood(a, b, 1_000)
        a.ping(b, 1)
        await until(lambda: b.machine.nonces == [1])  # reading went on
        assert len(sub) <= 102
        assert sub.dropped == 1_000 - len(sub)
        assert b.count("notifications_dropped") == sub.dropped
        while sub.get_nowait() is not None:
            pass
        a.send(b.me, payload(2_000))
        assert (await anext(sub)).number == 2_000  # and it recovers
    records = [json.loads(line) for line in path.read_text().splitlines()]
    rejected = [record for record in records if record["type"] == "REJECT_MESSAGE"]
    assert len(rejected) == sub.dropped


async def test_a_subscription_is_bounded_in_bytes_too() -> None:
    network = quick(subscription_bytes_max=100 * KIB, subscription_patience_ms=60_000)
    async with node() as a, node(network) as b:
        b.machine.react = deliver_payloads
        sub = await b.runtime.subscribe(TOPIC)
        for number in range(1, 11):
            a.send(b.me, payload(number, 30 * KIB))
        await until(lambda: len(sub) == 4)
        got = [(await anext(sub)).number for _ in range(10)]
        assert got == list(range(1, 11))


async def test_publishing_into_ones_own_unread_subscription_does_not_lock_up() -> None:
    network = quick(subscription_events_max=10, subscription_patience_ms=100)
    async with node(network) as a:
        a.machine.react = deliver_payloads
        sub = await a.runtime.subscribe(TOPIC)
        for _ in range(100):
            await a.runtime.publish(TOPIC, b"x")
        assert len(sub) == 11
        assert sub.dropped == 89


async def test_a_run_makes_room_when_its_last_event_is_taken() -> None:
    count = 150
    async with node(SMALL) as a:
        a.machine.react = deliver_payloads
        sub = await a.runtime.subscribe(TOPIC)
        for number in range(count):
            await a.runtime.publish(TOPIC, b"%d" % number, "sent")
        await turn()
        waits = asyncio.create_task(a.runtime.publish(TOPIC, b"later", "sent"))
        for number in range(count):
            await turn()
            assert len(sub) == count - number and not waits.done()
            assert (await anext(sub)).payload == b"%d" % number
        assert len(sub) == 0
        await waits
        assert (await anext(sub)).payload == b"later"


TINY = quick(subscription_events_max=10, subscription_patience_ms=100)


async def test_on_a_full_disk_publish_fails_and_says_why(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", bytes_max=400_000)
    async with weft.Peer.open(store=store) as peer:
        sub = await peer.subscribe("/x")
        receipts = [await peer.publish("/x", bytes(20_000)) for _ in range(20)]
        failed = [one for one in receipts if one.outcome == "failed"]
        kept = len(receipts) - len(failed)
        assert kept and failed and "is full" in failed[0].reason
        assert peer.counters["net_store_errors"] == len(failed)
        assert len([await anext(sub) for _ in range(kept)]) == kept
        with pytest.raises(NotConfirmed, match="is full"):
            await peer.publish("/x", bytes(20_000), confirm="accepted")


async def test_a_subscriber_with_a_full_disk_gets_what_others_publish(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", bytes_max=400_000)
    async with (
        weft.Peer.open(store=":memory:") as a,
        weft.Peer.open(join=[a.address], store=store) as b,
    ):
        await a.subscribe("/x")
        sub = await b.subscribe("/x")
        await until(lambda: b.status()["topics"]["/x"]["links"])  # type: ignore[index]
        published = [(await a.publish("/x", bytes(20_000))).event_id for _ in range(30)]
        assert [(await anext(sub)).event_id for _ in published] == published
        await until(lambda: b.counters["net_store_errors"] and b.counters["history_store_failed"])
        assert sub.get_nowait() is None and not sub.dropped


def test_the_page_names_a_test_for_each_case() -> None:
    page = (Path(__file__).parents[2] / "docs" / "backpressure.md").read_text()
    named = re.findall(r"`(test_\w+)`", page)
    here = re.findall(r"^(?:async )?def (test_\w+)", Path(__file__).read_text(), re.M)
    assert len(named) >= 6
    assert set(named) <= set(here)


async def overfull(a: Node, on_loss: OnLoss) -> Subscription:
    """11 events that wait, 89 that were lost."""
    a.machine.react = deliver_payloads
    sub = await a.runtime.subscribe(TOPIC, on_loss=on_loss)
    for number in range(100):
        await a.runtime.publish(TOPIC, b"%d" % number)
    return sub


async def test_every_loss_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with node(TINY) as a:
        sub = await overfull(a, "log")
        assert "a subscription to /t dropped" in caplog.text
        assert [note.payload for note in [await anext(sub) for _ in range(11)]][-1] == b"10"
        lines = [one.args for one in caplog.records if "dropped" in one.getMessage()]
        assert sum(args[1] for args in lines) == 89  # type: ignore[index, misc]
        await a.runtime.publish(TOPIC, b"again")
        assert (await anext(sub)).payload == b"again"


async def test_a_subscriber_may_have_losses_raised_where_they_were() -> None:
    async with node(TINY) as a:
        sub = await overfull(a, "raise")
        got = [(await anext(sub)).payload for _ in range(11)]
        with pytest.raises(LossError, match="89 events of /t were dropped") as caught:
            await anext(sub)
        assert caught.value.lost == 89 and got[-1] == b"10"
        await a.runtime.publish(TOPIC, b"again")
        assert (await anext(sub)).payload == b"again"  # and it can be read on from


async def test_a_subscriber_may_have_losses_marked_where_they_were() -> None:
    async with node(TINY) as a:
        sub = await overfull(a, "mark")
        got = [(await anext(sub)).payload for _ in range(6)]
        await a.runtime.publish(TOPIC, b"between")
        rest = [await anext(sub) for _ in range(7)]
        assert [*got, *(note.payload for note in rest[:5])] == [b"%d" % one for one in range(11)]
        gap, last = rest[5:]
        assert isinstance(gap, Gap) and (gap.lost, gap.topic, gap.payload) == (89, TOPIC, b"")
        assert not isinstance(last, Gap) and last.payload == b"between"
        assert sub.get_nowait() is None


async def test_two_peers_that_wait_for_each_other_do_not_lock_up() -> None:
    """Both applications only publish and never read: the worst case for circular waiting."""
    network = quick(
        frame_bytes_max=64 * KIB,
        queue_soft_bytes=32 * KIB,
        queue_hard_bytes=64 * KIB,
        queue_patience_ms=200,
        subscription_events_max=50,
        subscription_patience_ms=200,
    )
    async with node(network) as a, node(network) as b:
        subscriptions = await publish_at_each_other(a, b, 3_000)
        for one, sub in zip((a, b), subscriptions, strict=True):
            counters = one.runtime.counters
            # Nothing vanished: every event was sent or dropped, delivered or dropped.
            assert counters.delivered == len(sub)
            await until(lambda c=counters, s=sub: s.dropped == c.notifications_dropped)


async def publish_at_each_other(a: Node, b: Node, count: int) -> list[Subscription]:
    subscriptions = []
    for one, other in ((a, b), (b, a)):
        send = publisher_to(other.me)

        def react(fact: seam.Input, send: object = send) -> list[seam.Effect]:
            effects = deliver_payloads(fact) if not isinstance(fact, seam.Publish) else []
            return effects or send(fact)  # type: ignore[operator,no-any-return]

        one.machine.react = react
        subscriptions.append(await one.runtime.subscribe(TOPIC))

    async def publish(one: Node) -> None:
        for _ in range(count):
            await one.runtime.publish(TOPIC, bytes(EVENT_BYTES))

    await asyncio.gather(publish(a), publish(b))
    return subscriptions


async def test_a_relay_slows_its_source_down_rather_than_losing_events() -> None:
    """a → relay → c, where c reads slowly: the events wait at a, not in the relay."""
    network = Network(**{**vars(LIMITS), "queue_patience_ms": 60_000})
    async with node(network) as a, node(network) as relay, caller() as slow:
        contact = await slow_reader(relay, slow)

        def pass_on(fact: seam.Input) -> list[seam.Effect]:
            if isinstance(fact, seam.Received) and isinstance(fact.message, Payload):
                return [seam.Send(contact, fact.message)]
            return []

        relay.machine.react = pass_on
        a.machine.react = publisher_to(relay.me)  # type: ignore[assignment]
        await publish_until_it_waits(a)
        assert queued(relay) < LIMITS.queue_soft_bytes + 70 * KIB
        assert relay.runtime.counters.events_dropped == 0
        slow.read_on()
        receive = asyncio.create_task(slow.goodbye())
        await until(lambda: queued(relay) == 0 and queued(a) == 0)
        receive.cancel()


@pytest.mark.parametrize("count", [2_000])
async def test_order_is_kept_end_to_end_through_publish(count: int) -> None:
    async with node() as a, node() as b:
        b.machine.react = deliver_payloads
        a.machine.react = publisher_to(b.me)  # type: ignore[assignment]
        sub = await b.runtime.subscribe(TOPIC)
        for _ in range(count):
            await a.runtime.publish(TOPIC, bytes(EVENT_BYTES))
        got = [(await anext(sub)).number for _ in range(count)]
        assert got == list(range(1, count + 1))
