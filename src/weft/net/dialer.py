"""Making connections: a few at a time, and after a failure only when some time has passed.

A peer that cannot be reached is remembered for a while (doubling with every failure), so that a
view full of dead peers costs one attempt each and not one per message. A new address for the same
peer is tried at once.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

from weft.bounded import BoundedDict
from weft.ids import Contact, PeerId
from weft.net.connection import Connection
from weft.net.errors import DialFault, Fault
from weft.net.timers import now_ms

_REMEMBERED_MAX = 1_024  # guess: unreachable peers remembered


class Backoff:
    """Remembers the contacts that must not be dialled again yet, after failed dials."""

    def __init__(self, first_ms: int, most_ms: int) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        # By peer: the address, until when it is not dialled again, and how long that is.
        self._failed: BoundedDict[PeerId, tuple[str, int, int]] = BoundedDict(_REMEMBERED_MAX)

    def blocks(self, contact: Contact) -> bool:
        failed = self._failed.get(contact.peer)
        return failed is not None and failed[0] == contact.address and now_ms() < failed[1]

    def note(self, contact: Contact, reached: bool) -> None:
        """A connection with the contact was made, by either side, or could not be made."""
        before = self._failed.pop(contact.peer, None)
        if reached:
            return
        delay = self._first_ms
        if before is not None and before[0] == contact.address:
            delay = min(2 * before[2], self._most_ms)
        self._failed[contact.peer] = contact.address, now_ms() + delay, delay


class Slots:
    """How many connections are being made in this event loop, and which dials wait for a turn. All
    peers of the loop share it: a handshake costs a millisecond, and a thousand at once would delay
    everything else in the loop.

    Dials of the second rank have half of the turns at most, and wait for all others: anybody may
    make this peer dial made-up peers, and each of them takes ten seconds to fail."""

    def __init__(self) -> None:
        self._used = 0
        self._second = 0  # of these, by dials of the second rank
        self._waiting: deque[Dial] = deque()
        self._waiting_second: deque[tuple[Dial, int]] = deque()

    def enter(self, dial: Dial, most: int) -> None:
        if self._used < most and (not dial.second or self._has_second(most)):
            self._begin(dial)
        elif dial.second:
            self._waiting_second.append((dial, most))
        else:
            self._waiting.append(dial)

    def leave(self, dial: Dial) -> None:
        """A dial that had begun is over: the next one's turn."""
        self._used -= 1
        self._second -= dial.second
        following = _first(self._waiting)
        if following is not None:
            self._begin(following)
            return
        while self._waiting_second and self._has_second(self._waiting_second[0][1]):
            late, _ = self._waiting_second.popleft()
            if not late.over:
                self._begin(late)
                return

    def _has_second(self, most: int) -> bool:
        return self._second < max(1, most // 2)

    def _begin(self, dial: Dial) -> None:
        self._used += 1
        self._second += dial.second
        dial.begin()


def _first(waiting: deque[Dial]) -> Dial | None:
    """The first dial that is still wanted."""
    while waiting:
        dial = waiting.popleft()
        if not dial.over:
            return dial
    return None


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Slots] = WeakKeyDictionary()


def _shared_slots() -> Slots:
    return _of_loop.setdefault(asyncio.get_running_loop(), Slots())


class Dial:
    """A connection in the making: waiting for a slot, connecting TCP, or greeting."""

    __slots__ = ("_begun", "_connection", "_failed", "_host", "_port", "_task", "over", "second")

    def __init__(
        self,
        connection: Connection,
        host: str,
        port: int,
        second: bool,
        begun: Callable[[Connection], None],
        failed: Callable[[Connection, Fault], None],
    ) -> None:
        self.second = second  # of the second rank
        self._connection = connection
        self._host = host
        self._port = port
        self._begun = begun
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self.over = False

    @property
    def begun(self) -> bool:
        return self._task is not None

    def begin(self) -> None:
        """Its turn has come, and its time runs."""
        self._connection.restart_clock()
        self._task = asyncio.get_running_loop().create_task(self._connect())
        self._begun(self._connection)

    def end(self) -> None:
        self.over = True
        if self._task is not None and not self._connection.connected:
            self._task.cancel()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self._connection, self._host, self._port)
        except (OSError, UnicodeError, ValueError) as error:
            text = f"cannot reach {self._host} port {self._port}: {_reason(error)}"
            self._failed(self._connection, DialFault(text))


def _reason(error: Exception) -> str:
    """Why a dial failed; asyncio's own text of a refused connection repeats the address."""
    number = error.errno if isinstance(error, OSError) else None
    if number is not None and number > 0:
        return os.strerror(number)
    return str(getattr(error, "strerror", None) or error)  # a name that cannot be looked up, say


class Dialer:
    """Makes connections and forgets them once they are open; it makes at most `most` at once."""

    def __init__(
        self,
        most: int,
        begun: Callable[[Connection], None],
        failed: Callable[[Connection, Fault], None],
    ) -> None:
        self._most = most
        self._begun = begun
        self._failed = failed
        self._slots = _shared_slots()
        self._dials: dict[Connection, Dial] = {}

    def __len__(self) -> int:
        return len(self._dials)

    @property
    def second(self) -> int:
        """How many dials of the second rank are under way or wait."""
        return sum(dial.second for dial in self._dials.values())

    def start(self, connection: Connection, host: str, port: int, second: bool) -> None:
        """Dial now, or when the connection's turn comes; `second`: after all others."""
        connection.stop_clock()  # until its turn comes
        dial = Dial(connection, host, port, second, self._begun, self._failed)
        self._dials[connection] = dial
        self._slots.enter(dial, self._most)

    def has_begun(self, connection: Connection) -> bool:
        """False while it waits for its turn."""
        dial = self._dials.get(connection)
        return dial is not None and dial.begun

    def done(self, connection: Connection) -> None:
        """The connection is open, or given up."""
        dial = self._dials.pop(connection, None)
        if dial is not None:
            dial.end()
            if dial.begun:
                self._slots.leave(dial)

    def close(self) -> None:
        for connection in list(self._dials):
            self.done(connection)
