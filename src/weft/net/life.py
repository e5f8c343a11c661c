"""The life of a peer, for programs that watch it: `Peer.events`, `Peer.joined`.

    async for event in peer.events():
        if event.kind == "isolated":
            alarm("this peer has lost everybody")

It also warns in the log of what keeps a peer alone: an address to join by that does not answer,
another peer or another network at that address, an own address that others cannot dial.

The state machine knows whether the peer is isolated, and many messages may change that. So the
driver calls `look` after each step of the machine, but only while a program watches. A watcher that
does not read loses the oldest events; the next event says how many (`missed`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal
from weakref import WeakSet

from msgspec import Struct

from weft.ids import (
    BadId,
    Contact,
    PeerId,
    Topic,
    cid_text,
    contact_text,
    peer_short,
    peer_text,
    split_address,
)
from weft.net.congestion import Seat
from weft.net.errors import (
    ClosedError,
    Fault,
    IsolatedError,
    WrongPeerFault,
    seconds_in,
)

if TYPE_CHECKING:
    from weft.documents.descriptor import TopicVersion

log = logging.getLogger("weft.net")

WAITING_MAX = 1_024
"""guess: events that wait for a watcher; a swarm that restarts brings some hundreds."""
_JOIN_S = 10.0
"""guess: an address to join by that has not answered for so long is worth a line in the log; two
dials that time out."""

Kind = Literal["connected", "disconnected", "joined", "isolated", "topic_changed"]


class LifeEvent(Struct, frozen=True):
    """Something that happened to a peer.

    - ``connected``, ``disconnected``: a connection to another peer (`peer`, `address`);
    - ``joined``, ``isolated``: this peer knows others (again), or no other any more;
    - ``topic_changed``: the owners of `topic` changed it, `cid` is its newest version.
    """

    kind: Kind
    at: float  # seconds since 1970
    peer: str = ""
    address: str = ""
    topic: str = ""
    cid: str = ""
    missed: int = 0  # events before this one that the watcher did not read in time


class LifeEvents:
    """Events of a peer's life, in a bounded queue: an async iterator. The first one says whether
    the peer is isolated."""

    def __init__(self) -> None:
        self._waiting: deque[LifeEvent] = deque()
        self._missed = 0
        self._seat = Seat()
        self._closed = False

    def __aiter__(self) -> LifeEvents:
        return self

    async def __anext__(self) -> LifeEvent:
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            await self._seat.wait("two tasks read from one iterator; ask for events() twice")
        event, missed = self._waiting.popleft(), self._missed
        self._missed = 0
        if not missed:
            return event
        return LifeEvent(
            event.kind, event.at, event.peer, event.address, event.topic, event.cid, missed
        )

    def put(self, event: LifeEvent) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._waiting.popleft()
            self._missed += 1
        self._waiting.append(event)
        self._seat.wake()

    def end(self) -> None:
        """The peer has closed; what waits can still be read."""
        self._closed = True
        self._seat.wake()


class Life:
    """Tells the watchers of one peer, and the log, what happens to it."""

    def __init__(
        self,
        me: Contact,
        isolated: Callable[[], bool],
        newest: Callable[[Topic], TopicVersion | None],
    ) -> None:
        """`isolated`: whether the peer knows no other; `newest`: the version of a topic that its
        owners wrote last, as far as the peer knows."""
        self._me = me
        self._isolated = isolated
        self._newest = newest
        self._told: bool | None = None  # the `isolated` that watchers know; None: no watcher yet
        self._watchers: WeakSet[LifeEvents] = WeakSet()  # one that its program forgot goes away
        self.watched = False  # then `look` is wanted after each step of the machine
        self._patience: asyncio.TimerHandle | None = None
        self._given: dict[PeerId, Contact] = {}  # addresses to join by
        self._unanswered: dict[PeerId, Contact] = {}  # of these
        self._answered: set[PeerId] = set()  # of these, at least once
        self._why: dict[PeerId, str] = {}
        self._warned_of_loopback = not _is_loopback(me.address)
        self._closed = False

    # --- for the application --------------------------------------------------------------------

    def events(self) -> LifeEvents:
        if self._closed:
            raise ClosedError("this peer is closed")
        watcher = LifeEvents()
        self.look()
        self._watchers.add(watcher)
        self.watched = True
        self._told = self._isolated()
        watcher.put(LifeEvent("isolated" if self._told else "joined", time.time()))
        return watcher

    async def joined(self, seconds: float | None) -> None:
        """Wait until this peer knows another; `IsolatedError` says why it does not."""
        seconds = seconds_in(seconds)
        try:
            async with asyncio.timeout(seconds):
                async for event in self.events():
                    if event.kind == "joined":
                        return
        except TimeoutError:
            raise IsolatedError(f"no peer was met within {seconds:g} s{self._reasons()}") from None
        raise ClosedError("this peer was closed before it met another")

    @property
    def unanswered(self) -> dict[str, str]:
        """Addresses to join by that do not answer, and why as far as it is known."""
        return {
            contact_text(contact): self._why.get(peer, "no answer so far")
            for peer, contact in self._unanswered.items()
        }

    def alone(self) -> bool:
        """Whether there is no other peer, nor an address to join by that may answer (again)."""
        return self._isolated() and not self._given

    def _reasons(self) -> str:
        if not self._given:
            return ": no address to join by was given"
        gone = self._answered - self._unanswered.keys()
        found = self.unanswered | {
            contact_text(self._given[peer]): "answered before, and has gone"
            for peer in self._given
            if peer in gone
        }
        return ":" + "".join(f"\n{address}: {why}" for address, why in found.items())

    # --- for the driver -------------------------------------------------------------------------

    def joining(self, contacts: Iterable[Contact], patience_s: float = _JOIN_S) -> None:
        """The peer enters the network by these contacts; the log names those that have not answered
        after `patience_s`."""
        entries = {one.peer: one for one in contacts if one.peer != self._me.peer}
        self._given |= entries
        self._unanswered |= entries
        for contact in entries.values():
            self._look_at_address(contact)
        if entries:
            if self._patience is not None:
                self._patience.cancel()
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(patience_s, self._warn_of_silence, patience_s)

    def connected(self, contact: Contact) -> None:
        log.info("connected to %s at %s", peer_short(contact.peer), contact.address)
        if self._unanswered.pop(contact.peer, None) is not None:
            self._answered.add(contact.peer)
        self._look_at_address(contact)
        self._tell("connected", peer=peer_text(contact.peer), address=contact.address)

    def disconnected(self, peer: PeerId) -> None:
        log.info("disconnected from %s", peer_short(peer))
        self._tell("disconnected", peer=peer_text(peer))

    def unreachable(self, peer: PeerId, fault: Fault | None, reason: str) -> None:
        """A dial failed."""
        contact = self._given.get(peer)
        if contact is None:
            return
        self._unanswered[peer] = contact  # perhaps again
        known, self._why[peer] = self._why.get(peer), reason
        if isinstance(fault, WrongPeerFault) and known != reason:
            log.warning("cannot join by %s: %s", contact_text(contact), reason)

    def stored(self, version: TopicVersion) -> None:
        """A version of a topic is in the store now: the newest, or an older one."""
        newest = self._newest(version.name)
        if newest is not None and newest.cid == version.cid:
            self._tell("topic_changed", topic=version.name, cid=cid_text(version.cid))

    def close(self) -> None:
        self._closed = True
        if self._patience is not None:
            self._patience.cancel()
        for watcher in list(self._watchers):
            watcher.end()

    # --- looking --------------------------------------------------------------------------------

    def look(self) -> None:
        """Tell watchers if the machine's last step has made the peer isolated, or ended that."""
        self.watched = bool(self._watchers)
        isolated = self._isolated()
        if self.watched and isolated != self._told:
            self._told = isolated
            self._tell("isolated" if isolated else "joined")

    def _tell(
        self, kind: Kind, peer: str = "", address: str = "", topic: str = "", cid: str = ""
    ) -> None:
        if self._watchers:
            event = LifeEvent(kind, time.time(), peer, address, topic, cid)
            for watcher in list(self._watchers):
                watcher.put(event)

    def _warn_of_silence(self, seconds: float) -> None:
        for address, why in self.unanswered.items():
            log.warning("%s, to join by, has not answered for %g s: %s", address, seconds, why)

    def _look_at_address(self, other: Contact) -> None:
        """Warn once if this peer tells others a loopback address, and another machine is met."""
        if self._warned_of_loopback or not other.address or _is_loopback(other.address):
            return
        self._warned_of_loopback = True
        log.warning(
            "this peer tells others to reach it at %s, which works on this machine alone, but %s "
            "is on another machine: listen on an address that others can dial, or announce one",
            self._me.address,
            other.address,
        )


def _is_loopback(address: str) -> bool:
    try:
        host = split_address(address)[0]
    except BadId:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
