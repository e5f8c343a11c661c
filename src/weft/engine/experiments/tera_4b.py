"""tera-4b: how soon two parts of a topic overlay meet (TERA 4.2.3, Fig. 4b).

Among 1000 peers, G subscribe to a topic and form an overlay; one more has an overlay of its own.
All advertise in every cycle to their whole view. The parts meet when an advertisement passes
between them. Many topics are tried at once in the same network: they share the general overlay
and nothing else.

The closed form takes every view to be a fresh random one in each cycle. A shuffle of 20 of 20
entries comes near that. With shuffles of 8 or 3 most of a view is still there in the next
cycle: who was not met is likely not to be met again, and meeting takes longer than by the form;
this gap is what the experiment reports for them. (The form also takes a member to be in each of
the others' views independently; in-degrees are more even than that, so at shuffle 20 meeting is
a little sooner.)
"""

from __future__ import annotations

import numpy as np

from weft.engine.data.workload import spread
from weft.engine.experiments.common import Columns, Params, Point, Size
from weft.engine.tera.world import Settings, build
from weft.rules.sizing import merged_within

SEEDS = {"quick": 3, "full": 10}
_VIEW = 20
_WARM_UP = 100  # cycles before the first advertisement
_SHUFFLES = (3, 8, 20)


def points(size: Size) -> list[Point]:
    trials = 1_000 if size == "full" else 400
    horizons = {4: 60, 16: 20, 64: 8}
    return [
        {
            "peers": 1_000,
            "members": members,
            "shuffle_length": shuffle,
            "trials": trials,
            "cycles": cycles,
        }
        for members, cycles in horizons.items()
        for shuffle in _SHUFFLES
    ]


def run(params: Params, seed: int) -> Columns:
    """Rows: one per number of cycles H."""
    trials, members = params["trials"], params["members"]
    held = spread(np.full(trials, members + 1, np.int64), params["peers"], seed)
    settings = Settings(
        view_size=_VIEW,
        shuffle_length=params["shuffle_length"],
        advertise_every=1,
        advertise_to=_VIEW,
        table_size=1,
    )
    world = build(settings, held, seed)
    # The last member of each topic is alone: nobody knows it, and it knows nobody.
    loners = held.offsets[1:] - 1
    overlays = np.repeat(np.arange(trials, dtype=np.int64) * 2, members + 1)
    overlays[loners] += 1
    world.topics.isolate(loners, overlays)
    world.overlay.run(_WARM_UP)
    world.run(params["cycles"] + 1)
    # Advertisements of the first cycle are handled in the second, which is the first H.
    met_in = np.where(world.met > 0, world.met - 1, params["cycles"] + 1)
    horizon = np.arange(1, params["cycles"] + 1)
    return {
        "horizon": horizon,
        "merged": np.array([(met_in <= cycles).mean() for cycles in horizon]),
        "predicted": np.array(
            [merged_within(int(h), params["peers"], members, _VIEW) for h in horizon]
        ),
        "one_overlay": float(_shares_one_id(overlays, held.offsets)),
        "forced_exchanges": world.counts.exchange_forced // 2,
    }


def _shares_one_id(overlays: np.ndarray, offsets: np.ndarray) -> float:
    """The share of topics whose members all have the same overlay id in the end."""
    least = np.minimum.reduceat(overlays, offsets[:-1])
    most = np.maximum.reduceat(overlays, offsets[:-1])
    return float((least == most).mean())


def seconds(params: Params) -> float:
    return 0.5 + float(params["cycles"] * params["trials"] * params["members"]) * 2e-6
