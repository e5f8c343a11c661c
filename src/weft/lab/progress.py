"""How far a run is and how long it will still take: a bar on a terminal, plain lines elsewhere.

`Progress` is for many tasks at once, whose time left is told from their estimated seconds: what is
left of them, at the pace up to the last one that ended (`Forecast`). `Phases` is for work that is
done in one phase after the other, each with its own count. `Steps` is a bar over the steps of one
Spark job: within a step, Spark's count of finished tasks tells how far it is; a thread asks for it
now and then, because the driver itself waits for the step.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_WIDTH = 28
_PLAIN_EVERY_S = 15.0  # guess: often enough to see life, seldom enough for a log
_QUARTERS = 4
_ASK_SECONDS = 0.5  # guess: a bar that moves, and no load
_BELIEVED_S = 30.0  # guess: so long a known pace outweighs what is seen


class _Line:
    """The line that a bar is drawn in, over and over, if the stream is a terminal."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self.live = self._stream.isatty()

    def draw(self, share: float, text: str, label: str = "") -> None:
        filled = int(_WIDTH * min(1.0, share))
        bar = "█" * filled + "░" * (_WIDTH - filled)
        self._stream.write(f"\r\x1b[K{label}{bar} {text}")
        self._stream.flush()

    def clear(self) -> None:
        if self.live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def say(self, text: str) -> None:
        """A line that stays, instead of the bar."""
        self.clear()
        print(text, file=self._stream, flush=True)


class Forecast:
    """How long the rest will take, from what ended when.

    The pace is computed when a task ends: between two ends, time goes into tasks that are under way
    and not counted yet. The longest tasks are begun first, so the tasks under way are taken to be
    as long as the one that has just ended, and half done. Where weights are seconds of a core, the
    pace is known beforehand, and counts as if it had been seen for a while. Where no task has ended
    for some time, as much time again is expected.
    """

    def __init__(self, weight: float, at_once: int = 1, seconds: bool = False) -> None:
        self._weight = max(weight, 1e-9)
        self._others = at_once - 1
        self._known = float(at_once) if seconds else 0.0
        self._done = 0.0
        self._ended = 0.0  # when the last one ended
        self._under_way = 0.0

    def hear(self, done: float, elapsed: float) -> None:
        """Note that the weight `done` is done after `elapsed` seconds."""
        if done > self._done:
            self._under_way = min(self._others * (done - self._done) / 2, self._weight - done)
            self._done, self._ended = done, elapsed

    def left(self, elapsed: float, later: float = 0.0) -> float | None:
        """Seconds until all is done, and the weight that comes `later`; None as long as the pace is
        not known."""
        believed = _BELIEVED_S if self._known else 0.0
        spent = self._ended + believed
        worked = self._done + self._under_way + self._known * believed
        if spent <= 0 or worked <= 0:
            return None
        pace = worked / spent
        left = (self._weight - self._done - self._under_way) / pace
        waited = elapsed - self._ended if self._done < self._weight else 0.0
        return max(left - waited, left / 2, waited) + later / pace


class Progress:
    """Counts finished tasks, weighed by their estimated seconds.

    `at_once` tasks run side by side, and their weights may be their `seconds` of a core; `later`
    is the weight of what may have to follow, which is told beside the time left.
    """

    def __init__(
        self,
        tasks: int,
        weight: float,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        at_once: int = 1,
        seconds: bool = False,
        later: float = 0.0,
    ) -> None:
        self._tasks = tasks
        self._weight = max(weight, 1e-9)
        self._forecast = Forecast(weight, at_once, seconds)
        self._later = later
        self._line = _Line(stream)
        self._clock = clock
        self._begun = clock()
        self._last_line = self._begun

    def show(self, done: int, weight: float, what: str = "tasks") -> None:
        """Show how many tasks (or `what` else) are done, and their weight."""
        now = self._clock()
        self._forecast.hear(weight, now - self._begun)
        text = f"{done}/{self._tasks} {what}{self._left(now - self._begun)}"
        if self._line.live:
            self._line.draw(weight / self._weight, text)
        elif now - self._last_line >= _PLAIN_EVERY_S:
            self._last_line = now
            self.say(text)

    def _left(self, elapsed: float) -> str:
        left = self._forecast.left(elapsed)
        if left is None:
            return ""
        most = self._forecast.left(elapsed, self._later) if self._later else None
        beyond = f", at most {duration(most)}" if most is not None else ""
        return f", about {duration(left)} left{beyond}"

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._line.say(f"weft: {text}")

    def clear(self) -> None:
        """Take the bar away."""
        self._line.clear()


class Phases:
    """Phases one after the other, each with its own count."""

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._line = _Line(stream)
        self._clock = clock
        self._label = ""
        self._total = 1
        self._begun = 0.0
        self._told = 0

    def begin(self, name: str, total: int) -> None:
        """A phase starts; `total` is what `update` counts up to."""
        self._label, self._total = f"  {name:<12} ", max(1, total)
        self._begun = self._clock()
        self._told = 0
        self.update(0)

    def update(self, done: int, note: str = "") -> None:
        done = min(done, self._total)
        text = f"{done}/{self._total} {note}".rstrip()
        if self._line.live:
            share = done / self._total
            self._line.draw(share, text + _left(share, self._clock() - self._begun), self._label)
        elif (quarter := _QUARTERS * done // self._total) > self._told:
            self._told = quarter
            if quarter < _QUARTERS:
                self._line.say(self._label + text)

    def steps(self, name: str, total: int) -> Callable[[], None]:
        """A phase of so many steps starts; call the result after each."""
        counter = count(1)
        self.begin(name, total)
        return lambda: self.update(next(counter))

    def end(self, result: str) -> None:
        """The phase is over; one line says what came out of it."""
        self._line.say(f"{self._label}{result}  ({self._clock() - self._begun:.1f} s)")

    def clear(self) -> None:
        """Leave the line of an unfinished phase."""
        self._line.clear()


def _left(share: float, elapsed: float) -> str:
    """How long the rest will take if it goes on like this."""
    if share <= 0 or elapsed <= 0:
        return ""
    return f", about {duration(elapsed * max(0.0, 1 / share - 1))} left"


def duration(seconds: float) -> str:
    """A length of time for people: 8 s, 2 min 5 s, 1 h 3 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


class Steps:
    """A bar over the steps of a Spark job: a context manager, whose `begin` is called at the
    beginning of each step."""

    def __init__(
        self, spark: SparkSession, weights: Sequence[float], stream: TextIO | None = None
    ) -> None:
        self._share = _share_of(spark)
        self._weights = list(weights)
        self._progress = Progress(len(self._weights), sum(self._weights), stream)
        self._at = (0, "")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def begin(self, step: int, text: str) -> None:
        """The steps before this one are done; `text` says what it does."""
        self._at = (step, text)

    def __enter__(self) -> Steps:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._progress.clear()

    def _tick(self) -> None:
        while not self._over.wait(_ASK_SECONDS):
            step, text = self._at
            done = sum(self._weights[:step])
            self._progress.show(step, done + self._weights[step] * self._share(), f"steps: {text}")


def _share_of(spark: SparkSession) -> Callable[[], float]:
    """How much of what Spark has under way is finished, whenever one asks."""
    from py4j.protocol import Py4JError  # noqa: PLC0415  (needs Spark's packages)

    from weft.pipeline.session import is_remote  # noqa: PLC0415

    if is_remote(spark):  # Spark Connect tells it while it works, and cannot be asked
        told = [0.0]

        def hear(
            stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool
        ) -> None:
            told[0] = _finished((each.num_tasks, each.num_completed_tasks) for each in stages or ())

        handler: Any = hear  # Spark's own type for it is a class
        spark.registerProgressHandler(handler)
        return lambda: told[0]
    tracker = spark.sparkContext.statusTracker()

    def ask() -> float:
        try:
            stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
        except (ConnectionError, Py4JError):  # Spark has ended, and the work meets that itself
            return 0.0
        return _finished((each.numTasks, each.numCompletedTasks) for each in stages if each)

    return ask


def _finished(stages: Iterable[tuple[int, int]]) -> float:
    """The share of the stages' tasks that is done."""
    known = list(stages)
    total = sum(tasks for tasks, _ in known)
    return sum(done for _, done in known) / total if total else 0.0
