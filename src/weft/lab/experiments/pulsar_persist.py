"""pulsar-persist: copies of events, and what survives a crash.

All subscribers publish in turn. A publisher provides its events in the DHT, and each other
subscriber that takes one in does so with probability p. Then a share of all peers crashes at once,
and a peer outside the topic asks the DHT for each event. An event has *survived* if a peer that
provides it is up, and is *found* if the DHT still leads to such a peer.

The crashed peers are known, so what to expect is known for each event: not counting its publisher's
own copy, it has survived with the chance 1 − (1 − p)^L, where L is the number of other subscribers
that are up. That does not depend on how the crash fell, so nothing but the draws of p is noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from weft.ids import Cid, Contact, PeerId
from weft.lab import ground
from weft.lab.defect import Defect, lost
from weft.lab.experiment import Columns, Entry, Params, Size, every
from weft.lab.figures import Figure, colour, look, means, panels
from weft.lab.measures import at_least, at_most, reals, reasons, smalls, told, truths
from weft.lab.pulsar import JOIN_CYCLES, Net
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers, together
from weft.protocol.config import Config, History
from weft.protocol.history.fetch import PROVIDERS_WANTED, block_key_of
from weft.protocol.peer import Peer
from weft.protocol.seam import DhtFindProviders
from weft.sim.node import Node
from weft.store.interface import Store

CHANCES = {"quick": (0.0, 0.1, 0.5), "full": (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)}
CRASHES = {"quick": (0.5, 0.7), "full": (0.1, 0.3, 0.5, 0.7, 0.9)}


def points(size: Size) -> list[Params]:
    large = {"peers": 60, "subscribers": 30, "events": 60}
    some = large if size == "full" else {"peers": 24, "subscribers": 12, "events": 24}
    return every(some, p=CHANCES[size], crash=CRASHES[size])


def seconds(params: Params) -> float:
    events = float(params["peers"] * params["events"])
    return events * (1 + 4 * float(params["p"])) / 3_000


EVERY_MS = 100
PROVIDED_CYCLES = 2
"""measured: by then all providers have told the DHT."""
ASKED_AT_ONCE = 8
ANSWER_MS = 60_000
"""guess: a lookup through tables that name mostly the dead."""


def run(params: Params, seed: int) -> Columns:
    history = History(enabled=True, provide_probability=params["p"])
    net = Net(seed, params["peers"], Config(routing="pulsarcast", history=history))
    members = net.draw_subscribers(params["subscribers"])
    net.subscribe(*members, since="beginning")
    net.run_cycles(JOIN_CYCLES)
    net.publish_all(members, params["events"], EVERY_MS)
    net.run_cycles(PROVIDED_CYCLES)
    events = net.stored(members[0])
    providers = {event.cid: providers_of(net, event.cid) for event in events}
    crashed = round(params["crash"] * len(net.nodes))
    net.crash(*net.dice.some("lab.crash", range(len(net.nodes)), crashed))
    up = {net.nodes[number].contact.peer for number in net.alive()}
    named = {event.cid: up.intersection(providers_of(net, event.cid)) for event in events}
    found = _found(net, members, list(providers), up)
    live = len(net.alive(members))
    others = [providers[event.cid] - {event.publisher} for event in events]
    left = np.array([live - (event.publisher in up) for event in events])
    return {
        "event": np.arange(len(events), dtype=np.int32),
        "own_copy": np.array([event.publisher in providers[event.cid] for event in events]),
        "copies": np.array([len(some) for some in others], dtype=np.int32),
        "copies_expected": params["p"] * (len(members) - 1),
        "survived": np.array([bool(up & some) for some in others]),
        "expected": 1 - (1 - params["p"]) ** left,
        "held": np.array([bool(up & some) for some in providers.values()]),
        "named": np.array([bool(some) for some in named.values()]),
        "found": np.array([found[cid] for cid in providers]),
    }


def providers_of(net: Net, cid: Cid) -> set[PeerId]:
    """The peers that records name as providers of a block; only records of peers that are up."""
    key = block_key_of(cid)
    found: set[PeerId] = set()
    for node in net.nodes:
        if isinstance(node.machine, Peer) and node.machine.dht is not None:
            found.update(one.peer for one in node.machine.dht.providers.get(key))
    return found


def _found(net: Net, members: list[int], cids: list[Cid], up: set[PeerId]) -> dict[Cid, bool]:
    """Ask the DHT for each event, from a peer outside the topic (or the last one inside)."""
    inside = set(members)
    alive = net.alive()
    asker = net.nodes[next((one for one in alive if one not in inside), alive[-1])]
    blocks = {node.contact.peer: node.store for node in net.nodes}
    found: dict[Cid, bool] = {}
    for start in range(0, len(cids), ASKED_AT_ONCE):
        some = cids[start : start + ASKED_AT_ONCE]
        for cid, contacts in zip(some, _providers(net, asker, some), strict=True):
            found[cid] = any(_has(blocks, up, one.peer, cid) for one in contacts)
    return found


def _providers(net: Net, asker: Node, cids: list[Cid]) -> list[Sequence[Contact]]:
    """What the DHT answers, block by block."""
    answers = net.world.record.answers

    def ask(cid: Cid) -> int:
        key = block_key_of(cid)
        return net.world.ask(asker, lambda token: DhtFindProviders(token, key, PROVIDERS_WANTED))

    tokens = [ask(cid) for cid in cids]
    net.run_while(lambda: any(answers[token] is None for token in tokens), 100, ANSWER_MS)
    given = [answers[token] for token in tokens]
    return [answer[1].contacts if answer is not None else () for answer in given]


def _has(blocks: Mapping[PeerId, Store | None], up: set[PeerId], peer: PeerId, cid: Cid) -> bool:
    store = blocks[peer]
    return peer in up and store is not None and store.get(cid) is not None


COLUMNS = joined(
    reals("p", "crash"),
    smalls("peers", "subscribers", "event"),
    truths("own_copy"),
    smalls("copies"),
    reals("copies_expected"),
    truths("survived"),
    reals("expected"),
    truths("held", "named", "found"),
)
TITLES = {
    "own": "events that their publisher provides",
    "copies": "copies less those expected, over the noise allowed, the most",
    "survival": "survival less that expected, over the noise allowed, the most",
    "found": "found, of the events that a live peer provides",
    "named_found": "found, of those that a live provider is on record for",
}
RIGHT = 0.99
"""With this chance all points keep to the noise allowed if draws are fair."""


def deviations(size: Size) -> float:
    """How many standard deviations are allowed, so that no point of many exceeds them."""
    tests = 2 * len(points(size))
    return NormalDist().inv_cdf(1 - (1 - RIGHT) / tests / 2)


def agreement(size: Size) -> Callable[[DataFrame], DataFrame]:
    """Per seed: the largest departures from the closed forms over all points, in units of what is
    allowed: so many standard deviations, and one event, because numbers are whole."""
    allowed = deviations(size)

    def transform(rows: DataFrame) -> DataFrame:
        chance = F.col("expected")
        others = F.col("subscribers") - 1
        sums = rows.groupBy("seed", "p", "crash").agg(
            _off("copies", F.col("copies_expected")).alias("copies_off"),
            F.sqrt(F.sum(others * F.col("p") * (1 - F.col("p")))).alias("copies_noise"),
            _off("survived", chance).alias("survived_off"),
            F.sqrt(F.sum(chance * (1 - chance))).alias("survived_noise"),
            F.sum(F.col("found").cast("int")).alias("found"),
            F.sum(F.col("named").cast("int")).alias("named"),
            F.sum(F.col("held").cast("int")).alias("held"),
            F.avg(F.col("own_copy").cast("double")).alias("own"),
        )
        return sums.groupBy("seed").agg(
            F.max(F.col("copies_off") / (1 + allowed * F.col("copies_noise"))).alias("copies"),
            F.max(F.col("survived_off") / (1 + allowed * F.col("survived_noise"))).alias(
                "survival"
            ),
            (F.sum("found") / F.sum("held")).alias("found"),
            (F.sum("found") / F.sum("named")).alias("named_found"),
            F.min("own").alias("own"),
        )

    return transform


def _off(name: str, expected: Column) -> Column:
    return F.abs(F.sum(F.col(name).cast("double") - expected))


def measure(rows: DataFrame, size: Size) -> DataFrame:
    asked = at_least(1.0, "own") | at_most(1.0, "copies", "survival") | at_least(0.99, "found")
    others = {
        "copies at other peers": F.col("copies"),
        "survived without the publisher's copy": F.col("survived"),
        "expected so": F.col("expected"),
        "survived": F.col("held"),
        "found by a stranger": F.col("found"),
    }
    point = F.format_string("p = %.2f, %.0f %% crashed; ", F.col("p"), F.col("crash") * 100)
    return together(
        rows.transform(agreement(size)).transform(numbers(TITLES, asked)),
        rows.transform(told(others, ("p", "crash"), point)),
    )


def figure(rows: DataFrame) -> Figure:
    names = ("copies", "copies_expected", "survived", "expected", "held", "found")
    points = means(rows, ("p", "crash"), *names)
    drawing, [copies, survival, found] = panels(columns=3)
    chances = points.groupby("p")[["copies", "copies_expected"]].mean().reset_index()
    copies.plot(chances["p"], chances["copies"], ls="none", marker="o", color=colour(0))
    copies.plot(chances["p"], chances["copies_expected"], ls="--", color=colour(0))
    copies.set(xlabel="p", ylabel="copies of an event at other peers")
    copies.set_title("dots: counted; dashes: p times the others")
    for number, (p, some) in enumerate(points.groupby("p")):
        style: Any = {**look(number), "label": f"p = {p:g}"}
        x = 100 * some["crash"]
        survival.plot(x, 100 * some["survived"], ls="none", **style)
        survival.plot(x, 100 * some["expected"], ls="--", color=colour(number), lw=1.1)
        found.plot(x, 100 * some["found"], **style)
        found.plot(x, 100 * some["held"], ls=":", color=colour(number), lw=1.1)
    survival.set_ylabel("events with a copy left, %")
    survival.set_title("publishers' own copies not counted; dashes: expected")
    found.set_ylabel("events that a stranger finds, %")
    found.set_title("by the DHT; dotted: with a provider left")
    for panel in (survival, found):
        panel.set_xlabel("crashed at once, %")
        panel.set_xticks(np.unique(100 * points["crash"]))
        panel.set_ylim(-4, 104)
    found.legend(loc="lower left")
    return drawing


ENTRY = Entry.of(
    __name__,
    title="Events outlive their publishers",
    claim="A publisher provides its events. Where each other peer on the way does so, too, with "
    "probability p, an event has p copies for each of them, and one of these survives a crash with "
    "the chance 1 − (1 − p)^L, where L of the peers are left. Whatever survives is found, though "
    "most of the peers that had its record may be gone as well.",
    seeds={"quick": 1, "full": 2},
    tolerances=reasons(
        TITLES,
        own=ground.paper("2026-11-15", "That is the rule where events travel by trees."),
        copies=ground.by_construction(
            "2026-11-16",
            "A coin is thrown for each: so many standard deviations that all points keep to them "
            "with a chance of 0.99, and one copy more, because numbers are whole.",
        ),
        survival=ground.by_construction(
            "2026-11-16", "The same, of independent draws with the chances expected."
        ),
        found=ground.asked(
            "2026-11-15",
            "A lookup asks all of the closest peers that are left; one in a hundred may "
            "fail on tables that name mostly the dead. Until 2026-11-16 it was asked only of "
            "events whose record was left somewhere.",
        ),
    ),
    defects=(
        Defect(
            "records of providers are not taken",
            lost("AddProvider"),
            where=lambda params: params["crash"] == 0.5,
        ),
        Defect(
            "lookups are not answered",
            lost("FindReply", one_in=2),
            where=lambda params: params["crash"] == 0.5,
        ),
    ),
)
