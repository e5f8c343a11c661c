"""What the table is taken to say: the rule, the frontier, where references are better."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from weft.lab.versus import answers, page
from weft.lab.versus.answers import Cell
from weft.lab.versus.systems import OURS, SYSTEMS, default_system
from weft.net.config import Config

DEFAULT = default_system().name


def cell(system: str, measure: str, value: float, fault: str = "calm", level: int = 0) -> Cell:
    return {
        "source": "grid",
        "system": system,
        "fault": fault,
        "level": level,
        "measure": measure,
        "value": value,
        "low": None,
        "high": None,
        "seeds": 1,
    }


def system(
    name: str, delivery: float = 1.0, bytes_: float = 1000.0, links: float = 5.0
) -> list[Cell]:
    return [
        cell(name, "delivery", delivery),
        cell(name, "bytes", bytes_),
        cell(name, "links", links),
    ]


def test_the_cheapest_that_delivers_everything_is_recommended() -> None:
    table = [*system("tera-tree"), *system("tera-gossip", bytes_=500.0)]
    assert answers.recommended(table).system == "tera-gossip"
    table = [*system("tera-tree"), *system("tera-gossip", delivery=0.99, bytes_=500.0)]
    assert answers.recommended(table).system == "tera-tree"


def test_one_that_faults_hurt_is_not_whatever_it_costs() -> None:
    table = [*system("tera-tree"), *system("pulsarcast", bytes_=100.0)]
    table += [cell("tera-tree", "delivery", 0.99, "crash", 50)]
    table += [cell("pulsarcast", "delivery", 0.6, "crash", 50)]
    assert answers.recommended(table).system == "tera-tree"


def test_of_equal_costs_the_fewest_links_decide() -> None:
    table = [*system("tera-tree", links=8.0), *system("tera-tree+stan", bytes_=1010.0, links=4.0)]
    assert answers.recommended(table).system == "tera-tree+stan"


def test_a_reference_is_never_recommended() -> None:
    table = [*system("tera-tree"), *system("ref-scribe", bytes_=1.0)]
    assert answers.recommended(table).system == "tera-tree"


def test_the_frontier_holds_what_nothing_beats() -> None:
    points = {"a": (1.0, 5.0), "b": (2.0, 2.0), "c": (3.0, 3.0), "d": (4.0, 1.0)}
    assert answers.frontier(points) == ["a", "b", "d"]


def test_references_that_are_better_are_named_with_their_numbers() -> None:
    table = [*system(DEFAULT), *system("ref-scribe", bytes_=700.0, links=5.05)]
    table += [cell(DEFAULT, "delivery", 0.9, "crash", 95)]
    table += [cell("ref-gossipsub", "delivery", 0.95, "crash", 95)]
    found = {(each.condition, each.measure): dict(each.by) for each in answers.beaten(table)}
    assert found == {
        ("calm", "bytes"): pytest.approx({"ref-scribe": 700.0}),
        ("crash 95", "delivery"): pytest.approx({"ref-gossipsub": 0.95}),
    }


def test_a_reference_that_loses_events_when_calm_is_no_better_for_being_cheap() -> None:
    table = [*system(DEFAULT), *system("ref-scribe", delivery=0.9, bytes_=1.0)]
    assert not answers.beaten(table)


@pytest.mark.parametrize("name", [each.name for each in OURS])
def test_every_system_of_ours_is_a_config_file_that_a_peer_reads(name: str, tmp_path: Path) -> None:
    path = tmp_path / "weft.toml"
    path.write_text(answers.config_text(name))
    read, meant = Config.load(path).protocol, SYSTEMS[name].config()
    assert (read.routing, read.dissemination, read.stan) == (
        *(meant.routing, meant.dissemination),
        meant.stan,
    )
    assert read.topic_dht == meant.topic_dht


def test_labels_stand_apart_in_the_order_of_their_points() -> None:
    wanted = {f"n{number}": height for number, height in enumerate((0.99, 0.98, 0.98, 0.5, 0.01))}
    found = page.spread(wanted, apart=0.05)
    heights = list(found.values())
    assert list(found) == ["n0", "n1", "n2", "n3", "n4"]
    gaps = [above - below for above, below in pairwise(heights)]
    assert min(gaps) >= 0.05 - 1e-9
    assert (found["n0"], found["n3"], found["n4"]) == (0.99, 0.5, 0.01)
    low = page.spread(dict.fromkeys("abc", 0.0), apart=0.05)
    assert list(low.values()) == pytest.approx([0.1, 0.05, 0.0])
    many = page.spread({str(number): 0.5 for number in range(101)}, apart=0.05)
    assert [max(many.values()), min(many.values())] == pytest.approx([1.0, 0.0])


def test_a_mean_over_sources_has_an_interval_where_each_source_has_one() -> None:
    def of(value: float, half: float | None) -> Cell:
        around = {} if half is None else {"low": value - half, "high": value + half}
        return {**cell(DEFAULT, "delivery", value), **around}  # type: ignore[typeddict-item]

    assert page.mean_of([of(0.5, 0.03), of(0.75, 0.04)]) == "0.625 ±0.025"
    assert page.mean_of([of(0.5, 0.03), of(0.75, None)]) == "0.625"
    assert page.mean_of([of(1.0, 0.0)]) == "1"
    assert page.mean_of([]) == ""
