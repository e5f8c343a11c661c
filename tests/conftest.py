"""Settings and fixtures shared by all tests.

A limit is there to end a test that hangs, not one that is slow: it fits a machine ten times slower
than two idle cores. Slow tests get more, and the start of the Spark session that they share is not
counted.

Hypothesis draws the same examples in every run and keeps no database, so that a run that passes
here passes everywhere. `--hypothesis-profile explore` looks for new ones instead.

Tests marked `slow` are left out by `weft test --fast`: those of SLOW, and all that use Spark. What
is slow as a whole is then not even imported: numba and Spark take seconds.

With several processes at work (`--dist loadgroup`), the tests that use Spark are two groups: each
has a session, which takes seconds to start and is slow at first. Every other file is a group of its
own. What takes longest begins first, so that no process is left with much to do when the others
have ended; Spark's tests, half of all CPU time (measured), would end last by far as one group.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_fixture import SharedSpark

LONG_SECONDS = 1_800
_TESTS = Path(__file__).parent
_PROCESSES = _TESTS / "end_to_end"
FAST = "not slow"
SLOW = (
    "cli/test_cli_bootstrap.py",
    "cli/test_cli_data_views.py::test_mistakes_are_told_before_spark_is_started",
    "demo/test_demo_figures.py::test_latency_bars_count_everything",
    "differential",
    "end_to_end",
    "engine",
    "lab",
    "net/test_net_connection_bad_input.py::test_500_greeting_connections_at_once_do_no_harm",
    "net/test_net_connection_bad_input.py::test_500_silent_connections_at_once_do_no_harm",
    "net/test_net_codec.py::test_arbitrary_bytes_raise_nothing_but_a_frame_fault",
    "net/test_net_codec.py::test_damaged_messages_raise_nothing_but_a_frame_fault",
    "net/test_net_dht.py::test_twenty_peers_hold_and_find_and_survive_a_kill",
    "net/test_net_local.py",
    "net/test_net_runtime.py::test_a_closed_peer_is_not_kept_alive_by_its_timers",
    "pipeline",
    "protocol/history/test_history_reader_behind.py",
    "protocol/history/test_history_history.py"
    "::test_long_branches_are_joined_though_hardly_anything_can_wait",
    "protocol/history/test_history_history.py::test_long_branches_that_grew_apart_are_joined",
    "protocol/history/test_history_history.py"
    "::test_slow_and_uneven_ways_lose_nothing_among_a_hundred",
    "protocol/history/test_history_stream_order.py",
    "protocol/history/test_history_reader.py"
    "::test_a_reader_that_is_far_behind_leaves_what_comes_to_the_pages",
    "protocol/history/test_history_reader.py"
    "::test_whatever_is_lost_with_little_room_everything_comes_in_the_end",
    "protocol/history/test_history_reader.py"
    "::test_a_reader_whose_head_nobody_has_does_not_read_everything_again",
    "protocol/kademlia/test_kademlia_kademlia_hostile.py::test_no_conversation_hurts",
    "protocol/pulsar/test_pulsar_pulsar_fuzz.py",
    "protocol/pulsar/test_pulsar_pulsar_woods.py",
    "protocol/tera/test_tera_access_points_adverts.py::test_a_cycle_of_a_peer_with_very_many_topics_costs_little",
    "protocol/tera/test_tera_access_points_adverts.py::test_a_message_to_a_peer_with_very_many_topics_touches_one_topic",
    "protocol/tera/test_tera_size.py",
    "protocol/tera/test_tera_stan.py",
    "protocol/test_protocol_peer_fuzz.py",
    "protocol/topic_dht/test_topic_dht_topic_dht_fuzz.py",
    "protocol/topic_dht/test_topic_dht_topic_dht_model.py",
    "protocol/topic_dht/test_topic_dht_upkeep_samples.py",
    "protocol/topic_dht/test_topic_dht_events_schemes.py",
    "rules/test_rules_hierarchy.py"
    "::test_several_topics_climb_together_and_each_level_names_one_of_them",
    "scenarios",
    "sim/checkers/test_checkers_trees.py::test_a_calm_network_keeps_its_roots",
    "sim/checkers/test_checkers_trees.py::test_every_run_over_trees_is_asked_for_its_roots",
    "sim/test_sim_campaign.py",
    "sim/test_sim_runs_command.py",
    "sim/test_sim_dht.py",
    "sim/test_sim_dht_bench.py",
    "sim/test_sim_scenario_hierarchy.py",
    "sim/test_sim_hostile.py",
    "sim/test_sim_reader_runs.py",
    "sim/test_sim_scenario_routings.py",
    "sim/test_sim_topic_dht.py",
    "store/test_store_interface.py::test_sqlite_does_as_memory_does",
    "store/test_store_sqlite_kills.py",
    "test_examples.py",
    "test_imports.py",
    "test_spark_fixture.py",
    "test_tidy.py::test_the_house_is_tidy",
    "web/test_web_page.py",
)
"""Folders, files and single tests (`FILE::test_name`) that take most of the suite's time."""

# A shell's background jobs ignore SIGINT, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,  # machines differ; slow tests are found by pytest's own timeout
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore",
    derandomize=False,
    database=None,
    deadline=None,
    max_examples=2_000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.getoption("markexpr") != FAST or not collection_path.is_relative_to(_TESTS):
        return None
    return collection_path.relative_to(_TESTS).as_posix() in SLOW or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {}
    for item in items:
        uses_spark = "shared_spark" in getattr(item, "fixturenames", ())
        is_process = _PROCESSES in item.path.parents
        slow = uses_spark or _is_slow(item)
        if slow:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(LONG_SECONDS, func_only=True))
        place = item.path.relative_to(_TESTS)
        half = "spark pipeline" if place.parts[0] == "pipeline" else "spark"
        group = half if uses_spark else place.as_posix()
        item.add_marker(pytest.mark.xdist_group(group))
        ranks[item] = (not uses_spark, not is_process, not slow)
    items.sort(key=ranks.__getitem__)


def pytest_collection_finish() -> None:
    """What is loaded by now stays: garbage collections need not look at it in every test."""
    gc.collect()
    gc.freeze()


def _is_slow(item: pytest.Item) -> bool:
    path = item.path.relative_to(_TESTS)
    name = item.name.partition("[")[0]
    places = {f"{path.as_posix()}::{name}", path.as_posix(), *map(Path.as_posix, path.parents)}
    return not places.isdisjoint(SLOW)


@pytest.fixture(scope="session")
def shared_spark() -> Iterator[SharedSpark]:
    """For fixtures that live longer than a test; tests take `spark`."""
    # Spark is imported when it is used.
    with import_module("spark_fixture").shared() as spark:
        yield spark


@pytest.fixture
def spark(shared_spark: SharedSpark) -> SparkSession:
    """A session that works, the same for all tests as long as it does."""
    return shared_spark.session()
