"""Has a machine's events made durable and old ones dropped, beside the loop, and tells it when that
is done."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from weft.ids import Topic
from weft.net.counters import Counters
from weft.protocol import seam
from weft.store.durable import Durable
from weft.store.interface import Batch, StoreError

log = logging.getLogger("weft.net")

Tell: TypeAlias = Callable[[seam.Stored | seam.Pruned], None]


class Storing:
    """The way to one peer's store and back."""

    def __init__(
        self,
        durable: Durable,
        counters: Counters,
        loop: asyncio.AbstractEventLoop,
        tell: Tell,
    ) -> None:
        self.durable = durable
        self._counters = counters
        self._loop = loop
        self._tell = tell

    def store(self, effect: seam.Store) -> None:
        batch = Batch(_now_ms(), effect.events, effect.topics, effect.records, effect.lost)
        try:
            future = self.durable.submit(batch)
        except StoreError as error:  # told in a later turn, as everything is
            self._loop.call_soon(self._tell, seam.Stored(effect.token, str(error)))
            return
        future.add_done_callback(lambda done: self._stored(effect.token, done))

    def _stored(self, token: int, done: asyncio.Future[Any]) -> None:
        error = self._failure("storing", done)
        self._tell(seam.Stored(token, str(error) if error is not None else ""))

    def prune(self, effect: seam.Prune) -> None:
        done = self.durable.prune(effect.topic, effect.retention, _now_ms())
        done.add_done_callback(lambda pruned: self._pruned(effect.topic, pruned))

    def _pruned(self, topic: Topic, done: asyncio.Future[int]) -> None:
        failed = self._failure("pruning", done) is not None
        if not failed and not done.cancelled() and done.result():
            self._tell(seam.Pruned(topic, done.result()))

    def _failure(self, what: str, done: asyncio.Future[Any]) -> BaseException | None:
        error = done.exception() if not done.cancelled() else None
        if error is not None:
            self._counters.store_errors += 1
            log.error("%s failed: %s", what, error)
        return error

    async def close(self) -> None:
        await self.durable.close()
        self.durable.store.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
