"""Subscription advertisements (TERA, Section 3, "Subscription Management").

Every T cycles a peer sends the list of its topics, each with overlay id and popularity, to D
peers sampled from the general overlay.

Deviation: the list is paged, and only so many pages leave in a cycle, so that a peer in 10⁵
topics never sends one giant message; a new subscription is advertised at once, which is when
others need to learn of it most.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.ids import Topic
from weft.protocol.context import Context
from weft.protocol.cyclon import Cyclon
from weft.protocol.tera.access_points import Advert, Advertisement
from weft.protocol.tera.topic import TopicState
from weft.rules.draw import below, stream_of

_PHASE = stream_of("advertise.phase")


class Advertising:
    """What this peer still has to advertise in the current round."""

    def __init__(self, ctx: Context, view: Cyclon, topics: Mapping[Topic, TopicState]) -> None:
        self._ctx = ctx
        self._view = view
        self._topics = topics
        self._left: list[Topic] = []
        self._new: dict[Topic, None] = {}
        # Peers that start together must not advertise in the same cycles.
        self._phase = below(ctx.bits(_PHASE), ctx.config.tera.advertise_every_cycles)

    @property
    def has_new(self) -> bool:
        return bool(self._new)

    def add(self, topic: Topic) -> None:
        """Advertise a new subscription without waiting for its round."""
        self._new[topic] = None

    def flush_new(self) -> None:
        """Send what `add` gathered, as far as one cycle's pages go."""
        if self._new and not self._view.knows_nobody:
            tera = self._ctx.config.tera
            fresh = list(self._new)[: tera.advert_page * tera.advert_pages_per_cycle]
            self._new = {}
            self._send_pages(fresh)

    def run_cycle(self, cycle: int) -> None:
        tera = self._ctx.config.tera
        if not self._left and (cycle + self._phase) % tera.advertise_every_cycles == 0:
            self._left = list(self._topics)
        if not self._left or self._view.knows_nobody:
            return
        count = tera.advert_page * tera.advert_pages_per_cycle
        now, self._left = self._left[:count], self._left[count:]
        self._send_pages(now)

    def _send_pages(self, topics: list[Topic]) -> None:
        tera = self._ctx.config.tera
        for start in range(0, len(topics), tera.advert_page):
            adverts = [
                Advert(topic, state.overlay, state.popularity_to_advertise)
                for topic in topics[start : start + tera.advert_page]
                if (state := self._topics.get(topic)) is not None
            ]
            if not adverts:
                continue
            message = Advertisement(adverts)
            for contact in self._view.sample(tera.advertise_to):
                self._ctx.send(contact, message)
