"""The world in virtual time: peers as the real state machines, driven by one queue of happenings.

Happenings are ordered by (time, sequence number), so a run is a pure function of its seed. The
world carries effects out as `weft.protocol.seam` says: messages arrive unchanged, when `network`
decides; timers fire by the peer's own clock, which may be off; connections are modelled just enough
for `PeerLost`: a node knows the nodes that it holds a connection to.

A happening belongs to one life of a peer: a message or timer that was under way when the peer went
down is lost. An `Observer` sees every message that is sent, handled or dropped; the trace of
messages is one, and an experiment that counts messages brings its own.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from heapq import heappop, heappush
from typing import TypeAlias, final

from weft import trace
from weft.bounded import BoundedDict
from weft.documents.signature import Verdicts, remembered
from weft.ids import Contact, PeerId, Topic, peer_text
from weft.protocol import delivery as records
from weft.protocol import messages as m
from weft.protocol import seam
from weft.protocol.wire import Message
from weft.sim.network import Network, Partition
from weft.sim.node import TRUE_CLOCK, Clock, Node
from weft.sim.record import Record
from weft.store.interface import Since, Store

Action: TypeAlias = Callable[[], None]
SizeOf: TypeAlias = Callable[[Message], int]
_Happening: TypeAlias = "tuple[int, int, Node | None, int, seam.Input | _Act]"

_NANOS = 1_000_000  # in a millisecond
LOST_AFTER_MS = 1_000
"""How long a peer takes to notice that a connection cannot be made."""
_VERDICTS_MAX = 1 << 14
"""guess: verified signatures that are remembered, 10 MB; a signed run reaches all peers soon after
it was signed."""
_GARBAGE = (100_000, 50, 100)
"""measured: of 60 peers under replay, searching for garbage at Python's own thresholds was 14 % of
the CPU time; with these the process grows by 2 %, since few objects of a run form cycles."""


@contextmanager
def _garbage_sought_rarely() -> Iterator[None]:
    """While a run is played, most new objects live long: messages under way and the record."""
    usual = gc.get_threshold()
    gc.set_threshold(*_GARBAGE)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


@final
class _Act:
    """An action on the world rather than on a peer."""

    __slots__ = ("do",)

    def __init__(self, do: Action) -> None:
        self.do = do


class Observer:
    """Sees every message of a world; a subclass overrides the methods that it needs.

    An observer changes nothing: a world with observers plays the same run as one without.
    """

    def sent(
        self, now_ms: int, sender: Node, to: Contact, receiver: Node | None, message: Message
    ) -> None:
        """A machine sends; `receiver` is None if no peer of the world has the id in `to`."""

    def handled(self, now_ms: int, receiver: Node, sender: Contact, message: Message) -> None:
        """A message is about to be handed to its receiver's machine."""

    def dropped(self, now_ms: int, sender: Node, to: PeerId, message: Message) -> None:
        """A message that was sent reaches no machine."""


class _MessageTrace(Observer):
    """Writes every message into the trace, with its size where `size_of` tells it."""

    def __init__(self, writer: trace.Writer, size_of: SizeOf | None) -> None:
        self._writer = writer
        self._size_of = size_of

    def sent(
        self, now_ms: int, sender: Node, to: Contact, receiver: Node | None, message: Message
    ) -> None:
        self._write(now_ms, records.SEND_RPC, sender, "sendTo", to.peer, message)

    def handled(self, now_ms: int, receiver: Node, sender: Contact, message: Message) -> None:
        self._write(now_ms, records.RECV_RPC, receiver, "receivedFrom", sender.peer, message)

    def dropped(self, now_ms: int, sender: Node, to: PeerId, message: Message) -> None:
        self._write(now_ms, records.DROP_RPC, sender, "sendTo", to, message)

    def _write(
        self, now_ms: int, kind: str, node: Node, role: str, other: PeerId, message: Message
    ) -> None:
        meta = trace.rpc_meta(message)
        if self._size_of is not None:
            meta["bytes"] = self._size_of(message)
        fields = {role: peer_text(other), "meta": meta}
        self._writer.write(node.contact.peer, now_ms * _NANOS, kind, fields)


class World:
    """Runs machines in virtual time."""

    def __init__(
        self,
        network: Network,
        writer: trace.Writer | None = None,
        observers: Sequence[Observer] = (),
        *,
        size_of: SizeOf | None = None,
    ) -> None:
        """`size_of`: how many bytes a message has on the wire, for the trace."""
        self.now_ms = 0
        self.network = network
        self.record = Record()
        self.nodes: list[Node] = []
        self.store_ms = 5  # how long a disk takes to make something durable
        self.handled = 0  # messages handed to machines
        self.facts = 0  # messages, timers, losses and commands handed to machines
        self.sent: dict[type, int] = defaultdict(int)
        self.copies = 0  # events in the messages handed to machines
        self.dropped = 0  # messages sent that reached no machine
        self._by_peer: dict[PeerId, Node] = {}
        self._queue: list[_Happening] = []
        self._sequence = 0
        self._writer = writer
        tracing = () if writer is None else (_MessageTrace(writer, size_of),)
        self._observers = (*tracing, *observers)
        self._verdicts: Verdicts = BoundedDict(_VERDICTS_MAX)
        self.handling: tuple[Node, seam.Input] | None = None  # the latest, for a report of a fault

    # --- peers come and go --------------------------------------------------------------------

    def add(
        self,
        contact: Contact,
        make: Callable[[], seam.Machine],
        clock: Clock = TRUE_CLOCK,
        store: Store | None = None,
    ) -> Node:
        """Add a peer, which is down; `make` builds its machine at every start."""
        node = Node(self.record.add_peer(contact.peer), contact, make, clock, store)
        self.nodes.append(node)
        self._by_peer[contact.peer] = node
        return node

    def start(self, node: Node, contacts: Sequence[Contact] = ()) -> None:
        """The peer comes up, knowing nothing but some contacts."""
        if node.machine is not None:
            return
        node.begin()
        self._handle(node, seam.Started(node.lives, tuple(contacts)))

    def crash(self, node: Node, silent: bool) -> None:
        """The peer is gone at once. Unless `silent`, the peers connected to it notice."""
        if node.machine is None:
            return
        self._end(node, "crashed silently" if silent else "crashed", silent)

    def leave(self, node: Node) -> None:
        """The peer says goodbye and closes."""
        if node.machine is None:
            return
        self._handle(node, seam.Leave())
        self._end(node, "left", silent=False)

    def _end(self, node: Node, how: str, silent: bool) -> None:
        for topic in self.record.end_life(node.index, self.now_ms, how):
            if self._writer is not None and how != "left":  # then the machine has traced it
                self._trace(node, records.LEAVE, {"topic": topic, "reason": how})
        for other in node.end(silent):
            node.release(other.contact.peer)
            if not silent:
                typical_ms = self.network.conditions.latency.typical_ms
                self._tell_loss(other, node.contact.peer, typical_ms)

    def stall(self, node: Node) -> None:
        """The peer stops handling facts; they wait until it goes on."""
        node.stall()

    def unstall(self, node: Node) -> None:
        for fact in node.unstall():
            self._push(self.now_ms, node, fact)

    def set_partition(self, partition: Partition | None, told: bool = False) -> None:
        """Cut the network. When `told`, connections across the cut break after a while, and
        so does every attempt to send across."""
        connected = [(node.index, to.index) for node in self.nodes for to in node.holds.values()]
        for one, other in self.network.set_partition(partition, told, connected):
            node, held = self.nodes[one], self.nodes[other]
            self._tell_loss(node, held.contact.peer, LOST_AFTER_MS)
            self._tell_loss(held, node.contact.peer, LOST_AFTER_MS)

    # --- commands -----------------------------------------------------------------------------

    def subscribe(
        self,
        node: Node,
        topic: Topic,
        scheme: seam.Scheme | None = None,
        since: Since | None = None,
    ) -> None:
        self._command(node, seam.Subscribe(self.record.next_token(), topic, scheme, since))

    def unsubscribe(self, node: Node, topic: Topic) -> None:
        self._command(node, seam.Unsubscribe(self.record.next_token(), topic))

    def publish(self, node: Node, topic: Topic, *payloads: bytes) -> None:
        """Some events at once, as a user publishes them in one turn of its loop."""
        published_ms = max(0, node.clock.local_ms(self.now_ms))
        token = self.record.next_token()
        for _ in payloads[1:]:
            self.record.next_token()  # each event has one of its own in the record
        self._command(node, seam.Publish(token, topic, payloads, published_ms))

    def publish_together(self, node: Node, topics: Sequence[Topic], payload: bytes) -> None:
        """One event in several topics."""
        published_ms = max(0, node.clock.local_ms(self.now_ms))
        tokens = tuple(self.record.next_token() for _ in topics)
        self._command(node, seam.PublishTogether(tokens, tuple(topics), payload, published_ms))

    def collect(self, node: Node) -> None:
        self._command(node, seam.Collect())

    def ask(self, node: Node, make: Callable[[int], seam.Command]) -> int:
        """Any other command, made for its token; its answer comes into the record."""
        token = self.record.next_token(is_question=True)
        self._command(node, make(token))
        return token

    def _command(self, node: Node, command: seam.Command) -> None:
        """Give a user's command to a peer; it is lost while the peer is down."""
        if node.machine is not None:
            self._handle(node, command)

    # --- time ---------------------------------------------------------------------------------

    def at(self, time_ms: int, action: Action) -> None:
        """Do something to the world at a time (not before now)."""
        self._sequence += 1
        time_ms = max(time_ms, self.now_ms)
        heappush(self._queue, (time_ms, self._sequence, None, 0, _Act(action)))

    def run_until(self, end_ms: int) -> None:
        """Let everything happen up to and including `end_ms`."""
        with remembered(self._verdicts), _garbage_sought_rarely():
            self._play(end_ms)
        self.now_ms = max(self.now_ms, end_ms)

    def _play(self, end_ms: int) -> None:
        queue = self._queue
        while queue and queue[0][0] <= end_ms:
            self.now_ms, _, node, life, fact = heappop(queue)
            if type(fact) is _Act:
                fact.do()
            elif node is not None and node.life == life:
                self._handle(node, fact)

    def _push(self, time_ms: int, node: Node, fact: seam.Input) -> None:
        self._sequence += 1
        heappush(self._queue, (time_ms, self._sequence, node, node.life, fact))

    # --- the inner loop: one fact in, its effects out -------------------------------------------

    def _handle(self, node: Node, fact: seam.Input) -> None:
        if node.backlog is not None:
            node.postpone(fact)
            return
        self.facts += 1
        if type(fact) is seam.Received:
            self._on_received(node, fact)
        elif type(fact) is seam.PeerLost:
            node.lose(fact.peer)
        elif type(fact) is seam.Stored:
            node.commit(fact.token, self.now_ms)
        elif type(fact) is not seam.TimerFired:
            self.record.on_fact(self.now_ms, node.index, node.life, fact)
        self.handling = node, fact
        assert node.machine is not None
        effects = node.machine.handle(fact, node.clock.local_ms(self.now_ms))
        if effects:
            self.carry_out(node, effects)

    def carry_out(self, node: Node, effects: Sequence[seam.Effect]) -> None:
        """Carry out the effects of a peer's machine."""
        clock, now_ms = node.clock, self.now_ms
        for effect in effects:
            if type(effect) is seam.Send:
                self._send(node, effect.to, effect.message)
            elif type(effect) is seam.SetTimer:
                at_ms = now_ms + clock.world_duration_ms(effect.after_ms)
                self._push(at_ms, node, seam.TimerFired(effect.timer))
            else:
                self._carry_out_rarer(node, effect)

    def _send(self, node: Node, to: Contact, message: Message) -> None:
        self.sent[type(message)] += 1
        receiver = self._by_peer.get(to.peer)
        for observer in self._observers:
            observer.sent(self.now_ms, node, to, receiver, message)
        if receiver is None or receiver.machine is None:
            self._drop(node, to.peer, message, told=receiver is None or not receiver.silent)
            return
        events = m.copies_in(message) if self.network.event_us else 0
        arrivals = self.network.arrivals(node.index, receiver.index, self.now_ms, events)
        if not arrivals:
            told = self.network.is_known_cut(node.index, receiver.index)
            self._drop(node, to.peer, message, told)
            return
        received = seam.Received(node.contact, message)
        for at_ms in arrivals:
            if self.network.message_us:
                self.at(at_ms, partial(self._on_arrival, receiver, receiver.life, received))
            else:
                self._push(at_ms, receiver, received)

    def _on_arrival(self, node: Node, life: int, received: seam.Received) -> None:
        """Peers have a rate: the message waits until those before it have been handled."""
        if node.life == life:
            self._push(node.handles_at(self.now_ms, self.network.message_us), node, received)

    def _on_received(self, node: Node, fact: seam.Received) -> None:
        self.handled += 1
        message = fact.message
        if isinstance(message, m.PAYLOAD_KINDS):
            self.copies += m.copies_in(message)
            self.record.on_fact(self.now_ms, node.index, node.life, fact)
        for observer in self._observers:
            observer.handled(self.now_ms, node, fact.sender, message)

    def _drop(self, node: Node, to: PeerId, message: Message, told: bool) -> None:
        self.dropped += 1
        for observer in self._observers:
            observer.dropped(self.now_ms, node, to, message)
        if told:
            self._tell_loss(node, to, LOST_AFTER_MS)

    def _tell_loss(self, node: Node, lost: PeerId, after_ms: int) -> None:
        """Tell a peer later that another is lost; several failed sends are told once."""
        if node.begins_to_lose(lost):
            self._push(self.now_ms + after_ms, node, seam.PeerLost(lost))

    # --- the other effects --------------------------------------------------------------------

    def _carry_out_rarer(self, node: Node, effect: seam.Effect) -> None:
        if isinstance(effect, seam.Store | seam.Prune):
            done = node.use_disk(effect, self.now_ms)
            self._push(self.now_ms + self.store_ms, node, done)
        elif isinstance(effect, seam.Hold):
            node.hold(self._by_peer[effect.contact.peer])
        elif isinstance(effect, seam.Release):
            node.release(effect.peer)
        elif isinstance(effect, seam.Disconnect):
            self._on_disconnect(node, effect)
        elif isinstance(effect, seam.Trace) and self._writer is not None:
            self._trace(node, effect.kind, effect.fields)
        self.record.on_effect(self.now_ms, node.index, node.life, effect)

    def _on_disconnect(self, node: Node, effect: seam.Disconnect) -> None:
        peer = node.contact.peer
        other = self._by_peer[effect.peer]
        connected = effect.peer in node.holds or effect.peer in node.held_by
        node.release(effect.peer)
        if connected and not self.network.is_cut(node.index, other.index):
            self._tell_loss(other, peer, self.network.conditions.latency.typical_ms)

    def _trace(self, node: Node, kind: str, fields: Mapping[str, object]) -> None:
        assert self._writer is not None
        self._writer.write(node.contact.peer, self.now_ms * _NANOS, kind, fields)
