"""tera-4b: how soon two parts of a topic overlay meet (TERA 4.2.3, Fig. 4b).

Among 1000 peers, G subscribe to a topic and form an overlay; one more has an overlay of its own.
All advertise in every cycle to their whole view. The parts meet when an advertisement passes
between them. Many topics are tried at once in the same network: they share the general overlay
and nothing else.

The closed form takes every view to be a fresh random one in each cycle. A shuffle of 20 of 20
entries comes near that. With shuffles of 8 or 3 most of a view is still there in the next
cycle: a member not met is likely not to be met again, and meeting takes longer than by the form;
this gap is what the experiment reports for them. It has an end, though: every cycle brings at
least as many new entries as are shuffled, so H cycles with a shuffle of s of v entries are worth at
least H·s/v fresh views, and meeting is no later than the form says for so many. (The form also
takes a member to be in each of the others' views independently; in-degrees are more even than that,
so at shuffle 20 meeting is a little sooner.)
"""

from __future__ import annotations

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.engine.data.memberships import spread
from weft.engine.tera.world import WorldSettings, build
from weft.lab import ground
from weft.lab.defect import Defect, Function, left_out
from weft.lab.experiment import Columns, Entry, Params, Size, every
from weft.lab.figures import Figure, look, means, panels, plain_log
from weft.lab.measures import reals, smalls
from weft.pipeline.schemas import AT_LEAST, AT_MOST, joined
from weft.pipeline.transforms import largest, magnitude, measured, over_seeds, together
from weft.rules.deployment import merged_within

SEEDS = {"quick": 3, "full": 10}
_VIEW = 20
_WARM_UP = 100  # cycles before the first advertisement
_SHUFFLES = (3, 8, 20)


def points(size: Size) -> list[Params]:
    trials = 1_000 if size == "full" else 400
    horizons = {4: 60, 16: 20, 64: 8}
    return [
        {**point, "members": members, "cycles": cycles}
        for members, cycles in horizons.items()
        for point in every({"peers": 1_000, "trials": trials}, shuffle_length=_SHUFFLES)
    ]


def run(params: Params, seed: int) -> Columns:
    """Rows: one per number of cycles H."""
    trials, members = params["trials"], params["members"]
    held = spread(np.full(trials, members + 1, np.int64), params["peers"], seed)
    settings = WorldSettings(
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
        "predicted_least": np.array(
            [
                merged_within(
                    int(h) * params["shuffle_length"] // _VIEW, params["peers"], members, _VIEW
                )
                for h in horizon
            ]
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


FRESH_VIEW = 20  # a shuffle of the whole view is nearest to the formula's fresh one
GAP = "largest gap, shuffle 20"
LATER = "met less often than in H·s/20 cycles with fresh views, at most, shuffle "
ONE = "share with one overlay id at the end, shuffle "
COLUMNS = joined(
    smalls("members", "shuffle_length", "trials", "horizon"),
    reals("merged", "predicted", "predicted_least", "one_overlay"),
    smalls("forced_exchanges"),
)


def gaps(rows: DataFrame) -> DataFrame:
    """Per shuffle length: the largest gap between measured and predicted, over G and H.

    `noise` is the standard error of the share at that place.
    """
    signed = rows.withColumn("value", F.col("merged") - F.col("predicted"))
    place = ("shuffle_length", "members", "horizon")
    means = signed.transform(over_seeds(*place))
    trials = rows.groupBy(*place).agg(
        F.sum("trials").alias("trials"), F.first("predicted").alias("share")
    )
    noise = F.sqrt(F.col("share") * (1 - F.col("share")) / F.col("trials"))
    worst = means.join(trials, list(place)).withColumn("noise", noise).transform(magnitude)
    return worst.transform(largest("value", "shuffle_length"))


def delays(rows: DataFrame) -> DataFrame:
    """Per shuffle length: by how much the share that has met is below that of H·s/v fresh views,
    the most over G and H, with the standard error of the share there."""
    place = ("shuffle_length", "members", "horizon")
    behind = rows.withColumn("value", F.col("predicted_least") - F.col("merged"))
    share = F.col("predicted_least")
    means = behind.withColumn("noise", F.sqrt(share * (1 - share) / F.col("trials")))
    found = means.transform(over_seeds(*place, keep=("noise",)))
    found = found.withColumn("noise", F.col("noise") / F.sqrt("seeds"))
    return found.transform(largest("value", "shuffle_length"))


def measure(rows: DataFrame, size: Size) -> DataFrame:
    worst = rows.transform(gaps)
    fresh = F.col("shuffle_length") == FRESH_VIEW
    bound = F.lit(0.03) if size == "full" else 0.03 + 3 * F.col("noise")
    title = F.concat(F.lit("largest gap, shuffle "), "shuffle_length")
    one = F.concat(F.lit(ONE), "shuffle_length")
    found = rows.transform(over_seeds("shuffle_length", value="one_overlay"))
    later = F.concat(F.lit(LATER), "shuffle_length")
    return together(
        worst.where(fresh).transform(measured(GAP, AT_MOST, bound)),
        worst.where(~fresh).transform(measured(title)),
        rows.where(~fresh).transform(delays).transform(measured(later, AT_MOST, bound)),
        found.transform(measured(one, AT_LEAST, 0.99)),
    )


def half_lost(merge: Function) -> Function:
    """A planted defect: every second advertisement is ignored."""
    return lambda sent, *args: merge(sent[::2], *args)


def figure(rows: DataFrame) -> Figure:
    drawn = means(rows, ("shuffle_length", "members", "horizon"), "merged", "predicted")
    lengths = sorted(drawn["shuffle_length"].unique(), reverse=True)
    drawing, axes = panels(columns=len(lengths))
    for panel, length in zip(axes, lengths, strict=True):
        lines = drawn[drawn["shuffle_length"] == length].groupby("members")
        for number, (members, line) in enumerate(lines):
            label = f"G = {members}"
            panel.plot(line["horizon"], line["merged"], label=label, ms=3, **look(number))
            panel.plot(line["horizon"], line["predicted"], "--", color="black", lw=0.9)
        panel.plot([], [], "--", color="black", lw=0.9, label="formula")
        plain_log(panel, (1, 2, 5, 10, 20, 50))
        panel.set(ylim=(0, 1.02), title=f"shuffle {length} of 20", xlabel="cycles H")
    axes[0].set_ylabel("met within H cycles")
    axes[0].legend(loc="lower right")
    return drawing


ENTRY = Entry.of(
    __name__,
    title="Parts of a topic meet as soon as the formula says",
    claim="G subscribers of a topic and one more in an overlay of its own meet within H cycles "
    "with the probability of the closed form, which takes every view to be fresh in each "
    "cycle. That is near the truth when the whole view is shuffled; with shorter shuffles a "
    "view is mostly the same in the next cycle, and meeting takes longer, by no more than views "
    "take to be replaced. Parts that have met become one overlay, with one id.",
    tolerances={
        GAP: ground.asked(
            "2026-11-15",
            "0.03 for what the form leaves out at a shuffle of the whole view; in the quick "
            "size, three standard errors of the share among its fewer trials more.",
        ),
        **dict.fromkeys(
            (f"{LATER}{length}" for length in _SHUFFLES if length != FRESH_VIEW),
            ground.derived(
                "2026-11-16",
                "A cycle brings as many new entries as are shuffled; the same 0.03, and noise.",
            ),
        ),
        **dict.fromkeys(
            (f"{ONE}{length}" for length in _SHUFFLES),
            ground.asked(
                "2026-11-16",
                "Parts that met are one: the id spreads with view exchanges. All but one in a "
                "hundred; 0.995 to 1 was known when this was chosen.",
            ),
        ),
    },
    defects=(
        Defect(
            "every second advertisement is lost",
            {"weft.engine.tera.world:merge_partitions": half_lost},
        ),
        Defect(
            "views of the general overlay stay as they are",
            {"weft.engine.tera.cyclon:Overlay.run": left_out},
        ),
    ),
)
