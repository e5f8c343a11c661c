"""StaN's overlays over the memberships of a point, computed in one task or spread over all.

An experiment asks for view sizes, for the fitness of overlays, or for the fewest links that would
do, and need not know where they are computed. A point that fits one task is computed there, with
arrays, while the other cores compute other points. A point that does not fit is a Spark job, whose
topics are spread over all tasks. Both have the same outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from weft.engine.data.memberships import Memberships, memberships
from weft.engine.stan import overlays as engine
from weft.engine.stan.overlays import Config, Outcome, Sizes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from weft.lab.versus.crowd import Happened

Arrays = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
"""Topics and users of memberships, side by side."""
Columns = dict[str, npt.NDArray[Any]]


class Overlaid(Protocol):
    """Overlays of all topics of some memberships."""

    def topics(self) -> int:
        """How many topics there are."""

    def sizes(self, config: Config, seed: int, rounds: tuple[int, ...]) -> Sizes:
        """View sizes of all users after each of `rounds`."""

    def fitness(self, config: Config, seed: int, ways: bool = True) -> Columns:
        """Every overlay before and after, as a graph: the columns of `FITNESS`."""

    def fewest(self) -> npt.NDArray[np.int64]:
        """The links that each user of `sizes` would need if all knew everything."""

    def memberships(self) -> Arrays:
        """The memberships themselves: topics and users, side by side."""

    def happened(self) -> Happened | None:
        """What these users did in their topics and when, where the source tells and the universe
        is one of whole peers; it drives publications."""


class InTask:
    """Overlays over arrays. The last outcome is kept, since experiments often ask for it twice."""

    def __init__(self, arrays: Arrays, happened: Happened | None = None) -> None:
        self._topics, self._users = arrays
        self._happened = happened
        self._overlays = engine.overlays_of(*arrays)
        self._last: tuple[tuple[Config, int, tuple[int, ...]], Outcome] | None = None

    def topics(self) -> int:
        return self._overlays.count

    def _run(self, config: Config, seed: int, rounds: tuple[int, ...]) -> Outcome:
        asked = (config, seed, rounds)
        if self._last is None or self._last[0] != asked:
            known = engine.interests_of(self._topics, self._users) if config.lean else None
            self._last = asked, engine.run(self._overlays, config, seed, rounds, known)
        return self._last[1]

    def sizes(self, config: Config, seed: int, rounds: tuple[int, ...]) -> Sizes:
        return engine.sizes_of(self._run(config, seed, rounds))

    def fitness(self, config: Config, seed: int, ways: bool = True) -> Columns:
        from weft.pipeline.stan import fitness_of  # noqa: PLC0415  (needs scipy)

        outcome = self._run(config, seed, (0, config.rounds))
        rows = fitness_of(outcome, ways)
        return {name: np.array([row[name] for row in rows]) for name in rows[0]} if rows else {}

    def fewest(self) -> npt.NDArray[np.int64]:
        return engine.fewest(self._held(), np.unique(self._users).astype(np.int64))

    def memberships(self) -> Arrays:
        return self._topics, self._users

    def happened(self) -> Happened | None:
        return self._happened

    def _held(self) -> Memberships:
        order = np.lexsort((self._users, self._topics))
        sizes = np.bincount(self._topics)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return memberships(int(self._users.max()) + 1, offsets, self._users[order])


class Spread:
    """Overlays over a table, by Spark jobs. The driver gets a row per user or overlay; only
    `memberships` brings the whole table to it, which is for tables that a simulation can hold."""

    def __init__(self, frame: DataFrame, happened: Happened | None = None) -> None:
        self._frame = frame
        self._happened = happened

    def topics(self) -> int:
        return self._frame.select("topic").distinct().count()

    def sizes(self, config: Config, seed: int, rounds: tuple[int, ...]) -> Sizes:
        from weft.pipeline.stan import links, view_sizes  # noqa: PLC0415  (loads Spark)

        found = self._frame.transform(links, config, seed, rounds).transform(view_sizes)
        table = _columns(found.orderBy("round", "user"))
        at = {round_: table["round"] == round_ for round_ in rounds}
        first = at[rounds[0]]
        return Sizes(
            table["user"][first],
            table["topics"][first],
            table["lvs"][first],
            {round_: table["pvs"][here] for round_, here in at.items()},
        )

    def fitness(self, config: Config, seed: int, ways: bool = True) -> Columns:
        from weft.pipeline.stan import overlay_fitness  # noqa: PLC0415

        found = self._frame.transform(overlay_fitness, config, seed, None, ways)
        return _columns(found.orderBy("topic", "round"))

    def fewest(self) -> npt.NDArray[np.int64]:
        from weft.pipeline.stan import omniscient  # noqa: PLC0415

        return _columns(self._frame.transform(omniscient).orderBy("user"))["pvs"]

    def memberships(self) -> Arrays:
        table = _columns(self._frame.select("topic", "user").orderBy("topic", "user"))
        return table["topic"].astype(np.int32), table["user"].astype(np.int32)

    def happened(self) -> Happened | None:
        return self._happened


def _columns(frame: DataFrame) -> Columns:
    table = frame.toArrow()
    return {name: table.column(name).to_numpy() for name in table.column_names}
