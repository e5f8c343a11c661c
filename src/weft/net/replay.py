"""The past of a subscription: events in the store that come before the live ones.

A subscription with `since` begins with what is stored, read page by page while the application
reads; live events wait meanwhile, and the oldest of them are read from the store, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from weft.bounded import BoundedDict
from weft.documents.descriptor import handed_out
from weft.documents.position import position
from weft.errors import WeftError
from weft.ids import Cid
from weft.protocol import seam
from weft.rules.hierarchy import claimed_origin
from weft.store.interface import NotHeld, Since, Store, StoreError
from weft.store.reader import Reader

if TYPE_CHECKING:
    from weft.net.subscription import Seek, Subscription

HELD_MAX = 4_096
"""guess: live events that wait while the past is read; older ones have long reached the store."""
PAGE = 256
"""guess: events read from the store at once, some 10 ms."""


class Replay:
    """Reads the past into a subscription, from the loop's next turn on, and makes it live then."""

    def __init__(self, subscription: Subscription, store: Store, since: Since, seek: Seek) -> None:
        """`seek` gets the event to read on from if it is not in the store."""
        self._subscription = subscription
        self._held: BoundedDict[Cid, seam.Deliver] = BoundedDict(HELD_MAX)
        self._paused = False  # the subscription is full
        self._sought: Cid | None = None  # the event to read on from, which is not handed out
        self._reader: Reader | None = None
        self._failing: asyncio.Task[None] | None = None  # the store cannot be read
        loop = asyncio.get_running_loop()
        try:
            self._reader = Reader(store, subscription.topic, since)
        except NotHeld:
            assert isinstance(since, bytes)
            self._sought = Cid(since)
            self._seeking = loop.create_task(self._seek(store, self._sought, seek))
        else:
            loop.call_soon(self._read)

    async def _seek(self, store: Store, cid: Cid, seek: Seek) -> None:
        """Begin reading after an event that is not in the store: with all stored events that are
        not in the past of its parents."""
        subscription = self._subscription
        try:
            event = await seek(subscription)
            self._reader = Reader(store, subscription.topic, event.parents)
        except WeftError as error:
            if not subscription.closed:
                await subscription.fail(error)
            return
        self._held.pop(cid, None)
        self._read()

    def hold(self, cid: Cid, deliver: seam.Deliver) -> None:
        """A live event came meanwhile."""
        oldest = self._held.put(cid, deliver)
        if oldest is not None and not self._will_read(oldest):
            self._subscription.lose(oldest)

    def _will_read(self, deliver: seam.Deliver) -> bool:
        """Whether an event lies above what was read so far, and so comes from the store."""
        assert deliver.descriptor is not None
        return self._reader is None or position(deliver.descriptor) > self._reader.after

    def go_on(self) -> None:
        """The application has read half of what waited."""
        if self._paused:
            self._paused = False
            self._read()

    def _read(self) -> None:
        """Read page after page, and pause while the subscription is full."""
        subscription = self._subscription
        while not subscription.closed:
            assert self._reader is not None
            try:
                page = self._reader.read(PAGE)
            except StoreError as error:
                self._failing = asyncio.get_running_loop().create_task(subscription.fail(error))
                return
            if not page:
                break
            full = None
            for event in page:
                self._held.pop(event.cid, None)
                if event.cid == self._sought:
                    continue
                origin = claimed_origin(subscription.topic, event.metadata)
                run = handed_out(event, event.payload)
                if subscription.leaves_out(run):
                    continue
                deliver = seam.Deliver(subscription.topic, run, 0, event, origin)
                full = subscription.put(deliver, run.size)
            if full is not None:
                self._paused = True
                return
        for deliver in self._held.values():
            subscription.put(deliver, deliver.run.size)
        self._held.clear()
        subscription.replayed()
