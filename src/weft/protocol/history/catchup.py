"""Catching up: reading a stream in its order from another member.

For whoever has nothing yet and wants the past, and for whoever was away for so long that walking
back event by event would take too many steps. Pages come in the stream's order, parents before
children, so each event can be delivered as it comes. A member that falls silent or lacks the event
to read on from is replaced by another; reading goes on where the last page ended.

A long branch that forked off far below (publishers that were cut off from each other) is found by
reading from some way below its lowest event that is known, and from twice as far below as long as
the first page still lacks parents: then everything on the way up comes after its parents. That the
first page lacks none is no proof, for a branch may have ended far below where it is joined. So if
on the way up more lacks parents than may wait, reading begins anew still further down; whoever has
begun at the very bottom goes on to the end. So every reading ends.

A member that has pruned what was asked for is not believed at once: others are asked whether they
have more, and only if none has, the first one's part is read.

A member that misleads is left as well: each page must lie above the one before and hold something
that belongs to the stream, so that no one can be kept reading for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.documents.dag import Position
from weft.ids import CID_BYTES, Cid, Contact, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.messages_history import Head, PageReply, PageRequest
from weft.protocol.seam import Millis
from weft.store.reader import Since

TIMEOUT = "history.page"
REACH = 256
"""guess: how far below a branch's lowest known event the search for its fork begins."""
_LOWEST = Cid(bytes(CID_BYTES))
"""Sorts before every CID: the beginning of a height."""
_ASKED_AGAIN_MAX = 2
"""guess: then the source is left."""
_SOURCES_MAX = 8
"""guess: members tried for one reading."""


def bottom_of(height: int) -> Position:
    """Before all events of this height."""
    return Position(max(0, height), _LOWEST)


class CatchUp:
    """Reading one topic's stream, from one member at a time."""

    __slots__ = (
        "_after",
        "_asked_again",
        "_asked_at",
        "_began",
        "_ctx",
        "_failed",
        "_members",
        "_pruned",
        "_reach",
        "_request",
        "_round_trip",
        "_since",
        "_source",
        "_topic",
        "failed_since",
        "searching",
        "whole",
    )

    def __init__(
        self, ctx: Context, topic: Topic, members: Callable[[Topic], list[Contact]]
    ) -> None:
        self._ctx = ctx
        self._topic = topic
        self._members = members
        self._since: Since = "beginning"
        self._after: Position | None = None
        self._source: Contact | None = None
        self._request = 0
        self._failed: dict[PeerId, None] = {}
        self._asked_at: Millis = 0
        self._asked_again = 0
        self._round_trip: Millis | None = None  # of the last pages, smoothed
        self._pruned: Contact | None = None  # the first that has pruned what is asked for
        self._began: int | None = None  # at which height this reading did, if that can be told
        self._reach = 0  # how far below what waited it began; 0 where it began elsewhere
        self.searching = False  # for a fork: the page to come shows whether it is low enough
        # What nobody could be asked for; of what lies below a branch, the branch itself tells.
        self.failed_since: Since | None = None
        self.whole = True  # whether all that comes before a page's events came, or is to be fetched

    @property
    def reading(self) -> bool:
        return self._source is not None

    def start(self, source: Contact | None, since: Since) -> None:
        """Read from `source`, or from any member; no effect while reading already."""
        if not self.reading:
            self.searching, self._reach = False, 0
            self._start(source, since, None)

    def start_below(self, source: Contact | None, height: int) -> None:
        """Look for where a branch forked off, below this height, and read from there on."""
        if not self.reading:
            self.searching, self._reach = True, REACH
            self._start(source, "beginning", bottom_of(height - REACH))

    def go_lower(self, lowest: int) -> bool:
        """Too much lacks parents: begin further down, below the lowest event that waits; False
        where nothing is further down, or what comes before was not asked for."""
        assert self._source is not None
        if not self.whole or self._began == 0:
            return False
        climbed = lowest - self._began if self._began is not None else 0
        self._reach = max(REACH, 2 * self._reach, 2 * climbed)
        self.searching = True
        self._since, self._after = "beginning", bottom_of(lowest - self._reach)
        self._began = self._after.height
        self._ask(self._source)
        return True

    def _start(self, source: Contact | None, since: Since, after: Position | None) -> None:
        self._since, self._after = since, after
        if after is not None:
            self._began = after.height
        else:
            self._began = 0 if since == "beginning" else None
        self.whole = since == "beginning" or isinstance(since, tuple)
        self._failed.clear()
        self._pruned = None
        self.failed_since = None
        self._ask_one(source)

    def stop(self) -> None:
        self._source = None
        self._request = 0

    def _ask_one(self, preferred: Contact | None) -> None:
        """Ask the preferred member, or one that has not failed."""
        contact = preferred
        if contact is None:
            left = [c for c in self._members(self._topic) if c.peer not in self._failed]
            contact = left[0] if left and len(self._failed) < _SOURCES_MAX else None
        if contact is None and self._pruned is not None:  # nobody has more than that
            contact, self.whole = self._pruned, False
        self._source = contact
        if contact is not None:
            self._ask(contact)
        else:
            self.failed_since = self._since if self._reach == 0 else None

    def _ask(self, contact: Contact, asked_again: int = 0) -> None:
        """Ask for the next page. Whoever is asked again gets the same number: what was only slow
        still counts."""
        ctx, since, after = self._ctx, self._since, self._after
        if not asked_again:
            self._request = ctx.next_serial()
        request = PageRequest(
            self._topic,
            self._request,
            Cid(since) if isinstance(since, bytes) else None,
            since if isinstance(since, int) else None,
            list(since) if isinstance(since, tuple) else [],
            Head(after.cid, after.height) if after is not None else None,
        )
        ctx.send(contact, request)
        self._asked_at = ctx.now
        self._asked_again = asked_again
        ctx.set_timer(self._patience() << asked_again, TIMEOUT, self._topic, self._request)

    def _patience(self) -> Millis:
        """How long an answer may take: some times what the last ones took."""
        longest = self._ctx.config.history.request_timeout_ms
        return longest if self._round_trip is None else min(longest, 200 + 4 * self._round_trip)

    # --- answers ----------------------------------------------------------------------------------

    def expects(self, sender: Contact, message: PageReply) -> bool:
        source = self._source
        return (
            source is not None and source.peer == sender.peer and message.request == self._request
        )

    def believes(self, message: PageReply) -> bool:
        """Whether a page may be taken in; if not, somebody else is asked."""
        assert self._source is not None
        took = self._ctx.now - self._asked_at
        before = self._round_trip
        self._round_trip = took if before is None else (7 * before + took) // 8
        if not message.held:
            self._fail()
            return False
        if message.pruned and self.whole and self._after is None:
            if self._pruned is None:
                self._pruned = self._source
            self._fail()
            return False
        if not self._goes_on(message.next):
            self._fail()
            return False
        return True

    def _goes_on(self, following: Head | None) -> bool:
        """Whether the next page would lie above this one."""
        if following is None or self._after is None:
            return True
        return Position(following.height, following.cid) > self._after

    def on_page(self, message: PageReply, useful: bool) -> bool:
        """Go on after a page that was taken in; True when the end is reached. `useful`: something
        in it belongs to the stream."""
        assert self._source is not None
        if message.next is None:
            self.stop()
            return True
        if not useful:
            self._fail()
            return False
        self._after = Position(message.next.height, message.next.cid)
        self._ask(self._source)
        return False

    def on_timeout(self, serial: int) -> None:
        """Question or answer may have got lost: ask once or twice more, then somebody else."""
        source = self._source
        if source is None or serial != self._request:
            return
        if self._ctx.now < self._asked_at + self._patience():
            return  # the timer of an earlier attempt
        if self._asked_again < _ASKED_AGAIN_MAX:
            self._ask(source, self._asked_again + 1)
        else:
            self._fail()

    def on_peer_lost(self, peer: PeerId) -> None:
        if self._source is not None and self._source.peer == peer:
            self._fail()

    def _fail(self) -> None:
        """This member does not answer, or cannot: try another one."""
        assert self._source is not None
        self._failed[self._source.peer] = None
        if self._pruned is not None and self._source.peer == self._pruned.peer and not self.whole:
            self._pruned = None
        self._ctx.counters["history_sources_failed"] += 1
        self._ask_one(None)
