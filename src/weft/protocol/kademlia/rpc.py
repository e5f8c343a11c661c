"""The DHT's requests: what peers say to each other, and how a request waits for its answer.

`space` in a message names the DHT: its metric and how locations follow from a role and a peer
(`table.Space`). `role` names one of the receiver's locations in it, `sender_role` the one that the
sender speaks from; in the plain space both are empty. A location is never told: a peer that hears
of a neighbour computes its location from the role and the peer id, so that no peer can claim a
place that is not its own. `request` is chosen by the asker and comes back in the answer.

A request that is not answered soon is *slow*: the asker may ask others meanwhile, and the request
is sent again at the same interval until time is up (unless it is large). A request that is not
answered at all, or whose receiver is lost, has failed.

Most answers come at once, so requests have one timer in common, set for the first of those that
still wait.

Invariants: every request ends once, with its answer or with None. An answer counts only if it
comes from the peer that was asked and is of the kind that the asker waits for. The asker names
that kind, so layers above the DHT wait for messages of their own by the same means.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Annotated, ClassVar, Literal, Protocol, TypeAlias, TypeVar, Union

from msgspec import Meta, Struct

from weft.ids import GENERAL, Contact, PeerId, WireTopic
from weft.protocol.context import Context
from weft.protocol.seam import Millis
from weft.protocol.wire import Counter, Message

# --- messages -------------------------------------------------------------------------------------

LOCATION_BYTES_MAX = 64
"""A location in the plain space has 32 bytes, hash(topic) ∘ hash(peer) has 64."""
KEY_BYTES_MAX = 65
"""guess: a kind byte and the longest usual digest."""
VALUE_BYTES_MAX = 2 << 20
"""guess: an event of the largest size and what is around it; two of them fit a frame."""
NEIGHBOURS_MAX = 64
"""guess: neighbours in one answer; k is at most this."""

Location: TypeAlias = Annotated[bytes, Meta(max_length=LOCATION_BYTES_MAX)]
RecordKey: TypeAlias = Annotated[bytes, Meta(max_length=KEY_BYTES_MAX)]
Value: TypeAlias = Annotated[bytes, Meta(max_length=VALUE_BYTES_MAX)]
SpaceNumber: TypeAlias = Annotated[int, Meta(ge=0, le=255)]
Want: TypeAlias = Literal[0, 1, 2]

NODES: Want = 0
VALUE: Want = 1
PROVIDERS: Want = 2


class Neighbour(Struct, frozen=True, array_like=True, gc=False):
    """A peer and the role it has there; its location follows from both."""

    contact: Contact
    role: WireTopic = GENERAL


class FindRequest(Message, frozen=True, tag=40):
    """Which peers closest to the target do you know? And do you hold what `want` asks for?"""

    asks: ClassVar[bool] = True

    request: Counter
    space: SpaceNumber
    role: WireTopic
    sender_role: WireTopic
    target: Location
    want: Annotated[int, Meta(ge=0, le=2)] = NODES
    key: RecordKey = b""
    most: Annotated[int, Meta(ge=1, le=NEIGHBOURS_MAX)] = 20  # neighbours in the answer


class FindReply(Message, frozen=True, tag=41):
    """The closest neighbours of the asked peer, and what it holds."""

    request: Counter
    member: bool  # False: the asked peer is not (any more) at the location it was asked at
    closer: Annotated[list[Neighbour], Meta(max_length=NEIGHBOURS_MAX)] = []
    found: bool = False  # there is a value
    value: Value = b""
    providers: Annotated[list[Contact], Meta(max_length=NEIGHBOURS_MAX)] = []


class StoreValue(Message, frozen=True, tag=42):
    """Hold this value for others, for `life_ms` at most."""

    asks: ClassVar[bool] = True

    request: Counter
    key: RecordKey
    value: Value
    life_ms: Counter


class AddProvider(Message, frozen=True, tag=43):
    """The sender has what `key` names; no peer can say so of another."""

    asks: ClassVar[bool] = True

    request: Counter
    key: RecordKey


class StoreReply(Message, frozen=True, tag=44):
    """Whether the asked peer holds the value or provider record now."""

    request: Counter
    accepted: bool


class Probe(Message, frozen=True, tag=45):
    """Are you still there, at this location?"""

    asks: ClassVar[bool] = True

    request: Counter
    space: SpaceNumber
    role: WireTopic


class ProbeReply(Message, frozen=True, tag=46):
    """Whether the asked peer is at the location."""

    request: Counter
    member: bool


DhtMessage: TypeAlias = Union[
    FindRequest, FindReply, StoreValue, AddProvider, StoreReply, Probe, ProbeReply
]

# --- timers ---------------------------------------------------------------------------------------

TIMER = "dht.call"

# --- state ----------------------------------------------------------------------------------------

_LARGE_BYTES = 16 << 10
"""guess: larger values are not sent twice."""


class Reply(Protocol):
    """An answer carries the number of its request."""

    @property
    def request(self) -> int: ...


R = TypeVar("R", bound=Reply)


class _Waiting:
    """One request on its way."""

    __slots__ = ("contact", "ends_ms", "expects", "fail", "is_slow", "message", "slow", "take")

    def __init__(
        self,
        contact: Contact,
        message: Message,
        ends_ms: Millis,
        expects: type[R],
        then: Callable[[R | None], None],
        slow: Callable[[], None] | None,
    ) -> None:
        self.contact = contact
        self.message = message
        self.ends_ms = ends_ms
        self.slow = slow
        self.is_slow = False
        self.expects: type = expects

        def take(reply: Reply) -> None:
            assert isinstance(reply, expects)
            then(reply)

        self.take = take
        self.fail: Callable[[], None] = lambda: then(None)


class Calls:
    """All requests of this peer on their way."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._waiting: dict[int, _Waiting] = {}
        self._due: list[tuple[Millis, int]] = []  # a heap: when to look at a request, its number
        self._armed_for: Millis | None = None  # when the timer fires that counts
        self._timer = 0  # its serial
        self._by_peer: dict[PeerId, dict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(
        self,
        contact: Contact,
        make: Callable[[int], Message],
        expects: type[R],
        then: Callable[[R | None], None],
        slow: Callable[[], None] | None = None,
    ) -> None:
        """Send the message that `make` makes for a request's number. `then` gets the answer, which
        must be of the kind `expects`, or None; `slow` is called if the answer is late."""
        ctx = self._ctx
        number = ctx.next_serial()
        message = make(number)
        ends_ms = ctx.now + ctx.config.dht.timeout_ms
        self._waiting[number] = _Waiting(contact, message, ends_ms, expects, then, slow)
        self._by_peer.setdefault(contact.peer, {})[number] = None
        ctx.counters["dht_requests"] += 1
        ctx.send(contact, message)
        self._look_at(number, ctx.config.dht.slow_ms)

    # --- handlers ---------------------------------------------------------------------------------

    def on_reply(self, sender: Contact, reply: Reply) -> None:
        waiting = self._waiting.get(reply.request)
        if (
            waiting is None
            or waiting.contact.peer != sender.peer
            or type(reply) is not waiting.expects
        ):
            return
        self._forget(reply.request)
        waiting.take(reply)

    def on_timer(self, serial: int) -> None:
        if serial != self._timer:
            return
        self._armed_for = None
        now, due = self._ctx.now, self._due
        while due and due[0][0] <= now:
            self._on_late(heappop(due)[1])
        while due and due[0][1] not in self._waiting:
            heappop(due)
        if due and self._armed_for is None:
            self._arm(due[0][0])

    def _on_late(self, number: int) -> None:
        """A request has not been answered in time: repeat it, or give it up."""
        waiting = self._waiting.get(number)
        if waiting is None:
            return
        ctx = self._ctx
        left_ms = waiting.ends_ms - ctx.now
        if left_ms <= 0:
            self._fail(number)
            return
        if not _is_large(waiting.message):
            ctx.send(waiting.contact, waiting.message)
        self._look_at(number, min(left_ms, ctx.config.dht.slow_ms))
        if not waiting.is_slow:
            waiting.is_slow = True
            if waiting.slow is not None:
                waiting.slow()

    def on_peer_lost(self, peer: PeerId) -> None:
        for number in list(self._by_peer.get(peer, ())):
            self._fail(number)

    def close(self) -> None:
        """The peer leaves: no request is waited for any more."""
        self._waiting.clear()
        self._by_peer.clear()
        self._due.clear()

    # --- helpers ----------------------------------------------------------------------------------

    def _look_at(self, number: int, after_ms: Millis) -> None:
        """Have a request looked at after `after_ms`."""
        at_ms = self._ctx.now + after_ms
        heappush(self._due, (at_ms, number))
        if self._armed_for is None or at_ms < self._armed_for:
            self._arm(at_ms)

    def _arm(self, at_ms: Millis) -> None:
        self._armed_for = at_ms
        self._timer = self._ctx.next_serial()
        self._ctx.set_timer(at_ms - self._ctx.now, TIMER, GENERAL, self._timer)

    def _fail(self, number: int) -> None:
        waiting = self._forget(number)
        if waiting is not None:
            self._ctx.counters["dht_requests_failed"] += 1
            waiting.fail()

    def _forget(self, number: int) -> _Waiting | None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            numbers = self._by_peer[waiting.contact.peer]
            del numbers[number]
            if not numbers:
                del self._by_peer[waiting.contact.peer]
        return waiting


def _is_large(message: Message) -> bool:
    return isinstance(message, StoreValue) and len(message.value) > _LARGE_BYTES
