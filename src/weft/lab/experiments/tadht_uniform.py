"""tadht-uniform: random routing draws every subscriber alike (paper 002, Lemma 4.7).

Subscribers of one topic, forwarders and children, among strangers that are not in it. Some of them
draw, each many times. For each, Pearson's chi-square compares how often it drew which peer with
equal chances. Beside it stands the paper's own way, the forwarder that is closest to a random
value, over the same forwarders and as many draws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import structs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from weft.ids import Contact, Topic
from weft.lab import ground
from weft.lab.defect import SEND, Defect, Function
from weft.lab.experiment import Columns, Entry, Params, Size
from weft.lab.figures import BLACK, Figure, colour, panels, table
from weft.lab.measures import at_most, reals, reasons, texts, wholes
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers
from weft.protocol.config import KademliaSettings, TopicDhtSettings
from weft.protocol.kademlia.rpc import FindRequest
from weft.protocol.topic_dht.roles import LOBBY, location, position
from weft.protocol.wire import Message
from weft.rules.draw import absorb
from weft.rules.prefix import BITS
from weft.rules.roles import closest_forwarder
from weft.sim.topic_dht import Run

SEEDS = {"quick": 2, "full": 4}


def points(size: Size) -> list[Params]:
    if size == "full":
        return [{"members": 60, "strangers": 30, "draws": 2_400, "k": 3, "bucket": 6}]
    return [{"members": 24, "strangers": 12, "draws": 480, "k": 2, "bucket": 6}]


_TOPIC, _OTHER = Topic("/t"), Topic("/other")
_AT_ONCE = 40
_NEVER_MS = 10**9


def run(params: Params, seed: int) -> Columns:
    """Rows: one per drawing peer, and one for the paper's way."""
    net = _network(params, seed)
    forwarders, children = _roles(net, params["members"])
    before = net.lookups.outside
    rows = []
    for role, askers in (("forwarder", forwarders[:2]), ("child", children[:2])):
        for asker in askers:
            counts = _draw(net, asker, params["draws"])
            drawn = [counts[net.world.nodes[one].contact.peer] for one in range(params["members"])]
            rows.append((role, *chi_square(drawn)))
    rows.append(("paper", *chi_square(_closest(net, forwarders, params["draws"], seed))))
    return {
        "drawer": [row[0] for row in rows],
        "statistic": [row[1] for row in rows],
        "freedom": [row[2] for row in rows],
        "forwarders": len(forwarders),
        "children": len(children),
        "left_the_topic": net.lookups.outside - before,
        "lookups": net.lookups.inside,
        "lookups_parasite": net.lookups.parasites,
    }


def _network(params: Params, seed: int) -> Run:
    """All peers subscribe to another topic first, so that some become children in this one."""
    topics = TopicDhtSettings(children_max=params["k"], period_ms=_NEVER_MS, view_percent=0)
    few = KademliaSettings(
        enabled=True, k=params["bucket"]
    )  # so that the topic has several regions
    members, peers = params["members"], params["members"] + params["strangers"]
    net = Run(seed, peers, topics, dht=few)
    net.come_up()
    for peer in range(peers):
        own = peer % 2 == 0 and peer < members
        net.subscribe(peer, [Topic(f"/own/{peer}") if own else _OTHER])
    net.run(20_000)
    for peer in range(members):
        net.subscribe(peer, [_TOPIC])
        net.run(1_000)
    net.run(20_000)
    wrong = net.check().all
    if wrong:
        raise RuntimeError(f"the network is not settled: {wrong[0]}")
    return net


def _roles(net: Run, members: int) -> tuple[list[int], list[int]]:
    forwarders: list[int] = []
    children: list[int] = []
    for peer in range(members):
        machine = net.machine(peer)
        assert machine is not None
        forwards = machine.topics.roles.forwarding(_TOPIC) is not None
        (forwarders if forwards else children).append(peer)
    return forwarders, children


def _draw(net: Run, peer: int, count: int) -> Counter[bytes]:
    drawn: list[Contact | None] = []
    machine = net.machine(peer)
    assert machine is not None
    while len(drawn) < count:
        wanted = min(count, len(drawn) + _AT_ONCE)
        for _ in range(wanted - len(drawn)):
            machine.topics.samples.draw(_TOPIC, drawn.append)
        net.flush(peer)
        while len(drawn) < wanted:
            net.run(50)
    if None in drawn:
        raise RuntimeError("a draw found nobody")
    return Counter(one.peer for one in drawn if one is not None)


def _closest(net: Run, forwarders: Sequence[int], count: int, seed: int) -> list[int]:
    """How often each forwarder is the closest to a random value."""
    places = [position(location(_TOPIC, net.world.nodes[one].contact.peer)) for one in forwarders]
    key = net.dice.key("tadht-uniform.value", seed)
    counts: Counter[int | None] = Counter()
    for item in range(count):
        counts[closest_forwarder(absorb(key, item) << (BITS - 64), places)] += 1
    return [counts[place] for place in places]


def chi_square(counts: Sequence[int]) -> tuple[float, int]:
    """Pearson's statistic against equal chances, and its degrees of freedom."""
    mean = sum(counts) / len(counts)
    return sum((count - mean) ** 2 / mean for count in counts), len(counts) - 1


COLUMNS = joined(
    wholes("members", "draws"),
    texts("drawer"),
    reals("statistic"),
    wholes("freedom", "forwarders", "children", "left_the_topic", "lookups"),
    wholes("lookups_parasite"),
)
TITLES = {
    "excess": "chi-square above its mean, in its standard deviations",
    "left": "requests of draws that left the topic",
    "paper": "chi-square above its mean, in its standard deviations, of the peer closest to a "
    "random value",
    "parasites": "requests inside the topic to peers that are not subscribed",
    "cost": "requests inside topics per draw, those of subscribing included",
}


def excess(rows: DataFrame) -> DataFrame:
    """Per seed: all drawing peers' statistics together, and the paper's way by itself.

    A sum of chi-squares is one with the sum of their degrees of freedom ν: of mean ν and standard
    deviation √(2ν).
    """
    own = F.col("drawer") != "paper"

    def pooled(which: Column) -> Column:
        freedom = F.sum(F.when(which, F.col("freedom")))
        return (F.sum(F.when(which, F.col("statistic"))) - freedom) / F.sqrt(2 * freedom)

    return rows.groupBy("seed").agg(
        pooled(own).alias("excess"),
        pooled(~own).alias("paper"),
        F.first("left_the_topic").alias("left"),
        F.first("lookups_parasite").alias("parasites"),
        (F.first("lookups") / F.first("draws") / F.sum(F.when(own, 1))).alias("cost"),
    )


def measure(rows: DataFrame, size: Size) -> DataFrame:
    asked = at_most(3 / F.sqrt("seeds"), "excess") | at_most(0.0, "left")
    return rows.transform(excess).transform(numbers(TITLES, asked))


# --- planted defects ------------------------------------------------------------------------------


def in_one_half(random_target: Function) -> Function:
    return lambda samples, topic: random_target(samples, topic) & ~(1 << (BITS - 1))


def by_the_lobby(send: Function) -> Function:
    def instead(world: object, node: object, contact: Contact, message: Message) -> None:
        send(world, node, contact, message)
        if isinstance(message, FindRequest) and message.role == _TOPIC:
            send(world, node, contact, structs.replace(message, role=LOBBY))

    return instead


# --- the picture ----------------------------------------------------------------------------------


def figure(rows: DataFrame) -> Figure:
    """Each drawing peer's statistic over its degrees of freedom: one if chances are equal."""
    drawn = table(rows.withColumn("ratio", F.col("statistic") / F.col("freedom")))
    drawing, [panel] = panels()
    drawers = ("forwarder", "child", "paper")
    for number, drawer in enumerate(drawers):
        some = drawn[drawn["drawer"] == drawer]
        panel.plot([number] * len(some), some["ratio"], "o", color=colour(number), alpha=0.6)
    panel.axhline(1.0, color=BLACK, ls="--", lw=0.9, label="equal chances")
    panel.set_yscale("log")
    panel.set_xticks(range(len(drawers)), ["a forwarder draws", "a child draws", "paper's way"])
    panel.set_ylabel("chi-square over degrees of freedom")
    panel.legend()
    return drawing


ENTRY = Entry.of(
    __name__,
    title="Random routing draws all subscribers alike",
    claim="A peer that routes at random inside a topic, forwarder or child, draws every "
    "subscriber with the same chance, and asks nobody outside of the topic. Drawing the peer "
    "closest to a random value, as the paper does, is reported beside it: it is not uniform.",
    tolerances=reasons(
        TITLES,
        excess=ground.derived(
            "2026-11-15", "Three standard deviations of the mean over so many seeds."
        ),
        left=ground.paper("2026-11-15", "None, by Lemma 4.1."),
    ),
    defects=(
        Defect(
            "random places are in one half",
            {"weft.protocol.topic_dht.upkeep:Samples.random_target": in_one_half},
        ),
        Defect("some requests go by the lobby", {SEND: by_the_lobby}),
    ),
    seconds=lambda params: 5.0 + 4 * float(params["draws"]) * 0.006,
)
