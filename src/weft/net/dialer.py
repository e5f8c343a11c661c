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
    everything else in the loop."""

    def __init__(self) -> None:
        self._used = 0
        self._waiting: deque[Dial] = deque()

    def enter(self, dial: Dial, most: int) -> None:
        if self._used < most:
            self._used += 1
            dial.begin()
        else:
            self._waiting.append(dial)

    def leave(self) -> None:
        while self._waiting:
            dial = self._waiting.popleft()
            if not dial.over:
                dial.begin()
                return
        self._used -= 1


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Slots] = WeakKeyDictionary()


def _shared_slots() -> Slots:
    return _of_loop.setdefault(asyncio.get_running_loop(), Slots())


class Dial:
    """A connection in the making: waiting for a slot, connecting TCP, or greeting."""

    __slots__ = ("_begun", "_connection", "_failed", "_host", "_port", "_task", "over")

    def __init__(
        self,
        connection: Connection,
        host: str,
        port: int,
        begun: Callable[[Connection], None],
        failed: Callable[[Connection, Fault], None],
    ) -> None:
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

    def start(self, connection: Connection, host: str, port: int) -> None:
        """Dial now, or when the connection's turn comes."""
        connection.stop_clock()  # until its turn comes
        dial = self._dials[connection] = Dial(connection, host, port, self._begun, self._failed)
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
                self._slots.leave()

    def close(self) -> None:
        for connection in list(self._dials):
            self.done(connection)
