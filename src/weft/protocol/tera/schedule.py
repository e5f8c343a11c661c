"""When each topic is next due, in cycles: the cost is by what is due, not by how many there are."""

from __future__ import annotations

from weft.ids import Topic


class Schedule:
    """Topics in buckets by the cycle they are due in; the earliest wish counts."""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Topic, None]] = {}
        self._due: dict[Topic, int] = {}
        self._late: dict[Topic, None] = {}  # due earlier, but their turn did not come

    def put(self, topic: Topic, cycle: int) -> None:
        due = self._due.get(topic)
        if due is not None:
            if due <= cycle:
                return
            self._buckets[due].pop(topic, None)
        self._due[topic] = cycle
        self._buckets.setdefault(cycle, {})[topic] = None

    def take(self, cycle: int, most: int) -> list[Topic]:
        """The topics due by this cycle, at most so many; the rest comes first next time."""
        for topic in self._buckets.pop(cycle, {}):
            self._late[topic] = None
        taken = list(self._late)[:most]
        for topic in taken:
            del self._late[topic]
            del self._due[topic]
        return taken
