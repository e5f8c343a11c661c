"""What one peer may cause: how often within a span of time, and how many steps of walks.

`Quota` counts deeds of each peer by itself, `Shares` those of each peer in each topic.

`Walks` bounds how far a peer carries the walks of others. A walk costs the peer that sends it one
message, and other peers one for each step that is left. A peer that gets a walk cannot know which
peer began it, unless that is the sender: a hostile peer may say that it only passes it on. So the
sender is charged for all the steps that are left. What cannot be charged to one sender (many of
them, or walks that honest neighbours pass on for a hostile peer) is bounded by how many walks this
peer passes on in all.

Which walks are carried is decided in `rules/capacity.py`. What was used is halved once a span. So
there is room for bursts, and in the long run a peer passes on at most 16 walks a second for all
others together, and 11 for one.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from weft.bounded import BoundedDict
from weft.ids import PeerId, Topic
from weft.protocol.seam import Millis
from weft.rules.capacity import carries_walk

K = TypeVar("K")

COUNTED_MAX = 128
"""guess: peers whose deeds are counted; those counted longest ago are forgotten first."""


class Quota(Generic[K]):
    """Lets each key spend at most `most` in a span of time, with one or more for each deed."""

    __slots__ = ("_counts", "_most", "_span_ms")

    def __init__(self, most: int, span_ms: Millis) -> None:
        self._most = most
        self._span_ms = span_ms
        self._counts: BoundedDict[K, tuple[int, int]] = BoundedDict(COUNTED_MAX)

    def takes(self, key: K, now: Millis, cost: int = 1) -> bool:
        """Whether one more deed is within bounds; if so, its `cost` is counted."""
        span = now // self._span_ms
        began, count = self._counts.get(key, (span, 0))
        if began != span:
            began, count = span, 0
        takes = count + cost <= self._most
        # A key that is refused stays among the youngest, or it would have a new share once it gave
        # way to others.
        self._counts.renew(key, (began, count + cost if takes else count))
        return takes


TOPICS_MAX = 4_096
"""guess: topics in which one peer's deeds are counted in a span; in others it has no share."""


class Shares:
    """Lets each peer spend at most `most` in each topic of this peer's in a span of time. They are
    kept by peer: one that does something in very many topics cannot have its own deeds forgotten.
    """

    __slots__ = ("_counts", "_most", "_span_ms")

    def __init__(self, most: int, span_ms: Millis) -> None:
        self._most = most
        self._span_ms = span_ms
        self._counts: BoundedDict[PeerId, tuple[int, dict[Topic, int]]] = BoundedDict(COUNTED_MAX)

    def takes(self, peer: PeerId, topic: Topic, now: Millis, cost: int = 1) -> bool:
        """Whether one more deed is within bounds; if so, its `cost` is counted."""
        span = now // self._span_ms
        began, spent = self._counts.get(peer, (span, {}))
        if began != span:
            spent = {}
        count = spent.get(topic, 0) + cost
        takes = count <= self._most and (topic in spent or len(spent) < TOPICS_MAX)
        if takes:
            spent[topic] = count
        self._counts.renew(peer, (span, spent))
        return takes


# --- walks ----------------------------------------------------------------------------------------

SPAN_MS = 128_000
"""guess: after so long half of what was used is forgotten."""
_SENDERS_MAX = 1_024
"""guess: senders whose steps are counted; what those forgotten have sent still counts in all."""


class Walks:
    """What this peer has carried for others lately."""

    __slots__ = ("_span", "_steps", "_walks")

    def __init__(self) -> None:
        self._span = 0
        self._walks = 0  # passed on in all
        self._steps: BoundedDict[PeerId, int] = BoundedDict(_SENDERS_MAX)

    def takes(self, sender: PeerId, steps: int, now: Millis) -> bool:
        """Whether a walk with so many `steps` left is within its sender's share; if so, it is
        counted."""
        self._forget(now // SPAN_MS)
        used = self._steps.get(sender, 0) + steps
        if not carries_walk(used, self._walks):
            return False
        self._steps.renew(sender, used)
        self._walks += 1
        return True

    def _forget(self, span: int) -> None:
        """Halve what was used, once for each span that has passed."""
        passed = span - self._span
        if passed > 0:
            self._span = span
            self._walks >>= passed
            for sender, steps in self._steps.items():
                self._steps[sender] = steps >> passed
