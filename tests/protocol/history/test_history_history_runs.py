"""Runs of several events where history is kept, and runs of peers that keep none."""

from __future__ import annotations

from itertools import pairwise

from msgspec.structs import replace

from history_kit import T, Town, change, follow, hear, id_of, routed
from weft.documents.descriptor import INCARNATION, NUMBER, seal_event
from weft.documents.run import NOTHING_BEFORE, Run, sign_run
from weft.protocol.wire import Payload
from weft.sim.node import keyed

STRANGER = 9


def together() -> Town:
    town = Town(3)
    town.subscribe(0, 1, 2)
    town.run(20_000)
    return town


def plain(*payloads: bytes, by: int = STRANGER) -> Run:
    """What a peer without a store publishes."""
    contact, sign = keyed(1, by)
    return sign_run(sign, T, contact.peer, 1, 1, 0, payloads, NOTHING_BEFORE).run


def test_events_published_together_are_stored_together_and_name_each_other() -> None:
    town = together()
    sent = town.world.sent[Payload]
    town.world.publish(town.nodes[0], T, b"1", b"2", b"3")
    town.run(20_000)
    stored = town.stored(0)
    assert [event.payload for event in stored] == [b"1", b"2", b"3"]
    for before, event in pairwise(stored):
        assert event.parents == (before.cid,)
    for number in (1, 2):
        assert town.stream(number) == town.stream(0)
        assert [cid for _, cid in town.delivered(number)] == town.stream(0)
    assert town.world.sent[Payload] - sent < 6  # one message a link, not one an event
    assert town.answers() == ["delivered"] * 3


def test_an_event_too_large_for_a_block_is_refused_and_the_next_one_goes_on() -> None:
    """Also where no driver has looked at its size. No number is spent on it."""
    town = together()
    town.world.publish(town.nodes[0], T, bytes(1 << 20))
    town.world.publish(town.nodes[0], T, b"small")
    town.run(20_000)
    first, _ = town.world.record.publications.values()
    assert town.answers() == ["refused", "delivered"]
    assert "too large (at most 104" in first.answers[-1][1].reason
    [stored] = town.stored(2)
    assert (stored.payload, stored.metadata[NUMBER]) == (b"small", 1)


def test_a_run_with_one_block_that_is_none_goes_no_further() -> None:
    town = together()
    contact, sign = keyed(1, STRANGER)
    good = seal_event(
        sign,
        publisher=contact.peer,
        topic=T,
        payload=b"good",
        created_ms=0,
        metadata={INCARNATION: 1, NUMBER: 1},
    )
    for bad in (b"no block", good.block):  # the second is not number 2
        blocks = (good.block, bad)
        said = sign_run(sign, T, contact.peer, 1, 1, 0, blocks, NOTHING_BEFORE, sealed=True).run
        before = town.world.sent[Payload]
        hear(town, 0, 1, Payload(T, said, 1))
        assert town.world.sent[Payload] == before
    town.run(5_000)
    assert town.stream(0) == []
    hear(town, 0, 1, Payload(T, routed(good), 1))
    town.run(5_000)
    assert town.stream(0) == town.stream(2) == [good.cid]


def test_a_block_in_a_run_that_does_not_say_so_is_a_payload() -> None:
    town = together()
    said = replace(plain(b"x"), sealed=True)  # and the flag is signed
    hear(town, 0, 1, Payload(T, said, 1))
    assert town.peer(0).counters["forged"] == 1


def test_what_a_peer_without_a_store_publishes_is_handed_out_and_not_stored() -> None:
    town = together()
    hear(town, 0, 1, Payload(T, plain(b"1", b"2"), 1))
    town.run(5_000)
    for number in range(3):
        got = [(one.event.payload, one.descriptor) for one in town.deliveries(number)]
        assert got == [(b"1", None), (b"2", None)]
        assert town.stream(number) == []
    assert town.counter("history_plain") == 6


def test_owners_judge_publishers_without_a_store_too() -> None:
    town = together()
    follow(town, (0,), 1, 2)
    change(town, 0, create=True, anyone=False, allow=(id_of(town, 1),))
    town.run(30_000)
    hear(town, 2, 0, Payload(T, plain(b"no"), 1))
    allowed = keyed(1, 1)
    assert allowed[0].peer == id_of(town, 1)
    hear(town, 2, 0, Payload(T, plain(b"yes", by=1), 1))
    town.run(5_000)
    assert [one.event.payload for one in town.deliveries(2)] == [b"yes"]
    assert town.peer(2).counters["history_refused_not_allowed"] == 1
