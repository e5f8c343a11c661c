"""Topics given up: whoever subscribes again must not be handed the same events again."""

from __future__ import annotations

from weft.ids import Topic
from weft.protocol.recent import Config, Recent
from weft.protocol.seam import Millis

_TOPICS_MAX = 256
"""guess: topics given up whose events are remembered."""


class Past:
    """What was seen of topics given up, of the latest ones."""

    __slots__ = ("_config", "_recent")

    def __init__(self, config: Config) -> None:
        self._config = config
        self._recent: dict[Topic, Recent] = {}

    def recall(self, topic: Topic) -> Recent:
        """What a subscription begins with."""
        known = self._recent.pop(topic, None)
        return known if known is not None else Recent(self._config)

    def remember(self, topic: Topic, recent: Recent, now: Millis) -> None:
        recent.let_go()
        recent.purge(now)
        if recent.streams:
            self._recent[topic] = recent
            if len(self._recent) > _TOPICS_MAX:
                del self._recent[next(iter(self._recent))]
