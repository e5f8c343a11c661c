"""One connection per pair of peers: made on demand, kept while held, closed without loss."""

from __future__ import annotations

import asyncio
import socket

import pytest

from net_kit import (
    caller,
    node,
    ordered_identities,
    payload,
    quick,
    until,
)
from weft.ids import Contact
from weft.net import codec
from weft.net.codec import Hello
from weft.net.identity import Identity
from weft.net.listener import bind
from weft.net.tls import Credentials
from weft.protocol import seam
from weft.protocol.liveness import Ping
from weft.protocol.tera.access_points import LookupMiss

NUMBERS = list(range(300))


async def test_a_caller_that_the_pool_accepted_while_it_closed_is_turned_away() -> None:
    async with node() as a:
        pool = a.runtime.pool
    here, there = socket.socketpair()
    with there:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(pool.accept, sock=here)
        assert transport.is_closing()


async def test_messages_wait_while_the_peer_is_dialled_and_arrive_in_order() -> None:
    async with node() as a, node() as b:
        a.ping(b, *NUMBERS)
        assert b.machine.nonces == []
        await until(lambda: b.machine.nonces == NUMBERS)
        b.ping(a, *NUMBERS)  # the same connection serves both directions
        await until(lambda: a.machine.nonces == NUMBERS)
        assert a.connections == b.connections == 1
        assert a.count("dials") == 1
        assert b.count("dials") == 0


async def test_many_messages_of_one_turn_leave_in_one_write() -> None:
    async with node() as a, node() as b:
        a.ping(b, 0)
        await until(lambda: b.machine.nonces == [0])
        before = a.count("writes")
        a.ping(b, *NUMBERS)
        await until(lambda: len(b.machine.nonces) == 301)
        assert a.count("writes") == before + 1


async def test_what_a_runtime_sends_at_once_leaves_before_the_loop_turns() -> None:
    """Two turns of the loop lay between a publish and its first byte on the wire."""
    async with node() as a, node() as b:
        a.ping(b, 0)
        await until(lambda: b.machine.nonces == [0])
        before = a.count("writes")
        a.pool.at_once(lambda: a.ping(b, 1, 2, 3))
        assert a.count("writes") == before + 1
        a.ping(b, 4)  # later ones leave, too
        await until(lambda: b.machine.nonces == [0, 1, 2, 3, 4])
        with pytest.raises(ZeroDivisionError):
            a.pool.at_once(lambda: a.ping(b, 1 // 0))
        a.ping(b, 5)
        await until(lambda: b.machine.nonces[-1] == 5)


@pytest.mark.parametrize("smaller_first", [True, False])
async def test_peers_that_dial_each_other_at_once_end_with_one_connection(
    smaller_first: bool,
) -> None:
    small, large = ordered_identities()
    async with node(identity=small) as a, node(identity=large) as b:
        first, second = (a, b) if smaller_first else (b, a)
        first.ping(second, *NUMBERS)
        second.ping(first, *NUMBERS)
        await until(lambda: a.machine.nonces == NUMBERS and b.machine.nonces == NUMBERS)
        assert a.connections == b.connections == 1
        [remote] = a.pool.peers
        assert remote.connection is not None
        assert remote.connection.dialled  # the smaller peer id's dial stays
        await until(lambda: not any(one.gauge("handshakes_in_progress") for one in (a, b)))
        assert not any(one.gauge("dials_in_progress") for one in (a, b))
        assert a.machine.lost == b.machine.lost == []


async def test_many_peers_that_all_dial_each_other_at_once() -> None:
    nodes = [node() for _ in range(12)]
    crowd = [await one.__aenter__() for one in nodes]
    try:
        for one in crowd:
            for other in crowd:
                if other is not one:
                    one.ping(other, *range(20))
        for one in crowd:
            await until(lambda one=one: len(one.machine.nonces) == 20 * 11)  # type: ignore[misc]
            senders: dict[bytes, list[int]] = {}
            for fact in one.machine.facts:
                if isinstance(fact, seam.Received) and isinstance(fact.message, Ping):
                    senders.setdefault(fact.sender.peer, []).append(fact.message.nonce)
            assert all(numbers == list(range(20)) for numbers in senders.values())
            assert one.connections == 11
            assert one.machine.lost == []
    finally:
        for one in nodes:
            await one.__aexit__(None, None, None)


async def test_the_larger_ids_connection_serves_if_the_smaller_cannot_dial() -> None:
    small, large = ordered_identities()
    async with node(identity=small) as a, node(identity=large) as b:
        # What `a` knows of `b` is an address that answers nothing, and then hangs up.
        with socket.create_server(("127.0.0.1", 0)) as silent:
            silent.setblocking(False)
            wrong = Contact(large.peer, f"/ip4/127.0.0.1/tcp/{silent.getsockname()[1]}")
            a.send(wrong, Ping(1, 0))
            b.ping(a, 2)
            await until(lambda: a.count("accepts") and not a.gauge("handshakes_in_progress"))
            assert a.machine.nonces == []
            called, _ = await asyncio.get_running_loop().sock_accept(silent)
            called.close()
            await until(lambda: a.machine.nonces == [2] and b.machine.nonces == [1])
            assert a.machine.lost == b.machine.lost == []


async def test_an_idle_connection_is_closed_and_nobody_is_told_of_a_loss() -> None:
    async with node(quick(idle_ms=200)) as a, node() as b:
        a.ping(b, 1)
        await until(lambda: b.connections == 1)
        await until(lambda: a.connections == b.connections == 0)
        assert a.count("idle_closes") == 1
        a.ping(b, 2)
        b.ping(a, 3)
        await until(lambda: b.machine.nonces == [1, 2] and a.machine.nonces == [3])
        assert a.machine.lost == b.machine.lost == []


async def test_a_held_connection_stays_until_it_is_released() -> None:
    async with node(quick(idle_ms=150)) as a, node() as b, node() as c:
        a.ping(b, 1)
        a.ping(c, 1)
        a.do(seam.Hold(b.me))
        await until(lambda: b.machine.nonces == c.machine.nonces == [1])
        await until(lambda: c.connections == 0)  # the other one goes
        assert b.connections == 1
        a.do(seam.Release(b.me.peer))
        await until(lambda: b.connections == 0)
        assert b.machine.lost == []


async def test_a_goodbye_on_a_held_connection_is_a_loss_for_the_peer_that_holds_it() -> None:
    async with node(quick(idle_ms=150)) as a, node() as b:
        b.do(seam.Hold(a.me))
        a.ping(b, 1)
        await until(lambda: b.machine.lost == [a.me.peer])
        assert a.machine.lost == []


async def test_nothing_is_lost_while_idle_connections_come_and_go() -> None:
    """Both sides speak in the very moment in which one of them has said goodbye."""
    async with node(quick(idle_ms=8)) as a, node(quick(idle_ms=8)) as b:
        for number in range(40):
            a.ping(b, number)
            b.ping(a, number)
            so_far = list(range(number + 1))
            await until(lambda so_far=so_far: a.machine.nonces == b.machine.nonces == so_far)  # type: ignore[misc]
            await until(lambda: a.connections == 0 or b.connections == 0)
        assert a.machine.lost == b.machine.lost == []


async def test_the_longest_idle_connection_makes_room() -> None:
    async with node(quick(connections_max=3)) as hub:
        others = [node() for _ in range(5)]
        spokes = [await one.__aenter__() for one in others]
        try:
            hub.do(seam.Hold(spokes[0].me))
            for number, spoke in enumerate(spokes):
                hub.ping(spoke, number)
                await until(lambda n=number, s=spoke: s.machine.nonces == [n])  # type: ignore[misc]
            await until(lambda: hub.connections == 3)
            connected = {remote.peer for remote in hub.pool.peers}
            assert connected == {spokes[i].me.peer for i in (0, 3, 4)}  # 0 is held
            assert hub.count("evictions") == 2
            assert all(spoke.machine.lost == [] for spoke in spokes)
        finally:
            for one in others:
                await one.__aexit__(None, None, None)


async def test_a_peer_full_of_held_connections_refuses_more() -> None:
    async with node(quick(connections_max=1)) as hub, node() as held, node() as late:
        hub.ping(held, 1)
        hub.do(seam.Hold(held.me))
        await until(lambda: held.machine.nonces == [1])
        late.ping(hub, 1)
        await until(lambda: late.machine.lost == [hub.me.peer])
        hub.ping(late, 2)
        await until(lambda: hub.machine.lost == [late.me.peer])
        assert hub.connections == 1
        assert hub.count("fault_overload") == 2


async def test_an_unreachable_peer_is_lost_once_and_not_dialled_again_at_once() -> None:
    async with node() as a:
        listener, address = bind("127.0.0.1:0")
        listener.close()
        gone = Contact(Identity.generate().peer, address)
        a.send(gone, Ping(1, 0), Ping(2, 0), payload(1))
        await until(lambda: a.machine.lost == [gone.peer])
        assert a.count("dropped_control_peer_lost") == 2
        assert a.count("dropped_event_peer_lost") == 1
        a.send(gone, Ping(3, 0))
        await until(lambda: a.machine.lost == [gone.peer] * 2)
        assert a.count("dials") == 1
        assert a.count("dropped_control_unreachable") == 1


async def test_a_new_address_is_tried_at_once() -> None:
    async with node() as a, node() as b:
        listener, address = bind("127.0.0.1:0")
        listener.close()
        a.send(Contact(b.me.peer, address), Ping(1, 0))
        await until(lambda: a.machine.lost == [b.me.peer])
        a.ping(b, 2)
        await until(lambda: b.machine.nonces == [2])


@pytest.mark.parametrize(
    "address", ["", "/ip4/1.2.3.4", "nonsense", "/dns/no.such.host.invalid/tcp/1"]
)
async def test_addresses_that_cannot_be_dialled_are_losses(address: str) -> None:
    async with node() as a:
        nobody = Contact(Identity.generate().peer, address)
        a.send(nobody, Ping(1, 0))
        await until(lambda: a.machine.lost == [nobody.peer])
        assert a.count("fault_dial") == 1


async def test_a_peer_never_dials_itself() -> None:
    async with node() as a:
        a.send(a.me, Ping(1, 0))
        assert a.count("dials") == 0
        assert a.count("dropped_control_unreachable") == 1


async def test_a_killed_peer_is_lost() -> None:
    async with node() as a, caller() as doomed:
        assert isinstance(await doomed.greet(a.me), Hello)
        await until(lambda: a.connections == 1)
        doomed.abort()
        await until(lambda: a.machine.lost == [doomed.identity.peer])
        assert a.count("fault_broken") == 1


async def test_a_leaving_peer_is_lost_and_its_last_words_arrive() -> None:
    async with node() as b:
        async with node() as a:
            a.ping(b, 0)
            await until(lambda: b.machine.nonces == [0])
            a.ping(b, *range(1, 500))
        await until(lambda: b.machine.nonces == list(range(500)))
        await until(lambda: b.machine.lost == [a.me.peer])


async def test_last_words_reach_even_a_peer_that_was_not_connected() -> None:
    async with node() as b:
        async with node() as a:
            a.ping(b, 1)
        await until(lambda: b.machine.nonces == [1])


async def test_disconnect_closes_after_what_was_said_before() -> None:
    async with node() as a, node() as b:
        a.ping(b, 1)
        await until(lambda: b.machine.nonces == [1])
        a.do(seam.Send(b.me, Ping(2, 0)), seam.Disconnect(b.me.peer, "no answer to pings"))
        assert a.connections == 0
        await until(lambda: b.machine.lost == [a.me.peer])
        assert b.machine.nonces == [1, 2]
        assert a.machine.lost == []  # it knows


async def test_a_peer_that_comes_back_replaces_its_old_connection() -> None:
    identity = Identity.generate()
    known = Credentials(identity)
    async with node() as a, caller(known) as before, caller(known) as after:
        assert isinstance(await before.greet(a.me), Hello)
        before.send(codec.encode(Ping(1, 0)))
        await until(lambda: a.machine.nonces == [1])
        assert isinstance(await after.greet(a.me), Hello)
        after.send(codec.encode(Ping(2, 0)))
        await until(lambda: a.machine.nonces == [1, 2])
        assert await before.goodbye() == "replaced"
        assert a.connections == 1
        assert a.machine.lost == [identity.peer]


async def test_one_key_in_two_processes_is_told_to_both(caplog: pytest.LogCaptureFixture) -> None:
    """The second calls a peer that the first is connected to, from an address of its own."""
    identity = Identity.generate()
    async with node() as friend, node(identity=identity) as older, node(identity=identity) as newer:
        older.ping(friend, 1)
        await until(lambda: friend.machine.nonces == [1])
        newer.ping(friend, 2)
        await until(lambda: older.count("key_clashes") == 1)
        await until(lambda: friend.machine.nonces == [1, 2])
        older.ping(friend, 3)
        await until(lambda: newer.count("key_clashes") == 1)
        for one in (older, newer):
            assert f"another process, at {one.me.address}, uses this peer's key" in caplog.text
        assert len(caplog.records) == 2


async def test_dials_take_turns() -> None:
    async with node(quick(dials_max=2)) as a:
        others = [node() for _ in range(10)]
        crowd = [await one.__aenter__() for one in others]
        try:
            for one in crowd:
                a.ping(one, 1)
            assert a.gauge("dials_in_progress") == 10
            for one in crowd:
                await until(lambda one=one: one.machine.nonces == [1])  # type: ignore[misc]
            assert a.connections == 10
            await until(lambda: not a.gauge("dials_in_progress"))
        finally:
            for one in others:
                await one.__aexit__(None, None, None)


async def test_what_waits_for_its_turn_to_be_dialled_is_told() -> None:
    async with node(quick(dials_max=2)) as a:
        others = [node() for _ in range(6)]
        crowd = [await one.__aenter__() for one in others]
        try:
            for one in crowd:
                a.ping(one, 1)
            for one in crowd:
                await until(lambda one=one: one.machine.nonces == [1])  # type: ignore[misc]
            await until(lambda: not a.gauge("dials_in_progress"))
            late = [one.me.peer for one in crowd[2:]]
            facts = a.machine.facts
            assert [fact.peer for fact in facts if isinstance(fact, seam.Stalled)] == late
            assert [fact.peer for fact in facts if isinstance(fact, seam.Resumed)] == late
        finally:
            for one in others:
                await one.__aexit__(None, None, None)


async def test_a_peer_that_calls_before_its_turn_to_be_dialled_has_come_waits_no_longer() -> None:
    listener, address = bind("127.0.0.1:0")
    with listener:
        listener.listen()  # nobody ever speaks there
        silent = Contact(Identity.generate().peer, address)
        async with node(quick(dials_max=1, leave_timeout_ms=1)) as a, node() as b:
            a.send(silent, Ping(1, 0))  # takes the one turn there is
            a.ping(b, 2)
            await until(lambda: seam.Stalled(b.me.peer) in a.machine.facts)
            b.ping(a, 3)
            await until(lambda: b.machine.nonces == [2])
            assert seam.Resumed(b.me.peer) in a.machine.facts


async def test_answers_to_origins_that_nobody_reaches_keep_no_other_dial_waiting() -> None:
    listener, address = bind("127.0.0.1:0")
    with listener:
        listener.listen()  # nobody ever speaks there
        settings = quick(dials_max=4, connections_max=64, leave_timeout_ms=1)
        async with node(settings) as a, node() as b:
            for number in range(40):
                origin = Contact(Identity.generate().peer, address)
                a.send(origin, LookupMiss(number))
            assert a.gauge("dials_in_progress") == 16  # a quarter of all connections
            a.ping(b, 1)
            await until(lambda: b.machine.nonces == [1])
            assert a.gauge("dials_in_progress") == 16
            assert seam.Stalled(b.me.peer) not in a.machine.facts


async def test_dials_are_counted_by_the_message_that_they_are_made_for() -> None:
    async with node() as a, node() as b, node() as c:
        a.ping(b, 1, 2)
        a.send(c.me, payload(1), Ping(3, 0))
        await until(lambda: b.machine.nonces == [1, 2] and c.machine.nonces == [3])
        assert a.count("dials") == 2
        assert a.count("dials_for_ping") == a.count("dials_for_payload") == 1


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux has it")
async def test_tcp_gives_up_on_a_peer_that_acknowledges_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    class Watched(socket.socket):
        def setsockopt(self, level: int, name: int, value: object, *rest: object) -> None:  # type: ignore[override]
            if level == socket.IPPROTO_TCP and name == socket.TCP_USER_TIMEOUT:
                assert isinstance(value, int)
                asked.append(value)
            super().setsockopt(level, name, value)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "socket", Watched)
    async with node(quick(tcp_user_timeout_ms=7_000)) as a, node() as b:
        a.ping(b, 1)
        await until(lambda: b.machine.nonces == [1])
    assert 7_000 in asked
