"""Links lose, double, delay and reorder messages as told, by draws of their own."""

from __future__ import annotations

import pytest

from weft.rules.draw import absorb
from weft.sim.dice import Dice
from weft.sim.network import Conditions, Latency, Network, Partition


def _latencies(network: Network, count: int, sender: int = 0, receiver: int = 1) -> list[int]:
    found = []
    for _ in range(count):
        found += network.arrivals(sender, receiver, 0)
    return found


def test_inlined_draw_is_the_keyed_draw() -> None:
    network = Network(5, Conditions(latency=Latency("uniform", 512), in_order=False))
    table = Latency("uniform", 512).quantiles()
    key = Dice(5).key("network.link", 3, 4)
    expected = [table[absorb(key, count) >> 54] for count in range(1, 200)]
    assert _latencies(network, 199, 3, 4) == expected


def test_latencies_around_a_value_reach_both_ends() -> None:
    latency = Latency("around", 500, 300)
    found = _latencies(Network(6, Conditions(latency=latency, in_order=False)), 20_000)
    assert (min(found), max(found)) == (200, 800)
    # The standard deviation of the mean is 600/√12/√20000 = 1.2.
    assert sum(found) / len(found) == pytest.approx(500, abs=6)
    with pytest.raises(ValueError, match="spread_ms"):
        Latency("around", 20, 20)


def test_links_do_not_depend_on_each_other() -> None:
    conditions = Conditions(latency=Latency("uniform", 50), loss_percent=20)
    alone, busy = Network(1, conditions), Network(1, conditions)
    expected = [tuple(alone.arrivals(0, 1, 7)) for _ in range(100)]
    got = []
    for _ in range(100):
        busy.arrivals(1, 0, 3)
        got.append(tuple(busy.arrivals(0, 1, 7)))
        busy.arrivals(2, 1, 9)
    assert got == expected


@pytest.mark.parametrize("percent", [0, 1, 10, 30])
def test_share_of_lost_messages(percent: int) -> None:
    network = Network(2, Conditions(loss_percent=percent))
    kept = len(_latencies(network, 20_000))
    # Five standard deviations of a binomial with p = 0.3 are 324.
    assert abs(kept - 20_000 * (100 - percent) // 100) <= (324 if percent else 0)
    assert network.lost == 20_000 - kept


def test_uneven_loss_differs_between_links_within_the_bound() -> None:
    network = Network(3, Conditions(loss_percent=30, loss_uneven=True))
    losses = [1_000 - len(_latencies(network, 1_000, 0, receiver)) for receiver in range(1, 60)]
    assert max(losses) <= 300 + 73
    assert min(losses) < 40 < 200 < max(losses)


def test_duplicates_come_no_earlier_than_the_first_copy() -> None:
    network = Network(4, Conditions(duplicate_percent=10))
    doubled = [pair for _ in range(5_000) if len(pair := network.arrivals(0, 1, 0)) == 2]
    assert abs(len(doubled) - 500) <= 107
    assert all(first < second for first, second in doubled)
    assert network.duplicated == len(doubled)


def test_distributions_have_their_shape() -> None:
    constant = Latency("constant", 30).quantiles()
    uniform = Latency("uniform", 30).quantiles()
    tail = Latency("long_tail", 30).quantiles()
    assert set(constant) == {30}
    assert (min(uniform), max(uniform)) == (1, 60)
    assert sorted(tail) == tail
    assert tail[len(tail) // 2] == 30
    assert tail[int(len(tail) * 0.99)] > 9 * 30
    with pytest.raises(ValueError, match="at least 1"):
        Latency("constant", 0)


def test_order_is_kept_only_where_asked_for() -> None:
    def arrivals(in_order: bool) -> list[int]:
        network = Network(6, Conditions(latency=Latency("long_tail", 50), in_order=in_order))
        return [at_ms for now_ms in range(500) for at_ms in network.arrivals(0, 1, now_ms)]

    assert arrivals(True) == sorted(arrivals(True))
    assert arrivals(False) != sorted(arrivals(False))


def test_distance_is_fixed_per_pair_and_outlives_conditions() -> None:
    calm = Conditions(latency=Latency("constant", 1))
    network = Network(7, calm, distance_ms_max=100)
    there, back = _latencies(network, 3), _latencies(network, 3, 1, 0)
    assert len(set(there)) == 1 and there == back
    assert len({_latencies(network, 1, 0, other)[0] for other in range(2, 40)}) > 10
    network.set_conditions(Conditions(latency=Latency("constant", 5)))
    assert _latencies(network, 1) == [there[0] + 4]


def test_change_of_conditions_reaches_old_links() -> None:
    network = Network(8, Conditions())
    assert len(_latencies(network, 100)) == 100
    network.set_conditions(Conditions(loss_percent=100))
    assert _latencies(network, 100) == []


def test_partition_cuts_between_sides_and_heals() -> None:
    network = Network(9, Conditions())
    network.set_partition(Partition((0, 1, 1)))
    assert network.arrivals(0, 1, 0) == ()
    assert len(network.arrivals(1, 2, 0)) == 1
    assert network.is_cut(1, 0)
    assert network.cut == 1
    network.set_partition(Partition((0, 1, 1), one_way=True))
    assert len(network.arrivals(0, 1, 0)) == 1
    assert network.arrivals(1, 0, 0) == ()
    network.set_partition(None)
    assert len(network.arrivals(1, 0, 0)) == 1


def test_slow_receiver() -> None:
    network = Network(10, Conditions(latency=Latency("constant", 10)))
    network.set_slow(1, 500)
    assert _latencies(network, 1) == [510]
    assert _latencies(network, 1, 1, 0) == [10]
    network.set_slow(1, 0)
    assert _latencies(network, 1, 2, 1) == [10]


def test_a_link_with_a_rate_lets_events_wait_and_keeps_their_order() -> None:
    conditions = Conditions(latency=Latency("constant", 10), events_per_s=1_000)
    network = Network(1, conditions)
    assert [*network.arrivals(0, 1, 0, 50), *network.arrivals(0, 1, 0, 50)] == [60, 110]
    assert network.arrivals(0, 1, 0) == (110,)  # what carries no event waits its turn, too
    assert network.arrivals(0, 2, 0) == (10,)  # on another link
    assert network.arrivals(0, 1, 500, 1) == (511,)  # the queue is empty again
