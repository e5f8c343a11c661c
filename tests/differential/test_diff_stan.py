"""StaN's kernel equals the rules exactly: every view, after every round, with every option."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stan_kit import views_of
from stan_reference import Topic
from weft.engine.stan import overlays as engine
from weft.engine.stan.overlays import IDEAL, Config
from weft.engine.stan.views import own_key, weigh, weighing_of
from weft.rules import stan

bits64 = st.integers(0, 2**64 - 1)


@given(bits64, bits64, st.integers(1, 5))
def test_weights(at: int, other: int, shared: int) -> None:
    numbers = np.array([at, other], np.uint64)
    own = np.uint64(own_key(np.uint64(at)))
    topics, nodes = np.tile(np.arange(shared), 2), np.repeat([0, 1], shared)
    for interests, expected in (
        (engine.no_interests(), stan.weight(at, other)),
        (engine.interests_of(topics, nodes), stan.lean_weight(at, other, shared)),
    ):
        weighing = weighing_of(np.arange(2, dtype=np.int32), interests)
        assert int(weigh(own, numbers, 0, 1, weighing)) == expected


configs = st.builds(
    Config,
    ttl=st.integers(0, 7),
    rounds=st.just(4),
    loss=st.sampled_from([0.0, 0.1, 0.5]),
    overheard=st.booleans(),
    patience=st.integers(0, 2),
    longest=st.sampled_from([1, 4]),
    lean=st.booleans(),
    memory=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sets(st.integers(0, 40), min_size=2, max_size=30), min_size=1, max_size=3),
    st.integers(0, 2**63),
    configs,
)
def test_rounds(groups: list[set[int]], seed: int, config: Config) -> None:
    topics = np.array([7 * topic for topic, group in enumerate(groups) for _ in group])
    nodes = np.array([node for group in groups for node in sorted(group)])
    overlays = engine.overlays_of(topics, nodes)
    interests = engine.interests_of(topics, nodes)
    rounds = (*range(config.rounds + 1), IDEAL)
    outcome = engine.run(overlays, config, seed, rounds, interests)
    topics_of = {
        node: {7 * topic for topic, group in enumerate(groups) if node in group}
        for node in nodes.tolist()
    }
    for number, group in enumerate(groups):
        reference = Topic(7 * number, sorted(group), topics_of, seed)
        reference.start(config.lean)
        for tick in range(config.rounds + 1):
            if tick:
                reference.round(tick, config)
            assert views_of(outcome, 7 * number, tick).tolist() == reference.rows()
        assert views_of(outcome, 7 * number, IDEAL).tolist() == reference.ideal()
