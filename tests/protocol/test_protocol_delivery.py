"""The events of one publisher are handed out in the order of their numbers."""

from __future__ import annotations

from protocol_kit import Rig, T, delivered, event, member, run, told
from weft.protocol import seam
from weft.protocol.config import Config, Dissemination
from weft.protocol.recent import Repair
from weft.protocol.wire import Payload

CONFIG = Dissemination()


def began(config: Config | None = None) -> Rig:
    """A member that has publisher 9's first event."""
    rig = member(2, 3, config=config)
    rig.hear(2, Payload(T, event(9, 1), 1))
    return rig


def test_an_event_waits_for_an_earlier_one_and_is_passed_on_meanwhile() -> None:
    rig = began()
    effects = rig.hear(2, Payload(T, run(9, 3, b"3", b"4"), 1))
    assert delivered(effects) == []
    assert told(effects, Payload) == [3]
    rig.hear(2, Payload(T, event(9, 6), 1))
    assert delivered(rig.hear(2, Repair(T, [event(9, 2)]))) == [(9, 2), (9, 3), (9, 4)]
    assert delivered(rig.hear(3, Payload(T, event(9, 5), 1))) == [(9, 5), (9, 6)]
    assert delivered(rig.hear(2, Payload(T, event(9, 7), 1))) == [(9, 7)]


def test_publishers_do_not_wait_for_each_other() -> None:
    rig = began()
    rig.hear(2, Payload(T, event(9, 3), 1))
    assert delivered(rig.hear(2, Payload(T, event(8, 1), 1))) == [(8, 1)]


def test_what_never_comes_is_not_waited_for_for_ever() -> None:
    rig = began()
    rig.hear(2, Payload(T, event(9, 3), 1))
    assert delivered(rig.wait(CONFIG.order_ms - 1)) == []
    assert delivered(rig.wait(CONFIG.settle_ms)) == [(9, 3)]
    assert delivered(rig.hear(2, Payload(T, event(9, 4), 1))) == [(9, 4)]  # it goes on
    assert delivered(rig.hear(2, Repair(T, [event(9, 2)]))) == [(9, 2)]  # late, but not lost


def test_of_a_publisher_not_heard_of_earlier_ones_are_waited_for_a_little() -> None:
    rig = member(2)
    assert delivered(rig.hear(2, Payload(T, event(9, 40), 1))) == []
    assert delivered(rig.wait(CONFIG.settle_ms)) == [(9, 40)]


def test_what_waits_is_bounded_in_bytes() -> None:
    rig = began()
    large = bytes(1 << 20)
    got = []
    for number in (3, 5, 7, 9, 11, 13):
        got += delivered(rig.hear(2, Payload(T, event(9, number, large), 1)))
    assert got == [(9, number) for number in (3, 5, 7, 9, 11)]


def test_a_topic_that_was_left_hands_out_nothing_any_more() -> None:
    rig = began()
    rig.hear(2, Payload(T, event(9, 3), 1))
    rig.do(seam.Unsubscribe(9, T))
    assert delivered(rig.wait(2 * CONFIG.order_ms)) == []
