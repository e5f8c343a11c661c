"""Looking after the table: whom a peer asks about itself when nobody asks it anything."""

from __future__ import annotations

from kademlia_kit import asked, dht, location, machine, reply, request, rig
from protocol_kit import Rig, timers

from weft.rules.prefix import as_bytes, common_prefix

OWN = location(1)
NEAR = [n for n in range(2, 400) if common_prefix(OWN, location(n)) >= 4][:4]
FAR = [n for n in range(2, 400) if common_prefix(OWN, location(n)) == 0]
SMALL = dht(k=2, alpha=1, refresh_ms=20_000)


def whom_it_asks(one: Rig, refreshes: int) -> list[tuple[int, bool]]:
    """Whom it asks, and whether about itself, over so many refreshes; all answer what is so."""
    found: list[tuple[int, bool]] = []
    while refreshes:
        effects = one.wait_for("dht.refresh")
        refreshes -= bool(timers(effects, "dht.refresh"))  # a stale timer sets no other
        waiting = asked(effects)
        while waiting:
            number, message = waiting.pop()
            found.append((number, message.target == as_bytes(OWN)))
            waiting += asked(one.hear(number, reply(message, *NEAR[:2])))
    return found


def test_it_looks_itself_up() -> None:
    one = rig(SMALL, *NEAR[:2])
    assert {(NEAR[0], True), (NEAR[1], True)} <= set(whom_it_asks(one, 1))


def test_a_range_that_a_table_lacks_is_found_by_the_general_overlay() -> None:
    one = rig(SMALL, *NEAR[:2])
    one.meet(FAR[0])
    assert machine(one).home.table.get(location(FAR[0])) is None
    assert (FAR[0], False) in whom_it_asks(one, 1)
    assert machine(one).home.table.get(location(FAR[0])) is not None


def test_it_enters_anew_through_strangers() -> None:
    """Its table has all the places for them taken, so no other lookup would ask them."""
    one = rig(SMALL, *NEAR[:2])
    for number in FAR[:2]:
        one.hear(number, request(0))
    one.meet(*FAR[2:5])
    before = {entry.key for entry in machine(one).home.table}
    strangers = {(number, True) for number in FAR[2:5]}
    assert not strangers & set(whom_it_asks(one, 2))
    assert strangers & set(whom_it_asks(one, 1))
    assert before <= {entry.key for entry in machine(one).home.table}


def test_a_range_nobody_looked_into_for_an_hour_is_looked_into() -> None:
    settings = dht(k=2, alpha=1, refresh_ms=20_000, bucket_refresh_ms=60_000)
    one = rig(settings, *NEAR[:2])
    for number in FAR[:2]:
        one.hear(number, request(0))
    known = {(number, False) for number in FAR[:2]}
    assert not known & set(whom_it_asks(one, 2))
    assert known <= set(whom_it_asks(one, 6))


def test_refreshes_become_rare() -> None:
    one = rig(dht(refresh_first_ms=1_000, refresh_ms=64_000), *NEAR)
    pauses = []
    for _ in range(12):
        before = one.now
        one.wait_for("dht.refresh")
        pauses.append(one.now - before)
    assert pauses[0] < 2_000
    assert all(32_000 <= pause <= 96_001 for pause in pauses[-4:])
