"""No peer is served from the store faster than its share."""

from __future__ import annotations

from history_kit import Town, hear
from protocol_kit import contact
from weft.ids import Topic, cid_of
from weft.protocol.config import Config, HistorySettings
from weft.protocol.context import Context
from weft.protocol.history.blocks import BlocksReply, BlocksRequest
from weft.protocol.history.reader import PageReply, PageRequest
from weft.protocol.history.server import Cost, Pace
from weft.protocol.seam import Send, SetTimer

T = Topic("/t")
RATE = 1_000


class Served:
    """Answers of a given size, and when they were given."""

    def __init__(self) -> None:
        self.ctx = Context(contact(1), 7, Config(history=HistorySettings(serve_bytes_per_s=RATE)))
        self.pace = Pace(self.ctx)
        self.times: list[int] = []

    def ask(self, size: int, number: int = 2, looked_at: int = 0, page: bool = False) -> None:
        def answer() -> Cost:
            self.times.append(self.ctx.now)
            return Cost(size, looked_at)

        self.pace.serve(contact(number), T, answer, page)

    def play(self) -> None:
        """Let the timers fire, in their order."""
        timers = [one for one in self.ctx.out if isinstance(one, SetTimer)]
        self.ctx.out.clear()
        start = self.ctx.now
        for one in sorted(timers, key=lambda one: one.after_ms):
            self.ctx.now = start + one.after_ms
            self.pace.on_timer(one.timer.serial)


def test_a_seconds_share_comes_at_once_and_the_rest_in_time() -> None:
    served = Served()
    for _ in range(3):
        served.ask(RATE)
    assert served.times == [0, 0]  # no more than a second's share was owed before the second
    served.play()
    assert served.times == [0, 0, 1_000]
    served.ctx.now = 60_000
    served.ask(RATE)
    assert served.times[-1] == 60_000  # what was had long ago does not count


def test_what_is_looked_at_counts_as_what_is_sent() -> None:
    served = Served()
    for _ in range(3):
        served.ask(0, looked_at=16_384)
    assert served.times == [0, 0]
    served.play()
    assert served.times == [0, 0, 1_000]


def test_a_peer_that_asks_for_what_is_not_there_is_paced() -> None:
    """The answers are empty, and each is searched for among all that is stored."""
    town = Town(2)
    town.subscribe(0)
    town.run(10_000)
    town.publish(*[0] * 200, every_ms=5)
    top, future = town.stream(0)[-1], 1 << 45
    for question in (
        lambda n: PageRequest(T, n, heads=[top]),
        lambda n: PageRequest(T, n, since_event=top),
        lambda n: PageRequest(T, n, since_ms=future),
        lambda n: PageRequest(T, n, since_event=cid_of(b"not stored")),
        lambda n: BlocksRequest(T, n, [cid_of(b"%d" % each) for each in range(64)]),
    ):
        before = town.counter("history_paced") + town.counter("history_not_served")
        answers = [
            effect.message
            for number in range(6_000)
            for effect in hear(town, 0, 1, question(number))
            if isinstance(effect, Send)
        ]
        assert all(isinstance(answer, PageReply | BlocksReply) for answer in answers)
        assert not any(answer.blocks for answer in answers)  # type: ignore[union-attr]
        paced = town.counter("history_paced") + town.counter("history_not_served") - before
        assert len(answers) + paced == 6_000 and paced >= 1_000
        town.run(10_000)


def test_one_peer_does_not_wait_for_another() -> None:
    served = Served()
    for _ in range(3):
        served.ask(10 * RATE, 2)
    served.ask(RATE, 3)
    assert len(served.times) == 2


def test_what_waits_is_bounded_and_forgotten_with_its_asker() -> None:
    served = Served()
    for _ in range(20):
        served.ask(10 * RATE)
    assert served.ctx.counters["history_paced"] == 8
    assert served.ctx.counters["history_not_served"] == 11
    served.pace.forget(contact(2).peer)
    served.play()
    assert served.times == [0]


def test_a_page_that_is_asked_for_again_takes_the_place_of_the_one_before() -> None:
    """A reader that lost patience would pay for pages that it does not wait for any more."""
    served = Served()
    served.ask(3 * RATE, page=True)
    for _ in range(5):
        served.ask(RATE, page=True)
    served.ask(RATE)  # blocks are another question
    served.play()
    assert len(served.times) == 3


def test_a_slow_source_is_read_to_the_end() -> None:
    """A page a second or so: the reader waits for it, and does not leave."""
    town = Town(2, serve_bytes_per_s=20_000, page_bytes_max=10_000)
    town.subscribe(0)
    town.run(10_000)
    town.publish(*[0] * 40, every_ms=10, payload=bytes(2_000))
    town.subscribe(1, since="beginning")
    town.run(30_000)
    assert town.stream(1) == town.stream(0) and len(town.stream(1)) == 40
    assert town.counter("history_paced") > 0
