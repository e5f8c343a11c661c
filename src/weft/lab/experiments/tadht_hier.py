"""tadht-hier: events climb topic hierarchies (paper 002, Sections 4.5 and 5.3).

The topics are a hierarchy three levels deep, two topics beside it whose names begin like its root,
and one elsewhere; peers subscribe to some of them at random. Events are published in each topic by
random peers, subscribers or not. Every event's deliveries are then compared with the subscribers of
the topics that it counts in, which `sim/checkers/deliveries.py` works out without the rule under
test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weft.ids import Topic
from weft.lab import ground, schemes
from weft.lab.defect import Defect, handed_twice, not_repaired, sent_also, to_a_stranger
from weft.lab.experiment import Columns, Entry, Params, Size
from weft.lab.experiments.tadht_parasite import WAYS
from weft.lab.figures import Figure, colour, panels, table
from weft.lab.measures import at_most, each, texts, wholes
from weft.lab.tadht import SUBSCRIBE_MS, Net
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers, together
from weft.protocol.config import TopicDhtSettings
from weft.rules.hierarchy import above
from weft.sim.checkers.deliveries import expected_levels
from weft.sim.network import Conditions

SEEDS = {"quick": 1, "full": 1}


def points(size: Size) -> list[Params]:
    if size == "full":
        shape: Params = {"peers": 60, "per_peer": 3, "events": 45}
        return [
            {**shape, "scheme": scheme, "mode": mode, "loss_percent": loss}
            for loss in (0, 5)
            for scheme, mode in WAYS
        ]
    shape = {"peers": 24, "per_peer": 3, "events": 18, "loss_percent": 0}
    return [{**shape, "scheme": scheme, "mode": mode} for scheme, mode in WAYS if mode == "push"]


ROOT = "/a"
TOPICS = tuple(
    Topic(name)
    for name in ("/a", "/a/b", "/a/c", "/a/b/c", "/a/b/d", "/a/c/b", "/ab", "/ab/c", "/other")
)
_BETWEEN_MS = 2_000
COUNTED = ("expected", "missing", "extra", "twice", "misnamed")


def run(params: Params, seed: int) -> Columns:
    """Rows: one per event."""
    settings = TopicDhtSettings(scheme=params["scheme"], gossip_mode=params["mode"])
    conditions = Conditions(loss_percent=params["loss_percent"])
    net = Net(seed, params["peers"], settings, conditions, [ROOT])
    for number in range(params["peers"]):
        net.subscribe(
            number, net.dice.some("tadht-hier.topics", TOPICS, params["per_peer"], number)
        )
        net.run(SUBSCRIBE_MS)
    net.run(2 * settings.period_ms)
    net.settle()
    rows = []
    for event in range(params["events"]):
        topic = TOPICS[event % len(TOPICS)]
        publisher = net.dice.below("tadht-hier.publisher", params["peers"], event)
        payload = b"event %d" % event
        net.world.publish_together(net.nodes[publisher], above(topic, [ROOT]), payload)
        net.run(_BETWEEN_MS)
        rows.append((topic, payload))
    net.run(6 * settings.period_ms)
    judged = [_judged(net, topic, payload) for topic, payload in rows]
    return {
        "event": list(range(len(rows))),
        "topic": [topic for topic, _ in rows],
        **{name: [one[name] for one in judged] for name in COUNTED},
        "parasites": net.parasites,
    }


def _judged(net: Net, topic: Topic, payload: bytes) -> dict[str, int]:
    """The deliveries of an event that were due, compared with those that happened."""
    wanted = {
        (number, level)
        for level in expected_levels(topic, [ROOT])
        for number in net.subscribers(Topic(level))
    }
    got = [one for one in net.world.record.deliveries if one.event.payload == payload]
    times = Counter((one.peer, str(one.topic)) for one in got)
    return {
        "expected": len(wanted),
        "missing": sum(one not in times for one in sorted(wanted)),
        "extra": sum(one not in wanted for one in times),
        "twice": sum(count > 1 for count in times.values()),
        "misnamed": sum((one.published_in or one.topic) != topic for one in got),
    }


COLUMNS = joined(
    texts("scheme", "mode"),
    wholes("loss_percent", "peers", "event"),
    texts("topic"),
    wholes("expected", "missing", "extra", "twice", "misnamed", "parasites"),
)
JUDGED = {
    "missing": "subscribers of the topic and those above it that lack an event",
    "extra": "deliveries to anybody else",
    "twice": "subscriptions that were handed an event twice",
    "misnamed": "deliveries that do not name the topic it was published in",
    "parasites": "copies and lookups to peers that are not subscribed",
}


def reached(rows: DataFrame) -> DataFrame:
    """Per scheme and seed: the deliveries that were due, and what was wrong with deliveries."""
    per_run = rows.withColumn("way", schemes.named()).groupBy("way", "loss_percent", "seed")
    sums = (F.sum(name).alias(name) for name in COUNTED)
    found = per_run.agg(*sums, F.first("parasites").alias("parasites"))
    every = ("expected", *JUDGED)
    return found.groupBy("way", "seed").agg(*(F.sum(name).alias(name) for name in every))


def measure(rows: DataFrame, size: Size) -> DataFrame:
    found = rows.transform(reached)
    titles = {"expected": "deliveries due", **JUDGED}
    whole = found.groupBy("seed").agg(*(F.sum(name).alias(name) for name in titles))
    return together(
        whole.transform(numbers(titles, at_most(0.0, *JUDGED))),
        found.transform(numbers(titles, by=("way",), prefix=each("way"))),
    )


# --- planted defects ------------------------------------------------------------------------------


def beside(above: Callable[..., list[Topic]]) -> Callable[..., list[Topic]]:
    return lambda topic, roots: [*above(topic, roots), *({TOPICS[-1]} - {topic})]


def reversed_(above: Callable[..., list[Topic]]) -> Callable[..., list[Topic]]:
    return lambda topic, roots: list(reversed(above(topic, roots)))


# --- the picture ----------------------------------------------------------------------------------


def figure(rows: DataFrame) -> Figure:
    """Deliveries per topic of publication: those that were due, and what differs."""
    drawn = table(
        rows.groupBy("topic")
        .agg(
            F.avg(F.col("expected") - F.col("missing")).alias("delivered"),
            F.avg("missing").alias("missing"),
            F.avg("extra").alias("to others"),
        )
        .orderBy("topic")
    )
    drawing, [panel] = panels()
    left = 0
    for number, name in enumerate(("delivered", "missing", "to others")):
        panel.barh(drawn["topic"], drawn[name], left=left, color=colour(number), label=name)
        left = left + drawn[name]
    panel.invert_yaxis()
    panel.set(xlabel="deliveries per event, in its topic and those above it", ylabel="published in")
    panel.legend()
    return drawing


ENTRY = Entry.of(
    __name__,
    title="Events reach the topics above theirs, and nobody else",
    claim="In a hierarchy an event reaches exactly the subscribers of its topic and of the "
    "topics above it, once per subscription, in all four schemes.",
    tolerances=dict.fromkeys(
        JUDGED.values(),
        ground.paper(
            "2026-11-15", "Exactly these subscribers get the event (5.3), so none may occur."
        ),
    ),
    defects=(
        Defect(
            "one copy in three is lost, and no repair",
            not_repaired("Cast", "Payload", one_in=3),
        ),
        Defect(
            "events climb into a topic beside the hierarchy",
            {"weft.lab.experiments.tadht_hier:above": beside},
        ),
        Defect(
            "the topmost topic is taken for that of publication",
            {"weft.lab.experiments.tadht_hier:above": reversed_},
        ),
        Defect("applications are handed events twice", handed_twice),
        Defect(
            "copies go to strangers, too",
            sent_also("Cast", "Payload", to=to_a_stranger, one_in=7),
        ),
    ),
    seconds=lambda params: float(params["peers"]) * 0.4,
)
