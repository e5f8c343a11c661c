"""Durable writes for an asyncio program: many waiters, one sync to disk for all of them.

A sync costs milliseconds, however much it writes. So while one is under way, the batches that come
in gather, and the next one takes them all. Under load the rate is that of writing, not that of
syncing; alone, a batch waits for no other. A caller that awaits `put` knows afterwards that its
batch is on disk, or why it is not.

Only the sync runs in a thread. Writing into the open transaction stays in the loop: it is quick
(some 30 µs an event), and a thread that runs many short statements beside a busy loop spends its
time waiting for the interpreter's lock.

Batches are committed in the order they came. If a commit fails, nothing of its group is stored and
each of its waiters gets the error; later groups are tried anew.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from weft.ids import Topic
from weft.store.interface import Batch, Outcome, Retention, Store, StoreError

GROUP_EVENTS_MAX = 256
GROUP_BYTES_MAX = 4 << 20
"""guess: both; what the loop writes at once, some 10 ms, and enough to make a sync cheap."""
PRUNED_AT_ONCE = 2_000
"""guess: events dropped in one go, during which nothing can be written: some 20 ms."""
PENDING_BYTES_MAX = 16 << 20
"""guess: what may wait for the disk before `put` makes its callers wait."""


class _Waiter:
    __slots__ = ("batch", "bytes", "future")

    def __init__(self, batch: Batch, future: asyncio.Future[list[Outcome]]) -> None:
        self.batch = batch
        self.future = future
        self.bytes = 256 + sum(len(event.block) for event in batch.events)


class Durable:
    """Writes to a store for one event loop, and owns the thread that waits for the disk."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "weft-store")
        self._queue: deque[_Waiter] = deque()
        self._prunes: deque[tuple[Callable[[], int], asyncio.Future[int]]] = deque()
        self._pending_bytes = 0
        self._syncing = False
        self._closed = False
        self._changed = asyncio.Event()  # something was resolved: there may be room
        self._watchers: dict[Callable[[], None], None] = {}

    async def put(self, batch: Batch) -> list[Outcome]:
        """Store a batch; returns once it is on disk. Cancelling does not undo it."""
        while self._pending_bytes >= PENDING_BYTES_MAX:
            await self._change()
        return await self.submit(batch)

    def submit(self, batch: Batch) -> asyncio.Future[list[Outcome]]:
        """Like `put`, without waiting for room: for batches that must not be put off."""
        if self._closed:
            raise StoreError("the store is closed")
        waiter = _Waiter(batch, self._loop.create_future())
        self._pending_bytes += waiter.bytes
        self._queue.append(waiter)
        if len(self._queue) == 1 and not self._syncing:
            self._loop.call_soon(self._write)  # with all that comes in this turn of the loop
        return waiter.future

    def prune(self, topic: Topic, retention: Retention, now_ms: int) -> asyncio.Future[int]:
        """Drop events of a topic that need not be kept, at most `PRUNED_AT_ONCE`; the future says
        how many. It takes its turn between two groups of batches."""
        done: asyncio.Future[int] = self._loop.create_future()
        if self._closed:
            done.set_result(0)
            return done
        prune = partial(self.store.prune, topic, retention, now_ms, PRUNED_AT_ONCE)
        self._prunes.append((prune, done))
        self._loop.call_soon(self._write)
        return done

    def watch(self, committed: Callable[[], None]) -> Callable[[], None]:
        """Call `committed` after every write to the store; returns a function that ends that."""
        self._watchers[committed] = None
        return lambda: self._watchers.pop(committed, None)

    async def close(self) -> None:
        """Write what is waiting, then stop; the store itself stays open."""
        self._closed = True
        while self._queue or self._prunes or self._syncing:
            await self._change()
        self._thread.shutdown(wait=False)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _write(self) -> None:
        """Put what is waiting into a transaction, and send a thread off to commit it."""
        if self._syncing:
            return
        if self._prunes:
            prune, done = self._prunes.popleft()
            self._syncing = True
            pruning = self._loop.run_in_executor(self._thread, prune)
            pruning.add_done_callback(partial(self._pruned, done))
            return
        if not self._queue:
            return
        group = self._take()
        try:
            outcomes = self.store.stage([waiter.batch for waiter in group])
        except Exception as error:  # of any kind: the waiters must get it
            self._resolve(group, [], error)
            return
        self._syncing = True
        sync = self._loop.run_in_executor(self._thread, self.store.settle)
        sync.add_done_callback(partial(self._synced, group, outcomes))

    def _take(self) -> list[_Waiter]:
        group: list[_Waiter] = []
        events = size = 0
        while self._queue and events < GROUP_EVENTS_MAX and size < GROUP_BYTES_MAX:
            waiter = self._queue.popleft()
            group.append(waiter)
            events += len(waiter.batch.events)
            size += waiter.bytes
        return group

    def _synced(
        self, group: list[_Waiter], outcomes: list[list[Outcome]], sync: asyncio.Future[None]
    ) -> None:
        self._syncing = False
        self._resolve(group, outcomes, sync.exception())

    def _pruned(self, done: asyncio.Future[int], pruning: asyncio.Future[int]) -> None:
        self._syncing = False
        error = pruning.exception()
        if not done.done():
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(pruning.result())
        self._resolve([], [], error)

    def _resolve(
        self,
        group: list[_Waiter],
        outcomes: list[list[Outcome]],
        failure: BaseException | None,
    ) -> None:
        for index, waiter in enumerate(group):
            self._pending_bytes -= waiter.bytes
            if waiter.future.done():
                continue  # cancelled
            if failure is not None:
                waiter.future.set_exception(failure)
            else:
                waiter.future.set_result(outcomes[index])
        self._changed.set()
        for committed in list(self._watchers):
            committed()
        if self._queue or self._prunes:
            self._loop.call_soon(self._write)
