"""Whatever a valid message says, in whatever order things happen: a peer never fails, its tables
stay within their bounds, and what it says and wishes is well formed.

`protocol_kit.check` runs after every step. The settings make all tables tiny, so that every bound
is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbitrary import MESSAGES, PEERS, TOPICS, answer_to, any_message, pooled_message
from protocol_kit import Rig, contact
from weft.ids import Topic
from weft.protocol import config as c
from weft.protocol import messages as m
from weft.protocol import seam

TINY = c.Config(
    cyclon=c.Cyclon(view_size=4, shuffle_length=3, join_walk_steps=2, stable_period_max=2),
    size=c.Size(collisions=2, walks_at_once=2, fresh_ms=30_000),
    tera=c.Tera(
        table_size=3,
        advert_page=2,
        advertise_to=2,
        pending_max=3,
        route_attempts=2,
        lookup_visits_unknown=4,
    ),
    links=c.Links(wanted=2, most=3),
    stan=c.Stan(True, view_size=3, walk_steps=2, period_max=2, confirm_ms=15_000, lean=True),
    dissemination=c.Dissemination(
        recent_events_max=5,
        recent_bytes_max=16,
        streams_max=3,
        gaps_max=3,
        repair_batch=2,
        repair_bytes_max=4,
        recent_ms=20_000,
    ),
    trace=True,
)

real_topics = st.sampled_from([Topic(topic) for topic in TOPICS if topic])
tokens = st.integers(1, 5)
facts = st.one_of(
    st.builds(seam.Received, st.sampled_from(PEERS), any_message),
    st.builds(seam.PeerLost, st.sampled_from([peer.peer for peer in PEERS])),
    st.builds(seam.Subscribe, tokens, real_topics, st.sampled_from((None, "gossip", "flood"))),
    st.builds(seam.Unsubscribe, tokens, real_topics),
    st.builds(
        seam.Publish,
        tokens,
        real_topics,
        st.lists(st.binary(max_size=8), min_size=1, max_size=4).map(tuple),
        st.just(0),
    ),
    st.builds(
        seam.PublishTogether,
        st.just((6, 7)),
        st.just((Topic("/a"), Topic("/b"))),
        st.binary(max_size=8),
        st.just(0),
    ),
    st.builds(seam.Collect),
    st.builds(seam.Join, st.tuples(st.sampled_from(PEERS))),
)
steps = st.one_of(facts, facts, facts, st.integers(0, 60_000))  # a fact, or time that passes
Script = list[seam.Input | int]


def ready(topics: int = 2) -> Rig:
    """A peer with neighbours, subscribed to some topics, linked in the first."""
    rig = Rig(1, TINY)
    for topic in TOPICS[1 : topics + 1]:
        rig.subscribe(Topic(topic))
    rig.meet(2, 3)
    rig.link(2, 3, topic=Topic("/a"))
    return rig


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_no_message_hurts(kind: type, data: st.DataObject) -> None:
    rig = ready()
    for _ in range(4):
        sender = data.draw(st.sampled_from(PEERS))
        rig.do(seam.Received(sender, data.draw(MESSAGES[kind])))
    rig.wait(50_000)


@settings(max_examples=300)
@given(st.lists(steps, max_size=40))
def test_no_order_of_things_hurts(script: Script) -> None:
    rig = ready()
    play(rig, script)
    rig.wait(100_000)


@settings(max_examples=60)
@given(st.lists(steps, max_size=15), st.lists(steps, max_size=15))
def test_a_peer_that_left_is_silent(before: Script, after: Script) -> None:
    rig = ready()
    play(rig, before)
    rig.do(seam.Leave())
    for step in after:
        if not isinstance(step, int):
            assert rig.do(step) == []
    assert rig.wait(100_000) == []


@settings(max_examples=40)
@given(st.lists(steps, max_size=25))
def test_the_same_facts_have_the_same_effects(script: Script) -> None:
    first, second = ready(), ready()
    assert play(first, script) == play(second, script)
    assert first.peer.status() == second.peer.status()


@pytest.mark.parametrize("seed", range(6))
def test_no_conversation_hurts(seed: int) -> None:
    converse(ready(), Random(seed), 800, lambda rig: None)


def next_step(rig: Rig, rng: Random, said: list[m.AnyMessage]) -> list[seam.Effect]:
    topic, token = Topic(rng.choice(TOPICS[1:])), rng.randrange(9)
    choice = rng.randrange(100)
    if choice < 35 and said:
        return rig.do(seam.Received(rng.choice(PEERS), answer_to(rng.choice(said), rng)))
    if choice < 70:
        return rig.do(seam.Received(rng.choice(PEERS), pooled_message(rng)))
    if choice < 74:
        return rig.do(seam.PeerLost(rng.choice(PEERS).peer))
    if choice < 78:
        return rig.do(seam.Subscribe(token, topic, rng.choice((None, "flood", "gossip"))))
    if choice < 81:
        return rig.do(seam.Unsubscribe(token, topic))
    if choice < 84:
        both = (Topic("/a"), Topic("/c"))
        return rig.do(seam.PublishTogether((token, token + 9), both, rng.randbytes(3), 0))
    if choice < 87:
        return rig.do(seam.Publish(token, topic, (rng.randbytes(3),), 0))
    return rig.wait(rng.choice((1, 50, 500, 5_000, 20_000)))


def converse(rig: Rig, rng: Random, steps: int, check: Callable[[Rig], None]) -> None:
    """Longer, and half of what is heard answers what was said: that reaches deeper states."""
    said: list[m.AnyMessage] = []
    for _ in range(steps):
        effects = next_step(rig, rng, said)
        check(rig)
        said = (said + [e.message for e in effects if isinstance(e, seam.Send)])[-40:]
    assert rig.peer.status()["cycle"]


def play(rig: Rig, script: Script) -> list[seam.Effect]:
    effects = []
    for step in script:
        effects += rig.wait(step) if isinstance(step, int) else rig.do(step)
    return effects


def test_holds_and_releases_balance() -> None:
    """Every connection that is held is released once nothing needs it."""
    rig = ready()
    effects = rig.do(seam.Unsubscribe(1, Topic("/a")))
    released = [e.peer for e in effects if isinstance(e, seam.Release)]
    assert sorted(released) == [contact(2).peer, contact(3).peer]


def test_every_message_has_a_strategy() -> None:
    assert len(MESSAGES) == len(m.AnyMessage.__args__)  # type: ignore[attr-defined]
