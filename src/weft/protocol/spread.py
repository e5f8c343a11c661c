"""Dissemination without a tree, over a moving view: flood and gossip.

Members of a topic may choose another scheme than the tree: *flood* is TERA's reference (Section
4.3.2: out-degree = view size), *gossip* sends each new event to a fixed number of random
neighbours. Both go over a view of the topic's overlay, StaN's or Cyclon's moving one; the repair of
`recent.py` brings the events that they miss. When a later event of the same publisher comes, its
sender is asked for missing earlier ones: the repair of view exchanges takes up to a cycle, and
events do not wait that long for earlier ones (`delivery.py`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from weft.bounded import BoundedDict
from weft.documents.run import Run
from weft.ids import Contact, PeerId, Topic
from weft.protocol.context import Context
from weft.protocol.multi_topic import MultiTopic
from weft.protocol.recent import Recent, Want
from weft.protocol.wire import Payload, Span

MISSING = "tree.missing"
"""The timer of events that were announced, or passed by, and have not come in time."""

_GAPS_MAX = 1_024
"""guess: publishers whose gaps are asked about; gaps of others are left to the repair of view
exchanges."""
_TRIES = 3
"""guess: members asked about a gap, one after the other. They have answered by the time at which
the later event is handed out all the same (`settle_ms`)."""


class View(Protocol):
    """The neighbours that a member may send to."""

    def contacts(self) -> list[Contact]: ...

    def sample(self, count: int) -> list[Contact]: ...


class _Gap(NamedTuple):
    """Numbers of a publisher that may be missing."""

    before: Span
    ask: Contact  # next
    tries: int


class Spread:
    """Flood (`fanout` None) or gossip over one topic's view."""

    __slots__ = ("_ctx", "_fanout", "_gaps", "_multi_topic", "_recent", "_topic", "_view")

    def __init__(
        self,
        ctx: Context,
        multi_topic: MultiTopic,
        topic: Topic,
        recent: Recent,
        view: View,
        fanout: int | None,
    ) -> None:
        self._ctx = ctx
        self._multi_topic = multi_topic
        self._topic = topic
        self._recent = recent
        self._view = view
        self._gaps: BoundedDict[tuple[PeerId, int], _Gap] = BoundedDict(_GAPS_MAX)  # by publisher
        self._fanout = fanout

    def push(self, run: Run, hops: int, source: PeerId | None) -> None:
        """Pass on a run that is new to this member."""
        targets = self._view.contacts() if self._fanout is None else self._view.sample(self._fanout)
        message = Payload(self._topic, run, hops + 1)
        send = self._multi_topic.push if run.parts else self._ctx.send
        for contact in targets:
            if contact.peer not in (source, run.publisher):
                send(contact, message)

    def push_repaired(self, run: Run, repairer: PeerId) -> None:
        """Pass on a run that a repair brought."""
        self.push(run, 0, repairer)

    def note_gap(self, run: Run, source: Contact) -> None:
        """Events before a run that came from `source` may be missing: ask for them if they have not
        come after `graft_timeout_ms`."""
        before = Span(run.publisher, run.incarnation, 1, run.first - 1)
        if before.last and self._recent.lacking([before]):
            if not self._gaps:
                self._arm()
            self._gaps.renew((PeerId(run.publisher), run.incarnation), _Gap(before, source, _TRIES))

    def on_missing_timer(self, _: int) -> None:
        """Ask for what has not come: first the sender of the later event, then, since that one may
        have missed the earlier ones as well, others."""
        for key, gap in list(self._gaps.items()):
            wanted = self._recent.lacking([gap.before])
            if wanted:
                self._ctx.send(gap.ask, Want(self._topic, wanted))
            others = self._view.sample(1) if wanted and gap.tries > 1 else ()
            if others:
                self._gaps[key] = _Gap(gap.before, others[0], gap.tries - 1)
            else:
                del self._gaps[key]
        if self._gaps:
            self._arm()

    def _arm(self) -> None:
        timeout_ms = self._ctx.config.dissemination.graft_timeout_ms
        self._ctx.set_timer(timeout_ms, MISSING, self._topic)
