"""No flood of valid messages makes a peer grow, from any sender.

What a peer holds is counted by walking through everything that hangs on it, so a table that
somebody forgot to bound is found without being named here.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from msgspec import Struct
from test_protocol_peer_fuzz import TINY, ready

from arbitrary import MESSAGES, random_message
from protocol_kit import Rig
from weft.ids import GENERAL, Topic
from weft.protocol.config import Config

FLOOD = 500


def sizes(thing: object) -> Counter[str]:
    """How many entries the containers below `thing` hold, by where they hang."""
    counts: Counter[str] = Counter()
    seen: set[int] = set()
    waiting: list[tuple[str, object]] = [("peer", thing)]
    while waiting:
        where, one = waiting.pop()
        if id(one) in seen or isinstance(one, Config):
            continue
        seen.add(id(one))
        inner: list[tuple[str, object]] = []
        if isinstance(one, dict):
            counts[where] += len(one)
            inner = [(where, value) for value in one.values()]
        elif isinstance(one, list | set | tuple):
            counts[where] += len(one)
            inner = [(where, value) for value in one]
        elif type(one).__module__.startswith("weft.protocol"):
            if isinstance(one, Struct):  # frozen ones are messages and facts
                names = () if one.__struct_config__.frozen else one.__struct_fields__
            else:
                kinds = type(one).__mro__
                slots = [name for kind in kinds for name in getattr(kind, "__slots__", ())]
                names = tuple(slots or vars(one))
            inner = [(f"{type(one).__name__}.{name}", getattr(one, name)) for name in names]
        waiting += inner
    return counts


BOUNDS = {
    "Tree._awaited": 1_024,  # publishers whose announced events are waited for
    "_Awaited.announcers": 3 * 1_024,
    "Questions._asked": 512 * (1 + 8),  # publishers, and events of each, that are asked about
    "_Question.waiting": 512 * 8 * 3,  # neighbours that have asked about each
    "_Question.asked": 512 * 8 * 2 * 3,  # links asked, and announcers
    "Tree._announce": 1_000,  # what came in the last 50 milliseconds
    "Tree._announce_all": 1_000,
    "_Group.waiting": 3 * 64 * 16,  # references to events that have not come
    "Informants._spoke": 1_024,  # peers that spoke for themselves
    "Informants._told": 1_024,  # peers that others told of
    "Quota._counts": 8 * 128,  # peers whose doings are counted, of each kind
    "Shares._counts": 3 * 128 * (1 + 2 + 3),  # such peers, each with a time and three topics
    "Walks._steps": 1_024,  # senders of walks that were passed on
    "Liveness._looked_at": 3 * 128,  # peers that were looked at, each with a time and a pause
}
BOUND = 150


def flood(rig: Rig, rng: Random, kind: type, topic: str, messages: int) -> None:
    """From a linked member, and from ever new strangers."""
    for _ in range(messages):
        sender = 2 if rng.random() < 0.5 else rng.randrange(2, 1 << 40)
        rig.hear(sender, random_message(kind, rng, topic))
        rig.wait(1)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("topic", [GENERAL, Topic("/a")])
def test_no_flood_makes_a_peer_grow(kind: type, topic: Topic) -> None:
    rig = ready()
    rig.publish(topic=Topic("/nobody"))  # a lookup and an event are on their way
    rig.subscribe(Topic("/elsewhere"))  # and a join
    flood(rig, Random(kind.__name__ + topic), kind, topic, FLOOD)
    too_large = {
        where: size for where, size in sizes(rig.peer).items() if size > BOUNDS.get(where, BOUND)
    }
    assert too_large == {}


def test_the_count_sees_what_hangs_on_a_peer() -> None:
    rig = Rig(1, TINY)
    before = sizes(rig.peer)
    rig.subscribe(Topic("/a"))
    rig.link(2, 3, topic=Topic("/a"))
    grown = sizes(rig.peer) - before
    assert grown["Links.linked"] == 2
    assert grown["Tree.eager"] == 2
    assert grown["Liveness.watched"] == 2
