"""Whatever a stranger sends, the answer is a closed connection and a counter, and nobody else
notices. Every test ends with a healthy peer talking to the one that was attacked."""

from __future__ import annotations

import asyncio
import datetime
import random
import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from nameless import unsigned_run
from net_kit import HELLO, Caller, Node, caller, node, quick, until
from weft.ids import Contact, Topic, peer_short, split_address
from weft.net import codec, tls
from weft.net.certificate import make_certificate, sign_certificate, signed_key
from weft.net.codec import Goodbye, Hello
from weft.net.errors import TlsFault, WrongPeerFault
from weft.net.identity import Identity
from weft.net.tls import make_context
from weft.protocol import seam
from weft.protocol.liveness import LinkList, Ping, Pong
from weft.protocol.recent import IHave
from weft.protocol.wire import Payload, Span

STRICT = quick(handshake_timeout_ms=1_000)


@pytest.fixture
async def target() -> AsyncGenerator[Node, None]:
    """The peer under attack; afterwards it must still serve others."""
    async with node() as one:
        yield one
        await check_healthy(one)


async def check_healthy(one: Node) -> None:
    async with node() as friend:
        friend.ping(one, 1)
        await until(lambda: 1 in one.machine.nonces, "a healthy peer's message")
        one.ping(friend, 2)
        await until(lambda: 2 in friend.machine.nonces, "an answer to a healthy peer")
        assert not one.runtime.closed


def credentials(key: Any, certificate: Any) -> Any:
    return SimpleNamespace(context=make_context(key, certificate))


def spki(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def forged(case: str) -> Any:
    """Credentials with something wrong about them."""
    identity = Identity.generate()
    key = ec.generate_private_key(ec.SECP256R1())
    extension: bytes | None = signed_key(identity, spki(key))
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    start, end = now - day, now + day
    assert extension is not None
    if case == "expired":
        start, end = now - 2 * day, now - day
    elif case == "not yet valid":
        start, end = now + day, now + 2 * day
    elif case == "no identity":
        extension = None
    elif case == "tampered":
        extension = extension[:-1] + bytes((extension[-1] ^ 1,))
    elif case == "claims another":
        extension = extension.replace(identity.peer, Identity.generate().peer)
    elif case == "garbage":
        extension = b"\x30\x80garbage"
    return credentials(key, sign_certificate(key, extension, start, end))


FORGERIES = ["expired", "not yet valid", "no identity", "tampered", "claims another", "garbage"]


# --- before and during TLS ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "noise",
    [b"GET / HTTP/1.1\r\n\r\n", bytes(5_000), b"\x16\x03\x01\xff\xff" + b"\xaa" * 70_000],
    ids=["http", "zeros", "almost TLS"],
)
async def test_garbage_instead_of_tls(target: Node, noise: bytes) -> None:
    async with caller() as stranger:
        await stranger.connect(target.me)
        stranger.send_raw(noise)
        await stranger.ended()
    assert target.count("fault_tls") == 1


async def test_a_caller_that_says_nothing_is_dropped() -> None:
    async with node(STRICT) as target:
        async with caller() as stranger:
            await stranger.connect(target.me)
            await stranger.ended()
        assert target.count("fault_timeout") == 1
        await check_healthy(target)


async def test_a_caller_that_does_not_greet_is_dropped() -> None:
    async with node(STRICT) as target:
        async with caller() as stranger:
            await stranger.connect(target.me)
            await stranger.secure(target.me.peer)
            assert "greeting took too long" in await stranger.goodbye()
        assert target.count("fault_timeout") == 1
        await check_healthy(target)


async def test_a_caller_that_hangs_up_during_the_handshake(target: Node) -> None:
    async with caller() as stranger:
        await stranger.connect(target.me)
        stranger.send_raw(b"\x16\x03\x01\x02\x00\x01")
        await stranger.flush()
    await until(lambda: target.count("fault_broken") == 1)


@pytest.mark.parametrize("case", FORGERIES)
async def test_callers_with_wrong_certificates_are_refused(target: Node, case: str) -> None:
    async with caller(forged(case)) as stranger:
        await stranger.connect(target.me)
        with pytest.raises((TlsFault, EOFError, OSError)):
            await stranger.secure(target.me.peer)
            stranger.send(codec.encode(HELLO))
            await stranger.frame()
    assert target.count("fault_certificate") == 1
    assert target.connections == 0


@pytest.mark.parametrize("case", FORGERIES)
async def test_a_server_with_a_wrong_certificate_is_refused(target: Node, case: str) -> None:
    async with fake_server(forged(case)) as address:
        victim = Contact(Identity.generate().peer, address)
        target.send(victim, Ping(1, 0))
        await until(lambda: target.machine.lost == [victim.peer])
    assert target.count("fault_certificate") == 1


async def test_a_caller_without_certificate_is_refused(target: Node) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([tls.ALPN.decode()])
    host, port = split_address(target.me.address)
    # The client learns of it only after its own handshake is done.
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    with pytest.raises((ssl.SSLError, OSError)):
        await reader.readexactly(1)
    writer.transport.abort()
    await until(lambda: target.count("fault_tls") == 1)
    assert target.connections == 0


async def test_a_caller_with_a_chain_of_certificates_is_refused(target: Node) -> None:
    key, certificate = make_certificate(Identity.generate())
    context = make_context(key, certificate)
    context.add_extra_chain_cert(make_certificate(Identity.generate())[1])
    async with caller(SimpleNamespace(context=context)) as stranger:  # type: ignore[arg-type]
        await stranger.connect(target.me)
        await stranger.secure(target.me.peer)
        stranger.send(codec.encode(HELLO))
        await stranger.ended()
    assert target.count("fault_certificate") == 1


async def test_a_server_with_a_chain_of_certificates_is_refused(target: Node) -> None:
    identity = Identity.generate()
    key, certificate = make_certificate(identity)
    context = make_context(key, certificate)
    context.add_extra_chain_cert(make_certificate(Identity.generate())[1])
    async with fake_server(SimpleNamespace(context=context)) as address:
        target.send(Contact(identity.peer, address), Ping(1, 0))
        await until(lambda: target.machine.lost == [identity.peer])
    assert target.count("fault_certificate") == 1


async def test_older_tls_is_refused(target: Node) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    host, port = split_address(target.me.address)
    with pytest.raises((ssl.SSLError, OSError)):
        await asyncio.open_connection(host, port, ssl=context)
    assert target.count("fault_tls") == 1


async def test_tls_for_something_else_is_refused(target: Node) -> None:
    key, certificate = make_certificate(Identity.generate())
    context = make_context(key, certificate)
    context.set_alpn_protos([b"h2"])
    async with caller(SimpleNamespace(context=context)) as stranger:  # type: ignore[arg-type]
        await stranger.connect(target.me)
        with pytest.raises((TlsFault, EOFError, OSError)):
            await stranger.secure(target.me.peer)
    assert target.count("fault_tls") == 1


async def test_a_peer_that_claims_anothers_id(target: Node) -> None:
    async with node() as impostor:
        claimed = Contact(Identity.generate().peer, impostor.me.address)
        target.send(claimed, Ping(1, 0))
        await until(lambda: target.machine.lost == [claimed.peer])
        assert target.count("fault_wrong_peer") == 1
        assert impostor.machine.messages == []
        with pytest.raises(WrongPeerFault, match="answers at this address"):
            async with caller() as stranger:
                await stranger.connect(target.me)
                await stranger.secure(claimed.peer)


# --- greetings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (Hello(codec.WIRE_VERSION, "other", "", "x"), "belongs to network 'other'"),
        (Hello(codec.WIRE_VERSION, "weft", "/ip4/999.0.0.1/tcp/1", "x"), "listen address"),
        (Hello(codec.WIRE_VERSION, "weft", "nonsense", "x"), "listen address"),
    ],
    ids=["network", "bad ip", "no address"],
)
async def test_greetings_that_do_not_fit(target: Node, hello: Hello, reason: str) -> None:
    async with caller() as stranger:
        answer = await stranger.greet(target.me, hello)
        assert isinstance(answer, Goodbye)
        assert reason in answer.reason
    assert target.count("fault_greeting") == 1


@pytest.mark.parametrize("other", [1, codec.WIRE_VERSION + 1])
async def test_another_version_is_refused_in_one_line_on_both_sides(
    other: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = codec.WIRE_VERSION
    async with node() as new:
        monkeypatch.setattr(codec, "WIRE_VERSION", other)
        async with node() as old:
            old.ping(new, 1)
            await until(lambda: old.machine.lost == [new.me.peer])
            await until(lambda: new.count("fault_greeting") == 1)
            new.ping(old, 2)
            await until(lambda: new.machine.lost == [old.me.peer])
            await until(lambda: old.count("fault_greeting") == 2)
            assert sorted(record.getMessage() for record in caplog.records) == sorted(
                [
                    f"peer {peer_short(old.me.peer)} speaks version {other}, this one {own}",
                    f"peer {peer_short(new.me.peer)} speaks version {own}, this one {other}",
                ]
            )
            assert old.machine.messages == new.machine.messages == []
        monkeypatch.undo()
        await check_healthy(new)


async def test_the_dialler_learns_why_it_was_refused(
    target: Node, caplog: pytest.LogCaptureFixture
) -> None:
    async with node(quick(name="elsewhere")) as other:
        other.ping(target, 1)
        await until(lambda: other.machine.lost == [target.me.peer])
        assert other.count("fault_refused") == 1
        assert target.count("fault_greeting") == 1
        assert sorted(record.getMessage() for record in caplog.records) == sorted(
            [
                f"peer {peer_short(other.me.peer)} belongs to network 'elsewhere', "
                "this one to 'weft'",
                f"peer {peer_short(target.me.peer)} refused: peer {peer_short(other.me.peer)} "
                "belongs to network 'elsewhere', this one to 'weft'",
            ]
        )


@pytest.mark.parametrize(
    "first",
    [codec.encode(Ping(1, 1)), b"\0\0\0\0", b"\0\0\4\1" + bytes(1_025), b"\0\0\0\3abc"],
    ids=["a message", "nothing", "too long", "garbage"],
)
async def test_a_first_frame_that_is_no_greeting(target: Node, first: bytes) -> None:
    async with caller() as stranger:
        await stranger.connect(target.me)
        await stranger.secure(target.me.peer)
        stranger.send(first)
        assert await stranger.goodbye() != ""
    assert target.count("fault_frame") + target.count("fault_oversized") == 1
    assert target.machine.messages == []


async def test_a_second_greeting_is_refused(target: Node) -> None:
    async with caller() as stranger:
        await stranger.greet(target.me)
        stranger.send(codec.encode(HELLO))
        assert "not a message" in await stranger.goodbye()
    assert target.count("fault_frame") == 1


async def test_nobody_can_call_as_ourselves(target: Node, caplog: pytest.LogCaptureFixture) -> None:
    async with caller(tls.Credentials(target.identity)) as stranger:
        answer = await stranger.greet(target.me)
        assert isinstance(answer, Goodbye)
        assert "own identity" in answer.reason
    assert target.connections == 0
    assert target.count("key_clashes") == 1
    assert "uses this peer's key" in caplog.text and HELLO.address in caplog.text


async def test_the_peer_id_comes_from_tls_and_the_address_from_the_greeting(target: Node) -> None:
    async with caller() as stranger:
        await stranger.greet(target.me)
        stranger.send(codec.encode(Ping(7, 7)))
        await until(lambda: target.machine.nonces == [7])
        fact = target.machine.facts[-1]
        assert isinstance(fact, seam.Received)
        assert fact.sender == Contact(stranger.identity.peer, HELLO.address)


# --- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", b"\x91\xcc\xff", b"\x93\x13\xff\x00", b"\xdd\xff\xff\xff\xff", b"\x91" * 5_000],
    ids=["empty", "reserved", "unknown tag", "negative", "huge array", "nested"],
)
async def test_garbage_frames_end_the_connection(target: Node, body: bytes) -> None:
    async with caller() as stranger:
        await stranger.greet(target.me)
        stranger.send(codec.encode(Ping(5, 0)))
        stranger.send(len(body).to_bytes(4, "big") + body)
        stranger.send(codec.encode(Ping(6, 0)))
        assert "not a message" in await stranger.goodbye()
    assert target.count("fault_frame") == 1
    assert target.machine.nonces == [5]  # what came before counts, what came after does not
    await until(lambda: target.machine.lost == [stranger.identity.peer])


async def test_an_oversized_frame_is_refused_before_it_is_sent(target: Node) -> None:
    async with caller() as stranger:
        await stranger.greet(target.me)
        stranger.send((0xFFFF_FFFF).to_bytes(4, "big"))
        assert "over the limit" in await stranger.goodbye()
    assert target.count("fault_oversized") == 1


async def test_unfinished_frames_of_many_callers_are_bounded_in_all() -> None:
    """Each sends all of a large frame but its end. What is held of all frames stays within the
    bound, the one begun first goes first, and a frame that comes whole is taken meanwhile."""
    most = 1 << 20
    almost = (most // 4).to_bytes(4, "big") + bytes(most // 4 - 16_384)
    room = most // (most // 4 - 16_384)
    async with node(quick(frame_bytes_max=most, unfinished_bytes_max=most)) as target:

        def settled(begun: int) -> bool:
            gone = max(0, begun - room)
            held = target.gauge("unfinished_bytes")
            assert held <= most
            return target.count("fault_overload") == gone and held == (begun - gone) * len(almost)

        async with AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(caller()) for _ in range(12)]
            for number, stranger in enumerate(callers, start=1):
                await stranger.greet(target.me)
                stranger.send(almost)
                await stranger.flush()
                await until(partial(settled, number))
            assert "frames that have not come whole" in await callers[0].goodbye()
            await check_healthy(target)
        await until(lambda: target.gauge("unfinished_bytes") == 0)
        await check_healthy(target)


async def test_a_frame_cut_short_by_hanging_up(target: Node) -> None:
    async with caller() as stranger:
        await stranger.greet(target.me)
        stranger.send(codec.encode(Ping(5, 0)) + codec.encode(Ping(6, 0))[:-1])
        await stranger.flush()
    await until(lambda: target.machine.lost == [stranger.identity.peer])
    assert target.machine.nonces == [5]
    assert target.count("fault_broken") == 1


async def test_a_frame_that_never_ends_is_given_up() -> None:
    async with node(quick(frame_timeout_ms=400)) as target:
        async with caller() as stranger:
            await stranger.greet(target.me)
            stranger.send((1_000_000).to_bytes(4, "big") + bytes(10))
            assert "took too long" in await stranger.goodbye()
        assert target.count("fault_timeout") == 1
        await check_healthy(target)


async def test_tampered_ciphertext_ends_the_connection(target: Node) -> None:
    async with caller() as stranger:
        await stranger.greet(target.me)
        stranger.send_raw(b"\x17\x03\x03\x00\x40" + bytes(64))
        await stranger.ended()
    assert target.count("fault_tls") == 1
    assert target.machine.messages == []


async def test_a_message_from_a_later_version_is_refused_not_guessed(target: Node) -> None:
    async with caller() as stranger:
        await stranger.greet(target.me)
        body = msgspec.msgpack.encode([90, "/t", 1, 2, 3])
        stranger.send(len(body).to_bytes(4, "big") + body)
        assert "not a message" in await stranger.goodbye()
    assert target.count("fault_frame") == 1


async def test_mutated_streams_do_no_harm(target: Node) -> None:
    """Good frames, bent in a few places, over a hundred connections; each seed is one of them."""
    frames = [
        Ping(1, 2),
        LinkList([Topic("/a"), Topic("/b")], True),
        Payload(Topic("/t"), unsigned_run(target.me.peer, b"x" * 50), 3),
        IHave(Topic("/t"), [Span(target.me.peer, 1, 1, 9)]),
    ]
    stream = b"".join(codec.encode(frame) for frame in frames)
    for seed in range(100):
        rng = random.Random(seed)
        bent = bytearray(stream)
        for _ in range(rng.randint(1, 5)):
            bent[rng.randrange(len(bent))] = rng.randrange(256)
        async with caller() as stranger:
            assert isinstance(await stranger.greet(target.me), Hello)
            stranger.send(bytes(bent))
            stranger.send(codec.encode(Goodbye("done")))
            await stranger.flush()
    await until(lambda: target.connections == 0)
    assert target.count("handler_errors") == 0
    assert target.count("fault_frame") + target.count("fault_oversized") > 30


# --- handlers that fail ---------------------------------------------------------------------------


async def test_a_handler_that_raises_ends_one_connection_only(
    target: Node, caplog: pytest.LogCaptureFixture
) -> None:
    def react(fact: seam.Input) -> list[seam.Effect]:
        if isinstance(fact, seam.Received) and isinstance(fact.message, Pong):
            raise RuntimeError("a bug")
        return []

    target.machine.react = react
    async with node() as friend, caller() as stranger:
        friend.ping(target, 1)
        await stranger.greet(target.me)
        stranger.send(codec.encode(Pong(1, 1)))
        assert "could not be handled" in await stranger.goodbye()
        assert target.count("fault_handler") == target.count("handler_errors") == 1
        friend.ping(target, 2)
        await until(lambda: target.machine.nonces == [1, 2])
    assert "a bug" in caplog.text


# --- many at once ---------------------------------------------------------------------------------


async def test_500_silent_connections_at_once_do_no_harm(target: Node) -> None:
    async with node() as friend:
        friend.ping(target, 1)
        await until(lambda: target.machine.nonces == [1])
        strangers = [Caller() for _ in range(500)]
        await asyncio.gather(*(one.connect(target.me) for one in strangers))
        friend.ping(target, 2)  # an open connection is served …
        await until(lambda: target.machine.nonces == [1, 2])
        await check_healthy(target)  # … and newcomers are let in
        gauges = target.pool.gauges()
        assert gauges["handshakes_in_progress"] <= 128  # all from one address
        assert target.count("fault_overload") >= 500 - 128
        assert friend.me.peer not in target.machine.lost
        await asyncio.gather(*(one.close() for one in strangers))
        await until(lambda: target.pool.gauges()["handshakes_in_progress"] == 0)


async def test_500_greeting_connections_at_once_do_no_harm() -> None:
    async with node(quick(connections_max=50)) as target, node() as friend:
        friend.ping(target, 1)
        await until(lambda: target.machine.nonces == [1])
        target.do(seam.Hold(friend.me))
        strangers = [Caller() for _ in range(500)]
        answers = await asyncio.gather(
            *(one.greet(target.me) for one in strangers), return_exceptions=True
        )
        friend.ping(target, 2)
        await until(lambda: target.machine.nonces == [1, 2])
        assert target.connections <= 50
        greeted = sum(isinstance(answer, Hello) for answer in answers)
        # Everybody had a turn (those idle longest made room), unless too many knocked at once.
        assert greeted + target.count("fault_overload") >= 500
        assert greeted > 50
        assert target.machine.lost == []
        await asyncio.gather(*(one.close() for one in strangers))
        await check_healthy(target)


async def test_callers_from_one_address_leave_room_for_others() -> None:
    """Called from several addresses of this machine, which is not exempt."""
    async with node(quick(connections_max=50, connections_per_ip_max=2)) as target:
        others = [Caller(address=f"127.0.0.{host}") for host in range(10, 15)]
        crowd = [Caller(address="127.0.0.9") for _ in range(6)]
        for one in (*others, *crowd):
            assert isinstance(await one.greet(target.me), Hello)
        await until(lambda: target.connections == 5 + 2)
        connected = {remote.peer for remote in target.pool.peers}
        assert {one.identity.peer for one in (*others, *crowd[-2:])} == connected
        await asyncio.gather(*(one.close() for one in (*others, *crowd)))


# --- a server of our making -----------------------------------------------------------------------


class fake_server:
    """Accepts TLS with given credentials and then says nothing."""

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"/ip4/127.0.0.1/tcp/{port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = tls.Channel(self._credentials, dialled=False)
        try:
            while data := await reader.read(65_536):
                channel.feed(data)
                channel.handshake()
                writer.write(channel.pull())
        except (tls.Fault, OSError):
            pass
        finally:
            writer.close()

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()
