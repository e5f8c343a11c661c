"""The front door: a peer that listens, joins, subscribes and publishes.

async with weft.Peer.open(join=["/ip4/…/tcp/4001/p2p/12D3KooW…"]) as peer:
    sub = await peer.subscribe("/sports/football")
    await peer.publish("/sports/football", b"goal")
    async for note in sub: ...
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from datetime import datetime
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Literal, ParamSpec, overload

from weft import __version__
from weft.documents.headers import MARK, NO_HEADERS, wrap
from weft.documents.headers import problem as header_problem
from weft.documents.run import PARTS_MAX
from weft.ids import (
    BadId,
    Contact,
    PeerId,
    Topic,
    contact_text,
    parse_cid,
    parse_contact,
    parse_plain_topic,
    peer_text,
)
from weft.net.arguments import (
    Encode,
    FileName,
    Topics,
    check_callable,
    number_in,
    path_in,
    text_in,
    texts_in,
    topics_in,
)
from weft.net.config import Config
from weft.net.errors import NotConfirmed, UsageError, seconds_in, usable
from weft.net.identity import Identity
from weft.net.life import Life, LifeEvents
from weft.net.listener import bind
from weft.net.receipt import CONFIRM, Became, Confirm, Receipt
from weft.net.runtime import Runtime
from weft.net.subscription import ON_LOSS, Callback, Decode, OnLoss, Subscription
from weft.net.tls import Credentials
from weft.protocol import seam
from weft.protocol.config import Routing
from weft.protocol.peer import Peer as Machine
from weft.protocol.seam import Collect, Scheme, Strength
from weft.rules.hierarchy import climb
from weft.store.interface import Since, Store

if TYPE_CHECKING:
    from pathlib import Path

    from weft.net.consumer import Consumer, Past
    from weft.net.dht import Dht
    from weft.net.history import History, Owned
    from weft.net.metrics import Endpoint
    from weft.net.tracer import Tracer
    from weft.store.durable import Durable

P = ParamSpec("P")


class Opening:
    """A peer that is about to start: for an `async with` block, which closes the peer at its end,
    or for a caller that awaits and closes it."""

    def __init__(self, start: Callable[[], Coroutine[object, object, Peer]]) -> None:
        self._start = start
        self._peer: Peer | None = None

    def __await__(self) -> Generator[object, object, Peer]:
        return self._start().__await__()

    async def __aenter__(self) -> Peer:
        if self._peer is not None:
            raise UsageError("a block is open with this peer; call Peer.open for each")
        self._peer = await self._start()
        return self._peer

    async def __aexit__(self, *_: object) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            await peer.close()


def _opening(start: Callable[P, Coroutine[object, object, Peer]]) -> Callable[P, Opening]:
    """`start`, for a caller that either awaits the result or enters it as an `async with` block."""

    @wraps(start)
    def opened(*args: P.args, **kwargs: P.kwargs) -> Opening:
        return Opening(lambda: start(*args, **kwargs))

    return opened


class Peer:
    """A running weft peer; see `open` and `start`."""

    def __init__(
        self,
        runtime: Runtime,
        machine: Machine,
        config: Config,
        identity: Identity,
        life: Life,
        store: Store | None = None,
        encode: Encode | None = None,
        decode: Decode | None = None,
    ) -> None:
        self.config = config
        self._encode = encode
        self._decode = decode
        self._identity = identity
        self._runtime = runtime
        self._gathered = runtime.gathered
        self._machine = machine
        self._life = life
        self._metrics: list[Endpoint] = []
        self._store = store

    # What most peers never use is loaded by those that do.

    @cached_property
    def dht(self) -> Dht:
        """Operations on the DHT."""
        from weft.net.dht import Dht  # noqa: PLC0415

        return Dht(self._runtime, self.config.protocol.dht.enabled)

    @cached_property
    def owned(self) -> Owned:
        """The topics that this peer owns."""
        from weft.net.history import Owned  # noqa: PLC0415

        return Owned(self._runtime, self._machine)

    @cached_property
    def history(self) -> History:
        """Events that stay."""
        from weft.net.history import History  # noqa: PLC0415

        return History(self._store, self._machine, self.dht)

    # --- starting and closing -----------------------------------------------------------------

    @staticmethod
    async def start(
        listen: str | None = None,
        join: str | Iterable[str] | None = (),
        key: Identity | FileName | None = None,
        config: Config | Mapping[str, object] | FileName | None = None,
        trace: FileName | None = None,
        metrics: str | None = None,
        store: Store | FileName | None = None,
        routing: Routing | None = None,
        hierarchies: str | Iterable[str] = (),
        announce: str | None = None,
        encode: Encode | None = None,
        decode: Decode | None = None,
    ) -> Peer:
        """A peer on the network. From `start`, and from `await Peer.open(…)`, the caller has to
        `close` it; `async with Peer.open(…) as peer` leaves the network at the block's end.

        `listen` is HOST:PORT (port 0: any free one), `announce` the HOST or HOST:PORT that others
        are told if it is another one (needed where `listen` is 0.0.0.0 or ::), `join` one address
        of a known peer or several, `key` a key file (made if missing) or an `Identity`, None a
        fresh one in memory; `config` the settings (a `Config`, or nested dictionaries:
        {"network": {…}}), or the TOML file that they are in; `trace` names a file for trace records
        and `metrics` the HOST:PORT to serve Prometheus metrics on.
        With `store`, a file (made if missing), ":memory:" or a `Store`, events are signed and stay:
        see `subscribe` for reading the past. `routing` is how events find their subscribers:
        "tera", "topic-dht", "pulsarcast" or "flood", the same at all peers of a network; None: as
        configured.
        `hierarchies` are topics whose subscribers get the events of sub-topics, too ("/": all
        topics), beside those configured; the same at all peers of a network.
        `encode` makes the payload of any published object that is not bytes already, texts
        included (`json.dumps`, `msgspec.json.encode`), `decode` reads it again for `note.value`.
        """
        config = _routed(_config(config), routing, texts_in("hierarchies", hierarchies))
        network = config.network
        known = (*texts_in("join", join), *network.join)
        contacts = tuple(usable(parse_contact, text) for text in known)
        if encode is not None:
            check_callable("encode", encode)
        if decode is not None:
            check_callable("decode", decode)
        listens = text_in("listen", "" if listen is None else listen) or network.listen
        announces = text_in("announce", "" if announce is None else announce) or network.announce
        traced = None if trace is None else path_in("trace", trace)
        with contextlib.ExitStack() as undo:  # undone if the peer does not start
            listener, address = bind(listens, announces)
            undo.callback(listener.close)
            identity = _identity(key)
            identity.hold()
            undo.callback(identity.release)
            kept = _store(store)
            if kept is not None:
                undo.callback(kept.close)
            incarnation = identity.next_incarnation()
            credentials = Credentials(identity)
            me = Contact(identity.peer, address)
            tracer = _open_trace(identity.peer, traced) if traced is not None else None
            if tracer is not None:
                undo.callback(tracer.close)
            history = dataclasses.replace(config.protocol.history, enabled=kept is not None)
            protocol = dataclasses.replace(
                config.protocol, trace=tracer is not None, history=history
            )
            seed = int.from_bytes(os.urandom(8), "big") // 2
            machine = Machine(me, seed, protocol, kept, identity.sign)
            life = Life(me, lambda: machine.isolated, machine.newest_version)
            durable = _open_durable(kept) if kept is not None else None
            runtime = Runtime(
                machine, me, credentials, network, tracer, f"weft/{__version__}", durable, life
            )
            await runtime.start(listener, incarnation, contacts)
            undo.pop_all()
        peer = Peer(runtime, machine, config, identity, life, kept, encode, decode)
        if metrics is not None:
            try:
                await peer.serve_metrics(metrics)
            except BaseException:
                await peer.close()
                raise
        return peer

    open = staticmethod(_opening(start))

    async def __aenter__(self) -> Peer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the network: tell the neighbours, flush what is queued, close."""
        for endpoint in self._metrics:
            await endpoint.close()
        await self._runtime.close()
        self._identity.release()

    @property
    def closed(self) -> bool:
        """Whether it has left the network, or is leaving it."""
        return self._runtime.closed

    # --- identity and address -------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The peer id in libp2p's text form."""
        return peer_text(self._runtime.me.peer)

    @property
    def address(self) -> str:
        """The full multiaddr that others can join by."""
        return contact_text(self._runtime.me)

    def __repr__(self) -> str:
        return f"Peer({self.address})"

    # --- publish and subscribe ------------------------------------------------------------------

    def subscribe(
        self,
        topic: str | Topics,
        scheme: Scheme | None = None,
        since: Literal["beginning"] | str | datetime | None = None,
        *,
        on_loss: OnLoss = "log",
        callback: Callback | None = None,
        own: bool = True,
    ) -> Subscription:
        """Subscribe to a topic, or to several with one queue. Await the result to know that they
        have been joined. `Subscription.add` and `remove` change the topics while it is read.

        With a `callback` it is called for each notification in place of iterating, as by
        `Subscription.each`.

        With a store, `since` brings the past first: from the "beginning", from an event on (the
        `cid` of the last one read), or from a time on. Then live events follow, in order, each
        once. Other members are asked for an event that is not in the store; an event that nobody
        knows, or one of another topic, is a `PositionError`, here or while reading. Events that are
        concurrent with it come again: a program that must not repeat anything uses `consume`.

        `scheme` is how this peer passes the topic's events on: "tree", "gossip" or "flood"; None:
        as configured. Only the routing TERA leaves that choice, once per topic; with another
        routing a scheme is a `UsageError`.

        A subscription that is not read in time drops events. `on_loss` says how the program learns
        of that, besides the line in the log that is always written: "log" writes only that line,
        "raise" raises a `LossError`, "mark" yields a `Gap`, both where the events would have come.

        With `own=False` events that this peer publishes itself are left out.
        """
        if on_loss not in ON_LOSS:
            raise UsageError(f"on_loss is {on_loss!r}; expected one of {', '.join(ON_LOSS)}")
        if callback is not None:
            check_callable("callback", callback)
        if isinstance(scheme, str) and scheme.startswith("/"):
            raise UsageError(f"several topics are one list: subscribe([{topic!r}, {scheme!r}])")
        names = [usable(parse_plain_topic, one) for one in topics_in(topic)]
        if not names:
            raise UsageError("no topic to subscribe to")
        if len(names) > 1 and since is not None:
            raise UsageError("the past of several topics: subscribe to each, or consume them")
        for name in names:
            problem = self._machine.routing.scheme_problem(name, scheme)
            if problem:
                raise UsageError(problem)
        start = self._since(names[0], since)
        past = self._past(names[0])
        sub = self._runtime.subscribe(names[0], scheme, start, on_loss, self._decode, past, own)
        for name in names[1:]:
            sub.enter(name, scheme)
        return sub.each(callback) if callback is not None else sub

    def consume(self, topic: str, *, name: str | None = None, after: str | None = None) -> Consumer:
        """Read a topic from this peer's store: every event that is stored, parents before children,
        each once. Nothing is lost or repeated when this program, this peer or the publisher is
        killed.

        With a `name`, `await note.ack()` keeps the place here, and the next consumer of that name
        goes on after the last event acknowledged (at least once). A program that keeps
        `note.position` in one transaction with its own results gives it back as `after` (exactly
        once). `after` None: from the beginning; "now": events published from now on ("now" is when
        awaiting the result returns). A name that has a place already goes on from there.

        A position that cannot be read on from is a `PositionError`; one from which events have
        been dropped by retention since is a `PositionGap`, here or while reading. `after=None` goes
        on from the first event that is kept, and `reset_consumer` makes a name begin there.
        """
        parsed = self._consumable(topic, name, after)
        name = None if name is None else str.__str__(name)
        past = self._past(parsed)
        assert past is not None
        return self._runtime.consume(parsed, past, name, after, self._decode)

    async def reset_consumer(self, topic: str, name: str, *, after: str | None = None) -> None:
        """Make the next consumer of this name begin at `after`, wherever its place was: "now", or a
        position; None: the name has no place any more, so that the next consumer begins where its
        own `after` says, or with the first event that is kept. Returns once that is on disk. It is
        for a name whose place cannot be read on from any more (`PositionGap`), or that shall read
        everything again. Close a running consumer of this name first.
        """
        parsed = self._consumable(topic, name or "", after)
        await self._runtime.reset_consumer(parsed, str.__str__(name), after)

    def _consumable(self, topic: str, name: str | None, after: str | None) -> Topic:
        if self._machine.history is None:
            raise UsageError("a consumer needs a store: open the peer with store=…")
        if name is not None and not text_in("the name of a consumer", name):
            raise UsageError("the name of a consumer is empty")
        if after is not None and not isinstance(after, str):
            raise UsageError(f"after is {after!r:.60}; give `note.position`, 'now', or None")
        if not isinstance(topic, str):
            raise UsageError(f"a consumer reads one topic, a text, not {topic!r:.60}; make several")
        parsed = usable(parse_plain_topic, topic)
        from weft.store.cursor import check_position  # noqa: PLC0415

        check_position(after, parsed)  # also where a name's place counts in place of it
        return parsed

    def _past(self, topic: Topic) -> Past | None:
        """How reading a topic's past from other members goes, for subscriptions and consumers."""
        history = self._machine.history
        if history is None:
            return None
        from weft.net.consumer import Past  # noqa: PLC0415

        return Past(
            partial(history.has_past, topic),
            partial(history.reads_past, topic),
            partial(self._runtime.feed, seam.AskHeads(topic)),
            partial(history.told, topic),
            partial(history.is_getting, topic),
            history.lies_before,
            history.is_own,
        )

    def _since(self, topic: Topic, since: str | datetime | None) -> Since | None:
        if since is None:
            return None
        if self._machine.history is None:
            raise UsageError("reading the past needs a store: open the peer with store=…")
        if since == "beginning":
            return "beginning"
        if isinstance(since, datetime):
            try:
                return max(0, round(since.timestamp() * 1_000))
            except (ValueError, OverflowError) as error:
                raise UsageError(f"since: {since} is no time that can be: {error}") from error
        if not isinstance(since, str):
            raise UsageError(f"since is {since!r:.60}; expected a CID, 'beginning', or a datetime")
        try:
            cid = parse_cid(since)
        except BadId as error:
            raise UsageError(f"since: {error}; or 'beginning', or a datetime") from error
        block = self._machine.history.server.block(cid)
        if block is not None:
            from weft.net.consumer import event_in  # noqa: PLC0415

            event_in(block, topic)  # of this topic, or an error
        return cid

    @overload
    async def publish(
        self,
        topic: str,
        payload: object,
        *,
        headers: Mapping[str, str] | None = None,
        confirm: Confirm | None = None,
        copies: int = 1,
        timeout: float | None = None,  # noqa: ASYNC109  (as in nats-py and aiomqtt)
    ) -> Receipt: ...

    @overload
    async def publish(
        self,
        topic: Topics,
        payload: object,
        *,
        headers: Mapping[str, str] | None = None,
        confirm: Confirm | None = None,
        copies: int = 1,
        timeout: float | None = None,  # noqa: ASYNC109  (as in nats-py and aiomqtt)
    ) -> list[Receipt]: ...

    async def publish(
        self,
        topic: str | Topics,
        payload: object,
        *,
        headers: Mapping[str, str] | None = None,
        confirm: Confirm | None = None,
        copies: int = 1,
        timeout: float | None = None,  # noqa: ASYNC109  (as in nats-py and aiomqtt)
    ) -> Receipt | list[Receipt]:
        """Publish an event: bytes, a text, which is sent as UTF-8, or any object that the encoder
        (see `open`) takes. `headers` are texts by name, which travel beside the payload, signed
        with it (`note.headers`). Waits while outgoing queues are full, and returns once this peer
        has the event (with a store: on disk) and has sent it or keeps trying to; the receipt says
        what became of it.

        In a topic that this peer is not subscribed to, the first event waits for an access point's
        answer. Later ones are on their way together, in order, and `publish` waits while too many
        are: their receipts say `queued`, and `Receipt.final` waits for the answer. Closing the peer
        waits for these answers, too, up to `network.leave_timeout_ms`.

        With `confirm` the call raises `NotConfirmed`, with the reason, if the event got less far.
        "accepted": this peer or an access point (a subscriber through which the topic is entered)
        has it, and it was not refused. "taken": `copies` other peers have said, each under its own
        key, that they have it. "stored": they have said that it is on their disk, for which this
        peer needs a store, too. These two wait for a network, an access point and the other peers,
        up to `timeout` seconds (None: as long as this peer tries, two minutes unless
        `tera.pending_ms_max` says otherwise). `Receipt.copies` names the peers that said so.

        Given several topics, publishes one event in all of them: it crosses each connection once
        and is delivered once to every subscription. Returns a receipt for each topic.

        In a hierarchy the event is published in the topics above, too; `Receipt.above` tells what
        became of it there.
        """
        data = payload if type(payload) is bytes else _payload_in(payload, self._encode)
        if headers is not None or data >= MARK:  # smaller payloads cannot look like an envelope
            data = _in_envelope(data, headers)
        if confirm is not None:
            return await self._publish_confirmed(topic, data, confirm, copies, timeout)
        if copies != 1:
            raise UsageError("copies are counted with confirm='taken' or confirm='stored'")
        if timeout is not None:
            raise UsageError("a timeout is for confirm='accepted', 'taken' or 'stored'")
        if isinstance(topic, str):
            gathered = self._gathered.get(topic)
            receipt = gathered.add(data, True) if gathered is not None else None
            if receipt is not None:
                return receipt
        return await self._publish(topic, data)

    def _check_size(self, named: Mapping[Topic, list[Topic]], data: bytes) -> None:
        """Refuse an event that is too large for one of its topics or of the levels above them."""
        for name, levels in named.items():
            for level in levels:
                wrong = self._machine.too_large(level, data, None if level == name else name)
                if wrong:
                    raise UsageError(wrong)

    @overload
    async def _publish(self, topic: str, data: bytes) -> Receipt: ...

    @overload
    async def _publish(self, topic: Topics, data: bytes) -> list[Receipt]: ...

    async def _publish(self, topic: str | Topics, data: bytes) -> Receipt | list[Receipt]:
        if isinstance(topic, str):
            name = self._known_topic(topic)
            levels = self._machine.levels(name)
            if len(levels) == 1:
                self._check_size({name: levels}, data)
                return await self._runtime.publish(name, data, self._expected(name))
            return (await self._publish_together({name: levels}, data))[0]
        names = [self._known_topic(each) for each in topics_in(topic)]
        return await self._publish_together(
            {name: self._machine.levels(name) for name in names}, data
        )

    async def _publish_confirmed(
        self,
        topic: str | Topics,
        data: bytes,
        confirm: Confirm,
        copies: int,
        seconds: float | None,
    ) -> Receipt | list[Receipt]:
        self._check_confirm(confirm, copies)
        seconds = seconds_in(seconds)
        loop = asyncio.get_running_loop()
        until = None if seconds is None else loop.time() + seconds
        try:
            async with asyncio.timeout_at(until):
                if isinstance(topic, str):
                    receipts = [await self._publish(topic, data)]
                else:
                    receipts = await self._publish(topic, data)
                receipts = [await receipt.confirmed(confirm) for receipt in receipts]
        except TimeoutError:
            text = f"not {confirm} within {seconds:g} s{self._why_alone()}"
            raise NotConfirmed(text, "timeout") from None
        if confirm != "accepted":
            asked = (self._copied(receipt, confirm, copies, until) for receipt in receipts)
            receipts = await asyncio.gather(*asked)
        return receipts[0] if isinstance(topic, str) else receipts

    def _check_confirm(self, confirm: Confirm, copies: int) -> None:
        if confirm not in CONFIRM:
            raise UsageError(f"confirm is {confirm!r}; expected one of {', '.join(CONFIRM)}")
        number_in("copies", copies, 1)
        if confirm == "accepted" and copies != 1:
            raise UsageError("copies are counted with confirm='taken' or confirm='stored'")
        if confirm == "stored" and self._machine.history is None:
            raise UsageError(
                "what a peer without a store publishes is stored nowhere: open it with store=…"
            )

    async def _copied(
        self, receipt: Receipt, strength: Strength, copies: int, until: float | None
    ) -> Receipt:
        """The receipt, once `copies` other peers have said that they have its event."""
        took, run = receipt.access_point, receipt.run
        if receipt.outcome == "alone" and until is None:
            raise NotConfirmed(receipt.in_words, "alone")
        if took is not None and (receipt.outcome, strength, copies) == ("taken", "taken", 1):
            return receipt.with_copies([took])
        assert run is not None
        left_ms = self.config.protocol.tera.pending_ms_max
        if until is not None:
            left_ms = max(0, round(1_000 * (until - asyncio.get_running_loop().time())))
        topic = receipt.topic
        answer = await self._runtime.ask(
            lambda token: seam.Confirm(token, topic, run, strength, copies, left_ms, took)
        )
        if answer.outcome == "refused":
            raise NotConfirmed(f"refused: {answer.reason}", "refused")
        if answer.outcome != "found":
            said = f"{len(answer.contacts)} of {copies} peers said that they have {strength} it"
            why = answer.reason
            if receipt.outcome == "alone" and self._machine.is_alone_in(topic):
                why = f"no other peer of {topic} is known{self._why_alone()}"
            raise NotConfirmed(f"{said}: {why}", "timeout")
        return receipt.with_copies(answer.contacts)

    def _why_alone(self) -> str:
        """The addresses to join by that have not answered, and why, a line each."""
        return "".join(f"\n{one}: {why}" for one, why in self.unanswered.items())

    def _expected(self, topic: Topic) -> Became | None:
        """The outcome of an event, where it is known before the event is sent; None: wait for it.
        Without a store, a member that knows other members spreads its events itself; and an access
        point that has taken events takes more of them before it has answered for those."""
        machine = self._machine
        if machine.history is not None:
            return None
        if machine.routing.is_subscribed(topic):
            return None if machine.is_alone_in(topic) else "sent"
        return "queued" if machine.publishing.streams(topic) else None

    async def _publish_together(
        self, named: dict[Topic, list[Topic]], data: bytes
    ) -> list[Receipt]:
        topics = climb(named, lambda topic: named[topic])
        if not 1 <= len(topics) <= PARTS_MAX:
            more = f", not in {len(topics)} (with those above)" if len(topics) > len(named) else ""
            raise UsageError(f"an event can be published in 1 to {PARTS_MAX} topics at once{more}")
        self._check_size(named, data)
        return await self._runtime.publish_together(named, data)

    def collect_links(self) -> None:
        """Look now for links that several topics can share (StaN), not at the next period."""
        self._runtime.check_open()
        self._runtime.feed(Collect())

    def _known_topic(self, topic: str) -> Topic:
        """The topic, checked; names that this peer is subscribed to were checked before."""
        known = Topic(str.__str__(topic))
        subscribed = self._machine.routing.is_subscribed(known)
        return known if subscribed else usable(parse_plain_topic, topic)

    # --- its life -------------------------------------------------------------------------------

    def join(self, address: str) -> None:
        """Enter the network through one more peer than those given to `open`."""
        self._runtime.join(usable(parse_contact, address))

    async def joined(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  (as in nats-py)
        """Wait until this peer knows another. After `timeout` seconds an `IsolatedError` says what
        became of each address to join by; None: for as long as it takes."""
        self._runtime.check_open()
        await self._life.joined(timeout)

    def events(self) -> LifeEvents:
        """What happens to this peer from now on (`LifeEvent`): connections, being isolated and
        joined again, topics that their owners change. The first one says whether it is isolated.
        The queue is bounded: a program that does not read loses the oldest."""
        self._runtime.check_open()
        return self._life.events()

    @property
    def unanswered(self) -> dict[str, str]:
        """The addresses to join by that do not answer, or do not answer any more, and why."""
        return self._life.unanswered

    # --- looking at it --------------------------------------------------------------------------

    @property
    def drops(self) -> int:
        """Event-carrying messages that this peer could not send on: full queues, lost peers."""
        return self._runtime.counters.events_dropped

    @property
    def isolated(self) -> bool:
        """Whether this peer knows no other."""
        return self._machine.isolated

    @property
    def counters(self) -> dict[str, int]:
        """Everything counted so far: the driver's as `net_…`, the machine's by their own names."""
        counts = {f"net_{name}": value for name, value in self._network_counts().items()}
        return {**self._machine.counters, **counts}

    def passed(self) -> list[tuple[str, str, str, int]]:
        """The events delivered since the last call, for a picture: topic, id, publisher, hops. They
        are remembered from the first call on; of many, the first ones."""
        passed = self._runtime.subscriptions.passed()
        return [(topic, event, peer_text(PeerId(by)), hops) for topic, event, by, hops in passed]

    def _network_counts(self) -> dict[str, int]:
        counts = self._runtime.counters.as_dict()
        counts["bytes_received"], counts["bytes_sent"] = self._runtime.pool.traffic()
        return counts

    def status(self) -> dict[str, object]:
        """The state of this peer for its user, ready for JSON."""
        connections = [
            {
                "peer": peer_text(remote.peer),
                "address": remote.address,
                "queued_bytes": remote.queued,
                "dropped": remote.dropped,
            }
            for remote in self._runtime.pool.peers
        ]
        return {
            **self._machine.status(),
            "isolated": self.isolated,
            "subscriptions": self._runtime.subscriptions.counts(),
            "network": {
                **self._runtime.pool.gauges(),
                "name": self.config.network.name,
                "key_clashes": self._runtime.counters.key_clashes,
            },
            "connections": connections,
        }

    @property
    def gauges(self) -> dict[str, float]:
        """Numbers that can go up and down, such as links and connections; cheaper than `status`."""
        routing = self._machine.routing
        return {
            **{f"links_{name}": value for name, value in routing.link_counts().items()},
            "links_least": min(map(len, routing.links().values()), default=0),
            **{f"net_{name}": value for name, value in self._runtime.pool.gauges().items()},
            "subscriptions": len(self._machine.subscribed),
            "view_size": len(self._machine.general.peers),
            "access_points": self._machine.routing.access_points,
            "isolated": int(self.isolated),
        }

    def metrics(self) -> str:
        """Prometheus metrics as text."""
        from weft.net.metrics import render  # noqa: PLC0415

        return render(
            self.counters, self.gauges, self._runtime.counters.histograms, {"peer": self.id}
        )

    async def serve_metrics(self, where: str) -> str:
        """Serve the metrics over HTTP; returns the HOST:PORT that was bound."""
        self._runtime.check_open()
        self.metrics()  # raises now if a package for them is missing
        from weft.net.metrics import Endpoint  # noqa: PLC0415

        endpoint = Endpoint(self.metrics, self.config.network.metrics_hosts)
        await endpoint.open(where)
        self._metrics.append(endpoint)
        return endpoint.address


def _routed(config: Config, routing: Routing | None, hierarchies: tuple[str, ...]) -> Config:
    """The settings, with the routing and the hierarchies that the caller named."""
    known = config.protocol
    roots = (*known.hierarchies, *(root for root in hierarchies if root not in known.hierarchies))
    try:
        protocol = dataclasses.replace(known, routing=routing or known.routing, hierarchies=roots)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return dataclasses.replace(config, protocol=protocol)


def _config(given: Config | Mapping[str, object] | FileName | None) -> Config:
    """The settings, or those in a file."""
    if given is None or isinstance(given, Config):
        return given or Config()
    if isinstance(given, Mapping):
        return Config.of(given)
    if not isinstance(given, str | os.PathLike):
        raise UsageError(
            f"config is {given!r:.60}; expected a weft.Config, a dictionary, or a path"
        )
    return Config.load(given)


def _payload_in(payload: object, encode: Encode | None) -> bytes:
    """The payload as bytes; other objects go through the encoder that the peer was given."""
    given = payload
    instead = (
        "encode it first, or give the peer an encoder: "
        "Peer.open(encode=json.dumps, decode=json.loads)"
    )
    if encode is not None and not isinstance(payload, bytes | bytearray | memoryview):
        try:
            payload = encode(payload)
        except Exception as error:  # whatever kind the application's own encoder raises
            why = f"{type(error).__name__}: {error}"
            raise UsageError(f"the encoder does not take {given!r:.60}: {why}") from error
        instead = f"the encoder made it of {given!r:.60}"
    if isinstance(payload, str):
        try:
            return str.encode(payload)
        except UnicodeEncodeError as error:
            raise UsageError(f"a payload is {payload!r:.60}, which UTF-8 cannot write") from error
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    kind = type(payload).__name__
    raise UsageError(f"a payload is bytes or a text, not {kind} ({payload!r:.60}); {instead}")


def _in_envelope(payload: bytes, headers: Mapping[str, str] | None) -> bytes:
    """The payload in an envelope with its headers, as it travels."""
    if headers is None:
        return wrap(NO_HEADERS, payload)
    if not isinstance(headers, Mapping):
        raise UsageError(f"headers are a mapping of names to texts, not {headers!r:.60}")
    given = dict(headers)
    wrong = header_problem(given)
    if wrong:
        raise UsageError(wrong)
    return wrap({str.__str__(name): str.__str__(given[name]) for name in given}, payload)


def _open_durable(kept: Store) -> Durable:
    from weft.store.durable import Durable  # noqa: PLC0415

    return Durable(kept)


def _open_trace(me: PeerId, path: Path) -> Tracer:
    from weft.net.tracer import Tracer  # noqa: PLC0415  (it loads the messages of all rooms)

    return Tracer(me, path)


def _store(store: Store | FileName | None) -> Store | None:
    """The store that events are kept in."""
    if store == ":memory:":  # SQLite's name for it
        from weft.store.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore(os.urandom(16))
    if store == "":
        raise UsageError("the store has no name: give a file, or ':memory:'")
    if isinstance(store, str | os.PathLike):
        from weft.store.sqlite import SqliteStore  # noqa: PLC0415  (most peers have no file)

        kept = SqliteStore(path_in("store", store))
        try:
            kept.hold()
        except BaseException:
            kept.close()
            raise
        return kept
    if store is not None and not callable(getattr(store, "stage", None)):
        raise UsageError(f"store is {store!r:.60}; expected a file, ':memory:' or a store")
    return store


def _identity(key: Identity | FileName | None) -> Identity:
    if key is None:
        return Identity.generate()
    return key if isinstance(key, Identity) else Identity.load_or_generate(path_in("key", key))
