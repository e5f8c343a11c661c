"""The subscriptions of one peer's user: what the machine delivers goes to all that there are to a
topic, each with a queue of its own; one that reads the past first gets the rest after it."""

from __future__ import annotations

import asyncio

from weft.ids import Topic
from weft.net.congestion import Congestion
from weft.net.counters import Counters
from weft.net.replay import Replay
from weft.net.subscription import Notification, Subscription
from weft.net.tracing import Tracer
from weft.protocol import seam
from weft.protocol.delivery import REJECT_MESSAGE, message_id
from weft.store.interface import Store
from weft.store.reader import Since


class Subscribers:
    """Open subscriptions, by topic."""

    def __init__(self, counters: Counters, tracer: Tracer | None) -> None:
        self._counters = counters
        self._tracer = tracer
        self._by_topic: dict[Topic, list[Subscription]] = {}
        self._replays: dict[Subscription, Replay] = {}

    def to(self, topic: Topic) -> list[Subscription]:
        return self._by_topic.get(topic, [])

    def add(self, subscription: Subscription) -> None:
        self._by_topic.setdefault(subscription.topic, []).append(subscription)

    def replay(self, subscription: Subscription, store: Store, since: Since) -> None:
        """Let it read the past first, from the next turn on."""

        def live() -> None:
            self._replays.pop(subscription, None)

        replay = self._replays[subscription] = Replay(store, subscription.topic, since, live)
        asyncio.get_running_loop().call_soon(replay.start, subscription)

    def remove(self, subscription: Subscription) -> bool:
        """Says whether it was the last one to its topic."""
        others = self.to(subscription.topic)
        if subscription in others:
            others.remove(subscription)
        if not others:
            self._by_topic.pop(subscription.topic, None)
        return not others

    def deliver(self, effect: seam.Deliver, obstacles: list[Congestion]) -> None:
        """Full queues are dropped into no more; those getting full are added to `obstacles`."""
        note = Notification(
            effect.topic, effect.event, effect.hops, effect.descriptor, effect.published_in
        )
        for subscription in self._by_topic.get(effect.topic, ()):
            if effect.descriptor is not None and subscription in self._replays:
                self._replays[subscription].hold(effect.descriptor, note)
            elif subscription.has_room():
                self._counters.delivered += 1
                full = subscription.put(note)
                if full is not None and full.blocks:
                    obstacles.append(full)
            else:
                subscription.dropped += 1
                self._counters.notifications_dropped += 1
                self._trace_rejected(effect)

    def _trace_rejected(self, effect: seam.Deliver) -> None:
        if self._tracer is not None:
            fields = {
                "messageID": message_id(effect.topic, effect.event),
                "topic": effect.topic,
                "reason": "subscription queue full",
            }
            self._tracer.write(REJECT_MESSAGE, fields)

    def counts(self) -> dict[str, dict[str, int]]:
        """Per topic, what waits for the application and what was dropped."""
        return {
            topic: {
                "waiting": sum(len(one) for one in subscriptions),
                "dropped": sum(one.dropped for one in subscriptions),
            }
            for topic, subscriptions in self._by_topic.items()
        }

    def close(self) -> None:
        for subscriptions in self._by_topic.values():
            for subscription in subscriptions:
                subscription.end()
        self._by_topic.clear()
        self._replays.clear()
