"""Getting into a tree, and back into it after the parent is lost.

First whoever is known is asked for a place: after a loss the levels kept above the lost parent,
then the rendezvous. With nobody left, a lookup towards the topic's id asks each peer on the way
whether it is a member. If none is, the closest peers are the rendezvous; a joiner that is among
them becomes one itself. A member without room names children of its own instead.

Invariants: a join asks at most `_ASKED_MAX` peers and makes at most `_LOOKUPS_MAX` lookups; then
the next cycle begins another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from weft.ids import Contact, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.table import Entry
from weft.protocol.messages_pulsar import TreeJoin, TreeJoinReply, TreeLeave
from weft.protocol.pulsar.branch import Branch
from weft.protocol.pulsar.finding import find_member
from weft.rules.multicast import is_rendezvous

TIMER = "pulsar.join"
_ASKED_MAX = 32
"""guess"""
_LOOKUPS_MAX = 3
"""guess"""


class Places(Protocol):
    """Who is told how a join ended."""

    def attached(self, branch: Branch, parent: Contact, reply: TreeJoinReply) -> None: ...

    def become_root(self, branch: Branch, others: list[Contact]) -> None: ...


class _Attempt:
    """A join under way."""

    __slots__ = ("asked", "candidates", "lookups", "serial", "silent", "waiting")

    def __init__(self, candidates: Iterable[tuple[Contact, bool]]) -> None:
        self.candidates = deque(candidates)  # and whether each is asked as a rendezvous
        self.asked: dict[PeerId, None] = {}
        self.silent: dict[PeerId, Contact] = {}  # of these, who has not answered
        self.waiting: Contact | None = None  # for this one's answer
        self.serial = 0
        self.lookups = 0


class Joining:
    """The joins of one peer, at most one per tree."""

    def __init__(
        self, ctx: Context, dht: Kademlia, trees: dict[Topic, Branch], places: Places
    ) -> None:
        self._ctx = ctx
        self._dht = dht
        self._trees = trees
        self._places = places
        self._going: dict[Topic, _Attempt] = {}

    def is_going(self, topic: Topic) -> bool:
        return topic in self._going

    def has_asked(self, topic: Topic, peer: PeerId) -> bool:
        attempt = self._going.get(topic)
        return attempt is not None and peer in attempt.asked

    def start(self, branch: Branch, known: Iterable[Contact] = (), root: bool = False) -> None:
        """Look for a parent, first among those known; `root`: they are asked as rendezvous."""
        attempt = _Attempt((one, root) for one in known)
        self._going[branch.topic] = attempt
        self._next(branch, attempt)

    def stop(self, topic: Topic) -> None:
        self._going.pop(topic, None)

    def confirm(self, branch: Branch, parent: Contact) -> None:
        """Ask the parent for the place that one has: a parent that has it so answers with what it
        tells its children, and one that has forgotten takes this peer in again."""
        self._ctx.counters["trees_confirmed"] += 1
        self._ctx.send(parent, TreeJoin(branch.topic, branch.subscribed, False, branch.fresh))

    # --- asking -----------------------------------------------------------------------------------

    def _next(self, branch: Branch, attempt: _Attempt) -> None:
        ctx = self._ctx
        attempt.waiting = None
        attempt.serial = 0
        while attempt.candidates and len(attempt.asked) < _ASKED_MAX:
            contact, root = attempt.candidates.popleft()
            peer = contact.peer
            if peer == ctx.me.peer or peer in attempt.asked or peer in branch.children:
                continue
            attempt.asked[peer] = None
            attempt.silent[peer] = contact
            attempt.waiting = contact
            attempt.serial = ctx.next_serial()
            ctx.send(contact, TreeJoin(branch.topic, branch.subscribed, root, branch.fresh))
            timeout_ms = ctx.config.pulsar.reply_timeout_ms
            ctx.set_timer(timeout_ms, TIMER, branch.topic, attempt.serial)
            return
        self._look_up(branch, attempt)

    def _look_up(self, branch: Branch, attempt: _Attempt) -> None:
        attempt.lookups += 1
        if attempt.lookups > _LOOKUPS_MAX or len(attempt.asked) >= _ASKED_MAX:
            del self._going[branch.topic]
            return

        def found(member: Contact | None, closest: list[Entry]) -> None:
            if self._going.get(branch.topic) is attempt:
                self._on_found(branch, attempt, member, closest)

        without = {**attempt.asked, **dict.fromkeys(branch.children)}
        if not find_member(self._dht, branch.topic, without, found):
            self.stop(branch.topic)

    def _on_found(
        self, branch: Branch, attempt: _Attempt, member: Contact | None, closest: list[Entry]
    ) -> None:
        if member is not None:
            attempt.candidates.append((member, False))
            self._next(branch, attempt)
            return
        count = self._ctx.config.pulsar.rendezvous
        own = self._dht.home.table.own
        if is_rendezvous(own, [entry.key for entry in closest], branch.location, count):
            self._places.become_root(branch, [entry.contact for entry in closest[: count - 1]])
            return
        attempt.candidates.extend((entry.contact, True) for entry in closest[:count])
        self._next(branch, attempt)

    # --- what comes of it -------------------------------------------------------------------------

    def on_reply(self, sender: Contact, message: TreeJoinReply) -> None:
        branch = self._trees.get(message.topic)
        attempt = self._going.get(message.topic)
        if branch is not None and branch.parent is not None and branch.parent.peer == sender.peer:
            return  # said twice
        if branch is None or attempt is None or sender.peer not in attempt.asked:
            if message.accepted:
                self._ctx.send(sender, TreeLeave(message.topic))  # too late, or never asked
            return
        attempt.silent.pop(sender.peer, None)
        if message.accepted:
            self.stop(message.topic)
            for other in attempt.silent.values():  # its answer may be lost, and it a parent as well
                self._ctx.send(other, TreeLeave(message.topic))
            self._places.attached(branch, sender, message)
        elif attempt.waiting is not None and attempt.waiting.peer == sender.peer:
            attempt.candidates.extendleft((one, False) for one in reversed(message.instead))
            self._next(branch, attempt)

    def on_timer(self, topic: Topic, serial: int) -> None:
        branch, attempt = self._trees.get(topic), self._going.get(topic)
        if branch is not None and attempt is not None and attempt.serial == serial:
            self._next(branch, attempt)

    def on_peer_lost(self, peer: PeerId) -> None:
        for topic, attempt in list(self._going.items()):
            branch, waiting = self._trees.get(topic), attempt.waiting
            if branch is not None and waiting is not None and waiting.peer == peer:
                self._next(branch, attempt)
