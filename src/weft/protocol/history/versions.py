"""Topic versions: which one an event was published under, and whether its publisher may.

A topic that nobody owns has no versions, and anyone may publish in it. An owned topic's events link
to a version (`documents/authority.py` says how they are judged); a version that is not at hand is
fetched like any block, and events that link to it wait for it. Which version is the newest is told
by topic records (`ownership.py`).

Invariants: what waits is bounded in number and bytes; a version is known only if it is whole and
truly signed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from weft.documents.authority import judge_event, judge_origin, may_publish
from weft.documents.descriptor import Event, TopicVersion, open_topic
from weft.documents.refusal import Reason, Refused
from weft.ids import Cid, Contact, Topic
from weft.protocol.context import Context
from weft.rules.hierarchy import above, root_in

_KNOWN_MAX = 1_024
"""guess: versions kept at hand; others are read from the store again."""

Waiting = tuple[Event, Contact | None, int]
"""An event, who brought it, and its hops."""


class Versions:
    """The topic versions that one peer knows."""

    def __init__(self, ctx: Context, stored: Callable[[Cid], bytes | None]) -> None:
        self._ctx = ctx
        self._stored = stored
        self._known: OrderedDict[Cid, TopicVersion] = OrderedDict()
        self._newest: dict[Topic, TopicVersion] = {}
        self._held: dict[Cid, list[Waiting]] = {}
        self._held_count = 0
        self._held_bytes = 0

    def get(self, cid: Cid) -> TopicVersion | None:
        version = self._known.get(cid)
        if version is None:
            block = self._stored(cid)
            if block is not None:
                try:
                    version = open_topic(block, cid)
                except Refused:
                    return None
                self.note(version)
        return version

    def note(self, version: TopicVersion) -> None:
        self._known[version.cid] = version
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)

    def block(self, cid: Cid) -> bytes | None:
        """A version that is at hand, stored or not yet."""
        version = self._known.get(cid)
        return version.block if version is not None else None

    # --- the newest version -----------------------------------------------------------------------

    def newest(self, topic: Topic) -> TopicVersion | None:
        return self._newest.get(topic)

    def link(self, topic: Topic) -> Cid | None:
        """What an event published now links to."""
        version = self._newest.get(topic)
        return version.cid if version is not None else None

    def set_newest(self, version: TopicVersion) -> None:
        """A topic record says that this is the newest version."""
        self.note(version)
        self._newest[version.name] = version

    def forget_newest(self, topic: Topic) -> None:
        """What was believed to be the newest is not believed any more."""
        self._newest.pop(topic, None)

    def refuses_me(self, topic: Topic) -> bool:
        """Whether this peer may not publish in a topic, as far as it knows."""
        version = self._newest.get(topic)
        return version is not None and not may_publish(self._ctx.me.peer, version)

    # --- events -----------------------------------------------------------------------------------

    def needed(self, event: Event) -> Cid | None:
        """The version that must be fetched before the event can be judged."""
        return event.link if event.link is not None and self.get(event.link) is None else None

    def judge(self, event: Event, vouched: bool) -> Reason | None:
        linked = self.get(event.link) if event.link is not None else None
        newest = self._newest.get(event.topic)
        reason = judge_event(event, event.topic, linked, newest, vouched)
        return reason or judge_origin(event, self._roots(linked), vouched)

    def _roots(self, version: TopicVersion | None) -> tuple[str, ...]:
        """The hierarchies that a topic may be in: those of the settings, and its owners'."""
        owners = root_in(version.metadata, version.name) if version is not None else None
        return (
            self._ctx.config.hierarchies
            if owners is None
            else (
                *self._ctx.config.hierarchies,
                owners,
            )
        )

    def levels(self, topic: Topic) -> list[Topic]:
        """The topics that an event published now counts in."""
        return above(topic, self._roots(self._newest.get(topic)))

    def lacks_level(self, topic: Topic, origin: Topic) -> bool:
        """Whether an event cannot climb to `topic`, which has owners as the sub-topic it comes
        from has, because no version of it is known to link to."""
        version = self._newest.get(origin)
        owned = version is not None and root_in(version.metadata, origin) is not None
        return owned and topic not in self._newest

    def hold(self, version: Cid, event: Event, source: Contact | None, hops: int) -> None:
        """Keep an event until the version it links to has come."""
        limits = self._ctx.config.history
        waiting = self._held.setdefault(version, [])
        if any(other.cid == event.cid for other, _, _ in waiting):
            return
        size = self._held_bytes + len(event.block)
        if self._held_count >= limits.held_max or size > limits.waiting_bytes_max:
            self._ctx.counters["history_held_dropped"] += 1
            return
        waiting.append((event, source, hops))
        self._held_count += 1
        self._held_bytes = size

    def expects(self, cid: Cid) -> bool:
        return cid in self._held

    def expected(self, topic: Topic) -> list[Cid]:
        """The versions that events of a topic wait for."""
        return [cid for cid, held in self._held.items() if held and held[0][0].topic == topic]

    def released(self, cid: Cid) -> list[Waiting]:
        """The events that waited for a version, which has come or will not."""
        waiting = self._held.pop(cid, [])
        self._held_count -= len(waiting)
        self._held_bytes -= sum(len(event.block) for event, _, _ in waiting)
        return waiting

    def forget_topic(self, topic: Topic) -> None:
        """Nobody wants its events any more."""
        for cid in self.expected(topic):
            self.released(cid)
