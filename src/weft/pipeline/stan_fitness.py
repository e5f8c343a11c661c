"""How fit overlays are before and after StaN, and how few links would do: both in the workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.engine.stan import overlays as engine
from weft.engine.stan.overlays import Config, Outcome, Overlays, fewest
from weft.engine.stan.views import Interests
from weft.pipeline.arrays import held
from weft.pipeline.schemas import FITNESS, WHOLE, columns
from weft.pipeline.session import parallelism
from weft.pipeline.stan import LINKS_AT_ONCE
from weft.pipeline.stan_bins import computed

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Table  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame

FEWEST = columns(user=WHOLE, pvs=WHOLE)


def overlay_fitness(
    memberships: DataFrame,
    config: Config,
    seed: int,
    rounds: Sequence[int] | None = None,
    ways: bool = True,
) -> DataFrame:
    """Every overlay as a graph, after each of `rounds` (by default before and after): `FITNESS`.
    Without `ways`, the diameter is left out."""
    asked = tuple(rounds) if rounds is not None else (0, config.rounds)

    def compute(overlays: Overlays, interests: Interests | None) -> Iterator[Table]:
        import pyarrow  # noqa: PLC0415
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

        rows = fitness_of(engine.run(overlays, config, seed, asked, interests), ways)
        yield pyarrow.Table.from_pylist(rows, schema=to_arrow_schema(FITNESS))

    return computed(memberships, config, asked, compute, FITNESS, LINKS_AT_ONCE)


def fitness_of(outcome: Outcome, ways: bool = True) -> list[dict[str, Any]]:
    """The rows of `FITNESS` for every overlay of an outcome, round by round."""
    from weft.engine.stan.fitness import fitness  # noqa: PLC0415  (needs scipy)

    overlays = outcome.overlays
    starts, sizes = overlays.starts(), overlays.views()
    rows = []
    for place, topic in enumerate(overlays.topics.tolist()):
        members = overlays.members[overlays.offsets[place] : overlays.offsets[place + 1]]
        for round_ in outcome.rounds:
            linked = outcome.at(round_)[starts[place] : starts[place + 1]]
            views = np.searchsorted(members, linked).reshape(len(members), sizes[place])
            figures = asdict(fitness(views.astype(np.int32), ways))
            known = {"topic": topic, "round": round_, "members": len(members)}
            rows.append({**known, "view": int(sizes[place]), **figures})
    return rows


def omniscient(memberships: DataFrame) -> DataFrame:
    """The physical view size of each user if all knew everything (`FEWEST`); for small universes,
    since each user is compared with all others that it shares a topic with, again and again."""
    spark = memberships.sparkSession
    known = spark.sparkContext.broadcast(held(memberships))
    users = known.value.peers

    def work(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        import pyarrow  # noqa: PLC0415

        for batch in batches:
            some = batch.column(0).to_numpy()
            some = some[np.diff(known.value.of_peer_offsets)[some] > 0]
            counts = fewest(known.value, some)
            yield pyarrow.RecordBatch.from_arrays(
                [pyarrow.array(some), pyarrow.array(counts)], names=FEWEST.names
            )

    parts = 4 * parallelism(spark)
    return spark.range(0, users, 1, parts).mapInArrow(work, FEWEST)
