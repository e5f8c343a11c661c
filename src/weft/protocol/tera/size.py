"""How many members a topic has: counted while they fit a view, else by Sample & Collide.

Samples are the ends of random walks through the topic's overlay (see `rules/collide.py`). A
walk of a few steps over Cyclon views ends near-uniformly, since every peer has the same
out-degree and in-degrees are balanced. One member's estimate serves all: view exchanges carry
the freshest one, and a member starts a run of its own only with a chance of one in the group's
size per cycle. The result of a run is averaged into the estimate known before (`shared_size`):
since all members advertise by the same number, nothing else evens out the error of a single run.
A member that walks of another member's run have passed lately starts none, since the result of that
run will reach it.

Deviation: what another member tells counts only if it fits what this one sees itself, by the
overlap of its view with those that it is told in replies (`sizes_possible` in `rules/collide.py`).
The freshest estimate goes to all members, so that one false number of a stranger would be
advertised by a whole topic within two minutes, and an access point table takes in no topic of four
billion members. A median of what several members tell is no way out: one member measures for all,
so a true estimate begins with one, too. A liar can still have sizes wrong by the factor that the
rule allows, and by what chance adds to it: four to seven, measured.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated, ClassVar

from msgspec import Meta, Struct, field

from weft.ids import Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context
from weft.protocol.membership import MEMBERS_MAX, Cyclon, Descriptor
from weft.protocol.seam import Millis
from weft.protocol.settings import Settings, require, require_positive
from weft.protocol.wire import Counter, Message
from weft.rules.collide import (
    members_at_first,
    most_likely_size,
    shared_size,
    sizes_possible,
    starts_run,
    to_advertise,
)
from weft.rules.draw import stream_of


class SampleWalk(Message, frozen=True, tag=8):
    """A random walk whose last peer is a sample of the topic's members."""

    topic: WireTopic
    origin: Contact
    round: Counter
    steps: Annotated[int, Meta(ge=0, le=64)]


class SampleReply(Message, frozen=True, tag=9):
    """Sent to the origin by the peer at the end of the walk, which is the sample."""

    reports: ClassVar[bool] = True

    topic: WireTopic
    round: Counter


class Config(Settings):
    """Sample & Collide."""

    collisions: int = 10  # guess: relative error about 1/sqrt(l)
    walk_steps: int = 8  # measured: enough mixing steps for views of 20
    walks_at_once: int = 8  # guess: keeps a burst small
    fresh_ms: Millis = 300_000  # guess: an estimate is passed on for so long

    def __post_init__(self) -> None:
        require(1 <= self.walk_steps <= 64, "size.walk_steps must be 1 to 64")
        require_positive(self, "size")


_START = stream_of("size.start")
_GIVE_UP_CYCLES = 64
"""guess: cycles after which a run that has found too few repeats is given up."""
_HEEDED = 4
"""guess: a fourth of `fresh_ms` is how long the result of another's run is awaited after its walk
came by …"""
_HEEDED_UNTIL = 2
"""guess: … but in all no longer than so many times `fresh_ms`: a walk itself tells no size."""

_SHARED_MAX = 32
"""guess: once so many told entries were in the own view …"""
_PAIRS_MAX = 1 << 20
"""guess: … or so many pairs were looked at, both counts are halved, so that they follow the group.
"""
_EXCHANGES_LEAST = 2
"""guess: exchanges of full length by which an overlap says something."""


class _Run(Struct):
    """One run of Sample & Collide in progress."""

    number: int
    samples: int = 0
    repeats: int = 0
    seen: set[PeerId] = field(default_factory=set)
    out: int = 0  # walks on their way
    cycles: int = 0


class Size:
    """The size estimate of one topic at one member."""

    __slots__ = (
        *("_at", "_ctx", "_heeded", "_known", "_pairs"),
        *("_run", "_shared", "_topic", "_view", "_waited"),
    )

    def __init__(self, ctx: Context, topic: Topic, view: Cyclon) -> None:
        self._ctx = ctx
        self._topic = topic
        self._view = view
        self._known = 0
        self._at: Millis = ctx.now  # when the estimate was made; before the first: since when none
        self._heeded: Millis | None = None  # when a walk of another's run came by
        self._waited = 0  # cycles in which there was no estimate
        self._run: _Run | None = None
        self._pairs = 0  # of told entries and entries of the own view, over the latest replies
        self._shared = 0  # told entries that the own view held

    def estimate(self, links: int) -> int:
        """The best guess at the number of members, this peer included."""
        if self._fits_view():
            return 1 + max(len(self._view), links)
        least, most = self._possible()
        known = min(max(self._known, least), most) if self._known else 0
        return known if self._is_fresh() else max(known, len(self._view) + 1)

    def to_advertise(self, links: int) -> int:
        """The popularity to advertise: the same, scaled where it is an estimate, since access point
        tables use its inverse."""
        size = self.estimate(links)
        if self._fits_view() or not self._known:
            return size
        return to_advertise(size, self._ctx.config.size.collisions)

    def _fits_view(self) -> bool:
        return len(self._view) < self._ctx.config.cyclon.view_size - 1

    def _is_fresh(self) -> bool:
        return bool(self._known) and self._ctx.now - self._at < self._ctx.config.size.fresh_ms

    # --- what the views show ----------------------------------------------------------------------

    def compare(self, view: Collection[PeerId], told: Iterable[Descriptor]) -> None:
        """A reply came: of the entries that it told, some were in this peer's view before it."""
        others = {entry.contact.peer for entry in told} - {self._ctx.me.peer}
        self._pairs += len(view) * len(others)
        self._shared += sum(1 for peer in others if peer in view)
        if self._shared > _SHARED_MAX or self._pairs > _PAIRS_MAX:
            self._shared //= 2
            self._pairs //= 2

    def _possible(self) -> tuple[int, int]:
        """The least and the largest size that this peer believes; any before it has compared."""
        cyclon = self._ctx.config.cyclon
        exchange = cyclon.view_size * cyclon.shuffle_length
        if self._pairs < _EXCHANGES_LEAST * exchange:
            return 0, MEMBERS_MAX
        return sizes_possible(self._pairs, self._shared, exchange)

    def _is_possible(self, size: int) -> bool:
        least, most = self._possible()
        return least <= size <= most

    # --- sharing ----------------------------------------------------------------------------------

    def to_share(self) -> tuple[int, Millis]:
        if not self._is_fresh() or not self._is_possible(self._known):
            return 0, 0
        return self._known, max(0, self._ctx.now - self._at)

    def hear(self, size: int, age_ms: Millis) -> None:
        """Take over another member's estimate if it is fresher, and possible."""
        at = self._ctx.now - age_ms
        if size and (not self._known or at > self._at) and age_ms < self._ctx.config.size.fresh_ms:
            if self._is_possible(size):
                self._known, self._at = size, at
            else:
                self._ctx.counters["sizes_refused"] += 1

    # --- estimating -------------------------------------------------------------------------------

    def run_cycle(self, links: int) -> None:
        if self._run is not None:
            self._continue(self._run)
        elif not self._fits_view() and self._should_start(links):
            self._run = _Run(self._ctx.next_serial())
            self._continue(self._run)

    def _should_start(self, links: int) -> bool:
        ctx = self._ctx
        fresh_ms = ctx.config.size.fresh_ms
        known_for_ms = ctx.now - self._at
        if self._known:
            age_ms, members = known_for_ms, self.estimate(links)
        else:
            age_ms = fresh_ms
            members = members_at_first(
                len(self._view), ctx.config.cyclon.view_size, min(self._waited, _GIVE_UP_CYCLES)
            )
            self._waited += 1
        if self._waits_for_another(known_for_ms, fresh_ms):
            return False
        return starts_run(ctx.bits(_START), age_ms, fresh_ms, members)

    def _waits_for_another(self, known_for_ms: Millis, fresh_ms: Millis) -> bool:
        """Whether a walk of another member's run came by a moment ago."""
        if self._heeded is None or known_for_ms >= _HEEDED_UNTIL * fresh_ms:
            return False
        return self._ctx.now - self._heeded < fresh_ms // _HEEDED

    def _continue(self, run: _Run) -> None:
        """Once a cycle: count walks that never came back as lost and send new ones."""
        run.cycles += 1
        if run.cycles > _GIVE_UP_CYCLES:
            self._run = None
            return
        run.out = 0
        for _ in range(self._ctx.config.size.walks_at_once):
            self._send_walk(run)

    def _send_walk(self, run: _Run) -> None:
        contact = self._view.neighbour()
        if contact is not None:
            run.out += 1
            steps = self._ctx.config.size.walk_steps - 1
            self._ctx.send(contact, SampleWalk(self._topic, self._ctx.me, run.number, steps))

    def on_walk(self, sender: Contact, message: SampleWalk) -> None:
        if message.origin.peer != self._ctx.me.peer:
            self._heeded = self._ctx.now
        onward = self._view.neighbour() if message.steps else None
        if onward is None:
            if message.origin.peer == self._ctx.me.peer:
                self.on_sample(self._ctx.me, SampleReply(self._topic, message.round))
            elif self._view.informants.may_send(sender, message.origin):
                self._ctx.send(message.origin, SampleReply(self._topic, message.round))
            return
        left = message.steps
        if self._ctx.config.defence.rates:  # no walk goes farther than this peer's own would
            left = min(left, self._ctx.config.size.walk_steps)
        if self._ctx.carries_walk(sender, left):
            walk = SampleWalk(self._topic, message.origin, message.round, left - 1)
            self._ctx.send(onward, walk)

    def on_sample(self, sender: Contact, message: SampleReply) -> None:
        run = self._run
        if run is None or run.number != message.round:
            return
        run.samples += 1
        run.repeats += sender.peer in run.seen
        run.seen.add(sender.peer)
        if run.repeats >= self._ctx.config.size.collisions:
            self._finish(run)
        elif run.out > 0:
            run.out -= 1
            self._send_walk(run)

    def _finish(self, run: _Run) -> None:
        self._run = None
        found = max(1, round(most_likely_size(run.samples, run.repeats)))
        self._known = shared_size(self._known, found, run.repeats)
        self._at = self._ctx.now
        self._ctx.counters["size_estimates"] += 1
        if not self._is_possible(self._known):  # the group has changed: what was seen says nothing
            self._pairs = self._shared = 0
