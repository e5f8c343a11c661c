"""pulsar-persist: which peers have events, and what survives a crash.

All subscribers publish in turn. A publisher provides its events in the DHT, and each other
subscriber that takes one in does so with probability p: what it provides is the event's segment, a
part of the stream. Then a share of all peers crashes at once, and a peer outside the topic asks the
DHT for the segment of each event. An event has *survived* if a live peer has it in its store; it is
*provided* if such a peer provides its segment, and *found* if the DHT still leads to such a peer.

How many others are to provide an event follows from p. Of the other subscribers those that have
published in its segment provide that anyway; each of the m that have not does so with the chance
q = 1 − (1 − p)^s, where s events are in the segment, since it draws for each of them. So the others
that provide the event are expected to be those that published, and m·q. All s events of a segment
have the same m draws in common: added up over its events, their number has the variance
s²·m·q·(1 − q).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from weft.documents.descriptor import SealedEvent
from weft.ids import Cid, Contact, PeerId
from weft.lab import ground
from weft.lab.defect import Defect, left_out, lost
from weft.lab.experiment import Columns, Entry, Params, Size, every
from weft.lab.figures import Figure, colour, look, means, panels
from weft.lab.measures import at_least, at_most, reals, reasons, smalls, told, truths
from weft.lab.pulsar import JOIN_CYCLES, Net
from weft.pipeline.schemas import joined
from weft.pipeline.transforms import numbers, together
from weft.protocol.config import Config, HistorySettings
from weft.protocol.history.fetch import PROVIDERS_WANTED
from weft.protocol.peer import Peer
from weft.protocol.seam import DhtFindProviders
from weft.rules.prefix import segment_key
from weft.sim.node import Node

CHANCES = {"quick": (0.0, 0.1, 0.5), "full": (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)}
CRASHES = {"quick": (0.5, 0.7), "full": (0.1, 0.3, 0.5, 0.7, 0.9)}


def points(size: Size) -> list[Params]:
    large = {"peers": 60, "subscribers": 30, "events": 60}
    some = large if size == "full" else {"peers": 24, "subscribers": 12, "events": 24}
    return every(some, p=CHANCES[size], crash=CRASHES[size])


def seconds(params: Params) -> float:
    events = float(params["peers"] * params["events"])
    return events * (1 + 4 * float(params["p"])) / 3_000


SEGMENT_HEIGHTS = 8
"""Fewer heights than by default, so that a short stream has several segments."""
EVERY_MS = 100
PROVIDED_CYCLES = 2
"""measured: by then all providers have told the DHT."""
ASKED_AT_ONCE = 8
ANSWER_MS = 60_000
"""guess: enough for a lookup through tables in which most peers are dead."""


def run(params: Params, seed: int) -> Columns:
    history = HistorySettings(
        enabled=True, provide_probability=params["p"], segment_heights=SEGMENT_HEIGHTS
    )
    net = Net(seed, params["peers"], Config(routing="pulsarcast", history=history))
    members = net.draw_subscribers(params["subscribers"])
    net.subscribe(*members, since="beginning")
    net.run_cycles(JOIN_CYCLES)
    net.publish_all(members, params["events"], EVERY_MS)
    net.run_cycles(PROVIDED_CYCLES)
    events = net.stored(members[0])
    keys = [segment_key(net.topic, (event.height - 1) // SEGMENT_HEIGHTS) for event in events]
    before = [providers_of(net, key) for key in keys]
    crashed = round(params["crash"] * len(net.nodes))
    net.crash(*net.dice.some("lab.crash", range(len(net.nodes)), crashed))
    after = [providers_of(net, key) for key in keys]
    named_to = _asked(net, members, keys)
    left = [_holders(net, event.cid) for event in events]
    return {
        "event": np.arange(len(events), dtype=np.int32),
        "own": np.array(
            [event.publisher in some for event, some in zip(events, before, strict=True)]
        ),
        "copies": np.array(
            [len(some - {event.publisher}) for event, some in zip(events, before, strict=True)],
            dtype=np.int32,
        ),
        **copies_expected(events, keys, len(members), params["p"]),
        "survived": np.array([bool(some) for some in left]),
        "provided": _both(left, before),
        "named": _both(left, after),
        "found": _both(left, [set(named_to[key]) for key in keys]),
    }


def copies_expected(
    events: Sequence[SealedEvent], keys: Sequence[bytes], members: int, p: float
) -> Columns:
    """For each event, how many others are to provide it; and its share of the variance of these
    numbers added up (see the module's head)."""
    publishers: dict[bytes, list[PeerId]] = {}
    for event, key in zip(events, keys, strict=True):
        publishers.setdefault(key, []).append(event.publisher)
    expected, variance = [], []
    for key in keys:
        size, own = len(publishers[key]), len(set(publishers[key]))
        drawn = 1 - (1 - p) ** size
        expected.append(own - 1 + (members - own) * drawn)
        variance.append(size * (members - own) * drawn * (1 - drawn))
    return {"copies_expected": np.array(expected), "copies_variance": np.array(variance)}


def providers_of(net: Net, key: bytes) -> set[PeerId]:
    """The peers that records name as providers of a key; only records of peers that are up."""
    found: set[PeerId] = set()
    for node in net.nodes:
        if isinstance(node.machine, Peer) and node.machine.dht is not None:
            found.update(one.peer for one in node.machine.dht.providers.get(key))
    return found


def _holders(net: Net, cid: Cid) -> set[PeerId]:
    """The peers that are up and have an event in their store."""
    up = (net.nodes[number] for number in net.alive())
    return {node.contact.peer for node in up if node.store is not None and node.store.has(cid)}


def _both(some: list[set[PeerId]], others: list[set[PeerId]]) -> npt.NDArray[np.bool_]:
    """For each event, whether one peer is among both."""
    return np.array([bool(one & other) for one, other in zip(some, others, strict=True)])


def _asked(net: Net, members: list[int], keys: list[bytes]) -> dict[bytes, list[PeerId]]:
    """The peers that the DHT names for each key to a peer outside the topic, else inside it."""
    inside = set(members)
    alive = net.alive()
    asker = net.nodes[next((one for one in alive if one not in inside), alive[-1])]
    wanted = list(dict.fromkeys(keys))
    found: dict[bytes, list[PeerId]] = {}
    for start in range(0, len(wanted), ASKED_AT_ONCE):
        some = wanted[start : start + ASKED_AT_ONCE]
        for key, contacts in zip(some, _providers(net, asker, some), strict=True):
            found[key] = [one.peer for one in contacts]
    return found


def _providers(net: Net, asker: Node, keys: list[bytes]) -> list[Sequence[Contact]]:
    """What the DHT answers, key by key."""
    answers = net.world.record.answers

    def ask(key: bytes) -> int:
        return net.world.ask(asker, lambda token: DhtFindProviders(token, key, PROVIDERS_WANTED))

    tokens = [ask(key) for key in keys]
    net.run_while(lambda: any(answers[token] is None for token in tokens), 100, ANSWER_MS)
    given = [answers[token] for token in tokens]
    return [answer[1].contacts if answer is not None else () for answer in given]


COLUMNS = joined(
    reals("p", "crash"),
    smalls("peers", "subscribers", "event"),
    truths("own"),
    smalls("copies"),
    reals("copies_expected", "copies_variance"),
    truths("survived", "provided", "named", "found"),
)
TITLES = {
    "own": "events that their publisher provides",
    "copies": "others that provide an event less those expected, over the noise allowed, the most",
    "found": "found, of the events that a live peer provides",
    "all_found": "found, of all that survive, where peers on the way provide",
    "named_found": "found, of those that a live provider is on record for",
}


RIGHT = 0.99
"""With this chance all points keep to the noise allowed, if draws are fair."""


def deviations(size: Size) -> float:
    """How many standard deviations are allowed, so that with that chance no point exceeds them."""
    return NormalDist().inv_cdf(1 - (1 - RIGHT) / len(points(size)) / 2)


def agreement(size: Size) -> Callable[[DataFrame], DataFrame]:
    """Per seed: the largest departure of copies from what p says, over all points, in units of what
    is allowed: so many standard deviations, and one copy, because numbers are whole."""

    def transform(rows: DataFrame) -> DataFrame:
        sums = rows.groupBy("seed", "p", "crash").agg(
            F.abs(F.sum(F.col("copies") - F.col("copies_expected"))).alias("off"),
            F.sqrt(F.sum("copies_variance")).alias("noise"),
        )
        allowed = 1 + deviations(size) * F.col("noise")
        return sums.groupBy("seed").agg(F.max(F.col("off") / allowed).alias("copies"))

    return transform


def shares(rows: DataFrame) -> DataFrame:
    """Per seed, over all points: how much of what there is was found."""
    drawn = F.col("p") > 0
    return rows.groupBy("seed").agg(
        F.avg(F.col("own").cast("double")).alias("own"),
        (_count("found") / _count("provided")).alias("found"),
        (_count("found", drawn) / _count("survived", drawn)).alias("all_found"),
        (_count("found") / _count("named")).alias("named_found"),
    )


def _count(name: str, where: Column | None = None) -> Column:
    counted = F.col(name) if where is None else F.col(name) & where
    return F.sum(counted.cast("double"))


def measure(rows: DataFrame, size: Size) -> DataFrame:
    asked = at_least(1.0, "own") | at_least(0.99, "found", "all_found") | at_most(1.0, "copies")
    others = {
        "other peers that provide it": F.col("copies"),
        "survived in a store": F.col("survived"),
        "provided by a live peer": F.col("provided"),
        "found by a stranger": F.col("found"),
    }
    found = rows.transform(shares).join(rows.transform(agreement(size)), "seed")
    point = F.format_string("p = %.2f, %.0f %% crashed; ", F.col("p"), F.col("crash") * 100)
    return together(
        found.transform(numbers(TITLES, asked)),
        rows.transform(told(others, ("p", "crash"), point)),
    )


def figure(rows: DataFrame) -> Figure:
    names = ("copies", "copies_expected", "survived", "provided", "found")
    points = means(rows, ("p", "crash"), *names)
    drawing, [copies, found] = panels(columns=2)
    chances = points.groupby("p")[["copies", "copies_expected"]].mean().reset_index()
    copies.plot(chances["p"], chances["copies"], ls="none", marker="o", color=colour(0))
    copies.plot(chances["p"], chances["copies_expected"], ls="--", color=colour(0))
    copies.set(xlabel="p", ylabel="other peers that provide an event")
    copies.set_ylim(bottom=0)
    copies.set_title(f"segments of {SEGMENT_HEIGHTS} heights; dashes: by p")
    for number, (p, some) in enumerate(points.groupby("p")):
        style: Any = {**look(number), "label": f"p = {p:g}"}
        x = 100 * some["crash"]
        found.plot(x, 100 * some["found"], **style)
        found.plot(x, 100 * some["survived"], ls=":", color=colour(number), lw=1.1)
    found.set(xlabel="crashed at once, %", ylabel="events that a stranger finds, %")
    found.set_title("by the DHT; dotted: in a live store")
    found.set_xticks(np.unique(100 * points["crash"]))
    found.set_ylim(-4, 104)
    found.legend(loc="lower left")
    return drawing


ENTRY = Entry.of(
    __name__,
    title="Events outlive their publishers",
    claim="A publisher provides its events. Where each other peer on the way does so, too, with "
    "probability p, as many provide an event as follow from p, and events outlive their "
    "publishers: an event that survives a crash in a store "
    "is found, though most of the peers that had its record may be gone as well.",
    seeds={"quick": 1, "full": 2},
    tolerances=reasons(
        TITLES,
        own=ground.paper("2026-11-15", "A publisher gives each event to the DHT (Section 4.4)."),
        copies=ground.derived(
            "2026-11-19",
            "Draws with the chances of the module's head: so many standard deviations that all "
            "points keep to them with a chance of 0.99, and one copy, because numbers are whole. "
            "Judged until 2026-11-16, when each event had a key of its own, and with segments not "
            "until now.",
        ),
        found=ground.asked(
            "2026-11-15",
            "A lookup asks all of the closest peers that are left; one in a hundred may "
            "fail on tables in which most peers are dead. Until 2026-11-16 only events were judged "
            "whose record was left somewhere.",
        ),
        all_found=ground.asked(
            "2026-11-16",
            "The same share of all events that live stores have: a member of the topic provides a "
            "segment unless its draw with p failed for all of the segment's events. With p = 0 "
            "only publishers provide, so those runs are not counted.",
        ),
    ),
    defects=(
        Defect(
            "peers on the way provide nothing",
            {"weft.protocol.history.fetch:Providers.perhaps": left_out},
            where=lambda params: params["crash"] == 0.5,
        ),
        Defect(
            "records of providers are not taken",
            lost("AddProvider"),
            where=lambda params: params["crash"] == 0.5,
        ),
        Defect(
            "a search ends with the first provider that is named",
            {"weft.lab.experiments.pulsar_persist:PROVIDERS_WANTED": lambda wanted: 1},
            where=lambda params: params["crash"] == 0.5,
        ),
    ),
)
