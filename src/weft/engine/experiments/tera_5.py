"""tera-5a, 5b: who carries the load (TERA 4.3.1, Fig. 5).

One event per cycle is published in a network of many subscriptions. Each peer's load is the
number of messages it sent or received, in the general overlay (view exchanges, advertisements,
walks, events on the way to an access point) and in topic overlays (view exchanges, floods).

The general load should be flat. View exchanges are: each peer asks once a cycle, and is asked
about once, since it puts one new entry for itself into the overlay in each cycle and every
entry is used up by one question. What varies is who receives advertisements. One message carries
a peer's whole list; `general_single` is the load if every advertised topic were a message of its
own, under which peers with more subscriptions send more, in the general overlay too.
"""

from __future__ import annotations

import math

import numpy as np

from weft.engine.core.arrays import Array
from weft.engine.core.draws import random_peers
from weft.engine.experiments.common import Columns, Params, Point, Size, rank_correlation, workload
from weft.engine.tera.events import Events
from weft.engine.tera.world import Settings, build
from weft.rules.sizing import visits_expected, visits_for

SEEDS = {"quick": 1, "full": 10}
_SUCCESS = 0.999  # of lookups, from which K follows


def _points(zipf: float, size: Size) -> list[Point]:
    if size == "full":
        shape = {"peers": 10_000, "topics": 1_000, "subscriptions": 200_000, "cycles": 300}
    else:
        shape = {"peers": 3_000, "topics": 1_000, "subscriptions": 60_000, "cycles": 300}
    return [{**shape, "zipf": zipf, "table_size": 10}]


def points_a(size: Size) -> list[Point]:
    return _points(0.0, size)


def points_b(size: Size) -> list[Point]:
    return _points(0.7, size)


def general_bound(params: Params, walked: float, mean: float) -> float:
    """How large max/mean of the general load may be by chance; 1.06 at the paper's size.

    Over a run of c cycles, a peer's messages vary by the sum of
    - advertisements received: c·D/T, as if thrown at random; and as many again in proportion
      as in-degrees drift (std 1.5 of 20, over about 20 cycles);
    - being asked: in each exchange 2·L entries change hands, V/N of them duplicates, of which
      one copy is lost and another kept, so entries naming a peer drift by 4·L·V/N per cycle;
      each entry is one question, two messages;
    - walks that pass by, two messages each: `walked` of them per event, over all peers.
    The largest of N loads lies about sqrt(2·ln N) deviations above the mean; half a deviation
    is added for its own scatter.
    """
    cycles, peers = params["cycles"], params["peers"]
    usual = Settings()
    adverts = cycles * usual.advertise_to / usual.advertise_every
    drift = (adverts * 1.5 / usual.view_size) ** 2 * 2 * 20 / cycles
    asked = 2 * 1.5**2 + cycles * 4 * usual.shuffle_length * usual.view_size / peers
    walks = cycles * walked / peers
    deviation = math.sqrt(adverts + drift + 4 * asked + 4 * walks)
    return 1.0 + (math.sqrt(2.0 * math.log(peers)) + 0.5) * deviation / mean


def run(params: Params, seed: int) -> Columns:
    """Rows: one per peer."""
    held = workload(params, seed)
    settings = Settings(
        table_size=params["table_size"],
        visits=visits_for(_SUCCESS, params["table_size"], held.topics),
        settled=True,
        load=True,
    )
    world = build(settings, held, seed)
    events = Events(world)
    topics = random_peers(params["cycles"], held.topics, seed, "tera-5.topic", 0)
    publishers = random_peers(params["cycles"], held.peers, seed, "tera-5.publisher", 0)
    for cycle in range(params["cycles"]):
        world.step()
        events.publish(topics[cycle : cycle + 1], publishers[cycle : cycle + 1])
        events.advance()
    general, extra, topic = world.general_load, world.extra_load, world.topics.handled
    assert general is not None and extra is not None and topic is not None
    of_topics = np.bincount(held.members, weights=topic, minlength=held.peers)
    subscriptions = held.per_peer()
    walked = visits_expected(params["table_size"], held.topics, settings.visits, settings.walks)
    return {
        "peer": np.arange(held.peers),
        "subscriptions_held": subscriptions,
        "general": general,
        "general_single": general + extra,
        "topic": of_topics.astype(np.int64),
        "general_max_to_mean": _max_to_mean(general),
        "general_max_to_mean_bound": general_bound(params, walked, float(general.mean())),
        "general_single_max_to_mean": _max_to_mean(general + extra),
        "rank_correlation": rank_correlation(general + of_topics, subscriptions),
        "rank_correlation_single": rank_correlation(general + extra + of_topics, subscriptions),
        "events_lost": events.totals.lost,
    }


def _max_to_mean(load: Array) -> float:
    return float(load.max() / load.mean())


def seconds(params: Params) -> float:
    return float(params["cycles"] * params["subscriptions"] * 4e-7)
